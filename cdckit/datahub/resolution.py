"""Resolution: the guids and links that only a look at all entities can tell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache, cached_property, reduce
from typing import Protocol

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdckit.datahub.columns import LOOKED_UP
from cdckit.datahub.mappings import Target
from cdckit.datahub.messages import HubFault
from cdckit.datahub.source_systems import Schema
from cdckit.datahub.statements import DROPPED, IS_RECORD, NAMES_ENTITY, UPSERT, value_by_place
from cdckit.datahub.weak_keys import HAS_INSTANT, find_key_holders, holders, with_weak_guids
from cdckit.parts.arguments import quoted, text_literal
from cdckit.parts.guids import guid

UNPROCESSED = "UNPROCESSED"
"""The error of what a record holds or makes that is in error by looking: nobody is told of it."""

HELD, ANSWERS = "held", "answers"
"""The kinds of tables that hold what weak keys and links have found."""

LOOKUP_FAULTS = (str(HubFault.KEY_AMBIGUOUS), str(HubFault.LINK_AMBIGUOUS))
"""The errors that only a look at all entities finds."""


class Kept(Protocol):
    """What is kept of what messages say: by a hub in its tables (`State`), by `changes` nowhere."""

    is_small: bool
    """Whether it is known to be so little that one task goes through it."""

    @property
    def entities(self) -> Sequence[str]:
        """The targets that are looked at; what others say counts for nothing."""

    def stored_messages(self) -> DataFrame:
        """The messages that were read, each once (`MESSAGE_SCHEMA`)."""

    def statements(self, entity: str) -> DataFrame:
        """All statements about a target (`statement_schema`): what a link finds depends on every record."""

    def lookup_table(self, kind: str, entity: str, rows: DataFrame) -> DataFrame | None:
        """What a look-up has found, by its kind and target; *rows* say how.  None for nothing."""

    def waiting(self) -> DataFrame | None:
        """The statements that wait (`statement`, see `with_statement`); None if there are none."""

    def may_be_refreshed(self, entity: str) -> bool:
        """Whether a message may have given a list of all entities of the target."""

    def history(self, entity: str) -> DataFrame:
        """The history of a target that is a parent of others."""


class Resolution:
    """
    The statements of all targets, with every guid and link looked up that can be.

    A link that is not found keeps its marked text.  A record whose key, or one of whose links, leads to
    several entities is in error, and what it holds or makes is not processed.
    """

    def __init__(self, schema: Schema, kept: Kept) -> None:
        self.schema, self.kept = schema, kept
        # Each is found once for each target, and only for those that are asked for.
        self._statements = cache(lambda entity: kept.statements(entity))
        self._key_holders = cache(self._find_key_holders)
        self._identified = cache(self._identify)
        self._answers_of = cache(self._find_answers)
        self._linked = cache(self._link)
        self.resolved_statements = cache(self._resolve)
        """The statements of one target; no more is done to them than its keys and links need."""

    def answers(self) -> DataFrame | None:
        """
        Answer every marked text that leads somewhere: `text`, `found` (a guid), `several`; None for none.

        Those of links to weak keys have their instant: who holds such a key depends on it.
        """
        answers = [
            self._answers_of(entity) for entity in self.schema.lookup_keys if entity in self.kept.entities
        ]
        tables = [table for table in answers if table is not None]
        return reduce(DataFrame.unionByName, tables) if tables else None

    def _resolve(self, entity: str) -> DataFrame:
        rows = self._linked(entity)
        if self.schema.is_within(entity) and self._failed is not None:
            rows = _mark_unprocessed(rows, self._failed)
        return rows

    @cached_property
    def _failed(self) -> DataFrame | None:
        """
        The records in error by looking that hold or make others, and those that hold or make others below.

        One row per record: `message_id` and `name`; None where there are none.
        """
        mapping_names = {place: text_literal(str(place)) for place in self.schema.numbers}
        names = value_by_place(self.schema, mapping_names, "string")
        tables = []
        for entity in self.kept.entities:
            mappings = self.schema.targets[entity].mappings
            if any(
                mapping.brings_others and self.schema.may_fail_lookup(place)
                for place, mapping in mappings.items()
            ):
                name, is_wrong = f"concat_ws(' ', {names}, record) AS name", f"error_code IN {LOOKUP_FAULTS}"
                linked = self._linked(entity).where(IS_RECORD)
                tables.append(linked.selectExpr("message_id", name, "within", f"{is_wrong} AS is_wrong"))
        if not tables:
            return None
        records = reduce(DataFrame.unionByName, tables)
        themselves = records.where("is_wrong").select("message_id", "name").distinct()
        wrong = self.kept.lookup_table("failed", "themselves", themselves)
        if wrong is None:
            return None
        above = records.selectExpr("message_id", "name AS below", "explode(within) AS name")
        below = above.join(wrong, ["message_id", "name"], "left_semi")
        failed = wrong.unionByName(below.selectExpr("message_id", "below AS name")).distinct()
        # Every target below looks at it, several times in a run.
        return self.kept.lookup_table("failed", "all", failed)

    def _link(self, entity: str) -> DataFrame:
        """The statements of a target, links that are no part of its key looked up too."""
        target = self.schema.targets[entity]
        later = [name for name in target.links if name not in target.keys]
        return self._follow_links(self._identified(entity), target, later)

    def _find_key_holders(self, entity: str) -> DataFrame | None:
        """Find which records mean which entities of a target with weak keys, and who holds its keys."""
        statements, target = self._statements(entity), self.schema.targets[entity]
        found = find_key_holders(statements, self.schema, target, few=self.kept.is_small)
        return self.kept.lookup_table(HELD, entity, found)

    def _identify(self, entity: str) -> DataFrame:
        """The statements of a target with their guids."""
        target, rows = self.schema.targets[entity], self._statements(entity)
        if target.weak:
            rows = with_weak_guids(rows, self._key_holders(entity))
            return _with_error(rows, HubFault.KEY_AMBIGUOUS)
        looked_up = [name for name in target.links if name in target.keys and self._plans_of(target, name)]
        if not looked_up:
            return rows
        rows = self._follow_links(rows, target, looked_up)
        marked_ones = " OR ".join(f"startswith(data.{quoted(name)}, '{LOOKED_UP}')" for name in looked_up)
        is_certain = f"""guid IS NULL AND error_code IS NULL AND NOT coalesce({marked_ones}, false)
            AND {NAMES_ENTITY}"""
        key = {name: _data(name) for name in target.alternatives[0]}
        certain_guid = F.when(F.expr(is_certain), guid(target.entity, key)).otherwise(F.col("guid"))
        return rows.withColumn("guid", certain_guid)

    def _follow_links(self, rows: DataFrame, target: Target, links: Iterable[str]) -> DataFrame:
        """These links with their guids in place of the marked texts."""
        pairs = [(name, entity) for name in links for entity in sorted(self._plans_of(target, name))]
        for name, entity in pairs:
            answers = self._answers_of(entity)
            if answers is None:
                continue
            rows = rows.join(
                answers.withColumnRenamed("text", "_text"), _data(name) == F.col("_text"), "left"
            )
            value = F.coalesce("found", _data(name))
            rows = rows.withColumn("data", F.col("data").withField(quoted(name), value))
            rows = _with_error(rows.drop("_text", "found"), HubFault.LINK_AMBIGUOUS, name)
        return rows

    def _plans_of(self, target: Target, name: str) -> set[str]:
        """The entities that a link leads to, where it must be looked up."""
        plans = (
            self.schema.key_plan(place, link)
            for place, mapping in target.mappings.items()
            for link in mapping.links
            if link.reference == name
        )
        return {plan.entity for plan in plans if not plan.whole}

    def _questions(self, entity: str) -> DataFrame | None:
        """Find the keys by which links look up an entity with weak keys, and when; None for no link."""
        tables = [
            self._statements(target.entity).select(_data(name).alias("text")).where(HAS_INSTANT)
            for target in map(self.schema.targets.__getitem__, self.kept.entities)
            for name in target.links
            if entity in self._plans_of(target, name)
        ]
        return reduce(DataFrame.unionByName, tables).distinct() if tables else None

    def _find_answers(self, entity: str) -> DataFrame | None:
        """Find of a target that links look up who is meant by their texts."""
        if entity not in self.kept.entities:
            return None
        if not self.schema.targets[entity].strict:
            key_holders, questions = self._key_holders(entity), self._questions(entity)
            if key_holders is None or questions is None:
                return None
            return self.kept.lookup_table(ANSWERS, entity, holders(key_holders, questions))
        usable = f"operation = '{UPSERT}' AND error_code IS NULL AND guid IS NOT NULL"
        claims = self._identified(entity).where(usable).selectExpr("explode(claims) AS text", "guid")
        # The least and the greatest differ where there are several: nothing need be counted.
        ends = claims.groupBy("text").agg(F.min("guid").alias("least"), F.max("guid").alias("greatest"))
        holder, several = "if(least = greatest, least, NULL) AS found", "least <> greatest AS several"
        return self.kept.lookup_table(ANSWERS, entity, ends.selectExpr("text", holder, several))


def _data(name: str) -> Column:
    return F.col("data").getField(name)


def _mark_unprocessed(rows: DataFrame, failed: DataFrame) -> DataFrame:
    """The statements, those of what the *failed* records hold or make being in error."""
    ours = failed.selectExpr("message_id AS _message", "name AS _name")
    # The innermost is enough: what fails further out has failed all that are between.
    joined = rows.join(ours, F.expr("message_id = _message AND element_at(within, -1) = _name"), "left")
    error = F.expr(f"if(_name IS NOT NULL, '{UNPROCESSED}', error_code)")
    return joined.withColumn("error_code", error).drop("_message", "_name")


def _with_error(rows: DataFrame, problem: HubFault, finding: str = "") -> DataFrame:
    """The statements with an error where `several` entities are found; without that column."""
    # A record that a filter has dropped leads nowhere, whatever its links say.
    wrong = f"several AND error_code IS NULL AND operation <> '{DROPPED}'"
    text = text_literal(problem.describe(finding))
    error = {"error_code": f"'{problem}'", "error_description": text}
    columns = {name: F.expr(f"if({wrong}, {value}, {name})") for name, value in error.items()}
    return rows.withColumns(columns).drop("several")
