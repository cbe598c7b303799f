"""Events as consumers are given them: views of rows of a batch, of which only what is asked for is made."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from itertools import repeat
from typing import Any, overload

import fastavro
import numpy as np
import pyarrow as pa

from cdckit.databus.event_sources import Source
from cdckit.parts import avro
from cdckit.parts.instants import EPOCH


class Rows:
    """A batch of events, each column of which becomes Python's objects when it is first asked for."""

    def __init__(self, batch: pa.RecordBatch, sources: Mapping[int, Source]) -> None:
        self.batch, self._sources = batch, sources

    def numbers(self, name: str) -> Any:
        """A column of numbers without nulls, as NumPy has it."""
        return np.asarray(self.batch.column(name))

    def _listed(self, name: str) -> list[Any]:
        found: list[Any] = self.batch.column(name).to_pylist()
        return found

    @cached_property
    def sources(self) -> list[Source]:
        """The source of each event."""
        return [self._sources[number] for number in self._listed("source_id")]

    @cached_property
    def scns(self) -> list[int]:
        """The SCN of each."""
        return self._listed("scn")

    @cached_property
    def opcodes(self) -> list[str]:
        """The opcode of each."""
        return self._listed("opcode")

    @cached_property
    def keys(self) -> list[int | str]:
        """The key of each, a number or a text."""
        numbers = self._listed("long_key")
        if self.batch.column("string_key").null_count == len(numbers):
            return numbers
        texts = self._listed("string_key")
        return [text if number is None else number for number, text in zip(numbers, texts, strict=True)]

    @cached_property
    def micros(self) -> list[int]:
        """When the source made each change, in microseconds since 1970."""
        found: list[int] = self.batch.column("event_timestamp").cast(pa.int64()).to_pylist()
        return found

    @cached_property
    def schema_ids(self) -> list[str | None]:
        """The id of the schema of each value."""
        return self._listed("schema_id")

    @cached_property
    def payloads(self) -> list[bytes | None]:
        """The Avro datum of each value."""
        return self._listed("payload")


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

    def __init__(self, rows: Rows, row: int) -> None:
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

    def __init__(self, rows: Rows, places: range) -> None:
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
