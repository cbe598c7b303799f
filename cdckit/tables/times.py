"""Times of any table: as instants, and as texts that sort as they do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.model.changes import sortable_number
from cdckit.parts.built_columns import built_once
from cdckit.parts.public_calls import called_function
from cdckit.parts.values import as_text, as_utc_instant, decimal_text, within_years

NEEDED_TIME = (
    "a timestamp, a date, or ISO 8601 text; seconds since 1970 are `F.timestamp_seconds('a_column')`"
)

# Of texts that are no ISO 8601: how a day, a clock and a zone look, and what Spark may call that.
_DAYS = {
    r"^\d{1,2}\.\d{1,2}\.\d{4}": ["d.M.yyyy"],
    r"^\d{1,2}/\d{1,2}/\d{4}": ["d/M/yyyy", "M/d/yyyy"],
    r"^\d{1,2}-\d{1,2}-\d{4}": ["d-M-yyyy", "M-d-yyyy"],
    r"^\d{4}-\d{1,2}-\d{1,2}": ["yyyy-M-d"],
    r"^\d{4}/\d{1,2}/\d{1,2}": ["yyyy/M/d"],
    r"^\d{8}(?!\d)": ["yyyyMMdd", "ddMMyyyy", "MMddyyyy"],
    r"^\d{10}$": ["yyyyMMddHH"],
    r"^\d{14}$": ["yyyyMMddHHmmss"],
}
_CLOCKS = {
    r" \d{1,2}:\d{2}:\d{2}\.\d": " H:mm:ss.SSSSSSSSS",
    r"(?i) \d{1,2}:\d{2}:\d{2} [ap]m": " h:mm:ss a",
    r"(?i) \d{1,2}:\d{2} [ap]m": " h:mm a",
    r" \d{1,2}:\d{2}:\d{2}": " H:mm:ss",
    r" \d{1,2}:\d{2}": " H:mm",
}
_ZONES = {
    r" ([A-Za-z]+/[\w/+-]+|UTC|GMT)$": " VV",
    r":[\d.]+ [+-]\d{2}:\d{2}$": " XXX",
    r":[\d.]+(Z|[+-]\d{2}:\d{2})$": "XXX",
    r":[\d.]+ [+-]\d{4}$": " XX",
    r":[\d.]+[+-]\d{4}$": "XX",
}
_SINCE_1970 = {r"^\d{10}$": "seconds", r"^\d{13}$": "millis", r"^\d{16}$": "micros"}

TEXTS = (T.StringType, T.VarcharType, T.CharType)
TIMES = (T.TimestampType, T.TimestampNTZType, T.DateType)

_FULL = r"^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(\.\d{1,6})?(Z|[+-]\d{2}:\d{2})$"
_TO_FULL = {
    # The basic form: 20240101T100000Z.
    r"^(\d{4})(\d{2})(\d{2})T(\d{2})(\d{2})": "$1-$2-$3T$4:$5",
    r"^(\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2})(\d{2})": "$1:$2",
    # A minute is the second at which it begins, a day its midnight.
    r"^(\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2})(?!:)": "$1:00",
    r"^(\d{4}-\d{2}-\d{2})$": "$1T00:00:00",
    r"^(\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}),(?=\d)": "$1.",
    r"^(\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}\.\d{6})\d+": "$1",
    # An offset without a colon, or of hours alone, as PostgreSQL and DuckDB write it.
    r"(:\d{2}:\d{2}(?:\.\d+)?[+-]\d{2})(\d{2})?$": "$1:$2",
    r"(:\d{2}:\d{2}(?:\.\d+)?[+-]\d{2}:)$": "$100",
    r"(:\d{2}:\d{2}(?:\.\d+)?)$": "$1Z",
    r"^(\d{4}-\d{2}-\d{2}[T ])24(?=:00:00(?:\.0+)?(?:Z|[+-]))": "$100",
}
"""How a text of ISO 8601 comes to the form `_FULL`, in UTC where it says no zone: one after the other."""
_IS_HOUR_24 = r"^\d{4}-?\d{2}-?\d{2}[T ]24"
_MICROSECONDS_A_DAY = 86_400_000_000


def is_time(kind: T.DataType) -> bool:
    """Tell whether its values are times by their type."""
    return isinstance(kind, TIMES)


def as_instant(value: Column, kind: T.DataType, words: str | None = None) -> Column | None:
    """
    The instant that a value names, in UTC where it says no zone, whatever the zone of the session is.

    A date is the instant at which it begins, so is a day or a minute as text; digits after the sixth of a
    second are cut (`text_digits`).  A text is ISO 8601 in its extended form, or in the basic one with a
    clock; a space for the T, a comma in the second, an offset without a colon or minutes will do.  Null where
    a text is no ISO 8601, or an instant is not in the years 1 to 9999; None for types that name no instant.
    What *words* of SQL name is parsed by columns that are built once.
    """
    if is_time(kind):
        return within_years(as_utc_instant(value, kind), T.TimestampType())
    if not isinstance(kind, TEXTS):
        return None
    return _of_text(value, words, _parse_text)


def _of_text(value: Column, words: str | None, make: Callable[[Column], Column]) -> Column:
    """What is made of a text; once for all calls where *words* of SQL name it."""
    return make(value.cast("string")) if words is None else _of_words(words, make)


@built_once
def _of_words(words: str, make: Callable[[Column], Column]) -> Column:
    return make(F.expr(words).cast("string"))


_OUTSIDE_YEARS = r"^([+-]\d{4,}|\d{5,}|0000)-\d{2}-\d{2}"
_NEVER = r"^(\+?\d{5,}-\d{2}-\d{2}.*|9999-12-31[t ].*|\+?infinity)$"


def is_text_of_never(text: Column) -> Column:
    """Tell whether the text of an end says that there is none: `infinity`, or a year after 9998."""
    return F.lower(F.trim(text)).rlike(_NEVER)


def _parse_text(text: Column) -> Column:
    # Spark's cast takes more, and what says no zone for a time of the session's.
    full = text = F.trim(text)
    for form, replacement in _TO_FULL.items():
        full = F.regexp_replace(full, form, replacement)
    is_hour_24 = text.rlike(_IS_HOUR_24)
    full = F.when(text.rlike(_FULL) & ~is_hour_24, text).otherwise(F.regexp_extract(full, _FULL, 0))
    # Hour 24 is read as hour 0 of its day, and is that of the next one.
    more = F.when(is_hour_24, F.lit(_MICROSECONDS_A_DAY)).otherwise(F.lit(0))
    instant = F.timestamp_micros(F.unix_micros(full.try_cast("timestamp_ltz")) + more)
    return within_years(instant, T.TimestampType())


def text_digits(text: Column) -> Column:
    """Write what `as_instant` cuts of an ISO 8601 text: digits below a microsecond, no zeros at the end."""
    return F.regexp_extract(text.cast("string"), r"\d[.,]\d{6}(\d*[1-9])", 1)


def reading_expressions(text: Column, text_column: str) -> Column:
    """
    The expressions over *text_column* that read such a text as a time; each was tried with the text itself.

    There are several where it can be read in several ways, and none where this knows none.

    >>> texts = session().createDataFrame([("31.12.2024",), ("03/04/2024",), ("9:15 PM",)], "at string")
    >>> texts.select(reading_expressions(F.col("at"), "at").alias("readings")).show(truncate=False)
    +--------------------------------------------------------------------+
    |readings                                                            |
    +--------------------------------------------------------------------+
    |[try_to_timestamp(at, 'd.M.yyyy')]                                  |
    |[try_to_timestamp(at, 'd/M/yyyy'), try_to_timestamp(at, 'M/d/yyyy')]|
    |[]                                                                  |
    +--------------------------------------------------------------------+
    <BLANKLINE>
    """
    days = _first_like(text, {sign: F.array(*map(F.lit, forms)) for sign, forms in _DAYS.items()})
    clock, zone = (
        F.coalesce(_first_like(text, {sign: F.lit(form) for sign, form in signs.items()}), F.lit(""))
        for signs in (_CLOCKS, _ZONES)
    )
    none = F.array().cast("array<string>")
    patterns = F.transform(F.coalesce(days, none), lambda day: F.concat(day, clock, zone))
    read = F.filter(patterns, lambda pattern: F.try_to_timestamp(text, pattern).isNotNull())
    by_pattern = F.transform(
        read, lambda pattern: F.concat(F.lit(f"try_to_timestamp({text_column}, '"), pattern, F.lit("')"))
    )
    since_1970 = (
        F.when(text.rlike(sign), F.lit(f"timestamp_{unit}(try_cast({text_column} as bigint))"))
        for sign, unit in _SINCE_1970.items()
    )
    return F.concat(by_pattern, F.array_compact(F.array(*since_1970)))


def is_other_day(text: Column) -> Column:
    """
    Tell whether a text begins with a day with signs between its parts, and is no ISO 8601; never null.

    Digits alone may be any number, and sort as the days do.

    >>> texts = session().createDataFrame([("5.1.2024",), ("2024-01-05",), ("20240105",)], "at string")
    >>> [row[0] for row in texts.select(is_other_day(F.col("at"))).collect()]
    [True, False, False]
    """
    has_day = text.rlike(r"^\s*(\d{1,2}[./-]\d{1,2}[./-]\d{4}|\d{4}[./-]\d{1,2}[./-]\d{1,2})\b")
    return F.coalesce(has_day & _parse_text(text).isNull(), F.lit(False))


def other_day(part: TypedColumn) -> Column:
    """The text of a column where it is an other day (`is_other_day`); null elsewhere."""
    return _of_text(part.value, part.words, _keep_other_day)


def _keep_other_day(text: Column) -> Column:
    return F.when(is_other_day(text), text)


def _first_like(text: Column, expressions: Mapping[str, Column]) -> Column:
    """Choose what stands for the first of the regular expressions found in the text; null without one."""
    return F.coalesce(*(F.when(text.rlike(sign), expression) for sign, expression in expressions.items()))


class Unreadable(NamedTuple):
    """
    What to say where a row has no time that can be read.

    `argument` is that of the call, `words` what was said for it, as in SQL; `left_out` is a call that leaves
    out the rows without one.  What stands in a row, as text, is a column that SQL names.
    """

    argument: str
    words: str
    left_out: str

    def sentence(self, text_column: str, row: Column) -> Column:
        """The sentence that ends a job: what is wrong, and the row."""
        needs = F.lit(f"{called_function()}() needs a time for every row, and ")
        remedy = F.lit(f": leave such rows out, `{self.left_out}`, or name another time")
        remedy = F.when(is_missing(text_column), remedy).otherwise("")
        return F.concat(needs, self.finding(text_column), remedy, F.lit(".  The row: "), row)

    def finding(self, text_column: str) -> Column:
        """Say what stands there instead of a time, and how that can be read."""
        return _finding(self.argument, self.words, text_column)


def is_missing(text_column: str) -> Column:
    """Tell whether there is nothing that could be read as a time."""
    return F.coalesce(F.trim(F.expr(text_column)) == "", F.lit(True))


@built_once
def _finding(argument: str, words: str, text_column: str) -> Column:
    value = F.expr(text_column)
    nothing = F.when(value.isNull(), "null").otherwise("empty")
    ways = reading_expressions(value, words)
    ways = F.transform(ways, lambda way: F.concat(F.lit(f'{argument}="'), way, F.lit('"')))
    both = F.concat(F.array_join(ways, " or "), F.lit(": which of them it is, the text does not say"))
    is_day = is_other_day(value) & (F.length(F.trim(value)) <= len("31.12.2024"))
    way = (
        F.when(F.size(ways) == 0, "name an expression that reads it")
        .when(F.size(ways) == 1, F.concat(F.lit("say how it is written, "), ways[0]))
        .otherwise(both)
    )
    unlike = F.lit("', which is not ISO 8601, such as 2024-12-31 23:59: ")
    shown = F.concat(F.lit(f"{words} is '"), value)
    return (
        F.when(is_missing(text_column), F.concat(F.lit(f"{words} is "), nothing))
        .when(value.rlike(_OUTSIDE_YEARS), F.concat(shown, F.lit("', not in the years 1 to 9999")))
        .when((F.size(ways) == 0) & is_day, F.concat(shown, F.lit("', and there is no such day")))
        .otherwise(F.concat(shown, unlike, way))
    )


NEEDED_ORDER = (
    "whole numbers, decimals, times, texts, booleans or bytes, or a struct of these; "
    "cast floats, such as `F.col('a_column').cast('bigint')` or, in pandas, `frame.convert_dtypes()`"
)

_END = "\u0000"
_AFTER_EVERY_PART = "\uffff"


class TypedColumn(NamedTuple):
    """
    A column and the type that it has; of times also the digits that are below a microsecond, as text.

    `words` are the SQL that names it, if there is such.
    """

    value: Column
    kind: T.DataType
    digits: Column | None = None
    words: str | None = None


def has_order_text(kind: T.DataType) -> bool:
    """Tell whether values of a type have an `order_text`."""
    if isinstance(kind, T.StructType):
        return all(has_order_text(field.dataType) for field in kind)
    return isinstance(kind, (T.IntegralType, T.DecimalType, *TIMES, *TEXTS, T.BooleanType, T.BinaryType))


def order_text(parts: list[TypedColumn]) -> Column | None:
    """
    The text that sorts as the parts do, one after the other; empty, and so first, where it is one null.

    None where a part is of a type that has no order here.  Text sorts by its bytes, as in Spark.  For
    that ISO 8601 with a clock is written in one form of UTC, row by row: so it sorts by its instants.
    """
    if not parts:
        return F.lit("")
    if not all(has_order_text(part.kind) for part in parts):
        return None
    if len(parts) == 1 and not isinstance(parts[0].kind, T.StructType):
        return F.coalesce(_text(parts[0]), F.lit(""))
    return _join_parts(parts)


def _join_parts(parts: list[TypedColumn]) -> Column:
    return F.concat(*map(_part, parts))


def _part(part: TypedColumn) -> Column:
    """One of several: it says itself where it ends.  A blank, for null, stands before all values."""
    text = _text(part)
    if is_time(part.kind) and part.digits is not None:
        text = F.concat(text, F.lit(_END))
    if isinstance(part.kind, (*TEXTS, T.BinaryType)):  # of any length
        # A text that goes on after one like it is the later one, whatever the next part is.
        text = F.concat(
            F.lit("!"), F.replace(text, F.lit(_END), F.lit(_END + _AFTER_EVERY_PART)), F.lit(_END)
        )
    return F.coalesce(text, F.lit(" "))


def _text(part: TypedColumn) -> Column:
    value, kind, digits, words = part
    if isinstance(kind, T.StructType):
        parts = [TypedColumn(value.getField(field.name), field.dataType) for field in kind]
        return F.when(value.isNotNull(), _join_parts(parts))
    if isinstance(kind, T.IntegralType):
        return sortable_number(value)
    if isinstance(kind, T.DecimalType):
        return _decimal(value, kind)
    if is_time(kind):
        instant = as_instant(value, kind)
        assert instant is not None
        micros = sortable_number(F.unix_micros(instant))
        return micros if digits is None else F.concat(micros, F.coalesce(digits, F.lit("")))
    if isinstance(kind, TEXTS):
        return _of_text(value, words, _in_utc)
    if isinstance(kind, T.BooleanType):
        return value.cast("int").cast("string")
    return F.lower(F.hex(value))


def _in_utc(text: Column) -> Column:
    """
    An ISO 8601 text with a clock in UTC, with all digits of its second that are not zeros at its end.

    A day alone sorts among them as it is, but for blanks around it; any other text stays itself.
    """
    instant = as_text(_parse_text(text), T.TimestampType())
    second = F.translate(F.substring_index(instant, ".", 1), " ", "T")
    digits = F.regexp_extract(text, r"\d[.,](\d*[1-9])", 1)
    in_utc = F.concat(second, F.when(digits != "", F.concat(F.lit("."), digits)).otherwise(""))
    # What is in the year 10000 in UTC has a sign before it.
    has_clock = text.rlike(r"\dT\d|:") & ~second.startswith("+")
    return F.coalesce(F.when(has_clock, in_utc), F.when(instant.isNotNull(), F.trim(text)), text)


def _decimal(value: Column, kind: T.DecimalType) -> Column:
    """The whole number below, then what is more: that is never negative, and as long in every row."""
    whole = F.floor(value)
    if kind.scale == 0:
        return sortable_number(value)
    # A difference would have two digits more than the value, of which Spark may keep none.
    more = decimal_text(F.pmod(value, F.lit(1).cast(T.DecimalType(1, 0))).cast(T.DecimalType(38, kind.scale)))
    return F.concat(sortable_number(whole), F.rpad(F.regexp_replace(more, r"^0\.?", ""), kind.scale, "0"))
