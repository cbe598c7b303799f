"""Waiting: when what cannot be used yet is tried again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from pyspark.sql import Column
from pyspark.sql import functions as F

from cdckit.errors import InvalidArgument


@dataclass(frozen=True)
class Retry:
    """
    When what waits is tried again, and when it is given up.

    Args:
        first: How long after the first attempt.
        growth: By what each further delay is longer than the one before.
        maximum: The age, since it was stored, at which it is given up.

    Source:
        Data hub: "automatically resubmitted periodically, up to a maximum delay".  The figures are the
        product's.
    """

    first: timedelta = timedelta(seconds=60)
    growth: float = 2.0
    maximum: timedelta = timedelta(days=40)

    def __post_init__(self) -> None:
        if self.first <= timedelta(0) or self.maximum <= timedelta(0) or not self.growth >= 1:
            raise InvalidArgument("Retry", "its arguments", "delays above zero that do not shrink", self)

    def next_attempt(self, now: Column, attempts: Column) -> Column:
        """When something is due again that was tried so many times, the last time *now*."""
        longest = F.lit(self.maximum.total_seconds())
        delay = F.lit(self.first.total_seconds()) * F.pow(F.lit(self.growth), attempts - 1)
        return _later(now, F.least(delay, longest))

    def given_up(self, stored: Column) -> Column:
        """When something is given up that was *stored* then."""
        return _later(stored, F.lit(self.maximum.total_seconds()))


def _later(at: Column, seconds: Column) -> Column:
    return F.timestamp_micros(F.unix_micros(at) + (seconds * 1_000_000).cast("long"))
