"""Changes in the order of their source, and the messages that Replicate sends of them and of tables."""

import json
from collections.abc import Iterable, Iterator
from datetime import timedelta
from io import BytesIO
from itertools import groupby
from typing import Any, NamedTuple

from fastavro import parse_schema, schemaless_writer

from tools.samples.replicate.changes import Change, Row
from tools.samples.replicate.tables import EPOCH, PRECISION_AND_SCALE, SCHEMAS, Version

MAGIC = b"atMSG"
ENVELOPE = parse_schema(SCHEMAS["envelope"])
METADATA_SCHEMA = json.dumps(SCHEMAS["metadata"], separators=(",", ":"))
METADATA = parse_schema(json.loads(METADATA_SCHEMA))


class Committed(NamedTuple):
    """
    A change with its place in the log of its task.

    `event` counts from 1 within the transaction and `last_event` marks its end; both are None, and
    `transaction` is empty, for a row of a load, which no transaction made.
    """

    change: Change
    sequence: str
    position: str
    transaction: str
    event: int | None
    last_event: bool | None


class Journal:
    """The log of one task; it goes on from one batch of changes to the next."""

    def __init__(self) -> None:
        self._events = 0
        self._transactions = 0x60000

    def commit(self, changes: Iterable[Change]) -> Iterator[Committed]:
        """Give *changes*, none of them older than an earlier batch, in the order of the log."""
        ordered = sorted(changes, key=lambda c: (c.at, c.transaction, c.table.topic, c.seed, c.step))
        for _, group in groupby(
            ordered, key=lambda c: (c.at, c.transaction or (c.seed, c.table.topic, c.step))
        ):
            yield from self._transaction(list(group))

    def _transaction(self, changes: list[Change]) -> Iterator[Committed]:
        loaded = changes[0].operation == "REFRESH"
        self._transactions += not loaded
        for event, change in enumerate(changes, start=1):
            self._events += 1
            sequence = sequence_text(change.at, self._events)
            position = f"{self._events >> 16:08x}:{self._events & 0xFFFF:08x}:{event:04x}"
            if loaded:
                yield Committed(change, sequence, position, "", None, None)
            else:
                transaction = f"{self._transactions:032X}"
                yield Committed(change, sequence, position, transaction, event, event == len(changes))


def sequence_text(at: int, events: int) -> str:
    """
    Return a change sequence: 16 digits of time, to hundredths of a second, and 19 of the count of events.

    >>> sequence_text(1_360_332_305_123_456, 42)
    '20130208140505120000000000000000042'
    """
    moment = EPOCH + timedelta(microseconds=at)
    return f"{moment:%Y%m%d%H%M%S}{moment.microsecond // 10_000:02d}{events:019d}"


def instant_text(at: int) -> str:
    """
    Return an instant as the headers of a message carry it.

    >>> instant_text(1_360_332_305_000_000)
    '2013-02-08T14:05:05.000000'
    """
    return (EPOCH + timedelta(microseconds=at)).replace(tzinfo=None).isoformat(timespec="microseconds")


def avro_bytes(schema: Any, datum: dict[str, Any]) -> bytes:
    """Return one Avro datum, without a container and without a prefix."""
    out = BytesIO()
    schemaless_writer(out, schema, datum)
    return out.getvalue()


def _envelope(
    kind: str, message: Any, magic: Any, schema_id: str | None, schema: str | None
) -> dict[str, Any]:
    return {
        "magic": magic,
        "type": kind,
        "headers": None,
        "messageSchemaId": schema_id,
        "messageSchema": schema,
        "message": message,
    }


def envelope(
    kind: str,
    message: bytes,
    *,
    schema_id: str | None = None,
    schema: str | None = None,
    magic: bytes = MAGIC,
) -> bytes:
    """Return an envelope; *kind* is MD or DT, *schema* or *schema_id* says how to read *message*."""
    return avro_bytes(ENVELOPE, _envelope(kind, message, magic, schema_id, schema))


def json_message(kind: str, message: dict[str, Any]) -> bytes:
    """Return an envelope in the JSON form: the message is an object, both schema fields are null."""
    datum = _envelope(kind, message, MAGIC.decode(), None, None)
    return json.dumps(datum, separators=(",", ":"), ensure_ascii=False).encode()


def metadata_datum(version: Version) -> dict[str, Any]:
    """Return what a metadata message says of a version of a table."""
    table = version.table
    columns = {}
    for column in version.columns:
        precision, scale = PRECISION_AND_SCALE.get(column.type, (0, 0))
        columns[column.name] = {
            "ordinal": version.ordinals[column.name],
            "type": column.type,
            "length": column.length,
            "precision": precision,
            "scale": scale,
            "primaryKeyPosition": column.key,
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


def metadata_message(version: Version) -> bytes:
    """Return the metadata message of a version in the form that its table is sent in."""
    datum = metadata_datum(version)
    if version.table.form == "json":
        return json_message("MD", datum)
    return envelope("MD", avro_bytes(METADATA, datum), schema=METADATA_SCHEMA)


def data_message(version: Version, committed: Committed) -> bytes:
    """Return the data message of a change in the form that its table is sent in."""
    datum = data_datum(version, committed)
    if version.table.form == "json":
        return json_message("DT", _as_json(datum))
    return envelope("DT", avro_bytes(version.parsed_schema, datum), schema_id=version.schema_id)


def data_datum(version: Version, committed: Committed) -> dict[str, Any]:
    """Return the record of a data message: the row, the row before, the headers."""
    change = committed.change
    row = {name: change.row.get(name) for name in version.ordinals}
    loaded = change.operation == "REFRESH"
    # Sequence, time, position and transaction apply to changes: a row of a full load has none of them.
    headers: dict[str, Any] = {
        "operation": change.operation,
        "changeSequence": "" if loaded else committed.sequence,
        "timestamp": "" if loaded else instant_text(change.at),
        "streamPosition": "" if loaded else committed.position,
        "transactionId": "" if loaded else committed.transaction,
        "changeMask": None if loaded else version.mask(change.changed),
        "columnMask": None if loaded else version.mask(tuple(change.row)),
        "transactionEventCounter": committed.event,
        "transactionLastEvent": committed.last_event,
    }
    if version.table.has_external_schema_id:
        headers["externalSchemaId"] = str(1000 + version.number)
    if change.row_is_before:
        return {"data": None, "beforeData": row, "headers": headers}
    before = None if change.before is None else row | change.before
    return {"data": row, "beforeData": before, "headers": headers}


def _as_json(datum: dict[str, Any]) -> dict[str, Any]:
    """Return *datum* as the JSON form has it: values of columns as text, masks as hexadecimal digits."""
    headers = {
        name: value.hex().upper() if isinstance(value, bytes) else value
        for name, value in datum["headers"].items()
    }
    return {"data": _texts(datum["data"]), "beforeData": _texts(datum["beforeData"]), "headers": headers}


def _texts(row: Row | None) -> Row | None:
    return row and {name: None if value is None else str(value) for name, value in row.items()}
