"""Absences: what a complete list did not name.  Refreshes, lists of children, and deletes that cascade."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.changes import ARRIVAL_TYPE
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
from cdckit.parts.schemas import quoted

ABSENCE_COLUMNS = ("guid", "message_id", "source", "priority", "effective_timestamp", "arrival")

_POSITION = T.StructType(
    [T.StructField("effective_timestamp", T.TimestampType()), T.StructField("arrival", ARRIVAL_TYPE)]
)


def refresh_events(schema: Schema, statements: DataFrame) -> DataFrame:
    """Where a list of all entities of the target ends: one row per refresh, with `scope` null."""
    rows = statements.where(F.col("operation") == REFRESH)
    return rows.select(F.lit(None).cast("string").alias("scope"), *_said_by_mapping(schema))


def list_events(schema: Schema, statements: DataFrame, field: str) -> DataFrame:
    """Where a list of the children of one parent ends: one row per list, `scope` being the parent's guid."""
    rows = statements.where((F.col("operation") == LIST) & F.col("data").getField(field).isNotNull())
    return rows.select(F.col("data").getField(field).alias("scope"), *_said_by_mapping(schema))


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
        own = F.col(FIELD_PROVENANCE).getField("guid").getField("p")
        deleted = history.where(DELETED).select("guid", VALID_FROM, SOURCE_MESSAGE, own.alias("priority"))
        priority = F.col("priority")
        for system, each in stated.items():
            priority = F.when(F.col("source_system") == system, each).otherwise(priority)
        joined = deleted.join(messages, deleted[SOURCE_MESSAGE] == messages["message_identifier"])
        found.append(
            joined.select(
                F.col("guid").alias("scope"),
                F.col(SOURCE_MESSAGE).alias("message_id"),
                priority.alias("priority"),
                F.col("source_system").alias("source"),
                F.col(VALID_FROM).alias("effective_timestamp"),
                _arrival(F.lit(END_OF_MESSAGE + 1)).alias("arrival"),
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


def _said_by_mapping(schema: Schema) -> list[Column]:
    """The columns of an event of which a mapping speaks: with its priority."""
    priority = by_place(schema, {place: each.priority for place, each in schema.all_mappings.items()}, "int")
    source = by_place(schema, {place: place.system for place in schema.all_mappings}, "string")
    same = [F.col(name) for name in ("message_id", "effective_timestamp", "arrival")]
    return [*same, F.expr(priority).alias("priority"), F.expr(source).alias("source")]


def _arrival(number: Column) -> Column:
    return F.struct(
        F.col("message_timestamp").alias("timestamp"),
        "topic",
        "partition",
        "offset",
        number.cast("int").alias("record_number"),
    )


def absences(
    statements: DataFrame,
    events: Sequence[tuple[str | None, DataFrame]],
) -> DataFrame:
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
            found.append(_first_after(mentions, F.broadcast(ends), F.lit(True), F.col("whole")))
        else:
            same = F.col(quoted(f"parent_{field}")) == F.col("scope")
            found.append(_first_after(mentions, ends, same, F.col("listed")))
    # Two lists may end in one place: the stronger word counts.
    place = [name for name in ABSENCE_COLUMNS if name not in ("priority", "source")]
    strongest = F.max(F.struct("priority", "source")).alias("strongest")
    missed = reduce(DataFrame.unionByName, found).groupBy(*place).agg(strongest)
    return missed.select(*place, "strongest.priority", "strongest.source")


def _mentions(statements: DataFrame, fields: Sequence[str]) -> DataFrame:
    """Every mention of an entity, with the end of the list that it stands in, and the next mention."""
    is_record = F.col("operation") != AUTOCREATE
    own = F.col("arrival.record_number")
    named = statements.where(
        F.col("guid").isNotNull() & F.col("operation").isin(UPSERT, DELETE, AUTOCREATE)
    ).select(
        "guid",
        _position(F.col("arrival")).alias("at"),
        _position(_numbered(F.when(is_record, F.coalesce("listed", own)).otherwise(own))).alias("listed"),
        _position(_numbered(F.when(is_record, F.lit(END_OF_MESSAGE)).otherwise(own))).alias("whole"),
        *(F.col("data").getField(name).alias(f"parent_{name}") for name in fields),
    )
    in_order = Window.partitionBy("guid").orderBy("at")
    return named.withColumn("next", F.lead("at").over(in_order))


def _with_previous(events: DataFrame) -> DataFrame:
    """Each end of a list with the one before it that had the same scope and priority."""
    said = events.withColumn("ends", _position(F.col("arrival")))
    in_order = Window.partitionBy("scope", "priority").orderBy("ends")
    return said.withColumn("previous", F.lag("ends").over(in_order))


def _first_after(mentions: DataFrame, ends: DataFrame, same: Column, after: Column) -> DataFrame:
    first = (F.col("ends") > after) & (F.col("previous").isNull() | (F.col("previous") <= after))
    before_next = F.col("next").isNull() | (F.col("next") > F.col("ends"))
    return mentions.join(ends, same & first & before_next).select(*ABSENCE_COLUMNS)


def _position(arrival: Column) -> Column:
    return F.struct(F.col("effective_timestamp"), arrival.alias("arrival")).cast(_POSITION)


def _numbered(number: Column) -> Column:
    return F.col("arrival").withField("record_number", number.cast("int"))
