"""What can be wrong with a Replicate message."""

from __future__ import annotations

from cdckit.parts.faults import Fault


class ReplicateFault(Fault):
    """
    The codes of the door's rejects, in the order in which a message is looked at.

    >>> ReplicateFault.SCHEMA_ID_LENGTH.describe("It is 'de99'.")
    "A schema id is 32 bytes long. It is 'de99'."
    >>> [str(fault) for fault in ReplicateFault if fault.heals]
    ['METADATA_MISSING']
    """

    NO_VALUE = "NO_VALUE", "The record has no value (a tombstone of the topic, not a Replicate message)."
    WRONG_MAGIC = "WRONG_MAGIC", "A Replicate envelope begins with the bytes atMSG, or with { in JSON form."
    ENVELOPE_UNREADABLE = (
        "ENVELOPE_UNREADABLE",
        "The envelope does not read back exactly: it is cut, overlong or damaged.",
    )
    UNKNOWN_TYPE = "UNKNOWN_TYPE", "The envelope's type must be MD (metadata) or DT (data)."
    BOTH_SCHEMA_FIELDS = (
        "BOTH_SCHEMA_FIELDS",
        "messageSchemaId and messageSchema exclude each other; both are set.",
    )
    NO_SCHEMA_FIELD = (
        "NO_SCHEMA_FIELD",
        "One of messageSchemaId and messageSchema must be set; both are null.",
    )
    METADATA_BY_REFERENCE = (
        "METADATA_BY_REFERENCE",
        "A metadata message must carry its schema; it refers to one by id.",
    )
    DATA_SELF_DESCRIBING = (
        "DATA_SELF_DESCRIBING",
        "A data message must refer to its schema by id; it carries one itself.",
    )
    SCHEMA_ID_LENGTH = "SCHEMA_ID_LENGTH", "A schema id is 32 bytes long."
    METADATA_SCHEMA_INVALID = (
        "METADATA_SCHEMA_INVALID",
        "The schema embedded in the metadata message cannot be used.",
    )
    METADATA_UNREADABLE = (
        "METADATA_UNREADABLE",
        "The metadata message does not decode with the schema that it carries.",
    )
    METADATA_INCOMPLETE = "METADATA_INCOMPLETE", "The metadata message lacks what describes a table."
    DATA_SCHEMA_INVALID = "DATA_SCHEMA_INVALID", "The data schema in the metadata message cannot be used."
    SCHEMA_CONFLICT = (
        "SCHEMA_CONFLICT",
        "An earlier message gave this schema id another layout, which stands.",
    )
    MESSAGE_UNREADABLE = "MESSAGE_UNREADABLE", "The data message does not decode with the schema of its id."
    UNKNOWN_OPERATION = "UNKNOWN_OPERATION", "The operation must be INSERT, UPDATE, DELETE or REFRESH."
    TIMESTAMP_INVALID = (
        "TIMESTAMP_INVALID",
        "The header timestamp is not an instant in ISO 8601 form, or there is none.",
    )
    COLUMN_UNKNOWN = (
        "COLUMN_UNKNOWN",
        "A row names what no known version of the table has, or a column twice.",
    )
    NO_ROW = "NO_ROW", "Neither data nor beforeData holds a row."
    MASK_INVALID = "MASK_INVALID", "A mask is not hex text, or marks a column that the table does not have."
    VALUE_INVALID = "VALUE_INVALID", "A value does not convert to the type of its column."
    METADATA_MISSING = (
        "METADATA_MISSING",
        "No metadata message with this schema id came within the time allowed.",
        True,
    )
