"""Stating: rows of statements, made of what the messages of one mapping hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdckit.datahub.columns import Columns
from cdckit.datahub.mappings import Place
from cdckit.datahub.message_reader import Found
from cdckit.datahub.record_walk import Fault, Listing, Nodes, Walk
from cdckit.datahub.source_systems import Schema
from cdckit.datahub.statements import (
    AUTOCREATE,
    DELETE,
    DROPPED,
    END_OF_MESSAGE,
    LIST,
    REFRESH,
    SOUGHT,
    UNREADABLE,
    UPSERT,
)
from cdckit.parts.arrow_types import struct_of
from cdckit.parts.json_text import as_json, storable


def statements_of(
    batch: pa.RecordBatch, found: Found, entity: str, columns: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """
    What messages say of one target: *found* in them is what they hold for one mapping.

    Its statements have these *columns* (`statement_schema`).
    """
    walk, schema = found.walk, found.walk.schema
    for nodes, records in found.columns:
        rows = _Rows(batch, schema, columns, nodes.place)
        if schema.mapping(nodes.place).reference == entity:
            yield from rows.of_records(nodes, records)
        yield from rows.of_autocreated(nodes, records, entity)
        for child in {each.child for each in nodes.lists}:
            if schema.mapping(child).reference == entity:
                lists = [each for each in nodes.lists if each.child == child]
                yield from replace(rows, place=child).of_lists(lists, nodes, records)
    if schema.mapping(walk.place).reference == entity:
        yield from _Rows(batch, schema, columns, walk.place).of_messages(walk)


@dataclass
class _Rows:
    """Rows of statements that one mapping makes."""

    batch: pa.RecordBatch
    schema: Schema
    columns: pa.Schema
    place: Place

    def of_records(self, nodes: Nodes, columns: Columns) -> Iterator[pa.RecordBatch]:
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
            "inherited": columns.inherited,
            "within": columns.within,
            "error_code": _sparse(count, {at: str(fault.problem) for at, fault in faults.items()}),
            "error_description": _sparse(count, {at: _described(fault) for at, fault in faults.items()}),
            "raw": _sparse(count, {at: _raw(nodes.originals.get(at, nodes.records[at])) for at in faults}),
        }
        values = {name: each.values for name, each in columns.fields.items()}
        carried = {name: each.carried for name, each in columns.fields.items() if each.carried is not None}
        if SOUGHT in self.columns.names:
            rows[SOUGHT] = struct_of(columns.sought, self.columns.field(SOUGHT).type, count)
        place = (nodes.message, nodes.number)
        yield from self._made(operation, *place, rows, columns.processed, values, carried, columns.times)

    def of_autocreated(self, nodes: Nodes, columns: Columns, entity: str) -> Iterator[pa.RecordBatch]:
        """One row per link that makes what it leads to, if it leads to that target."""
        for made in columns.autocreated:
            if made.plan.entity != entity:
                continue
            rows = {"record": nodes.paths, "guid": made.guid}
            rows |= {"inherited": columns.needs, "within": columns.holds}
            # Without a mapping that translates the link the record's own stands for its system.
            there = replace(self, place=made.plan.mapping or self.place)
            # A delete makes nothing.
            usable = pc.and_(columns.alive, pc.is_valid(made.guid))
            place = (nodes.message, nodes.number)
            yield from there._made(AUTOCREATE, *place, rows, usable, made.key, times=columns.times)

    def of_lists(self, lists: list[Listing], parents: Nodes, columns: Columns) -> Iterator[pa.RecordBatch]:
        """One row per list of children in a record that was processed."""
        at = pa.array([each.parent for each in lists], pa.int64())
        of_parents = {"record": parents.paths, "inherited": columns.needs, "within": columns.holds}
        rows = {name: each.take(at) for name, each in of_parents.items()}
        guids = columns.guid.take(at)
        # Two fields of children may lead to their parents by different fields.
        fields = {each.parent_field for each in lists}
        values = {
            name: pc.if_else(pa.array([each.parent_field == name for each in lists]), guids, None)
            for name in fields
        }
        message, ends = [parents.message[each.parent] for each in lists], [each.ends for each in lists]
        times = None if columns.times is None else columns.times.take(at)
        yield from self._made(LIST, message, ends, rows, columns.alive.take(at), values, times=times)

    def of_messages(self, walk: Walk) -> Iterator[pa.RecordBatch]:
        """One row per message that is a refresh, and per message that could not be read."""
        # Each mapping of a record tries what the others read: one of them says so for all.
        faults = walk.unreadable if self.place.index == 0 else {}
        rows = {
            "error_code": pa.array([str(fault.problem) for fault in faults.values()], pa.string()),
            "error_description": pa.array(map(_described, faults.values()), pa.string()),
        }
        is_refresh = np.asarray(pc.fill_null(self.batch.column("refresh"), False))
        read = [row for row in map(int, np.flatnonzero(is_refresh)) if row not in walk.unreadable]
        for operation, messages, more in ((UNREADABLE, list(faults), rows), (REFRESH, read, {})):
            yield from self._made(operation, messages, [END_OF_MESSAGE] * len(messages), more)

    def _made(
        self,
        operation: str | pa.Array,
        message: list[int],
        number: list[int],
        rows: dict[str, pa.Array],
        keep: pa.Array | None = None,
        values: Mapping[str, pa.Array] | None = None,
        carried: Mapping[str, pa.Array] = MappingProxyType({}),
        times: pa.Array | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Statements with these columns, and if there are *values*, with all fields of the target."""
        count = len(message)
        if not count:
            return
        if values is not None:
            data, flags = (self.columns.field(name).type for name in ("data", "carried"))
            said = {each.name: pa.array(np.full(count, each.name in values)) for each in flags}
            rows["data"] = struct_of(values, data, count)
            rows["carried"] = struct_of({**said, **carried}, flags, count)
        rows["operation"] = pa.array([operation] * count) if isinstance(operation, str) else operation
        at = pa.array(message, pa.int64())
        batch = self.batch
        rows["message_id"] = batch.column("message_identifier").take(at)
        rows["place"] = pa.array(np.full(count, self.schema.numbers[self.place], np.int32))
        effective = batch.column("effective_timestamp").take(at)
        rows["effective_timestamp"] = (
            effective if times is None else pc.coalesce(times.cast(effective.type), effective)
        )
        parts = {name: batch.column(name).take(at) for name in ("topic", "partition", "offset")}
        parts["timestamp"] = batch.column("message_timestamp").take(at)
        parts["record_number"] = pa.array(number, pa.int32())
        rows["arrival"] = struct_of(parts, self.columns.field("arrival").type, count)
        made = pa.RecordBatch.from_struct_array(struct_of(rows, pa.struct(list(self.columns)), count))
        yield made if keep is None else made.filter(keep)


def _described(fault: Fault) -> str:
    return storable(fault.problem.describe(fault.text))


def _raw(record: Any) -> str | None:
    """A record as JSON text; null for one that has none, which a reader of somebody's own may return."""
    try:
        return storable(as_json(record))
    except (TypeError, ValueError, RecursionError):
        return None


def _sparse(count: int, values: Mapping[int, str | None]) -> pa.Array:
    return pa.array(map(values.get, range(count)), pa.string()) if values else pa.nulls(count, pa.string())
