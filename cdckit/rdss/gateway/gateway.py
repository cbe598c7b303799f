"""The message gateway: an application's synchronous way to send, receive and ask."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from cdckit.errors import InvalidArgument
from cdckit.rdss.decoration import refuse
from cdckit.rdss.findings import Finding, RdssFault, show_value
from cdckit.rdss.gateway.channels import Channel, Machine, Message, Producer
from cdckit.rdss.gateway.downloads import downloads_tried_once
from cdckit.rdss.gateway.errors import (
    BACKOFF,
    Backoff,
    ChannelUnreachable,
    DownloadFailed,
    FailedStatement,
    KnownMessage,
    NoResponse,
    NotRefused,
    RefusedFile,
    Rejection,
    SendFailed,
    UnfitMessage,
)
from cdckit.rdss.gateway.handovers import Handover, WaitingLine
from cdckit.rdss.gateway.judging import assemble_message, judge_message, refused_message
from cdckit.rdss.gateway.logs import AuditEntry
from cdckit.rdss.gateway.queues import Channels
from cdckit.rdss.gateway.repository import RefusedMessage, SqliteRepository, SqlStatement, StoredMessage
from cdckit.rdss.message_rows import BEFORE_ALL
from cdckit.rdss.message_splitting import split
from cdckit.rdss.message_types import BODIES
from cdckit.rdss.object_bodies import KEY
from cdckit.rdss.outcomes import Outcome
from cdckit.rdss.reading import RULES, Rules


@dataclass(eq=False)
class MessageContext:
    """
    One message in the hands of a handler.

    What the handler sends and writes here takes effect in the same commit that notes the message as
    processed: all of it once, or, if the handler fails or the process dies, nothing, and the handler is
    called again.  What it does elsewhere may happen twice then: use the messageId to recognise that.

    >>> read = {"messageId": "m1", "messageType": "MetadataRead", "messageClass": "Command"}
    >>> turn = MessageContext(Message(read, {}), Producer("a", 1))
    >>> turn.reply({"objectTitle": "Cheese"}).correlation_id
    'm1'
    >>> turn.write("INSERT INTO titles VALUES (?)", "Cheese")
    >>> len(turn.replies), turn.statements[0].parameters
    (1, ('Cheese',))
    """

    message: Message
    producer: Producer
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    replies: list[Message] = field(default_factory=list)
    sends: list[Message] = field(default_factory=list)
    statements: list[SqlStatement] = field(default_factory=list)

    def reply(self, body: Any) -> Message:
        """
        Respond: a Document of the same type with the correlationId, sent to the returnAddress if any.

        Raises:
            InvalidArgument: The message takes no response: only a request to read an object does.

        Source:
            RDSS, "Messages".
        """
        kind, message_class = self.message.message_type, self.message.message_class
        if (kind, "Document") not in BODIES or message_class != "Command":
            needed = "a MetadataRead that is a Command, which alone has a response"
            raise InvalidArgument("reply", "message", needed, f"{kind} that is a {message_class}")
        response = self.producer.message(kind, body, answers=self.message, now=self.now())
        self.replies.append(response)
        return response

    def send(self, message: Message) -> None:
        """Send another message, which answers nothing."""
        self.sends.append(message)

    def write(self, sql: str, *parameters: object) -> None:
        """Write a row to a table of the application's own in the repository's file."""
        self.statements.append(SqlStatement(sql, parameters))


logger = logging.getLogger("cdckit.rdss.gateway")
_AT_ONCE = 100
"""How many messages are read of the repository at once."""

_Result = TypeVar("_Result")

Handler = Callable[[MessageContext], None]
"""What an application does with a message; it returns, or raises, `Rejection` for what has a code."""


@dataclass(eq=False)
class Gateway:
    """
    Sends, receives and asks; every call returns when it is done, and belongs to one thread.

    A message is noted in the *repository* before it is sent, and before it is acknowledged to the queue it
    came from: a crash at any moment loses nothing, and what was processed is not processed again.  Messages
    of the input are taken (`receive`) and then handled (`process`); what is refused is routed to the
    invalid or the error queue, decorated with its code.

    Args:
        repository: What remembers the messages; closed by whoever made it.
        channels: The queues.
        producer: In whose name responses are made.
        backoff: When to try again where a queue cannot be reached, or a handler raises one of *transient*.
        transient: What a handler raises that may pass: errors of files and of networks, and downloads.
        interval: Seconds between two looks at the input while waiting for a response.
        machine: Named in the messageHistory of what is sent, if it is given.
        audit: Told of every message, such as `AuditLog(folder).write`.
        rules: The limits that messages are validated against.
        clock: The present instant, aware.
        sleep: Waits so many seconds.

    Source:
        RDSS, "Transactional Behaviour", "Network Failure Behaviour", "Message Gateway".

    >>> from cdckit.rdss.gateway import MemoryChannel, Producer, SqliteRepository
    >>> queues = {name: MemoryChannel(name) for name in ("input", "output", "invalid", "error")}
    >>> with SqliteRepository(":memory:") as repository:
    ...     gateway = Gateway(repository, Channels(**queues), Producer("repository", 7))
    ...     question = gateway.producer.message("MetadataRead", {"objectUUID": 36 * "?"})
    ...     try:
    ...         gateway.send(question)
    ...     except UnfitMessage as error:
    ...         print(error.code)
    ...     queues["input"].send(b"{}", key="")
    ...     print(gateway.receive(), len(queues["invalid"]))
    GENERR010
    [<Outcome.INVALID: 'invalid'>] 1
    """

    repository: SqliteRepository
    channels: Channels
    producer: Producer
    _: KW_ONLY
    backoff: Backoff = BACKOFF
    transient: tuple[type[Exception], ...] = (OSError,)
    interval: float = 1.0
    machine: Machine | None = None
    audit: Callable[[Iterable[AuditEntry]], None] = lambda entries: None
    rules: Rules = RULES
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    sleep: Callable[[float], None] = time.sleep

    def send(self, message: Message) -> None:
        """
        Return when the output has acknowledged the message, and all that was still to be sent before it.

        One that is larger than a message may be is sent in parts, as a sequence.  Messages about one object
        are received in the order in which they were sent; in Kinesis, where an object goes to one shard,
        those about its other versions may not be.

        Raises:
            UnfitMessage: A receiver would refuse it, or it has no text in JSON; nothing was sent.
            InvalidArgument: Its header is larger than a message may be; nothing was sent.
            KnownMessage: Its messageId is that of a message that was received; nothing was sent.
            SendFailed: The output could not be reached; the message stays TO_SEND (see `resume`).
        """
        self.repository.mark_to_send(self._outgoing(message))
        self._send_all("output")

    def require_fit(self, message: Message) -> None:
        """Raise `UnfitMessage` where `send` would, and send nothing."""
        self._outgoing(message)

    def resume(self) -> None:
        """
        Send what is TO_SEND, and route what was refused, as after a crash; raises `SendFailed`.

        A response to a queue that `returns` has no more goes to the output, and the log says so.
        """
        for destination in self.repository.unsent_destinations():
            self._send_all(destination)
        self._route()

    def receive(self, limit: int = 100) -> list[Outcome]:
        """
        Take at most *limit* messages of the input and note what is to become of each; its outcome so far.

        Raises:
            ChannelUnreachable: The input could not be reached, in all retries.
            SendFailed: A refused message is noted, and its queue could not be reached.
        """
        channel = self.channels.input
        deliveries = self._retry(partial(channel.receive, limit))
        try:
            outcomes = self._take([delivery.value for delivery in deliveries])
            now, received = self.clock(), zip(deliveries, outcomes, strict=True)
            self.audit(
                [
                    AuditEntry(now, "received", channel.name, delivery.value, outcome)
                    for delivery, outcome in received
                ]
            )
        except BaseException:
            # What is delivered and not acknowledged comes again once the connection is another one.
            channel.close()
            raise
        try:
            if deliveries:
                channel.acknowledge(deliveries)
        except ChannelUnreachable as error:
            # They are noted: those that come again are recognised.
            logger.warning("%s %s", RdssFault.SYSTEM_FAILED.value, error)
        self._route()
        return outcomes

    def process(self, handler: Handler, limit: int | None = None) -> int:
        """
        Hand the messages that wait, and are whole, to *handler*, the oldest first, at most *limit*; how many.

        A handler that raises sends the message to a queue: `Rejection` says which code.  An error of files,
        networks or statements, one of *transient* and `RefusedFile` are GENERR006; any other exception is a
        mistake of the handler, GENERR009.  One of *transient* may pass: the handler is called again, after
        the delays of *backoff*, before any other message is handed over.  One that is interrupted is called
        again with the same message later.  No message is handed over more often than *backoff* has tries, by
        whatever processes: one that ends them each time is GENERR009, too.

        A `download` that fails and may pass concerns its message alone: others are handed over meanwhile, but
        none about the same object or one that it is related to.  The delays are those of *backoff*, and all
        together no longer than these, whatever the server asks for.  A file that is not there is final.

        A message whose handler failed has not been processed: when it comes again, it is handled (see
        `replay`).  One that has expired since it was received is not handled.
        """
        budget = sum(self.backoff.delays())
        line = WaitingLine(self.repository.next_waiting, self._open_message, budget, self.clock, self.sleep)
        begun = 0
        while handover := line.next(begin=limit is None or begun < limit):
            begun += handover.due is None
            self._process(handover, handler, line)
        return begun

    def replay(self, message_id: str) -> list[Outcome]:
        """
        Take a message once more that was refused, from the bytes that the repository has of it.

        Those of a sequence, by the messageId of any part of it, are all taken.  What was refused when it was
        handed over waits for `process` again, and goes to the queue of what it fails with then; what
        was refused when it came is judged by the rules as they are now, and is a duplicate if refused again.

        Returns:
            The outcome of each so far.

        Raises:
            NotRefused: Nothing is kept of such a message that was refused.
        """
        originals = self.repository.refused_bytes(message_id)
        if not originals:
            raise NotRefused(message_id)
        outcomes = self._take(originals)
        self._route()
        return outcomes

    def request(self, message: Message, *, timeout: float = 60) -> Message:
        """
        Send *message* and return the response, the message whose correlationId is its messageId.

        What else comes meanwhile waits for `process`.  The response is kept until it is forgotten: a process
        that ended before it used the response asks again with the same messageId, and has the same one.

        Raises:
            NoResponse: None came within *timeout* seconds.
        """
        self.send(message)
        until = time.monotonic() + timeout
        while True:
            self.receive()
            if parts := self.repository.response_to(message.message_id):
                # One that was returned before came in time, though it has expired since.
                at = self.clock() if self.repository.is_waiting(parts) else BEFORE_ALL
                response = self._open_message(parts, at)
                if response is not None:
                    self.repository.settle(parts, Outcome.PROCESSED, keep=True)
                    return response
            if time.monotonic() >= until:
                raise NoResponse(message.message_id, timeout)
            self.sleep(self.interval)

    def give_up(self, older_than: timedelta) -> int:
        """
        Refuse the parts of sequences to which nothing was added for so long; how many parts.

        They wait again if another part of their sequence comes all the same.
        """
        parts = self.repository.incomplete_parts(self.clock() - older_than)
        positions: dict[str, list[int]] = {}
        for part in parts:
            positions.setdefault(part.sequence, []).append(part.position)
        for part in parts:
            listed = ", ".join(map(str, positions[part.sequence][:20]))
            finding = (
                f"The sequence {part.sequence} of {part.total} parts stays incomplete: part {listed} came."
            )
            # Its bytes are kept: when another part comes all the same, they wait again.
            self._refuse([part], RdssFault.INVALID_BODY, finding, keep=True)
        self._route()
        return len(parts)

    def forget(self, older_than: timedelta) -> int:
        """
        Remove from the repository what is done and was noted so long ago; how many messages.

        Without it the repository grows for ever.  What is forgotten is no longer recognised when it comes
        again, so it should be older than the queues keep a message; what waits, is to be sent or is not
        yet routed stays, and so do all counts.  Parts of a sequence stay while a newer part of it does.
        """
        return self.repository.forget(self.clock() - older_than)

    def _take(self, values: Sequence[bytes]) -> list[Outcome]:
        now = self.clock()
        messages = [judge_message(value, now, self.rules) for value in values]
        outcomes = self.repository.take(messages, self._judge_parts)
        for message, outcome in zip(messages, outcomes, strict=True):
            if isinstance(message, RefusedMessage) and outcome is not Outcome.DUPLICATE:
                logger.warning("%s %s", message.error_code, message.error_description)
        return outcomes

    def _judge_parts(
        self, parts: Sequence[StoredMessage], contradiction: Finding | None
    ) -> list[RefusedMessage]:
        if contradiction is not None:
            return self._refusals(parts, contradiction.code, contradiction.description)
        verdict = assemble_message(parts, self.clock(), self.rules)
        return [] if verdict.code is None else self._refusals(parts, verdict.code, verdict.description)

    def _open_message(self, parts: Sequence[StoredMessage], at: datetime | None = None) -> Message | None:
        """Put a message of parts together; None if it is refused, or has expired *at* an instant or now."""
        verdict = assemble_message(parts, at or self.clock(), self.rules)
        if verdict.code is None and verdict.header is not None:
            return Message(verdict.header, verdict.body)
        refused = self._judge_parts(parts, None)
        self.repository.settle(parts, Outcome(refused[0].channel), refused=refused)
        self._route()
        return None

    def _process(self, handover: Handover, handler: Handler, line: WaitingLine) -> None:
        """Hand a message over until it is settled, refused or postponed."""
        message = handover.message
        while message is not None:
            delay = self._hand_over_once(message, handover, handler, line)
            if delay is None:
                break
            self.sleep(delay)
            message = self._open_message(handover.parts)
        self._route()

    def _hand_over_once(
        self, message: Message, handover: Handover, handler: Handler, line: WaitingLine
    ) -> float | None:
        """Hand a message over; the seconds after which it is again, before any other, or None."""
        parts, delays = handover.parts, self.backoff.delays()
        attempt = self.repository.count_attempt(parts)
        if attempt > len(delays) + 1:
            finding = f"It was handed over {attempt - 1} times, and no handler came to an end with it."
            self._refuse(parts, RdssFault.UNEXPECTED, finding)
            return None
        context = MessageContext(message, self.producer, self.clock)
        try:
            with downloads_tried_once():
                handler(context)
            send = self._follow_ups(context)
        except Rejection as rejection:
            self._refuse(parts, rejection.code, rejection.finding)
        except Exception as error:
            may_pass = isinstance(error, self.transient) and attempt <= len(delays)
            if may_pass and not isinstance(error, DownloadFailed):
                self._warn(f"the handler failed, and is called again: {error!r}")
                return delays[attempt - 1]
            if may_pass and isinstance(error, DownloadFailed) and error.to_retry and handover.left > 0:
                self._warn(f"the message {message.message_id} is handed over again: {error}")
                line.postpone(handover, delays[attempt - 1], error.after)
            else:
                self._note_failure(parts, error)
        else:
            self._settle(parts, context, send)
        return None

    def _warn(self, sentence: str, fault: RdssFault = RdssFault.SYSTEM_FAILED) -> None:
        logger.warning("%s %s", fault.value, sentence)

    def _follow_ups(self, context: MessageContext) -> list[tuple[StoredMessage, str]]:
        """Make what the handler sends ready to be stored, each with its destination."""
        address = context.message.return_address
        back = self.channels.return_to(address)
        if context.replies and address is not None and back == "output":
            unknown = f"the returnAddress {show_value(address)} is none of `returns`"
            self._warn(f"{unknown}: the response goes to the output", RdssFault.INVALID_HEADER)
        messages = [(reply, back) for reply in context.replies] + [(sent, "output") for sent in context.sends]
        return [(part, destination) for message, destination in messages for part in self._outgoing(message)]

    def _settle(
        self, parts: Sequence[StoredMessage], context: MessageContext, send: list[tuple[StoredMessage, str]]
    ) -> None:
        try:
            self.repository.settle(parts, Outcome.PROCESSED, send=send, write=context.statements)
        except (FailedStatement, KnownMessage) as error:
            self._note_failure(parts, error)
            return
        for destination in {destination for _, destination in send}:
            self._send_all(destination)

    def _note_failure(self, parts: Sequence[StoredMessage], error: Exception) -> None:
        is_of_system = isinstance(error, (OSError, FailedStatement, RefusedFile, *self.transient))
        fault = RdssFault.SYSTEM_FAILED if is_of_system else RdssFault.UNEXPECTED
        logger.debug("%s the handler failed", fault.value, exc_info=error)
        name, text = type(error).__name__, str(error)[:500]
        self._refuse(parts, fault, f"{name}: {text}" if text else name)

    def _refuse(
        self, parts: Sequence[StoredMessage], code: RdssFault, finding: str, *, keep: bool = False
    ) -> None:
        refused = self._refusals(parts, code, code.describe(finding))
        self.repository.settle(parts, Outcome(code.queue.value), refused=refused, keep=keep)

    def _refusals(
        self, parts: Sequence[StoredMessage], code: RdssFault, description: str | None
    ) -> list[RefusedMessage]:
        logger.error("%s %s", code.value, description)
        return [
            refused_message(part.value, refuse(part.value, code, description or "", self.rules), self.rules)
            for part in parts
        ]

    def _outgoing(self, message: Message) -> list[StoredMessage]:
        """Check a message as its receiver does, and split it into parts if it is too large."""
        now, message_id = self.clock(), str(message.header.get("messageId"))
        sent = message if self.machine is None else message.with_history(self.machine, now)

        def require_sound(value: bytes, rules: Rules) -> StoredMessage:
            judged = judge_message(value, now, rules)
            if isinstance(judged, RefusedMessage):
                raise UnfitMessage(message_id, judged.error_code, judged.error_description)
            return judged

        try:
            value = sent.to_bytes()
        except (TypeError, ValueError, RecursionError) as error:
            fault = RdssFault.MALFORMED
            raise UnfitMessage(message_id, fault.value, fault.describe(f"{error}.")) from error
        most = max(self.rules.max_bytes, self.rules.max_whole_bytes)
        require_sound(value, replace(self.rules, max_bytes=most))
        parts = [require_sound(part, self.rules) for part in split(value, rules=self.rules)]
        about = message.body.get(KEY) if isinstance(message.body, Mapping) else None
        return [replace(part, key=about or part.sequence) for part in parts]

    # Sending: TO_SEND becomes SENT on acknowledgement, and on nothing else.  A message that was acknowledged
    # just before a crash is sent again: its receivers know its messageId.

    def _send_all(self, destination: str) -> None:
        """Send what is TO_SEND to one destination, the oldest first."""
        channel = self.channels.destinations().get(destination, self.channels.output)
        if destination not in self.channels.destinations():
            gone = f"there is no queue {destination!r} any more: what is to be sent to it goes to the output"
            self._warn(gone, RdssFault.INVALID_HEADER)
        while unsent := self.repository.unsent_messages(_AT_ONCE, destination):
            for message in unsent:
                self._send(channel, message.value, message.key, message.message_id)
                self.audit([AuditEntry(self.clock(), "sent", channel.name, message.value)])
                self.repository.mark_sent(message.message_id)

    def _route(self) -> None:
        """Send what was refused, and is not yet acknowledged, to its queue."""
        while unrouted := self.repository.unrouted_messages(_AT_ONCE):
            for number, refused in unrouted:
                channel = self.channels.destinations()[refused.channel]
                key = refused.message_id or refused.error_code
                self._send(channel, refused.decorated, key, refused.message_id)
                entry = AuditEntry(self.clock(), "routed", channel.name, refused.decorated, refused.channel)
                self.audit([entry])
                self.repository.mark_routed(number)

    def _send(self, channel: Channel, value: bytes, key: str, message_id: str | None) -> None:
        try:
            self._retry(partial(channel.send, value, key=key))
        except ChannelUnreachable as error:
            failure = SendFailed(channel.name, message_id or "without an id", self.backoff.retries)
            logger.error("%s", failure)
            raise failure from error

    def _retry(self, call: Callable[[], _Result]) -> _Result:
        return self.backoff.retry(call, on=ChannelUnreachable, sleep=self.sleep)
