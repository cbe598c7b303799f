"""A given table of Spark, pandas or Arrow, as Spark has it, and arguments that name columns of it."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from numbers import Integral
from types import MappingProxyType
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.notebook.sessions import session
from cdckit.parts import tables
from cdckit.parts.arguments import (
    free_name,
    quoted,
    quoted_if_needed,
    require_name,
)
from cdckit.parts.near_names import nearest_name, suggest_name
from cdckit.parts.public_calls import called_function
from cdckit.parts.tables import (
    AnyTable,
    as_arrow_with_digits,
    empty_columns,
    has_order,
    require_types_of_histories,
    spark_table,
    with_whole_numbers,
    without_void,
)
from cdckit.parts.values import as_text, is_collated
from cdckit.tables.times import (
    NEEDED_ORDER,
    NEEDED_TIME,
    TEXTS,
    TypedColumn,
    Unreadable,
    as_instant,
    has_order_text,
    is_time,
    reading_expressions,
    text_digits,
)

_LOG = logging.getLogger(__name__)
_NAME = re.compile(r"[^\W\d]\w*")
# A null as a value: not that of a condition, and not a word in a text.
_NULL = re.compile(r"'[^']*'|\bis\s+(?:not\s+)?null\b|\b(null|nullif)\b", re.IGNORECASE)
_UTC = ("UTC", "Etc/UTC", "Z", "GMT", "+00:00")
_SPARK_ERRORS: tuple[type[Exception], ...] = (AnalysisException,)
"""What Spark raises for an expression: one of the JVM where it meets a type of which it did not think."""
with suppress(ImportError):  # a client of Spark Connect has no JVM
    from py4j.protocol import Py4JJavaError

    _SPARK_ERRORS = (AnalysisException, Py4JJavaError)

UNFIT_KEYS = (T.FloatType, T.DoubleType, T.ArrayType, T.MapType, T.StructType, T.VariantType)
"""What has no exact text, and so is no key."""


class UnfitTable(tables.UnfitArguments):
    """A table lacks columns that the call names, or has them in types that cannot mean what it says."""

    cannot, what = "cannot read the table", "table"


class GivenTable(NamedTuple):
    """
    A table's rows, its own columns, the place of a row, where rows have an order, and its pandas.

    `digits` are, by column of times, the digits below a microsecond of those that have such; `empty` the
    columns in which, or in parts of which, nothing stands, with the types in which void says where.
    """

    frame: DataFrame
    columns: list[str]
    row: Column | None
    pandas: pd.DataFrame | None = None
    digits: Mapping[str, Column] = MappingProxyType({})
    empty: Mapping[str, T.DataType] = MappingProxyType({})

    def typed(self) -> GivenTable:
        """The table with a type for columns that have none, since nothing stands in them: text."""
        return self._replace(frame=without_void(self.frame))

    def without(self, column: str) -> str:
        """The call that leaves out the rows in which this column is null, in the caller's words."""
        if self.row is not None:
            return f"frame.dropna(subset={[column]!r})"
        return f'frame.where("{quoted_if_needed(column)} is not null")'


def as_table(frame: AnyTable, *, keys: Collection[object] = ()) -> GivenTable:
    """
    The table as Spark's (`cdckit.parts.tables`), and of one whose rows have an order each one's number.

    Of pandas, *keys* by their names of which empty cells made floats are whole numbers again.
    """
    if isinstance(keys, list | tuple):
        frame = with_whole_numbers(frame, [str(name) for name in keys if isinstance(name, str | Integral)])
    if has_order(frame):
        arrow, digits_below = as_arrow_with_digits(frame)
        table, columns = arrow, arrow.column_names
        row = free_name("row number", columns)
        arrow = arrow.append_column(row, pa.array(range(1, len(arrow) + 1), pa.int64()))
        digits = {}
        for name, texts in digits_below.items():
            beside = free_name(f"digits of {name}", arrow.column_names)
            arrow = arrow.append_column(beside, pa.array(texts, pa.string()))
            digits[name] = F.col(quoted(beside))
        pandas = frame if isinstance(frame, pd.DataFrame) else None
        rows = session().createDataFrame(arrow)
        empty = empty_columns(rows.select(*map(quoted, columns)), table)
        return GivenTable(rows, columns, F.col(quoted(row)), pandas, digits, empty)
    rows = spark_table(frame)
    require_types_of_histories(rows)
    return GivenTable(rows, list(rows.columns), None, empty=empty_columns(rows))


