"""
The files of a table: what is known of each without opening it, and how their rows are read.

Rows are read by Spark or in this program, in the table's columns and under their true names.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cached_property, partial, reduce
from itertools import groupby
from operator import and_, attrgetter, itemgetter, or_
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.transaction import AddAction, RemoveAction
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument
from cdckit.parts import at_home
from cdckit.parts.arguments import free_name, quoted
from cdckit.parts.arrow_types import arrow_type
from cdckit.parts.workers import local_frame, worker_reports
from cdckit.store.columns import Shape, plain_names, to_true, true_name, true_names
from cdckit.store.errors import DamagedTable
from cdckit.store.locations import Location

Where = Mapping[str, Collection[Any] | tuple[Any, Any]]
"""Per column the values sought, or a tuple (lowest, highest), both included, None where it is open."""

OUR_FILES = re.compile(r"cdc-[0-9a-f]{32}\.parquet")
"""The names of files that this package writes."""

_READING = {"datetimeRebaseMode": "CORRECTED", "parquet.page.verify-checksum.enabled": "true"}
_NAME = b"cdckit.file"
_REMEDY = (
    "Bring the file back from a copy of the store. If `vacuum` has deleted it because this commit is old, "
    "read a newer one."
)


@dataclass(frozen=True)
class File:
    """
    One Parquet file.

    Args:
        path: Below the table's folder.
        size: In bytes.
        rows: How many.
        partition: The value of each column by which the table is partitioned.
        low: Of columns whose type has an order: a value that none in the file is below; for texts a
            prefix.  A column whose values are all null, or whose least one is not known, is not there.
        high: The same, above.
        nulls: How many values are null, of columns for which this is known.

    All by the columns' stored names.

    >>> from tempfile import TemporaryDirectory
    >>> import pyarrow as pa
    >>> from cdckit.store import Store
    >>> with TemporaryDirectory() as folder:
    ...     with Store(None, folder).begin() as transaction:
    ...         _ = transaction.append("products", pa.table({"number": [1, 7], "name": ["kettle", None]}))
    ...         [file] = transaction.files("products")
    >>> file.rows, file.low["number"], file.high["number"], file.nulls["name"]
    (2, 1, 7, 1)
    """

    path: str
    size: int
    rows: int
    partition: Mapping[str, Any] = field(default_factory=dict)
    low: Mapping[str, Any] = field(default_factory=dict)
    high: Mapping[str, Any] = field(default_factory=dict)
    nulls: Mapping[str, int] = field(default_factory=dict)

    def add(self, *, data_change: bool = True) -> AddAction:
        """The action with which a commit adds the file; without *data_change* its rows are no news."""
        # Letters as they are: those beyond the first 65,536 in JSON's own spelling come back as others.
        stats, texts = to_json(self._stats(), ensure_ascii=False), self.partition_texts()
        return AddAction(self.path, self.size, texts, _now(), data_change, stats)

    def remove(self, *, data_change: bool = True, at: int | None = None) -> RemoveAction:
        """The action with which a commit removes the file, at that millisecond since 1970; now without it."""
        values: Any = self.partition_texts()
        return RemoveAction(self.path, data_change, _now() if at is None else at, self.size, values)

    def to_dict(self) -> dict[str, Any]:
        """Write what a log says of the file: as `to_json` writes it, `from_json` reads it."""
        return {"path": self.path, "size": self.size, "partition": self.partition, **self._stats()}

    @staticmethod
    def from_json(values: Mapping[str, Any], stored: T.StructType) -> File:
        """The file of which `to_dict` says this, of a table with the columns *stored*."""
        kinds = {column.name: column.dataType for column in stored}
        partition, low, high = (
            {name: _parse_value(value, kinds[name]) for name, value in values[key].items()}
            for key in ("partition", "minValues", "maxValues")
        )
        size, rows, nulls = values["size"], values["numRecords"], values["nullCount"]
        return File(values["path"], size, rows, partition, low, high, nulls)

    @cached_property
    def digest(self) -> int:
        """64 bits of all that a log says of the file: another path, size or bound has other ones."""
        text = to_json(self.to_dict(), sort_keys=True)
        return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest())

    def _stats(self) -> dict[str, Any]:
        # Of columns that tell partitions apart, a log has no bounds.
        low, high, nulls = (
            {name: value for name, value in bounds.items() if name not in self.partition}
            for bounds in (self.low, self.high, self.nulls)
        )
        return {"numRecords": self.rows, "minValues": low, "maxValues": high, "nullCount": nulls}

    def partition_texts(self) -> dict[str, str | None]:
        """The partition's values as a log has them."""
        return {name: _partition_text(value) for name, value in self.partition.items()}

    def can_hold(self, where: Where) -> bool:
        """Tell whether a row for which *where* is true can be in the file."""
        return all(self._can_hold(name, sought) for name, sought in where.items())

    def _can_hold(self, name: str, sought: Collection[Any] | tuple[Any, Any]) -> bool:
        if name in self.partition:
            low = high = self.partition[name]
            all_null = some_null = low is None
        else:
            low, high, nulls = self.low.get(name), self.high.get(name), self.nulls.get(name)
            all_null, some_null = bool(self.rows) and nulls == self.rows, nulls != 0
        if isinstance(sought, tuple):
            lowest, highest = sought
            below = highest is not None and low is not None and low > highest
            above = lowest is not None and high is not None and high < lowest
            return not (all_null or below or above)
        return any(
            some_null
            if value is None
            else not all_null and (low is None or low <= value) and (high is None or value <= high)
            for value in sought
        )


