"""Records in their places: which of a partition are new, came before, or stand where another one does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from cdckit.parts.arrays import Bools

Values = dict[int, set[bytes | int | None]]
"""By offset the values of the records that stand there."""


class RecordPlaces:
    """
    The records of one partition of a topic, as they come in the order of their offsets.

    Args:
        last_offset: That of the last record that came before.
        earlier_values: What came before, from one offset to another, both included.

    >>> places = RecordPlaces(1, lambda low, high: {0: {b"a"}, 1: {b"b"}})
    >>> values = pa.array([b"a", b"?", b"c", b"c", b"d"])
    >>> rows = pa.record_batch({"offset": [0, 1, 2, 2, 2], "value": values})
    >>> for which in places.find_repeats(rows):
    ...     print(which.tolist())
    [True, False, False, True, False]
    [False, True, False, False, True]
    """

    def __init__(self, last_offset: int, earlier_values: Callable[[int, int], Values]) -> None:
        self._last_offset, self._earlier_values = last_offset, earlier_values
        self._offset, self._values = -1, set[bytes | int | None]()
        """What stands in the place of the last record."""

    def find_repeats(self, rows: pa.RecordBatch) -> tuple[Bools, Bools]:
        """Find the rows that came before, and those in the place of others or behind the last."""
        offsets, values = np.asarray(rows.column("offset")), rows.column("value")
        is_repeat, is_misplaced = np.zeros(len(offsets), bool), np.zeros(len(offsets), bool)
        is_behind = offsets <= self._last_offset
        earlier: Values = {}
        if is_behind.any():
            behind = offsets[is_behind]
            earlier = self._earlier_values(int(behind[0]), int(behind[-1]))
        stands_again = np.diff(offsets, prepend=self._offset) == 0
        for row in np.flatnonzero(is_behind | stands_again).tolist():
            offset, value = int(offsets[row]), values[row].as_py()
            if offset != self._offset:
                taken = earlier.get(offset, set()) if is_behind[row] else {values[row - 1].as_py()}
                self._offset, self._values = offset, set(taken)
            (is_repeat if value in self._values else is_misplaced)[row] = True
            self._values.add(value)
        if len(offsets) and offsets[-1] != self._offset:
            self._offset, self._values = int(offsets[-1]), {values[len(offsets) - 1].as_py()}
        return is_repeat, is_misplaced
