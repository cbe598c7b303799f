"""Events: what one record says of a database, in the same columns whoever produced it."""

from __future__ import annotations

from enum import StrEnum

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.debezium.event_faults import EventFault
from cdckit.parts.schemas import require_types
from cdckit.records import RECORD_COLUMNS, RECORD_SCHEMA
from cdckit.rejected import ERROR_CODE, ERROR_DESCRIPTION, ERROR_FIELDS

TEXTS = T.MapType(T.StringType(), T.StringType())
"""A row as it was sent: each column that was sent, with the text of its JSON value."""

CREATE, UPDATE, DELETE, READ, TRUNCATE, MESSAGE = "c", "u", "d", "r", "t", "m"
OF_ROWS = (CREATE, UPDATE, DELETE, READ)
"""What can happen, in Debezium's letters: *read* is a row that a snapshot found."""


class Kind(StrEnum):
    """
    What a record is about.

    >>> Kind.ROW == "row"
    True
    """

    ROW = "row"
    TRUNCATE = "truncate"
    MESSAGE = "message"
    TRANSACTION = "transaction"
    SCHEMA_CHANGE = "schema_change"
    TOMBSTONE = "tombstone"
    HEARTBEAT = "heartbeat"


EVENT_FIELDS = [
    T.StructField("form", T.StringType()),
    T.StructField("kind", T.StringType()),
    T.StructField("connector", T.StringType()),
    T.StructField("source", T.StringType()),
    T.StructField("db", T.StringType()),
    T.StructField("schema", T.StringType()),
    T.StructField("table", T.StringType()),
    T.StructField("operation", T.StringType()),
    T.StructField("snapshot", T.StringType()),
    T.StructField("event_timestamp", T.TimestampType()),
    T.StructField("time_taken_from", T.StringType()),
    T.StructField("position", T.StringType()),
    T.StructField("transaction_id", T.StringType()),
    T.StructField("row_key", TEXTS),
    T.StructField("before", TEXTS),
    T.StructField("after", TEXTS),
    T.StructField("types", TEXTS),
    T.StructField("new_key", T.StringType()),
    T.StructField("old_key", T.StringType()),
    T.StructField("said", T.StringType()),
]

EVENT_SCHEMA = T.StructType([*RECORD_SCHEMA.fields, *EVENT_FIELDS, *ERROR_FIELDS])
"""One row is one record, and what it says of the database; or why it says nothing.

- `form`: `json`; `kind`: see `Kind`; `connector`: the kind of database, in Debezium's words;
- `source`: the name of the source; `db`, `schema`, `table`: whose row it is;
- `operation`: c, u, d, r, t or m, of any producer; `snapshot`: whether a snapshot read it, as the producer
  says (`true`, `first`, `last`, `incremental`, …; `false` or null in the stream);
- `event_timestamp`: when it was so at the source, and `time_taken_from`: `source`; `event`, when the
  producer handled it; or `record`;
- `position`: the place in the source's own order, text that sorts; null where the source has none;
- `row_key`, `before`, `after`: column by column the text of the JSON value, null for null.  What is not
  in a map was not sent;
- `types`: by column what the record says of its type, of an array, a map or a struct its schema as JSON;
  empty or null if it says nothing;
- `new_key`, `old_key`: where the row went to, or came from, when its key changed (JSON);
- `said`: the value as text, where it is not about a row."""


def require_events(decoded: DataFrame, *, function: str) -> None:
    """
    Raise unless *decoded* has the columns of `EVENT_SCHEMA` in their types.

    Raises:
        MissingColumns, WrongColumnType: It has not.
    """
    require_types(decoded, EVENT_SCHEMA, function=function)


def time_columns(candidates: list[tuple[str, Column]]) -> dict[str, Column]:
    """
    `event_timestamp` and `time_taken_from`: the first of the instants that is there.

    An instant outside the years 1 to 9999 is none: Python could not show it.
    """
    # Not `between`: Spark makes a projection of its own for what stands between.
    first, last = (F.lit(each).cast("timestamp") for each in (_FIRST, _LAST))
    shown = [(name, F.when((at >= first) & (at <= last), at)) for name, at in candidates]
    return {
        "event_timestamp": F.coalesce(*(at for _, at in shown)),
        "time_taken_from": F.coalesce(*(F.when(at.isNotNull(), F.lit(name)) for name, at in shown)),
    }


_FIRST, _LAST = "0001-01-02 00:00:00Z", "9999-12-30 00:00:00Z"


def error_columns(found: list[tuple[EventFault, Column, Column | None]]) -> dict[str, Column]:
    """The error columns: the first fault whose condition holds, and what is shown of it."""
    codes, descriptions = [], []
    for fault, condition, shown in found:
        says = F.lit(fault.sentence)
        if shown is not None:
            finding = F.concat(F.lit(" It says: "), F.substring(shown.cast("string"), 1, 200))
            says = F.concat(says, F.coalesce(finding, F.lit("")))
        codes.append(F.when(condition, F.lit(fault.value)))
        descriptions.append(F.when(condition, says))
    return {ERROR_CODE: F.coalesce(*codes), ERROR_DESCRIPTION: F.coalesce(*descriptions)}


def with_events(read: DataFrame, columns: dict[str, Column], faults: dict[str, Column]) -> DataFrame:
    """The columns of `EVENT_SCHEMA`, made of records with what was read of them; missing ones are null."""
    made = [
        columns.get(field.name, F.lit(None)).cast(field.dataType).alias(field.name) for field in EVENT_FIELDS
    ]
    errors = [faults[field.name].cast("string").alias(field.name) for field in ERROR_FIELDS]
    return read.select(*RECORD_COLUMNS, *made, *errors)


def apart(value: Column) -> Column:
    """
    The same value, in a projection that Spark compiles by itself.

    Otherwise Spark makes one method of all that stands between two shuffles.  The JVM leaves a method of more
    than 8,000 bytes to its interpreter, and that of some ten columns is longer: it took five times as long.
    A projection by itself is cut into small methods.  What brings this about is a function of a kind that
    Spark does not compile; it stands where an empty text is, which no operation is.
    """
    same = F.element_at(F.transform(F.array(value), lambda same: same), 1)
    return F.when(value == "", same).otherwise(value)


def without_schema(text: Column) -> Column:
    """The payload of a JSON text that has a schema beside it; any other text as it is."""
    # Beside a schema alone: a column may have the name of the payload.
    payload = F.when(F.contains(text, F.lit('"schema"')), F.get_json_object(text, "$.payload"))
    return F.coalesce(payload, text)


def header(name: str) -> Column:
    """The text of the last header of this name; null without one."""
    named = F.filter("headers", lambda each: each["key"] == F.lit(name))
    return F.when(F.size(named) > 0, F.try_validate_utf8(F.element_at(named, -1)["value"].cast("string")))