@dataclass(frozen=True)
class Table:
    """
    The state of a named table.

    Args:
        name: The name that users know.
        folder: Where it lies, below the location.
        stored: Its columns under their stored names.
        partition_by: The stored names of the columns that tell files apart.
        files: By path.
        version: Of the Delta table; None where no version of it is in this state, not yet.
    """

    name: str
    folder: str
    stored: T.StructType
    partition_by: tuple[str, ...] = ()
    files: Mapping[str, File] = field(default_factory=dict)
    version: int | None = None

    def with_files(self, files: Iterable[File]) -> Table:
        """Give it other files."""
        return replace(self, files={file.path: file for file in files})

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return sum(file.rows for file in self.files.values())

    @property
    def digest(self) -> int:
        """Of its files, in whatever order: the sum of their digests, in 64 bits with a sign."""
        return to_signed(sum(file.digest for file in self.files.values()))

    def is_like(self, other: Table) -> bool:
        """Tell whether the other one is the same table with the same columns and files."""
        mine = self.folder, self.stored, self.files.keys()
        return mine == (other.folder, other.stored, other.files.keys())

    def select(self, where: Where | None, function: str, files: Iterable[File] | None = None) -> list[File]:
        """The files, perhaps of some alone, that can hold rows for which *where*, by true names, is true."""
        names = {true_name(column): column.name for column in self.stored}
        for name, sought in (where or {}).items():
            if name not in names:
                needed = f"about columns of the table, {', '.join(names)}"
                raise InvalidArgument(function, "where", needed, name)
            if isinstance(sought, str) or not isinstance(sought, Collection):
                needed = "a collection of values or a range"
                raise InvalidArgument(function, f"where[{name!r}]", needed, sought)
            if isinstance(sought, tuple) and len(sought) != 2:
                raise InvalidArgument(function, f"where[{name!r}]", "a tuple (lowest, highest)", sought)
        stored = {names[name]: sought for name, sought in (where or {}).items()}
        return [file for file in (self.files.values() if files is None else files) if file.can_hold(stored)]


@dataclass(frozen=True)
class Target:
    """
    A table for workers: its folder of a location, its columns as stored, and those of its partitions.

    *partitions* are those of files that other programs have written, by path: these do not say it themselves.
    A file of a partition has at most *file_rows* rows, then another one is begun.
    """

    location: Location
    folder: str
    stored: T.StructType
    partition_by: tuple[str, ...] = ()
    partitions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    file_rows: int | None = None

    @staticmethod
    def from_table(location: Location, table: Table, file_rows: int | None = None) -> Target:
        """The table for workers."""
        files = table.files.values() if table.partition_by else ()
        others = {file.path: file.partition for file in files if not OUR_FILES.fullmatch(file.path)}
        return Target(location, table.folder, table.stored, table.partition_by, others, file_rows)

    @cached_property
    def shape(self) -> Shape:
        """From rows as they are stored to those under their true names; made once for many files."""
        return to_true(self.stored)


# What a log says -------------------------------------------------------------------------------------------


