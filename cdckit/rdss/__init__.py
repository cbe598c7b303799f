"""
The RDSS door: messages of the Research Data Shared Service, version 4 of its message API.

    decoded = rdss.decode(records)                         every record: header, body and verdict
    refused = rdss.queue_records(decoded)                  what the error queues take, decorated
    parts = rdss.parts(decoded)                            of messages that came as several, each part
    whole = rdss.assemble_messages(parts)                  those that are all there, put together
    late = rdss.waiting(parts, now=...)                    those that are not
    values = rdss.split(value)                             a message over the limit, as several within it
    changes = rdss.changes(decoded, "Dataset")             what creates, updates and deletes say of objects
    packages = rdss.preservation_events(decoded)           what is said of packages
    requests = rdss.read_requests(decoded)                 what was asked for
    links = rdss.version_links(history)                    which object is a version of which
    ancestry = rdss.version_ancestry(links)                all versions before and after each other
    verdict = rdss.validate(value, now=...)                the same for the bytes of one message
    exchange = rdss.Exchange(spark, location)              all this kept up in a store, as messages come

A message that cannot be used has one of the catalogue's codes (`RdssFault`), which says the queue it goes to.
"""

from cdckit.rdss.decoding import decode, queue_records
from cdckit.rdss.decoration import decorate_bytes
from cdckit.rdss.exchange import Exchange
from cdckit.rdss.findings import Queue, RdssFault
from cdckit.rdss.message_assembly import assemble_messages, parts, waiting
from cdckit.rdss.message_splitting import split
from cdckit.rdss.objects import ObjectType, changes, preservation_events, preservation_history, read_requests
from cdckit.rdss.outcomes import Outcome, Status
from cdckit.rdss.reading import RULES, Rules
from cdckit.rdss.validation import Verdict, validate
from cdckit.rdss.version_chains import (
    find_version_cycles,
    latest_versions,
    missed_versions,
    version_ancestry,
    version_links,
)

__all__ = [
    "RULES",
    "Exchange",
    "ObjectType",
    "Outcome",
    "Queue",
    "RdssFault",
    "Rules",
    "Status",
    "Verdict",
    "assemble_messages",
    "changes",
    "decode",
    "decorate_bytes",
    "find_version_cycles",
    "latest_versions",
    "missed_versions",
    "parts",
    "preservation_events",
    "preservation_history",
    "queue_records",
    "read_requests",
    "split",
    "validate",
    "version_ancestry",
    "version_links",
    "waiting",
]
