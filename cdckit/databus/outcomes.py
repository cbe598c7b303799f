"""How a dispatch is tried again after an error, and how it ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from cdckit.databus.checkpoints import Checkpoint


@dataclass(frozen=True)
class Retries:
    """
    How often, and after which delays, a dispatch goes on from the last checkpoint after an error.

    Args:
        most: How many times in a row; None for any number.  A window that is done begins a new count.
        delay: Before the first, in seconds.
        growth: By what each further delay is longer than the one before.
        longest: The longest delay, in seconds.

    >>> [Retries(most=3, delay=1, growth=2, longest=3).before(attempt) for attempt in (1, 2, 3)]
    [1, 2, 3]
    """

    most: int | None = None
    delay: float = 0.1
    growth: float = 1.1
    longest: float = 60.0

    def before(self, attempt: int) -> float:
        """The delay before this attempt; the first is 1."""
        return min(self.delay * self.growth ** min(attempt - 1, 1000), self.longest)


class Outcome(NamedTuple):
    """
    How a dispatch ended.

    Attributes:
        state: `finished`: the windows are at their end; `stopped`: a consumer answered False, or did not let
            the consumption start; `closed`: the retries are exhausted, or an error was fatal.
        checkpoint: The last one.
        windows: How many windows were delivered whole, repeated ones counted again.
        error: Why it was closed.

    >>> from cdckit import databus
    >>> class Counting(databus.Consumer):
    ...     def on_data_event(self, event):
    ...         return True
    >>> outcome = databus.dispatch(databus.EventStream(events, databus.Subscription([flights])), Counting())
    >>> outcome.state, outcome.windows, outcome.checkpoint.passed, outcome.error
    ('finished', 2, 6, None)
    """

    state: str
    checkpoint: Checkpoint
    windows: int
    error: Exception | None
