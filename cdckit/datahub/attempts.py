"""Attempts: something is committed, or done again on what others have committed meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from cdckit.store import Store, Transaction
from cdckit.store.kinds import KIND, require_kind

Result = TypeVar("Result")


def committed(
    store: Store,
    kind: str,
    work: Callable[[Transaction], Result],
    *,
    reads: Sequence[str],
    batch: str | None = None,
    digest: int | None = None,
) -> Result:
    """
    What *work* returns, with all that it has written committed; nothing is committed if it returns False.

    Args:
        store: Where the tables are.
        kind: What is noted in the store: which kind of tables it holds.
        work: Writes to a transaction.  It may be called several times, each time on the newest commit.
        reads: The tables that must not have changed meanwhile, beside those that are replaced.
        batch: The id of the batch that is taken up, if it is one.
        digest: Of that batch.

    Raises:
        OtherKind: The store holds something else.
        ConflictingCommit: Others came between each time.
        BatchIdReused: The batch id was used for something else.
    """

    def attempt(tables: Transaction) -> Result:
        require_kind(tables.base, kind)
        done = work(tables)
        if done is not False:
            tables.note(KIND, kind)
            tables.commit(reads=reads, batch=batch, digest=digest)
        return done

    return store.atomically(attempt)
