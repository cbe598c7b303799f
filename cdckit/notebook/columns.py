"""The columns of a table as a reader wants them: which there are, what they are called, and their cells."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.model.changes import CHANGE_SCHEMA, DIGITS, sortable_number
from cdckit.model.faults import ERROR_CODE, ERROR_DESCRIPTION
from cdckit.model.history import (
    DELETED,
    FIELD_PROVENANCE,
    HISTORY_SCHEMA,
    SOURCE_MESSAGE,
    SYSTEM_FROM,
    SYSTEM_TO,
    VALID_FROM,
    VALID_TO,
)
from cdckit.model.rejected_records import REJECT
from cdckit.parts.arguments import quoted, require_struct, require_type
from cdckit.parts.values import as_text

NULL = "NULL"

# What these columns are called above a table; everything that is not here is a field of the entity.
_TIMES = {VALID_FROM: "valid_from", VALID_TO: "valid_to", SYSTEM_FROM: "system_from", SYSTEM_TO: "system_to"}
_MARKS = {DELETED: "state", SOURCE_MESSAGE: "message", "guid": "guid"}
_OF_CHANGES = {"effective_timestamp": "effective", "arrival": "arrived", "message_id": "message"}
_ENDS = (VALID_TO, SYSTEM_TO)
# Of answers about a history: in a history itself these are fields like any other.
_MESSAGES = ("message", "message_id", "by_message", "a_message", "b_message")


class TableColumn(NamedTuple):
    """
    A column of the table.

    `cell` is a struct: the value, the message `m` and the priority `p` that it has from, and whether it was
    `sent`.  `kind` is value, number, bytes, instant, begin, end, state, operation, message, guid, or quiet,
    which is a value that is left out where no row says anything.
    """

    heading: str
    kind: str
    cell: Column


def has_change_columns(frame: DataFrame) -> bool:
    """Tell whether *frame* has the columns of changes."""
    return {*CHANGE_SCHEMA.names, "data", "carried"} <= set(frame.columns)


def table_columns(frame: DataFrame, *, provenance: bool, width: int) -> list[TableColumn]:
    """The columns of *frame* as a reader wants them, in their order."""
    names = set(frame.columns)
    if has_change_columns(frame):
        return _change_columns(frame, provenance, width)
    if {ERROR_CODE, ERROR_DESCRIPTION, "topic", "partition", "offset", "value"} <= names:
        return _reject_columns(frame, width)
    return _version_columns(frame, provenance, width)


def select_columns(columns: Sequence[TableColumn], headings: Sequence[str]) -> list[TableColumn]:
    """The columns with these headings, in their order; and the state, which says what is deleted."""
    chosen = [column for heading in headings for column in columns if column.heading == heading]
    return chosen + [column for column in columns if column.kind == "state" and column not in chosen]


def resolve_headings(frame: DataFrame, shown: Sequence[TableColumn], names: Iterable[str]) -> list[str]:
    """Find what stands above the columns that are asked for: what is no heading is a name of *frame*'s."""
    headings = _headings(frame)
    shown_headings = {column.heading for column in shown}
    return [name if name in shown_headings else headings.get(name, name) for name in names]


def resolve_names(frame: DataFrame, given: Iterable[str]) -> list[str]:
    """The names of the columns that are asked for: one that *frame* does not have may be a heading."""
    names = {heading: name for name, heading in _headings(frame).items()}
    columns = set(frame.columns)
    if has_change_columns(frame):
        columns |= set(require_struct(frame, "data").names)
    return [name if name in columns else names.get(name, name) for name in given]


def _headings(frame: DataFrame) -> dict[str, str]:
    """Find what stands above the columns of *frame* that are called otherwise."""
    called = _OF_CHANGES if has_change_columns(frame) else {**_TIMES, **_MARKS}
    return {name: heading for name, heading in called.items() if name in frame.columns}


def _version_columns(frame: DataFrame, provenance: bool, width: int) -> list[TableColumn]:
    """A history, or what is left of one: since when, until when, the fields, the state, message and guid."""
    types = {field.name: field.dataType for field in frame.schema.fields}
    for name in (*_TIMES, *_MARKS):
        if name in types:
            needed = T.TimestampType() if name in _TIMES else HISTORY_SCHEMA[name].dataType
            require_type(frame, name, needed)
    entries = _provenance(frame) if FIELD_PROVENANCE in types and provenance else {}
    messages = () if DELETED in types else _MESSAGES
    columns = [
        TableColumn(heading, "end" if name in _ENDS else "begin", _cell(F.unix_micros(_column(name))))
        for name, heading in _TIMES.items()
        if name in types
    ]
    columns += [
        _plain_column(name, kind, width, entries.get(name), message=name in messages)
        for name, kind in types.items()
        if name not in {*_TIMES, *_MARKS, FIELD_PROVENANCE}
    ]
    for name, heading in _MARKS.items():
        if name in types:
            entry = entries.get("guid") if name == DELETED else None
            columns.append(TableColumn(heading, heading, _cell(_column(name), entry)))
    return columns


