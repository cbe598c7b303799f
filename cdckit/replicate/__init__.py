"""
The Replicate door: Qlik Replicate's message envelope.

    decoded = replicate.decode(records)                    every record, its envelope open
    messages = replicate.metadata(decoded)                 every metadata message
    zone = replicate.schema_zone(messages)                 what each schema id stands for
    flights = zone.where("task = 'schedule' and table = 'FLIGHTS'")
    rows = replicate.data(records, flights)                that table's messages, typed
    changes = replicate.changes(rows, keys=replicate.keys(flights))
    waiting = replicate.waiting(decoded, zone, now=...)    data that came before its metadata

    feed = replicate.Feed(spark, folder)                   the same, kept up as records come, in a store
    stream.writeStream.foreachBatch(feed.sink("a name"))   and fed by a stream

Every record is in exactly one place: in error in `decoded`; a metadata message in `messages`, good or
in error; a data message in the rows of its table, good or in error (unless you leave its topic out of the
`topics` of `data`); or it is waiting.
`cdckit.rejects` takes what is in error out of any of these tables.  A good row that does not say its key
is no change of any entity, but a reject among the changes: `find_without_key` gives such rows.
`table_changes` makes the changes of one table in one step, `Feed` those of all.
"""

from cdckit.replicate.decoding import decode, metadata, schema_zone, waiting
from cdckit.replicate.envelopes import ReplicateFault
from cdckit.replicate.feed import Feed
from cdckit.replicate.row_changes import TableName, TableSettings, changes, find_without_key, table_changes
from cdckit.replicate.table_rows import data, keys

__all__ = [
    "Feed",
    "ReplicateFault",
    "TableName",
    "TableSettings",
    "changes",
    "data",
    "decode",
    "find_without_key",
    "keys",
    "metadata",
    "schema_zone",
    "table_changes",
    "waiting",
]
