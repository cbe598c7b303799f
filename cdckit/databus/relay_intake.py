"""One batch of records on its way into a relay's tables: what its workers write, within one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from cdckit.databus.event_tables import changes, rows
from cdckit.databus.event_values import DATA, DatabusFault
from cdckit.databus.events import decode
from cdckit.databus.relay_erasure import drop_erased_events, erased_again, is_erased
from cdckit.databus.relay_tables import (
    EVENTS,
    STORED_SCHEMA,
    STREAMS,
    TAKEN,
    WAITING_SCHEMA,
    Last,
    Settings,
    mark_rows,
    open_window_text,
    parse_open_window,
    read_events,
    read_marks,
    to_stored_rows,
)
from cdckit.databus.window_batches import (
    COVERED,
    EVENT_WINDOW,
    STREAM,
    Key,
    Mark,
    cut_batches,
    split_streams,
    with_columns,
    with_no_window,
)
from cdckit.databus.window_machine import COMPLETE, OPEN, Spans, StreamPosition
from cdckit.ledger.shell import WAITING
from cdckit.ledger.upkeep import apply_within
from cdckit.model.records import ERROR_CODE, ERROR_DESCRIPTION, RECORD_COLUMNS
from cdckit.parts.arrays import Bools, Ints
from cdckit.parts.workers import run_together, worker_reports
from cdckit.store import File, Transaction
from cdckit.store.files import Target, Where, read_batches
from cdckit.store.writing import OpenFiles, parse_report

ASIDE = "_aside"
"""Whether a record is known to have no place: another one stands there."""
SMALL, FOLD = 4 << 20, 16
"""Files in a row that have fewer bytes are written as one, where there are so many."""


class EventFile(NamedTuple):
    """A file of events of one stream; *covered* is None where it tells of no SCN."""

    path: str
    size: int
    offsets: tuple[int, int]
    covered: tuple[int, int] | None


@dataclass(frozen=True)
class Task:
    """What the workers must know of the batches before this one."""

    batch: int
    events: Target
    waiting: Target
    marks: Mapping[Key, Mark]
    last: Last
    files: Mapping[Key, list[EventFile]]
    """By stream the files of its events, in their order."""
    open_files: Mapping[Key, list[EventFile]]
    """The same of its open window."""
    fold: int = FOLD
    """How many small files in a row are written as one."""


def write_events(batches: Iterable[pa.RecordBatch], *, task: Task) -> Iterator[dict[str, Any]]:
    """
    Cut events into windows, write them, and report what was written and where streams stand.

    The events are sorted by `STREAM`, offset and `ASIDE`.
    """
    with OpenFiles(task.events) as events, OpenFiles(task.waiting) as waiting:
        work = _Work(task, events, waiting)
        cut = cut_batches(
            work.drop_repeats(batches),
            output="kept",
            marks=task.marks,
            covered_before=work.covered_scns,
            held_batches=work.open_events,
            tell=work.note_mark,
        )
        for rows in cut:
            work.write(rows)
        report = work.report()
    yield report


class _Work:
    def __init__(self, task: Task, events: OpenFiles, waiting: OpenFiles) -> None:
        self.task, self.events, self.waiting = task, events, waiting
        self.marks: dict[Key, Mark] = {}
        self.last: Last = {}
        self.strays: list[pa.RecordBatch] = []
        self.before: tuple[tuple[Any, ...], bytes | None] | None = None
        self.earlier: list[tuple[Ints, Ints]] = []
        self.stream: tuple[Key, list[tuple[Ints, Ints]]] | None = None
        self.began: set[tuple[Key, str]] = set()
        self.gone: dict[str, list[str]] = {EVENTS: [], WAITING: []}
        self.sources: set[int] = set()
        self.rows = 0

    def note_mark(self, key: Key, mark: Mark) -> None:
        """Where a stream stands."""
        self.marks[key] = mark

    def covered_scns(self, key: Key, least: int) -> Spans:
        """What windows covered that passed in earlier batches, from an SCN on."""
        lows: list[int] = []
        highs: list[int] = []
        for one in self.task.files.get(key, []):
            if one.covered is None or one.covered[1] < least:
                continue
            for spans in read_batches(self.task.events, one.path, COVERED.names):
                passed = spans.filter(pc.greater_equal(spans.column("covered_to"), least))
                lows += passed.column("covered_from").to_pylist()
                highs += passed.column("covered_to").to_pylist()
        return lows, highs

    def open_events(self, key: Key) -> Iterator[pa.RecordBatch]:
        """The events of a stream's open window that earlier batches brought: it has ended."""
        self.began.add((key, WAITING))
        for one in self.task.open_files.get(key, []):
            self.gone[WAITING].append(one.path)
            yield from read_batches(self.task.waiting, one.path)

    # Each record once ------------------------------------------------------------------------------------

    def drop_repeats(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The records that did not come before; one in the place of another is put aside."""
        for batch in batches:
            gone, stray = self._find_repeats(batch)
            stray |= ~gone & np.asarray(batch.column(ASIDE))
            stray |= ~gone & self._find_misplaced(batch, ~(gone | stray))
            self._note_last(batch)
            behind = self._find_behind(batch) & ~gone
            if behind.any():
                known = self._earlier_records(batch.filter(pa.array(behind)))
                for row in np.flatnonzero(behind).tolist():
                    place = _place(batch, row)
                    same = batch.column("value")[row].as_py() in known.get((*place[:2], place[3]), ())
                    gone[row], stray[row] = same, not same
            if stray.any():
                self.strays.append(_strays(batch.filter(pa.array(stray))))
            self.rows += int((~gone).sum())
            left = gone | stray
            rows = batch.filter(pa.array(~left)) if left.any() else batch
            if rows.num_rows:
                yield rows.drop_columns([ASIDE])

    def _find_misplaced(self, batch: pa.RecordBatch, has_place: Bools) -> Bools:
        """Which rows stand in the place of one of another stream of their partition, sorted before."""
        found: list[Bools] = []
        at = 0
        for piece in split_streams(batch):
            key, offsets = _key(piece, 0), np.asarray(piece.column("offset"))
            own = offsets[has_place[at : at + len(offsets)]]
            at += len(offsets)
            if self.stream is None or self.stream[0] != key:
                if self.stream is not None and self.stream[0][:2] == key[:2]:
                    starts, stops = zip(*self.stream[1], strict=True)
                    self.earlier.append((np.concatenate(starts), np.concatenate(stops)))
                else:
                    self.earlier = []
                self.stream = key, []
            self.stream[1].append(_runs(own))
            taken: Bools = np.zeros(len(offsets), dtype=bool)
            for first, last in self.earlier:
                run = np.searchsorted(first, offsets, side="right") - 1
                taken |= (run >= 0) & (offsets <= last[run] if len(last) else False)
            found.append(taken)
        return np.concatenate(found) if found else np.zeros(0, dtype=bool)

    def _find_repeats(self, batch: pa.RecordBatch) -> tuple[Bools, Bools]:
        """Which rows stand in the place of one before them: with the same bytes, and with others."""
        gone, stray = (np.zeros(batch.num_rows, dtype=bool) for _ in range(2))
        offsets = np.asarray(batch.column("offset"))
        looked_at = {0, *(np.flatnonzero(np.diff(offsets) == 0) + 1).tolist()}
        for row in sorted(looked_at):
            if row and row - 1 not in looked_at:
                self.before = _place_and_value(batch, row - 1)
            place, value = _place_and_value(batch, row)
            if self.before is not None and self.before[0] == place:
                (gone if self.before[1] == value else stray)[row] = True
            else:
                self.before = place, value
        if batch.num_rows - 1 not in looked_at:
            self.before = _place_and_value(batch, batch.num_rows - 1)
        return gone, stray

    def _note_last(self, batch: pa.RecordBatch) -> None:
        offsets = np.asarray(batch.column("offset"))
        for place, of in _partitions(batch):
            before = max(self.last.get(place, -1), self.task.last.get(place, -1))
            self.last[place] = max(int(offsets[of].max()), before)

    def _find_behind(self, batch: pa.RecordBatch) -> Bools:
        """Which rows stand at or before the last one of their partition that came in earlier batches."""
        behind: Bools = np.zeros(batch.num_rows, dtype=bool)
        if self.task.last:
            offsets = np.asarray(batch.column("offset"))
            for place, of in _partitions(batch):
                behind |= of & (offsets <= self.task.last.get(place, -1))
        return behind

    def _earlier_records(self, rows: pa.RecordBatch) -> dict[tuple[Any, ...], set[bytes | None]]:
        """What came in these places in earlier batches, by topic, partition and offset."""
        low, high = pc.min_max(rows.column("offset")).as_py().values()
        places = {_place(rows, row)[:2] for row in range(rows.num_rows)}
        found: dict[tuple[Any, ...], set[bytes | None]] = {}
        kept = (
            (key, one, target)
            for files, target in (
                (self.task.files, self.task.events),
                (self.task.open_files, self.task.waiting),
            )
            for key, listed in files.items()
            for one in listed
            if key[:2] in places and one.offsets[1] >= low and one.offsets[0] <= high
        )
        for key, one, target in kept:
            for each in read_batches(target, one.path, ["offset", "value"]):
                some = each.filter(pc.is_in(each.column("offset"), value_set=rows.column("offset")))
                for offset, value in zip(*(c.to_pylist() for c in some.columns), strict=True):
                    found.setdefault((*key[:2], offset), set()).add(value)
        return found

    # Writing ---------------------------------------------------------------------------------------------

    def write(self, rows: pa.RecordBatch) -> None:
        """Write rows that were cut, all of one stream."""
        key = _key(rows, 0)
        if rows.column("window_state")[0].as_py() == OPEN:
            self._fold(WAITING, self.task.open_files.get(key, []), key)
            self.waiting.take(rows)
            return
        self._fold(EVENTS, self.task.files.get(key, []), key)
        counts = pc.and_(
            pc.fill_null(pc.equal(rows.column("window_state"), COMPLETE), False),
            pc.fill_null(pc.equal(rows.column("kind"), DATA), False),
        )
        self.sources.update(rows.column("source_id").filter(counts).unique().to_pylist())
        taken = pa.array(np.full(rows.num_rows, self.task.batch))
        self.events.take(with_columns(rows, {TAKEN: taken}))

    def _fold(self, table: str, files: list[EventFile], key: Key) -> None:
        """Write the last files of a stream again, if they are many and small, before what follows them."""
        if (key, table) in self.began:
            return
        self.began.add((key, table))
        of_table = {EVENTS: (self.task.events, self.events), WAITING: (self.task.waiting, self.waiting)}
        target, into = of_table[table]
        small = list(takewhile(lambda one: one.size < SMALL, reversed(files)))[::-1]
        if len(small) >= self.task.fold:
            for one in small:
                for rows in read_batches(target, one.path):
                    into.take(rows)
            self.gone[table] += [one.path for one in small]

    def report(self) -> dict[str, Any]:
        """What was done."""
        for strays in self.strays:
            self.write(strays)
        return {
            EVENTS: self.events.close(),
            WAITING: self.waiting.close(),
            "gone": self.gone,
            "marks": [
                (key, at, open_window_text(last), lost) for key, (at, last, lost) in self.marks.items()
            ],
            "last": [(key, offset) for key, offset in self.last.items()],
            "sources": sorted(self.sources),
            "rows": self.rows,
        }


def _partitions(batch: pa.RecordBatch) -> Iterator[tuple[tuple[str, int], Bools]]:
    """The partitions of topics of which there are rows, and which rows."""
    topics = batch.column("topic").dictionary_encode()
    codes, numbers = np.asarray(topics.indices), np.asarray(batch.column("partition"))
    for code, number in np.unique(np.stack([codes, numbers]), axis=1).T.tolist():
        yield (topics.dictionary[code].as_py(), number), (codes == code) & (numbers == number)


def _place_and_value(batch: pa.RecordBatch, row: int) -> tuple[tuple[Any, ...], bytes | None]:
    return _place(batch, row), batch.column("value")[row].as_py()


def _place(batch: pa.RecordBatch, row: int) -> tuple[Any, ...]:
    return *_key(batch, row), batch.column("offset")[row].as_py()


def _key(batch: pa.RecordBatch, row: int) -> Key:
    return tuple(batch.column(name)[row].as_py() for name in STREAM)


def _runs(numbers: Ints) -> tuple[Ints, Ints]:
    """Growing numbers as runs: where each begins and ends, both included."""
    if not len(numbers):
        return numbers, numbers
    starts = np.flatnonzero(np.diff(numbers, prepend=numbers[0] - 2) > 1)
    return numbers[starts], numbers[np.append(starts[1:], len(numbers)) - 1]


def _strays(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Records that cannot be put in order: they are of no stream."""
    fault, count = DatabusFault.PLACE_TAKEN, rows.num_rows
    reasons = {
        "kind": pa.nulls(count, pa.string()),
        "physical_partition": pa.nulls(count, pa.int32()),
        ERROR_CODE: pa.array([fault.value] * count),
        ERROR_DESCRIPTION: pa.array([fault.describe()] * count),
    }
    kept = rows.drop_columns([name for name in (*EVENT_WINDOW.names, ASIDE) if name in rows.schema.names])
    return with_no_window(with_columns(kept, reasons))


class Intake:
    """What a transaction does with records: `take`, or `rebuild`."""

    def __init__(self, transaction: Transaction, settings: Settings) -> None:
        self._transaction, self._settings = transaction, settings
        self._batch = (transaction.base.version or 0) + 1

    def take(self, records: DataFrame) -> int:
        """Bring all tables up to records; how many of them are new."""
        fresh = self._decode(records, aside=False)
        return self._keep(drop_erased_events(fresh, self._transaction, self._settings))

    def rebuild(self) -> None:
        """Make everything anew from the records, by the settings as they are now."""
        tables = self._transaction
        before = read_events(tables)
        # Of two in one place that counts which did before; one that came behind others has a place now.
        is_stray = F.coalesce(F.col(ERROR_CODE) == DatabusFault.PLACE_TAKEN.value, F.lit(False))
        place = Window.partitionBy("topic", "partition", "offset")
        number = F.row_number().over(place.orderBy(is_stray, F.asc_nulls_last(TAKEN), "value"))
        placed = before.withColumn("is_second", number > 1)
        kept = tables.scratch(placed.where(~is_erased()).select(*RECORD_COLUMNS, "is_second"))
        gone = tables.scratch(erased_again(before.where(is_erased())))
        for name in (EVENTS, WAITING, STREAMS):
            tables.drop(name)
        self._settings.forget(tables)
        first, others = (kept.where(each) for each in ("NOT is_second", "is_second"))
        came = self._decode(first, aside=False).unionByName(self._decode(others, aside=True))
        self._keep(came.unionByName(gone.withColumn(ASIDE, F.lit(False))))

    # -----------------------------------------------------------------------------------------------------

    def _decode(self, records: DataFrame, *, aside: bool) -> DataFrame:
        """The records with their events, in the columns in which they are kept, and `ASIDE`."""
        settings = self._settings
        decoded = decode(records, settings.sources.values(), skip_sources=settings.skipped)
        return to_stored_rows(decoded).withColumn(ASIDE, F.lit(aside))

    def _keep(self, fresh: DataFrame) -> int:
        tables = self._transaction
        self._settings.check_store(tables)
        task = make_task(tables, self._batch, FOLD)
        order = [F.asc_nulls_first(name) for name in STREAM]
        in_order = fresh.repartition("topic", "partition").sortWithinPartitions(*order, "offset", ASIDE)
        reports = worker_reports(in_order, partial(write_events, task=task))
        added = adopt_files(tables, task, reports)
        self._apply(added, {number for each in reports for number in each["sources"]})
        return sum(each["rows"] for each in reports)

    def _apply(self, added: list[File], numbers: set[int]) -> None:
        """Bring the ledgers up to the windows that passed."""
        tables, settings = self._transaction, self._settings
        names = [settings.sources[number].name for number in sorted(numbers) if number in settings.sources]

        def apply(name: str) -> None:
            source = settings.named[name]
            where: Where = {
                "source_id": [source.id],
                "kind": [DATA],
                "window_state": ["complete"],
                TAKEN: [self._batch],
            }
            passed = tables.read(EVENTS, where, added)
            typed = rows(passed, source)
            apply_within(tables, settings.kind(name), changes(typed, keys=settings.keys[name]))

        run_together(tables.spark, apply, [name for name in names if name in settings.keys])


def make_task(tables: Transaction, batch: int, fold: int) -> Task:
    """What workers must know of what a relay has."""
    marks, last = read_marks(tables)
    return Task(
        batch=batch,
        events=tables.target(EVENTS, STORED_SCHEMA, STREAM),
        waiting=tables.target(WAITING, WAITING_SCHEMA, STREAM),
        marks=marks,
        last=last,
        files=group_by_stream(tables.files(EVENTS)),
        open_files=group_by_stream(tables.files(WAITING)),
        fold=fold,
    )


def adopt_files(tables: Transaction, task: Task, reports: list[dict[str, Any]]) -> list[File]:
    """Let the tables have what workers wrote; the files of settled events."""
    added: dict[str, list[File]] = {}
    for name, target in ((EVENTS, task.events), (WAITING, task.waiting)):
        added[name] = parse_report((one for each in reports for one in each[name]), target)
        tables.adopt(name, added[name], [path for each in reports for path in each["gone"][name]])
    tables.replace(STREAMS, mark_rows(*next_marks(task, reports)))
    return added[EVENTS]


def group_by_stream(files: list[File]) -> dict[Key, list[EventFile]]:
    """Of each stream the files of its events, in the order of their windows and offsets."""
    found: dict[Key, list[tuple[tuple[int, int], EventFile]]] = {}
    for one in files:
        covered = None
        if "covered_to" in one.high:
            covered = one.low["covered_from"], one.high["covered_to"]
        kept = EventFile(one.path, one.size, (one.low["offset"], one.high["offset"]), covered)
        key = tuple(one.partition[name] for name in STREAM)
        found.setdefault(key, []).append(((one.low.get("window", 0), one.low["offset"]), kept))
    return {key: [kept for _, kept in sorted(listed)] for key, listed in found.items()}


def next_marks(task: Task, reports: list[dict[str, Any]]) -> tuple[dict[Key, Mark], Last]:
    """Where the streams stand now; one of which nothing came may have lost records all the same."""
    now: dict[Key, Mark] = {}
    for each in reports:
        for key, standing, window, lost in each["marks"]:
            now[tuple(key)] = Mark(StreamPosition(*standing), parse_open_window(window), lost)
    found = {**task.marks, **now}
    for key, mark in task.marks.items():
        place = (*key[:2], None)
        if key not in now and place in now:
            came = now[place].lost - task.marks.get(place, Mark()).lost
            found[key] = mark._replace(lost=mark.lost + came)
    last_offsets = {tuple(place): offset for each in reports for place, offset in each["last"]}
    return found, {**task.last, **last_offsets}
