"""The tables of a service: their names and columns, and how what is known is read from them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial, reduce
from types import MappingProxyType
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.ledger.kind import Kind
from cdckit.model.faults import ERROR_CODE
from cdckit.model.records import RECORD_COLUMNS, RECORD_SCHEMA
from cdckit.model.rejected_records import ERROR_FIELDS
from cdckit.parts.arrow_types import arrow_schema, spark_columns
from cdckit.parts.workers import WorkerPlan
from cdckit.shell import settings
from cdckit.shell.states_and_outcomes import PLACE_SCHEMA, DoorFolds, FoldedRows, last_states
from cdckit.store import Transaction
from cdckit.store.files import Where
from cdckit.store.store import Tables, read_note, read_rows, write_note
from cdckit.store.writing import Rows
from cdckit.streams.catalogue import ARRIVAL, COMPLETE_RESPONSES, ENTITY_PATCHES, Stream
from cdckit.streams.decoding import decode
from cdckit.streams.documents import ANSWER, STATE
from cdckit.streams.service_rules import (
    FOLDS,
    READS,
    Answer,
    CompleteResponse,
    EntityPatches,
    LearnedType,
    Row,
    SchemaPatches,
    ServiceRules,
    TableRow,
    TypeLessons,
    read_patches,
    read_state,
)
from cdckit.streams.type_learning import LEARNED_SCHEMA, TYPE_SCHEMA

RECORDS, ANSWERS, LEARNED, RESPONSES = "records", "answers", "learned types", "responses"
SEEN = "acknowledged"

TAKEN, BATCH, STREAM = "taken", "batch", "stream"
_TAKEN_NOTE = "cdckit.streams.taken"
_TAKEN = (TAKEN, pa.int64())

RECORDS_SCHEMA = T.StructType(
    [*RECORD_SCHEMA.fields, T.StructField(STREAM, T.StringType()), *PLACE_SCHEMA.fields, *ERROR_FIELDS]
)
"""One row is one record as it came; the stream that it is of, null if it is of none; its place, of which the
batch is counted from 1; and what is wrong with it."""

MADE: dict[type[TableRow], tuple[str, pa.Schema]] = {
    Answer: (
        ANSWERS,
        pa.schema(
            [
                *(*arrow_schema(PLACE_SCHEMA), _TAKEN, ("is_schema", pa.bool_())),
                *(*ARRIVAL, *ENTITY_PATCHES.columns(), *ANSWER),
            ]
        ),
    ),
    LearnedType: (LEARNED, pa.schema([*arrow_schema(LEARNED_SCHEMA), _TAKEN])),
    CompleteResponse: (RESPONSES, pa.schema([*COMPLETE_RESPONSES.columns(), _TAKEN])),
}
"""By what folds hand on, its table, and the columns of that; `taken` is the batch that brought a row, or the
`rebuild` that made it anew."""

SEEN_SCHEMA = T.StructType(
    [T.StructField("device", T.StringType()), T.StructField("notification", T.StringType())]
)
"""One row is one notification that a device has acknowledged."""


@dataclass(frozen=True)
class Settings(settings.Settings):
    """What a service goes by; its tables are made by these rules."""

    rules: ServiceRules
    note_key = "cdckit.streams"

    @property
    def noted(self) -> dict[str, Any]:
        rules = self.rules
        databases = None if rules.databases is None else sorted(rules.databases)
        return {"databases": databases, "most_characters": rules.most_characters, "remember": rules.remember}

    def folds(self, taken: int) -> DoorFolds:
        """Name what is folded of a batch."""
        return DoorFolds(RECORDS, READS, read_patches, Row, FOLDS, replace(self.rules, taken=taken))


SUBSCRIPTIONS_KIND = Kind("subscription", ("db", "subscription"), by_guid=False, name="subscription")
"""The ledger of subscriptions."""


def count_batches(tables: Tables) -> int:
    """Count the batches that were taken."""
    number: int = read_note(tables, _TAKEN_NOTE, 0)
    return number


def note_batch_count(transaction: Transaction, number: int) -> None:
    """Let the store know it."""
    write_note(transaction, _TAKEN_NOTE, number)


def taken_after(after: int | None, column: str = TAKEN) -> Where:
    """Tell where a row came with a batch after that one; everywhere without it."""
    return {} if after is None else {column: (after + 1, None)}


def read_made(tables: Tables, kind: type[TableRow], where: Where) -> DataFrame:
    """Rows of one kind that folds handed on."""
    name, columns = MADE[kind]
    return read_rows(tables, name, spark_columns(columns), where)


def read_answers(tables: Tables, where: Where = MappingProxyType({}), *, schemas: bool = False) -> DataFrame:
    """Answers to patches of entities, or of schemas, with the places of records, and `taken`."""
    return read_made(tables, Answer, {**where, "is_schema": [schemas]})


def read_messages(tables: Tables, stream: Stream, after: int | None = None) -> DataFrame:
    """The sound messages of a stream that came, decoded."""
    where = {**taken_after(after, BATCH), STREAM: [stream.name], ERROR_CODE: [None]}
    return decode(read_rows(tables, RECORDS, RECORDS_SCHEMA, where).select(*RECORD_COLUMNS), stream)


def known_documents(tables: Tables, *, schemas: bool = False) -> DataFrame:
    """Read what is known of entities, or of schemas: their keys and `STATE`."""
    fold = SchemaPatches if schemas else EntityPatches
    key = fold.plan.scope
    states = last_states(
        tables, fold, read_state, pa.schema([*((name, pa.string()) for name in key), *STATE])
    )
    # What names no entity was refused, and has no document.
    return states.where(reduce(Column.__and__, (F.col(name).isNotNull() for name in key)))


def known_types(tables: Tables) -> DataFrame:
    """Read what is known of entity types (`TYPE_SCHEMA`)."""
    return last_states(tables, TypeLessons, read_state, arrow_schema(TYPE_SCHEMA))


def table_rows(folded: FoldedRows, kind: type[TableRow]) -> Rows:
    """The rows of one kind that folds handed on, in the columns of their table."""
    columns = MADE[kind][1]
    if folded.many is None:
        return pa.Table.from_pylist([row.columns for row in folded.few if isinstance(row, kind)], columns)
    rows = folded.many.where(F.col("kind") == kind.__name__)
    return WorkerPlan(rows, partial(_read_rows, columns=columns), spark_columns(columns))


def _read_rows(batches: Iterable[pa.RecordBatch], columns: pa.Schema) -> Iterator[pa.RecordBatch]:
    read: Any = msgspec.msgpack.Decoder(Row).decode
    for batch in batches:
        rows = map(read, batch.column("row").to_pylist())
        yield pa.RecordBatch.from_pylist([row.columns for row in rows], columns)