def parse_files(actions: pa.Table, read_before: Mapping[str, File]) -> dict[str, File]:
    """The files of a Delta table by path, of its "add actions"; those *read_before* as they are."""
    paths = actions.column("path").to_pylist()
    files = {path: read_before[path] for path in paths if path in read_before}
    news = pa.array([path not in read_before for path in paths], pa.bool_())
    for row in (actions.filter(news) if files else actions).to_pylist():
        low, high, nulls = (_flat_bounds(row.get(key)) for key in ("min", "max", "null_count"))
        rows, partition = row["num_records"] or 0, row.get("partition") or {}
        files[row["path"]] = File(row["path"], row["size_bytes"], rows, partition, low, high, nulls)
    return files


def to_signed(number: int) -> int:
    """Wrap a number of 64 bits as Delta and Spark have it, with a sign."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def sum_digests(rows: DataFrame, digest: Column) -> int:
    """
    The sum of a digest of each row, in 64 bits with a sign; one job.

    It tells a repeated batch from another one, and does not depend on the order of its rows; it is no proof
    against somebody who looks for two batches with one digest.
    """
    sums = rows.agg(F.sum(digest.cast("decimal(38,0)"))).first()
    return to_signed(int(sums[0] or 0) if sums else 0)


def _flat_bounds(values: dict[str, Any] | None) -> dict[str, Any]:
    """Bounds without those within structs, which other programs tell too."""
    some = (values or {}).items()
    return {name: bound for name, bound in some if not (bound is None or isinstance(bound, dict))}


def _partition_text(value: Any) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    return None if value is None else str(value)


def _now() -> int:
    return int(time.time() * 1000)


def _jsonable(value: object) -> str | float:
    """A bound that JSON does not know, as Delta's statistics have it: instants with milliseconds, cut off."""
    if isinstance(value, datetime):
        text = value.replace(tzinfo=None).isoformat(timespec="milliseconds")
        return text if value.tzinfo is None else f"{text}Z"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return float(value)
    raise TypeError(f"{value!r} is no bound of a column")


to_json = partial(json.dumps, default=_jsonable)
"""A value as JSON, with what a log says of files in it."""


def _parse_value(value: Any, kind: T.DataType) -> Any:
    """A value of JSON, of a file's statistics or its partition, as Python has that type."""
    if value is None:
        return None
    if isinstance(kind, T.TimestampType):
        return datetime.fromisoformat(value).astimezone(UTC)
    if isinstance(kind, T.TimestampNTZType):
        return datetime.fromisoformat(value)
    if isinstance(kind, T.DateType):
        return date.fromisoformat(value)
    if isinstance(kind, T.DecimalType):
        # As a float, 0.1 is above the decimal 0.1.
        return Decimal(str(value))
    return value


# Reading ---------------------------------------------------------------------------------------------------


def hold_few_rows(files: Iterable[File]) -> bool:
    """Tell whether files hold so few rows that they become part of the plan: it names no files then."""
    some = list(files)
    size = sum(file.size for file in some)
    return sum(file.rows for file in some) <= at_home.READ_ROWS and size <= at_home.READ_FILE_BYTES


def read_spark(
    spark: SparkSession, location: Location, table: Table, files: Sequence[File], where: Where | None = None
) -> DataFrame:
    """The rows of the files for which *where* is true, as a DataFrame; few of them are read at once."""
    true = true_names(table.stored)
    if hold_few_rows(files):
        few_rows = read_arrow(location, table, files, where)
        if few_rows.nbytes <= at_home.READ_BYTES:
            return spark.createDataFrame(few_rows, true)
    # With its columns stated, Spark need not look into the files before it reads them.
    # What workers wrote does not say that its dates are as they are written.
    reader = spark.read.options(**_READING).schema(plain_names(table.stored))
    try:
        rows = reader.parquet(*(location.spark(f"{table.folder}/{unquote(file.path)}") for file in files))
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        path = (error.getMessageParameters() or {}).get("path", table.folder)
        raise DamagedTable(table.name, path, "the file is not there", _REMEDY) from error
    rows = _with_partitions(rows, table, files)
    for stored in table.stored:
        if true_name(stored) in (where or {}):
            rows = rows.where(_is_sought(F.col(quoted(stored.name)), (where or {})[true_name(stored)]))
    if plain_names(table.stored) == true:
        return rows
    pairs = zip(table.stored, true, strict=True)
    return rows.select(
        *(F.col(quoted(stored.name)).cast(kind.dataType).alias(kind.name) for stored, kind in pairs)
    )


