"""What becomes of messages: the words of the local data repository, and ours for what was received."""

from __future__ import annotations

from enum import StrEnum


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
    *invalid* or an *error*, by the queue that it is routed to.  A *duplicate* is a message that is known
    already, also as one of our own.

    >>> print(*Fate)
    waiting processed invalid error duplicate
    """

    WAITING = "waiting"
    PROCESSED = "processed"
    INVALID = "invalid"
    ERROR = "error"
    DUPLICATE = "duplicate"
