"""Tables of Spark, pandas or Arrow that a caller gives, and arguments that name parts of one."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Protocol, TypeGuard

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pandas.api.types import is_float_dtype, is_integer_dtype, is_object_dtype
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import CdcError, InvalidArgument
from cdckit.parts.arguments import quoted
from cdckit.parts.arrow_types import NoSuchArrowType, arrow_type
from cdckit.parts.near_names import nearest_name, suggest_name
from cdckit.parts.public_calls import called_function
from cdckit.parts.table_values import UnfitValues, in_spark_types, read_objects, require_known_type
from cdckit.parts.values import has_part
from cdckit.parts.widening import has_void, void_as_text

_LOG = logging.getLogger(__name__)


class UnfitArguments(CdcError, ValueError):
    """All that is wrong with the arguments of a call about a table; its kinds have their own words."""

    cannot: ClassVar[str]
    """What the function cannot do."""
    what: ClassVar[str]
    """What was given."""

    def __init__(self, function: str | None, wrong: Sequence[str], found: Sequence[str]) -> None:
        self.function, self.wrong, self.found = called_function(function), tuple(wrong), tuple(found)
        super().__init__(self.function, self.wrong, self.found)

    def __str__(self) -> str:
        return (
            f"{self.function}() {self.cannot}: {'; '.join(self.wrong)}. "
            f"The {self.what} has {', '.join(self.found) or 'no columns'}."
        )


class NamedArguments:
    """Arguments that name parts of a table, and all that is wrong with them."""

    unfit: ClassVar[type[UnfitArguments]]
    kind: ClassVar[str]
    """What a name stands for: a column, or a field."""

    def __init__(self) -> None:
        self.wrong: list[str] = []

    def refuse(self, sentence: str) -> None:
        """Note what is wrong."""
        self.wrong.append(sentence)

    def names(self, named: Sequence[str], argument: str, names_there: Sequence[str]) -> list[str]:
        """The names that are known, each once, a misspelt one as the one that is near."""
        names = []
        for name in named:
            near = name if name in names_there else nearest_name(name, names_there)
            if near != name:
                self.refuse(
                    f"{argument} names {name}, which is no {self.kind}{suggest_name(name, names_there)}"
                )
            if near is not None:
                names.append(near)
        if len(set(named)) < len(named):
            self.refuse(f"{argument} names a {self.kind} twice: {', '.join(named)}")
        return list(dict.fromkeys(names))

    def require_sound(self, values: Iterable[str]) -> None:
        """Raise with all that was found wrong, if anything was; *found* are the columns that there are."""
        if self.wrong:
            raise self.unfit(None, self.wrong, list(values))


class ArrowStream(Protocol):
    """A table that any library hands on as Arrow's stream: polars, DuckDB, ibis, pyarrow."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The stream."""


AnyTable = DataFrame | pd.DataFrame | ArrowStream


def has_order(frame: object) -> TypeGuard[pd.DataFrame | ArrowStream]:
    """Tell whether a table's rows have the order in which they stand: all but Spark's."""
    return not isinstance(frame, DataFrame) and hasattr(frame, "__arrow_c_stream__")


_EXACT = 2.0**53
"""Below it floats hold every whole number: from there on, some digits may be lost."""


def are_made_floats(values: pd.Series) -> bool:
    """Tell whether these are floats and whole numbers: what pandas makes of those beside empty cells."""
    if not is_float_dtype(values.dtype):
        return False
    filled = values.dropna()
    return bool(len(filled)) and bool(((filled == filled.round()) & (filled.abs() < _EXACT)).all())


def with_whole_numbers(frame: AnyTable, columns: Collection[str]) -> AnyTable:
    """The table; of pandas with whole numbers again in such *columns* of which empty cells made floats."""
    if not isinstance(frame, pd.DataFrame) or not frame.columns.is_unique:
        return frame
    floats = [name for name in frame.columns if str(name) in columns and are_made_floats(frame[name])]
    return frame.astype(dict.fromkeys(floats, "Int64")) if floats else frame


def as_spark(spark: SparkSession, frame: AnyTable) -> DataFrame:
    """
    The table as Spark's; raises `InvalidArgument` for what is none, or has two columns of one name.

    A frame of pandas goes through Arrow: NaN, NaT, NA and None are null, the index is left out (a warning is
    logged where it has a name, or is more than numbers), and datetimes without a zone are instants of UTC.
    Types are those of `cdckit.parts.table_values`.  A column without any value and type is void: what it is
    put together with has the type, and else `without_void` gives it one.  So does what speaks Arrow's stream
    (`ArrowStream`), in which NaN is a value and no null.
    """
    if has_order(frame):
        return spark.createDataFrame(as_arrow(frame))
    return spark_table(frame)


