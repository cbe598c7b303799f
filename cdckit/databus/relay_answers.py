"""What a relay answers: events, waiting and rejects, ledgers of its sources, and streams for consumers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit.databus.checkpoints import CATCHUP, INIT, SNAPSHOT, Checkpoint
from cdckit.databus.event_stream import COLUMNS, Window, windows_of
from cdckit.databus.event_values import DatabusFault, Source, by_id
from cdckit.databus.events import DATA, UPSERT
from cdckit.databus.relay_tables import (
    EVENTS,
    GIVEN_UP,
    KEPT_SCHEMA,
    STREAMS,
    STREAMS_SCHEMA,
    WAITING,
    WAITING_SCHEMA,
    Place,
    Settings,
    as_told,
    told_rows,
    waiting_rows,
)
from cdckit.databus.source_rows import find_without_key, row_fields, rows
from cdckit.databus.subscriptions import Subscription
from cdckit.databus.window_rows import STREAM
from cdckit.databus.window_tables import windows
from cdckit.errors import InvalidArgument
from cdckit.ledger import View
from cdckit.ledger.columns import BUCKETS
from cdckit.parts.arguments import require_keys
from cdckit.parts.arrow_types import spark_columns
from cdckit.records import ERROR_CODE, ERROR_DESCRIPTION, RECORD_COLUMNS, REJECT_SCHEMA, headers_from_workers
from cdckit.store import Snapshot, Store
from cdckit.store.store import require_kind, rows_of


class RelayStream:
    """
    The windows of one stream that a relay keeps, for one subscription: what `dispatch` and loops take.

    They are read from the relay's files, batch by batch, without Spark; each time it is asked, those of the
    newest commit.

    Args:
        store: The store of the relay.
        subscription: What the consumer asks for.
        where: Values of `STREAM`, where the relay keeps several streams.
    """

    def __init__(self, store: Store, subscription: Subscription, where: Mapping[str, Any]) -> None:
        self._store, self._subscription, self._where = store, subscription, where

    def windows(self, after: int = -1) -> Iterator[Window]:
        """
        The windows that end above the SCN *after*, in their order; each must be taken before the next.

        Raises:
            InvalidArgument: There are several streams: their SCNs cannot be compared.
        """
        return windows_of(self._store.snapshot(), self._subscription, after, self._where)


class BootstrapStream(RelayStream):
    """
    The same for a consumer that begins with nothing: a snapshot, then what came meanwhile, then the rest.

    A snapshot is one window for each source: the last event of each key, of those that are not deleted.
    Checkpoints say how far that is (`consumption_mode`), so that a consumer which is killed goes on with the
    source, or the window, that it was at, from its beginning.  Where nothing has passed so far there is no
    snapshot, only the windows that follow.

    Args:
        store: As for `RelayStream`.
        subscription: As for `RelayStream`.
        where: As for `RelayStream`.
        place: Where a snapshot is put down while it is read.

    Source:
        Databus: bootstrap, and the modes of its checkpoint.
    """

    def __init__(
        self, store: Store, subscription: Subscription, where: Mapping[str, Any], place: Place
    ) -> None:
        super().__init__(store, subscription, where)
        self._place = place

    def windows_from(self, checkpoint: Checkpoint) -> Iterator[Window]:
        """The windows for a consumer that is where a checkpoint says; each must be taken before the next."""
        mode, start = checkpoint.consumption_mode, checkpoint.bootstrap_start_scn
        if mode == INIT or (mode == SNAPSHOT and start < 0):
            mode, start = SNAPSHOT, self._passed()
            checkpoint = Checkpoint(SNAPSHOT, **_since_start(start, 0))
        after = start if mode == SNAPSHOT else checkpoint.passed
        if mode == SNAPSHOT and start >= 0:
            yield from self._snapshots(start, checkpoint.bootstrap_snapshot_source_index)
            checkpoint = self._caught_up(start, self._passed())
        for window in self.windows(after):
            assert window.end_scn is not None
            if window.end_scn <= checkpoint.bootstrap_target_scn:
                window.begun = window.done = self._caught_up(start, checkpoint.bootstrap_target_scn)
            yield window

    def _snapshots(self, start: int, first: int) -> Iterator[Window]:
        """A window for each source from the *first* on: what is there at the SCN *start*."""
        stands = [Checkpoint(SNAPSHOT, **_since_start(start, place)) for place in range(self._count)]
        stands.append(self._caught_up(start, start))
        for place, source in enumerate(self._subscription.sources[first:], first):
            for window in self._snapshot(source, start):
                window.begun, window.done, window.ts_nsecs = stands[place], stands[place + 1], -1
                yield window

    @property
    def _count(self) -> int:
        return len(self._subscription.sources)

    def _caught_up(self, start: int, target: int) -> Checkpoint:
        return Checkpoint(CATCHUP, bootstrap_target_scn=target, **_since_start(start, self._count))

    def _snapshot(self, source: Source, start: int) -> Iterator[Window]:
        now = self._store.snapshot()
        stream = {name: [value] for name, value in self._where.items() if value is not None}
        passed = {"kind": [DATA], "window_state": ["complete"], "window_end_scn": (None, start)}
        if not now.has(EVENTS):
            return
        events = now.read(EVENTS, {**stream, **passed, "source_id": [source.id]}).select(
            *COLUMNS, "window_position"
        )
        latest = F.max_by(F.struct(*COLUMNS), F.struct("window", "window_position"))
        rows = events.groupBy("long_key", "string_key").agg(latest.alias("last")).select("last.*")
        alive = rows.where(F.col("opcode") == UPSERT).withColumns(
            {
                "window": F.lit(1).cast("long"),
                "window_start_scn": F.lit(start).cast("long"),
                "window_end_scn": F.lit(start).cast("long"),
            }
        )
        filters = {name: one for name, one in self._subscription.filters.items() if name == source.name}
        with self._place.with_events(now.spark, alive, function="bootstrap") as found:
            yield from windows_of(found, Subscription([source], filters), -1)

    def _passed(self) -> int:
        """The SCN at which the last window ended that passed."""
        snapshot = self._store.snapshot()
        rows = snapshot.arrow(STREAMS).to_pylist() if snapshot.has(STREAMS) else []
        wanted = {name: value for name, value in self._where.items() if value is not None}
        found = [
            row["passed_scn"]
            for row in rows
            if row["physical_partition"] is not None
            and all(row[name] == value for name, value in wanted.items())
        ]
        if len(found) > 1:
            raise InvalidArgument("bootstrap", "physical_partition", "that of one stream", len(found))
        return int(found[0]) if found else -1


def _since_start(start: int, sources: int) -> dict[str, int]:
    """Of a checkpoint: where a bootstrap started, and of how many sources the snapshot is done."""
    return {
        "bootstrap_since_scn": 0,
        "bootstrap_start_scn": start,
        "bootstrap_snapshot_source_index": sources,
    }


RELAY = "Databus relay (form 2)"
_BYTES = ("key", "value", "headers")


class Answers:
    """
    The questions to a relay; none of them writes.

    Each is answered from the newest commit, and the answer stays what it was while others write.

    Attributes:
        store: The store: `commits`, `compact`, `vacuum` and `check` are its own.
    """

    def __init__(
        self,
        spark: SparkSession,
        location: str | Path,
        sources: Iterable[Source],
        *,
        keys: Mapping[str, Sequence[str]] | None = None,
        skip_sources: Iterable[int] = (),
        buckets: int | None = None,
        storage_options: dict[str, str] | None = None,
    ) -> None:
        known = by_id(sources, function="Relay")
        named = {each.name: each for each in known.values()}
        told = dict(keys or {})
        if strangers := sorted(set(told) - set(named)):
            raise InvalidArgument("Relay", "keys", f"of sources among {', '.join(named)}", strangers)
        for name, fields in told.items():
            require_keys(fields, [each.name for each in row_fields(named[name])], function="Relay")
        self._settings = Settings(
            known,
            {name: tuple(fields) for name, fields in told.items()},
            frozenset(skip_sources),
            buckets or BUCKETS,
        )
        self.location = str(location)
        self._spark, self.store = spark, Store(spark, location, storage_options)
        self._snapshot()

    def events(self) -> DataFrame:
        """
        Every record that came, its event, and what became of its window.

        Returns:
            What `with_windows` returns for all records that came, each once.  A record that came behind
            others of its partition is in error, without a window.
        """
        return as_told(told_rows(self._snapshot()))

    def consistent(self, *, version: int | None = None) -> DataFrame:
        """
        The data events of complete windows, each once, in the columns of the function `consistent`.

        Args:
            version: The commit that is meant; the newest without it.
        """
        found = rows_of(self.store.snapshot(version, function="consistent"), EVENTS, KEPT_SCHEMA)
        whole = found.where((F.col("kind") == DATA) & (F.col("window_state") == "complete"))
        return as_told(whole).drop(*_BYTES, ERROR_CODE, ERROR_DESCRIPTION)

    def streams(self) -> DataFrame:
        """
        Where each stream stands: what a reader of the ledgers may go by.

        Returns:
            One row per stream: `topic`, `partition`, `physical_partition`; `windows`, how many have ended,
            attempts that failed included; `passed_scn`, the SCN at which the last window ended that passed
            (-1: none did), and `passed_timestamp`, when that became true; `needed_scn`, the SCN at which, or
            before which, the next window must start, since one was rolled back or damaged, else null;
            `open_events` and `open_since`, how many data events wait for the end of their window, and since
            when.
        """
        snapshot = self._snapshot()
        known = rows_of(snapshot, STREAMS, spark_columns(STREAMS_SCHEMA)).where(
            F.col("physical_partition").isNotNull()
        )
        waits = rows_of(snapshot, WAITING, WAITING_SCHEMA).where(F.col("kind") == DATA)
        counted = waits.groupBy(*STREAM).agg(
            F.count("*").alias("open_events"), F.min("timestamp").alias("open_since")
        )
        passed = F.when(F.col("passed_scn") >= 0, F.timestamp_micros("passed_micros"))
        return known.join(counted, list(STREAM), "left").select(
            *STREAM,
            "windows",
            "passed_scn",
            passed.alias("passed_timestamp"),
            "needed_scn",
            F.coalesce("open_events", F.lit(0)).alias("open_events"),
            "open_since",
        )

    def waiting(self) -> DataFrame:
        """
        The events of windows that have not ended.

        Returns:
            One row per event: the columns of its record, `kind`, `source`, `scn`, `window`,
            `window_start_scn`, `waiting_since` (the time of its record) and `waiting_for`.  Those that are in
            error or were given up are not among them (`rejects`).
        """
        found = waiting_rows(self._snapshot())
        sound = found.where(F.col(GIVEN_UP).isNull() & F.col(ERROR_CODE).isNull())
        return sound.select(
            *RECORD_COLUMNS[:-1],
            headers_from_workers(),
            *("kind", "source", "scn", "window", "window_start_scn"),
            F.col("timestamp").alias("waiting_since"),
            F.concat(F.lit("the end of window "), "window").alias("waiting_for"),
        )

    def rejects(self) -> DataFrame:
        """
        The records that cannot be used, and the events of windows that were given up.

        Returns:
            One row per record (`cdckit.records.REJECT_SCHEMA`).  An event in error damages its window, which
            passes when the source sends it again; so rejects heal from there, or by `rebuild` with the source
            or the schema that was lacking.
        """
        return _rejected(self._snapshot())

    def tables(self, *, version: int | None = None, timestamp: datetime | None = None) -> dict[str, View]:
        """
        The ledgers of all sources that have one, by name, at one commit: so at one end of a window.

        Args:
            version: The commit that is meant; the newest without it.
            timestamp: An instant, instead: the last commit until then.

        Raises:
            InvalidArgument: There is no such commit, or *timestamp* is naive.
        """
        snapshot = self.store.snapshot(version, timestamp, function="tables")
        require_kind(snapshot, RELAY)
        return self._ledgers(snapshot)

    def _ledgers(self, snapshot: Snapshot) -> dict[str, View]:
        told = self._settings
        kinds = {name: told.kind(name).noted(snapshot) for name in told.keys}
        return {name: View(snapshot, kind) for name, kind in kinds.items()}

    def table(self, source: str, *, version: int | None = None, timestamp: datetime | None = None) -> View:
        """
        The ledger of one source: its `history`, its `changes`, its `as_of`.

        Args:
            source: The name of the source.
            version: As for `tables`.
            timestamp: As for `tables`.

        Raises:
            InvalidArgument: No ledger is kept of it, there is no such commit, or *timestamp* is naive.
        """
        self._require_ledger(source, "table")
        return self.tables(version=version, timestamp=timestamp)[source]

    def contracts(self) -> dict[str, object]:
        """
        The tables that have a suite of sentences, with its name, the ledgers by source: for `check_all`.

        All are of one commit.
        """
        snapshot = self._snapshot()
        return {
            "windows": (windows(as_told(told_rows(snapshot))), "databus_windows"),
            "rejects": (_rejected(snapshot), "rejects"),
            "tables": self._ledgers(snapshot),
        }

    def stream(
        self,
        subscription: Subscription,
        *,
        topic: str | None = None,
        partition: int | None = None,
        physical_partition: int | None = None,
    ) -> RelayStream:
        """
        The windows that have passed, for a loop or for `dispatch`: read from files, batch by batch.

        Args:
            subscription: What the consumer asks for.
            topic: That of the stream, where the relay keeps several.
            partition: Likewise.
            physical_partition: Likewise.
        """
        return RelayStream(
            self.store, subscription, dict(zip(STREAM, (topic, partition, physical_partition), strict=True))
        )

    def bootstrap(
        self,
        subscription: Subscription,
        *,
        topic: str | None = None,
        partition: int | None = None,
        physical_partition: int | None = None,
        folder: str | Path | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> BootstrapStream:
        """
        The same for a consumer that begins with nothing: first a snapshot (see `BootstrapStream`).

        Args:
            subscription: As for `stream`.
            topic: As for `stream`.
            partition: As for `stream`.
            physical_partition: As for `stream`.
            folder: Where a snapshot is put down while it is read, as for `EventStream`.
            storage_options: As for `EventStream`.

        Cost: for the snapshot of each source, a job over all its events that passed.
        """
        where = dict(zip(STREAM, (topic, partition, physical_partition), strict=True))
        return BootstrapStream(self.store, subscription, where, Place(folder, storage_options))

    def without_key(self, source: str) -> DataFrame:
        """
        The events of complete windows that do not say which entity they are about (see `find_without_key`).

        Raises:
            InvalidArgument: No ledger is kept of the source.

        Cost: reads all events of the source that passed.
        """
        self._require_ledger(source, "without_key")
        told = self._settings
        return find_without_key(rows(self.consistent(), told.named[source]), keys=told.keys[source])

    def _require_ledger(self, source: str, function: str) -> None:
        if source not in self._settings.keys:
            needed = (
                f"a source of which a ledger is kept: {', '.join(self._settings.keys) or 'there is none'}"
            )
            raise InvalidArgument(function, "source", needed, source)

    def _snapshot(self) -> Snapshot:
        found = self.store.snapshot()
        require_kind(found, RELAY)
        return found


def _rejected(snapshot: Snapshot) -> DataFrame:
    waiting = rows_of(snapshot, WAITING, WAITING_SCHEMA)
    overdue = F.col(GIVEN_UP).isNotNull() & F.col(ERROR_CODE).isNull()
    fault = DatabusFault.WINDOW_OPEN
    named = {ERROR_CODE: fault.value, ERROR_DESCRIPTION: fault.sentence}
    told = waiting.withColumns(
        {name: F.when(overdue, text).otherwise(F.col(name)) for name, text in named.items()}
    )
    columns = KEPT_SCHEMA.fieldNames()
    found = rows_of(snapshot, EVENTS, KEPT_SCHEMA).select(*columns).unionByName(told.select(*columns))
    bad = found.where(F.col(ERROR_CODE).isNotNull())
    return bad.withColumn("headers", headers_from_workers()).select(*REJECT_SCHEMA.fieldNames())
