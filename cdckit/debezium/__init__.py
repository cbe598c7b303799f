"""
The Debezium door: change events of databases.

    feed = debezium.Feed(spark, location, tables={"orders": ["id"]})   all tables, kept up as records come

By hand:

    decoded = debezium.decode(records)                     every record: a row, a truncate, a message, …
    decoded = debezium.decode_avro(records, schemas)       the same, in Avro with the schemas of a registry
    decoded = debezium.decode_wal2json(records)            the same of other producers, in the same columns
    decoded = debezium.decode_maxwell(records)
    changes = debezium.changes(decoded, "public.orders")   what the events say of the rows of one table
    rows = debezium.table_rows(decoded, "public.orders")   the same before it, with what cannot be a change
    messages = debezium.messages(decoded)                  what programs wrote into the log
    missing = debezium.find_missing_events(decoded)        of each transaction, by its counts
    frontiers = debezium.find_frontiers(decoded)           until when all transactions came whole

A record that cannot be used has one of the catalogue's codes (`EventFault`).
The streams of the prototype of 2014 are a door of their own, `cdckit.streams`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from cdckit.debezium.decoding import EVENT_SCHEMA, decode, decode_maxwell, decode_wal2json, messages
from cdckit.debezium.events import EventFault, Kind
from cdckit.debezium.table_changes import UntypedColumns, changes, columns, table_rows
from cdckit.debezium.transactions import find_frontiers, find_missing_events

if TYPE_CHECKING:
    from cdckit.debezium.avro_events import decode_avro
    from cdckit.debezium.feed import Feed

__all__ = [
    "EVENT_SCHEMA",
    "EventFault",
    "Feed",
    "Kind",
    "UntypedColumns",
    "changes",
    "columns",
    "decode",
    "decode_avro",
    "decode_maxwell",
    "decode_wal2json",
    "find_frontiers",
    "find_missing_events",
    "messages",
    "table_rows",
]


_HOMES = {"Feed": "feed", "decode_avro": "avro_events"}


def __getattr__(name: str) -> object:
    """Load what needs more than Spark when it is named: tables that are kept, and packages for Avro."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
