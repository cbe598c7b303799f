"""Tombstones: of whom a ledger was made to forget all, or some fields, and what becomes of later changes."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from functools import reduce
from operator import or_

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdckit.ledger.columns import log_fields
from cdckit.ledger.kind import Kind
from cdckit.merging.arrow_changes import GUID
from cdckit.model.list_comparison import is_list_change
from cdckit.parts.arguments import flat_columns, quoted
from cdckit.store import Snapshot, Transaction
from cdckit.store.store import read_note, write_note

ENTITY_ERASED, FIELD_ERASED, ENTITY_KEPT = "ENTITY_ERASED", "FIELD_ERASED", "ENTITY_KEPT"
REFUSE, ERASE = "refuse", "erase"
"""What becomes of later changes: they are refused, or taken without what was erased."""

HASH = "entity_hash"

TOMBSTONE_SCHEMA = flat_columns(
    f"{HASH} string, field string, later string, "
    "erased_at timestamp, erased_by string, reason string, receipt string"
)
"""One row per entity that was erased, or per field of it; `field` is null where nothing of it is left.
`entity_hash` is HMAC-SHA-256 of its guid, by a secret that the store keeps: whoever has neither cannot tell
from it who it was; whoever has the store, and guesses a key, can."""

REFUSED_SCHEMA = flat_columns(
    "topic string, partition integer, offset long, timestamp timestamp, record_number integer, "
    "source string, error_code string, error_description string"
)
"""One row per change that was refused: where it stands among all arrivals, who sent it, and why.  None of its
values, not even its message's name, in which the key may be."""

DESCRIPTIONS = {
    ENTITY_ERASED: "The change speaks of an entity that was erased.",
    FIELD_ERASED: "The change carries a field that was erased of its entity.",
    ENTITY_KEPT: "The change speaks of an entity that was erased; it cannot be cut out of its message.",
}

VERDICT = "ledger_verdict"
"""Why a change is not taken: a code; empty for one that is left out in silence; null for one that is taken.
Not stored."""


@dataclass(frozen=True)
class Erasures:
    """
    What a store notes of a ledger's erasures.

    Args:
        secret: Of the hashes, in hexadecimal digits.
        fields: Those that were ever erased of some entity.
    """

    secret: str
    fields: tuple[str, ...] = ()

    @staticmethod
    def of(tables: Snapshot | Transaction, kind: Kind) -> Erasures | None:
        """Read what is noted; None if nothing was ever erased."""
        note = read_note(tables, _note(kind), None)
        return None if note is None else Erasures(note["secret"], tuple(note["fields"]))

    @staticmethod
    def begin(tables: Transaction, kind: Kind, fields: tuple[str, ...]) -> Erasures:
        """Note more fields, or a new secret."""
        erasures = Erasures.of(tables, kind) or Erasures(secrets.token_hex(32))
        more = Erasures(erasures.secret, tuple(dict.fromkeys([*erasures.fields, *fields])))
        write_note(tables, _note(kind), {"secret": more.secret, "fields": more.fields})
        return more

    def hash(self, guid: Column) -> Column:
        """The hash by which a tombstone knows an entity."""
        return keyed_hash(guid, bytes.fromhex(self.secret))

    @staticmethod
    def whole(tables: Transaction, kind: Kind) -> DataFrame:
        """The hashes of the entities of which nothing is left."""
        return tables.read(kind.erased).where("field IS NULL").select(HASH).distinct()


def _note(kind: Kind) -> str:
    return f"cdckit.erasures:{kind.name}" if kind.name else "cdckit.erasures"


def keyed_hash(text: Column, secret: bytes) -> Column:
    """
    HMAC-SHA-256 of a text, in hexadecimal digits.

    Args:
        text: The text.
        secret: At most 64 bytes.

    Source:
        RFC 2104.

    >>> import hmac
    >>> found = session().range(1).select(keyed_hash(F.lit("ada"), b"secret")).first()[0]
    >>> found == hmac.new(b"secret", b"ada", "sha256").hexdigest()
    True
    """
    inner, outer = (bytes(byte ^ pad for byte in secret.ljust(64, b"\0")) for pad in (0x36, 0x5C))
    first = F.unhex(F.sha2(F.concat(F.lit(inner), F.encode(text, "utf-8")), 256))
    return F.sha2(F.concat(F.lit(outer), first), 256)


def with_verdicts(rows: DataFrame, tables: Transaction, kind: Kind) -> DataFrame:
    """
    Rows of the log without values of fields that were erased, and beside them what becomes of each.

    What a full list says is never refused (see `drop_erased`): what was erased is left out of it.
    The rows as they are, without `VERDICT`, where nothing was ever erased.

    Cost: two SHA-256 for each row; a join with the tombstones, which are sent to all workers if they are few.
    """
    erasures = Erasures.of(tables, kind)
    if erasures is None:
        return rows
    names, whole = known_fields(rows, erasures), F.col("stone.whole")
    carried = (F.array_contains("stone.refused", name) & F.col("carried").getField(name) for name in names)
    may_refuse = ~is_list_change()
    verdict = (
        F.when(may_refuse & (whole == REFUSE), ENTITY_ERASED)
        .when(whole.isNotNull(), "")
        .when(may_refuse & reduce(or_, carried, F.lit(False)), FIELD_ERASED)
    )
    marked = _with_tombstones(rows, tables, kind, erasures)
    return marked.withColumns({VERDICT: verdict, **_without(names, rows)}).select(*rows.columns, VERDICT)


