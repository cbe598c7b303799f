"""What a relay forgets of events: where they stood in their streams stays, and what they said goes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from functools import partial, reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdckit.databus.event_stream import EVENTS
from cdckit.databus.events import DATA, ERASED, EVENT, DatabusFault
from cdckit.databus.relay_tables import STORED_SCHEMA, WAITING_SCHEMA, RelaySettings, to_stored_rows
from cdckit.databus.row_changes import event_changes
from cdckit.databus.sources import Source
from cdckit.databus.window_batches import STREAM, with_columns
from cdckit.ledger import ErasedPart
from cdckit.ledger.buckets.tasks import FileRange
from cdckit.ledger.columns import log_fields
from cdckit.ledger.erasure.bucket_erasure import rewrite_files
from cdckit.ledger.erasure.tombstones import Erasures, erased_changes, note_refused
from cdckit.ledger.kind import Kind
from cdckit.merging.arrow_changes import GUID
from cdckit.model.faults import ERROR_CODE, ERROR_DESCRIPTION
from cdckit.model.rejected_records import ERROR_FIELDS, usable_changes
from cdckit.parts.arrays import Bools, bools
from cdckit.parts.guids import guid
from cdckit.parts.workers import worker_reports
from cdckit.shell.record_places import PLACE, record_place
from cdckit.shell.waiting import WAITING
from cdckit.store import File, Transaction
from cdckit.store.files import Target
from cdckit.store.writing import parse_report

_VALUES = ("key", "value", "headers", "long_key", "string_key", "logical_partition", "payload")
_BY_WINDOW = (DatabusFault.EVENT_LATE.value, DatabusFault.SCN_FELL.value)
"""Errors that the window finds, of events that can be read."""
_TABLES = {EVENTS: STORED_SCHEMA, WAITING: WAITING_SCHEMA}

_Stream = tuple[Any, ...]


def as_if_new(erased: DataFrame) -> DataFrame:
    """Bring erased events into the columns in which they are kept, as if they came now."""
    stay = ("topic", "partition", "offset", "timestamp", "timestampType", *EVENT.names)
    return to_stored_rows(erased.select(*stay))


def _readable_changes(events: DataFrame, source: Source, kind: Kind) -> DataFrame:
    """Read what events of a source say, whatever became of their windows, also those that came too late."""
    is_readable = F.col(ERROR_CODE).isNull() | F.col(ERROR_CODE).isin(*_BY_WINDOW)
    readable_events = events.where(is_readable).withColumn(ERROR_CODE, F.lit(None).cast("string"))
    return usable_changes(event_changes(readable_events, source, keys=kind.keys))


def event_places(tables: Transaction, source: Source, kind: Kind, entities: DataFrame) -> DataFrame:
    """Find the places of events that speak of entities, also of windows that never passed or are open."""
    types = log_fields(tables.schema(kind.changes))
    key = {name: F.col("data").getField(name).cast(types[name].dataType) for name in kind.keys}
    places = [
        _readable_changes(tables.read(name, {"source_id": [source.id]}), source, kind)
        .withColumn(GUID, guid(kind.entity, key))
        .join(entities, GUID, "left_semi")
        .select(record_place("arrival.").alias(PLACE))
        for name in _TABLES
        if tables.has(name)
    ]
    return reduce(DataFrame.unionByName, places).distinct()


def drop_erased_events(fresh: DataFrame, tables: Transaction, settings: RelaySettings) -> DataFrame:
    """
    Blank those of new events, before they are written, that speak of entities that were erased.

    Cost: nothing, until something was erased; then the values of its source are read once more, and the
    events shuffled by their places.
    """
    places = []
    for name, kind in settings.kinds.items():
        if Erasures.of(tables, kind) is None:
            continue
        erased = erased_changes(_readable_changes(fresh, settings.named[name], kind), tables, kind)
        assert erased is not None
        note_refused(tables, kind, erased)
        places.append(erased.select(record_place("arrival.").alias(PLACE)))
    if not places:
        return fresh
    erased_places = reduce(DataFrame.unionByName, places).distinct().withColumn("_erased", F.lit(True))
    marked = fresh.withColumn(PLACE, record_place()).join(erased_places, PLACE, "left")
    is_theirs = F.coalesce(F.col("_erased") & (F.col("kind") == DATA), F.lit(False))
    blank = {
        name: F.when(~is_theirs, F.col(name)) for name in (*_VALUES, *(field.name for field in ERROR_FIELDS))
    }
    opcode = F.when(is_theirs, ERASED).otherwise(F.col("opcode"))
    return marked.withColumns({**blank, "opcode": opcode}).select(*fresh.columns)


def forget_events(tables: Transaction, places: DataFrame) -> list[ErasedPart]:
    """
    Take what events said out of the files that have them, which stay one of one stream each, in their order.

    Cost: a task for each file that is touched.
    """
    return [part for name in _TABLES if tables.has(name) for part in _forget(tables, name, places)]


def _forget(tables: Transaction, name: str, places: DataFrame) -> Iterator[ErasedPart]:
    placed = tables.read(name).select(*STREAM, "offset", record_place().alias(PLACE))
    offsets = placed.join(places, PLACE, "left_semi").select(*STREAM, "offset").repartition(*STREAM)
    target = tables.target(name, _TABLES[name], STREAM)
    files: dict[_Stream, list[File]] = {}
    for file in tables.files(name):
        files.setdefault(tuple(file.partition[column] for column in STREAM), []).append(file)
    reports = worker_reports(offsets, partial(_rewrite_streams, target=target, files=files), heavy=True)
    if not reports:
        return
    removed = tuple(sorted(path for report in reports for path in report["removed"]))
    added = parse_report((file for report in reports for file in report["added"]), target)
    tables.adopt(name, added, removed)
    rows, erased = (sum(report[what] for report in reports) for what in ("rows", "erased"))
    digests = (_sum_up(report[side] for report in reports) for side in ("before", "after"))
    yield ErasedPart(name, None, removed, tuple(file.path for file in added), rows, erased, *digests)


def _sum_up(digests: Iterable[str]) -> str:
    """Make one digest of those of several streams, whatever their order."""
    return hashlib.sha256("\n".join(sorted(digests)).encode()).hexdigest()


def _rewrite_streams(
    batches: Iterable[pa.RecordBatch], *, target: Target, files: Mapping[_Stream, list[File]]
) -> Iterator[dict[str, Any]]:
    offsets_by_stream: dict[_Stream, set[int]] = {}
    for batch in batches:
        for *stream, offset in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            offsets_by_stream.setdefault(tuple(stream), set()).add(offset)
    for key, offsets in offsets_by_stream.items():
        places = pa.array(sorted(offsets))
        touched = [
            FileRange(file.path, file.size, file.rows)
            for file in files[key]
            if any(file.low["offset"] <= offset <= file.high["offset"] for offset in offsets)
        ]
        part = rewrite_files(target, touched, partial(_is_chosen, offsets=places), _without_values)
        if part.removed:
            yield vars(part)


def _is_chosen(rows: pa.RecordBatch, *, offsets: pa.Array) -> Bools:
    is_data = bools(pc.fill_null(pc.equal(rows.column("kind"), DATA), False))
    return bools(pc.is_in(rows.column("offset"), offsets)) & is_data


def _without_values(events: pa.RecordBatch, is_theirs: Bools) -> pa.RecordBatch:
    indices = pa.array(np.arange(events.num_rows), mask=is_theirs)
    values = {name: events.column(name).take(indices) for name in (*_VALUES, ERROR_CODE, ERROR_DESCRIPTION)}
    opcode = pc.if_else(pa.array(is_theirs), ERASED, events.column("opcode"))
    return with_columns(events, {**values, "opcode": opcode})
