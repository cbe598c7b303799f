"""Files of a table read, by Spark or in this program, in the table's columns and under their true names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from operator import and_, or_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.parts.schemas import quoted
from cdckit.store.errors import DamagedTable
from cdckit.store.files import File, Where
from cdckit.store.locations import Location
from cdckit.store.log import Table
from cdckit.store.names import plain_names, true_name, true_names
from cdckit.store.shaping import Shape, to_true
from cdckit.store.writing import Target

_FEW_ROWS, _FEW_BYTES, _BYTES_IN_MEMORY = 1_000, 1 << 20, 1 << 23
"""
What this program reads by itself, since for Spark to plan and to start tasks takes longer: so many rows in so
many bytes of files, which are compressed, and which may be so many bytes in memory.
"""

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
    reader = spark.read.option("datetimeRebaseMode", "CORRECTED").schema(plain_names(table.stored))
    try:
        rows = reader.parquet(*(location.spark(f"{table.folder}/{one.path}") for one in files))
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        path = (error.getMessageParameters() or {}).get("path", table.folder)
        raise DamagedTable(table.name, path, "the file is not there", _REMEDY) from error
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
    at = f"{target.folder}/{path}"
    try:
        with target.location.file_system().open_input_file(target.location.path(at)) as file:
            found = pq.ParquetFile(file)
            there = set(found.schema_arrow.names)
            columns = [one.name for one in stored if one.name in there]
            for batch in found.iter_batches(rows, columns=columns):
                yield shape.of(batch)
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
    path = f"{table.folder}/{one.path}"
    try:
        with location.file_system().open_input_file(location.path(path)) as file:
            found = pq.ParquetFile(file).read()
    except (OSError, pa.ArrowException) as error:
        raise DamagedTable(table.name, path, location.fault_of(path, error), _REMEDY) from error
    return [shape.of(batch) for batch in found.to_batches()]


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
