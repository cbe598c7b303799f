"""
The upkeep of one bucket, in a worker: from new changes and the files that are there to those that are next.

An entity whose new changes are all later than all that the log has of it goes on from its open version
(`cdckit.ledger.resuming`); of any other one that is touched all changes are merged again.  Which of
the two it was never shows in the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdckit.history import VALID_TO
from cdckit.kernel.arrays import bools, ints
from cdckit.kernel.changes import require_whole
from cdckit.kernel.layout import GUID, Layout
from cdckit.kernel.versions import versions
from cdckit.ledger.columns import BUCKET, IDENTITY, LATEST, OPEN
from cdckit.ledger.flat import flat, in_order, numbered_texts, one_batch
from cdckit.ledger.repeats import no_news, said_before
from cdckit.ledger.resuming import resumed
from cdckit.parts.arrow_types import arrow_schema, batch_of
from cdckit.parts.running import Bools
from cdckit.store.names import true_names
from cdckit.store.reading import batches_of
from cdckit.store.writing import OpenFiles, Target

FOLD = 16
"""From how many small files of one kind on those of a bucket are written as one."""

SMALL = 4 << 20
"""Bytes: a file of fewer is a small one."""

Paths = list[tuple[str, int]]
"""Files of a table: the path and the size of each."""


@dataclass(frozen=True)
class Book:
    """What all tasks of one upkeep have in common: where the tables are, and how the kernel reads changes."""

    log: Target
    history: Target
    unborn: Target
    layout: Layout

    @property
    def resuming(self) -> Layout:
        """For changes made of open versions: there every field has a priority of its own."""
        return replace(self.layout, field_priorities=frozenset(range(len(self.layout.fields))))

    @cached_property
    def kept(self) -> pa.Schema:
        """The columns of the table of versions."""
        return arrow_schema(true_names(self.history.stored), large=True)

    @cached_property
    def merged(self) -> pa.Schema:
        """Those of them that the kernel makes."""
        return pa.schema([each for each in self.kept if each.name not in (BUCKET, OPEN, LATEST)])


@dataclass(frozen=True)
class Task:
    """
    One bucket and its files.

    Args:
        bucket: Its number.
        fresh: Files of the log that no commit names yet: what is new, and perhaps is not.
        log: Those that are there.
        open: Of versions without an end.
        closed: Of the other versions.
        unborn: Of the entities that have changes and no version.
        anew: Whether all entities are merged again, whatever is new.
    """

    bucket: int
    fresh: Paths = field(default_factory=list)
    log: Paths = field(default_factory=list)
    open: Paths = field(default_factory=list)
    closed: Paths = field(default_factory=list)
    unborn: Paths = field(default_factory=list)
    anew: bool = False


class Kept(NamedTuple):
    """What became of a bucket: by table the files that came, as reports, and the paths of those that went."""

    taken: int
    """How many changes were news."""
    keep: list[str]
    """Which of the fresh files are files of the log as they are."""
    added: dict[str, list[dict[str, Any]]]
    removed: dict[str, list[str]]


class _Merged(NamedTuple):
    """The outcome for the entities that are touched."""

    guids: pa.Array
    """Of the touched ones."""
    latest: pa.Array
    """The latest effective time of each."""
    versions: pa.RecordBatch
    """Those that are new, of which one may be like one that was there."""
    gone_on: pa.RecordBatch
    """Versions that were open and have an end now, or have not."""
    late: pa.Array
    """The guids of which all versions that are there go."""
    news: pa.RecordBatch
    """The changes that were new, and were news."""


def upkeep(task: Task, book: Book) -> Kept:
    """Do the upkeep of one bucket: read, merge, write."""
    new, opened, unborn = (
        _rows(target, paths)
        for target, paths in ((book.log, task.fresh), (book.history, task.open), (book.unborn, task.unborn))
    )
    require_whole(flat(new, book.layout))
    merged = _merged(task, book, new, opened, unborn)
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


# Merging ---------------------------------------------------------------------------------------------------


def _merged(
    task: Task, book: Book, new: pa.RecordBatch, opened: pa.RecordBatch, unborn: pa.RecordBatch
) -> _Merged:
    late = _late(task, book, new, opened, unborn)
    again = _merged_again(task, book, new.filter(pa.array(late)))
    later = new.filter(pa.array(~late))
    on = _ordered(later)
    stored = opened.filter(pc.is_in(opened.column(GUID), value_set=_distinct(on)))
    begun, gone_on = _gone_on(book, stored, on)
    guids, latest = _latest([again.rows, on])
    return _Merged(
        guids,
        latest,
        _joined([_with_hidden(again.versions, book), _with_hidden(begun, book)], book.kept),
        gone_on,
        _distinct(again.rows),
        _joined([again.news, later], new.schema),
    )


def _late(
    task: Task, book: Book, new: pa.RecordBatch, opened: pa.RecordBatch, unborn: pa.RecordBatch
) -> Bools:
    """The changes of entities for which their place in the log matters, or that may be in it already."""
    if task.anew:
        return np.ones(new.num_rows, dtype=bool)
    known = [
        batch.column(0) for path, _ in task.log for batch in batches_of(book.log, path, [IDENTITY], 1 << 20)
    ]
    late = said_before(new.column(IDENTITY), known)
    encoded = new.column(GUID).dictionary_encode()
    entity, instant = ints(encoded.indices), ints(new.column("effective_timestamp"))
    for there in (opened, unborn):
        at = pc.index_in(encoded.dictionary, value_set=there.column(GUID))
        latest = there.column(LATEST).take(at)
        before = np.asarray(latest.is_valid())
        bound = ints(pc.fill_null(latest.cast(pa.int64()), 0))
        late |= before[entity] & (instant <= bound[entity])
    return np.isin(entity, entity[late])


class _Again(NamedTuple):
    """Of entities that are merged again: their changes in order, which of them are news, their versions."""

    rows: pa.RecordBatch
    news: pa.RecordBatch
    versions: pa.RecordBatch


def _merged_again(task: Task, book: Book, new: pa.RecordBatch) -> _Again:
    guids = _distinct(new)
    old = (
        []
        if not (task.anew or len(guids))
        else [
            batch if task.anew else batch.filter(pc.is_in(batch.column(GUID), value_set=guids))
            for path, _ in task.log
            for batch in batches_of(book.log, path)
        ]
    )
    before = sum(batch.num_rows for batch in old)
    rows = _joined([*old, new], new.schema)
    order = in_order(rows)
    rows, is_new = rows.take(pa.array(order)), order >= before
    drop = no_news(rows, is_new)
    news = rows.filter(pa.array(is_new & ~drop))
    rows = rows.filter(pa.array(~drop))
    if not task.anew:
        rows = rows.filter(pc.is_in(rows.column(GUID), value_set=_distinct(news)))
    found = versions([flat(rows, book.layout)] if rows.num_rows else [], book.layout, book.merged)
    return _Again(rows, news, _joined(found, book.merged))


def _gone_on(book: Book, stored: pa.RecordBatch, on: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """The versions that begin with later changes, and the open ones that they follow, with their ends."""
    if not stored.num_rows:
        found = versions([flat(on, book.layout)] if on.num_rows else [], book.layout, book.merged)
        return _joined(found, book.merged), stored
    changes = _joined_flat([resumed(stored, book.resuming), flat(on, book.resuming)])
    changes = changes.take(pa.array(np.argsort(numbered_texts(changes.column(GUID)), kind="stable")))
    found = _joined(versions([changes], book.resuming, book.merged), book.merged)
    entity = numbered_texts(found.column(GUID))
    first = np.ones(len(entity), dtype=bool)
    first[1:] = entity[1:] != entity[:-1]
    first &= bools(pc.is_in(found.column(GUID), value_set=stored.column(GUID)))
    as_stored = found.filter(pa.array(first))
    at = pc.index_in(stored.column(GUID), value_set=as_stored.column(GUID))
    assert as_stored.num_rows == stored.num_rows
    assert not at.null_count
    ended = _with(stored, {VALID_TO: as_stored.column(VALID_TO).take(at)})
    return found.filter(pa.array(~first)), ended


def _with_hidden(found: pa.RecordBatch, book: Book) -> pa.RecordBatch:
    """Versions with room for the columns that users do not see."""
    there = set(found.schema.names)
    columns = {
        each.name: found.column(each.name) if each.name in there else pa.nulls(found.num_rows, each.type)
        for each in book.kept
    }
    return batch_of(columns, book.kept)


def _latest(sorted_rows: list[pa.RecordBatch]) -> tuple[pa.Array, pa.Array]:
    """The entities in rows that are in order, and the last instant of each."""
    guids, instants = [], []
    for rows in sorted_rows:
        entity = numbered_texts(rows.column(GUID))
        last = np.ones(len(entity), dtype=bool)
        last[:-1] = entity[1:] != entity[:-1]
        guids.append(rows.column(GUID).filter(pa.array(last)))
        instants.append(rows.column("effective_timestamp").filter(pa.array(last)))
    return pa.concat_arrays(guids), pa.concat_arrays(instants)


# Writing ---------------------------------------------------------------------------------------------------


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


def _write_log(files: _Files, task: Task, new: pa.RecordBatch, merged: _Merged) -> list[str]:
    """The log: returned are the fresh files that stay as they are."""
    small = [path for path, size in task.log if size < SMALL]
    if merged.news.num_rows == new.num_rows and len(small) + len(task.fresh) < FOLD:
        return [path for path, _ in task.fresh]
    files.write("log", merged.news)
    if merged.news.num_rows and len(small) + 1 >= FOLD:
        for path in small:
            files.replace("log", path, lambda rows: rows)
    return []


def _write_versions(files: _Files, task: Task, opened: pa.RecordBatch, merged: _Merged) -> None:
    """The versions: the open ones are written again, of the closed ones what late changes have touched."""
    if not task.anew:
        files.write("history", _others(opened, merged.guids))
    for rows in (merged.versions, merged.gone_on):
        is_open = rows.column(VALID_TO).is_null()
        at = pc.index_in(rows.column(GUID), value_set=merged.guids)
        latest = pc.if_else(is_open, merged.latest.take(at), pa.scalar(None, merged.latest.type))
        bucket = pa.array(np.full(rows.num_rows, task.bucket, np.int32))
        files.write("history", _with(rows, {OPEN: is_open, LATEST: latest, BUCKET: bucket}))
    files.removed["history"] += [path for path, _ in task.open]
    small = {path for path, size in task.closed if size < SMALL}
    for path, _ in task.closed:
        if task.anew:
            files.removed["history"].append(path)
        elif (len(small) >= FOLD and path in small) or _holds(files.book.history, path, merged.late):
            files.replace("history", path, lambda rows: _others(rows, merged.late))


def _holds(target: Target, path: str, guids: pa.Array) -> bool:
    """Whether a file has rows of one of these entities."""
    return bool(len(guids)) and any(
        pc.any(pc.is_in(batch.column(0), value_set=guids)).as_py()
        for batch in batches_of(target, path, [GUID])
    )


def _write_unborn(files: _Files, task: Task, unborn: pa.RecordBatch, merged: _Merged) -> None:
    """The entities that have no version: some may have one now, and others have come."""
    born = pa.concat_arrays([rows.column(GUID) for rows in (merged.versions, merged.gone_on)])
    lacking = pc.invert(pc.is_in(merged.guids, value_set=born))
    guids = merged.guids.filter(lacking)
    kept = _others(unborn, merged.guids)
    if task.anew:
        kept = kept.slice(0, 0)
    if len(guids) or kept.num_rows < unborn.num_rows:
        bucket = pa.array(np.full(len(guids), task.bucket, np.int32))
        columns = {GUID: guids, LATEST: merged.latest.filter(lacking), BUCKET: bucket}
        files.write("unborn", kept)
        files.write("unborn", batch_of(columns, unborn.schema))
        files.removed["unborn"] += [path for path, _ in task.unborn]


# Arrow -----------------------------------------------------------------------------------------------------


def _rows(target: Target, paths: Paths) -> pa.RecordBatch:
    return _joined((batch for path, _ in paths for batch in batches_of(target, path)), target.shape.schema)


def _joined(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    return one_batch(pa.Table.from_batches(list(batches), schema=schema))


def _joined_flat(batches: Iterator[pa.RecordBatch] | list[pa.RecordBatch]) -> pa.RecordBatch:
    first, *more = batches
    return _joined([first, *(batch.select(first.schema.names) for batch in more)], first.schema)


def _ordered(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows.take(pa.array(in_order(rows)))


def _distinct(rows: pa.RecordBatch) -> pa.Array:
    return rows.column(GUID).unique()


def _others(rows: pa.RecordBatch, guids: pa.Array) -> pa.RecordBatch:
    """The rows of all other entities."""
    return rows.filter(pc.invert(pc.is_in(rows.column(GUID), value_set=guids)))


def _with(rows: pa.RecordBatch, columns: dict[str, pa.Array]) -> pa.RecordBatch:
    """The rows with other values in some columns."""
    found = dict(zip(rows.schema.names, rows.columns, strict=True))
    return batch_of({**found, **columns}, rows.schema)
