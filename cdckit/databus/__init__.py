"""
The Databus door: events of LinkedIn's Databus, cut into consistency windows.

    planes = databus.Source(3, "planes", [avro_schema])
    events = databus.decode(records, [planes, flights])    every record, its event open
    windowed = databus.with_windows(events)                every event, with its window and what became of it
    windows = databus.windows(events)                      one row for each window
    frontiers = databus.find_frontiers(events)             until where whole windows have passed
    whole = databus.consistent_events(events)              the events of complete windows, each once
    rows = databus.rows(whole, planes)                     those of one source, typed
    changes = databus.changes(events, planes, keys=["tail"])    what they say, and what could not be used

    stream = databus.EventStream(events, [planes, flights])    windows on the driver, sources in this order
    for window in stream.windows(): ...                    each as an Arrow table, or
    databus.dispatch(stream, consumer, checkpoints=...)    listeners written against the callback API

    relay = databus.Relay(spark, place, [planes, flights], keys={"planes": ["tail"]})
    relay.receive(records, batch)                          the same kept up, a ledger for each source

Every record is in exactly one place: in error in `windowed`, of a window that passed, or of one that did not
(open, rolled back, sent again, or waiting for what is missing before it).  `cdckit.rejects(windowed)` takes
out what is in error.
"""

# ruff: noqa: E402 - what is not installed is said before it is needed
from cdckit.parts.installation import require_package

require_package("fastavro", extra="avro", part="cdckit.databus")

from cdckit.databus.consumers import Consumer, Event, Result
from cdckit.databus.decoding import decode
from cdckit.databus.dispatcher import Backoff, Outcome, StoredCheckpoints, dispatch
from cdckit.databus.event_stream import EventStream, Window
from cdckit.databus.events import DatabusFault
from cdckit.databus.relay import Relay
from cdckit.databus.row_changes import changes, rows
from cdckit.databus.sources import Source, schema_id
from cdckit.databus.windowed_events import consistent_events, find_frontiers, windows, with_windows

__all__ = [
    "Backoff",
    "Consumer",
    "DatabusFault",
    "Event",
    "EventStream",
    "Outcome",
    "Relay",
    "Result",
    "Source",
    "StoredCheckpoints",
    "Window",
    "changes",
    "consistent_events",
    "decode",
    "dispatch",
    "find_frontiers",
    "rows",
    "schema_id",
    "windows",
    "with_windows",
]
