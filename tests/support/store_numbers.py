"""Small tables of numbers, written and read without Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from cdckit.store import Snapshot, Store


def numbers(*values: int) -> pa.Table:
    """A table of one column, n."""
    return pa.table({"n": pa.array(values, pa.int64())})


def add(store: Store, name: str, *values: int) -> int:
    """Append numbers to a table in a commit of its own; its number."""
    with store.begin() as transaction:
        transaction.append(name, numbers(*values))
        return transaction.commit().version


def held(store: Store | Snapshot, name: str) -> list[int]:
    """The numbers in a table, sorted."""
    snapshot = store.snapshot() if isinstance(store, Store) else store
    return sorted(snapshot.arrow(name).column("n").to_pylist())


def listing(folder: Path) -> dict[str, tuple[int, int]]:
    """Everything below a folder, with its size and the time of its last change."""
    stats = {str(path.relative_to(folder)): path.stat() for path in folder.rglob("*")}
    return {name: (one.st_size, one.st_mtime_ns) for name, one in stats.items()}
