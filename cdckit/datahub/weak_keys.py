"""Weak keys as DataFrame functions: who is meant by records, and who holds the keys of links."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdckit.datahub.mappings import Target
from cdckit.datahub.source_systems import Schema
from cdckit.datahub.statements import IS_RECORD, REFRESH, priority_of
from cdckit.datahub.weak_key_walk import LOOKS, Said, Walk, WeakKeys, key_parts, marked_text
from cdckit.parts.arrow_types import arrow_schema
from cdckit.parts.schemas import flat_columns, quoted, text_literal
from cdckit.parts.workers import Made

_RECORD = ("message_id", "number", "place")
"""What tells the records of a target with weak keys apart."""

FOUND_COLUMNS = flat_columns(
    """message_id string, number integer, place integer, guid string, several boolean, text string,
    at timestamp"""
)
"""What is found of records (`message_id`, `number`, `place`), and of the keys that links look up (`text`)."""


def held_keys(statements: DataFrame, schema: Schema, target: Target) -> DataFrame:
    """
    Find the entity of every record of a target with weak keys, and those that hold the keys of links.

    The statements are all of the target.

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
    is_record = f"{IS_RECORD} AND claims IS NOT NULL"
    sent = statements.where(f"({is_record}) OR operation = '{REFRESH}'").selectExpr(
        "unix_micros(effective_timestamp) AS at",
        "arrival",
        "message_id",
        "arrival.record_number AS number",
        "place",
        "record",
        f"if({IS_RECORD} AND error_code IS NOT NULL, '{LOOKS}', operation) AS kind",
        f"{priority_of(schema)} AS priority",
        *(f"data.{quoted(name)} AS `value {at}`" for at, name in enumerate(keys.fields)),
        *(f"carried.{quoted(name)} AS `carried {at}`" for at, name in enumerate(keys.fields)),
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
            if said.kind == REFRESH:
                walk.refresh(said.message, said.priority)
            else:
                found.append((said.message, said.number, said.place, *walk.record(said), None, None))
        yield _output(found, walk)
    walk.begin(None)
    yield _output([], walk)


def _said(batch: pa.RecordBatch, keys: WeakKeys) -> Iterator[Said]:
    standard, fields = len(Said._fields) - 2, len(keys.fields)
    columns = batch.columns
    values = [key_parts(name, columns[standard + at]) for at, name in enumerate(keys.fields)]
    carried = [column.to_pylist() for column in columns[standard + fields :]]
    plain = (column.to_pylist() for column in columns[:standard])
    return map(Said, *plain, zip(*values, strict=True), zip(*carried, strict=True))


def _output(found: list[tuple[Any, ...]], walk: Walk) -> pa.RecordBatch:
    holders = [(None, None, None, guid, several, text, at) for text, at, guid, several in walk.changes]
    rows = [*found, *holders]
    walk.changes.clear()
    schema = arrow_schema(FOUND_COLUMNS)
    return pa.RecordBatch.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


def with_weak_guids(statements: DataFrame, held: DataFrame | None) -> DataFrame:
    """The statements with `guid` and `several`, as `held_keys` has found them; None if it found nothing."""
    if held is None:
        return statements.withColumns({"guid": F.lit(None).cast("string"), "several": F.lit(False)})
    # Claims are null where a key cannot be read: the record finds nothing.
    means = held.where("message_id IS NOT NULL").select(*_RECORD, "guid", "several")
    named = statements.withColumn("number", F.col("arrival.record_number")).drop("guid")
    return named.join(means, [*_RECORD], "left").drop("number")


def marks(schema: Schema, entity: str) -> list[str]:
    """What the marked texts of links begin with that look up *entity*."""
    return [marked_text(entity, fields) for fields in sorted(schema.looked_up.get(entity, ()))]


def marked(text: str, starts: Iterable[str]) -> str:
    """Whether a text is one of those that begin so, in SQL."""
    return " OR ".join(f"startswith({text}, {text_literal(start)})" for start in starts) or "false"


def with_instant(text: str) -> str:
    """A marked text with the instant of the record in which it stands: what holds a key depends on it."""
    return f"concat({text}, '@', CAST(unix_micros(effective_timestamp) AS string))"


def holders(held: DataFrame, questions: DataFrame) -> DataFrame:
    """
    The entities that hold the keys of links, by what `held_keys` gives.

    One row per question (`text`, marked, and `effective_timestamp`; no two the same) that leads somewhere:
    `text`, with its instant, `found` (a guid, null where there are several) and `several`.

    Cost: one shuffle of questions and changes by text, and one sort: a key that is asked for, or changes
    hands, however often is no more than so many rows of it.
    """
    changes = held.where("text IS NOT NULL").selectExpr(
        "text", "at", "struct(guid, several) AS holder", "CAST(NULL AS string) AS asked"
    )
    asked = questions.selectExpr(
        "text",
        "effective_timestamp AS at",
        "CAST(NULL AS struct<guid: string, several: boolean>) AS holder",
        f"{with_instant('text')} AS asked",
    )
    so_far = "ORDER BY at, asked IS NOT NULL ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
    united = changes.unionByName(asked).selectExpr(
        "asked",
        f"last(holder, true) OVER (PARTITION BY text {so_far}) AS at_that_time",
        "min(holder.guid) OVER (PARTITION BY text) AS least",
        "max(holder.guid) OVER (PARTITION BY text) AS greatest",
        "max(holder.several) OVER (PARTITION BY text) AS shared",
    )
    return united.where("asked IS NOT NULL AND (shared OR least IS NOT NULL)").selectExpr(
        "asked AS text",
        # If there is none at that time, the one that holds it at any time.
        """CASE WHEN coalesce(at_that_time.several, false) THEN NULL
            WHEN at_that_time.guid IS NOT NULL THEN at_that_time.guid
            WHEN NOT shared AND least = greatest THEN least END AS found""",
        "found IS NULL AS several",
    )
