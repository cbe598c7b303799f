"""Instants on the clock of a zone, as short as they can be together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, datetime, timedelta, tzinfo
from typing import NamedTuple

from cdckit.parts.instants import EPOCH, microseconds

_TIMESPECS = ((60_000_000, "minutes"), (1_000_000, "seconds"), (1_000, "milliseconds"), (1, "microseconds"))


class Clock(NamedTuple):
    """What the instants of one table share, and so need not say: they are microseconds since 1970."""

    zone: tzinfo
    offsets: bool
    day: date | None

    @classmethod
    def of(cls, micros: Iterable[int], zone: tzinfo) -> Clock:
        """The clock of these instants."""
        moments = [moment for moment in (_moment(number, zone) for number in micros) if moment is not None]
        days = {moment.date() for moment in moments}
        # An hour that happens twice, or a summer among winters: then each instant needs its offset.
        offsets = len({moment.utcoffset() for moment in moments}) > 1 or any(map(_happens_twice, moments))
        return cls(zone, offsets, min(days) if len(days) == 1 else None)

    @property
    def caption(self) -> str:
        """What the instants share, in words."""
        return f"instants of {self.day}, {self.zone}" if self.day else f"instants in {self.zone}"

    def text(self, micros: int, spec: str) -> str:
        """An instant without what all share; *spec* is what `isoformat` calls so."""
        moment = _moment(micros, self.zone)
        if moment is None:
            return "after 9999" if micros > 0 else "before 0001"
        written = (moment if self.offsets else moment.replace(tzinfo=None)).isoformat(" ", spec)
        return written[11:] if self.day else written

    def in_full(self, micros: int) -> str:
        """An instant by itself, with its day."""
        moment = _moment(micros, self.zone)
        if moment is None:
            return self.text(micros, "")
        return moment.replace(tzinfo=None).isoformat(" ", timespec([micros]))


def short_instants(instants: Sequence[datetime], zone: tzinfo) -> tuple[list[str], str]:
    """Instants as short as they can be together, and the words for what they share."""
    micros = [microseconds(instant) for instant in instants]
    clock = Clock.of(micros, zone)
    return [clock.text(number, timespec(micros)) for number in micros], clock.caption


def with_day(at: datetime, zone: tzinfo) -> str:
    """An instant by itself, with its day, for where the zone is said beside it."""
    micros = microseconds(at)
    return Clock.of([micros], zone)._replace(day=None).text(micros, timespec([micros]))


def timespec(micros: Iterable[int]) -> str:
    """Tell how fine these instants are, as `isoformat` calls it: seconds only where one has some."""
    listed = list(micros)
    return next(word for unit, word in _TIMESPECS if all(number % unit == 0 for number in listed))


def _happens_twice(moment: datetime) -> bool:
    """Tell whether clocks were put back then, and show this once more."""
    return moment.replace(fold=0).utcoffset() != moment.replace(fold=1).utcoffset()


def _moment(micros: int, zone: tzinfo) -> datetime | None:
    try:
        return (EPOCH + timedelta(microseconds=micros)).astimezone(zone)
    except OverflowError:
        return None
