"""A batch of changes as files of a ledger's log that no commit names yet, and how workers write them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeGuard

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from cdckit.ledger.buckets.bucket_rows import select_rows, with_columns
from cdckit.ledger.columns import BUCKET, CONTENT, EVERY, LEDGER_REJECT_SCHEMA, LISTED
from cdckit.ledger.erasure.tombstones import REFUSED_SCHEMA, VERDICT, refused_rows, with_verdicts
from cdckit.ledger.kind import Kind
from cdckit.ledger.log_rows import with_buckets, with_table_numbers
from cdckit.merging.arrow_changes import GUID, SNAPSHOT
from cdckit.model.changes import TABLE, TRUNCATE
from cdckit.model.rejected_records import REJECT
from cdckit.parts.arguments import quoted
from cdckit.parts.arrays import Bools, bools, ints
from cdckit.parts.arrow_types import arrow_schema
from cdckit.parts.workers import worker_reports
from cdckit.store import File, Transaction
from cdckit.store.columns import as_columns, true_names
from cdckit.store.commits import VACUUMED_UNTIL
from cdckit.store.files import Target, to_signed
from cdckit.store.writing import OpenFiles, parse_report


@dataclass(frozen=True)
class LoggedBatch:
    """
    Changes that were written into files of the log.

    Args:
        files: Each holds changes of one bucket.
        digest: Of the batch: the sum over its rows, whatever their order.
        lists: Of which full lists there are changes: the source and the instant of each.
        refused: Files of the table of changes that were refused.
        rejects: Files of the table of rejects.
        table: The number of the first table whose rows are among them; None without such rows.
        made_for: What the files depend on: the ledger, its log, its tombstones and its rejects, and that
            nothing was cleaned up since they were written, which may delete what no commit names.
    """

    files: list[File]
    digest: int
    lists: list[tuple[str | None, int]]
    refused: list[File]
    rejects: list[File]
    table: int | None
    made_for: tuple[object, ...]

    def fits(self, tables: Transaction, kind: Kind, log: Target, table: int | None) -> bool:
        """Tell whether the files can be used in a transaction that comes after one that was overtaken."""
        # A table that an overtaken commit was to make is not there.
        lacks_table = bool(self.rejects) and not tables.has(kind.rejects)
        return (
            self.made_for == _made_for(tables, kind, log) and self.table in (None, table) and not lacks_table
        )

    def keep_aside(self, tables: Transaction, kind: Kind) -> None:
        """Let the tables of refused changes and of rejects have what was written to them."""
        for name, files in ((kind.refused, self.refused), (kind.rejects, self.rejects)):
            if files:
                tables.adopt(name, files)


def _made_for(tables: Transaction, kind: Kind, log: Target) -> tuple[object, ...]:
    beside = (tables.base.named.get(name) for name in (kind.erased, kind.rejects))
    return kind, log, tables.base.notes.get(VACUUMED_UNTIL), *beside


def write_batch(
    tables: Transaction, kind: Kind, log: Target, rows: DataFrame, table: int | None
) -> LoggedBatch:
    """
    Let workers write rows of `to_log_rows`, a file for each bucket; one job, of many a shuffle.

    *table* is the number that the rows of the first table get, of one that `Ledger.apply` was given.
    """
    made_for = _made_for(tables, kind, log)
    rows = with_buckets(rows if table is None else with_table_numbers(rows, table), kind)
    has_rejects = REJECT in rows.columns
    beside = [CONTENT, LISTED, *([REJECT] if has_rejects else [])]
    wanted = T.StructType([*true_names(log.stored), *(rows.schema[name] for name in beside)])
    if not _has_types(rows.schema, wanted):
        rows = as_columns(rows, wanted)
    rows = with_verdicts(rows, tables, kind)
    aside = _Aside(
        tables.target(kind.refused, REFUSED_SCHEMA) if VERDICT in rows.columns else None,
        tables.target(kind.rejects, LEDGER_REJECT_SCHEMA) if has_rejects else None,
    )
    write = partial(_write_changes, columns=rows.schema, buckets=kind.buckets, target=log, aside=aside)
    # However many partitions they come in: a file for each of those and bucket would be thousands.
    reports = worker_reports(flatten_structs(rows), write, large=True, by=[BUCKET])

    def files(name: str, target: Target | None) -> list[File]:
        if target is None:
            return []
        return parse_report((file for report in reports for file in report[name]), target)

    refused, rejects = files("refused", aside.refused), files("rejects", aside.rejects)
    if has_rejects and not rejects and not tables.base.has(kind.rejects):
        tables.drop(kind.rejects)
    digest = to_signed(sum(report["content"] for report in reports))
    lists = sorted({(source, at) for report in reports for source, at in report["lists"]}, key=str)
    table = table if any(report["of_tables"] for report in reports) else None
    return LoggedBatch(files("files", log), digest, lists, refused, rejects, table, made_for)


def _has_types(rows: T.DataType, columns: T.DataType) -> bool:
    """Tell whether the rows need no cast; fields that they lack, they lack."""
    if isinstance(rows, T.StructType) and isinstance(columns, T.StructType):
        wanted = {field.name: field.dataType for field in columns}
        return all(field.name in wanted and _has_types(field.dataType, wanted[field.name]) for field in rows)
    given, other = (arrow_schema(T.StructType().add("x", kind)).field(0).type for kind in (rows, columns))
    return bool(given == other)


# In the workers --------------------------------------------------------------------------------------------


class _Aside(NamedTuple):
    """Where rows go that are not logged; None where there are no such ones."""

    refused: Target | None
    rejects: Target | None


def _write_changes(
    batches: Iterable[pa.RecordBatch], columns: T.StructType, buckets: int, target: Target, aside: _Aside
) -> Iterator[dict[str, Any]]:
    content, lists, of_tables = 0, set[tuple[str | None, int]](), False
    with ExitStack() as stack:
        files, refused, rejects = (
            None if table is None else stack.enter_context(OpenFiles(table)) for table in (target, *aside)
        )
        assert files is not None
        for batch in (nest_structs(flat, columns) for flat in batches):
            content += int(ints(batch.column(CONTENT)).sum(dtype=np.int64))
            lists |= _named_lists(batch)
            of_tables |= bool(pc.any(pc.equal(batch.column("arrival").field("topic"), TABLE)).as_py())
            if refused is not None:
                refused.take(refused_rows(batch))
                batch = batch.filter(batch.column(VERDICT).is_null())
            if rejects is not None:
                rejects.take(_reject_rows(batch))
                batch = batch.filter(batch.column(REJECT).is_null())
            for rows in _copy_truncates(batch, buckets):
                files.take(rows)
        names = {"files": files, "refused": refused, "rejects": rejects}
        written = {
            name: [] if open_files is None else open_files.close() for name, open_files in names.items()
        }
    yield {**written, "content": content, "lists": list(lists), "of_tables": of_tables}


def _reject_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rejects among changes, in the columns of `LEDGER_REJECT_SCHEMA`."""
    some = batch.filter(batch.column(REJECT).is_valid())
    reject = some.column(REJECT)
    parts = {field.name: reject.field(field.name) for field in reject.type}
    return pa.RecordBatch.from_pydict({**parts, "source": some.column("source")})


