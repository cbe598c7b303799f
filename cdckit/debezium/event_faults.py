"""What can be wrong with a change event of a database."""

from __future__ import annotations

from cdckit.parts.faults import Fault


class EventFault(Fault):
    """
    The codes of the rejects among change events, in the order in which an event is looked at.

    >>> EventFault.UNKNOWN_OPERATION.describe("It is x.")
    'The operation of a change event must be one of c, u, d, r, t and m. It is x.'
    """

    NOT_JSON = "NOT_JSON", "The value is not one JSON object, whole and with nothing after it."
    NOT_FRAMED = (
        "NOT_FRAMED",
        "The value does not begin with a zero byte and the id of a schema, so it is no Avro of a registry.",
    )
    UNKNOWN_SCHEMA = "UNKNOWN_SCHEMA", "The schema of that id is not among the given ones.", True
    SCHEMA_UNUSABLE = "SCHEMA_UNUSABLE", "The schema of that id cannot be used."
    DATUM_UNREADABLE = "DATUM_UNREADABLE", "The datum does not decode with the schema of its id."
    NOT_AN_EVENT = (
        "NOT_AN_EVENT",
        "The value is JSON, but no event of this producer: what says its kind is not there.",
    )
    UNKNOWN_OPERATION = (
        "UNKNOWN_OPERATION",
        "The operation of a change event must be one of c, u, d, r, t and m.",
    )
    NO_TABLE = "NO_TABLE", "The event does not say of which table it is."
    NO_ROW = "NO_ROW", "The event has no row: a delete needs before, or a key; any other change needs after."
    NO_TIME = "NO_TIME", "The event says no time that an instant can hold, and its record has none."
    KEY_MISSING = "KEY_MISSING", "A key column is null or was not sent."
    VALUE_INVALID = "VALUE_INVALID", "A value does not convert to the type of its column."
