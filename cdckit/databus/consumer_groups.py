"""Groups of consumers that are called together: barriers, the share of each, and what their answers mean."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, NamedTuple

import numpy as np

from cdckit.databus.consumers import Consumer, Event, Result

STOP = 1000
"""Above all results: a consumer answered False to a data event."""


class Answer(NamedTuple):
    """What callbacks answered: the greatest `Result`, or `STOP`; and why it is an error, if it is one."""

    result: int = Result.SUCCESS
    error: Exception | None = None

    @property
    def is_success(self) -> bool:
        return self.result < Result.ERROR


_SUCCESS = Answer()
_ON_DATA = "on_data_event"


class ConsumerGroups:
    """
    Groups of consumers that are called together.

    Args:
        groups: Every consumer gets all callbacks about windows and sources; each data event goes to one
            member of each group.

    Each consumer is called in a thread of its own, a single one in that of the dispatch.  What is no
    `Exception`, such as the `SystemExit` of `sys.exit()`, is raised in the dispatch once all have answered.
    """

    def __init__(self, groups: Sequence[Sequence[Consumer]]) -> None:
        self._alone = groups[0][0] if [len(group) for group in groups] == [1] else None
        together = groups if self._alone is None else []
        self._groups = [[(consumer, ThreadPoolExecutor(1)) for consumer in group] for group in together]
        self._delivered = 0

    def call_all(self, callback: str, *about: Any) -> Answer:
        """Call every consumer, and wait for all: a barrier before and after."""
        if self._alone is not None:
            return _call(self._alone, callback, *about)
        members = [member for group in self._groups for member in group]
        return _greatest([thread.submit(_call, consumer, callback, *about) for consumer, thread in members])

    def deliver(self, events: Sequence[Event]) -> Answer:
        """Give each event to one member of each group, in turn; the members do their shares side by side."""
        if self._alone is not None:
            return _deliver(self._alone, events)
        first = self._delivered
        self._delivered += len(events)
        return _greatest(
            [
                thread.submit(_deliver, consumer, share)
                for group in self._groups
                for place, (consumer, thread) in enumerate(group)
                if (share := events[(place - first) % len(group) :: len(group)])
            ]
        )

    def close(self) -> None:
        """Let the threads end."""
        for group in self._groups:
            for _, thread in group:
                thread.shutdown(wait=False)


def _greatest(answers: Sequence[Future[Answer]]) -> Answer:
    wait(answers)
    return max((answer.result() for answer in answers), key=lambda answer: answer.result)


def _deliver(consumer: Consumer, events: Sequence[Event]) -> Answer:
    """Give the events to a consumer, one after the other; the first failure ends it."""
    greatest = _SUCCESS
    for event in events:
        answer = _call(consumer, _ON_DATA, event)
        if not answer.is_success:
            return answer
        greatest = max(greatest, answer, key=lambda answer: answer.result)
    return greatest


def _call(consumer: Consumer, callback: str, *about: Any) -> Answer:
    """Call a consumer, and read its answer; an exception is an error."""
    try:
        answer = getattr(consumer, callback)(*about)
        if answer is True or answer is Result.SUCCESS:
            return _SUCCESS
        if callback == _ON_DATA:
            return _data_answer(answer, *about)
        # Nothing is success, as an answer about a window or a source.
        return _SUCCESS if answer is None else _read_result(answer, callback)
    except Exception as error:
        return Answer(Result.ERROR, error)


def _data_answer(answer: object, event: Event) -> Answer:
    """Read an answer to data: False ends the loop, and nothing at all is an error."""
    if isinstance(answer, bool | np.bool_):
        return _SUCCESS if answer else Answer(STOP)
    if answer is None:
        raise RuntimeError(f"{_ON_DATA} answered nothing to {event}.")
    return _read_result(answer, _ON_DATA, f" to {event}")


def _read_result(answer: object, callback: str, recipient: str = "") -> Answer:
    if isinstance(answer, bool) or answer not in list(Result):
        raise TypeError(f"{callback} must answer a Result, not {answer!r}{recipient}.")
    result = Result(answer)  # type: ignore[arg-type]
    error = None if result.is_success else RuntimeError(f"{callback} answered {result.name}{recipient}.")
    return Answer(result, error)