def _copy_truncates(changes: pa.RecordBatch, buckets: int) -> Iterator[pa.RecordBatch]:
    """The changes, of each truncate a copy for every bucket."""
    is_truncate = bools(pc.equal(changes.column("operation"), TRUNCATE))
    if not (SNAPSHOT in changes.schema.names and is_truncate.any()):
        yield changes
        return
    yield select_rows(changes, ~is_truncate)
    some = select_rows(changes, is_truncate)
    every = pa.array([EVERY] * some.num_rows, changes.schema.field(GUID).type)
    for bucket in range(buckets):
        bucket_column = pa.array([bucket] * some.num_rows, changes.schema.field(BUCKET).type)
        yield with_columns(some, {GUID: every, BUCKET: bucket_column})


def _named_lists(batch: pa.RecordBatch) -> set[tuple[str | None, int]]:
    """The source and the instant of each list of which there are changes."""
    at = batch.column(LISTED)
    if at.null_count == len(at):
        return set()
    some = pa.table({"source": batch.column("source"), "at": at}).filter(at.is_valid())
    rows = some.group_by(["source", "at"]).aggregate([]).to_pylist()
    return {(row["source"], row["at"]) for row in rows}


# Structs as flat columns -----------------------------------------------------------------------------------
#
# With every row that Spark hands to a worker it asks each column for its size so far, and of a struct all its
# parts, twice.  For the rows of a log, most of which are structs, that was half of the time; so what is true
# or false is a bit here.


