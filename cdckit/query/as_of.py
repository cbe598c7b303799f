"""What was in force: at an instant, in a period, and the versions of an entity one after the other."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.model.forms import history_with
from cdckit.model.history import (
    DELETED,
    VALID_FROM,
    VALID_TO,
    business_fields,
    has_ends,
    is_deleted,
    version_operation,
)
from cdckit.parts.argument_forms import FLAG, takes
from cdckit.parts.arguments import require_instants, require_period
from cdckit.query.entity_keys import is_entity
from cdckit.query.intervals import is_in_force, is_period

_LOG = logging.getLogger(__name__)


@takes(history=history_with(VALID_FROM, VALID_TO, DELETED), deletes=FLAG)
def as_of(history: DataFrame, valid_at: datetime | Column, *, deletes: bool = False) -> DataFrame:
    """
    Keep the version of each entity that was in force at *valid_at*.

    An interval is closed at its start and open at its end: a version that ends at *valid_at* is already
    gone, one that starts at *valid_at* is in force.
    What it says of an instant behind a source's frontier (`cdckit.model.find_frontiers`) may still change.

    Args:
        history: One row per version; `valid_from_timestamp` (never null), `valid_to_timestamp`
            (null while the version is current), `deleted_indicator` (null deletes nothing).
        valid_at: The instant to read at: an aware datetime in any zone, or a column of instants.  Such a
            column is read from each version itself, and a deleted one has nulls in all fields but the
            keys: for instants that must not vanish with a delete there is `as_of_join`.
        deletes: Keep the entities that were deleted at *valid_at*, with nulls in all fields but the keys.

    Returns:
        The same columns; at most one row per entity.  An entity of which nothing was known at *valid_at*
        has none.

    Raises:
        InvalidArgument: *valid_at* is a naive datetime: no instant without its zone.
        WrongColumnType: *valid_at* is a column of something else than timestamps.

    Cost: one filter, no shuffle.

    Source:
        SQL:2011 period predicate CONTAINS on a half-open period; data hub, query object.

    >>> from datetime import datetime, timezone
    >>> at = datetime(2024, 1, 1, 11, 0, tzinfo=timezone.utc)
    >>> as_of(history, at).select("number", "name", "source_message").show()
    +------+------+--------------+
    |number|  name|source_message|
    +------+------+--------------+
    |     1|teapot|            m2|
    +------+------+--------------+
    <BLANKLINE>
    """
    versions = history.where(is_in_force(require_instants(history, valid_at, "valid_at")))
    return versions if deletes else versions.where(~is_deleted())


@takes(history=history_with(VALID_TO, DELETED), deletes=FLAG)
def current(history: DataFrame, *, deletes: bool = False) -> DataFrame:
    """
    Keep the version of each entity that has no end: what holds until something else is said.

    No clock is asked.  So a version that begins in the future counts, and one with a known end, such as an
    offer until Friday, does not, though it is in force today: of changes that may end (`effective_until`) ask
    `as_of(history, datetime.now(UTC))`.  That is logged once as a warning where `merge` or a ledger made the
    history of such changes.

    Args:
        history: One row per version; `valid_to_timestamp` is null while the version is current (or what
            `scd_type_2` was told to write for it).
        deletes: Keep the entities that are deleted now, with nulls in all fields but the keys.

    Returns:
        The same columns; at most one row per entity.

    Cost: one filter, no shuffle.

    >>> current(history).select("number", "name").show()
    +------+------+
    |number|  name|
    +------+------+
    |     1|teapot|
    +------+------+
    <BLANKLINE>
    """
    if has_ends(history):
        _warn_of_ends()
    versions = history.where(F.col(VALID_TO).isNull())
    return versions if deletes else versions.where(~is_deleted())


@cache
def _warn_of_ends() -> None:
    _LOG.warning("current() leaves out what has a known end, also while it is in force: as_of(…) has it")


@takes(history=history_with(VALID_FROM, VALID_TO, DELETED), deletes=FLAG)
def between(history: DataFrame, start: datetime, end: datetime | None, *, deletes: bool = False) -> DataFrame:
    """
    Keep the versions that were in force at some time of a period, cut to it.

    The period is half-open like the intervals: a version that ends at *start* or begins at *end* is
    outside.

    Args:
        history: One row per version; `valid_from_timestamp` (never null), `valid_to_timestamp`
            (null while the version is current), `deleted_indicator` (null deletes nothing).
        start: Where the period begins: an aware datetime in any zone.
        end: Where it ends, later than *start*; None for a period without an end.
        deletes: Keep the versions of deleted entities, with nulls in all fields but the keys.

    Returns:
        The same columns.  `valid_from_timestamp` is *start* for versions that began earlier (their
        messages stay the ones that began them), `valid_to_timestamp` is *end* for versions that
        ended later or are current; with an open end it stays null.

    Raises:
        InvalidArgument: *start* or *end* is a naive datetime, or *end* is not after *start*.

    Cost: one filter, no shuffle.

    Source:
        SQL:2011, FOR VALID_TIME FROM ... TO ..., which does not cut.

    >>> from datetime import datetime, timezone
    >>> start = datetime(2024, 1, 1, 9, 30, tzinfo=timezone.utc)
    >>> end = datetime(2024, 1, 1, 10, 30, tzinfo=timezone.utc)
    >>> between(history, start, end).orderBy("number", "valid_from_timestamp").select(
    ...     "number", "name", "valid_from_timestamp", "valid_to_timestamp"
    ... ).show()
    +------+------+--------------------+-------------------+
    |number|  name|valid_from_timestamp| valid_to_timestamp|
    +------+------+--------------------+-------------------+
    |     1|kettle| 2024-01-01 09:30:00|2024-01-01 10:00:00|
    |     1|teapot| 2024-01-01 10:00:00|2024-01-01 10:30:00|
    |     2|   mug| 2024-01-01 09:30:00|2024-01-01 10:30:00|
    +------+------+--------------------+-------------------+
    <BLANKLINE>
    """
    versions = versions_within(history, start, end)
    return versions if deletes else versions.where(~is_deleted())


def versions_within(history: DataFrame, start: datetime, end: datetime | None) -> DataFrame:
    """The versions that were in force at some time of a period, cut to it, deleted ones too."""
    first, last = require_period(start, end)
    begins, ends = F.col(VALID_FROM), F.col(VALID_TO)
    begun = F.lit(True) if end is None else begins < last
    not_ended = ends.isNull() | (ends > first)
    # Spark's greatest and least pass over nulls: an open end is later than any other.
    clipped = {VALID_FROM: F.greatest(begins, first), VALID_TO: F.least(ends, last)}
    return history.where(begun & not_ended & is_period(begins, ends)).withColumns(clipped)


@takes(history=history_with("guid", VALID_FROM, VALID_TO, DELETED, free=["operation"]))
def with_operation(history: DataFrame) -> DataFrame:
    """
    Say of each version what happened to the entity when it began.

    Args:
        history: One row per version, all versions of each entity: of one that was left out, the next
            version cannot know.  Intervals must not overlap, which is not checked here.

    Returns:
        The same rows and columns, and `operation`: "delete" for every deleted version (so also where a
        stronger delete follows a delete), "insert" for the first version of an entity and for the one after
        a gap, in which the history knew nothing of it (see `find_gaps`), "recreate" for a version that is
        alive after a deleted one, else "update".

    Cost: one shuffle by guid and one sort.

    >>> with_operation(history).orderBy("number", "valid_from_timestamp").select(
    ...     "number", "name", "operation"
    ... ).show()
    +------+------+---------+
    |number|  name|operation|
    +------+------+---------+
    |     1|kettle|   insert|
    |     1|teapot|   update|
    |     2|   mug|   insert|
    |     2|  NULL|   delete|
    +------+------+---------+
    <BLANKLINE>
    """
    in_time = Window.partitionBy("guid").orderBy(VALID_FROM)
    last_end = F.lag(VALID_TO).over(in_time)
    goes_on = last_end.isNull() | (last_end >= F.col(VALID_FROM))
    was_deleted = F.when(goes_on, F.lag(is_deleted()).over(in_time))
    return history.withColumn("operation", version_operation(was_deleted, is_deleted()))


@takes(history=history_with("guid", VALID_FROM, VALID_TO, DELETED, free=["operation"]))
def timeline(history: DataFrame, key: Mapping[str, Any]) -> DataFrame:
    """
    All versions of one entity, in their order.

    Args:
        history: One row per version, all versions of each entity.
        key: Value by business field or `guid`, null being a value like any other.  Key fields keep
            their values in deleted versions.  A part of the key, or a field that is no key, stands for every
            entity that had these values in one of its versions: a timeline is never cut to pieces.

    Returns:
        The same columns and `operation` (see `with_operation`); ordered by `guid` and
        `valid_from_timestamp`.  No row if there is no such entity.

    Raises:
        InvalidArgument: *key* is empty, no mapping, names a field that *history* does not have, or has
            a value of another type than its field (an aware datetime for a `timestamp`, a naive one for a
            `timestamp_ntz`).

    Cost: two filters over the history, the first of them over `guid` and the fields of *key* alone;
    only the versions that are found are shuffled and sorted.  Their guids are broadcast: it is meant
    for one entity or some thousands.

    >>> timeline(history, {"number": 2}).select(
    ...     "number", "name", "valid_from_timestamp", "operation", "source_message"
    ... ).show()
    +------+----+--------------------+---------+--------------+
    |number|name|valid_from_timestamp|operation|source_message|
    +------+----+--------------------+---------+--------------+
    |     2| mug| 2024-01-01 09:00:00|   insert|            m1|
    |     2|NULL| 2024-01-01 11:00:00|   delete|            m3|
    +------+----+--------------------+---------+--------------+
    <BLANKLINE>
    """
    fields = T.StructType([history.schema["guid"], *business_fields(history)])
    is_wanted = is_entity(key, fields)
    # Without the hint Spark would shuffle all of the history: it cannot know how few entities these are.
    guids = F.broadcast(history.where(is_wanted).select("guid").distinct())
    versions = history.join(guids, on="guid", how="left_semi")
    return with_operation(versions).orderBy("guid", VALID_FROM)
