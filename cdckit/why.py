"""Why a value is what it is: every message that spoke of it, and what became of its word."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from cdckit.arguments import of_entity, require_fields, require_instant
from cdckit.changes import require_changes
from cdckit.errors import InvalidArgument
from cdckit.kernel.layout import ARRIVED, GUID
from cdckit.kernel.verdicts import Question, verdicts
from cdckit.merge import sorted_by_entity
from cdckit.schemas import require_struct

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FOREVER = 2**63 - 1


def why(
    changes: DataFrame,
    key: Mapping[str, Any],
    field: str,
    *,
    at: datetime,
    known_at: datetime | None = None,
    keys: Sequence[str] | None = None,
) -> DataFrame:
    """
    Every message that spoke of one value, in order, and what became of its word.

    Args:
        changes: One row per change.
        key: The entity: the value of each of its key fields, all those that `merge` was given as
            keys; or `{"guid": ...}` where the changes have that column.
        field: The field that is asked about.
        at: The time that is asked about, aware: what the value was then.
        known_at: The moment of knowledge, aware: messages that arrived later do not count.  Without
            it everything that is known counts.
        keys: The key fields, where *key* is a guid: a delete does not touch them.

    Returns:
        One row per change that carried the field, or deleted the entity: `step` (1, 2, … in the order in
        which they count), `effective_timestamp`, `arrival_timestamp`, `message_id`, `source`,
        `operation`, `value` (what it said; null if it deleted), `priority` (of this field), `verdict`,
        `reason` (the verdict in words), `by_message` and `by_priority` (the message that overruled
        it, null where none did).  The verdicts are

        - WON: it is the value that stands; at most one row, and none where the field was never set;
        - SUPERSEDED: it stood until a later message, or a delete, took its place;
        - OUTRANKED: a message of higher priority had spoken before;
        - EQUAL: it said what stood already, at the same priority;
        - DELETED: the entity was deleted, and it had not the priority to change that;
        - NOTHING_THERE: a delete of what was not there;
        - REPEATED: the same message and record once more;
        - NOT_YET_EFFECTIVE: it speaks of a time after *at*;
        - ARRIVED_LATER: it arrived after *known_at*.

        Ordered by `step`.  Nothing for a key that no change has.

    Raises:
        MissingColumns, WrongColumnType, InvalidArgument: As `merge`; *key* or *field* is not of the
            changes; *at* or *known_at* is naive; *key* is a guid and *keys* is missing.

    Cost: one scan with a filter; then the entity's changes, all in one partition and in memory.

    Source:
        Data hub, "message provenance" and priority; the contract of `merge`.

    >>> from datetime import datetime, timezone
    >>> noon = datetime(2024, 1, 1, 12, 0, tzinfo=timezone.utc)
    >>> told = why(changes, {"number": 1}, "name", at=noon)
    >>> told.select("step", "message_id", "value", "verdict", "by_message").show()
    +----+----------+------+----------+----------+
    |step|message_id| value|   verdict|by_message|
    +----+----------+------+----------+----------+
    |   1|        m1|kettle|SUPERSEDED|        m2|
    |   2|        m2|teapot|       WON|      NULL|
    +----+----------+------+----------+----------+
    <BLANKLINE>
    """
    require_changes(changes, function="why")
    data = require_struct(changes, "data", function="why")
    (field,) = require_fields([field], data.fieldNames(), "field", function="why")
    names = _key_fields(key, keys, data)
    question = Question(
        data.fieldNames().index(field),
        _microseconds(at, "at"),
        _FOREVER if known_at is None else _microseconds(known_at, "known_at"),
    )
    more = {ARRIVED: F.col("arrival.timestamp"), "source": F.col("source")}
    ordered = sorted_by_entity(
        changes.where(_of_key(changes, key, data)), entity="", keys=names, function="why", more=more
    )
    schema = _verdict_schema(data[field].dataType)
    told = ordered.changes.coalesce(1).mapInArrow(
        partial(verdicts, layout=ordered.layout, question=question, schema=to_arrow_schema(schema)), schema
    )
    return told.orderBy("step")


def _key_fields(key: Mapping[str, Any], keys: Sequence[str] | None, data: T.StructType) -> list[str]:
    by_guid = isinstance(key, Mapping) and set(key) == {GUID}
    if by_guid and keys is None:
        raise InvalidArgument("why", "keys", "the key fields, since the entity is named by its guid", keys)
    return require_fields(list(keys or key), data.fieldNames(), "keys" if keys else "key", function="why")


def _of_key(changes: DataFrame, key: Mapping[str, Any], data: T.StructType) -> Column:
    if set(key) == {GUID}:
        return of_entity(key, changes.schema, function="why")
    return of_entity(key, data, within="data", function="why")


def _microseconds(at: datetime, argument: str) -> int:
    require_instant(at, argument, function="why")
    return (at - _EPOCH) // timedelta(microseconds=1)


def _verdict_schema(value: T.DataType) -> T.StructType:
    return (
        T.StructType()
        .add("step", T.IntegerType())
        .add("effective_timestamp", T.TimestampType())
        .add("arrival_timestamp", T.TimestampType())
        .add("message_id", T.StringType())
        .add("source", T.StringType())
        .add("operation", T.StringType())
        .add("value", value)
        .add("priority", T.IntegerType())
        .add("verdict", T.StringType())
        .add("reason", T.StringType())
        .add("by_message", T.StringType())
        .add("by_priority", T.IntegerType())
    )
