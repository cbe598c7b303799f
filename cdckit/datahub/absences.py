"""Absences: what a complete list did not name.  Refreshes, lists of children, and deletes that cascade."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce

from pyspark.sql import DataFrame

from cdckit.datahub.source_systems import Schema
from cdckit.datahub.statements import (
    AUTOCREATE,
    END_OF_MESSAGE,
    LIST,
    NAMES_ENTITY,
    REFRESH,
    priority_of,
    source_of,
)
from cdckit.history import DELETED, FIELD_PROVENANCE, SOURCE_MESSAGE, VALID_FROM
from cdckit.parts.complete_lists import position
from cdckit.parts.schemas import quoted, text_literal


def list_events(schema: Schema, statements: DataFrame, field: str | None) -> DataFrame:
    """
    Where complete lists end: one row per list.

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
        f"{priority_of(schema)} AS priority",
        f"{source_of(schema)} AS source",
    )


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


def mentions(statements: DataFrame, fields: Iterable[str]) -> DataFrame:
    """
    Every mention of an entity in the statements of its target, as `absences` wants them.

    Applied or not: an entity that a list names is seen, though the record waits or is in error.
    """
    # What a link makes stands in no list.
    own, is_made = "arrival.record_number", f"operation = '{AUTOCREATE}'"
    return statements.where(f"guid IS NOT NULL AND {NAMES_ENTITY}").selectExpr(
        "guid",
        f"{position(own)} AS at",
        f"{position(f'if({is_made}, {own}, coalesce(listed, {own}))')} AS listed",
        f"{position(f'if({is_made}, {own}, {END_OF_MESSAGE})')} AS whole",
        *(f"data.{quoted(name)} AS {quoted(f'parent_{name}')}" for name in fields),
    )
