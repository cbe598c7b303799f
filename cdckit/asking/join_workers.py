"""What workers make of facts and versions: of the rows of whole keys, each fact with what it asked for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdckit.asking.join_answers import NO_VERSION, REASONS, Answers, How, answered
from cdckit.asking.join_rows import AT, FACT, FORGOTTEN, IS_DELETED, KNOWN, SOURCE, UNTIL, version_column
from cdckit.asking.points import NEVER, Overlap, Points, Versions
from cdckit.errors import CdcError
from cdckit.kernel.arrays import bools, ints, positions
from cdckit.kernel.entities import ROWS_AT_ONCE, first_of_entity, whole_entities
from cdckit.parts.arrow_types import batch_of
from cdckit.parts.running import NOWHERE, Bools, Ints

_ALWAYS = np.iinfo(np.int64).min


class OverlappingVersions(CdcError, ValueError):
    """Two versions of one key, neither of them deleted, are in force at once."""

    def __init__(self, into: str, key: str, at: str) -> None:
        self.into, self.key, self.at = into, key, at
        super().__init__(into, key, at)

    def __str__(self) -> str:
        before, between, after = overlap_text(self.into)
        return f"{before}{self.key}{between}{self.at}{after}"


def overlap_text(into: str) -> tuple[str, str, str]:
    """What is said of an overlap: before the key, between key and instant, and behind."""
    return (
        f"as_of_join() needs one version at a time per key in the lookup {into!r}; of the key ",
        " two overlap at ",
        ": the history is not sound, or `on` does not tell one entity from the next.",
    )


def joined(
    batches: Iterable[pa.RecordBatch], key: Sequence[str], hows: Sequence[How], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The facts among the rows, which lie together by key, with an answer to each of *hows*."""
    for table in whole_entities(batches, key):
        number = np.cumsum(first_of_entity(table, key)) - 1
        source = ints(table.column(SOURCE).fill_null(NOWHERE))
        facts = np.flatnonzero(source == NOWHERE)
        found = []
        for how in hows:
            rows = np.flatnonzero(source == how.source)
            answers = _answers(table, key, number, facts, rows, how)
            # Where nothing is found, NOWHERE takes the last one of these.
            found.append(answers._replace(version=np.append(rows, NOWHERE)[answers.version]))
        for start in range(0, len(facts), ROWS_AT_ONCE):
            some = slice(start, start + ROWS_AT_ONCE)
            columns = table.column(FACT).take(pa.array(facts[some])).flatten()
            for how, answers in zip(hows, found, strict=True):
                columns += _columns(table, how, Answers(*(each[some] for each in answers)))
            yield batch_of(dict(zip(schema.names, columns, strict=True)), schema)


def _columns(table: pa.RecordBatch, how: How, answers: Answers) -> list[pa.Array]:
    """The columns that a lookup adds."""
    version = table.column(version_column(how.source)).take(positions(answers.version))
    if not how.reason:
        return [version]
    why = pa.array(np.where(answers.version == NOWHERE, answers.reason, NO_VERSION))
    said = pa.array(REASONS, pa.large_string()).take(why)
    found = pa.array(answers.version != NOWHERE)
    return [version, pc.if_else(found, pa.scalar(None, said.type), said)]


def _answers(
    table: pa.RecordBatch, key: Sequence[str], number: Ints, facts: Ints, rows: Ints, how: How
) -> Answers:
    """What the facts in some rows find among the versions in others."""
    points, has_time = _points(table, number, facts)
    begins, known = (_micros(table, name, rows, _ALWAYS) for name in (AT, KNOWN))
    ends, forgotten = (_micros(table, name, rows, NEVER) for name in (UNTIL, FORGOTTEN))
    versions = Versions(number[rows], begins, ends, known, forgotten)
    deleted = bools(table.column(IS_DELETED).take(pa.array(rows)))
    try:
        return answered(versions, deleted, points, has_time, how)
    except Overlap as overlap:
        row = int(rows[overlap.version])
        raise OverlappingVersions(how.into, _key_text(table, key, row), _clock(table, row)) from None


def _points(table: pa.RecordBatch, number: Ints, facts: Ints) -> tuple[Points, Bools]:
    """The points at which facts ask, and which facts have the times to ask."""
    at, known = (_micros(table, name, facts, _ALWAYS) for name in (AT, KNOWN))
    has_time = at != _ALWAYS
    if KNOWN in table.schema.names:
        has_time &= known != _ALWAYS
    return Points(number[facts], np.where(has_time, at, 0), known), has_time


def _micros(table: pa.RecordBatch, name: str, rows: Ints, instead: int) -> Ints:
    """The instants in some rows; what is not there is *instead*."""
    if name not in table.schema.names:
        return np.full(len(rows), instead)
    return ints(table.column(name).take(pa.array(rows)).cast(pa.int64()).fill_null(instead))


def _key_text(table: pa.RecordBatch, key: Sequence[str], row: int) -> str:
    values = (table.column(name)[row].as_py() for name in key)
    texts = [None if value is None else str(value) for value in values]
    return json.dumps(texts, separators=(",", ":"), ensure_ascii=False)


def _clock(table: pa.RecordBatch, row: int) -> str:
    """An instant as Spark writes it, in UTC."""
    return str(table.column(AT)[row].as_py()).removesuffix("+00:00")
