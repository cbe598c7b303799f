"""Consumers: what a listener is, the events that it is given, and what it may answer."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import IntEnum
from functools import cached_property
from itertools import repeat
from typing import Any, overload

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
    >>> stream = databus.EventStream(events, [planes])
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
    >>> first = next(databus.EventStream(events, [planes]).windows())
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
    for success, or with False, which ends the consumption.  Nothing at all from `on_data_event` and an
    exception are errors.

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
