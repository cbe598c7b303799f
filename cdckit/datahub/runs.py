"""One run of a hub: what new messages say is applied or waits, and each message gets its outcome."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from operator import call

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit.datahub.backoff import Backoff
from cdckit.datahub.message_statements import ReadReport, read_messages
from cdckit.datahub.messages import Status, is_due, statuses, with_refusals
from cdckit.datahub.outcomes import export_rows, new_exports, problems
from cdckit.datahub.readers import ReaderSettings
from cdckit.datahub.resolution import ANSWERS, HELD, LOOKUP_FAULTS, UNPROCESSED
from cdckit.datahub.state import (
    EXPORTED,
    HISTORY,
    MESSAGES,
    REFRESHED,
    STATEMENTS,
    STATUSES,
    UNAPPLIED,
    Histories,
    State,
    table_name,
)
from cdckit.datahub.statements import statement_schema
from cdckit.datahub.waiting import (
    drop_waiting,
    facts,
    find_joined,
    waiting_statements,
    with_answers,
    with_fact_numbers,
)
from cdckit.parts.workers import compute_once, few_table, local_frame, run_together, table_frame
from cdckit.shell.shell import MANY_FILES
from cdckit.store import Transaction
from cdckit.store.reading import hold_few_rows
from cdckit.store.store import read_note, read_some, replace_rows, write_note

_LAST_POSITION = "last position"

_OF_MESSAGE = "statement.message_id = message_identifier"

FEW_STATEMENTS, FEW_BYTES = 10_000, 8 << 20
"""
A hub with no more statements than these, and no more messages, is small: a look for what a run touches
would take longer than merging all of what it may have touched, and this program may hold it.
"""


@dataclass(frozen=True)
class Facts:
    """The `facts` that a run looks at; where they are held, each has its `fact_number`."""

    rows: DataFrame
    table: pa.Table | None = None
    """The same, where this program holds them."""

    @property
    def with_errors(self) -> DataFrame | None:
        """The rows; None if it is known that none is in error."""
        is_sound = self.table is not None and self.table.column("error_code").null_count == len(self.table)
        return None if is_sound else self.rows


@dataclass(frozen=True)
class Leftovers:
    """What earlier runs have not applied, as a run finds it (`UNAPPLIED_COLUMNS`); None for nothing."""

    tried: DataFrame | None
    """What the run looks at again."""
    untried: DataFrame | None
    """What waits on, as its message is not due, or was given up."""

    @cached_property
    def tried_messages(self) -> DataFrame | None:
        """The messages of what is tried (`message_id`)."""
        if self.tried is None:
            return None
        return compute_once(self.tried.select("statement.message_id").distinct())


class Run(State):
    """The tables of a hub during one run at the time *now*, in microseconds; nothing is committed here."""

    def __init__(self, work: ReaderSettings, tables: Transaction, retry: Backoff, now: int) -> None:
        super().__init__(work.schema, tables)
        self.work, self._writes, self._retry, self._now = work, tables, retry, now
        self._fresh: DataFrame | None = None
        self._taken = ReadReport(0, {}, set())
        self._attempt, self._has_forgotten = True, False
        self._news: dict[str, DataFrame] | None = None
        """What the run may apply of each target, where it need not look at all that was ever said."""

    def stored_messages(self, first: int | None = None, last: int | None = None) -> DataFrame:
        """Read `State.stored_messages`; few are in one partition, since each task writes files of its own."""
        rows = super().stored_messages(first, last)
        files = self._writes.files(MESSAGES, {"received": (first, last)})
        return rows.coalesce(1) if hold_few_rows(files) else rows

    def has_due(self) -> bool:
        """Tell whether a message that waits is to be tried again."""
        return self.unapplied() is not None and not self._due.isEmpty()

    def read_messages(self, messages: DataFrame, *, attempt: bool = True) -> bool:
        """
        Write what *messages* say; whether there are any.

        An *attempt* counts as one for those that come to wait.
        """
        self._fresh, self._attempt = with_refusals(messages, self.schema), attempt
        targets = {
            entity: self._writes.target(table_name(STATEMENTS, entity), statement_schema(target))
            for entity, target in self.schema.targets.items()
        }
        self._taken = read_messages(self._fresh, self.work, targets)
        for entity, files in self._taken.files.items():
            name = table_name(STATEMENTS, entity)
            self._writes.adopt(name, files)
            if self._writes.files(name):
                self._writes.compact(name, files=MANY_FILES)
            elif not self._writes.has(table_name(HISTORY, entity)):
                # Nothing was ever said of the target.
                self._writes.drop(name)
        refreshed = read_note(self._writes, REFRESHED, [])
        write_note(self._writes, REFRESHED, sorted({*refreshed, *self._taken.refreshed}))
        self.is_small = self._holds_little()
        return self._taken.messages > 0

    def forget(self, chosen: DataFrame | None) -> None:
        """Forget what the *chosen* messages said; without them, what all said."""
        self._has_forgotten = True
        if chosen is None:
            self._drop(STATEMENTS, HELD, ANSWERS)
            write_note(self._writes, REFRESHED, [])
            return
        ids = F.broadcast(chosen)
        forgotten = ids.withColumnRenamed("message_identifier", "message_id")
        for name in self._names(STATEMENTS):
            replace_rows(self._writes, name, forgotten)

    def forget_statuses(self, chosen: DataFrame) -> None:
        """Forget what the *chosen* messages came to: their attempts are counted anew."""
        if self._writes.has(STATUSES):
            replace_rows(self._writes, STATUSES, F.broadcast(chosen))

    def note_dropped(self) -> None:
        """
        Note that statements went out of their tables: the rest of a file that was written anew is no news.

        Files that the run wrote of statements, and that no table has any more, can be deleted.
        """
        self._has_forgotten = True
        for entity, files in self._taken.files.items():
            if self._writes.has(table_name(STATEMENTS, entity)):
                self._writes.discard(table_name(STATEMENTS, entity), files)

    def forget_schema(self) -> None:
        """Forget what was read by another schema: it says nothing by this one, nor what had to wait by it."""
        self.forget(None)
        self._drop(HISTORY)
        self._replace_unapplied(None)

    def settle(self, *, merge_all: bool = False, forgotten: DataFrame | None = None) -> None:
        """
        Find out what can be applied, merge what this touches (or all, to *merge_all*), and set the statuses.

        What was *forgotten* of messages (`State.named_entities`) touches entities as what is new does.
        """
        # A small hub merges its targets whatever these say.
        lookups = {} if self.is_small else {name: self.read(name) for name in self._lookup_tables}
        leftovers = self._find_leftovers()
        stated, now = self._try(leftovers)
        if (joined := self._find_joined(stated, now, leftovers)) is not None:
            leftovers = self._find_leftovers(joined)
            stated, now = self._try(leftovers)
        turned = self._changed_messages(leftovers.tried, now)
        self._keep_unapplied(now, leftovers)
        moved = partial(self._moved_entities, turned, now, leftovers)
        # What is not tried has the status that it had, unless a look at everything turned a part of it.
        waiting = self.waiting() if self._news is None else now
        problem_rows = problems(None if stated is None else stated.with_errors, waiting)
        again = self._messages_again(turned, leftovers)
        steps = [
            partial(self._merge, turned, moved, lookups, merge_all, forgotten),
            partial(self._set_statuses, again, problem_rows),
        ]
        # They write different tables, and neither reads what the other writes.
        run_together(self._writes.spark, call, steps)
        self._number_exports()

    def statements(self, entity: str) -> DataFrame:
        """All statements about a target; few are in one partition, so that nothing need be shuffled."""
        rows = super().statements(entity)
        return rows.coalesce(1) if self.is_small else rows

    def lookup_table(self, kind: str, entity: str, rows: DataFrame) -> DataFrame | None:
        """What a look-up finds, as a table that the run writes, and that is read until the next one."""
        name = table_name(kind, entity)
        self._writes.replace(name, rows)
        return read_some(self._writes, name)

    def _names(self, kind: str) -> list[str]:
        return [name for name in self._writes.names() if name.startswith(f"{kind}.")]

    def _drop(self, *kinds: str) -> None:
        for name in [name for kind in kinds for name in self._names(kind)]:
            self._writes.drop(name)

    def _keep_unapplied(self, unapplied: DataFrame | None, leftovers: Leftovers) -> None:
        """
        Keep what is not applied now in the place of what was tried, beside what was not.

        Where nothing is tried, the table is what is not, and stays.
        """
        if leftovers.tried is not None:
            tables = [rows for rows in (unapplied, leftovers.untried) if rows is not None]
            self._replace_unapplied(reduce(DataFrame.unionByName, tables) if tables else None)
        elif unapplied is not None:
            self._writes.append(UNAPPLIED, unapplied, compact_at=MANY_FILES)

    def _replace_unapplied(self, rows: DataFrame | None) -> None:
        if rows is not None:
            self._writes.replace(UNAPPLIED, rows)
        elif self._writes.has(UNAPPLIED):
            self._writes.swap(UNAPPLIED, self._writes.files(UNAPPLIED))

    def _number_exports(self) -> None:
        """Give what is exported now, and was not or not so before, the next position."""
        position = int(read_note(self._writes, _LAST_POSITION, 0)) + 1
        for entity in self.entities:
            if self.schema.targets[entity].export:
                applied = self.derived.applied_statements(entity, self.news(entity))
                rows, exported = export_rows(self.schema, entity, applied), self.known_exports(entity)
                if self._news is not None:
                    exported = exported.join(rows.select("message_id").distinct(), "message_id", "left_semi")
                name = table_name(EXPORTED, entity)
                new = compute_once(new_exports(rows, exported, position))
                if new is not None:
                    self._writes.append(name, new, compact_at=MANY_FILES)
                    write_note(self._writes, _LAST_POSITION, position)

    def _try(self, leftovers: Leftovers) -> tuple[Facts | None, DataFrame | None]:
        """Find the `_facts` that the run goes by, and what is `_unapplied` by them."""
        if self._looks_at_news_alone():
            self._news = {entity: self._find_news(entity, leftovers) for entity in self.entities}
        stated = self._facts(leftovers)
        return stated, self._unapplied(stated, leftovers)

    def _find_joined(
        self, stated: Facts | None, now: DataFrame | None, leftovers: Leftovers
    ) -> DataFrame | None:
        """
        Find the messages (`message_identifier`) that are not due, and are tried all the same; None for none.

        They wait for what falls *now*, and that for them: tried by turns, they would be given up.
        """
        circular = self.schema.circular
        if stated is None or now is None or leftovers.untried is None or not (circular and self._attempt):
            return None
        in_circle = F.col("statement.entity").isin(*circular)
        given_up = self.statuses().where(f"status = {int(Status.REPROCESS_TIMEOUT)}")
        untried = leftovers.untried.where(in_circle)
        undue = compute_once(untried.join(given_up, F.expr(_OF_MESSAGE), "left_anti"))
        if undue is None or (fallen := compute_once(now.where(in_circle))) is None:
            return None
        known, earlier, applied = None, stated.rows, drop_waiting(stated.rows, now)
        if self._news is None:
            applied = drop_waiting(applied, leftovers.untried)
        else:
            known, earlier = self._known_entities(), self._earlier_facts(undue, circular)
        waiting = [
            with_answers(rows.join(some, "statement", "left_semi"), self.derived.answers(), by="statement")
            .select("statement", "makes", "needs", F.lit(is_tried).alias("is_tried"))
            .where("makes IS NOT NULL")
            for rows, some, is_tried in ((stated.rows, fallen, True), (earlier, undue, False))
        ]
        makes = applied.select("makes")
        there = makes if known is None else makes.unionByName(known)
        return compute_once(find_joined(waiting[0].unionByName(waiting[1]), there))

    def _earlier_facts(self, waiting: DataFrame, entities: Collection[str]) -> DataFrame:
        """Find the facts of *waiting* messages (`statement`) about these targets, said before the run."""
        ids = waiting.select("statement.message_id").distinct()
        earlier = {entity: self._earlier_statements(entity) for entity in entities}
        ours = {
            entity: rows.join(ids, "message_id", "left_semi")
            for entity, rows in earlier.items()
            if rows is not None
        }
        rows = facts(self.schema, ours)
        assert rows is not None
        return rows

    def _facts(self, leftovers: Leftovers) -> Facts | None:
        """Find what the run may apply, or what is wrong with it (see `facts`)."""
        rows = facts(self.schema, {entity: self.news(entity) for entity in self.entities})
        if rows is None or not self.derived.may_wait:
            return None if rows is None else Facts(rows)
        numbered = with_fact_numbers(rows)
        if (table := few_table(numbered)) is not None:
            held = table_frame(self._writes.spark, table, numbered.schema)
        else:
            # They are looked at several times; to read the files of news is less than to hold all of them.
            joins = self._lookup_tables or leftovers.tried is not None
            held = compute_once(numbered) if joins else rows
        return None if held is None else Facts(held, table)

    def _looks_at_news_alone(self) -> bool:
        """
        Tell whether what was applied before still is, so that the run need look at its news alone.

        Not where keys or links are looked up, by which what is new may move any entity, nor where something
        was forgotten.
        """
        return not (self._has_forgotten or self._lookup_tables or self.is_small)

    def news(self, entity: str) -> DataFrame:
        """Find what the run may apply of a target: what it read and what it tries again, or all."""
        return super().news(entity) if self._news is None else self._news[entity]

    def _find_news(self, entity: str, leftovers: Leftovers) -> DataFrame:
        _, files = self._writes.old_and_new_files(name := table_name(STATEMENTS, entity))
        new = self._writes.read(name, files=files)
        new = new.coalesce(1) if hold_few_rows(files) else new
        again = leftovers.tried_messages
        if again is not None and (earlier := self._earlier_statements(entity)) is not None:
            return new.unionByName(earlier.join(again, "message_id", "left_semi"))
        return new

    def _earlier_statements(self, entity: str) -> DataFrame | None:
        """Read what was said of a target before the run; None if nothing was."""
        name = table_name(STATEMENTS, entity)
        files, _ = self._writes.old_and_new_files(name)
        return self._writes.read(name, files=files) if files else None

    def _known_entities(self) -> DataFrame | None:
        """Read which linked entities there are (`makes`), by what was applied before the run; or None."""
        names = (table_name(HISTORY, entity) for entity in sorted(self.schema.linked))
        tables = [rows.selectExpr("guid AS makes") for rows in map(self.read, names) if rows is not None]
        return reduce(DataFrame.unionByName, tables) if tables else None

    def _find_leftovers(self, joined: DataFrame | None = None) -> Leftovers:
        """Find what earlier runs have left; the *joined* messages (`_find_joined`) are tried as if due."""
        unapplied, waiting = self.unapplied(), self.waiting()
        if unapplied is None or waiting is None:
            return Leftovers(None, None)
        is_tried = is_due(self._now) if self._attempt else "false"
        requires, given_up = int(Status.REQUIRES_REPROCESSING), int(Status.REPROCESS_TIMEOUT)
        is_untried = f"(status = {requires} AND NOT {is_tried}) OR status = {given_up}"
        not_tried = self.statuses().where(is_untried).select("message_identifier")
        if joined is not None:
            not_tried = not_tried.join(joined, "message_identifier", "left_anti")
        untried_messages = compute_once(not_tried)
        if untried_messages is None:
            return Leftovers(unapplied, None)
        untried = waiting.join(untried_messages, F.expr(_OF_MESSAGE), "left_semi")
        # A fault of a look-up is looked at in every run that looks at everything.
        rows = unapplied.join(untried_messages, F.expr(_OF_MESSAGE), "left")
        tried = rows.where("message_identifier IS NULL OR missing IS NULL").select("statement", "missing")
        return Leftovers(compute_once(tried), untried)

    def _unapplied(self, stated: Facts | None, leftovers: Leftovers) -> DataFrame | None:
        """
        Find what is tried, valid and not applied (`UNAPPLIED_COLUMNS`), among what is *stated*, or None.

        Those that wait, those whose keys or links lead to several entities, and those unprocessed for that.
        """
        if stated is None:
            return None
        tables, tried, table, known = [], stated.rows, stated.table, None
        if self.derived.may_wait:
            if self._news is not None:
                known = self._known_entities()
            elif leftovers.untried is not None:
                tried = drop_waiting(tried, leftovers.untried)
                table = None if table is None else few_table(tried)
            waiting = waiting_statements(tried, self.derived.answers(), known, table)
            tables += [] if waiting is None else [waiting]
        if self._lookup_tables:
            # Other messages may bring statements into this, and out of it again.
            wrong = stated.rows.where(F.col("error_code").isin(*LOOKUP_FAULTS, UNPROCESSED))
            tables.append(wrong.selectExpr("statement", "CAST(NULL AS string) AS missing"))
        return compute_once(reduce(DataFrame.unionByName, tables)) if tables else None

    def _changed_messages(self, before: DataFrame | None, now: DataFrame | None) -> DataFrame | None:
        """The messages of which a statement is applied now and was not, or the other way round; or None."""
        if before is None or now is None:
            changes = now if before is None else before
        else:
            counted = (rows.selectExpr("statement", f"{by} AS by") for by, rows in ((-1, before), (1, now)))
            by_statement = reduce(DataFrame.unionByName, counted).groupBy("statement")
            changes = by_statement.agg(F.sum("by").alias("by")).where("by <> 0")
        return None if changes is None else compute_once(changes.select("statement.message_id").distinct())

    def _merge(
        self,
        turned: DataFrame | None,
        find_moved: Callable[[], DataFrame | None],
        lookups: Mapping[str, DataFrame | None],
        merge_all: bool,
        forgotten: DataFrame | None,
    ) -> None:
        """Merge what is touched; *lookups* are what keys and links had found before the run."""
        histories = Histories(self, self._writes, few=self.is_small)
        spoken_of = {entity for entity, new in self._taken.files.items() if new}
        begun = any(self._writes.has(table_name(HISTORY, entity)) for entity in self.stated_targets)
        if merge_all or not begun:
            histories.merge(self.stated_targets)
        elif self.is_small:
            if forgotten is not None:
                spoken_of |= {row["entity"] for row in forgotten.select("entity").distinct().collect()}
            # By a key or a link what is new may move any entity.
            anywhere = turned is not None or (spoken_of and self._lookup_tables)
            histories.merge(self.stated_targets if anywhere else histories.with_children(spoken_of))
        elif self._lookups_changed(lookups):
            histories.merge(self.stated_targets)
        else:
            moved = [forgotten, find_moved()]
            named = compute_once(reduce(DataFrame.unionByName, [rows for rows in moved if rows is not None]))
            histories.update(named, self._taken.refreshed)

    def _moved_entities(
        self, turned: DataFrame | None, unapplied: DataFrame | None, leftovers: Leftovers
    ) -> DataFrame | None:
        """Find what the new messages speak of, and those of which a statement has *turned*."""
        assert self._fresh is not None
        if self._news is not None and leftovers.tried is None:
            return self.named_entities(None, unapplied)
        ids = self._fresh.select(F.col("message_identifier").alias("message_id"))
        messages = ids if turned is None else ids.unionByName(turned).distinct()
        # Where not all was looked at, nothing waits that was applied.
        return self.named_entities(messages, None if self._news is None else unapplied)

    def _holds_little(self) -> bool:
        """Tell whether the hub is small, with what the run has read."""
        stated = [file for name in self._names(STATEMENTS) for file in self._writes.files(name)]
        status_files = self._writes.files(STATUSES) if self._writes.has(STATUSES) else []
        messages = self._taken.messages + sum(file.rows for file in status_files)
        few = max(messages, sum(file.rows for file in stated)) <= FEW_STATEMENTS
        return few and sum(file.size for file in stated) <= FEW_BYTES

    @property
    def _lookup_tables(self) -> dict[str, Column]:
        """The tables of what keys and links find, with the condition of the rows that say so."""
        weak = [name for name, target in self.schema.targets.items() if target.weak]
        keys = {table_name(HELD, name): F.col("message_id").isNotNull() for name in weak}
        return keys | {table_name(ANSWERS, name): F.lit(True) for name in self.schema.lookup_keys}

    def _lookups_changed(self, before: Mapping[str, DataFrame | None]) -> bool:
        """Tell whether a key or link finds another entity than it did: then any may have been moved."""
        for name, earlier in before.items():
            later, says = self.read(name), self._lookup_tables[name]
            if earlier is None or later is None:
                continue
            if not earlier.where(says).exceptAll(later.where(says)).isEmpty():
                return True
        return False

    @property
    def _due(self) -> DataFrame:
        return self.statuses().where(is_due(self._now))

    def _messages_again(self, turned: DataFrame | None, leftovers: Leftovers) -> DataFrame | None:
        """
        Find the messages (`message_identifier`) that have a status, and may get another one; None for none.

        They are those of which a statement has *turned*, those that are due, and those that were read again.
        """
        assert self._fresh is not None
        again = []
        if self._attempt and turned is not None:
            again.append(turned.withColumnRenamed("message_id", "message_identifier"))
        if self._attempt and leftovers.tried is not None:
            again.append(self._due.select("message_identifier"))
        if self._has_forgotten:
            again.append(self._fresh.select("message_identifier"))
        return reduce(DataFrame.unionByName, again).distinct() if again else None

    def _set_statuses(self, again: DataFrame | None, problem_rows: DataFrame | None) -> None:
        """Set the statuses of what the run read, and of messages that have one already, *again*."""
        assert self._fresh is not None
        fresh = self._fresh.select("message_identifier", "refused", "refusal")
        before, processed = None, fresh
        if again is not None and self._writes.has(STATUSES):
            before = compute_once(self.statuses().join(again, "message_identifier", "left_semi"))
        if before is not None:
            others = before.select("message_identifier").join(fresh, "message_identifier", "left_anti")
            processed = fresh.unionByName(others, allowMissingColumns=True)
        now = statuses(
            processed, problem_rows, before, now=self._now, retry=self._retry, is_attempt=self._attempt
        )
        if before is None:
            self._writes.append(STATUSES, now, compact_at=MANY_FILES)
        else:
            replace_rows(self._writes, STATUSES, before.select("message_identifier"), now)


def message_rows(spark: SparkSession, messages: list[str]) -> DataFrame:
    """One row per identifier of a message."""
    return local_frame(spark, [(message,) for message in messages], "message_identifier string")
