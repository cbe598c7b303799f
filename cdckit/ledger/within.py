"""A ledger kept up within a transaction that does more: for the shells of doors."""

from __future__ import annotations

from pyspark.sql import DataFrame

from cdckit.ledger.applying import bring_up, reads, tables
from cdckit.ledger.columns import log_columns, logged
from cdckit.ledger.kinds import Kind
from cdckit.ledger.taking import take
from cdckit.store import Transaction
from cdckit.store.conflicts import Scope


def apply_within(transaction: Transaction, kind: Kind, changes: DataFrame) -> list[Scope]:
    """
    What `Ledger.apply` does, without a commit; returns what the commit must find as it was.

    Args:
        transaction: Of the store that holds the ledger.
        kind: What the ledger is about; by other buckets it is gone on with those that it has.
        changes: As for `Ledger.apply`.

    Raises:
        As `Ledger.apply`.
    """
    kind = kind.within(transaction)
    rows = logged(changes, kind)
    found = tables(transaction, kind, log_columns(rows.schema))
    fresh, _ = take(rows, kind, found.book.log)
    kind.note(transaction)
    _, buckets = bring_up(transaction, kind, found.book, fresh, anew=found.anew)
    return reads(kind, buckets)
