"""Checksums of ranges of rows: where two large tables differ, before the rows are read."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdckit.parts.argument_forms import NAME, no_stream, rows_with, takes
from cdckit.parts.arguments import quoted, require_columns, require_fields, wrong_argument

SUMS = rows_with("range", "rows", "checksum", remedy="`range_checksums` makes them.")


@takes(table=[rows_with(), no_stream("take its rows of one instant")], by=NAME)
def range_checksums(table: DataFrame, by: str, fields: Mapping[str, str]) -> DataFrame:
    """
    Count the rows of each range of a table, and add up what they hold, whatever their order.

    Two tables whose sums of a range are equal have the same rows in it (but for a chance of 1 in 2^64), also
    where a row stands twice.  What is computed is plain SQL of Spark (`checksum_expression`): a source that
    speaks it makes its own sums, and sends those instead of its rows.

    Args:
        table: What was in force in a history (`as_of`), or a table of its source.
        by: The range of a row, in SQL: `number DIV 100000`, `substr(code, 1, 2)`, `date_trunc('month', day)`.
            Ranges of what the source is ordered or indexed by let it read one range alone.
        fields: What is compared, the keys among it: the type in SQL by name.  Both sides take the same types.

    Returns:
        One row per range that has rows, in no order: `range`; `rows`, how many; `checksum`, an exact decimal.

    Raises:
        MissingColumns: *table* lacks one of *fields*.
        InvalidArgument: *fields* are none; a type is a map or a variant, of which Spark has no hash.

    Cost: one pass; what is shuffled is one row per range and task.

    >>> from cdckit import current
    >>> fields = {"number": "bigint", "name": "string"}
    >>> ours = range_checksums(current(history), "number DIV 10", fields)
    >>> shop = session().createDataFrame([("teapot", 1)], "name string, number int")
    >>> theirs = range_checksums(shop, "number DIV 10", fields)
    >>> ours.collect() == theirs.collect()
    True
    """
    require_columns(table, fields)
    summed = _sum_of_hashes(fields)
    sums = F.count(F.lit(1)).alias("rows"), F.expr(summed).alias("checksum")
    return table.groupBy(F.expr(by).alias("range")).agg(*sums)


@takes()
def checksum_expression(fields: Mapping[str, str]) -> str:
    """
    Write the checksum of a group of rows in Spark's SQL, for a source that computes it itself.

    Each row's hash tells null from a value, and one field from the next; the sum does not care for order.

    Args:
        fields: As for `range_checksums`.

    Returns:
        An aggregate: `SELECT number DIV 10 AS range, count(*) AS rows, … AS checksum FROM … GROUP BY 1`.

    Raises:
        InvalidArgument: As `range_checksums`.

    >>> print(checksum_expression({"number": "bigint"}))
    sum(CAST(xxhash64(`number` IS NULL, CAST(`number` AS bigint)) AS DECIMAL(20,0)))
    """
    return _sum_of_hashes(fields)


def _sum_of_hashes(fields: Mapping[str, str]) -> str:
    require_fields(fields, list(fields), "fields")
    unfit = [name for name, kind in fields.items() if "map<" in kind.lower() or "variant" in kind.lower()]
    if unfit:
        raise wrong_argument("fields", "of types that Spark has a hash of: no map, no variant", unfit,
            remedy="Leave them out here; `reconcile` compares them.",
        )  # fmt: skip
    parts = (f"{quoted(name)} IS NULL, CAST({quoted(name)} AS {kind})" for name, kind in fields.items())
    return f"sum(CAST(xxhash64({', '.join(parts)}) AS DECIMAL(20,0)))"


@takes(ours=SUMS, theirs=SUMS)
def find_differing_ranges(ours: DataFrame, theirs: DataFrame) -> DataFrame:
    """
    Find the ranges in which two tables differ, by their sums: those whose rows are then to be read.

    Args:
        ours: What `range_checksums` returned of the history, or a table in the same columns.
        theirs: The same of the source.

    Returns:
        One row per range that differs, in no order: `range`, `our_rows` and `their_rows`, 0 where there are
        none.

    Cost: a join of one row per range.

    >>> sums = "range int, rows int, checksum int"
    >>> ours = session().createDataFrame([(0, 10, 7), (1, 10, 8), (2, 1, 5)], sums)
    >>> theirs = session().createDataFrame([(0, 10, 7), (1, 10, 9)], sums)
    >>> find_differing_ranges(ours, theirs).orderBy("range").show()
    +-----+--------+----------+
    |range|our_rows|their_rows|
    +-----+--------+----------+
    |    1|      10|        10|
    |    2|       1|         0|
    +-----+--------+----------+
    <BLANKLINE>
    """
    left, right = ours.alias("here"), theirs.alias("there")
    joined = left.join(right, F.col("here.range").eqNullSafe(F.col("there.range")), "outer")
    rows, checksum = (
        F.col(f"here.{name}").eqNullSafe(F.col(f"there.{name}")) for name in ("rows", "checksum")
    )
    return joined.where(~(rows & checksum)).select(
        F.coalesce("here.range", "there.range").alias("range"),
        F.coalesce("here.rows", F.lit(0)).alias("our_rows"),
        F.coalesce("there.rows", F.lit(0)).alias("their_rows"),
    )
