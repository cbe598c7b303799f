"""From states, which are positions, to the rows of a history."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from cdckit.history import FIELD_PROVENANCE
from cdckit.kernel.arrays import positions
from cdckit.kernel.changes import Changes
from cdckit.kernel.entities import BYTES_AT_ONCE, ROWS_AT_ONCE
from cdckit.kernel.layout import GUID, value_column
from cdckit.kernel.states import States
from cdckit.parts.arrow_types import batch_of
from cdckit.parts.identifiers import guids
from cdckit.parts.running_aggregates import NOWHERE, Ints


def following(states: States) -> Ints:
    """For each version the last change of the next one of the same entity, or `NOWHERE`."""
    after = np.full(len(states.ends), NOWHERE)
    after[:-1] = np.where(states.entity[1:] == states.entity[:-1], states.ends[1:], NOWHERE)
    return after


def portions(changes: Changes, rows: int) -> Iterator[slice]:
    """
    As many rows at once as an Arrow batch should hold.

    A version repeats the message of every field, so of one entity with very many changes the versions
    would be larger than the changes themselves.
    """
    row_bytes = 1 + changes.table.nbytes // max(1, changes.table.num_rows)
    at_once = max(1, min(ROWS_AT_ONCE, BYTES_AT_ONCE // row_bytes))
    for start in range(0, rows, at_once):
        yield slice(start, start + at_once)


def written(
    changes: Changes,
    states: States,
    after: Ints,
    schema: pa.Schema,
    more: Mapping[str, pa.Array] | None = None,
) -> pa.RecordBatch:
    """
    The versions as rows of *schema*.

    Args:
        changes: What the positions are positions of.
        states: Where versions begin.
        after: The change with whose instant each version ends, or `NOWHERE`.
        schema: The columns of a history, and of *more* where they belong.
        more: Further columns by name.
    """
    begins, message = (changes.table.column(name) for name in ("effective_timestamp", "message_id"))
    layout = changes.layout
    provenance = [_provenance(changes, states.row, changes.priority[states.row])]
    key_priorities = iter(states.key_priorities)
    for index, stands in enumerate(states.standing):
        is_key = index in layout.keys
        priority = next(key_priorities) if is_key else changes.field_priority_at(index, stands)
        provenance.append(_provenance(changes, stands, priority))
    fixed = {
        GUID: _guids(changes, states),
        "valid_from_timestamp": begins.take(pa.array(states.ends)),
        "valid_to_timestamp": begins.take(positions(after)),
        "deleted_indicator": pa.array(states.dead),
        "source_message": message.take(pa.array(states.said_by)),
        FIELD_PROVENANCE: pa.StructArray.from_arrays(
            provenance, fields=list(schema.field(FIELD_PROVENANCE).type)
        ),
        **(more or {}),
    }
    fields = {name: _shown(changes, states, index) for index, name in enumerate(layout.fields)}
    return batch_of({**fields, **fixed}, schema)


def _guids(changes: Changes, states: States) -> pa.Array:
    layout, table = changes.layout, changes.table
    if layout.by_guid or layout.has_guid:
        return table.column(GUID).take(pa.array(states.ends))
    if layout.entity is None:
        return pa.nulls(len(states.ends), pa.string())
    first = np.ones(len(states.ends), dtype=bool)
    first[1:] = states.entity[1:] != states.entity[:-1]
    at = pa.array(states.ends[first])
    key = {layout.fields[i]: table.column(value_column(i)).take(at) for i in layout.keys}
    return guids(layout.entity, key).take(pa.array(np.cumsum(first) - 1))


def _shown(changes: Changes, states: States, index: int) -> pa.Array:
    """A field's values: one that is the identity shows it, carried or not."""
    stands = states.ends if changes.layout.tells_apart(index) else states.standing[index]
    return changes.values_at(index, stands)


def _provenance(changes: Changes, stands: Ints, priority: Ints) -> pa.Array:
    """Message and priority of each version, null where nothing stands."""
    at = positions(stands)
    message = changes.table.column("message_id").take(at)
    said_with = pa.array(priority.astype(np.int32), mask=stands == NOWHERE)
    return pa.StructArray.from_arrays([message, said_with], names=["m", "p"], mask=at.is_null())
