"""
Files that workers write, each under a name of its own, in the place where it stays; and small ones together.

Nobody sees a file before a commit names it, so a task that fails, is killed or runs twice leaves
something that is in nobody's way: of each task one attempt reports to the driver.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import partial
from itertools import groupby, pairwise
from typing import Any, Self, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from cdckit.parts.arrow_types import spark_columns
from cdckit.parts.workers import WorkerPlan, local_frame, worker_reports
from cdckit.store.columns import to_stored, true_names
from cdckit.store.files import File, Table, Target, name_metadata, to_json
from cdckit.store.locations import Location
from cdckit.store.reading import read_batches

Rows: TypeAlias = DataFrame | WorkerPlan | Any
"""What can be written: rows of Spark, what workers make, or a small `pyarrow.Table` of this program."""

SMALL_FILE = 32 << 20
"""Bytes: a file of fewer is a small one."""

_ROWS_AT_ONCE = 1 << 16
_BYTES_AT_ONCE = 1 << 26
_WITH_BOUNDS = 32
"""How many columns have bounds in the log, from the first: as many as Delta's other writers give them."""

_LETTERS = 32
_MOST_DIGITS = 15


@dataclass(frozen=True)
class WriteResult:
    """
    What was written.

    Args:
        files: The files; none for no rows.

    >>> from tempfile import TemporaryDirectory
    >>> import pyarrow as pa
    >>> from cdckit.store import Store
    >>> with TemporaryDirectory() as folder, Store(None, folder).begin() as transaction:
    ...     first = transaction.append("products", pa.table({"number": [1, 2]}))
    ...     second = transaction.append("products", pa.table({"number": [3]}))
    >>> (first + second).rows, len((first + second).files)
    (3, 2)
    """

    files: tuple[File, ...] = ()

    @property
    def rows(self) -> int:
        """How many rows."""
        return sum(file.rows for file in self.files)

    def __add__(self, other: WriteResult) -> WriteResult:
        return WriteResult(self.files + other.files)


def row_columns(rows: Rows) -> T.StructType:
    """The columns of rows, under their true names."""
    if isinstance(rows, WorkerPlan):
        return rows.columns
    if isinstance(rows, pa.Table):
        return spark_columns(rows.schema)
    return rows.schema


def write(rows: Rows, target: Target) -> WriteResult:
    """Let the workers write the rows; a job, unless they are a table of this program."""
    target.location.make_folder(target.folder)
    if isinstance(rows, pa.Table):
        result = _write(rows.to_batches(), target)
    else:
        plan = rows if isinstance(rows, WorkerPlan) else _as_plan(rows)
        result = worker_reports(plan, partial(_write, target=target))
    return WriteResult(tuple(parse_report(result, target)))


def _as_plan(rows: DataFrame) -> WorkerPlan:
    """The rows as they are; Spark hands no column to workers whose name has a point in it."""
    numbered = rows.toDF(*(f"c{number}" for number in range(len(rows.columns))))
    return WorkerPlan(numbered, partial(_rename_columns, names=rows.columns), rows.schema, large=True)


