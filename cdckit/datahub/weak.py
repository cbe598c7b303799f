"""Weak keys: which entity a record speaks of, where several keys find it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdckit.datahub.columns import LOOKED_UP
from cdckit.datahub.statements import DELETE, UPSERT
from cdckit.datahub.targets import Target
from cdckit.identifiers import uuid5

_TYPE = "claims array<string>, registers boolean, guid string, several boolean"


def entities_by_claims(statements: DataFrame, target: Target) -> DataFrame:
    """
    Find the entity of every record by its claims, in the order in which the records arrived.

    A record whose keys are all new makes an entity; one whose keys are known for one entity speaks of
    that, and its other keys are known for it from now on; one whose keys are known for several is an
    error.  Deletes look only.

    Returns:
        One row per set of claims and kind of record (`registers`, see `with_weak_guids`): `guid`, null
        where there is none, and `several`, whether the keys lead to several entities.

    Cost: an aggregation by claims; then one task goes through the distinct sets of claims in their
    order, a microsecond or two each.  It holds every key in memory.

    Source:
        Data hub, weak composite keys ("employee number or national insurance number").  Decision: how
        records find each other is not said there; a key that once led to an entity always does.
    """
    valid = F.col("operation").isin(UPSERT, DELETE)
    place = F.struct("arrival", "message_id")
    sets = (
        statements.where(valid)
        .groupBy("claims", _registers().alias("registers"))
        .agg(F.min(place).alias("first"))
        .repartition(1)
        .sortWithinPartitions(F.desc("registers"), "first")
        .select("claims", "registers")
    )
    return sets.mapInArrow(partial(_registered, starts=_starts(target)), _TYPE)


def with_weak_guids(statements: DataFrame, entities: DataFrame) -> DataFrame:
    """The statements with `guid` and `several`, as `entities_by_claims` has found them."""
    named = statements.withColumn("registers", _registers()).drop("guid")
    # Claims are null where nobody can say whom the record means: it finds nothing.
    return named.join(entities, ["claims", "registers"], "left").drop("registers")


def _registers() -> Column:
    # A record in error registers nothing, but is looked up all the same: a refresh has seen its entity.
    return (F.col("operation") == UPSERT) & F.col("error_code").isNull()


def _starts(target: Target) -> tuple[str, ...]:
    """What the claims begin with that identify; the others are only there for links by parts of keys."""
    return tuple(f"{LOOKED_UP}{','.join(fields)}{{" for fields in target.alternatives)


def _registered(batches: Iterator[pa.RecordBatch], starts: Sequence[str]) -> Iterator[pa.RecordBatch]:
    known: dict[str, str] = {}
    for batch in batches:
        rows = [_one(known, row, starts) for row in batch.to_pylist()]
        if rows:
            yield pa.RecordBatch.from_pylist(rows, schema=_arrow_schema())


def _one(known: dict[str, str], row: dict[str, Any], starts: Sequence[str]) -> dict[str, Any]:
    keys = [claim for claim in row["claims"] or () if claim.startswith(tuple(starts))]
    found = {known[key] for key in keys if key in known}
    row |= {"guid": None, "several": len(found) > 1}
    if len(found) == 1:
        row["guid"] = found.pop()
    elif not row["several"] and keys and row["registers"]:
        row["guid"] = uuid5(keys[0][keys[0].index("{") :])
    if row["guid"] is not None and row["registers"]:
        known.update(dict.fromkeys(keys, row["guid"]))
    return row


def _arrow_schema() -> pa.Schema:
    return pa.schema(
        [
            ("claims", pa.list_(pa.string())),
            ("registers", pa.bool_()),
            ("guid", pa.string()),
            ("several", pa.bool_()),
        ]
    )
