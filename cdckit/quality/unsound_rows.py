"""Rows that are not sound, found: periods that do not follow one another, contradictions, lost records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.merging.merge import check_fields
from cdckit.model.changes import ORDER, UNTIL, UPSERT, field_priority
from cdckit.model.forms import history_with
from cdckit.model.history import (
    DELETED,
    FIELD_PROVENANCE,
    HISTORY_SCHEMA,
    SOURCE_MESSAGE,
    STANDARD_COLUMNS,
    VALID_FROM,
    VALID_TO,
    business_fields,
    is_deleted,
)
from cdckit.model.rejected_records import usable_changes
from cdckit.parts.argument_forms import takes
from cdckit.parts.arguments import (
    both_sides,
    quoted,
    require_alike,
    require_columns,
    require_fields,
    require_struct,
    wrong_argument,
)
from cdckit.parts.values import comparable
from cdckit.query.intervals import find_overlapping, fold_periods, is_period, key_column, period_rows

_EARLIEST = "-9999-01-01"
"""Before all that a history can say."""


@takes(history=history_with(*HISTORY_SCHEMA.fieldNames()))
def coalesce_versions(history: DataFrame, on: Iterable[str] | None = None) -> DataFrame:
    """
    Fold neighbouring versions of an entity that say the same into one.

    Two versions are neighbours if one begins at the instant at which the other ends.  They say the same
    if `deleted_indicator` and the fields *on* are equal (`cdckit.parts.values`: null equals null).

    Args:
        history: One row per version; intervals of one entity must not overlap, which is not checked
            here (see `find_overlaps`).  `field_provenance` may be missing.
        on: The business fields that count.  Without it: all, so that only versions which differ in
            provenance alone are folded.

    Returns:
        One row per run of such versions: `guid`, `valid_from_timestamp` of its first,
        `valid_to_timestamp` of its last, `deleted_indicator`, the fields *on*, and from the first
        version `source_message` and `field_provenance` (where *history* has it; of the row and of
        the fields *on* alone).  Who confirmed a value later, or with a higher priority, is gone.

    Raises:
        InvalidArgument: *on* is empty, or names a field twice or one that *history* does not have.

    Cost: one shuffle by guid and one sort.

    Source:
        Böhlen, Snodgrass, Soo, "Coalescing in Temporal Databases", VLDB 1996.

    >>> coalesce_versions(history, on=["number"]).orderBy("number", "valid_from_timestamp").select(
    ...     "number", "valid_from_timestamp", "valid_to_timestamp", "deleted_indicator"
    ... ).show()
    +------+--------------------+-------------------+-----------------+
    |number|valid_from_timestamp| valid_to_timestamp|deleted_indicator|
    +------+--------------------+-------------------+-----------------+
    |     1| 2024-01-01 09:00:00|               NULL|            false|
    |     2| 2024-01-01 09:00:00|2024-01-01 11:00:00|            false|
    |     2| 2024-01-01 11:00:00|               NULL|             true|
    +------+--------------------+-------------------+-----------------+
    <BLANKLINE>
    """
    fields = business_fields(history)
    every_name = fields.fieldNames()
    names = every_name if on is None else require_fields(on, every_name, "on")
    content = F.struct(is_deleted(), *(comparable(F.col(quoted(n)), fields[n].dataType) for n in names))
    return fold_periods(history.select(*_folded_columns(history, names)), ["guid"], content)


@takes(history=history_with("guid", VALID_FROM, VALID_TO, free=["overlapped_until_timestamp"]))
def find_overlaps(history: DataFrame) -> DataFrame:
    """
    The versions that begin before an earlier version of the same entity has ended.

    Args:
        history: One row per version.  Versions that are in force at no time overlap nothing.

    Returns:
        The offending rows, each the later one of those that overlap: the same columns and
        `overlapped_until_timestamp`, the end of the earlier version that ends last, null if that one is
        still current.  Of versions that begin together, the one that ends first counts as earlier.
        None for a history that `merge` gives.

    Cost: one shuffle by guid and one sort.

    >>> late = history.where("number = 1 and name = 'teapot'").withColumn(
    ...     "valid_from_timestamp", F.expr("valid_from_timestamp - interval 1 minute")
    ... )
    >>> find_overlaps(history.where("name = 'kettle'").union(late)).select(
    ...     "name", "valid_from_timestamp", "overlapped_until_timestamp"
    ... ).show()
    +------+--------------------+--------------------------+
    |  name|valid_from_timestamp|overlapped_until_timestamp|
    +------+--------------------+--------------------------+
    |teapot| 2024-01-01 09:59:00|       2024-01-01 10:00:00|
    +------+--------------------+--------------------------+
    <BLANKLINE>
    """
    column = "overlapped_until_timestamp"
    versions = _with_last_end_before(history, column)
    last = F.col(column)
    before_its_end = last.getField("open") | (F.col(VALID_FROM) < last.getField("end"))
    return versions.where(before_its_end).withColumn(column, last.getField("end"))


@takes(history=history_with("guid", VALID_FROM, VALID_TO, free=["gap_from_timestamp"]))
def find_gaps(history: DataFrame) -> DataFrame:
    """
    The versions that begin after all earlier versions of the same entity have ended.

    Args:
        history: One row per version.  Versions that are in force at no time fill no gap.

    Returns:
        The offending rows, each the one after a gap: the same columns and `gap_from_timestamp`, the
        instant from which nothing was known of the entity.  None for a history that `merge` gives: it
        has a version for the time in which an entity is deleted.

    Cost: one shuffle by guid and one sort.

    >>> late = history.where("number = 1 and name = 'teapot'").withColumn(
    ...     "valid_from_timestamp", F.expr("valid_from_timestamp + interval 1 minute")
    ... )
    >>> find_gaps(history.where("name = 'kettle'").union(late)).select(
    ...     "name", "gap_from_timestamp", "valid_from_timestamp"
    ... ).show()
    +------+-------------------+--------------------+
    |  name| gap_from_timestamp|valid_from_timestamp|
    +------+-------------------+--------------------+
    |teapot|2024-01-01 10:00:00| 2024-01-01 10:01:00|
    +------+-------------------+--------------------+
    <BLANKLINE>
    """
    column = "gap_from_timestamp"
    versions = _with_last_end_before(history, column)
    last = F.col(column)
    after_its_end = ~last.getField("open") & (F.col(VALID_FROM) > last.getField("end"))
    return versions.where(after_its_end).withColumn(column, last.getField("end"))


UNCOVERED = ("uncovered_from_timestamp", "uncovered_to_timestamp")


@takes(
    history=history_with(VALID_FROM, VALID_TO, DELETED, free=UNCOVERED),
    parent=history_with(VALID_FROM, VALID_TO, DELETED),
)
def find_uncovered(
    history: DataFrame, parent: DataFrame, on: str | Iterable[str] | Mapping[str, str]
) -> DataFrame:
    """
    The stretches of versions for which the row that they refer to was not there.

    Each flight names its plane, and that plane must exist for the whole of the flight: what SQL calls a
    temporal foreign key.

    Args:
        history: One row per version of the entities that refer to others.  A deleted version refers to
            nothing, nor does one with a null in *on*.
        parent: One row per version of the entities that are referred to; a deleted one covers nothing.
            Several that overlap, or follow one another, cover together.
        on: The fields that refer: a field, a list of fields (the same in both histories), or a mapping of
            the field of *history* to that of *parent*.

    Returns:
        One row per version and stretch that nothing covers: the columns of *history*, and
        `uncovered_from_timestamp` and `uncovered_to_timestamp` (exclusive; null if the version is current,
        and nothing covers it from there on).

    Raises:
        WrongColumnType: A field that refers has not the type of the one that it refers to.
        InvalidArgument: *on* names no field, one twice or one that is not there.

    Cost: one shuffle of *parent* by the fields that are referred to, and a sort; then a join of the stretches
        in which no parent is there, as `join_periods` makes it.

    Source:
        SQL:2011, `FOREIGN KEY (…, PERIOD …) REFERENCES …`; PostgreSQL 18 has it.

    >>> def hours(rows, names):
    ...     frame = session().createDataFrame(rows, names + ", begins int, ends int")
    ...     instants = [F.timestamp_seconds(3600 * F.col(name)) for name in ("begins", "ends")]
    ...     return frame.withColumns(
    ...         {"valid_from_timestamp": instants[0], "valid_to_timestamp": instants[1],
    ...          "deleted_indicator": F.lit(False)}
    ...     ).drop("begins", "ends")
    >>> flights = hours([("AA1", "N1", 9, 14), ("AA2", "N2", 9, 11)], "flight string, plane string")
    >>> planes = hours([("N1", 0, 10), ("N1", 12, None)], "plane string")
    >>> found = find_uncovered(flights, planes, "plane").orderBy("flight")
    >>> clock = (F.date_format(f"uncovered_{end}_timestamp", "HH:mm").alias(end) for end in ("from", "to"))
    >>> found.select("flight", "plane", *clock).show()
    +------+-----+-----+-----+
    |flight|plane| from|   to|
    +------+-----+-----+-----+
    |   AA1|   N1|10:00|12:00|
    |   AA2|   N2|09:00|11:00|
    +------+-----+-----+-----+
    <BLANKLINE>
    """
    begin, end = UNCOVERED
    fields, referred = both_sides(on)
    children = _existing_periods(history, fields)
    parents = _existing_periods(parent, referred)
    for field, same in zip(fields, referred, strict=True):
        require_alike(parent, same, history, field, "of the history")
    keys = [key_column(place) for place in range(len(fields))]
    orphans = children.join(parents.select(*keys).distinct(), keys, "left_anti")
    uncovered = find_overlapping(children, _absences(parents, keys), keys).select(
        "a.row",
        F.greatest("a.begins", "b.begins").alias(begin),
        # An open end is null, and `least` passes over nulls.
        F.least("a.ends", "b.ends").alias(end),
    )
    return uncovered.union(orphans.select("row", "begins", "ends")).select("row.*", begin, end)


def _existing_periods(history: DataFrame, on: Iterable[str]) -> DataFrame:
    """
    The versions that are there and refer, or can be referred to, by *on*, as `find_overlapping` takes them.
    """
    fields = require_fields(on, history.columns, "on")
    refers = reduce(and_, (F.col(quoted(name)).isNotNull() for name in fields))
    return period_rows(history.where(~is_deleted() & refers), fields, (VALID_FROM, VALID_TO))


def _absences(periods: DataFrame, keys: Iterable[str]) -> DataFrame:
    """Find of each key with periods the stretches before, between and after them."""
    begins, ends = F.col("begins"), F.col("ends")
    in_time = Window.partitionBy(*keys).orderBy(begins, ends.asc_nulls_last())
    until = _last_end(ends).over(in_time.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    followed = periods.select(
        *keys,
        begins,
        until.alias("until"),
        F.lead("begins").over(in_time).alias("next"),
        F.row_number().over(in_time).alias("number"),
    )
    after = F.struct(F.col("until.end").alias("begins"), F.col("next").alias("ends"))
    before = F.struct(F.lit(_EARLIEST).cast("timestamp_ltz").alias("begins"), begins.alias("ends"))
    absences = F.array(F.when(~F.col("until.open"), after), F.when(F.col("number") == 1, before))
    stretches = followed.select(*keys, F.inline(absences)).where(is_period(begins, ends))
    return stretches.withColumn("row", F.lit(None).cast("int"))


def _folded_columns(history: DataFrame, names: Iterable[str]) -> list[Column]:
    columns = ["guid", VALID_FROM, VALID_TO, DELETED, *names, SOURCE_MESSAGE]
    chosen = [F.col(quoted(column)) for column in columns]
    if FIELD_PROVENANCE in history.columns:
        entries = require_struct(history, FIELD_PROVENANCE).fieldNames()
        kept = [F.col(FIELD_PROVENANCE).getField(n).alias(n) for n in ("guid", *names) if n in entries]
        chosen.append(F.struct(*kept).alias(FIELD_PROVENANCE))
    return chosen


def _with_last_end_before(history: DataFrame, column: str) -> DataFrame:
    """The versions in force at some time; *column* is the greatest end before each, null at the first."""
    begins, ends = F.col(VALID_FROM), F.col(VALID_TO)
    in_time = Window.partitionBy("guid").orderBy(begins, ends.asc_nulls_last())
    earlier = in_time.rowsBetween(Window.unboundedPreceding, -1)
    return history.where(is_period(begins, ends)).withColumn(column, _last_end(ends).over(earlier))


def _last_end(ends: Column) -> Column:
    """The greatest of the ends: structs compare field by field, so an open end is greater than any other."""
    return F.max(F.struct(ends.isNull().alias("open"), ends.alias("end")))


_COUNTS = "counts"
_DIFFERS = "counts_differ"


@takes()
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
        in what they say: `operation`, `effective_timestamp`, `effective_until` (where there is one),
        `sequence`, `priority`; of upserts which fields they carried, with which values and priorities; of
        deletes the priorities of all fields but the keys.  Equal ones among them, too; where and when they
        arrived is no difference.  The same columns, and `counts`: whether it is the one that `merge` takes,
        the first in the order of changes.  Rows have no order.

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
    data = check_fields(changes, keys, STANDARD_COLUMNS)
    changes = usable_changes(changes)
    taken = [name for name in changes.columns if name.lower() in (_COUNTS, _DIFFERS)]
    if taken:
        needed = f"free of columns {_COUNTS} and {_DIFFERS}: rename these first"
        raise wrong_argument("changes", needed, taken)
    entity = [F.col("guid")] if "guid" in changes.columns else [F.col("data").getField(key) for key in keys]
    one_change = Window.partitionBy(*entity, "source", "message_id", "arrival.record_number")
    in_order = one_change.orderBy(*ORDER)
    statements = _statements(changes, data, keys)
    differs = ~statements.eqNullSafe(F.first(statements).over(in_order))
    compared = changes.withColumns(
        {_COUNTS: F.row_number().over(in_order) == 1, _DIFFERS: differs}
    ).withColumn(_DIFFERS, F.max(_DIFFERS).over(one_change))
    return compared.where(F.col(_DIFFERS)).drop(_DIFFERS)


def _statements(changes: DataFrame, data: T.StructType, keys: Sequence[str]) -> Column:
    """Write what a change says so that Spark can compare it; a delete gives fields a priority, no value."""
    is_upsert = F.col("operation") == UPSERT
    fields = []
    for place, field in enumerate(data):
        priority = F.coalesce(field_priority(changes, field.name), "priority")
        value = comparable(F.col("data").getField(field.name), field.dataType)
        speaks = F.when(is_upsert, F.col("carried").getField(field.name)).otherwise(field.name not in keys)
        word = F.struct(F.when(is_upsert, value).alias("value"), priority.alias("priority"))
        fields.append(F.when(speaks, word).alias(f"field_{place}"))
    plain = ["operation", "effective_timestamp", UNTIL, "sequence", "priority"]
    return F.struct(*(F.col(name) for name in plain if name in changes.columns), *fields)


PLACE = ("topic", "partition", "offset")
"""Where a record lies."""


@takes()
def record_outcomes(records: DataFrame, **outcomes: DataFrame) -> DataFrame:
    """
    Tell what became of each record: the tables in which it is found again.

    The suite `outcomes` says what is to hold of them: each record lies at a place of its own and has one, and
    what has one is a record.

    Args:
        records: What came: one row per record.
        outcomes: By what each outcome is called, a table of what had it: changes, whose `arrival` says which
            record they are of, or any table with the columns `topic`, `partition` and `offset`, such as
            rejects and what waits.  A record that became several changes has that outcome once.

    Returns:
        One row per place of a topic: `topic`, `partition`, `offset`, `came`, how many records came from
        there, and `outcomes`, the names of its outcomes in their order.

    Raises:
        InvalidArgument: No outcome is given.
        MissingColumns: A table says of no place.

    Cost: one shuffle of the places.

    >>> came = changes.select("arrival.topic", "arrival.partition", "arrival.offset").distinct()
    >>> record_outcomes(came, changed=changes.where("message_id != 'm3'")).orderBy("offset").show()
    +-----+---------+------+----+---------+
    |topic|partition|offset|came| outcomes|
    +-----+---------+------+----+---------+
    | shop|        0|     1|   1|[changed]|
    | shop|        0|     2|   1|[changed]|
    | shop|        0|     3|   1|       []|
    +-----+---------+------+----+---------+
    <BLANKLINE>
    """
    if not outcomes:
        example = "record_outcomes(records, changed=changes, rejected=rejects, waiting=waiting)"
        raise wrong_argument("outcomes", "one table or more", {}, example)
    places = [_places(records).select("*", F.lit(None).cast("string").alias("outcome"))]
    places += [_places(table).select("*", F.lit(name).alias("outcome")) for name, table in outcomes.items()]
    came = F.count_if(F.col("outcome").isNull()).alias("came")
    found = F.array_sort(F.collect_set("outcome")).alias("outcomes")
    return reduce(DataFrame.union, places).groupBy(*PLACE).agg(came, found)


def _places(table: DataFrame) -> DataFrame:
    if "arrival" in table.columns:
        return usable_changes(table).select(*(F.col(f"arrival.{name}").alias(name) for name in PLACE))
    require_columns(table, PLACE)
    return table.select(*PLACE)
