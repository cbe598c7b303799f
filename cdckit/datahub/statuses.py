"""What can become of a message, and of a record in it."""

from __future__ import annotations

from enum import IntEnum, StrEnum


class Status(IntEnum):
    """
    Where a message stands.

    A message is BEING_PROCESSED while a run that has chosen it is under way: that is how any hub on the same
    folder shows it meanwhile (`Hub.messages`).  No table holds it, so a run that dies leaves nobody so
    (but on Windows, until the next run).

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


class Problem(StrEnum):
    """Why a message or a record was not applied: the `error_code` of logs and rejects."""

    MESSAGE_INVALID = "MESSAGE_INVALID"
    SYSTEM_NOT_FOUND = "SYSTEM_NOT_FOUND"
    ENTITY_NOT_FOUND = "ENTITY_NOT_FOUND"
    DATA_INVALID = "DATA_INVALID"
    RECORD_INVALID = "RECORD_INVALID"
    FILTER_FAILED = "FILTER_FAILED"
    VALUE_INVALID = "VALUE_INVALID"
    CHILDREN_INVALID = "CHILDREN_INVALID"
    KEY_MISSING = "KEY_MISSING"
    KEY_AMBIGUOUS = "KEY_AMBIGUOUS"
    LINK_AMBIGUOUS = "LINK_AMBIGUOUS"
    LINK_MISSING = "LINK_MISSING"

    @property
    def sentence(self) -> str:
        """What is wrong; a finding may be added behind it."""
        return _SENTENCES[self]

    def describe(self, finding: str = "") -> str:
        """The sentence, with what was found in this message or record."""
        return f"{self.sentence.removesuffix('.')}: {finding}" if finding else self.sentence


_SENTENCES = {
    Problem.MESSAGE_INVALID: "The record holds no message.",
    Problem.SYSTEM_NOT_FOUND: "The schema has no such source system.",
    Problem.ENTITY_NOT_FOUND: "The source system has no such source entity.",
    Problem.DATA_INVALID: "The reader cannot read the data of the message.",
    Problem.RECORD_INVALID: "A record must be an object.",
    Problem.FILTER_FAILED: "A filter of the mapping failed on the record.",
    Problem.VALUE_INVALID: "A value does not convert to the type of its field.",
    Problem.CHILDREN_INVALID: "Children must be an array of objects.",
    Problem.KEY_MISSING: "The record needs values in the fields of a key.",
    Problem.KEY_AMBIGUOUS: "The keys of the record lead to several entities.",
    Problem.LINK_AMBIGUOUS: "The key of a link leads to several entities.",
    Problem.LINK_MISSING: "The record waits for what is not there.",
}
