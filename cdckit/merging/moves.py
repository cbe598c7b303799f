"""
Rows that move to other keys, on Spark: which changes are a move, and what rows take along by it.

A move is two changes that name each other: a delete of the old key and an upsert of the new one.  What the
upsert did not send goes with it (`cdckit.merging.inherited_words`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from operator import and_
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.merging.arrow_changes import (
    ARRIVED,
    GUID,
    MOVED_HERE,
    OPERATIONS,
    SNAPSHOT,
    WORD,
    Layout,
    carried_column,
    flat_columns,
    priority_column,
    value_column,
)
from cdckit.merging.inherited_words import MOVE, OWN, inherit_words
from cdckit.model.changes import (
    MADE_OF,
    MOVED,
    ORDER,
    TRUNCATE,
    UNTIL,
    UPSERT,
    field_names,
    field_priority,
    require_moves,
)
from cdckit.model.rejected_records import usable_changes
from cdckit.parts.argument_forms import rows_with, takes
from cdckit.parts.arguments import quoted, require_struct, wrong_argument
from cdckit.parts.arrow_types import arrow_schema
from cdckit.parts.families import FAMILY, NODE, find_families, share_rows
from cdckit.parts.public_calls import called_function
from cdckit.parts.workers import WorkerPlan

_COMPLETE = "cdckit.complete"


@takes(changes=rows_with(MOVED))
def complete_moves(changes: DataFrame) -> DataFrame:
    """
    Let rows that moved to another key take along what was not sent with it.

    A producer may leave out a value that did not change, such as a large text of PostgreSQL.  Where it does
    so in a message that gives a row another key, the value stands under the old key only.  So a merge refuses
    such changes until this is said: to look for the value there costs more, and few feeds need it.  A
    `Ledger` does it by itself.

    Args:
        changes: One row per change, with `moved` (`cdckit.model.CHANGE_SCHEMA`).

    Returns:
        The same rows.  Say it last: what makes the column `moved` anew, or saves the table, forgets it.

    Raises:
        WrongColumnType: *changes* do not say which rows moved.

    Cost: none here.  `merge`, `as_known`, `bitemporal` and `why` then read the changes four times, so keep
    them first (`localCheckpoint`) if it costs to make them, and shuffle all of them once more.  Which keys
    moves connect is found out in one task, which holds two numbers for each move; the changes of such keys
    are sorted twice, and those of all keys that moves connect are in memory at once.

    >>> from cdckit import merge
    >>> key = F.struct("data.number")
    >>> move = F.struct(F.lit("1").alias("id"), key.alias("old_key"), key.alias("new_key"))
    >>> moved = changes.withColumn("moved", F.when(F.lit(False), move))
    >>> merge(complete_moves(moved), entity="product", keys=["number"]).count()
    4
    """
    require_moves(changes, [])
    return changes.withMetadata(MOVED, {_COMPLETE: True})


def with_moves(
    changes: DataFrame, keys: Sequence[str], *, at_once: bool = False, known: DataFrame | None = None
) -> DataFrame:
    """
    The changes without `moved`, and beside them the words that rows took along when their keys changed.

    Where nobody said `complete_moves`, there are none, and a row that would need them ends the computation.
    With changes that bring their identity it raises `InvalidArgument`: those say nothing of moves.

    Args:
        changes: One row per change, with `moved` (`cdckit.model.CHANGE_SCHEMA`).
        keys: As for `merge`.
        at_once: Whether a word that became known later than its move is an error (`LateMoves`).
        known: Those of the changes of which rows take along what they say; all of them without it.
    """
    if brings_identity(changes, keys):
        needed = "without the column `moved` where their guids say which entity they are about: drop it"
        raise wrong_argument("changes", needed, changes.columns)
    changes = usable_changes(changes)
    if not changes.schema[MOVED].metadata.get(_COMPLETE):
        return _refuse_incomplete(changes, keys)
    statements = changes if known is None else known
    words = find_inherited_words(statements, keys, at_once=at_once)
    plain = _with_all_priorities(with_comings(changes))
    return plain.unionByName(words, allowMissingColumns=True)


def _refuse_incomplete(changes: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The changes without `moved`; one that gave a row another key, but not all its values, is an error."""
    names = require_struct(changes, "data").fieldNames()
    has_all = reduce(
        and_, (F.col("carried").getField(name) for name in names if name not in keys), F.lit(True)
    )
    has_moved = F.col(MOVED).isNotNull() & (F.col("operation") == UPSERT)
    text = (
        " gave a row another key, but not all of its values: "
        f"{called_function()}(complete_moves(changes), …) takes them along from the old key.  "
        "To merge without them, drop the column `moved`."
    )
    refused = F.raise_error(F.concat(F.lit("The message "), "message_id", F.lit(text))).cast("int")
    priority = F.when(has_moved & ~has_all, refused).otherwise(F.col("priority"))
    return with_comings(changes.withColumn("priority", priority))


def with_comings(changes: DataFrame) -> DataFrame:
    """The changes with `MOVED_HERE` instead of `moved`."""
    comes = F.col(MOVED).isNotNull() & (F.col("operation") == UPSERT)
    return changes.withColumn(MOVED_HERE, comes).drop(MOVED)


