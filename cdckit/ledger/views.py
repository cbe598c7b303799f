"""A ledger as one commit of its store has it, or as a batch leaves it before its commit."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument
from cdckit.ledger.columns import (
    BUCKET,
    EVERY,
    IDENTITY,
    LEDGER_REJECT_SCHEMA,
    LISTS_SCHEMA,
    OPEN,
    log_fields,
    visible_history,
)
from cdckit.ledger.entity_guids import Key as Key
from cdckit.ledger.entity_guids import is_key, key_guid
from cdckit.ledger.erasure.receipts import RECEIPT_SCHEMA, Receipt
from cdckit.ledger.erasure.tombstones import REFUSED_SCHEMA, TOMBSTONE_SCHEMA
from cdckit.ledger.kind import Kind
from cdckit.ledger.log_rows import last_table, visible_changes
from cdckit.ledger.upkeep import read_scopes
from cdckit.merging.arrow_changes import GUID
from cdckit.merging.merge import merge
from cdckit.merging.moves import complete_moves, with_comings
from cdckit.model.changes import MOVED
from cdckit.model.history import VALID_FROM, VALID_TO
from cdckit.outputs.sql import create_view
from cdckit.parts.argument_forms import checked_calls
from cdckit.parts.arguments import microseconds, quoted
from cdckit.parts.values import EXACT_JSON, comparable
from cdckit.query.as_of import as_of
from cdckit.query.bitemporal import bitemporal
from cdckit.store import DamagedTable, File, Snapshot, Transaction
from cdckit.store.conflicts import Scope
from cdckit.store.store import read_rows


@checked_calls
class View:
    """
    A ledger at one commit; what is applied later is not seen.

    Attributes:
        kind: What the ledger is about.
        version: The number of the commit; None if nothing was ever applied.
        timestamp: When the commit was made.

    >>> from tempfile import TemporaryDirectory
    >>> from cdckit import Ledger
    >>> with TemporaryDirectory() as folder:
    ...     ledger = Ledger(session(), folder, entity="product", keys=["number"])
    ...     monday = ledger.apply(changes.where("message_id = 'm1'"), "monday").version
    ...     _ = ledger.apply(changes, "tuesday")
    ...     ledger.at_commit(monday).history().select("number", "name").orderBy("number").show()
    +------+------+
    |number|  name|
    +------+------+
    |     1|kettle|
    |     2|   mug|
    +------+------+
    <BLANKLINE>
    """

    _in_calls = "ledger"
    """What examples of calls name it: most users ask a ledger."""

    def __init__(self, snapshot: Snapshot | Transaction, kind: Kind) -> None:
        self._snapshot, self.kind = snapshot, kind
        commit = snapshot if isinstance(snapshot, Snapshot) else None
        self.version = commit and commit.version
        self.timestamp = commit and commit.timestamp

    def changes(self, key: Key | None = None) -> DataFrame:
        """
        Every change that was news, as it was given, and the guid of its entity; of a truncate an empty one.

        `merge` makes the history of them, and shows keys that a change did not carry: the column `guid` says
        in its metadata that it is made of the key.  Where `moved` is there, `complete_moves` was said of it.

        Args:
            key: Of the one entity that is wanted: a mapping of its key fields, or its guid.  What its sources
                truncated comes with it; and instead of `moved` what its row took along from another key, as
                changes of the messages that said so, and `moved_here`, whether a row came from another key.

        Raises:
            NoSuchTable: Nothing was ever applied.
            InvalidArgument: *key* is no such thing.
        """
        where = self._where(key)
        if key is not None:
            where[GUID].append(EVERY)
        copy = 0 if key is None else where[BUCKET][0]
        log = self._snapshot.read(self.kind.changes, where)
        shown = visible_changes(log, self.kind, copy, last_table(self._snapshot))
        if MOVED not in shown.columns:
            return shown
        if key is None:
            return complete_moves(shown)
        words = visible_changes(self._snapshot.read(self.kind.words, where), self.kind)
        return with_comings(shown).unionByName(words, allowMissingColumns=True)

    def history(self, key: Key | None = None) -> DataFrame:
        """
        Every version, in the columns that `merge` gives.

        Args:
            key: Of the one entity that is wanted: a mapping of its key fields, or its guid.

        Raises:
            NoSuchTable: Nothing was ever applied.
            InvalidArgument: *key* is no such thing.
        """
        return self._visible_history(self._snapshot.read(self.kind.history, self._where(key)))

    def beliefs(self) -> DataFrame:
        """
        Everything that was ever believed, as `cdckit.bitemporal` tells it of all changes that were news.

        When a change became known is what it says itself, `arrival.timestamp`, not when it was applied: of
        a list when it was taken, also where it came late; of a row the time in `sequence_by`.

        Raises:
            NoSuchTable: Nothing was ever applied.

        Cost: of `bitemporal`: the log is read, shuffled and merged each time that the table is asked.
        """
        return bitemporal(self.changes(), entity=self.kind.entity, keys=list(self.kind.keys))

    def as_of(self, valid_at: datetime, key: Key | None = None, *, deletes: bool = False) -> DataFrame:
        """
        The version of each entity that was in force at an instant.

        Args:
            valid_at: The instant; aware, any zone.
            key: Of the one entity that is wanted: a mapping of its key fields, or its guid.
            deletes: Keep the entities that were deleted then.

        Raises:
            NoSuchTable: Nothing was ever applied.
            InvalidArgument: *valid_at* is naive, or *key* is no such thing.

        Cost: the files that can hold such versions are read, no shuffle.
        """
        versions = self._snapshot.read(self.kind.history, self._where(key), self._files(valid_at, key))
        return as_of(self._visible_history(versions), valid_at, deletes=deletes)

    def lists(self) -> DataFrame:
        """
        The full lists of sources (`Ledger.apply_list`): one row for each.

        Returns:
            `source`; `taken`, the instant; `rows`, how many entities the list named.  No row if there was
            none.
        """
        return self._rows(self.kind.lists, LISTS_SCHEMA).select(*LISTS_SCHEMA.names)

    def erased(self) -> DataFrame:
        """
        The tombstones: one row per entity that was erased (`Ledger.erase`), or per field of one.

        Returns:
            `entity_hash`, a keyed hash; `field`, null where all went; `later`, what becomes of later changes;
            `erased_at`, `erased_by`, `reason`, `receipt`.
        """
        return self._rows(self.kind.erased, TOMBSTONE_SCHEMA)

    def refused(self) -> DataFrame:
        """
        The changes that were refused, since they speak of what was erased: one row each time that one came.

        Returns:
            Where it stands among all arrivals (`topic`, `partition`, `offset`, `timestamp`, `record_number`),
            its `source`, `error_code` and `error_description`; none of its values.
        """
        return self._rows(self.kind.refused, REFUSED_SCHEMA)

    def rejects(self) -> DataFrame:
        """
        The rows that came among changes and could not be used: what `apply` counts as `rejects`.

        A ledger of a door has none: the door keeps all of its rejects, `rejects()` of the door shows them.

        Returns:
            One row per record (`cdckit.model.REJECT_SCHEMA`) and `source`, null where nobody can tell.  One
            that came several times stands here once.  Mended, it can be given to its door again; then
            `Ledger.drop_rejects` forgets it.

        Cost: reads the table of rejects, and a shuffle of it.
        """
        return self._rows(self.kind.rejects, LEDGER_REJECT_SCHEMA).dropDuplicates()

    def receipts(self) -> list[Receipt]:
        """The receipts of all erasures, the first one first."""
        receipts = self._rows(self.kind.receipts, RECEIPT_SCHEMA).orderBy("erased_at", "receipt")
        return [Receipt.from_json(row["text"]) for row in receipts.collect()]

    def contracts(self) -> dict[str, tuple[DataFrame, str]]:
        """
        The tables, each with the suite of sentences that it keeps; none if nothing was ever applied.

        `cdckit.quality.check_all(ledger)` asks them.  The history has two: `history`, and `ledger`, which
        holds it against the log.  Where rows could not be used there are also `rejects`, of which each one
        breaks its suite until `Ledger.drop_rejects`.
        """
        if not self._snapshot.has(self.kind.history):
            return {}
        log, history = self.changes(), self.history()
        tables = {"changes": (log, "changes"), "history": (history, "history"), "ledger": (history, "ledger")}
        if self._snapshot.has(self.kind.rejects):
            tables["rejects"] = self.rejects(), "ledger_rejects"
        return tables

    def create_view(self, name: str) -> None:
        """
        Give this commit of the ledger names in SQL, in the session of the ledger and until that ends.

        There are then the view `<name>_changes`, which is `changes()`, and what
        `cdckit.outputs.create_view` makes of `history()`: the views `<name>` and `<name>_current`, the
        functions `<name>_as_of(at)` and `<name>_between(start, end)`.

        They stay at this commit, and work as long as `vacuum` leaves its files: to see what was applied
        since, create the view again.

        Args:
            name: How the view is called.  Any text will do; in SQL one that is not plain stands in backticks.

        Raises:
            NoSuchTable: Nothing was ever applied.
            InvalidArgument: *name* is no name.

        Cost: nothing until it is asked.  Then every file is opened, and Spark passes over what its statistics
        rule out; `as_of` opens only the files that can hold the answer.
        """
        create_view(self.history(), name)
        self.changes().createOrReplaceTempView(quoted(f"{name}_changes"))

    def require_merged(self) -> None:
        """Raise `DamagedTable` if the history is not what `merge` makes of the log; see `Ledger.check`."""
        if self.version is None:
            return
        history = self.history()
        due = merge(self.changes(), entity=self.kind.entity, keys=self.kind.keys)
        both = _digests(history, 1).union(_digests(due.select(*map(quoted, history.columns)), -1))
        wrong = both.groupBy("row").agg(F.sum("side").alias("side")).where("side != 0")
        number = wrong.agg(F.sum(F.abs("side"))).collect()[0][0]
        if number:
            problem = f"{number} of its versions, or of those that the log gives, are not in the other"
            raise DamagedTable(self.kind.history, self.kind.history, problem, "Let `rebuild()` make it anew.")

    def _rows(self, name: str, schema: T.StructType) -> DataFrame:
        """A table that does not follow from the log."""
        return read_rows(self._snapshot, name, schema)

    def _files(self, valid_at: datetime | None, key: Key | None) -> list[File]:
        """The files of the history that `as_of` and `history` read."""
        where = self._where(key)
        if valid_at is None:
            return self._snapshot.files(self.kind.history, where)
        microseconds(valid_at, "valid_at")
        begun = {**where, VALID_FROM: (None, valid_at)}
        return [
            *self._snapshot.files(self.kind.history, {**begun, OPEN: [True]}),
            *self._snapshot.files(self.kind.history, {**begun, OPEN: [False], VALID_TO: (valid_at, None)}),
        ]

    def _visible_history(self, versions: DataFrame) -> DataFrame:
        return visible_history(versions, self._snapshot.schema(self.kind.changes))

    def _where(self, key: Key | None) -> dict[str, Any]:
        if key is None:
            return {}
        if not is_key(key, self.kind):
            needed = "a guid" if self.kind.by_guid else f"a guid, or values of {', '.join(self.kind.keys)}"
            raise InvalidArgument(None, "key", needed, key)
        fields = log_fields(self._snapshot.schema(self.kind.changes))
        entity = key_guid(key, self._snapshot.spark, self.kind, fields)
        return {GUID: [entity], BUCKET: [self.kind.bucket(entity)]}


def _digests(rows: DataFrame, side: int) -> DataFrame:
    values = [
        comparable(F.col(quoted(field.name)), field.dataType).alias(field.name) for field in rows.schema
    ]
    text = F.to_json(F.struct(*values), EXACT_JSON)
    return rows.select(F.sha1(text.cast("binary")).alias("row"), F.lit(side).alias("side"))


@checked_calls
class Pending(View):
    """
    A ledger as it will be when the batch that is being applied is committed.

    It answers what a `View` answers; `version` and `timestamp` are None, since there is no commit yet.  It is
    there until the gate has let the batch pass, or refused it.

    >>> from tempfile import TemporaryDirectory
    >>> from cdckit import Ledger
    >>> def tell(after: Pending) -> None:
    ...     print(after.touched_history().count(), "of", after.history().count(), "versions")
    >>> with TemporaryDirectory() as folder:
    ...     ledger = Ledger(session(), folder, entity="product", keys=["number"])
    ...     _ = ledger.apply(changes.where("data.number = 1"), gate=tell)
    ...     _ = ledger.apply(changes.where("data.number = 2"), gate=tell)
    2 of 2 versions
    2 of 4 versions
    """

    _snapshot: Transaction
    _beyond = False
    """Whether more was asked for than what the batch touches."""

    def __init__(self, transaction: Transaction, kind: Kind, buckets: Collection[int]) -> None:
        super().__init__(transaction, kind)
        self._buckets, self._beside = list(buckets), set[str]()

    def touched_history(self) -> DataFrame:
        """
        The versions of the entities of which the batch has news, all of each, in the columns of `history`.

        Cost: reads the buckets of the history that the batch touches, and the guids in the files that it
            adds to the log or takes from it; one aggregation and one semi-join by guid.
        """
        versions = self._snapshot.read(self.kind.history, {BUCKET: self._buckets})
        return self._visible_history(self._keep_touched(versions))

    def _read_scopes(self) -> list[Scope]:
        """List what the commit must find as it was, so that the gate's word holds of what it makes."""
        whole: list[Scope] = [self.kind.changes, self.kind.history] if self._beyond else []
        return [*read_scopes(self.kind, self._buckets), *whole, *sorted(self._beside)]

    def _rows(self, name: str, schema: T.StructType) -> DataFrame:
        self._beside.add(name)
        return super()._rows(name, schema)

    def _where(self, key: Key | None) -> dict[str, Any]:
        # Every question of a `View` comes by here, those about what is touched do not.
        self._beyond = True
        return super()._where(key)

    def _keep_touched(self, rows: DataFrame) -> DataFrame:
        """The rows, of guid first, of entities of which the log has other changes; by a truncate, of all."""
        base, counts = self._snapshot.base, []
        for name in filter(self._snapshot.has, (self.kind.changes, self.kind.words)):
            before = {file.path: file for file in base.files(name)} if base.has(name) else {}
            after = {file.path: file for file in self._snapshot.files(name)}
            new = [file for path, file in after.items() if path not in before]
            removed = [file for path, file in before.items() if path not in after]
            # One that went may have brought any entity back.
            if any(file.low.get(GUID) == EVERY for file in (*new, *removed)):
                return rows
            counts.append(self._snapshot.read(name, files=new).select(GUID, IDENTITY, F.lit(1).alias("more")))
            # Older changes were written again: small files as one, or all of them for a wider type.
            if removed:
                counts.append(base.read(name, files=removed).select(GUID, IDENTITY, F.lit(-1).alias("more")))
        counted = reduce(DataFrame.union, counts)
        # Where a list went, changes went, and others may have come in their place.
        changed = (F.sum("more") != 0) | (F.bit_xor(IDENTITY) != 0)
        news = counted.groupBy(GUID).agg(changed.alias("changed")).where("changed").select(GUID)
        every = rows.sparkSession.range(1).select(F.lit(EVERY).alias(GUID))
        return rows.join(news.union(every), on=GUID, how="left_semi")


Gate = Callable[[Pending], object]
"""What looks at a ledger before a commit; whatever it raises refuses the batch."""


def require_gate(gate: Gate | None) -> None:
    """Raise `InvalidArgument` for what cannot be called, such as the name of a suite."""
    if gate is not None and not callable(gate):
        needed = "a function of the ledger as it will be (Pending), which raises what refuses the batch"
        remedy = 'Of a suite make one: lambda after: check(after.touched_history(), "history").require().'
        raise InvalidArgument(None, "gate", needed, gate, remedy=remedy)


def run_gate(gate: Gate | None, transaction: Transaction, kind: Kind, buckets: list[int]) -> list[Scope]:
    """Let a gate, if there is one, look; returns what the commit of these buckets must find as it was."""
    if gate is None:
        return read_scopes(kind, buckets)
    after = Pending(transaction, kind, buckets)
    gate(after)
    return after._read_scopes()
