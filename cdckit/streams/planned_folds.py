"""Kept folds of rows that a plan tells how to take."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, ClassVar

import msgspec

from cdckit.parts.fold import Fold, FoldPlan, Result
from cdckit.parts.kept_folds import KeptFold


class PlannedFold(KeptFold):
    """
    A fold of rows with `columns`, a dictionary, that are taken as a plan says (`FoldPlan`).

    A row of the type *forgets* has the columns of a scope alone: nothing is known of that any more.
    """

    plan: ClassVar[FoldPlan]
    forgets: ClassVar[type | None] = None

    def __init__(self, state: bytes | None, settings: Any) -> None:
        self._settings = settings
        self._fold = None if state is None else self.begin(msgspec.msgpack.decode(state))

    def begin(self, state: Result | None) -> Fold:
        """Begin the scope with what is known of it."""
        return self.plan.begin(state)

    @classmethod
    def spread(cls, row: Any) -> Iterable[tuple[str, Any]]:
        return [(scope_of(*map(row.columns.get, cls.plan.scope)), row)]

    @classmethod
    def order(cls, row: Any) -> Any:
        return row_rank(row.columns, (*cls.plan.logs, *cls.plan.order))

    @classmethod
    def sort(cls, rows: Iterable[Any]) -> list[Any]:
        latest, timed_rows = dict[Any, Any](), []
        for row in super().sort(rows):
            log, time = (row_rank(row.columns, names) for names in (cls.plan.logs, cls.plan.time))
            latest[log] = max(latest.get(log, time), time)
            timed_rows.append((latest[log], row))
        return [row for _, row in sorted(timed_rows, key=itemgetter(0))]

    def take(self, row: Any) -> Iterable[Any]:
        if self.forgets is not None and isinstance(row, self.forgets):
            self._fold = None
            return ()
        self._fold = self._fold or self.begin(None)
        result: Any = self._fold.take(*map(row.columns.get, self.plan.reads))
        return self.follow(row, dict(zip(self.plan.makes.names, result, strict=True)))

    @abstractmethod
    def follow(self, row: Any, result: dict[str, Any]) -> Iterable[Any]:
        """Tell what follows from a row, which has come to a result (`plan.makes`)."""
        raise NotImplementedError

    def state(self) -> bytes | None:
        return None if self._fold is None else msgspec.msgpack.encode(self._fold.state())


def scope_of(*key: str | int | None) -> str:
    """A key as one text."""
    return msgspec.json.encode(key).decode()


def row_rank(columns: Mapping[str, Any], order: Sequence[str]) -> Any:
    """What rows are sorted by that are in the order of these columns; nulls come first."""
    return tuple(() if columns.get(name) is None else (columns[name],) for name in order)
