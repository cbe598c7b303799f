"""Folds whose states are kept from batch to batch, one for each scope: plain Python, whatever keeps them."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, ClassVar, NamedTuple

import msgspec
import pyarrow as pa

from cdckit.parts.fold import Fold, FoldPlan, Result

WAITING, PROCESSED = "waiting", "processed"

Place = tuple[int, int]
"""What tells records apart: the commit that brought them, and a number within it."""


class RecordOutcome(NamedTuple):
    """
    What became of a record; of one about which nothing is said, what its decoding says.

    Args:
        place: Of the record.
        outcome: A word of the door's.
        code, sentence: Why it cannot be used.
        since, waits_for: Since when a record waits, in microseconds, and for what.
        about: What the record speaks of, where that is known by other records only.
    """

    place: Place
    outcome: str
    code: str | None = None
    sentence: str | None = None
    since: int | None = None
    waits_for: str | None = None
    about: str | None = None

    def after(self, before: RecordOutcome | None) -> RecordOutcome:
        """The same behind one that was said before: what the record is about is still known."""
        return self if self.about or before is None else self._replace(about=before.about)


class Again(NamedTuple):
    """A row for other scopes of the same fold."""

    row: Any


class ScopeState(NamedTuple):
    """What is known of a scope, and the records that are taken once more when others come."""

    scope: str
    state: bytes | None = None
    waiting: tuple[Place, ...] = ()


class KeptFold(ABC):
    """
    What is known of one scope, and the rules by which rows are taken that come to it, batch after batch.

    What follows from a row is any number of outcomes, of rows for the next fold, and of rows for other scopes
    of this one (`Again`).

    Args:
        state: What is known of the scope; None where nothing is.
        settings: What the door goes by.
    """

    name: ClassVar[str]
    """The name under which its states are kept."""
    takes: ClassVar[tuple[type, ...]]
    """The types of rows that it takes; all others pass it by."""

    @abstractmethod
    def __init__(self, state: bytes | None, settings: Any) -> None:
        raise NotImplementedError

    @staticmethod
    @abstractmethod
    def spread(row: Any) -> Iterable[tuple[str, Any]]:
        """The scopes of a row, each with what it is there."""
        raise NotImplementedError

    @staticmethod
    @abstractmethod
    def order(row: Any) -> Any:
        """Tell what the rows of a scope are sorted by."""
        raise NotImplementedError

    @classmethod
    def sort(cls, rows: Iterable[Any]) -> list[Any]:
        """Bring rows of a scope into the order in which they are taken."""
        return sorted(rows, key=cls.order)

    @abstractmethod
    def take(self, row: Any) -> Iterable[Any]:
        """Take a row; what follows from it."""
        raise NotImplementedError

    def settle(self) -> Iterable[Any]:
        """Tell what follows once all rows of a batch are taken."""
        return ()

    @abstractmethod
    def state(self) -> bytes | None:
        """Write down what is known now; None if nothing is."""
        raise NotImplementedError

    def waiting(self) -> Iterable[Place]:
        """The records that are to be taken once more."""
        return ()


def bucket_of(scope: str, buckets: int) -> int:
    """The bucket of a scope."""
    return zlib.crc32(scope.encode()) % buckets


def spread_rows(fold: type[KeptFold], rows: Iterable[Any]) -> dict[str, list[Any]]:
    """Rows by the scopes that they come to."""
    scopes = defaultdict[str, list[Any]](list)
    for row in rows:
        for scope, scoped in fold.spread(row):
            scopes[scope].append(scoped)
    return scopes


def take_scopes(
    fold: type[KeptFold],
    settings: Any,
    scopes: Mapping[str, list[Any]],
    states: Mapping[str, ScopeState],
    read: Callable[[list[Place]], Iterable[Any]],
) -> tuple[list[ScopeState], list[Any]]:
    """
    Take the rows of some scopes.

    Args:
        fold, settings: How they are taken.
        scopes: The rows of each scope, in any order.
        states: What is known of these scopes.
        read: Reads rows again, of records that wait.

    Returns:
        The states that are not what they were, and all that follows from the rows.

    >>> class Sum(KeptFold):
    ...     name, takes = "sum", (tuple,)
    ...     def __init__(self, state, settings):
    ...         self.sum = int(state or 0)
    ...     @staticmethod
    ...     def spread(row):
    ...         return [row]
    ...     @staticmethod
    ...     def order(number):
    ...         return number
    ...     def take(self, number):
    ...         self.sum += number
    ...         yield self.sum
    ...     def state(self):
    ...         return b"%d" % self.sum
    >>> rows = spread_rows(Sum, [("ann", 2), ("ben", 3), ("ann", 1)])
    >>> states, results = take_scopes(Sum, None, rows, {"ann": ScopeState("ann", b"10")}, list)
    >>> [(state.scope, state.state) for state in states], results
    ([('ann', b'13'), ('ben', b'3')], [11, 13, 3])
    """
    places = [place for scope in scopes for place in states.get(scope, ScopeState(scope)).waiting]
    waited = spread_rows(fold, read(places)) if places else {}
    changed, results = list[ScopeState](), list[Any]()
    for scope, rows in scopes.items():
        before = states.get(scope, ScopeState(scope))
        scope_fold = fold(before.state, settings)
        for row in fold.sort([*waited.get(scope, ()), *rows]):
            results += scope_fold.take(row)
        results += scope_fold.settle()
        after = ScopeState(scope, scope_fold.state(), tuple(scope_fold.waiting()))
        if after != before:
            changed.append(after)
    return changed, results


def number_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows of a batch, their instants as microseconds: so folds compare them, and keep them."""
    columns = [
        column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in batch.columns
    ]
    rows: list[dict[str, Any]] = pa.RecordBatch.from_arrays(columns, batch.schema.names).to_pylist()
    return rows


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
