"""Dispatch: consumers called in the order of Databus, window by window, with retries and checkpoints."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

from cdckit.databus.checkpoints import SNAPSHOT, Checkpoint, Checkpoints
from cdckit.databus.consumers import STOP, Answer, Consumer, ConsumerGroups, Result
from cdckit.databus.event_stream import Window
from cdckit.databus.event_values import Source
from cdckit.errors import InvalidArgument

_LOG = logging.getLogger(__name__)

FINISHED, STOPPED, CLOSED = "finished", "stopped", "closed"


@dataclass(frozen=True)
class Backoff:
    """
    How often, and after which delays, a dispatch goes on from the last checkpoint after an error.

    Args:
        retries: How many times in a row; None for any number.  A window that is done begins a new count.
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
        """The delay before this attempt; the first is 1."""
        return min(self.first * self.factor ** min(attempt - 1, 1000), self.longest)


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
    >>> outcome.state, outcome.windows, outcome.checkpoint.consumed_scn, outcome.error
    ('finished', 2, 6, None)
    """

    state: str
    checkpoint: Checkpoint
    windows: int
    error: Exception | None


class Windows(Protocol):
    """What a dispatch takes its windows from: `EventStream`, `Relay.stream`, or anything like it."""

    def windows(self, after: int = -1) -> Iterable[Window]:
        """The windows that end above an SCN, in their order."""


@runtime_checkable
class Bootstrap(Protocol):
    """A stream that goes on from more than an SCN: `BootstrapStream`, or anything like it."""

    def windows_from(self, checkpoint: Checkpoint) -> Iterable[Window]:
        """The windows for a consumer that is where a checkpoint says, in their order."""


class _Stop(Exception):
    pass


class _Failed(Exception):
    def __init__(self, answer: Answer) -> None:
        self.result = answer.result
        self.error = (
            answer.error if isinstance(answer.error, Exception) else RuntimeError("A callback failed.")
        )
        super().__init__(answer)


def dispatch(
    stream: Windows,
    consumers: Consumer | Sequence[Consumer | Sequence[Consumer]],
    *,
    checkpoints: Checkpoints | None = None,
    backoff: Backoff | None = None,
    time_budget: float | None = None,
    checkpoint_after: int | None = None,
    checkpoint_every: float = 0.0,
    wait: Callable[[float], None] = time.sleep,
) -> Outcome:
    """
    Give the windows of a stream to consumers, on the driver, in bounded memory.

    Each window is start, then each source with its events, then end; all consumers have answered before the
    next step begins, and the events of a source are given out side by side to the members of a group.
    Windows in which a subscription leaves nothing call nobody.

    Args:
        stream: Where the windows are from.
        consumers: One; or several, independent of each other; a list among them is a group, of which
            each event goes to one member.
        checkpoints: Where the dispatch goes on, and keeps how far it is; without it, it begins at the
            beginning.
        backoff: What happens after an error.  By default the window comes again until it is done, however
            often that is, after 0.1 seconds and then more, up to a minute; the cause of each rollback is
            logged as a warning.  `Backoff(retries=…)` sets an end.
        time_budget: How many seconds a callback may take; a longer one is an error.  No program can end it,
            so it may still run while `on_rollback` is called; but nothing more is delivered to it from there.
        checkpoint_after: After so many events within a window a checkpoint is offered, and again after as
            many.  It says how far the window is; to go on from it is to begin that window again, or, of a
            snapshot, that source.
        checkpoint_every: How many seconds after a checkpoint the next one is stored, at the end of a window;
            by default each window has one.  After a kill, the windows since the last one come again.
        wait: What waits before a retry.

    Returns:
        How it ended.  An error in a callback of a window rolls back: `on_rollback` gets the SCN of the last
        start, and the windows come again from the last checkpoint on.  Where no retry is left, and after
        `ERROR_FATAL`, `on_error` is called and it is closed.  What `on_rollback`, `on_error` and
        `on_stop_consumption` answer or raise changes nothing, and is logged.

    Raises:
        InvalidArgument: There is no consumer, or *time_budget* or *checkpoint_after* is not above 0, or the
            checkpoint is in the middle of a snapshot, which *stream* does not take.
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
    >>> dispatch(databus.EventStream(events, databus.Subscription([planes, flights])), Printer()).state
    planes UPSERT {'tail': 'N12', 'seats': 55}
    flights UPSERT {'number': 200, 'seats': 10}
    window 5
    flights UPSERT {'number': 200, 'seats': 10}
    window 6
    'finished'
    """
    groups = _groups(consumers)
    for name, given in (("time_budget", time_budget), ("checkpoint_after", checkpoint_after)):
        if given is not None and given <= 0:
            raise InvalidArgument("dispatch", name, "above 0", given)
    with closing(ConsumerGroups(groups, time_budget)) as crew:
        run = _Dispatch(stream, crew, checkpoints, backoff or Backoff(), wait)
        run.checkpoint_after, run.checkpoint_every = checkpoint_after, checkpoint_every
        return run.run()


def _groups(consumers: Consumer | Sequence[Consumer | Sequence[Consumer]]) -> list[Sequence[Consumer]]:
    listed = [consumers] if isinstance(consumers, Consumer) else list(consumers)
    groups: list[Sequence[Any]] = [each if isinstance(each, list | tuple) else [each] for each in listed]
    members = [each for group in groups for each in group]
    if not groups or not all(groups) or not all(isinstance(each, Consumer) for each in members):
        raise InvalidArgument("dispatch", "consumers", "one Consumer or more, or groups of them", consumers)
    return groups


class _Dispatch:
    checkpoint_after: int | None = None
    checkpoint_every = 0.0

    def __init__(
        self,
        stream: Windows,
        crew: ConsumerGroups,
        checkpoints: Checkpoints | None,
        retries: Backoff,
        wait: Callable[[float], None],
    ) -> None:
        self.stream, self.crew, self.checkpoints, self.retries = stream, crew, checkpoints, retries
        self.wait = wait
        self.last = checkpoints.load() if checkpoints is not None else Checkpoint()
        if self.last.consumption_mode == SNAPSHOT and not isinstance(stream, Bootstrap):
            needed = "one that takes a snapshot, as Relay.bootstrap: the checkpoint is in the middle of one"
            raise InvalidArgument("dispatch", "stream", needed, stream)
        self.pending: tuple[int, Checkpoint] | None = None
        self.stored_at = -math.inf
        self.done = self.attempts = 0
        self.started: int | None = None

    def run(self) -> Outcome:
        if not self.crew.call_all(lambda each: each.on_start_consumption()).is_success:
            return self._end(STOPPED)
        while True:
            try:
                for window in self._windows():
                    self._deliver(window)
                return self._end(FINISHED)
            except _Stop:
                return self._end(STOPPED)
            except _Failed as failure:
                if not self._roll_back(failure):
                    return self._close(failure.error)

    def _windows(self) -> Iterable[Window]:
        if isinstance(self.stream, Bootstrap):
            return self.stream.windows_from(self.last)
        return self.stream.windows(self.last.consumed_scn)

    def _deliver(self, window: Window) -> None:
        self.started = window.start_scn
        self._require_success(
            self.crew.call_all(lambda each: each.on_start_data_event_sequence(window.start_scn))
        )
        for count in self._sources(window):
            if window.end_scn is not None:
                self._checkpoint(window.start_scn, window.checkpoint(self._delivered_scn(), count))
        if window.end_scn is None:
            self._log_failure(
                "on_rollback", self.crew.call_all(lambda each: each.on_rollback(window.start_scn))
            )
            return
        end = window.end_scn
        self._require_success(self.crew.call_all(lambda each: each.on_end_data_event_sequence(end)))
        self.pending = end, window.checkpoint(self._delivered_scn())
        if not self.checkpoint_every or time.monotonic() - self.stored_at >= self.checkpoint_every:
            self._checkpoint_pending()
        self.done, self.attempts, self.started = self.done + 1, 0, None

    def _sources(self, window: Window) -> Iterator[int]:
        """Give out the events; how many there were so far, each time that a checkpoint is due."""
        current = None
        count = since = 0
        for source, events in window.runs():
            if current is not source:
                if current is not None:
                    self._require_success(self.crew.call_all(_end_source(current)))
                self._require_success(self.crew.call_all(_start_source(source)))
                current = source
            size = self.checkpoint_after
            if size is None:
                self._require_success(self.crew.deliver(events))
                continue
            while events:
                some, events = events[: size - since], events[size - since :]
                self._require_success(self.crew.deliver(some))
                count, since = count + len(some), since + len(some)
                if since >= size:
                    yield count
                    since = 0
        # A window that is rolled back is cut off within its last source.
        if current is not None and window.end_scn is not None:
            self._require_success(self.crew.call_all(_end_source(current)))

    def _delivered_scn(self) -> int:
        """The SCN up to which all windows were delivered whole."""
        return (self.last if self.pending is None else self.pending[1]).consumed_scn

    def _checkpoint_pending(self) -> None:
        """Store the checkpoint of the last window that was delivered whole, if that is to be done."""
        pending, self.pending = self.pending, None
        if pending is not None:
            self._checkpoint(*pending)
            self.stored_at = time.monotonic()

    def _checkpoint(self, scn: int, checkpoint: Checkpoint) -> None:
        if checkpoint.window_scn <= 0:
            return
        answer = self.crew.call_all(lambda each: each.on_checkpoint(scn))
        if not answer.is_success or answer.result == Result.SKIP_CHECKPOINT:
            _LOG.info("No checkpoint at SCN %s: a consumer answered %s.", scn, answer)
            return
        if self.checkpoints is not None:
            self.checkpoints.store(checkpoint)
        self.last = checkpoint

    def _roll_back(self, failure: _Failed) -> bool:
        """Whether it goes on from the last checkpoint."""
        self._checkpoint_pending()
        most = self.retries.retries
        if failure.result >= Result.ERROR_FATAL or (most is not None and self.attempts >= most):
            return False
        self.attempts += 1
        start = self.started if self.started is not None else self.last.consumed_scn
        delay = self.retries.delay_before(self.attempts)
        _LOG.warning(
            "An error in the window that starts at SCN %s: it comes again in %.1f s, retry %s of %s.",
            start, delay, self.attempts, "any number" if most is None else most, exc_info=failure.error,
        )  # fmt: skip
        self._log_failure("on_rollback", self.crew.call_all(lambda each: each.on_rollback(start)))
        self.wait(delay)
        return True

    def _close(self, why: Exception) -> Outcome:
        self._log_failure("on_error", self.crew.call_all(lambda each: each.on_error(why)))
        return self._end(CLOSED, why)

    def _end(self, state: str, why: Exception | None = None) -> Outcome:
        self._checkpoint_pending()
        self._log_failure("on_stop_consumption", self.crew.call_all(lambda each: each.on_stop_consumption()))
        return Outcome(state, self.last, self.done, why)

    def _require_success(self, answer: Answer) -> None:
        if answer.result == STOP:
            raise _Stop
        if not answer.is_success:
            raise _Failed(answer)

    def _log_failure(self, name: str, answer: Answer) -> None:
        if not answer.is_success:
            _LOG.warning("%s failed, which changes nothing: %s.", name, answer.error)


def _start_source(source: Source) -> Callable[[Consumer], object]:
    return lambda each: each.on_start_source(source)


def _end_source(source: Source) -> Callable[[Consumer], object]:
    return lambda each: each.on_end_source(source)
