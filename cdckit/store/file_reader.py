"""Files of a table read, by Spark or in this program, in the table's columns and under their true names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import and_, or_
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.parts.arrow_types import arrow_type
from cdckit.parts.schemas import quoted
from cdckit.store.column_order import Shape, to_true
from cdckit.store.errors import DamagedTable
from cdckit.store.file_writer import Target, target_of
from cdckit.store.files import File, Where, require_name
from cdckit.store.locations import Location
from cdckit.store.log import Table
from cdckit.store.names import plain_names, true_name, true_names

_FEW_ROWS, _FEW_BYTES, _BYTES_IN_MEMORY = 1_000, 1 << 20, 1 << 23
"""
What this program reads by itself, since for Spark to plan and to start tasks takes longer: so many rows in so
many bytes of files, which are compressed, and which may be so many bytes in memory.
"""

_READING = {"datetimeRebaseMode": "CORRECTED", "parquet.page.verify-checksum.enabled": "true"}

_REMEDY = (
    "Bring the file back from a copy of the store. If `vacuum` has deleted it because this commit is old, "
    "read a newer one."
)


def read_spark(
    spark: SparkSession, location: Location, table: Table, files: Sequence[File], where: Where | None
) -> DataFrame:
    """The rows of the files for which *where* is true, as a DataFrame; few of them are read at once."""
    true = true_names(table.stored)
    if not files:
        return spark.createDataFrame([], true)
    if are_few(files):
        found = read_arrow(location, table, files, where)
        if found.nbytes <= _BYTES_IN_MEMORY:
            return spark.createDataFrame(found, true)
    # With its columns stated, Spark need not look into the files before it reads them.
    # What workers wrote does not say that its dates are as they are written.
    reader = spark.read.options(**_READING).schema(plain_names(table.stored))
    try:
        rows = reader.parquet(*(location.spark(f"{table.folder}/{unquote(one.path)}") for one in files))
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        path = (error.getMessageParameters() or {}).get("path", table.folder)
        raise DamagedTable(table.name, path, "the file is not there", _REMEDY) from error
    rows = _with_partitions(rows, location, table, files)
    conditions = [
        _is_sought(F.col(quoted(stored.name)), (where or {})[true_name(stored)])
        for stored in table.stored
        if true_name(stored) in (where or {})
    ]
    if conditions:
        rows = rows.where(reduce(and_, conditions))
    if plain_names(table.stored) == true:
        return rows
    pairs = zip(table.stored, true, strict=True)
    return rows.select(
        *(F.col(quoted(stored.name)).cast(kind.dataType).alias(kind.name) for stored, kind in pairs)
    )


def are_few(files: Iterable[File]) -> bool:
    """Whether files hold so few rows that they become part of the plan: it names no files then."""
    some = list(files)
    return sum(one.rows for one in some) <= _FEW_ROWS and sum(one.size for one in some) <= _FEW_BYTES


def _is_sought(column: Column, sought: Any) -> Column:
    if isinstance(sought, tuple):
        low, high = sought
        bounds = [column >= F.lit(low)] if low is not None else []
        bounds += [column <= F.lit(high)] if high is not None else []
        return reduce(and_, bounds, column.isNotNull())
    values = [one for one in sought if one is not None]
    either = [column.isin(values)] if values else []
    either += [column.isNull()] if None in sought else []
    return reduce(or_, either, F.lit(False))


def batches_of(
    target: Target, path: str, names: Sequence[str] | None = None, rows: int = 1 << 16
) -> Iterator[pa.RecordBatch]:
    """
    The rows of one file, in the table's columns or some of them, under their true names: for workers.

    Args:
        target: The table, as `Transaction.target` gives it.
        path: Of the file, below the table's folder.
        names: The true names of the columns that are wanted, in the table's order; all without it.
        rows: How many at once, at most.
    """
    some = [one for one in target.stored if names is None or true_name(one) in names]
    stored = T.StructType(some)
    shape = target.shape if names is None else to_true(stored)
    at = f"{target.folder}/{unquote(path)}"
    try:
        with target.location.file_system().open_input_file(target.location.path(at)) as file:
            found = _opened(file, path)
            there = set(found.schema_arrow.names)
            columns = [one.name for one in stored if one.name in there]
            for batch in found.iter_batches(rows, columns=columns):
                yield shape.of(_partitioned(batch, target.partitions.get(path, {}), stored))
    except (OSError, pa.ArrowException) as error:
        raise DamagedTable(target.folder, at, target.location.fault_of(at, error), _REMEDY) from error


def read_arrow(location: Location, table: Table, files: Sequence[File], where: Where | None) -> pa.Table:
    """The rows of the files for which *where* is true, as an Arrow table."""
    shape = to_true(table.stored)
    rows = pa.Table.from_batches(
        [batch for one in files for batch in _batches(location, table, one, shape)], shape.schema
    )
    for name, sought in (where or {}).items():
        rows = rows.filter(_mask(rows.column(name), sought))
    return rows


def _batches(location: Location, table: Table, one: File, shape: Shape) -> list[pa.RecordBatch]:
    path = f"{table.folder}/{unquote(one.path)}"
    try:
        with location.file_system().open_input_file(location.path(path)) as file:
            found = _opened(file, one.path).read().to_batches()
            rows = [shape.of(_partitioned(batch, one.partition, table.stored)) for batch in found]
    except (OSError, pa.ArrowException) as error:
        raise DamagedTable(table.name, path, location.fault_of(path, error), _REMEDY) from error
    if (count := sum(batch.num_rows for batch in rows)) != one.rows:
        raise DamagedTable(table.name, path, f"it has {count} rows, not {one.rows}", _REMEDY)
    return rows


def _opened(file: Any, path: str) -> pq.ParquetFile:
    # Other programs write instants in a form of old, which has room for few years as nanoseconds.
    found = pq.ParquetFile(file, page_checksum_verification=True, coerce_int96_timestamp_unit="us")
    require_name(found, path)
    # The footer, where this stands, has no checksum.
    groups = (found.metadata.row_group(number).num_rows for number in range(found.num_row_groups))
    if sum(groups) != found.metadata.num_rows:
        raise pa.ArrowInvalid("its parts have another number of rows than the file")
    return found


def _partitioned(batch: pa.RecordBatch, partition: Mapping[str, Any], stored: T.StructType) -> pa.RecordBatch:
    """The rows with the columns that a file of another program leaves to the log."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    lacking = {name: value for name, value in partition.items() if name not in columns}
    if not lacking:
        return batch
    kinds = {one.name: arrow_type(one.dataType) for one in stored if one.name in lacking}
    more = {name: pa.repeat(pa.scalar(lacking[name], kind), len(batch)) for name, kind in kinds.items()}
    return pa.RecordBatch.from_pydict({**columns, **more})


def _with_partitions(rows: DataFrame, location: Location, table: Table, files: Iterable[File]) -> DataFrame:
    """The rows with the columns that files of other programs leave to the log."""
    others = target_of(location, table).partitions
    some = {
        unquote(one.path).rsplit("/", 1)[-1]: one.partition_texts() for one in files if one.path in others
    }
    for name in table.partition_by if some else ():
        values = [F.lit(each) for path, texts in some.items() for each in (path, texts[name])]
        said = F.create_map(*values)[F.col("_metadata.file_name")].cast(table.stored[name].dataType)
        rows = rows.withColumn(name, F.coalesce(F.col(quoted(name)), said))
    return rows


def _mask(column: pa.ChunkedArray, sought: Any) -> Any:
    if isinstance(sought, tuple):
        low, high = sought
        mask = pc.is_valid(column)
        if low is not None:
            mask = pc.and_(mask, pc.greater_equal(column, pa.scalar(low, column.type)))
        if high is not None:
            mask = pc.and_(mask, pc.less_equal(column, pa.scalar(high, column.type)))
        return mask
    return pc.is_in(column, pa.array(list(sought), column.type))
