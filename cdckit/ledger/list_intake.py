"""Full lists of a source as they are given: their rows as upserts, in the types that a ledger has."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument, WrongColumnType
from cdckit.ledger.erasure.tombstones import Erasures, drop_erased
from cdckit.ledger.field_types import fit_types, look_for_values, with_untyped_fields
from cdckit.ledger.kind import Kind
from cdckit.ledger.log_rows import require_keys_keep_their_texts, require_times_stay
from cdckit.merging.arrow_changes import GUID
from cdckit.model.changes import UPSERT, note_empty, with_empty_as
from cdckit.model.list_comparison import (
    CORRUPT,
    has_corrupt_rows,
    list_arrival,
    list_message_id,
    listed_fields,
)
from cdckit.model.sources import Priority
from cdckit.parts.arguments import (
    microseconds,
    quoted,
    require_batch,
    require_columns,
    require_int,
    require_name,
    require_struct,
    require_type,
)
from cdckit.parts.instants import FIRST_MICROSECOND, LAST_MICROSECOND
from cdckit.parts.tables import (
    AnyTable,
    as_arrow_with_digits,
    as_spark,
    empty_columns,
    has_order,
    with_whole_numbers,
)
from cdckit.parts.widening import common_spark_type, is_made_text
from cdckit.store import Transaction

_LOG = logging.getLogger(__name__)


class GivenLists(NamedTuple):
    """Lists as they were given: their rows as upserts, whose word they are, and when each was taken."""

    rows: DataFrame
    source: str
    priority: Priority
    taken: list[int]


def read_lists(
    spark: SparkSession,
    table: AnyTable,
    kind: Kind,
    taken_at: datetime | str,
    source: str,
    priority: int | Priority,
) -> GivenLists:
    """
    The rows of one list or, where *taken_at* is a column, of several, as upserts.

    Raises:
        MissingColumns, WrongColumnType, InvalidArgument: As `Ledger.apply_list`.

    Cost: nothing, or a job that reads the instants of the lists.
    """
    require_name(source, "source")
    if not isinstance(priority, Priority):
        require_int(priority, "priority")
        priority = Priority(int(priority))
    apart = [taken_at] if isinstance(taken_at, str) else []
    table = with_whole_numbers(table, kind.keys)
    if has_order(table):
        table, digits = as_arrow_with_digits(table)
        for name in sorted(digits.keys() & {*kind.keys}):
            remedy = "They are cut, and several keys would be one: cast it to a text or a number."
            raise WrongColumnType(None, name, "whole microseconds", "nanoseconds", remedy)
    rows = as_spark(spark, table)
    remedy = f"A list names its entities by the columns {', '.join(kind.keys)}."
    if apart:
        remedy += " A text as taken_at is a column; an instant is a datetime with tzinfo."
    require_columns(rows, [*kind.keys, *apart], remedy=remedy)
    if set(apart) & set(kind.keys):
        needed = "a column that is no key: it tells lists apart, and a key tells apart what a list names"
        raise InvalidArgument(None, "taken_at", needed, taken_at)
    stream = "let writeStream.foreachBatch(ledger.list_sink(taken_at=…)) hand them over"
    require_batch(rows, "rows", stream)
    at, instants = _instants(rows, taken_at)
    if has_corrupt_rows(rows):
        apart = [*apart, CORRUPT]
    fields = [name for name in rows.columns if name not in apart]
    carried = [F.lit(True).alias(name) for name in fields]
    listed = rows.select(
        F.lit(UPSERT).alias("operation"),
        at.alias("effective_timestamp"),
        F.lit("").alias("sequence"),
        list_arrival(at).alias("arrival"),
        list_message_id(F.lit(source), at).alias("message_id"),
        F.lit(source).alias("source"),
        F.lit(0).alias("priority"),
        listed_fields(rows, fields).alias("data"),
        F.struct(*carried).alias("carried"),
    )
    empty = empty_columns(rows, table if isinstance(table, pa.Table) else None)
    empty = {name: kind for name, kind in empty.items() if name in fields}
    return GivenLists(listed.withMetadata("data", note_empty(empty)), source, priority, instants)


def cast_to_log(transaction: Transaction, kind: Kind, given: GivenLists) -> tuple[Kind, GivenLists]:
    """
    The lists, whose columns without values have the types that the ledger knows; and what that knows now.

    Raises:
        WrongColumnType: A key is of another type than in the ledger, or of none where that has none either.
    """
    data = require_struct(given.rows, "data")
    kind, empty = look_for_values(transaction, kind, given.rows)
    before = kind.filled_fields(transaction)
    kinds = {field.name: field.dataType for field in before}
    for field in data:
        if isinstance(field.dataType, T.NullType) and field.name in kind.keys and field.name not in kinds:
            remedy = "Nothing stands in it, and the ledger does not know it yet: say of what type it is."
            raise WrongColumnType(None, field.name, "a type that a key has", "void", remedy)
    types = fit_types(transaction, kind, given.rows, empty)
    rows = with_empty_as(given.rows, types.changes).withMetadata("data", note_empty(empty))
    if kinds:
        after = require_struct(rows, "data")
        require_keys_keep_their_texts(before, after, kind)
        require_times_stay(before, after, of_lists=True)
        _warn_of_texts(before, after)
    kind = with_untyped_fields(kind, kind.fields(transaction), rows.schema)
    return kind, given._replace(rows=rows)


def _warn_of_texts(before: T.StructType, after: T.StructType) -> None:
    """Log a warning for columns that hold texts here and numbers there: 7 becomes "7", which is not "07"."""
    kinds = {field.name: field.dataType for field in before}
    for field in after:
        type_before = kinds.get(field.name, field.dataType)
        common = common_spark_type(type_before, field.dataType, as_double=True)  # as the store unites columns
        if is_made_text(common, type_before, field.dataType):
            sentence = (
                "apply_list(): %s is %s in this list and %s in the ledger, which keeps texts: where they are "
                "written otherwise, as 7 and 07, each row is news; read it alike every night"
            )
            _LOG.warning(sentence, field.name, field.dataType.simpleString(), type_before.simpleString())


def without_erased(transaction: Transaction, kind: Kind, given: GivenLists) -> GivenLists:
    """The lists without entities and fields of which the ledger was made to forget."""
    if Erasures.of(transaction, kind) is None:
        return given
    rows = given.rows.withColumn(GUID, kind.guid_of("data"))
    return given._replace(rows=drop_erased(rows, transaction, kind).drop(GUID))


def _instants(rows: DataFrame, taken: datetime | str) -> tuple[Column, list[int]]:
    if isinstance(taken, str):
        require_type(rows, taken, T.TimestampType())
        rows_of_instants = rows.select(F.unix_micros(quoted(taken))).distinct().collect()
        instants = [row[0] for row in rows_of_instants]
        if None in instants:
            needed = "an instant in every row"
            raise InvalidArgument(None, "taken_at", needed, f"null in a row of the column {taken}")
        if [at for at in instants if not FIRST_MICROSECOND <= at <= LAST_MICROSECOND]:
            needed = "an instant in the years 1 to 9999 in every row"
            raise InvalidArgument(None, "taken_at", needed, f"another one in the column {taken}")
        return F.col(quoted(taken)), sorted(instants)
    at = microseconds(taken, "taken_at")
    return F.timestamp_micros(F.lit(at)), [at]
