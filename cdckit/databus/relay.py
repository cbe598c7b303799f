"""A relay that is kept up: events in; out a ledger for each source, all at one end of a window."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import reduce
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit.databus.event_stream import EVENTS, RelayStream
from cdckit.databus.events import DATA, DatabusFault
from cdckit.databus.relay_erasure import event_places, forget_events
from cdckit.databus.relay_intake import Intake
from cdckit.databus.relay_tables import (
    STORED_SCHEMA,
    WAITING_SCHEMA,
    WINDOWED_SCHEMA,
    RelaySettings,
    read_waiting,
    read_windowed_events,
    stream_rows,
)
from cdckit.databus.row_changes import event_changes, is_erased, row_fields
from cdckit.databus.sources import Source, sources_by_id
from cdckit.databus.window_batches import STREAM
from cdckit.databus.windowed_events import has_passed, windows
from cdckit.errors import InvalidArgument
from cdckit.ledger import ErasedPart
from cdckit.ledger.kind import Kind
from cdckit.model.faults import BYTES, ERROR_CODE, ERROR_DESCRIPTION
from cdckit.model.records import RECORD_COLUMNS
from cdckit.model.rejected_records import REJECT_SCHEMA, rejects
from cdckit.parts.arguments import require_keys
from cdckit.shell.shell import Shell, WorkResult
from cdckit.shell.waiting import GIVEN_UP, WAITING, give_up_overdue
from cdckit.store import Snapshot, Transaction
from cdckit.store.store import read_rows, read_some


class Relay(Shell):
    """
    The events of Databus streams, kept up as they come: a ledger for each source, in one store.

    Only windows that are whole reach the ledgers, each once, however often the source rolls back or sends
    again, in the same batch or in a later one.  All ledgers move on in one commit, so whoever reads several
    of them at one commit (`ledgers`) sees them at the end of one window.

    The data events of a window that is open wait until its end comes, from the time of their records on:
    `waiting` shows them with `kind`, `source`, `scn`, `window` and `window_start_scn`.  Given up, they are
    rejects (WINDOW_OPEN).  An event in error damages its window.  What comes behind it waits, until the
    source sends that window again, and all that waited: `streams` shows from which SCN on.  So rejects heal
    from there, or by `rebuild` with the source or the schema that was lacking, or with the source among
    *skip_sources*.
    Events of complete windows that do not say their key are rejects, too (KEY_MISSING), such as a delete
    without a value of a source whose key has several fields: its row lives on until its key is said.

    What the relay answers is at any time what one batch of all records would have given.  The batches must
    bring the records of a partition of a topic in the order of their offsets, as a structured stream does; a
    record that comes again is passed over, and one that comes behind others of its partition for the first
    time is a reject (PLACE_TAKEN), which finds its place with `rebuild` if no other record stands there.  So
    is one without an offset.

    Its verbs and most of its questions are those of every `Shell`.

    Args:
        spark, location, storage_options: As for `Shell`.
        sources: What the srcIds of events stand for (see `decode`).  More of them, and newer schemas, may be
            given when the relay is opened again; without one that was given before, `receive`, `erase` and
            `rejects` raise, since events of it are kept.
        keys: By the name of a source, the fields of its key: of these sources a ledger is kept.  `receive`
            takes no others than before; `rebuild` makes the ledgers anew by these.
        skip_sources: The srcIds of sources that nobody needs here: their events are not kept, so none of
            them can be wanted later.

    Raises:
        InvalidArgument: An argument is not of its form.
        OtherKind, NoFileSystem, DamagedTable: As for `Shell`.

    Cost:
        `receive` is one job, in which the records are decoded, shuffled by topic and partition, cut and
        written once; then two jobs for each ledger of which a window passed.  Of what came before, the
        events of windows that are open are read when these end, and small files of a stream are written
        together now and then; and where the source sends again, two columns of the events from that SCN on
        are read.  `rejects` reads the values of all events that passed, to find those without a key.

    Source:
        Databus, "Consistency window": "if one started from a consistent state of the data and applied all
        events, they will finish in a consistent state".

    Five windows that come in two batches, cut in the middle of the second one, which is rolled back:

    >>> from tempfile import TemporaryDirectory
    >>> from cdckit.model.records import RECORD_COLUMNS
    >>> sent = events.select(*RECORD_COLUMNS)
    >>> with TemporaryDirectory() as folder:
    ...     relay = Relay(session(), folder, [planes, flights], keys={"planes": ["tail"]})
    ...     print(relay.receive(sent.where("offset < 4"), "monday").records)
    ...     print([row["offset"] for row in relay.waiting().collect()])
    ...     print(relay.receive(sent, "tuesday").records)
    ...     relay.streams().select("windows", "passed_scn", "needed_scn", "open_events").show()
    ...     relay.ledgers()["planes"].history().select("tail", "seats", "deleted_indicator").show()
    4
    [3]
    7
    +-------+----------+----------+-----------+
    |windows|passed_scn|needed_scn|open_events|
    +-------+----------+----------+-----------+
    |      4|         6|      NULL|          1|
    +-------+----------+----------+-----------+
    <BLANKLINE>
    +----+-----+-----------------+
    |tail|seats|deleted_indicator|
    +----+-----+-----------------+
    | N12|   55|            false|
    +----+-----+-----------------+
    <BLANKLINE>
    """

    kind = "Databus relay (form 7)"
    _reads_waiting = True

    def __init__(
        self,
        spark: SparkSession,
        location: str | Path,
        sources: Iterable[Source],
        *,
        keys: Mapping[str, Sequence[str]] | None = None,
        skip_sources: Iterable[int] = (),
        storage_options: dict[str, str] | None = None,
    ) -> None:
        by_id = sources_by_id(sources)
        self._settings = settings = RelaySettings(
            by_id, {name: tuple(fields) for name, fields in (keys or {}).items()}, frozenset(skip_sources)
        )
        if strangers := sorted(settings.keys.keys() - settings.named.keys()):
            raise InvalidArgument(None, "keys", f"of sources among {', '.join(settings.named)}", strangers)
        for name, fields in settings.keys.items():
            require_keys(fields, [field.name for field in row_fields(settings.named[name])])
        super().__init__(spark, location, storage_options)

    def _kinds(self, tables: Snapshot) -> Mapping[str, Kind]:
        return self._settings.kinds

    def _take(self, tables: Transaction, records: DataFrame) -> WorkResult:
        self._settings.require_same(tables)
        result = WorkResult(Intake(tables, self._settings).take(records))
        self._settings.note(tables)
        return result

    def _rebuild(self, tables: Transaction) -> WorkResult | None:
        if not tables.has(EVENTS):
            return None
        self._settings.require_skipped(tables)
        Intake(tables, self._settings).rebuild()
        self._settings.note(tables)
        return WorkResult()

    def _expire(self, tables: Transaction, now: datetime, wait: timedelta) -> int:
        waiting = read_some(tables, WAITING)
        if waiting is None:
            return 0
        events, others = waiting.where(_waits()), waiting.where(~_waits())
        overdue, count = give_up_overdue(events, F.col("timestamp"), now, wait)
        if count:
            rows = overdue.unionByName(others)
            tables.replace(WAITING, rows.repartition(*STREAM).sortWithinPartitions(*STREAM, "offset"))
        return count

    def _waiting(self, tables: Snapshot) -> DataFrame:
        waiting = read_waiting(tables).where(F.col(GIVEN_UP).isNull() & _waits())
        return waiting.select(
            *RECORD_COLUMNS,
            *("kind", "source", "scn", "window", "window_start_scn"),
            F.col("timestamp").alias("waiting_since"),
            F.concat(F.lit("the end of window "), "window").alias("waiting_for"),
        )

    def _rejects(self, tables: Snapshot) -> DataFrame:
        self._settings.require_sources(tables)
        waiting = read_rows(tables, WAITING, WAITING_SCHEMA)
        overdue = F.col(GIVEN_UP).isNotNull() & _waits()
        fault = DatabusFault.WINDOW_OPEN
        error = {ERROR_CODE: fault.value, ERROR_DESCRIPTION: fault.sentence}
        given_up = {name: F.when(overdue, text).otherwise(F.col(name)) for name, text in error.items()}
        events = read_rows(tables, EVENTS, STORED_SCHEMA)
        # Only their values say which have no key: they are read again, and nothing of them is kept twice.
        keyless_rejects = (
            rejects(event_changes(events.where(has_passed()), self._settings.named[name], keys=kind.keys))
            for name, kind in self._settings.kinds.items()
        )
        rows = [events, waiting.withColumns(given_up), *keyless_rejects]
        bad = (table.where(F.col(ERROR_CODE).isNotNull()).select(*REJECT_SCHEMA.names) for table in rows)
        return reduce(DataFrame.unionByName, bad)

    def _places(self, tables: Transaction, kind: Kind, entities: DataFrame) -> DataFrame:
        self._settings.require_sources(tables)
        return event_places(tables, self._settings.named[kind.name], kind, entities)

    def _forget(self, tables: Transaction, places: DataFrame) -> list[ErasedPart]:
        return forget_events(tables, places)

    def _contracts(self, tables: Snapshot) -> dict[str, object]:
        return {"windows": (windows(read_windowed_events(tables)), "databus_windows")}

    def events(self) -> DataFrame:
        """
        Show every record that came, its event, and what became of its window.

        Returns:
            What `with_windows` returns for all records that came, each once.  A record that came behind
            others of its partition is in error, without a window.
        """
        return read_windowed_events(self._snapshot())

    def consistent_events(self, *, version: int | None = None) -> DataFrame:
        """
        Keep the data events of complete windows, each once, as the function `consistent_events` does.

        Args:
            version: The commit that is meant; the newest without it.
        """
        snapshot = self._snapshot(version)
        events = read_rows(snapshot, EVENTS, STORED_SCHEMA).where(has_passed() & ~is_erased())
        return events.select(*WINDOWED_SCHEMA.names).drop(*BYTES, ERROR_CODE, ERROR_DESCRIPTION)

    def streams(self) -> DataFrame:
        """
        Tell where each stream stands: what a reader of the ledgers may go by.

        Returns:
            One row per stream: `topic`, `partition`, `physical_partition`; `windows`, how many have ended,
            attempts that failed included; `passed_scn`, the SCN at which the last window ended that passed
            (-1: none did), and `passed_timestamp`, when that became true; `needed_scn`, the SCN at which, or
            before which, the next window must start, since one was rolled back or damaged, or waits behind
            such a one and was not sent again, else null;
            `open_events` and `open_since`, how many data events wait for the end of their window, and since
            when.
        """
        snapshot = self._snapshot()
        waiting = read_rows(snapshot, WAITING, WAITING_SCHEMA).where(F.col("kind") == DATA)
        counts = waiting.groupBy(*STREAM).agg(
            F.count("*").alias("open_events"), F.min("timestamp").alias("open_since")
        )
        streams = stream_rows(snapshot).drop("open_start_scn").join(counts, list(STREAM), "left")
        return streams.fillna(0, ["open_events"])

    def stream(
        self,
        sources: Sequence[Source],
        *,
        topic: str | None = None,
        partition: int | None = None,
        physical_partition: int | None = None,
        buffered: bool = True,
    ) -> RelayStream:
        """
        Read the windows that have passed from files, batch by batch, for a loop or for `dispatch`.

        Args:
            sources: What the consumer asks for, in the order in which each window is to show them.
            topic: That of the stream, where the relay keeps several.
            partition: Likewise.
            physical_partition: Likewise.
            buffered: As for `EventStream`.
        """
        where = dict(zip(STREAM, (topic, partition, physical_partition), strict=True))
        return RelayStream(self.store, sources, where, buffered=buffered)


def _waits() -> Column:
    """Tell whether a row of an open window is an event that can be lost: a checkpoint changes nothing."""
    return F.col("kind").eqNullSafe(DATA) & F.col(ERROR_CODE).isNull()