def find_inherited_words(changes: DataFrame, keys: Sequence[str], *, at_once: bool = False) -> DataFrame:
    """
    The words that rows took along when their keys changed, as changes of their new keys.

    Returns:
        The columns of changes, `field_priorities` among them; `arrival.record_number` says that they are such
        words (`cdckit.merging.arrow_changes.TAKEN_ALONG` and more).

    Cost: the moves are read, and in one task put together to families of keys; then the changes of these
    families are sorted and pass through Python.  To find those, all changes are shuffled by key.
    """
    require_moves(changes, keys)
    data = require_struct(changes, "data")
    names = data.fieldNames()
    complete = _with_all_priorities(changes)
    has_guid, is_placed = GUID in changes.columns, SNAPSHOT in changes.columns
    places, stated = tuple(names.index(key) for key in keys), frozenset(range(len(names)))
    layout = Layout(tuple(names), places, stated, by_guid=False, entity=None, has_guid=has_guid)
    named = complete.withColumns({NODE: _key_number("data", keys, data), MOVE: _move_name(keys, data)})
    rows = named.selectExpr(
        NODE,
        MOVE,
        f"{MOVE} IS NOT NULL AND operation = '{UPSERT}' AS {MOVED_HERE}",
        *([GUID] if has_guid else []),
        *ORDER,
        *(name for name in (SNAPSHOT, UNTIL) if name in changes.columns),
        *flat_columns(names, names, is_placed),
        *(f"{name} AS own_{name}" for name in OWN if name != SNAPSHOT or is_placed),
        *([f"arrival.timestamp AS own_{ARRIVED}"] if at_once else []),
    )
    old, new = (_key_number(f"{MOVED}.{side}", keys, data) for side in ("old_key", "new_key"))
    other = F.when(complete["operation"] == UPSERT, old).otherwise(new)
    # Spark would follow what a filter says through every alias above it, and plan for minutes where the
    # changes are made by long expressions; of a filter that is not determined by the row it says nothing.
    has_moved = F.col(MOVED).isNotNull() & (F.rand(0) >= 0)
    node = _key_number("data", keys, data)
    edges = complete.where(has_moved).select(node.alias(NODE), other.alias("other"))
    is_truncate = F.col("operation").eqNullSafe(OPERATIONS.index(TRUNCATE))
    words = rows.where(~is_truncate).join(find_families(edges), NODE, "inner")
    if is_placed:
        words = words.unionByName(rows.where(is_truncate).withColumn(FAMILY, F.lit(0).cast("long")))
    together = share_rows(words, F.col(FAMILY), everywhere=is_truncate).drop(NODE)
    ordered = together.sortWithinPartitions(is_truncate.desc(), FAMILY, *layout.identity, *ORDER)
    kept = rows.drop(NODE, MOVE, MOVED_HERE).schema
    flat = T.StructType([column for column in kept if not column.name.startswith("own_")])
    by = partial(inherit_words, layout=layout, schema=arrow_schema(flat, large=True))
    return _as_changes(WorkerPlan(ordered, by, flat, large=True).rows(), complete)


def _key_number(struct: str, keys: Sequence[str], data: T.StructType) -> Column:
    """A number for a key: of two keys that have one, more is told together than need be."""
    return F.xxhash64(*(F.col(f"{struct}.{quoted(key)}").cast(data[key].dataType) for key in keys))


def _move_name(keys: Sequence[str], data: T.StructType) -> Column:
    """Name the move of which a change is part: the same text of both; null of all others."""

    def named(side: str) -> Column:
        parts = (F.col(f"{MOVED}.{side}.{quoted(key)}").cast(data[key].dataType).alias(key) for key in keys)
        return F.struct(*parts).alias(side)

    text = F.to_json(F.struct("source", F.col(f"{MOVED}.id"), named("old_key"), named("new_key")))
    return F.when(F.col(MOVED).isNotNull(), text)


def _with_all_priorities(changes: DataFrame) -> DataFrame:
    """The changes with a priority of each field, null where it is the entity's."""
    priorities = [field_priority(changes, name).alias(name) for name in field_names(changes)]
    return changes.withColumn("field_priorities", F.struct(*priorities))


def _as_changes(flat: DataFrame, like: DataFrame) -> DataFrame:
    """Changes in the columns of the kernel as such in those of *like*."""
    names = require_struct(like, "data").fieldNames()

    def struct(parts: list[Column]) -> Column:
        return F.struct(*(part.alias(name) for name, part in zip(names, parts, strict=True)))

    bits = [F.getbit(F.col(carried_column(at // WORD)), F.lit(at % WORD)) == 1 for at, _ in enumerate(names)]
    columns: dict[str, Any] = {
        "operation": F.lit(UPSERT),
        "arrival": F.col("arrival").withField("record_number", F.col("record_number")),
        "data": struct([F.col(value_column(at)) for at, _ in enumerate(names)]),
        "carried": struct(bits),
        "field_priorities": struct([F.col(priority_column(at)) for at, _ in enumerate(names)]),
    }
    shown = flat.withColumns(columns)
    return shown.select(*(name for name in like.columns if name in shown.columns and name != MOVED))


def brings_identity(changes: DataFrame, keys: Sequence[str]) -> bool:
    """
    Tell whether the column `guid` says which entity a change is about.

    Not where it is there beside the key fields that it is made of, as in `Ledger.changes`: then every
    change is about the entity of its key, carried or not.
    """
    return GUID in changes.columns and set(changes.schema[GUID].metadata.get(MADE_OF, ())) != set(keys)
