"""What workers make of facts and versions: of the rows of whole keys, each fact with what it asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdckit.asking.join_answers import NO_VERSION, REASONS, Answers, How, answered
from cdckit.asking.join_rows import (
    AT,
    FACT,
    FORGOTTEN,
    IS_DELETED,
    KNOWN,
    LOOKUP,
    SOURCE,
    UNTIL,
    version_column,
)
from cdckit.asking.points import NEVER, Overlap, Points, Versions
from cdckit.kernel.arrays import bools, ints, positions
from cdckit.kernel.entities import ROWS_AT_ONCE, first_of_entity, whole_entities
from cdckit.parts.arrow_types import batch_of
from cdckit.parts.running import NOWHERE, Bools, Ints

_ALWAYS = np.iinfo(np.int64).min


def joined(
    batches: Iterable[pa.RecordBatch], key: Sequence[str], hows: Sequence[How], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """
    The facts among the rows, which lie together by key, with an answer to each of *hows*.

    The last column is of an overlap: nothing follows a row in which it says something.
    """
    for table in whole_entities(batches, key):
        number = np.cumsum(first_of_entity(table, key)) - 1
        source = ints(table.column(SOURCE).fill_null(NOWHERE))
        facts = np.flatnonzero(source == NOWHERE)
        found = []
        for how in hows:
            rows = np.flatnonzero(source == how.source)
            try:
                answers = _answers(table, number, facts, rows, how)
            except Overlap as overlap:
                yield _overlapping(table, int(rows[overlap.version]), how, schema)
                return
            # Where nothing is found, NOWHERE takes the last one of these.
            found.append(answers._replace(version=np.append(rows, NOWHERE)[answers.version]))
        for start in range(0, len(facts), ROWS_AT_ONCE):
            some = slice(start, start + ROWS_AT_ONCE)
            columns = table.column(FACT).take(pa.array(facts[some])).flatten()
            for how, answers in zip(hows, found, strict=True):
                columns += _columns(table, how, Answers(*(each[some] for each in answers)))
            sound = pa.nulls(len(facts[some]), schema.types[-1])
            yield batch_of(dict(zip(schema.names, [*columns, sound], strict=True)), schema)


def _overlapping(table: pa.RecordBatch, row: int, how: How, schema: pa.Schema) -> pa.RecordBatch:
    """A row that says of nothing but the version in a row of the table: it overlaps with another one."""
    kind = schema.types[-1]
    parts = [
        pa.array([how.into], part.type) if part.name == LOOKUP else table.column(part.name).slice(row, 1)
        for part in kind
    ]
    columns = [pa.nulls(1, each) for each in schema.types[:-1]]
    said = pa.StructArray.from_arrays(parts, [part.name for part in kind])
    return batch_of(dict(zip(schema.names, [*columns, said], strict=True)), schema)


def _columns(table: pa.RecordBatch, how: How, answers: Answers) -> list[pa.Array]:
    """The columns that a lookup adds."""
    version = table.column(version_column(how.source)).take(positions(answers.version))
    if not how.reason:
        return [version]
    why = pa.array(np.where(answers.version == NOWHERE, answers.reason, NO_VERSION))
    said = pa.array(REASONS, pa.large_string()).take(why)
    found = pa.array(answers.version != NOWHERE)
    return [version, pc.if_else(found, pa.scalar(None, said.type), said)]


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
