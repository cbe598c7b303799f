"""New changes on their way into the log: files that no commit names yet, by bucket; and their digest."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.changes import TRUNCATE
from cdckit.kernel.arrays import bools, ints
from cdckit.kernel.changes import GUID, SNAPSHOT
from cdckit.ledger.columns import BUCKET, CONTENT, EVERY, LISTED
from cdckit.ledger.kinds import Kind
from cdckit.ledger.rows import picked, with_columns
from cdckit.parts.arrow_types import arrow_schema
from cdckit.parts.workers import Made
from cdckit.store import File
from cdckit.store.columns import as_columns, true_names
from cdckit.store.files import Target, digest_of, signed
from cdckit.store.writing import OpenFiles, reported

_REPORT = T.StructType().add("report", T.StringType())


class Taken(NamedTuple):
    """
    What was written.

    Args:
        files: Each holds changes of one bucket.
        digest: Of the batch: the sum over its rows, whatever their order.
        lists: Of which lists there are changes: the instants of each source's.
    """

    files: list[File]
    digest: int
    lists: dict[str | None, set[int]]


def take(rows: DataFrame, kind: Kind, target: Target) -> Taken:
    """Let the workers write rows of `columns.logged`, one file for each bucket; one job, with a shuffle."""
    columns = true_names(target.stored)
    wanted = T.StructType([*columns, rows.schema[CONTENT], rows.schema[LISTED]])
    if not _has_types(rows.schema, columns):
        rows = as_columns(rows, wanted)
    # However many partitions they come in: a file for each of those and bucket would be thousands.
    made = Made(rows.repartition(BUCKET), partial(_write, kind=kind, target=target), _REPORT, large=True)
    found = [json.loads(row["report"]) for row in made.rows().collect()]
    files = reported((each for one in found for each in one["files"]), target)
    total = sum(one["content"] for one in found)
    lists: dict[str | None, set[int]] = {}
    for each in found:
        for source, at in each["lists"]:
            lists.setdefault(source, set()).add(at)
    return Taken(files, signed(total), lists)


def digest(rows: DataFrame) -> int:
    """What `take` would say of the rows, without writing them; one job."""
    return digest_of(rows, F.col(CONTENT))


def _has_types(rows: T.StructType, columns: T.StructType) -> bool:
    """Whether the rows need no cast; fields that they lack, they lack."""
    return all(
        each.name in columns.fieldNames() and _fits(each.dataType, columns[each.name].dataType)
        for each in rows
        if each.name not in (CONTENT, LISTED)
    )


def _fits(found: T.DataType, wanted: T.DataType) -> bool:
    if isinstance(found, T.StructType) and isinstance(wanted, T.StructType):
        return all(
            each.name in wanted.fieldNames() and _fits(each.dataType, wanted[each.name].dataType)
            for each in found
        )
    one, other = (arrow_schema(T.StructType().add("x", kind)).field(0).type for kind in (found, wanted))
    return bool(one == other)


def _write(batches: Iterable[pa.RecordBatch], kind: Kind, target: Target) -> Iterator[pa.RecordBatch]:
    content, lists = 0, set[tuple[str | None, int]]()
    with OpenFiles(target) as files:
        for batch in batches:
            content += int(ints(batch.column(CONTENT)).sum(dtype=np.int64))
            lists |= _lists(batch)
            for rows in _everywhere(batch, kind):
                files.take(rows)
        found = files.close()
    report = {"files": found, "content": content, "lists": list(lists)}
    yield pa.record_batch({"report": pa.array([json.dumps(report)])})


def _everywhere(changes: pa.RecordBatch, kind: Kind) -> Iterator[pa.RecordBatch]:
    """The changes, of each truncate a copy for every bucket."""
    is_truncate = bools(pc.equal(changes.column("operation"), TRUNCATE))
    if not (SNAPSHOT in changes.schema.names and is_truncate.any()):
        yield changes
        return
    yield picked(changes, ~is_truncate)
    some = picked(changes, is_truncate)
    every = pa.array([EVERY] * some.num_rows, changes.schema.field(GUID).type)
    for bucket in range(kind.buckets):
        own = pa.array([bucket] * some.num_rows, changes.schema.field(BUCKET).type)
        yield with_columns(some, {GUID: every, BUCKET: own})


def _lists(batch: pa.RecordBatch) -> set[tuple[str | None, int]]:
    """The source and the instant of each list of which there are changes."""
    at = batch.column(LISTED)
    if at.null_count == len(at):
        return set()
    some = pa.table({"source": batch.column("source"), "at": at}).filter(at.is_valid())
    return {
        (each["source"], each["at"]) for each in some.group_by(["source", "at"]).aggregate([]).to_pylist()
    }
