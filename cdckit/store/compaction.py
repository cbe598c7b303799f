"""Small files of one partition written as one: by workers, from Parquet to Parquet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import groupby, pairwise

import pyarrow as pa
from pyspark.sql import SparkSession

from cdckit.parts.workers import Made
from cdckit.store.file_reader import batches_of
from cdckit.store.file_writer import Target, target_of
from cdckit.store.files import File
from cdckit.store.locations import Location
from cdckit.store.log import Table
from cdckit.store.names import true_names

SMALL = 32 << 20
"""Bytes: a file of fewer is a small one."""


def small_files(table: Table, below: int, least: int = 2) -> list[list[File]]:
    """
    The files smaller than *below* bytes of each partition that has at least *least* of them.

    In groups that become files of about four times *below*.  Where files follow one another in a partition,
    as those of a stream do, a group has files that are neighbours, in their order.
    """
    found: dict[tuple[str | None, ...], list[File]] = {}
    for one in table.files.values():
        values = one.partition_texts()
        found.setdefault(tuple(values[name] for name in table.partition_by), []).append(one)
    groups = [
        group
        for files in found.values()
        if sum(one.size < below for one in files) >= least
        for some in _neighbours(table, files, below)
        for group in _groups(some, 4 * below)
    ]
    return [group for group in groups if len(group) > 1]


def _neighbours(table: Table, files: list[File], below: int) -> list[list[File]]:
    """The small files of a partition: with no large one between them, if the files follow one another."""
    in_order = _following(table, files)
    if in_order is None:
        return [[one for one in files if one.size < below]]
    runs = groupby(in_order, lambda one: one.size < below)
    return [list(some) for are_small, some in runs if are_small]


def _following(table: Table, files: list[File]) -> list[File] | None:
    """The files in their order by the first column that has one, if each is above the one before; or None."""
    names = (one.name for one in table.stored if one.name not in table.partition_by)
    name = next((one for one in names if all(one in file.low for file in files)), None)
    if name is None:
        return None
    in_order = sorted(files, key=lambda one: one.low[name])
    follow = all(one.high[name] < other.low[name] for one, other in pairwise(in_order))
    return in_order if follow else None


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
    target = target_of(location, table)
    return Made(spread, partial(_read, target=target), true_names(table.stored))


def _read(batches: Iterable[pa.RecordBatch], target: Target) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for paths in batch.column("paths").to_pylist():
            for path in paths:
                yield from batches_of(target, path)
