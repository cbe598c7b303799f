"""What can go wrong in a gateway, as exceptions; and when a call that failed is tried again."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TypeVar

from cdckit.errors import CdcError
from cdckit.rdss.findings import RdssFault


class RepositoryInUse(CdcError, RuntimeError):
    """Another process, or another object of this one, has the repository open."""

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(path)

    def __str__(self) -> str:
        return (
            f"{self.path} is open elsewhere: two gateways on one repository would process each message "
            "twice. Close the other one, or give this one a file of its own."
        )


class NoRepository(CdcError, RuntimeError):
    """A file that is there, and is no repository of a gateway, or one of another version."""

    def __init__(self, path: str, found: str) -> None:
        self.path, self.found = path, found
        super().__init__(path, found)

    def __str__(self) -> str:
        return f"{self.path} is no repository of a gateway that can be read: {self.found}. Name another file."


class ChannelUnreachable(CdcError, ConnectionError):
    """
    A queue did not answer, or could not for now; the same call may do later.

    *after* is how many seconds the other side asked to be left alone, if it did.
    """

    def __init__(self, channel: str, because: str, after: float | None = None) -> None:
        self.channel, self.because, self.after = channel, because, after
        super().__init__(channel, because, after)

    def __str__(self) -> str:
        return f"The channel {self.channel!r} cannot be reached: {self.because}."


class NoChannel(CdcError, LookupError):
    """A queue that does not exist, or that refuses this client; trying again does not help."""

    def __init__(self, channel: str, because: str) -> None:
        self.channel, self.because = channel, because
        super().__init__(channel, because)

    def __str__(self) -> str:
        return f"The channel {self.channel!r} cannot be used: {self.because}. See its address and its rights."


class SendFailed(CdcError, ConnectionError):
    """A message was not acknowledged, though it was tried again as often as it may be; it stays TO_SEND."""

    code = "GENERR005"

    def __init__(self, channel: str, message_id: str | None, retries: int) -> None:
        self.channel, self.message_id, self.retries = channel, message_id, retries
        super().__init__(channel, message_id, retries)

    def __str__(self) -> str:
        return (
            f"{self.code}: the message {self.message_id or 'without an id'} was not sent to "
            f"{self.channel!r}, which could not be reached in {self.retries} retries. It stays TO_SEND: "
            "call resume() later."
        )


class UnfitMessage(CdcError, ValueError):
    """A message of one's own that a receiver would refuse; nothing was sent."""

    def __init__(self, message_id: str, code: str, description: str) -> None:
        self.message_id, self.code, self.description = message_id, code, description
        super().__init__(message_id, code, description)

    def __str__(self) -> str:
        return f"The message {self.message_id} is not sent, since it is {self.code}: {self.description}"


class NoResponse(CdcError, TimeoutError):
    """No response to a request came in time; one that comes later is handled like any other message."""

    def __init__(self, message_id: str, seconds: float) -> None:
        self.message_id, self.seconds = message_id, seconds
        super().__init__(message_id, seconds)

    def __str__(self) -> str:
        return f"No response to {self.message_id}, which is sent, came within {self.seconds:g} s."


class NotRefused(CdcError, LookupError):
    """A message that is to be taken again was not refused, or its bytes are forgotten."""

    def __init__(self, message_id: str) -> None:
        self.message_id = message_id
        super().__init__(message_id)

    def __str__(self) -> str:
        return (
            f"replay() needs a message that was refused, and whose bytes are kept; {self.message_id} is "
            "none. See status()."
        )


class Rejection(CdcError):
    """
    Raised by a handler: the message cannot be processed, for a reason that has a code of its own.

    Args:
        code: One of the catalogue, such as `RdssFault.UPDATE_OF_UNKNOWN`; it says the queue.
        finding: What was found, after the sentence of the code.
    """

    def __init__(self, code: RdssFault, finding: str = "") -> None:
        self.code, self.finding = code, finding
        super().__init__(code, finding)

    def __str__(self) -> str:
        return f"{self.code.value}: {self.code.describe(self.finding)}"


class FailedStatement(CdcError, RuntimeError):
    """A row that a handler wanted to write cannot be written; nothing of its turn was."""

    def __init__(self, sql: str, because: str) -> None:
        self.sql, self.because = sql, because
        super().__init__(sql, because)

    def __str__(self) -> str:
        return f"{self.sql!r} failed: {self.because}. Nothing of this turn was written."


class KnownMessage(CdcError, ValueError):
    """A message to be sent has the messageId of one that was received; nothing was noted."""

    def __init__(self, message_id: str) -> None:
        self.message_id = message_id
        super().__init__(message_id)

    def __str__(self) -> str:
        return f"The message {self.message_id} was received: one that is to be sent needs an id of its own."


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
        for delay in self.delays():
            try:
                return call()
            except on as error:
                sleep(min(self.longest, max(delay, getattr(error, "after", None) or 0)))
        return call()


def retry_after(header: str | None) -> float | None:
    """
    The seconds that the header Retry-After asks for, as a number or as a date; None if it says neither.

    >>> retry_after("120"), retry_after("Wed, 21 Oct 2015 07:28:00 GMT"), retry_after("soon")
    (120.0, 0.0, None)
    """
    if header is None or header.strip().isdecimal():
        return None if header is None else float(header)
    try:
        return max(0.0, parsedate_to_datetime(header).timestamp() - time.time())
    except ValueError:
        return None


BACKOFF = Backoff()
"""As the specification has it."""
