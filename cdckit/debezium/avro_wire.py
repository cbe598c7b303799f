"""Records that name the schema of their value by its id in a registry, read in bulk: what workers do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from cdckit.debezium.avro_schemas import plain_schema
from cdckit.debezium.avro_texts import TEXTS, as_json, as_maps, texts
from cdckit.debezium.event_faults import EventFault
from cdckit.debezium.events import OF_ROWS
from cdckit.parts import avro
from cdckit.parts.arrow_types import arrow_type
from cdckit.records import WORKER_FIELDS

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
    yield from _refused(other, EventFault.NOT_FRAMED)
    by_head = {
        head: int.from_bytes(head[len(MAGIC) :], "big")
        for head in pc.unique(heads.filter(framed)).to_pylist()
    }
    strange = [head for head, schema_id in by_head.items() if schema_id not in registry.schemas]
    unknown = pc.and_(framed, pc.is_in(heads, pa.array(strange, heads.type)))
    said = [str(by_head[head]) for head in heads.filter(unknown).to_pylist()]
    yield from _refused(unknown, EventFault.UNKNOWN_SCHEMA, said)
    for head, schema_id in by_head.items():
        if schema_id not in registry.schemas:
            continue
        chosen = pc.fill_null(pc.equal(heads, pa.scalar(head, heads.type)), False)
        try:
            schema = plain_schema(registry.schemas[schema_id])
        except avro.SchemaRefused as refused:
            says = [f"{schema_id}: {refused}"] * chosen.true_count
            yield from _refused(chosen, EventFault.SCHEMA_UNUSABLE, says)
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


def _refused(chosen: pa.Array, fault: EventFault, findings: list[str] | None = None) -> Iterator[Group]:
    places = np.flatnonzero(chosen.to_numpy(zero_copy_only=False))
    count = len(places)
    if count:
        codes = pa.array([fault.value] * count, pa.string())
        says = _no_text(count) if findings is None else pa.array(findings, pa.string())
        yield Group(places, None, pa.nulls(count), codes, says)


def _no_text(count: int) -> pa.Array:
    return pa.nulls(count, pa.string())


def worker_schema(envelope: T.StructType) -> T.StructType:
    """The columns that workers make: those of the record, and what stands in its value and its key."""
    text = T.StringType()
    return T.StructType(
        [
            *WORKER_FIELDS,
            T.StructField("found", envelope),
            T.StructField("text", text),
            T.StructField("schema_id", text),
            T.StructField("avro_key", T.MapType(text, text)),
            T.StructField("fault", text),
            T.StructField("finding", text),
        ]
    )


def read_batches(
    batches: Iterator[pa.RecordBatch], *, registry: Registry, envelope: T.StructType
) -> Iterator[pa.RecordBatch]:
    """The columns of `worker_schema` of all records, those of one schema after the other."""
    names = worker_schema(envelope).fieldNames()
    for batch in batches:
        keys, key_faults, key_findings = _keys(batch.column("key"), registry)
        values = batch.column("value")
        nothing = np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))
        none = Group(nothing, None, pa.nulls(len(nothing)), _no_text(len(nothing)), _no_text(len(nothing)))
        for group in (none, *groups(values, registry)):
            if not len(group.places):
                continue
            places = pa.array(group.places)
            found = _envelope(group.values, envelope)
            ids = pa.array([None if group.schema_id is None else str(group.schema_id)], pa.string())
            columns = [
                *batch.take(places).columns,
                found,
                _said(group.values, found),
                ids.take(pa.array(np.zeros(len(places), np.int64))),
                keys.take(places),
                # What is wrong with the value is said first.
                pc.coalesce(group.faults, key_faults.take(places)),
                pc.if_else(group.faults.is_valid(), group.findings, key_findings.take(places)),
            ]
            yield pa.RecordBatch.from_arrays(columns, names=names)


def _keys(keys: pa.Array, registry: Registry) -> tuple[pa.Array, pa.Array, pa.Array]:
    """The columns of keys, and what is wrong with them; one that names no schema is left to other readers."""
    named = [each for each in groups(keys, registry) if not _is_other(each)]
    order = np.full(len(keys), -1, np.int64)
    order[np.concatenate([np.zeros(0, np.int64), *(each.places for each in named)])] = np.arange(
        sum(len(each.places) for each in named)
    )
    take = pa.array(order, mask=order < 0)
    maps = pa.concat_arrays([pa.nulls(0, TEXTS), *(as_maps(each.values) for each in named)])
    codes = pa.concat_arrays([_no_text(0), *(each.faults for each in named)])
    findings = pa.concat_arrays([_no_text(0), *(_of_key(each) for each in named)])
    return maps.take(take), codes.take(take), findings.take(take)


def _is_other(group: Group) -> bool:
    return group.schema_id is None and group.faults[0].as_py() == EventFault.NOT_FRAMED


def _of_key(group: Group) -> pa.Array:
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


def _said(values: pa.Array, found: pa.Array) -> pa.Array:
    """The value as JSON where it is not about a row, or where its row is text of its own."""
    if not pa.types.is_struct(values.type):
        return _no_text(len(values))
    after = values.type.field("after").type if values.type.get_field_index("after") >= 0 else None
    is_row = pc.is_in(pc.struct_field(found, "op"), pa.array(OF_ROWS))
    told = pc.and_(pc.fill_null(is_row, False), not (after is not None and pa.types.is_string(after)))
    rest = np.flatnonzero(pc.and_(values.is_valid(), pc.invert(told)).to_numpy(zero_copy_only=False))
    made = [as_json(each) for each in values.take(pa.array(rest)).to_pylist(maps_as_pydicts="lossy")]
    order = np.full(len(values), -1, np.int64)
    order[rest] = np.arange(len(rest))
    return pa.array(made, pa.string()).take(pa.array(order, mask=order < 0))
