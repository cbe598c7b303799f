"""
An open version as the changes that lead to it, from which its entity goes on.

An open version carries the whole state of its entity: values, deletion, and for the row and every
field the message and the priority that each has its value from.  So a few changes lead to that state:
one upsert per message, each carrying the fields that are from it with their own priorities; the first
of them is the row's, the others speak for the row with the least priority that there is, which never
changes it; and at the end, if the entity is deleted, a delete with the priorities that the fields have.
What later changes do depends on the state alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from cdckit.merging.arrow_changes import (
    GUID,
    OPERATIONS,
    WORD,
    Layout,
    carried_column,
    carried_words,
    priority_column,
    value_column,
)
from cdckit.model.changes import DELETE, UPSERT
from cdckit.model.history import DELETED, FIELD_PROVENANCE, VALID_FROM
from cdckit.parts.arrays import NOWHERE, Bools, Ints, bools, ints

_LEAST = -(2**31)
_SOURCE = "\0ledger"
"""The source of such changes: no other change is the same word of the same source."""


class _Origins(NamedTuple):
    """Where each version has its row, and each field, from: messages as numbers, and priorities."""

    texts: pa.Array
    row: Ints
    row_priority: Ints
    fields: list[Ints]
    """`NOWHERE` where the field was never set."""
    priorities: list[Ints]


def resume_changes(open_versions: pa.RecordBatch, layout: Layout) -> pa.RecordBatch:
    """Changes (`cdckit.merging.arrow_changes`), those of a version together, in their order."""
    count = open_versions.num_rows
    origins = _origins(open_versions, layout)
    dead = bools(open_versions.column(DELETED))
    others = _others(origins, count)
    deleted = np.flatnonzero(dead)
    version = np.concatenate([np.arange(count), others.version, deleted])
    message = np.concatenate([origins.row, others.message, origins.row[deleted]])
    step = np.repeat([0, 1, 2], [count, len(others.version), len(deleted)])
    priority = np.full(len(version), _LEAST)
    priority[:count] = origins.row_priority
    priority[step == 2] = origins.row_priority[deleted]
    at = pa.array(version)
    columns = {
        GUID: open_versions.column(GUID).take(at),
        "effective_timestamp": open_versions.column(VALID_FROM).take(at),
        "message_id": origins.texts.take(pa.array(message)),
        "source": pa.array([_SOURCE], pa.large_string()).take(pa.array(np.zeros(len(version), np.int64))),
        "priority": pa.array(priority.astype(np.int32)),
        "operation": pa.array(
            np.where(step == 2, OPERATIONS.index(DELETE), OPERATIONS.index(UPSERT)).astype(np.int8)
        ),
        "record_number": pa.array(np.where(step == 2, _LEAST + 1, _LEAST).astype(np.int32)),
    }
    carried = [np.zeros(len(version), np.int64) for _ in carried_words(layout.fields)]
    for index, name in enumerate(layout.fields):
        is_set = origins.fields[index] != NOWHERE
        rows = others.row_of(origins, index, is_set)
        word, bit = divmod(index, WORD)
        carried[word][rows] |= 1 << bit
        stated = np.full(len(version), 0, np.int32)
        lacking: Bools = np.ones(len(version), dtype=bool)
        stated[rows], lacking[rows] = origins.priorities[index][is_set], False
        stated[step == 2], lacking[step == 2] = origins.priorities[index][deleted], ~is_set[deleted]
        columns[value_column(index)] = open_versions.column(name).take(at)
        columns[priority_column(index)] = pa.array(stated, mask=lacking)
    columns |= {carried_column(word): pa.array(bits) for word, bits in enumerate(carried)}
    return pa.RecordBatch.from_pydict(columns).take(pa.array(np.lexsort((step, version))))


def _origins(open_versions: pa.RecordBatch, layout: Layout) -> _Origins:
    provenance = open_versions.column(FIELD_PROVENANCE)
    entries = [provenance.field(name) for name in (GUID, *layout.fields)]
    count = open_versions.num_rows
    encoded = pa.concat_arrays([entry.field("m") for entry in entries]).dictionary_encode()
    numbers = ints(encoded.indices.fill_null(NOWHERE))
    messages, priorities = [], []
    for place, entry in enumerate(entries):
        has_entry = np.asarray(entry.is_valid())
        messages.append(np.where(has_entry, numbers[place * count : (place + 1) * count], NOWHERE))
        priorities.append(ints(entry.field("p").fill_null(0)))
    return _Origins(encoded.dictionary, messages[0], priorities[0], messages[1:], priorities[1:])


class _Others(NamedTuple):
    """The messages of each version beside that of its row, sorted by version."""

    versions: int
    keys: Ints
    version: Ints
    message: Ints

    def row_of(self, origins: _Origins, index: int, is_set: Bools) -> Ints:
        """Find the change that carries a field, for each version in which it is set."""
        version = np.flatnonzero(is_set)
        message = origins.fields[index][is_set]
        places = self.versions + np.searchsorted(self.keys, version * len(origins.texts) + message)
        rows: Ints = np.where(message == origins.row[is_set], version, places)
        return rows


def _others(origins: _Origins, count: int) -> _Others:
    pairs = [np.zeros(0, np.int64)]
    for messages in origins.fields:
        version = np.flatnonzero((messages != NOWHERE) & (messages != origins.row))
        pairs.append(version * len(origins.texts) + messages[version])
    keys = np.unique(np.concatenate(pairs))
    several = max(1, len(origins.texts))
    return _Others(count, keys, keys // several, keys % several)
