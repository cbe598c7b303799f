"""Debezium's events in Avro, with schemas of a registry."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.debezium.avro_references import whole_schema
from cdckit.debezium.avro_schemas import column_types, plain_schema
from cdckit.debezium.avro_wire import Registry, read_batches, worker_schema
from cdckit.debezium.event_faults import EventFault
from cdckit.debezium.json_events import ENVELOPE, FOUND, Producer, envelopes, json_key
from cdckit.debezium.mongo_documents import document_of
from cdckit.errors import InvalidArgument
from cdckit.parts.avro import SchemaRefused
from cdckit.parts.workers import Made
from cdckit.records import for_workers, headers_from_workers, require_records

_BY_FORM = {"confluent": 4, "apicurio": 8}
_REFUSED = (
    EventFault.NOT_FRAMED,
    EventFault.UNKNOWN_SCHEMA,
    EventFault.SCHEMA_UNUSABLE,
    EventFault.DATUM_UNREADABLE,
)


Schemas = Mapping[int, str | Sequence[str]]
"""By its id in the registry a schema's text; where it refers to others, its own text and then theirs."""


def decode_avro(records: DataFrame, schemas: Schemas, *, ids: str = "confluent") -> DataFrame:
    """
    What every record of Debezium's topics says, where values and keys are in Avro; see `decode`.

    A value begins with a zero byte and the id of its schema in a registry; so does a key, or it is JSON.
    Values are read as their schema's `connect.name` means them, or as its logical type where there is none.

    Args:
        records: One row per transported message (`cdckit.records.RECORD_SCHEMA`): of one topic or of many.
        schemas: By id the text of the schema, of values and of keys alike: what the registry returns for
            `/schemas/ids/…`.  Those of a topic may differ from record to record.  Of a schema with
            `references`, a list: its own text first, then those of the subjects and versions that it refers
            to, and that these refer to, in any order.
        ids: How an id is written: `confluent`, in four bytes; or `apicurio`, in eight, as Apicurio's own
            converter does unless told to be compatible.

    Returns:
        One row per record, in no order, in the columns of `EVENT_SCHEMA`; `form` is `avro`.  `row_key`,
        `before` and `after` are as JSON would have them: bytes in Base64, dates as days.  It never
        fails on data.  In error are a value that names no schema (`NOT_FRAMED`), one that *schemas* lacks
        (`UNKNOWN_SCHEMA`: add it, and decode again) or that cannot be used, such as one that contains
        itself or refers to a type that is not given (`SCHEMA_UNUSABLE`, which names it), and a datum that
        is not of its schema to its last byte (`DATUM_UNREADABLE`); the same for keys.

    Raises:
        MissingColumns, WrongColumnType: *records* are not records.
        InvalidArgument: *schemas* are not texts by number, or *ids* is neither.

    Cost: one pass through Python in Arrow batches, those of one schema read at once; no shuffle.

    Source:
        Debezium, "Avro Serialization"; Confluent, "Wire format".

    >>> from cdckit import debezium
    >>> schema = '{"type": "record", "name": "Envelope", "fields": [{"name": "op", "type": "string"}]}'
    >>> sent = records_of(bytes([0, 0, 0, 0, 7, 2]) + b"m", bytes([0, 0, 0, 0, 8, 2]) + b"m")
    >>> found = debezium.decode_avro(sent, {7: schema}).orderBy("offset")
    >>> found.select("form", "kind", "operation", "error_code").show()
    +----+-------+---------+--------------+
    |form|   kind|operation|    error_code|
    +----+-------+---------+--------------+
    |avro|message|        m|          NULL|
    |NULL|   NULL|     NULL|UNKNOWN_SCHEMA|
    +----+-------+---------+--------------+
    <BLANKLINE>
    """
    require_records(records, function="decode_avro")
    if ids not in _BY_FORM:
        raise InvalidArgument("decode_avro", "ids", f"one of {', '.join(_BY_FORM)}", ids)
    texts = _texts(schemas)
    envelope = T.StructType(ENVELOPE)
    registry = Registry(texts, _BY_FORM[ids])
    by = partial(read_batches, registry=registry, envelope=envelope)
    read = Made(for_workers(records), by, worker_schema(envelope)).rows()
    found = F.col(FOUND)
    row_key = F.coalesce("avro_key", json_key())
    document = document_of(F.col("text"), found["source"]["connector"], row_key)
    after = F.coalesce(found["after"], document)
    told = read.withColumns({"headers": headers_from_workers(), FOUND: found.withField("after", after)})
    producer = Producer(
        form="avro",
        text=F.col("text"),
        is_read=found.isNotNull(),
        types=_types(texts),
        row_key=row_key,
        refused=[
            (fault, F.col("fault").eqNullSafe(F.lit(fault.value)), F.col("finding")) for fault in _REFUSED
        ],
    )
    return envelopes(told, producer)


def _texts(schemas: Schemas) -> dict[int, str]:
    """By id one text that defines all that it names."""
    if isinstance(schemas, Mapping):
        given = {each: [said] if isinstance(said, str) else said for each, said in schemas.items()}
        if all(isinstance(each, int) and _are_texts(said) for each, said in given.items()):
            return {each: whole_schema(said) for each, said in given.items()}
    needed = 'the texts of schemas by their ids, such as {7: \'{"type": "record", …}\'}'
    raise InvalidArgument("decode_avro", "schemas", needed, schemas)


def _are_texts(said: object) -> bool:
    return isinstance(said, Sequence) and len(said) > 0 and all(isinstance(text, str) for text in said)


def _types(schemas: Mapping[int, str]) -> Column:
    """By the schema of a record, the types of its columns; Spark works the table out once, when it plans."""
    known = {}
    for schema_id, text in schemas.items():
        try:
            plain_schema(text)
        except SchemaRefused:
            continue
        known[str(schema_id)] = column_types(text)
    table = F.from_json(F.lit(json.dumps(known)), "map<string, map<string, string>>")
    return F.try_element_at(table, F.col("schema_id"))
