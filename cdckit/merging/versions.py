"""The rows of a history: from the changes of whole entities to their versions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pyarrow as pa

from cdckit.merging.arrow_changes import GUID, Changes, Layout, value_column
from cdckit.merging.ends import Versions, versions_with_ends
from cdckit.merging.log_order import order_entities
from cdckit.merging.precedence import effective
from cdckit.merging.states import States, states
from cdckit.model.history import FIELD_PROVENANCE
from cdckit.parts.arrays import (
    BYTES_AT_ONCE,
    NEVER,
    NOWHERE,
    ROWS_AT_ONCE,
    Bools,
    Ints,
    first_of_entity,
    group_starts,
    positions,
)
from cdckit.parts.arrow_types import make_batch
from cdckit.parts.guids import guids


def portions(changes: Changes, rows: int) -> Iterator[slice]:
    """
    Cut rows into as many at once as an Arrow batch should hold.

    A version repeats the message of every field, so of one entity with very many changes the versions
    would be larger than the changes themselves.
    """
    row_bytes = 1 + changes.table.nbytes // max(1, changes.table.num_rows)
    at_once = max(1, min(ROWS_AT_ONCE, BYTES_AT_ONCE // row_bytes))
    for start in range(0, rows, at_once):
        yield slice(start, start + at_once)


def version_rows(
    changes: Changes, versions: Versions, schema: pa.Schema, more: Mapping[str, pa.Array] | None = None
) -> pa.RecordBatch:
    """
    The versions as rows of *schema*.

    Args:
        changes: What the positions are positions of.
        versions: Which ones.
        schema: The columns of a history, and of *more* where they belong.
        more: Further columns by name.
    """
    states, layout, message = versions.states, changes.layout, changes.table.column("message_id")
    kind = changes.table.schema.field("effective_timestamp").type
    provenance = [_provenance(changes, states.row, changes.priority[states.row])]
    key_priorities = iter(states.key_priorities)
    for index, stands in enumerate(states.standing):
        is_key = index in layout.keys
        priority = next(key_priorities) if is_key else changes.field_priority_at(index, stands)
        provenance.append(_provenance(changes, stands, priority))
    fixed = {
        GUID: version_guids(changes, states),
        "valid_from_timestamp": pa.array(versions.begin).cast(kind),
        "valid_to_timestamp": pa.array(versions.end, mask=versions.end == NEVER).cast(kind),
        "deleted_indicator": pa.array(states.dead),
        "source_message": message.take(pa.array(states.source_row)),
        FIELD_PROVENANCE: pa.StructArray.from_arrays(
            provenance, fields=list(schema.field(FIELD_PROVENANCE).type)
        ),
        **(more or {}),
    }
    fields = {name: field_values(changes, states, index) for index, name in enumerate(layout.fields)}
    return make_batch({**fields, **fixed}, schema)


def version_guids(changes: Changes, states: States) -> pa.Array:
    """The guid of the entity of each state; null where the workers cannot make it."""
    layout, table = changes.layout, changes.table
    if layout.by_guid or layout.has_guid:
        return table.column(GUID).take(pa.array(states.ends))
    if layout.entity is None:
        return pa.nulls(len(states.ends), pa.string())
    first = group_starts(states.entity)
    at = pa.array(states.ends[first])
    key = {layout.fields[i]: table.column(value_column(i)).take(at) for i in layout.keys}
    return guids(layout.entity, key).take(pa.array(np.cumsum(first) - 1))


def field_values(changes: Changes, states: States, index: int) -> pa.Array:
    """The values of the field at *index*: one that is the identity shows it, carried or not."""
    stands = states.ends if changes.layout.tells_apart(index) else states.standing[index]
    return changes.values_at(index, stands)


def _provenance(changes: Changes, stands: Ints, priority: Ints) -> pa.Array:
    """Message and priority of each version, null where nothing stands."""
    at = positions(stands)
    message = changes.table.column("message_id").take(at)
    said_with = pa.array(priority.astype(np.int32), mask=stands == NOWHERE)
    return pa.StructArray.from_arrays([message, said_with], names=["m", "p"], mask=at.is_null())


def versions(
    batches: Iterable[pa.RecordBatch], layout: Layout, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The versions of every entity in *batches*, sorted by identity and then by the order of changes."""
    for table in order_entities(batches, layout):
        changes = Changes.from_table(table, layout)
        entity = np.cumsum(first_of_entity(table, layout.identity), dtype=np.int64)
        keep = may_matter(changes, entity)
        if not keep.all():
            changes, entity = changes.where(keep), entity[keep]
        del table  # Of one large entity, what does not count need not be held while the rest is written.
        if len(changes):
            all_versions = find_versions(changes, entity)
            for some in portions(changes, len(all_versions.begin)):
                yield version_rows(changes, all_versions.at(some), schema)


def may_matter(changes: Changes, entity: Ints) -> Bools:
    """Find the changes that count; where some end, all but repeats: the rest depends on the instant."""
    keep = ~changes.find_repeats(entity)
    if changes.has_ends and (changes.until()[keep] != NEVER).any():
        return keep
    return effective(changes, entity, keep)


def find_versions(changes: Changes, entity: Ints) -> Versions:
    """The versions that come of changes that may count; entities are numbered from 1, growing."""
    if changes.has_ends:
        return versions_with_ends(changes, entity)
    begun = states(changes, entity)
    begin = changes.instants()[begun.ends]
    end = np.full(len(begin), NEVER)
    end[:-1] = np.where(begun.entity[1:] == begun.entity[:-1], begin[1:], NEVER)
    return Versions(begun, begin, end)