_NEEDED = "a DataFrame of Spark or of pandas, or what speaks Arrow's stream (polars, DuckDB, pyarrow, ibis)"


def spark_table(frame: object) -> DataFrame:
    """A table that is Spark's already, as `as_spark` says."""
    if not isinstance(frame, DataFrame):
        is_lazy = type(frame).__name__ == "LazyFrame"
        remedy = "It is a plan without rows: give what `frame.collect()` returns." if is_lazy else None
        raise InvalidArgument(None, "its table", _NEEDED, frame, remedy=remedy)
    require_distinct(frame.columns)
    return frame


def require_types_of_histories(frame: DataFrame) -> None:
    """Raise `InvalidArgument` for columns of types that workers are not given, or that have no text."""
    wrong = {
        field.name: field.dataType.simpleString()
        for field in frame.schema
        if not _is_of_histories(field.dataType)
    }
    if wrong:
        texts = ", ".join(f"{name!r}: F.col({quoted(name)!r}).cast('string')" for name in wrong)
        raise InvalidArgument(
            None, "its table", "of columns in types that a history can have",
            [f"{name} ({kind})" for name, kind in wrong.items()],
            remedy=f"Perhaps as texts: `frame.withColumns({{{texts}}})` in Spark.",
        )  # fmt: skip


def _is_of_histories(kind: T.DataType) -> bool:
    try:
        return not has_part(kind, lambda part: isinstance(part, T.TimeType)) and bool(arrow_type(kind))
    except NoSuchArrowType:
        return False


def require_distinct(columns: Collection[str]) -> None:
    """Raise `InvalidArgument` where two columns have one name, or names that differ in case alone."""
    lower = [name.lower() for name in columns]
    twice = [name for name in columns if lower.count(name.lower()) > 1]
    if twice:
        numbers = [lower[: place + 1].count(name) for place, name in enumerate(lower)]
        renamed = [
            name if number == 1 else f"{name}_{number}" for name, number in zip(columns, numbers, strict=True)
        ]
        raise InvalidArgument(
            None, "its table", "of columns that differ in more than case", list(columns),
            remedy=f"There is {' and '.join(dict.fromkeys(map(str.lower, twice)))} twice; rename one: "
            f"`frame.columns = {renamed!r}` in pandas, `frame.toDF(*{renamed!r})` in Spark.",
        )  # fmt: skip


def empty_columns(frame: DataFrame, table: pa.Table | None = None) -> dict[str, T.DataType]:
    """
    The columns in which, or in parts of which, nothing stands, by name the types in which void says where.

    *table* is the same in Arrow, if it is at hand: in a column of nulls nothing stands, whatever its type is.
    """
    columns = {} if table is None else dict(zip(table.column_names, table.columns, strict=True))
    void = [name for name, values in columns.items() if values.null_count == len(values)]
    return {field.name: field.dataType for field in frame.schema if has_void(field.dataType)} | dict.fromkeys(
        void, T.NullType()
    )


def without_void(frame: DataFrame) -> DataFrame:
    """The table with text in place of the type void, which nothing can be kept in."""
    typed = {
        name: F.col(quoted(name)).cast(void_as_text(kind)) for name, kind in empty_columns(frame).items()
    }
    return frame.withColumns(typed) if typed else frame


def as_arrow(frame: pd.DataFrame | ArrowStream) -> pa.Table:
    """The columns of a table whose rows have an order in types that Spark has, as `as_spark` says."""
    return as_arrow_with_digits(frame)[0]


def as_arrow_with_digits(frame: pd.DataFrame | ArrowStream) -> tuple[pa.Table, dict[str, list[str | None]]]:
    """
    The same, and by column of nanoseconds what is cut of them, as digits without zeros at their end.

    >>> as_arrow_with_digits(pd.DataFrame({"at": [pd.Timestamp(1_000_000_120)]}))[1]
    {'at': ['12']}
    """
    names, column = _columns_of(frame)
    require_distinct(names)
    arrays, digits, wrong = {}, {}, {}
    for place, name in enumerate(names):
        try:
            values = column(place)
            arrays[name], below = in_spark_types(values), _digits_below_microseconds(values)
            if below is not None:
                digits[name] = below
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            wrong[name] = f"{name} ({str(error).splitlines()[0]})"
    if wrong:
        raise InvalidArgument(
            None, "its table", "of columns with one type each, which Spark has too", [*wrong.values()],
            remedy=f"Perhaps as texts, in which empty cells stay empty: {_as_texts(frame, list(wrong))}.",
        )  # fmt: skip
    return pa.table(arrays), digits


