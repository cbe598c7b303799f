"""A history in SQL, as a view with its questions as functions; and rows as a table of pandas."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame

from cdckit.errors import CdcError, InvalidArgument
from cdckit.model.history import (
    DELETED,
    SYSTEM_FROM,
    SYSTEM_TO,
    VALID_FROM,
    VALID_TO,
    is_bitemporal,
    open_end,
    require_bitemporal,
    require_history,
)
from cdckit.parts.argument_forms import takes
from cdckit.parts.arguments import quoted, require_batch, require_columns, require_int, require_name
from cdckit.parts.arrow_types import arrow_schema


@takes()
def create_view(history: DataFrame, name: str) -> None:
    """
    Give a history a name in SQL, and with it the questions `as_of` and `between`.

    In the session of *history*, until that ends, there are then

    - the view `<name>`: the history as it is;
    - the view `<name>_current`: what `current(history)` gives;
    - the function `<name>_as_of(valid_at [, deletes])`: what `as_of(history, valid_at)` gives;
    - the function `<name>_between(start, end [, deletes])`: what `between(history, start, end)` gives, in
      which an *end* of NULL is an open one.

    Of a table with both times (`bitemporal`) the functions take one more instant, as of which it was known:
    `<name>_as_of(valid_at, known_at [, deletes])` and `<name>_between(start, end, known_at [, deletes])`; a
    third one, `<name>_known_at(known_at)`, gives all that was believed then; `<name>_current` is what is
    believed still.

    What had these names before is replaced.  `deletes` is false unless it is said.

    Args:
        history: One row per version.  It is computed anew by every query: for one that takes long to
            make, create the view of a table that keeps it (a ledger has `create_view` of its own).
        name: How the view is called.  Any text will do; in SQL one that is not plain stands in backticks.

    Raises:
        MissingColumns, WrongColumnType: *history* lacks one of the columns of an interval, or has it in
            another type.
        InvalidArgument: *name* is no name, or *history* is a stream.
        SparkRuntimeException: Of a query: *end* is not after *start*, or an instant is a number.

    SQL cannot tell a naive timestamp from an instant: `TIMESTAMP '2024-01-01 10:00:00'` is read in the zone
    of the session, so say the zone: `TIMESTAMP '2024-01-01 10:00:00Z'`.  A number, such as 20240115, is an
    error.  An instant that is NULL finds no rows.  The instants may be those of a table: `FROM orders,
    LATERAL <name>_as_of(orders.ordered_at)`, which compares every order with every version; `as_of_join`
    does not.

    Cost: nothing until it is asked; a question is one filter, which Spark pushes down to the files, and no
    Python takes part.  Works through Spark Connect, whose views live in the session of the client.

    Source:
        Spark's `CREATE TEMPORARY FUNCTION … RETURNS TABLE`; SQL:2011's `FOR … AS OF`, which Spark has for the
        versions of a table and not for its rows.

    >>> create_view(history, "products")
    >>> spark = history.sparkSession
    >>> spark.sql("SELECT number, name FROM products_as_of(TIMESTAMP '2024-01-01 11:00:00Z')").show()
    +------+------+
    |number|  name|
    +------+------+
    |     1|teapot|
    +------+------+
    <BLANKLINE>
    >>> spark.sql('''
    ...     SELECT number, name, valid_from_timestamp FROM products_between(
    ...         TIMESTAMP '2024-01-01 09:30:00Z', TIMESTAMP '2024-01-01 10:00:00Z'
    ...     ) ORDER BY number
    ... ''').show()
    +------+------+--------------------+
    |number|  name|valid_from_timestamp|
    +------+------+--------------------+
    |     1|kettle| 2024-01-01 09:30:00|
    |     2|   mug| 2024-01-01 09:30:00|
    +------+------+--------------------+
    <BLANKLINE>
    """
    required = require_bitemporal if is_bitemporal(history) else require_history
    required(history, VALID_FROM, VALID_TO, DELETED)
    require_name(name, "name")
    require_batch(history, "history", "ask the table that keeps it")
    history.createOrReplaceTempView(quoted(name))
    for statement in _statements(history, name):
        history.sparkSession.sql(statement)


def _statements(history: DataFrame, name: str) -> list[str]:
    """
    Write the statements that make the view of now and the functions.

    A parameter is named with its function: alone it would be taken for a field of that name.
    """
    view, as_of, between, known_at = (
        quoted(f"{name}{suffix}") for suffix in ("", "_as_of", "_between", "_known_at")
    )
    begins, ends = f"v.`{VALID_FROM}`", _end(history, VALID_TO)
    deleted = f"coalesce(v.`{DELETED}`, FALSE)"  # as `is_deleted`
    start, end = _instant(f"{name}_between", "start"), _instant(f"{name}_between", "end")
    valid_at = _instant(f"{name}_as_of", "valid_at")
    cut = {VALID_FROM: f"greatest({begins}, {start})", VALID_TO: f"least({ends}, {end})"}
    every, in_period = _columns(history, {VALID_TO: ends}), _columns(history, cut)
    both_times = is_bitemporal(history)
    parameter = "`known_at` VARIANT, " if both_times else ""
    deletes = "`deletes` BOOLEAN DEFAULT FALSE"

    def believed(suffix: str) -> str:
        """Write the condition that a version was known, behind another one."""
        if not both_times:
            return ""
        moment, until = _instant(f"{name}_{suffix}", "known_at"), _end(history, SYSTEM_TO)
        return f" AND v.`{SYSTEM_FROM}` <= {moment} AND ({until} IS NULL OR {until} > {moment})"

    still_believed = f" AND {_end(history, SYSTEM_TO)} IS NULL" if both_times else ""
    message = _literal(f"{name}_between() needs end to be after start, or NULL")
    statements = [
        f"CREATE OR REPLACE TEMPORARY VIEW {quoted(f'{name}_current')} AS "
        f"SELECT {every} FROM {view} AS v WHERE {ends} IS NULL AND NOT {deleted}{still_believed}",
        f"CREATE OR REPLACE TEMPORARY FUNCTION {as_of}(`valid_at` VARIANT, {parameter}{deletes}) "
        f"RETURNS TABLE RETURN SELECT {every} FROM {view} AS v "
        f"WHERE {begins} <= {valid_at} AND ({ends} IS NULL OR {ends} > {valid_at})"
        f"{believed('as_of')} AND ({as_of}.`deletes` OR NOT {deleted})",
        f"CREATE OR REPLACE TEMPORARY FUNCTION {between}"
        f"(`start` VARIANT, `end` VARIANT, {parameter}{deletes}) "
        f"RETURNS TABLE RETURN SELECT {in_period} FROM {view} AS v "
        f"WHERE CASE WHEN {end} <= {start} THEN raise_error({message}) ELSE {start} IS NOT NULL END "
        f"AND ({end} IS NULL OR {begins} < {end}) AND ({ends} IS NULL OR {ends} > {start}) "
        f"AND ({ends} IS NULL OR {ends} > {begins}){believed('between')} "
        f"AND ({between}.`deletes` OR NOT {deleted})",
    ]
    all_known = (
        f"CREATE OR REPLACE TEMPORARY FUNCTION {known_at}(`known_at` VARIANT) RETURNS TABLE "
        f"RETURN SELECT {every} FROM {view} AS v WHERE TRUE{believed('known_at')}"
    )
    return [*statements, all_known if both_times else f"DROP TEMPORARY FUNCTION IF EXISTS {known_at}"]


def _instant(function: str, parameter: str) -> str:
    """
    Read a parameter of a function as an instant; the query fails for a number, as Python's function does.

    As a variant it has the type that the caller gave it: of a parameter of type TIMESTAMP Spark would make
    20240115 a time in August 1970.
    """
    value = f"{quoted(function)}.{quoted(parameter)}"
    needed = f"{function}() needs {parameter} to be a time, such as {_EXAMPLE}; a number is none"
    refusal = f"WHEN schema_of_variant({value}) NOT IN ({_TIMES}) THEN raise_error({_literal(needed)})"
    return f"CASE {refusal} ELSE CAST({value} AS TIMESTAMP_LTZ) END"


_EXAMPLE = "TIMESTAMP '2024-01-15 00:00:00Z'"
_TIMES = "'TIMESTAMP', 'TIMESTAMP_NTZ', 'DATE', 'STRING', 'VOID'"


def _literal(text: str) -> str:
    """Write a text in SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _end(history: DataFrame, column: str) -> str:
    """Write an end in SQL, null where it is open, whatever stands for that."""
    end, stands_for_open = f"v.`{column}`", open_end(history, column)
    return end if stands_for_open is None else f"nullif({end}, timestamp_micros({stands_for_open}))"


