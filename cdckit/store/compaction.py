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


def small_files(table: Table, below: int, least: int = 2) -> list[list[File]]:
    """
    The files smaller than *below* bytes of each partition that has at least *least* of them.

    In groups that become files of about four times *below*.
    """
    found: dict[tuple[str | None, ...], list[File]] = {}
    for one in table.files.values():
        if one.size < below:
            values = one.partition_texts()
            found.setdefault(tuple(values[name] for name in table.partition_by), []).append(one)
    groups = [group for files in found.values() if len(files) >= least for group in _groups(files, 4 * below)]
    return [group for group in groups if len(group) > 1]


def _groups(files: list[File], most: int) -> list[list[File]]:
    groups: list[list[File]] = [[]]
    size = 0
    for one in files:
        if groups[-1] and size + one.size > most:
            groups.append([])
            size = 0
        groups[-1].append(one)
        size += one.size
    return groups


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
