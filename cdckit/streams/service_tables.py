"""The tables of a service: their names and columns, and what the store notes beside them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.ledger import shell
from cdckit.ledger.columns import BUCKETS, Kind
from cdckit.model.records import ERROR_FIELDS, RECORD_SCHEMA
from cdckit.parts.arrow_types import spark_columns
from cdckit.parts.fold import IS_LAST
from cdckit.store import Transaction
from cdckit.store.store import Tables, read_note, read_rows, write_note
from cdckit.streams.catalogue import (
    ARRIVAL,
    COMPLETE_RESPONSES,
    CONNECTIONS,
    ENTITY,
    ENTITY_BATCHES,
    ENTITY_PATCHES,
    SCHEMA_PATCHES,
)
from cdckit.streams.documents import STATE
from cdckit.streams.requests import ANSWER_SCHEMA, ENTITY_SCHEMA, SCHEMA_ANSWER_SCHEMA
from cdckit.streams.responses import REQUEST_SCHEMA
from cdckit.streams.type_learning import LEARNED_SCHEMA

RECORDS, REJECTS, CAME = "records", "rejects", "connections"
ANSWERS, SCHEMA_ANSWERS, ENTITIES, SCHEMAS = "answers", "schema answers", "entities", "schemas"
TYPES, LEARNED, PARTS, RESPONSES, SEEN = "types", "learned types", "parts", "responses", "acknowledged"
MADE = (REJECTS, CAME, ANSWERS, SCHEMA_ANSWERS, ENTITIES, SCHEMAS, TYPES, LEARNED, PARTS, RESPONSES)
"""What is made of the records, beside the ledger of subscriptions."""

TAKEN, BUCKET, STREAM = "taken", "bucket", "stream"
TAKES = frozenset(each.name for each in (ENTITY_BATCHES, ENTITY_PATCHES, SCHEMA_PATCHES, CONNECTIONS))
"""The streams that a service takes, by name: all others are made of these."""

_TAKEN_NOTE = "cdckit.streams.taken"
_TAKEN = T.StructField(TAKEN, T.LongType())

RECORDS_SCHEMA = T.StructType([*RECORD_SCHEMA.fields, T.StructField(STREAM, T.StringType()), _TAKEN])
"""One row is one record as it came; the stream that it is of, null if it is of none; and which batch it was
of, counted from 1."""
REJECTS_SCHEMA = T.StructType([*RECORD_SCHEMA.fields, *ERROR_FIELDS, _TAKEN])
CAME_SCHEMA = T.StructType([*spark_columns(pa.schema([*ARRIVAL, *CONNECTIONS.columns()])), _TAKEN])
"""One row is one connection."""
ENTITIES_SCHEMA = T.StructType([*ENTITY_SCHEMA.fields, T.StructField(BUCKET, T.IntegerType())])
"""One row is what is known of one entity, in its bucket."""
LEARNED_TYPES_SCHEMA = T.StructType([*LEARNED_SCHEMA.fields, _TAKEN])
PARTS_SCHEMA = T.StructType([*REQUEST_SCHEMA.fields, *ERROR_FIELDS])
"""One row is one partial response whose request is not complete; in error, it was given up, or contradicts
another one."""
RESPONSES_SCHEMA = T.StructType(
    [*spark_columns(COMPLETE_RESPONSES.columns()), T.StructField("message", T.StringType()), _TAKEN]
)
SEEN_SCHEMA = T.StructType(
    [T.StructField("device", T.StringType()), T.StructField("notification", T.StringType())]
)
"""One row is one notification that a device has acknowledged."""


@dataclass(frozen=True)
class Settings(shell.Settings):
    """What a service goes by; its tables are made by these."""

    databases: tuple[str, ...] | None
    most_characters: int
    remember: int
    note_key = "cdckit.streams"

    @property
    def noted(self) -> dict[str, Any]:
        databases = None if self.databases is None else sorted(set(self.databases))
        return {"databases": databases, "most_characters": self.most_characters, "remember": self.remember}

    def bucket(self) -> Column:
        """The bucket of an entity."""
        return F.pmod(F.xxhash64(*ENTITY), F.lit(self.buckets)).cast("int")


def subscriptions_kind(buckets: int = BUCKETS) -> Kind:
    """What the ledger of subscriptions is about."""
    return Kind("subscription", ("db", "subscription"), buckets, False, "subscription")


def count_batches(tables: Tables) -> int:
    """How many batches were taken."""
    number: int = read_note(tables, _TAKEN_NOTE, 0)
    return number


def note_batch_count(transaction: Transaction, number: int) -> None:
    """Let the store know it."""
    write_note(transaction, _TAKEN_NOTE, number)


def to_stored_answers(answers: DataFrame, number: int) -> DataFrame:
    """Answers as they are kept: without what is known of the entities, which has a table of its own."""
    apart = (IS_LAST.name, *STATE.names)
    return answers.drop(*apart).withColumn(TAKEN, F.lit(number).cast("long"))


def read_answers(tables: Tables, name: str) -> DataFrame:
    """
    Answers as `apply_patches` returns them, but that nothing is known of the entities; and `count_batches`.
    """
    columns = ANSWER_SCHEMA if name == ANSWERS else SCHEMA_ANSWER_SCHEMA
    lacking = (IS_LAST.name, *STATE.names)
    nothing = {name: F.lit(None).cast(columns[name].dataType) for name in lacking}
    kept = [field for field in columns if field.name not in nothing]
    found = read_rows(tables, name, T.StructType([*kept, _TAKEN])).withColumns(nothing)
    return found.select(*columns.fieldNames(), TAKEN)
