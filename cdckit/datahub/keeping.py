"""What is kept: work in commits, rows in tables that grow run by run, and rows for the rest of one run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from pyspark.sql import DataFrame

from cdckit.store import Store, Transaction
from cdckit.store.kinds import KIND, require_kind
from cdckit.store.writing import Rows

HUB = "data hub (form 1)"
"""What is noted in the store: the kind of what is kept there, and the version of its form."""

_FEW = 1_000
"""So many guids, or keys of statements, this program may hold; more stay with the executors."""

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


def computed(rows: DataFrame, *, few: bool = False) -> DataFrame | None:
    """
    Rows computed once and looked at again; None if there are none.

    They are held without files: if they are few, as rows of Spark's plans, else by the executors.  An
    executor that dies takes its part along: then the run fails, and can be run again.

    Args:
        rows: The rows.
        few: Whether they are known to be few: then this program takes them at once.

    Cost: a job; without *few* another one, which looks whether there are more than a few.
    """
    kept = rows if few else rows.localCheckpoint()
    some = (kept if few else kept.limit(_FEW + 1)).toArrow()
    if not some.num_rows:
        return None
    return kept if some.num_rows > _FEW and not few else rows.sparkSession.createDataFrame(some, rows.schema)