_BITS = 62
"""How many flags a whole number holds."""


def flatten_structs(rows: DataFrame) -> DataFrame:
    """
    The rows with a column for each part of a struct, which `nest_structs` puts together again in a worker.

    The columns that are no structs keep their names.

    >>> rows = session().sql("SELECT 7 AS id, struct('a' AS name, true AS sent, null AS price) AS data")
    >>> flatten_structs(rows).show()
    +-----+---+------+------+
    |flags| id|data 1|data 2|
    +-----+---+------+------+
    |    4|  7|     a|  NULL|
    +-----+---+------+------+
    <BLANKLINE>
    >>> flat = flatten_structs(rows).toArrow().to_batches()[0]
    >>> nest_structs(flat, rows.schema).to_pylist()
    [{'id': 7, 'data': {'name': 'a', 'sent': True, 'price': None}}]
    """
    flat = _Parts.of(rows.schema)
    bits = [f"IF({flag}, {1 << number % _BITS}L, 0L)" for number, flag in enumerate(flat.flags)]
    words = [" | ".join(bits[start : start + _BITS]) for start in range(0, len(bits), _BITS)]
    named = [f"{word} AS {quoted(_word_name(number))}" for number, word in enumerate(words)]
    return rows.selectExpr(*named, *(f"{path} AS {quoted(name)}" for name, path in flat.values.items()))


def nest_structs(batch: pa.RecordBatch, columns: T.StructType) -> pa.RecordBatch:
    """A batch of what `flatten_structs` made of rows with these *columns*, in their columns."""
    flat = _Parts.of(columns)
    flags = (
        (np.asarray(batch.column(_word_name(number // _BITS))) >> (number % _BITS)) & 1 == 1
        for number in range(len(flat.flags))
    )
    values = map(batch.column, flat.values)
    arrays = [_nest(column.dataType, flags, values) for column in columns]
    return pa.RecordBatch.from_arrays(arrays, columns.names)


def _word_name(number: int) -> str:
    return "flags" if number == 0 else f"flags {number}"


@dataclass(frozen=True)
class _Parts:
    """What flat rows have, in SQL: flags, which are never null, and by name the values."""

    flags: list[str] = field(default_factory=list)
    values: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, columns: T.StructType) -> _Parts:
        flat = cls()
        for column in columns:
            flat._add(column.name, quoted(column.name), column.dataType)
        return flat

    def _add(self, name: str, path: str, kind: T.DataType) -> None:
        """Add a column or, of a struct, its parts; *name* is that of the column."""
        if isinstance(kind, T.BooleanType):
            self.flags.extend((f"{path} IS NULL", f"{path} IS TRUE"))
        elif _has_parts(kind):
            self.flags.append(f"{path} IS NULL")
            for field in kind:
                self._add(name, f"{path}.{quoted(field.name)}", field.dataType)
        else:
            self.values[name if path == quoted(name) else f"{name} {len(self.values)}"] = path


def _nest(kind: T.DataType, flags: Iterator[Bools], values: Iterator[pa.Array]) -> pa.Array:
    if isinstance(kind, T.BooleanType):
        is_null = next(flags)
        return pa.array(next(flags), mask=is_null)
    if not _has_parts(kind):
        return next(values)
    is_null = next(flags)
    parts = [_nest(field.dataType, flags, values) for field in kind]
    return pa.StructArray.from_arrays(parts, kind.names, mask=pa.array(is_null) if is_null.any() else None)


def _has_parts(kind: T.DataType) -> TypeGuard[T.StructType]:
    return isinstance(kind, T.StructType) and len(kind) > 0
