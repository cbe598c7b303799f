"""What is kept: tables that may not be there yet, and work in commits of one kind of store."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.parts.schemas import quoted
from cdckit.store.file_reader import are_few
from cdckit.store.file_writer import Rows
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


def put(tables: Transaction, name: str, keys: DataFrame, *rows: Rows) -> None:
    """
    Write *rows* in the place of those rows of a table that have one of the *keys*, in columns of these names.

    Cost: files without such rows stay as they are; unless the table is small, a job finds them.
    """
    found, files, on = tables.read(name), tables.files(name), keys.columns
    if not are_few(files):
        placed = found.select(*map(quoted, on), F.input_file_name().alias("file"))
        touched = placed.join(keys, on, "left_semi")
        # As many rows as there are files, at most.
        paths = {row["file"].rsplit("/", 1)[-1] for row in touched.select("file").distinct().collect()}
        files = [one for one in files if one.path in paths]
    rest = tables.read(name, files=files).join(keys, on, "left_anti") if files else None
    kept = [] if rest is None else [rest.select(*map(quoted, found.columns))]
    tables.swap(name, files, *kept, *rows)


def noted(tables: Tables, key: str, default: Any) -> Any:
    """What is noted under a key, as JSON; *default* if nothing is."""
    text = tables.note_of(key)
    return default if text is None else json.loads(text)


def note(tables: Transaction, key: str, value: Any) -> None:
    """Note a value beside the tables, as JSON; see `noted`."""
    tables.note(key, json.dumps(value))
