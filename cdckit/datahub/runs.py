"""One run of a hub: what new messages say, what must wait, and what becomes of each message."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import cached_property, reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdckit.datahub.existence import STATEMENT_KEY, waiting_statements, with_sought, with_statement_key
from cdckit.datahub.exports import export_rows, newly_exported
from cdckit.datahub.histories import Histories
from cdckit.datahub.intake import Taken, Work, take
from cdckit.datahub.keeping import fold, grow
from cdckit.datahub.outcomes import problems
from cdckit.datahub.resolution import ANSWERS, BY_LOOKING, HELD, UNPROCESSED
from cdckit.datahub.state import (
    AMBIGUOUS,
    EXPORTED,
    HISTORY,
    REFRESHED,
    STATEMENTS,
    STATUSES,
    WAITING,
    State,
    note,
    noted,
    table,
)
from cdckit.datahub.statements import statement_schema
from cdckit.datahub.statuses import Status, routed, statuses
from cdckit.parts.arguments import require_instant
from cdckit.parts.computed import computed
from cdckit.parts.waiting import Retry
from cdckit.store import Transaction

_LAST_POSITION = "last position"

FEW_STATEMENTS, FEW_BYTES = 10_000, 8 << 20
"""
A hub with no more statements than these is small: a look for what a run touches would take longer than
merging all of what it may have touched.
"""


class Run(State):
    """
    The tables of a hub during one run.

    Args:
        work: By what messages are read.
        tables: A transaction; nothing is committed here.
        retry: When messages that wait are tried again.
        now: The time of the run.
    """

    def __init__(self, work: Work, tables: Transaction, retry: Retry, now: datetime) -> None:
        super().__init__(work.schema, tables)
        self._work, self._writes, self._retry, self._now = work, tables, retry, now
        self._at = require_instant(now, "now", function="process")
        self._fresh: DataFrame | None = None
        self._taken = Taken(0, {}, set())
        self._attempt, self._forgot = True, False

    def has_due(self) -> bool:
        """Whether a message that waits is to be tried again."""
        known = self.read(STATUSES)
        return known is not None and self.some(WAITING) is not None and not self._due(known).isEmpty()

    def read_messages(self, messages: DataFrame, *, attempt: bool = True) -> bool:
        """
        Write what *messages* say; whether there are any.

        An *attempt* counts as one for those that come to wait.
        """
        self._fresh, self._attempt = routed(messages, self.schema), attempt
        names = {entity: table(STATEMENTS, entity) for entity in self.schema.targets}
        targets = {
            entity: self._writes.target(name, statement_schema(self.schema.targets[entity]))
            for entity, name in names.items()
        }
        self._taken = take(self._fresh, self._work, targets)
        for entity, name in names.items():
            self._writes.adopt(name, self._taken.files[entity])
            if self._writes.files(name):
                fold(self._writes, name)
            elif not self._writes.has(table(HISTORY, entity)):
                # Nothing was ever said of the target.
                self._writes.drop(name)
        known = noted(self._writes, REFRESHED, [])
        note(self._writes, REFRESHED, sorted({*known, *self._taken.refreshed}))
        return self._taken.messages > 0

    def forget(self, chosen: DataFrame | None) -> None:
        """Forget what the *chosen* messages said and came to; without them, what all said."""
        self._forgot = True
        known = self.read(STATUSES)
        if chosen is None:
            self._drop(STATEMENTS, HELD, ANSWERS)
            note(self._writes, REFRESHED, [])
            return
        ids = F.broadcast(chosen)
        for name in self._names(STATEMENTS):
            said = F.broadcast(chosen.withColumnRenamed("message_identifier", "message_id"))
            self._writes.replace(name, self._writes.read(name).join(said, "message_id", "left_anti"))
        if known is not None:
            self._writes.replace(STATUSES, known.join(ids, "message_identifier", "left_anti"))

    def forget_schema(self) -> None:
        """Forget what was read by another schema: it says nothing by this one, nor what had to wait by it."""
        self.forget(None)
        self._drop(HISTORY)
        for name in (WAITING, AMBIGUOUS):
            self._keep(name, None)

    def settle(self, *, everything: bool = False) -> None:
        """Find out what can be applied, merge what this touches (or *everything*), and set the statuses."""
        before = self.some(WAITING), self.some(AMBIGUOUS)
        found = {name: self.read(name) for name in self._looked_up}
        waiting = waiting_statements(self.schema, self.resolution, self.entities, self._held, self._computed)
        ambiguous = self._ambiguous()
        if waiting is not None:
            waiting = with_sought(self.schema, self.resolution, self.entities, waiting)
        turned = self._turned(before, (waiting, ambiguous))
        self._keep(WAITING, waiting)
        self._keep(AMBIGUOUS, ambiguous)
        self._merge(turned, found, everything)
        self._set_statuses(turned, had_waiting=before[0] is not None)
        self._number_exports()

    def looked_up(self, kind: str, entity: str, rows: DataFrame) -> DataFrame | None:
        """A table that a run writes, and that is read until the next one."""
        name = table(kind, entity)
        self._writes.replace(name, rows)
        return self.some(name)

    def _names(self, kind: str) -> list[str]:
        return [name for name in self._writes.names() if name.startswith(f"{kind}.")]

    def _drop(self, *kinds: str) -> None:
        for name in [name for kind in kinds for name in self._names(kind)]:
            self._writes.drop(name)

    def _keep(self, name: str, rows: DataFrame | None) -> None:
        if rows is not None:
            self._writes.replace(name, rows)
        elif self._writes.has(name):
            self._writes.swap(name, self._writes.files(name))

    def _number_exports(self) -> None:
        """Give what is exported now, and was not or not so before, the next position."""
        position = int(noted(self._writes, _LAST_POSITION, 0)) + 1
        for entity in self.entities:
            if self.schema.targets[entity].export:
                rows = export_rows(self.schema, entity, self.applied(entity))
                name = table(EXPORTED, entity)
                new = self._computed(newly_exported(rows, self.read(name), position))
                if new is not None:
                    grow(self._writes, name, new)
                    note(self._writes, _LAST_POSITION, position)

    @cached_property
    def _held(self) -> DataFrame | None:
        """The statements that are not tried in this run: their messages are not due, or were given up."""
        known, waiting = self.read(STATUSES), self.some(WAITING)
        if known is None or waiting is None:
            return None
        later = (F.col("next_attempt_timestamp") > self._at) | F.lit(not self._attempt)
        not_due = (F.col("status") == int(Status.REQUIRES_REPROCESSING)) & later
        given_up = F.col("status") == int(Status.REPROCESS_TIMEOUT)
        messages = known.where(not_due | given_up).select(F.col("message_identifier").alias("message_id"))
        held = waiting.join(messages, "message_id", "left_semi").select(*STATEMENT_KEY, "missing", "record")
        return self._computed(held)

    def _ambiguous(self) -> DataFrame | None:
        """
        The statements whose keys or links lead to several entities, and those unprocessed for it.

        None if there can be none.  Other messages may bring them into this, and out of it again.
        """
        found = self.no_statements().select(*STATEMENT_KEY)
        weak = any(len(each.alternatives) > 1 for each in self.schema.targets.values())
        if not self.schema.looked_up and not weak:
            return None
        for entity in self.entities:
            rows = with_statement_key(self.resolution.resolved(entity))
            rows = rows.where(F.col("error_code").isin(*BY_LOOKING, UNPROCESSED))
            found = found.unionByName(rows.select(F.lit(entity).alias("entity"), *STATEMENT_KEY[1:]))
        return self._computed(found)

    def _turned(
        self,
        before: tuple[DataFrame | None, DataFrame | None],
        now: tuple[DataFrame | None, DataFrame | None],
    ) -> DataFrame | None:
        """The statements that are applied now and were not, or the other way round; None for none."""
        found = []
        for earlier, later in zip(before, now, strict=True):
            if earlier is not None or later is not None:
                nothing = self.no_statements()
                one, other = (
                    (nothing if each is None else each).select(*STATEMENT_KEY) for each in (earlier, later)
                )
                found += [one.exceptAll(other), other.exceptAll(one)]
        if not found:
            return None
        return self._computed(reduce(DataFrame.unionByName, found))

    def _merge(
        self, turned: DataFrame | None, found: Mapping[str, DataFrame | None], everything: bool
    ) -> None:
        """Merge what is touched; *found* is what keys and links had found before the run."""
        assert self._fresh is not None
        histories = Histories(self, self._writes)
        spoken_of = {entity for entity, new in self._taken.files.items() if new}
        begun = any(self._writes.has(table(HISTORY, entity)) for entity in self.stated)
        if everything or not begun:
            histories.merge(self.stated)
        elif self._is_small:
            # By a key or a link what is new may move any entity.
            anywhere = turned is not None or (spoken_of and self._looked_up)
            histories.merge(self.stated if anywhere else histories.with_children(spoken_of))
        elif self._found_otherwise(found):
            histories.merge(self.stated)
        else:
            histories.keep_up(self._fresh, turned, self._taken.refreshed)

    @cached_property
    def _is_small(self) -> bool:
        files = [one for name in self._names(STATEMENTS) for one in self._writes.files(name)]
        few = sum(one.rows for one in files) <= FEW_STATEMENTS
        return few and sum(one.size for one in files) <= FEW_BYTES

    def _computed(self, rows: DataFrame) -> DataFrame | None:
        return computed(rows, few=self._is_small)

    @property
    def _looked_up(self) -> dict[str, Column]:
        """The tables of what keys and links find, with the condition of the rows that say so."""
        weak = [name for name, target in self.schema.targets.items() if len(target.alternatives) > 1]
        keys = {table(HELD, name): F.col("message_id").isNotNull() for name in weak}
        return keys | {table(ANSWERS, name): F.lit(True) for name in self.schema.looked_up}

    def _found_otherwise(self, before: Mapping[str, DataFrame | None]) -> bool:
        """Whether a key or link finds another entity than it did: then any entity may have been moved."""
        for name, earlier in before.items():
            later, says = self.read(name), self._looked_up[name]
            if earlier is None or later is None:
                continue
            if not earlier.where(says).exceptAll(later.where(says)).isEmpty():
                return True
        return False

    def _due(self, known: DataFrame) -> DataFrame:
        waits = F.col("status") == int(Status.REQUIRES_REPROCESSING)
        return known.where(waits & (F.col("next_attempt_timestamp") <= self._at))

    def _set_statuses(self, turned: DataFrame | None, *, had_waiting: bool) -> None:
        assert self._fresh is not None
        known = self.read(STATUSES)
        fresh = self._fresh.select("message_identifier", "message_timestamp", "refused", "refusal")
        processed, again = fresh, []
        if known is not None and self._attempt:
            again += [self._due(known).select("message_identifier")] if had_waiting else []
            if turned is not None:
                again.append(turned.select(F.col("message_id").alias("message_identifier")))
        if again:
            ids = reduce(DataFrame.unionByName, again).distinct()
            others = ids.join(fresh, "message_identifier", "left_anti")
            retried = routed(self.stored(), self.schema).join(others, "message_identifier", "left_semi")
            processed = processed.unionByName(retried.select(*fresh.columns))
        found = problems(map(self.resolved, self.entities), self.waiting())
        now = statuses(processed, found, known, now=self._now, retry=self._retry)
        if known is None or (self._attempt and not again and not self._forgot):
            # None of them was known before.
            grow(self._writes, STATUSES, now)
        elif self._attempt:
            rest = known.join(now.select("message_identifier"), "message_identifier", "left_anti")
            self._writes.replace(STATUSES, now.unionByName(rest.select(*now.columns)))