class TableArguments(tables.NamedArguments):
    """Arguments of a call about a *table* as columns of it, and all that is wrong with them."""

    unfit, kind = UnfitTable, "column"

    def __init__(self, table: GivenTable) -> None:
        super().__init__()
        self.table, self.frame, self.columns = table, table.frame, table.columns

    def require_all(self) -> None:
        """Raise `UnfitTable` with all that was found wrong, if anything was."""
        self.require_sound(f"{name} {self._kind(name).simpleString()}" for name in self.columns)

    def keys(self, columns: Sequence[str | Column]) -> list[str]:
        """The key columns: at least one, each of a type with an exact text."""
        names = self.listed(columns, "keys")
        for name in names:
            if isinstance(self._kind(name), UNFIT_KEYS) or is_collated(self._kind(name)):
                self.refuse(self._unfit_key(name))
            if name in self.table.digits:
                self.refuse(f"the key {name} has nanoseconds, which are cut: cast it to a text or a number")
        if not names and not self.wrong:
            self.refuse("keys is empty")
        return names

    def _unfit_key(self, name: str) -> str:
        cast = "cast it, such as to bigint or string (in pandas, read it with dtype='Int64' or 'string')"
        return f"the key {name} is {self._kind(name).simpleString()}, which has no exact text: {cast}"

    def listed(self, columns: Sequence[str | Column], argument: str) -> list[str]:
        """Columns of the table, named by texts or by `col(…)`, in a list."""
        if isinstance(columns, Sequence) and not isinstance(columns, str):
            return self.names([self._name(column) for column in columns], argument, self.columns)
        names = [columns] if isinstance(columns, str) and columns in self.columns else []
        remedy = f", such as {names!r}" if names else ""
        self.refuse(f"{argument} is {columns!r}, and must be a list of columns{remedy}")
        return names

    def parts(
        self, expressions: str | Column | Sequence[str | Column] | None, argument: str
    ) -> list[TypedColumn]:
        """The columns, or expressions, that a table is sequenced by."""
        given: Any = expressions
        is_single = isinstance(given, str | Column) or not isinstance(given, Iterable)
        several = [] if given is None else [given] if is_single else list(given)
        columns = [self.expression(expression, argument) for expression in several]
        typed = [part for part in columns if part is not None]
        for part in typed:
            if not has_order_text(part.kind):
                self.refuse(f"{argument} is {part.kind.simpleString()}, and must be {NEEDED_ORDER}")
        if expressions is not None and not several:
            self.refuse(f"{argument} is empty")
        return typed

    def with_times(self, parts: list[TypedColumn]) -> list[TypedColumn]:
        """The parts of a sequence; a first one of texts as times, where the table at hand has such in it."""
        if self.table.row is None or not parts or not isinstance(parts[0].kind, TEXTS):
            return parts
        instant = as_instant(parts[0].value, parts[0].kind, parts[0].words)
        assert instant is not None
        number = self.frame.where(instant.isNotNull()).limit(1).count()
        time = TypedColumn(instant, T.TimestampType(), parts[0].digits)
        return [time, *parts[1:]] if number else parts

    def condition(self, expression: str | Column | None, argument: str) -> Column:
        """A condition; where it is null it does not hold."""
        typed = None if expression is None else self.expression(expression, argument)
        if typed is None:
            return F.lit(False)
        if not isinstance(typed.kind, T.BooleanType):
            needed = "must be a condition, such as \"operation = 'D'\""
            self.refuse(f"{argument} is {typed.kind.simpleString()}, and {needed}")
        return F.coalesce(typed.value, F.lit(False))

    def instant(self, expression: str | Column, argument: str) -> Column:
        """Instants of a column or an expression; null where a text is no ISO 8601."""
        typed = self.expression(expression, argument)
        instant = None if typed is None else as_instant(typed.value, typed.kind, typed.words)
        if typed is not None and instant is None:
            self.refuse(f"{argument} is {typed.kind.simpleString()}, and must be {NEEDED_TIME}")
        return F.lit(None).cast("timestamp_ltz") if instant is None else instant

    def digits(self, expression: object) -> Column:
        """Write what an instant lacks of its time: its digits below a microsecond, perhaps none."""
        typed = self._known(expression)
        return F.lit("") if typed is None or typed.digits is None else F.coalesce(typed.digits, F.lit(""))

    def time_text(self, expression: object, within: Sequence[str] = ()) -> Column:
        """
        Write as text what a row has for a time; where *expression* reads none, the texts of columns *within*.
        """
        typed = self._known(expression)
        text = F.lit(None).cast("string") if typed is None else as_text(typed.value, typed.kind)
        if len(within) > 1:
            texts = F.array_compact(F.array(*(F.nullif(F.trim(quoted(name)), F.lit("")) for name in within)))
            return F.coalesce(text, F.nullif(F.array_join(F.array_distinct(texts), " "), F.lit("")))
        return F.coalesce(text, F.col(quoted(within[0]))) if within else text

    def columns_to_read(self, expression: object) -> list[str]:
        """The columns of an expression that makes times of texts alone; none if it names null as a value."""
        texts, typed = self._texts_in(expression), self._known(expression)
        # The quotes of `Column<'…'>` are none of a text.
        names_null = any(_NULL.findall(expression_text(expression)))
        is_made_of_texts = texts == self._named_in(expression) and typed is not None and is_time(typed.kind)
        return texts if is_made_of_texts and not names_null else []

    def unreadable(self, expression: object, argument: str, *, within: bool = False) -> Unreadable:
        """Say of rows that their time, the `time_text`, cannot be read."""
        words = expression if isinstance(expression, str) else argument
        left_out = f'frame.where("{words} is not null")'
        if words in self.columns:
            left_out = self.table.without(words)
            words = quoted_if_needed(words)
        for column in self.text_column(expression) if within else ():
            words = quoted_if_needed(column)
        return Unreadable(argument, words, left_out)

    def text_column(self, expression: object) -> list[str]:
        """The one column of texts that an expression names; none of several, or where it is a column."""
        within = self._texts_in(expression)
        return within if len(within) == 1 else []

    def _texts_in(self, expression: object) -> list[str]:
        """The columns of texts that an expression names."""
        return [name for name in self._named_in(expression) if isinstance(self._kind(name), TEXTS)]

    def _named_in(self, expression: object) -> list[str]:
        """The columns that an expression names, if it is none itself; a name within a literal counts too."""
        words = str(expression)
        if words in self.columns or not isinstance(expression, str | Column):
            return []
        return [name for name in self.columns if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", words)]

    def source(self, source: str | Column) -> Column:
        """Take who says so: a name, or a column whose values are names."""
        if not isinstance(source, Column):
            return F.lit(require_name(source, "source"))
        return self.text(source, "source")

    def text(self, expression: str | Column, argument: str) -> Column:
        """The texts of a column or an expression."""
        typed = self.expression(expression, argument)
        return F.lit(None).cast("string") if typed is None else as_text(typed.value, typed.kind)

    def lacks_time(self, sequence: object, kind: T.DataType) -> None:
        """Note that nothing says when a row is true, its *sequence* being of *kind*."""
        first = first_of(sequence)
        ways = self._readings(first) if isinstance(first, str) and first in self.columns else []
        remedy = (
            'name a column of times, an expression that reads texts, "try_to_timestamp(column, '
            "'dd.MM.yyyy HH:mm')\" (of several forms, a coalesce of several), or one instant for the whole "
            "table; a time without a zone is of UTC, unless \"to_utc_timestamp(…, 'Europe/Berlin')\" says "
            "another"
        )
        if len(ways) == 1:
            remedy = f'"{ways[0]}" in the place of {first} reads all of it'
        elif ways:
            remedy = f"{first} can be read by {' or by '.join(ways)}, and does not say which"
        self.refuse(
            f"effective is not said, and the sequence, {kind.simpleString()}, is not a time: {remedy}"
        )

    def lacks_list_time(self, keys: Sequence[str]) -> None:
        """Note that nothing tells the lists of one table apart."""
        readings = (self._readings(name) for name in self.columns if name not in keys)
        times = [ways[0] for ways in readings if len(ways) == 1]
        remedy = f", such as taken_at={times[0]!r}" if len(times) == 1 else ""
        self.refuse(f"taken_at is not said: it is what tells the lists of one table apart{remedy}")

    def _readings(self, name: str) -> list[str]:
        """The column, or the expressions over it, of which each reads all that stands in it as times."""
        if is_time(self._kind(name)):
            return [name]
        if self.table.pandas is None or not isinstance(self._kind(name), TEXTS):
            return []
        text = F.col(quoted(name))
        instant = as_instant(text, self._kind(name), quoted(name))
        assert instant is not None
        ways = F.collect_set(reading_expressions(text, quoted_if_needed(name)))
        (row,) = self.frame.where(text.isNotNull()).agg(F.bool_and(instant.isNotNull()), ways).collect()
        is_iso, several = row
        if is_iso:
            return [name]
        return [way for way in several[0] if all(way in reading for reading in several)] if several else []

    def expression(self, expression: str | Column, argument: str) -> TypedColumn | None:
        """A column of the table by its name, or an expression over them; None where that is wrong."""
        if not isinstance(expression, str | Column):
            self.refuse(f"{argument} is {expression!r}, and must be a column, an expression or its text")
            return None
        try:
            typed = self._typed(expression)
            self._tell_zone(typed.kind, expression, argument)
            return typed
        except _SPARK_ERRORS as error:
            name = _unknown_name(error)
            if name is None:
                self.refuse(f"{argument}: Spark cannot read {expression!r} ({self._why(expression, error)})")
                return None
            self.refuse(f"{argument}: {name} is no column{suggest_name(name, self.columns)}")
            # What else is wrong with the column that is probably meant is told at once.
            near = nearest_name(expression, self.columns) if isinstance(expression, str) else None
            return None if near is None else self._typed(near)

    def _known(self, expression: object) -> TypedColumn | None:
        """A column, or an expression, as it is; None where it is neither, or Spark cannot read it."""
        if isinstance(expression, str | Column):
            with suppress(*_SPARK_ERRORS):
                return self._typed(expression)
        return None

    def _why(self, expression: str | Column, error: Exception) -> str:
        """Why Spark cannot read an expression: what it says, or the types where it says nothing of use."""
        if isinstance(error, AnalysisException):
            return str(error).strip().splitlines()[0]
        kinds = (f"{name} is {self._kind(name).simpleString()}" for name in self._named_in(expression))
        return ", ".join(kinds) or "of no such types"

    def _tell_zone(self, kind: T.DataType, expression: str | Column, argument: str) -> None:
        """Log a warning where an expression makes instants of texts, and they may be read in another zone."""
        if not isinstance(kind, T.TimestampType) or not self._texts_in(expression):
            return
        zone = self.frame.sparkSession.conf.get("spark.sql.session.timeZone")
        if zone not in _UTC:
            sentence = (
                "%s(): %s reads texts without a zone as of the session, %s; cdckit takes others as of UTC. "
                "spark.conf.set('spark.sql.session.timeZone', 'UTC') makes them one"
            )
            _LOG.warning(sentence, called_function(), argument, zone)

    def fields(
        self,
        keys: Sequence[str],
        column_list: Sequence[str | Column] | None,
        except_column_list: Sequence[str | Column] | None,
    ) -> list[str]:
        """The columns that become fields: the keys, and those that are listed, or all others."""
        if column_list is not None and except_column_list is not None:
            self.refuse("column_list and except_column_list are both given: one says it")
        listed = self.columns
        if column_list is not None:
            listed = self.listed(column_list, "column_list")
        elif except_column_list is not None:
            left_out = self.listed(except_column_list, "except_column_list")
            for name in set(left_out) & set(keys):
                self.refuse(f"except_column_list leaves out the key {name}")
            listed = [name for name in self.columns if name not in left_out]
        return [name for name in self.columns if name in keys or name in listed]

    def _name(self, column: str | Column) -> str:
        if not isinstance(column, Column):
            return str(column)
        try:
            return self.frame.select(column).columns[0]
        except AnalysisException as error:
            return _unknown_name(error) or str(column)

    def _typed(self, expression: str | Column) -> TypedColumn:
        value = expression if isinstance(expression, Column) else self._parse(expression)
        kind = self.frame.select(value.alias("value")).schema["value"].dataType
        if isinstance(kind, TEXTS):
            return TypedColumn(value, kind, text_digits(value), self._words(expression))
        return TypedColumn(value, kind, self.table.digits.get(expression_text(expression)))

    def _words(self, expression: str | Column) -> str | None:
        """The SQL that names a column or an expression; None of one that is given as a column."""
        if isinstance(expression, Column):
            return None
        return quoted(expression) if expression in self.columns else expression

    def _parse(self, text: str) -> Column:
        if text in self.columns:
            return F.col(quoted(text))
        try:
            return F.expr(text)
        except ParseException:
            # One word that SQL keeps for itself is a name that is misspelt.
            if _NAME.fullmatch(text):
                return F.col(quoted(text))
            raise

    def _kind(self, name: str) -> T.DataType:
        return self.frame.schema[name].dataType


def column_name(value: Any, columns: Collection[str]) -> Any:
    """An argument in which the numbers that pandas calls columns by are their names, also within a list."""
    if isinstance(value, list | tuple):
        return [column_name(part, columns) for part in value]
    is_name = isinstance(value, Integral) and not isinstance(value, bool) and str(value) in columns
    return str(value) if is_name else value


def first_of(sequence: object) -> object:
    """Name what a table is sequenced by before all else."""
    return sequence[0] if isinstance(sequence, list | tuple) and sequence else sequence


def expression_text(expression: object) -> str:
    """The SQL of an expression, or the name of a column, without the words that Spark puts around them."""
    return str(expression).removeprefix("Column<'").removesuffix("'>")


def _unknown_name(error: Exception) -> str | None:
    """The name that Spark did not find, if that is the error."""
    if not isinstance(error, AnalysisException):
        return None
    named = (error.getMessageParameters() or {}).get("objectName")
    return None if named is None or "UNRESOLVED" not in (error.getCondition() or "") else named.strip("`")
