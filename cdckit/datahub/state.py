"""What a hub knows: its tables as one commit names them, and the histories that are kept up."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Set
from contextlib import contextmanager
from functools import partial, reduce
from pathlib import Path
from typing import IO, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.datahub.messages import (
    DECODED_SCHEMA,
    IS_STORED,
    MESSAGE_SCHEMA,
    STATUS_SCHEMA,
    Status,
    identity,
    with_statuses,
)
from cdckit.datahub.outcomes import EXPORTED_COLUMNS, export_rows, message_log, record_log, with_positions
from cdckit.datahub.source_systems import Schema
from cdckit.datahub.statement_changes import DerivedChanges
from cdckit.datahub.statements import statement_schema
from cdckit.datahub.waiting import drop_waiting, with_statement
from cdckit.merging.merge import history_schema, plan_versions
from cdckit.model.history import VALID_TO
from cdckit.parts.arguments import flat_columns, quoted, text_literal
from cdckit.parts.workers import compute_once, run_together
from cdckit.shell.shell import MANY_FILES
from cdckit.store import Transaction
from cdckit.store.store import Tables, read_note, read_rows, read_some, replace_rows, write_note
from cdckit.store.writing import Rows

if sys.platform != "win32":
    import fcntl

_RUN = "run.json"
"""What is under way, while it is: locked by the program that does it, and empty otherwise."""

RunNote = Mapping[str, Any]


class RunFile:
    """
    The file by which runs of several programs see each other.

    A lock ends with its program, so what a killed one has left there says nothing.  Where there is no such
    file, as in an object store, nobody is told of runs, and runs do not wait for each other: that nothing
    is done twice is for the store to see to.

    Args:
        folder: The folder of this machine in which the tables are; None if they are elsewhere.
    """

    def __init__(self, folder: Path | None) -> None:
        self._path = None if folder is None else folder / _RUN

    @contextmanager
    def lock(self) -> Iterator[Callable[[RunNote], None]]:
        """Wait for the runs of others to end, then tell what is under way with what is yielded."""
        if self._path is None:
            yield lambda run: None
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a+") as file:
            _lock(file)
            file.truncate(0)

            def say(run: RunNote) -> None:
                file.truncate(0)
                json.dump(run, file)
                file.flush()

            try:
                yield say
            finally:
                # Deleted, it would be another file than the one for which others wait.
                file.truncate(0)

    def read(self) -> dict[str, Any] | None:
        """Read what was told of the run that is under way; None if there is none."""
        if self._path is None:
            return None
        try:
            with self._path.open() as file:
                run: dict[str, Any] | None = json.load(file) if _is_locked(file) else None
                return run
        except (FileNotFoundError, json.JSONDecodeError):
            return None


def _lock(file: IO[str]) -> None:
    if sys.platform != "win32":
        fcntl.flock(file, fcntl.LOCK_EX)


def _is_locked(file: IO[str]) -> bool:
    """
    Tell whether the program that has written the file still holds it.

    On Windows nobody can tell, and what a killed program has left there counts until the next run ends.
    """
    if sys.platform == "win32":
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


MESSAGES, STATUSES, UNAPPLIED = "messages", "statuses", "unapplied"
STATEMENTS, HISTORY, EXPORTED = "statements", "history", "exported"
"""
The tables of which there is one (`UNAPPLIED` has what waits, and what looking at all found wrong), and the
kinds of those of which each target has its own.
"""

RECEIVED, PROCESSED, RUN, SCHEMA, REFRESHED = "received", "processed", "run", "schema", "refreshed"
"""
The notes: how many times messages were received, how many of those the runs have read, the name of the last
run, the schema by which it read, and the targets of which there ever was a refresh.

