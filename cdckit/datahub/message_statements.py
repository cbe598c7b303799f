"""What messages say: workers read them into statements, from which the changes of a target follow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import cache, cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from cdckit.datahub.mappings import Place
from cdckit.datahub.messages import DECODED_SCHEMA, IS_STORED, with_refusals, with_statuses
from cdckit.datahub.outcomes import find_rejects, message_log, record_log
from cdckit.datahub.readers import Filter, Reader, ReaderSettings
from cdckit.datahub.source_systems import Schema
from cdckit.datahub.statement_changes import DerivedChanges
from cdckit.datahub.statements import (
    MESSAGE_COLUMNS,
    REFRESH,
    MappingReader,
    make_statements,
    statement_schema,
)
from cdckit.datahub.waiting import facts, find_unsupported, with_answers, with_open_needs
from cdckit.errors import InvalidArgument
from cdckit.merging.merge import merge
from cdckit.model.rejected_records import add_rejects
from cdckit.parts.argument_forms import takes
from cdckit.parts.arguments import require_batch, require_types
from cdckit.parts.arrow_types import arrow_schema
from cdckit.parts.workers import WorkerPlan, worker_reports
from cdckit.store import File
from cdckit.store.files import Target
from cdckit.store.writing import OpenFiles, parse_report

_CHARACTERS_AT_ONCE = 1 << 23
"""How much data is read before its rows are handed on: Python's objects take ten times the room."""


class ReadReport(NamedTuple):
    """What was read: of how many messages, and by target the files of what was said of it."""

    messages: int
    files: dict[str, list[File]]
    refreshed: set[str]
    """The targets of which a message gives a list of all entities."""


def read_messages(messages: DataFrame, work: ReaderSettings, targets: Mapping[str, Target]) -> ReadReport:
    """
    Let workers read messages, and write what they say.

    Guids and links that a computation gives are written; of those that must be looked up, `claims` and marked
    texts say by what.

    Args:
        messages: As `with_refusals` gives them; of those that are refused nothing is read.
        work: By what they are read.
        targets: Where the statements about each target are written.

    Cost: one job: one pass of the messages' data through Python, no shuffle.
    """
    read = partial(_read_batches, work=work, targets=dict(targets))
    reports = worker_reports(_message_columns(messages), read)
    files = {
        entity: parse_report((file for report in reports for file in report["files"][entity]), target)
        for entity, target in targets.items()
    }
    refreshed = {entity for report in reports for entity in report["refreshed"]}
    return ReadReport(sum(report["messages"] for report in reports), files, refreshed)


def statements_about(messages: DataFrame, work: ReaderSettings, entity: str) -> DataFrame:
    """
    Read what messages, given as to `read_messages`, say of one target (`statement_schema`).

    Cost: one pass of the messages' data through Python, no shuffle, whenever it is looked at.
    """
    columns = statement_schema(work.schema.targets[entity])
    settings = replace(work, entities=frozenset([entity]))
    return WorkerPlan(_message_columns(messages), partial(_statements_about, work=settings), columns).rows()


def _statements_about(batches: Iterable[pa.RecordBatch], work: ReaderSettings) -> Iterator[pa.RecordBatch]:
    return (rows for _, rows in read_statements(batches, work))


def _message_columns(messages: DataFrame) -> DataFrame:
    """Name what workers are to know of each message; refused ones have neither a system nor data."""
    columns = {name: f"if(refused IS NULL, {name}, NULL) AS {name}" for name in ("source_system", "data")}
    return messages.selectExpr(*(columns.get(name, name) for name in MESSAGE_COLUMNS))


def _read_batches(
    batches: Iterable[pa.RecordBatch], work: ReaderSettings, targets: Mapping[str, Target]
) -> Iterator[dict[str, Any]]:
    count, refreshed = 0, set[str]()

    def counted() -> Iterator[pa.RecordBatch]:
        nonlocal count
        for batch in batches:
            count += batch.num_rows
            yield batch

    with ExitStack() as stack:
        files = {entity: stack.enter_context(OpenFiles(target)) for entity, target in targets.items()}
        for entity, rows in read_statements(counted(), work):
            files[entity].take(rows)
            if pc.any(pc.equal(rows.column("operation"), REFRESH)).as_py():
                refreshed.add(entity)
        written_files = {entity: open_files.close() for entity, open_files in files.items()}
    yield {"messages": count, "files": written_files, "refreshed": sorted(refreshed)}


