"""When a call that failed is tried again."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Backoff:
    """
    A first try, and up to *retries* more, each after a delay that is *factor* times the one before.

    The specification has ten retries with delays of 2^retry * 100 ms: 0.2 s before the first of them, 102.4 s
    before the tenth.  Its sample computes the delay and never waits; we wait.

    Source:
        RDSS, "Network Failure Behaviour".

    >>> Backoff().delays()
    [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4]
    >>> slept = []
    >>> Backoff(retries=2).retry(lambda: 1 / 0, on=ZeroDivisionError, sleep=slept.append)
    Traceback (most recent call last):
    ...
    ZeroDivisionError: division by zero
    >>> slept
    [0.2, 0.4]
    """

    retries: int = 10
    first: float = 0.2
    factor: float = 2
    longest: float = 3600

    def delays(self) -> list[float]:
        """The seconds before each retry."""
        return [min(self.longest, round(self.first * self.factor**retry, 9)) for retry in range(self.retries)]

    def retry(
        self,
        call: Callable[[], _Result],
        *,
        on: type[BaseException] | tuple[type[BaseException], ...],
        sleep: Callable[[float], None],
    ) -> _Result:
        """
        What *call* returns; after the last retry the error of the kind *on* that it raised.

        An error whose attribute `after` says so many seconds is obeyed where that is longer than the delay,
        up to *longest*.
        """
        growing = wait_exponential(multiplier=self.first, exp_base=self.factor, max=self.longest)

        def wait(state: RetryCallState) -> float:
            error = state.outcome.exception() if state.outcome else None
            return min(self.longest, max(growing(state), getattr(error, "after", None) or 0))

        tries = Retrying(
            retry=retry_if_exception_type(on),
            wait=wait,
            stop=stop_after_attempt(self.retries + 1),
            sleep=sleep,
            reraise=True,
        )
        return tries(call)


def retry_after(said: str | None) -> float | None:
    """
    The seconds that the header Retry-After asks for, as a number or as a date; None if it says neither.

    >>> retry_after("120"), retry_after("Wed, 21 Oct 2015 07:28:00 GMT"), retry_after("soon")
    (120.0, 0.0, None)
    """
    if said is None or said.strip().isdecimal():
        return None if said is None else float(said)
    try:
        return max(0.0, parsedate_to_datetime(said).timestamp() - time.time())
    except ValueError:
        return None


BACKOFF = Backoff()
"""As the specification has it."""
