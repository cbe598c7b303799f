"""Consumers: what a listener is, what it answers, and one that writes down how it is called."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import IntEnum
from typing import TypeVar

from cdckit.databus.event_sources import Source
from cdckit.databus.event_views import Event, Events


class Result(IntEnum):
    """
    What a callback answers; of several answers the greatest counts.

    >>> max(Result.SUCCESS, Result.ERROR).is_success, Result.CHECKPOINT.is_success
    (False, True)
    """

    SUCCESS = 0
    CHECKPOINT = 100
    SKIP_CHECKPOINT = 150
    ERROR = 200
    ERROR_FATAL = 300

    @property
    def is_success(self) -> bool:
        return self < Result.ERROR


class Consumer:
    """
    A listener: override what you need.

    A callback answers with a `Result`.  One about a window, a source or the consumption may answer nothing,
    which is success, as their draft returns nothing; `on_data_event` must answer: with a `Result`, with True
    for success, or with False, which ends the consumption.  Nothing at all from `on_data_event`, an exception
    and an exceeded time are errors.

    Source:
        Databus, "DatabusEventListener".

    >>> class Silent(Consumer):
    ...     def on_data_event(self, event):
    ...         return True
    >>> Silent().on_start_consumption()
    <Result.SUCCESS: 0>
    """

    def on_start_consumption(self) -> Result | None:
        """The consumption starts."""
        return Result.SUCCESS

    def on_stop_consumption(self) -> Result | None:
        """The consumption has ended, for whatever reason."""
        return Result.SUCCESS

    def on_start_data_event_sequence(self, start_scn: int) -> Result | None:
        """A window starts; this is the lowest SCN in it."""
        return Result.SUCCESS

    def on_end_data_event_sequence(self, end_scn: int) -> Result | None:
        """A window ends; this is the last SCN that it covers."""
        return Result.SUCCESS

    def on_rollback(self, start_scn: int) -> Result | None:
        """What came since the last start is void, and may come again, from this SCN or an earlier one."""
        return Result.SUCCESS

    def on_start_source(self, source: Source) -> Result | None:
        """The events of this source follow."""
        return Result.SUCCESS

    def on_end_source(self, source: Source) -> Result | None:
        """The events of this source are done, of this window."""
        return Result.SUCCESS

    def on_data_event(self, event: Event) -> Result | bool | None:
        """One event."""
        return Result.SUCCESS

    def on_data_events(self, events: Events) -> Result | bool | None:
        """
        Events of one source that came together, for a listener that takes Arrow columns (`events.batch`).

        By default each goes to `on_data_event`, which is not called if this is overridden.
        """
        raise NotImplementedError("It is called where it is overridden.")

    def on_checkpoint(self, scn: int) -> Result | None:
        """A checkpoint is about to be stored; `SKIP_CHECKPOINT`, or an error, prevents it."""
        return Result.SUCCESS

    def on_error(self, error: Exception) -> Result | None:
        """Nothing more will come: all that could be tried failed."""
        return Result.SUCCESS


Answered = TypeVar("Answered")

Call = tuple[str, str, float, float]
"""The name of the listener, what was called, and when that began and ended, in seconds by one clock."""


class Recorder(Consumer):
    """
    Writes down each call, and hands it on to another consumer, if there is one.

    Args:
        name: How the listener is called.
        consumer: Who answers; without it, every answer is success.
        takes: How many seconds each call takes at least, so that threads have a chance to alternate.

    Attributes:
        calls: The calls in the order in which they ended, which `pictures.callbacks` draws.

    >>> from cdckit import databus
    >>> recorder = Recorder("one")
    >>> stream = databus.EventStream(events, databus.Subscription([planes]))
    >>> outcome = databus.dispatch(stream, recorder)
    >>> print(*recorder.said, sep="; ")
    start; start 5; start planes; planes 12 at 5; end planes; end 5; checkpoint 5; stop
    """

    def __init__(self, name: str, consumer: Consumer | None = None, *, takes: float = 0.0) -> None:
        self.name, self.takes, self.calls = name, takes, list[Call]()
        self._consumer = consumer or _Silent()

    @property
    def said(self) -> list[str]:
        """What was called, in its order."""
        return [what for _, what, _, _ in self.calls]

    def _note(self, what: str, call: Callable[[], Answered]) -> Answered:
        begin = time.monotonic()
        try:
            if self.takes:
                time.sleep(self.takes)
            return call()
        finally:
            self.calls.append((self.name, what, begin, time.monotonic()))

    def on_start_consumption(self) -> Result | None:
        return self._note("start", self._consumer.on_start_consumption)

    def on_stop_consumption(self) -> Result | None:
        return self._note("stop", self._consumer.on_stop_consumption)

    def on_start_data_event_sequence(self, start_scn: int) -> Result | None:
        told = self._consumer.on_start_data_event_sequence
        return self._note(f"start {start_scn}", lambda: told(start_scn))

    def on_end_data_event_sequence(self, end_scn: int) -> Result | None:
        told = self._consumer.on_end_data_event_sequence
        return self._note(f"end {end_scn}", lambda: told(end_scn))

    def on_rollback(self, start_scn: int) -> Result | None:
        return self._note(f"rollback {start_scn}", lambda: self._consumer.on_rollback(start_scn))

    def on_start_source(self, source: Source) -> Result | None:
        return self._note(f"start {source.name}", lambda: self._consumer.on_start_source(source))

    def on_end_source(self, source: Source) -> Result | None:
        return self._note(f"end {source.name}", lambda: self._consumer.on_end_source(source))

    def on_data_event(self, event: Event) -> Result | bool | None:
        what = f"{event.source.name} {event.key} at {event.scn}"
        return self._note(what, lambda: self._consumer.on_data_event(event))

    def on_checkpoint(self, scn: int) -> Result | None:
        return self._note(f"checkpoint {scn}", lambda: self._consumer.on_checkpoint(scn))

    def on_error(self, error: Exception) -> Result | None:
        return self._note(f"error {error}", lambda: self._consumer.on_error(error))


class _Silent(Consumer):
    """Answers everything with success."""
