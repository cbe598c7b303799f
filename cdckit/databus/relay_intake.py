"""One batch of records on its way into a relay's tables, within a transaction of its store."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.databus.event_rows import DATA, decode
from cdckit.databus.event_staging import EVENTS
from cdckit.databus.faults import DatabusFault
from cdckit.databus.grammar import Standing
from cdckit.databus.relay_tables import (
    KEPT_SCHEMA,
    STREAMS,
    TAKEN,
    WAITING,
    WAITING_SCHEMA,
    Last,
    Settings,
    as_kept,
    as_rows,
    marks_of,
    open_of,
    told_rows,
)
from cdckit.databus.relay_work import ASIDE, FOLD, Kept, Task, keep
from cdckit.databus.row_changes import changes
from cdckit.databus.typed_rows import rows
from cdckit.databus.window_columns import STREAM
from cdckit.databus.window_rows import Key, Mark
from cdckit.ledger.shared_transaction import apply_within
from cdckit.parts.threads import at_once
from cdckit.parts.workers import Made
from cdckit.records import RECORD_COLUMNS, headers_from_workers
from cdckit.rejected import ERROR_CODE
from cdckit.store import File, Transaction
from cdckit.store.files import Where
from cdckit.store.writing import reported

_REPORT = T.StructType().add("report", T.StringType())


class Intake:
    """What a transaction does with records: `take`, or `rebuild`."""

    def __init__(self, transaction: Transaction, settings: Settings) -> None:
        self._transaction, self._settings = transaction, settings
        self._batch = (transaction.base.version or 0) + 1

    def take(self, records: DataFrame) -> int:
        """Bring all tables up to records; how many of them are new."""
        return self._keep(self._decoded(records, aside=False))

    def rebuild(self) -> None:
        """Make everything anew from the records, by the settings as they are now."""
        tables = self._transaction
        before = told_rows(tables)
        # Of two in one place that counts which did before; one that came behind others has a place now.
        is_stray = F.coalesce(F.col(ERROR_CODE) == DatabusFault.PLACE_TAKEN.value, F.lit(False))
        place = Window.partitionBy("topic", "partition", "offset")
        number = F.row_number().over(place.orderBy(is_stray, F.asc_nulls_last(TAKEN), "value"))
        headers = before.withColumn("headers", headers_from_workers())
        kept = tables.scratch(headers.select(*RECORD_COLUMNS, (number > 1).alias("is_second")))
        for name in (EVENTS, WAITING, STREAMS):
            tables.drop(name)
        self._settings.forget(tables)
        first, others = (kept.where(each) for each in ("NOT is_second", "is_second"))
        self._keep(self._decoded(first, aside=False).unionByName(self._decoded(others, aside=True)))

    # -----------------------------------------------------------------------------------------------------

    def _decoded(self, records: DataFrame, *, aside: bool) -> DataFrame:
        """The records with their events, in the columns in which they are kept, and `ASIDE`."""
        told = self._settings
        decoded = decode(records, told.sources.values(), skip_sources=told.skipped)
        return as_kept(decoded).withColumn(ASIDE, F.lit(aside))

    def _keep(self, fresh: DataFrame) -> int:
        tables = self._transaction
        self._settings.within(tables)
        task = task_of(tables, self._batch, FOLD)
        order = [F.asc_nulls_first(name) for name in STREAM]
        in_order = fresh.repartition("topic", "partition").sortWithinPartitions(*order, "offset", ASIDE)
        done = Made(in_order, partial(keep, task=task), _REPORT).rows().collect()
        reports = [json.loads(row["report"]) for row in done]
        added = adopted(tables, task, reports)
        self._apply(added, {number for each in reports for number in each["sources"]})
        return sum(each["rows"] for each in reports)

    def _apply(self, added: list[File], numbers: set[int]) -> None:
        """Bring the ledgers up to the windows that passed."""
        tables, told = self._transaction, self._settings
        names = [told.sources[number].name for number in sorted(numbers) if number in told.sources]

        def apply(name: str) -> None:
            source = told.named[name]
            where: Where = {
                "source_id": [source.id],
                "kind": [DATA],
                "window_state": ["complete"],
                TAKEN: [self._batch],
            }
            passed = tables.read(EVENTS, where, added)
            typed = rows(passed, source)
            apply_within(tables, told.kind(name), changes(typed, keys=told.keys[name]))

        at_once(tables.spark, apply, [name for name in names if name in told.keys])


def task_of(tables: Transaction, batch: int, fold: int) -> Task:
    """What workers must know of what a relay has."""
    marks, last = marks_of(tables)
    return Task(
        batch=batch,
        events=tables.target(EVENTS, KEPT_SCHEMA, STREAM),
        waiting=tables.target(WAITING, WAITING_SCHEMA, STREAM),
        marks=marks,
        last=last,
        files=by_stream(tables.files(EVENTS)),
        open_files=by_stream(tables.files(WAITING)),
        fold=fold,
    )


def adopted(tables: Transaction, task: Task, reports: list[dict[str, Any]]) -> list[File]:
    """Let the tables have what workers wrote; the files of settled events."""
    added: dict[str, list[File]] = {}
    for name, target in ((EVENTS, task.events), (WAITING, task.waiting)):
        added[name] = reported((one for each in reports for one in each[name]), target)
        tables.adopt(name, added[name], [path for each in reports for path in each["gone"][name]])
    tables.replace(STREAMS, as_rows(*moved_on(task, reports)))
    return added[EVENTS]


def by_stream(files: list[File]) -> dict[Key, list[Kept]]:
    """Of each stream the files of its events, in the order of their windows and offsets."""
    found: dict[Key, list[tuple[tuple[int, int], Kept]]] = {}
    for one in files:
        covered = None
        if "covered_to" in one.high:
            covered = one.low["covered_from"], one.high["covered_to"]
        kept = Kept(one.path, one.size, (one.low["offset"], one.high["offset"]), covered)
        key = tuple(one.partition[name] for name in STREAM)
        found.setdefault(key, []).append(((one.low.get("window", 0), one.low["offset"]), kept))
    return {key: [kept for _, kept in sorted(listed)] for key, listed in found.items()}


def moved_on(task: Task, reports: list[dict[str, Any]]) -> tuple[dict[Key, Mark], Last]:
    """Where the streams stand now; one of which nothing came may have lost records all the same."""
    now: dict[Key, Mark] = {}
    for each in reports:
        for key, standing, window, lost in each["marks"]:
            now[tuple(key)] = Mark(Standing(*standing), open_of(window), lost)
    found = {**task.marks, **now}
    for key, mark in task.marks.items():
        place = (*key[:2], None)
        if key not in now and place in now:
            came = now[place].lost - task.marks.get(place, Mark()).lost
            found[key] = mark._replace(lost=mark.lost + came)
    told = {tuple(place): offset for each in reports for place, offset in each["last"]}
    return found, {**task.last, **told}
