"""Debezium's events in Avro: the schemas of a registry, whole with those they refer to, and their values."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.debezium.column_types import VARIABLE
from cdckit.debezium.events import OF_ROWS, EventFault
from cdckit.debezium.json_events import (
    ENVELOPE,
    FOUND,
    ROW_KEY,
    Producer,
    envelope_columns,
    json_keys,
)
from cdckit.errors import InvalidArgument
from cdckit.model.records import RECORD_COLUMNS, RECORD_SCHEMA, require_records
from cdckit.parts import avro
from cdckit.parts.arrow_types import arrow_type
from cdckit.parts.avro import SchemaRefused
from cdckit.parts.avro.schema import MAX_TEXT
from cdckit.parts.workers import WorkerPlan

_NAMED = ("record", "error", "enum", "fixed")


def whole_schema(texts: Sequence[str]) -> str:
    """
    The first of the schemas, with what it names and the others define.

    A definition stands where its name is met first.  A name that none defines is left, and so is a text that
    is no schema: who reads it says what is wrong.

    >>> row = '{"type": "record", "name": "shop.Row", "fields": [{"name": "id", "type": "int"}]}'
    >>> refers = '{"type": "record", "name": "E", "fields": [{"name": "after", "type": "shop.Row"}]}'
    >>> json.loads(whole_schema([refers, row]))["fields"][0]["type"]["fields"]
    [{'name': 'id', 'type': 'int'}]
    """
    own, *others = texts
    if not others or any(len(text) > MAX_TEXT for text in texts):
        return own
    try:
        given: dict[str, Mapping[str, Any]] = {}
        for other in others:
            _note(json.loads(other), given)
        return json.dumps(_SchemaCopy(given).read(json.loads(own), ""))
    except (ValueError, RecursionError):
        return own


def expand_names(schema: Any) -> Any:
    """
    A schema that contains itself nowhere, with the definition wherever a type is named.

    >>> point = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "int"}]}
    >>> expand_names([point, {"type": "array", "items": "Point"}])[1]["items"]["fields"]
    [{'name': 'x', 'type': 'int'}]
    """
    return _SchemaCopy({}, again=True).read(schema, "")


def _note(schema: Any, given: dict[str, Mapping[str, Any]]) -> None:
    """Note the types of a schema by their full names: itself, or the branches of a union of some."""
    for kind in schema if isinstance(schema, list) else [schema]:
        if isinstance(kind, Mapping) and kind.get("type") in _NAMED:
            given[_full_name(kind, "")] = kind


class _SchemaCopy:
    """Copies a schema; what it has met a definition of, it names, or spells out *again*."""

    def __init__(self, given: Mapping[str, Mapping[str, Any]], *, again: bool = False) -> None:
        self.given = given
        self.again = again
        self.defined: dict[str, Mapping[str, Any]] = {}

    def read(self, kind: Any, namespace: str) -> Any:
        if isinstance(kind, str):
            return self._by_name(kind, namespace)
        if isinstance(kind, list):
            return [self.read(each, namespace) for each in kind]
        if not isinstance(kind, Mapping):
            return kind
        if kind.get("type") in _NAMED:
            return self._define(kind, namespace)
        # Items of an array, values of a map, and a type within a type.
        parts = {
            name: self.read(kind[name], namespace) for name in ("type", "items", "values") if name in kind
        }
        return {**kind, **parts}

    def _by_name(self, name: str, namespace: str) -> Any:
        for full in (name,) if "." in name else (f"{namespace}.{name}".lstrip("."), name):
            if full in self.defined:
                return self.defined[full] if self.again else full
            if full in self.given:
                return self._define(self.given[full], "")
        return name

    def _define(self, kind: Mapping[str, Any], namespace: str) -> dict[str, Any]:
        full = _full_name(kind, namespace)
        space, _, name = full.rpartition(".")
        definition = self.defined[full] = {**kind, "name": name, "namespace": space}
        fields = kind.get("fields")
        if isinstance(fields, list):
            definition["fields"] = [self._field(each, space) for each in fields]
        return definition

    def _field(self, field: Any, namespace: str) -> Any:
        if not isinstance(field, Mapping) or "type" not in field:
            return field
        return {**field, "type": self.read(field["type"], namespace)}


def _full_name(kind: Mapping[str, Any], namespace: str) -> str:
    name, space = str(kind.get("name")), kind.get("namespace", namespace)
    return name if "." in name or not space else f"{space}.{name}"


_PRIMITIVES = {"int": "int32", "long": "int64", "float": "float32", "double": "float64", "record": "struct"}
_LOGICAL = {
    "date": "org.apache.kafka.connect.data.Date",
    "time-millis": "org.apache.kafka.connect.data.Time",
    "time-micros": "io.debezium.time.MicroTime",
    "timestamp-millis": "org.apache.kafka.connect.data.Timestamp",
    "timestamp-micros": "io.debezium.time.MicroTimestamp",
    "timestamp-nanos": "io.debezium.time.NanoTimestamp",
}
_DECIMAL = "org.apache.kafka.connect.data.Decimal"


@lru_cache(maxsize=512)
def plain_schema(text: str) -> avro.AvroSchema:
    """
    The schema without its logical types: values are then as JSON has them, and their meaning is a type's.

    Raises:
        SchemaRefused: The text is no schema, or one that cannot be used; it says why.
    """
    avro.parse_schema(text)
    return avro.parse_schema(json.dumps(json.loads(text, object_hook=_without_logical_type)))


def _without_logical_type(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name != "logicalType"}


def column_types(text: str) -> dict[str, str]:
    """
    The types that an envelope's schema gives the columns of its rows; none for any other schema.

    As in JSON with a schema: the name of its meaning (`connect.name`), or else its type.

    >>> day = {"type": "int", "connect.name": "io.debezium.time.Date"}
    >>> row = {"type": "record", "name": "Value", "fields": [{"name": "day", "type": ["null", day]}]}
    >>> column_types(json.dumps({"type": "record", "fields": [{"name": "after", "type": ["null", row]}]}))
    {'day': 'io.debezium.time.Date'}
    """
    for name, kind in _fields(expand_names(json.loads(text))):
        row = _nullable_type(kind)
        if name in ("before", "after") and isinstance(row, Mapping) and row.get("type") == "record":
            return {column: _type_text(_schema(_nullable_type(each))) for column, each in _fields(row)}
    return {}


def _type_text(schema: dict[str, Any]) -> str:
    has_parts = len(schema) > 1
    return json.dumps(schema, separators=(",", ":"), ensure_ascii=False) if has_parts else schema["type"]


def _schema(kind: Any) -> dict[str, Any]:
    """The type as Kafka Connect's JSON has it: that of parts by them, any other by its name alone."""
    parts = kind if isinstance(kind, Mapping) else {}
    if parts.get("connect.name") == VARIABLE or parts.get("connect.internal.type") == "MapEntry":
        return {"type": _type(kind)}
    if parts.get("type") == "array":
        return {"type": "array", "items": _schema(_nullable_type(parts["items"]))}
    if parts.get("type") == "map":
        return {"type": "map", "keys": {"type": "string"}, "values": _schema(_nullable_type(parts["values"]))}
    if parts.get("type") == "record":
        fields = [_schema(_nullable_type(each)) | {"field": name} for name, each in _fields(parts)]
        return {"type": "struct", "fields": fields}
    return {"type": _type(kind)}


