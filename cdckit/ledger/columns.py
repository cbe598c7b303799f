"""The columns of a ledger's tables, and those among them that its users do not see."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.changes import CHANGE_SCHEMA, MOVED, require_moved
from cdckit.errors import InvalidArgument, WrongColumnType
from cdckit.history import STANDARD_COLUMNS
from cdckit.kernel.changes import GUID, KEYS, MADE_OF, SNAPSHOT
from cdckit.ledger.kinds import Kind
from cdckit.lists import is_of_list
from cdckit.merging import checked_fields, fields_with_priority, history_schema
from cdckit.moves import words_taken_along
from cdckit.parts.arguments import quoted
from cdckit.parts.values import guid
from cdckit.parts.widening import common_spark_type
from cdckit.store.columns import as_columns

BUCKET = "ledger_bucket"
"""Which part of the tables a row is in."""

OPEN = "ledger_open"
"""Whether a version has no end yet: such ones lie apart."""

LATEST = "ledger_latest"
"""The latest effective time of all changes of the entity, with or without effect; null in closed versions."""

PLACE = "ledger_place"
"""Beside `LATEST`: the last place of those changes that say one in the log of their source, whichever."""

IDENTITY = "ledger_identity"
"""A hash of what makes a change of an entity the same change again: source, message and record number."""

CONTENT = "ledger_content"
"""A hash of a change as it was given; its sum over a batch tells the batch.  Not stored."""

LISTED = "ledger_listed"
"""When the list was taken that a change is of, in microseconds; null in all others.  Not stored."""

HIDDEN = (BUCKET, OPEN, LATEST, PLACE, IDENTITY)

EVERY = ""
"""In place of a guid: of truncates, which are about every entity.  Each bucket has them."""

UNBORN_SCHEMA = T.StructType(
    [
        T.StructField(GUID, T.StringType()),
        T.StructField(LATEST, T.TimestampType()),
        T.StructField(PLACE, T.StringType()),
        T.StructField(BUCKET, T.IntegerType()),
    ]
)
"""One row per entity that has changes but no version: deletes of what never was; and one of the truncates."""


LISTS_SCHEMA = T.StructType(
    [
        T.StructField("source", T.StringType()),
        T.StructField("taken", T.TimestampType()),
        T.StructField("rows", T.LongType()),
    ]
)
"""One row per list: who gave it, when it was taken, and how many entities it named; null where it came as
changes, which do not tell."""


def logged(changes: DataFrame, kind: Kind) -> DataFrame:
    """
    The changes as rows of the log, and beside them the hash `CONTENT` and the instant `LISTED`.

    Raises:
        MissingColumns, WrongColumnType, InvalidArgument: They are no changes that `merge` would take, or
            are a stream.
    """
    data = checked_fields(changes, kind.keys, [*STANDARD_COLUMNS, *HIDDEN], "apply")
    fields_with_priority(changes, data.fieldNames(), "apply")
    if changes.isStreaming:
        needed = "a batch: of a stream, let writeStream.foreachBatch(ledger.sink('a name')) hand them over"
        raise InvalidArgument("apply", "changes", needed, "a stream")
    if MOVED in changes.columns:
        if kind.by_guid:
            needed = "without the column `moved` where their guids say which entity they are about: drop it"
            raise InvalidArgument("apply", "changes", needed, changes.columns)
        require_moved(changes, kind.keys, function="apply")
    optional = [name for name in ("field_priorities", SNAPSHOT, MOVED) if name in changes.columns]
    key = {name: F.col("data").getField(name) for name in kind.keys}
    found = changes if kind.by_guid else changes.withColumn(GUID, guid(kind.entity, key))
    return found.select(
        GUID,
        kind.bucket_column(F.col(GUID)).alias(BUCKET),
        _identity().alias(IDENTITY),
        *CHANGE_SCHEMA.fieldNames(),
        "data",
        "carried",
        *optional,
        _content(changes, optional).alias(CONTENT),
        F.when(is_of_list(), F.unix_micros("effective_timestamp")).alias(LISTED),
    )


def log_columns(rows: T.StructType) -> T.StructType:
    """The columns of the log, of those of `logged`."""
    return T.StructType([each for each in rows if each.name not in (CONTENT, LISTED)])


def words_columns(log: T.StructType) -> T.StructType:
    """The columns of the table of words that rows took along: those of the log."""
    return T.StructType([each for each in log if each.name != MOVED])


def with_all_priorities(log: T.StructType) -> T.StructType:
    """The columns of a log in which every field has a priority of its own: words have one for each."""
    names = fields_of(log).fieldNames()
    own = T.StructType([T.StructField(name, T.IntegerType()) for name in names])
    some = [each for each in log if each.name != "field_priorities"]
    return T.StructType([*some, T.StructField("field_priorities", own)])


def words_of(log: DataFrame, kind: Kind) -> DataFrame:
    """The words that rows took along, in the columns of their table."""
    words = words_taken_along(shown_changes(log, kind), kind.keys, function="apply")
    hidden = {BUCKET: kind.bucket_column(F.col(GUID)), IDENTITY: _identity()}
    return as_columns(words.withColumns(hidden), words_columns(log.schema))


def _identity() -> Column:
    return F.xxhash64("message_id", "arrival.record_number", "source")


def _content(changes: DataFrame, optional: list[str]) -> Column:
    """Of all that a change says; a null beside a value is another content than the value beside the null."""
    columns = [
        F.col(name) for name in (GUID, *CHANGE_SCHEMA.fieldNames(), *optional) if name in changes.columns
    ]
    fields = changes.schema["data"].dataType
    assert isinstance(fields, T.StructType)
    for field in fields:
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


def fields_of(log: T.StructType) -> T.StructType:
    """The business fields of a log."""
    found = log["data"].dataType
    assert isinstance(found, T.StructType)
    return found


def kept_history(data: T.StructType) -> T.StructType:
    """The columns of the table of versions."""
    hidden = [
        T.StructField(LATEST, T.TimestampType()),
        T.StructField(PLACE, T.StringType()),
        T.StructField(OPEN, T.BooleanType()),
        T.StructField(BUCKET, T.IntegerType()),
    ]
    return T.StructType([*history_schema(data).fields, *hidden])


def require_keys_keep_their_texts(
    before: T.StructType, after: T.StructType, kind: Kind, *, function: str = "apply"
) -> None:
    """Raise `WrongColumnType` if a key is to become text: 1 and "1" are two keys, with two guids."""
    for name in () if kind.by_guid else kind.keys:
        one, other = before[name].dataType, after[name].dataType
        common = common_spark_type(one, other)
        if isinstance(common, T.StringType) and not isinstance(one, T.StringType):
            needed = f"a number as before ({one.simpleString()})" if one != other else one.simpleString()
            raise WrongColumnType(function, f"data.{name}", needed, other.simpleString())
        if isinstance(one, T.StringType) and not isinstance(other, T.StringType):
            raise WrongColumnType(function, f"data.{name}", "string, as before", other.simpleString())


def shown_changes(log: DataFrame, kind: Kind, copy: int = 0) -> DataFrame:
    """The changes as they were given, and the guid of each; of the truncates those of bucket *copy*."""
    names = [name for name in log.columns if name not in HIDDEN]
    keys = {KEYS if kind.by_guid else MADE_OF: list(kind.keys)}
    filled = {"carried": _filled(log), GUID: F.col(GUID).alias(GUID, metadata=keys)}
    # Of a truncate every bucket has one.
    return log.where((F.col(GUID) != EVERY) | (F.col(BUCKET) == copy)).withColumns(filled).select(*names)


def _filled(log: DataFrame) -> Column:
    """Whether each field was carried: not, by changes from before the field was known."""
    flags = [
        F.coalesce(F.col("carried").getField(name), F.lit(False)).alias(name)
        for name in fields_of(log.schema).fieldNames()
    ]
    return F.struct(*flags)


def shown_history(history: DataFrame, log: T.StructType) -> DataFrame:
    """The versions in the columns that `merge` gives those of such a log."""
    return history.select(*(quoted(name) for name in history_schema(fields_of(log)).fieldNames()))
