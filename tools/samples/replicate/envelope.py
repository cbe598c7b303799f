"""A change, or the metadata of a table, as the bytes that Replicate sends."""

import json
from io import BytesIO
from typing import Any

from fastavro import parse_schema, schemaless_writer

from tools.samples.replicate.changes import Row
from tools.samples.replicate.journal import Committed, instant_text
from tools.samples.replicate.tables import Version

MAGIC = b"atMSG"

ENVELOPE = parse_schema(
    {
        "type": "record",
        "name": "MessageEnvelope",
        "fields": [
            {"name": "magic", "type": {"type": "fixed", "name": "Magic", "size": 5}},
            {"name": "type", "type": "string"},
            {"name": "headers", "type": ["null", {"type": "map", "values": "string"}]},
            {"name": "messageSchemaId", "type": ["null", "string"]},
            {"name": "messageSchema", "type": ["null", "string"]},
            {"name": "message", "type": "bytes"},
        ],
    }
)

_TABLE_COLUMN = {
    "type": "record",
    "name": "TableColumn",
    "fields": [
        {"name": "ordinal", "type": "int"},
        {"name": "type", "type": "string"},
        {"name": "length", "type": "int"},
        {"name": "precision", "type": "int"},
        {"name": "scale", "type": "int"},
        {"name": "primaryKeyPosition", "type": "int"},
    ],
}

_LINEAGE = {
    "type": "record",
    "name": "Lineage",
    "fields": [
        {"name": "server", "type": "string"},
        {"name": "task", "type": "string"},
        {"name": "schema", "type": "string"},
        {"name": "table", "type": "string"},
        {"name": "tableVersion", "type": "int"},
        {"name": "timestamp", "type": "string"},
    ],
}

_STRUCTURE = {
    "type": "record",
    "name": "TableStructure",
    "fields": [{"name": "tableColumns", "type": {"type": "map", "values": _TABLE_COLUMN}}],
}

METADATA_SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "MetadataRecord",
        "namespace": "com.attunity.queue.msg",
        "fields": [
            {"name": "schemaId", "type": "string"},
            {"name": "lineage", "type": _LINEAGE},
            {"name": "tableStructure", "type": _STRUCTURE},
            {"name": "dataSchema", "type": "string"},
        ],
    },
    separators=(",", ":"),
)

_METADATA = parse_schema(json.loads(METADATA_SCHEMA))


def avro_bytes(schema: Any, datum: dict[str, Any]) -> bytes:
    """Return one Avro datum, without a container and without a prefix."""
    out = BytesIO()
    schemaless_writer(out, schema, datum)
    return out.getvalue()


def envelope(
    kind: str,
    message: bytes,
    *,
    schema_id: str | None = None,
    schema: str | None = None,
    magic: bytes = MAGIC,
) -> bytes:
    """Return an envelope; *kind* is MD or DT, *schema* or *schema_id* says how to read *message*."""
    datum = {
        "magic": magic,
        "type": kind,
        "headers": None,
        "messageSchemaId": schema_id,
        "messageSchema": schema,
        "message": message,
    }
    return avro_bytes(ENVELOPE, datum)


def metadata_datum(version: Version) -> dict[str, Any]:
    """Return what a metadata message says of a version of a table."""
    table = version.table
    columns = {
        column.name: {
            "ordinal": version.ordinals[column.name],
            "type": column.type,
            "length": column.length,
            "precision": column.precision,
            "scale": column.scale,
            "primaryKeyPosition": column.key,
        }
        for column in version.columns
    }
    return {
        "schemaId": version.schema_id,
        "lineage": {
            "server": table.server,
            "task": table.task,
            "schema": table.schema,
            "table": table.name,
            "tableVersion": version.number,
            "timestamp": instant_text(version.created_at),
        },
        "tableStructure": {"tableColumns": columns},
        "dataSchema": version.data_schema,
    }


def metadata_bytes(datum: dict[str, Any]) -> bytes:
    """Return the payload of a metadata message."""
    return avro_bytes(_METADATA, datum)


def metadata_message(version: Version) -> bytes:
    """Return the metadata message of a version in the form that its table is sent in."""
    datum = metadata_datum(version)
    if version.table.form == "json":
        return json_message("MD", datum)
    return envelope("MD", metadata_bytes(datum), schema=METADATA_SCHEMA)


def data_bytes(version: Version, committed: Committed) -> bytes:
    """Return the payload of a data message."""
    return avro_bytes(version.parsed_schema, data_datum(version, committed))


def data_message(version: Version, committed: Committed) -> bytes:
    """Return the data message of a change in the form that its table is sent in."""
    if version.table.form == "json":
        return json_message("DT", _as_json(data_datum(version, committed)))
    return envelope("DT", data_bytes(version, committed), schema_id=version.schema_id)


def data_datum(version: Version, committed: Committed) -> dict[str, Any]:
    """Return the record of a data message: the row, the row before, the headers."""
    change = committed.change
    row = {name: change.row.get(name) for name in version.names}
    sent = tuple(change.row)
    loaded = change.operation == "REFRESH"
    # Sequence, time, position and transaction apply to changes: a row of a full load has none of them.
    headers: dict[str, Any] = {
        "operation": change.operation,
        "changeSequence": "" if loaded else committed.sequence,
        "timestamp": "" if loaded else instant_text(change.at),
        "streamPosition": "" if loaded else committed.position,
        "transactionId": "" if loaded else committed.transaction,
        "changeMask": None if loaded else version.mask(change.changed),
        "columnMask": None if loaded else version.mask(sent),
        "transactionEventCounter": committed.event,
        "transactionLastEvent": committed.last_event,
    }
    if version.table.has_external_schema_id:
        headers["externalSchemaId"] = str(1000 + version.number)
    if change.row_is_before:
        return {"data": None, "beforeData": row, "headers": headers}
    return {"data": row, "beforeData": _before(row, change.before), "headers": headers}


def _before(row: Row, before: Row | None) -> Row | None:
    return None if before is None else row | before


def json_message(kind: str, message: dict[str, Any]) -> bytes:
    """Return an envelope in the JSON form: the message is an object, both schema fields are null."""
    text = {
        "magic": MAGIC.decode(),
        "type": kind,
        "headers": None,
        "messageSchemaId": None,
        "messageSchema": None,
        "message": message,
    }
    return json.dumps(text, separators=(",", ":"), ensure_ascii=False).encode()


def _as_json(datum: dict[str, Any]) -> dict[str, Any]:
    """Return *datum* as the JSON form has it: values of columns as text, masks as hexadecimal digits."""
    headers = {
        name: _hex(value) if isinstance(value, bytes) else value for name, value in datum["headers"].items()
    }
    return {"data": _texts(datum["data"]), "beforeData": _texts(datum["beforeData"]), "headers": headers}


def _texts(row: Row | None) -> Row | None:
    if row is None:
        return None
    return {name: None if value is None else str(value) for name, value in row.items()}


def _hex(mask: bytes) -> str:
    return mask.hex().upper()
