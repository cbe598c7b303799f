"""Episodes: the longest periods in which something held; and transitions, from which value to which."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.model.forms import history_with
from cdckit.model.history import (
    DELETED,
    SOURCE_MESSAGE,
    VALID_FROM,
    VALID_TO,
    business_fields,
    is_deleted,
    version_operation,
)
from cdckit.parts.argument_forms import DURATION, instance_of, takes
from cdckit.parts.arguments import listed, quoted, require_fields, require_name, wrong_type
from cdckit.parts.values import comparable
from cdckit.query.differences import PRESENCE, is_there, same_value, value_of, version_steps
from cdckit.query.intervals import fold_periods, is_ever_in_force
from cdckit.query.measures import VERSIONS, require_groups

_LONGEST = 2**63 - 1
"""The longest time that Spark has, in microseconds."""


@takes(
    history=history_with("guid", VALID_FROM, VALID_TO, DELETED, SOURCE_MESSAGE),
    condition=instance_of(Column, "a column, such as F.expr('gate = 1')"),
    bridge=DURATION,
)
def episodes(
    history: DataFrame, condition: Column, *, keep: str | Sequence[str] = (), bridge: timedelta = timedelta(0)
) -> DataFrame:
    """
    The longest periods in which a condition held for an entity, however many versions they took.

    "How long was each flight delayed, and how often?"  The gaps between them are the episodes of the
    opposite condition.

    Args:
        history: One row per version; intervals of one entity must not overlap, which is not checked
            here (see `find_overlaps`).
        condition: A boolean column over the fields of a version.  Null means that it did not hold, as
            in `where`; while an entity is deleted, no condition holds.
        keep: Business fields that say which entity it is: each episode has them as its first version
            has them.
        bridge: Episodes with no more than this between them are one; by default only those that meet.  A
            day is 24 hours.

    Returns:
        One row per episode: `guid`, *keep*, `valid_from_timestamp`, `valid_to_timestamp` (exclusive; null
        while it goes on), `versions` (bigint), how many versions of the condition it took, and
        `source_message`, that of the first of them.

    Raises:
        WrongColumnType: *condition* is no boolean column over a version.
        InvalidArgument: *keep* names something that is no business field, or one twice.

    Cost: one shuffle by guid and one sort of the versions for which the condition holds.

    Source:
        The gaps and islands of SQL; SQL:2011 calls periods that meet "immediately succeeding".

    >>> named = episodes(history, F.col("name").isNotNull(), keep="number")
    >>> named.drop("guid").orderBy("number").show()
    +------+--------------------+-------------------+--------+--------------+
    |number|valid_from_timestamp| valid_to_timestamp|versions|source_message|
    +------+--------------------+-------------------+--------+--------------+
    |     1| 2024-01-01 09:00:00|               NULL|       2|            m1|
    |     2| 2024-01-01 09:00:00|2024-01-01 11:00:00|       1|            m1|
    +------+--------------------+-------------------+--------+--------------+
    <BLANKLINE>
    """
    kept = listed(keep)
    if kept:
        free = [name for name in business_fields(history).fieldNames() if name.lower() != "versions"]
        require_fields(kept, free, "keep")
    kind = history.select(condition.alias("held")).schema["held"].dataType
    if not isinstance(kind, T.BooleanType):
        raise wrong_type("condition", "boolean", kind.simpleString())
    in_time = Window.partitionBy("guid").orderBy(VALID_FROM)
    # In microseconds: a day that is added to a timestamp has 23 hours once a year, by the session's zone.
    gap = F.unix_micros(F.lead(VALID_FROM).over(in_time)) - F.unix_micros(VALID_TO)
    is_bridged = gap <= F.lit(min(bridge // timedelta(microseconds=1), _LONGEST)).cast("bigint")
    periods = history.where(condition & ~is_deleted() & is_ever_in_force()).select(
        "guid",
        VALID_FROM,
        F.when(is_bridged, F.lead(VALID_FROM).over(in_time)).otherwise(F.col(VALID_TO)).alias(VALID_TO),
        F.row_number().over(in_time).alias("number"),
        F.count(F.lit(1)).over(Window.partitionBy("guid")).alias("last"),
        F.struct(*(F.col(quoted(name)) for name in kept), SOURCE_MESSAGE).alias("first"),
    )
    next_number = F.coalesce(F.lead("number").over(in_time), F.col("last") + 1)
    return fold_periods(periods, ["guid"], F.lit(True)).select(
        "guid",
        *(F.col("first").getField(name).alias(name) for name in kept),
        VALID_FROM,
        VALID_TO,
        (next_number - F.col("number")).alias("versions"),
        F.col("first").getField(SOURCE_MESSAGE).alias(SOURCE_MESSAGE),
    )


@takes(history=VERSIONS)
def transitions(
    history: DataFrame, field: str, start: datetime, end: datetime | None, *, by: str | Sequence[str] = ()
) -> DataFrame:
    """
    Count from which value a field went to which, and how often, in a period.

    The period is half-open: a version that begins at *start* is a change in it, one that begins at *end*
    is not.

    Args:
        history: One row per version, all versions of each entity; intervals of one entity must not
            overlap, which is not checked here (see `find_overlaps`).
        field: A business field.
        start: Where the period begins: an aware datetime in any zone.
        end: Where it ends, later than *start*; None for a period without an end.
        by: The groups: business fields or `guid`, as the version that begins says; for a deleted one, as
            the one before it said.

    Returns:
        One row per group, operation and pair of values: *by*; `operation`, "insert", "update", "delete" or
        "recreate", as in `with_operation`; `from_value` and `to_value` in the field's own type, null also
        for the side of an insert, a delete or a recreate where there is no entity; and `transitions`
        (bigint).  An update that leaves the field as it was is none, in the sense of the one equality of
        values (`cdckit.parts.values`), nor is a delete of what was not there.  After a gap in the history
        (see `find_gaps`) the entity is inserted anew.

    Raises:
        InvalidArgument: *start* or *end* is a naive datetime, or *end* is not after *start*; *field* or *by*
            names something that is not there, or a column that the result has.

    Cost: one shuffle by guid and one sort of all versions, and a small aggregation.

    >>> from datetime import datetime, timezone
    >>> nine = datetime(2024, 1, 1, 9, tzinfo=timezone.utc)
    >>> transitions(history, "name", nine, None).orderBy("operation", "to_value").show()
    +---------+----------+--------+-----------+
    |operation|from_value|to_value|transitions|
    +---------+----------+--------+-----------+
    |   delete|       mug|    NULL|          1|
    |   insert|      NULL|  kettle|          1|
    |   insert|      NULL|     mug|          1|
    |   update|    kettle|  teapot|          1|
    +---------+----------+--------+-----------+
    <BLANKLINE>
    """
    groups = listed(by)
    new_columns = ["operation", "from_value", "to_value", "transitions"]
    require_name(field, "field")
    require_groups(history, groups, None, made=new_columns)
    require_fields([field], business_fields(history).fieldNames(), "field")
    columns = [name for name in dict.fromkeys((field, *groups)) if name != "guid"]
    kinds = {name: history.schema[name] for name in columns}
    narrow = history.select("guid", VALID_FROM, VALID_TO, DELETED, *map(quoted, columns))
    was, now = F.col("before"), F.col("version")
    operation = version_operation(value_of(was, PRESENCE), value_of(now, PRESENCE))
    changed = (
        F.when(operation == "update", ~same_value(was, now, kinds[field]))
        # What was not there cannot go.
        .when(operation == "delete", is_there(was))
        .otherwise(True)
    )
    of_group = F.when(is_there(now), now).otherwise(F.coalesce(was, now))

    def comparable_value(version: Column, name: str) -> Column:
        return comparable(value_of(version, kinds[name]), kinds[name].dataType)

    by_group = (F.col(name) if name == "guid" else comparable_value(of_group, name) for name in groups)
    # A deleted version keeps the fields of the key.
    values = (F.when(is_there(version), comparable_value(version, field)) for version in (was, now))
    named = zip((*groups, *new_columns[:-1]), (*by_group, operation, *values), strict=True)
    kept = version_steps(narrow, start, end).where(changed)
    counted = kept.groupBy(*(column.alias(name) for name, column in named))
    return counted.agg(F.count(F.lit(1)).alias("transitions"))
