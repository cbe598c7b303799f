"""Records of the streams with their fields in columns, and messages written as records."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdckit.model.faults import ERROR_CODE, ERROR_DESCRIPTION
from cdckit.model.forms import RECORDS
from cdckit.model.records import RECORD_COLUMNS
from cdckit.parts.argument_forms import ABOVE_ZERO, NAME, instance_of, takes
from cdckit.parts.arguments import require_columns
from cdckit.parts.fold import Result
from cdckit.parts.folded_rows import with_rule
from cdckit.streams.catalogue import SEPARATOR, STREAMS, Stream, field_column
from cdckit.streams.messages import message_row, message_text

STREAM = instance_of(Stream, f"a Stream, of {', '.join(STREAMS)}")


@takes(stream=STREAM, records=RECORDS)
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
        The database is read from `db` or `dbid`: the page's tables say the one, its samples the other.
        The `device` of `CHANGES_BY_DEVICE` is the key of the record, since the message does not have it.

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
    makes = pa.schema([*stream.columns(), (ERROR_CODE, pa.string()), (ERROR_DESCRIPTION, pa.string())])
    return with_rule(records, RECORD_COLUMNS, ["value", "key"], partial(message_row, stream=stream), makes)


def with_text(messages: DataFrame, stream: Stream, name: str) -> DataFrame:
    """Messages with their JSON text (`cdckit.streams.messages.message_text`) in another column."""
    names = [column for column in stream.columns().names if column in messages.columns]
    rule = partial(_text_of, names=names, stream=stream)
    return with_rule(messages, messages.columns, names, rule, pa.schema([(name, pa.string())]))


def _text_of(*values: Any, names: Sequence[str], stream: Stream) -> Result:
    return (message_text(dict(zip(names, values, strict=True)), stream),)


@takes(stream=STREAM, topic=NAME.or_none(), partitions=ABOVE_ZERO.or_none())
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
    require_columns(messages, [*stream.key, *stream.partition_by])
    chosen = (
        F.lit(None)
        if partitions is None
        else F.pmod(F.xxhash64(_join_columns(stream.partition_by)), partitions)
    )
    at = F.col("timestamp") if "timestamp" in messages.columns else F.lit(None)
    name = F.lit(stream.name if topic is None else topic)
    placed = {"topic": name, "partition": chosen.cast("int"), "timestamp": at.cast("timestamp_ltz")}
    return with_record(messages, stream).withColumns(placed).select("key", "value", *placed)


def with_record(messages: DataFrame, stream: Stream) -> DataFrame:
    """Messages with what they say of their records: `key`, `value`, and the stream's name as `topic`."""
    needed = [field_column(field) for field in stream.fields if field in stream.required]
    require_columns(messages, needed)
    written = messages
    if stream.text is None or stream.text not in messages.columns:
        written = with_text(messages, stream, _TEXT)
    text = F.col(_TEXT if _TEXT in written.columns else str(stream.text))
    record = {"key": F.encode(_key(stream), "utf-8"), "value": F.encode(text, "utf-8")}
    return written.withColumns({**record, "topic": F.lit(stream.name)}).drop(_TEXT)


_TEXT = "text of the message"


def _key(stream: Stream) -> Column:
    key = _join_columns(stream.key)
    if not stream.other_key:
        return key
    is_whole = reduce(Column.__and__, (F.col(name).isNotNull() for name in stream.key))
    return F.when(is_whole, key).otherwise(_join_columns(stream.other_key))


def _join_columns(columns: tuple[str, ...]) -> Column:
    """Several columns as one text that tells them apart; what is null is empty."""
    texts = (F.replace(F.col(name).cast("string"), F.lit("~"), F.lit("~0")) for name in columns)
    parts = (F.coalesce(F.replace(text, F.lit(SEPARATOR), F.lit("~1")), F.lit("")) for text in texts)
    return F.col(columns[0]).cast("string") if len(columns) == 1 else F.concat_ws(SEPARATOR, *parts)
