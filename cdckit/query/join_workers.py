"""What workers say of facts and versions, given their keys and times: which version each fact gets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql import types as T

from cdckit.kernel.arrays import bools, ints, numbered, positions
from cdckit.kernel.entities import ROWS_AT_ONCE, whole_entities
from cdckit.parts.arrow_types import arrow_schema, batch_of
from cdckit.parts.running_aggregates import NOWHERE, Bools, Ints
from cdckit.query.join_answers import REASONS, Answers, How, answered
from cdckit.query.join_rows import AT, FORGOTTEN, IS_DELETED, KNOWN, SOURCE, UNTIL
from cdckit.query.points import NEVER, Overlap, Points, Versions

_ALWAYS = np.iinfo(np.int64).min


STAND, REASON = "stand", "reason"
"""What is said of a row for each lookup: where the version stands that a fact gets, and why it gets none."""

OVERLAP = "overlap"
"""Into which lookup a version goes that overlaps with another one."""


def said_columns(hows: Sequence[How]) -> T.StructType:
    """What is said of each row."""
    said = T.StructType().add(OVERLAP, T.StringType())
    for index, how in enumerate(hows):
        said = said.add(said_column(STAND, index), T.LongType())
        if how.reason:
            said = said.add(said_column(REASON, index), T.StringType())
    return said


def said_column(kind: str, index: int) -> str:
    """The name of a column of one lookup."""
    return f"{kind}_{index}"


def told(
    batches: Iterable[pa.RecordBatch], group: str, key: Sequence[str], hows: Sequence[How]
) -> Iterator[pa.RecordBatch]:
    """
    For each row, of which those of a group lie together, where it stands, and which version each fact gets.

    Of a version, its own place among all rows; of a fact, the place of the version that it gets, or null.
    """
    schema = arrow_schema(said_columns(hows))
    begin = 0
    for table in whole_entities(batches, [group]):
        said = _said(table, begin, key, hows)
        begin += table.num_rows
        made = batch_of({name: said.get(name, pa.nulls(table.num_rows)) for name in schema.names}, schema)
        for start in range(0, table.num_rows, ROWS_AT_ONCE):
            yield made.slice(start, ROWS_AT_ONCE)


def _said(table: pa.RecordBatch, begin: int, key: Sequence[str], hows: Sequence[How]) -> dict[str, pa.Array]:
    """What is said of the rows of whole groups, of which the first stands at *begin*; nothing where null."""
    number = numbered(pa.StructArray.from_arrays([table.column(name) for name in key], list(key)))
    source = ints(table.column(SOURCE).fill_null(NOWHERE))
    facts = np.flatnonzero(source == NOWHERE)
    place = np.arange(begin, begin + table.num_rows)
    said: dict[str, pa.Array] = {}
    for index, how in enumerate(hows):
        rows = np.flatnonzero(source == how.source)
        try:
            answers = _answers(table, number, facts, rows, how)
        except Overlap as overlap:
            return {OVERLAP: _at(table.num_rows, rows[[overlap.version]], pa.array([how.into]))}
        # Where nothing is found, NOWHERE takes the last one of these.
        stands = place.copy()
        stands[facts] = np.append(place[rows], NOWHERE)[answers.version]
        said[said_column(STAND, index)] = positions(stands)
        if how.reason:
            lacks = answers.version == NOWHERE
            why = pa.array(REASONS).take(pa.array(answers.reason[lacks]))
            said[said_column(REASON, index)] = _at(table.num_rows, facts[lacks], why)
    return said


def _at(count: int, rows: Ints, values: pa.Array) -> pa.Array:
    """So many values: these in some rows, null in all others."""
    places = np.full(count, NOWHERE)
    places[rows] = np.arange(len(rows))
    return values.take(positions(places))


def _answers(table: pa.RecordBatch, number: Ints, facts: Ints, rows: Ints, how: How) -> Answers:
    """What the facts in some rows find among the versions in others; raises `Overlap` with one of those."""
    points, has_time = _points(table, number, facts)
    begins, known = (_micros(table, name, rows, _ALWAYS) for name in (AT, KNOWN))
    ends, forgotten = (_micros(table, name, rows, NEVER) for name in (UNTIL, FORGOTTEN))
    versions = Versions(number[rows], begins, ends, known, forgotten)
    deleted = bools(table.column(IS_DELETED).take(pa.array(rows)))
    return answered(versions, deleted, points, has_time, how)


def _points(table: pa.RecordBatch, number: Ints, facts: Ints) -> tuple[Points, Bools]:
    """The points at which facts ask, and which facts have the times to ask."""
    at, known = (_micros(table, name, facts, _ALWAYS) for name in (AT, KNOWN))
    has_time = np.ones(len(facts), dtype=bool)
    for name in {AT, KNOWN} & set(table.schema.names):
        has_time &= np.asarray(table.column(name).is_valid())[facts]
    return Points(number[facts], np.where(has_time, at, 0), known), has_time


def _micros(table: pa.RecordBatch, name: str, rows: Ints, instead: int) -> Ints:
    """The instants in some rows; what is not there is *instead*."""
    if name not in table.schema.names:
        return np.full(len(rows), instead)
    return ints(table.column(name).take(pa.array(rows)).cast(pa.int64()).fill_null(instead))
