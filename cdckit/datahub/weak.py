"""Weak keys as DataFrame functions: who is meant by records, and who holds the keys of links."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial, reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.datahub.mappings import Target
from cdckit.datahub.source_systems import Schema
from cdckit.datahub.statements import DELETE, REFRESH, UPSERT, by_place
from cdckit.datahub.weak_walk import (
    DELETES,
    LOOKS,
    REFRESHES,
    UPSERTS,
    Said,
    Walk,
    WeakKeys,
    key_parts,
    marked_text,
)
from cdckit.parts.arrow_types import arrow_schema
from cdckit.parts.workers import Made

_RECORD = ("message_id", "number", "place")
"""What tells the records of a target with weak keys apart."""

_AT = "@"
"""What follows the marked text of a link to a target with weak keys: its instant, in microseconds."""

FOUND_COLUMNS = (
    T.StructType()
    .add("message_id", "string")
    .add("number", "integer")
    .add("place", "integer")
    .add("guid", "string")
    .add("several", "boolean")
    .add("text", "string")
    .add("at", "timestamp")
)
"""What is found of records (`message_id`, `number`, `place`), and of the keys that links look up (`text`)."""


def held_keys(statements: DataFrame, schema: Schema, target: Target) -> DataFrame:
    """
    Find the entity of every record of a target with weak keys, and those that hold the keys of links.

    Args:
        statements: All of the target.
        schema: The schema; its mappings give the priorities.
        target: The target.

    Returns:
        Two kinds of rows.  One per record that has a key: `message_id`, `number` and `place`, which tell it
        from others, `guid`, null where it means none, and `several`, whether it means several entities.
        And one for each instant at the end of which a key that links look up is held by another entity than
        before: its marked `text`, `at`, and the holder: `guid`, null for none, or `several`.

    Cost: all records of the target that were ever received are sorted in each run, as their keys alone, and
    gone through in one task: ten to twenty microseconds a record, one or two kilobytes an entity.  That
    is minutes for ten million records, whatever the cluster; a target with one key costs nothing of this.
    """
    keys = WeakKeys.of(schema, target)
    priorities = {place: mapping.priority for place, mapping in target.mappings.items()}
    is_record = F.col("operation").isin(UPSERT, DELETE)
    kind = (
        F.when(F.col("operation") == REFRESH, REFRESHES)
        .when(F.col("error_code").isNotNull(), LOOKS)
        .when(F.col("operation") == DELETE, DELETES)
        .otherwise(UPSERTS)
    )
    rows = statements.where((is_record & F.col("claims").isNotNull()) | (F.col("operation") == REFRESH))
    sent = rows.select(
        F.unix_micros("effective_timestamp").alias("at"),
        "arrival",
        "message_id",
        F.col("arrival.record_number").alias("number"),
        "place",
        "record",
        kind.alias("kind"),
        F.expr(by_place(schema, priorities, "int")).alias("priority"),
        *(F.col("data").getField(name).alias(f"value {at}") for at, name in enumerate(keys.fields)),
        *(F.col("carried").getField(name).alias(f"carried {at}") for at, name in enumerate(keys.fields)),
    )
    # Of refreshes in one place the strongest counts.
    in_order = ("at", "arrival", "message_id", F.desc("priority"))
    single = sent.repartition(1).sortWithinPartitions(*in_order).drop("arrival")
    return Made(single, partial(walked, keys=keys), FOUND_COLUMNS).rows()


def walked(batches: Iterable[pa.RecordBatch], keys: WeakKeys) -> Iterator[pa.RecordBatch]:
    """
    What is found of rows in their order, in `FOUND_COLUMNS`.

    They are `Said` in columns, but with the values of key fields one by one, then whether each was carried.
    """
    walk = Walk(keys)
    for batch in batches:
        found = []
        for said in _said(batch, keys):
            walk.begin(said.instant)
            if said.kind == REFRESHES:
                walk.refresh(said.message, said.priority)
            else:
                found.append((said.message, said.number, said.place, *walk.record(said), None, None))
        yield _output(found, walk)
    walk.begin(None)
    yield _output([], walk)


def _said(batch: pa.RecordBatch, keys: WeakKeys) -> Iterator[Said]:
    standard, fields = len(Said._fields) - 2, len(keys.fields)
    columns = batch.columns
    values = [key_parts(keys, name, columns[standard + at]) for at, name in enumerate(keys.fields)]
    carried = [column.to_pylist() for column in columns[standard + fields :]]
    plain = (column.to_pylist() for column in columns[:standard])
    return map(Said, *plain, zip(*values, strict=True), zip(*carried, strict=True))


def _output(found: list[tuple[Any, ...]], walk: Walk) -> pa.RecordBatch:
    holders = [(None, None, None, guid, several, text, at) for text, at, guid, several in walk.changes]
    rows = [*found, *holders]
    walk.changes.clear()
    schema = arrow_schema(FOUND_COLUMNS)
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    arrays = [pa.array(values, kind) for values, kind in zip(columns, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def with_weak_guids(statements: DataFrame, held: DataFrame | None) -> DataFrame:
    """The statements with `guid` and `several`, as `held_keys` has found them; None if it found nothing."""
    if held is None:
        return statements.withColumns({"guid": F.lit(None).cast("string"), "several": F.lit(False)})
    # Claims are null where a key cannot be read: the record finds nothing.
    means = held.where(F.col("message_id").isNotNull()).select(*_RECORD, "guid", "several")
    named = statements.withColumn("number", F.col("arrival.record_number")).drop("guid")
    return named.join(means, [*_RECORD], "left").drop("number")


def marks(schema: Schema, entity: str) -> list[str]:
    """What the marked texts of links begin with that look up *entity*."""
    return [marked_text(entity, fields) for fields in sorted(schema.looked_up.get(entity, ()))]


def marked(text: Column, starts: Iterable[str]) -> Column:
    """Whether a text is one of those that begin so."""
    return reduce(Column.__or__, (text.startswith(start) for start in starts), F.lit(False))


def with_instant(text: Column) -> Column:
    """A marked text with the instant of the record in which it stands: what holds a key depends on it."""
    return F.concat(text, F.lit(_AT), F.unix_micros("effective_timestamp").cast("string"))


def holders(held: DataFrame, questions: DataFrame) -> DataFrame:
    """
    The entities that hold the keys of links.

    Args:
        held: As `held_keys` gives it.
        questions: `text`, marked, and `effective_timestamp`; no two the same.

    Returns:
        One row per question that leads somewhere: `text`, with its instant, `found` (a guid, null where
        there are several) and `several`.

    Cost: one shuffle of questions and changes by text, and one sort: a key that is asked for, or changes
    hands, however often is no more than so many rows of it.
    """
    nothing = F.lit(None).cast("string")
    holder = F.struct("guid", "several")
    changes = held.where(F.col("text").isNotNull()).select(
        "text", "at", holder.alias("holder"), nothing.alias("asked")
    )
    asked = questions.select(
        "text",
        F.col("effective_timestamp").alias("at"),
        F.lit(None).cast(changes.schema["holder"].dataType).alias("holder"),
        with_instant(F.col("text")).alias("asked"),
    )
    by_text = Window.partitionBy("text")
    so_far = by_text.orderBy("at", F.col("asked").isNotNull()).rowsBetween(
        Window.unboundedPreceding, Window.currentRow
    )
    ever = F.col("holder")
    united = changes.unionByName(asked).select(
        "asked",
        F.last("holder", ignorenulls=True).over(so_far).alias("then"),
        F.min(ever.getField("guid")).over(by_text).alias("least"),
        F.max(ever.getField("guid")).over(by_text).alias("greatest"),
        F.max(ever.getField("several")).over(by_text).alias("shared"),
    )
    one, several = F.col("then").getField("guid"), F.coalesce(F.col("then").getField("several"), F.lit(False))
    only = ~F.col("shared") & (F.col("least") == F.col("greatest"))
    found = F.when(several, None).otherwise(F.coalesce(one, F.when(only, F.col("least"))))
    many = several | (one.isNull() & ~only)
    return (
        united.where(F.col("asked").isNotNull() & F.col("shared").isNotNull())
        .select(
            F.col("asked").alias("text"), found.alias("found"), F.coalesce(many, several).alias("several")
        )
        .where(F.col("found").isNotNull() | F.col("several"))
    )
