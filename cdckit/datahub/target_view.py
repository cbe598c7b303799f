"""The history of one target of a hub at one commit, which answers what a ledger's answers."""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdckit.datahub.state import State
from cdckit.kernel.changes import GUID, KEYS
from cdckit.ledger import View
from cdckit.ledger.columns import Kind
from cdckit.ledger.views import Key
from cdckit.parts.arguments import quoted
from cdckit.query.as_of import as_of
from cdckit.store import Snapshot


class TargetView(View):
    """
    A target as a hub has it at one commit; it has no files of its own.

    Its changes follow from what the messages say: no log is kept of them.
    """

    def __init__(self, state: State, tables: Snapshot, entity: str) -> None:
        super().__init__(tables, Kind(entity, tuple(state.schema.targets[entity].keys), 1, True, entity))
        self._state = state

    def changes(self, key: Key | None = None) -> DataFrame:
        """The changes of which the history is made, with their `guid`; of one entity, with a *key*."""
        keys = {KEYS: [*self.kind.keys]}
        found = self._state.changes(self.kind.entity).withColumn(GUID, F.col(GUID).alias(GUID, metadata=keys))
        return _keep_entity(found, key, "data.")

    def history(self, key: Key | None = None) -> DataFrame:
        """Every version, in the columns that `merge` gives; of one entity, with a *key*."""
        return _keep_entity(self._state.history(self.kind.entity), key)

    def as_of(self, valid_at: datetime, key: Key | None = None, *, deletes: bool = False) -> DataFrame:
        """The version of each entity that was in force at an instant, as `View.as_of`."""
        return as_of(self.history(key), valid_at, deletes=deletes)

    def contracts(self) -> dict[str, tuple[DataFrame, str]]:
        """The tables, each with the suite of sentences that it keeps, as `View.contracts`."""
        log, history = self.changes(), self.history()
        return {"changes": (log, "changes"), "history": (history, "history"), "ledger": (history, "ledger")}


def _keep_entity(rows: DataFrame, key: Key | None, within: str = "") -> DataFrame:
    if isinstance(key, str):
        return rows.where(F.col(GUID) == key)
    for name, value in (key or {}).items():
        rows = rows.where(F.col(within + quoted(name)).eqNullSafe(F.lit(value)))
    return rows
