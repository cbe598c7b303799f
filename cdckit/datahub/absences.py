"""Absences: what a complete list did not name.  Refreshes, lists of children, and deletes that cascade."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdckit.datahub.source_systems import Schema
from cdckit.datahub.statements import (
    AUTOCREATE,
    DELETE,
    END_OF_MESSAGE,
    LIST,
    REFRESH,
    UPSERT,
    by_place,
)
from cdckit.history import DELETED, FIELD_PROVENANCE, SOURCE_MESSAGE, VALID_FROM
from cdckit.parts.schemas import quoted, text_literal

ABSENCE_COLUMNS = ("guid", "message_id", "source", "priority", "effective_timestamp", "arrival")


def refresh_events(schema: Schema, statements: DataFrame) -> DataFrame:
    """Where a list of all entities of the target ends: one row per refresh, with `scope` null."""
    rows = statements.where(f"operation = '{REFRESH}'")
    return rows.selectExpr("CAST(NULL AS string) AS scope", *_said_by_mapping(schema))


def list_events(schema: Schema, statements: DataFrame, field: str) -> DataFrame:
    """Where a list of the children of one parent ends: one row per list, `scope` being the parent's guid."""
    scope = f"data.{quoted(field)}"
    rows = statements.where(f"operation = '{LIST}' AND {scope} IS NOT NULL")
    return rows.selectExpr(f"{scope} AS scope", *_said_by_mapping(schema))


def cascade_events(
    schema: Schema,
    entity: str,
    field: str,
    history_of: Callable[[str], DataFrame | None],
    messages: DataFrame,
) -> DataFrame | None:
    """
    Where a parent was deleted: an empty list of its children, at the end of the message that did it.

    Children go with their parent, whichever system deletes it.  A system that itself maps the children in
    the parent speaks of them with the priority of that mapping, any other with that of its delete.
    """
    found: list[DataFrame] = []
    for name, stated in _priorities_of_children(schema, entity, field).items():
        history = history_of(name)
        if history is None:
            continue
        deleted = history.where(DELETED).selectExpr(
            "guid AS scope",
            f"{VALID_FROM} AS deleted_at",
            f"{SOURCE_MESSAGE} AS message_identifier",
            f"{FIELD_PROVENANCE}.guid.p AS of_delete",
        )
        of = [f"WHEN source_system = {text_literal(system)} THEN {each}" for system, each in stated.items()]
        found.append(
            deleted.join(messages, "message_identifier").selectExpr(
                "scope",
                "message_identifier AS message_id",
                f"CASE {' '.join(of)} ELSE of_delete END AS priority",
                "source_system AS source",
                "deleted_at AS effective_timestamp",
                "struct(message_timestamp AS timestamp, topic, partition, offset, "
                f"{END_OF_MESSAGE + 1} AS record_number) AS arrival",
            )
        )
    return reduce(DataFrame.unionByName, found) if found else None


def _priorities_of_children(schema: Schema, entity: str, field: str) -> dict[str, dict[str, int]]:
    """By the parent's target and the system the priority of its mappings of the children: the greatest."""
    found: dict[str, dict[str, int]] = {}
    for child, parent in schema.parent_fields(entity)[field].items():
        of_parent = found.setdefault(schema.mapping(parent).reference, {})
        priority = schema.mapping(child).priority
        of_parent[child.system] = max(priority, of_parent.get(child.system, priority))
    return found


def _said_by_mapping(schema: Schema) -> list[str]:
    """The columns of an event of which a mapping speaks: with its priority."""
    priority = by_place(schema, {place: each.priority for place, each in schema.all_mappings.items()}, "int")
    source = by_place(schema, {place: place.system for place in schema.all_mappings}, "string")
    same = ("message_id", "effective_timestamp", "arrival")
    return [*same, f"{priority} AS priority", f"{source} AS source"]


def absences(statements: DataFrame, events: Sequence[tuple[str | None, DataFrame]]) -> DataFrame:
    """
    Of each entity, the ends of complete lists that did not name it.

    Args:
        statements: Those of one target, applied or not: an entity that a list names is seen, though the
            record waits or is in error.
        events: Ends of lists (`scope`, `message_id`, `priority`, `source`, `effective_timestamp`,
            `arrival`), each table with the field that `scope` is a value of; None for lists of all entities.

    Returns:
        One row per entity and list that may have ended it, in the columns of `ABSENCE_COLUMNS`.  Whether
        the entity was alive at that point is for the merge to say.  Only the first list after each
        mention of the entity is there, for each priority: those after it find what it left.

    Cost: one shuffle of the mentions of entities by guid.  Lists of all entities are few, and are
    broadcast; those of one parent are joined by the parent.
    """
    fields = dict.fromkeys(field for field, _ in events if field is not None)
    mentions = _mentions(statements, list(fields))
    by_field: dict[str | None, list[DataFrame]] = {}
    for field, some in events:
        by_field.setdefault(field, []).append(some)
    found = []
    for field, tables in by_field.items():
        ends = _with_previous(reduce(DataFrame.unionByName, tables))
        if field is None:
            found.append(_first_after(mentions, F.broadcast(ends), "true", "whole"))
        else:
            found.append(_first_after(mentions, ends, f"{quoted(f'parent_{field}')} = scope", "listed"))
    # Two lists may end in one place: the stronger word counts.
    place = [name for name in ABSENCE_COLUMNS if name not in ("priority", "source")]
    strongest = F.max(F.struct("priority", "source")).alias("strongest")
    missed = reduce(DataFrame.unionByName, found).groupBy(*place).agg(strongest)
    return missed.select(*place, "strongest.priority", "strongest.source")


def _mentions(statements: DataFrame, fields: Sequence[str]) -> DataFrame:
    """Every mention of an entity, with the end of the list that it stands in, and the next mention."""
    # What a link makes stands in no list.
    own, is_made = "arrival.record_number", f"operation = '{AUTOCREATE}'"
    named = statements.where(f"guid IS NOT NULL AND operation IN {(UPSERT, DELETE, AUTOCREATE)}").selectExpr(
        "guid",
        f"{_position(own)} AS at",
        f"{_position(f'if({is_made}, {own}, coalesce(listed, {own}))')} AS listed",
        f"{_position(f'if({is_made}, {own}, {END_OF_MESSAGE})')} AS whole",
        *(f"data.{quoted(name)} AS {quoted(f'parent_{name}')}" for name in fields),
    )
    return named.selectExpr("*", "lead(at) OVER (PARTITION BY guid ORDER BY at) AS next")


def _with_previous(events: DataFrame) -> DataFrame:
    """Each end of a list with the one before it that had the same scope and priority."""
    said = events.selectExpr("*", f"{_position('arrival.record_number')} AS ends")
    return said.selectExpr("*", "lag(ends) OVER (PARTITION BY scope, priority ORDER BY ends) AS previous")


def _first_after(mentions: DataFrame, ends: DataFrame, same: str, after: str) -> DataFrame:
    first = f"ends > {after} AND (previous IS NULL OR previous <= {after})"
    before_next = "(next IS NULL OR next > ends)"
    return mentions.join(ends, F.expr(f"{same} AND {first} AND {before_next}")).select(*ABSENCE_COLUMNS)


def _position(number: str) -> str:
    """The place of a message in the order, with that number of a record in it: SQL."""
    message = "arrival.timestamp, arrival.topic, arrival.partition, arrival.offset"
    arrival = f"struct({message}, CAST({number} AS int) AS record_number)"
    return f"struct(effective_timestamp, {arrival} AS arrival)"
