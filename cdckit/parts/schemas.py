"""What a function needs of a DataFrame's schema, checked when it is called: no job is run."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument, MissingColumns, WrongColumnType


def require_columns(
    frame: DataFrame, columns: Iterable[str], *, function: str, remedy: str | None = None
) -> None:
    """
    Raise `MissingColumns` unless *frame* has all of *columns*; `InvalidArgument` if it is no DataFrame.

    *remedy* is the sentence that says what makes such a table.
    """
    if not isinstance(frame, DataFrame):
        raise InvalidArgument(function, "its table", "a DataFrame of Spark", *_instead_of(frame, remedy))
    missing = [column for column in columns if column not in frame.columns]
    if missing:
        raise MissingColumns(function, missing, frame.columns, remedy)


def _instead_of(frame: object, remedy: str | None) -> tuple[object, None, str | None]:
    """What was found instead of a table of Spark, no example, and what makes one of it."""
    if not type(frame).__module__.startswith("pandas"):
        return frame, None, remedy
    columns = ", ".join(map(str, getattr(frame, "columns", [])))
    found = f"a {type(frame).__name__} of pandas with the columns {columns}"
    return (
        found,
        None,
        remedy
        or (
            "`changes_from(frame, keys=[…])` makes changes of it, which `merge` makes a history of; "
            "`session().createDataFrame(frame)` makes it a table of Spark as it is."
        ),
    )


def require_types(
    frame: DataFrame, needed: T.StructType, *, function: str, remedy: str | None = None
) -> None:
    """Raise unless *frame* has the columns of *needed* in their types, nullable or not."""
    require_columns(frame, needed.fieldNames(), function=function, remedy=remedy)
    for field in needed.fields:
        require_type(frame, field.name, field.dataType, function=function)


def require_type(frame: DataFrame, column: str, needed: T.DataType, *, function: str) -> None:
    """Raise `WrongColumnType` unless *column* has the type *needed*, nullable or not."""
    found = frame.schema[column].dataType
    # simpleString leaves nullability out: a source that promises more than is needed is welcome.
    if found.simpleString() != needed.simpleString():
        raise WrongColumnType(function, column, needed.simpleString(), found.simpleString())


def require_struct(frame: DataFrame, column: str, *, function: str) -> T.StructType:
    """The struct type of *column*; raises `MissingColumns` or `WrongColumnType` without one."""
    require_columns(frame, [column], function=function)
    found = frame.schema[column].dataType
    if not isinstance(found, T.StructType):
        raise WrongColumnType(function, column, "a struct", found.simpleString())
    return found


def require_batch(frame: DataFrame, argument: str, instead: str, *, function: str) -> None:
    """Raise `InvalidArgument` for a stream, where all rows must be there at once; *instead* names the way."""
    if frame.isStreaming:
        raise InvalidArgument(function, argument, f"a batch of rows; of a stream, {instead}", "a stream")


def require_distinct(frame: DataFrame, argument: str, *, function: str) -> None:
    """Raise `InvalidArgument` if two columns have one name, be it in another case."""
    require_distinct_names(frame.columns, argument, function=function)


def require_distinct_names(columns: Iterable[str], argument: str, *, function: str) -> None:
    """Raise `InvalidArgument` if two of the names are one, be it in another case."""
    found: dict[str, str] = {}
    for name in columns:
        if name.lower() in found:
            needed = "of columns that differ in more than case"
            raise InvalidArgument(function, argument, needed, [found[name.lower()], name])
        found[name.lower()] = name


def flat_columns(text: str) -> T.StructType:
    """
    Columns of plain types, said as text; Spark's own reader of such text needs a session.

    >>> flat_columns("name string, ordinal integer").simpleString()
    'struct<name:string,ordinal:int>'
    """
    found = T.StructType()
    for each in text.split(","):
        name, kind = each.split()
        found.add(name, kind)
    return found


def quoted(name: str) -> str:
    """A column's *name* as `F.col` needs it: dots and backticks in it are its own."""
    return "`" + name.replace("`", "``") + "`"


def quoted_if_needed(name: str) -> str:
    """A column's *name* as a reader would write it in SQL: in backticks where it is no plain word."""
    return name if name.isascii() and name.isidentifier() else quoted(name)


def text_literal(text: str) -> str:
    """A text as Spark's SQL has it, whatever its signs: an expression as text is one call into the JVM."""
    return f"CAST(X'{text.encode().hex()}' AS string)"
