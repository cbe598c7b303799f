"""What can be wrong with a Replicate message: one code each, and a sentence that helps."""

from __future__ import annotations

from enum import StrEnum


class Violation(StrEnum):
    """The codes of the door's rejects, in the order in which a message is looked at."""

    NO_VALUE = "NO_VALUE"
    WRONG_MAGIC = "WRONG_MAGIC"
    ENVELOPE_UNREADABLE = "ENVELOPE_UNREADABLE"
    UNKNOWN_TYPE = "UNKNOWN_TYPE"
    BOTH_SCHEMA_FIELDS = "BOTH_SCHEMA_FIELDS"
    NO_SCHEMA_FIELD = "NO_SCHEMA_FIELD"
    METADATA_BY_REFERENCE = "METADATA_BY_REFERENCE"
    DATA_SELF_DESCRIBING = "DATA_SELF_DESCRIBING"
    SCHEMA_ID_LENGTH = "SCHEMA_ID_LENGTH"
    METADATA_SCHEMA_INVALID = "METADATA_SCHEMA_INVALID"
    METADATA_UNREADABLE = "METADATA_UNREADABLE"
    METADATA_INCOMPLETE = "METADATA_INCOMPLETE"
    DATA_SCHEMA_INVALID = "DATA_SCHEMA_INVALID"
    SCHEMA_CONFLICT = "SCHEMA_CONFLICT"
    MESSAGE_UNREADABLE = "MESSAGE_UNREADABLE"
    UNKNOWN_OPERATION = "UNKNOWN_OPERATION"
    TIMESTAMP_INVALID = "TIMESTAMP_INVALID"
    COLUMN_UNKNOWN = "COLUMN_UNKNOWN"
    NO_ROW = "NO_ROW"
    MASK_INVALID = "MASK_INVALID"
    VALUE_INVALID = "VALUE_INVALID"
    METADATA_MISSING = "METADATA_MISSING"

    @property
    def sentence(self) -> str:
        """What is wrong and what to look at; a finding may be added behind it."""
        return _SENTENCES[self]

    def describe(self, finding: str = "") -> str:
        """The sentence, with what was found in this message."""
        return f"{self.sentence} {finding}".rstrip()


_SENTENCES = {
    Violation.NO_VALUE: "The record has no value (a tombstone of the topic, not a Replicate message).",
    Violation.WRONG_MAGIC: "A Replicate envelope begins with the bytes atMSG, or with { in JSON form.",
    Violation.ENVELOPE_UNREADABLE: "The envelope does not read back exactly: it is cut, overlong or damaged.",
    Violation.UNKNOWN_TYPE: "The envelope's type must be MD (metadata) or DT (data).",
    Violation.BOTH_SCHEMA_FIELDS: "messageSchemaId and messageSchema exclude each other; both are set.",
    Violation.NO_SCHEMA_FIELD: "One of messageSchemaId and messageSchema must be set; both are null.",
    Violation.METADATA_BY_REFERENCE: "A metadata message must carry its schema; it refers to one by id.",
    Violation.DATA_SELF_DESCRIBING: "A data message must refer to its schema by id; it carries one itself.",
    Violation.SCHEMA_ID_LENGTH: "A schema id is 32 bytes long.",
    Violation.METADATA_SCHEMA_INVALID: "The schema embedded in the metadata message cannot be used.",
    Violation.METADATA_UNREADABLE: "The metadata message does not decode with the schema that it carries.",
    Violation.METADATA_INCOMPLETE: "The metadata message lacks what describes a table.",
    Violation.DATA_SCHEMA_INVALID: "The data schema in the metadata message cannot be used.",
    Violation.SCHEMA_CONFLICT: "An earlier message gave this schema id another layout, which stands.",
    Violation.MESSAGE_UNREADABLE: "The data message does not decode with the schema of its id.",
    Violation.UNKNOWN_OPERATION: "The operation must be INSERT, UPDATE, DELETE or REFRESH.",
    Violation.TIMESTAMP_INVALID: "The header timestamp is not an instant in ISO 8601 form, or there is none.",
    Violation.COLUMN_UNKNOWN: "A row names what no known version of the table has, or a column twice.",
    Violation.NO_ROW: "Neither data nor beforeData holds a row.",
    Violation.MASK_INVALID: "A mask is not hex text, or marks a column that the table does not have.",
    Violation.VALUE_INVALID: "A value does not convert to the type of its column.",
    Violation.METADATA_MISSING: "No metadata message with this schema id came within the time allowed.",
}
