"""Arguments, checked when a function is called: instants, fields, schemas."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from numbers import Integral
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument, MissingColumns, WrongColumnType
from cdckit.parts import instants
from cdckit.parts.near_names import suggest_names
from cdckit.parts.public_calls import UNDER_WAY, called_function
from cdckit.parts.widening import WHOLE_KEYS


def wrong_argument(
    argument: str, needed: str, found: object, example: str | None = None, remedy: str | None = None
) -> InvalidArgument:
    """The error about an argument of the call under way (`cdckit.parts.public_calls`)."""
    return InvalidArgument(None, argument, needed, found, example, remedy)


def wrong_type(column: str, needed: str, found: str, remedy: str | None = None) -> WrongColumnType:
    """Make the error about a column of a table that was given."""
    return WrongColumnType(None, column, needed, found, remedy)


def require_instant(at: datetime, argument: str) -> Column:
    """The instant as a column; raises `InvalidArgument` for a naive datetime: no instant without its zone."""
    return F.timestamp_micros(F.lit(microseconds(at, argument)))


def microseconds(at: datetime, argument: str, *, call: Callable[[str], str] | None = None) -> int:
    """
    The instant as microseconds since 1970; *call* writes the example of the error.

    Not by Spark's own literal, which counts instants before 1582 by another calendar.
    """
    if not instants.is_datetime(at) or at.utcoffset() is None:
        needed, example = "an aware datetime (one with tzinfo)", None
        if call is not None or argument.isidentifier():
            written = (call or partial(_call_with, argument, at))(instants.instant_literal(at))
            example = written and f"{written}  # or in another zone"
        raise InvalidArgument(None, argument, needed, at, example)
    if not instants.is_within_years(at):
        raise InvalidArgument(None, argument, "in the years 1 to 9999, in UTC", at)
    return instants.microseconds(at)


def _call_with(argument: str, at: object, literal: str) -> str | None:
    """The call under way with *literal* for *at*, if that is the argument; or one without other arguments."""
    call = UNDER_WAY.get()
    arguments = {} if call is None else {**call.by_place, **call.by_name}
    if call is None or argument not in arguments:
        return f"{called_function()}({argument}={literal})"
    return call.written({argument: literal}) if arguments[argument] is at else None


def require_period(start: datetime, end: datetime | None) -> tuple[Column, Column]:
    """Start and end of a half-open period as columns; an end of None is open, a null column."""
    first = microseconds(start, "start")
    if end is None:
        return F.timestamp_micros(F.lit(first)), F.lit(None).cast("timestamp_ltz")
    last = microseconds(end, "end")
    # As Spark has them: datetimes of one zone compare by wall clocks, and those of pandas have nanoseconds.
    if last <= first:
        raise InvalidArgument(None, "end", f"after start, {start.isoformat()}", end.isoformat())
    return F.timestamp_micros(F.lit(first)), F.timestamp_micros(F.lit(last))


def require_fields(fields: Iterable[str], choices: Sequence[str], argument: str) -> list[str]:
    """The fields as a list; raises `InvalidArgument` for none, for one twice, for one that is not known."""
    names = listed(fields)
    if not names or set(names) - set(choices) or len(set(names)) != len(names):
        needed = f"one or more fields among {', '.join(choices)}"
        raise InvalidArgument(None, argument, needed, names, remedy=suggest_names(names, choices))
    return names


def with_number(number: int, noun: str) -> str:
    """
    So many of what a noun says, in words.

    >>> with_number(1, "row"), with_number(1200, "entity")
    ('1 row', '1,200 entities')
    """
    plural = noun[:-1] + "ies" if noun.endswith("y") else noun + "s"
    return f"{number:,} {noun if number == 1 else plural}"


def listed(names: str | Iterable[str]) -> list[str]:
    """One name, or several, as a list."""
    return [names] if isinstance(names, str) else list(names)


def both_sides(on: str | Iterable[str] | Mapping[str, str]) -> tuple[list[str], list[str]]:
    """
    The columns of one table and those of another that are equal to them, in their order.

    Without a mapping from these to those, a name, or each of several, stands for a column of both.
    """
    if isinstance(on, Mapping):
        return list(on), list(on.values())
    return listed(on), listed(on)


def require_keys(keys: Sequence[str], choices: Sequence[str]) -> list[str]:
    """
    The key fields as a list; raises `InvalidArgument` for a text, for none, for one twice or not known.

    Also for a set: a guid is made of the key fields in their order.
    """
    listed = list(keys) if isinstance(keys, Sequence) and not isinstance(keys, str) else []
    if not listed or [name for name in listed if name not in choices] or len(set(listed)) != len(listed):
        needed = f"a list of distinct fields among {', '.join(choices)}"
        close = f"Say keys={[keys]!r}." if keys in choices else suggest_names(listed or [keys], choices)
        raise InvalidArgument(None, "keys", needed, keys, remedy=close)
    return listed


def require_name(name: str, argument: str) -> str:
    """The name itself; raises `InvalidArgument` for what is no text, and for the empty one."""
    if not isinstance(name, str) or not name:
        raise InvalidArgument(None, argument, "a name: a text that is not empty", name)
    return name


def require_names(names: Collection[str] | None, argument: str) -> Collection[str] | None:
    """The names themselves; raises `InvalidArgument` for one text, each letter of which would be a name."""
    if isinstance(names, str):
        raise InvalidArgument(None, argument, "a collection of names", names)
    return names


class StreamBatch(str):
    """The id of a batch of a stream, which Spark counts: only the last one can come a second time."""

    stream: str
    number: int

    def __new__(cls, stream: str, number: int) -> StreamBatch:
        """The id of one batch, of the stream's name and the number."""
        batch = super().__new__(cls, f"{stream}:{number}")
        batch.stream, batch.number = stream, number
        return batch

    def __getnewargs__(self) -> tuple[str, int]:  # type: ignore[override]
        return self.stream, self.number


