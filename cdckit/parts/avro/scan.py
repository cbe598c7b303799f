"""
Which of many datums end where they should: a walk over all of them at once (NumPy).

One wrong datum keeps the native reader from reading any of its batch.  This finds it without
looking at each: every step of the schema is taken by all datums together, each at its own place.
What ends at its last byte is very likely right, what does not is surely wrong; the exact verdict
is `cdckit.parts.avro.strict.find_fault`'s.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cdckit.parts.avro.types import Node

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

_FIXED_WIDTH = {"null": 0, "boolean": 1, "float": 4, "double": 8}
# Of a number, an int's too: the reader takes a long spelling of a short number.
_MOST_BYTES = 10


def can_scan(root: Node) -> bool:
    """Whether no datum repeats anything: the number of steps is the schema's."""
    return root.kind not in ("array", "map") and all(map(can_scan, root.children))


def ends_right(datums: pa.BinaryArray, root: Node) -> Bools:
    """
    Whether each of *datums* (no nulls among them) is used up by *root* to its last byte.

    Cost: some array operations for each type in the schema; about half of what reading costs.
    """
    walk = _Walk(datums)
    walk.step(root, np.arange(len(datums)))
    right: Bools = walk.fits & (walk.place == walk.end)
    return right


class _Walk:
    """Where every datum stands: `place` in the common buffer, `fits` until it is found wrong."""

    def __init__(self, datums: pa.BinaryArray) -> None:
        offsets = np.frombuffer(datums.buffers()[1], np.int32)[
            datums.offset : datums.offset + len(datums) + 1
        ]
        self.place, self.end = offsets[:-1].astype(np.int64), offsets[1:].astype(np.int64)
        self.bytes = np.frombuffer(datums.buffers()[2] or b"\0", np.uint8)
        self.fits = np.ones(len(datums), dtype=bool)

    def step(self, node: Node, rows: Ints) -> None:
        """Let *rows* pass one value of the type *node*."""
        if node.kind == "record":
            for _, child in node.fields:
                self.step(child, rows)
        elif node.kind == "union":
            chosen = self._number(rows)
            self.fits[rows] &= (chosen >= 0) & (chosen < len(node.branches))
            for index, branch in enumerate(node.branches):
                self.step(branch, rows[chosen == index])
        elif node.kind in ("bytes", "string"):
            self._skip(rows, self._number(rows))
        elif node.kind in ("int", "long", "enum"):
            self._number(rows)
        else:
            width = node.size if node.kind == "fixed" else _FIXED_WIDTH[node.kind]
            self._skip(rows, np.full(len(rows), width, np.int64))

    def _skip(self, rows: Ints, count: Ints) -> None:
        # Compared with what remains, not added: a claim of 2^62 bytes must not overflow.
        fits = (count >= 0) & (count <= self.end[rows] - self.place[rows])
        self.fits[rows] &= fits
        self.place[rows] += np.where(fits, count, 0)

    def _number(self, rows: Ints) -> Ints:
        """The variable-length numbers at the places of *rows*, which move behind them."""
        value = np.zeros(len(rows), np.uint64)
        going = np.arange(len(rows))
        for byte in range(_MOST_BYTES):
            at = self.place[rows[going]]
            there = at < self.end[rows[going]]
            self.fits[rows[going[~there]]] = False
            going, at = going[there], at[there]
            found = self.bytes[at].astype(np.uint64)
            value[going] |= (found & np.uint64(0x7F)) << np.uint64(7 * byte)
            self.place[rows[going]] += 1
            going = going[found >= 0x80]
            if not len(going):
                break
        self.fits[rows[going]] = False
        halves: Ints = (value >> np.uint64(1)).astype(np.int64) ^ -((value & np.uint64(1)).astype(np.int64))
        return halves
