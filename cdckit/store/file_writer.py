"""
Files that workers write, each under a name of its own, in the place where it stays.

Nobody sees a file before a commit names it, so a task that fails, is killed or runs twice leaves
something that is in nobody's way: of each task one attempt reports to the driver.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cached_property, partial
from typing import Any, Self, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from cdckit.parts.arrow_types import spark_columns
from cdckit.parts.workers import Made
from cdckit.store.column_order import Shape, to_stored, to_true
from cdckit.store.digests import row_digests, signed
from cdckit.store.files import OUR_FILES, File, named_metadata
from cdckit.store.locations import Location
from cdckit.store.log import Table

Rows: TypeAlias = DataFrame | Made | Any
"""What can be written: rows of Spark, what workers make, or a small `pyarrow.Table` of this program."""

_ROWS_AT_ONCE = 1 << 16
_BYTES_AT_ONCE = 1 << 26
_WITH_BOUNDS = 32
"""How many columns have bounds in the log, from the first: as many as Delta's other writers give them."""

_LETTERS = 32
_MOST_DIGITS = 15
_REPORT = "path string, size long, rows long, partition string, stats string, digest long"


@dataclass(frozen=True)
class Written:
    """
    What was written.

    Args:
        files: The files; none for no rows.
        digest: Of the rows, whatever their order and their files; None if it was not asked for.

    >>> from tempfile import TemporaryDirectory
    >>> import pyarrow as pa
    >>> from cdckit.store import Store
    >>> with TemporaryDirectory() as folder, Store(None, folder).begin() as transaction:
    ...     first = transaction.append("products", pa.table({"number": [1, 2]}))
    ...     second = transaction.append("products", pa.table({"number": [3]}))
    >>> (first + second).rows, len((first + second).files)
    (3, 2)
    """

    files: tuple[File, ...]
    digest: int | None = None

    @property
    def rows(self) -> int:
        """How many rows."""
        return sum(one.rows for one in self.files)

    @property
    def bytes(self) -> int:
        """How many bytes."""
        return sum(one.size for one in self.files)

    def __add__(self, other: Written) -> Written:
        digests = [one.digest for one in (self, other) if one.digest is not None]
        return Written(self.files + other.files, signed(sum(digests)) if digests else None)


@dataclass(frozen=True)
class Target:
    """
    A table for workers: its folder of a location, its columns as stored, and those of its partitions.

    *partitions* are those of files that other programs have written, by path: these do not say it themselves.
    """

    location: Location
    folder: str
    stored: T.StructType
    partition_by: tuple[str, ...] = ()
    digest: bool = False
    partitions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @cached_property
    def shape(self) -> Shape:
        """From rows as they are stored to those under their true names; made once for many files."""
        return to_true(self.stored)


def target_of(location: Location, table: Table) -> Target:
    """The table for workers."""
    others = {
        one.path: one.partition
        for one in table.files.values()
        if table.partition_by and not OUR_FILES.fullmatch(one.path)
    }
    return Target(location, table.folder, table.stored, table.partition_by, partitions=others)


def columns_of(rows: Rows) -> T.StructType:
    """The columns of rows, under their true names."""
    if isinstance(rows, Made):
        return rows.columns
    if isinstance(rows, pa.Table):
        return spark_columns(rows.schema)
    return rows.schema


def write(rows: Rows, target: Target) -> Written:
    """Let the workers write the rows; a job, unless they are a table of this program."""
    target.location.make_folder(target.folder)
    if isinstance(rows, pa.Table):
        reports = list(_written(rows.to_batches(), target=target))
        found = [row for report in reports for row in report.to_pylist()]
    else:
        made = rows if isinstance(rows, Made) else _as_made(rows)
        to_files = partial(_written_by, by=made.batches(), target=target)
        found = [row.asDict() for row in made.of.mapInArrow(to_files, _REPORT).collect()]
    return reported(found, target)


def _as_made(rows: DataFrame) -> Made:
    """The rows as they are; Spark hands no column to workers whose name has a point in it."""
    numbered = rows.toDF(*(f"c{number}" for number in range(len(rows.columns))))
    return Made(numbered, partial(_named, names=rows.columns), rows.schema, large=True)


