"""Threads for consumers: each has one of its own, and a callback that takes too long is an error."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from cdckit.databus.consumers import Consumer, Events, Result

STOP = 1000
"""Above all results: a consumer answered False to a data event."""
_LEAVE = 2000
"""Above that: a consumer ends the program, as `sys.exit()` does."""


class Answer(NamedTuple):
    """What callbacks answered: the greatest `Result`, or `STOP`; and why it is an error, if it is one."""

    result: int = Result.SUCCESS
    error: BaseException | None = None

    @property
    def is_success(self) -> bool:
        return self.result < Result.ERROR


_SUCCESS = Answer()


class _PermitRevoked(Exception):
    """The ticket of this thread is void."""


class CallPermit:
    """
    The right of one thread to call a consumer, to be shown before each callback.

    It is void once a callback took too long, and when the dispatch is over.  From then on the thread calls
    nobody any more: all that may be left of it is the one callback that had begun.
    """

    def __init__(self) -> None:
        self._lock, self._void = threading.Lock(), False
        self._began: float | None = None

    def begin_callback(self) -> None:
        """A callback begins now; raises where none may begin any more."""
        with self._lock:
            if self._void:
                raise _PermitRevoked
            self._began = time.monotonic()

    def end_callback(self) -> None:
        """No callback runs until the next begins: to wait for a thread takes none of its time."""
        with self._lock:
            self._began = None

    def revoke(self, after: float | None = None) -> bool:
        """Make it void, or only if the callback that runs began so many seconds ago; whether it is void."""
        with self._lock:
            if after is None or (self._began is not None and time.monotonic() - self._began >= after):
                self._void = True
            return self._void


Call = Callable[[Consumer, "CallPermit | None"], Answer]
_Task = tuple[Call, "queue.SimpleQueue[tuple[_ConsumerThread, Answer]]"]


class ConsumerGroups:
    """
    Groups of consumers that are called together.

    Args:
        groups: Every consumer gets all callbacks about windows and sources; each data event goes to one
            member of each group.
        time_budget: How many seconds one callback may take; without one no time is taken.

    A single consumer without a time budget is called in the thread of the dispatch itself.  What is no
    `Exception`, such as the `SystemExit` of `sys.exit()`, is raised from there in any case.
    """

    def __init__(self, groups: Sequence[Sequence[Consumer]], time_budget: float | None = None) -> None:
        self.time_budget = time_budget
        alone = time_budget is None and len(groups) == 1 and len(groups[0]) == 1
        self._alone = groups[0][0] if alone else None
        self._groups = [] if alone else [[_ConsumerThread(each) for each in group] for group in groups]

    def call_all(self, call: Callable[[Consumer], object]) -> Answer:
        """Call every consumer, and wait for all: a barrier before and after."""
        if self._alone is not None:
            return _call_back(call, self._alone, None)
        members = [member for group in self._groups for member in group]
        return self._await_answers(
            [(member, lambda consumer, ticket: _call_back(call, consumer, ticket)) for member in members]
        )

    def deliver(self, events: Events) -> Answer:
        """Give each event to one member of each group; the members do their shares side by side."""
        if self._alone is not None:
            return _deliver(self._alone, events, None)
        given: list[tuple[_ConsumerThread, Call]] = []
        for group in self._groups:
            for place, member in enumerate(group):
                if share := events[place :: len(group)]:
                    given.append((member, _delivery(share)))
        return self._await_answers(given)

    def close(self) -> None:
        """Let the threads end; one that hangs is left behind, and calls nobody any more."""
        for group in self._groups:
            for member in group:
                member.dismiss()

    def _await_answers(self, given: Sequence[tuple[_ConsumerThread, Call]]) -> Answer:
        answers: queue.SimpleQueue[tuple[_ConsumerThread, Answer]] = queue.SimpleQueue()
        for member, call in given:
            member.ticket.end_callback()
            member.calls.put((call, answers))
        waiting = {member for member, _ in given}
        greatest = Answer()
        every = None if self.time_budget is None else self.time_budget / 4
        while waiting:
            found: list[tuple[_ConsumerThread, Answer]] = []
            try:
                found.append(answers.get(timeout=every))
            except queue.Empty:
                assert self.time_budget is not None
                late = [member for member in waiting if member.ticket.revoke(self.time_budget)]
                found = [(member, member.replace_thread(self.time_budget)) for member in late]
            for member, answer in found:
                waiting.discard(member)
                greatest = max(greatest, answer, key=lambda each: each.result)
        if greatest.result == _LEAVE and greatest.error is not None:
            raise greatest.error
        return greatest


class _ConsumerThread:
    """A consumer with a thread of its own."""

    ticket: CallPermit
    calls: queue.SimpleQueue[_Task | None]

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self._start()

    def replace_thread(self, seconds: float) -> Answer:
        """A new thread in the place of one that hangs: it cannot be ended, and is not heard any more."""
        self.dismiss()
        self._start()
        return Answer(Result.ERROR, TimeoutError(f"A callback took more than {seconds} seconds."))

    def dismiss(self) -> None:
        """The thread calls nobody any more, and ends as soon as it can."""
        self.ticket.revoke()
        self.calls.put(None)

    def _start(self) -> None:
        self.ticket, self.calls = CallPermit(), queue.SimpleQueue()
        threading.Thread(target=self._work, args=(self.calls, self.ticket), daemon=True).start()

    def _work(self, calls: queue.SimpleQueue[_Task | None], ticket: CallPermit) -> None:
        while (given := calls.get()) is not None:
            call, answers = given
            try:
                answer = call(self.consumer, ticket)
            except _PermitRevoked:
                return
            except BaseException as error:
                answer = Answer(_LEAVE, error)
            answers.put((self, answer))


def _delivery(events: Events) -> Call:
    return lambda consumer, ticket: _deliver(consumer, events, ticket)


def _deliver(consumer: Consumer, events: Events, ticket: CallPermit | None) -> Answer:
    """Give the events to a consumer, one after the other or all at once; the first failure ends it."""
    if _overrides(consumer.on_data_events, Consumer.on_data_events):
        if ticket is not None:
            ticket.begin_callback()
        try:
            return _data_answer(consumer.on_data_events(events), events[0])
        except Exception as error:
            return Answer(Result.ERROR, error)
    if not _overrides(consumer.on_data_event, Consumer.on_data_event):
        return _SUCCESS  # No event is made that nobody looks at.
    greatest: int = Result.SUCCESS
    tell = consumer.on_data_event
    for event in events:
        if ticket is not None:
            ticket.begin_callback()
        try:
            answer = tell(event)
            if answer is True or answer is Result.SUCCESS:
                continue
            said = _data_answer(answer, event)
        except Exception as error:
            return Answer(Result.ERROR, error)
        if not said.is_success:
            return said
        greatest = max(greatest, said.result)
    return _SUCCESS if greatest == Result.SUCCESS else Answer(greatest)


def _overrides(callback: object, default: object) -> bool:
    return getattr(callback, "__func__", None) is not default


def _data_answer(answer: object, event: object) -> Answer:
    """What an answer to data means: False ends the loop, and nothing at all is an error."""
    if isinstance(answer, bool | np.bool_):
        return _SUCCESS if answer else Answer(STOP)
    if answer is None:
        return Answer(Result.ERROR, RuntimeError(f"on_data_event answered nothing to {event}."))
    return _require_result(answer, "on_data_event", f" to {event}")


def _call_back(call: Callable[[Consumer], object], consumer: Consumer, ticket: CallPermit | None) -> Answer:
    """What a callback about a window or a source answers; nothing is success there."""
    if ticket is not None:
        ticket.begin_callback()
    try:
        answer = call(consumer)
        if answer is None or answer is True or answer is Result.SUCCESS:
            return _SUCCESS
        return _require_result(answer, "A callback")
    except Exception as error:
        return Answer(Result.ERROR, error)


def _require_result(answer: object, callback: str, to: str = "") -> Answer:
    """An answer that must be a `Result`."""
    if isinstance(answer, bool) or answer not in list(Result):
        return Answer(Result.ERROR, TypeError(f"{callback} must answer a Result, not {answer!r}{to}."))
    result = Result(answer)  # type: ignore[arg-type]
    return Answer(
        result, None if result.is_success else RuntimeError(f"{callback} answered {result.name}{to}.")
    )
