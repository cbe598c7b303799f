"""Debezium's events in Avro: the schemas of a registry, whole with those they refer to, and their values."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from cdckit.debezium.decoding import decoded_by
from cdckit.debezium.envelopes import (
    VARIABLE,
    Envelope,
    Source,
    Transaction,
    event_of,
    read_key,
    unread_event,
)
from cdckit.debezium.events import OF_ROWS, TEXTS, Event, EventFault, Image, Record
from cdckit.errors import InvalidArgument
from cdckit.model.records import require_records
from cdckit.parts import avro
from cdckit.parts.avro import SchemaRefused
from cdckit.parts.avro.schema import MAX_TEXT

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


def read_avro(values: pa.Array, records: Sequence[Record], registry: Registry) -> list[Event]:
    """The event of each record, whose value names the schema that it is written in."""
    keys = _keys(pa.array([record.key for record in records], pa.binary()), registry)
    events: list[Any] = [
        unread_event(record, key.columns, EventFault.NOT_FRAMED, None)
        for record, key in zip(records, keys, strict=True)
    ]
    for group in groups(values, registry):
        envelopes = _envelopes(group.values)
        types = None if group.schema_id is None else types_in(registry.schemas[group.schema_id])
        said = zip(group.faults.to_pylist(), group.findings.to_pylist(), strict=True)
        for at, (place, (fault, finding)) in enumerate(zip(group.places.tolist(), said, strict=True)):
            record, key = records[place], keys[place]
            # What is wrong with the value is said first.
            if fault is not None or envelopes is None:
                events[place] = unread_event(record, key.columns, EventFault[fault or _NO_EVENT], finding)
                continue
            text = _other_text(envelopes[at], group.values[at])
            event = event_of(envelopes[at], record, key.columns, types, "avro", text)
            events[place] = event if key.fault is None else event.refuse(key.fault, key.finding)
    return events


_NO_EVENT = EventFault.NOT_AN_EVENT.name


class _Key(NamedTuple):
    """The columns of a key, or what is wrong with it."""

    columns: Image | None = None
    fault: EventFault | None = None
    finding: str | None = None


def _keys(keys: pa.Array, registry: Registry) -> list[_Key]:
    """What the keys say; one that names no schema is JSON, or nothing."""
    found = [_Key()] * len(keys)
    for group in groups(keys, registry):
        columns = as_maps(group.values).to_pylist(maps_as_pydicts="lossy")
        said = zip(columns, group.faults.to_pylist(), group.findings.to_pylist(), strict=True)
        for place, (row, fault, finding) in zip(group.places.tolist(), said, strict=True):
            if fault == EventFault.NOT_FRAMED:
                found[place] = _Key(read_key(keys[place].as_py()))
            elif fault is not None:
                found[place] = _Key(row, EventFault[fault], f"in the key: {finding or ''}")
            else:
                found[place] = _Key(row)
    return found


def _envelopes(values: pa.Array) -> list[Envelope] | None:
    """What each value says as an envelope, the columns of its rows as texts; None for what is no record."""
    if not pa.types.is_struct(values.type):
        return None
    columns: dict[str, list[Any]] = {}
    for field in msgspec.structs.fields(Envelope):
        at = values.type.get_field_index(field.encode_name)
        if at >= 0:
            part = pc.struct_field(values, at)
            is_row = field.name in ("before", "after") and pa.types.is_struct(part.type)
            columns[field.name] = (as_maps(part) if is_row else part).to_pylist(maps_as_pydicts="lossy")
    blocks = {"source": Source, "transaction": Transaction}
    for name in blocks.keys() & columns.keys():
        columns[name] = [_block(blocks[name], said) for said in columns[name]]
    return [
        Envelope(**dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)
    ] or [Envelope() for _ in range(len(values))]


def _block(kind: type[Any], said: Any) -> Any:
    if not isinstance(said, Mapping):
        return None
    names = ((field.name, field.encode_name) for field in msgspec.structs.fields(kind))
    return kind(**{name: said[called] for name, called in names if called in said})


def _other_text(envelope: Envelope, value: pa.Scalar) -> str | None:
    """The value as JSON where it is not about a row."""
    return None if envelope.op in OF_ROWS else as_json(value.as_py(maps_as_pydicts="lossy"))


@lru_cache(maxsize=512)
def types_in(schema: str) -> dict[str, str]:
    """`column_types` of a schema, empty of one that cannot be used."""
    try:
        plain_schema(schema)
    except SchemaRefused:
        return {}
    return column_types(schema)


_BY_FORM = {"confluent": 4, "apicurio": 8}


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
    records = require_records(records, function="decode_avro")
    if ids not in _BY_FORM:
        raise InvalidArgument("decode_avro", "ids", f"one of {', '.join(_BY_FORM)}", ids)
    return decoded_by(records, partial(read_avro, registry=Registry(_texts(schemas), _BY_FORM[ids])))


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
