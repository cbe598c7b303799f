"""How the messages of a mapping are read: many at once by Arrow while they are plain, the rest by Python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from cdckit.datahub.columns import Columns
from cdckit.datahub.mappings import Place
from cdckit.datahub.plain import plain_form, plain_nodes
from cdckit.datahub.readers import Work
from cdckit.datahub.walk import Message, Path, Walk
from cdckit.parts.plain_json import Unusual

_MANY, _FEW = 1 << 12, 1 << 8
"""How many messages Arrow is given at once, and how many where one of those is unusual."""


class Found(NamedTuple):
    """What messages hold for one mapping, and that as columns, parents before what they hold."""

    walk: Walk
    columns: dict[Path, Columns]


class Reading:
    """The reading of the messages of one mapping, which stands at *place*, in one partition."""

    def __init__(self, work: Work, place: Place) -> None:
        self._work, self._place = work, place
        self._form = plain_form(work.schema, place, work.readers)

    def in_pieces(self, batch: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, Found]]:
        """
        The messages of *batch* in pieces, and what each holds.

        Where a piece is not plain, smaller ones are tried.  If none of those is plain either, no more is
        tried in this partition: then the source does not write what its fields are.
        """
        for many in _pieces(batch, _MANY):
            found = self._if_plain(many)
            if found is not None or self._form is None or many.num_rows <= _FEW:
                yield many, found or self._by_python(many)
                continue
            few = [(each, self._if_plain(each)) for each in _pieces(many, _FEW)]
            if not any(found for _, found in few):
                self._form = None
            for each, found in few:
                yield each, found or self._by_python(each)

    def _if_plain(self, batch: pa.RecordBatch) -> Found | None:
        """None if anything is unusual, an error in a record included."""
        if self._form is None:
            return None
        walk = Walk(self._work, self._place)
        root: Path = ((None, self._place),)
        try:
            nodes = plain_nodes(batch.column("data"), self._place, self._form, walk.numbered)
            columns = Columns(nodes, self._work.schema, None)
        except Unusual:
            return None
        walk.nodes[root] = nodes
        return None if columns.faults else Found(walk, {root: columns})

    def _by_python(self, batch: pa.RecordBatch) -> Found:
        walk = Walk(self._work, self._place)
        names = ("message_identifier", "source_system", "source_entity", "options", "data")
        for row, values in enumerate(zip(*(batch.column(name).to_pylist() for name in names), strict=True)):
            walk.read(Message(row, *values))
        columns: dict[Path, Columns] = {}
        # A path is longer than the one above it, so parents come first.
        for path in sorted(walk.nodes, key=len):
            columns[path] = Columns(walk.nodes[path], self._work.schema, columns.get(path[:-1]))
        return Found(walk, columns)


def _pieces(batch: pa.RecordBatch, size: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, batch.num_rows, size):
        yield batch.slice(start, size)
