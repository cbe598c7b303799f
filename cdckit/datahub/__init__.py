"""
The data hub door: messages of many systems, mapped to the same entities by rules that are data.

    shop = datahub.read_schema("schema")                   one JSON document per source system
    hub = datahub.Hub(spark, shop, "tables")               a store of tables, in a folder or below a URI
    hub.receive(documents, received_at=...)                `hub.receipts` says how each was received
    hub.run(now=...)
    hub.history("product")                                 what the spine's questions are asked of
    hub.messages(), hub.log(), hub.rejects()               what became of each message and record

A message whose links lead nowhere waits, and is tried again; a second message of one sender's
identifier changes nothing; a record in error is a reject, and all others are processed.
"""

from cdckit.datahub.backoff import Backoff
from cdckit.datahub.documents import files, records
from cdckit.datahub.hub import Hub
from cdckit.datahub.hub_erasure import DependentEntities, UnmaskableRecords
from cdckit.datahub.mappings import InvalidSchema
from cdckit.datahub.message_statements import changes
from cdckit.datahub.messages import HubFault, Outcome, Status, decode
from cdckit.datahub.outcomes import Exporter, bulk_lines
from cdckit.datahub.questions import SchemaMismatch, query
from cdckit.datahub.readers import Context, Filter, Reader, UnreadableData
from cdckit.datahub.source_systems import Schema, read_schema, schema

__all__ = [
    "Backoff",
    "Context",
    "DependentEntities",
    "Exporter",
    "Filter",
    "Hub",
    "HubFault",
    "InvalidSchema",
    "Outcome",
    "Reader",
    "Schema",
    "SchemaMismatch",
    "Status",
    "UnmaskableRecords",
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
