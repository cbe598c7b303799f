"""Small files of one partition written as one: by workers, from Parquet to Parquet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from cdckit.parts.workers import Made
from cdckit.store.files import File
from cdckit.store.locations import Location
from cdckit.store.log import Table
from cdckit.store.names import true_names
from cdckit.store.shaping import to_true

SMALL = 32 << 20
"""Bytes: a file of fewer is a small one."""

_ROWS_AT_ONCE = 1 << 16


def small_files(table: Table, below: int) -> list[list[File]]:
    """The files smaller than *below* bytes, by partition, where one has more than one of them."""
    found: dict[tuple[str | None, ...], list[File]] = {}
    for one in table.files.values():
        if one.size < below:
            values = one.partition_texts()
            found.setdefault(tuple(values[name] for name in table.partition_by), []).append(one)
    return [files for files in found.values() if len(files) > 1]


def rows_of(spark: SparkSession, location: Location, table: Table, groups: list[list[File]]) -> Made:
    """The rows of groups of files, each group in a partition of its own."""
    listed = [(number, [one.path for one in files]) for number, files in enumerate(groups)]
    groups_frame = spark.createDataFrame(listed, "number int, paths array<string>")
    # One group per task: Spark would put rows of such small a table together.
    spread = groups_frame.repartitionByRange(len(groups), "number")
    return Made(
        spread, partial(_read, location=location, table=_without_files(table)), true_names(table.stored)
    )


def _without_files(table: Table) -> Table:
    return table.with_files({})


def _read(batches: Iterable[pa.RecordBatch], location: Location, table: Table) -> Iterator[pa.RecordBatch]:
    shape, system = to_true(table.stored), location.file_system()
    for batch in batches:
        for paths in batch.column("paths").to_pylist():
            for path in paths:
                with system.open_input_file(location.path(f"{table.folder}/{path}")) as file:
                    for rows in pq.ParquetFile(file).iter_batches(_ROWS_AT_ONCE):
                        yield shape.of(rows)
