"""What Spark's Python workers make of Arrow batches: rows of a DataFrame, or Parquet files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from cdckit.files import put
from cdckit.parts.arrow_types import arrow_schema, batch_of, with_texts

_ROWS_AT_ONCE = 1 << 16
_BYTES_AT_ONCE = 1 << 26
_MOST_BYTES = (1 << 31) - 1

Function = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True)
class Made:
    """
    What workers make of the partitions of a table; nothing is computed yet.

    Args:
        of: The table.
        by: Is given the batches of one partition, and yields batches of exactly *columns*; in those the
            texts and bytes may be large ones or not, Spark takes either.
        columns: The columns, all nullable.
        large: Whether *by* is given all texts and bytes as Arrow's large ones, or none, whatever
            the session has set for `spark.sql.execution.arrow.useLargeVarTypes`.
    """

    of: DataFrame
    by: Function
    columns: T.StructType
    large: bool = False

    def rows(self) -> DataFrame:
        """What they make, as rows of a DataFrame."""
        return self.of.mapInArrow(partial(_made, by=self.by, large=self.large), self.columns)

    def batches(self) -> Function:
        """What workers run for it: from the batches of a partition of `of` to those of `columns`."""
        return partial(_made, by=self.by, large=self.large)

    def write(self, folder: Path) -> None:
        """
        Let the workers write what they make, one Parquet file each, into *folder*.

        The rows go neither back to the JVM nor through its own writer, which for wide rows, as those of
        a history, would take longer than making them.  A task that is run twice writes the same file
        twice, and it is there when it is whole.  The workers must see the folder under the same name.
        """
        folder.mkdir(parents=True, exist_ok=True)
        by = partial(_made, by=self.by, large=self.large)
        write = partial(_written, by=by, folder=str(folder), schema=arrow_schema(self.columns, large=True))
        self.of.mapInArrow(write, "rows long").collect()


def _made(batches: Iterable[pa.RecordBatch], by: Function, large: bool) -> Iterator[pa.RecordBatch]:
    return by(_with_texts(batches, large=large))


def _with_texts(batches: Iterable[pa.RecordBatch], *, large: bool) -> Iterator[pa.RecordBatch]:
    """The same rows with all texts and bytes large, or none; those are in batches that fit."""
    for batch in batches:
        schema = pa.schema([one.with_type(with_texts(one.type, large=large)) for one in batch.schema])
        if schema == batch.schema:
            yield batch
        else:
            for piece in [batch] if large else _pieces(batch):
                yield batch_of(dict(zip(schema.names, piece.columns, strict=True)), schema)


def _pieces(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    """The batch in copies of parts, none with more bytes than offsets of 32 bits can tell."""
    if batch.nbytes <= _MOST_BYTES or batch.num_rows < 2:
        return [batch]
    half = batch.num_rows // 2
    halves = (batch.take(pa.array(range(*each))) for each in ((0, half), (half, batch.num_rows)))
    return [piece for some in halves for piece in _pieces(some)]


def _written(
    batches: Iterable[pa.RecordBatch], by: Function, folder: str, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    assert context is not None
    name = f"part-{context.partitionId():05}.parquet"
    # Spark looks past names that begin with a point.
    unfinished = os.path.join(folder, f".{name}.{context.taskAttemptId()}")
    rows = 0
    try:
        with pq.ParquetWriter(unfinished, schema) as writer:
            for table in _row_groups(by(batches), schema):
                writer.write_table(table)
                rows += table.num_rows
        if rows:
            put(unfinished, os.path.join(folder, name))
    finally:
        with suppress(FileNotFoundError):
            os.remove(unfinished)
    yield pa.record_batch({"rows": pa.array([rows], pa.int64())})


def _row_groups(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """The same rows in tables large enough to be read fast, and small enough for a worker."""
    some: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        some.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _ROWS_AT_ONCE or size >= _BYTES_AT_ONCE:
            yield pa.Table.from_batches(some).cast(schema)
            some, rows, size = [], 0, 0
    if some:
        yield pa.Table.from_batches(some).cast(schema)
