"""Explanation: why a number is another one than in an earlier report, message by message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.merging.arrow_changes import ARRIVED, GUID, SNAPSHOT
from cdckit.merging.effects import (
    AFTER,
    BEFORE,
    BEGAN,
    CORE,
    ENDED,
    PLACE,
    RESTATED,
    SIDES,
    UNDONE,
    Question,
    effects,
)
from cdckit.merging.merge import merge_changes, sort_by_entity
from cdckit.merging.moves import with_moves
from cdckit.model.changes import ARRIVAL_TYPE, MOVED, require_changes
from cdckit.model.history import DELETED, HISTORY_SCHEMA, business_fields
from cdckit.model.unions import unite
from cdckit.parts.argument_forms import NAME, Form, takes
from cdckit.parts.arguments import flat_columns, microseconds, quoted, require_instant, wrong_argument
from cdckit.parts.arrays import NEVER
from cdckit.parts.arrow_types import arrow_schema
from cdckit.parts.guids import guid
from cdckit.parts.workers import WorkerPlan
from cdckit.query.additive_measures import DIGITS, MEAN_TYPE, AdditiveMeasure, require_additive
from cdckit.query.as_of import as_of
from cdckit.query.bitemporal import tell_unsaid_arrival

LATE, NEW = "late", "new"
CORRECTED, UPDATED, REMOVED, RECLASSIFIED = "corrected", "updated", "deleted", "reclassified"
NEWLY_VALID, EXPIRED, REVOKED, RERANKED = "newly valid", "expired", "revoked", "reranked"

_TIMES = ("arrival_timestamp", "effective_timestamp")
_ANSWER = ("kind", "amount", "message_id", "source", *_TIMES)
_STEP, _WAS, _NOW = "cdckit.step", "cdckit.was", "cdckit.now"
"""Names that no field has."""


@dataclass(frozen=True)
class Belief:
    """
    What a report was made from: what these changes, as far as they were known then, say of an instant.

    Args:
        changes: One row per change.
        valid_at: The instant that the report is about: an aware datetime in any zone.
        known_at: The moment of knowledge, aware: messages that arrived later do not count.  Without it all of
            *changes* count; with it, one without a time of arrival never does.

    >>> from datetime import datetime, timezone
    >>> Belief(changes, datetime(2024, 1, 1, 12, tzinfo=timezone.utc)).known_at is None
    True
    """

    changes: DataFrame
    valid_at: datetime
    known_at: datetime | None = None


def _check_belief(belief: Any, argument: str) -> Any:
    if not isinstance(belief, Belief):
        raise wrong_argument(argument, "a Belief(changes, valid_at, known_at)", belief)
    require_changes(belief.changes)
    return belief


BELIEF = Form(_check_belief, "InvalidArgument: {} is no `Belief`, or one of its instants is naive")


@takes(before=BELIEF, after=BELIEF, entity=NAME)
def explain(
    before: Belief,
    after: Belief,
    measure: str = "sum",
    value: str | Column | None = None,
    *,
    by: str | Column | Sequence[str | Column] = (),
    entity: str,
    keys: Sequence[str],
) -> DataFrame:
    """
    Why a number is another one than before: the difference, taken apart into the messages that made it.

    The number is a measure over the rows of a report: of `as_of` what was known.  All that lies between two
    reports is gone through in one order, message by message and entity by entity, and the part of a message
    is the measure after it minus the measure before it.  So the parts of a group add up to its difference, to
    the last digit, and what changed nothing (a repeat, a message that was outranked) is no row.  The order:

    1. messages that only *before* knows (revoked, of another source, of another priority) are undone, the one
       that arrived last first;
    2. with what both know, time goes from one `valid_at` to the other;
    3. messages that only *after* knows are told, in the order in which they arrived (`arrival`).

    Args:
        before: The earlier report.
        after: The later one: of the same changes, known until later, or about a later instant; or of others,
            such as `revoke`, `with_priorities`, `where` or another commit of a ledger give.  A message that
            says the same in both is known to both.
        measure: "sum", "count" or "mean" of *value*, nulls left out.  Of no row each is 0.
        value: A field, an SQL expression over the fields of a row, or such a column; its numbers are whole
            or decimal.  A count needs none: then it is of rows.
        by: What a row is grouped by: one or several, each as for *value*.  Null is a group.
        entity: As for `merge`.
        keys: As for `merge`.

    Returns:
        One row per message, entity, group and kind, in no order: `guid`; the key fields, without those that
        are called as a column of *by* or of what follows; *by*; `kind`; `amount`, what the message adds to
        the measure of the group; `message_id`, `source`, `arrival_timestamp` and `effective_timestamp` of the
        message (of several records of one entity, of the first).  The kinds are

        - "late": it brought an entity that was there at the instant of *before*, but not known;
        - "new": it brought an entity that came to be later;
        - "corrected": it gave another value, true at the instant of *before* already; "updated": a later one;
        - "reclassified": it took the entity from one group to another: what it had counted is taken from the
          one and given to the other.  What else it changed is a row of its own;
        - "deleted": the entity is gone by it;
        - "newly valid", "expired": both reports know it, and its time came, or was over, between the two;
        - "revoked": only *before* knows it;
        - "reranked": both know it, and it has another priority, or says something else.

    A mean is made additive by the order: a part is the mean of the group after the step minus that before
    it, in which all that came earlier counts; both are rounded to six digits.  Of a reclassified entity the
    two parts need not cancel out.

    Raises:
        MissingColumns, WrongColumnType: As `merge`; or the numbers of *value* are floating, whose sums depend
            on the order, or none.
        InvalidArgument: As `merge`; an instant of *after* lies before that of *before*; *measure* is another
            one; *value* or *by* are nothing that can be told of one row, or *by* is called as a column of the
            answer; or changes that say `snapshot` are not of one table.
        PythonException: When the result is computed, as `merge`; as `bitemporal`, where rows moved.

    Changes that say `snapshot` have the times here that they have once all is known, as in `bitemporal`.
    What a row took along from another key (`complete_moves`) is told of the message that had said it there,
    right behind that of the move.

    Cost: about a merge, without most of its rows: entities of which both know the same are passed over, and
    of the others only the messages that one of them does not know are steps; one that is late of its entity
    costs to merge this entity once more.  Two tables of changes: the merge of both together, and a shuffle of
    the rows.  A mean also merges what *before* knows, and sorts the parts of each group.

    >>> from datetime import datetime, timezone
    >>> ten, noon = (datetime(2024, 1, 1, hour, 30, tzinfo=timezone.utc) for hour in (10, 12))
    >>> asked = {"by": "name", "entity": "product", "keys": ["number"]}
    >>> parts = explain(Belief(changes, noon, known_at=ten), Belief(changes, noon), "count", **asked)
    >>> parts.select("number", "name", "kind", "amount", "message_id").show()
    +------+----+-------+------+----------+
    |number|name|   kind|amount|message_id|
    +------+----+-------+------+----------+
    |     2| mug|deleted|    -1|        m3|
    +------+----+-------+------+----------+
    <BLANKLINE>
    """
    times = _require_order(before, after)
    for belief in (before, after):
        if belief.known_at is not None:
            tell_unsaid_arrival(belief.changes)
    changes, sides, apart = _known_to_either(before, after, keys)
    asked = require_additive(changes.select("data.*"), measure, value, by, taken=(GUID, *_ANSWER))
    steps = _steps(changes, sides, Question(*times, apart), entity, keys)
    parts = _parts(steps, asked, before)
    if measure == "mean":
        parts = _with_means(parts, asked, before, entity, keys)
    return _answer(parts, asked, keys, apart=apart)


def _require_order(before: Belief, after: Belief) -> tuple[int, int]:
    """The two instants in microseconds; raises unless *after* is the later belief."""
    for name in ("valid_at", "known_at"):
        first, last = (_micros(belief, name) for belief in (before, after))
        # Of two tables each may know what the other never does: then an open end is no later moment.
        if first > last and (first < NEVER or _is_one_table(before, after)):
            then = getattr(before, name)
            needed = f"not before before.{name}, {'which is open' if then is None else then.isoformat()}"
            remedy = "Change the places of the two: then each amount has the other sign."
            instant = getattr(after, name).isoformat()
            raise wrong_argument(f"after.{name}", needed, instant, remedy=remedy)
    return _micros(before, "valid_at"), _micros(after, "valid_at")


def _micros(belief: Belief, name: str) -> int:
    def call(literal: str) -> str:
        return f"Belief(changes, {'known_at=' if name == 'known_at' else ''}{literal})"

    instant = getattr(belief, name)
    return NEVER if instant is None and name == "known_at" else microseconds(instant, name, call=call)


def _is_one_table(before: Belief, after: Belief) -> bool:
    return before.changes is after.changes or before.changes.sameSemantics(after.changes)


def _is_known(belief: Belief) -> Column:
    if belief.known_at is None:
        return F.lit(True)
    known_at = require_instant(belief.known_at, "known_at")
    return F.coalesce(F.col("arrival.timestamp") <= known_at, F.lit(False))


def _known(belief: Belief) -> DataFrame:
    return belief.changes.where(_is_known(belief))


def _known_to_either(before: Belief, after: Belief, keys: Sequence[str]) -> tuple[DataFrame, Column, bool]:
    """The changes of both, which of them know each, and whether equal ones stand there twice."""
    if _is_one_table(before, after):
        sides = F.when(_is_known(before), BEFORE).otherwise(0) + F.when(_is_known(after), AFTER).otherwise(0)
        return after.changes.where(sides != 0), sides, False
    tables = []
    for belief, side in ((before, BEFORE), (after, AFTER)):
        changes = _known(belief)
        if SNAPSHOT in changes.columns:
            needed = "changes of the same table as before.changes, since they say `snapshot`"
            remedy = "Ask of one table what was known when: Belief(changes, valid_at, known_at=…)."
            raise wrong_argument("after.changes", needed, "another table", remedy=remedy)
        if MOVED in changes.columns:
            changes = with_moves(changes, keys)
        tables.append(changes.withColumn(SIDES, F.lit(side)))
    return unite(tables, as_text=False), F.col(SIDES), True


def _steps(
    changes: DataFrame, sides: Column, question: Question, entity: str, keys: Sequence[str]
) -> DataFrame:
    """A row for each step, as one struct; `was` and `now` are what stands before and after it."""
    if SNAPSHOT not in changes.columns and not question.apart:
        at = F.timestamp_micros(F.lit(question.after))
        changes = changes.where(F.coalesce(F.col("effective_timestamp") <= at, F.lit(True)))
    arrived, *order = ARRIVAL_TYPE.fieldNames()
    # The rest says the order of what one belief does not know, and need not travel with all that both know.
    place = [F.when(sides != CORE, F.col(f"arrival.{part}")).alias(part) for part in order]
    more = {SIDES: sides, PLACE: F.struct(f"arrival.{arrived}", *place)}
    if question.apart:
        # Two changes are one if nothing tells them apart.
        more["own_sequence"] = F.col("sequence")
    if MOVED in changes.columns:
        # What was taken along must have been known when the row moved, as in `bitemporal`.
        more[ARRIVED] = F.col("arrival.timestamp")
    ordered = sort_by_entity(changes, entity=entity, keys=keys, more=more)
    schema = _step_schema(ordered.data)
    by = partial(effects, layout=ordered.layout, question=question, schema=arrow_schema(schema, large=True))
    steps = WorkerPlan(ordered.changes, by, schema, large=True).rows()
    if ordered.layout.entity is None and GUID not in changes.columns:
        steps = steps.withColumn(GUID, guid(entity, {key: _of_entity(F.col, key) for key in keys}))
    return steps.select(F.struct("*").alias(_STEP))


def _step_schema(data: T.StructType) -> T.StructType:
    stands = T.StructType([HISTORY_SCHEMA[DELETED], *data.fields])
    change = "at timestamp, message_id string, source string, effective_timestamp timestamp"
    step = flat_columns(f"{GUID} string, step integer, {RESTATED} boolean, {change}")
    return step.add(PLACE, ARRIVAL_TYPE).add("was", stands).add("now", stands)


def _of_entity(of: Callable[[str], Column], key: str) -> Column:
    """A key field after a step, or before it where the entity is not known after it."""
    was, now = of("was"), of("now")
    return F.when(now.isNotNull(), now.getField(key)).otherwise(was.getField(key))


def _of_step(name: str) -> Column:
    return F.col(quoted(_STEP)).getField(name)


def _parts(steps: DataFrame, asked: AdditiveMeasure, before: Belief) -> DataFrame:
    """Cut what each step takes from a group, gives to one, or changes in one: `piece`, beside the step."""
    step, was = quoted(_STEP), quoted(_WAS)
    counted = steps.select(step, f"{step}.was.*").select(step, asked.counted.alias(_WAS))
    counted = counted.select(step, was, f"{step}.now.*").select(step, was, asked.counted.alias(_NOW))
    parts = counted.select(step, F.explode(F.array_compact(F.array(*_pieces(asked, before)))).alias("piece"))
    counts = F.col("piece.number") != 0
    return parts.where(counts | (F.col("piece.weight") != 0) if asked.measure == "mean" else counts)


def _pieces(asked: AdditiveMeasure, before: Belief) -> list[Column]:
    """The pieces of one step, each null where there is none."""
    was, now = F.col(quoted(_WAS)), F.col(quoted(_NOW))
    stays = was.isNotNull() & now.isNotNull()
    moves = stays & ~asked.same_group(was, now)
    leaves, enters = (was.isNotNull() & now.isNull()) | moves, (now.isNotNull() & was.isNull()) | moves
    then = require_instant(before.valid_at, "valid_at")
    in_time = _of_step("effective_timestamp") <= then
    # Of what is not told anew, the reason says more than what became of the row.
    reason = (
        F.when(_of_step(RESTATED), RERANKED)
        .when(_of_step("step") == UNDONE, REVOKED)
        .when(_of_step("step") == BEGAN, NEWLY_VALID)
        .when(_of_step("step") == ENDED, EXPIRED)
    )
    # What a row had counted moves to the other group; what it counts more is a piece of its own.
    given = F.when(moves & reason.isNull(), was).otherwise(now)
    changes = stays & (~moves | reason.isNull())
    left = F.when(moves, RECLASSIFIED).otherwise(REMOVED)
    entered = F.when(moves, RECLASSIFIED).when(in_time, LATE).otherwise(NEW)
    changed = F.when(in_time, CORRECTED).otherwise(UPDATED)
    pieces = [
        (leaves, was, left, -was.number, -was.weight),
        (enters, now, entered, given.number, given.weight),
        (changes, now, changed, now.number - was.number, now.weight - was.weight),
    ]
    columns = []
    for place, (holds, row, kind, number, weight) in enumerate(pieces):
        what = F.lit(place).alias("place"), row.groups.alias("groups"), F.coalesce(reason, kind).alias("kind")
        amounts = number.cast(asked.amounts).alias("number"), weight.alias("weight")
        columns.append(F.when(holds, F.struct(*what, *amounts)))
    return columns


def _with_means(
    parts: DataFrame, asked: AdditiveMeasure, before: Belief, entity: str, keys: Sequence[str]
) -> DataFrame:
    """The parts, each with what its step adds to the mean of its group: `amount`."""
    merged = merge_changes(_known(before), entity=entity, keys=keys)
    report = as_of(merged, before.valid_at).select(DELETED, *map(quoted, business_fields(merged).names))
    counted = report.select(asked.counted.alias("row")).groupBy("row.groups")
    at_first = counted.agg(F.sum("row.number").alias("number"), F.sum("row.weight").alias("weight"))
    way = parts.select("*", "piece.groups", "piece.number", "piece.weight").unionByName(
        at_first, allowMissingColumns=True
    )
    step, backwards = _of_step("step"), _of_step("step") == UNDONE
    passes = step.isin(BEGAN, ENDED)
    arrived, *place_parts = (_of_step(PLACE).getField(part) for part in ARRIVAL_TYPE.fieldNames()[:-1])
    arrival_order = [arrived, *(F.when(~passes, part) for part in place_parts)]
    arrival_order += [_of_step(name) for name in ("message_id", "source", GUID)]
    order = [
        F.when(passes, BEGAN).otherwise(step).asc_nulls_first(),
        *(F.when(backwards, part).desc() for part in arrival_order),
        _of_step("at"),
        *arrival_order,
        F.col("piece.place"),
    ]
    window = Window.partitionBy("groups").orderBy(*order)
    so_far = window.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    number, weight = F.sum("number").over(so_far), F.sum("weight").over(so_far)
    mean = F.when(weight == 0, F.lit(0)).otherwise(
        number.cast(T.DecimalType(DIGITS, asked.scale)) / weight.cast("decimal(20,0)")
    )
    with_mean = way.withColumn("mean", mean.cast(MEAN_TYPE))
    amount = F.col("mean") - F.coalesce(F.lag("mean").over(window), F.lit(0).cast(MEAN_TYPE))
    return with_mean.withColumn("amount", amount.cast(MEAN_TYPE)).where(F.col("piece").isNotNull())


def _answer(parts: DataFrame, asked: AdditiveMeasure, keys: Sequence[str], *, apart: bool) -> DataFrame:
    """The parts as `explain` returns them."""
    groups = [name for name, _, _ in asked.by]
    taken = {name.lower() for name in (*groups, *_ANSWER)}
    amount = F.col("amount") if asked.measure == "mean" else F.col("piece.number")
    answer = parts.select(
        _of_step(GUID).alias(GUID),
        *(_of_entity(_of_step, key).alias(key) for key in keys if key.lower() not in taken),
        *(F.col("piece.groups").getField(name).alias(name) for name in groups),
        F.col("piece.kind").alias("kind"),
        amount.alias("amount"),
        _of_step("message_id").alias("message_id"),
        _of_step("source").alias("source"),
        _of_step(PLACE).getField("timestamp").alias("arrival_timestamp"),
        _of_step("effective_timestamp").alias("effective_timestamp"),
    ).where(F.col("amount") != 0)
    if not apart:
        return answer
    # A message that says something else is undone and told: its part is what both make together.
    kind = answer.schema["amount"].dataType
    added = {"amount": F.sum("amount").cast(kind), **{name: F.min(name) for name in _TIMES}}
    whose = [quoted(name) for name in answer.columns if name not in added]
    netted = answer.groupBy(*whose).agg(*(column.alias(name) for name, column in added.items()))
    return netted.select(*map(quoted, answer.columns)).where(F.col("amount") != 0)
