"""What is kept: work in commits of one kind of store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from cdckit.store import Store, Transaction
from cdckit.store.kinds import KIND, require_kind

HUB = "data hub (form 1)"
"""What is noted in the store: the kind of what is kept there, and the version of its form."""

MANY_FILES = 16
"""So many small files are written together: a table that grows by the run has a bounded number."""

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
