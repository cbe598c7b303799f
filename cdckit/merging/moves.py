"""
Rows that move: what a changed key takes along, as changes of the new key; in workers, and on Spark.

A move is two changes that name each other: a delete of the old key and an upsert of the new one.  What the
upsert did not send is what stood under the old key right before the delete, with the message and the
priority that it has there.  So such words are changes of the new key too, right behind its upsert: one for
each message, and a merge needs no rule for them.

What stood under the old key may have been taken along itself.  So all keys that moves connect, a *family*,
are looked at together, and again until nothing is taken along that was not before: as often as moves
follow each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial, reduce
from operator import and_
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import CdcError, InvalidArgument
from cdckit.merging.arrow_changes import (
    ARRIVED,
    GUID,
    MOVED_HERE,
    NO_PRIORITY,
    OPERATIONS,
    SNAPSHOT,
    TAKEN_ALONG,
    WORD,
    Changes,
    Layout,
    carried_column,
    carried_words,
    flat_columns,
    priority_column,
    value_column,
)
from cdckit.merging.places import order_entities
from cdckit.merging.states import counting_changes, field, steps
from cdckit.model.changes import MADE_OF, MOVED, TRUNCATE, UNTIL, UPSERT, require_moves
from cdckit.model.records import usable_changes
from cdckit.parts.arguments import quoted, require_columns, require_struct
from cdckit.parts.arrays import NOWHERE, Bools, Ints, first_of_entity, ints
from cdckit.parts.arrow_types import arrow_schema, make_batch
from cdckit.parts.workers import WorkerPlan

MOVE = "move"
"""The column that says of which move a change is part: equal texts, one move; null in all others."""

FAMILY = "family"

OWN = ("effective_timestamp", "sequence", "arrival", "snapshot")
"""What says the place of a change stands twice where changes may be placed: as it was, under `own_…`."""


class CircularMoves(CdcError, ValueError):
    """Each of some moves takes along what another one of them has brought."""

    def __init__(self, message: str) -> None:
        self.message = message
        super().__init__(message)

    def __str__(self) -> str:
        return (
            "Rows that moved from key to key would take along what they had not got yet: the delete and the "
            f"upsert of one move stand at places too far apart.  One of these messages: {self.message}."
        )


class LateMoves(CdcError, ValueError):
    """Of a row that moved, something became known only after its move."""

    def __init__(self, message: str) -> None:
        self.message = message
        super().__init__(message)

    def __str__(self) -> str:
        return (
            "bitemporal() cannot tell what was believed of a row that moved to another key, if something of "
            "the old key arrived after the move and is true before it; as_known() can, for each moment.  The "
            f"message of the move: {self.message}."
        )


def inherit_words(
    batches: Iterable[pa.RecordBatch], layout: Layout, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """
    The words that moves took along, as changes of the new keys.

    Args:
        batches: The changes of whole families, sorted by `FAMILY`, identity and the order of changes,
            truncates first; with the columns `MOVE` and `own_…`.
        layout: Of their columns.
        schema: Of the result: theirs, but for these.
    """
    for table in order_entities(batches, layout, (FAMILY,)):
        changes = Changes.from_table(table, layout)
        entity = np.cumsum(first_of_entity(table, layout.identity), dtype=np.int64)
        keep = ~changes.find_repeats(entity)
        moves = _moves(changes, keep)
        if len(moves.leaving):
            # Of a family that is told of in part, some keys have no change that moves.
            keep &= np.isin(entity, entity[np.concatenate(moves)])
            number = np.cumsum(keep) - 1
            moves = _Moves(number[moves.leaving], number[moves.arriving])
            changes, entity = changes.where(keep), entity[keep]
            if f"own_{ARRIVED}" in table.schema.names:
                _require_at_once(changes, entity, moves)
            yield _with_own_places(
                changes, _inherited_words(changes, entity, _find_inherited(changes, entity, moves)), schema
            )


class _Moves(NamedTuple):
    """The changes by which rows moved, pair by pair."""

    leaving: Ints
    """Positions of the deletes of old keys."""
    arriving: Ints
    """Positions of the upserts of the new ones."""


def _moves(changes: Changes, counts: Bools) -> _Moves:
    """
    The moves of which both changes are there.

    Should several have one name, the first delete belongs to the first upsert, and so on.
    """
    move = changes.table.column(MOVE)
    is_part = counts & np.asarray(move.is_valid())
    name = ints(move.dictionary_encode().indices.fill_null(NOWHERE))
    sides = []
    for side in (changes.is_delete, ~changes.is_delete):
        at = np.flatnonzero(is_part & side)
        at = at[np.argsort(name[at], kind="stable")]
        first = np.searchsorted(name[at], name[at])
        sides.append((name[at] * len(changes) + np.arange(len(at)) - first, at))
    (left, leaving), (right, arriving) = sides
    _, left_at, other = np.intersect1d(left, right, assume_unique=True, return_indices=True)
    return _Moves(leaving[left_at], arriving[other])


def _require_at_once(changes: Changes, entity: Ints, moves: _Moves) -> None:
    """Raise `LateMoves` unless all up to the delete of an old key had arrived with its upsert."""
    arrived = ints(changes.table.column(f"own_{ARRIVED}"))
    # Ranks, so that a running maximum of (entity, rank) needs no restart.
    rank = np.unique(arrived, return_inverse=True)[1]
    several = len(rank) + 1
    last = np.maximum.accumulate(entity * several + rank) - entity * several
    late = last[moves.leaving] > rank[moves.arriving]
    if late.any():
        raise LateMoves(changes.table.column("message_id")[int(moves.arriving[late][0])].as_py())


class _InheritedValues(NamedTuple):
    """Values that are taken along, one by one."""

    arriving: Ints
    """Positions of the upserts that did not send them."""
    origin: Ints
    """Positions of the changes that said them."""
    field: Ints
    """Which field."""


_NOTHING = _InheritedValues(*[np.zeros(0, np.int64)] * 3)


def _find_inherited(changes: Changes, entity: Ints, moves: _Moves) -> _InheritedValues:
    taken = _NOTHING
    for _ in range(len(moves.leaving) + 1):
        before, taken = taken, _inherit_standing(changes, entity, moves, taken)
        if all(map(np.array_equal, before, taken)):
            return taken
    raise CircularMoves(changes.table.column("message_id")[int(moves.leaving[0])].as_py())


def _inherit_standing(
    changes: Changes, entity: Ints, moves: _Moves, taken: _InheritedValues
) -> _InheritedValues:
    """Find what stands before each delete and its upsert did not send, given what was taken along so far."""
    words = _inherited_words(changes, entity, taken)
    all_, origin, of = _insert_words(changes, entity, words)
    starts = origin[:, 0] == NOWHERE
    place = np.empty(len(changes), np.int64)
    place[origin[starts, 1]] = np.flatnonzero(starts)
    leaving = place[moves.leaving]
    if all_.has_ends:
        standing, of, leaving = _standing_changes(all_, of, leaving)
        all_, origin = all_.take(standing), origin[standing]
    counts = counting_changes(all_, of)
    then, of, origin = all_.where(counts), of[counts], origin[counts]
    did, number, counted = steps(then, of), np.cumsum(counts) - 1, counts[leaving]
    # A delete that counts is never the first change of its key.
    before, arriving = number[leaving][counted] - 1, moves.arriving[counted]
    alive = ~did.dead[before]
    before, arriving = before[alive], arriving[alive]
    all_values = [_NOTHING]
    for index in set(range(len(changes.layout.fields))) - set(changes.layout.keys):
        stands = field(then, did, index, then.field_priority(index)).standing[before]
        unsent = (stands != NOWHERE) & ~changes.carries(index)[arriving]
        at = stands[unsent]
        source_rows = np.where(origin[at, 0] == NOWHERE, origin[at, 1], origin[at, 0])
        all_values.append(_InheritedValues(arriving[unsent], source_rows, np.full(len(at), index)))
    arriving, source_rows, fields = (np.concatenate(part) for part in zip(*all_values, strict=True))
    order = np.lexsort((fields, source_rows, arriving))
    return _InheritedValues(arriving[order], source_rows[order], fields[order])


def _standing_changes(changes: Changes, entity: Ints, leaving: Ints) -> tuple[Ints, Ints, Ints]:
    """Find of moves the changes that hold at the delete; of which move each is; where the deletes are."""
    first = np.searchsorted(entity, entity[leaving])
    size = leaving + 1 - first
    move = np.repeat(np.arange(len(leaving)), size)
    position = np.arange(len(move)) - np.repeat(np.cumsum(size) - size, size) + first[move]
    holds = changes.until()[position] > changes.instants()[leaving][move]
    return position[holds], move[holds] + 1, np.cumsum(np.bincount(move[holds])) - 1


class _InheritedWords(NamedTuple):
    """What is taken along as changes: of each upsert, one for each change that said some of it."""

    table: pa.RecordBatch
    arriving: Ints
    origin: Ints


def _inherited_words(changes: Changes, entity: Ints, taken: _InheritedValues) -> _InheritedWords:
    layout = changes.layout
    new = np.ones(len(taken.field), dtype=bool)
    new[1:] = (np.diff(taken.arriving) != 0) | (np.diff(taken.origin) != 0)
    arriving, origin, word_of = taken.arriving[new], taken.origin[new], np.cumsum(new) - 1
    at, source_rows, count = pa.array(arriving), pa.array(origin), len(arriving)
    columns = {name: changes.table.column(name).take(at) for name in changes.table.schema.names}
    kinds = {name: column.type for name, column in columns.items()}
    carried = [np.zeros(count, np.int64) for _ in carried_words(layout.fields)]
    for index in range(len(layout.fields)):
        if index not in layout.keys:
            word, bit = divmod(index, WORD)
            carried[word][word_of[taken.field == index]] |= 1 << bit
            priority = changes.field_priority_at(index, origin).astype(np.int32)
            columns[priority_column(index)] = pa.array(priority)
            columns[value_column(index)] = changes.values_at(index, origin)
    columns |= {carried_column(word): pa.array(bits) for word, bits in enumerate(carried)}
    columns["message_id"] = changes.table.column("message_id").take(source_rows)
    columns["operation"] = pa.array(np.full(count, OPERATIONS.index(UPSERT)), kinds["operation"])
    columns["priority"] = pa.array(np.full(count, NO_PRIORITY), kinds["priority"])
    columns["record_number"] = pa.array(_numbers(entity[arriving]), kinds["record_number"])
    columns[MOVE] = pa.nulls(count, kinds[MOVE])
    return _InheritedWords(make_batch(columns, changes.table.schema), arriving, origin)


def _numbers(entity: Ints) -> Ints:
    """Numbers of records that no other change of an entity has."""
    order = np.argsort(entity, kind="stable")
    first = np.searchsorted(entity[order], entity[order])
    numbers = np.empty(len(entity), np.int64)
    numbers[order] = TAKEN_ALONG + np.arange(len(entity)) - first
    return numbers


def _insert_words(changes: Changes, entity: Ints, words: _InheritedWords) -> tuple[Changes, Ints, Ints]:
    """
    The changes with the words behind their upserts; where each one is from; and their entities.

    Where one is from are two numbers: of a word the position of the change that said it, or `NOWHERE`; and
    the position of the change, or of the upsert.
    """
    count = len(changes)
    own_rows = np.stack([np.full(count, NOWHERE), np.arange(count)], axis=1)
    origin = np.concatenate([own_rows, np.stack([words.origin, words.arriving], axis=1)])
    order = np.argsort(origin[:, 1], kind="stable")
    both = pa.Table.from_batches([changes.table, words.table]).combine_chunks().to_batches()[0]
    among = Changes(both.take(pa.array(order)), changes.layout)
    return among, origin[order], entity[origin[order, 1]]


def _with_own_places(changes: Changes, words: _InheritedWords, schema: pa.Schema) -> pa.RecordBatch:
    """The words at the places that their upserts say themselves."""
    names = words.table.schema.names
    own_columns = {name: words.table.column(f"own_{name}") for name in OWN if f"own_{name}" in names}
    columns = dict(zip(names, words.table.columns, strict=True))
    return make_batch({**columns, **own_columns}, schema)


def families(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """
    Find which keys moves connect.

    Args:
        batches: All moves: two numbers, those of the two keys.
        schema: Two numbers: of each key that was named, and of its family.
    """
    pairs = [np.zeros((2, 0), np.int64)]
    pairs += [np.stack([ints(column) for column in batch.columns]) for batch in batches]
    nodes, ends = np.unique(np.concatenate(pairs, axis=1), return_inverse=True)
    first, other = ends.reshape(2, -1)
    family, before = np.arange(len(nodes)), None
    while before is None or not np.array_equal(family, before):
        before = family.copy()
        lower = np.minimum(family[first], family[other])
        for end in (first, other):
            np.minimum.at(family, family[end], lower)
        family = family[family]
    yield make_batch({schema.names[0]: pa.array(nodes), schema.names[1]: pa.array(nodes[family])}, schema)


_NODE, _OTHER = "node", "other"
_FAMILIES = T.StructType().add(_NODE, T.LongType()).add(FAMILY, T.LongType())

_COMPLETE = "cdckit.complete"

SHARES = 1 << 12
"""Into how many shares what is read together falls by a hash, each of which is given every truncate: many
more than there are tasks, so that tasks have about as much to do."""


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
        MissingColumns, WrongColumnType: *changes* do not say which rows moved.

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
    require_columns(changes, [MOVED], function="complete_moves")
    require_moves(changes, [], function="complete_moves")
    return changes.withMetadata(MOVED, {_COMPLETE: True})


def with_moves(
    changes: DataFrame,
    keys: Sequence[str],
    *,
    function: str,
    at_once: bool = False,
    known: DataFrame | None = None,
) -> DataFrame:
    """
    The changes without `moved`, and beside them the words that rows took along when their keys changed.

    Where nobody said `complete_moves`, there are none, and a row that would need them ends the computation.
    With changes that bring their identity it raises `InvalidArgument`: those say nothing of moves.

    Args:
        changes: One row per change, with `moved` (`cdckit.model.CHANGE_SCHEMA`).
        keys: As for `merge`.
        function: Who asks, for errors.
        at_once: Whether a word that became known later than its move is an error (`LateMoves`).
        known: Those of the changes of which rows take along what they say; all of them without it.
    """
    if brings_identity(changes, keys):
        needed = "without the column `moved` where their guids say which entity they are about: drop it"
        raise InvalidArgument(function, "changes", needed, changes.columns)
    changes = usable_changes(changes)
    if not changes.schema[MOVED].metadata.get(_COMPLETE):
        return _refuse_incomplete(changes, keys, function)
    statements = changes if known is None else known
    words = find_inherited_words(statements, keys, function=function, at_once=at_once)
    plain = _with_all_priorities(with_comings(changes))
    return plain.unionByName(words, allowMissingColumns=True)


def _refuse_incomplete(changes: DataFrame, keys: Sequence[str], function: str) -> DataFrame:
    """The changes without `moved`; one that gave a row another key, but not all its values, is an error."""
    names = require_struct(changes, "data", function=function).fieldNames()
    has_all = reduce(
        and_, (F.col("carried").getField(name) for name in names if name not in keys), F.lit(True)
    )
    has_moved = F.col(MOVED).isNotNull() & (F.col("operation") == UPSERT)
    text = (
        f" gave a row another key, but not all of its values: {function}(complete_moves(changes), …) takes"
        " them along from the old key.  To merge without them, drop the column `moved`."
    )
    refused = F.raise_error(F.concat(F.lit("The message "), "message_id", F.lit(text))).cast("int")
    priority = F.when(has_moved & ~has_all, refused).otherwise(F.col("priority"))
    return with_comings(changes.withColumn("priority", priority))


def with_comings(changes: DataFrame) -> DataFrame:
    """The changes with `MOVED_HERE` instead of `moved`."""
    comes = F.col(MOVED).isNotNull() & (F.col("operation") == UPSERT)
    return changes.withColumn(MOVED_HERE, comes).drop(MOVED)


def find_inherited_words(
    changes: DataFrame, keys: Sequence[str], *, function: str, at_once: bool = False
) -> DataFrame:
    """
    The words that rows took along when their keys changed, as changes of their new keys.

    Returns:
        The columns of changes, `field_priorities` among them; `arrival.record_number` says that they are such
        words (`cdckit.merging.arrow_changes.TAKEN_ALONG` and more).

    Cost: the moves are read, and in one task put together to families of keys; then the changes of these
    families are sorted and pass through Python.  To find those, all changes are shuffled by key.
    """
    require_moves(changes, keys, function=function)
    data = require_struct(changes, "data", function=function)
    names = data.fieldNames()
    complete = _with_all_priorities(changes)
    has_guid, is_placed = GUID in changes.columns, SNAPSHOT in changes.columns
    layout = Layout(
        fields=tuple(names),
        keys=tuple(names.index(key) for key in keys),
        field_priorities=frozenset(range(len(names))),
        by_guid=False,
        entity=None,
        has_guid=has_guid,
    )
    order = ("effective_timestamp", "sequence", "arrival", "message_id", "source")
    rows = complete.withColumns(
        {_NODE: _key_number("data", keys, data), MOVE: _move_name(keys, data)}
    ).selectExpr(
        _NODE,
        MOVE,
        f"{MOVE} IS NOT NULL AND operation = '{UPSERT}' AS {MOVED_HERE}",
        *([GUID] if has_guid else []),
        *order,
        *(name for name in (SNAPSHOT, UNTIL) if name in changes.columns),
        *flat_columns(names, names, is_placed),
        *(f"{name} AS own_{name}" for name in OWN if name != SNAPSHOT or is_placed),
        *([f"arrival.timestamp AS own_{ARRIVED}"] if at_once else []),
    )
    other = F.when(complete["operation"] == UPSERT, _key_number(f"{MOVED}.old_key", keys, data)).otherwise(
        _key_number(f"{MOVED}.new_key", keys, data)
    )
    # Spark would follow what a filter says through every alias above it, and plan for minutes where the
    # changes are made by long expressions; of a filter that is not determined by the row it says nothing.
    has_moved = F.col(MOVED).isNotNull() & (F.rand(0) >= 0)
    edges = complete.where(has_moved).select(
        _key_number("data", keys, data).alias(_NODE), other.alias(_OTHER)
    )
    in_one = partial(families, schema=arrow_schema(_FAMILIES, large=True))
    family = WorkerPlan(edges.repartition(1), in_one, _FAMILIES, large=True).rows()
    is_truncate = F.col("operation").eqNullSafe(OPERATIONS.index(TRUNCATE))
    words = rows.where(~is_truncate).join(family, _NODE, "inner")
    shared = words.withColumn("share", F.pmod(FAMILY, F.lit(SHARES)))
    if is_placed:
        shares = F.explode(F.sequence(F.lit(0).cast("long"), F.lit(SHARES - 1).cast("long")))
        nowhere = F.lit(0).cast("long").alias(FAMILY)
        truncates = rows.where(is_truncate).select(*rows.columns, nowhere, shares.alias("share"))
        shared = shared.unionByName(truncates)
    together = shared.repartition("share").drop("share", _NODE)
    ordered = together.sortWithinPartitions(is_truncate.desc(), FAMILY, *layout.identity, *order)
    kept = rows.drop(_NODE, MOVE, MOVED_HERE).schema
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
    names = require_struct(changes, "data", function="merge").fieldNames()
    stated: list[str] = []
    if "field_priorities" in changes.columns:
        stated = require_struct(changes, "field_priorities", function="merge").fieldNames()
    priorities = [
        (F.col("field_priorities").getField(name) if name in stated else F.lit(None).cast("int")).alias(name)
        for name in names
    ]
    return changes.withColumn("field_priorities", F.struct(*priorities))


def _as_changes(flat: DataFrame, like: DataFrame) -> DataFrame:
    """Changes in the columns of the kernel as such in those of *like*."""
    names = require_struct(like, "data", function="merge").fieldNames()

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