def _change_columns(frame: DataFrame, provenance: bool, width: int) -> list[TableColumn]:
    """Choose who says what first, then the fields, blank where not sent, then when and in which message."""
    fields = require_struct(frame, "data").fields
    carried = set(require_struct(frame, "carried").names)
    ranks: set[str] = set()
    if provenance and "field_priorities" in frame.columns:
        ranks = set(require_struct(frame, "field_priorities").names)
    columns = [
        TableColumn("source", "value", _cell(_column("source"))),
        TableColumn("operation", "operation", _cell(_column("operation"))),
    ]
    for name, kind in ((field.name, field.dataType) for field in fields):
        sent = _column("carried").getField(name) if name in carried else F.lit(True)
        rank = _column("field_priorities").getField(name) if name in ranks else F.lit(None)
        value = _value(_column("data").getField(name), kind, width)
        columns.append(TableColumn(name, _kind(kind), _cell(value, rank=rank, sent=sent)))
    instants = {"effective": "effective_timestamp", "arrived": "arrival.timestamp"}
    columns += [
        *(TableColumn(name, "instant", _cell(F.unix_micros(path))) for name, path in instants.items()),
        TableColumn("sequence", "quiet", _cell(_value(_sequence(), T.StringType(), width))),
        TableColumn("priority", "quiet", _cell(F.nullif(_column("priority").cast("string"), F.lit("0")))),
        TableColumn("message", "message", _cell(_column("message_id"))),
    ]
    if REJECT in frame.columns:
        code = _column(REJECT).getField(ERROR_CODE)
        columns.append(TableColumn(REJECT, "quiet", _cell(_value(code, T.StringType(), width))))
    apart = {*CHANGE_SCHEMA.names, "data", "carried", "field_priorities", REJECT}
    others = [field for field in frame.schema.fields if field.name not in apart]
    return columns + [
        TableColumn("guid", "guid", _cell(_column("guid")))
        if field.name == "guid"
        else _plain_column(field.name, field.dataType, width)
        for field in others
    ]


def _sequence() -> Column:
    """The sequence, unless it only repeats when the change is effective; of a number, the number alone."""
    sequence = _column("sequence")
    repeats = sequence.eqNullSafe(sortable_number(F.unix_micros("effective_timestamp")))
    number = F.when(sequence.rlike(f"^[0-9]{{{DIGITS}}}$"), F.regexp_replace(sequence, "^0+(?=[0-9])", ""))
    return F.when(~repeats, F.coalesce(number, sequence))


def _reject_columns(frame: DataFrame, width: int) -> list[TableColumn]:
    """Choose what is wrong first, then where the record lies, and how it begins."""
    first = (ERROR_CODE, ERROR_DESCRIPTION, "topic", "partition", "offset", "timestamp", "key", "value")
    types = {field.name: field.dataType for field in frame.schema.fields}
    ordered = [*(name for name in first if name in types), *(name for name in types if name not in first)]
    # Spark's type of a timestamp is a number that says nothing to a reader.
    return [
        TableColumn(name, "quiet", _cell(_value(_column(name), types[name], width)))
        if name == "headers"
        else _plain_column(name, types[name], width)
        for name in ordered
        if name != "timestampType"
    ]


def _plain_column(
    name: str, kind: T.DataType, width: int, entry: Column | None = None, *, message: bool = False
) -> TableColumn:
    if message and isinstance(kind, T.StringType):
        return TableColumn(name, "message", _cell(_column(name), entry))
    return TableColumn(name, _kind(kind), _cell(_value(_column(name), kind, width), entry))


def _kind(kind: T.DataType) -> str:
    kinds = {T.TimestampType: "instant", T.BinaryType: "bytes", T.NumericType: "number"}
    return next((word for of, word in kinds.items() if isinstance(kind, of)), "value")


def _value(column: Column, kind: T.DataType, width: int) -> Column:
    """Cut a value to what is enough to show it; instants as microseconds: Python knows no year after 9999."""
    if isinstance(kind, T.TimestampType):
        return F.unix_micros(column)
    if isinstance(kind, T.BinaryType):
        first = F.struct(F.substring(column, 1, width).alias("first"), F.length(column).alias("of"))
        return F.when(column.isNotNull(), first)
    return F.substring(as_text(column, kind), 1, width + 1)


def _cell(
    value: Column, entry: Column | None = None, *, rank: Column | None = None, sent: Column | None = None
) -> Column:
    message = F.lit(None) if entry is None else entry.getField("m")
    priority = rank if entry is None else entry.getField("p")
    return F.struct(
        value.alias("value"),
        message.cast("string").alias("m"),
        (F.lit(None) if priority is None else priority).cast("string").alias("p"),
        # Of a reject `carried` is null: what it has no value of was not sent.
        (F.lit(True) if sent is None else F.coalesce(sent, value.isNotNull())).alias("sent"),
    )


def _provenance(history: DataFrame) -> dict[str, Column]:
    """Tell where each field has its value from; what is no entry of a message and a priority says nothing."""
    fields = require_struct(history, FIELD_PROVENANCE).fields
    return {
        field.name: F.col(FIELD_PROVENANCE).getField(field.name)
        for field in fields
        if isinstance(field.dataType, T.StructType) and {"m", "p"} <= set(field.dataType.names)
    }


def _column(name: str) -> Column:
    return F.col(quoted(name))
