"""Periodic snapshots: what was in force in each period of a calendar, a row per entity and period."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pandas as pd
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdckit.errors import InvalidArgument
from cdckit.model.history import VALID_FROM, VALID_TO, is_deleted
from cdckit.outputs.history_arguments import HistoryArguments
from cdckit.parts import instants
from cdckit.parts.argument_forms import FLAG, one_of, takes
from cdckit.parts.arguments import free_name, microseconds, quoted_columns, require_instant
from cdckit.parts.public_calls import called_function
from cdckit.parts.values import utc_clock
from cdckit.query.intervals import is_ever_in_force

UNITS = {
    "day": ("1 day", "D"),
    "week": ("7 days", "W"),
    "month": ("1 month", "M"),
    "quarter": ("3 months", "Q"),
    "year": ("12 months", "Y"),
}
"""By unit the step from one period to the next, as Spark writes it, and what pandas calls it."""


def midnight(day: date, zone: str) -> datetime:
    """Find when a day begins in a zone: its midnight, or the instant of a jump of the clocks over that."""
    return datetime.combine(day, time(), ZoneInfo(zone)).astimezone(UTC)


@dataclass(frozen=True)
class CalendarPeriods:
    """
    Days, weeks (from Monday), months, quarters or years of a zone.

    Args:
        unit: One of `UNITS`.
        zone: Where the day begins at midnight.
        first: The first day of the first period.
        after: The first day of the period after the last one.
        count: How many there are.
    """

    unit: str
    zone: str
    first: date
    after: date
    count: int

    @classmethod
    def beginning_between(cls, unit: str, zone: str, start: datetime, end: datetime) -> CalendarPeriods:
        """Make those that begin at *start* or later, and before *end*."""
        first, after = (_period_from(at, unit, zone) for at in (start, end))
        return cls(unit, zone, _first_day(first), _first_day(after), after.ordinal - first.ordinal)

    @property
    def begin(self) -> datetime:
        """When the first one begins."""
        return midnight(self.first, self.zone)

    @property
    def end(self) -> datetime:
        """When the last one ends."""
        return midnight(self.after, self.zone)

    def touched_numbers(self, begins: Column, ends: Column) -> Column:
        """
        Number the periods that an interval may cover an instant of, and one or two more.

        A few more, since where clocks are set back over midnight a day goes on when the next one has begun.
        """
        days = [F.to_date(_wall_clock(at, self.zone)) for at in (begins, ends)]
        if self.unit != "day":
            days = [F.trunc(day, self.unit).cast("date") for day in days]
        # As text: a date of Python's goes through the zone of the JVM, where some JVMs let nobody in.
        last = F.least(self._next(days[1]), F.lit(self.after.isoformat()).cast("date"))
        numbers = F.sequence(days[0], last, self._step)
        return F.when(days[0] <= last, numbers)

    def bounds(self, number: Column) -> tuple[Column, Column]:
        """Tell begin and end of a period; its number is its first day."""
        return _midnight(number, self.zone), _midnight(self._next(number), self.zone)

    def day(self, number: Column) -> Column:
        """Tell the day on which a period begins."""
        return number

    def _next(self, day: Column) -> Column:
        return (day + self._step).cast("date")

    @property
    def _step(self) -> Column:
        return F.expr(f"interval {UNITS[self.unit][0]}")


def _period_from(at: datetime, unit: str, zone: str) -> pd.Period:
    """Find the first period that begins at an instant or later."""
    period = pd.Period(at.astimezone(ZoneInfo(zone)).date(), UNITS[unit][1])
    while midnight(_first_day(period), zone) < at:
        period += 1
    return period


def _first_day(period: pd.Period) -> date:
    """Tell the day on which a period begins, also where pandas has no instant for it."""
    day = period.asfreq("D", "start")
    return date(day.year, day.month, day.day)


@dataclass(frozen=True)
class EqualPeriods:
    """
    Periods of one length, whatever the clocks do.

    Args:
        length: How long each of them is.
        zone: Whose days they are named by.
        begin: When the first one begins.
        count: How many there are.
    """

    length: timedelta
    zone: str
    begin: datetime
    count: int

    @classmethod
    def beginning_between(cls, length: timedelta, zone: str, start: datetime, end: datetime) -> EqualPeriods:
        """Make those that begin at *start* or a whole number of lengths after it, and before *end*."""
        return cls(length, zone, start, -((start - end) // length))

    @property
    def end(self) -> datetime:
        """When the last one ends."""
        return self.begin + self.count * self.length

    def touched_numbers(self, begins: Column, ends: Column) -> Column:
        """Number the periods that an interval may cover an instant of, and one more."""
        since = [F.unix_micros(at) - F.lit(instants.microseconds(self.begin)) for at in (begins, ends)]
        first, last = (F.call_function("div", micros, self._length) for micros in since)
        return F.sequence(first, F.least(last, F.lit(self.count - 1).cast("bigint")))

    def bounds(self, number: Column) -> tuple[Column, Column]:
        """Tell begin and end of a period."""
        begin = F.lit(instants.microseconds(self.begin)) + number * self._length
        return F.timestamp_micros(begin), F.timestamp_micros(begin + self._length)

    def day(self, number: Column) -> Column:
        """Tell the day, in the zone, on which a period begins."""
        return F.to_date(_wall_clock(self.bounds(number)[0], self.zone))

    @property
    def _length(self) -> Column:
        return F.lit(self.length // timedelta(microseconds=1)).cast("bigint")


Periods = CalendarPeriods | EqualPeriods


def _wall_clock(instant: Column, zone: str) -> Column:
    """Read the clocks of a zone, whatever the session's zone is."""
    return F.convert_timezone(F.lit("UTC"), F.lit(zone), utc_clock(instant))


