"""The files of one bucket without some entities, or without some of their fields: for workers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdckit.ledger.buckets.bucket_rows import drop_entities, join_batches, read_rows, select_rows
from cdckit.ledger.buckets.bucket_upkeep import files_about, keep_up_bucket
from cdckit.ledger.buckets.tasks import FileRange, Paths, Targets, Task
from cdckit.ledger.columns import BUCKET
from cdckit.merging.arrow_changes import GUID
from cdckit.model.history import VALID_FROM
from cdckit.parts.arrays import Bools, bools
from cdckit.parts.arrow_types import make_batch
from cdckit.store.files import Target
from cdckit.store.writing import OpenFiles

KNOWN = "erased_before"
"""Beside the guid of an entity: whether it has a tombstone."""


@dataclass(frozen=True)
class RewrittenPart:
    """
    What became of one table of one bucket.

    Args:
        added: The files that came, as reports.
        removed: The paths of those that went.
        rows: How many rows those had.
        erased: How many of these were of the entities, and went or lost fields.
        before: A digest of all the other ones.
        after: The same of what was read again of the files that came.
    """

    added: list[dict[str, Any]]
    removed: list[str]
    rows: int
    erased: int
    before: str
    after: str


def erase_buckets(
    batches: Iterable[pa.RecordBatch], tasks: Mapping[int, Task], targets: Targets, fields: list[str]
) -> Iterator[dict[str, Any]]:
    """Erase the entities that a partition names, each bucket by itself; yields a report of each."""
    some = list(batches)
    if not some:
        return
    rows = pa.Table.from_batches(some)
    for bucket in sorted(pc.unique(rows.column(BUCKET)).to_pylist()):
        bucket_rows = rows.filter(pc.equal(rows.column(BUCKET), bucket))
        guids, is_known = (_one_array(bucket_rows.column(name)) for name in (GUID, KNOWN))
        task = tasks.get(bucket, Task(bucket))
        count, parts = _erase_fields(task, targets, guids, fields) if fields else _erase(task, targets, guids)
        is_found = bools(pc.is_in(guids, value_set=count))
        unknown = ~is_found & ~bools(is_known)
        counts = {"bucket": bucket, "found": int(is_found.sum()), "unknown": int(unknown.sum())}
        yield {**counts, "parts": {name: vars(part) for name, part in parts.items()}}


def _erase(task: Task, targets: Targets, guids: pa.Array) -> tuple[pa.Array, dict[str, RewrittenPart]]:
    """All that is said of entities goes; which of them the log has."""

    def drop(rows: pa.RecordBatch, is_erased: Bools) -> pa.RecordBatch:
        return select_rows(rows, ~is_erased)

    logged, log = _rewrite_log(task, targets, guids, drop)
    others = {name: target for name, target in targets.tables.items() if name != "log"}
    parts = {name: _rewrite(target, task.files[name], guids, drop) for name, target in others.items()}
    return logged, {"log": log, **parts}


def _erase_fields(
    task: Task, targets: Targets, guids: pa.Array, fields: list[str]
) -> tuple[pa.Array, dict[str, RewrittenPart]]:
    """Take fields of entities out, as if nobody had ever sent them; returns which of them the log has."""
    logged, log = _rewrite_log(task, targets, guids, partial(_without_fields, fields=fields))
    parts = {"log": log}
    if len(logged) and targets.words is None:
        kept = [file for file in task.log if file.path not in log.removed]
        now = replace(task, log=[*kept, *_as_paths(log.added)])
        parts |= _merge_again(now, targets, logged)
    return logged, parts


def _rewrite_log(
    task: Task, targets: Targets, guids: pa.Array, change: Callable[[pa.RecordBatch, Bools], pa.RecordBatch]
) -> tuple[pa.Array, RewrittenPart]:
    """`_rewrite` the log, and tell which of the entities it has."""
    logged: list[pa.Array] = []

    def change_and_note(rows: pa.RecordBatch, is_erased: Bools) -> pa.RecordBatch:
        logged.append(rows.column(GUID).filter(pa.array(is_erased)))
        return change(rows, is_erased)

    part = _rewrite(targets.log, task.log, guids, change_and_note)
    return pa.concat_arrays(logged).unique() if logged else guids.slice(0, 0), part


def _merge_again(task: Task, targets: Targets, guids: pa.Array) -> dict[str, RewrittenPart]:
    """The versions of entities as their changes give them now."""
    outcome = keep_up_bucket(task, targets, guids)
    assert not [*outcome.added["log"], *outcome.removed["log"]]
    files = {file.path: file for file in [*task.open, *task.closed, *task.unborn]}
    outcomes = {}
    for name in ("history", "unborn"):
        target = targets.tables[name]
        added, removed = outcome.added[name], outcome.removed[name]
        before = read_rows(target, [files[path] for path in removed])
        after = read_rows(target, _as_paths(added))
        rests = [_in_order(drop_entities(rows, guids)) for rows in (before, after)]
        erased = before.num_rows - rests[0].num_rows
        outcomes[name] = _proven(target, added, removed, before.num_rows, erased, *rests)
    return outcomes


def _rewrite(
    target: Target, files: Paths, guids: pa.Array, change: Callable[[pa.RecordBatch, Bools], pa.RecordBatch]
) -> RewrittenPart:
    """Write those files of a table anew that have rows of the entities, and nothing else of it."""

    def is_theirs(rows: pa.RecordBatch) -> Bools:
        return bools(pc.is_in(rows.column(GUID), value_set=guids))

    return rewrite_files(target, files_about(files, guids), is_theirs, change)


def rewrite_files(
    target: Target,
    files: Paths,
    find: Callable[[pa.RecordBatch], Bools],
    change: Callable[[pa.RecordBatch, Bools], pa.RecordBatch],
) -> RewrittenPart:
    """
    Write those of some files anew that have rows which *find* finds: each as one file, in the same order.

    Args:
        target: Their table.
        files: The files.
        find: Says of rows which are meant; of those that stay after the change, the same.
        change: Is given the rows of a file, and which of them are meant.
    """
    removed, kept, rows_before, erased = list[str](), list[pa.RecordBatch](), 0, 0
    with OpenFiles(target) as open_files:
        for file in files:
            rows = read_rows(target, [file])
            is_erased = find(rows)
            if is_erased.any():
                removed.append(file.path)
                rows_before, erased = rows_before + rows.num_rows, erased + int(is_erased.sum())
                kept.append(select_rows(rows, ~is_erased))
                # A file for each that goes: so they stay cut by ranges of guids, or of offsets.
                open_files.take(change(rows, is_erased))
                open_files.begin_files()
        added = open_files.close()
    after = read_rows(target, _as_paths(added))
    rests = join_batches(kept, target.shape.schema), select_rows(after, ~find(after))
    return _proven(target, added, removed, rows_before, erased, *rests)


def _proven(
    target: Target,
    added: list[dict[str, Any]],
    removed: list[str],
    rows: int,
    erased: int,
    before: pa.RecordBatch,
    after: pa.RecordBatch,
) -> RewrittenPart:
    """The report; raises where the rows of other entities are not what they were."""
    was, is_ = digest_batch(before), digest_batch(after)
    if was != is_:
        raise RuntimeError(
            f"An erasure would change rows of others in {target.folder}: nothing was committed."
        )
    return RewrittenPart(added, removed, rows, erased, was, is_)


def _in_order(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Versions by entity and time, and entities without any."""
    names = [name for name in (GUID, VALID_FROM) if name in rows.schema.names]
    return rows.take(pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in names]))


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks)


