"""What is kept: work in commits, and rows in tables that grow run by run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from cdckit.store import Store, Transaction
from cdckit.store.kinds import KIND, require_kind
from cdckit.store.writing import Rows

HUB = "data hub (form 1)"
"""What is noted in the store: the kind of what is kept there, and the version of its form."""

_SMALL, _MANY = 4 << 20, 16
"""So many files of fewer bytes are written together: a table that grows by the run has a bounded number."""


_Done = TypeVar("_Done")


def committed(
    store: Store,
    work: Callable[[Transaction], _Done],
    *,
    reads: Sequence[str] = (),
    batch: str | None = None,
    digest: int | None = None,
) -> _Done | None:
    """
    What *work* returns, with all that it has written committed; nothing is committed if it is False.

    None if another writer has committed the batch meanwhile.
    It may be called several times, each time on the newest commit.  The tables that it replaces, and those
    of *reads*, must not have changed meanwhile.
    """

    def attempt(tables: Transaction) -> _Done | None:
        require_kind(tables.base, HUB)
        done = work(tables)
        if done is not False:
            tables.note(KIND, HUB)
            if tables.commit(reads=reads, batch=batch, digest=digest).repeated:
                return None
        return done

    return store.atomically(attempt)


def grow(tables: Transaction, name: str, *rows: Rows) -> None:
    """Append rows to a table, and write its small files together when there are many."""
    tables.append(name, *rows)
    fold(tables, name)


def fold(tables: Transaction, name: str) -> None:
    """Write the small files of a table together when there are many."""
    tables.compact(name, below=_SMALL, files=_MANY)
