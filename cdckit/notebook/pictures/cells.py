"""What a cell of a picture says: a value in words, its instants written as all instants are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import tzinfo
from typing import NamedTuple

from pyspark.sql import types as T

from cdckit.notebook import NULL
from cdckit.notebook.clock import Clock
from cdckit.notebook.pictures.words import one_line

_UNITS = ((60_000_000, "minutes"), (1_000_000, "seconds"), (1_000, "milliseconds"), (1, "microseconds"))


class Said(NamedTuple):
    """A value as text, of an instant its microseconds since 1970, and the type that it has."""

    value: str | None
    kind: T.DataType

    @property
    def micros(self) -> int | None:
        is_instant = isinstance(self.kind, T.TimestampType) and self.value is not None
        return int(self.value or 0) if is_instant else None


class Writing(NamedTuple):
    """How the instants among the values of one picture are written: no finer than tells them apart."""

    clock: Clock
    spec: str
    cut: bool

    @classmethod
    def of(cls, columns: Iterable[Iterable[Said]], zone: tzinfo) -> Writing:
        """The writing of a picture of these columns of values."""
        found = [{each.micros for each in column} - {None} for column in columns]
        instants = [{each for each in column if each is not None} for column in found]
        unit, spec = next(
            (unit, spec)
            for unit, spec in _UNITS
            if all(len({each // unit for each in column}) == len(column) for column in instants)
        )
        every = [each for column in instants for each in column]
        return cls(Clock.of(every, zone), spec, any(each % unit for each in every))

    @property
    def note(self) -> str:
        """What the cells do not say of their instants."""
        day = [f"of {self.clock.day}"] if self.clock.day else []
        cut = [f"cut to {self.spec}"] if self.cut else []
        return f"times in cells are {', '.join([*day, *cut])}" if day or cut else ""

    def day(self, said: Said) -> str:
        """The day of an instant, where the picture has several; empty for all else."""
        if said.micros is None or self.clock.day:
            return ""
        day = self.clock.text(said.micros, self.spec).split(" ")[0]
        return day if day[0].isdigit() else ""

    def forms(self, said: Said, day: str = "") -> Sequence[str]:
        """A value in words, from the longest form to the shortest; of an instant of *day* the time alone."""
        if said.value is None:
            return [NULL]
        if said.micros is None:
            return list(dict.fromkeys(one_line(said.value, longest) for longest in (60, 24, 12)))
        text = self.clock.text(said.micros, self.spec)
        return [text.split(" ")[1]] if day and self.day(said) == day else [text]
