"""Dispatch: consumers called in the order of Databus, window by window, with retries and checkpoints."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from cdckit.databus.consumer_groups import STOP, Answer, ConsumerGroups
from cdckit.databus.consumers import Consumer, Result
from cdckit.databus.event_stream import Window
from cdckit.errors import InvalidArgument
from cdckit.parts.argument_forms import NAME, takes
from cdckit.store import Store

_LOG = logging.getLogger(__name__)

FINISHED, STOPPED, CLOSED = "finished", "stopped", "closed"

NOTHING = -1
"""The checkpoint of a consumer that has taken no window."""


class Checkpoints(Protocol):
    """Where the last checkpoint of a consumer is kept: `StoredCheckpoints`, or another."""

    def load(self) -> int:
        """Read the SCN of the end of the last window that was taken; -1 if there is none."""

    def store(self, scn: int) -> None:
        """Store the SCN; a kill at any moment leaves the one before, or this one."""


class StoredCheckpoints(Checkpoints):
    """
    A checkpoint beside the tables of a store, such as that of a `Relay`, or in a store of its own.

    Args:
        store: The store.
        name: Of the consumer, or group of consumers; each has a checkpoint of its own.

    Cost: a commit for each checkpoint, 20 to 30 ms on a local disk: of streams with many small windows, let
    `dispatch` store one every second or so (`checkpoint_every`).

    >>> from tempfile import TemporaryDirectory
    >>> from cdckit.store import Store
    >>> with TemporaryDirectory() as folder:
    ...     before = StoredCheckpoints(Store(None, folder), "board").load()
    ...     StoredCheckpoints(Store(None, folder), "board").store(17)
    ...     before, StoredCheckpoints(Store(None, folder), "board").load()
    (-1, 17)
    """

    @takes(name=NAME)
    def __init__(self, store: Store, name: str) -> None:
        self._store, self._key = store, f"databus.checkpoint:{name}"

    def load(self) -> int:
        return int(self._store.snapshot().note_of(self._key) or NOTHING)

    def store(self, scn: int) -> None:
        with self._store.begin() as transaction:
            transaction.note(self._key, str(scn))
            transaction.commit(reads=())


@dataclass(frozen=True)
class Backoff:
    """
    How often, and after which delays, a dispatch goes on from the last checkpoint after an error.

    Args:
        retries: How many times in a row; None for any number.  A window that is done for the first time
            begins a new count.
        first: Before the first, in seconds.
        factor: By what each further delay is longer than the one before.
        longest: The longest delay, in seconds.

    >>> [Backoff(retries=3, first=1, factor=2, longest=3).delay_before(attempt) for attempt in (1, 2, 3)]
    [1, 2, 3]
    """

    retries: int | None = None
    first: float = 0.1
    factor: float = 1.1
    longest: float = 60.0

    def delay_before(self, attempt: int) -> float:
        """Tell the delay before this attempt; the first is 1."""
        return min(self.first * self.factor ** min(attempt - 1, 1000), self.longest)


class Outcome(NamedTuple):
    """
    How a dispatch ended.

    Attributes:
        state: `finished`: the windows are at their end; `stopped`: a consumer answered False, or did not let
            the consumption start; `closed`: the retries are exhausted, or an error was fatal.
        checkpoint: The SCN in which the last window ended that was checkpointed; -1 if none was.
        windows: How many windows were delivered whole, repeated ones counted again.
        error: Why it was closed, or did not start.

    >>> from cdckit import databus
    >>> class Counting(databus.Consumer):
    ...     def on_data_event(self, event):
    ...         return True
    >>> outcome = databus.dispatch(databus.EventStream(events, [flights]), Counting())
    >>> outcome.state, outcome.windows, outcome.checkpoint, outcome.error
    ('finished', 2, 6, None)
    """

    state: str
    checkpoint: int
    windows: int
    error: Exception | None


class Windows(Protocol):
    """What a dispatch takes its windows from: `EventStream`, `Relay.stream`, or anything like it."""

    def windows(self, after: int = -1) -> Iterable[Window]:
        """Read the windows that end above an SCN, in their order."""


class _Stop(Exception):
    pass


class _Failed(Exception):
    def __init__(self, answer: Answer) -> None:
        self.result = answer.result
        self.error = answer.error or RuntimeError("A callback failed.")
        super().__init__(answer)


@takes()
def dispatch(
    stream: Windows,
    consumers: Consumer | Sequence[Consumer | Sequence[Consumer]],
    *,
    checkpoints: Checkpoints | None = None,
    backoff: Backoff | None = None,
    checkpoint_every: float = 0.0,
    wait: Callable[[float], None] = time.sleep,
) -> Outcome:
    """
    Give the windows of a stream to consumers, on the driver, in bounded memory.

    Each window is start, then each source with its events, then end; all consumers have answered before the
    next step begins, and the events of a source are given out side by side to the members of a group.
    Windows without an event of these sources call nobody.

    Args:
        stream: Where the windows are from.
        consumers: One; or several, independent of each other; a list among them is a group, of which
            each event goes to one member.
        checkpoints: Where the dispatch goes on, and keeps how far it is; without it, it begins at the
            beginning.
        backoff: What happens after an error.  By default the window comes again until it is done, however
            often that is, after 0.1 seconds and then more, up to a minute; the cause of each rollback is
            logged as a warning.  `Backoff(retries=…)` sets an end.
        checkpoint_every: How many seconds after a checkpoint the next one is stored, at the end of a window;
            by default each window has one.  After a kill, or an end within a window, the windows since the
            last one come again.
        wait: What waits before a retry.

    Returns:
        How it ended.  An error in a callback of a window rolls back: `on_rollback` gets the SCN of the last
        start, and the windows come again from the last checkpoint on.  Where no retry is left, and after
        `ERROR_FATAL`, `on_error` is called and it is closed.  What `on_rollback`, `on_error` and
        `on_stop_consumption` answer or raise changes nothing, and is logged.

        By the text an exception of a consumer stops the loop, and retries are an option.  Here they are what
        happens if nothing else is asked for, as in the Databus client; `Backoff(retries=0)` stops.

    Raises:
        InvalidArgument: There is no consumer.
        BaseException: What the stream itself raises; and what a consumer raises that is no `Exception`, such
            as the `SystemExit` of `sys.exit()`, once all others have answered.

    Source:
        Databus, "Execution Model", and the state machine of its dispatcher.

    >>> from cdckit import databus
    >>> class Printer(databus.Consumer):
    ...     def on_end_data_event_sequence(self, end_scn):
    ...         print("window", end_scn)
    ...     def on_data_event(self, event):
    ...         print(event.source.name, event.opcode, event.value())
    ...         return True
    >>> dispatch(databus.EventStream(events, [planes, flights]), Printer()).state
    planes UPSERT {'tail': 'N12', 'seats': 55}
    flights UPSERT {'number': 200, 'seats': 10}
    window 5
    flights UPSERT {'number': 200, 'seats': 10}
    window 6
    'finished'
    """
    with closing(ConsumerGroups(_groups(consumers))) as groups:
        return _Dispatch(stream, groups, checkpoints, backoff or Backoff(), checkpoint_every, wait).run()


def _groups(consumers: Consumer | Sequence[Consumer | Sequence[Consumer]]) -> list[Sequence[Consumer]]:
    entries = [consumers] if isinstance(consumers, Consumer) else list(consumers)
    groups: list[Sequence[Any]] = [group if isinstance(group, list | tuple) else [group] for group in entries]
    members = [member for group in groups for member in group]
    if not groups or not all(groups) or not all(isinstance(member, Consumer) for member in members):
        raise InvalidArgument(None, "consumers", "one Consumer or more, or groups of them", consumers)
    return groups


@dataclass
class _Dispatch:
    stream: Windows
    groups: ConsumerGroups
    checkpoints: Checkpoints | None
    backoff: Backoff
    checkpoint_every: float
    wait: Callable[[float], None]
    checkpoint: int = NOTHING
    unstored: int | None = None
    """The end of the last window that was delivered whole, until a checkpoint of it is offered."""
    stored_at: float = -math.inf
    windows: int = 0
    attempts: int = 0
    started: int = NOTHING
    """The start of the last window that was begun."""
    furthest: int = NOTHING
    """The greatest end of a window that was delivered whole."""

    def run(self) -> Outcome:
        if self.checkpoints is not None:
            self.checkpoint = self.checkpoints.load()
        answer = self.groups.call_all("on_start_consumption")
        if not answer.is_success:
            _LOG.warning("The consumption does not start: %s", answer.error, exc_info=answer.error)
            return self._end(STOPPED, answer.error)
        while True:
            try:
                for window in self.stream.windows(self.checkpoint):
                    self._deliver(window)
                self._offer_checkpoint()
                return self._end(FINISHED)
            except _Stop:
                return self._end(STOPPED)
            except _Failed as failure:
                if not self._roll_back(failure):
                    self._try_call("on_error", failure.error)
                    return self._end(CLOSED, failure.error)

    def _deliver(self, window: Window) -> None:
        self.started = window.start_scn
        self._call("on_start_data_event_sequence", window.start_scn)
        self._deliver_sources(window)
        if window.end_scn is None:
            self._try_call("on_rollback", window.start_scn)
            return
        self._call("on_end_data_event_sequence", window.end_scn)
        self.unstored = window.end_scn
        if not self.checkpoint_every or time.monotonic() - self.stored_at >= self.checkpoint_every:
            self._offer_checkpoint()
        self.windows += 1
        # What was done before may come again in each round: that is no progress.
        if window.end_scn > self.furthest:
            self.furthest, self.attempts = window.end_scn, 0

    def _deliver_sources(self, window: Window) -> None:
        current = None
        for source, events in window.runs():
            if current is not source:
                if current is not None:
                    self._call("on_end_source", current)
                self._call("on_start_source", source)
                current = source
            self._require_success(self.groups.deliver(events))
        # A window that is rolled back is cut off within its last source.
        if current is not None and window.end_scn is not None:
            self._call("on_end_source", current)

    def _offer_checkpoint(self) -> None:
        """Store the end of the last window that was delivered whole, if the consumers let it."""
        scn, self.unstored = self.unstored, None
        if scn is None:
            return
        self.stored_at = time.monotonic()
        # A relay begins with windows of SCN 0.
        if scn <= 0:
            return
        answer = self.groups.call_all("on_checkpoint", scn)
        if not answer.is_success or answer.result == Result.SKIP_CHECKPOINT:
            _LOG.info("No checkpoint at SCN %s: a consumer answered %s.", scn, answer)
            return
        if self.checkpoints is not None:
            self.checkpoints.store(scn)
        self.checkpoint = scn

    def _roll_back(self, failure: _Failed) -> bool:
        """Roll the window back, and tell whether it goes on from the last checkpoint."""
        most = self.backoff.retries
        if failure.result >= Result.ERROR_FATAL or (most is not None and self.attempts >= most):
            return False
        self.attempts += 1
        delay = self.backoff.delay_before(self.attempts)
        _LOG.warning(
            "An error in the window that starts at SCN %s: it comes again in %.1f s, retry %s of %s.",
            self.started, delay, self.attempts, most if most is not None else "any number",
            exc_info=failure.error,
        )  # fmt: skip
        self._try_call("on_rollback", self.started)
        # Not before: a consumer that saves what it has at a checkpoint would save half a window.
        self._offer_checkpoint()
        self.wait(delay)
        return True

    def _end(self, state: str, why: Exception | None = None) -> Outcome:
        self._try_call("on_stop_consumption")
        return Outcome(state, self.checkpoint, self.windows, why)

    def _call(self, callback: str, *about: object) -> None:
        self._require_success(self.groups.call_all(callback, *about))

    def _require_success(self, answer: Answer) -> None:
        if answer.result == STOP:
            raise _Stop
        if not answer.is_success:
            raise _Failed(answer)

    def _try_call(self, callback: str, *about: object) -> None:
        answer = self.groups.call_all(callback, *about)
        if not answer.is_success:
            _LOG.warning("%s failed, which changes nothing: %s.", callback, answer.error)