def _as_paths(reports: list[dict[str, Any]]) -> Paths:
    return [FileRange(report["path"], report["size"], report["numRecords"]) for report in reports]


def _without_fields(rows: pa.RecordBatch, is_erased: Bools, fields: list[str]) -> pa.RecordBatch:
    """Changes, of which those of the entities do not carry the fields."""
    columns = dict(zip(rows.schema.names, rows.columns, strict=True))
    for name in ("data", "carried", "field_priorities"):
        if name in columns:
            columns[name] = _clear_parts(columns[name], is_erased, fields, name == "carried")
    return make_batch(columns, rows.schema)


def _clear_parts(values: pa.StructArray, is_erased: Bools, fields: list[str], flags: bool) -> pa.StructArray:
    parts, mask = [], pa.array(is_erased)
    for number, field in enumerate(values.type):
        part = values.field(number)
        if field.name in fields:
            nothing = pa.scalar(False if flags else None, field.type)
            # Arrow chooses between no lists and no maps by a mask.
            stays = pa.array(np.where(is_erased, -1, np.arange(len(part))), mask=is_erased)
            part = pc.if_else(mask, nothing, part) if flags else part.take(stays)
        parts.append(part)
    return pa.StructArray.from_arrays(parts, fields=list(values.type), mask=values.is_null())


# Digests --------------------------------------------------------------------------------------------------


def digest_batch(rows: pa.RecordBatch) -> str:
    """SHA-256 of the values of rows in their order, whatever file they are in, in hexadecimal digits."""
    digest = hashlib.sha256()
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        digest.update(f"{name} {column.type}\n".encode())
        _feed(digest, column)
    return digest.hexdigest()


def _feed(digest: Any, values: pa.Array) -> None:
    """Give a digest which values are null, and the bytes of the others."""
    digest.update(np.packbits(np.asarray(values.is_valid())).tobytes())
    values = values.drop_null() if values.null_count else values
    kind = values.type
    if pa.types.is_struct(kind):
        for part in values.flatten():
            _feed(digest, part)
    elif pa.types.is_map(kind):
        _feed(digest, pa.array(np.diff(np.asarray(values.offsets))))
        begin, end = values.offsets[0].as_py(), values.offsets[-1].as_py()
        for part in (values.keys, values.items):
            _feed(digest, part.slice(begin, end - begin))
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        _feed(digest, pc.list_value_length(values))
        _feed(digest, values.flatten())
    elif any(is_text(kind) for is_text in _TEXTS):
        _feed(digest, pc.binary_length(values))
        digest.update(_text_bytes(values.cast(pa.large_binary())))
    elif pa.types.is_boolean(kind):
        digest.update(np.packbits(bools(values)).tobytes())
    elif pa.types.is_decimal(kind):
        _feed(digest, values.cast(pa.string()))
    elif not pa.types.is_null(kind):
        digest.update(np.asarray(values.view(f"int{kind.bit_width}")).tobytes())


_TEXTS = pa.types.is_string, pa.types.is_binary, pa.types.is_large_string, pa.types.is_large_binary


def _text_bytes(values: pa.Array) -> bytes:
    """The bytes of texts, one behind the other."""
    _, offsets, data = values.buffers()
    if data is None or not len(values):
        return b""
    ends = np.frombuffer(offsets, np.int64)[values.offset : values.offset + len(values) + 1]
    return bytes(data[int(ends[0]) : int(ends[-1])])
