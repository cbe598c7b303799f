"""What a relay forgets of events: where they stood in their streams stays, and what they said goes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from functools import partial, reduce
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.databus.event_tables import changes, rows
from cdckit.databus.event_values import DATA, DatabusFault, Source
from cdckit.databus.events import EVENT_FIELDS
from cdckit.databus.relay_tables import EVENTS, STORED_SCHEMA, WAITING_SCHEMA, Settings
from cdckit.databus.window_batches import STREAM, Key, split_streams, with_columns
from cdckit.ledger import ErasedPart
from cdckit.ledger.columns import Kind, log_fields
from cdckit.ledger.erased_files import digest_rows
from cdckit.ledger.places import PLACE, record_place
from cdckit.ledger.shell import WAITING
from cdckit.ledger.tombstones import Erasures, erased_changes, note_refused
from cdckit.merging.arrow_changes import GUID
from cdckit.model.records import ERROR_CODE, ERROR_DESCRIPTION, ERROR_FIELDS
from cdckit.parts.arrays import Ints, bools
from cdckit.parts.values import guid
from cdckit.parts.workers import worker_reports
from cdckit.store import File, Transaction
from cdckit.store.files import Target, read_batches
from cdckit.store.writing import OpenFiles, parse_report

ERASED = "ERASED"
"""In place of an opcode: of data events of which nothing is left but their place, their source and SCN, by
which windows are told."""

_VALUES = ("key", "value", "headers", "long_key", "string_key", "logical_partition", "payload")
_BY_WINDOW = (DatabusFault.EVENT_LATE.value, DatabusFault.SCN_FELL.value)
"""Errors that the window finds, of events that can be read."""
_TABLES = {EVENTS: STORED_SCHEMA, WAITING: WAITING_SCHEMA}


def is_erased() -> Column:
    """Whether an event was erased."""
    return F.coalesce(F.col("opcode") == ERASED, F.lit(False))


def erased_again(kept: DataFrame) -> DataFrame:
    """Events that were erased, in the columns in which they are kept, as if they came now."""
    record = ("topic", "partition", "offset", "timestamp", "timestampType")
    known = {*record, *(field.name for field in EVENT_FIELDS)}
    columns = (
        (F.col(each.name) if each.name in known else F.lit(None).cast(each.dataType)).alias(each.name)
        for each in STORED_SCHEMA
    )
    return kept.select(*columns)


def event_changes(events: DataFrame, source: Source, keys: Iterable[str]) -> DataFrame:
    """What events of a source say, whatever became of their windows, also those that came too late."""
    sound = F.col(ERROR_CODE).isNull() | F.col(ERROR_CODE).isin(*_BY_WINDOW)
    readable = events.where(sound).drop(ERROR_CODE, ERROR_DESCRIPTION)
    return changes(rows(readable, source), keys=list(keys))


def event_places(tables: Transaction, source: Source, kind: Kind, entities: DataFrame) -> DataFrame:
    """The places of all events that speak of entities, also of windows that never passed, or are open."""
    types = log_fields(tables.schema(kind.changes))
    key = {name: F.col("data").getField(name).cast(types[name].dataType) for name in kind.keys}
    found = [
        event_changes(tables.read(name, {"source_id": [source.id]}), source, kind.keys)
        .withColumn(GUID, guid(kind.entity, key))
        .join(entities, GUID, "left_semi")
        .select(record_place("arrival.").alias(PLACE))
        for name in _TABLES
        if tables.has(name)
    ]
    return reduce(DataFrame.unionByName, found).distinct()


def drop_erased_events(fresh: DataFrame, tables: Transaction, settings: Settings) -> DataFrame:
    """
    Events that come, those of entities that were erased without what they say; nobody has written these yet.

    Cost: nothing, until something was erased; then the values of its source are read once more, and the
    events shuffled by their places.
    """
    found = []
    for name, keys in settings.keys.items():
        kind = settings.kind(name)
        if Erasures.of(tables, kind) is None:
            continue
        erased = erased_changes(event_changes(fresh, settings.named[name], keys), tables, kind)
        assert erased is not None
        note_refused(tables, kind, erased)
        found.append(erased.select(record_place("arrival.").alias(PLACE)))
    if not found:
        return fresh
    places = reduce(DataFrame.unionByName, found).distinct().withColumn("_erased", F.lit(True))
    named = fresh.withColumn(PLACE, record_place()).join(places, PLACE, "left")
    theirs = F.coalesce("_erased", F.lit(False)) & F.coalesce(F.col("kind") == DATA, F.lit(False))
    values = {
        name: F.when(~theirs, F.col(name)) for name in (*_VALUES, *(each.name for each in ERROR_FIELDS))
    }
    marked = named.withColumns({**values, "opcode": F.when(theirs, ERASED).otherwise(F.col("opcode"))})
    return marked.select(*fresh.columns)


def forget_events(tables: Transaction, places: DataFrame) -> list[ErasedPart]:
    """
    Take what events said out of the files that have them, which stay one of one stream each, in their order.

    Cost: a task for each file that is touched.
    """
    tasks = ((name, columns) for name, columns in _TABLES.items() if tables.has(name))
    return [part for each in tasks for part in _forget(tables, *each, places)]


def _forget(tables: Transaction, name: str, columns: T.StructType, places: DataFrame) -> list[ErasedPart]:
    placed = tables.read(name).select(*STREAM, "offset", record_place().alias(PLACE))
    chosen = placed.join(places, PLACE, "left_semi").select(*STREAM, "offset").repartition(*STREAM)
    target = tables.target(name, columns, STREAM)
    files = [
        _EventFile(one.path, _stream_of(one), one.low["offset"], one.high["offset"])
        for one in tables.files(name)
    ]
    reports = worker_reports(chosen, partial(_rewrite_files, target=target, files=files))
    if not reports:
        return []
    removed = tuple(sorted(each["path"] for each in reports))
    added = parse_report((one for each in reports for one in each["added"]), target)
    tables.adopt(name, added, removed)
    digests = (_together(each[side] for each in reports) for side in ("before", "after"))
    counts = (sum(each[what] for each in reports) for what in ("rows", "erased"))
    return [ErasedPart(name, None, removed, tuple(one.path for one in added), *counts, *digests)]


class _EventFile(NamedTuple):
    path: str
    stream: Key
    first: int
    last: int


def _stream_of(one: File) -> Key:
    return tuple(one.partition[name] for name in STREAM)


def _together(digests: Iterable[str]) -> str:
    """One digest for those of several files, whatever their order."""
    return hashlib.sha256("\n".join(sorted(digests)).encode()).hexdigest()


def _rewrite_files(
    batches: Iterable[pa.RecordBatch], *, target: Target, files: list[_EventFile]
) -> Iterator[dict[str, Any]]:
    chosen: dict[Key, list[Ints]] = {}
    for batch in batches:
        for piece in split_streams(batch):
            key = tuple(piece.column(name)[0].as_py() for name in STREAM)
            chosen.setdefault(key, []).append(np.asarray(piece.column("offset")))
    for key, found in chosen.items():
        offsets = np.unique(np.concatenate(found))
        for one in files:
            own = offsets[(offsets >= one.first) & (offsets <= one.last)]
            report = _rewrite_file(target, one.path, own) if one.stream == key and len(own) else None
            if report is not None:
                yield report


def _rewrite_file(target: Target, path: str, offsets: Ints) -> dict[str, Any] | None:
    before = _whole(target, path, None)
    theirs = bools(pc.is_in(before.column("offset"), pa.array(offsets)))
    theirs &= bools(pc.fill_null(pc.equal(before.column("kind"), DATA), False))
    if not theirs.any():
        return None
    with OpenFiles(target) as files:
        files.take(_without_values(before, theirs))
        added = files.close()
    # A worker is not told of which stream the files are that it has written.
    names = [each for each in target.shape.schema.names if each not in STREAM]
    after = pa.Table.from_batches([_whole(target, one["path"], names) for one in added])
    rest = pa.array(~theirs)
    was, is_ = (
        digest_rows(_one_batch(rows.select(names).filter(rest)))
        for rows in (pa.Table.from_batches([before]), after)
    )
    if was != is_:
        raise RuntimeError(f"An erasure would change other events in {path}: nothing was committed.")
    counts = {"rows": before.num_rows, "erased": int(theirs.sum())}
    return {"path": path, "added": added, **counts, "before": was, "after": is_}


def _without_values(events: pa.RecordBatch, theirs: Any) -> pa.RecordBatch:
    mask = pa.array(theirs)
    stays = pa.array(np.arange(events.num_rows), mask=theirs)
    values = {name: events.column(name).take(stays) for name in (*_VALUES, ERROR_CODE, ERROR_DESCRIPTION)}
    return with_columns(events, {**values, "opcode": pc.if_else(mask, ERASED, events.column("opcode"))})


def _whole(target: Target, path: str, names: list[str] | None) -> pa.RecordBatch:
    return _one_batch(pa.Table.from_batches(list(read_batches(target, path, names))))


def _one_batch(rows: pa.Table) -> pa.RecordBatch:
    [batch] = rows.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], schema=rows.schema)]
    return batch
