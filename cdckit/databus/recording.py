"""A listener that writes down how it is called: to look at a dispatch, or to test one."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from cdckit.databus.consumers import Consumer, Result
from cdckit.databus.event_sources import Source
from cdckit.databus.event_views import Event

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
