"""Statements: what every record of every message says of one target, typed, before anything is looked up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.changes import ARRIVAL_TYPE
from cdckit.datahub.columns import Columns
from cdckit.datahub.readers import Filter, Reader
from cdckit.datahub.reading import Found, Reading
from cdckit.datahub.source_systems import Schema
from cdckit.datahub.targets import Place, Target
from cdckit.datahub.walk import Fault, Listing, Nodes, Walk
from cdckit.parts.arrow_types import arrow_schema
from cdckit.parts.json_text import as_json, storable
from cdckit.parts.workers import Made

END_OF_MESSAGE = 2**31 - 2
"""The number of what a message says as a whole, after all its records; what follows from it is one more."""

UPSERT, DELETE, AUTOCREATE, LIST, REFRESH, DROPPED, UNREADABLE = (
    "upsert", "delete", "autocreate", "list", "refresh", "dropped", "unreadable",
)  # fmt: skip

SOUGHT = "sought"

_CHARACTERS_AT_ONCE = 1 << 23
"""How much data is read before its rows are handed on: Python's objects take ten times the room."""


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
    return T.StructType(
        [
            T.StructField("message_id", T.StringType()),
            T.StructField("place", T.IntegerType()),
            T.StructField("record", T.StringType()),
            T.StructField("operation", T.StringType()),
            T.StructField("effective_timestamp", T.TimestampType()),
            T.StructField("arrival", ARRIVAL_TYPE),
            T.StructField("listed", T.IntegerType()),
            T.StructField("guid", T.StringType()),
            T.StructField("claims", T.ArrayType(T.StringType())),
            T.StructField("inherited", T.ArrayType(T.StringType())),
            T.StructField("within", T.ArrayType(T.StringType())),
            T.StructField("data", target.data),
            T.StructField("carried", T.StructType(flags)),
            *([T.StructField(SOUGHT, links)] if target.links else []),
            T.StructField("error_code", T.StringType()),
            T.StructField("error_description", T.StringType()),
            T.StructField("raw", T.StringType()),
        ]
    )


MESSAGE_COLUMNS = (
    "message_identifier", "source_system", "source_entity", "effective_timestamp", "refresh", "options",
    "data", "message_timestamp", "topic", "partition", "offset",
)  # fmt: skip
"""The columns of the message store that are read."""


def statements(
    messages: DataFrame,
    schema: Schema,
    entity: str,
    *,
    readers: Mapping[str, Reader],
    filters: Mapping[str, Filter],
    files: str | None = None,
) -> Made:
    """
    What the records of *messages* say of the target *entity*.

    Args:
        messages: Rows of the message store.
        schema: Its mappings decide what is read, and how.
        entity: One of the schema's targets.
        readers: By the names that mappings call them.
        filters: Likewise.
        files: The folder to which readers of files are confined.

    Returns:
        One row per statement (see `statement_schema`).  Guids and links that a computation gives are
        there; of those that must be looked up `claims` and marked texts say by what.

    Cost: one pass of the messages' data through Python, no shuffle.
    """
    roots = schema.roots(entity)
    wanted = [
        (F.col("source_system") == place.system) & (F.col("source_entity") == place.entity)
        for place in {(place.system, place.entity): place for place in roots}.values()
    ]
    some = messages.where(_any(wanted)).select(*MESSAGE_COLUMNS)
    columns = statement_schema(schema.targets[entity])
    work = _Work(schema, entity, readers, filters, files, arrow_schema(columns))
    return Made(some, partial(_stated, work=work), columns)


def _any(conditions: list[Any]) -> Any:
    found = F.lit(False)
    for each in conditions:
        found = found | each
    return found


@dataclass(frozen=True)
class _Work:
    schema: Schema
    entity: str
    readers: Mapping[str, Reader]
    filters: Mapping[str, Filter]
    files: str | None
    columns: pa.Schema

    @cached_property
    def numbers(self) -> dict[Place, int]:
        return place_numbers(self.schema)


def place_numbers(schema: Schema) -> dict[Place, int]:
    """The mappings by number, as the column `place` names them."""
    return {place: number for number, place in enumerate(schema.places())}


def by_place(values: Mapping[int, int] | Mapping[int, str], kind: str) -> Column:
    """By the number in `place` its value, null where there is none."""
    listed = [F.lit(values.get(number)) for number in range(max(values) + 1)]
    return F.get(F.array(*listed), F.col("place")).cast(kind)


def _stated(batches: Iterable[pa.RecordBatch], work: _Work) -> Iterator[pa.RecordBatch]:
    given = (work.readers, work.filters, work.files)
    readings = [Reading(work.schema, place, *given) for place in work.schema.roots(work.entity)]
    for batch in batches:
        for some in _slices(batch):
            for reading in readings:
                ours = some.filter(_sent_to(some, reading.place))
                for piece, found in reading.in_pieces(ours):
                    yield from _of_found(piece, found, work)


