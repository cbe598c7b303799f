"""
How changes come into the tables of a ledger, and go out of them again, within a transaction of its store.

`take_changes` gives the ledger as many buckets as it needs, writes the changes into files of the log, which
no commit names yet, and brings the history up to them: for a ledger's own calls as for doors.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdckit.ledger.columns import BUCKET, EVERY
from cdckit.ledger.field_types import FittedChanges, fit_changes
from cdckit.ledger.kind import Kind
from cdckit.ledger.log_rows import to_log_rows
from cdckit.ledger.logged_batch import LoggedBatch, write_batch
from cdckit.ledger.upkeep import begin_upkeep, read_scopes
from cdckit.merging.arrow_changes import GUID
from cdckit.model.changes import MOVED
from cdckit.model.rejected_records import usable_changes
from cdckit.parts.arguments import quoted
from cdckit.parts.workers import are_few_rows, plan_bytes, reads_sources_alone
from cdckit.query.provenance import Messages, revoke
from cdckit.store import Transaction
from cdckit.store.conflicts import Scope


@dataclass(frozen=True)
class ApplyResult:
    """
    What `Ledger.apply` did.

    Args:
        version: The commit by which it is seen.
        news: How many of the changes the log did not have.
        repeated: Whether nothing was done, because the batch had been applied before.
        deleted: Of lists, how many entities they lack that the lists before them named.
        rejects: How many rows of the batch were no changes, since they could not be used (`Ledger.rejects`).

    >>> result = ApplyResult(version=7, news=0)
    >>> "repeated" if result.repeated else f"{result.news} changes were news, as of commit {result.version}"
    '0 changes were news, as of commit 7'
    """

    version: int
    news: int
    repeated: bool = False
    deleted: int = 0
    rejects: int = 0


class TakenChanges(NamedTuple):
    """
    What a ledger has taken within a transaction.

    Args:
        kind: The ledger, after them.
        batch: The changes, as files of the log.
        news: How many of them the log did not have.
        buckets: The buckets that were touched.
    """

    kind: Kind
    batch: LoggedBatch
    news: int
    buckets: list[int]


def take_changes(
    transaction: Transaction,
    changes: FittedChanges,
    *,
    table: int | None = None,
    written: LoggedBatch | None = None,
    again: Collection[int] = (),
    share: float = 1,
) -> TakenChanges:
    """
    Take changes into a ledger, and bring its history up to them, without a commit.

    Args:
        changes: The rows, fit for the log by `fit_changes`.
        table: The number that the first table of a call of `Ledger.apply` gets; None for a door, whose
            records have places of their own, and for full lists.
        written: The same changes, if an overtaken transaction has written them: used again if they fit.
        again: Buckets of which all entities are merged again.
        share: Which part of what the plan of the rows reads is theirs.
    """
    kind, is_anew = grow(transaction, changes, share)
    upkeep = begin_upkeep(transaction, kind, changes.rows.schema, log_types=changes.log_types)
    log = upkeep.targets.log
    if written is None or not written.fits(transaction, kind, log, table):
        if written is not None:
            transaction.discard(kind.changes, written.files)
        written = write_batch(transaction, kind, log, changes.rows, table)
    written.keep_aside(transaction, kind)
    news, buckets = upkeep.run(written.files, again=() if is_anew else again)
    return TakenChanges(kind, written, news, list(range(kind.buckets)) if is_anew else buckets)


def apply_within(transaction: Transaction, kind: Kind, changes: DataFrame, share: float = 1) -> list[Scope]:
    """
    Do what `Ledger.apply` does, without a commit, for doors; returns what the commit must find as it was.

    *share* is as for `take_changes`.

    A ledger that is there keeps its number of buckets; rejects are kept by the shell.  What a feed sent must
    not be refused: so a column of times that its source has altered to one of numbers becomes one of texts,
    which hold both.  Raises as `Ledger.apply` otherwise.
    """
    kind = kind.with_buckets_of(transaction)
    rows = to_log_rows(usable_changes(changes), kind)
    taken = take_changes(transaction, fit_changes(transaction, kind, rows), share=share)
    return read_scopes(taken.kind, taken.buckets)


def withdraw_within(transaction: Transaction, kind: Kind, messages: DataFrame) -> list[Scope]:
    """
    Take changes out of a ledger, as if they never had been applied; returns what `apply_within` returns.

    *messages* has a row for each: the key fields of its entity, and `message_id`; what the ledger does not
    have is passed over.

    Cost: the buckets of these entities are written anew, log and history; the other ones are not read.
    """
    kind = kind.with_buckets_of(transaction)
    if not transaction.has(kind.changes):
        return []
    key = {name: F.col(quoted(name)) for name in kind.keys}
    withdrawn = messages.select(kind.guid(key).alias(GUID), "message_id")
    buckets = remove_changes(transaction, kind, withdrawn)
    begin_upkeep(transaction, kind).run(again=buckets)
    return read_scopes(kind, buckets)


def remove_changes(transaction: Transaction, kind: Kind, messages: DataFrame) -> list[int]:
    """
    Take changes out of the log alone; returns the buckets that are to be made anew.

    *messages* has a row for each: the `guid` of its entity, and `message_id`.
    """
    withdrawn = messages.distinct()
    buckets = [row[0] for row in withdrawn.select(kind.bucket_column(F.col(GUID))).distinct().collect()]
    if buckets:
        where = {BUCKET: buckets}
        log = transaction.read(kind.changes, where)
        left = log.join(withdrawn, [GUID, "message_id"], "left_anti").select(*log.columns)
        transaction.swap(kind.changes, transaction.files(kind.changes, where), left.repartition(BUCKET))
    return buckets


def revoke_within(transaction: Transaction, kind: Kind, messages: Messages, source: str | None) -> list[int]:
    """
    Take messages out of a ledger, as if they had never come; returns the buckets that were touched.

    Raises as `cdckit.query.revoke`.
    """
    log = transaction.read(kind.changes)
    # A bucket is touched if it has more rows in the log than in what is left of it.
    left = revoke(log, messages, source=source).select(BUCKET, F.lit(-1).alias("rows"))
    rows = log.select(BUCKET, F.lit(1).alias("rows")).unionAll(left)
    touched = rows.groupBy(BUCKET).agg(F.sum("rows").alias("revoked")).where("revoked > 0")
    buckets = [row[BUCKET] for row in touched.collect()]
    if buckets:
        where = {BUCKET: buckets}
        left = revoke(transaction.read(kind.changes, where), messages, source=source)
        transaction.swap(kind.changes, transaction.files(kind.changes, where), left.repartition(BUCKET))
        # What rows took along when their keys changed, any bucket may have said.
        upkeep = begin_upkeep(transaction, kind, anew=MOVED in log.columns)
        _, buckets = upkeep.run(again=buckets)
    return buckets


# As many buckets as a ledger needs -------------------------------------------------------------------------


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
