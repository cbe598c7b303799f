"""
From the statements about all targets to the changes of each, wherever statements are kept.

Changes are what records say, and absences: what a complete list did not name, be it a refresh, a list of
children, or the empty one that a deleted parent leaves.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.datahub.mappings import Place, Target
from cdckit.datahub.resolution import UNPROCESSED, Resolution
from cdckit.datahub.source_systems import Schema
from cdckit.datahub.statements import (
    AUTOCREATE,
    END_OF_MESSAGE,
    LIST,
    MAKES,
    NAMES_ENTITY,
    REFRESH,
    UPSERT,
    priority_sql,
    source_sql,
    value_by_place,
)
from cdckit.datahub.waiting import drop_waiting, needed_links, with_statement
from cdckit.model.changes import ABSENT
from cdckit.model.history import DELETED, FIELD_PROVENANCE, SOURCE_MESSAGE, VALID_FROM
from cdckit.parts.arguments import quoted, text_literal

ABSENCE_COLUMNS = ("guid", "message_id", "source", "priority", "place", "effective_timestamp", "arrival")


def absences(mentions: DataFrame, events: Sequence[tuple[str | None, DataFrame]]) -> DataFrame:
    """
    Find of each entity the ends of complete lists that did not name it.

    Args:
        mentions: One row per mention of an entity: `guid`; `at`, its position in the order (see `position`);
            `list_end` and `message_end`, the positions at which the list ends in which it stands, one of a
            parent's children or one of all entities, or its own if it stands in none; and `parent_<field>`,
            whose children those of the list are, for each field of *events*.
        events: Ends of lists (`scope`, `message_id`, `priority`, `place`, `source`, `effective_timestamp`,
            `arrival`), each table with the field that `scope` is a value of; None for lists of all entities.
            `place` is the number of the mapping in whose name the list speaks, null for none.

    Returns:
        One row per entity and list that may have ended it, in the columns of `ABSENCE_COLUMNS`.  Whether
        the entity was alive at that point is for the merge to say.  Only the first list after each
        mention of the entity is there, for each priority: those after it find what it left.

    Cost: one shuffle of the mentions of entities by guid.  Lists of all entities are few, and are
    broadcast; those of one parent are joined by the parent.
    """
    followed = mentions.selectExpr("*", "lead(at) OVER (PARTITION BY guid ORDER BY at) AS next_mention")
    by_field: dict[str | None, list[DataFrame]] = {}
    for field, lists in events:
        by_field.setdefault(field, []).append(lists)
    missed_lists = []
    for field, tables in by_field.items():
        ends = _with_previous_end(reduce(DataFrame.unionByName, tables))
        if field is None:
            missed_lists.append(_first_after(followed, F.broadcast(ends), "true", "message_end"))
        else:
            has_parent = f"{quoted(f'parent_{field}')} = scope"
            missed_lists.append(_first_after(followed, ends, has_parent, "list_end"))
    # Two lists may end together: the stronger word counts, of equal ones that of the first mapping.
    together = [name for name in ABSENCE_COLUMNS if name not in ("priority", "place")]
    strongest = F.max_by(F.struct("priority", "place"), F.struct("priority", -F.col("place")))
    missed = reduce(DataFrame.unionByName, missed_lists).groupBy(*together).agg(strongest.alias("strongest"))
    return missed.select(*together, "strongest.*")


def _with_previous_end(events: DataFrame) -> DataFrame:
    """Each list with where it ends, and where the one before it did that had the same scope and priority."""
    positioned = events.selectExpr("*", f"{position('arrival.record_number')} AS ends_at")
    same = "PARTITION BY scope, priority ORDER BY ends_at, place"
    return positioned.selectExpr("*", f"lag(ends_at) OVER ({same}) AS previous_end")


def _first_after(mentions: DataFrame, ends: DataFrame, is_ours: str, after: str) -> DataFrame:
    """Find for each mention, and priority, the first list that ends *after* it, and before the next one."""
    is_first = f"ends_at > {after} AND (previous_end IS NULL OR previous_end <= {after})"
    before_next = "(next_mention IS NULL OR next_mention > ends_at)"
    condition = F.expr(f"{is_ours} AND {is_first} AND {before_next}")
    return mentions.join(ends, condition).select(*ABSENCE_COLUMNS)


def position(number: str) -> str:
    """The position of a message in the order, with that number of a record in it: SQL."""
    message = "arrival.timestamp, arrival.topic, arrival.partition, arrival.offset"
    arrival = f"struct({message}, CAST({number} AS int) AS record_number)"
    return f"struct(effective_timestamp, {arrival} AS arrival)"


class DerivedChanges(Resolution):
    """What follows from statements, guids and links: what is applied, and the changes of each target."""

    @property
    def may_wait(self) -> bool:
        """Whether a statement of the targets that are looked at may need another one."""
        return any(needed_links(self.schema, entity) is not None for entity in self.kept.entities)

    def processed_statements(self, entity: str) -> DataFrame:
        """The statements of a target that are processed, with their guids and links."""
        rows = self.resolved_statements(entity)
        # What no record holds or makes is always processed.
        is_within = self.schema.is_within(entity)
        return rows.where(f"NOT error_code <=> '{UNPROCESSED}'") if is_within else rows

    def applied_statements(self, entity: str, among: DataFrame | None = None) -> DataFrame:
        """The statements of a target that are applied: of all that are processed, or *among* some of them."""
        rows = self.processed_statements(entity) if among is None else among
        valid, waiting = rows.where("error_code IS NULL"), self.kept.waiting()
        if waiting is None:
            return valid
        ours = waiting.where(F.col("statement.entity") == entity)
        return drop_waiting(with_statement(valid, entity), ours).drop("statement")

    def changes(self, entity: str, touched: DataFrame | None = None) -> DataFrame:
        """The changes of a target; of the entities *touched* alone, where they are given."""
        statements = _keep_guids(self.processed_statements(entity), touched)
        applied = self.applied_statements(entity, statements)
        stated = record_changes(self.schema, entity, applied)
        events = self._events(entity, applied if touched is None else None)
        if not events:
            return stated
        missed = absences(mentions(statements, self.schema.parent_fields(entity)), events)
        return _with_absences(stated, missed, _field_priorities(self.schema, self.schema.targets[entity]))

    def list_fields(self, entity: str) -> list[str | None]:
        """The fields whose values have complete lists of a target's entities; None for lists of all."""
        parents = self.schema.parent_fields(entity)
        return [None, *parents] if self.kept.may_be_refreshed(entity) else [*parents]

    def _events(self, entity: str, applied: DataFrame | None) -> list[tuple[str | None, DataFrame]]:
        """
        The ends of all complete lists that may not have named an entity of the target.

        All of its statements that are *applied* say so; None where only some of them are known.
        """
        parents, lists = self.schema.parent_fields(entity), self.list_fields(entity)
        if not lists:
            return []
        applied = self.applied_statements(entity) if applied is None else applied
        events = [(field, list_events(self.schema, applied, field)) for field in lists]
        return events + [
            (
                field,
                cascade_events(self.schema, entity, field, self.kept.history, self.kept.stored_messages()),
            )
            for field in parents
        ]