def _named(batches: Iterable[pa.RecordBatch], names: list[str]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.rename_columns(names)


def _written_by(batches: Iterable[pa.RecordBatch], by: Any, target: Target) -> Iterator[pa.RecordBatch]:
    yield from _written(by(batches), target)


def reported(found: list[dict[str, Any]], target: Target) -> Written:
    """What was written, of what `OpenFiles.close` says."""
    files = [
        File.of_json(
            {
                "path": row["path"],
                "size": row["size"],
                "partition": json.loads(row["partition"]),
                "numRecords": row["rows"],
                **json.loads(row["stats"]),
            },
            target.stored,
        )
        for row in found
    ]
    digest = signed(sum(row["digest"] for row in found)) if target.digest else None
    return Written(tuple(files), digest)


# In the workers --------------------------------------------------------------------------------------------


def _written(batches: Iterable[pa.RecordBatch], target: Target) -> Iterator[pa.RecordBatch]:
    with OpenFiles(target) as open_files:
        for batch in batches:
            open_files.take(batch)
        reports = open_files.close()
    yield pa.RecordBatch.from_pylist(reports, schema=_REPORT_SCHEMA)


_REPORT_SCHEMA = pa.schema(
    [
        ("path", pa.string()),
        ("size", pa.int64()),
        ("rows", pa.int64()),
        ("partition", pa.string()),
        ("stats", pa.string()),
        ("digest", pa.int64()),
    ]
)


class OpenFiles:
    """
    The files that one task writes to a table, one for each partition of which it has rows.

    For a worker that writes to several tables at once: whoever gives it its `Target` (`Transaction.target`)
    has `reported` read what `close` returns, and hands the files to `Transaction.adopt`.
    """

    def __init__(self, target: Target) -> None:
        self._target, self._shape = target, to_stored(target.stored)
        self._system = target.location.file_system()
        self._files: dict[str, _OpenFile] = {}
        self._reports: list[dict[str, Any]] = []
        self._unsorted: list[pa.RecordBatch] = []
        self._unsorted_rows = self._unsorted_bytes = self._held = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: type[BaseException] | None, *more: object) -> None:
        if error is not None:
            self.discard()

    def take(self, batch: pa.RecordBatch) -> None:
        """Take rows, under the true names of their columns; enough of them are written at once."""
        if not batch.num_rows:
            return
        shaped = self._shape.of(batch)
        self._unsorted.append(shaped)
        self._unsorted_rows += shaped.num_rows
        self._unsorted_bytes += shaped.nbytes
        if self._unsorted_rows >= _ROWS_AT_ONCE or self._unsorted_bytes >= _BYTES_AT_ONCE:
            self._sort()

    def _sort(self) -> None:
        """Hand what came to the files of its partitions; many rows at a time, since to cut few is dear."""
        if not self._unsorted:
            return
        for values, rows in parted(pa.Table.from_batches(self._unsorted), self._target.partition_by):
            key = json.dumps(values)
            if key not in self._files:
                self._files[key] = _OpenFile(self._target, self._shape.schema, self._system, key)
            self._files[key].take(rows)
        # What waits for a file is a part of all that was sorted with it, and holds that in memory.
        self._held += self._unsorted_bytes
        self._unsorted, self._unsorted_rows, self._unsorted_bytes = [], 0, 0
        full = self._held >= 2 * _BYTES_AT_ONCE
        for one in self._files.values():
            if full or one.waiting_rows >= _ROWS_AT_ONCE:
                one.flush()
        self._held = 0 if full else self._held

    def begin_files(self) -> list[str]:
        """Let what comes from here on be in other files than what came before; the paths of those."""
        self._sort()
        closed = [one.close() for one in self._files.values()]
        self._reports += closed
        self._files.clear()
        return [one["path"] for one in closed]

    def close(self) -> list[dict[str, Any]]:
        """Write what waits, and say what was written."""
        self.begin_files()
        return self._reports

    def discard(self) -> None:
        """Delete what was written, if that can be done: if not, nobody sees it."""
        for one in self._files.values():
            one.discard()
        for report in self._reports:
            with suppress(Exception):
                self._system.delete_file(
                    self._target.location.path(f"{self._target.folder}/{report['path']}")
                )


def parted(rows: pa.Table, by: Sequence[str]) -> Iterator[tuple[dict[str, Any], pa.Table]]:
    """The rows of each partition, in the order in which they came, with its values in JSON."""
    if not by:
        yield {}, rows
        return
    number = np.zeros(rows.num_rows, np.int64)
    values: list[list[Any]] = []
    for name in by:
        encoded = rows.column(name).combine_chunks().dictionary_encode("encode")
        values.append([_partition_value(name, each) for each in encoded.dictionary.to_pylist()])
        number = number * len(values[-1]) + np.asarray(encoded.indices)
    order = np.argsort(number, kind="stable")
    begins = np.flatnonzero(np.diff(number[order], prepend=-1))
    in_order = rows if (np.diff(order) == 1).all() else rows.take(pa.array(order))
    for begin, end in zip(begins, [*begins[1:], rows.num_rows], strict=True):
        places = np.unravel_index(number[order[begin]], [len(each) for each in values])
        found = {name: each[place] for name, each, place in zip(by, values, places, strict=True)}
        yield found, in_order.slice(begin, end - begin)


