"""
Tables that live: Delta tables in a folder or below a URI, which appear together, commit by commit.

`Store` opens one, `Snapshot` is what a reader keeps, `Transaction` is how it is written.  How writers
share it, and what is left of one that died, is said in `cdckit.store.transaction`.
"""

from __future__ import annotations

from cdckit.store.errors import (
    BatchIdReused,
    ConflictingCommit,
    DamagedTable,
    ForeignChange,
    NoCredentials,
    NoFileSystem,
    NoSuchTable,
    NotStorable,
    NotWritable,
    OtherKind,
    StoreIsBusy,
)
from cdckit.store.files import File
from cdckit.store.snapshot import Snapshot
from cdckit.store.store import Store
from cdckit.store.transaction import CommitResult, Transaction
from cdckit.store.writing import WriteResult

__all__ = [
    "BatchIdReused",
    "CommitResult",
    "ConflictingCommit",
    "DamagedTable",
    "File",
    "ForeignChange",
    "NoCredentials",
    "NoFileSystem",
    "NoSuchTable",
    "NotStorable",
    "NotWritable",
    "OtherKind",
    "Snapshot",
    "Store",
    "StoreIsBusy",
    "Transaction",
    "WriteResult",
]
