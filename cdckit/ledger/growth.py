"""How many buckets a ledger has that grows: at first by an estimate, later by what it holds."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import functions as F

from cdckit.ledger.columns import BUCKET, EVERY
from cdckit.ledger.field_types import FittedChanges
from cdckit.ledger.kind import Kind
from cdckit.ledger.upkeep import begin_upkeep
from cdckit.merging.arrow_changes import GUID
from cdckit.parts.workers import are_few_rows, plan_bytes, reads_sources_alone
from cdckit.store import Transaction

BUCKET_BYTES, MOST_BUCKETS = 32 << 20, 4096
"""How many bytes of files a bucket of a growing ledger should have, and how many buckets it has at most."""

_FIRST_BUCKETS, _STORED_BYTES = 64, 4
"""How many buckets a new ledger has if nobody can tell how much comes; and about how many bytes of log and
history come of one byte of Parquet."""

_PART_BYTES = 128
"""About how many bytes a file has for each of its columns and their parts, however few its rows are: more
buckets have more files, so with these a wide table would be cut again and again."""


def grow(transaction: Transaction, changes: FittedChanges, share: float) -> tuple[Kind, bool]:
    """
    Give a ledger that grows the buckets that it should have; whether its tables were made anew for that.

    How much comes to a new one is estimated from what the plan of its first changes reads, of which *share*
    is for this ledger.  Later it is known what it has, and it is cut into four times as many buckets, again
    and again; or into few, if the first ones were taken for many.
    """
    kind = changes.kind
    if not kind.grows:
        return kind, False
    if not transaction.has(kind.changes):
        bytes_read = plan_bytes(changes.rows)
        if bytes_read is not None:
            enough = _enough_buckets(int(bytes_read * share) * _STORED_BYTES)
            # Of a join that is not computed yet, the estimate is the product of its sides.
            first = enough if reads_sources_alone(changes.rows) else min(enough, _FIRST_BUCKETS)
        else:
            first = 1 if are_few_rows(changes.rows) else _FIRST_BUCKETS
        return replace(kind, buckets=first), False
    enough = _enough_buckets(sum(_row_bytes(transaction, name) for name in (kind.changes, kind.history)))
    if enough <= kind.buckets < enough * _FIRST_BUCKETS:
        return kind, False
    grown = replace(kind, buckets=enough)
    all_buckets = F.sequence(F.lit(0), F.lit(enough - 1))
    bucket = F.when(F.col(GUID) == EVERY, all_buckets).otherwise(F.array(grown.bucket_column(F.col(GUID))))
    old_and_new = transaction.old_and_new_files(kind.changes)
    for files, is_old in zip(old_and_new, (True, False), strict=True):
        if files:
            rows = transaction.read(kind.changes, files=files)
            once = rows.where((F.col(GUID) != EVERY) | (F.col(BUCKET) == 0))
            cut = once.withColumn(BUCKET, F.explode(bucket)).repartition(BUCKET)
            transaction.swap(kind.changes, files, cut, same_rows=is_old)
    begin_upkeep(transaction, grown, anew=True).run()
    return grown, True


def _row_bytes(transaction: Transaction, name: str) -> int:
    """About how many bytes of the files of a table are those of its rows."""
    columns_and_parts = transaction.schema(name).json().count('"name":')
    return sum(max(0, file.size - columns_and_parts * _PART_BYTES) for file in transaction.files(name))


def _enough_buckets(stored: int) -> int:
    buckets = 1
    while buckets < MOST_BUCKETS and stored > buckets * BUCKET_BYTES:
        buckets *= 4
    return buckets
