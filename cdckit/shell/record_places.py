"""Rows of tables beside a ledger, such as records as they came, at the places of changes that are erased."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdckit.errors import ErrorWithFacts
from cdckit.ledger.erasure.receipts import ErasedPart
from cdckit.ledger.kind import Kind
from cdckit.merging.arrow_changes import GUID
from cdckit.model.places import RECORD_PLACE
from cdckit.parts.arguments import quoted
from cdckit.parts.workers import compute_once
from cdckit.store import File, Transaction
from cdckit.store.files import sum_digests, to_signed
from cdckit.store.reading import files_holding, hold_few_rows

PLACE = "place"
_CHOSEN = "is chosen"


class SharedRecords(ErrorWithFacts, ValueError):
    """Records that speak of entities to be erased, and of others."""

    records: int
    ledger: str
    sentence = (
        "erase() needs all entities that a record speaks of, since it goes as a whole; {records} "
        "of the records speak of others in the ledger {ledger!r} too. Nothing was erased: name "
        "those too, or let the source send what is to stay again, in records of its own."
    )


def record_place(prefix: str = "") -> Column:
    """Write where a record stands, as a text."""
    return F.to_json(F.struct(*(F.col(f"{prefix}{name}").alias(name) for name in RECORD_PLACE)))


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
) -> list[ErasedPart]:
    """`rewrite_rows` of records at some places."""
    return rewrite_rows(tables, name, places, change, {PLACE: record_place()}, among)


def rewrite_rows(
    tables: Transaction,
    name: str,
    chosen: DataFrame,
    change: Callable[[DataFrame], DataFrame] | None = None,
    by: Mapping[str, Column] | None = None,
    among: list[File] | None = None,
) -> list[ErasedPart]:
    """
    Write the files of a table anew that have some rows, without these, or with them changed.

    Args:
        tables: The table's transaction.
        name: The table; nothing is done if there is none.
        chosen: Which rows; each once.
        change: What becomes of the rows; without it they go.
        by: By its columns, what a row of the table has in their place; without it columns of these names.
        among: The files that are meant, if not all.

    Returns:
        What was rewritten, with a digest of all other rows in these files; nothing if nothing was.
    """
    if not tables.has(name):
        return []
    by = {column: F.col(column) for column in chosen.columns} if by is None else by
    # By names that no column of the rows has.
    named = chosen.select(*(F.col(column).alias(f"chosen {column}") for column in by)).withColumn(
        _CHOSEN, F.lit(True)
    )
    is_chosen = reduce(and_, (column.eqNullSafe(F.col(f"chosen {name}")) for name, column in by.items()))
    files = tables.files(name) if among is None else among
    if files:
        files = files_holding(tables.read(name, files=files), files, named, is_chosen)
    if not files:
        return []
    rows = tables.read(name, files=files)
    marked = rows.join(named, is_chosen, "left").select(*map(quoted, rows.columns), _CHOSEN)
    if hold_few_rows(files):
        marked = compute_once(marked, few=True) or marked
    count, before = _summary(rows, marked)
    if not count:
        return []
    others, erased = (
        marked.where(f"{quoted(_CHOSEN)} IS {state}").drop(_CHOSEN) for state in ("NULL", "NOT NULL")
    )
    parts = list(files[0].partition)

    def together(some: DataFrame) -> DataFrame:
        # Else each task would write a small file of each part.
        return some.repartition(*map(quoted, parts)) if parts else some

    added = list(tables.swap(name, files, together(others)).files)
    # These alone are read again: of those that are changed, what they were found by may be gone.
    now = tables.read(name, files=added) if added else rows.limit(0)
    _, after = _summary(rows, now.withColumn(_CHOSEN, F.lit(None)))
    if change is not None:
        changed = change(erased).select(*map(quoted, rows.columns))
        added += tables.append(name, together(changed)).files
    tables.discard(name, files)
    removed = tuple(file.path for file in files)
    rows_before = sum(file.rows for file in files)
    new_paths = tuple(file.path for file in added)
    return [ErasedPart(name, None, removed, new_paths, rows_before, count, before, after)]


def _summary(rows: DataFrame, marked: DataFrame) -> tuple[int, str]:
    """Count the chosen rows, and sum 64 bits of all others, in whatever order they are; one job."""
    row_digest = F.xxhash64(*map(quoted, rows.columns)).cast("decimal(38,0)")
    others = F.sum(F.when(F.col(_CHOSEN).isNull(), row_digest))
    [counts] = marked.agg(F.count(_CHOSEN), others).collect()
    return counts[0], f"{to_signed(int(counts[1] or 0)):+d}"


def digest_rows(rows: DataFrame) -> str:
    """64 bits of all rows, in whatever order they are; one job."""
    return f"{sum_digests(rows, F.xxhash64(*map(quoted, rows.columns))):+d}"
