"""What becomes of messages: the words of the local data repository, and ours for what was received."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol


class Status(StrEnum):
    """
    Where a message stands, in the three words of the specification.

    >>> [str(each) for each in Status]
    ['RECEIVED', 'TO_SEND', 'SENT']
    """

    RECEIVED = "RECEIVED"
    TO_SEND = "TO_SEND"
    SENT = "SENT"


class Fate(StrEnum):
    """
    What became of a message that was taken from a queue; each taken message has exactly one fate.

    It is *waiting* until its handler is done, and then processed, or an error.  What is not valid is
    *invalid* or an *error*, by the queue that it is routed to.  A *duplicate* is a message that waits or was
    processed already, also one of our own, and a part whose content came before in its place.

    >>> print(*Fate)
    waiting processed invalid error duplicate
    """

    WAITING = "waiting"
    PROCESSED = "processed"
    INVALID = "invalid"
    ERROR = "error"
    DUPLICATE = "duplicate"


class KnownMessages(Protocol):
    """
    What every local data repository answers: a gateway's in SQLite, and an exchange's in its store.

    >>> from cdckit.rdss import Exchange
    >>> asked: type[KnownMessages] = Exchange
    """

    def status(self, message_id: str) -> Status | None:
        """The status of a message; None if it is not known."""
