"""From the sorted changes of whole entities to their versions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from cdckit.kernel.changes import Changes
from cdckit.kernel.counted_changes import counting
from cdckit.kernel.entities import first_of_entity
from cdckit.kernel.history_rows import following, portions, written
from cdckit.kernel.layout import Layout
from cdckit.kernel.places import placed_entities
from cdckit.kernel.states import states


def versions(
    batches: Iterable[pa.RecordBatch], layout: Layout, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The versions of every entity in *batches*, sorted by identity and then by the order of changes."""
    for table in placed_entities(batches, layout):
        changes = Changes.of(table, layout)
        entity = np.cumsum(first_of_entity(table, layout.identity), dtype=np.int64)
        keep = counting(changes, entity)
        if not keep.all():
            changes, entity = changes.where(keep), entity[keep]
        del table  # Of one large entity, what does not count need not be held while the rest is written.
        if len(changes):
            begun = states(changes, entity)
            after = following(begun)
            for some in portions(changes, len(after)):
                yield written(changes, begun.at(some), after[some], schema)
