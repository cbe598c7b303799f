"""Single messages that contradict themselves, and records of which nothing became."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.changes import ORDER, UPSERT
from cdckit.errors import InvalidArgument
from cdckit.history import STANDARD_COLUMNS
from cdckit.merging import checked_fields
from cdckit.parts.arguments import require_columns, require_struct
from cdckit.parts.values import comparable

_FIND_CONTRADICTIONS = "find_contradictions"
_COUNTS = "counts"
_DIFFERS = "counts_differ"


def find_contradictions(changes: DataFrame, *, keys: Sequence[str]) -> DataFrame:
    """
    The changes that claim to be one and the same, and differ.

    A change is known by its source, message and record number: when it comes twice for one entity it was
    delivered again, and `merge` passes over the second.  That is right only if both say the same.  Where
    they do not, a source uses one id twice, or sent a correction under the old id; then what was passed
    over is listed here.

    Args:
        changes: One row per change.
        keys: As for `merge`.  Where *changes* have the column `guid`, that is the entity instead.

    Returns:
        All rows of every (entity, `source`, `message_id`, `arrival.record_number`) of which two differ
        in what they say: `operation`, `effective_timestamp`, `sequence`, `priority`; of upserts which
        fields they carried, with which values and priorities; of deletes the priorities of all fields but
        the keys.  Equal ones among them, too; where and when they arrived is no difference.  The same
        columns, and `counts`: whether it is the one that `merge` takes, the first in the order of changes.
        Rows have no order.

    Raises:
        MissingColumns, WrongColumnType, InvalidArgument: As `merge`; or *changes* have a column `counts`
            or `counts_differ` already.

    Cost: one shuffle by identity and one sort.

    >>> told_again = changes.where("message_id = 'm2'").withColumns(
    ...     {
    ...         "data": F.col("data").withField("name", F.lit("samovar")),
    ...         "arrival": F.col("arrival").withField("offset", F.lit(99).cast("long")),
    ...     }
    ... )
    >>> found = find_contradictions(changes.union(told_again), keys=["number"])
    >>> found.select("source", "message_id", "data.name", "counts").orderBy("arrival.offset").show()
    +------+----------+-------+------+
    |source|message_id|   name|counts|
    +------+----------+-------+------+
    |  shop|        m2| teapot|  true|
    |  shop|        m2|samovar| false|
    +------+----------+-------+------+
    <BLANKLINE>
    """
    data = checked_fields(changes, keys, STANDARD_COLUMNS, _FIND_CONTRADICTIONS)
    taken = [name for name in changes.columns if name.lower() in (_COUNTS, _DIFFERS)]
    if taken:
        needed = f"free of columns {_COUNTS} and {_DIFFERS}: rename these first"
        raise InvalidArgument(_FIND_CONTRADICTIONS, "changes", needed, taken)
    entity = [F.col("guid")] if "guid" in changes.columns else [F.col("data").getField(key) for key in keys]
    one_change = Window.partitionBy(*entity, "source", "message_id", "arrival.record_number")
    in_order = one_change.orderBy(*ORDER)
    said = _said(changes, data, keys)
    differs = ~said.eqNullSafe(F.first(said).over(in_order))
    compared = changes.withColumns(
        {_COUNTS: F.row_number().over(in_order) == 1, _DIFFERS: differs}
    ).withColumn(_DIFFERS, F.max(_DIFFERS).over(one_change))
    return compared.where(F.col(_DIFFERS)).drop(_DIFFERS)


def _said(changes: DataFrame, data: T.StructType, keys: Sequence[str]) -> Column:
    """What a change says, in a form that Spark can compare; a delete gives fields a priority, no value."""
    is_upsert = F.col("operation") == UPSERT
    stated: list[str] = []
    if "field_priorities" in changes.columns:
        stated = require_struct(changes, "field_priorities", function=_FIND_CONTRADICTIONS).fieldNames()
    fields = []
    for place, field in enumerate(data):
        priority = F.col("priority")
        if field.name in stated:
            priority = F.coalesce(F.col("field_priorities").getField(field.name), priority)
        value = comparable(F.col("data").getField(field.name), field.dataType)
        speaks = F.when(is_upsert, F.col("carried").getField(field.name)).otherwise(field.name not in keys)
        word = F.struct(F.when(is_upsert, value).alias("value"), priority.alias("priority"))
        fields.append(F.when(speaks, word).alias(f"field_{place}"))
    return F.struct(
        *(F.col(name) for name in ("operation", "effective_timestamp", "sequence", "priority")),
        *fields,
    )


PLACE = ("topic", "partition", "offset")
"""Where a record lies."""

_RECORD_FATES = "record_fates"


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
        raise InvalidArgument(_RECORD_FATES, "fates", "one table or more", {}, example)
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
    require_columns(table, PLACE, function=_RECORD_FATES)
    return table.select(*PLACE)
