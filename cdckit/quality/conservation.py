"""Conservation: in = out + rejects + waiting, record by record."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdckit.errors import InvalidArgument
from cdckit.parts.schemas import require_columns

PLACE = ("topic", "partition", "offset")
"""Where a record lies."""

_FUNCTION = "record_fates"


def record_fates(records: DataFrame, **fates: DataFrame) -> DataFrame:
    """
    What became of each record: the tables in which it is found again.

    The suite `fates` says what is to hold of them: each record has one fate, and what has one is a record.

    Args:
        records: What came: one row per record.
        fates: By what each fate is called, a table of what had it: changes, whose `arrival` says which record
            they are of, or any table with the columns `topic`, `partition` and `offset`, such as rejects and
            what waits.  A record that became several changes has that fate once.

    Returns:
        One row per place of a topic: `topic`, `partition`, `offset`, `came`, how many records came from
        there, and `fates`, the names of its fates in their order.

    Raises:
        InvalidArgument: No fate is given.
        MissingColumns: A table says of no place.

    Cost: one shuffle of the places.

    >>> came = changes.select("arrival.topic", "arrival.partition", "arrival.offset").distinct()
    >>> record_fates(came, changed=changes.where("message_id != 'm3'")).orderBy("offset").show()
    +-----+---------+------+----+---------+
    |topic|partition|offset|came|    fates|
    +-----+---------+------+----+---------+
    | shop|        0|     1|   1|[changed]|
    | shop|        0|     2|   1|[changed]|
    | shop|        0|     3|   1|       []|
    +-----+---------+------+----+---------+
    <BLANKLINE>
    """
    if not fates:
        example = "record_fates(records, changed=changes, rejected=rejects, waiting=waiting)"
        raise InvalidArgument(_FUNCTION, "fates", "one table or more", {}, example)
    places = [_places(records).select("*", F.lit(None).cast("string").alias("fate"))]
    places += [_places(table).select("*", F.lit(name).alias("fate")) for name, table in fates.items()]
    return (
        reduce(DataFrame.union, places)
        .groupBy(*PLACE)
        .agg(
            F.count_if(F.col("fate").isNull()).alias("came"),
            F.array_sort(F.collect_set("fate")).alias("fates"),
        )
    )


def _places(table: DataFrame) -> DataFrame:
    if "arrival" in table.columns:
        return table.select(*(F.col(f"arrival.{name}").alias(name) for name in PLACE))
    require_columns(table, PLACE, function=_FUNCTION)
    return table.select(*PLACE)