def _rename_columns(batches: Iterable[pa.RecordBatch], names: list[str]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.rename_columns(names)


def parse_report(reports: Iterable[dict[str, Any]], target: Target) -> list[File]:
    """The files of which `OpenFiles.close` says this."""
    return [File.from_json(report, target.stored) for report in reports]


# In the workers --------------------------------------------------------------------------------------------


def _write(batches: Iterable[pa.RecordBatch], target: Target) -> list[dict[str, Any]]:
    with OpenFiles(target) as open_files:
        for batch in batches:
            open_files.take(batch)
        return open_files.close()


class OpenFiles:
    """
    The files that one task writes to a table, one for each partition of which it has rows.

    For a worker that writes to several tables at once: whoever gives it its `Target` (`Transaction.target`)
    has `parse_report` read what `close` returns, and hands the files to `Transaction.adopt`.
    """

    def __init__(self, target: Target) -> None:
        self._target, self._shape = target, to_stored(target.stored)
        self._system = target.location.file_system()
        self._files: dict[str, _OpenFile] = {}
        self._reports: list[dict[str, Any]] = []
        self._unsorted: list[pa.RecordBatch] = []
        self._unsorted_rows = self._unsorted_bytes = self._buffered_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: type[BaseException] | None, *more: object) -> None:
        if error is not None:
            self.discard()

    def take(self, batch: pa.RecordBatch) -> None:
        """Take rows, under the true names of their columns; enough of them are written at once."""
        if not batch.num_rows:
            return
        shaped = self._shape.apply(batch)
        self._unsorted.append(shaped)
        self._unsorted_rows += shaped.num_rows
        self._unsorted_bytes += shaped.nbytes
        if self._unsorted_rows >= _ROWS_AT_ONCE or self._unsorted_bytes >= _BYTES_AT_ONCE:
            self._sort()

    def _sort(self) -> None:
        """Hand what came to the files of its partitions; many rows at a time, since to cut few is dear."""
        if not self._unsorted:
            return
        unsorted = pa.Table.from_batches(self._unsorted)
        for values, rows in split_partitions(unsorted, self._target.partition_by):
            key, most = json.dumps(values), self._target.file_rows
            while rows.num_rows:
                if key not in self._files:
                    self._files[key] = _OpenFile(self._target, self._shape.schema, self._system, key)
                room = rows.num_rows if most is None else most - self._files[key].rows
                self._files[key].take(rows.slice(0, room))
                rows = rows.slice(room)
                if self._files[key].rows == most:
                    self._reports.append(self._files[key].close())
                    del self._files[key]
        # What waits for a file is a part of all that was sorted with it, and holds that in memory.
        self._buffered_bytes += self._unsorted_bytes
        self._unsorted, self._unsorted_rows, self._unsorted_bytes = [], 0, 0
        full = self._buffered_bytes >= 2 * _BYTES_AT_ONCE
        for file in self._files.values():
            if full or file.waiting_rows >= _ROWS_AT_ONCE:
                file.flush()
        self._buffered_bytes = 0 if full else self._buffered_bytes

    def begin_files(self) -> list[str]:
        """Let what comes from here on be in other files than what came before; the paths of those."""
        self._sort()
        closed = [file.close() for file in self._files.values()]
        self._reports += closed
        self._files.clear()
        return [report["path"] for report in closed]

    def close(self) -> list[dict[str, Any]]:
        """Write what waits, and say what was written."""
        self.begin_files()
        return self._reports

    def discard(self) -> None:
        """Delete what was written, if that can be done: if not, nobody sees it."""
        for file in self._files.values():
            file.discard()
        for report in self._reports:
            with suppress(Exception):
                self._target.location.delete(f"{self._target.folder}/{report['path']}")


def split_partitions(rows: pa.Table, by: Sequence[str]) -> Iterator[tuple[dict[str, Any], pa.Table]]:
    """The rows of each partition, in the order in which they came, with its values in JSON."""
    if not by:
        yield {}, rows
        return
    number = np.zeros(rows.num_rows, np.int64)
    values: list[list[Any]] = []
    for name in by:
        encoded = rows.column(name).combine_chunks().dictionary_encode("encode")
        values.append([_partition_value(name, value) for value in encoded.dictionary.to_pylist()])
        number = number * len(values[-1]) + np.asarray(encoded.indices)
    order = np.argsort(number, kind="stable")
    begins = np.flatnonzero(np.diff(number[order], prepend=-1))
    in_order = rows if (np.diff(order) == 1).all() else rows.take(pa.array(order))
    for begin, end in zip(begins, [*begins[1:], rows.num_rows], strict=True):
        places = np.unravel_index(number[order[begin]], [len(column) for column in values])
        partition = {name: column[place] for name, column, place in zip(by, values, places, strict=True)}
        yield partition, in_order.slice(begin, end - begin)