Messages are only ever appended, each with the number of its receipt: so whoever receives some while a run is
under way is not in its way.
"""

RECEIVED_SCHEMA = T.StructType(
    [*DECODED_SCHEMA.fields, *flat_columns("status integer, received long, batch string")]
)
"""One row is one record that was received: what it holds, its status then, in which receipt and batch."""


def table_name(kind: str, entity: str) -> str:
    """The name of a target's table."""
    return f"{kind}.{entity}"


class State:
    """
    What a hub knows, by the schema by which its messages were read.

    Attributes:
        derived: What follows from it.
        is_small: Whether a run has found that it is little.
    """

    is_small = False

    def __init__(self, schema: Schema, tables: Tables) -> None:
        self.schema, self._tables = schema, tables
        self.derived = DerivedChanges(schema, self)
        self._unapplied_rows: tuple[Set[str], DataFrame | None] = set(), None
        """The rows of `UNAPPLIED`, and the files of which they were read: a run writes others."""

    def read(self, name: str) -> DataFrame | None:
        """A table; None if there is none of that name."""
        return self._tables.read(name) if self._tables.has(name) else None

    @property
    def stated_targets(self) -> list[str]:
        """The targets of which anything was said that are merged, parents before their children."""
        return [target for target in self.schema.families if self._tables.has(table_name(STATEMENTS, target))]

    def received_records(self, first: int | None = None, last: int | None = None) -> DataFrame:
        """All records that were received, or those of some receipts, in `RECEIVED_SCHEMA`."""
        return read_rows(self._tables, MESSAGES, RECEIVED_SCHEMA, {"received": (first, last)})

    def receipts(self, number: int | None, batch: str | None) -> DataFrame:
        """The receipts of one time, or of a batch, whenever it was received; all without both."""
        rows = self.received_records(number, number)
        ours = rows if batch is None else rows.where(F.col("batch") == batch)
        origin = ("topic", "partition", "offset")
        return ours.select(*origin, "message_identifier", "status", "error_code", "error_description")

    def stored_messages(self, first: int | None = None, last: int | None = None) -> DataFrame:
        """The messages among them, each once, in `MESSAGE_SCHEMA`."""
        return self.received_records(first, last).where(IS_STORED).select(*MESSAGE_SCHEMA.names)

    def unapplied(self) -> DataFrame | None:
        """The valid statements that are not applied (`UNAPPLIED_COLUMNS`); None if there are none."""
        files = self._tables.files(UNAPPLIED) if self._tables.has(UNAPPLIED) else []
        if (paths := {file.path for file in files}) != self._unapplied_rows[0]:
            self._unapplied_rows = paths, read_some(self._tables, UNAPPLIED)
        return self._unapplied_rows[1]

    def waiting(self) -> DataFrame | None:
        """The statements that wait, and for what: `statement`, `missing`; None if there are none."""
        unapplied = self.unapplied()
        return None if unapplied is None else unapplied.where("missing IS NOT NULL")

    def statuses(self) -> DataFrame:
        """The messages that runs have processed, and where they stand (`STATUS_SCHEMA`)."""
        return read_rows(self._tables, STATUSES, STATUS_SCHEMA)

    def read_exports(self, entity: str) -> DataFrame:
        """The records of an export target, each with its position."""
        rows = export_rows(self.schema, entity, self.derived.applied_statements(entity))
        return with_positions(rows, self.known_exports(entity))

    def known_exports(self, entity: str) -> DataFrame:
        """Read what the runs so far have exported of a target."""
        return read_rows(self._tables, table_name(EXPORTED, entity), EXPORTED_COLUMNS)

    def history(self, entity: str) -> DataFrame:
        """The history of a target."""
        return read_rows(
            self._tables, table_name(HISTORY, entity), history_schema(self.schema.targets[entity].data)
        )

    def log(self) -> DataFrame:
        """Tell what became of each record, and of the messages that the schema has no place for."""
        waiting, entities = self.waiting(), self.entities or list(self.schema.targets)[:1]
        records = reduce(
            DataFrame.unionByName,
            (record_log(self.derived.processed_statements(entity), waiting, entity) for entity in entities),
        )
        return records.unionByName(message_log(self.statuses()), allowMissingColumns=True)

    @property
    def entities(self) -> list[str]:
        """The targets of which anything was said, exported ones too."""
        return [target for target in self.schema.targets if self._tables.has(table_name(STATEMENTS, target))]

    def statements(self, entity: str) -> DataFrame:
        """All statements about a target; none if nothing was ever said of it."""
        return read_rows(
            self._tables, table_name(STATEMENTS, entity), statement_schema(self.schema.targets[entity])
        )

    def news(self, entity: str) -> DataFrame:
        """Find the resolved statements about a target that the last run may have applied: all."""
        return self.derived.resolved_statements(entity)

    def named_entities(
        self, messages: DataFrame | None, waiting: DataFrame | None = None
    ) -> DataFrame | None:
        """
        Find what *messages* (`message_id`) speak of, as far as it is news; None if nothing was ever stated.

        Args:
            messages: Those that are meant; without them, all of the news.
            waiting: The statements that wait of those: they move nothing, but where a complete list may have
                named their entities, which have been seen then.

        Returns:
            One row per statement: `entity`, `guid` (null for ends of lists), `parents`.
        """
        tables = []
        for entity in self.stated_targets:
            rows = self.news(entity)
            if messages is not None:
                rows = rows.join(messages, "message_id", "left_semi")
            if waiting is not None and not self.derived.list_fields(entity):
                rows = drop_waiting(with_statement(rows.where("error_code IS NULL"), entity), waiting)
            parents = ", ".join(f"data.{quoted(name)}" for name in self.schema.parent_fields(entity))
            listed = f"CAST(array({parents}) AS array<string>) AS parents"
            tables.append(rows.selectExpr(f"{text_literal(entity)} AS entity", "guid", listed))
        return reduce(DataFrame.unionByName, tables) if tables else None

    def lookup_table(self, kind: str, entity: str, rows: DataFrame) -> DataFrame | None:
        """What the last run has found by a look-up; *rows* before the first one."""
        name = table_name(kind, entity)
        return read_some(self._tables, name) if self._tables.has(name) else rows

    def may_be_refreshed(self, entity: str) -> bool:
        """Tell whether there ever was a refresh of the target."""
        return entity in read_note(self._tables, REFRESHED, [])


