"""RDSS, "Local Data Repository": what becomes of messages, in the words of a gateway and of an exchange."""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    """
    What became of a message that was taken from a queue; each taken message has exactly one outcome.

    It is *waiting* until its handler is done, and then processed, or an error.  What is not valid is
    *invalid* or an *error*, by the queue that it is routed to.  A *duplicate* is a message that waits or was
    processed already, also one of our own, and a part whose content came before in its place.

    >>> print(*Outcome)
    waiting processed invalid error duplicate
    """

    WAITING = "waiting"
    PROCESSED = "processed"
    INVALID = "invalid"
    ERROR = "error"
    DUPLICATE = "duplicate"


class Status(StrEnum):
    """
    Where a message stands, in the three words of the specification.

    >>> [str(each) for each in Status]
    ['RECEIVED', 'TO_SEND', 'SENT']
    """

    RECEIVED = "RECEIVED"
    TO_SEND = "TO_SEND"
    SENT = "SENT"


STATUSES = (Status.RECEIVED, Status.TO_SEND, Status.SENT)
"""In their order: the status of a message is the last that it had."""