def _partition_value(name: str, value: Any) -> Any:
    if value == "":
        raise ValueError(f"The column {name} cannot tell partitions apart: to Delta an empty text is a null.")
    return value.isoformat() if isinstance(value, date) else value


class _OpenFile:
    def __init__(self, target: Target, schema: pa.Schema, system: Any, partition: str) -> None:
        self._schema, self._system, self._partition = schema, system, partition
        self._name = f"cdc-{uuid.uuid4().hex}.parquet"
        self._path = target.location.path(f"{target.folder}/{self._name}")
        self._sink = system.open_output_stream(self._path)
        self._footers: list[Any] = []
        self._writer = pq.ParquetWriter(
            self._sink,
            schema,
            coerce_timestamps="us",
            # Without Arrow's own schema in the file, every reader goes by the columns of Parquet.
            store_schema=False,
            # Whoever reads the file can tell a page in which a bit has changed.
            write_page_checksum=True,
            metadata_collector=self._footers,
            # What repeats, zstd finds too; without dictionaries writing takes half the time.
            use_dictionary=False,
            compression="zstd",
            compression_level=1,
            write_statistics=[column.name for column in schema if not pa.types.is_nested(column.type)],
        )
        self._waiting: list[pa.Table] = []
        self.waiting_rows = self.rows = 0

    def take(self, rows: pa.Table) -> None:
        self._waiting.append(rows)
        self.waiting_rows += rows.num_rows
        self.rows += rows.num_rows

    def flush(self) -> None:
        """Write what waits."""
        if self._waiting:
            self._writer.write_table(pa.concat_tables(self._waiting))
        self._waiting, self.waiting_rows = [], 0

    def close(self) -> dict[str, Any]:
        self.flush()
        self._writer.add_key_value_metadata(name_metadata(self._name))
        self._writer.close()
        size = self._sink.tell()
        self._sink.close()
        bounds = _bounds(self._footers[0], self._schema)
        description = {"path": self._name, "size": size, "partition": json.loads(self._partition)}
        report: dict[str, Any] = json.loads(to_json({**description, "numRecords": self.rows, **bounds}))
        return report

    def discard(self) -> None:
        # On a full disk neither can be closed properly; the file is in the way of everybody all the same.
        for end in (self._writer.close, self._sink.close, lambda: self._system.delete_file(self._path)):
            with suppress(Exception):
                end()


def _bounds(footer: Any, schema: pa.Schema) -> dict[str, dict[str, Any]]:
    """Read what the file's footer tells about its columns."""
    places = {footer.schema.column(place).path: place for place in range(footer.num_columns)}
    statistics: dict[str, dict[str, Any]] = {"minValues": {}, "maxValues": {}, "nullCount": {}}
    for column in list(schema)[:_WITH_BOUNDS]:
        place = places.get(column.name)
        if place is None or pa.types.is_nested(column.type):
            continue
        chunks = [footer.row_group(group).column(place).statistics for group in range(footer.num_row_groups)]
        if all(chunk is not None and chunk.has_null_count for chunk in chunks):
            statistics["nullCount"][column.name] = sum(chunk.null_count for chunk in chunks)
        if _has_order(column.type):
            with suppress(Exception):  # a bound that Python cannot hold is one that is not known
                low, high = _extremes(chunks)
                if low is not None and high is not None:
                    statistics["minValues"][column.name] = low[:_LETTERS] if isinstance(low, str) else low
                    statistics["maxValues"][column.name] = _above(high)
    return statistics


def _has_order(kind: pa.DataType) -> bool:
    """Tell whether bounds of the type mean the same to everybody: of floats they do not, for NaN's sake."""
    if pa.types.is_decimal(kind):
        return bool(kind.precision <= _MOST_DIGITS)
    return any(has_order(kind) for has_order in _ORDERED)