def read_statements(
    batches: Iterable[pa.RecordBatch], work: ReaderSettings
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Read what messages say: statements, each batch with the target that it is about."""
    readings: dict[Place, MappingReader] = {}
    columns = {entity: arrow_schema(statement_schema(work.schema.targets[entity])) for entity in work.targets}
    brought: dict[Place, list[str]] = {}
    for place, mapping in work.schema.all_mappings.items():
        targets = sorted(work.schema.reachable_targets(place) & set(columns))
        if targets:
            brought[place] = sorted(targets, key=lambda entity: entity != mapping.reference)
    # Each mapping of a record tries what the others read: the first that is read tells of unreadable data.
    reporters = {(place.system, place.entity): place for place in reversed(brought)}.values()
    for batch in batches:
        for part in _slices(batch, "data", _CHARACTERS_AT_ONCE):
            for place, entities in brought.items():
                of_system = pc.equal(part["source_system"], place.system)
                ours = part.filter(pc.and_(of_system, pc.equal(part["source_entity"], place.entity)))
                if not ours.num_rows:
                    continue
                if place not in readings:
                    readings[place] = MappingReader(work, place)
                reporter = entities[0] if place in reporters else None
                for piece, records in readings[place].read_pieces(ours):
                    for entity in entities:
                        for rows in make_statements(
                            piece, records, entity, columns[entity], reports_unreadable=entity == reporter
                        ):
                            yield entity, rows


Cache = Callable[[DataFrame], DataFrame]


@takes()
def changes(
    messages: DataFrame,
    schema: Schema,
    entity: str,
    *,
    readers: Mapping[str, Reader] | None = None,
    filters: Mapping[str, Filter] | None = None,
    files: str | Path | None = None,
    cached: Cache | None = None,
) -> DataFrame:
    """
    The changes of one target, for `merge`: what `Hub.changes` gives after one run over these messages.

    Args:
        messages: All messages there are, as `decode` gives them.  Those in error, and all but the first of
            one identifier, say nothing.
        schema: The source systems.
        entity: A target that is not exported.
        readers: Readers of your own, by the names that mappings call them.
        filters: Filters of your own, likewise.
        files: The folder to which readers of files are confined.
        cached: Is given what is looked at more than once, and returns it so that it is not computed each time
            anew: `lambda rows: rows.localCheckpoint()`, which runs jobs at once, for instance.

    Returns:
        One row per change (`cdckit.model.CHANGE_SCHEMA`) with its `guid`: the records that can be applied,
        entities that links make, and absences, which are what refreshes, lists of children and deletes
        of parents did not name.  And as rejects (`reject`) what cannot be used: messages in error, messages
        that the schema has no place for, messages whose data cannot be read and that might speak of this
        target, and records in error about it, each with its message.  Records whose links lead nowhere wait,
        and are neither.

    Raises:
        InvalidArgument: *schema* is none, or names a reader or a filter that is not given; *entity* is no
            target that is merged; *messages* are a stream.
        MissingColumns, WrongColumnType: *messages* are not as `decode` gives them.

    Cost: no job.  Without *cached* the messages are read in Python several times for each target that decides
    about this one (where its links lead, what holds or makes it, and so on), and the plan of a child holds
    the histories of its parents.  Links cost a few shuffles by guid, and one task for the statements
    whose links lead nowhere, or to what has links itself: half a kilobyte each.  Weak keys cost two more
    shuffles of their records, and one task for the pairs of key values that they name.  A `Hub` reads each
    message once, and keeps up what it makes.

    Source:
        Data hub specification.

    >>> from datetime import datetime, timezone
    >>> from cdckit import datahub
    >>> fields = [{"reference": "number", "type": "integer", "key": True}, {"reference": "name"}]
    >>> product = {"reference": "product", "fields": fields}
    >>> shop = datahub.schema({"reference": "*", "mappings": {"product": [product]}})
    >>> sent = [
    ...     {"entity": "product", "data": [{"number": 1, "name": "kettle"}, {"number": 2, "name": "mug"}]},
    ...     {"entity": "product", "refresh": True, "data": [{"number": 1, "name": "teapot"}]},
    ... ]
    >>> records = datahub.records(session(), sent, received_at=datetime(2024, 1, 1, tzinfo=timezone.utc))
    >>> changes = datahub.changes(datahub.decode(records), shop, "product")
    >>> changes.orderBy("arrival.offset", "arrival.record_number").select("operation", "data.number").show()
    +---------+------+
    |operation|number|
    +---------+------+
    |   upsert|     1|
    |   upsert|     2|
    |   upsert|     1|
    |   absent|  NULL|
    +---------+------+
    <BLANKLINE>
    """
    work = ReaderSettings.create(schema, readers, filters, files)
    if entity not in schema.families:
        raise InvalidArgument(None, "entity", f"one of {', '.join(sorted(schema.families))}", entity)
    require_types(messages, DECODED_SCHEMA)
    instead = "hand its batches to a hub: writeStream.foreachBatch(hub.sink('a name'))"
    require_batch(messages, "messages", instead)
    statements = MessageStatements(messages, work, entity, cached or (lambda rows: rows))
    return add_rejects(statements.derived.changes(entity), statements.rejects(entity))


class MessageStatements:
    """What messages say, for the changes of one target: each part is described once, when it is asked for."""

    is_small = False

    def __init__(self, messages: DataFrame, work: ReaderSettings, entity: str, keep: Cache) -> None:
        self._work, self._keep = work, keep
        self._received = keep(with_statuses(messages))
        self._messages = keep(with_refusals(self._received.where(IS_STORED), work.schema))
        self.entities = work.schema.deciding_targets(entity)
        self.derived = DerivedChanges(work.schema, self)
        self._histories = cache(self._merge_target)

    def rejects(self, entity: str) -> DataFrame:
        """
        Find what is in error: messages that are none or go nowhere, and what may or does speak of the target.
        """
        statuses = self._messages.selectExpr(
            "message_identifier", "refused AS status", "refusal AS error_message"
        )
        log = record_log(self.derived.processed_statements(entity), None, entity)
        whole = log.unionByName(message_log(statuses), allowMissingColumns=True)
        return find_rejects(self._received, whole, statuses)

    def stored_messages(self) -> DataFrame:
        """The messages that are received, and where the schema has no place for them (`with_refusals`)."""
        return self._messages

    def statements(self, entity: str) -> DataFrame:
        """All statements about a target."""
        return self._keep(statements_about(self._messages, self._work, entity))

    def lookup_table(self, kind: str, entity: str, rows: DataFrame) -> DataFrame:
        """What a look-up finds."""
        return self._keep(rows)

    def may_be_refreshed(self, entity: str) -> bool:
        """Whether a message refreshes the target is not known before the messages are read."""
        return True

    def history(self, entity: str) -> DataFrame:
        """The history of a target."""
        return self._histories(entity)

    def waiting(self) -> DataFrame | None:
        """The statements that wait; None if none of the schema can."""
        return self._waiting

    @cached_property
    def _waiting(self) -> DataFrame | None:
        schema, derived = self._work.schema, self.derived
        if not derived.may_wait:
            return None
        stated = facts(schema, {target: derived.resolved_statements(target) for target in self.entities})
        if stated is None:
            return None
        by, valid = "statement", stated.select("statement", "makes", "needs")
        uncertain = with_open_needs(with_answers(valid, derived.answers(), by=by), by=by)
        # Once more, without what needs nothing that is uncertain, nor what that makes.
        return self._keep(find_unsupported(with_open_needs(uncertain, by=by), by=by))

    def _merge_target(self, entity: str) -> DataFrame:
        keys = self._work.schema.targets[entity].keys
        return self._keep(merge(self.derived.changes(entity), entity=entity, keys=keys))


def _slices(batch: pa.RecordBatch, name: str, size: int) -> Iterator[pa.RecordBatch]:
    """
    The batch in slices, in each of which the texts or bytes of a column are about so many at most.

    A row that has more is in a slice with none but smaller ones before it.

    >>> [one.num_rows for one in _slices(pa.record_batch({"a": ["xx", "xx", "x", None]}), "a", 3)]
    [1, 3]
    """
    sizes = np.asarray(pc.fill_null(pc.binary_length(batch.column(name)), 0))
    share = np.cumsum(sizes, dtype=np.int64) // size
    cuts = [*np.flatnonzero(np.diff(share, prepend=-1)), batch.num_rows]
    for start, end in pairwise(cuts):
        yield batch.slice(start, end - start)
