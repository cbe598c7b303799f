"""
The data hub door: messages of many systems, mapped to the same entities by rules that are data.

    shop = datahub.read_schema("schema")                   one JSON document per source system
    hub = datahub.Hub(spark, shop, "tables")               a store of tables, in a folder or below a URI
    receipts = hub.receive(datahub.records(spark, [...], at=...))
    hub.process(now=...)
    hub.history("product")                                 what the spine's questions are asked of
    hub.messages(), hub.log(), hub.rejects()               what became of each message and record

A message whose links lead nowhere waits, and is tried again; a second message of one sender's
identifier changes nothing; a record in error is a reject, and all others are processed.
"""

from cdckit.datahub.answers import ReadByAnotherSchema
from cdckit.datahub.documents import InvalidSchema
from cdckit.datahub.exports import Sink
from cdckit.datahub.faults import HubFault
from cdckit.datahub.from_messages import changes
from cdckit.datahub.hub import Hub
from cdckit.datahub.message_store import decode
from cdckit.datahub.questions import query
from cdckit.datahub.readers import Context, Filter, Reader, UnreadableData
from cdckit.datahub.schema_documents import read_schema, schema
from cdckit.datahub.source_systems import Schema
from cdckit.datahub.statuses import Outcome, Status
from cdckit.parts.documents import files, records
from cdckit.parts.elasticsearch import bulk_lines
from cdckit.parts.retry_times import Retry

__all__ = [
    "Context",
    "Filter",
    "Hub",
    "HubFault",
    "InvalidSchema",
    "Outcome",
    "ReadByAnotherSchema",
    "Reader",
    "Retry",
    "Schema",
    "Sink",
    "Status",
    "UnreadableData",
    "bulk_lines",
    "changes",
    "decode",
    "files",
    "query",
    "read_schema",
    "records",
    "schema",
]
