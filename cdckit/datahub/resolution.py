"""Resolution: statements with the guids that only a look at all entities can tell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdckit.datahub.absences import parent_fields
from cdckit.datahub.columns import LOOKED_UP
from cdckit.datahub.mappings import LINK
from cdckit.datahub.schema import Schema
from cdckit.datahub.statements import AUTOCREATE, UPSERT, place_numbers
from cdckit.datahub.statuses import Problem
from cdckit.datahub.targets import Place, Target
from cdckit.datahub.weak import entities_by_claims, with_weak_guids
from cdckit.identifiers import guid
from cdckit.schemas import quoted


class Resolution:
    """
    The statements of all targets, with every guid and link looked up that can be.

    Args:
        schema: The schema by which they were read.
        statements: By target, all of them: what a link finds depends on every record.
        kept: Is given the name of a table and the table, and returns it in a form that is not computed
            anew whenever it is looked at.

    A link that is not found keeps its marked text.  A record whose key, or one of whose links, leads to
    several entities is in error.
    """

    def __init__(
        self,
        schema: Schema,
        statements: Mapping[str, DataFrame],
        kept: Callable[[str, str, DataFrame], DataFrame],
    ) -> None:
        self._schema, self._kept = schema, kept
        self._identified: dict[str, DataFrame] = {}
        self._answers: dict[str, DataFrame] = {}
        self._resolved: dict[str, DataFrame] = {}
        for entity in schema.by_keys:
            self._identified[entity] = self._with_guids(schema.targets[entity], statements[entity])

    def resolved(self, entity: str) -> DataFrame:
        """The statements of one target; no more is done to them than its keys and links need."""
        if entity not in self._resolved:
            target, rows = self._schema.targets[entity], self._identified[entity]
            for name in target.links:
                if name not in target.keys:
                    rows = self._followed(rows, target, name)
            self._resolved[entity] = rows
        return self._resolved[entity]

    @property
    def looks_up(self) -> bool:
        """Whether any link of the schema must be looked up."""
        return bool(self._schema.looked_up)

    def answers(self) -> DataFrame | None:
        """For every marked text that leads somewhere: `text`, `found` (a guid), `several`."""
        found: DataFrame | None = None
        for entity in self._schema.looked_up:
            some = self._answers_of(entity)
            found = some if found is None else found.unionByName(some)
        return found

    def _with_guids(self, target: Target, rows: DataFrame) -> DataFrame:
        if not target.strict and target.alternatives:
            rows = with_weak_guids(rows, self._kept("keys", target.entity, entities_by_claims(rows, target)))
            rows = _with_error(
                rows, F.col("several"), Problem.KEY_AMBIGUOUS, "its keys lead to several entities"
            )
            return rows.drop("several")
        in_key = [name for name in target.links if name in target.keys]
        looked_up = [name for name in in_key if self._plans_of(target, name) - {None}]
        if not looked_up:
            return rows
        for name in looked_up:
            rows = self._followed(rows, target, name)
        unknown = F.lit(False)
        for name in looked_up:
            unknown = unknown | _is_marked(_data(name))
        key = {name: _data(name) for name in target.alternatives[0]}
        known = F.when(F.col("error_code").isNull() & ~unknown, guid(target.entity, key))
        is_record = F.col("operation").isin(UPSERT, "delete", AUTOCREATE)
        return rows.withColumn("guid", F.coalesce("guid", F.when(is_record, known)))

    def _followed(self, rows: DataFrame, target: Target, name: str) -> DataFrame:
        """The link *name* with its guid in place of the marked text."""
        entities = self._plans_of(target, name) - {None}
        for entity in sorted(each for each in entities if each):
            answers = self._answers_of(entity).select(F.col("text").alias("_text"), "found", "several")
            rows = rows.join(answers, _data(name) == F.col("_text"), "left")
            value = F.when(F.col("found").isNotNull(), F.col("found")).otherwise(_data(name))
            rows = rows.withColumn("data", F.col("data").withField(quoted(name), value))
            text = f"{name}: its key leads to several entities"
            rows = _with_error(rows, F.col("several"), Problem.LINK_AMBIGUOUS, text)
            rows = rows.drop("_text", "found", "several")
        return rows

    def _plans_of(self, target: Target, name: str) -> set[str | None]:
        """The entities that a link leads to, where it must be looked up."""
        found: set[str | None] = set()
        for place, mapping in target.mappings.items():
            for each in mapping.columns:
                if each.reference == name and each.type.name == LINK:
                    plan = self._schema.key_plan(place, each)
                    found.add(None if plan.whole else plan.entity)
        return found

    def _answers_of(self, entity: str) -> DataFrame:
        if entity not in self._answers:
            rows = self._identified[entity]
            usable = (F.col("operation") == UPSERT) & F.col("error_code").isNull() & F.col("guid").isNotNull()
            claims = rows.where(usable).select(F.explode("claims").alias("text"), "guid")
            # The least and the greatest differ where there are several: nothing need be counted.
            answers = (
                claims.groupBy("text")
                .agg(F.min("guid").alias("least"), F.max("guid").alias("greatest"))
                .select(
                    "text",
                    F.when(F.col("least") == F.col("greatest"), F.col("least")).alias("found"),
                    (F.col("least") != F.col("greatest")).alias("several"),
                )
            )
            self._answers[entity] = self._kept("answers", entity, answers)
        return self._answers[entity]


def needed_links(schema: Schema, entity: str) -> Column:
    """The links of a statement that must lead to what exists, as a list."""
    own = _own_links(schema, entity)
    listed = F.array_compact(F.array(*own)) if own else F.array().cast("array<string>")
    return F.concat(listed, F.coalesce("inherited", F.array().cast("array<string>")))


def needed_columns(schema: Schema, entity: str) -> list[Column]:
    """The same as columns, to be looked at one after the other; null where there is nothing."""
    # Only children, and what links make, need what the records need that hold or make them.
    inherits = bool(parent_fields(schema, entity)) or entity in schema.autocreated
    return [*_own_links(schema, entity), *([F.explode("inherited")] if inherits else [])]


def _own_links(schema: Schema, entity: str) -> list[Column]:
    numbers, target = place_numbers(schema), schema.targets[entity]
    found = []
    for name in target.links:
        places = [numbers[place] for place in _autocreating(schema, target, name)]
        found.append(F.when(~F.col("place").isin(places), _data(name)) if places else _data(name))
    # What a link makes is there whatever its key leads to: the record that links is what waits.
    return [F.when(F.col("operation") != AUTOCREATE, each) for each in found]


def _autocreating(schema: Schema, target: Target, name: str) -> Iterable[Place]:
    for place, mapping in target.mappings.items():
        if any(each.reference == name and each.autocreate for each in mapping.columns):
            yield place


def _data(name: str) -> Column:
    return F.col("data").getField(name)


def _is_marked(text: Column) -> Column:
    return F.coalesce(text.startswith(LOOKED_UP), F.lit(False))


def _with_error(rows: DataFrame, condition: Column, problem: Problem, text: str) -> DataFrame:
    wrong = F.col("error_code").isNull() & F.coalesce(condition, F.lit(False))
    return rows.withColumns(
        {
            "error_code": F.when(wrong, str(problem)).otherwise(F.col("error_code")),
            "error_description": F.when(wrong, text).otherwise(F.col("error_description")),
        }
    )
