"""When what waits in a hub is tried again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from math import inf

from cdckit.errors import InvalidArgument


@dataclass(frozen=True)
class Backoff:
    """
    When what waits is tried again, and when it is given up.

    Args:
        first: How long after the first attempt.
        factor: By what each further delay is longer than the one before.
        give_up_after: When it is given up, from the first attempt on.

    Source:
        Data hub: "automatically resubmitted periodically, up to a maximum delay".  The figures are the
        product's.

    >>> next_time = Backoff(factor=2.0).next_attempt("TIMESTAMP '2024-01-01 10:00:00Z'", "3")
    >>> session().sql(f"SELECT {next_time} AS after_the_third_attempt").show()
    +-----------------------+
    |after_the_third_attempt|
    +-----------------------+
    |    2024-01-01 10:04:00|
    +-----------------------+
    <BLANKLINE>
    """

    first: timedelta = timedelta(seconds=60)
    factor: float = 2.0
    give_up_after: timedelta = timedelta(days=40)

    def __post_init__(self) -> None:
        if self.first <= timedelta(0) or self.give_up_after <= timedelta(0) or not 1 <= self.factor < inf:
            needed = "delays above zero that do not shrink, by a finite factor"
            raise InvalidArgument("Backoff", "its arguments", needed, self)

    def next_attempt(self, now: str, attempts: str) -> str:
        """Tell when something is due again that was tried so many times, the last time *now*: all in SQL."""
        delay = f"{self.first.total_seconds()}D * pow({self.factor}D, {attempts} - 1)"
        return _seconds_later(now, f"least({delay}, {self.give_up_after.total_seconds()}D)")

    def give_up_time(self) -> str:
        """Tell, in SQL, when a row with the column `waiting_since` is given up."""
        return _seconds_later("waiting_since", f"{self.give_up_after.total_seconds()}D")


def _seconds_later(at: str, seconds: str) -> str:
    return f"timestamp_micros(unix_micros({at}) + CAST({seconds} * 1000000 AS bigint))"