def _keep_guids(statements: DataFrame, touched: DataFrame | None) -> DataFrame:
    """The statements about the entities *touched*; ends of lists are about none."""
    return statements if touched is None else statements.join(touched, "guid", "left_semi")


def record_changes(schema: Schema, entity: str, applied: DataFrame) -> DataFrame:
    """
    The statements of records, and of links that make what is missing, as changes.

    One row per statement that is *applied*, in the columns of `cdckit.model.CHANGE_SCHEMA` with its `guid`;
    the mappings of the schema give source and priorities.
    """
    target = schema.targets[entity]
    statements = applied.where(f"guid IS NOT NULL AND {NAMES_ENTITY}")
    if entity in schema.autocreated:
        statements = _drop_needless_autocreates(statements)
    more = _field_priorities(schema, target)
    return statements.selectExpr(
        "guid", "message_id", "effective_timestamp", "arrival", "data", "carried",
        f"if(operation = '{AUTOCREATE}', '{UPSERT}', operation) AS operation",
        "'' AS sequence",
        f"{source_sql(schema)} AS source",
        # A link may make an entity without any mapping of the target.
        f"coalesce({priority_sql(schema, target)}, 0) AS priority",
        *([f"if(operation <> '{AUTOCREATE}', {more}, NULL) AS field_priorities"] if more else []),
    )  # fmt: skip


def _with_absences(changes: DataFrame, missed: DataFrame, field_priorities: str | None) -> DataFrame:
    """The changes of a target, and its absences as changes, which carry nothing."""
    data = changes.schema["data"].dataType
    assert isinstance(data, T.StructType)
    # One text of JSON for each struct, since a literal for each field would be several calls into the JVM.
    carried = json.dumps(dict.fromkeys(data.fieldNames(), False))
    columns = {
        "operation": F.lit(ABSENT),
        "sequence": F.lit(""),
        "data": F.from_json(F.lit("{}"), data),
        "carried": F.from_json(F.lit(carried), changes.schema["carried"].dataType),  # type: ignore[arg-type]
        **({"field_priorities": F.expr(field_priorities)} if field_priorities else {}),
    }
    return changes.unionByName(missed.withColumns(columns).drop("place"))


