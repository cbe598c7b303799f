"""What was believed, asked as a history: about one instant, on the board, and until an error was known."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdckit.model.forms import beliefs_with
from cdckit.model.history import DELETED, SOURCE_MESSAGE, SYSTEM_FROM, SYSTEM_TO, VALID_FROM, VALID_TO
from cdckit.parts.argument_forms import INSTANT, takes
from cdckit.parts.arguments import (
    microseconds,
    quoted,
    require_fields,
    require_instant,
    require_instants,
    wrong_argument,
)
from cdckit.parts.values import as_text, comparable
from cdckit.query.bitemporal import history_fields, keep_known
from cdckit.query.differences import DIFFERING, diff, require_reader_keys
from cdckit.query.intervals import fold_periods, is_in_force, is_period
from cdckit.query.overlays import Layer, overlay

_ERRORS = ("field", "error", VALID_FROM, VALID_TO, "shown_value", "true_value", "seconds")
_LEARNT = {
    "a_value": "from_value",
    "b_value": "to_value",
    "a_message": "from_message",
    "b_message": "to_message",
}
"""What a column of `diff` is called where one belief follows another."""


BELIEFS = beliefs_with("guid", VALID_FROM, VALID_TO)


@takes(table=BELIEFS)
def beliefs_about(table: DataFrame, valid_at: datetime | Column) -> DataFrame:
    """
    Tell what was believed about one instant, as a history whose time is that of knowledge.

    Every question about a history is one about beliefs then: `changes_between` lists what was learnt when,
    `blame(beliefs_about(table, monday), key, valid_at=tuesday)` says which message brought each value that
    was believed on Tuesday about Monday, and since when it was believed.

    Args:
        table: What `bitemporal` returned.
        valid_at: The instant that the beliefs are about: an aware datetime, or a column of instants.

    Returns:
        A history: of each entity the versions that were in force at *valid_at* by some belief.  Their
        `valid_from_timestamp` and `valid_to_timestamp` say when that was believed, and the system
        interval is gone.

    Raises:
        InvalidArgument: *valid_at* is a naive datetime.
        WrongColumnType: *valid_at* is a column of something else than timestamps.

    Cost: one filter, no shuffle.

    >>> from datetime import datetime, timezone
    >>> at = datetime(2024, 1, 1, 11, 30, tzinfo=timezone.utc)
    >>> from cdckit import bitemporal
    >>> table = bitemporal(changes, entity="product", keys=["number"])
    >>> believed = beliefs_about(table, at).where("number = 1")
    >>> believed.orderBy("valid_from_timestamp").select(
    ...     "name", "valid_from_timestamp", "valid_to_timestamp"
    ... ).show()
    +------+--------------------+-------------------+
    |  name|valid_from_timestamp| valid_to_timestamp|
    +------+--------------------+-------------------+
    |kettle| 2024-01-01 09:00:00|2024-01-01 10:00:00|
    |teapot| 2024-01-01 10:00:00|               NULL|
    +------+--------------------+-------------------+
    <BLANKLINE>
    """
    instant = require_instants(table, valid_at, "valid_at")
    knowledge = {VALID_FROM: F.col(SYSTEM_FROM), VALID_TO: F.col(SYSTEM_TO)}
    return table.where(is_in_force(instant)).withColumns(knowledge).drop(SYSTEM_FROM, SYSTEM_TO)


@takes(table=beliefs_with("guid", VALID_FROM, VALID_TO, DELETED))
def diff_beliefs(
    table: DataFrame, earlier: datetime, later: datetime, *, keys: Sequence[str] = ()
) -> DataFrame:
    """
    Find where what is known at a later moment differs from what was known at an earlier one.

    That is `diff(keep_known(table, earlier), keep_known(table, later))`, of those beliefs alone that came or
    went between the two.

    Args:
        table: What `bitemporal` returned.
        earlier: A moment of knowledge, aware; what arrived by then is known.
        later: Another one, after it.
        keys: Fields that say which entity it is, for a reader: as for `diff`.

    Returns:
        One row per entity, field and interval in which the beliefs differ: `guid`, *keys*, `field`,
        `valid_from_timestamp`, `valid_to_timestamp`, `from_value`, `to_value` (text), `from_message` and
        `to_message`, as in `diff`.  For the beliefs about one instant, and every step between the two
        moments, there is `changes_between(beliefs_about(table, valid_at), earlier, later)`.

    Raises:
        InvalidArgument: A naive instant; *later* is not after *earlier*; *keys* as for `diff`.

    Cost: a filter, and `diff` of what it leaves.

    >>> from datetime import datetime, timezone
    >>> ten, noon = (datetime(2024, 1, 1, hour, 30, tzinfo=timezone.utc) for hour in (10, 12))
    >>> from cdckit import bitemporal
    >>> table = bitemporal(changes, entity="product", keys=["number"])
    >>> learnt = diff_beliefs(table, ten, noon, keys=["number"])
    >>> learnt.orderBy("field").select(
    ...     "number", "field", "valid_from_timestamp", "from_value", "to_value"
    ... ).show()
    +------+-----------------+--------------------+----------+--------+
    |number|            field|valid_from_timestamp|from_value|to_value|
    +------+-----------------+--------------------+----------+--------+
    |     2|deleted_indicator| 2024-01-01 11:00:00|     false|    true|
    |     2|             name| 2024-01-01 11:00:00|       mug|    NULL|
    +------+-----------------+--------------------+----------+--------+
    <BLANKLINE>
    """
    then, now = (is_in_force(moment, SYSTEM_FROM, SYSTEM_TO) for moment in _instants(earlier, later))
    require_reader_keys(history_fields(table), keys, (*DIFFERING, *_LEARNT.values()))
    # What is believed at both moments differs in nothing, whatever stands around it.
    old_beliefs, new_beliefs = (
        keep_known(table.where(rows), at) for rows, at in ((then & ~now, earlier), (now & ~then, later))
    )
    return diff(old_beliefs, new_beliefs, keys=keys).withColumnsRenamed(_LEARNT)


@takes(table=BELIEFS)
def as_shown(table: DataFrame) -> DataFrame:
    """
    Show what a board showed that always told what was believed then about then.

    Args:
        table: What `bitemporal` returned.

    Returns:
        A history: each version while it was both in force and believed to be; `valid_from_timestamp` is
        the later of the two beginnings, `valid_to_timestamp` the earlier of the two ends.  What was
        learnt when it was over is not there, and neither is what was corrected before it came.

    Cost: one filter, no shuffle.

    >>> from cdckit import bitemporal
    >>> arrives = F.col("effective_timestamp") + F.expr("INTERVAL 10 MINUTES")
    >>> late = changes.withColumn("arrival", F.col("arrival").withField("timestamp", arrives))
    >>> shown = as_shown(bitemporal(late, entity="product", keys=["number"])).where("number = 1")
    >>> shown.orderBy("valid_from_timestamp").select(
    ...     "name", "valid_from_timestamp", "valid_to_timestamp"
    ... ).show()
    +------+--------------------+-------------------+
    |  name|valid_from_timestamp| valid_to_timestamp|
    +------+--------------------+-------------------+
    |kettle| 2024-01-01 09:10:00|2024-01-01 10:10:00|
    |teapot| 2024-01-01 10:10:00|               NULL|
    +------+--------------------+-------------------+
    <BLANKLINE>
    """
    # Spark's greatest and least pass over nulls: an open end is later than any other.
    begins, ends = F.greatest(VALID_FROM, SYSTEM_FROM), F.least(VALID_TO, SYSTEM_TO)
    begun = F.col(VALID_FROM).isNotNull() & F.col(SYSTEM_FROM).isNotNull()
    shown = table.where(begun & is_period(begins, ends)).withColumns({VALID_FROM: begins, VALID_TO: ends})
    return shown.drop(SYSTEM_FROM, SYSTEM_TO)


@takes(table=beliefs_with("guid", VALID_FROM, VALID_TO, DELETED, SOURCE_MESSAGE), until=INSTANT.or_none())
def error_durations(
    table: DataFrame, fields: str | Sequence[str], *, until: datetime | None = None, keys: Sequence[str] = ()
) -> DataFrame:
    """
    Find how long a board showed something wrong: when, until when, and what it should have shown.

    At each instant the board shows what is believed then about then (`as_shown`); true is what is believed in
    the end.

    Args:
        table: What `bitemporal` returned.
        fields: The business fields to look at, one or several.
        until: The moment of knowledge that counts as the end, an aware datetime: what arrived later is not
            known, and errors are told up to it.  By default all that *table* knows.
        keys: Fields that say which entity it is, for a reader: columns behind `guid`, with their true values
            or, where there is no truth, as shown.

    Returns:
        One row per entity, field and longest period with one error: `guid`; *keys*; `field`; `error`;
        `valid_from_timestamp` and `valid_to_timestamp` (exclusive); `shown_value` and `true_value` (text);
        `seconds` (double).  The errors are

        - "wrong": another value was shown than the true one;
        - "missing": the entity was there and not shown (not yet known, or thought to be deleted), and every
          field has a row with `shown_value` null;
        - "extra": the entity was shown and not there, and every field has a row with `true_value` null.

        A period has an end always: with the last message shown and true are one.

    Raises:
        InvalidArgument: *fields* or *keys* name nothing, something twice or something that is not there, or
            *keys* a column of the answer.

    Cost: an `overlay` of the two histories, and one more sort of the errors.

    >>> from datetime import datetime, timezone
    >>> from cdckit import bitemporal
    >>> arrives = F.col("effective_timestamp") + F.expr("INTERVAL 10 MINUTES")
    >>> late = changes.withColumn("arrival", F.col("arrival").withField("timestamp", arrives))
    >>> table = bitemporal(late, entity="product", keys=["number"])
    >>> wrong = error_durations(table, "name", keys=["number"])
    >>> wrong.orderBy("number", "valid_from_timestamp").select(
    ...     "number", "error", "valid_from_timestamp", "shown_value", "true_value", "seconds"
    ... ).show()
    +------+-------+--------------------+-----------+----------+-------+
    |number|  error|valid_from_timestamp|shown_value|true_value|seconds|
    +------+-------+--------------------+-----------+----------+-------+
    |     1|missing| 2024-01-01 09:00:00|       NULL|    kettle|  600.0|
    |     1|  wrong| 2024-01-01 10:00:00|     kettle|    teapot|  600.0|
    |     2|missing| 2024-01-01 09:00:00|       NULL|       mug|  600.0|
    |     2|  extra| 2024-01-01 11:00:00|        mug|      NULL|  600.0|
    +------+-------+--------------------+-----------+----------+-------+
    <BLANKLINE>
    """
    columns = history_fields(table)
    names = require_fields(fields, columns.fieldNames(), "fields")
    named = [field.name for field in require_reader_keys(columns, keys, _ERRORS)]
    ends = F.lit(True)
    if until is None:
        truth = table.where(F.col(SYSTEM_TO).isNull()).drop(SYSTEM_FROM, SYSTEM_TO)
    else:
        last = require_instant(until, "until")
        truth, ends = keep_known(table, until), F.col(VALID_FROM) < last
    needed = list(dict.fromkeys((*names, *named)))
    shown = Layer(as_shown(table), into="shown", fields=needed)
    both = overlay(shown, Layer(truth, into="truth", fields=needed), how="full").where(ends)
    if until is not None:
        both = both.withColumn(VALID_TO, F.least(VALID_TO, last))
    errors = both.select(
        "guid",
        *(_true_value(name).alias(name) for name in named),
        VALID_FROM,
        VALID_TO,
        F.inline(F.array(*(_error(table, name) for name in names))),
    ).where(F.col("error").isNotNull())
    error = F.struct("error", "shown_value", "true_value")
    seconds = (F.unix_micros(VALID_TO) - F.unix_micros(VALID_FROM)) / F.lit(1_000_000)
    folded = fold_periods(errors, ["guid", "field"], error).withColumn("seconds", seconds)
    return folded.select("guid", *map(quoted, named), *_ERRORS)


def _instants(earlier: datetime, later: datetime) -> list[Column]:
    """Two moments of knowledge as columns; raises unless both are aware, and one after the other."""
    first = microseconds(earlier, "earlier")
    last = microseconds(later, "later")
    if last <= first:
        raise wrong_argument("later", f"after earlier, {earlier.isoformat()}", later.isoformat())
    return [F.timestamp_micros(F.lit(moment)) for moment in (first, last)]


def _true_value(name: str) -> Column:
    """The true value where there is truth, be it null: a key of two fields is that of one version."""
    true, shown = (F.col(side).getField(name) for side in ("truth", "shown"))
    return F.when(F.col("truth").isNotNull(), true).otherwise(shown)


def _error(table: DataFrame, name: str) -> Column:
    """Compare a field and its two values; nothing if they are one."""
    kind = table.schema[name].dataType
    shown, true = (F.col(side).getField(name) for side in ("shown", "truth"))
    error = (
        F.when(F.col("shown").isNull(), "missing")
        .when(F.col("truth").isNull(), "extra")
        .when(~comparable(shown, kind).eqNullSafe(comparable(true, kind)), "wrong")
    )
    return F.struct(
        F.lit(name).alias("field"),
        error.alias("error"),
        as_text(shown, kind).alias("shown_value"),
        as_text(true, kind).alias("true_value"),
    )
