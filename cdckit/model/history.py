"""Histories: the columns of versions, and what a history must have."""

from __future__ import annotations

from datetime import UTC, datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument
from cdckit.parts.arguments import flat_columns, quoted, require_columns, require_types
from cdckit.parts.instants import microseconds

VALID_FROM = "valid_from_timestamp"
VALID_TO = "valid_to_timestamp"
DELETED = "deleted_indicator"
SOURCE_MESSAGE = "source_message"
FIELD_PROVENANCE = "field_provenance"

STANDARD_COLUMNS = ("guid", VALID_FROM, VALID_TO, DELETED, SOURCE_MESSAGE, FIELD_PROVENANCE)
"""The columns of every history; the business fields of its entity stand between them."""


SYSTEM_FROM = "system_from_timestamp"
SYSTEM_TO = "system_to_timestamp"

SYSTEM_INTERVAL = flat_columns(f"{SYSTEM_FROM} timestamp, {SYSTEM_TO} timestamp")
"""What tells a bitemporal table from a history: when each of its versions was believed."""


def provenance_type() -> T.StructType:
    """Describe where one value comes from: the message `m` and the priority `p` with which it was said."""
    return flat_columns("m string, p integer")


HISTORY_SCHEMA = flat_columns(
    f"guid string, {VALID_FROM} timestamp, {VALID_TO} timestamp, {DELETED} boolean, {SOURCE_MESSAGE} string"
)
"""The columns of a history that do not depend on its entity."""


def business_fields(history: DataFrame) -> T.StructType:
    """The fields of the entity itself: what a history has beside its standard columns."""
    return T.StructType([field for field in history.schema.fields if field.name not in STANDARD_COLUMNS])


def is_deleted() -> Column:
    """
    Tell of a version whether it says that its entity is deleted; never null.

    A `deleted_indicator` of null, which a history of another library may have, deletes nothing.
    """
    return F.coalesce(F.col(DELETED), F.lit(False))


def version_operation(was_deleted: Column, deleted: Column) -> Column:
    """Tell what a version did to its entity; *was_deleted* is of the version before it, null without one."""
    return (
        F.when(deleted, "delete")
        .when(was_deleted.isNull(), "insert")
        .when(was_deleted, "recreate")
        .otherwise("update")
    )


def standard_columns(*names: str) -> T.StructType:
    """Some of the columns that every history has, with their types."""
    return T.StructType([HISTORY_SCHEMA[name] for name in names])


OPEN_END = "cdckit.open_end"
"""In the metadata of a column of ends: the microseconds since 1970 that stand there for an open end."""


ENDS = "cdckit.ends"
"""In the metadata of a column of ends, true: the history is of changes that may have an end of their own."""


def with_ends(history: DataFrame) -> DataFrame:
    """Note in a history that the changes that it is of may end."""
    return history.withMetadata(VALID_TO, {ENDS: True})


def has_ends(history: DataFrame) -> bool:
    """Tell whether that is noted in a history."""
    return bool(history.schema[VALID_TO].metadata.get(ENDS))


def open_end(history: DataFrame, column: str = VALID_TO) -> int | None:
    """Read what stands for an open end, beside null, where the table says so (`scd_type_2` does)."""
    meaning = history.schema[column].metadata.get(OPEN_END)
    return meaning if isinstance(meaning, int) else None


# 14 hours early: 9999-01-01 of a zone east of UTC is in the year before.
_NO_REAL_END = microseconds(datetime(9998, 12, 31, 10, tzinfo=UTC))


def is_never(end: Column) -> Column:
    """Tell whether an end is in the year 9999 of any zone, or later: to other programs an open one."""
    return F.unix_micros(end) >= F.lit(_NO_REAL_END)


def with_open_ends(frame: DataFrame, column: str = VALID_TO) -> DataFrame:
    """Put null for every end in *column* that is open."""
    stands_for_open = open_end(frame, column)
    if stands_for_open is None:
        return frame
    marker = F.timestamp_micros(F.lit(stands_for_open))
    return frame.withColumn(column, F.nullif(F.col(quoted(column)), marker))


def require_history(history: DataFrame, *columns: str) -> DataFrame:
    """
    The history, in which an open end is null, whatever stood for it.

    It must have these of the columns that every history has, and be of one moment: in a bitemporal table
    an entity has several versions in force at once, each believed at another time, so every question
    about a history would have an answer, and a wrong one.

    Raises:
        MissingColumns, WrongColumnType: A column is not there, or has another type.
        InvalidArgument: *history* is what `bitemporal` returns, whole.
    """
    require_columns(history, columns, remedy=_remedy(history))
    require_types(history, standard_columns(*columns))
    if is_bitemporal(history):
        needed = "what was believed at one moment: keep_known(table, at) gives it from a bitemporal table"
        raise InvalidArgument(None, "history", needed, [SYSTEM_FROM, SYSTEM_TO])
    return with_open_ends(history) if VALID_TO in history.columns else history


def is_bitemporal(history: DataFrame) -> bool:
    """Tell whether its versions say when they were believed."""
    return {SYSTEM_FROM, SYSTEM_TO} <= {name.lower() for name in history.columns}


def _remedy(frame: DataFrame) -> str | None:
    if isinstance(frame, DataFrame) and {"operation", "effective_timestamp", "data"} <= set(frame.columns):
        return "These are changes: `merge(changes, entity=…, keys=[…])` makes a history of them first."
    return None


def require_bitemporal(table: DataFrame, *columns: str) -> DataFrame:
    """
    The table that `bitemporal` returned, in which an open end is null, whatever stood for it.

    Raises:
        MissingColumns, WrongColumnType: It lacks its system interval, or one of these of the columns that
            every history has, or has it in another type.
    """
    require_types(table, standard_columns(*columns))
    require_types(table, SYSTEM_INTERVAL)
    return with_open_ends(with_open_ends(table) if VALID_TO in table.columns else table, SYSTEM_TO)


def require_free(history: DataFrame, column: str) -> None:
    """Raise `InvalidArgument` if *history* has a column of that name, in any case: it would be lost."""
    taken = [name for name in history.columns if name.lower() == column]
    if taken:
        raise InvalidArgument(None, "history", f"free of a column {column}: rename it first", taken)
