"""Debezium's events in Avro: the schemas of a registry, whole with those they refer to, and their values."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Annotated, Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from cdckit.debezium.column_types import VARIABLE, with_digits
from cdckit.debezium.decoding import decoded_by
from cdckit.debezium.envelopes import Envelope, event_of, read_key, unread_event
from cdckit.debezium.events import OF_ROWS, Event, EventFault, Image, Record
from cdckit.errors import InvalidArgument
from cdckit.model.forms import RECORDS
from cdckit.parts import avro
from cdckit.parts.argument_forms import takes
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
    schema_text, *others = texts
    if not others or any(len(text) > MAX_TEXT for text in texts):
        return schema_text
    try:
        given: dict[str, Mapping[str, Any]] = {}
        for other in others:
            _note(json.loads(other), given)
        return json.dumps(_SchemaCopy(given).read(json.loads(schema_text), ""))
    except (ValueError, RecursionError):
        return schema_text


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
            return [self.read(branch, namespace) for branch in kind]
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
            definition["fields"] = [self._field(field, space) for field in fields]
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

    Names that differ in case alone stay as they are: which fields they become, those of all events decide.

    Raises:
        SchemaRefused: The text is no schema, or one that cannot be used; it says why.
    """
    avro.parse_schema(text)
    plain = json.dumps(json.loads(text, object_hook=_without_logical_type))
    return avro.parse_schema(plain, keep_names=True)


def _without_logical_type(schema: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in schema.items() if name != "logicalType"}


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
            return {column: _type_text(_schema(_nullable_type(kind))) for column, kind in _fields(row)}
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
        fields = [_schema(_nullable_type(kind)) | {"field": name} for name, kind in _fields(parts)]
        return {"type": "struct", "fields": fields}
    return {"type": _type(kind)}


