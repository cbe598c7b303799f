"""Records of the streams with their fields in columns, and messages written as records."""

from __future__ import annotations

from functools import partial, reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdckit.errors import InvalidArgument
from cdckit.model.records import ERROR_CODE, ERROR_DESCRIPTION, RECORD_COLUMNS, require_records
from cdckit.parts.arguments import require_columns, require_int, require_name
from cdckit.parts.folded_rows import with_rule
from cdckit.streams.catalogue import (
    SEPARATOR,
    Status,
    Stream,
    field_column,
    field_kind,
    require_stream,
)
from cdckit.streams.messages import message_row


def decode(records: DataFrame, stream: Stream) -> DataFrame:
    """
    Read the messages of one stream.

    Args:
        records: One row per transported message (`cdckit.model.RECORD_SCHEMA`), a batch or a stream.
        stream: Which one it is: `ENTITY_BATCHES`, `ENTITY_PATCHES` and so on.

    Returns:
        One row per record, in no order: the record's columns; those of the stream's fields
        (`stream.columns()`): `clientid` is `client_id`, `error` is `errors`, an array, and what holds
        documents is JSON text with every digit; `error_code` and `error_description`, null where all is
        well.  It never fails on data: of a record in error the fields that could be read are there.
        Where `before` or `after` is null and not left out, `include_before` or `include_after` is true.
        A number beyond what decimals hold, or of more than 4,300 digits, may stand in `ops`, `patches` and
        `responses`: that patch gets status 3 then.
        The database is read from `db` or `dbid`: the page's tables say the one, its samples the other.
        The `device` of `CHANGES_BY_DEVICE` is the key of the record, since the message does not have it.

    Raises:
        InvalidArgument: *stream* is no `Stream`.
        MissingColumns, WrongColumnType: *records* are not records.

    Cost: one pass through Python in Arrow batches, no shuffle.

    >>> from cdckit import streams
    >>> text = b'{"db": "shop", "clientid": "c", "user": "ann", "device": "d", "appVersion": "1", "begun": 7}'
    >>> decoded = streams.decode(records_of(text, b"{}", b"?"), streams.CONNECTIONS)
    >>> decoded.select("offset", "user", "device", "begun", "error_code").orderBy("offset").show()
    +------+----+------+-----+-------------+
    |offset|user|device|begun|   error_code|
    +------+----+------+-----+-------------+
    |     0| ann|     d|    7|         NULL|
    |     1|NULL|  NULL| NULL|MISSING_FIELD|
    |     2|NULL|  NULL| NULL|     NOT_JSON|
    +------+----+------+-----+-------------+
    <BLANKLINE>
    """
    require_stream(stream, function="decode")
    records = require_records(records, function="decode")
    makes = pa.schema([*stream.columns(), (ERROR_CODE, pa.string()), (ERROR_DESCRIPTION, pa.string())])
    return with_rule(records, RECORD_COLUMNS, ["value", "key"], partial(message_row, stream=stream), makes)


def message_text(messages: DataFrame, stream: Stream) -> Column:
    """
    The JSON text of each message.

    A field is written where it has a value; a flag where it is true; `before` and `after` also where they are
    null, if the message asked for them: null means that there was, or is, nothing.  Of a patch that could not
    be applied they are left out.  Where the table has the whole text (`stream.text`), that is written.

    Args:
        messages: The table whose rows it is for; fields that it has no column for are left out.
        stream: The stream, which says which fields there are, and in which order.

    Returns:
        A column of texts.

    Raises:
        MissingColumns: A field that the stream requires has no column.

    Cost: a projection.

    >>> from cdckit import streams
    >>> columns = "db string, user string, device string, count int, begun long, ended long"
    >>> row = session().createDataFrame([("shop", "ann", "d", 2, 7, 9)], columns)
    >>> row.select(message_text(row, streams.DEVICE_NOTIFICATIONS).alias("text")).show(truncate=False)
    +---------------------------------------------------------------------+
    |text                                                                 |
    +---------------------------------------------------------------------+
    |{"db":"shop","user":"ann","device":"d","count":2,"begun":7,"ended":9}|
    +---------------------------------------------------------------------+
    <BLANKLINE>
    """
    require_stream(stream, function="message_text")
    needed = [field_column(field) for field in stream.fields if field in stream.required]
    require_columns(messages, needed, function="message_text")
    if stream.text is not None and stream.text in messages.columns:
        return F.col(stream.text)
    there = [field for field in stream.fields if field_column(field) in messages.columns]
    members = [_member(field, messages) for field in there]
    # concat_ws leaves out what is null.
    return F.concat(F.lit("{"), F.concat_ws(",", *members), F.lit("}"))


