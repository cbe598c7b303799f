"""
Keys that shift: a row comes to a key that another row has not left yet, both at one instant.

`UPDATE t SET id = id + 1` is told as 1 → 2, then 2 → 3: in between, two rows have the key 2.  The databases
that allow it check keys where the statement or the transaction ends, so in the end one of the two has left.
It is the one that had the key first: the newcomer has just come.  So its leaving counts right before the
newcomer's coming, and everything else follows, also what each of them takes along.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdckit.merging.arrow_changes import MOVED_HERE, Changes, Layout
from cdckit.parts.arrays import Bools, Ints, bools, first_of_entity, group_starts, number_texts


def with_leavers_first(table: pa.RecordBatch, layout: Layout) -> pa.RecordBatch:
    """
    Changes of whole entities in their order, but that a row leaves a key before the one after it comes.

    Args:
        table: The changes, with `MOVED_HERE`, which the result lacks.
        layout: Of their columns.
    """
    comes = bools(pc.fill_null(table.column(MOVED_HERE), False))
    table = table.select([name for name in table.schema.names if name != MOVED_HERE])
    if not comes.any():
        return table
    changes, place = Changes.from_table(table, layout), np.arange(table.num_rows, dtype=np.float64)
    entity = np.cumsum(first_of_entity(table, layout.identity), dtype=np.int64)
    for leaving, newcomer in _leavers(changes, entity, comes):
        place[leaving] = newcomer - 0.5
    return table.take(pa.array(np.argsort(place, kind="stable")))


def _leavers(changes: Changes, entity: Ints, comes: Bools) -> Iterator[tuple[int, int]]:
    """The deletes by which rows leave a key behind the coming of the one after them, each with that."""
    source = number_texts(changes.table.column("source"))
    instants, until = changes.instants(), changes.until()
    rows = np.lexsort((source, entity))
    rows = rows[~changes.find_repeats(entity)[rows]]
    of_source = np.cumsum(group_starts(entity[rows], source[rows]), dtype=np.int64)
    moment = np.cumsum(group_starts(of_source, instants[rows]), dtype=np.int64)
    leaves = changes.is_delete & ~changes.is_absence
    for number in np.intersect1d(moment[comes[rows]], moment[leaves[rows]]):
        begin, end = np.searchsorted(moment, [number, number + 1])
        before = rows[begin - 1 : begin] if begin and of_source[begin - 1] == of_source[begin] else rows[:0]
        is_there = bool((~changes.is_delete[before] & (until[before] > instants[rows[begin]])).any())
        newcomers: list[int] = []
        for row in map(int, rows[begin:end]):
            if not changes.is_delete[row]:
                if comes[row] and is_there:
                    newcomers.append(row)
                is_there = True
            elif leaves[row] and newcomers:
                yield row, newcomers.pop(0)
            else:
                is_there, newcomers = False, []