def _fields(kind: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(kind, Mapping):
        for field in kind.get("fields") or ():
            yield field["name"], field["type"]


def _nullable_type(kind: Any) -> Any:
    """What a type holds that may be null."""
    if not isinstance(kind, list):
        return kind
    others = [each for each in kind if each != "null"]
    return others[0] if len(others) == 1 else "string"


def _type(kind: Any) -> str:
    parts = kind if isinstance(kind, Mapping) else {"type": kind}
    parameters = parts.get("connect.parameters") or {}
    if isinstance(name := parts.get("connect.name"), str):
        digits = [parameters.get(each) for each in ("connect.decimal.precision", "scale")]
        known = ",".join(str(each) for each in digits if each is not None)
        return f"{name}({known})" if digits[1] is not None else name
    logical = parts.get("logicalType")
    if logical == "decimal":
        return f"{_DECIMAL}({parts.get('precision')},{parts.get('scale', 0)})"
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    plain = str(parts.get("connect.type") or parts.get("type"))
    plain = _PRIMITIVES.get(plain, plain)
    # An enumeration, a fixed and a type that is named elsewhere are what their values are as JSON.
    known_types = ("int8", "int16", "boolean", "string", "bytes", "array", "map", *_PRIMITIVES.values())
    return plain if plain in known_types else "bytes" if plain == "fixed" else "string"


TEXTS = pa.map_(pa.string(), pa.string())


def texts(values: pa.Array) -> pa.Array:
    """
    The text of the JSON value for each value, as Debezium's JSON has it: bytes in Base64.

    >>> texts(pa.array([{"scale": 2, "value": b"hi"}, None])).to_pylist()
    ['{"scale":2,"value":"aGk="}', None]
    """
    kind = values.type
    if pa.types.is_string(kind):
        return values
    if pa.types.is_null(kind) or pa.types.is_boolean(kind) or pa.types.is_primitive(kind):
        return pc.cast(values, pa.string())
    # Arrow has no Base64 and writes no JSON.
    plain = values.to_pylist(maps_as_pydicts="lossy")
    return pa.array([None if each is None else _text(each) for each in plain], pa.string())


def _text(value: Any) -> str:
    return _base64(value) if isinstance(value, bytes) else as_json(value)


def as_json(value: Any) -> str:
    """A decoded value as compact JSON, bytes in Base64."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=_base64)


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def as_maps(rows: pa.Array) -> pa.Array:
    """
    Each record as a map of its columns to their texts; null for null, and for what is no record.

    >>> as_maps(pa.array([{"id": 1, "ok": None}, None])).to_pylist()
    [[('id', '1'), ('ok', None)], None]
    """
    if not pa.types.is_struct(rows.type):
        return pa.nulls(len(rows), TEXTS)
    valid = rows.is_valid().to_numpy(zero_copy_only=False)
    there = rows.filter(pa.array(valid))
    names = [field.name for field in rows.type]
    columns = [texts(pc.struct_field(there, place)) for place in range(len(names))]
    # Column after column, the texts of a row are as far from one another as there are rows.
    by_row = np.arange(len(there) * len(names)).reshape(len(names), len(there)).T.ravel()
    items = pa.concat_arrays([pa.nulls(0, pa.string()), *columns]).take(pa.array(by_row))
    keys = pa.array(names, pa.string()).take(pa.array(np.tile(np.arange(len(names)), len(there))))
    offsets = np.concatenate([[0], np.cumsum(valid * len(names))]).astype(np.int32)
    return pa.MapArray.from_arrays(pa.array(offsets), keys, items, type=TEXTS, mask=pa.array(~valid))


MAGIC = b"\0"
_LONGEST = (1 << 31) - 1

Places = npt.NDArray[np.int64]


class Registry(NamedTuple):
    """The schemas that records name: by id their text, and how many bytes an id has."""

    schemas: Mapping[int, str]
    id_bytes: int


class Group(NamedTuple):
    """Datums of one schema, or of none that is known: where they stand, what they are, what is wrong."""

    places: Places
    schema_id: int | None
    values: pa.Array
    faults: pa.Array
    findings: pa.Array


def groups(datums: pa.Array, registry: Registry) -> Iterator[Group]:
    """The values or the keys of some records, by the schemas that they name; nulls are in none."""
    width = len(MAGIC) + registry.id_bytes
    heads = pc.binary_slice(datums, 0, width)
    is_framed = pc.and_(pc.equal(pc.binary_length(heads), width), pc.starts_with(heads, MAGIC.decode()))
    framed = pc.fill_null(is_framed, False)
    other = pc.and_(datums.is_valid(), pc.invert(framed))
    yield from _refuse_group(other, EventFault.NOT_FRAMED)
    by_head = {
        head: int.from_bytes(head[len(MAGIC) :], "big")
        for head in pc.unique(heads.filter(framed)).to_pylist()
    }
    strange = [head for head, schema_id in by_head.items() if schema_id not in registry.schemas]
    unknown = pc.and_(framed, pc.is_in(heads, pa.array(strange, heads.type)))
    schemas = [str(by_head[head]) for head in heads.filter(unknown).to_pylist()]
    yield from _refuse_group(unknown, EventFault.UNKNOWN_SCHEMA, schemas)
    for head, schema_id in by_head.items():
        if schema_id not in registry.schemas:
            continue
        chosen = pc.fill_null(pc.equal(heads, pa.scalar(head, heads.type)), False)
        try:
            schema = plain_schema(registry.schemas[schema_id])
        except avro.SchemaRefused as refused:
            says = [f"{schema_id}: {refused}"] * chosen.true_count
            yield from _refuse_group(chosen, EventFault.SCHEMA_UNUSABLE, says)
            continue
        places = np.flatnonzero(chosen.to_numpy(zero_copy_only=False))
        bodies = pc.binary_slice(datums.take(pa.array(places)), width, _LONGEST)
        start = 0
        for part in avro.decode_parts(bodies, schema):
            count = len(part.errors)
            wrong = pa.array([EventFault.DATUM_UNREADABLE.value] * count, pa.string())
            faults = pc.if_else(part.errors.is_valid(), wrong, _no_text(count))
            yield Group(places[start : start + count], schema_id, part.values, faults, part.errors)
            start += count


def _refuse_group(chosen: pa.Array, fault: EventFault, findings: list[str] | None = None) -> Iterator[Group]:
    places = np.flatnonzero(chosen.to_numpy(zero_copy_only=False))
    count = len(places)
    if count:
        codes = pa.array([fault.value] * count, pa.string())
        says = _no_text(count) if findings is None else pa.array(findings, pa.string())
        yield Group(places, None, pa.nulls(count), codes, says)


def _no_text(count: int) -> pa.Array:
    return pa.nulls(count, pa.string())


_ENVELOPE, _TEXT = T.StructType(ENVELOPE), T.StringType()
_READ = [
    T.StructField(FOUND, _ENVELOPE),
    T.StructField("text", _TEXT),
    T.StructField("schema_id", _TEXT),
    T.StructField(ROW_KEY, T.MapType(_TEXT, _TEXT)),
    T.StructField("fault", _TEXT),
    T.StructField("finding", _TEXT),
]
"""What stands in the value of a record and in its key."""


def read_batches(batches: Iterable[pa.RecordBatch], *, registry: Registry) -> Iterator[pa.RecordBatch]:
    """The records with the columns of `_READ`, those of one schema after the other."""
    for batch in batches:
        keys, key_faults, key_findings = _keys(batch.column("key"), registry)
        values = batch.column("value")
        nothing = np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))
        none = Group(nothing, None, pa.nulls(len(nothing)), _no_text(len(nothing)), _no_text(len(nothing)))
        for group in (none, *groups(values, registry)):
            if not len(group.places):
                continue
            places = pa.array(group.places)
            found = _envelope(group.values, _ENVELOPE)
            ids = pa.array([None if group.schema_id is None else str(group.schema_id)], pa.string())
            columns = [
                *batch.take(places).columns,
                found,
                _other_values(group.values, found),
                ids.take(pa.array(np.zeros(len(places), np.int64))),
                keys.take(places),
                # What is wrong with the value is said first.
                pc.coalesce(group.faults, key_faults.take(places)),
                pc.if_else(group.faults.is_valid(), group.findings, key_findings.take(places)),
            ]
            yield pa.RecordBatch.from_arrays(columns, [*batch.schema.names, *(each.name for each in _READ)])


def _keys(keys: pa.Array, registry: Registry) -> tuple[pa.Array, pa.Array, pa.Array]:
    """The columns of keys, and what is wrong with them; one that names no schema is JSON, or nothing."""
    found = list(groups(keys, registry))
    order = np.full(len(keys), -1, np.int64)
    order[np.concatenate([np.zeros(0, np.int64), *(each.places for each in found)])] = np.arange(
        sum(len(each.places) for each in found)
    )
    take = pa.array(order, mask=order < 0)
    parts = [_key_columns(each, keys) for each in found]
    empty = pa.nulls(0, TEXTS), _no_text(0), _no_text(0)
    maps, codes, findings = (pa.concat_arrays(each) for each in zip(empty, *parts, strict=True))
    return maps.take(take), codes.take(take), findings.take(take)


def _key_columns(group: Group, keys: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array]:
    if group.schema_id is None and group.faults[0].as_py() == EventFault.NOT_FRAMED:
        none = _no_text(len(group.places))
        return json_keys(keys.take(pa.array(group.places))), none, none
    return as_maps(group.values), group.faults, _key_findings(group)


def _key_findings(group: Group) -> pa.Array:
    return pc.binary_join_element_wise("in the key:", pc.fill_null(group.findings, ""), " ")


def _envelope(values: pa.Array, envelope: T.StructType) -> pa.Array:
    """What an envelope says, in texts; null for a value that is no record."""
    if not pa.types.is_struct(values.type):
        return pa.nulls(len(values), arrow_type(envelope))
    columns = [_field(values, field) for field in envelope]
    kinds = [pa.field(field.name, arrow_type(field.dataType)) for field in envelope]
    return pa.StructArray.from_arrays(columns, fields=kinds, mask=values.is_null())


def _field(values: pa.Array, field: T.StructField) -> pa.Array:
    kind = arrow_type(field.dataType)
    if values.type.get_field_index(field.name) < 0:
        return pa.nulls(len(values), kind)
    found = pc.struct_field(values, field.name)
    if isinstance(field.dataType, T.StructType):
        return _envelope(found, field.dataType)
    if isinstance(field.dataType, T.LongType):
        return pc.cast(found, kind) if pa.types.is_integer(found.type) else pa.nulls(len(values), kind)
    return as_maps(found) if isinstance(field.dataType, T.MapType) else texts(found)


def _other_values(values: pa.Array, found: pa.Array) -> pa.Array:
    """The value as JSON where it is not about a row, or where its row is text of its own."""
    if not pa.types.is_struct(values.type):
        return _no_text(len(values))
    after = values.type.field("after").type if values.type.get_field_index("after") >= 0 else None
    is_row = pc.is_in(pc.struct_field(found, "op"), pa.array(OF_ROWS))
    is_told = pc.and_(pc.fill_null(is_row, False), not (after is not None and pa.types.is_string(after)))
    rest = np.flatnonzero(pc.and_(values.is_valid(), pc.invert(is_told)).to_numpy(zero_copy_only=False))
    texts = [as_json(each) for each in values.take(pa.array(rest)).to_pylist(maps_as_pydicts="lossy")]
    order = np.full(len(values), -1, np.int64)
    order[rest] = np.arange(len(rest))
    return pa.array(texts, pa.string()).take(pa.array(order, mask=order < 0))


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
        records: One row per transported message (`cdckit.model.RECORD_SCHEMA`): of one topic or of many.
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
    by = partial(read_batches, registry=Registry(texts, _BY_FORM[ids]))
    columns = T.StructType([*RECORD_SCHEMA.fields, *_READ])
    events = WorkerPlan(records.select(*RECORD_COLUMNS), by, columns).rows()
    producer = Producer(
        form="avro",
        text=F.col("text"),
        is_read=F.col(FOUND).isNotNull(),
        types=_types(texts),
        row_key=F.col(ROW_KEY),
        refused=[
            (fault, F.col("fault").eqNullSafe(F.lit(fault.value)), F.col("finding")) for fault in _REFUSED
        ],
    )
    return events.select(*envelope_columns(producer))


def _texts(schemas: Schemas) -> dict[int, str]:
    """By id one text that defines all that it names."""
    if isinstance(schemas, Mapping):
        given = {each: [text] if isinstance(text, str) else text for each, text in schemas.items()}
        if all(isinstance(each, int) and _are_texts(text) for each, text in given.items()):
            return {each: whole_schema(text) for each, text in given.items()}
    needed = 'the texts of schemas by their ids, such as {7: \'{"type": "record", …}\'}'
    raise InvalidArgument("decode_avro", "schemas", needed, schemas)


def _are_texts(schema: object) -> bool:
    return isinstance(schema, Sequence) and len(schema) > 0 and all(isinstance(text, str) for text in schema)


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
