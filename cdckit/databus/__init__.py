"""
The Databus door: events of LinkedIn's Databus, cut into consistency windows.

    planes = databus.Source(3, "planes", [avro_schema])
    events = databus.decode(records, [planes, flights])    every record, its event open
    told = databus.with_windows(events)                    every event, with its window and what became of it
    windows = databus.windows(events)                      one row for each window
    whole = databus.consistent(events)                     the events of complete windows, each once
    rows = databus.rows(whole, planes)                     those of one source, typed
    changes = databus.changes(rows, keys=["tail"])

Every record is in exactly one place: in error in `told`, of a window that passed, or of one that did not
(open, rolled back, sent again, or waiting for what is missing before it).  `cdckit.rejects(told)` takes what
is in error out.
"""

from cdckit.databus.event_rows import decode
from cdckit.databus.event_sources import Source, schema_id
from cdckit.databus.faults import DatabusFault
from cdckit.databus.row_changes import changes, find_without_key
from cdckit.databus.typed_rows import rows
from cdckit.databus.window_tables import consistent, windows, with_windows

__all__ = [
    "DatabusFault",
    "Source",
    "changes",
    "consistent",
    "decode",
    "find_without_key",
    "rows",
    "schema_id",
    "windows",
    "with_windows",
]
