"""Rows of tables beside a ledger, such as records as they came, at the places of changes that are erased."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdckit.errors import CdcError
from cdckit.ledger.columns import Kind
from cdckit.ledger.receipts import ErasedPart
from cdckit.merging.arrow_changes import GUID
from cdckit.parts.arguments import quoted
from cdckit.store import File, Transaction
from cdckit.store.files import hold_few_rows, sum_digests

PLACE = "place"
_PARTS = ("topic", "partition", "offset", "timestamp")


class SharedRecords(CdcError, ValueError):
    """Records that speak of entities to be erased, and of others."""

    def __init__(self, records: int, ledger: str) -> None:
        self.records, self.ledger = records, ledger
        super().__init__(records, ledger)

    def __str__(self) -> str:
        return (
            f"erase() needs all entities that a record speaks of, since it goes as a whole; {self.records} "
            f"of the records speak of others in the ledger {self.ledger!r} too. Nothing was erased: name "
            "those too, or let the source send what is to stay again, in records of its own."
        )


def record_place(prefix: str = "") -> Column:
    """Where a record stands, as a text."""
    return F.to_json(F.struct(*(F.col(f"{prefix}{name}").alias(name) for name in _PARTS)))


def places_of(entities: DataFrame, tables: Transaction, kind: Kind) -> DataFrame:
    """The places of the records that speak of entities, each once, as the log has them."""
    log = tables.read(kind.changes).join(entities.select(GUID), GUID, "left_semi")
    return log.select(record_place("arrival.").alias(PLACE)).distinct()


def require_alone(places: DataFrame, tables: Transaction, kind: Kind) -> None:
    """Raise `SharedRecords` where a ledger has changes of records at these places."""
    if tables.has(kind.changes):
        log = tables.read(kind.changes).select(record_place("arrival.").alias(PLACE))
        count = log.join(places, PLACE, "left_semi").distinct().count()
        if count:
            raise SharedRecords(count, kind.name)


def rewrite_places(
    tables: Transaction,
    name: str,
    places: DataFrame,
    change: Callable[[DataFrame], DataFrame] | None = None,
    among: list[File] | None = None,
    at: Column | None = None,
) -> ErasedPart | None:
    """
    Write the files of a table anew that have rows at some places, without these, or with them changed.

    Args:
        tables: The table's transaction.
        name: The table; nothing is done if there is none.
        places: The places, as texts, each once.
        change: What becomes of the rows, which stay at their places; without it they go.
        among: The files that are meant, if not all.
        at: Where a row stands, as a text; without it where its record does (`record_place`).

    Returns:
        What was rewritten, with a digest of all other rows in these files; None if nothing was.
    """
    if not tables.has(name):
        return None
    known, place = {one.path for one in tables.files(name)}, record_place() if at is None else at
    files = _holding(tables, name, places, place, tables.files(name) if among is None else among)
    if not files:
        return None
    rows = tables.read(name, files=files)
    theirs = rows.join(places, place.eqNullSafe(places[PLACE]), "left_semi")
    rest = _rest(rows, places, place)
    changed = [] if change is None else [change(theirs).select(*map(quoted, rows.columns))]
    before, count = _digest(rest), theirs.count()
    tables.swap(name, files, rest, *changed)
    tables.discard(name, files)
    added = [one for one in tables.files(name) if one.path not in known]
    after = _digest(_rest(tables.read(name, files=added), places, place)) if added else _digest(rest.limit(0))
    removed = tuple(one.path for one in files)
    rows_before = sum(one.rows for one in files)
    return ErasedPart(
        name, None, removed, tuple(one.path for one in added), rows_before, count, before, after
    )


def _holding(
    tables: Transaction, name: str, places: DataFrame, place: Column, files: list[File]
) -> list[File]:
    """The files that have rows at the places."""
    if not files:
        return []
    rows = tables.read(name, files=files)
    if hold_few_rows(files):
        found = rows.join(places, place.eqNullSafe(places[PLACE]), "left_semi")
        return [] if found.isEmpty() else files
    placed = rows.select(place.alias(PLACE), F.input_file_name().alias("file"))
    touched = placed.join(places, PLACE, "left_semi").select("file").distinct()
    # As many rows as there are files, at most.
    paths = {row["file"].rsplit("/", 1)[-1] for row in touched.collect()}
    return [one for one in files if one.path in paths]


def _rest(rows: DataFrame, places: DataFrame, place: Column) -> DataFrame:
    return rows.join(places, place.eqNullSafe(places[PLACE]), "left_anti")


def _digest(rows: DataFrame) -> str:
    """64 bits of all rows, in whatever order they are."""
    return f"{sum_digests(rows, F.xxhash64(*map(quoted, rows.columns))):+d}"