def _columns(history: DataFrame, replaced: dict[str, str]) -> str:
    """List what a function returns: without the interval of knowledge, which has been asked for."""
    names = (name for name in history.columns if name not in (SYSTEM_FROM, SYSTEM_TO))
    return ", ".join(
        f"{replaced[name]} AS {quoted(name)}" if name in replaced else f"v.{quoted(name)}" for name in names
    )


_WITH_NULLS: dict[pa.DataType, Any] = {
    pa.bool_(): pd.BooleanDtype(),
    pa.int8(): pd.Int8Dtype(),
    pa.int16(): pd.Int16Dtype(),
    pa.int32(): pd.Int32Dtype(),
    pa.int64(): pd.Int64Dtype(),
}
"""Types of pandas that hold a null beside whole numbers and truths: without them 2^53 + 1 becomes 2^53."""


class TooManyRows(CdcError, ValueError):
    """There are more rows than were said to be wanted in this program."""

    def __init__(self, limit: int, columns: int) -> None:
        self.limit, self.columns = limit, columns
        super().__init__(limit, columns)

    def __str__(self) -> str:
        return (
            f"to_pandas() needs at most {self.limit:,} rows, and there are at least {self.limit + 1:,} of "
            f"{self.columns} columns; none was left out silently. Ask for fewer: "
            "to_pandas(frame.where(…)), to_pandas(frame.groupBy(…).count()), or the first ones of an order, "
            f"to_pandas(frame.orderBy(…).limit({self.limit})). Or take more into the memory of this program: "
            f"to_pandas(frame, limit={10 * self.limit})"
        )