def _member(field: str, messages: DataFrame) -> Column:
    column, kind = F.col(field_column(field)), field_kind(field)
    start = F.lit(f'"{field}":')
    if kind == "flag":
        return F.when(column, F.lit(f'"{field}":true'))
    if kind in ("long", "instant", "int"):
        return F.concat(start, column.cast("string"))
    if kind in ("json", "ops"):
        return F.concat(start, F.coalesce(column, F.when(_is_nothing(field, messages), F.lit("null"))))
    if kind == "list":
        return F.concat(start, F.lit("["), F.array_join(column, ","), F.lit("]"))
    if kind == "reasons":
        one = _quoted(F.element_at(column, 1), field)
        many = F.concat(start, F.to_json(column))
        return F.when(F.size(column) == 1, one).when(F.size(column) > 1, many)
    return _quoted(column, field)


def _is_nothing(field: str, messages: DataFrame) -> Column:
    """Whether a field that is null says that there was, or is, no entity: it was asked for, and is known."""
    request_flag = {"before": "include_before", "after": "include_after"}.get(field)
    if request_flag not in messages.columns:
        return F.lit(False)
    # The entity of a failed patch may well be there: its answer does not have it.
    failed = F.col("status") == Status.NOT_APPLIED if "status" in messages.columns else F.lit(False)
    return F.col(request_flag) & ~F.coalesce(failed, F.lit(False))


def _quoted(text: Column, field: str) -> Column:
    """The member of an object with a text as its value; null where it is."""
    whole = F.to_json(F.struct(text.alias(field)))
    return F.when(text.isNotNull(), F.substring(whole, F.lit(2), F.length(whole) - 2))


def to_records(
    messages: DataFrame, stream: Stream, *, topic: str | None = None, partitions: int | None = None
) -> DataFrame:
    """
    Messages as records, with the key and the partition that the page states: to be written to Kafka as
    they are.

    Args:
        messages: One row per message: what the functions here return, or `decode`.
        stream: Which stream it is.
        topic: Its topic; by default the stream's name.
        partitions: How many partitions the topic has; then `partition` is chosen by the columns that the
            stream is partitioned by.  By default it is null: Kafka then chooses by the key, which is
            another one for responses (by client) and for zone-changes (by zone).

    Returns:
        One row per message: `key` and `value` (binary), `topic`, `partition`, `timestamp` (that of the table,
        null where it has none): `frame.write.format("kafka")` takes it.  The parts of a key stand between
        slashes, `~1` for a slash within one, as in a path.

    Raises:
        InvalidArgument: *stream* is none; *topic* is empty; *partitions* is no number above 0.
        MissingColumns: A field that the stream requires, or that is part of a key, has no column.

    Cost: a projection, no shuffle.

    Source:
        Debezium streams: "Key" and "Partitioned by" of each stream.

    >>> from cdckit import streams
    >>> columns = "db string, user string, device string, count int, begun long, ended long"
    >>> row = session().createDataFrame([("a/b", "ann", "d", 2, 7, 9)], columns)
    >>> made = to_records(row, streams.DEVICE_NOTIFICATIONS, partitions=8)
    >>> made.select(F.decode("key", "utf-8").alias("key"), "topic", "partition").show()
    +---+--------------------+---------+
    |key|               topic|partition|
    +---+--------------------+---------+
    |  d|device-notifications|        6|
    +---+--------------------+---------+
    <BLANKLINE>
    """
    require_stream(stream, function="to_records")
    name = stream.name if topic is None else require_name(topic, "topic", function="to_records")
    require_columns(messages, [*stream.key, *stream.partition_by], function="to_records")
    if partitions is not None and require_int(partitions, "partitions", function="to_records") < 1:
        raise InvalidArgument("to_records", "partitions", "a number above 0", partitions)
    chosen = (
        F.lit(None)
        if partitions is None
        else F.pmod(F.xxhash64(_join_columns(stream.partition_by)), partitions)
    )
    at = F.col("timestamp") if "timestamp" in messages.columns else F.lit(None)
    columns = {
        **record_columns(messages, stream),
        "topic": F.lit(name),
        "partition": chosen.cast("int"),
        "timestamp": at.cast("timestamp_ltz"),
    }
    return messages.select(*(column.alias(name) for name, column in columns.items()))


def record_columns(messages: DataFrame, stream: Stream) -> dict[str, Column]:
    """What each message says of its record: `key`, `value`, and the stream's name as `topic`."""
    return {
        "key": F.encode(_key(stream), "utf-8"),
        "value": F.encode(message_text(messages, stream), "utf-8"),
        "topic": F.lit(stream.name),
    }


def _key(stream: Stream) -> Column:
    key = _join_columns(stream.key)
    if not stream.other_key:
        return key
    there = reduce(Column.__and__, (F.col(name).isNotNull() for name in stream.key))
    return F.when(there, key).otherwise(_join_columns(stream.other_key))


def _join_columns(columns: tuple[str, ...]) -> Column:
    """Several columns as one text that tells them apart; what is null is empty."""
    texts = (F.replace(F.col(name).cast("string"), F.lit("~"), F.lit("~0")) for name in columns)
    parts = (F.coalesce(F.replace(text, F.lit(SEPARATOR), F.lit("~1")), F.lit("")) for text in texts)
    return F.col(columns[0]).cast("string") if len(columns) == 1 else F.concat_ws(SEPARATOR, *parts)