def require_batch_id(batch: str | int | None) -> str | None:
    """The id of a batch as text, None for no batch; raises `InvalidArgument` for an empty text."""
    if batch is None or (isinstance(batch, str | int) and not isinstance(batch, bool) and batch != ""):
        return str(batch) if isinstance(batch, int) else batch
    raise InvalidArgument(None, "batch", "a text or a number", batch)


def require_flag(flag: bool, argument: str) -> bool:
    """The flag itself; raises `InvalidArgument` for all but True and False: "no" would count as yes."""
    if not isinstance(flag, bool):
        raise InvalidArgument(None, argument, "True or False", flag)
    return flag


def require_int(number: int, argument: str, *, example: str | None = None) -> int:
    """The number itself; raises `InvalidArgument` for what a column of the type int cannot hold."""
    if not isinstance(number, Integral) or isinstance(number, bool) or int(number) not in _INTS:
        needed = f"a whole number from {_INTS[0]} to {_INTS[-1]}"
        raise InvalidArgument(None, argument, needed, number, example)
    return int(number)


_INTS = range(-(2**31), 2**31)


def require_instants(frame: DataFrame, at: datetime | Column, argument: str) -> Column:
    """*at* as a column; raises `WrongColumnType` for a column over *frame* of anything but timestamps."""
    if not isinstance(at, Column):
        return require_instant(at, argument)
    kind = frame.select(at.alias("at")).schema["at"].dataType
    if not isinstance(kind, T.TimestampType):
        raise WrongColumnType(None, argument, "timestamp", kind.simpleString())
    return at


def require_columns(frame: DataFrame, columns: Iterable[str], *, remedy: str | None = None) -> None:
    """
    Raise `MissingColumns` unless *frame* has all of *columns*; `InvalidArgument` if it is no DataFrame.

    *remedy* is the sentence that says what makes such a table.
    """
    if not isinstance(frame, DataFrame):
        raise wrong_argument("its table", "a DataFrame of Spark", **_describe_frame(frame, remedy))
    missing = [column for column in columns if column not in frame.columns]
    if missing:
        raise MissingColumns(None, missing, frame.columns, remedy)


def _describe_frame(frame: object, remedy: str | None) -> dict[str, Any]:
    """What was found instead of a table of Spark, and what makes one of it."""
    if not type(frame).__module__.startswith("pandas"):
        return {"found": frame, "remedy": remedy}
    columns = ", ".join(map(str, getattr(frame, "columns", [])))
    description = f"a {type(frame).__name__} of pandas with the columns {columns}"
    way = (
        "`changes_from(frame, keys=[…])` makes changes of it, which `merge` makes a history of; "
        "`session().createDataFrame(frame)` makes it a table of Spark as it is."
    )
    return {"found": description, "remedy": remedy or way}


