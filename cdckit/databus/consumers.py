"""Consumers: what a listener is, the events that it is given, and what it may answer."""

from __future__ import annotations

import io
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import IntEnum
from typing import Any

import fastavro

from cdckit.databus.sources import Source, fastavro_schema
from cdckit.parts.instants import EPOCH


@dataclass(frozen=True, slots=True)
class Event:
    """
    One data event, as a consumer is given it.

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
    >>> [event] = [event for window in stream.windows() for _, some in window.runs() for event in some]
    >>> event.scn, event.opcode, event.key, event.value()
    (5, 'UPSERT', 12, {'tail': 'N12', 'seats': 55})
    """

    source: Source
    scn: int
    opcode: str
    key: int | str
    micros: int
    schema_id: str | None
    payload: bytes | None

    @property
    def timestamp(self) -> datetime:
        """When the source made the change."""
        return EPOCH + timedelta(microseconds=self.micros)

    def value(self, schema: str | None = None) -> dict[str, Any] | None:
        """
        Read the typed value; None for a delete without one.

        Names and types are those of the schema of the event (`source.schemas[schema_id]`); logical types are
        Python's.

        Args:
            schema: An Avro schema of the listener's own, as JSON text: the value is resolved to it, by the
                rules of Avro, whichever version of the source's schema it was written with.

        Raises:
            SchemaRefused: *schema* is no schema that can be used.
            Exception: The value does not resolve to *schema*, or a date or time is none that Python has.
        """
        if self.payload is None or self.schema_id is None:
            return None
        written = fastavro_schema(self.source.texts[self.schema_id])
        read = None if schema is None else fastavro_schema(schema)
        value: Any = fastavro.schemaless_reader(io.BytesIO(self.payload), written, read)
        return dict(value)

    def __repr__(self) -> str:
        return f"Event(source={self.source.name!r}, scn={self.scn}, opcode={self.opcode!r}, key={self.key!r})"


class Result(IntEnum):
    """
    What a callback answers; of several answers the greatest counts.

    `CHECKPOINT` is a success as `SUCCESS` is, for listeners that were written for the callback API: a
    checkpoint is offered after windows anyway.

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
        """Prepare: the consumption starts."""
        return Result.SUCCESS

    def on_stop_consumption(self) -> Result | None:
        """Clean up: the consumption has ended, for whatever reason."""
        return Result.SUCCESS

    def on_start_data_event_sequence(self, start_scn: int) -> Result | None:
        """Begin a window; this is the lowest SCN in it."""
        return Result.SUCCESS

    def on_end_data_event_sequence(self, end_scn: int) -> Result | None:
        """End a window; this is the last SCN that it covers."""
        return Result.SUCCESS

    def on_rollback(self, start_scn: int) -> Result | None:
        """Undo what came since the last start: it may come again, from this SCN or an earlier one."""
        return Result.SUCCESS

    def on_start_source(self, source: Source) -> Result | None:
        """Begin a source: its events follow, each with the schema that its source has for its schema id."""
        return Result.SUCCESS

    def on_end_source(self, source: Source) -> Result | None:
        """End a source: its events of this window are done."""
        return Result.SUCCESS

    def on_data_event(self, event: Event) -> Result | bool | None:
        """Take one event."""
        return Result.SUCCESS

    def on_checkpoint(self, scn: int) -> Result | None:
        """Allow a checkpoint, which is about to be stored; `SKIP_CHECKPOINT`, or an error, prevents it."""
        return Result.SUCCESS

    def on_error(self, error: Exception) -> Result | None:
        """Note the error after which nothing more comes: all that could be tried failed."""
        return Result.SUCCESS
