"""The columns of a ledger's tables, those that it shows and those that it keeps beside them."""

from __future__ import annotations

from datetime import UTC, datetime

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from cdckit.merging.arrow_changes import GUID
from cdckit.merging.merge import history_schema
from cdckit.model.changes import MOVED, UNTIL
from cdckit.model.history import with_ends
from cdckit.model.rejected_records import REJECT, REJECT_SCHEMA
from cdckit.parts.arguments import flat_columns, quoted

BUCKET = "ledger_bucket"
"""Which part of the tables a row is in."""

OPEN = "ledger_open"
"""Whether a version has no end yet: such ones lie apart."""

LATEST = "ledger_latest"
"""The latest effective time of all changes of the entity, with or without effect; null in closed versions.
`ALWAYS_LATE` of one that has a change with an end."""

ALWAYS_LATE = datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)
"""Later than any effective time: what an entity will be, its current version does not tell."""

PLACE = "ledger_place"
"""Beside `LATEST`: the last place of those changes that say one in the log of their source, whichever."""

IDENTITY = "ledger_identity"
"""A hash of what makes a change of an entity the same change again: source, message and record number."""

CONTENT = "ledger_content"
"""A hash of a change as it was given, 0 where the batch has no id; its sum tells the batch.  Not stored."""

LISTED = "ledger_listed"
"""When the list was taken that a change is of, in microseconds; null in all others.  Not stored."""

HIDDEN = (BUCKET, OPEN, LATEST, PLACE, IDENTITY)

EVERY = ""
"""In place of a guid: of truncates, which are about every entity.  Each bucket has them."""

UNBORN_SCHEMA = flat_columns(f"{GUID} string, {LATEST} timestamp, {PLACE} string, {BUCKET} integer")
"""One row per entity that has changes but no current version: deletes of what never was, what has ended; and
one of the truncates."""

LEDGER_REJECT_SCHEMA = T.StructType([*REJECT_SCHEMA, *flat_columns("source string")])
"""One row per record that came among changes and was none, why, and of which source; null where none says."""

LISTS_SCHEMA = flat_columns("source string, taken timestamp, rows long")
"""One row per list: who gave it, when it was taken, and how many entities it named."""


def log_columns(rows: T.StructType) -> T.StructType:
    """The columns of the log, of those of `to_log_rows`."""
    return T.StructType([column for column in rows if column.name not in (CONTENT, LISTED, REJECT)])


def words_columns(log: T.StructType) -> T.StructType:
    """The columns of the table of words that rows took along: those of the log."""
    return T.StructType([column for column in log if column.name != MOVED])


def with_all_priorities(log: T.StructType) -> T.StructType:
    """The columns of a log in which every field has a priority of its own: words have one for each."""
    names = log_fields(log).fieldNames()
    priorities = T.StructType([T.StructField(name, T.IntegerType()) for name in names])
    some = [column for column in log if column.name != "field_priorities"]
    return T.StructType([*some, T.StructField("field_priorities", priorities)])


def log_fields(log: T.StructType) -> T.StructType:
    """The business fields of a log."""
    data_type = log["data"].dataType
    assert isinstance(data_type, T.StructType)
    return data_type


def stored_history_columns(data: T.StructType) -> T.StructType:
    """The columns of the table of versions."""
    hidden = flat_columns(f"{LATEST} timestamp, {PLACE} string, {OPEN} boolean, {BUCKET} integer")
    return T.StructType([*history_schema(data), *hidden])


def visible_history(history: DataFrame, log: T.StructType) -> DataFrame:
    """The versions in the columns that `merge` gives those of such a log."""
    shown = history.select(*(quoted(name) for name in history_schema(log_fields(log)).fieldNames()))
    return with_ends(shown) if UNTIL in log.fieldNames() else shown
