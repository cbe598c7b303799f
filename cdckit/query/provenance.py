"""Provenance: which message each value of a history comes from, and what it would be without it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import reduce
from typing import Any, TypeAlias

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.model.changes import CHANGE_SCHEMA
from cdckit.model.history import (
    DELETED,
    FIELD_PROVENANCE,
    HISTORY_SCHEMA,
    SOURCE_MESSAGE,
    VALID_FROM,
    VALID_TO,
    is_deleted,
    provenance_type,
    require_history,
)
from cdckit.model.list_comparison import is_list_change
from cdckit.parts.argument_forms import INSTANT, Form, rows_with, takes
from cdckit.parts.arguments import (
    quoted,
    require_columns,
    require_instant,
    require_struct,
    require_type,
    require_types,
    wrong_argument,
    wrong_type,
)
from cdckit.parts.tables import AnyTable, as_spark, has_order, spark_table
from cdckit.parts.values import as_text, comparable
from cdckit.query.entity_keys import is_entity
from cdckit.query.intervals import fold_periods, is_ever_in_force, is_in_force

MESSAGE_SOURCE = "message_source"
MESSAGE_ARRIVAL = "message_arrival_timestamp"

_GUID = "guid"


def _check_provenance(history: DataFrame, argument: str) -> DataFrame:
    history = require_history(history, _GUID, VALID_FROM, VALID_TO, DELETED)
    provenance = require_struct(history, FIELD_PROVENANCE)
    if _GUID not in provenance.fieldNames():
        raise wrong_type(FIELD_PROVENANCE, f"a struct with the entry {_GUID}", provenance.simpleString())
    needed = provenance_type().simpleString()
    for entry in provenance:
        if (kind := entry.dataType.simpleString()) != needed:
            raise wrong_type(f"{FIELD_PROVENANCE}.{entry.name}", needed, kind)
    require_columns(history, [name for name in provenance.fieldNames() if name != _GUID])
    return history


def _check_message_sources(changes: Any, argument: str) -> Any:
    require_types(
        changes, T.StructType([CHANGE_SCHEMA[name] for name in ("message_id", "source", "arrival")])
    )
    return changes


WITH_PROVENANCE = Form(
    _check_provenance,
    "MissingColumns, WrongColumnType: {} lacks a column that a history has, or a field of "
    "`field_provenance`, or has it in another type",
)
MESSAGE_SOURCES = Form(
    _check_message_sources,
    "MissingColumns, WrongColumnType: {} lacks `message_id`, `source` or `arrival`, or has it otherwise",
)


@takes(history=WITH_PROVENANCE, changes=MESSAGE_SOURCES.or_none(), valid_at=INSTANT.or_none())
def blame(
    history: DataFrame,
    key: Mapping[str, Any],
    *,
    valid_at: datetime | None = None,
    changes: DataFrame | None = None,
) -> DataFrame:
    """
    Tell who is responsible for each value of one entity, and since when.

    Args:
        history: One row per version; the versions of an entity do not overlap, which is not checked.  Not
            what `as_of` gives, of which nothing need be in force now: *valid_at* asks about another instant.
        key: Value by field; `guid` may be one of them.  It is matched with the version in force at
            *valid_at*: an entity whose key changed answers to the key that it had then, with its whole past.
            A part of the key speaks of every entity that has these values.
        valid_at: The instant to ask about, an aware datetime; None asks about the current version.
        changes: The changes that the history was merged from, such as `ledger.changes()`: they say which
            source sent a message, which a history does not.

    Returns:
        One row per field, those of one entity in the order of the fields in the history: `guid`;
        `field`; `value`, as text; `message`, `source` and `priority` that the value comes from (the source
        null without *changes*, and where messages of several sources bear the id);
        `since_timestamp`, from when on this value has stood with this message and priority without
        a break.  The row itself comes first, as the field `deleted_indicator`: who says that the
        entity is there, or who deleted it.  A field that nobody ever set has a row too, with nulls:
        that differs from a null that a message sent or a delete left.  A key field that no message
        carried shows its value with neither message nor time.  No row at all for an unknown key, or
        when nothing was known of the entity at *valid_at*.

    Raises:
        InvalidArgument: *key* is empty, names no field or has a value of another type than its field.

    Cost: reads the history twice, a filter each; the guids that the first pass finds are sent to all
    workers.  Then one shuffle and sort of the values of the entities asked for.  With *changes* all of
    it twice, and one pass over these.

    Source:
        The data hub's `field_provenance`; the name is that of `git blame`.

    >>> blame(history, {"number": 2}, changes=changes).drop("guid").show()
    +-----------------+-----+-------+------+--------+-------------------+
    |            field|value|message|source|priority|    since_timestamp|
    +-----------------+-----+-------+------+--------+-------------------+
    |deleted_indicator| true|     m3|  shop|       0|2024-01-01 11:00:00|
    |           number|    2|     m1|  shop|       0|2024-01-01 09:00:00|
    |             name| NULL|     m3|  shop|       0|2024-01-01 11:00:00|
    +-----------------+-----+-------+------+--------+-------------------+
    <BLANKLINE>
    """
    fields = _fields_with_provenance(history)
    identity = T.StructType([HISTORY_SCHEMA[_GUID], *fields.fields[1:]])
    is_wanted = is_entity(key, identity)
    if valid_at is None:
        versions, stands = history, F.col(VALID_TO).isNull()
    else:
        instant = require_instant(valid_at, "valid_at")
        versions, stands = history.where(F.col(VALID_FROM) <= instant), is_in_force(instant)
    # Without the hint the whole history would be shuffled to meet a handful of guids.
    entities = F.broadcast(history.where(stands & is_wanted).select(_GUID))
    # By entity alone, so that the rows of one stay together, in the order of the fields.
    values = _values(versions.join(entities, _GUID, "left_semi"), fields).repartition(_GUID)
    since = F.when(F.col("message").isNotNull(), F.col(VALID_FROM)).alias("since_timestamp")
    answer = _stretches(values).where(stands).select("*", since)
    if changes is None:
        sent = answer.withColumn("source", F.lit(None).cast("string"))
    else:
        messages = F.broadcast(answer.select(F.col("message").alias("message_id")).distinct())
        senders = _senders(changes.join(messages, "message_id", "left_semi"), "message")
        # Sent to the rows, which keep their order so: by a shuffle they would not.
        named = F.broadcast(senders.select("message", F.col(MESSAGE_SOURCE).alias("source")))
        sent = answer.join(named, "message", "left")
    return sent.select(_GUID, "field", "value", "message", "source", "priority", "since_timestamp")


@takes(history=WITH_PROVENANCE)
def values_by_message(history: DataFrame, messages: str | Iterable[str]) -> DataFrame:
    """
    Everything that one message, or several, are responsible for in a history.

    Args:
        history: One row per version; the versions of an entity do not overlap, which is not checked.
            Some of them will do: `values_by_message(current(history), …)` is what the messages are
            responsible for now.
        messages: The id of a message, or several ids.  A history holds ids alone: where several sources
            use one, this is what all their messages of that id are responsible for.

    Returns:
        One row per entity, field and unbroken stretch in which one value stood with one message and
        priority, however many versions that spans: `guid`; `field` (`deleted_indicator` is the row
        itself: that the entity is there, or is deleted); `value`, as text; `message`; `priority`;
        `valid_from_timestamp`, `valid_to_timestamp` (exclusive, null while it stands).  A message that
        speaks of an entity in one record only has at most one row per field of it: what was replaced
        does not come back.  (A key field keeps its message while others raise or lower its priority, and
        has a row for each time.)  One that speaks in several records can say a value again after it was
        replaced, and then has a row for each time.  Rows have no order.  Unknown messages have none.

    Raises:
        InvalidArgument: *messages* are not texts.

    Cost: one filter; then one shuffle and one sort of the values that the messages are responsible for, one
    row for each field of each version.  Every id is part of the query plan, once per field: ask for some, not
    for many thousands.

    >>> made = values_by_message(history, ["m2", "m3"]).orderBy("message", "field")
    >>> made.select("field", "value", "message", "valid_from_timestamp", "valid_to_timestamp").show()
    +-----------------+------+-------+--------------------+------------------+
    |            field| value|message|valid_from_timestamp|valid_to_timestamp|
    +-----------------+------+-------+--------------------+------------------+
    |             name|teapot|     m2| 2024-01-01 10:00:00|              NULL|
    |deleted_indicator|  true|     m3| 2024-01-01 11:00:00|              NULL|
    |             name|  NULL|     m3| 2024-01-01 11:00:00|              NULL|
    +-----------------+------+-------+--------------------+------------------+
    <BLANKLINE>
    """
    fields = _fields_with_provenance(history)
    wanted = _message_ids(messages)
    has_part = reduce(Column.__or__, (_entry(field)["m"].isin(wanted) for field in fields))
    values = _values(history.where(has_part), fields).where(F.col("message").isin(wanted))
    return _stretches(values).drop("place", "digest")


@takes(history=WITH_PROVENANCE, changes=MESSAGE_SOURCES)
def count_sources(history: DataFrame, changes: DataFrame) -> DataFrame:
    """
    Count the values of each field that come from each source.

    Every version counts, so the caller chooses which: `count_sources(current(history), changes)` is the
    usual question.

    Args:
        history: One row per version.
        changes: One row per change: `message_id`, `source`, `arrival`.

    Returns:
        One row per field and source: `field` (`deleted_indicator` is the row itself), `source` (null
        where the changes know none, or messages of several sources bear the id: see `with_messages`),
        `values`, how many values, nulls that were said among them, come from there, and `share`, their
        part in the values of the field that anybody said, above 0 and at most 1.  A field that was never
        set has no row.  Rows have no order.

    Cost: the values are counted per field and message before anything is joined; then one shuffle of
    these counts, one of the distinct messages, and small ones.

    >>> from cdckit import current
    >>> count_sources(current(history), changes).orderBy("field").show()
    +-----------------+------+------+-----+
    |            field|source|values|share|
    +-----------------+------+------+-----+
    |deleted_indicator|  shop|     1|  1.0|
    |             name|  shop|     1|  1.0|
    |           number|  shop|     1|  1.0|
    +-----------------+------+------+-----+
    <BLANKLINE>
    """
    fields = _fields_with_provenance(history)
    messages = _values(history, fields, texts=False).where(F.col("message").isNotNull())
    counted = messages.groupBy("field", "message").agg(F.count("*").alias("values"))
    by_sender = with_messages(counted, changes, message="message")
    by_source = by_sender.groupBy("field", F.col(MESSAGE_SOURCE).alias("source")).agg(
        F.sum("values").alias("values")
    )
    of_field = F.sum("values").over(Window.partitionBy("field"))
    return by_source.withColumn("share", F.col("values") / of_field)


@takes(frame=rows_with(), changes=MESSAGE_SOURCES)
def with_messages(frame: DataFrame, changes: DataFrame, *, message: str = SOURCE_MESSAGE) -> DataFrame:
    """
    Add what the changes know of a message: its source, and when it first arrived.

    Args:
        frame: Any table with a column of message ids: a history, or what `blame` returns.
        changes: One row per change: `message_id`, `source`, `arrival`.
        message: The column of *frame* with the ids.

    Returns:
        The same rows and columns, and after them `message_source` and `message_arrival_timestamp` (of a
        message that arrived several times, the earliest); both null where the changes know no such
        message, where the id is null, and where messages of several sources bear the id, so that it
        does not say which is meant.  For sources that number their messages alike, make the ids
        distinct before the merge: `F.concat_ws(":", "source", "message_id")`.

    Raises:
        MissingColumns, WrongColumnType: *frame* has no column *message*, or not as text.
        InvalidArgument: *frame* has one of the two new columns already: rename it first.

    Cost: one shuffle of the distinct messages and a join; if the messages are too many to be sent to
    all workers, the join shuffles *frame* by message.

    >>> with_messages(history, changes).where("deleted_indicator").select(
    ...     "number", "source_message", "message_source", "message_arrival_timestamp"
    ... ).show()
    +------+--------------+--------------+-------------------------+
    |number|source_message|message_source|message_arrival_timestamp|
    +------+--------------+--------------+-------------------------+
    |     2|            m3|          shop|      2024-01-01 11:00:00|
    +------+--------------+--------------+-------------------------+
    <BLANKLINE>
    """
    require_columns(frame, [message])
    require_type(frame, message, T.StringType())
    taken = [name for name in frame.columns if name.lower() in (MESSAGE_SOURCE, MESSAGE_ARRIVAL)]
    if taken:
        needed = f"a table without columns {MESSAGE_SOURCE} and {MESSAGE_ARRIVAL}: rename these first"
        raise wrong_argument("frame", needed, taken)
    joined = frame.join(_senders(changes, message), [message], "left")
    # A join by name puts that column first.
    return joined.select(*(quoted(name) for name in (*frame.columns, MESSAGE_SOURCE, MESSAGE_ARRIVAL)))


def _senders(changes: DataFrame, message: str) -> DataFrame:
    """Find by message id, in a column of that name, its source and when it first arrived."""
    # Two sources may use one id for two messages, and the id alone does not say which is meant.
    sources = F.collect_set(F.struct("source"))
    return changes.groupBy(F.col("message_id").alias(message)).agg(
        F.when(F.size(sources) == 1, F.min("source")).alias(MESSAGE_SOURCE),
        F.when(F.size(sources) == 1, F.min("arrival.timestamp")).alias(MESSAGE_ARRIVAL),
    )


Messages: TypeAlias = str | Iterable[str] | AnyTable
"""The id of a message, several ids, or a table of them."""


@takes()
def revoke(changes: DataFrame, messages: Messages, *, source: str | None = None) -> DataFrame:
    """
    The changes as if some messages had never come.

    What that would mean is what merging them says: each value that a revoked message won goes back to
    who had it before, or to a later message that it had outranked.

    A full list (`changes_from_snapshots`) cannot be revoked so: its changes are what is new in it, and what
    the next list confirmed would go with them.  Of a ledger, `Ledger.revoke_list` takes it back; otherwise
    leave it out of the lists.  `Ledger.revoke` does the same to the log of a ledger.

    Args:
        changes: One row per change.
        messages: The id of a message, several ids, or a table with the column `message_id`, of Spark, of
            pandas, or what speaks Arrow's stream; unknown ones and none at all change nothing.  If that table
            has the column `source`, too, a row of it means the message of that source alone, null being one.
        source: The source whose messages are meant; without it, those of every source with such an id.

    Returns:
        The other rows, with the same columns.  A change without a message id stays: it is for the
        merge to refuse.

    Raises:
        MissingColumns, WrongColumnType: *changes*, or the table of *messages*, have no `message_id`, or
            not as text; or *changes* have no `source` though it is asked for.
        InvalidArgument: *messages* are not texts, or *source* is not one.
        SparkRuntimeException: When the result is computed (Spark's; its text holds `revoke()`): one of the
            messages is a full list.

    Cost: one filter; for a table, a join with it.

    >>> from cdckit import merge
    >>> without = merge(revoke(changes, ["m2", "m3"]), entity="product", keys=["number"])
    >>> without.orderBy("number").select("number", "name", "valid_to_timestamp", "source_message").show()
    +------+------+------------------+--------------+
    |number|  name|valid_to_timestamp|source_message|
    +------+------+------------------+--------------+
    |     1|kettle|              NULL|            m1|
    |     2|   mug|              NULL|            m1|
    +------+------+------------------+--------------+
    <BLANKLINE>
    """
    if not (source is None or isinstance(source, str)):
        raise wrong_argument("source", "the name of a source, or None", source)
    revoked = read_messages(spark_table(changes).sparkSession, messages)
    by_source = isinstance(revoked, DataFrame) and "source" in revoked.columns
    names = ["message_id", "source"] if by_source or source is not None else ["message_id"]
    require_types(changes, T.StructType([CHANGE_SCHEMA[name] for name in names]))
    of_source = F.lit(True) if source is None else F.col("source").eqNullSafe(source)
    if isinstance(revoked, DataFrame):
        return _without_messages(changes, revoked, of_source, by_source=by_source)
    if not revoked:
        return changes
    is_revoked = of_source & F.coalesce(F.col("message_id").isin(revoked), F.lit(False))
    return changes.where(~_refuse_lists(changes, is_revoked))


def _refuse_lists(changes: DataFrame, is_revoked: Column) -> Column:
    """*is_revoked*, which *changes* are to go; ends the job for those of a full list."""
    if not {"source", "effective_timestamp"} <= set(changes.columns):
        return is_revoked  # without the columns that tell, a change is of no list
    sentence = (
        "revoke() needs messages that stand for themselves, and this is a full list, of which the changes "
        "say only what was new: take it back by `ledger.revoke_list(taken_at=…, source=…)`, or leave it out "
        "of what `changes_from_snapshots` is given.  The message: "
    )
    refused = F.raise_error(F.concat(F.lit(sentence), "message_id")).cast("boolean")
    return F.when(is_revoked & is_list_change(), refused).otherwise(is_revoked)


def _without_messages(
    changes: DataFrame, messages: DataFrame, of_source: Column, *, by_source: bool
) -> DataFrame:
    names = ["message_id", "source"] if by_source else ["message_id"]
    require_types(messages, T.StructType([CHANGE_SCHEMA[name] for name in names]))
    wanted = messages.where("message_id IS NOT NULL").select(F.struct(*names).alias(_REVOKED))
    same = [F.col(name).eqNullSafe(F.col(quoted(_REVOKED)).getField(name)) for name in names]
    is_revoked = _refuse_lists(changes, of_source)
    return changes.join(wanted, reduce(Column.__and__, same) & is_revoked, "left_anti")


_REVOKED = "cdckit.revoked"
"""A name that no column of changes has."""


def read_messages(spark: SparkSession, messages: Messages) -> list[str] | DataFrame:
    """The ids, or the table of them as Spark's: either can be read more than once."""
    # A column of ids speaks Arrow's stream, too, and has no columns.
    if isinstance(messages, DataFrame) or (has_order(messages) and hasattr(messages, "columns")):
        return as_spark(spark, messages)
    return _message_ids(messages)


def _message_ids(messages: Any) -> list[str]:
    texts = [messages] if isinstance(messages, str) else messages
    # Walked through, tables and mappings give their names.
    is_listed = isinstance(texts, Iterable) and not (isinstance(texts, Mapping) or hasattr(texts, "columns"))
    listed: list[Any] = list(texts) if is_listed else [texts]
    if not all(isinstance(message, str) for message in listed):
        raise wrong_argument("messages", "the id of a message, or several", messages)
    return listed


def _fields_with_provenance(history: DataFrame) -> T.StructType:
    """
    The columns of whose values a history says where they come from, as they stand in it.

    Taken from `field_provenance`: what somebody added to the history beside its fields is not one.
    """
    names = [name for name in require_struct(history, FIELD_PROVENANCE).fieldNames() if name != _GUID]
    return T.StructType([history.schema[name] for name in (DELETED, *names)])


def _entry(field: T.StructField) -> Column:
    """The provenance of a field; of the row itself, if the field is whether the entity is deleted."""
    return F.col(FIELD_PROVENANCE).getField(_GUID if field.name == DELETED else field.name)


def _values(history: DataFrame, fields: T.StructType, *, texts: bool = True) -> DataFrame:
    """
    A row for each field of each version: `place` and `field`, `message` and `priority`, the period.

    With *texts* also the `value` as text, and its `digest`.
    """
    rows = [
        F.struct(
            F.lit(place).alias("place"),
            F.lit(field.name).alias("field"),
            *(_text_and_digest(field) if texts else []),
            _entry(field)["m"].alias("message"),
            _entry(field)["p"].alias("priority"),
        )
        for place, field in enumerate(fields)
    ]
    return history.select(_GUID, F.inline(F.array(*rows)), VALID_FROM, VALID_TO)


def _text_and_digest(field: T.StructField) -> list[Column]:
    """The text of a value; of a nested one also a digest, since JSON loses bytes that are no text."""
    value, kind = F.col(quoted(field.name)) if field.name != DELETED else is_deleted(), field.dataType
    is_nested = isinstance(kind, T.ArrayType | T.MapType | T.StructType)
    digest = F.xxhash64(comparable(value, kind)) if is_nested else F.lit(None).cast("bigint")
    return [as_text(value, kind).alias("value"), digest.alias("digest")]


def _stretches(values: DataFrame) -> DataFrame:
    """The stretches in which a field had one value by one message with one priority."""
    statement = F.struct("value", "digest", "message", "priority")
    return fold_periods(values.where(is_ever_in_force()), [_GUID, "place"], statement)