_ORDERED = pa.types.is_integer, pa.types.is_large_string, pa.types.is_date, pa.types.is_timestamp


def _extremes(chunks: list[Any]) -> tuple[Any, Any]:
    """The least and the greatest value; None and None if they are not known, or all values are null."""
    some = [chunk for chunk in chunks if chunk is None or chunk.num_values]
    if not some or any(chunk is None or not chunk.has_min_max for chunk in some):
        return None, None
    return min(chunk.min for chunk in some), max(chunk.max for chunk in some)


def _above(value: Any) -> Any:
    if isinstance(value, datetime):
        # A log has milliseconds, and what is below them is cut off.
        return value + timedelta(microseconds=-value.microsecond % 1000)
    if isinstance(value, str) and len(value) > _LETTERS:
        return value[:_LETTERS] + "\U0010ffff"
    return value


# Small files together --------------------------------------------------------------------------------------


def small_files(table: Table, below: int, least: int = 2, file_rows: int | None = None) -> list[list[File]]:
    """
    The files smaller than *below* bytes of each partition that has at least *least* of them.

    In groups that become files of about four times *below*.  Where files follow one another in a partition,
    as those of a stream do, a group has files that are neighbours, in their order.  Where a file has at most
    *file_rows* rows, small ones have half of that or fewer, and a group has no more than one file can have.
    """

    def is_small(file: File) -> bool:
        return file.size < below and (file_rows is None or 2 * file.rows <= file_rows)

    partitions: dict[tuple[str | None, ...], list[File]] = {}
    for file in table.files.values():
        values = file.partition_texts()
        partitions.setdefault(tuple(values[name] for name in table.partition_by), []).append(file)
    groups = [
        group
        for files in partitions.values()
        if sum(map(is_small, files)) >= least
        for some in _neighbours(table, files, is_small)
        for group in _groups(some, 4 * below, file_rows)
    ]
    return [group for group in groups if len(group) > 1]


def _neighbours(table: Table, files: list[File], is_small: Callable[[File], bool]) -> list[list[File]]:
    """The small files of a partition: with no large one between them, if the files follow one another."""
    in_order = _order_files(table, files)
    if in_order is None:
        return [list(filter(is_small, files))]
    runs = groupby(in_order, is_small)
    return [list(some) for are_small, some in runs if are_small]


def _order_files(table: Table, files: list[File]) -> list[File] | None:
    """The files in their order by the first column that has one, if each is above the one before; or None."""
    names = (column.name for column in table.stored if column.name not in table.partition_by)
    name = next((column for column in names if all(column in file.low for file in files)), None)
    if name is None:
        return None
    in_order = sorted(files, key=lambda file: file.low[name])
    follow = all(file.high[name] < other.low[name] for file, other in pairwise(in_order))
    return in_order if follow else None


def _groups(files: list[File], most: int, most_rows: int | None) -> list[list[File]]:
    groups: list[list[File]] = [[]]
    size = rows = 0
    for file in files:
        size, rows = size + file.size, rows + file.rows
        if groups[-1] and (size > most or (most_rows is not None and rows > most_rows)):
            groups.append([])
            size, rows = file.size, file.rows
        groups[-1].append(file)
    return groups


def rows_of_groups(
    spark: SparkSession, location: Location, table: Table, groups: list[list[File]]
) -> WorkerPlan:
    """The rows of groups of files, each group in a partition of its own."""
    listed = [(number, [file.path for file in files]) for number, files in enumerate(groups)]
    groups_frame = local_frame(spark, listed, "number int, paths array<string>")
    # One group per task: Spark would put rows of such small a table together.
    spread = groups_frame.repartitionByRange(len(groups), "number")
    read = partial(_read, target=Target.from_table(location, table))
    return WorkerPlan(spread, read, true_names(table.stored), heavy=True)


def _read(batches: Iterable[pa.RecordBatch], target: Target) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for paths in batch.column("paths").to_pylist():
            for path in paths:
                yield from read_batches(target, path)