def _sent_to(batch: pa.RecordBatch, place: Place) -> pa.Array:
    same_system = pc.equal(batch.column("source_system"), place.system)
    return pc.and_(same_system, pc.equal(batch.column("source_entity"), place.entity))


def _slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    sizes = np.asarray(pc.fill_null(pc.binary_length(batch.column("data")), 0))
    share = np.cumsum(sizes, dtype=np.int64) // _CHARACTERS_AT_ONCE
    cuts = [*np.flatnonzero(np.diff(share, prepend=-1)), batch.num_rows]
    for start, end in pairwise(cuts):
        yield batch.slice(start, end - start)


def _of_found(batch: pa.RecordBatch, found: Found, work: _Work) -> Iterator[pa.RecordBatch]:
    walk = found.walk
    for path, columns in found.columns.items():
        nodes, rows = walk.nodes[path], _Rows(batch, work, path[-1][1])
        if work.schema.mapping(path[-1][1]).reference == work.entity:
            yield from rows.of_records(nodes, columns)
        yield from rows.of_autocreated(nodes, columns)
    for path, listings in walk.listings.items():
        for child in {each.child for each in listings}:
            if work.schema.mapping(child).reference == work.entity:
                some = [each for each in listings if each.child == child]
                rows = _Rows(batch, work, child)
                yield from rows.of_listings(some, walk.nodes[path], found.columns[path])
    if work.schema.mapping(walk.root).reference == work.entity:
        yield from _Rows(batch, work, walk.root).of_messages(walk, batch.num_rows)


