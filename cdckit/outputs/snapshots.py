"""Periodic snapshots: what was in force in each period, a row per entity and day."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdckit.errors import InvalidArgument
from cdckit.history import VALID_FROM, VALID_TO
from cdckit.outputs.calls import Call, columns, free, in_force_at_some_time
from cdckit.outputs.periods import UNITS, CalendarPeriods, EqualPeriods, Periods, midnight
from cdckit.parts import instants
from cdckit.parts.arguments import microseconds, require_flag, require_instant
from cdckit.query.as_of import without_deleted

_FUNCTION = "periodic_snapshots"
_MOST = 1_000_000
"""As many periods as may be asked for: more are a slip of the hand, such as years in milliseconds."""


def periodic_snapshots(
    history: DataFrame,
    *,
    start: date | datetime,
    end: date | datetime,
    every: str | timedelta = "day",
    zone: str = "UTC",
    at: str = "end",
    deletes: bool = False,
) -> DataFrame:
    """
    One row per entity and day, or another period: the version in force at the end of it.

    Args:
        history: One row per version, as `merge` makes it or `Ledger.history()` keeps it.
        start: The first period is the first one that begins then or later.  A day means its midnight in
            *zone*, a datetime must be aware.
        end: The last period is the last one that begins before this.
        every: "day", "week" (from Monday), "month", "quarter" or "year" of *zone*, so that a day has 23 or 25
            hours when clocks are set; or a `timedelta`: periods of that length, counted from *start*.
        zone: Whose midnights these are, such as "America/New_York".
        at: "end": what was in force up to the end of the period, so at its last microsecond; a version that
            begins at the instant when the period ends belongs to the next one.  "start": what was in force at
            the instant when it begins.
        deletes: Keep the entities that were deleted then, with nulls in all fields but the keys.

    Returns:
        `period_date` (the day in *zone* on which the period begins), `period_from_timestamp`,
        `period_to_timestamp` (exclusive), and the columns of *history*.  For one period these are the rows
        of `as_of` at that instant.  An entity has no row for a period in which it was not there then,
        however often it was changed within it.  A period that ends in the future has rows, too.

    Raises:
        UnfitHistory: *history* is no history, or has one of the three columns already.
        InvalidArgument: A datetime is naive, *end* is not after *start*, there is no such zone or unit, or
            there are more than a million periods.

    Cost: no shuffle and no join: each version is repeated for the periods that it covers itself, and
    what is written is what there is to say, periods times entities.

    Source:
        Kimball's periodic snapshot fact table, which tells how things stood at the end of each period.

    >>> from datetime import date, timedelta
    >>> days = periodic_snapshots(history, start=date(2024, 1, 1), end=date(2024, 1, 3))
    >>> days.orderBy("period_date").select("period_date", "number", "name").show()
    +-----------+------+------+
    |period_date|number|  name|
    +-----------+------+------+
    | 2024-01-01|     1|teapot|
    | 2024-01-02|     1|teapot|
    +-----------+------+------+
    <BLANKLINE>
    >>> start, end = (datetime(2024, 1, 1, hour, tzinfo=UTC) for hour in (9, 11))
    >>> hours = periodic_snapshots(history, start=start, end=end, every=timedelta(hours=1))
    >>> hours.orderBy("period_from_timestamp", "number").select(
    ...     "period_from_timestamp", "number", "name"
    ... ).show()
    +---------------------+------+------+
    |period_from_timestamp|number|  name|
    +---------------------+------+------+
    |  2024-01-01 09:00:00|     1|kettle|
    |  2024-01-01 09:00:00|     2|   mug|
    |  2024-01-01 10:00:00|     1|teapot|
    |  2024-01-01 10:00:00|     2|   mug|
    +---------------------+------+------+
    <BLANKLINE>
    """
    call = Call(_FUNCTION, history)
    call.standard_columns()
    call.new_columns(["period_date", "period_from_timestamp", "period_to_timestamp"])
    for name, value in (("start", start), ("end", end), ("every", every), ("zone", zone)):
        call.keep(name, value)
    call.require_sound()
    require_flag(deletes, "deletes", function=_FUNCTION)
    if at not in ("end", "start"):
        raise InvalidArgument(_FUNCTION, "at", '"end" or "start"', at)
    periods = _periods(start, end, every, zone)
    asked = without_deleted(_within(call.history, periods), deletes, function=_FUNCTION)
    return _exploded(asked, periods, at_end=at == "end")


def _within(history: DataFrame, periods: Periods) -> DataFrame:
    """The versions that are in force at some time of the periods."""
    begin, end = _instants(periods)
    not_ended = F.col(VALID_TO).isNull() | (F.col(VALID_TO) > begin)
    return in_force_at_some_time(history).where((F.col(VALID_FROM) < end) & not_ended)


def _exploded(versions: DataFrame, periods: Periods, *, at_end: bool) -> DataFrame:
    """Each version once for each period at whose end, or start, it is in force."""
    number, day, begin, end = (
        free(versions.columns, name)
        for name in ("number_", "period_date", "period_from_timestamp", "period_to_timestamp")
    )
    first, last = _instants(periods)
    begins, ends = F.col(VALID_FROM), F.col(VALID_TO)
    touched = periods.touched(F.greatest(begins, first), F.least(ends, last))
    names = versions.columns
    numbered = versions.select(F.explode(touched).alias(number), *columns(names))
    from_, to = periods.bounds(F.col(number))
    told = numbered.select(
        periods.day(F.col(number)).alias(day), from_.alias(begin), to.alias(end), *columns(names)
    )
    if at_end:
        # At the last instant before the end: a version that begins at the end is not in force yet.
        in_force = (begins < F.col(end)) & (ends.isNull() | (ends >= F.col(end)))
    else:
        in_force = (begins <= F.col(begin)) & (ends.isNull() | (ends > F.col(begin)))
    return told.where(in_force & (F.col(begin) < last))


def _instants(periods: Periods) -> tuple[Column, Column]:
    begin, end = (require_instant(at, "periods", function=_FUNCTION) for at in (periods.begin, periods.end))
    return begin, end


def _periods(start: date | datetime, end: date | datetime, every: str | timedelta, zone: str) -> Periods:
    try:
        ZoneInfo(zone)
    except (KeyError, ValueError, TypeError, OSError) as error:
        needed = 'the name of a zone, such as "America/New_York"'
        raise InvalidArgument(_FUNCTION, "zone", needed, zone) from error

    def call(_: str) -> str:
        until = f"start={instants.written(start)}, end={instants.written(end)}"
        return f"{_FUNCTION}(history, {until}, every={every!r}, zone={zone!r})"

    first, last = (_instant(at, name, zone, call) for at, name in ((start, "start"), (end, "end")))
    if last <= first:
        raise InvalidArgument(_FUNCTION, "end", f"after start, {first.isoformat()}", last.isoformat())
    if isinstance(every, timedelta) and every >= timedelta(microseconds=1):
        periods: Periods = EqualPeriods.that_begin(every, zone, first, last)
    elif isinstance(every, str) and every in UNITS:
        periods = _of_calendar(every, zone, first, last)
    else:
        needed = f"one of {', '.join(UNITS)}, or a timedelta, such as timedelta(hours=1)"
        raise InvalidArgument(_FUNCTION, "every", needed, every)
    if periods.most > _MOST:
        needed = f"long enough for at most {_MOST:,} periods from start to end"
        raise InvalidArgument(_FUNCTION, "every", needed, every)
    return periods


def _of_calendar(unit: str, zone: str, start: datetime, end: datetime) -> Periods:
    try:
        return CalendarPeriods.that_begin(unit, zone, start, end)
    except (ValueError, OverflowError) as error:
        raise InvalidArgument(_FUNCTION, "end", "a while before the year 10000", end.isoformat()) from error


def _instant(at: date | datetime, argument: str, zone: str, call: Callable[[str], str]) -> datetime:
    if isinstance(at, date) and not isinstance(at, datetime):
        return midnight(at, zone)
    if isinstance(at, str):
        needed = "a date or an aware datetime (one with tzinfo)"
        raise InvalidArgument(_FUNCTION, argument, needed, at, example=call(argument))
    microseconds(at, argument, function=_FUNCTION, call=call)
    return at.astimezone(UTC)