def require_types(frame: DataFrame, needed: T.StructType, *, remedy: str | None = None) -> None:
    """Raise unless *frame* has the columns of *needed* in their types, nullable or not."""
    require_columns(frame, needed.fieldNames(), remedy=remedy)
    for field in needed.fields:
        require_type(frame, field.name, field.dataType)


def require_type(frame: DataFrame, column: str, needed: T.DataType) -> None:
    """Raise `WrongColumnType` unless *column* has the type *needed*, nullable or not."""
    kind = frame.schema[column].dataType
    # simpleString leaves nullability out: a source that promises more than is needed is welcome.
    if kind.simpleString() != needed.simpleString():
        raise WrongColumnType(None, column, needed.simpleString(), kind.simpleString())


def require_alike(frame: DataFrame, column: str, other: DataFrame, like: str, where: str) -> None:
    """Raise `WrongColumnType` unless *column* has the type that *like* has in the *other* table."""
    needed, kind = other.schema[like].dataType.simpleString(), frame.schema[column].dataType
    if needed != kind.simpleString():
        remedy = WHOLE_KEYS if isinstance(kind, T.FractionalType) else None
        raise WrongColumnType(None, column, f"{needed}, like {like} {where}", kind.simpleString(), remedy)


def require_struct(frame: DataFrame, column: str) -> T.StructType:
    """The struct type of *column*; raises `MissingColumns` or `WrongColumnType` without one."""
    require_columns(frame, [column])
    kind = frame.schema[column].dataType
    if not isinstance(kind, T.StructType):
        raise WrongColumnType(None, column, "a struct", kind.simpleString())
    return kind


def require_batch(frame: DataFrame, argument: str, instead: str) -> None:
    """Raise `InvalidArgument` for a stream, where all rows must be there at once; *instead* names the way."""
    if frame.isStreaming:
        raise InvalidArgument(None, argument, f"a batch of rows; of a stream, {instead}", "a stream")


def require_distinct(frame: DataFrame, argument: str) -> None:
    """Raise `InvalidArgument` if two columns have one name, be it in another case."""
    names: dict[str, str] = {}
    for name in frame.columns:
        if name.lower() in names:
            needed = "of columns that differ in more than case"
            raise InvalidArgument(None, argument, needed, [names[name.lower()], name])
        names[name.lower()] = name


def flat_columns(text: str) -> T.StructType:
    """
    Columns of plain types, said as text; Spark's own reader of such text needs a session.

    >>> flat_columns("name string, ordinal integer").simpleString()
    'struct<name:string,ordinal:int>'
    """
    columns = T.StructType()
    for column in text.split(","):
        name, kind = column.split()
        columns.add(name, kind)
    return columns


def schema_columns(schema: T.StructType, values: Mapping[str, Column]) -> list[Column]:
    """The *values* as the columns of a schema, in their types; null where there is none."""
    nothing = F.lit(None)
    return [
        values.get(field.name, nothing)
        .cast(field.dataType)
        .alias(field.name, metadata=field.metadata or None)
        for field in schema
    ]


def typed_nulls(schema: T.StructType, names: Iterable[str]) -> dict[str, Column]:
    """Nulls by the names of some columns of a schema, in their types."""
    return {name: F.lit(None).cast(schema[name].dataType) for name in names}


def quoted(name: str) -> str:
    """A column's *name* as `F.col` needs it: dots and backticks in it are its own."""
    return "`" + name.replace("`", "``") + "`"


def quoted_columns(names: Iterable[str]) -> list[Column]:
    """The columns of these names, whatever stands in the names."""
    return [F.col(quoted(name)) for name in names]


def quoted_if_needed(name: str) -> str:
    """A column's *name* as a reader would write it in SQL: in backticks where it is no plain word."""
    return name if name.isascii() and name.isidentifier() else quoted(name)


def free_name(name: str, taken: Collection[str]) -> str:
    """A name for one more column: this one, or one like it that no column has in any case."""
    while name.lower() in {other.lower() for other in taken}:
        name += "_"
    return name


def text_literal(text: str) -> str:
    """A text as Spark's SQL has it, whatever its signs: an expression as text is one call into the JVM."""
    return f"CAST(X'{text.encode().hex()}' AS string)"
