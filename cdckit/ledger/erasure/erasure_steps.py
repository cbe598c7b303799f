"""
Forgetting: entities, or fields of them, go from every file of a ledger; a tombstone and a receipt stay.

An erasure goes in three steps.  A commit has tables without what is to go, the tombstones, the receipt, and
the note that the erasure is not finished.  Then everything is deleted that the newest commit does not need
(`cdckit.store.erasure`).  Then the note goes.  One that is stopped before the first step is not done; one
that is stopped later is finished by the next call, whatever that asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdckit.errors import ErrorWithFacts
from cdckit.ledger.erasure.bucket_erasure import KNOWN
from cdckit.ledger.erasure.erasure_requests import Request
from cdckit.ledger.erasure.forgotten_entities import (
    ForgottenEntities,
    UnknownEntities,
    forget_entities,
    with_known,
)
from cdckit.ledger.erasure.receipts import NOT_ERASED, RECEIPT_SCHEMA, Receipt
from cdckit.ledger.erasure.tombstones import HASH, REFUSED_SCHEMA, TOMBSTONE_SCHEMA, Erasures
from cdckit.ledger.kind import Kind
from cdckit.ledger.upkeep import read_scopes
from cdckit.merging.arrow_changes import GUID
from cdckit.parts.arrow_types import arrow_schema
from cdckit.parts.workers import compute_once
from cdckit.store import OtherKind, Snapshot, Store, Transaction
from cdckit.store.commits import ERASED, KIND
from cdckit.store.erasure import ForgetResult
from cdckit.store.files import to_signed
from cdckit.store.store import read_note, write_note

_NOTE = "cdckit.unfinished_erasure"


class UnfinishedErasure(ErrorWithFacts, RuntimeError):
    """An erasure has begun and has not ended: older commits may still hold what is to go."""

    receipt: str
    sentence = (
        "The erasure {receipt} has begun and has not ended: older commits may still hold what is "
        "to go. Call `erase` again, with what it was called with."
    )


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
    receipt = store.atomically(work, alone=True)
    if receipt is None:
        receipt = store.atomically(lambda tables: _begin_again(tables, kind(tables.base), request))
    finish_begun()
    with store.begin() as tables:
        stored = kind(tables.base)
        if receipt is not None:
            return _stored_receipt(tables.base, stored, receipt.receipt)
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
    forgotten = forget(entities)
    if forgotten.unknown:
        raise UnknownEntities(forgotten.unknown, entities.count())
    if not forgotten.found:
        return None
    receipt = _note_erasure(tables, kind, request, entities, forgotten)
    tables.commit(reads=forgotten.reads)
    return receipt


def erase_from_ledger(tables: Transaction, kind: Kind, request: Request) -> Receipt | None:
    """`erase_within` of a ledger that no door has."""
    other = tables.base.notes.get(KIND)
    if other is not None:
        raise OtherKind(tables.base.location.root, f"{kind} alone", f"a {other}, which erases by itself")
    request = replace(request, fields=request.known_fields(tables, kind))

    def forget(entities: DataFrame) -> ForgottenEntities:
        forgotten = forget_entities(tables, kind, entities, request.fields or ())
        reads = [*read_scopes(kind, list(forgotten.buckets)), kind.receipts]
        return forgotten._replace(reads=reads, not_erased=_kept_rejects(tables, kind))

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


def _note_erasure(
    tables: Transaction, kind: Kind, request: Request, entities: DataFrame, forgotten: ForgottenEntities
) -> Receipt:
    """Tombstones and a receipt in each ledger, and that there is more to do (`unfinished`)."""
    untouched = _untouched(tables, forgotten.tables or sorted({part.table for part in forgotten.parts}))
    left = (*NOT_ERASED, *forgotten.not_erased)
    counts = {
        "entities": forgotten.found,
        "parts": forgotten.parts,
        "untouched": untouched,
        "not_erased": left,
    }
    receipt = request.receipt(kind, **counts)
    ledgers = [(kind, entities), *forgotten.elsewhere]
    for ledger, ledger_entities in ledgers:
        _append_tombstones(tables, ledger, receipt, ledger_entities)
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


def _untouched(tables: Transaction, names: Iterable[str]) -> dict[str, tuple[int, str]]:
    """Count by table the files that stay as they are, and digest what its log says of them."""
    digests = {}
    for name in names:
        before = {file.path for file in tables.base.files(name)}
        kept = [file for file in tables.files(name) if file.path in before]
        digests[name] = len(kept), str(to_signed(sum(file.digest for file in kept)))
    return digests


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
