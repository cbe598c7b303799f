"""Entities, or fields of them, taken out of the tables of one ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdckit.errors import CdcError
from cdckit.ledger.buckets.tasks import Targets
from cdckit.ledger.columns import BUCKET, log_fields
from cdckit.ledger.erasure.bucket_erasure import KNOWN, erase_buckets
from cdckit.ledger.erasure.receipts import ErasedPart
from cdckit.ledger.erasure.tombstones import HASH, Erasures
from cdckit.ledger.kind import Kind
from cdckit.ledger.upkeep import BYTES_PER_TASK, Upkeep, begin_upkeep, stored_bytes
from cdckit.merging.arrow_changes import GUID
from cdckit.model.changes import MOVED
from cdckit.parts.workers import worker_reports
from cdckit.store import Transaction
from cdckit.store.conflicts import Scope
from cdckit.store.writing import parse_report

_LEAST_TASKS = 8
"""So many tasks there are at least, if there are as many buckets."""


class UnknownEntities(CdcError, LookupError):
    """Entities to be erased, of which the ledger has nothing, and never erased anything."""

    def __init__(self, unknown: int, of: int) -> None:
        self.unknown, self.of = unknown, of
        super().__init__(unknown, of)

    def __str__(self) -> str:
        return (
            f"erase() needs entities that the ledger has; of {self.unknown} of the {self.of} that were named "
            "it has no change, and none was erased before. Nothing was erased: look how their keys are "
            "written in `ledger.changes()`, and leave out those that are not there."
        )


class MovedEntities(CdcError, ValueError):
    """Entities to be erased whose rows came from other keys, or went to them, that are not to be erased."""

    def __init__(self, moves: int) -> None:
        self.moves = moves
        super().__init__(moves)

    def __str__(self) -> str:
        return (
            f"erase() needs all keys that a row ever had; {self.moves} moves lead from those that were named "
            "to others, or from others to them. Nothing was erased: name the others too; the column `moved` "
            "of `ledger.changes()` says which they are."
        )


class ForgottenEntities(NamedTuple):
    """
    What went out of tables.

    Args:
        found: Of how many entities there was something.
        unknown: Of how many there is nothing, and never was: then nothing went.
        parts: What was rewritten.
        tables: Of which tables.
        buckets: And in which buckets of the ledger.
        reads: What it went by, as for `Transaction.commit`; None for all that it read.
        not_erased: What is left, beside what is so always.
        elsewhere: Other ledgers that had the same entities, and these as `with_known` gives them there.
    """

    found: int
    unknown: int = 0
    parts: tuple[ErasedPart, ...] = ()
    tables: tuple[str, ...] = ()
    buckets: tuple[int, ...] = ()
    reads: list[Scope] | None = None
    not_erased: tuple[str, ...] = ()
    elsewhere: tuple[tuple[Kind, DataFrame], ...] = ()


def forget_entities(
    tables: Transaction, kind: Kind, entities: DataFrame, fields: Sequence[str] = ()
) -> ForgottenEntities:
    """Take entities, or fields of them, out of the tables of one ledger; `with_known` gives the entities."""
    if MOVED in tables.schema(kind.changes).fieldNames():
        _require_all_moves(entities, tables, kind)
    upkeep = begin_upkeep(tables, kind)
    reports = _run(upkeep, entities, list(fields))
    count, unknown = (sum(report[name] for report in reports) for name in ("found", "unknown"))
    parts = tuple[ErasedPart, ...]()
    if count and not unknown:
        parts = _adopt(tables, kind, upkeep.targets, reports)
        if fields and upkeep.targets.words is not None:
            # What rows took along, any bucket may have said.
            begin_upkeep(tables, kind, anew=True).run()
    names = tuple(kind.tables[part] for part in upkeep.targets.tables)
    return ForgottenEntities(count, unknown, parts, names, tuple(report["bucket"] for report in reports))


def count_named(entities: DataFrame, named: DataFrame | None) -> ForgottenEntities:
    """Count the entities, as `with_known` gives them, of which there are rows in *named*, and the others."""
    news = entities.where(~F.col(KNOWN))
    if named is None:
        return ForgottenEntities(0, news.count())
    guids = named.select(GUID).distinct()
    return ForgottenEntities(guids.count(), news.join(guids, GUID, "left_anti").count())


def with_known(entities: DataFrame, tables: Transaction, kind: Kind) -> DataFrame:
    """The guids of entities, and whether each was erased before."""
    erasures = Erasures.of(tables, kind)
    if erasures is None:
        return entities.withColumn(KNOWN, F.lit(False))
    stones = erasures.whole(tables, kind).withColumn(KNOWN, F.lit(True))
    rows = entities.withColumn(HASH, erasures.hash(F.col(GUID))).join(stones, HASH, "left")
    return rows.select(*entities.columns, F.coalesce(KNOWN, F.lit(False)).alias(KNOWN))


def _require_all_moves(entities: DataFrame, tables: Transaction, kind: Kind) -> None:
    """Raise `MovedEntities` where a row moved between an entity that is erased and one that is not."""
    log = tables.read(kind.changes)
    data = log_fields(log.schema)

    def side(name: str) -> Column:
        key = {key: F.col(f"{MOVED}.{name}").getField(key).cast(data[key].dataType) for key in kind.keys}
        return kind.guid(key)

    moves = log.where(F.col(MOVED).isNotNull()).select(
        side("old_key").alias("old"), side("new_key").alias("new")
    )
    for name in ("old", "new"):
        asked = entities.select(F.col(GUID).alias(name), F.lit(True).alias(f"{name} is asked"))
        moves = moves.join(asked, name, "left")
    if outside := moves.where("NOT `old is asked` <=> `new is asked`").count():
        raise MovedEntities(outside)


def _run(upkeep: Upkeep, entities: DataFrame, fields: list[str]) -> list[dict[str, Any]]:
    """Let a worker for each bucket write its files anew; one job, with a shuffle."""
    tasks = upkeep.bucket_tasks()
    erase = partial(erase_buckets, tasks=tasks, targets=upkeep.targets, fields=fields)
    work = sum(map(stored_bytes, tasks.values())) // BYTES_PER_TASK
    # By a number of its own: few rows would be put together in one task, that has all the files to write.
    parts = max(1, min(len(tasks), max(_LEAST_TASKS, work)))
    spread = entities.repartition(parts, BUCKET) if work else entities
    # A bucket's files are written anew by one worker, however few they are.
    return worker_reports(spread, erase, large=True, by=() if work else [BUCKET], heavy=bool(work))


def _adopt(
    tables: Transaction, kind: Kind, targets: Targets, reports: list[dict[str, Any]]
) -> tuple[ErasedPart, ...]:
    """Let the tables have what was written; returns what was rewritten of them."""
    parts: list[ErasedPart] = []
    for part, target in targets.tables.items():
        name = kind.tables[part]
        some = [(report["bucket"], report["parts"][part]) for report in reports if part in report["parts"]]
        added = parse_report((file for _, report in some for file in report["added"]), target)
        tables.adopt(name, added, [path for _, report in some for path in report["removed"]])
        # Its log begins anew at this commit, since the bounds of files stand in it.
        tables.touch(name)
        parts += [_part(name, bucket, report) for bucket, report in some if report["removed"]]
    return tuple(parts)


def _part(table: str, bucket: int, report: Mapping[str, Any]) -> ErasedPart:
    added = tuple(file["path"] for file in report["added"])
    values = (report[name] for name in ("rows", "erased", "before", "after"))
    return ErasedPart(table, bucket, tuple(report["removed"]), added, *values)
