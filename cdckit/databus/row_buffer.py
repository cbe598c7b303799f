"""Rows that wait for the end of their window: in memory as long as they are few, then in a file."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import IO

import pyarrow as pa

MAX_BYTES = 1 << 26
"""The most bytes that are held in memory: 64 MiB."""


def _nothing() -> Iterable[pa.RecordBatch]:
    return ()


class Held:
    """
    Batches of one schema, given back once in the order in which they came.

    Args:
        before: Those that came before and lie somewhere else; asked for once, when all are given back.
    """

    def __init__(self, before: Callable[[], Iterable[pa.RecordBatch]] = _nothing) -> None:
        self._before, self._bytes = before, 0
        self._batches: list[pa.RecordBatch] = []
        self._file: IO[bytes] | None = None
        self._writer: pa.RecordBatchStreamWriter | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        """Hold one more batch."""
        self._batches.append(batch)
        self._bytes += batch.nbytes
        if self._bytes > MAX_BYTES:
            if self._writer is None:
                self._file = tempfile.TemporaryFile()  # noqa: SIM115 - it is closed when it was read
                self._writer = pa.ipc.new_stream(self._file, batch.schema)
            for each in self._batches:
                self._writer.write_batch(each)
            self._batches, self._bytes = [], 0

    def take(self) -> Iterator[pa.RecordBatch]:
        """Give all batches back, and hold none any more."""
        before, self._before = self._before, _nothing
        yield from before()
        yield from self.take_new()

    def take_new(self) -> Iterator[pa.RecordBatch]:
        """The same without those that came before."""
        batches, file, writer = self._batches, self._file, self._writer
        self._batches, self._bytes, self._file, self._writer = [], 0, None, None
        if file is not None and writer is not None:
            writer.close()
            file.seek(0)
            with file, pa.ipc.open_stream(file) as reader:
                yield from reader
        yield from batches
