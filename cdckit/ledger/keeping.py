"""A ledger: log and history of one kind of entity, kept up as changes come."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from cdckit.changes import require_changes
from cdckit.errors import InvalidArgument
from cdckit.kernel.layout import GUID
from cdckit.ledger.applying import bring_up, tables
from cdckit.ledger.columns import log_columns, logged
from cdckit.ledger.kinds import BUCKETS, Kind
from cdckit.ledger.pending import Gate, asked, require_gate
from cdckit.ledger.taking import Taken, digest, take
from cdckit.ledger.views import Key, View
from cdckit.parts.arguments import require_batch_id, require_name
from cdckit.parts.receiving import sink_of
from cdckit.parts.steps import doing
from cdckit.store import Committed, Store, Transaction


@dataclass(frozen=True)
class Applied:
    """
    What `Ledger.apply` did.

    Args:
        version: The commit by which it is seen.
        news: How many of the changes the log did not have.
        repeated: Whether nothing was done, because the batch had been applied before.

    >>> said = Applied(version=7, news=0)
    >>> "repeated" if said.repeated else f"{said.news} changes were news, seen from commit {said.version} on"
    '0 changes were news, seen from commit 7 on'
    """

    version: int
    news: int
    repeated: bool = False


class Ledger:
    """
    Log and history of one kind of entity, kept up as changes come.

    Its store has the tables `changes` (every change that was news), `history` (what `merge` makes of all of
    them, at any time), and `unborn` (the entities with changes and no version).  They are Delta tables,
    in buckets by a hash of the guid; open versions lie apart from closed ones.  Opening a ledger, and every
    question to it, writes and deletes nothing.

    Args:
        spark: The session that reads, and whose workers write.
        location: A local folder or a URI, as for `cdckit.store.Store`; new, or this ledger's.
        entity: The name of the kind of entity, as for `merge`.
        keys: Its key fields, as for `merge`.
        buckets: Into how many parts the tables are cut; what is there already keeps its number.  64 if
            it is not told: good for a million entities, take one more for each further 20,000.
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
    ...     print(ledger.apply(late, "tuesday"), ledger.apply(late, "tuesday"))
    ...     versions = ledger.history().orderBy("number", "valid_from_timestamp")
    ...     versions.select("number", "name", "valid_from_timestamp", "valid_to_timestamp").show()
    Applied(version=1, news=3, repeated=False)
    Applied(version=2, news=1, repeated=False) Applied(version=2, news=0, repeated=True)
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
        require_name(entity, "entity", function="Ledger")
        listed = [] if isinstance(keys, str) or not isinstance(keys, Sequence) else list(keys)
        if not listed or len(set(listed)) != len(listed) or not all(isinstance(each, str) for each in listed):
            raise InvalidArgument("Ledger", "keys", "a list of distinct fields", keys)
        if buckets is not None and (not isinstance(buckets, int) or isinstance(buckets, bool) or buckets < 1):
            raise InvalidArgument("Ledger", "buckets", "a whole number from 1 on", buckets)
        if not isinstance(name, str):
            raise InvalidArgument("Ledger", "name", "a text", name)
        self.location = str(location)
        self.store = Store(spark, location, storage_options)
        self._buckets = buckets
        self._kind = Kind(entity, tuple(listed), BUCKETS if buckets is None else buckets, None, name)
        self.at()

    # Asking ----------------------------------------------------------------------------------------------

    def at(self, version: int | None = None, timestamp: datetime | None = None) -> View:
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
        return View(snapshot, self._kind.noted(snapshot, self.location, self._buckets))

    def changes(self, key: Key | None = None) -> DataFrame:
        """`View.changes` of the newest commit."""
        return self.at().changes(key)

    def history(self, key: Key | None = None) -> DataFrame:
        """`View.history` of the newest commit."""
        return self.at().history(key)

    def beliefs(self) -> DataFrame:
        """`View.beliefs` of the newest commit."""
        return self.at().beliefs()

    def as_of(self, at: datetime, key: Key | None = None, *, deletes: bool = False) -> DataFrame:
        """`View.as_of` of the newest commit."""
        return self.at().as_of(at, key, deletes=deletes)

    def contracts(self) -> dict[str, tuple[DataFrame, str]]:
        """`View.contracts` of the newest commit."""
        return self.at().contracts()

    def create_view(self, name: str) -> None:
        """`View.create_view` of the newest commit; what is applied later is seen when it is called again."""
        self.at().create_view(name)

    # Writing ---------------------------------------------------------------------------------------------

    @doing("ledger: take a batch of changes")
    def apply(
        self, changes: DataFrame, batch: str | int | None = None, *, gate: Gate | None = None
    ) -> Applied:
        """
        Take what is new of a batch of changes, and bring the history up to it, in one transaction.

        Afterwards the history is what `merge` would make of all changes that were ever applied, in
        whatever batches and order they came, however often.  The same change again (source, message
        and record number, of one entity) is no news where it stands behind one that had arrived before it,
        in the log or in the same batch.  Of a batch that fails nothing is seen, and
        its id stays unused.  Where another writer was faster, the work is done again on what it left.

        Args:
            changes: One row per change, as for `merge`.  Fields that the ledger does not know come to it;
                a number of another type gets one that holds both, anything else becomes text, as in
                `union_changes`.  Columns beside those of changes are not kept.
            batch: An id of the batch: of one id, one batch is applied.  Two streams count alike: for
                them, see `sink`.
            gate: What looks at the ledger as it will be (`Pending`), before the commit.  Whatever it raises
                refuses the batch: the ledger stays as it was, and the error is raised here.  Such as
                `lambda after: check(after.touched_history(), "history").require()`.  Of a batch that was
                applied before it is not asked.  It is asked again where another writer has meanwhile
                changed what it was shown: the buckets of what is touched or, if it has asked for
                more than that, anything in the ledger.  Files of a batch that it refused stay until
                `vacuum`; until the first commit of all, that leaves them too.

        Raises:
            MissingColumns, WrongColumnType, InvalidArgument: As `merge`; or they are a stream; or
                they bring their guids and those before did not, or the other way round; or a key
                field is of another type than before, and not a wider number; or *gate* is no function.
            BatchIdReused: The batch id was applied with other content.
            NotStorable: A field is of a type that no table has.
            ConflictingCommit, StoreIsBusy: Other writers were faster, again and again.
            PythonException: A change lacks what each needs, as for `merge`.

        Cost: two jobs.  One reads *changes* once and writes them, a file for each task and bucket.  The other
            reads, of each bucket that is touched, 8 bytes for each change in the log, and the open
            versions in those of its files that can hold a touched entity; they are written again.
            Of entities whose changes are not all later than what is known of them, the changes in
            the log are read too, and the files with closed versions of them are written again.  Those
            open versions, and all changes of the touched entities of a bucket, are in a worker's memory
            at once.  Of a batch whose id is known, only its content is compared: one job that writes
            nothing.  A *gate* costs what it asks, each time that it is asked.
        """
        require_changes(changes, function="apply")
        require_gate(gate, function="apply")
        by_guid = GUID in changes.columns
        kind = self.at().kind.of_changes(by_guid)
        rows = logged(changes, kind)
        key = self._batch_id(batch)
        log = log_columns(rows.schema)
        taken: tuple[object, Taken] | None = None

        def work(transaction: Transaction) -> Applied:
            nonlocal taken
            # Another writer may have been the first.
            known = kind.noted(transaction.base, self.location, self._buckets).of_changes(by_guid)
            if key is not None and self.store.batch(key) is not None:
                content = digest(rows) if taken is None else taken[1].digest
                done = transaction.commit(batch=key, digest=content, reads=())
                return Applied(done.version, 0, repeated=True)
            found = tables(transaction, known, log)
            if taken is None or taken[0] != (known, found.book.log):
                taken = (known, found.book.log), take(rows, known, found.book.log)
            fresh, content = taken[1]
            known.note(transaction)
            news, buckets = bring_up(transaction, known, found.book, fresh, anew=found.anew)
            looked_at = asked(gate, transaction, known, buckets)
            done = transaction.commit(batch=key, digest=content, reads=looked_at)
            return Applied(done.version, 0 if done.repeated else news, done.repeated)

        return self.store.atomically(work)

    def sink(self, name: str, *, gate: Gate | None = None) -> Callable[[DataFrame, int | str], Applied]:
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
        require_gate(gate, function="sink")
        return sink_of(partial(self.apply, gate=gate), name)

    @doing("ledger: make the history anew")
    def rebuild(self) -> int:
        """
        Make the history anew from the log; returns the commit.

        The rows are the same, unless a history was damaged, or was made by a version of cdckit with a fault.

        Raises:
            NoSuchTable: Nothing was ever applied.
            ConflictingCommit, StoreIsBusy: Other writers were faster.

        Cost: one job without a shuffle, in which a task reads, sorts and merges the log of a bucket, and
            writes its versions.  All of a bucket's log is in a worker's memory at once: it is not streamed.
        """
        with self.store.begin() as transaction:
            kind = self._kind.noted(transaction.base, self.location, self._buckets)
            found = tables(transaction, kind, transaction.schema(kind.changes))
            bring_up(transaction, kind, found.book, [], anew=True)
            return transaction.commit(reads=[kind.changes, kind.history, kind.unborn]).version

    @doing("ledger: write small files together")
    def compact(self) -> Committed:
        """
        Write the small files of each bucket together; as `cdckit.store.Store.compact`, but for one thing:
        the files of versions stay cut by ranges of guids.

        `apply` does it itself for a bucket that it touches and that has 16 of them.

        Raises:
            NoSuchTable: Nothing was ever applied.
            ConflictingCommit, StoreIsBusy: Other writers were faster.
        """
        with self.store.begin() as transaction:
            kind = self._kind.noted(transaction.base, self.location, self._buckets)
            found = tables(transaction, kind, transaction.schema(kind.changes))
            for name in (kind.changes, kind.unborn):
                transaction.compact(name)
            # Its files stay cut by ranges of guids, which the store knows nothing of.
            bring_up(transaction, kind, found.book, [], anew=found.anew, fold=2)
            return transaction.commit(reads=())

    def vacuum(self, older_than: timedelta = timedelta(days=7)) -> list[str]:
        """Delete files of older commits, which `at` then refuses; as `cdckit.store.Store.vacuum`."""
        return self.store.vacuum(older_than)

    def _batch_id(self, batch: str | int | None) -> str | None:
        found = require_batch_id(batch, function="apply")
        return f"{self._kind.name}/{found}" if self._kind.name and found is not None else found
