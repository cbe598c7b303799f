"""A ledger: log and history of one kind of entity, kept up as changes come."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial, wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit.errors import InvalidArgument
from cdckit.ledger.applied_lists import apply_lists, require_no_lists, require_share, revoke_list
from cdckit.ledger.columns import CONTENT, log_fields
from cdckit.ledger.erasure import erasure_steps
from cdckit.ledger.erasure.erasure_requests import Keys, Request
from cdckit.ledger.erasure.erasure_steps import UnfinishedErasure
from cdckit.ledger.erasure.receipts import Receipt
from cdckit.ledger.erasure.tombstones import REFUSE
from cdckit.ledger.field_types import fit_changes
from cdckit.ledger.history_changes import history_changes
from cdckit.ledger.intake import ApplyResult, revoke_within, take_changes
from cdckit.ledger.kind import Kind
from cdckit.ledger.list_intake import read_lists
from cdckit.ledger.log_rows import last_table, note_tables, require_times_stay, to_log_rows
from cdckit.ledger.logged_batch import LoggedBatch
from cdckit.ledger.publication.published_history import Form, publish, require_published
from cdckit.ledger.upkeep import begin_upkeep
from cdckit.ledger.views import Gate, View, require_gate, run_gate
from cdckit.merging.moves import brings_identity
from cdckit.model.changes import ranked_sources, require_changes
from cdckit.model.documents import make_sink
from cdckit.model.sources import Priority, UnknownSource, find_unused_priorities
from cdckit.outputs.scd import scd_type_2
from cdckit.parts.argument_forms import COUNT, checked_calls
from cdckit.parts.arguments import StreamBatch, microseconds, quoted, require_batch_id, require_name
from cdckit.parts.job_descriptions import describe_jobs
from cdckit.parts.tables import AnyTable
from cdckit.query.provenance import Messages, read_messages
from cdckit.store import CommitResult, Snapshot, Store, Transaction
from cdckit.store.erasure import forget_past
from cdckit.store.files import sum_digests

_LOG = logging.getLogger(__name__)


P = ParamSpec("P")
Answer = TypeVar("Answer")


def _of_newest(question: Callable[Concatenate[View, P], Answer]) -> Callable[Concatenate[Ledger, P], Answer]:
    """A question to the newest commit of a ledger, as a `View` answers it."""

    @wraps(question)
    def ask(ledger: Ledger, /, *args: P.args, **kwargs: P.kwargs) -> Answer:
        return question(ledger.at_commit(), *args, **kwargs)

    return ask


@checked_calls
class Ledger:
    """
    Log and history of one kind of entity, kept up as changes come.

    Its store has the Delta tables `changes` (every change that was news), `history` (what `merge` makes of
    all of them, at any time), `unborn` (the entities with changes and no version); where full lists came,
    `lists`; where rows could not be used, `rejects`; and where changes say of moves, `words` (what rows took
    along when their keys changed).  Opening a ledger, and every question to it, writes and deletes nothing.

    Args:
        spark: The session that reads, and whose workers write.
        location: A local folder or a URI, as for `cdckit.store.Store`; new, or this ledger's.
        entity: The name of the kind of entity, as for `merge`.
        keys: Its key fields, as for `merge`.
        buckets: Into how many parts the tables are cut, once and for all.  Without it the ledger decides: it
            begins with one, or with what an estimate of its first changes asks for, and where a bucket
            would have more than 32 MB of files, the next batch cuts all into four times as many.
        name: Its name in a store that holds several; the tables' names begin with it.
        storage_options: What deltalake calls so, for a URI.

    Raises:
        OtherKind: The location holds something else: another entity, other keys, or no ledger.
        InvalidArgument: An argument is not of its form.
        NoFileSystem, DamagedTable: As for `cdckit.store.Store`.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     ledger = Ledger(session(), folder, entity="product", keys=["number"])
    ...     late, first = changes.where("message_id = 'm2'"), changes.where("message_id != 'm2'")
    ...     print(ledger.apply(first, "monday"))
    ...     print(ledger.apply(late, "tuesday"), ledger.apply(late, "tuesday").repeated)
    ...     versions = ledger.history().orderBy("number", "valid_from_timestamp")
    ...     versions.select("number", "name", "valid_from_timestamp", "valid_to_timestamp").show()
    ApplyResult(version=1, news=3, repeated=False, deleted=0, rejects=0)
    ApplyResult(version=2, news=1, repeated=False, deleted=0, rejects=0) True
    +------+------+--------------------+-------------------+
    |number|  name|valid_from_timestamp| valid_to_timestamp|
    +------+------+--------------------+-------------------+
    |     1|kettle| 2024-01-01 09:00:00|2024-01-01 10:00:00|
    |     1|teapot| 2024-01-01 10:00:00|               NULL|
    |     2|   mug| 2024-01-01 09:00:00|2024-01-01 11:00:00|
    |     2|  NULL| 2024-01-01 11:00:00|               NULL|
    +------+------+--------------------+-------------------+
    <BLANKLINE>
    """

    def __init__(
        self,
        spark: SparkSession,
        location: str | Path,
        *,
        entity: str,
        keys: Sequence[str],
        buckets: int | None = None,
        name: str = "",
        storage_options: dict[str, str] | None = None,
    ) -> None:
        require_name(entity, "entity")
        listed = [] if isinstance(keys, str) or not isinstance(keys, Sequence) else list(keys)
        if not listed or len(set(listed)) != len(listed) or not all(isinstance(item, str) for item in listed):
            raise InvalidArgument(None, "keys", "a list of distinct fields", keys)
        COUNT.or_none().check(buckets, "buckets")
        if not isinstance(name, str):
            raise InvalidArgument(None, "name", "a text", name)
        self.location = str(location)
        self.store = Store(spark, location, storage_options)
        self._spark, self._buckets = spark, buckets
        self._kind = Kind(entity, tuple(listed), buckets or 1, buckets is None, name=name)
        self.at_commit()

    # Asking ----------------------------------------------------------------------------------------------

    changes = _of_newest(View.changes)
    history = _of_newest(View.history)
    beliefs = _of_newest(View.beliefs)
    as_of = _of_newest(View.as_of)
    lists = _of_newest(View.lists)
    erased = _of_newest(View.erased)
    refused = _of_newest(View.refused)
    rejects = _of_newest(View.rejects)
    receipts = _of_newest(View.receipts)
    contracts = _of_newest(View.contracts)
    create_view = _of_newest(View.create_view)

    def at_commit(self, version: int | None = None, timestamp: datetime | None = None) -> View:
        """
        The ledger as it was at a commit, the newest without arguments: "what did it say last Tuesday?"

        Args:
            version: The number of the commit, as `apply` returns it.
            timestamp: An instant, instead: the last commit that was made until then.

        Raises:
            InvalidArgument: There is no such commit, `vacuum` has deleted its files, or *timestamp* is naive.
            OtherKind: The store is not this ledger's.
        """
        snapshot = self.store.snapshot(version, timestamp)
        return View(snapshot, self._stored_kind(snapshot))

    def history_changes(self, since: int, until: int | None = None) -> DataFrame:
        """
        The versions that are not the same at two commits: all that a copy of the history needs to go on.

        Args:
            since: The commit at which the copy stands, as `apply` returns it; 0 for one in which nothing is.
            until: A later commit; the newest without it.

        Returns:
            One row per version, in the columns of `history`, in the types and fields of *until*, behind
            `change`, which says what became of it:

            - "appeared": no version of the entity began at this instant before;
            - "ended": it was open, and has an end now; nothing else about it is new;
            - "changed": it began at this instant before as well, and something else is new: its values, who
              said them, or its end, which is another one or none;
            - "went": no version begins there any more.  The row is the version as it was.

            The first three are rows to write by `guid` and `valid_from_timestamp` (for Delta's change data
            feed insert and update_postimage), the last ones rows to delete, in any order.  No row where
            nothing changed: also after `compact` and `rebuild`, or where another program wrote files anew.

        Raises:
            InvalidArgument: There is no such commit, or `vacuum` has deleted its files: then take all of
                `history`, and go on from the commit that it is of; or *until* is earlier than *since*.
            NoSuchTable: Nothing was ever applied.

        Cost: the files of the history that came and went between the two commits are read, no other ones; one
            shuffle of their versions by guid and beginning.

        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     ledger = Ledger(session(), folder, entity="product", keys=["number"])
        ...     monday = ledger.apply(changes.where("message_id = 'm1'")).version
        ...     _ = ledger.apply(changes.where("message_id = 'm2'"))
        ...     found = ledger.history_changes(monday).orderBy("valid_from_timestamp")
        ...     found.select("change", "number", "name", "valid_from_timestamp").show()
        +--------+------+------+--------------------+
        |  change|number|  name|valid_from_timestamp|
        +--------+------+------+--------------------+
        |   ended|     1|kettle| 2024-01-01 09:00:00|
        |appeared|     1|teapot| 2024-01-01 10:00:00|
        +--------+------+------+--------------------+
        <BLANKLINE>
        """
        now = self._commit(until, "until")
        newest = now.version or 0
        if not isinstance(since, int) or isinstance(since, bool) or since > newest:
            needed = f"a commit up to {newest}, 0 for one in which nothing is"
            raise InvalidArgument(None, "since", needed, since)
        return history_changes(self._commit(since, "since"), now, self._stored_kind(now))

    def _stored_kind(self, snapshot: Snapshot) -> Kind:
        return self._kind.stored_kind(snapshot, self._buckets)

    def _commit(self, version: int | None, argument: str) -> Snapshot:
        try:
            return self.store.snapshot(version)
        except InvalidArgument as error:
            remedy = "Take all of `history()` instead, and go on from the commit that it is of."
            raise InvalidArgument(None, argument, error.needed, version, remedy=remedy) from None

    # Writing ---------------------------------------------------------------------------------------------

    @describe_jobs("ledger: take a batch of changes")
    def apply(
        self, changes: DataFrame, batch: str | int | None = None, *, gate: Gate | None = None
    ) -> ApplyResult:
        """
        Take what is new of a batch of changes, and bring the history up to it, in one transaction.

        Afterwards the history is what `merge` would make of all changes that were ever applied, in
        whatever batches and order they came, however often.  The same change again (source, message
        and record number, of one entity) is no news where it stands behind one that had arrived before it,
        in the log or in the same batch.  Of two tables of one source (`changes_from`) that speak of one
        instant, the one that is applied later counts: their `arrival.partition` says in which call they came.
        Where nothing says which of two rows counts, as within a table of Spark's, a warning names them.

        Of a batch that fails nothing is seen, and its id stays unused.  Where another writer was faster, the
        work is done again on what it left.

        Args:
            changes: One row per change, as for `merge`.  Rejects among them are counted, told in a warning
                and kept (`rejects`).  Of the first changes of all, a warning names sources that
                `with_priorities` was given and that none of them has.  Fields that the ledger does not know
                come to it; numbers, and times, of another type get one that holds both, as in
                `union_changes`, and anything else becomes text; one in which nothing stands, here or in the
                ledger, or in a part of it, has the type of the values that it gets.  Columns beside those of
                changes are not kept.  Full lists are for `apply_list`.
            batch: An id of the batch, which is applied once.  Two streams count alike: see `sink`.
            gate: What looks at the ledger as it will be (`Pending`), before the commit.  Whatever it raises
                refuses the batch: the ledger stays as it was, and the error is raised here.  Such as
                `lambda after: check(after.touched_history(), "history").require()`.  It is not asked of a
                batch that was applied before, and asked again where another writer has meanwhile changed
                what it was shown.  Files of a batch that it refused stay until `vacuum`; until the first
                commit of all, that leaves them too.

        Raises:
            MissingColumns, WrongColumnType, InvalidArgument: As `merge`; or they are a stream; or
                they bring their guids and those before did not, or the other way round; or a key
                field is of another type than before, and not a wider number; or a field has numbers where
                dates or instants were, or is text as it was sent, since its events say no types, where it
                had a type before, or the other way round; or *gate* is no function.
            UnfitList: The changes are what `changes_from_snapshots` makes of full lists.
            BatchIdReused: The batch id was applied with other content.
            NotStorable: A field is of a type that no table has.
            NotWritable: The location is read-only.
            ForeignChange: Another program has changed rows of one of the tables: `adopt` keeps what it did
                to the log, `rebuild` makes the other tables anew.  Or it has given one what cdckit does not
                keep to, such as a CHECK constraint: the error says what, and what takes that away.
            ConflictingCommit, StoreIsBusy: Other writers were faster, again and again.
            PythonException: As `merge`: a change lacks what each needs, or moves stand too far apart
                (`CircularMoves`).  Or a table of periods ends what the ledger has without an end, and that
                would still be seen (`OpenInLedger`): the message says how to take it back.

        Cost: two jobs: one reads *changes* once and shuffles them by bucket into files, the other merges.  Up
            to 20,000 changes of a plan that reads 4 MB or less are brought to this program, and a few small
            buckets are merged here.  Of each touched bucket are read: 8 bytes for each change in the log; the
            files that can hold open versions of touched entities, which are written again; and of entities
            with changes that are not later than what is known of them, their changes in the log and the
            files with their closed versions.  These rows of a bucket are in a worker's memory at once.  A
            batch whose id is known is only read and compared.  A *gate* costs what it asks, each time that
            it is asked.  Where rows move to other keys, what they took along is found anew from the whole
            log, as in `merge`.  A batch that cuts a ledger into more buckets costs a `rebuild`, also each
            time that a gate refuses it.
        """
        require_changes(changes)
        require_gate(gate)
        require_no_lists(changes)
        by_guid = brings_identity(changes, self._kind.keys)
        kind, is_first = self.at_commit().kind.for_changes(by_guid), False
        key = self._batch_id(batch)
        rows = to_log_rows(changes, kind, digest=key is not None)
        written: LoggedBatch | None = None

        def work(transaction: Transaction) -> ApplyResult:
            nonlocal written, is_first
            # Another writer may have been the first.
            stored_kind = kind.stored_kind(transaction.base, self._buckets).for_changes(by_guid)
            if key is not None and self.store.batch(key) is not None:
                content = sum_digests(rows, F.col(CONTENT)) if written is None else written.digest
                commit = transaction.commit(batch=key, digest=content, reads=())
                return ApplyResult(commit.version, 0, repeated=True)
            is_first = not transaction.has(stored_kind.changes)
            fitted = fit_changes(transaction, stored_kind, rows)
            require_times_stay(fitted.before, log_fields(fitted.rows.schema))
            table = last_table(transaction) + 1
            taken = take_changes(transaction, fitted, table=table, written=written)
            note_tables(transaction, changes.schema)
            written = taken.batch
            require_no_lists(changes, written.lists)
            looked_at = run_gate(gate, transaction, taken.kind, taken.buckets)
            commit = transaction.commit(batch=key, digest=written.digest, reads=looked_at)
            if commit.repeated:
                return ApplyResult(commit.version, 0, repeated=True)
            return ApplyResult(commit.version, taken.news, rejects=sum(file.rows for file in written.rejects))

        result = self.store.atomically(work)
        if result.rejects:
            sentence = "%s: rows that could not be used: %s; ledger.rejects() shows why, with the records"
            _LOG.warning(sentence, kind, f"{result.rejects:,}")
        if is_first:
            self._warn_of_unknown_sources(ranked_sources(changes.schema))
        return result

    def _warn_of_unknown_sources(self, ranked: Sequence[str]) -> None:
        """Name those that priorities are given for, and that nothing comes from: they may be misspelt."""
        unused = find_unused_priorities(self.changes(), dict.fromkeys(ranked, Priority())) if ranked else None
        if unused and (rows := unused.collect()):
            unknown = UnknownSource((row.source for row in rows), rows[0].sources)
            _LOG.warning("%s: %s", self.at_commit().kind, unknown)

    def sink(self, name: str, *, gate: Gate | None = None) -> Callable[[DataFrame, int], ApplyResult]:
        """
        `apply` for one stream: `stream.writeStream.foreachBatch(ledger.sink("orders")).start()`.

        Args:
            name: Of the stream, always the same.  The batch ids that Spark counts are those of this
                name, so that the batches of two streams are not taken for each other.  A stream that begins
                anew, with another checkpoint, needs another name.
            gate: As for `apply`.  A batch that it refuses ends the stream with the gate's error; when the
                stream is started again, it begins with the same batch.

        Raises:
            InvalidArgument: *name* is no name, or *gate* no function.
        """
        require_gate(gate)
        return make_sink(partial(self.apply, gate=gate), name)

    @describe_jobs("ledger: take a full list")
    def apply_list(
        self,
        rows: AnyTable,
        *,
        taken_at: datetime | str,
        source: str = "table",
        priority: int | Priority = 0,
        max_deleted: float | None = None,
        gate: Gate | None = None,
    ) -> ApplyResult:
        """
        Take tonight's full list of a source: what its list before named and this one does not is gone.

        Afterwards log and history are what `changes_from_snapshots` makes of all lists of the source, in
        whatever order they came; only what is new in a list is logged.  A late list, taken between two
        others, makes the next one say again what it says otherwise.  The same list again is no news.

        Args:
            rows: One row per entity, of Spark or of pandas (see `changes_from`).  It has the key fields of
                the ledger; all other columns become fields.  A field that only other sources, or other
                lists, have is not sent by this one; of one that the list before had a warning is logged.
                A column in which nothing stands, as all are in a frame of pandas without rows, has the type
                that the ledger knows.  One of times stays one: texts or numbers would make each row news.
            taken_at: When the list was taken; aware, any zone.  Or the name of a column of *rows*, of
                timestamps, that tells several lists apart, and is neither a key nor a field; a list in which
                nothing stands is in no such table.
            source: Who says so.
            priority: How much it counts, a `Priority` where fields differ; a list that says something anew
                because of this one keeps its own.  A row that says what the list before said is no news,
                and counts as that does.
            max_deleted: Which share of the entities in the list before it one may lack, from 0 to 1: half
                a list is no list.  Without it any share, but not all: an empty list, also as the first one,
                is an export that went wrong, unless `max_deleted=1` says that nothing is left.
            gate: As for `apply`.

        Returns:
            The commit, and how many changes were news; `repeated` where the ledger had all of the lists;
            `deleted`, how many entities the lists lack that those before them named.

        Raises:
            MissingColumns, WrongColumnType: *rows* lack a key or the column *taken_at*, or have it in another
                type, or in none where the ledger does not know it yet; and as for `apply`.
            InvalidArgument: *rows* are a stream; an argument is not of its form.
            UnfitList: The ledger has another list of this source and instant, or the same with another
                priority; or one lacks too many, or all; or it names an entity twice, and not the same; or a
                row has no key.
            SparkRuntimeException: The last two, where *taken_at* tells several lists apart.
            ConflictingCommit, StoreIsBusy: As for `apply`.

        Cost: *rows* and the log are read once, and compared in one shuffle by key; what is new is then
            applied as by `apply`.  After a late list, the buckets of entities of which the next one need
            not speak any more are made anew.

        >>> from datetime import UTC, datetime
        >>> from tempfile import TemporaryDirectory
        >>> monday = session().createDataFrame([(1, "kettle"), (2, "mug")], "id int, name string")
        >>> with TemporaryDirectory() as folder:
        ...     ledger = Ledger(session(), folder, entity="product", keys=["id"])
        ...     print(ledger.apply_list(monday, taken_at=datetime(2024, 1, 1, tzinfo=UTC)))
        ...     print(ledger.apply_list(monday.where("id = 1"), taken_at=datetime(2024, 1, 2, tzinfo=UTC)))
        ...     ledger.history().orderBy("id", "valid_from_timestamp").select(
        ...         "id", "name", "valid_from_timestamp", "deleted_indicator"
        ...     ).show()
        ApplyResult(version=1, news=2, repeated=False, deleted=0, rejects=0)
        ApplyResult(version=2, news=1, repeated=False, deleted=1, rejects=0)
        +---+------+--------------------+-----------------+
        | id|  name|valid_from_timestamp|deleted_indicator|
        +---+------+--------------------+-----------------+
        |  1|kettle| 2024-01-01 00:00:00|            false|
        |  2|   mug| 2024-01-01 00:00:00|            false|
        |  2|  NULL| 2024-01-02 00:00:00|             true|
        +---+------+--------------------+-----------------+
        <BLANKLINE>
        """
        require_gate(gate)
        require_share(max_deleted)
        given = read_lists(self._spark, rows, self.at_commit().kind, taken_at, source, priority)

        def work(transaction: Transaction) -> ApplyResult:
            kind = self._stored_kind(transaction.base).for_changes(False)
            return apply_lists(transaction, kind, given, max_deleted, gate)

        return self.store.atomically(work)

    def list_sink(
        self,
        *,
        taken_at: str,
        source: str = "table",
        priority: int | Priority = 0,
        max_deleted: float | None = None,
        gate: Gate | None = None,
        applied: Iterable[datetime] = (),
    ) -> Callable[[DataFrame, int], ApplyResult]:
        """
        `apply_list` for a stream of lists:
        `stream.writeStream.foreachBatch(ledger.list_sink(taken_at="day"))`.

        A batch may hold several lists, and holds each of them whole, as a stream of files does where a list
        is one file.  A list that was cut in two is refused with its second part (`UnfitList`), and ends the
        stream.  Then take the first part back (`revoke_list`), apply both together (`apply_list`), and start
        the stream again with the instant of that list as *applied*.  A batch that comes again, to this stream
        or to another one, is no news.

        Args:
            taken_at: The column that tells the lists apart.
            source, priority, max_deleted, gate: As for `apply_list`.
            applied: The instants of lists that the ledger got whole by `apply_list`: rows of them are passed
                over.

        Raises:
            InvalidArgument: The ledger has no list of *source* and one of the instants *applied*, or these
                are no instants.

        Cost: with *applied* one read of the table of lists.
        """
        require_gate(gate)
        require_share(max_deleted)
        if not isinstance(applied, Iterable):
            needed = "a list of instants, aware, at which lists were taken"
            raise InvalidArgument(None, "applied", needed, applied)
        instants = list(applied)
        whole = {microseconds(at, "applied") for at in instants}
        if whole:
            lists = self.lists().where(F.col("source") == F.lit(source)).select(F.unix_micros("taken"))
            if whole - {row[0] for row in lists.collect()}:
                needed = f"instants at which lists of {source!r} were taken; ledger.lists() shows them"
                raise InvalidArgument(None, "applied", needed, instants)

        def take(rows: DataFrame, _: int) -> ApplyResult:
            if whole:
                is_applied = F.unix_micros(quoted(taken_at)).isin(*whole)
                rows = rows.where(~F.coalesce(is_applied, F.lit(False)))
            return self.apply_list(
                rows, taken_at=taken_at, source=source, priority=priority, max_deleted=max_deleted, gate=gate
            )

        return take

    @describe_jobs("ledger: take back a full list")
    def revoke_list(
        self, taken_at: datetime, *, source: str = "table", gate: Gate | None = None
    ) -> ApplyResult:
        """
        Take a full list back, as if it had never come: such as that of a night in which the export broke off.

        Log and history are then what the other lists of the source say without it: what the next one says
        otherwise than the one before, that one says now.  Another list of that instant can be applied then.

        Args:
            taken_at: The instant of the list.
            source: Who gave it.
            gate: As for `apply`.

        Returns:
            The commit, and how many changes of the next list are news.

        Raises:
            InvalidArgument: The ledger has no list of this source and instant (`lists` shows them).
            ConflictingCommit, StoreIsBusy: As for `apply`.

        Cost: as of a late list.
        """
        require_gate(gate)
        at = microseconds(taken_at, "taken_at")

        def work(transaction: Transaction) -> ApplyResult:
            kind = self._stored_kind(transaction.base)
            return revoke_list(transaction, kind, source, at, gate)

        return self.store.atomically(work)

    @describe_jobs("ledger: take messages back")
    def revoke(self, messages: Messages, *, source: str | None = None, gate: Gate | None = None) -> int:
        """
        Take messages back, as if they had never come: a correction that was wrong, a load that broke off.

        Log and history are then what `cdckit.query.revoke` leaves of the log, and `merge` makes of that.  A
        message that comes again afterwards is news.  Full lists are taken back by `revoke_list`.

        Args:
            messages: The id of a message, several ids, or a table of them, as for `cdckit.query.revoke`.
            source: The source whose messages are meant; without it, those of every source.
            gate: As for `apply`.

        Returns:
            The commit; the newest one if the ledger has none of these messages.

        Raises:
            NoSuchTable: Nothing was ever applied.
            MissingColumns, WrongColumnType, InvalidArgument, SparkRuntimeException: As
                `cdckit.query.revoke`.
            ForeignChange, ConflictingCommit, StoreIsBusy: As for `apply`.

        Cost: a scan of the ids in the log; the buckets that have such messages are written anew, log and
            history.  Where rows have moved to other keys, all are.
        """
        require_gate(gate)
        revoked = read_messages(self._spark, messages)

        def work(transaction: Transaction) -> int:
            kind = self._stored_kind(transaction.base)
            touched = revoke_within(transaction, kind, revoked, source)
            if not touched:
                return transaction.base.version or 0
            return transaction.commit(reads=run_gate(gate, transaction, kind, touched)).version

        return self.store.atomically(work)

    @describe_jobs("ledger: drop rejects")
    def drop_rejects(self, where: str | Column | None = None) -> int:
        """
        Forget rejects that were dealt with: mended and applied again, or of no interest.

        Args:
            where: Which, a condition on the columns of `rejects`; all without it.

        Returns:
            The commit; the newest one if the ledger has no rejects.

        Raises:
            ForeignChange, ConflictingCommit, StoreIsBusy: As for `apply`.

        Cost: the table of rejects is written again.  Older commits have them until `vacuum`.
        """

        def work(transaction: Transaction) -> int:
            name = self._stored_kind(transaction.base).rejects
            if not transaction.has(name):
                return transaction.base.version or 0
            condition = F.expr(where) if isinstance(where, str) else F.lit(True) if where is None else where
            kept = transaction.read(name).where(~F.coalesce(condition, F.lit(False)))
            transaction.swap(name, transaction.files(name), kept.dropDuplicates())
            return transaction.commit().version

        return self.store.atomically(work)

    @describe_jobs("ledger: forget")
    def erase(
        self,
        *,
        keys: Keys | None = None,
        where: str | Column | None = None,
        keep: timedelta | None = None,
        fields: Sequence[str] | None = None,
        by: str,
        reason: str,
        later: str = REFUSE,
        published: Mapping[str | Path, Form] | None = None,
        at: datetime | None = None,
    ) -> Receipt:
        """
        Forget entities, or some of their fields: in log and history, in all older commits, in every file.

        Of each entity a tombstone stays: a keyed hash, when, by whom and why (`erased`).  What is known of
        all others answers as before.  All earlier commits of the store can be read no more, by nobody.  Where
        it was stopped, the same call finishes it; `check` says if one is not finished.

        Args:
            keys: Which entities: a list of guids, or of mappings of key fields; or a table of key fields, or
                of guids, of Spark or of pandas.  Where rows have moved to other keys, all their keys.
            where: Instead of *keys*, a condition on the columns of `history`: every entity of which some
                version fulfils it.
            keep: How long entities are kept that are not there any more: those of which nothing has been in
                force for longer, at *at*.  With *where*, those of them.
            fields: Which fields of these entities go, as if nobody had ever sent them; all without it, and
                the entities with them.
            by: Who asks for it.
            reason: Why; neither should say what the entities were.
            later: What becomes of later changes that speak of what was erased: "refuse", so that `refused`
                tells of each, or "erase", so that what was erased is left out in silence.  Full lists are
                always taken without it.
            published: Tables that `publish` has written, each with its form, from which they go as well, with
                all their older versions; locations with the storage options of the ledger.  One that is not
                named forgets when it is published the next time.
            at: When it is done, aware; without it the clock's time.

        Returns:
            The receipt: what was erased from which files, hashes of all other rows in these before and
            after, and what is left for others to erase.  For *keys* that all were erased before, the receipt
            of then, and what older commits have of them since goes; where *where* and *keep* name nobody, one
            of no entities.

        Raises:
            UnknownEntities: The ledger has nothing of some of the keys, and never erased them.
            MovedEntities: Rows of the entities had other keys too, which are not among them.
            InvalidArgument: No entities are named, or a field is a key, or not there; or a published table is
                none of this ledger.
            OtherKind: The location is a door's, which keeps records too, and has an `erase` of its own.
            UnfinishedErasure: Somebody else erases in this store at the same time.
            NoSuchTable: Nothing was ever applied.
            ForeignChange: Another program has changed rows of a table: nothing is erased.
            ConflictingCommit, StoreIsBusy: As for `apply`.

        Cost: one job, which shuffles the entities by bucket and writes those files anew that have rows of
            them, a file in a worker's memory at a time; then a listing of each table, and a checkpoint.  Of
            *fields* the touched versions are merged again, or all where rows have moved to other keys.
            Afterwards `publish` of a table that is not named writes all of it, and each batch costs two
            hashes and a join with the tombstones for each change.
        """
        asked = None if fields is None else tuple([fields] if isinstance(fields, str) else fields)
        when = datetime.now(UTC) if at is None else at
        request = Request(keys, where, keep, asked, by, reason, later, when)
        before = self.store.snapshot()
        kind, tables = self._stored_kind(before), dict(published or {})
        for target, form in tables.items():
            require_published(self.store, kind, target, form, before.location.options or None)

        def work(transaction: Transaction) -> Receipt | None:
            return erasure_steps.erase_from_ledger(transaction, self._stored_kind(transaction.base), request)

        # One that was stopped is finished first.
        finish = partial(self._finish_erasure, tables)
        return erasure_steps.run_erasure(self.store, self._stored_kind, request, work, finish)

    def _finish_erasure(self, published: Mapping[str | Path, Form]) -> Receipt | None:
        """Do what is left to do of an erasure; None if there is none."""
        before = self.store.snapshot()
        if erasure_steps.unfinished(before) is None:
            return None
        location, options = before.location, before.location.options or None

        def follow() -> None:
            for target, form in published.items():
                publish(self.store, self._stored_kind, target, form, anew=False, options=options)

        # Before older commits go, what is new since then can be told from their files.
        follow()
        forgotten = forget_past(location)
        follow()
        return self.store.atomically(
            lambda tables: erasure_steps.finish(tables, forgotten, map(str, published))
        )

    @describe_jobs("ledger: make the history anew")
    def rebuild(self) -> int:
        """
        Make the history anew from the log; returns the commit.

        The rows are the same, unless a history was damaged, was changed by another program, or was made by a
        version of cdckit with a fault.

        Raises:
            NoSuchTable: Nothing was ever applied.
            ForeignChange: Another program has changed the log: see `adopt`; or as for `apply`.
            ConflictingCommit, StoreIsBusy: Other writers were faster.

        Cost: one job without a shuffle, in which a task reads, sorts and merges the log of a bucket, and
            writes its versions.  All of a bucket's log is in a worker's memory at once: it is not streamed.
        """
        return self._remake(adopt=False)

    @describe_jobs("ledger: keep what another program has changed in the log")
    def adopt(self) -> int:
        """
        Keep what another program has changed in the log of changes, and make the history anew from it.

        Such as a DELETE of a person's changes: until this is called, `apply` refuses what comes.

        Returns:
            The commit.

        Raises:
            NoSuchTable: Nothing was ever applied.
            ConflictingCommit, StoreIsBusy: Other writers were faster.

        Cost: that of `rebuild`.
        """
        return self._remake(adopt=True)

    def _remake(self, *, adopt: bool) -> int:
        with self.store.begin() as transaction:
            kind = self._stored_kind(transaction.base)
            if adopt:
                transaction.accept(kind.changes)
            else:
                transaction.base.require_untouched(kind.changes)
            for name in (kind.history, kind.unborn, kind.words):
                transaction.renew(name)
            begin_upkeep(transaction, kind, anew=True).run()
            return transaction.commit(reads=[kind.changes, kind.history, kind.unborn]).version

    @describe_jobs("ledger: publish the history")
    def publish(
        self,
        target: str | Path,
        form: Form = scd_type_2,
        *,
        anew: bool = False,
        storage_options: dict[str, str] | None = None,
    ) -> int:
        """
        Bring a table of its own, which others read, to where the history is: a plain Delta table.

        The first call writes all of it, each later one the entities of which versions have changed since: the
        table is what *form* makes of the history, whatever was killed or called twice.  What others have done
        there to its files alone (OPTIMIZE, VACUUM) stays, as do their comments and properties.

        Columns keep their names.  Where Delta does not take one, each of the characters ` ,;{}()=`, tab and
        line's end is written as in SQL/XML: `net price` is `net_x0020_price`, whatever other columns there
        are; an empty name is `_`, and of names that differ in case alone, which are one to Delta, the later
        ones get a number (`price_2`).  The true name is the comment of such a column, and a warning lists
        them.

        Args:
            target: A folder or a URI, outside of every store; empty, or published by this ledger.  It is the
                table's alone: an erasure deletes all other Parquet files there, as `VACUUM` does.  A text
                without slash, backslash and colon is the name of a table, such as `catalog.schema.table`,
                which Spark's Delta connector writes (`saveAsTable`, then `MERGE`).
            form: What becomes of the history: `scd_type_2`, `scd_type_1` for what is current,
                `partial(periodic_snapshots, start=…, end=…)`, or a function of your own that takes each
                entity by itself and keeps its `guid`.  It is known by its name and its arguments of
                `functools.partial`, so a lambda is none; a change within a function of yours needs *anew*.
            anew: Write the whole table, also over what others have changed in it.
            storage_options: What deltalake calls so, for a URI.

        Returns:
            The commit of the ledger that the table shows.

        Raises:
            ForeignChange: Another program has changed rows of the table, or a shortened history no longer
                tells whether it has: nothing is written.  Or it has given the table what cdckit does not keep
                to, such as a CHECK constraint, `delta.appendOnly` or other partitions; then also with *anew*:
                the error says what takes that away.
            NotWritable: The target is read-only.
            InvalidArgument: The target holds something else, files of others too, or lies within a store; a
                name is given and the session has no Delta connector; or *form* makes no table with a column
                `guid`.
            NoSuchTable: Nothing was ever applied.
            StoreIsBusy: Other writers were faster, again and again.

        Cost: at first, with another form or other columns, and where a vacuum has deleted what it shows, the
            history is read and written.  Later the files of the history that changed are read, then those of
            history and table that can hold the touched entities; the latter are written again.  All by
            workers.  Files that were replaced stay until you `VACUUM` the table.

        >>> from tempfile import TemporaryDirectory
        >>> from deltalake import DeltaTable
        >>> with TemporaryDirectory() as folder:
        ...     ledger = Ledger(session(), f"{folder}/ledger", entity="product", keys=["number"])
        ...     for message in ("m1", "m2", "m3"):
        ...         _ = ledger.apply(changes.where(F.col("message_id") == message))
        ...         _ = ledger.publish(f"{folder}/products")
        ...     table = DeltaTable(f"{folder}/products").to_pandas().sort_values(["number", "name"])
        >>> table[["number", "name", "is_current"]].values.tolist()
        [[1, 'kettle', False], [1, 'teapot', True], [2, 'mug', False]]
        """
        return publish(self.store, self._stored_kind, target, form, anew=anew, options=storage_options)

    @describe_jobs("ledger: write small files together")
    def compact(self) -> CommitResult:
        """
        Write the small files of each bucket together; as `cdckit.store.Store.compact`, but for one thing:
        the files of versions stay cut by ranges of guids.

        `apply` does it itself for a bucket that it touches and that has 16 of them.

        Raises:
            NoSuchTable: Nothing was ever applied.
            ConflictingCommit, StoreIsBusy: Other writers were faster.
        """
        with self.store.begin() as transaction:
            kind = self._stored_kind(transaction.base)
            upkeep = begin_upkeep(transaction, kind)
            for name in filter(transaction.has, (kind.changes, kind.unborn, kind.words, kind.rejects)):
                transaction.compact(name)
            # Its files stay cut by ranges of guids, which the store knows nothing of.
            upkeep.run(fold=2)
            return transaction.commit(reads=())

    def check(self, *, deep: bool = False) -> None:
        """
        Raise for the first thing that is wrong, as `cdckit.store.Store.check` does.

        Args:
            deep: Whether every file is read, and the history held against what `merge` makes of the log.

        Raises:
            DamagedTable: A file is not there, or cannot be read; or the history is another one.
            ForeignChange: Another program has changed rows of a table, or given it what `apply` does not keep
                to.
            UnfinishedErasure: `erase` was stopped: older commits may still hold what is to go.

        Cost: a listing; with *deep* also every file, a merge of the log, and a shuffle of all versions.
        """
        self.store.check(deep=deep)
        if deep:
            self.at_commit().require_merged()
        if (receipt := erasure_steps.unfinished(self.store.snapshot())) is not None:
            raise UnfinishedErasure(receipt)

    def vacuum(self, older_than: timedelta = timedelta(days=7)) -> list[str]:
        """Delete files of older commits, which `at_commit` then refuses; as `cdckit.store.Store.vacuum`."""
        return self.store.vacuum(older_than)

    def _batch_id(self, batch: str | int | None) -> str | None:
        batch_id = require_batch_id(batch)
        if not self._kind.name or batch_id is None:
            return batch_id
        if isinstance(batch_id, StreamBatch):
            return StreamBatch(f"{self._kind.name}/{batch_id.stream}", batch_id.number)
        return f"{self._kind.name}/{batch_id}"