def drop_erased(rows: DataFrame, tables: Transaction, kind: Kind) -> DataFrame:
    """
    Rows of full lists, in columns of changes beside `guid`, without what was erased.

    Nothing of a list is refused: who is missing in it would be gone.
    """
    erasures = Erasures.of(tables, kind)
    if erasures is None:
        return rows
    marked = _with_tombstones(rows, tables, kind, erasures).where(F.col("stone.whole").isNull())
    changed = _without(known_fields(rows, erasures), rows)
    return marked.select(*(changed.get(name, F.col(name)).alias(name) for name in rows.columns))


def erased_changes(changes: DataFrame, tables: Transaction, kind: Kind) -> DataFrame | None:
    """Find the changes that speak of entities of which nothing is left; None if there is no such entity."""
    erasures = Erasures.of(tables, kind)
    if erasures is None:
        return None
    named = changes if kind.by_guid else changes.withColumn(GUID, kind.guid_of("data"))
    hashed = named.withColumn(HASH, erasures.hash(F.col(GUID)))
    return hashed.join(erasures.whole(tables, kind), HASH, "left_semi")


def note_refused(tables: Transaction, kind: Kind, changes: DataFrame, kept: Column | None = None) -> None:
    """
    Note which of the changes that `erased_changes` found are refused, where no ledger is given them.

    Those that are *kept* all the same, where they came, are noted whatever was asked for; then rows that are
    noted already are not noted again, since what is kept is read again.
    """
    strict = tables.read(kind.erased).where((F.col("later") == REFUSE) & F.col("field").isNull())
    refused = changes.join(strict.select(HASH).distinct(), HASH, "left_semi")
    entity_erased = refused.withColumns(error_columns(ENTITY_ERASED))
    if kept is not None:
        entity_kept = changes.where(kept).withColumns(error_columns(ENTITY_KEPT))
        entity_erased = entity_erased.where(~kept).unionByName(entity_kept)
    place, more = REFUSED_SCHEMA.fieldNames()[:5], REFUSED_SCHEMA.fieldNames()[5:]
    rows = entity_erased.select(*(F.col(f"arrival.{name}").alias(name) for name in place), *more)
    if kept is not None and tables.has(kind.refused):
        noted = tables.read(kind.refused).select(F.struct(*place, "error_code").alias("noted"))
        noted_here = F.col("noted").eqNullSafe(F.struct(*place, "error_code"))
        rows = rows.join(noted, noted_here, "left_anti")
    tables.append(kind.refused, rows)


def error_columns(code: str) -> dict[str, Column]:
    """An error with that code, and its sentence."""
    return {"error_code": F.lit(code), "error_description": F.lit(DESCRIPTIONS[code])}


def known_fields(rows: DataFrame, erasures: Erasures) -> list[str]:
    return [name for name in log_fields(rows.schema).fieldNames() if name in erasures.fields]


def _with_tombstones(rows: DataFrame, tables: Transaction, kind: Kind, erasures: Erasures) -> DataFrame:
    """The rows, and beside each what was erased of its entity; `stone` is null where nothing was."""
    stones = (
        tables.read(kind.erased)
        .groupBy(HASH)
        .agg(
            # Of the two words the stricter one is the greater one.
            F.max(F.when(F.col("field").isNull(), F.col("later"))).alias("whole"),
            F.collect_set("field").alias("fields"),
            F.collect_set(F.when(F.col("later") == REFUSE, F.col("field"))).alias("refused"),
        )
    )
    stone = F.struct("whole", "fields", "refused").alias("stone")
    return rows.withColumn(HASH, erasures.hash(F.col(GUID))).join(stones.select(HASH, stone), HASH, "left")


def _without(names: list[str], rows: DataFrame) -> dict[str, Column]:
    """The columns of changes without the values of erased fields: as if they had not been carried."""
    changed: dict[str, Column] = {}
    for column in ("data", "carried", "field_priorities"):
        fields_there = rows.schema[column].dataType.fieldNames() if column in rows.columns else []  # type: ignore[attr-defined]
        for name in fields_there:
            if name in names:
                parts, value = changed.get(column, F.col(column)), F.col(column).getField(name)
                is_erased = F.coalesce(F.array_contains("stone.fields", name), F.lit(False))
                kept = value & ~is_erased if column == "carried" else F.when(~is_erased, value)
                changed[column] = parts.withField(quoted(name), kept)
    return changed


def refused_rows(changes: pa.RecordBatch) -> pa.RecordBatch:
    """Keep what is noted of refused changes, of changes with their verdicts; for workers."""
    some = changes.filter(pc.not_equal(pc.fill_null(changes.column(VERDICT), ""), ""))
    codes, arrival = some.column(VERDICT), some.column("arrival")
    sentences = pa.array([DESCRIPTIONS[code] for code in codes.to_pylist()], codes.type)
    places = {name: arrival.field(name) for name in REFUSED_SCHEMA.fieldNames()[:5]}
    columns = {**places, "source": some.column("source"), "error_code": codes, "error_description": sentences}
    return pa.RecordBatch.from_pydict(columns)
