"""What was believed, and when: histories with a second interval, that of knowledge."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime
from functools import partial

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.merging.arrow_changes import ARRIVED
from cdckit.merging.beliefs import beliefs
from cdckit.merging.merge import history_schema, merge_changes, sort_by_entity, with_guids
from cdckit.model.changes import IS_EFFECTIVE, UNTIL, has_mark
from cdckit.model.forms import CHANGES, beliefs_with
from cdckit.model.history import SYSTEM_FROM, SYSTEM_INTERVAL, SYSTEM_TO, business_fields, with_ends
from cdckit.parts.argument_forms import NAME, takes
from cdckit.parts.arguments import require_instant, require_instants
from cdckit.parts.arrow_types import arrow_schema
from cdckit.parts.public_calls import called_function
from cdckit.parts.workers import WorkerPlan
from cdckit.query.intervals import is_in_force

_LOG = logging.getLogger(__name__)


@takes(changes=CHANGES, entity=NAME)
def as_known(changes: DataFrame, known_at: datetime, *, entity: str, keys: Sequence[str]) -> DataFrame:
    """
    The history as it was believed at a moment: what the messages that had arrived by then say.

    Args:
        changes: One row per change.  What counts as the moment at which a change became known is
            `arrival.timestamp`, the time of the message; of a redelivered one the first.
        known_at: The moment of knowledge, aware.  A message that arrives at *known_at* is known; one without
            a time of arrival never is.
        entity: As for `merge`.
        keys: As for `merge`.

    Returns:
        A history, as `merge` returns it.

    Raises:
        MissingColumns, WrongColumnType, InvalidArgument: As `merge`; and if *known_at* is naive.

    Cost: one merge of the changes that were known.

    Source:
        SQL:2011, system-versioned tables, `FOR SYSTEM_TIME AS OF`.

    >>> from datetime import datetime, timezone
    >>> at = datetime(2024, 1, 1, 10, 30, tzinfo=timezone.utc)
    >>> believed = as_known(changes, at, entity="product", keys=["number"])
    >>> believed.orderBy("number", "valid_from_timestamp").select("number", "name").show()
    +------+------+
    |number|  name|
    +------+------+
    |     1|kettle|
    |     1|teapot|
    |     2|   mug|
    +------+------+
    <BLANKLINE>
    """
    tell_unsaid_arrival(changes)
    is_known = F.col("arrival.timestamp") <= require_instant(known_at, "known_at")
    return merge_changes(changes.where(is_known), entity=entity, keys=keys)


@takes(entity=NAME)
def bitemporal(changes: DataFrame, *, entity: str, keys: Sequence[str]) -> DataFrame:
    """
    Everything that was ever believed: each version with the interval in which it was.

    Two times meet in a row: from `valid_from_timestamp` to `valid_to_timestamp` the values held in
    the world, and from `system_from_timestamp` to `system_to_timestamp` the messages that had arrived
    said so.  "What did we believe on Tuesday about Monday" is `as_of(keep_known(table, tuesday), monday)`.

    Args:
        changes: One row per change; `arrival.timestamp` is when it became known.
        entity: As for `merge`.
        keys: As for `merge`.

    Returns:
        One row per version and longest interval in which it was believed as it is: the columns of a
        history and, after the valid interval, `system_from_timestamp` and `system_to_timestamp`
        (exclusive, null while it is still believed).  The rows that are believed at a moment are
        exactly those of `as_known` then.  (Where a message was redelivered with another instant,
        speaks of one entity in several records, or shares its id with one of another source, two rows
        that touch may say the same.)

    Raises:
        MissingColumns, WrongColumnType, InvalidArgument: As `merge`; a field must not have the name
            of a column of the system interval either.
        PythonException: When the result is computed, as `merge`; also for a change without
            `arrival.timestamp`.

    Of rows that moved to another key (`complete_moves`) it cannot tell what was believed where something of
    the old key arrived after the move and is true before it: then the computation ends with `LateMoves`.

    But changes that say `snapshot` have the times here that they have once all is known (see
    `cdckit.model.CHANGE_SCHEMA`), also in what was believed before.

    Cost: a merge, with about twice its rows.  A change is *late* if it arrives when an equal or later
    instant of its entity is known already, be it a beginning or an end, and so is each that has an end; every
    moment at which an entity hears late changes
    costs merging once more what is known of it by then.  An entity with thousands of changes, most of
    them late, is the one thing that is slow here: told from its newest change to its oldest, n changes
    are believed in about n²/2 rows.

    Source:
        SQL:2011, system-versioned application-time period tables.

    >>> late = changes.where("message_id = 'm2'").withColumns(
    ...     {
    ...         "message_id": F.lit("m9"),
    ...         "effective_timestamp": F.timestamp_seconds(F.lit(1_704_101_400)),  # 09:30
    ...         "arrival": F.col("arrival").withField("timestamp", F.timestamp_seconds(F.lit(1_704_110_400))),
    ...         "data": F.col("data").withField("name", F.lit("pot")),
    ...     }
    ... )
    >>> beliefs = bitemporal(changes.union(late), entity="product", keys=["number"]).where("number = 1")
    >>> def clock(column):
    ...     return F.date_format(column + "_timestamp", "HH:mm").alias(column)
    >>> intervals = [clock(name) for name in ("valid_from", "valid_to", "system_from", "system_to")]
    >>> beliefs.select("name", *intervals).orderBy("system_from", "valid_from").show()
    +------+----------+--------+-----------+---------+
    |  name|valid_from|valid_to|system_from|system_to|
    +------+----------+--------+-----------+---------+
    |kettle|     09:00|    NULL|      09:00|    10:00|
    |kettle|     09:00|   10:00|      10:00|    12:00|
    |teapot|     10:00|    NULL|      10:00|     NULL|
    |kettle|     09:00|   09:30|      12:00|     NULL|
    |   pot|     09:30|   10:00|      12:00|     NULL|
    +------+----------+--------+-----------+---------+
    <BLANKLINE>
    """
    ordered = sort_by_entity(
        changes,
        entity=entity,
        keys=keys,
        more={ARRIVED: F.col("arrival.timestamp")},
        reserved=SYSTEM_INTERVAL.fieldNames(),
    )
    tell_unsaid_arrival(changes)
    schema = history_schema(ordered.data, *SYSTEM_INTERVAL.fields)
    by = partial(beliefs, layout=ordered.layout, schema=arrow_schema(schema, large=True))
    table = with_guids(WorkerPlan(ordered.changes, by, schema, large=True).rows(), ordered.layout, entity)
    return with_ends(table) if UNTIL in changes.columns else table


def tell_unsaid_arrival(changes: DataFrame) -> None:
    """Log a warning where nothing says when a change came: a row that came late would be known too early."""
    if has_mark(changes.schema, "arrival", IS_EFFECTIVE):
        sentence = (
            "%s(): nothing says when some of these changes came, which count as known from when they are "
            "true; changes_from(…, effective=…, sequence_by=…) takes the time of arrival as sequence_by"
        )
        _LOG.warning(sentence, called_function())


@takes(table=beliefs_with())
def keep_known(table: DataFrame, known_at: datetime | Column) -> DataFrame:
    """
    Keep what was believed at a moment, of everything that `bitemporal` tells.

    Args:
        table: What `bitemporal` returned.
        known_at: The moment of knowledge: an aware datetime, or a column of instants.  An interval is
            closed at its start and open at its end.

    Returns:
        A history: the same columns but for the system interval, which has been asked for.

    Raises:
        InvalidArgument: *known_at* is naive.
        WrongColumnType: *known_at* is a column of something else than timestamps.

    Cost: one filter, no shuffle.

    >>> from datetime import datetime, timezone
    >>> at = datetime(2024, 1, 1, 9, 30, tzinfo=timezone.utc)
    >>> known = keep_known(bitemporal(changes, entity="product", keys=["number"]), at)
    >>> known.orderBy("number").select("number", "name", "valid_to_timestamp").show()
    +------+------+------------------+
    |number|  name|valid_to_timestamp|
    +------+------+------------------+
    |     1|kettle|              NULL|
    |     2|   mug|              NULL|
    +------+------+------------------+
    <BLANKLINE>
    """
    moment = require_instants(table, known_at, "known_at")
    return table.where(is_in_force(moment, SYSTEM_FROM, SYSTEM_TO)).drop(SYSTEM_FROM, SYSTEM_TO)


def history_fields(table: DataFrame) -> T.StructType:
    """The business fields of a history or a bitemporal table."""
    system = SYSTEM_INTERVAL.fieldNames()
    return T.StructType([field for field in business_fields(table) if field.name not in system])