def _is_sought(column: Column, sought: Any) -> Column:
    if isinstance(sought, tuple):
        low, high = sought
        bounds = [column >= F.lit(low)] if low is not None else []
        bounds += [column <= F.lit(high)] if high is not None else []
        return reduce(and_, bounds, column.isNotNull())
    values = [value for value in sought if value is not None]
    either = [column.isin(values)] if values else []
    either += [column.isNull()] if None in sought else []
    return reduce(or_, either, F.lit(False))


def _with_partitions(rows: DataFrame, table: Table, files: Iterable[File]) -> DataFrame:
    """The rows with the columns that files of other programs leave to the log."""
    some = {
        _base_name(file.path): file.partition_texts()
        for file in files
        if table.partition_by and not OUR_FILES.fullmatch(file.path)
    }
    for name in table.partition_by if some else ():
        values = [F.lit(part) for path, texts in some.items() for part in (path, texts[name])]
        value = F.create_map(*values)[F.col("_metadata.file_name")].cast(table.stored[name].dataType)
        rows = rows.withColumn(name, F.coalesce(F.col(quoted(name)), value))
    return rows


def read_arrow(
    location: Location, table: Table, files: Sequence[File], where: Where | None = None
) -> pa.Table:
    """The rows of the files for which *where* is true, as an Arrow table."""
    target = Target.from_table(location, table)
    batches: list[pa.RecordBatch] = []
    for file in files:
        raw_batches = list(read_batches(target, file.path, shaped=False))
        if (count := sum(batch.num_rows for batch in raw_batches)) != file.rows:
            path = f"{table.folder}/{file.path}"
            raise DamagedTable(table.name, path, f"it has {count} rows, not {file.rows}", _REMEDY)
        batches += raw_batches
    try:
        # To shape many small batches one by one takes as long as to read them.
        alike = (pa.Table.from_batches(some) for _, some in groupby(batches, attrgetter("schema")))
        shaped = [target.shape.apply(rows) for some in alike for rows in some.combine_chunks().to_batches()]
    except pa.ArrowException:
        # One by one it is told which file it is.
        shaped = [batch for file in files for batch in read_batches(target, file.path)]
    schema = target.shape.schema
    rows = pa.Table.from_batches(shaped, schema)
    for name, sought in (where or {}).items():
        rows = rows.filter(_mask(rows.column(name), sought))
    # PySpark cannot read a table whose columns have no part at all.
    return rows if rows.num_rows else schema.empty_table()


def _mask(column: pa.ChunkedArray, sought: Any) -> Any:
    if not isinstance(sought, tuple):
        return pc.is_in(column, pa.array(list(sought), column.type))
    low, high = (None if value is None else pa.scalar(value, column.type) for value in sought)
    mask = pc.is_valid(column)
    mask = mask if low is None else pc.and_(mask, pc.greater_equal(column, low))
    return mask if high is None else pc.and_(mask, pc.less_equal(column, high))


def read_batches(
    target: Target, path: str, names: Sequence[str] | None = None, rows: int = 1 << 16, *, shaped: bool = True
) -> Iterator[pa.RecordBatch]:
    """
    The rows of one file, in the table's columns or some of them, under their true names: for workers.

    Args:
        target: The table, as `Transaction.target` gives it.
        path: Of the file, below the table's folder.
        names: The true names of the columns that are wanted, in the table's order; all without it.
        rows: How many at once, at most.
        shaped: Without it those columns that the file has, under their stored names, of the file's types.
    """
    stored = T.StructType([column for column in target.stored if names is None or true_name(column) in names])
    shape = target.shape if names is None else to_true(stored)
    at = f"{target.folder}/{unquote(path)}"
    try:
        with target.location.file_system().open_input_file(target.location.path(at)) as file:
            parquet = open_parquet(file, path)
            stored_there = set(parquet.schema_arrow.names)
            columns = [column.name for column in stored if column.name in stored_there]
            # Workers have one core each, and several threads take twice as long to read a small file.
            for batch in parquet.iter_batches(rows, columns=columns, use_threads=False):
                whole = _with_partition(batch, target.partitions.get(path, {}), stored)
                yield shape.apply(whole) if shaped else whole
    except (OSError, pa.ArrowException) as error:
        raise DamagedTable(target.folder, at, target.location.fault_of(at, error), _REMEDY) from error


