"""The upkeep of one bucket, in a worker: from new changes and the files there are to the next ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdckit.history import VALID_TO
from cdckit.kernel.changes import require_whole
from cdckit.kernel.layout import GUID
from cdckit.ledger.columns import BUCKET, LATEST, OPEN
from cdckit.ledger.flat import flat
from cdckit.ledger.remerging import Merged, merged_changes
from cdckit.ledger.rows import others, rows_of, with_columns
from cdckit.ledger.tasks import Book, Task
from cdckit.parts.arrow_types import batch_of
from cdckit.store.reading import batches_of
from cdckit.store.writing import OpenFiles, Target

FOLD = 16
"""From how many small files of one kind on those of a bucket are written as one."""

SMALL = 4 << 20
"""Bytes: a file of fewer is a small one."""


class Kept(NamedTuple):
    """What became of a bucket: by table the files that came, as reports, and the paths of those that went."""

    taken: int
    """How many changes were news."""
    keep: list[str]
    """Which of the fresh files are files of the log as they are."""
    added: dict[str, list[dict[str, Any]]]
    removed: dict[str, list[str]]


def upkeep(task: Task, book: Book) -> Kept:
    """Do the upkeep of one bucket: read, merge, write."""
    new, opened, unborn = (
        rows_of(target, paths)
        for target, paths in ((book.log, task.fresh), (book.history, task.open), (book.unborn, task.unborn))
    )
    require_whole(flat(new, book.layout))
    merged = merged_changes(task, book, new, opened, unborn)
    files = _Files(book)
    try:
        keep = _write_log(files, task, new, merged)
        if len(merged.guids) or task.anew:
            _write_versions(files, task, opened, merged)
            _write_unborn(files, task, unborn, merged)
        added = files.close()
    except BaseException:
        files.discard()
        raise
    return Kept(merged.news.num_rows, keep, added, files.removed)


class _Files:
    """What a task writes, and takes away."""

    def __init__(self, book: Book) -> None:
        self.book = book
        self._open = {name: OpenFiles(getattr(book, name)) for name in ("log", "history", "unborn")}
        self.removed: dict[str, list[str]] = {name: [] for name in self._open}

    def write(self, table: str, rows: pa.RecordBatch) -> None:
        """Rows of a table."""
        self._open[table].take(rows)

    def replace(self, table: str, path: str, keep: Callable[[pa.RecordBatch], pa.RecordBatch]) -> None:
        """Some of the rows of a file in its place."""
        for batch in batches_of(getattr(self.book, table), path):
            self.write(table, keep(batch))
        self.removed[table].append(path)

    def close(self) -> dict[str, list[dict[str, Any]]]:
        """What was written."""
        return {name: each.close() for name, each in self._open.items()}

    def discard(self) -> None:
        """Delete what was begun."""
        for each in self._open.values():
            each.discard()


def _write_log(files: _Files, task: Task, new: pa.RecordBatch, merged: Merged) -> list[str]:
    """The log: returned are the fresh files that stay as they are."""
    small = [path for path, size in task.log if size < SMALL]
    if merged.news.num_rows == new.num_rows and len(small) + len(task.fresh) < FOLD:
        return [path for path, _ in task.fresh]
    files.write("log", merged.news)
    if merged.news.num_rows and len(small) + 1 >= FOLD:
        for path in small:
            files.replace("log", path, lambda rows: rows)
    return []


def _write_versions(files: _Files, task: Task, opened: pa.RecordBatch, merged: Merged) -> None:
    """The versions: the open ones are written again, of the closed ones what late changes have touched."""
    if not task.anew:
        files.write("history", others(opened, merged.guids))
    for rows in (merged.versions, merged.gone_on):
        is_open = rows.column(VALID_TO).is_null()
        at = pc.index_in(rows.column(GUID), value_set=merged.guids)
        latest = pc.if_else(is_open, merged.latest.take(at), pa.scalar(None, merged.latest.type))
        bucket = pa.array(np.full(rows.num_rows, task.bucket, np.int32))
        files.write("history", with_columns(rows, {OPEN: is_open, LATEST: latest, BUCKET: bucket}))
    files.removed["history"] += [path for path, _ in task.open]
    small = {path for path, size in task.closed if size < SMALL}
    for path, _ in task.closed:
        if task.anew:
            files.removed["history"].append(path)
        elif (len(small) >= FOLD and path in small) or _holds(files.book.history, path, merged.late):
            files.replace("history", path, lambda rows: others(rows, merged.late))


def _holds(target: Target, path: str, guids: pa.Array) -> bool:
    """Whether a file has rows of one of these entities."""
    return bool(len(guids)) and any(
        pc.any(pc.is_in(batch.column(0), value_set=guids)).as_py()
        for batch in batches_of(target, path, [GUID])
    )


def _write_unborn(files: _Files, task: Task, unborn: pa.RecordBatch, merged: Merged) -> None:
    """The entities that have no version: some may have one now, and others have come."""
    born = pa.concat_arrays([rows.column(GUID) for rows in (merged.versions, merged.gone_on)])
    lacking = pc.invert(pc.is_in(merged.guids, value_set=born))
    guids = merged.guids.filter(lacking)
    kept = others(unborn, merged.guids)
    if task.anew:
        kept = kept.slice(0, 0)
    if len(guids) or kept.num_rows < unborn.num_rows:
        bucket = pa.array(np.full(len(guids), task.bucket, np.int32))
        columns = {GUID: guids, LATEST: merged.latest.filter(lacking), BUCKET: bucket}
        files.write("unborn", kept)
        files.write("unborn", batch_of(columns, unborn.schema))
        files.removed["unborn"] += [path for path, _ in task.unborn]
