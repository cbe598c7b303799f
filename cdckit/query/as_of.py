"""What was in force at an instant."""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdckit.history import DELETED, VALID_FROM, VALID_TO, require_history
from cdckit.parts.arguments import require_flag, require_instant, require_instants


def as_of(history: DataFrame, at: datetime | Column, *, deletes: bool = False) -> DataFrame:
    """
    Keep the version of each entity that was in force at *at*.

    An interval is closed at its start and open at its end: a version that ends at *at* is already
    gone, one that starts at *at* is in force.

    Args:
        history: One row per version; `valid_from_timestamp` (never null), `valid_to_timestamp`
            (null while the version is current), `deleted_indicator`.
        at: The instant to read at: an aware datetime in any zone, or a column of instants.  Such a
            column is read from each version itself, and a deleted one has nulls in all fields but the
            keys: for instants that must not vanish with a delete there is `as_of_join`.
        deletes: Keep the entities that were deleted at *at*, with nulls in all fields but the keys.

    Returns:
        The same columns; at most one row per entity.  An entity of which nothing was known at *at*
        has none.

    Raises:
        MissingColumns, WrongColumnType: *history* lacks one of the three columns, or has it in another
            type, or *at* is a column of something else than timestamps.
        InvalidArgument: *at* is a naive datetime (no instant without its zone), or *deletes* is neither
            True nor False.

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
    history = require_history(history, VALID_FROM, VALID_TO, DELETED, function="as_of")
    if isinstance(at, Column):
        instant = require_instants(history, at, "at", function="as_of")
    else:
        instant = require_instant(at, "at", function="as_of", call=lambda said: f"as_of(history, {said})")
    started = F.col(VALID_FROM) <= instant
    not_ended = F.col(VALID_TO).isNull() | (F.col(VALID_TO) > instant)
    return without_deleted(history.where(started & not_ended), deletes, function="as_of")


def current(history: DataFrame, *, deletes: bool = False) -> DataFrame:
    """
    Keep the version of each entity that is in force now: the one with an open end.

    Args:
        history: One row per version; `valid_to_timestamp` is null while the version is current (or what
            `scd_type_2` was told to write for it).
        deletes: Keep the entities that are deleted now, with nulls in all fields but the keys.

    Returns:
        The same columns; at most one row per entity.  A version that begins in the future counts:
        the history knows of no clock (see `as_of` for an instant of your own).

    Raises:
        MissingColumns, WrongColumnType: *history* lacks one of the two columns, or has it in another type.
        InvalidArgument: *deletes* is neither True nor False.

    Cost: one filter, no shuffle.

    >>> current(history).select("number", "name").show()
    +------+------+
    |number|  name|
    +------+------+
    |     1|teapot|
    +------+------+
    <BLANKLINE>
    """
    history = require_history(history, VALID_TO, DELETED, function="current")
    return without_deleted(history.where(F.col(VALID_TO).isNull()), deletes, function="current")


def without_deleted(versions: DataFrame, deletes: bool, *, function: str) -> DataFrame:
    """The versions; without those of deleted entities, unless *deletes* asks for them."""
    return (
        versions if require_flag(deletes, "deletes", function=function) else versions.where(~F.col(DELETED))
    )