def append_records(tables: Transaction, schema: Schema, decoded: DataFrame, batch: str | None) -> int:
    """Append decoded records to those that were received; how many they are."""
    number = int(read_note(tables, RECEIVED, 0)) + 1
    earlier = (
        State(schema, tables).received_records().where(F.col("status") != int(Status.PREVIOUSLY_RECEIVED))
    )
    messages = with_statuses(decoded, earlier.select(identity().alias("identity")))
    receipt = {"received": F.lit(number).cast("long"), "batch": F.lit(batch).cast("string")}
    write_note(tables, RECEIVED, number)
    return tables.append(MESSAGES, messages.withColumns(receipt), compact_at=MANY_FILES).rows


_FILE_ROWS = 1 << 15
"""The most versions that a file has: a message has the files of its entities written anew."""

MANY_ENTITIES, _SHARE = 10_000, 3
"""Of a target with so many entities all are merged anew where one in so many is touched."""

_TouchedGuids = Mapping[str, DataFrame | None]
"""By target the guids of the entities that are merged anew; None for all of them."""


class Histories:
    """
    The histories of a hub, in a run that writes them: *state* knows what came in it.

    Where the statements of all targets are *few*, one task merges those of each.
    """

    def __init__(self, state: State, tables: Transaction, *, few: bool) -> None:
        self._state, self._writes, self.schema, self._few = state, tables, state.schema, few

    def merge(self, entities: Collection[str]) -> None:
        """Merge everything that was ever said of these targets anew."""
        for generation in self.schema.generations:
            run_together(
                self._writes.spark, self._merge_all, [entity for entity in generation if entity in entities]
            )

    def update(self, moved: DataFrame | None, refreshed: set[str]) -> None:
        """Merge the *moved* entities (`State.named_entities`) anew, and all of the *refreshed* targets."""
        if moved is None:
            return
        touched: _TouchedGuids = {}
        stated = set(self._state.stated_targets)
        for generation in self.schema.generations:
            merge_some = partial(self._merge_some, moved=moved, touched=touched, refreshed=refreshed)
            for merged in run_together(
                self._writes.spark, merge_some, [entity for entity in generation if entity in stated]
            ):
                touched = {**touched, **merged}

    def with_children(self, entities: Collection[str]) -> set[str]:
        """These targets and those whose entities are their children, at any depth."""
        targets = set(entities)
        for entity in self._state.stated_targets:
            # Parents come before their children.
            if self.schema.parents(entity) & targets:
                targets.add(entity)
        return targets & set(self._state.stated_targets)

    def _merge_all(self, entity: str) -> None:
        name = table_name(HISTORY, entity)
        self._writes.limit_files(name, _FILE_ROWS)
        self._writes.replace(name, self._merge_target(entity))

    def _merge_target(self, entity: str, touched: DataFrame | None = None) -> Rows:
        """The history of a target, or of the entities *touched* alone."""
        changes, keys = self._state.derived.changes(entity, touched), self.schema.targets[entity].keys
        return plan_versions(changes, entity=entity, keys=keys, few=self._few)

    def _merge_some(
        self, entity: str, moved: DataFrame, touched: _TouchedGuids, refreshed: set[str]
    ) -> _TouchedGuids:
        """Merge the entities of a target that the run touches, and say which these are."""
        name = table_name(HISTORY, entity)
        if not self._writes.has(name) or entity in refreshed:
            self._merge_all(entity)
            return {entity: None}
        touched_here = self._touched_guids(entity, moved, touched)
        if touched_here is None:
            return {}
        if self._are_many(entity, touched_here):
            self._merge_all(entity)
        else:
            replace_rows(self._writes, name, touched_here, self._merge_target(entity, touched_here))
            self._writes.compact(name, files=MANY_FILES)
        return {entity: touched_here}

    def _are_many(self, entity: str, touched: DataFrame) -> bool:
        """Tell whether so many entities are *touched* that to merge all costs less than to find theirs."""
        # Each entity has one version without an end.
        history = self._writes.files(table_name(HISTORY, entity))
        entities = sum(file.nulls.get(VALID_TO, file.rows) for file in history)
        _, new_files = self._writes.old_and_new_files(table_name(STATEMENTS, entity))
        new = sum(file.rows for file in new_files)
        return MANY_ENTITIES <= entities <= _SHARE * new and entities <= _SHARE * touched.count()

    def _touched_guids(self, entity: str, moved: DataFrame, touched: _TouchedGuids) -> DataFrame | None:
        """The guids whose versions may have changed; None if there are none."""
        ours = moved.where(F.col("entity") == entity)
        tables = [ours.select("guid")]
        rows = self._state.derived.resolved_statements(entity)
        for index, (field, held_by) in enumerate(self.schema.parent_fields(entity).items()):
            scopes = [ours.selectExpr(f"parents[{index}] AS scope")]
            for parent in {self.schema.mapping(place).reference for place in held_by.values()} & set(touched):
                changed = touched[parent]
                if changed is None:
                    return rows.select("guid").where("guid IS NOT NULL").distinct()
                scopes.append(changed.selectExpr("guid AS scope"))
            below = rows.selectExpr("guid", f"data.{quoted(field)} AS scope")
            tables.append(
                below.join(reduce(DataFrame.unionByName, scopes), "scope", "left_semi").drop("scope")
            )
        return compute_once(reduce(DataFrame.unionByName, tables).where("guid IS NOT NULL").distinct())
