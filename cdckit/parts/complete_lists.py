"""Complete lists: which entities they did not name, though they should have if these were still there."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdckit.parts.schemas import quoted

ABSENCE_COLUMNS = ("guid", "message_id", "source", "priority", "place", "effective_timestamp", "arrival")


def absences(mentions: DataFrame, events: Sequence[tuple[str | None, DataFrame]]) -> DataFrame:
    """
    Of each entity, the ends of complete lists that did not name it.

    Args:
        mentions: One row per mention of an entity: `guid`; `at`, its place in the order (see `position`);
            `listed` and `whole`, where the list ends in which it stands, one of a parent's children or one of
            all entities, or its own place if it stands in none; and `parent_<field>`, whose children those
            of `listed` are, for each field of *events*.
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
    said = mentions.selectExpr("*", "lead(at) OVER (PARTITION BY guid ORDER BY at) AS next")
    by_field: dict[str | None, list[DataFrame]] = {}
    for field, some in events:
        by_field.setdefault(field, []).append(some)
    found = []
    for field, tables in by_field.items():
        ends = _with_previous(reduce(DataFrame.unionByName, tables))
        if field is None:
            found.append(_first_after(said, F.broadcast(ends), "true", "whole"))
        else:
            found.append(_first_after(said, ends, f"{quoted(f'parent_{field}')} = scope", "listed"))
    # Two lists may end together: the stronger word counts, of equal ones that of the first mapping.
    together = [name for name in ABSENCE_COLUMNS if name not in ("priority", "place")]
    strongest = F.max_by(F.struct("priority", "place"), F.struct("priority", -F.col("place")))
    missed = reduce(DataFrame.unionByName, found).groupBy(*together).agg(strongest.alias("strongest"))
    return missed.select(*together, "strongest.*")


def _with_previous(events: DataFrame) -> DataFrame:
    """Each end of a list with the one before it that had the same scope and priority."""
    said = events.selectExpr("*", f"{position('arrival.record_number')} AS ends")
    same = "PARTITION BY scope, priority ORDER BY ends, place"
    return said.selectExpr("*", f"lag(ends) OVER ({same}) AS previous")


def _first_after(mentions: DataFrame, ends: DataFrame, same: str, after: str) -> DataFrame:
    first = f"ends > {after} AND (previous IS NULL OR previous <= {after})"
    before_next = "(next IS NULL OR next > ends)"
    return mentions.join(ends, F.expr(f"{same} AND {first} AND {before_next}")).select(*ABSENCE_COLUMNS)


def position(number: str) -> str:
    """The place of a message in the order, with that number of a record in it: SQL."""
    message = "arrival.timestamp, arrival.topic, arrival.partition, arrival.offset"
    arrival = f"struct({message}, CAST({number} AS int) AS record_number)"
    return f"struct(effective_timestamp, {arrival} AS arrival)"
