"""How the rows of a table are read: what a call says of all of them, and what that makes each of them say."""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import NamedTuple

from pyspark.sql import Column, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.model.changes import UNTIL
from cdckit.model.history import is_never
from cdckit.model.list_comparison import CORRUPT
from cdckit.parts.arguments import quoted
from cdckit.parts.built_columns import built_once
from cdckit.parts.values import as_text, comparable, has_times, is_outside_years, within_years
from cdckit.tables.times import (
    TEXTS,
    NamedColumn,
    TypedColumn,
    Unreadable,
    as_instant,
    instant_of,
    is_text_of_never,
    is_time,
    order_text,
    text_of,
)
from cdckit.tables.truncates import IS_TRUNCATE


class Reading(NamedTuple):
    """
    What a call says of how the rows are read, in names and types: equal ones make equal columns.

    `said` is what it says of which values count, as a part of the digest; `open_end` are the microseconds
    since 1970 that stand for an open end.  A time is a column, or such microseconds.
    """

    kinds: T.StructType
    corrupt: T.DataType | None
    row: str | None
    keys: tuple[str, ...]
    fields: tuple[str, ...]
    ignored: tuple[str, ...]
    empty_texts: str
    said: str | None
    source: str | NamedColumn
    message: NamedColumn | None
    deletes: NamedColumn | None
    truncates: NamedColumn | None
    parts: tuple[NamedColumn, ...]
    is_sequenced: bool
    begin: NamedColumn | int | None
    end: NamedColumn | int | None
    open_end: int | None
    time: Unreadable
    places: tuple[Unreadable, ...]
    end_time: Unreadable | None
    priority: int
    says_arrival: bool


class _Cell(NamedTuple):
    """The value of a field, and whether the row says it."""

    value: Column
    is_said: Column


_TEXT, _INSTANT = "string", "timestamp_ltz"


@built_once
def statement_columns(reading: Reading) -> tuple[Column, ...]:
    """The columns that say what each row says, under names that no column of the table can meet any more."""
    cells = {name: _cell(reading, name) for name in reading.fields}
    effective_at, arrival, lacks_arrival = _times(reading)
    until, end_text = _until(reading)
    row = F.lit(0).cast("bigint") if reading.row is None else F.col(quoted(reading.row))
    columns = {
        "effective_timestamp": effective_at,
        "time_said": reading.time.text(),
        "places_said": F.array(*(place.other_day() for place in reading.places)).cast("array<string>"),
        UNTIL: until,
        "end_said": end_text,
        "known": arrival,
        "lacks_arrival": lacks_arrival,
        "row": row,
        "place": (F.lit(0) if reading.is_sequenced else row).cast(_TEXT),
        "returns": F.lit(None).cast(_TEXT),
        "message": text_of(reading.message),
        "source": F.lit(reading.source) if isinstance(reading.source, str) else text_of(reading.source),
        "deletes": _condition(reading.deletes),
        IS_TRUNCATE: _condition(reading.truncates),
        "corrupt": _corrupt(reading.corrupt),
        "sequence": _sequence(reading),
        "reading": F.lit(reading.said).cast(_TEXT),
        "outside_years": _outside_years(reading),
        "content": as_text(F.struct(*(F.col(quoted(name)) for name in reading.kinds.names)), reading.kinds),
        "lacks_key": reduce(and_, (cells[name].value.isNull() for name in reading.keys)),
        "data": F.struct(*(cell.value.alias(name) for name, cell in cells.items())),
        "carried": F.struct(*(cell.is_said.alias(name) for name, cell in cells.items())),
    }
    return tuple(value.alias(name) for name, value in columns.items())


def _cell(reading: Reading, name: str) -> _Cell:
    """What a row says in a field; `changes_from` tells what null and an empty text say."""
    kind, is_key = reading.kinds[name].dataType, name in reading.keys
    value = within_years(F.col(quoted(name)), kind)
    is_said = value.isNotNull() if name in reading.ignored and not is_key else F.lit(True)
    if reading.empty_texts != "value" and isinstance(kind, TEXTS):
        is_empty = F.coalesce(value == "", F.lit(False))
        if reading.empty_texts == "unsent" and not is_key:
            is_said &= ~is_empty
        value = F.when(~is_empty, value)
    return _Cell(value, is_said)


