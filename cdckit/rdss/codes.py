"""The error codes of RDSS: what each means, which queue the message goes to, and what it is said of."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Self

from cdckit.parts.faults import Fault


class Queue(StrEnum):
    """
    The queues for messages that were not processed.

    Source:
        RDSS, "Error Queues".

    >>> Queue.INVALID == "invalid"
    True
    """

    INVALID = "invalid"
    """What a receiver cannot process: a message that is malformed or incomplete."""
    ERROR = "error"
    """What a receiver was unable to process: infrastructure, or a message over the maximum size."""


class RdssFault(Fault):
    """
    The catalogue of error codes: `errorCode` in a header, `error_code` in a reject.

    Args:
        sentence: What is wrong.
        queue: The queue that such a message is moved to.
        applies_to: What the code is said of: `text`, `header`, `body`, `delivery`, `sending`, `processing`,
            `object` or `file`.
        heals: Whether what comes later can make the message usable.

    Two decisions are ours.  The text says of the queues that an oversize message is for the error queue, and
    gives no code for it: it is GENERR006, since the limit is the underlying system's.  The text demands
    GENERR010 for exhausted retries in one paragraph and GENERR005 in its table: it is GENERR005.

    Source:
        RDSS, "Error Codes" and "Error Queues".

    >>> RdssFault.INVALID_UUID == "GENERR010", RdssFault("GENERR010").queue, RdssFault.INVALID_UUID.applies_to
    (True, <Queue.INVALID: 'invalid'>, 'header, body')
    >>> RdssFault.EXPIRED.describe("It expired at noon.")
    'The message had expired when it was delivered. It expired at noon.'
    """

    queue: Queue
    applies_to: str

    def __new__(cls, code: str, sentence: str, queue: Queue, applies_to: str, heals: bool = False) -> Self:
        member = str.__new__(cls, code)  # not by super: an enumeration puts its own in the place of __new__
        member._value_ = code
        member.sentence, member.heals = sentence, heals
        member.queue, member.applies_to = queue, applies_to
        return member

    INVALID_BODY = "GENERR001", "The body is not of the form that its type needs.", Queue.INVALID, "body"
    UNKNOWN_TYPE = "GENERR002", "The message type is not supported.", Queue.INVALID, "header"
    EXPIRED = "GENERR003", "The message had expired when it was delivered.", Queue.INVALID, "delivery"
    INVALID_HEADER = "GENERR004", "The header is missing, incomplete or wrong.", Queue.INVALID, "header"
    RETRIES_EXHAUSTED = (
        "GENERR005",
        "The message could not be sent: all retries of the connection failed.",
        Queue.ERROR,
        "sending",
        True,
    )
    SYSTEM_FAILED = (
        "GENERR006",
        "The system below failed, or the message is larger than it takes.",
        Queue.ERROR,
        "text, sending, processing",
        True,
    )
    MALFORMED = "GENERR007", "The message is not well-formed JSON.", Queue.INVALID, "text"
    ROLLBACK_FAILED = "GENERR008", "A transaction could not be rolled back.", Queue.ERROR, "processing"
    UNEXPECTED = "GENERR009", "An error occurred that nobody expected.", Queue.ERROR, "processing"
    INVALID_UUID = "GENERR010", "A UUID is not of the form of one.", Queue.INVALID, "header, body"
    UPDATE_OF_UNKNOWN = "APPERRMET001", "The object to update does not exist.", Queue.INVALID, "object", True
    DELETE_OF_UNKNOWN = "APPERRMET002", "The object to delete does not exist.", Queue.INVALID, "object", True
    READ_OF_UNKNOWN = "APPERRMET003", "The object to read does not exist.", Queue.INVALID, "object", True
    INVALID_CHECKSUM = (
        "APPERRMET004",
        "A checksum is not that of its file, or cannot be one of its type.",
        Queue.INVALID,
        "body, file",
    )


CODES: Mapping[str, RdssFault] = {each.value: each for each in RdssFault}
"""The catalogue by the text of each code."""
