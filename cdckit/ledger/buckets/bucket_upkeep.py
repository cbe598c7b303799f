"""The upkeep of one bucket, in a worker: from new changes and the files there are to the next ones."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdckit.ledger.buckets.bucket_merge import MergeResult, merge_bucket
from cdckit.ledger.buckets.bucket_rows import (
    drop_entities,
    entity_guids,
    find_tie,
    flatten_changes,
    join_batches,
    read_rows,
    select_rows,
    with_columns,
)
from cdckit.ledger.buckets.tasks import FOLD, UPKEPT, Paths, Targets, Task
from cdckit.ledger.columns import BUCKET, EVERY, LATEST, OPEN, PLACE
from cdckit.merging.arrow_changes import GUID, require_whole
from cdckit.model.history import VALID_TO
from cdckit.parts.arrays import bools, number_values, rank_values
from cdckit.parts.arrow_types import make_batch
from cdckit.store.files import Target
from cdckit.store.reading import read_batches
from cdckit.store.writing import OpenFiles

OPEN_ROWS = 1024
"""How many open versions a file has at least, where a bucket has so many: each batch writes some again."""

CLOSED_ROWS = 16384
"""The same of closed versions: only late changes write those again."""

_FILES = 16
"""Into about how many files the versions of a large bucket are cut."""

SMALL_BUCKET_FILE = 4 << 20
"""Bytes: a file of fewer is a small one, of those that a bucket has of a table."""


class Outcome(NamedTuple):
    """What became of a bucket: by table the files that came, as reports, and the paths of those that went."""

    news: int
    """How many changes were news."""
    keep: list[str]
    """Which of the fresh files are files of the log as they are."""
    added: dict[str, list[dict[str, Any]]]
    removed: dict[str, list[str]]
    folded: list[str]
    """The files of the log that came with rows of those that went."""
    moved: bool
    """Whether rows may take other words along than they did: an entity with moves was merged again."""
    ties: list[str]
    """The messages of two new changes of which nothing says which one counts; empty without such."""


def keep_up_bucket(task: Task, targets: Targets, again: pa.Array | None = None) -> Outcome:
    """Do the upkeep of one bucket: read, merge, write; entities to be merged *again* are so in any case."""
    new = read_rows(targets.log, task.fresh)
    require_whole(flatten_changes(new, targets.layout))
    if pc.any(pc.equal(new.column(GUID), EVERY)).as_py():
        # A truncate is news to every entity.
        task = replace(task, anew=True)
    rewritten = _with_other_words(task, targets) if again is None else again
    near = [] if task.anew else files_about(task.open, pa.concat_arrays([entity_guids(new), rewritten]))
    opened, unborn = read_rows(targets.history, near), read_rows(targets.tables["unborn"], task.unborn)
    merged = merge_bucket(task, targets, new, opened, unborn, rewritten)
    files = _Files(targets)
    try:
        keep = _write_log(files, task, new, merged)
        if len(merged.guids) or task.anew or task.fold < FOLD:
            _write_open(files, task, near, opened, merged)
            _write_closed(files, task, merged)
            _write_unborn(files, task, unborn, merged)
        added = files.close()
    except BaseException:
        files.discard()
        raise
    # Of a truncate every bucket has a copy.
    copies = pc.sum(pc.equal(merged.news.column(GUID), EVERY)).as_py() or 0 if task.bucket else 0
    ties = find_tie(merged.news)
    return Outcome(
        merged.news.num_rows - copies, keep, added, files.removed, files.folded, merged.moved, ties
    )


def _with_other_words(task: Task, targets: Targets) -> pa.Array:
    """The entities to which rows took along other words than before."""
    if targets.words is None or task.words_before is None or task.anew:
        return pa.array([], targets.log.shape.schema.field(GUID).type)
    now, before = (read_rows(targets.words, paths) for paths in (task.words, task.words_before))
    both = join_batches([now, before], targets.words.shape.schema)
    rows = pa.StructArray.from_arrays(both.columns, names=both.schema.names)
    word_numbers = number_values(rows)
    alone = ~np.where(
        np.arange(len(word_numbers)) < now.num_rows,
        np.isin(word_numbers, word_numbers[now.num_rows :]),
        np.isin(word_numbers, word_numbers[: now.num_rows]),
    )
    return both.column(GUID).filter(pa.array(alone)).unique()


class _Files:
    """What a task writes, and takes away."""

    def __init__(self, targets: Targets) -> None:
        self.targets = targets
        self._open = {name: OpenFiles(targets.tables[name]) for name in UPKEPT}
        self.removed: dict[str, list[str]] = {name: [] for name in self._open}
        self.folded: list[str] = []

    def write(self, table: str, rows: pa.RecordBatch) -> None:
        """Rows of a table."""
        self._open[table].take(rows)

    def write_apart(self, table: str, rows: Iterable[pa.RecordBatch]) -> list[str]:
        """Rows of a table in files of their own, whose paths are returned."""
        self._open[table].begin_files()
        for batch in rows:
            self.write(table, batch)
        return self._open[table].begin_files()

    def remove(self, table: str, files: Paths) -> None:
        """Files that the table shall no longer have."""
        self.removed[table] += [file.path for file in files]

    def close(self) -> dict[str, list[dict[str, Any]]]:
        """Write what waits, and report it."""
        return {name: table_files.close() for name, table_files in self._open.items()}

    def discard(self) -> None:
        """Delete what was begun."""
        for table_files in self._open.values():
            table_files.discard()


def _write_log(files: _Files, task: Task, new: pa.RecordBatch, merged: MergeResult) -> list[str]:
    """The log: returned are the fresh files that stay as they are."""
    small = [file for file in task.log if file.size < SMALL_BUCKET_FILE]
    if merged.news.num_rows == new.num_rows and len(small) + len(task.fresh) < FOLD:
        return [file.path for file in task.fresh]
    files.write("log", merged.news)
    if merged.news.num_rows and len(small) + 1 >= FOLD:
        rows = (batch for file in small for batch in read_batches(files.targets.log, file.path))
        files.folded += files.write_apart("log", rows)
        files.remove("log", small)
    return []


def _write_open(files: _Files, task: Task, near: Paths, opened: pa.RecordBatch, merged: MergeResult) -> None:
    """The open versions: those in the files that may hold what is touched are written again."""
    parts_of = [drop_entities(opened, merged.guids)]
    for rows in (merged.versions, merged.continued):
        open_rows = select_rows(rows, bools(rows.column(VALID_TO).is_null()))
        at = pc.index_in(open_rows.column(GUID), value_set=merged.guids)
        parts_of.append(_with_hidden_columns(open_rows, task, merged, at, is_open=True))
    files.remove("history", task.open if task.anew else near)
    among = [] if task.anew else task.open
    for part in cut_by_guid(join_batches(parts_of, files.targets.stored_schema), among, OPEN_ROWS):
        files.write_apart("history", [part])


def _write_closed(files: _Files, task: Task, merged: MergeResult) -> None:
    """The closed versions: of those there are, what late changes have touched; many small files as one."""
    history = files.targets.history
    parts_of = []
    for rows in (merged.versions, merged.continued):
        closed = select_rows(rows, bools(rows.column(VALID_TO).is_valid()))
        parts_of.append(
            _with_hidden_columns(closed, task, merged, pa.nulls(closed.num_rows, pa.int32()), is_open=False)
        )
    small = [file for file in task.closed if file.rows < CLOSED_ROWS and file.size < SMALL_BUCKET_FILE]
    replaced = task.closed if task.anew else small if len(small) >= task.fold else []
    files.remove("history", replaced)
    if not task.anew:
        parts_of.append(drop_entities(read_rows(history, replaced), merged.late))
    for part in cut_by_guid(join_batches(parts_of, files.targets.stored_schema), [], CLOSED_ROWS):
        files.write_apart("history", [part])
    for file in [] if task.anew else files_about(task.closed, merged.late):
        if file not in replaced and _holds_any(history, file.path, merged.late):
            before = read_batches(history, file.path)
            files.write_apart("history", (drop_entities(rows, merged.late) for rows in before))
            files.remove("history", [file])


def _with_hidden_columns(
    rows: pa.RecordBatch, task: Task, merged: MergeResult, entity: pa.Array, *, is_open: bool
) -> pa.RecordBatch:
    """The versions with the columns that users do not see; *entity* is the place of each in *merged*."""
    open_column = pa.array(np.full(rows.num_rows, is_open))
    bucket_column = pa.array(np.full(rows.num_rows, task.bucket, np.int32))
    latest, place = merged.latest.take(entity), merged.place.take(entity)
    return with_columns(rows, {OPEN: open_column, LATEST: latest, PLACE: place, BUCKET: bucket_column})


def _holds_any(target: Target, path: str, guids: pa.Array) -> bool:
    """Tell whether a file has rows of one of these entities."""
    return bool(len(guids)) and any(
        pc.any(pc.is_in(batch.column(0), value_set=guids)).as_py()
        for batch in read_batches(target, path, [GUID])
    )


def _write_unborn(files: _Files, task: Task, unborn: pa.RecordBatch, merged: MergeResult) -> None:
    """The entities that have no current version: some may have one now, and others have come."""
    both = (merged.versions, merged.continued)
    born = pa.concat_arrays([rows.column(GUID).filter(rows.column(VALID_TO).is_null()) for rows in both])
    lacking = pc.invert(pc.is_in(merged.guids, value_set=born))
    guids = merged.guids.filter(lacking)
    kept = drop_entities(unborn, merged.guids)
    if task.anew:
        kept = kept.slice(0, 0)
    if len(guids) or kept.num_rows < unborn.num_rows:
        bucket = pa.array(np.full(len(guids), task.bucket, np.int32))
        latest, place = merged.latest.filter(lacking), merged.place.filter(lacking)
        columns = {GUID: guids, LATEST: latest, PLACE: place, BUCKET: bucket}
        files.write("unborn", kept)
        files.write("unborn", make_batch(columns, unborn.schema))
        files.remove("unborn", task.unborn)


# Ranges of guids ------------------------------------------------------------------------------------------
#
# So a batch about few entities touches few of the files.  Which file a version is in says nothing about it.


def files_about(files: Paths, guids: pa.Array) -> Paths:
    """The files that can hold rows of these entities, and those between which a new one's would be."""
    sought = sorted(set(guids.drop_null().cast(pa.large_binary()).to_pylist()))
    ordered = sorted(files, key=lambda file: file.low)
    ends = [file.low for file in ordered[1:]]
    near = []
    for number, file in enumerate(ordered):
        first = bisect_left(sought, file.low) if number else 0
        if first < len(sought) and (
            file.high is None
            or sought[first] <= file.high
            or number == len(ends)
            or sought[first] < ends[number]
        ):
            near.append(file)
    return near


