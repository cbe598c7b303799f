"""Changes as rows of a ledger's log, and the log as the changes that it was given."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument, WrongColumnType
from cdckit.ledger.columns import BUCKET, CONTENT, EVERY, HIDDEN, IDENTITY, LISTED, log_fields, words_columns
from cdckit.ledger.kind import Kind
from cdckit.merging.arrow_changes import GUID, KEYS, SNAPSHOT
from cdckit.merging.merge import check_fields, fields_with_priority
from cdckit.merging.moves import find_inherited_words
from cdckit.model.changes import (
    CHANGE_SCHEMA,
    MADE_OF,
    MOVED,
    TABLES,
    UNTIL,
    UNTYPED,
    note_empty,
    require_moves,
)
from cdckit.model.history import STANDARD_COLUMNS
from cdckit.model.list_comparison import is_list_change, is_table_row
from cdckit.model.rejected_records import REJECT, with_reject
from cdckit.parts.built_columns import built_once, with_guid
from cdckit.parts.guids import key_digest
from cdckit.parts.widening import (
    TIMES_IN_LISTS,
    WHOLE_KEYS,
    common_spark_type,
    is_number_beside_time,
    is_other_beside_time,
)
from cdckit.store import Snapshot, Transaction
from cdckit.store.columns import as_columns
from cdckit.store.store import read_note, write_note


def to_log_rows(changes: DataFrame, kind: Kind, *, digest: bool = False) -> DataFrame:
    """
    The changes as rows of the log, and beside them the instant `LISTED` and, with *digest*, `CONTENT`.

    Rejects among them are rows, too, which `REJECT` tells.

    Raises:
        MissingColumns, WrongColumnType, InvalidArgument: They are no changes that `merge` would take, or
            are a stream.
    """
    data = check_fields(changes, kind.keys, [*STANDARD_COLUMNS, *HIDDEN])
    fields_with_priority(changes, data.fieldNames())
    if changes.isStreaming:
        needed = "a batch: of a stream, let writeStream.foreachBatch(ledger.sink('a name')) hand them over"
        raise InvalidArgument(None, "changes", needed, "a stream")
    if MOVED in changes.columns:
        if kind.by_guid:
            needed = "without the column `moved` where their guids say which entity they are about: drop it"
            raise InvalidArgument(None, "changes", needed, changes.columns)
        require_moves(changes, kind.keys)
    changes = with_reject(changes)
    optional = [
        name for name in ("field_priorities", UNTIL, SNAPSHOT, MOVED, REJECT) if name in changes.columns
    ]
    rows = changes if kind.by_guid else with_guid(changes, _key_digest(kind.entity, kind.keys))
    digested = [name for name in (GUID, *CHANGE_SCHEMA.fieldNames(), *optional) if name in changes.columns]
    content = _content_digest(tuple(digested), data) if digest else F.lit(0).cast("long")
    return rows.select(
        GUID,
        # How many buckets there are is known when they are written (`with_buckets`).
        F.lit(0).alias(BUCKET),
        _identity_digest().alias(IDENTITY),
        *CHANGE_SCHEMA.fieldNames(),
        "data",
        "carried",
        *optional,
        content.alias(CONTENT),
        F.when(is_list_change(), F.unix_micros("effective_timestamp")).alias(LISTED),
    ).withMetadata("data", {**note_empty({}), **changes.schema["data"].metadata})


def with_buckets(rows: DataFrame, kind: Kind) -> DataFrame:
    """The rows of `to_log_rows` with the bucket of each."""
    bucket = kind.bucket_column(F.col(GUID))
    if REJECT in rows.columns:
        # They have no entity, or one that only some of them say: one bucket would have them all.
        anywhere = F.pmod(F.xxhash64(REJECT), F.lit(kind.buckets)).cast("int")
        bucket = F.when(F.col(REJECT).isNull(), bucket).otherwise(anywhere)
    return rows.withColumn(BUCKET, bucket)


_LAST_TABLE = "last table"
"""The note of `last_table`, where calls took more than one number."""


def last_table(tables: Snapshot | Transaction) -> int:
    """The greatest number that a table of a ledger has: as many as commits, if no call took more than one."""
    base = tables.base if isinstance(tables, Transaction) else tables
    noted: int = read_note(tables, _LAST_TABLE, 0)
    return max(noted, base.version or 0)


def note_tables(tables: Transaction, changes: T.StructType) -> None:
    """Note how many numbers a call took: one, or one for each table of a union or of another ledger."""
    last = last_table(tables) + _count_tables(changes)
    if last > (tables.base.version or 0) + 1:
        write_note(tables, _LAST_TABLE, last)


def _count_tables(changes: T.StructType) -> int:
    count: int = changes["arrival"].metadata.get(TABLES, 1)
    return count


def with_table_numbers(rows: DataFrame, number: int) -> DataFrame:
    """
    The rows of `to_log_rows`, of which those of a table have its number as their partition, from *number* on.

    Row numbers say an order within one table.  Of two tables that speak of one instant, the one that was
    applied later counts, as the later row of one table does; of those of one call, the one that
    `union_changes` was given later.
    """
    partition = F.lit(number)
    if _count_tables(rows.schema) > 1:
        partition += F.col("arrival.partition")
    numbered = F.col("arrival").withField("partition", partition)
    arrival = F.when(is_table_row(), numbered).otherwise(F.col("arrival"))
    return rows.withColumn("arrival", arrival).withMetadata("arrival", rows.schema["arrival"].metadata)


@built_once
def _key_digest(entity: str, keys: tuple[str, ...]) -> Column:
    return key_digest(entity, {name: F.col("data").getField(name) for name in keys})


def inherited_words(log: DataFrame, kind: Kind) -> DataFrame:
    """The words that rows took along, in the columns of their table."""
    words = find_inherited_words(visible_changes(log, kind), kind.keys)
    hidden = {BUCKET: kind.bucket_column(F.col(GUID)), IDENTITY: _identity_digest()}
    return as_columns(words.withColumns(hidden), words_columns(log.schema))


def _identity_digest() -> Column:
    return F.xxhash64("message_id", "arrival.record_number", "source")


@built_once
def _content_digest(names: tuple[str, ...], data: T.StructType) -> Column:
    """Digest all that a change says; a null beside a value is not the value beside a null."""
    columns = [F.col(name) for name in names]
    for field in data:
        value = F.col("data").getField(field.name)
        # Spark hashes no maps.
        plain = F.to_json(F.struct(value.alias("value"))) if _holds_map(field.dataType) else value
        columns += [F.lit(field.name), F.col("carried").getField(field.name), plain, value.isNull()]
    return F.xxhash64(*columns)


def _holds_map(kind: T.DataType) -> bool:
    if isinstance(kind, T.StructType):
        return any(_holds_map(field.dataType) for field in kind)
    if isinstance(kind, T.ArrayType):
        return _holds_map(kind.elementType)
    return isinstance(kind, T.MapType)


def require_keys_keep_their_texts(before: T.StructType, after: T.StructType, kind: Kind) -> None:
    """Raise `WrongColumnType` if a key is to have another text: 1 and "1" are two keys, with two guids."""
    for name in () if kind.by_guid else [key for key in kind.keys if key in before.names]:
        type_before, other = before[name].dataType, after[name].dataType
        common = common_spark_type(type_before, other)
        # A number has one text whatever its type, a day has not that of its midnight.
        has_other_text = type_before != other and isinstance(
            common, T.StringType | T.TimestampType | T.TimestampNTZType
        )
        if has_other_text and not isinstance(type_before, T.StringType):
            kind_before = type_before.simpleString()
            is_number = isinstance(type_before, T.NumericType)
            needed = f"a number as before ({kind_before})" if is_number else f"{kind_before}, as before"
            is_float = isinstance(other, T.FloatType | T.DoubleType)
            remedy = WHOLE_KEYS if is_number and is_float else _SAY_TYPES
            raise WrongColumnType(None, f"data.{name}", needed, other.simpleString(), remedy)
        if isinstance(type_before, T.StringType) and not isinstance(other, T.StringType):
            type_name = other.simpleString()
            raise WrongColumnType(None, f"data.{name}", "string, as before", type_name, _SAY_TYPES)


_SAY_TYPES = "Make the changes with the type that it had: by `columns=` of the door, or by a cast."


def require_times_stay(before: T.StructType, after: T.StructType, *, of_lists: bool = False) -> None:
    """
    Raise `WrongColumnType` for numbers where dates or instants were, or the other way round.

    *of_lists*, whose values are compared with those of the list before, for whatever is no time.
    """
    is_beside = is_other_beside_time if of_lists else is_number_beside_time
    for field in after:
        was = before[field.name].dataType if field.name in before.names else field.dataType
        if is_beside(was, field.dataType):
            needed, type_name = f"{was.simpleString()}, as before", field.dataType.simpleString()
            remedy = TIMES_IN_LISTS if of_lists else _SAY_TYPES
            raise WrongColumnType(None, f"data.{field.name}", needed, type_name, remedy)


def visible_changes(log: DataFrame, kind: Kind, copy: int = 0, last: int = 0) -> DataFrame:
    """
    The changes as they were given, and the guid of each; of the truncates those of bucket *copy*.

    Their tables have numbers up to the *last*, whose order a ledger or a union that takes them keeps.
    """
    names = [name for name in log.columns if name not in HIDDEN]
    keys = {KEYS if kind.by_guid else MADE_OF: list(kind.keys)}
    filled = {"carried": _carried_flags(log).alias("carried"), GUID: F.col(GUID).alias(GUID, metadata=keys)}
    if last:
        filled["arrival"] = F.col("arrival").alias("arrival", metadata={TABLES: last + 1})
    if kind.untyped or kind.empty.names:
        some: dict[str, Any] = {UNTYPED: list(kind.untyped)} if kind.untyped else {}
        some |= note_empty({field.name: field.dataType for field in kind.empty}) if kind.empty.names else {}
        filled["data"] = F.col("data").alias("data", metadata=some)
    # Of a truncate every bucket has one.
    entity_rows = log.where((F.col(GUID) != EVERY) | (F.col(BUCKET) == copy))
    # Not by `withColumns`: an alias's metadata would be lost through Spark Connect.
    return entity_rows.select(*(filled.get(name, F.col(name)) for name in names))


def _carried_flags(log: DataFrame) -> Column:
    """Tell whether each field was carried: not, by changes from before the field was known."""
    flags = [
        F.coalesce(F.col("carried").getField(name), F.lit(False)).alias(name)
        for name in log_fields(log.schema).fieldNames()
    ]
    return F.struct(*flags)
