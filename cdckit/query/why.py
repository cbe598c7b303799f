"""Why a value is what it is: every message that spoke of it, and what became of its word."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial, reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.merging.arrow_changes import GUID, SNAPSHOT
from cdckit.merging.merge import sort_by_entity
from cdckit.merging.moves import brings_identity, with_moves
from cdckit.merging.verdicts import PLACE, Question, verdicts
from cdckit.model.changes import MOVED, TRUNCATE
from cdckit.model.forms import CHANGES
from cdckit.model.history import DELETED
from cdckit.model.rejected_records import usable_changes
from cdckit.parts.argument_forms import INSTANT, takes
from cdckit.parts.arguments import (
    flat_columns,
    require_fields,
    require_instant,
    require_keys,
    require_struct,
    wrong_argument,
)
from cdckit.parts.arrow_types import arrow_schema
from cdckit.parts.instants import microseconds
from cdckit.parts.workers import WorkerPlan
from cdckit.query.bitemporal import tell_unsaid_arrival
from cdckit.query.entity_keys import is_entity

_AT_LAST = 2**63 - 1
"""Microseconds since 1970, as all instants here: after every one."""


@takes(changes=CHANGES, valid_at=INSTANT.or_none(), known_at=INSTANT.or_none())
def why(
    changes: DataFrame,
    key: Mapping[str, Any],
    field: str,
    *,
    keys: Sequence[str],
    valid_at: datetime | None = None,
    known_at: datetime | None = None,
) -> DataFrame:
    """
    Every message that spoke of one value, in order, and what became of its word.

    Args:
        changes: One row per change.
        key: The entity: the value of each of its key fields; or `{"guid": ...}`, and nothing else,
            where the changes have that column.  There the key fields may have changed their values: asked
            by them, it is the entity that a change gave these values to.
        field: The field that is asked about; `deleted_indicator` asks about the row itself: who says
            that the entity is there, or that it is deleted.
        valid_at: The time that is asked about, aware: what the value was then.  Without it, what it is at
            last, when all that is known has come true.
        known_at: The moment of knowledge, aware: messages that arrived later do not count.  Without
            it everything that is known counts; with it, a message without a time of arrival never does.
            Changes that say `snapshot` have the times here that they have once all is known.
        keys: As for `merge`.

    Returns:
        One row per change that carried the field, or deleted the entity (about the row: per change that
        speaks of the entity at all): `step` (1, 2, … in the order in which they count),
        `effective_timestamp`, `arrival_timestamp`, `message_id`, `source`, `operation`, `value` (what it
        said; null if it deleted), `priority`, `verdict`, `reason` (the verdict in words), `by_message`,
        `by_source` and `by_priority` (the message that overruled it, null where none did).  Priorities
        are those of the field, of a delete too; where the row as a whole decided (what a delete took or was
        too weak for, a word about what was deleted), those of the row.  Where two messages spoke at one
        instant with equal priority, `reason` says that the order of arrival decided: see `union_changes`
        for what that means of two sources.  The verdicts are

        - WON: it is the value that stands; at most one row, and none where the field was never set;
        - SUPERSEDED: it stood until a later message, or a delete, took its place; where that speaks of the
          same instant it never stood, which `reason` says;
        - OUTRANKED: a message of higher priority had spoken before;
        - EQUAL: it said what stood already, at the same priority;
        - CONFIRMED: of a key field, it said the value that stood: `by_message` stays its message, and
          the field has this change's priority from there on;
        - DELETED: the entity was deleted, and it had not the priority to change that;
        - NOTHING_THERE: a delete of an entity that was not there;
        - NEVER_SET: it deleted the entity, but there was no value to take;
        - REPEATED: the same message of the same source, and record of it, once more;
        - EXPIRED: it held until a time (`effective_until`) that is not after *valid_at*;
        - NOT_YET_EFFECTIVE: it speaks of a time after *valid_at*;
        - ARRIVED_LATER: it arrived after *known_at*.

        What a row took along from another key (`complete_moves`) is said of this key by the message that had
        said it, at the time of the move and by the source that told of it; its `reason` begins with "taken
        along".

        Ordered by `step`.  Nothing for a key that no change has.

    Raises:
        MissingColumns, WrongColumnType: As `merge`.
        InvalidArgument: As `merge`; *key* does not name exactly the keys, or the guid where there is one,
            or has a value of another type; *field* is not of the changes.
        PythonException: When the result is computed, as `merge`; or several entities have had these key
            fields (its text holds `NotOneEntity`).

    Cost: one scan with a filter, where there are guids and *key* names key fields two; then the entity's
    changes, all in one partition and in memory.

    Source:
        Data hub, "message provenance" and priority; the contract of `merge`.

    >>> from datetime import datetime, timezone
    >>> noon = datetime(2024, 1, 1, 12, 0, tzinfo=timezone.utc)
    >>> verdicts = why(changes, {"number": 1}, "name", keys=["number"], valid_at=noon)
    >>> verdicts.select("step", "message_id", "value", "verdict", "by_message").show()
    +----+----------+------+----------+----------+
    |step|message_id| value|   verdict|by_message|
    +----+----------+------+----------+----------+
    |   1|        m1|kettle|SUPERSEDED|        m2|
    |   2|        m2|teapot|       WON|      NULL|
    +----+----------+------+----------+----------+
    <BLANKLINE>
    """
    changes = usable_changes(changes)
    data = require_struct(changes, "data")
    names = data.fieldNames()
    (field,) = require_fields([field], [*names, DELETED], "field")
    question = Question(
        None if field == DELETED else names.index(field),
        _AT_LAST if valid_at is None else microseconds(valid_at),
        None if known_at is None else microseconds(known_at),
    )
    if known_at is not None:
        tell_unsaid_arrival(changes)
    if MOVED in changes.columns:
        require_keys(keys, names)
        # What was known then is what could be taken along then.
        known_changes = None
        if known_at is not None:
            is_known = F.col("arrival.timestamp") <= require_instant(known_at, "known_at")
            known_changes = changes.where(is_known)
        changes = with_moves(changes, keys, known=known_changes)
    more = {"arrival_timestamp": F.col("arrival.timestamp"), PLACE: F.col("sequence")}
    mine = _keep_entity(changes, key, keys, data)
    ordered = sort_by_entity(mine, entity="", keys=keys, more=more)
    schema = _verdict_schema(T.BooleanType() if field == DELETED else data[field].dataType)
    judge = partial(
        verdicts, layout=ordered.layout, question=question, schema=arrow_schema(schema, large=True)
    )
    return WorkerPlan(ordered.changes.coalesce(1), judge, schema, large=True).rows().orderBy("step")


def _keep_entity(
    changes: DataFrame, key: Mapping[str, Any], keys: Sequence[str], data: T.StructType
) -> DataFrame:
    """The changes of the entity, which *key* names by its guid or by all key fields."""
    listed = require_keys(keys, data.fieldNames())
    has_guid = GUID in changes.columns
    ways = [[GUID], listed] if has_guid else [listed]
    if not isinstance(key, Mapping) or set(key) not in map(set, ways):
        needed = ", or for ".join(", ".join(way) for way in ways)
        example = ", ".join(f"{name!r}: …" for name in listed)
        raise wrong_argument("key", f"a value for each of {needed}, such as {{{example}}}", key)
    fields = T.StructType([*data, *(changes.schema[name] for name in changes.columns if name == GUID)])
    is_wanted = is_entity(key, fields, within="data")
    every = F.col("operation") == TRUNCATE if SNAPSHOT in changes.columns else F.lit(False)
    if GUID in key or not brings_identity(changes, listed):
        return changes.where(is_wanted | every)
    carried = reduce(Column.__and__, (F.col("carried").getField(name) for name in listed))
    entities = changes.where((is_wanted & carried) | every).select(GUID).distinct()
    return changes.join(F.broadcast(entities), on=GUID, how="left_semi")


def _verdict_schema(value: T.DataType) -> T.StructType:
    change = (
        "step integer, effective_timestamp timestamp, arrival_timestamp timestamp, message_id string, "
        "source string, operation string"
    )
    verdict = "priority integer, verdict string, reason string, by_message string, by_source string"
    columns = flat_columns(change).add("value", value)
    return T.StructType([*columns, *flat_columns(f"{verdict}, by_priority integer")])