def _partition_value(name: str, value: Any) -> Any:
    if value == "":
        raise ValueError(f"The column {name} cannot tell partitions apart: to Delta an empty text is a null.")
    return value.isoformat() if isinstance(value, date) else value


class _OpenFile:
    def __init__(self, target: Target, schema: pa.Schema, system: Any, partition: str) -> None:
        self._target, self._schema, self._system, self._partition = target, schema, system, partition
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
            write_statistics=[one.name for one in schema if not pa.types.is_nested(one.type)],
        )
        self._waiting: list[pa.Table] = []
        self.waiting_rows = self._digest = self._rows = 0

    def take(self, rows: pa.Table) -> None:
        self._waiting.append(rows)
        self.waiting_rows += rows.num_rows

    def flush(self) -> None:
        """Write what waits."""
        if self._waiting:
            table = pa.concat_tables(self._waiting)
            self._writer.write_table(table)
            self._rows += table.num_rows
            if self._target.digest:
                self._digest += sum(row_digests(batch) for batch in table.to_batches())
        self._waiting, self.waiting_rows = [], 0

    def close(self) -> dict[str, Any]:
        self.flush()
        self._writer.add_key_value_metadata(named_metadata(self._name))
        self._writer.close()
        size = self._sink.tell()
        self._sink.close()
        return {
            "path": self._name,
            "size": size,
            "rows": self._rows,
            "partition": self._partition,
            "stats": json.dumps(_bounds(self._footers[0], self._schema)),
            "digest": signed(self._digest),
        }

    def discard(self) -> None:
        # On a full disk neither can be closed properly; the file is in the way of everybody all the same.
        for end in (self._writer.close, self._sink.close, lambda: self._system.delete_file(self._path)):
            with suppress(Exception):
                end()


def _bounds(footer: Any, schema: pa.Schema) -> dict[str, dict[str, Any]]:
    """What the file's footer tells about its columns, in JSON."""
    places = {footer.schema.column(place).path: place for place in range(footer.num_columns)}
    found: dict[str, dict[str, Any]] = {"minValues": {}, "maxValues": {}, "nullCount": {}}
    for column in list(schema)[:_WITH_BOUNDS]:
        place = places.get(column.name)
        if place is None or pa.types.is_nested(column.type):
            continue
        chunks = [footer.row_group(group).column(place).statistics for group in range(footer.num_row_groups)]
        if all(chunk is not None and chunk.has_null_count for chunk in chunks):
            found["nullCount"][column.name] = sum(chunk.null_count for chunk in chunks)
        if _has_order(column.type):
            with suppress(Exception):  # a bound that Python cannot hold is one that is not known
                low, high = _extremes(chunks)
                if low is not None and high is not None:
                    bounds = _below(low), _above(high)
                    found["minValues"][column.name], found["maxValues"][column.name] = bounds
    return found


def _has_order(kind: pa.DataType) -> bool:
    """Whether bounds of the type mean the same to everybody: of floats they do not, for NaN's sake."""
    if pa.types.is_decimal(kind):
        return bool(kind.precision <= _MOST_DIGITS)
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_date(kind)
        or pa.types.is_timestamp(kind)
    )


def _extremes(chunks: list[Any]) -> tuple[Any, Any]:
    """The least and the greatest value; None and None if they are not known, or all values are null."""
    some = [chunk for chunk in chunks if chunk is None or chunk.num_values]
    if not some or any(chunk is None or not chunk.has_min_max for chunk in some):
        return None, None
    return min(chunk.min for chunk in some), max(chunk.max for chunk in some)


_ONE = timedelta(milliseconds=1)


def _below(value: Any) -> Any:
    if isinstance(value, datetime):
        return _instant(value - timedelta(microseconds=value.microsecond % 1000))
    if isinstance(value, str):
        return value[:_LETTERS]
    return _plain(value)


def _above(value: Any) -> Any:
    if isinstance(value, datetime):
        rest = value.microsecond % 1000
        return _instant(value + timedelta(microseconds=1000 - rest) if rest else value)
    if isinstance(value, str):
        return value if len(value) <= _LETTERS else value[:_LETTERS] + "\U0010ffff"
    return _plain(value)


def _instant(value: datetime) -> str:
    if value.tzinfo is None:
        return value.isoformat(timespec="milliseconds")
    return value.astimezone(UTC).isoformat(timespec="milliseconds")


def _plain(value: Any) -> Any:
    if isinstance(value, date):
        return value.isoformat()
    return float(value) if isinstance(value, Decimal) else value
