"""Consumers: what a listener is, what it answers, and the events that it is given."""

from __future__ import annotations

import io
import json
from datetime import datetime, timedelta
from enum import IntEnum
from typing import Any, NamedTuple

import fastavro

from cdckit.databus.event_sources import Source
from cdckit.parts import avro
from cdckit.parts.instants import EPOCH


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


class Event(NamedTuple):
    """One data event, as a consumer is given it."""

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

    def value(self) -> dict[str, Any] | None:
        """
        The typed value, read now; None for a delete without one.

        Names and types are those of the schema of the event; logical types are Python's.
        """
        if self.payload is None or self.schema_id is None:
            return None
        found: Any = fastavro.schemaless_reader(
            io.BytesIO(self.payload), _reader(self.source.texts[self.schema_id])
        )
        return dict(found)


def _reader(text: str) -> Any:
    if text not in _READERS:
        avro.parse_schema(text)
        _READERS[text] = fastavro.parse_schema(json.loads(text))
    return _READERS[text]


_READERS: dict[str, Any] = {}


class Consumer:
    """
    A listener: override what you need.

    A callback answers with a `Result`.  One about a window, a source or the consumption may answer nothing,
    which is success, as their draft returns nothing; `on_data_event` must answer: with a `Result`, with True
    for success, or with False, which ends the consumption.  Nothing at all from `on_data_event`, an exception
    and an exceeded time are errors.

    Source:
        Databus, "DatabusEventListener".
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

    def on_checkpoint(self, scn: int) -> Result | None:
        """A checkpoint is about to be stored; `SKIP_CHECKPOINT`, or an error, prevents it."""
        return Result.SUCCESS

    def on_error(self, error: Exception) -> Result | None:
        """Nothing more will come: all that could be tried failed."""
        return Result.SUCCESS
