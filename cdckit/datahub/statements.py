"""Statements: what every record of every message says of one target, typed, before anything is looked up."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import types as T

from cdckit.changes import ARRIVAL_TYPE
from cdckit.datahub.mappings import Place, Target
from cdckit.datahub.source_systems import Schema
from cdckit.parts.schemas import flat_columns, text_literal

END_OF_MESSAGE = 2**31 - 2
"""The number of what a message says as a whole, after all its records; what follows from it is one more."""

UPSERT, DELETE, AUTOCREATE, LIST, REFRESH, DROPPED, UNREADABLE = (
    "upsert", "delete", "autocreate", "list", "refresh", "dropped", "unreadable",
)  # fmt: skip

IS_RECORD = f"operation IN {(UPSERT, DELETE)}"
NAMES_ENTITY = f"operation IN {(UPSERT, DELETE, AUTOCREATE)}"
"""Whether a statement is that of a record that was read, and whether it is about one entity: SQL."""

SOUGHT = "sought"


def statement_schema(target: Target) -> T.StructType:
    """
    The columns of the statements about a target.

    One row is one record of one message in one mapping, or what a mapping says beside its records
    (`operation`): "upsert" and "delete"; "autocreate", that the entity is to be made if it is missing;
    "list", that the records of one parent end here, and "refresh", that those of the message do;
    "dropped" by a filter; "unreadable", the data of a whole message.  `sought` says of its links what they
    lead to, by its key: a guid does not tell.
    """
    flags = [T.StructField(name, T.BooleanType()) for name in target.fields]
    # No file can hold a struct without fields.
    links = T.StructType([T.StructField(name, T.StringType()) for name in target.links])
    lists = (T.StructField(name, T.ArrayType(T.StringType())) for name in ("claims", "inherited", "within"))
    return T.StructType(
        [
            *flat_columns("message_id string, place integer, record string, operation string"),
            *flat_columns("effective_timestamp timestamp").add("arrival", ARRIVAL_TYPE),
            *flat_columns("listed integer, guid string"),
            *lists,
            T.StructField("data", target.data),
            T.StructField("carried", T.StructType(flags)),
            *([T.StructField(SOUGHT, links)] if target.links else []),
            *flat_columns("error_code string, error_description string, raw string"),
        ]
    )


MESSAGE_COLUMNS = (
    "message_identifier", "source_system", "source_entity", "effective_timestamp", "refresh", "options",
    "data", "message_timestamp", "topic", "partition", "offset",
)  # fmt: skip
"""The columns of the message store that are read."""


def by_place(schema: Schema, said: Mapping[Place, str], kind: str) -> str:
    """By the mapping that the column `place` names what is *said* for it, all in SQL; null for nothing."""
    listed = ", ".join(said.get(place, "NULL") for place in schema.numbers)
    return f"get(CAST(array({listed}) AS array<{kind}>), place)"


def source_of(schema: Schema) -> str:
    """The source system of a statement, as SQL."""
    return by_place(schema, {place: text_literal(place.system) for place in schema.numbers}, "string")


def priority_of(schema: Schema, target: Target | None = None) -> str:
    """The priority of the mapping of a statement, as SQL; null for mappings of others than *target*."""
    mappings = schema.all_mappings if target is None else target.mappings
    return by_place(schema, {place: str(each.priority) for place, each in mappings.items()}, "int")
