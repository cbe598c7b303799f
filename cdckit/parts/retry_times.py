"""Waiting: when what cannot be used yet is tried again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

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

    >>> next_time = Retry(growth=2.0).next_attempt("TIMESTAMP '2024-01-01 10:00:00Z'", "3")
    >>> session().sql(f"SELECT {next_time} AS after_the_third_attempt").show()
    +-----------------------+
    |after_the_third_attempt|
    +-----------------------+
    |    2024-01-01 10:04:00|
    +-----------------------+
    <BLANKLINE>
    """

    first: timedelta = timedelta(seconds=60)
    growth: float = 2.0
    maximum: timedelta = timedelta(days=40)

    def __post_init__(self) -> None:
        if self.first <= timedelta(0) or self.maximum <= timedelta(0) or not self.growth >= 1:
            raise InvalidArgument("Retry", "its arguments", "delays above zero that do not shrink", self)

    def next_attempt(self, now: str, attempts: str) -> str:
        """When something is due again that was tried so many times, the last time *now*: all in SQL."""
        delay = f"{self.first.total_seconds()}D * pow({self.growth}D, {attempts} - 1)"
        return _later(now, f"least({delay}, {self.maximum.total_seconds()}D)")

    def given_up(self, stored: str) -> str:
        """When something is given up that was *stored* then, in SQL."""
        return _later(stored, f"{self.maximum.total_seconds()}D")


def _later(at: str, seconds: str) -> str:
    return f"timestamp_micros(unix_micros({at}) + CAST({seconds} * 1000000 AS bigint))"
