"""Threads for consumers: each has one of its own, and a callback that takes too long is an error."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from cdckit.databus.consumers import Consumer, Result
from cdckit.databus.event_views import Events

STOP = 1000
"""Above all results: a consumer answered False to a data event."""


class Answer(NamedTuple):
    """What callbacks answered: the greatest `Result`, or `STOP`; and why it is an error, if it is one."""

    result: int = Result.SUCCESS
    why: Exception | None = None

    @property
    def is_success(self) -> bool:
        return self.result < Result.ERROR


_FINE = Answer()

Call = Callable[[Consumer, "Clock"], Answer]


class Clock:
    """When the callback began that runs now."""

    began = 0.0


class Crew:
    """
    Groups of consumers that are called together.

    Args:
        groups: Every consumer gets all callbacks about windows and sources; each data event goes to one
            member of each group.
        time_budget: How many seconds one callback may take; without one no time is taken.

    A single consumer without a time budget is called in the thread of the dispatch itself.
    """

    def __init__(self, groups: Sequence[Sequence[Consumer]], time_budget: float | None = None) -> None:
        self.time_budget = time_budget
        alone = time_budget is None and len(groups) == 1 and len(groups[0]) == 1
        self._alone = groups[0][0] if alone else None
        self._groups = [] if alone else [[_Member(each) for each in group] for group in groups]

    def all(self, call: Callable[[Consumer], object]) -> Answer:
        """Call every consumer, and wait for all: a barrier before and after."""
        if self._alone is not None:
            return _answered(call, self._alone)
        members = [member for group in self._groups for member in group]
        return self._waited([(member, lambda consumer, _: _answered(call, consumer)) for member in members])

    def events(self, events: Events) -> Answer:
        """Give each event to one member of each group; the members do their shares side by side."""
        if self._alone is not None:
            return _told(self._alone, events, None)
        given: list[tuple[_Member, Call]] = []
        for group in self._groups:
            for place, member in enumerate(group):
                if share := events[place :: len(group)]:
                    given.append((member, _teller(share)))
        return self._waited(given)

    def close(self) -> None:
        """Let the threads end; one that hangs is left behind."""
        for group in self._groups:
            for member in group:
                member.calls.put(None)

    def _waited(self, given: Sequence[tuple[_Member, Call]]) -> Answer:
        answers: queue.SimpleQueue[tuple[_Member, Answer]] = queue.SimpleQueue()
        for member, call in given:
            member.clock.began = time.monotonic()
            member.calls.put((call, answers))
        waiting = {member for member, _ in given}
        greatest = Answer()
        every = None if self.time_budget is None else self.time_budget / 4
        while waiting:
            found: list[tuple[_Member, Answer]] = []
            try:
                found.append(answers.get(timeout=every))
            except queue.Empty:
                found = [
                    (member, member.given_up(self.time_budget)) for member in waiting if self._is_late(member)
                ]
            for member, answer in found:
                waiting.discard(member)
                greatest = max(greatest, answer, key=lambda each: each.result)
        return greatest

    def _is_late(self, member: _Member) -> bool:
        return self.time_budget is not None and time.monotonic() - member.clock.began > self.time_budget


class _Member:
    """A consumer with a thread of its own."""

    clock: Clock
    calls: queue.SimpleQueue[tuple[Call, queue.SimpleQueue[tuple[_Member, Answer]]] | None]

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self._start()

    def given_up(self, seconds: float | None) -> Answer:
        """A new thread in the place of one that hangs: it cannot be ended, and is not heard any more."""
        self._start()
        return Answer(Result.ERROR, TimeoutError(f"A callback took more than {seconds} seconds."))

    def _start(self) -> None:
        self.clock, self.calls = Clock(), queue.SimpleQueue()
        threading.Thread(target=self._work, args=(self.calls, self.clock), daemon=True).start()

    def _work(
        self,
        calls: queue.SimpleQueue[tuple[Call, queue.SimpleQueue[tuple[_Member, Answer]]] | None],
        clock: Clock,
    ) -> None:
        while (given := calls.get()) is not None:
            call, answers = given
            answers.put((self, call(self.consumer, clock)))


def _teller(events: Events) -> Call:
    return lambda consumer, clock: _told(consumer, events, clock)


def _told(consumer: Consumer, events: Events, clock: Clock | None) -> Answer:
    """Give the events to a consumer, one after the other or all at once; the first failure ends it."""
    if _listens(consumer.on_data_events, Consumer.on_data_events):
        return _told_at_once(consumer, events)
    if not _listens(consumer.on_data_event, Consumer.on_data_event):
        return _FINE  # No event is made that nobody looks at.
    greatest: int = Result.SUCCESS
    tell = consumer.on_data_event
    for event in events:
        if clock is not None:
            clock.began = time.monotonic()
        try:
            answer = tell(event)
        except Exception as error:
            return Answer(Result.ERROR, error)
        if answer is True or answer is Result.SUCCESS:
            continue
        said = _said(answer, event)
        if not said.is_success:
            return said
        greatest = max(greatest, said.result)
    return _FINE if greatest == Result.SUCCESS else Answer(greatest)


def _listens(callback: object, default: object) -> bool:
    return getattr(callback, "__func__", None) is not default


def _told_at_once(consumer: Consumer, events: Events) -> Answer:
    try:
        return _said(consumer.on_data_events(events), events[0])
    except Exception as error:
        return Answer(Result.ERROR, error)


def _said(answer: Result | bool | None, event: object) -> Answer:
    """What an answer to data means: False ends the loop, and nothing at all is an error."""
    if answer is False:
        return Answer(STOP)
    if answer is None or answer >= Result.ERROR:
        said = "nothing" if answer is None else Result(answer).name
        why = RuntimeError(f"on_data_event answered {said} to {event}.")
        return Answer(Result.ERROR if answer is None else answer, why)
    return _FINE if answer is True else Answer(answer)


def _answered(call: Callable[[Consumer], object], consumer: Consumer) -> Answer:
    """What a callback about a window or a source answers; nothing is success there."""
    try:
        answer = call(consumer)
        if answer is None or answer is Result.SUCCESS:
            return _FINE
        result = Result(answer)  # type: ignore[arg-type]
    except Exception as error:
        return Answer(Result.ERROR, error)
    return Answer(result, None if result.is_success else RuntimeError(f"A callback answered {result.name}."))