def _digits_below_microseconds(values: pa.Array | pa.ChunkedArray) -> list[str | None] | None:
    if not pa.types.is_timestamp(values.type) or values.type.unit != "ns":
        return None
    below = [number and number % 1000 for number in values.cast(pa.int64()).to_pylist()]
    return [None if n is None else f"{n:03}".rstrip("0") for n in below] if any(below) else None


def _columns_of(
    frame: pd.DataFrame | ArrowStream,
) -> tuple[list[str], Callable[[int], pa.Array | pa.ChunkedArray]]:
    """The names of the columns, and what gives the one at a place."""
    if isinstance(frame, pd.DataFrame):
        _tell_index(frame.index)
        return [str(name) for name in frame.columns], lambda place: _of_pandas(frame.iloc[:, place])
    if _library(frame) == "polars":
        return _of_polars(frame)
    try:
        table = pa.table(frame)
    except (pa.ArrowException, TypeError, ValueError):  # a stream, but of one column alone
        raise InvalidArgument(None, "its table", _NEEDED, frame) from None
    # What DuckDB hands on as a number, or bytes, of another value.
    kinds = getattr(frame, "types", []) if _library(frame) == "duckdb" else []
    lossy = [place for place, kind in enumerate(kinds) if re.search(r"\b(UHUGEINT|BIT)\b", str(kind))]

    def column(place: int) -> pa.ChunkedArray:
        if place in lossy:
            raise UnfitValues(str(kinds[place]))
        require_known_type(table.schema.field(place))
        return table.column(place)

    return table.column_names, column


def _of_polars(frame: Any) -> tuple[list[str], Callable[[int], pa.Array | pa.ChunkedArray]]:
    """Read a frame of polars column by column: of one that Arrow does not have, polars hands on no table."""

    def column(place: int) -> pa.Array | pa.ChunkedArray:
        values = frame.to_series(place)
        # Handed on they would be addresses in memory.
        is_object = str(values.dtype) == "Object"
        return _of_objects(values.to_list()) if is_object else pa.chunked_array(values)

    return frame.columns, column


def _of_pandas(values: pd.Series) -> pa.Array | pa.ChunkedArray:
    kind = values.dtype
    if isinstance(kind, pd.CategoricalDtype) and is_object_dtype(kind.categories.dtype):
        values = values.astype(object)
    if is_object_dtype(values.dtype):
        return _of_objects(values)
    array = pa.array(values, from_pandas=True)
    # Pandas' own nullable types and Arrow's keep NaN beside NA.
    is_floating = pa.types.is_floating(array.type)
    return pc.if_else(pc.is_nan(array), pa.scalar(None, array.type), array) if is_floating else array


def _of_objects(values: Iterable[Any]) -> pa.Array:
    return pa.array(read_objects(values), from_pandas=True)


def _library(frame: object) -> str:
    return type(frame).__module__.partition(".")[0].strip("_")


def _tell_index(index: pd.Index) -> None:
    """Log a warning where the index, which is left out, says more than at which place a row stands."""
    named = [str(name) for name in index.names if name is not None]
    if named or (len(index) and not is_integer_dtype(index.dtype)):
        sentence = "%s(): the index of the frame%s is left out; frame.reset_index() makes columns of it"
        _LOG.warning(sentence, called_function(), f" ({', '.join(named)})" if named else "")


def _as_texts(frame: object, names: list[str]) -> str:
    """Write these columns as texts, by the library that the table is of."""
    library = _library(frame)
    if library == "pandas":
        # By `str` an empty cell would become the text "nan", which is a value.
        return f"`frame.astype({dict.fromkeys(names, 'string')!r})` in pandas"
    if library == "polars":
        return f"`frame.with_columns({', '.join(_texts_of_polars(frame, names))})` in polars"
    if library == "duckdb":
        texts = ", ".join(f'"{name}"::varchar as "{name}"' for name in names)
        return f"`frame.select({f'* replace ({texts})'!r})` in DuckDB"
    return f"cast {', '.join(names)} to text in the library of the table"


def _texts_of_polars(frame: Any, names: Collection[str]) -> Iterator[str]:
    objects = {name for name in names if str(frame.schema[name]) == "Object"}
    forms = {"cast(pl.String)": {*names} - objects, "map_elements(str, return_dtype=pl.String)": objects}
    for form, columns in forms.items():
        if columns:
            yield f"pl.col({', '.join(map(repr, sorted(columns)))}).{form}"
