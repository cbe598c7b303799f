"""Statements: what every record of every message says of one target, before anything is looked up."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
from pyspark.sql import types as T

from cdckit.datahub.columns import Columns
from cdckit.datahub.conversions import NATURAL, ConvertedColumn, convert_natural
from cdckit.datahub.erased_records import are_masked
from cdckit.datahub.mappings import FieldType, Place, Target
from cdckit.datahub.readers import (
    MESSAGE_VALUES,
    Listing,
    Message,
    Nodes,
    Reader,
    ReaderSettings,
    ReadFault,
    RecordWalk,
    read_json,
    read_properties,
)
from cdckit.datahub.source_systems import Schema
from cdckit.model.changes import ARRIVAL_TYPE
from cdckit.parts.arguments import flat_columns, text_literal
from cdckit.parts.arrays import Ints
from cdckit.parts.json_text import as_json, storable

END_OF_MESSAGE = 2**31 - 2
"""The number of what a message says as a whole, after all its records; what follows from it is one more."""

UPSERT, DELETE, AUTOCREATE, LIST, REFRESH, DROPPED, UNREADABLE = (
    "upsert", "delete", "autocreate", "list", "refresh", "dropped", "unreadable",
)  # fmt: skip

IS_RECORD = f"operation IN {(UPSERT, DELETE)}"
NAMES_ENTITY = f"operation IN {(UPSERT, DELETE, AUTOCREATE)}"
MAKES = f"operation IN {(UPSERT, AUTOCREATE)}"
"""Whether a statement is a record that was read, is about one entity, or makes one if it is missing: SQL."""

SOUGHT = "sought"


def statement_schema(target: Target) -> T.StructType:
    """
    The columns of the statements about a target.

    One row is one record of one message in one mapping, or what a mapping says beside its records
    (`operation`): "upsert" and "delete"; "autocreate", that the entity is to be made if it is missing;
    "list", that the records of one parent end here, and "refresh", that those of the message do;
    "dropped" by a filter; "unreadable", the data of a whole message.  `sought` says of its links what they
    lead to, by its key: a guid does not tell.
    """
    flags = [T.StructField(name, T.BooleanType()) for name in target.fields]
    # No file can hold a struct without fields.
    links = T.StructType([T.StructField(name, T.StringType()) for name in target.links])
    lists = (T.StructField(name, T.ArrayType(T.StringType())) for name in ("claims", "inherited", "within"))
    return T.StructType(
        [
            *flat_columns("message_id string, place integer, record string, operation string"),
            *flat_columns("effective_timestamp timestamp").add("arrival", ARRIVAL_TYPE),
            *flat_columns("listed integer, guid string"),
            *lists,
            T.StructField("data", target.data),
            T.StructField("carried", T.StructType(flags)),
            *([T.StructField(SOUGHT, links)] if target.links else []),
            *flat_columns("error_code string, error_description string, raw string"),
        ]
    )


MESSAGE_COLUMNS = (
    "message_identifier", "source_system", "source_entity", "effective_timestamp", "refresh", "options",
    "data", "message_timestamp", "topic", "partition", "offset",
)  # fmt: skip
"""The columns of the message store that are read."""


def value_by_place(schema: Schema, texts: Mapping[Place, str], kind: str) -> str:
    """Choose in SQL, by the mapping that the column `place` names, what is *texts* for it; or null."""
    listed = ", ".join(texts.get(place, "NULL") for place in schema.numbers)
    return f"get(CAST(array({listed}) AS array<{kind}>), place)"


def source_sql(schema: Schema) -> str:
    """The source system of a statement, as SQL."""
    return value_by_place(schema, {place: text_literal(place.system) for place in schema.numbers}, "string")


def priority_sql(schema: Schema, target: Target | None = None) -> str:
    """The priority of the mapping of a statement, as SQL; null for mappings of others than *target*."""
    mappings = schema.all_mappings if target is None else target.mappings
    return value_by_place(
        schema, {place: str(mapping.priority) for place, mapping in mappings.items()}, "int"
    )


_WORD = re.compile(r"\w+", re.ASCII)
_NULL = "null"


class Unusual(Exception):
    """Something that Arrow would not read as it is meant: a general reader must."""


class Objects(NamedTuple):
    """The objects of some texts, column by column."""

    text: Ints
    """The row of the text in which each stands."""
    order: Ints
    """Which of its text each is, from 1."""
    properties: Mapping[str, pa.Array]
    nulls: bool
    """Whether what has no value was sent, as null; otherwise it was not sent."""


def plain_objects(texts: pa.Array, properties: Mapping[str, pa.DataType]) -> Objects:
    """
    The objects of texts, each of which is a JSON array of objects.

    Args:
        texts: The texts.
        properties: Those that are read, in the types that JSON itself has.

    Raises:
        Unusual: A text is no array of objects; a value is of another type; one object names a property
            twice; or it cannot be told what was null and what was not sent.

    >>> found = plain_objects(pa.array(['[{"a": 1}, {"a": 2}]', '[{"b": 3}]']), {"a": pa.int64()})
    >>> found.text.tolist(), found.order.tolist(), found.properties["a"].to_pylist(), found.nulls
    ([0, 0, 1], [1, 2, 1], [1, 2, None], False)
    """
    nulls = bool(pc.any(pc.match_substring_regex(texts, rf":\s*{_NULL}"), min_count=0).as_py())
    lists = _parse_texts(texts, pa.list_(pa.struct(list(properties.items()))), only_known=nulls)
    objects = lists.flatten()
    if lists.null_count or objects.null_count:
        raise Unusual
    columns = {field.name: objects.field(field.name) for field in objects.type}
    if nulls:
        _require_all_sent(texts, columns)
    counts = np.asarray(pc.list_value_length(lists), np.int64)
    first = np.cumsum(counts) - counts
    order = np.arange(1, len(objects) + 1) - np.repeat(first, counts)
    return Objects(np.repeat(np.arange(len(texts)), counts), order, columns, nulls)


def _parse_texts(texts: pa.Array, kind: pa.DataType, *, only_known: bool) -> pa.Array:
    lines = pc.binary_join_element_wise('{"of":', texts, "}", "").buffers()[2]
    options = {
        "explicit_schema": pa.schema([("of", kind)]),
        "unexpected_field_behavior": "error" if only_known else "ignore",
    }
    try:
        parsed = pyarrow.json.read_json(
            pa.BufferReader(lines),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=lines.size + 1),
            parse_options=pyarrow.json.ParseOptions(**options),
        )
    except pa.ArrowException:
        raise Unusual from None
    if parsed.num_rows != len(texts):
        raise Unusual
    return parsed.column("of").combine_chunks()


def _require_all_sent(texts: pa.Array, properties: Mapping[str, pa.Array]) -> None:
    """
    Count the nulls in the texts: if there are fewer than properties without a value, some were not sent.

    Only properties that are read may be there, so none is inside another.  What looks like `"name": null`
    is one: in a text the quotes would have backslashes before them, and between two texts, as in
    `": ", "`, stands no word.
    """
    if not all(map(_WORD.fullmatch, properties)) or pc.any(pc.match_substring(texts, "\\")).as_py():
        raise Unusual
    named = rf'"(?:{"|".join(properties)})"\s*:\s*{_NULL}'
    sent = pc.sum(pc.count_substring_regex(texts, named)).as_py()
    if sent != sum(column.null_count for column in properties.values()):
        raise Unusual


_MANY, _FEW = 1 << 12, 1 << 8
"""How many messages Arrow is given at once, and how many where one of those is unusual."""


class FoundRecords(NamedTuple):
    """What messages hold for one mapping, and that as columns, parents before what they hold."""

    walk: RecordWalk
    columns: list[tuple[Nodes, Columns]]


class MappingReader:
    """The reading of the messages of one mapping, which stands at *place*, in one partition."""

    def __init__(self, work: ReaderSettings, place: Place) -> None:
        self._work, self._place = work, place
        self._form = plain_form(work.schema, place, work.readers)

    def read_pieces(self, batch: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, FoundRecords]]:
        """
        The messages of *batch* in pieces, and what each holds.

        Where a piece is not plain, smaller ones are tried.  If none of those is plain either, no more is
        tried in this partition: then the source does not write what its fields are.
        """
        for many in _pieces(batch, _MANY):
            records = self._read_plain(many)
            if records is not None or self._form is None or many.num_rows <= _FEW:
                yield many, records or self._read_by_python(many)
                continue
            few = [(piece, self._read_plain(piece)) for piece in _pieces(many, _FEW)]
            if not any(records for _, records in few):
                self._form = None
            for piece, records in few:
                yield piece, records or self._read_by_python(piece)

    def _read_plain(self, batch: pa.RecordBatch) -> FoundRecords | None:
        """None if anything is unusual, an error in a record included."""
        # Nothing to Arrow, what is left of a record that was erased would be one without values.
        if self._form is None or are_masked(batch.column("data")):
            return None
        walk = RecordWalk(self._work, self._place)
        try:
            objects = plain_objects(batch.column("data"), self._form)
            numbers: list[int] = walk.number_of(objects.order).tolist()
            rows: list[int] = objects.text.tolist()
            walk.nodes = PlainNodes(
                self._place, message=rows, number=numbers, listed=numbers, objects=objects
            )
            columns = Columns(walk.nodes, self._work.schema, None, _times(batch))
        except Unusual:
            return None
        return None if columns.faults else FoundRecords(walk, [(walk.nodes, columns)])

    def _read_by_python(self, batch: pa.RecordBatch) -> FoundRecords:
        walk = RecordWalk(self._work, self._place)
        columns = (batch.column(name).to_pylist() for name in MESSAGE_VALUES)
        for row, values in enumerate(zip(*columns, strict=True)):
            walk.read(Message(row, *values))
        return FoundRecords(walk, list(_walk_columns(walk.nodes, self._work.schema, None, _times(batch))))


def _times(batch: pa.RecordBatch) -> pa.Array:
    return batch.column("effective_timestamp")


def _walk_columns(
    nodes: Nodes, schema: Schema, above: Columns | None, message_times: pa.Array
) -> Iterator[tuple[Nodes, Columns]]:
    """Records as columns, and those that they hold."""
    columns = Columns(nodes, schema, above, message_times)
    yield nodes, columns
    for child_nodes in nodes.below.values():
        yield from _walk_columns(child_nodes, schema, columns, message_times)


def _pieces(batch: pa.RecordBatch, size: int) -> Iterator[pa.RecordBatch]:
    return (batch.slice(start, size) for start in range(0, batch.num_rows, size))


@dataclass(kw_only=True)
class PlainNodes(Nodes):
    """
    Records as Arrow has them.

    What is wrong with one cannot be told here: whoever finds a fault has Python read it again.
    """

    objects: Objects

    @property
    def paths(self) -> pa.Array:
        return pa.array(self.objects.order).cast(pa.string())

    def column(self, source: str, kind: FieldType) -> tuple[ConvertedColumn, pa.Array | None]:
        values = self.objects.properties[source]
        natural = convert_natural(values, kind)
        if natural is None or (pa.types.is_floating(values.type) and _has_negative_zero(values)):
            raise Unusual
        absent = values.null_count and not self.objects.nulls
        return ConvertedColumn(natural, {}), values.is_valid() if absent else None

    def has_property(self, source: str) -> bool:
        values = self.objects.properties[source]
        return bool(self.objects.nulls or values.null_count < len(values))


def _has_negative_zero(values: pa.Array) -> bool:
    # -0 is a whole number, which has no sign, and -0.0 is none: Arrow does not say which of them it read.
    zeros = values.filter(pc.equal(values, 0.0))
    return bool(np.signbit(np.asarray(zeros)).any())


def plain_form(schema: Schema, place: Place, readers: Mapping[str, Reader]) -> dict[str, pa.DataType] | None:
    """The properties that the mapping reads, in the types that JSON has them in; None if it cannot serve."""
    mapping = schema.mapping(place)
    beside = schema.systems[place.system].mappings[place.entity]
    if mapping.children or mapping.filters or mapping.unique_identifier:
        return None
    if any(readers[mapping.reader] is not read_json or mapping.time_source for mapping in beside):
        return None
    form: dict[str, pa.DataType] = {}
    for source, kind in read_properties(schema, place):
        natural = NATURAL.get(kind.name)
        if natural is None or form.setdefault(source, natural) != natural:
            return None
    return form


def make_statements(
    batch: pa.RecordBatch,
    found_records: FoundRecords,
    entity: str,
    columns: pa.Schema,
    *,
    reports_unreadable: bool,
) -> Iterator[pa.RecordBatch]:
    """
    Make the statements of messages about one target: *found_records* are what they hold for one mapping.

    Its statements have these *columns* (`statement_schema`).  Each mapping of a record tries what the others
    read: so one of them, in the statements about one target, *reports_unreadable* data for all.
    """
    walk, schema = found_records.walk, found_records.walk.schema
    for nodes, records in found_records.columns:
        rows = _Rows(batch, schema, columns, nodes.place)
        if schema.mapping(nodes.place).reference == entity:
            yield from rows.record_rows(nodes, records)
        yield from rows.autocreate_rows(nodes, records, entity)
        for child in {listing.child for listing in nodes.lists}:
            if schema.mapping(child).reference == entity:
                lists = [listing for listing in nodes.lists if listing.child == child]
                yield from replace(rows, place=child).list_rows(lists, nodes, records)
    rows = _Rows(batch, schema, columns, walk.place)
    if reports_unreadable:
        yield from rows.unreadable_rows(walk.unreadable)
    if schema.mapping(walk.place).reference == entity:
        yield from rows.refresh_rows(walk.unreadable)


@dataclass
class _Rows:
    """Rows of statements that one mapping makes."""

    batch: pa.RecordBatch
    schema: Schema
    columns: pa.Schema
    place: Place

    def record_rows(self, nodes: Nodes, columns: Columns) -> Iterator[pa.RecordBatch]:
        """One row per record that was processed at all."""
        count = len(nodes)
        dropped = np.zeros(count, bool)
        dropped[list(nodes.dropped)] = True
        operation = pc.if_else(columns.deleted, DELETE, UPSERT)
        operation = pc.if_else(pa.array(dropped), DROPPED, operation)
        faults = columns.faults
        rows = {
            "record": nodes.paths,
            "listed": pa.array(nodes.listed, pa.int32()),
            "guid": columns.guid,
            "claims": columns.claims,
            **columns.conditions._asdict(),
            "error_code": _sparse_texts(count, {at: str(fault.problem) for at, fault in faults.items()}),
            "error_description": _sparse_texts(
                count, {at: _describe_fault(fault) for at, fault in faults.items()}
            ),
            "raw": _sparse_texts(
                count, {at: _raw(nodes.originals.get(at, nodes.records[at])) for at in faults}
            ),
        }
        values = {name: column.values for name, column in columns.fields.items()}
        carried = {
            name: column.carried for name, column in columns.fields.items() if column.carried is not None
        }
        if SOUGHT in self.columns.names:
            rows[SOUGHT] = _make_struct(columns.sought, self.columns.field(SOUGHT).type, count)
        yield from self._make_batch(
            operation, nodes.message, nodes.number, rows, columns.processed, values, carried, columns.instants
        )

    def autocreate_rows(self, nodes: Nodes, columns: Columns, entity: str) -> Iterator[pa.RecordBatch]:
        """One row per link that makes what it leads to, if it leads to that target."""
        for autocreate in columns.autocreated:
            if autocreate.plan.entity != entity:
                continue
            rows = {"record": nodes.paths, "guid": autocreate.guid, **columns.inner_conditions._asdict()}
            # Without a mapping that translates the link the record's own stands for its system.
            there = replace(self, place=autocreate.plan.mapping or self.place)
            # A delete makes nothing.
            usable = pc.and_(columns.alive, pc.is_valid(autocreate.guid))
            key, instants = autocreate.key, columns.instants
            yield from there._make_batch(
                AUTOCREATE, nodes.message, nodes.number, rows, usable, key, instants=instants
            )

    def list_rows(self, lists: list[Listing], parents: Nodes, columns: Columns) -> Iterator[pa.RecordBatch]:
        """One row per list of children in a record that was processed."""
        at = pa.array([listing.parent for listing in lists], pa.int64())
        of_parents = {"record": parents.paths, **columns.inner_conditions._asdict()}
        rows = {name: texts.take(at) for name, texts in of_parents.items()}
        guids = columns.guid.take(at)
        # Two fields of children may lead to their parents by different fields.
        fields = {listing.parent_field for listing in lists}
        values = {
            name: pc.if_else(pa.array([listing.parent_field == name for listing in lists]), guids, None)
            for name in fields
        }
        message, ends = zip(
            *((parents.message[listing.parent], listing.end) for listing in lists), strict=True
        )
        alive, instants = columns.alive.take(at), columns.instants.take(at)
        yield from self._make_batch(LIST, message, ends, rows, alive, values, instants=instants)

    def unreadable_rows(self, faults: Mapping[int, ReadFault]) -> Iterator[pa.RecordBatch]:
        """One row per message that could not be read, which are those with these *faults*."""
        rows = {
            "error_code": pa.array([str(fault.problem) for fault in faults.values()], pa.string()),
            "error_description": pa.array(map(_describe_fault, faults.values()), pa.string()),
        }
        yield from self._make_batch(UNREADABLE, list(faults), [END_OF_MESSAGE] * len(faults), rows)

    def refresh_rows(self, unreadable: Container[int]) -> Iterator[pa.RecordBatch]:
        """One row per message that is a refresh, and not *unreadable*."""
        is_refresh = np.asarray(pc.fill_null(self.batch.column("refresh"), False))
        messages = [row for row in map(int, np.flatnonzero(is_refresh)) if row not in unreadable]
        yield from self._make_batch(REFRESH, messages, [END_OF_MESSAGE] * len(messages), {})

    def _make_batch(
        self,
        operation: str | pa.Array,
        message: Sequence[int],
        number: Sequence[int],
        rows: dict[str, pa.Array],
        keep: pa.Array | None = None,
        values: Mapping[str, pa.Array] | None = None,
        carried: Mapping[str, pa.Array] = MappingProxyType({}),
        instants: pa.Array | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Statements with these columns, and if there are *values*, with all fields of the target."""
        count = len(message)
        if not count:
            return
        if values is not None:
            data, flags = (self.columns.field(name).type for name in ("data", "carried"))
            carried_flags = {flag.name: pa.array(np.full(count, flag.name in values)) for flag in flags}
            rows["data"] = _make_struct(values, data, count)
            rows["carried"] = _make_struct({**carried_flags, **carried}, flags, count)
        rows["operation"] = pa.array([operation] * count) if isinstance(operation, str) else operation
        at = pa.array(message, pa.int64())
        batch = self.batch
        rows["message_id"] = batch.column("message_identifier").take(at)
        rows["place"] = pa.array(np.full(count, self.schema.numbers[self.place], np.int32))
        rows["effective_timestamp"] = _times(batch).take(at) if instants is None else instants
        parts = {name: batch.column(name).take(at) for name in ("topic", "partition", "offset")}
        parts["timestamp"] = batch.column("message_timestamp").take(at)
        parts["record_number"] = pa.array(number, pa.int32())
        rows["arrival"] = _make_struct(parts, self.columns.field("arrival").type, count)
        result = pa.RecordBatch.from_struct_array(_make_struct(rows, pa.struct(list(self.columns)), count))
        yield result if keep is None else result.filter(keep)


def _describe_fault(fault: ReadFault) -> str:
    return storable(fault.problem.describe(fault.text))


def _raw(record: Any) -> str | None:
    """A record as JSON text; null for one that has none, which a reader of somebody's own may return."""
    try:
        return storable(as_json(record))
    except (TypeError, ValueError, RecursionError):
        return None


def _sparse_texts(count: int, values: Mapping[int, str | None]) -> pa.Array:
    return pa.array(map(values.get, range(count)), pa.string()) if values else pa.nulls(count, pa.string())


def _make_struct(columns: Mapping[str, pa.Array], kind: pa.StructType, count: int) -> pa.Array:
    """
    Columns as one of that type, in which those are null that are not there.

    >>> _make_struct({"b": pa.array([1])}, pa.struct([("a", pa.string()), ("b", pa.int64())]), 1).to_pylist()
    [{'a': None, 'b': 1}]
    """
    parts = [
        columns[field.name].cast(field.type) if field.name in columns else pa.nulls(count, field.type)
        for field in kind
    ]
    return pa.StructArray.from_arrays(parts, fields=list(kind))