def _fields(kind: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(kind, Mapping):
        for field in kind.get("fields") or ():
            yield field["name"], field["type"]


def _nullable_type(kind: Any) -> Any:
    """Find what a type holds that may be null."""
    if not isinstance(kind, list):
        return kind
    others = [branch for branch in kind if branch != "null"]
    return others[0] if len(others) == 1 else "string"


def _type(kind: Any) -> str:
    parts = kind if isinstance(kind, Mapping) else {"type": kind}
    if isinstance(name := parts.get("connect.name"), str):
        return with_digits(name, parts.get("connect.parameters"))
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


def texts(values: pa.Array) -> list[str | None]:
    """
    The text of the JSON value for each value, as Debezium's JSON has it: bytes in Base64.

    >>> texts(pa.array([{"scale": 2, "value": b"hi"}, None]))
    ['{"scale":2,"value":"aGk="}', None]
    """
    kind = values.type
    if pa.types.is_null(kind) or pa.types.is_boolean(kind) or pa.types.is_primitive(kind):
        plain: list[str | None] = values.cast(pa.string()).to_pylist()
        return plain
    # Arrow has no Base64 and writes no JSON.
    return [_text(value) for value in values.to_pylist(maps_as_pydicts="lossy")]


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return _base64(value) if isinstance(value, bytes) else as_json(value)


def as_json(value: Any) -> str:
    """
    A decoded value as compact JSON, bytes in Base64, and what is no number of JSON as Debezium's JSON has it.

    >>> as_json([1.5, float("nan"), b"hi"])
    '[1.5,"NaN","aGk="]'
    """
    style: dict[str, Any] = {"separators": (",", ":"), "ensure_ascii": False, "default": _base64}
    try:
        return json.dumps(value, allow_nan=False, **style)
    except ValueError:
        return json.dumps(_with_texts(value), **style)


def _with_texts(value: Any) -> Any:
    """The value with the names of the floats that are not finite."""
    if isinstance(value, dict):
        return {name: _with_texts(each) for name, each in value.items()}
    if isinstance(value, list):
        return list(map(_with_texts, value))
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def images(rows: pa.Array) -> list[Image | None]:
    """
    Each record with the texts of its columns; None for null, and for what is no record.

    Of a row that has a cell for each column these are the cells, with the texts of their values.

    >>> images(pa.array([{"id": 1, "ok": None}, None]))
    [{'id': '1', 'ok': None}, None]
    >>> images(pa.array([{"id": {"value": 1, "set": True}}]))
    [{'id': {'value': '1', 'set': True}}]
    """
    if not pa.types.is_struct(rows.type):
        return [None] * len(rows)
    names = [field.name for field in rows.type]
    read = _cells if all(_is_of_cells(field.type) for field in rows.type) else texts
    columns = [read(column) for column in rows.flatten()]
    of_rows = zip(*columns, strict=True) if columns else [()] * len(rows)
    there = rows.is_valid().to_pylist()
    return [
        dict(zip(names, row, strict=True)) if is_row else None
        for is_row, row in zip(there, of_rows, strict=True)
    ]


def _is_of_cells(kind: pa.DataType) -> bool:
    return pa.types.is_struct(kind) and {"value", "set"} <= {field.name for field in kind}


def _cells(column: pa.Array) -> list[dict[str, Any] | None]:
    cells = column.to_pylist(maps_as_pydicts="lossy")
    values = texts(pc.struct_field(column, "value"))
    return [cell and cell | {"value": value} for cell, value in zip(cells, values, strict=True)]


MAGIC = b"\0"


class Registry(NamedTuple):
    """The schemas that records name: by id their text, and how many bytes an id has."""

    schemas: Mapping[int, str]
    id_bytes: int


Error = tuple[EventFault, str | None]
"""What is wrong, and what was found."""


class Datums(NamedTuple):
    """Datums of one schema, or of none that is known: where they stand, what they are, what is wrong."""

    places: list[int]
    schema_id: int | None
    values: pa.Array
    errors: list[Error | None]


def read_datums(datums: Sequence[bytes | None], registry: Registry) -> Iterator[Datums]:
    """The values or the keys of some records, by the schemas that they name; nulls are in none."""
    width = len(MAGIC) + registry.id_bytes
    by_schema: dict[int | None, list[int]] = {}
    for place, datum in enumerate(datums):
        if datum is not None:
            is_framed = len(datum) >= width and datum.startswith(MAGIC)
            schema_id = int.from_bytes(datum[len(MAGIC) : width], "big") if is_framed else None
            by_schema.setdefault(schema_id, []).append(place)
    for schema_id, places in by_schema.items():
        if schema_id is None:
            yield _refuse(places, EventFault.NOT_FRAMED, None)
            continue
        if schema_id not in registry.schemas:
            yield _refuse(places, EventFault.UNKNOWN_SCHEMA, str(schema_id))
            continue
        try:
            schema = plain_schema(registry.schemas[schema_id])
        except SchemaRefused as refused:
            yield _refuse(places, EventFault.SCHEMA_UNUSABLE, f"{schema_id}: {refused}")
            continue
        bodies, start = pa.array([(datums[place] or b"")[width:] for place in places], pa.binary()), 0
        for part in avro.decode_parts(bodies, schema):
            fault, findings = EventFault.DATUM_UNREADABLE, part.errors.to_pylist()
            errors = [None if finding is None else (fault, finding) for finding in findings]
            yield Datums(places[start : start + len(errors)], schema_id, part.values, errors)
            start += len(errors)


def _refuse(places: list[int], fault: EventFault, finding: str | None) -> Datums:
    return Datums(places, None, pa.nulls(len(places)), [(fault, finding)] * len(places))


def read_avro(values: pa.Array, records: Sequence[Record], registry: Registry) -> list[Event]:
    """The event of each record, whose value names the schema that it is written in."""
    keys = _read_keys([record.key for record in records], registry)
    events = [
        unread_event(record, key.columns, EventFault.NOT_FRAMED, None)
        for record, key in zip(records, keys, strict=True)
    ]
    for datums in read_datums([record.value for record in records], registry):
        envelopes = _envelopes(datums.values)
        types = None if datums.schema_id is None else types_in(registry.schemas[datums.schema_id])
        for at, (place, error) in enumerate(zip(datums.places, datums.errors, strict=True)):
            record, key = records[place], keys[place]
            # What is wrong with the value is said first.
            if error is not None or envelopes is None:
                error = error or (EventFault.NOT_AN_EVENT, None)
                events[place] = unread_event(record, key.columns, *error)
                continue
            envelope, text = envelopes[at], None
            if envelope.op not in OF_ROWS:
                text = as_json(datums.values[at].as_py(maps_as_pydicts="lossy"))
            event = event_of(envelope, record, key.columns, types, "avro", text)
            events[place] = event if key.error is None else event.refuse(*key.error)
    return events


class _Key(NamedTuple):
    """The columns of a key, or what is wrong with it."""

    columns: Image | None = None
    error: Error | None = None


def _read_keys(keys: Sequence[bytes | None], registry: Registry) -> list[_Key]:
    """Read what the keys say; one that names no schema is JSON, or nothing."""
    read = [_Key()] * len(keys)
    for datums in read_datums(keys, registry):
        for place, columns, error in zip(datums.places, images(datums.values), datums.errors, strict=True):
            if error is not None and error[0] == EventFault.NOT_FRAMED:
                read[place] = _Key(read_key(keys[place]))
            else:
                read[place] = _Key(columns, error and (error[0], f"in the key: {error[1] or ''}"))
    return read


def _envelopes(values: pa.Array) -> list[Envelope] | None:
    """Read each value as an envelope, the columns of its rows as texts; None for what is no record."""
    if not pa.types.is_struct(values.type):
        return None
    columns = {
        field.name: images(column)
        if field.name in ("before", "after") and pa.types.is_struct(field.type)
        else column.to_pylist(maps_as_pydicts="lossy")
        for field, column in zip(values.type, values.flatten(), strict=True)
    }
    # A block is one, or nothing.
    for name in {"source", "transaction"} & columns.keys():
        columns[name] = [block if isinstance(block, dict) else None for block in columns[name]]
    rows = zip(*columns.values(), strict=True) if columns else [()] * len(values)
    return [msgspec.convert(dict(zip(columns, row, strict=True)), Envelope) for row in rows]


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


@takes(records=RECORDS)
def decode_avro(records: DataFrame, schemas: Schemas, *, ids: str = "confluent") -> DataFrame:
    """
    Decode every record of Debezium's topics where values and keys are in Avro; see `decode`.

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
    if ids not in _BY_FORM:
        raise InvalidArgument(None, "ids", f"one of {', '.join(_BY_FORM)}", ids)
    return decoded_by(records, partial(read_avro, registry=Registry(_texts(schemas), _BY_FORM[ids])))


_Texts = Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]


def _texts(schemas: Schemas) -> dict[int, str]:
    """Find by id one text that defines all that it names."""
    try:
        given = msgspec.convert(schemas, dict[int, str | _Texts])
    except msgspec.ValidationError as error:
        needed = 'the texts of schemas by their ids, such as {7: \'{"type": "record", …}\'}'
        raise InvalidArgument(None, "schemas", needed, schemas) from error
    return {id_: whole_schema([text] if isinstance(text, str) else text) for id_, text in given.items()}