def _drop_needless_autocreates(statements: DataFrame) -> DataFrame:
    """Keep an "autocreate" only where nothing makes its entity sooner."""
    # Of two at one position the record itself comes first: it says more than its link.
    at = f"struct(effective_timestamp, arrival, operation = '{AUTOCREATE}' AS is_auto)"
    first = f"min(if({MAKES}, {at}, NULL)) OVER (PARTITION BY guid)"
    counts = f"operation <> '{AUTOCREATE}' OR {at} = {first}"
    return statements.selectExpr("*", f"{counts} AS _counts").where("_counts").drop("_counts")


def _field_priorities(schema: Schema, target: Target) -> str | None:
    """The priorities of single fields, if any mapping of the target states one."""
    stated: dict[str, dict[Place, str]] = {}
    for place, mapping in target.mappings.items():
        for column in mapping.columns:
            if column.priority is not None:
                stated.setdefault(column.reference, {})[place] = str(column.priority)
    if not stated:
        return None
    fields = (f"{value_by_place(schema, values, 'int')} AS {quoted(name)}" for name, values in stated.items())
    return f"struct({', '.join(fields)})"


def list_events(schema: Schema, statements: DataFrame, field: str | None) -> DataFrame:
    """
    Find where complete lists end: one row per list.

    They name the children of one parent, to which *field* leads: `scope` is its guid.  Without a field they
    are refreshes, which name all entities of the target: `scope` is null.
    """
    scope = "CAST(NULL AS string)" if field is None else f"data.{quoted(field)}"
    is_end = f"operation = '{REFRESH}'" if field is None else f"operation = '{LIST}' AND {scope} IS NOT NULL"
    return statements.where(is_end).selectExpr(
        f"{scope} AS scope",
        "message_id",
        "effective_timestamp",
        "arrival",
        f"{priority_sql(schema)} AS priority",
        "place",
        f"{source_sql(schema)} AS source",
    )


def cascade_events(
    schema: Schema,
    entity: str,
    field: str,
    history_of: Callable[[str], DataFrame],
    messages: DataFrame,
) -> DataFrame:
    """
    Find where a parent was deleted: an empty list of its children, at the end of the message that did it.

    Children go with their parent, whichever system deletes it.  A system that itself maps the children in
    the parent speaks of them with the priorities of that mapping, any other with that of its delete.
    Decision: a parent that is deleted and made again at one instant was never gone, nor were its children.
    """
    tables = []
    for name, stated in _mappings_of_children(schema, entity, field).items():
        deleted = (
            history_of(name)
            .where(DELETED)
            .selectExpr(
                "guid AS scope",
                f"{VALID_FROM} AS deleted_at",
                f"{SOURCE_MESSAGE} AS message_identifier",
                f"{FIELD_PROVENANCE}.guid.p AS of_delete",
            )
        )
        of = [f"WHEN source_system = {text_literal(system)} THEN {place}" for system, place in stated.items()]
        by = deleted.join(messages, "message_identifier").selectExpr("*", f"CASE {' '.join(of)} END AS place")
        tables.append(
            by.selectExpr(
                "scope",
                "message_identifier AS message_id",
                f"coalesce({priority_sql(schema)}, of_delete) AS priority",
                "place",
                "source_system AS source",
                "deleted_at AS effective_timestamp",
                "struct(message_timestamp AS timestamp, topic, partition, offset, "
                f"{END_OF_MESSAGE + 1} AS record_number) AS arrival",
            )
        )
    return reduce(DataFrame.unionByName, tables)


def _mappings_of_children(schema: Schema, entity: str, field: str) -> dict[str, dict[str, int]]:
    """Find by the parent's target and the system the strongest of its mappings of the children."""
    mappings: dict[str, dict[str, int]] = {}
    parents = schema.parent_fields(entity)[field]
    for child in sorted(parents, key=lambda place: -schema.mapping(place).priority):
        of_parent = mappings.setdefault(schema.mapping(parents[child]).reference, {})
        of_parent.setdefault(child.system, schema.numbers[child])
    return mappings


def mentions(statements: DataFrame, fields: Iterable[str]) -> DataFrame:
    """
    Every mention of an entity in the statements of its target, as `absences` wants them.

    Applied or not: an entity that a list names is seen, though the record waits or is in error.
    """
    # What a link makes stands in no list.
    number, is_made = "arrival.record_number", f"operation = '{AUTOCREATE}'"
    return statements.where(f"guid IS NOT NULL AND {NAMES_ENTITY}").selectExpr(
        "guid",
        f"{position(number)} AS at",
        f"{position(f'if({is_made}, {number}, coalesce(listed, {number}))')} AS list_end",
        f"{position(f'if({is_made}, {number}, {END_OF_MESSAGE})')} AS message_end",
        *(f"data.{quoted(name)} AS {quoted(f'parent_{name}')}" for name in fields),
    )