@dataclass
class _Rows:
    """Rows of statements that one mapping makes."""

    batch: pa.RecordBatch
    work: _Work
    place: Place

    def of_records(self, nodes: Nodes, columns: Columns) -> Iterator[pa.RecordBatch]:
        """One row per record that was processed at all."""
        count = len(nodes)
        dropped = np.zeros(count, bool)
        dropped[list(nodes.dropped)] = True
        operation = pc.if_else(columns.deleted, DELETE, UPSERT)
        operation = pc.if_else(pa.array(dropped), DROPPED, operation)
        faults = columns.faults
        raw: list[str | None] = [None] * count
        for at in faults:
            raw[at] = _raw(nodes.originals.get(at, nodes.records[at]))
        rows = {
            "record": nodes.paths,
            "operation": operation,
            "listed": pa.array(nodes.listed, pa.int32()),
            "guid": columns.guid,
            "claims": columns.claims,
            "inherited": columns.inherited,
            "within": columns.within,
            "error_code": _sparse(count, {at: str(fault.problem) for at, fault in faults.items()}),
            "error_description": _sparse(count, {at: _described(fault) for at, fault in faults.items()}),
            "raw": pa.array(raw, pa.string()),
        }
        values = {name: each.values for name, each in columns.fields.items()}
        carried = {name: each.carried for name, each in columns.fields.items() if each.carried is not None}
        rows["data"], rows["carried"] = self._fields(values, carried, count)
        if SOUGHT in self.work.columns.names:
            rows[SOUGHT] = self._sought(columns.sought, count)
        yield from self._made(nodes.message, nodes.number, rows, columns.processed)

    def _sought(self, sought: Mapping[str, pa.Array], count: int) -> pa.Array:
        """The column `sought`: all links of the target, in its order."""
        links = self.work.columns.field(SOUGHT).type
        texts = [sought.get(each.name, pa.nulls(count, pa.string())) for each in links]
        return pa.StructArray.from_arrays([each.cast(pa.string()) for each in texts], fields=list(links))

    def of_autocreated(self, nodes: Nodes, columns: Columns) -> Iterator[pa.RecordBatch]:
        """One row per link that makes what it leads to, if it leads to the target."""
        for made in columns.autocreated:
            if made.plan.entity != self.work.entity:
                continue
            rows = {
                "record": nodes.paths,
                "operation": pa.array([AUTOCREATE] * len(nodes)),
                "guid": made.guid,
                "inherited": columns.needs,
                "within": columns.holds,
            }
            rows["data"], rows["carried"] = self._fields(made.key, {}, len(nodes))
            # Without a mapping that translates the link the record's own stands for its system.
            there = _Rows(self.batch, self.work, made.plan.mapping or self.place)
            # A delete makes nothing.
            usable = pc.and_(pc.and_(columns.processed, columns.sound), pc.invert(columns.deleted))
            usable = pc.and_(usable, pc.is_valid(made.guid))
            yield from there._made(nodes.message, nodes.number, rows, usable)

    def of_listings(
        self, listings: list[Listing], parents: Nodes, columns: Columns
    ) -> Iterator[pa.RecordBatch]:
        """One row per list of children in a record that was processed."""
        at = pa.array([each.parent for each in listings], pa.int64())
        rows = {
            "record": parents.paths.take(at),
            "operation": pa.array([LIST] * len(listings)),
            "inherited": columns.needs.take(at),
            "within": columns.holds.take(at),
        }
        guids = columns.guid.take(at)
        # Two fields of children may lead to their parents by different fields.
        fields = {each.parent_field for each in listings}
        values = {
            name: pc.if_else(pa.array([each.parent_field == name for each in listings]), guids, None)
            for name in fields
        }
        rows["data"], rows["carried"] = self._fields(values, {}, len(listings))
        message = [parents.message[each.parent] for each in listings]
        alive = pc.and_(pc.and_(columns.processed, columns.sound), pc.invert(columns.deleted)).take(at)
        yield from self._made(message, [each.ends for each in listings], rows, alive)

    def of_messages(self, walk: Walk, count: int) -> Iterator[pa.RecordBatch]:
        """One row per message that is a refresh, and per message that could not be read."""
        # Each mapping of a record tries what the others read: one of them says so for all.
        unreadable = list(walk.unreadable) if self.place.index == 0 else []
        rows = {
            "operation": pa.array([UNREADABLE] * len(unreadable), pa.string()),
            "error_code": pa.array([str(walk.unreadable[row].problem) for row in unreadable], pa.string()),
            "error_description": pa.array(
                [_described(walk.unreadable[row]) for row in unreadable], pa.string()
            ),
        }
        yield from self._made(unreadable, [END_OF_MESSAGE] * len(unreadable), rows, None)
        is_refresh = pc.fill_null(self.batch.column("refresh"), False)
        read = [row for row in map(int, np.flatnonzero(np.asarray(is_refresh))) if row not in walk.unreadable]
        rows = {"operation": pa.array([REFRESH] * len(read), pa.string())}
        yield from self._made(read, [END_OF_MESSAGE] * len(read), rows, None)

    def _fields(
        self, values: Mapping[str, pa.Array], carried: Mapping[str, pa.Array], count: int
    ) -> tuple[pa.Array, pa.Array]:
        """The columns `data` and `carried`: all fields of the target, in its order."""
        data_type = self.work.columns.field("data").type
        data = [
            values[each.name].cast(each.type) if each.name in values else pa.nulls(count, each.type)
            for each in data_type
        ]
        everywhere, nowhere = pa.array(np.ones(count, bool)), pa.array(np.zeros(count, bool))
        flags = [carried.get(each.name, everywhere if each.name in values else nowhere) for each in data_type]
        names = [each.name for each in data_type]
        return (
            pa.StructArray.from_arrays(data, fields=list(data_type)),
            pa.StructArray.from_arrays(flags, names=names),
        )

    def _made(
        self, message: list[int], number: list[int], rows: dict[str, pa.Array], keep: pa.Array | None
    ) -> Iterator[pa.RecordBatch]:
        count = len(message)
        if not count:
            return
        at = pa.array(message, pa.int64())
        batch = self.batch
        arrival = self.work.columns.field("arrival").type
        rows["message_id"] = batch.column("message_identifier").take(at)
        rows["place"] = pa.array(np.full(count, self.work.numbers[self.place], np.int32))
        rows["effective_timestamp"] = batch.column("effective_timestamp").take(at)
        names = ("message_timestamp", "topic", "partition", "offset")
        parts = [*(batch.column(name).take(at) for name in names), pa.array(number, pa.int32())]
        rows["arrival"] = pa.StructArray.from_arrays(
            [part.cast(each.type) for part, each in zip(parts, arrival, strict=True)], fields=list(arrival)
        )
        columns = [
            rows[each.name].cast(each.type) if each.name in rows else pa.nulls(count, each.type)
            for each in self.work.columns
        ]
        made = pa.RecordBatch.from_arrays(columns, schema=self.work.columns)
        yield made if keep is None else made.filter(keep)


def _described(fault: Fault) -> str:
    return storable(fault.problem.describe(fault.text))


def _raw(record: Any) -> str | None:
    """A record as JSON text; null for one that has none, which a reader of somebody's own may return."""
    try:
        return storable(as_json(record))
    except (TypeError, ValueError, RecursionError):
        return None


def _sparse(count: int, values: Mapping[int, str]) -> pa.Array:
    if not values:
        return pa.nulls(count, pa.string())
    found: list[str | None] = [None] * count
    for at, value in values.items():
        found[at] = value
    return pa.array(found, pa.string())
