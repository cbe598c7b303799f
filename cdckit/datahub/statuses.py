"""What can become of a message, and of a record in it."""

from __future__ import annotations

from enum import IntEnum, StrEnum


class Status(IntEnum):
    """
    Where a message stands.

    A message is BEING_PROCESSED while a run that has chosen it is under way: that is how any hub on the same
    local folder shows it meanwhile (`Hub.messages`).  No table holds it, so a run that dies leaves no message
    so (but on Windows, until the next run); and in an object store it is not shown at all.

    Source:
        Data hub: 1 and 5 stand in the text.  The others are those of the product's status page, but for
        BEING_PROCESSED: its number there is 1, which the text has given away (decision: 4).
    """

    NOT_PROCESSED = 0
    REQUIRES_REPROCESSING = 1
    BEING_PROCESSED = 4
    PREVIOUSLY_RECEIVED = 5
    SUCCESS = 10
    GENERAL_ERROR = 20
    MESSAGE_NOT_FOUND = 21
    MESSAGE_INVALID = 22
    SYSTEM_NOT_FOUND = 23
    ENTITY_NOT_FOUND = 24
    DATA_INVALID = 25
    REPROCESS_TIMEOUT = 26


class Outcome(StrEnum):
    """What a record came to."""

    UPSERT = "upsert"
    DELETE = "delete"
    DROPPED = "dropped"
    WAITING = "waiting"
    ERROR = "error"