def _times(reading: Reading) -> tuple[Column, Column, Column]:
    """When a row is true, when it came, and whether nobody can tell that."""
    first = first_part(reading.parts)
    sequenced_at = None if first is None else as_instant(first.value, first.kind)
    is_time_by_type = first is not None and is_time(first.kind)
    if reading.begin is not None:
        effective_at = _instant(reading.begin)
    elif sequenced_at is not None and is_time_by_type:
        effective_at = sequenced_at
    else:
        effective_at = F.timestamp_seconds(F.lit(0))
    # A CSV has no types, and who is not told of an arrival knows all too early.
    arrival = effective_at if sequenced_at is None else F.coalesce(sequenced_at, effective_at)
    lacks_arrival = F.lit(False)
    if reading.begin is not None and sequenced_at is not None and is_time_by_type:
        lacks_arrival = sequenced_at.isNull()
    return effective_at, arrival, lacks_arrival


@built_once
def first_part(parts: tuple[NamedColumn, ...]) -> TypedColumn | None:
    """The first part of a sequence, of structs their first field."""
    first = parts[0].typed() if parts else None
    while first is not None and isinstance(first.kind, T.StructType):
        inner = first.kind.fields[0]
        first = TypedColumn(first.value.getField(inner.name), inner.dataType)
    return first


def _instant(time: NamedColumn | int) -> Column:
    return F.timestamp_micros(F.lit(time)) if isinstance(time, int) else instant_of(time)


def _condition(column: NamedColumn | None) -> Column:
    """A condition; where it is null it does not hold."""
    return F.lit(False) if column is None else F.coalesce(column.value(), F.lit(False))


def _corrupt(kind: T.DataType | None) -> Column:
    """The bytes of the rows that could not be read."""
    if kind is None:
        return F.lit(None).cast("binary")
    return F.col(CORRUPT) if isinstance(kind, T.BinaryType) else F.encode(CORRUPT, "UTF-8")


def _sequence(reading: Reading) -> Column:
    if reading.is_sequenced or not isinstance(reading.begin, NamedColumn):
        text = order_text([part.typed() for part in reading.parts])
        assert text is not None
        return text
    # A time that alone says the order says it with all of its digits.
    digits = reading.begin.typed().digits
    return F.lit("") if digits is None else F.coalesce(digits, F.lit(""))


def _outside_years(reading: Reading) -> Column:
    """The fields of a row, and parts of its sequence, that are not in the years 1 to 9999, as texts."""
    columns = [(name, NamedColumn(name, reading.kinds[name].dataType)) for name in reading.fields]
    columns += [("sequence_by", part) for part in reading.parts]
    texts = (
        F.when(is_outside_years(column.value(), column.kind), F.concat(F.lit(f"{name} is "), text_of(column)))
        for name, column in columns
        if has_times(column.kind)
    )
    return F.array_compact(F.array(*texts).cast("array<string>"))


def _until(reading: Reading) -> tuple[Column, Column]:
    """Until when a row is true, and what stands there, as text; null for both where the end is open."""
    if reading.end is None or reading.end_time is None:
        return F.lit(None).cast(_INSTANT), F.lit(None).cast(_TEXT)
    end, text = _instant(reading.end), reading.end_time.text()
    is_open = is_never(end) | is_text_of_never(text)
    if reading.open_end is not None:
        is_open |= F.unix_micros(end) == F.lit(reading.open_end)
    # What cannot be read is neither open nor an end.
    return F.when(is_open, None).otherwise(end), F.when(is_open, None).otherwise(text)


@built_once
def return_columns(keys: tuple[NamedColumn, ...]) -> dict[str, Column]:
    """How often a row that comes back after another of its entity, time and sequence was there."""
    entity = [comparable(F.col("data").getField(key.name), key.kind) for key in keys]
    place = [*entity, F.col("effective_timestamp"), F.col("sequence")]
    before = F.lag("content").over(Window.partitionBy(*place).orderBy("row"))
    comes = F.when(before == F.col("content"), 0).otherwise(1)
    times = F.sum("comes").over(Window.partitionBy(*place, "content").orderBy("row"))
    return {"comes": comes, "returns": F.nullif(times, F.lit(1)).cast("string")}
