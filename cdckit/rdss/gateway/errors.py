"""What can go wrong in a gateway, as exceptions; and when a call that failed is tried again."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TypeVar

from cdckit.errors import CdcError, ErrorWithFacts
from cdckit.rdss.findings import RdssFault


class GatewayError(ErrorWithFacts):
    """The base of what goes wrong in a gateway."""


class RepositoryInUse(GatewayError, RuntimeError):
    """Another process, or another object of this one, has the repository open."""

    path: str
    sentence = (
        "{path} is open elsewhere: two gateways on one repository would process each message twice. "
        "Close the other one, or give this one a file of its own."
    )


class NoRepository(GatewayError, RuntimeError):
    """A file that is there, and is no repository of a gateway, or one of another version."""

    path: str
    found: str
    sentence = "{path} is no repository of a gateway that can be read: {found}. Name another file."


class ChannelUnreachable(GatewayError, ConnectionError):
    """
    A queue did not answer, or could not for now; the same call may do later.

    *after* is how many seconds the other side asked to be left alone, if it did.
    """

    channel: str
    because: str
    after: float | None = None
    sentence = "The channel {channel!r} cannot be reached: {because}."


class NoChannel(GatewayError, LookupError):
    """A queue that does not exist, or that refuses this client; trying again does not help."""

    channel: str
    because: str
    sentence = "The channel {channel!r} cannot be used: {because}. See its address and its rights."


class SendFailed(GatewayError, ConnectionError):
    """A message was not acknowledged, though it was tried again as often as it may be; it stays TO_SEND."""

    channel: str
    message_id: str
    retries: int
    code = "GENERR005"
    sentence = (
        f"{code}: the message {{message_id}} was not sent to {{channel!r}}, which could not be reached in "
        "{retries} retries. It stays TO_SEND: call resume() later."
    )


class UnfitMessage(GatewayError, ValueError):
    """A message of one's own that a receiver would refuse; nothing was sent."""

    message_id: str
    code: str
    description: str
    sentence = "The message {message_id} is not sent, since it is {code}: {description}"


class NoResponse(GatewayError, TimeoutError):
    """No response to a request came in time; one that comes later is handled like any other message."""

    message_id: str
    seconds: float
    sentence = "No response to {message_id}, which is sent, came within {seconds:g} s."


class NotRefused(GatewayError, LookupError):
    """A message that is to be taken again was not refused, or its bytes are forgotten."""

    message_id: str
    sentence = (
        "replay() needs a message that was refused, and whose bytes are kept; {message_id} is none. "
        "See status()."
    )


class FailedStatement(GatewayError, RuntimeError):
    """A row that a handler wanted to write cannot be written; nothing of its turn was."""

    sql: str
    because: str
    sentence = "{sql!r} failed: {because}. Nothing of this turn was written."


class KnownMessage(GatewayError, ValueError):
    """A message to be sent has the messageId of one that was received; nothing was noted."""

    message_id: str
    sentence = "The message {message_id} was received: one that is to be sent needs an id of its own."


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


class WrongChecksum(Rejection):
    """A file is not the one that its message describes; a handler that lets it pass refuses the message."""

    def __init__(self, kind: str, needed: str, computed: str) -> None:
        self.kind, self.needed, self.found = kind, needed, computed
        super().__init__(RdssFault.INVALID_CHECKSUM, f"The {kind} is {computed}; the message says {needed}.")


def mask_url(url: str) -> str:
    """
    Write an address as an error says it: without what may be a secret.

    >>> mask_url("https://me:secret@files.example/a/b.csv?signature=secret")
    'https://files.example/a/b.csv'
    """
    return re.sub(r"(?<=://)[^/@]*@", "", re.split(r"[?#]", url, maxsplit=1)[0])[:300]


class RefusedFile(GatewayError, ValueError):
    """A file that is not fetched, since its address or what is there must not be trusted."""

    url: str
    because: str
    sentence = "{url} is refused: {because}."

    def __post_init__(self) -> None:
        self.url = mask_url(self.url)
        super().__post_init__()


class DownloadFailed(GatewayError, ConnectionError):
    """
    A file could not be fetched whole; what came of it is kept, and gone on with the next time.

    *to_retry* says that it was tried once alone, since a gateway hands the message over again; *after* is how
    many seconds the server asked to be left alone, if it did.
    """

    url: str
    because: str
    to_retry: bool = False
    after: float | None = None
    sentence = "{url} could not be fetched: {because}."

    def __post_init__(self) -> None:
        self.url = mask_url(self.url)
        super().__post_init__()


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
        """List the seconds before each retry."""
        return [min(self.longest, round(self.first * self.factor**retry, 9)) for retry in range(self.retries)]

    def retry(
        self,
        call: Callable[[], _Result],
        *,
        on: type[BaseException] | tuple[type[BaseException], ...],
        sleep: Callable[[float], None],
    ) -> _Result:
        """
        Return what *call* returns; after the last retry the error of the kind *on* that it raised.

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
    Read the seconds that the header Retry-After asks for, as a number or as a date; None if it says neither.

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
