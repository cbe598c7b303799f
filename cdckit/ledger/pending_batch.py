"""A ledger as a batch leaves it, before its commit: what a gate looks at."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdckit.errors import InvalidArgument
from cdckit.kernel.changes import GUID
from cdckit.ledger.applying import reads
from cdckit.ledger.columns import BUCKET, EVERY, IDENTITY, shown_changes
from cdckit.ledger.kinds import Kind
from cdckit.ledger.views import Key, View
from cdckit.store import Transaction
from cdckit.store.transaction import Scope


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
    ...     ledger = Ledger(session(), folder, entity="product", keys=["number"], buckets=1)
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
        self._buckets = list(buckets)

    def touched_history(self) -> DataFrame:
        """
        The versions of the entities of which the batch has news, all of each, in the columns of `history`.

        Cost: reads the buckets of the history that the batch touches, and the guids in the files that it
            adds to the log or takes from it; one aggregation and one semi-join by guid.
        """
        found = self._snapshot.read(self.kind.history, {BUCKET: self._buckets})
        return self._shown(self._touched(found))

    def touched_changes(self) -> DataFrame:
        """
        The changes of these entities, earlier ones and news, in the columns of `changes`.

        Cost: as of `touched_history`, of the log.
        """
        found = self._snapshot.read(self.kind.changes, {BUCKET: self._buckets})
        return shown_changes(self._touched(found), self.kind, min(self._buckets, default=0))

    def _looked_at(self) -> list[Scope]:
        """What the commit must find as it was, so that the gate's word holds of what it makes."""
        whole: list[Scope] = [self.kind.changes, self.kind.history] if self._beyond else []
        return [*reads(self.kind, self._buckets), *whole]

    def _where(self, key: Key | None, function: str) -> dict[str, Any]:
        # Every question of a `View` comes by here, those about what is touched do not.
        self._beyond = True
        return super()._where(key, function)

    def _touched(self, rows: DataFrame) -> DataFrame:
        """The rows, of guid first, of entities of which the log has other changes; by a truncate, of all."""
        base, counts = self._snapshot.base, []
        for name in filter(self._snapshot.has, (self.kind.changes, self.kind.words)):
            before = {one.path: one for one in base.files(name)} if base.has(name) else {}
            after = {one.path: one for one in self._snapshot.files(name)}
            new = [one for path, one in after.items() if path not in before]
            gone = [one for path, one in before.items() if path not in after]
            if any(one.low.get(GUID) == EVERY for one in new):
                return rows
            counts.append(self._snapshot.read(name, files=new).select(GUID, IDENTITY, F.lit(1).alias("more")))
            if gone:  # Older changes were written again: small files as one, or all of them for a wider type.
                counts.append(base.read(name, files=gone).select(GUID, IDENTITY, F.lit(-1).alias("more")))
        counted = reduce(DataFrame.union, counts)
        # Where a list went, changes went, and others may have come in their place.
        changed = (F.sum("more") != 0) | (F.bit_xor(IDENTITY) != 0)
        news = counted.groupBy(GUID).agg(changed.alias("changed")).where("changed").select(GUID)
        every = rows.sparkSession.range(1).select(F.lit(EVERY).alias(GUID))
        return rows.join(news.union(every), on=GUID, how="left_semi")


Gate = Callable[[Pending], object]
"""What looks at a ledger before a commit; whatever it raises refuses the batch."""


def require_gate(gate: Gate | None, *, function: str) -> None:
    """Raise `InvalidArgument` for what cannot be called, such as the name of a suite."""
    if gate is not None and not callable(gate):
        needed = "a function of the ledger as it will be (Pending), which raises what refuses the batch"
        remedy = 'Of a suite make one: lambda after: check(after.touched_history(), "history").require().'
        raise InvalidArgument(function, "gate", needed, gate, remedy=remedy)


def asked(gate: Gate | None, transaction: Transaction, kind: Kind, buckets: list[int]) -> list[Scope]:
    """Let a gate, if there is one, look; returns what the commit of these buckets must find as it was."""
    if gate is None:
        return reads(kind, buckets)
    after = Pending(transaction, kind, buckets)
    gate(after)
    return after._looked_at()
