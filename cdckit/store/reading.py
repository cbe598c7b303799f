"""
The rows of the files of a table: read by Spark, by workers or in this program; and whether they can be read.

They come in the table's columns and under their true names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from itertools import groupby
from operator import and_, attrgetter, itemgetter, or_
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.parts import at_home
from cdckit.parts.arguments import free_name, quoted
from cdckit.parts.arrow_types import arrow_type
from cdckit.parts.workers import local_frame, worker_reports
from cdckit.store.columns import plain_names, to_true, true_name, true_names
from cdckit.store.errors import DamagedTable
from cdckit.store.files import NAME_KEY, OUR_FILES, File, Table, Target, Where
from cdckit.store.locations import Location

# What a session passes over elsewhere, a store must not: what is read may be written anew without it.
_READING = {
    "datetimeRebaseMode": "CORRECTED",
    "parquet.page.verify-checksum.enabled": "true",
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
}
_REMEDY = (
    "Bring the file back from a copy of the store. If `vacuum` has deleted it because this commit is old, "
    "read a newer one."
)


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


def open_parquet(file: Any, path: str) -> pq.ParquetFile:
    """A Parquet file; raises `ArrowInvalid` for what is damaged already where this stands."""
    # Other programs write instants in a form of old, which has room for few years as nanoseconds.
    parquet = pq.ParquetFile(file, page_checksum_verification=True, coerce_int96_timestamp_unit="us")
    name = (parquet.metadata.metadata or {}).get(NAME_KEY, path.encode())
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
