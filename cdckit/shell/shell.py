"""What every door that remembers is: batches in, each in one transaction; questions that never write."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import ClassVar, NamedTuple, cast

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument
from cdckit.ledger.erasure.erasure_requests import Keys, Request
from cdckit.ledger.erasure.erasure_steps import erase_within, finish, run_erasure, unfinished
from cdckit.ledger.erasure.forgotten_entities import ForgottenEntities, forget_entities
from cdckit.ledger.erasure.receipts import ErasedPart, Receipt
from cdckit.ledger.erasure.tombstones import REFUSE
from cdckit.ledger.kind import Kind
from cdckit.ledger.publication.published_history import Form, publish
from cdckit.ledger.views import View
from cdckit.model.documents import Document, as_records, make_sink
from cdckit.model.records import RECORD_COLUMNS
from cdckit.outputs.scd import scd_type_2
from cdckit.parts.argument_forms import DURATION, checked_calls
from cdckit.parts.arguments import require_batch_id, require_instant
from cdckit.parts.instants import microseconds
from cdckit.parts.job_descriptions import describe_step
from cdckit.parts.workers import compute_once
from cdckit.shell.record_places import places_of, require_alone
from cdckit.store import Snapshot, Store, Transaction
from cdckit.store.commits import KIND
from cdckit.store.conflicts import Scope
from cdckit.store.erasure import forget_past
from cdckit.store.files import sum_digests
from cdckit.store.store import require_kind

_LOG = logging.getLogger(__name__)

MANY_FILES = 16
"""So many small files of a table that grows are written together: each batch adds some."""

_SEVERAL_KEYS = (
    "The ledger is there, but its entities have several keys, or a key that links only hold in part: by "
    "another one an erased entity would come back.  Let its source delete them; or begin the door anew in "
    "another location, of messages without them."
)


@dataclass(frozen=True)
class ReceiveResult:
    """
    What `Shell.receive` did.

    Args:
        version: The commit by which it is seen.
        records: How many records came; of a relay or a service, those that had not come before.
        repeated: Whether nothing was done, because the batch had been received before.
        notes: What the door noticed of the batch, in sentences, such as a column that nobody had named.

    >>> received = ReceiveResult(version=7, records=0, repeated=True)
    >>> "received before" if received.repeated else f"{received.records} records in {received.version}"
    'received before'
    """

    version: int
    records: int
    repeated: bool = False
    notes: tuple[str, ...] = field(default=(), compare=False)


class WorkResult(NamedTuple):
    """
    What a door did within a transaction, which is to be committed.

    Args:
        records: How many it took, or gave up.
        reads: What it went by, as for `Transaction.commit`; None for all that it read.
        notes: As of a `ReceiveResult`.
    """

    records: int = 0
    reads: Sequence[Scope] | None = None
    notes: Sequence[str] = ()


class Ledgers(dict[str, View]):
    """The histories of a door by name; to ask for another one raises `InvalidArgument`."""

    def __missing__(self, name: str) -> View:
        raise InvalidArgument("ledgers", "a name", f"one of {', '.join(self) or 'none yet'}", name)


def content_hash(names: Sequence[str]) -> Column:
    """A hash of columns, in which a null has its place: a key without a value is no value without a key."""
    return F.xxhash64(*names, *(F.col(name).isNull() for name in names))


@checked_calls
class Shell(ABC):
    """
    A door that remembers what came, in one store.

    Each call of a verb (`receive`, `expire`, `rebuild`) is one transaction: seen whole or not at all,
    whatever dies meanwhile.  Opening a shell, and every question to it, writes and deletes nothing; a
    question is answered from the newest commit, and the answer stays what it was while others write.

    A door says how it takes a batch (`_take`), what expires (`_expire`) and how all is made anew
    (`_rebuild`); and where its tables hold what waits, what was refused and its histories.

    Args:
        spark: The session that does the work.
        location: A local folder or a URI, as for `cdckit.store.Store`; new, or of a shell of this kind.
        storage_options: What deltalake calls so, for a URI.

    Attributes:
        store: The store: `commits`, `compact`, `vacuum` and `check` are its own.

    Raises:
        OtherKind: The location holds something else.
        NoFileSystem, DamagedTable: As for `cdckit.store.Store`.

    >>> from cdckit import databus
    >>> issubclass(databus.Relay, Shell)
    True
    """

    kind: ClassVar[str]
    """What the store is noted to hold, and the version of its form."""
    wait: timedelta = timedelta(hours=1)
    """How long `expire` lets a record wait, if it is not told."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        checked_calls(cls)

    def __init__(
        self, spark: SparkSession, location: str | Path, storage_options: dict[str, str] | None = None
    ) -> None:
        self.location = str(location)
        self._spark, self.store = spark, Store(spark, location, storage_options)
        self._snapshot()

    _reads_waiting: ClassVar[bool] = False
    """Whether it can tell of whom the records speak that wait."""

    # What a door says -------------------------------------------------------------------------------------

    def _places(self, tables: Transaction, kind: Kind, entities: DataFrame) -> DataFrame | None:
        """The places of more records that speak of entities than those by which their ledger knows them."""
        return None

    def _forget(self, tables: Transaction, places: DataFrame) -> list[ErasedPart]:
        """Take what stands at the places of records out of the tables beside the ledgers."""
        raise NotImplementedError(f"{type(self).__name__} forgets entities in another way")

    def _erasable(self, tables: Snapshot) -> Mapping[str, Kind]:
        """The kinds of entities that it can forget, by name."""
        return self._kinds(tables)

    def _key_columns(self, name: str) -> T.StructType | None:
        """The key fields of a kind of entities, where there is no log that has them."""
        return None

    def _asked_entities(self, tables: Transaction, kind: Kind, request: Request) -> DataFrame:
        """The guids of the entities that are to be erased."""
        return request.entities(tables, kind)

    def _forget_entities(
        self, tables: Transaction, kind: Kind, request: Request, entities: DataFrame
    ) -> ForgottenEntities:
        """Take entities out of all tables: out of their ledger, and the records that speak of them."""
        places = places_of(entities, tables, kind)
        forgotten = forget_entities(tables, kind, entities)
        if forgotten.unknown or not forgotten.found:
            return forgotten
        more = self._places(tables, kind, entities)
        # Each table beside the ledgers is asked for them several times.
        named = compute_once(places if more is None else places.unionByName(more).distinct())
        assert named is not None
        for ledger in self._kinds(tables.base).values():
            require_alone(named, tables, ledger)
        parts = (*forgotten.parts, *self._forget(tables, named))
        return forgotten._replace(parts=parts, not_erased=self._unread(tables))

    def _lock(self) -> AbstractContextManager[object]:
        """What an erasure holds from before it begins: else it could wait for one who waits for it."""
        return nullcontext()

    @abstractmethod
    def _take(self, tables: Transaction, records: DataFrame) -> WorkResult:
        """Bring all tables up to records."""

    @abstractmethod
    def _expire(self, tables: Transaction, now: datetime, wait: timedelta) -> int:
        """Give up what has waited for longer than *wait*; how many records that are."""

    @abstractmethod
    def _rebuild(self, tables: Transaction) -> WorkResult | None:
        """Make everything anew from the records as they came; None if there is nothing."""

    @abstractmethod
    def _waiting(self, tables: Snapshot) -> DataFrame:
        """What waits: records, the door's own columns, `waiting_since` and `waiting_for`, in any order."""

    @abstractmethod
    def _rejects(self, tables: Snapshot) -> DataFrame:
        """What cannot be used, and what was given up, in `cdckit.model.REJECT_SCHEMA`."""

    @abstractmethod
    def _contracts(self, tables: Snapshot) -> dict[str, object]:
        """The tables of its own that have a suite, with its name."""

    # Verbs ------------------------------------------------------------------------------------------------

    def receive(
        self,
        records: DataFrame | Iterable[Document],
        batch: str | int | None = None,
        *,
        received_at: datetime | None = None,
    ) -> ReceiveResult:
        """
        Take records, and bring everything up to them, in one transaction.

        Args:
            records: One row per transported message (`cdckit.model.RECORD_SCHEMA`), a batch or a list of
                documents: dictionaries, texts or bytes; of a stream, see `sink`.
            batch: An id of the batch: a batch id is applied once.  A table is the same batch if it has equal
                records at the same places (topic, partition, offset); a list, if it has the same documents in
                the same order.
            received_at: When the documents of a list were delivered, an aware datetime; without it the
                clock's time.

        Raises:
            MissingColumns, WrongColumnType: *records* are not records.
            InvalidArgument: They are a stream, or no list of documents; or the tables were made by other
                settings (`rebuild` makes them anew by these).
            BatchIdReused: The batch id was received with other content.
            ConflictingCommit, StoreIsBusy: Other writers were faster, again and again.

        Cost: with a batch id the records are read once more; the rest is said by each door.
        """
        return self._receive(records, batch, received_at, self._take)

    def sink(self, name: str) -> Callable[[DataFrame, int], ReceiveResult]:
        """
        `receive` for a stream: `stream.writeStream.foreachBatch(feed.sink("orders")).start()`.

        Args:
            name: Of the stream, always the same: the batches that Spark counts are those of this name.  A
                stream that begins anew, with another checkpoint, needs another name.
        """
        return make_sink(self.receive, name)

    def expire(self, now: datetime | None = None, wait: timedelta | None = None) -> int:
        """
        Give up what has waited for too long; returns how many records that are.

        They are rejects then, until what they wait for comes all the same.

        Args:
            now: The instant at which waiting is measured, aware; without it the clock's.
            wait: How long a record may wait (see `waiting`); without it as long as is usual for the door.  Of
                one without a time nobody can tell, so it is given up.
        """
        at = datetime.now(UTC) if now is None else now
        require_instant(at, "now")
        longest = self.wait if wait is None else DURATION.check(wait, "wait")

        def work(tables: Transaction) -> WorkResult | None:
            expired = self._expire(tables, at, longest)
            return WorkResult(expired) if expired else None

        with describe_step(self._spark, f"{self._door}: give up what waited too long"):
            return self._commit(work).records

    def rebuild(self) -> None:
        """
        Make everything anew from the records as they came, by the settings as they are now.

        By the same settings nothing changes, but that what was given up waits again, until `expire`.

        Cost: as for receiving all records at once.
        """
        with describe_step(self._spark, f"{self._door}: make all tables anew"):
            self._commit(self._rebuild)

    def erase(
        self,
        ledger: str,
        *,
        keys: Keys | None = None,
        where: str | Column | None = None,
        keep: timedelta | None = None,
        by: str,
        reason: str,
        later: str = REFUSE,
        at: datetime | None = None,
    ) -> Receipt:
        """
        Forget entities: in their ledger as `Ledger.erase` does, and the records that speak of them.

        Of a record its place stays, and that it was erased; its key, value and headers go.  One that comes
        later is kept as such a place too.  A record that must wait is erased when it waits no longer; older
        commits keep it until the next erasure, since `vacuum` deletes files, and logs have bounds of what
        was in them.  Fields cannot be erased: a record goes as a whole.

        A service and a hub, whose messages speak of several entities, take out of them what is said of these:
        of a batch of patches all others stay, and of a message of records.  A hub reads the messages again
        that it has changed, and nothing is erased where another entity would not be what it was.

        Args:
            ledger: The name of their ledger (`ledgers`); of a hub the target; of a service `entity`, whose
                keys are `db`, `collection`, `zone` and `entity`, and whose *where* is asked of these,
                `document`, `revision` and `changed`.
            keys, where, keep, by, reason, later, at: As for `Ledger.erase`.

        Returns:
            The receipt, as of `Ledger.erase`.  It names how many rejects and waiting records there are of
            which nobody can tell of whom they speak: these are not erased.  A relay reads what waits.

        Raises:
            SharedRecords: A record speaks of other entities too.
            DependentEntities, UnmaskableRecords: Of a hub: others would not be what they were; records that
                came in another form than JSON.
            InvalidArgument, UnknownEntities, MovedEntities, ForeignChange: As for `Ledger.erase`.
            ConflictingCommit, StoreIsBusy: Other writers were faster, again and again.

        Cost: as of `Ledger.erase`; and the places of all records, and of all changes in all ledgers.  A
            service looks at all answers, and learns the types of touched collections again; a hub at all
            statements of its targets, and merges what a run over the changed messages would.  Where others
            write all the time it is done twice or three times, for it reads all: then they wait for it.
        """
        when = datetime.now(UTC) if at is None else at
        request = Request(keys, where, keep, None, by, reason, later, when, self._key_columns(ledger))
        self._stored_kind(self._snapshot(), ledger)
        stored = partial(self._stored_kind, ledger=ledger)

        def work(tables: Transaction) -> Receipt | None:
            require_kind(tables.base, self.kind)
            kind = stored(tables.base)
            asked = self._asked_entities(tables, kind, request)
            forget = partial(self._forget_entities, tables, kind, request)
            return erase_within(tables, kind, request, asked, forget)

        with describe_step(self._spark, f"{self._door}: forget"), self._lock():
            return run_erasure(self.store, stored, request, work, self._finish_erasure)

    def _stored_kind(self, tables: Snapshot, ledger: str) -> Kind:
        stored_kind = self._erasable(tables)
        if ledger not in stored_kind:
            needed = (
                f"one of {', '.join(stored_kind)}"
                if stored_kind
                else "a ledger whose entities can be erased: none is"
            )
            remedy = _SEVERAL_KEYS if ledger in self._ledgers(tables) else None
            raise InvalidArgument(None, "ledger", needed, ledger, remedy=remedy)
        return stored_kind[ledger].stored_kind(tables)

    def _finish_erasure(self) -> Receipt | None:
        """Do what is left to do of an erasure; None if there is none."""
        before = self.store.snapshot()
        if unfinished(before) is None:
            return None
        forgotten = forget_past(before.location)
        return self.store.atomically(lambda tables: finish(tables, forgotten))

    def _unread(self, tables: Transaction) -> tuple[str, ...]:
        """What is not erased, since nobody can tell of whom it speaks."""
        now = cast(Snapshot, tables)  # which is asked for rows alone
        waiting = 0 if self._reads_waiting else self._waiting(now).count()
        counts = [self._unreadable(now).count(), waiting]
        if not any(counts):
            return ()
        sentence = "{} rejects and {} waiting records, of which nobody can tell of whom they speak: look at "
        return (sentence.format(*counts) + "`rejects` and `waiting`.",)

    def _unreadable(self, tables: Snapshot) -> DataFrame:
        """The rejects of which nobody can tell of whom they speak."""
        return self._rejects(tables)

    # Questions --------------------------------------------------------------------------------------------

    def waiting(self) -> DataFrame:
        """
        The records that cannot be used yet; what was given up is not among them (see `rejects`).

        Returns:
            One row per record: its columns, those that the door names, `waiting_since` and `waiting_for`.
        """
        rows = self._waiting(self._snapshot())
        last = ("waiting_since", "waiting_for")
        names = (name for name in rows.columns if name not in (*RECORD_COLUMNS, *last))
        return rows.select(*RECORD_COLUMNS, *names, *last)

    def rejects(self) -> DataFrame:
        """
        The records that cannot be used, and those that were given up.

        Returns:
            One row per record (`cdckit.model.REJECT_SCHEMA`), which can be fed again once it is mended.
        """
        return self._rejects(self._snapshot())

    def contracts(self) -> dict[str, object]:
        """The tables that have a suite of sentences, with its name, all of one commit: for `check_all`."""
        tables = self._snapshot()
        return {
            **self._contracts(tables),
            "rejects": (self._rejects(tables), "rejects"),
            "ledgers": self._ledgers(tables),
        }

    def ledgers(self, version: int | None = None, timestamp: datetime | None = None) -> Ledgers:
        """
        The histories that are kept, by name, all at one commit: each with `history`, `changes`, `as_of`.

        Args:
            version: The commit that is meant; the newest without it.
            timestamp: An instant, instead: the last commit until then.

        Raises:
            InvalidArgument: There is no such commit, or *timestamp* is naive.
            OtherKind: A ledger was made by another key (`rebuild` makes it anew).
        """
        return self._ledgers(self._snapshot(version, timestamp))

    def publish(
        self,
        ledger: str,
        target: str | Path,
        form: Form = scd_type_2,
        *,
        anew: bool = False,
        storage_options: dict[str, str] | None = None,
    ) -> int:
        """
        Bring a table that others read to where the history of a ledger is, as `Ledger.publish` does.

        Args:
            ledger: The name of the ledger (`ledgers`); of a captured database as much of it as `table` needs.
            target, form, anew, storage_options: As for `Ledger.publish`.

        Returns:
            The commit that the table shows.

        Raises:
            InvalidArgument: There is no such ledger; or as for `Ledger.publish`.
            ForeignChange, NotWritable, StoreIsBusy: As for `Ledger.publish`.

        Cost: as of `Ledger.publish`.
        """

        def kind_of(tables: Snapshot) -> Kind:
            require_kind(tables, self.kind)
            return self._ledger(tables, ledger).kind

        with describe_step(self._spark, f"{self._door}: publish a history"):
            return publish(self.store, kind_of, target, form, anew=anew, options=storage_options)

    # -----------------------------------------------------------------------------------------------------

    @property
    def _door(self) -> str:
        return type(self).__name__.lower()

    def _kinds(self, tables: Snapshot) -> Mapping[str, Kind]:
        """The ledgers that are kept, by name."""
        return {}

    def _ledgers(self, tables: Snapshot) -> Ledgers:
        return Ledgers(
            {name: View(tables, kind.stored_kind(tables)) for name, kind in self._kinds(tables).items()}
        )

    def _ledger(self, tables: Snapshot, name: str) -> View:
        """The ledger of that name."""
        return self._ledgers(tables)[name]

    def _snapshot(self, version: int | None = None, timestamp: datetime | None = None) -> Snapshot:
        """The tables at one commit, the newest without arguments."""
        snapshot = self.store.snapshot(version, timestamp)
        require_kind(snapshot, self.kind)
        return snapshot

    def _receive(
        self,
        records: DataFrame | Iterable[Document],
        batch: str | int | None,
        received_at: datetime | None,
        take: Callable[[Transaction, DataFrame], WorkResult],
    ) -> ReceiveResult:
        with describe_step(self._spark, f"{self._door}: take a batch of records"):
            if received_at is None and not isinstance(records, DataFrame):
                received_at = datetime.now(UTC)
            given = as_records(self._spark, records, received_at, shell=self._door)
            # Offsets of documents count on from when they are handed over: the rest is the place in the list.
            first = 0 if received_at is None else microseconds(received_at)
            place = (F.col("offset") - F.lit(first)).alias("place")
            content = given.select("topic", "key", "value", "partition", place)
            result = self._commit(lambda tables: take(tables, given), batch, content)
        for note in result.notes:
            _LOG.warning("receive(): %s", note)
        return result

    def _commit(
        self,
        work: Callable[[Transaction], WorkResult | None],
        batch: str | int | None = None,
        content: DataFrame | None = None,
    ) -> ReceiveResult:
        """
        Commit what *work* does to the newest tables, unless that is nothing.

        With a *batch* id its *content* tells whether it is the same batch that comes again.
        """
        key = require_batch_id(batch)
        digest = None
        if key is not None and content is not None:
            digest = sum_digests(content, content_hash(content.columns))

        def attempt(tables: Transaction) -> ReceiveResult:
            require_kind(tables.base, self.kind)
            # What the commit would find out after all the work.
            came_before = key is not None and self.store.batch(key) is not None
            result = WorkResult(0, ()) if came_before else work(tables)
            if result is None:
                return ReceiveResult(tables.base.version or 0, 0)
            if not came_before:
                tables.note(KIND, self.kind)
            committed = tables.commit(batch=key, digest=digest, reads=result.reads)
            if committed.repeated:
                return ReceiveResult(committed.version, 0, repeated=True)
            return ReceiveResult(committed.version, result.records, notes=tuple(result.notes))

        return self.store.atomically(attempt)
