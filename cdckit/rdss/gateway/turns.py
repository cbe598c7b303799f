"""What a handler is given: a message, and what may follow from it in one commit."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from cdckit.errors import InvalidArgument
from cdckit.rdss.gateway.messages import Message, Producer
from cdckit.rdss.gateway.repository import Statement
from cdckit.rdss.validators import BODIES


class Turn:
    """
    One message in the hands of a handler.

    What the handler sends and writes here takes effect in the same commit that notes the message as
    processed: all of it once, or, if the handler fails or the process dies, nothing, and the handler is
    called again.  What it does elsewhere may happen twice then: use the messageId to recognise that.

    >>> read = {"messageId": "m1", "messageType": "MetadataRead", "messageClass": "Command"}
    >>> turn = Turn(Message(read, {}), Producer("a", 1), None)
    >>> turn.reply({"objectTitle": "Cheese"}).correlation_id
    'm1'
    >>> turn.write("INSERT INTO titles VALUES (?)", "Cheese")
    >>> len(turn.replies), turn.statements[0].parameters
    (1, ('Cheese',))
    """

    def __init__(self, message: Message, producer: Producer, now: Callable[[], datetime] | None) -> None:
        self.message = message
        self.replies: list[Message] = []
        self.sends: list[Message] = []
        self.statements: list[Statement] = []
        self._producer, self._now = producer, now

    def reply(self, body: Any) -> Message:
        """
        Respond: a Document of the same type with the correlationId, sent to the returnAddress if any.

        Raises:
            InvalidArgument: The message takes no response: only a request to read an object does.

        Source:
            RDSS, "Messages".
        """
        kind = (self.message.message_type, self.message.message_class)
        if (self.message.message_type, "Document") not in BODIES or kind[1] != "Command":
            needed = "a MetadataRead that is a Command, which alone has a response"
            raise InvalidArgument("reply", "message", needed, " that is a ".join(kind))
        now = None if self._now is None else self._now()
        response = self._producer.message(self.message.message_type, body, answers=self.message, now=now)
        self.replies.append(response)
        return response

    def send(self, message: Message) -> None:
        """Send another message, which answers nothing."""
        self.sends.append(message)

    def write(self, sql: str, *parameters: object) -> None:
        """Write a row to a table of the application's own in the repository's file."""
        self.statements.append(Statement(sql, parameters))
