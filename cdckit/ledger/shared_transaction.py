"""A ledger kept up within a transaction that does more: for the shells of doors."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdckit.kernel.changes import GUID
from cdckit.ledger.applying import bring_up, reads, tables
from cdckit.ledger.columns import BUCKET, log_columns, logged
from cdckit.ledger.kinds import Kind
from cdckit.ledger.log_intake import take
from cdckit.parts.values import guid
from cdckit.store import Transaction
from cdckit.store.transaction import Scope


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
    fresh = take(rows, kind, found.book.log).files
    kind.note(transaction)
    _, buckets = bring_up(transaction, kind, found.book, fresh, anew=found.anew)
    return reads(kind, buckets)


def withdraw_within(transaction: Transaction, kind: Kind, messages: DataFrame) -> list[Scope]:
    """
    Take changes out of a ledger, as if they never had been applied; returns what `apply_within` returns.

    Args:
        transaction: Of the store that holds the ledger.
        kind: What the ledger is about, by key fields.
        messages: One row per change: the key fields of its entity, and `message_id`.  What the ledger does
            not have is passed over.

    Cost: the buckets of these entities are written anew, log and history; the other ones are not read.
    """
    kind = kind.within(transaction)
    if not transaction.has(kind.changes):
        return []
    key = {name: F.col(name) for name in kind.keys}
    buckets = remove_changes(
        transaction, kind, messages.select(guid(kind.entity, key).alias(GUID), "message_id")
    )
    book = tables(transaction, kind, transaction.schema(kind.changes)).book
    bring_up(transaction, kind, book, [], anew=True, only=buckets)
    return reads(kind, buckets)


def remove_changes(transaction: Transaction, kind: Kind, messages: DataFrame) -> list[int]:
    """
    Take changes out of the log alone; returns the buckets that are to be made anew.

    Args:
        transaction: Of the store that holds the ledger.
        kind: What the ledger is about.
        messages: One row per change: the `guid` of its entity, and `message_id`.
    """
    gone = messages.distinct()
    buckets = [row[0] for row in gone.select(kind.bucket_column(F.col(GUID))).distinct().collect()]
    if buckets:
        where = {BUCKET: buckets}
        log = transaction.read(kind.changes, where)
        left = log.join(gone, [GUID, "message_id"], "left_anti").select(*log.columns)
        transaction.swap(kind.changes, transaction.files(kind.changes, where), left.repartition(BUCKET))
    return buckets
