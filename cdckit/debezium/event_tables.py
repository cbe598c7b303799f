"""Events of batches: of records, as their producer's reader makes them, or of a table of events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa

from cdckit.debezium.connect_values import UNTYPED
from cdckit.debezium.envelopes import read_records
from cdckit.debezium.events import EVENT_TYPES, Event, Kind, Reader, is_of_table, records_of, table_name
from cdckit.debezium.other_producers import read_maxwell, read_wal2json

Events = Callable[[pa.RecordBatch], list[Event]]
"""Gives the events of a batch, in its order."""


def of_records(reader: Reader) -> Events:
    """Let a reader have batches of records."""
    return partial(_read_batch, reader=reader)


def _read_batch(batch: pa.RecordBatch, reader: Reader) -> list[Event]:
    return reader(batch.column("value"), records_of(batch))


def read_table(batch: pa.RecordBatch) -> list[Event]:
    """
    The events of a table of events, with the rows of those in JSON as they were sent.

    In the texts that a table of events has, nothing says whether `1234` was a number or a text, which may be
    Base64: so the records are read again, by the reader that finds a row.
    """
    columns = (
        batch.column(name).cast(pa.int64() if name == "event_timestamp" else kind)
        for name, kind in EVENT_TYPES.items()
    )
    events = list(map(Event, *(column.to_pylist(maps_as_pydicts="lossy") for column in columns)))
    left = [place for place, event in enumerate(events) if event.form == "json" and event.kind == Kind.ROW]
    for reader in (read_records, read_wal2json, read_maxwell):
        read = list(zip(left, _read_batch(batch.take(pa.array(left, pa.int64())), reader), strict=True))
        left = [place for place, again in read if again.kind != Kind.ROW or again.error_code is not None]
        for place, again in read:
            if place not in left:
                event = events[place]
                event.before, event.after, event.row_key = again.before, again.after, again.row_key
    return events


def report_types(batches: Iterable[pa.RecordBatch], events: Events, table: str) -> Iterator[dict[str, Any]]:
    """Report which tables events are of, their keys, and by column its place and its types."""
    tables: set[str] = set()
    keys: set[tuple[str, ...]] = set()
    named: set[tuple[tuple[str, str | None], ...]] = set()
    for batch in batches:
        for event in events(batch):
            if event.error_code is not None or not is_of_table(event, table):
                continue
            if event.kind in (Kind.ROW, Kind.TRUNCATE):
                if event.row_key is not None:
                    keys.add(tuple(event.row_key))
                tables.add(table_name(event))
                row = event.after if event.after is not None else event.before
                named.add(tuple((event.types or dict.fromkeys(row or {})).items()))
    # Null where wal2json was told to leave types out.
    types = {(at, name, kind or UNTYPED) for row in named for at, (name, kind) in enumerate(row)}
    yield {"tables": sorted(tables), "types": sorted(types), "keys": sorted(keys)}
