"""
Forgetting: entities, or fields of them, go from every file of a ledger; a tombstone and a receipt stay.

An erasure goes in three steps.  A commit has tables without what is to go, the tombstones, the receipt, and
the note that the erasure is not finished.  Then everything is deleted that the newest commit does not need
(`cdckit.store.erasure`).  Then the note goes.  One that is stopped before the first step is not done; one
that is stopped later is finished by the next call, whatever that asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple, TypeAlias
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import CdcError, InvalidArgument
from cdckit.ledger.buckets.tasks import Targets
from cdckit.ledger.columns import BUCKET, log_fields, visible_history
from cdckit.ledger.entity_guids import Key, is_key, listed_guids, table_guids
from cdckit.ledger.erasure.bucket_erasure import KNOWN, erase_buckets
from cdckit.ledger.erasure.receipts import NOT_ERASED, RECEIPT_SCHEMA, ErasedPart, Receipt
from cdckit.ledger.erasure.tombstones import ERASE, HASH, REFUSE, REFUSED_SCHEMA, TOMBSTONE_SCHEMA, Erasures
from cdckit.ledger.kind import Kind
from cdckit.ledger.upkeep import BYTES_PER_TASK, Upkeep, begin_upkeep, read_scopes, stored_bytes
from cdckit.merging.arrow_changes import GUID
from cdckit.model.changes import MOVED
from cdckit.model.history import DELETED, VALID_FROM, VALID_TO
from cdckit.parts.arguments import require_fields, require_instant, require_name
from cdckit.parts.arrow_types import arrow_schema
from cdckit.parts.tables import AnyTable
from cdckit.parts.values import time_between
from cdckit.parts.workers import compute_once, worker_reports
from cdckit.store import OtherKind, Snapshot, Store, Transaction
from cdckit.store.commits import ERASED, KIND
from cdckit.store.erasure import ForgetResult
from cdckit.store.files import to_signed
from cdckit.store.store import read_note, write_note
from cdckit.store.transaction import Scope
from cdckit.store.writing import parse_report

Keys: TypeAlias = Sequence[Key] | AnyTable
"""Entities: guids, or mappings of their key fields; or a table of key fields, or of guids."""

_NOTE = "cdckit.unfinished_erasure"

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


class UnfinishedErasure(CdcError, RuntimeError):
    """An erasure has begun and has not ended: older commits may still hold what is to go."""

    def __init__(self, receipt: str) -> None:
        self.receipt = receipt
        super().__init__(receipt)

    def __str__(self) -> str:
        return (
            f"The erasure {self.receipt} has begun and has not ended: older commits may still hold what is "
            "to go. Call `erase` again, with what it was called with."
        )


@dataclass(frozen=True)
class Request:
    """
    What is asked for.

    Args:
        keys, where, keep: Which entities.
        fields: Which of their fields; None for all that is known.
        by, reason: Who asks, and why.
        later: What becomes of later changes.
        at: When.
        key_columns: Their key fields with their types, where no log has them.
    """

    keys: Keys | None
    where: str | Column | None
    keep: timedelta | None
    fields: tuple[str, ...] | None
    by: str
    reason: str
    later: str
    at: datetime
    key_columns: T.StructType | None = None

    def __post_init__(self) -> None:
        require_name(self.by, "by")
        require_name(self.reason, "reason")
        require_instant(self.at, "at")
        if self.keys is None and self.where is None and self.keep is None:
            needed = "a list or a table of keys, where neither `where` nor `keep` says which entities"
            raise InvalidArgument(None, "keys", needed, None)
        if self.keys is not None and (self.where is not None or self.keep is not None):
            raise InvalidArgument(None, "keys", "None where `where` or `keep` says which entities", "both")
        if self.keep is not None and (not isinstance(self.keep, timedelta) or self.keep < timedelta(0)):
            raise InvalidArgument(None, "keep", "a timedelta that is not negative", self.keep)
        if self.later not in (REFUSE, ERASE):
            raise InvalidArgument(None, "later", f"{REFUSE!r} or {ERASE!r}", self.later)
        if self.fields is not None and not self.fields:
            raise InvalidArgument(None, "fields", "at least one field, or None for all", self.fields)

    def receipt(self, kind: Kind, **counts: Any) -> Receipt:
        """A new receipt."""
        about = (uuid4().hex, kind.entity, self.at, self.by, self.reason, self.fields, self.later)
        return Receipt(*about, **counts)

    def is_answered_by(self, receipt: Receipt, kind: Kind) -> bool:
        """Tell whether a receipt may be of this request, whose entities no keys name."""
        made = (receipt.entity, receipt.erased_by, receipt.reason, receipt.fields, receipt.later)
        return self.keys is None and made == (kind.entity, self.by, self.reason, self.fields, self.later)

    def entities(self, tables: Transaction, kind: Kind) -> DataFrame:
        """The guids of the entities, each once, and their buckets."""
        if self.keys is not None:
            entities = self.named(tables, kind)
        else:
            versions = visible_history(tables.read(kind.history), tables.schema(kind.changes))
            entities = self.among(versions)
        return entities.select(GUID, kind.bucket_column(F.col(GUID)).alias(BUCKET)).distinct()

    def named(self, tables: Transaction, kind: Kind) -> DataFrame:
        """The guids of *keys*."""
        assert self.keys is not None
        columns = self.key_columns or log_fields(tables.schema(kind.changes))
        return _named(self.keys, tables.spark, kind, columns)

    def among(self, versions: DataFrame) -> DataFrame:
        """The entities of a history that *where* and *keep* name, with their guids."""
        versions_meant = versions if self.where is None else versions.where(self.where)
        if self.keep is None:
            return versions_meant
        is_open = F.col(VALID_TO).isNull()
        ended = F.when(~is_open, F.col(VALID_TO)).when(F.col(DELETED), F.col(VALID_FROM))
        others = versions.groupBy(GUID).agg(
            F.max(is_open & ~F.col(DELETED)).alias("lives"), F.max(ended).alias("ended")
        )
        age = time_between(F.col("ended"), require_instant(self.at, "at"))
        overdue = ~F.col("lives") & (age > F.lit(self.keep))
        return others.where(overdue).join(versions_meant, GUID, "left_semi")


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


def run_erasure(
    store: Store,
    kind: Callable[[Snapshot], Kind],
    request: Request,
    work: Callable[[Transaction], Receipt | None],
    finish_begun: Callable[[], Receipt | None],
) -> Receipt:
    """
    Erase what is asked for, and first what was asked for before where that was stopped.

    *work* commits the tables without it (`erase_within`), and *finish_begun* does what is left to do then.
    Where all was erased before, older commits may have what came of it since: they go once more.
    """
    stopped = finish_begun()
    made = store.atomically(work, alone=True)
    if made is None:
        made = store.atomically(lambda tables: _begin_again(tables, kind(tables.base), request))
    finish_begun()
    with store.begin() as tables:
        stored = kind(tables.base)
        if made is not None:
            return _stored_receipt(tables.base, stored, made.receipt)
        if stopped is not None and request.is_answered_by(stopped, stored):
            return stopped
        return _last_receipt(tables, stored, request)


def erase_within(
    tables: Transaction,
    kind: Kind,
    request: Request,
    asked: DataFrame,
    forget: Callable[[DataFrame], ForgottenEntities],
) -> Receipt | None:
    """
    Take what is asked for out of tables, and commit; None if there was nothing left to erase.

    *asked* has the guids of the entities, each once; *forget* takes them, as `with_known` gives them, out of
    the tables.  What is to be finished then is noted (`unfinished`).
    """
    _require_ready(tables)
    entities = compute_once(with_known(asked, tables, kind))
    if entities is None:
        return None
    done = forget(entities)
    if done.unknown:
        raise UnknownEntities(done.unknown, entities.count())
    if not done.found:
        return None
    receipt = _note_erasure(tables, kind, request, entities, done)
    tables.commit(reads=done.reads)
    return receipt


def erase_from_ledger(tables: Transaction, kind: Kind, request: Request) -> Receipt | None:
    """`erase_within` of a ledger that no door has."""
    other = tables.base.notes.get(KIND)
    if other is not None:
        raise OtherKind(tables.base.location.root, f"{kind} alone", f"a {other}, which erases by itself")
    request = replace(request, fields=_known_fields(tables, kind, request))

    def forget(entities: DataFrame) -> ForgottenEntities:
        done = forget_entities(tables, kind, entities, request.fields or ())
        reads = [*read_scopes(kind, list(done.buckets)), kind.receipts]
        return done._replace(reads=reads, not_erased=_kept_rejects(tables, kind))

    return erase_within(tables, kind, request, request.entities(tables, kind), forget)


def _kept_rejects(tables: Transaction, kind: Kind) -> tuple[str, ...]:
    """Describe what is not erased of the rejects of a ledger."""
    count = tables.read(kind.rejects).count() if tables.has(kind.rejects) else 0
    if not count:
        return ()
    sentence = f"{count} rejects, of which nobody can tell of whom they speak: look at `rejects`."
    return (f"{sentence}  `drop_rejects` and another erasure forget them.",)


def _require_ready(tables: Transaction) -> None:
    """Raise where another erasure is not finished, or other programs have changed rows."""
    if (begun := unfinished(tables.base)) is not None:
        # Somebody else's, which is finished before the next one begins.
        raise UnfinishedErasure(begun)
    for name in tables.base.names():
        tables.base.require_untouched(name)


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


def _note_erasure(
    tables: Transaction, kind: Kind, request: Request, entities: DataFrame, done: ForgottenEntities
) -> Receipt:
    """Tombstones and a receipt in each ledger, and that there is more to do (`unfinished`)."""
    untouched = _untouched(tables, done.tables or sorted({part.table for part in done.parts}))
    left = (*NOT_ERASED, *done.not_erased)
    counts = {"entities": done.found, "parts": done.parts, "untouched": untouched, "not_erased": left}
    receipt = request.receipt(kind, **counts)
    ledgers = [(kind, entities), *done.elsewhere]
    for ledger, theirs in ledgers:
        _append_tombstones(tables, ledger, receipt, theirs)
    write_note(
        tables, _NOTE, {"receipt": receipt.receipt, "tables": [ledger.receipts for ledger, _ in ledgers]}
    )
    return receipt


def unfinished(tables: Snapshot) -> str | None:
    """The receipt of an erasure that has begun and not ended; None if there is none."""
    note = read_note(tables, _NOTE, None)
    return None if note is None else str(note["receipt"])


def _begin_again(tables: Transaction, kind: Kind, request: Request) -> Receipt | None:
    """Note that an erasure is to be finished once more, if anything was committed since the last one was."""
    finished = int(tables.base.notes.get(ERASED, 0)) + 1
    last = _last_receipt(tables, kind, request)
    if not last.entities or (tables.base.version or 0) <= finished:
        return None
    write_note(tables, _NOTE, {"receipt": last.receipt, "tables": [kind.receipts]})
    tables.commit(reads=())
    return last


def finish(
    transaction: Transaction, forgotten: ForgetResult, published: Iterable[str] = ()
) -> Receipt | None:
    """Say that the erasure that was not finished is; its receipt, with all that was deleted."""
    noted = read_note(transaction, _NOTE, None)
    if noted is None:
        return None  # Somebody else has finished it.
    named = tuple(published)
    for table in noted["tables"]:
        rows = transaction.base.arrow(table).to_pylist()
        [row] = [row for row in rows if row["receipt"] == noted["receipt"]]
        before = Receipt.from_json(row["text"])
        receipt = replace(
            before,
            commit=forgotten.commit,
            files=before.files + forgotten.files,
            log_entries=before.log_entries + forgotten.entries,
            published=tuple(dict.fromkeys((*before.published, *named))),
        )
        row["text"] = receipt.to_json()
        transaction.replace(table, pa.Table.from_pylist(rows, arrow_schema(RECEIPT_SCHEMA)))
    transaction.note(_NOTE, None)
    transaction.commit(reads=())
    return receipt


def _stored_receipt(tables: Snapshot, kind: Kind, number: str) -> Receipt:
    """A receipt by its id."""
    [text] = [row["text"] for row in tables.arrow(kind.receipts).to_pylist() if row["receipt"] == number]
    return Receipt.from_json(text)


def _last_receipt(tables: Transaction, kind: Kind, request: Request) -> Receipt:
    """Find the erasure by which entities went last of which nothing is left; an empty receipt without one."""
    erasures, number = Erasures.of(tables, kind), None
    if request.keys is not None and erasures is not None:
        asked = request.named(tables, kind).select(erasures.hash(F.col(GUID)).alias(HASH))
        stones = tables.read(kind.erased).join(asked, HASH, "left_semi")
        [[number]] = stones.agg(F.max_by("receipt", "erased_at")).collect()
    if number is None:
        return request.receipt(kind, entities=0)
    return _stored_receipt(tables.base, kind, number)


# Which entities -------------------------------------------------------------------------------------------


def _named(keys: Keys, spark: SparkSession, kind: Kind, fields: T.StructType) -> DataFrame:
    if isinstance(keys, str | Mapping):
        raise InvalidArgument(None, "keys", "a list of keys, or a table of them", type(keys).__name__)
    if isinstance(keys, Sequence):
        if not keys:
            raise InvalidArgument(None, "keys", "a list of at least one", [])
        for key in keys:
            if not is_key(key, kind):
                needed = "guids" if kind.by_guid else f"guids, or mappings of {', '.join(kind.keys)}"
                raise InvalidArgument(None, "keys", f"a list of {needed}", type(key).__name__)
        return listed_guids(list(keys), spark, kind, fields)
    return table_guids(keys, spark, kind, fields)


def _known_fields(tables: Transaction, kind: Kind, request: Request) -> tuple[str, ...] | None:
    if request.fields is None:
        return None
    names = log_fields(tables.schema(kind.changes)).fieldNames()
    fields = require_fields(request.fields, names, "fields")
    if keys := [name for name in fields if name in kind.keys]:
        needed = "none that is a key, by which the entity would not be known; erase the entity itself"
        raise InvalidArgument(None, "fields", needed, keys)
    return tuple(fields)


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


# What becomes of the files --------------------------------------------------------------------------------


def _run(upkeep: Upkeep, entities: DataFrame, fields: list[str]) -> list[dict[str, Any]]:
    """Let a worker for each bucket write its files anew; one job, with a shuffle."""
    tasks = upkeep.bucket_tasks()
    erase = partial(erase_buckets, tasks=tasks, targets=upkeep.targets, fields=fields)
    work = sum(map(stored_bytes, tasks.values())) // BYTES_PER_TASK
    # By a number of its own: few rows would be put together in one task, that has all the files to write.
    parts = max(1, min(len(tasks), max(_LEAST_TASKS, work)))
    spread = entities.repartition(parts, BUCKET) if work else entities
    return worker_reports(spread, erase, large=True, heavy=bool(work))


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


def _untouched(tables: Transaction, names: Iterable[str]) -> dict[str, tuple[int, str]]:
    """Count by table the files that stay as they are, and digest what its log says of them."""
    digests = {}
    for name in names:
        before = {file.path for file in tables.base.files(name)}
        kept = [file for file in tables.files(name) if file.path in before]
        digests[name] = len(kept), str(to_signed(sum(file.digest for file in kept)))
    return digests


def _part(table: str, bucket: int, report: Mapping[str, Any]) -> ErasedPart:
    added = tuple(file["path"] for file in report["added"])
    values = (report[name] for name in ("rows", "erased", "before", "after"))
    return ErasedPart(table, bucket, tuple(report["removed"]), added, *values)


def _append_tombstones(tables: Transaction, kind: Kind, receipt: Receipt, entities: DataFrame) -> None:
    """The tombstones and the receipt of one ledger."""
    fields = receipt.fields or ()
    erasures = Erasures.begin(tables, kind, fields)
    named = {
        "field": F.explode(F.array(*map(F.lit, fields))) if fields else F.lit(None).cast("string"),
        "later": F.lit(receipt.later),
        "erased_at": F.lit(receipt.erased_at),
        "erased_by": F.lit(receipt.erased_by),
        "reason": F.lit(receipt.reason),
        "receipt": F.lit(receipt.receipt),
    }
    stones = entities.where(~F.col(KNOWN)).withColumn(HASH, erasures.hash(F.col(GUID))).withColumns(named)
    tables.append(kind.erased, stones.select(*TOMBSTONE_SCHEMA.fieldNames()).coalesce(1), compact_at=16)
    row = {"receipt": receipt.receipt, "erased_at": receipt.erased_at, "text": receipt.to_json()}
    tables.append(kind.receipts, pa.Table.from_pylist([row], arrow_schema(RECEIPT_SCHEMA)))
    tables.target(kind.refused, REFUSED_SCHEMA)