def _midnight(day: Column, zone: str) -> Column:
    """Find what `midnight` finds: Java, too, goes on from the jump."""
    zero = F.lit(0)
    seconds = zero.cast("decimal(16,6)")
    return F.make_timestamp_ltz(F.year(day), F.month(day), F.day(day), zero, zero, seconds, F.lit(zone))


_MOST = 1_000_000
"""As many periods as may be asked for: more are a slip of the hand, such as years in milliseconds."""


@takes(boundary=one_of("end", "start"), deletes=FLAG)
def periodic_snapshots(
    history: DataFrame,
    *,
    start: date | datetime,
    end: date | datetime,
    every: str | timedelta = "day",
    zone: str = "UTC",
    boundary: str = "end",
    deletes: bool = False,
) -> DataFrame:
    """
    Make one row per entity and day, or another period: the version in force at the end of it.

    Args:
        history: One row per version, as `merge` makes it or `Ledger.history()` keeps it.
        start: The first period is the first one that begins then or later.  A day means its midnight in
            *zone*, a datetime must be aware.
        end: The last period is the last one that begins before this.
        every: "day", "week" (from Monday), "month", "quarter" or "year" of *zone*, so that a day has 23 or 25
            hours when clocks are set; or a `timedelta`: periods of that length, counted from *start*.
        zone: Whose midnights these are, such as "America/New_York".
        boundary: "end": what was in force up to the end of the period, so at its last microsecond; a version
            that begins at the instant when the period ends belongs to the next one.  "start": what was in
            force at the instant when it begins.
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
    call = HistoryArguments(history)
    call.new_columns(["period_date", "period_from_timestamp", "period_to_timestamp"])
    history = call.require_all()
    periods = _periods(start, end, every, zone)
    versions = history if deletes else history.where(~is_deleted())
    return _explode_periods(versions.where(is_ever_in_force()), periods, at_end=boundary == "end")


def _explode_periods(versions: DataFrame, periods: Periods, *, at_end: bool) -> DataFrame:
    """Repeat each version for each period at whose end, or start, it is in force."""
    number, day, begin, end = (
        free_name(name, versions.columns)
        for name in ("number_", "period_date", "period_from_timestamp", "period_to_timestamp")
    )
    first, last = (require_instant(instant, "periods") for instant in (periods.begin, periods.end))
    begins, ends = F.col(VALID_FROM), F.col(VALID_TO)
    versions = versions.where((begins < last) & (ends.isNull() | (ends > first)))
    touched = periods.touched_numbers(F.greatest(begins, first), F.least(ends, last))
    names = versions.columns
    numbered = versions.select(F.explode(touched).alias(number), *quoted_columns(names))
    from_, until = periods.bounds(F.col(number))
    in_periods = numbered.select(
        periods.day(F.col(number)).alias(day), from_.alias(begin), until.alias(end), *quoted_columns(names)
    )
    if at_end:
        # At the last instant before the end: a version that begins at the end is not in force yet.
        in_force = (begins < F.col(end)) & (ends.isNull() | (ends >= F.col(end)))
    else:
        in_force = (begins <= F.col(begin)) & (ends.isNull() | (ends > F.col(begin)))
    return in_periods.where(in_force & (F.col(begin) < last))


def _periods(start: date | datetime, end: date | datetime, every: str | timedelta, zone: str) -> Periods:
    try:
        ZoneInfo(zone)
    except (KeyError, ValueError, TypeError, OSError) as error:
        needed = 'the name of a zone, such as "America/New_York"'
        raise InvalidArgument(None, "zone", needed, zone) from error

    def call(_: str) -> str:
        until = f"start={instants.instant_literal(start)}, end={instants.instant_literal(end)}"
        return f"{called_function()}(history, {until}, every={every!r}, zone={zone!r})"

    first, last = (_instant(at, name, zone, call) for at, name in ((start, "start"), (end, "end")))
    if last <= first:
        raise InvalidArgument(None, "end", f"after start, {first.isoformat()}", last.isoformat())
    if isinstance(every, timedelta) and every >= timedelta(microseconds=1):
        periods: Periods = EqualPeriods.beginning_between(every, zone, first, last)
    elif isinstance(every, str) and every in UNITS:
        try:
            periods = CalendarPeriods.beginning_between(every, zone, first, last)
        except (ValueError, OverflowError) as error:
            needed = "a while before the year 10000"
            raise InvalidArgument(None, "end", needed, last.isoformat()) from error
    else:
        needed = f"one of {', '.join(UNITS)}, or a timedelta, such as timedelta(hours=1)"
        raise InvalidArgument(None, "every", needed, every)
    if periods.count > _MOST:
        needed = f"long enough for at most {_MOST:,} periods from start to end"
        raise InvalidArgument(None, "every", needed, every)
    return periods


def _instant(at: date | datetime, argument: str, zone: str, call: Callable[[str], str]) -> datetime:
    if isinstance(at, date) and not isinstance(at, datetime):
        return midnight(at, zone)
    if isinstance(at, str):
        needed = "a date or an aware datetime (one with tzinfo)"
        raise InvalidArgument(None, argument, needed, at, example=call(argument))
    microseconds(at, argument, call=call)
    return at.astimezone(UTC)
