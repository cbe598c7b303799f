"""Consumers: what a listener is, the events it is given, its thread, and one that writes down its calls."""

from __future__ import annotations

import io
import json
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import IntEnum
from functools import cached_property
from itertools import repeat
from typing import Any, NamedTuple, TypeVar, overload

import fastavro
import numpy as np
import pyarrow as pa

from cdckit.databus.event_values import Source
from cdckit.parts import avro
from cdckit.parts.instants import EPOCH


class EventBatch:
    """A batch of events, each column of which becomes Python's objects when it is first asked for."""

    def __init__(self, batch: pa.RecordBatch, sources: Mapping[int, Source]) -> None:
        self.batch, self._sources = batch, sources

    def numbers(self, name: str) -> Any:
        """A column of numbers without nulls, as NumPy has it."""
        return np.asarray(self.batch.column(name))

    def _python_values(self, name: str) -> list[Any]:
        found: list[Any] = self.batch.column(name).to_pylist()
        return found

    @cached_property
    def sources(self) -> list[Source]:
        """The source of each event."""
        return [self._sources[number] for number in self._python_values("source_id")]

    @cached_property
    def scns(self) -> list[int]:
        """The SCN of each."""
        return self._python_values("scn")

    @cached_property
    def opcodes(self) -> list[str]:
        """The opcode of each."""
        return self._python_values("opcode")

    @cached_property
    def keys(self) -> list[int | str]:
        """The key of each, a number or a text."""
        numbers = self._python_values("long_key")
        if self.batch.column("string_key").null_count == len(numbers):
            return numbers
        texts = self._python_values("string_key")
        return [text if number is None else number for number, text in zip(numbers, texts, strict=True)]

    @cached_property
    def micros(self) -> list[int]:
        """When the source made each change, in microseconds since 1970."""
        found: list[int] = self.batch.column("event_timestamp").cast(pa.int64()).to_pylist()
        return found

    @cached_property
    def schema_ids(self) -> list[str | None]:
        """The id of the schema of each value."""
        return self._python_values("schema_id")

    @cached_property
    def payloads(self) -> list[bytes | None]:
        """The Avro datum of each value."""
        return self._python_values("payload")


class Event:
    """
    One data event, as a consumer is given it: a view, made of its batch when something is asked of it.

    Attributes:
        source: The source it is of.
        scn: Its SCN.
        opcode: UPSERT or DELETE.
        key: A number or a text.
        micros: When the source made the change, in microseconds since 1970.
        schema_id: The id of the schema of its value.
        payload: The Avro datum of its value; None for a delete without one.

    >>> from cdckit import databus
    >>> stream = databus.EventStream(events, databus.Subscription([planes]))
    >>> [event] = [each for window in stream.windows() for _, given in window.runs() for each in given]
    >>> event.scn, event.opcode, event.key, event.value()
    (5, 'UPSERT', 12, {'tail': 'N12', 'seats': 55})
    """

    __slots__ = ("_row", "_rows")

    def __init__(self, rows: EventBatch, row: int) -> None:
        self._rows, self._row = rows, row

    @property
    def source(self) -> Source:
        return self._rows.sources[self._row]

    @property
    def scn(self) -> int:
        return self._rows.scns[self._row]

    @property
    def opcode(self) -> str:
        return self._rows.opcodes[self._row]

    @property
    def key(self) -> int | str:
        return self._rows.keys[self._row]

    @property
    def micros(self) -> int:
        return self._rows.micros[self._row]

    @property
    def schema_id(self) -> str | None:
        return self._rows.schema_ids[self._row]

    @property
    def payload(self) -> bytes | None:
        return self._rows.payloads[self._row]

    @property
    def timestamp(self) -> datetime:
        """When the source made the change."""
        return EPOCH + timedelta(microseconds=self.micros)

    def value(self) -> dict[str, Any] | None:
        """
        The typed value, read now; None for a delete without one.

        Names and types are those of the schema of the event; logical types are Python's.
        """
        payload, schema_id = self.payload, self.schema_id
        if payload is None or schema_id is None:
            return None
        reader = _reader(self.source.texts[schema_id])
        found: Any = fastavro.schemaless_reader(io.BytesIO(payload), reader)
        return dict(found)

    def __repr__(self) -> str:
        return f"Event(source={self.source.name!r}, scn={self.scn}, opcode={self.opcode!r}, key={self.key!r})"


class Events(Sequence[Event]):
    """
    Events of one source and one window that stand side by side: as many as came together.

    Going through them makes an `Event` of each; `batch` has them as Arrow columns, and makes none.

    >>> from cdckit import databus
    >>> first = next(databus.EventStream(events, databus.Subscription([planes])).windows())
    >>> [(source.name, len(given), given[0].scn) for source, given in first.runs()]
    [('planes', 1, 5)]
    """

    __slots__ = ("_places", "_rows")

    def __init__(self, rows: EventBatch, places: range) -> None:
        self._rows, self._places = rows, places

    @property
    def source(self) -> Source:
        """The source that they are of."""
        return self._rows.sources[self._places[0]]

    @property
    def batch(self) -> pa.RecordBatch:
        """The events as Arrow columns: `scn`, `opcode`, `long_key`, `string_key`, `payload` and others."""
        places = self._places
        if places.step == 1:
            return self._rows.batch.slice(places.start, len(places))
        return self._rows.batch.take(pa.array(places, pa.int64()))

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Event]:
        return map(Event, repeat(self._rows), self._places)

    @overload
    def __getitem__(self, which: int) -> Event: ...
    @overload
    def __getitem__(self, which: slice) -> Events: ...
    def __getitem__(self, which: int | slice) -> Event | Events:
        if isinstance(which, slice):
            return Events(self._rows, self._places[which])
        return Event(self._rows, self._places[which])


def _reader(text: str) -> Any:
    if text not in _READERS:
        avro.parse_schema(text)
        _READERS[text] = fastavro.parse_schema(json.loads(text))
    return _READERS[text]


_READERS: dict[str, Any] = {}


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


AnswerType = TypeVar("AnswerType")

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
    >>> print(*recorder.names, sep="; ")
    start; start 5; start planes; planes 12 at 5; end planes; end 5; checkpoint 5; stop
    """

    def __init__(self, name: str, consumer: Consumer | None = None, *, takes: float = 0.0) -> None:
        self.name, self.takes, self.calls = name, takes, list[Call]()
        self._consumer = consumer or _Silent()

    @property
    def names(self) -> list[str]:
        """What was called, in its order."""
        return [what for _, what, _, _ in self.calls]

    def _note(self, what: str, call: Callable[[], AnswerType]) -> AnswerType:
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
        callback = self._consumer.on_start_data_event_sequence
        return self._note(f"start {start_scn}", lambda: callback(start_scn))

    def on_end_data_event_sequence(self, end_scn: int) -> Result | None:
        callback = self._consumer.on_end_data_event_sequence
        return self._note(f"end {end_scn}", lambda: callback(end_scn))

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


Delivery = Callable[[Consumer, "CallPermit | None"], Answer]
_Task = tuple[Delivery, "queue.SimpleQueue[tuple[_ConsumerThread, Answer]]"]


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
        given: list[tuple[_ConsumerThread, Delivery]] = []
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

    def _await_answers(self, given: Sequence[tuple[_ConsumerThread, Delivery]]) -> Answer:
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


def _delivery(events: Events) -> Delivery:
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
            result = _data_answer(answer, event)
        except Exception as error:
            return Answer(Result.ERROR, error)
        if not result.is_success:
            return result
        greatest = max(greatest, result.result)
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
