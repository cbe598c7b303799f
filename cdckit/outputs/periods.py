"""The periods of a calendar in one zone, and those that an interval covers, without a list of all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from pyspark.sql import Column
from pyspark.sql import functions as F

from cdckit.parts.instants import microseconds
from cdckit.parts.values import utc_clock


def _months_on(day: date, months: int) -> date:
    month = day.month - 1 + months
    return date(day.year + month // 12, month % 12 + 1, 1)


@dataclass(frozen=True)
class _Unit:
    """
    A unit of the calendar.

    Args:
        step: From one period to the next, as Spark writes it.
        days: No period is shorter.
        begin: The first day of the period in which a day is.
        next: The first day of the period after the one that begins on a day.
    """

    step: str
    days: int
    begin: Callable[[date], date]
    next: Callable[[date], date]


UNITS = {
    "day": _Unit("1 day", 1, lambda day: day, lambda day: day + timedelta(days=1)),
    "week": _Unit(
        "7 days", 7, lambda day: day - timedelta(days=day.weekday()), lambda day: day + timedelta(days=7)
    ),
    "month": _Unit("1 month", 28, lambda day: day.replace(day=1), lambda day: _months_on(day, 1)),
    "quarter": _Unit(
        "3 months",
        90,
        lambda day: day.replace(month=(day.month - 1) // 3 * 3 + 1, day=1),
        lambda day: _months_on(day, 3),
    ),
    "year": _Unit("12 months", 365, lambda day: day.replace(month=1, day=1), lambda day: _months_on(day, 12)),
}


def midnight(day: date, zone: str) -> datetime:
    """When a day begins in a zone: its midnight, or, where clocks jump over that, the instant of the jump."""
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
    """

    unit: str
    zone: str
    first: date
    after: date

    @classmethod
    def that_begin(cls, unit: str, zone: str, start: datetime, end: datetime) -> CalendarPeriods:
        """Those that begin at *start* or later, and before *end*."""

        def from_then(at: datetime) -> date:
            day = UNITS[unit].begin(at.astimezone(ZoneInfo(zone)).date())
            while midnight(day, zone) < at:
                day = UNITS[unit].next(day)
            return day

        return cls(unit, zone, from_then(start), from_then(end))

    @property
    def begin(self) -> datetime:
        """When the first one begins."""
        return midnight(self.first, self.zone)

    @property
    def end(self) -> datetime:
        """When the last one ends."""
        return midnight(self.after, self.zone)

    @property
    def most(self) -> int:
        """As many as there are, or more."""
        return (self.after - self.first).days // UNITS[self.unit].days + 1

    def touched(self, begins: Column, ends: Column) -> Column:
        """
        The numbers of the periods that an interval may cover an instant of, and one or two more.

        A few more, since where clocks are set back over midnight a day goes on when the next one has begun.
        """
        days = [self._first_day(F.to_date(_wall_clock(at, self.zone))) for at in (begins, ends)]
        # As text: a date of Python's goes through the zone of the JVM, where some JVMs let nobody in.
        last = F.least(self._next(days[1]), F.lit(self.after.isoformat()).cast("date"))
        numbers = F.sequence(days[0], last, F.expr(f"interval {UNITS[self.unit].step}"))
        return F.when(days[0] <= last, numbers)

    def bounds(self, number: Column) -> tuple[Column, Column]:
        """Begin and end of a period; its number is its first day."""
        return _midnight(number, self.zone), _midnight(self._next(number), self.zone)

    def day(self, number: Column) -> Column:
        """The day on which a period begins."""
        return number

    def _first_day(self, day: Column) -> Column:
        return day if self.unit == "day" else F.trunc(day, self.unit).cast("date")

    def _next(self, day: Column) -> Column:
        return (day + F.expr(f"interval {UNITS[self.unit].step}")).cast("date")


@dataclass(frozen=True)
class EqualPeriods:
    """
    Periods of one length, whatever the clocks do.

    Args:
        length: How long each of them is.
        zone: Whose days they are named by.
        begin: When the first one begins.
        number: How many there are.
    """

    length: timedelta
    zone: str
    begin: datetime
    number: int

    @classmethod
    def that_begin(cls, length: timedelta, zone: str, start: datetime, end: datetime) -> EqualPeriods:
        """Those that begin at *start* or a whole number of lengths after it, and before *end*."""
        return cls(length, zone, start, -((start - end) // length))

    @property
    def end(self) -> datetime:
        """When the last one ends."""
        return self.begin + self.number * self.length

    @property
    def most(self) -> int:
        """How many there are."""
        return self.number

    def touched(self, begins: Column, ends: Column) -> Column:
        """The numbers of the periods that an interval may cover an instant of, and one more."""
        first, last = (F.call_function("div", self._since(at), self._length()) for at in (begins, ends))
        return F.sequence(first, F.least(last, F.lit(self.number - 1).cast("bigint")))

    def bounds(self, number: Column) -> tuple[Column, Column]:
        """Begin and end of a period."""
        begin = F.lit(microseconds(self.begin)) + number * self._length()
        return F.timestamp_micros(begin), F.timestamp_micros(begin + self._length())

    def day(self, number: Column) -> Column:
        """The day, in the zone, on which a period begins."""
        return F.to_date(_wall_clock(self.bounds(number)[0], self.zone))

    def _since(self, at: Column) -> Column:
        return F.unix_micros(at) - F.lit(microseconds(self.begin))

    def _length(self) -> Column:
        return F.lit(self.length // timedelta(microseconds=1)).cast("bigint")


Periods = CalendarPeriods | EqualPeriods


def _wall_clock(instant: Column, zone: str) -> Column:
    """What the clocks of a zone show, whatever the session's zone is."""
    return F.convert_timezone(F.lit("UTC"), F.lit(zone), utc_clock(instant))


def _midnight(day: Column, zone: str) -> Column:
    """As `midnight`: Java, too, goes on from the jump."""
    zero = F.lit(0)
    seconds = zero.cast("decimal(16,6)")
    return F.make_timestamp(F.year(day), F.month(day), F.day(day), zero, zero, seconds, F.lit(zone))
