"""A history in SQL: a temporary view, and its questions as table functions."""

from __future__ import annotations

from pyspark.sql import DataFrame

from cdckit.history import DELETED, VALID_FROM, VALID_TO, open_end, require_history
from cdckit.parts.arguments import require_name
from cdckit.parts.schemas import quoted, require_batch


def create_view(history: DataFrame, name: str) -> None:
    """
    Give a history a name in SQL, and with it the questions `as_of` and `between`.

    In the session of *history*, until that ends, there are then

    - the view `<name>`: the history as it is;
    - the view `<name>_current`: what `current(history)` gives;
    - the function `<name>_as_of(at [, deletes])`: what `as_of(history, at)` gives;
    - the function `<name>_between(start, end [, deletes])`: what `between(history, start, end)` gives, in
      which an *end* of NULL is an open one.

    What had these names before is replaced.  `deletes` is false unless it is said.

    Args:
        history: One row per version.  It is computed anew by every query: for one that takes long to
            make, create the view of a table that keeps it (a ledger has `create_view` of its own).
        name: How the view is called.  Any text will do; in SQL one that is not plain stands in backticks.

    Raises:
        MissingColumns, WrongColumnType: *history* lacks one of the columns of an interval, or has it in
            another type.
        InvalidArgument: *name* is no name, or *history* is bitemporal or a stream.
        SparkRuntimeException: Of a query: *end* is not after *start*.

    SQL cannot tell a naive timestamp from an instant: `TIMESTAMP '2024-01-01 10:00:00'` is read in the zone
    of the session, so say the zone: `TIMESTAMP '2024-01-01 10:00:00Z'`.  An instant that is NULL finds no
    rows.  The instants may be those of a table: `FROM orders, LATERAL <name>_as_of(orders.ordered_at)`, which
    compares every order with every version; `as_of_join` does not.

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
    names = require_history(history, VALID_FROM, VALID_TO, DELETED, function="create_view").columns
    require_name(name, "name", function="create_view")
    require_batch(history, "history", "ask the table that keeps it", function="create_view")
    history.createOrReplaceTempView(quoted(name))
    for statement in _statements(names, name, open_end(history)):
        history.sparkSession.sql(statement)


def _statements(names: list[str], name: str, stands_for_open: int | None) -> list[str]:
    """
    What makes the view of now and the two functions.

    A parameter is named with its function: alone it would be taken for a field of that name.
    """
    view, as_of, between = quoted(name), quoted(f"{name}_as_of"), quoted(f"{name}_between")
    begins, ends = f"v.`{VALID_FROM}`", f"v.`{VALID_TO}`"
    if stands_for_open is not None:
        ends = f"nullif({ends}, timestamp_micros({stands_for_open}))"
    every = ", ".join(f"{ends} AS `{each}`" if each == VALID_TO else f"v.{quoted(each)}" for each in names)
    start, end = f"{between}.`start`", f"{between}.`end`"
    cut = {VALID_FROM: f"greatest({begins}, {start})", VALID_TO: f"least({ends}, {end})"}
    in_period = ", ".join(
        f"{cut[each]} AS `{each}`" if each in cut else f"v.{quoted(each)}" for each in names
    )
    needed = f"{name}_between() needs end to be after start, or NULL"
    message = needed.replace("\\", "\\\\").replace("'", "\\'")
    return [
        f"CREATE OR REPLACE TEMPORARY VIEW {quoted(f'{name}_current')} AS "
        f"SELECT {every} FROM {view} AS v WHERE {ends} IS NULL AND NOT v.`{DELETED}`",
        f"CREATE OR REPLACE TEMPORARY FUNCTION {as_of}(`at` TIMESTAMP, `deletes` BOOLEAN DEFAULT FALSE) "
        f"RETURNS TABLE RETURN SELECT {every} FROM {view} AS v "
        f"WHERE {begins} <= {as_of}.`at` AND ({ends} IS NULL OR {ends} > {as_of}.`at`) "
        f"AND ({as_of}.`deletes` OR NOT v.`{DELETED}`)",
        f"CREATE OR REPLACE TEMPORARY FUNCTION {between}"
        "(`start` TIMESTAMP, `end` TIMESTAMP, `deletes` BOOLEAN DEFAULT FALSE) "
        f"RETURNS TABLE RETURN SELECT {in_period} FROM {view} AS v "
        f"WHERE CASE WHEN {end} <= {start} THEN raise_error('{message}') ELSE {start} IS NOT NULL END "
        f"AND ({end} IS NULL OR {begins} < {end}) AND ({ends} IS NULL OR {ends} > {start}) "
        f"AND ({ends} IS NULL OR {ends} > {begins}) AND ({between}.`deletes` OR NOT v.`{DELETED}`)",
    ]