def cut_by_guid(rows: pa.RecordBatch, among: Paths, at_least: int) -> Iterator[pa.RecordBatch]:
    """
    The rows in the order of their guids, in parts of which each is for one file.

    Args:
        rows: Versions of a bucket.
        among: The files that the table has of the bucket: no part goes on where one of them begins.
        at_least: How many rows a part should have.
    """
    if not rows.num_rows:
        return
    order = rank_values(rows.column(GUID))
    if (np.diff(order) < 0).any():
        rows = rows.take(pa.array(np.argsort(order, kind="stable")))
    many = max(at_least, max(rows.num_rows, sum(file.rows for file in among)) // _FILES)
    guids = rows.column(GUID).cast(pa.large_binary())
    lows = sorted(file.low for file in among)[1:]
    starts = [bisect_left(range(len(guids)), low, key=lambda at: _guid_at(guids, at)) for low in lows]
    bounds = sorted({0, *starts, rows.num_rows})
    for begin, end in pairwise(bounds):
        pieces = (end - begin) // many if end - begin > 2 * many else 1
        cuts = np.linspace(begin, end, pieces + 1).astype(int)
        for start, stop in pairwise(cuts):
            yield rows.slice(start, stop - start)


def _guid_at(guids: pa.Array, at: int) -> bytes:
    return guids[at].as_py() or b""
