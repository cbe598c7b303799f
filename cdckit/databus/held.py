"""Rows that wait for the end of their window: in memory as long as they are few, then in a file."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import IO

import pyarrow as pa

MAX_BYTES = 1 << 26
"""The most bytes that are held in memory: 64 MiB."""


class Held:
    """Batches of one schema, given back once in the order in which they came."""

    def __init__(self, most: int = MAX_BYTES) -> None:
        self._most, self._bytes = most, 0
        self._batches: list[pa.RecordBatch] = []
        self._file: IO[bytes] | None = None
        self._writer: pa.RecordBatchStreamWriter | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        """Hold one more batch."""
        self._batches.append(batch)
        self._bytes += batch.nbytes
        if self._bytes > self._most:
            if self._writer is None:
                self._file = tempfile.TemporaryFile()  # noqa: SIM115 - it is closed when it was read
                self._writer = pa.ipc.new_stream(self._file, batch.schema)
            for each in self._batches:
                self._writer.write_batch(each)
            self._batches, self._bytes = [], 0

    def take(self) -> Iterator[pa.RecordBatch]:
        """Give all batches back, and hold none any more."""
        batches, file, writer = self._batches, self._file, self._writer
        self._batches, self._bytes, self._file, self._writer = [], 0, None, None
        if file is not None and writer is not None:
            writer.close()
            file.seek(0)
            with file, pa.ipc.open_stream(file) as reader:
                yield from reader
        yield from batches
