"""A ledger as a batch leaves it, before its commit: what a gate looks at."""

from __future__ import annotations

from collections.abc import Callable, Collection

from pyspark.sql import DataFrame

from cdckit.kernel.layout import GUID
from cdckit.ledger.columns import BUCKET, shown_changes
from cdckit.ledger.kinds import Kind
from cdckit.ledger.views import View
from cdckit.store import Transaction


class Pending(View):
    """
    A ledger as it will be when the batch that is being applied is committed.

    It answers what a `View` answers; `version` and `timestamp` are None, since there is no commit yet.  It is
    there until the gate has let the batch pass, or refused it.

    >>> from tempfile import TemporaryDirectory
    >>> from cdckit import Ledger
    >>> def at_most_one(after: Pending) -> None:
    ...     print(after.touched_history().count(), "of", after.history().count(), "versions")
    >>> with TemporaryDirectory() as folder:
    ...     ledger = Ledger(session(), folder, entity="product", keys=["number"], buckets=1)
    ...     _ = ledger.apply(changes.where("data.number = 1"), gate=at_most_one)
    ...     _ = ledger.apply(changes.where("data.number = 2"), gate=at_most_one)
    2 of 2 versions
    2 of 4 versions
    """

    def __init__(self, transaction: Transaction, kind: Kind, buckets: Collection[int]) -> None:
        super().__init__(transaction, kind)
        self._pending, self._buckets = transaction, list(buckets)

    def touched_history(self) -> DataFrame:
        """
        The versions of the entities of which the batch has news, all of each, in the columns of `history`.

        Cost: reads the buckets of the history that the batch touches; one semi-join by guid.
        """
        found = self._pending.read(self.kind.history, {BUCKET: self._buckets})
        return self._shown(self._touched(found))

    def touched_changes(self) -> DataFrame:
        """
        The changes of these entities, earlier ones and news, in the columns of `changes`.

        Cost: as of `touched_history`, of the log.
        """
        found = self._pending.read(self.kind.changes, {BUCKET: self._buckets})
        return shown_changes(self._touched(found), self.kind)

    def _touched(self, rows: DataFrame) -> DataFrame:
        """The rows of entities in files of the log that are new; such a file may hold a few older changes."""
        base, name = self._pending.base, self.kind.changes
        known = {one.path for one in base.files(name)} if base.has(name) else set()
        new = [one for one in self._pending.files(name) if one.path not in known]
        news = self._pending.read(name, files=new).select(GUID).distinct()
        return rows.join(news, on=GUID, how="left_semi").select(*rows.columns)


Gate = Callable[[Pending], object]
"""What looks at a ledger before a commit; whatever it raises refuses the batch."""
