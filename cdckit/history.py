"""Histories: the versions of entities, and what was in force at an instant."""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.arguments import require_instant, require_instants
from cdckit.schemas import require_types

VALID_FROM = "valid_from_timestamp"
VALID_TO = "valid_to_timestamp"
DELETED = "deleted_indicator"
SOURCE_MESSAGE = "source_message"
FIELD_PROVENANCE = "field_provenance"

STANDARD_COLUMNS = ("guid", VALID_FROM, VALID_TO, DELETED, SOURCE_MESSAGE, FIELD_PROVENANCE)
"""The columns of every history; the business fields of its entity stand between them."""


_INTERVAL = T.StructType(
    [
        T.StructField(VALID_FROM, T.TimestampType()),
        T.StructField(VALID_TO, T.TimestampType()),
        T.StructField(DELETED, T.BooleanType()),
    ]
)


def provenance_type() -> T.StructType:
    """Where one value comes from: the message `m` and the priority `p` with which it was said."""
    return T.StructType([T.StructField("m", T.StringType()), T.StructField("p", T.IntegerType())])


HISTORY_SCHEMA = T.StructType(
    [
        T.StructField("guid", T.StringType()),
        *_INTERVAL.fields,
        T.StructField(SOURCE_MESSAGE, T.StringType()),
    ]
)
"""The columns of a history that do not depend on its entity."""


def business_fields(history: DataFrame) -> T.StructType:
    """The fields of the entity itself: what a history has beside its standard columns."""
    return T.StructType([field for field in history.schema.fields if field.name not in STANDARD_COLUMNS])


def as_of(history: DataFrame, at: datetime | Column, *, deletes: bool = False) -> DataFrame:
    """
    Keep the version of each entity that was in force at *at*.

    An interval is closed at its start and open at its end: a version that ends at *at* is already
    gone, one that starts at *at* is in force.

    Args:
        history: One row per version; `valid_from_timestamp` (never null), `valid_to_timestamp`
            (null while the version is current), `deleted_indicator`.
        at: The instant to read at: an aware datetime in any zone, or a column of instants.
        deletes: Keep the entities that were deleted at *at*, with nulls in all fields but the keys.

    Returns:
        The same columns; at most one row per entity.  An entity of which nothing was known at *at*
        has none.

    Raises:
        MissingColumns, WrongColumnType: *history* lacks one of the three columns, or has it in another
            type, or *at* is a column of something else than timestamps.
        InvalidArgument: *at* is a naive datetime: no instant without its zone.

    Cost: one filter, no shuffle.

    Source:
        SQL:2011 period predicate CONTAINS on a half-open period; data hub, query object.

    >>> from datetime import datetime, timezone
    >>> at = datetime(2024, 1, 1, 11, 0, tzinfo=timezone.utc)
    >>> as_of(history, at).select("number", "name", "source_message").show()
    +------+------+--------------+
    |number|  name|source_message|
    +------+------+--------------+
    |     1|teapot|            m2|
    +------+------+--------------+
    <BLANKLINE>
    """
    require_types(history, _INTERVAL, function="as_of")
    if isinstance(at, Column):
        instant = require_instants(history, at, "at", function="as_of")
    else:
        instant = require_instant(at, "at", function="as_of")
    started = F.col(VALID_FROM) <= instant
    not_ended = F.col(VALID_TO).isNull() | (F.col(VALID_TO) > instant)
    return _without_deleted(history.where(started & not_ended), deletes)


def current(history: DataFrame, *, deletes: bool = False) -> DataFrame:
    """
    Keep the version of each entity that is in force now: the one with an open end.

    Args:
        history: One row per version; `valid_to_timestamp` is null while the version is current.
        deletes: Keep the entities that are deleted now, with nulls in all fields but the keys.

    Returns:
        The same columns; at most one row per entity.  A version that begins in the future counts:
        the history knows of no clock (see `as_of` for an instant of your own).

    Raises:
        MissingColumns, WrongColumnType: *history* lacks one of the two columns, or has it in another type.

    Cost: one filter, no shuffle.

    >>> current(history).select("number", "name").show()
    +------+------+
    |number|  name|
    +------+------+
    |     1|teapot|
    +------+------+
    <BLANKLINE>
    """
    require_types(history, T.StructType(_INTERVAL.fields[1:]), function="current")
    return _without_deleted(history.where(F.col(VALID_TO).isNull()), deletes)


def _without_deleted(versions: DataFrame, deletes: bool) -> DataFrame:
    return versions if deletes else versions.where(~F.col(DELETED))