def find_damage(spark: SparkSession | None, location: Location, table: Table) -> DamagedTable | None:
    """Find the first file of a table that cannot be read whole, and why; workers read what is much."""
    files = list(table.files.values())
    listed = sorted((file.path, file.rows) for file in files)
    target = Target.from_table(location, table)
    if spark is None or hold_few_rows(files):
        damage = next(_damages(listed, target), None)
    else:
        tasks = min(len(files), 1 + sum(file.size for file in files) // _BYTES_OF_A_TASK)
        spread = local_frame(spark, listed, "path string, count bigint").repartitionByRange(tasks, "path")
        reports = worker_reports(spread, partial(_report_damages, target=target), heavy=True)
        damage = min(reports, key=itemgetter("path"), default=None)
    if damage is None:
        return None
    return DamagedTable(table.name, f"{table.folder}/{unquote(damage['path'])}", damage["found"], _REMEDY)


_BYTES_OF_A_TASK = 1 << 26


def _report_damages(batches: Iterable[pa.RecordBatch], target: Target) -> Iterator[dict[str, str]]:
    for batch in batches:
        yield from _damages(zip(*(column.to_pylist() for column in batch.columns), strict=True), target)


def _damages(listed: Iterable[tuple[str, int]], target: Target) -> Iterator[dict[str, str]]:
    """Find the files, each with its number of rows, that cannot be read whole, and what is wrong."""
    for path, rows in listed:
        try:
            count = sum(batch.num_rows for batch in read_batches(target, path))
        except DamagedTable as damaged:
            yield {"path": path, "found": damaged.found}
        else:
            if count != rows:
                yield {"path": path, "found": f"it has {count} rows, not {rows}"}


def files_holding(
    rows: DataFrame, files: list[File], chosen: DataFrame, on: Column | list[str]
) -> list[File]:
    """
    Find those of some files that have rows which match a *chosen* one; all of them if they have few rows.

    Args:
        rows: The rows of these files, as they were read.
        files: The files.
        chosen: What is looked for.
        on: What makes a row match one of these: columns of both, or a condition.

    Cost: none for few rows, else one job.
    """
    if hold_few_rows(files):
        return files
    file = free_name("file", rows.columns)
    touched = rows.withColumn(file, F.input_file_name()).join(chosen, on, "left_semi")
    # As many rows as there are files, at most.
    return _files_named(files, [row[0] for row in touched.select(file).distinct().collect()])


def _files_named(files: Iterable[File], uris: Iterable[str]) -> list[File]:
    """The files that Spark's `input_file_name` names; those that others wrote may lie in folders."""
    names = {_base_name(uri) for uri in uris}
    return [file for file in files if _base_name(file.path) in names]


def _base_name(path: str) -> str:
    return unquote(path).rsplit("/", 1)[-1]


def name_metadata(path: str) -> dict[bytes, bytes]:
    """Name a Parquet file of ours within itself, so that two that were swapped are told."""
    return {_NAME: path.encode()}


def open_parquet(file: Any, path: str) -> pq.ParquetFile:
    """A Parquet file; raises `ArrowInvalid` for what is damaged already where this stands."""
    # Other programs write instants in a form of old, which has room for few years as nanoseconds.
    parquet = pq.ParquetFile(file, page_checksum_verification=True, coerce_int96_timestamp_unit="us")
    name = (parquet.metadata.metadata or {}).get(_NAME, path.encode())
    if name != path.encode():
        raise pa.ArrowInvalid(f"it is the file {name.decode(errors='replace')}")
    # The footer has no checksum.
    groups = (parquet.metadata.row_group(number).num_rows for number in range(parquet.num_row_groups))
    if sum(groups) != parquet.metadata.num_rows:
        raise pa.ArrowInvalid("its parts have another number of rows than the file")
    return parquet


def _with_partition(
    batch: pa.RecordBatch, partition: Mapping[str, Any], stored: T.StructType
) -> pa.RecordBatch:
    """The rows with the columns that a file of another program leaves to the log."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    lacking = [column for column in stored if column.name in partition and column.name not in columns]
    if not lacking:
        return batch
    more = {
        column.name: pa.repeat(pa.scalar(partition[column.name], arrow_type(column.dataType)), len(batch))
        for column in lacking
    }
    return pa.RecordBatch.from_pydict({**columns, **more})
