"""Another program's OPTIMIZE, which is stopped between its files and its commit."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction


def begin_optimize(folder: Path) -> Callable[[], None]:
    """Write the rows of a Delta table into one file of another name; returned is what commits that."""
    table, now = DeltaTable(str(folder)), int(time.time() * 1000)
    written = folder / "part-00000-optimized.parquet"
    rows = table.to_pyarrow_table()
    pq.write_table(rows, written)
    actions = pa.table(table.get_add_actions()).select(["path", "size_bytes"]).to_pylist()
    added = AddAction(
        written.name, written.stat().st_size, {}, now, False, json.dumps({"numRecords": rows.num_rows})
    )
    removed = [RemoveAction(old["path"], False, now, old["size_bytes"], {}) for old in actions]
    return lambda: table.create_write_transaction([added, *removed], "append", table.schema())