@takes()
def to_pandas(frame: DataFrame, *, limit: int = 100_000) -> pd.DataFrame:
    """
    Bring the rows of a DataFrame into a table of pandas, or raise if there are more than *limit*.

    Args:
        frame: Any DataFrame; its rows come in its order, if it has one.
        limit: As many rows as may come.

    Returns:
        All rows.  A column's type follows from its type in Spark, never from its rows.  Instants are aware,
        in UTC and to the microsecond (so that the year 9999 fits), whatever the session's zone is.  Whole
        numbers and truths have pandas' own types that hold nulls.  Dates, decimals and binaries are
        Python's; structs and maps are dictionaries, in which whole numbers beside nulls stay whole.

    Raises:
        TooManyRows: There are more than *limit*; at most one more than that has come.
        InvalidArgument: *frame* is no DataFrame or a stream, or *limit* is no whole number from 0 on.
        NoSuchArrowType: A column is of a type that Arrow does not have.

    Cost: computes the frame once, as far as it takes to know; of each partition, at most limit + 1 rows.

    >>> to_pandas(history.orderBy("number", "valid_from_timestamp").select("number", "valid_to_timestamp"))
       number        valid_to_timestamp
    0       1 2024-01-01 10:00:00+00:00
    1       1                       NaT
    2       2 2024-01-01 11:00:00+00:00
    3       2                       NaT
    >>> try:
    ...     to_pandas(history, limit=3)
    ... except TooManyRows as error:
    ...     print(str(error).split(",")[0])
    to_pandas() needs at most 3 rows
    """
    require_columns(frame, [])
    require_batch(frame, "frame", "ask the table that keeps it")
    if require_int(limit, "limit") not in range(2**31 - 1):
        raise InvalidArgument("to_pandas", "limit", "a whole number from 0 to 2147483646", limit)
    # Where a struct is null, Spark leaves nulls in its fields, also in those that may have none.
    schema = arrow_schema(frame.schema.toNullable())
    table = frame.limit(limit + 1).toArrow()
    if table.num_rows > limit:
        raise TooManyRows(limit, len(frame.columns))
    # Spark names the zone of its session, which says nothing about the instants.
    rows: pd.DataFrame = table.cast(schema).to_pandas(
        types_mapper=_WITH_NULLS.get, maps_as_pydicts="strict", integer_object_nulls=True
    )
    return rows
