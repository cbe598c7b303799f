"""What is kept: tables that may not be there yet, and work in commits of one kind of store."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from cdckit.store.files import Where
from cdckit.store.kinds import KIND, require_kind
from cdckit.store.snapshot import Snapshot
from cdckit.store.store import Store
from cdckit.store.transaction import Transaction

_Done = TypeVar("_Done")

Tables: TypeAlias = Snapshot | Transaction
"""Tables as a commit names them, or as a transaction has left them so far."""


def committed(
    store: Store,
    kind: str,
    work: Callable[[Transaction], _Done],
    *,
    reads: Sequence[str] = (),
    batch: str | None = None,
    digest: int | None = None,
) -> _Done | None:
    """
    What *work* returns, with all that it has written committed to a store of one *kind* (`require_kind`).

    Nothing is committed if it is False.  None if another writer has committed the batch meanwhile.
    It may be called several times, each time on the newest commit.  The tables that it replaces, and those
    of *reads*, must not have changed meanwhile.
    """

    def attempt(tables: Transaction) -> _Done | None:
        require_kind(tables.base, kind)
        done = work(tables)
        if done is not False:
            tables.note(KIND, kind)
            if tables.commit(reads=reads, batch=batch, digest=digest).repeated:
                return None
        return done

    return store.atomically(attempt)


def read_some(tables: Tables, name: str) -> DataFrame | None:
    """A table that has rows; None if there is none of that name, or it is empty."""
    return tables.read(name) if tables.has(name) and tables.files(name) else None


def rows_of(tables: Tables, name: str, columns: T.StructType | str, where: Where | None = None) -> DataFrame:
    """A table; without rows, in those *columns*, if there is none of that name."""
    if tables.has(name):
        return tables.read(name, where=where)
    return tables.spark.createDataFrame([], columns)


def noted(tables: Tables, key: str, default: Any) -> Any:
    """What is noted under a key, as JSON; *default* if nothing is."""
    text = tables.note_of(key)
    return default if text is None else json.loads(text)


def note(tables: Transaction, key: str, value: Any) -> None:
    """Note a value beside the tables, as JSON; see `noted`."""
    tables.note(key, json.dumps(value))
