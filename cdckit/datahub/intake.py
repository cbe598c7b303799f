"""Intake: workers read new messages once, and write what they say of each target to its table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from cdckit.datahub.mappings import Place
from cdckit.datahub.message_reader import Reading
from cdckit.datahub.readers import Work
from cdckit.datahub.statement_rows import statements_of
from cdckit.datahub.statements import MESSAGE_COLUMNS, REFRESH, statement_schema
from cdckit.parts.arrow_types import arrow_schema, slices
from cdckit.parts.schemas import flat_columns
from cdckit.parts.workers import Made
from cdckit.store import File
from cdckit.store.files import Target
from cdckit.store.writing import OpenFiles, reported

_CHARACTERS_AT_ONCE = 1 << 23
"""How much data is read before its rows are handed on: Python's objects take ten times the room."""

_REPORT = flat_columns("report string")


class Taken(NamedTuple):
    """What was read: of how many messages, and by target the files of what was said of it."""

    messages: int
    files: dict[str, list[File]]
    refreshed: set[str]
    """The targets of which a message gives a list of all entities."""


def take(messages: DataFrame, work: Work, targets: Mapping[str, Target]) -> Taken:
    """
    Let workers read messages, and write what they say.

    Guids and links that a computation gives are written; of those that must be looked up, `claims` and marked
    texts say by what.

    Args:
        messages: As `routed` gives them; of those that are refused nothing is read.
        work: By what they are read.
        targets: Where the statements about each target are written.

    Cost: one job: one pass of the messages' data through Python, no shuffle.
    """
    made = Made(_readable(messages), partial(_take, work=work, targets=dict(targets)), _REPORT)
    reports = [json.loads(row["report"]) for row in made.rows().collect()]
    files = {
        entity: reported((one for each in reports for one in each["files"][entity]), target)
        for entity, target in targets.items()
    }
    refreshed = {entity for each in reports for entity in each["refreshed"]}
    return Taken(sum(each["messages"] for each in reports), files, refreshed)


def statements_about(messages: DataFrame, work: Work, entity: str) -> DataFrame:
    """
    What messages, given as to `take`, say of one target (`statement_schema`).

    Cost: one pass of the messages' data through Python, no shuffle, whenever it is looked at.
    """
    columns = statement_schema(work.schema.targets[entity])
    some = replace(work, entities=frozenset([entity]))
    return Made(_readable(messages), partial(_stated_about, work=some), columns).rows()


def _stated_about(batches: Iterable[pa.RecordBatch], work: Work) -> Iterator[pa.RecordBatch]:
    return (rows for _, rows in stated(batches, work))


def _readable(messages: DataFrame) -> DataFrame:
    """What workers are to know of each message; those that are refused have neither a system nor data."""
    columns = {name: f"if(refused IS NULL, {name}, NULL) AS {name}" for name in ("source_system", "data")}
    return messages.selectExpr(*(columns.get(name, name) for name in MESSAGE_COLUMNS))


def _take(
    batches: Iterable[pa.RecordBatch], work: Work, targets: Mapping[str, Target]
) -> Iterator[pa.RecordBatch]:
    count, refreshed = 0, set[str]()

    def counted() -> Iterator[pa.RecordBatch]:
        nonlocal count
        for batch in batches:
            count += batch.num_rows
            yield batch

    with ExitStack() as stack:
        files = {entity: stack.enter_context(OpenFiles(target)) for entity, target in targets.items()}
        for entity, rows in stated(counted(), work):
            files[entity].take(rows)
            if pc.any(pc.equal(rows.column("operation"), REFRESH)).as_py():
                refreshed.add(entity)
        found = {entity: one.close() for entity, one in files.items()}
    report = {"messages": count, "files": found, "refreshed": sorted(refreshed)}
    yield pa.record_batch({"report": pa.array([json.dumps(report)])})


def stated(batches: Iterable[pa.RecordBatch], work: Work) -> Iterator[tuple[str, pa.RecordBatch]]:
    """What messages say: statements, each batch with the target that it is about."""
    readings: dict[Place, Reading] = {}
    targets = {entity: work.schema.targets[entity] for entity in work.targets}
    columns = {entity: arrow_schema(statement_schema(target)) for entity, target in targets.items()}
    brought = {place: work.schema.brought(place) & set(columns) for place in work.schema.all_mappings}
    for batch in batches:
        for some in slices(batch, "data", _CHARACTERS_AT_ONCE):
            for place, entities in brought.items():
                of_system = pc.equal(some["source_system"], place.system)
                ours = some.filter(pc.and_(of_system, pc.equal(some["source_entity"], place.entity)))
                if not entities or not ours.num_rows:
                    continue
                if place not in readings:
                    readings[place] = Reading(work, place)
                for piece, found in readings[place].in_pieces(ours):
                    for entity in sorted(entities):
                        for rows in statements_of(piece, found, entity, columns[entity]):
                            yield entity, rows
