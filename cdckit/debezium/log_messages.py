"""Messages that programs write into PostgreSQL's log, beside the rows."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdckit.debezium.events import Kind, require_events
from cdckit.rejected import ERROR_CODE


def messages(decoded: DataFrame) -> DataFrame:
    """
    The messages of logical decoding: what programs wrote with `pg_logical_emit_message`.

    Args:
        decoded: What `decode` or `decode_wal2json` returned.

    Returns:
        One row per message: `topic`, `partition`, `offset`, `source`, `event_timestamp`, `position`,
        `transaction_id`, `prefix` and `content` (binary; wal2json ends it at a zero byte).

    Raises:
        MissingColumns, WrongColumnType: *decoded* is not what `decode` returned.

    Cost: a projection, no shuffle.

    >>> value = b'{"action": "M", "prefix": "tower", "content": "closed", "transactional": false}'
    >>> from cdckit import debezium
    >>> found = debezium.messages(debezium.decode_wal2json(records_of(value)))
    >>> [(row.prefix, bytes(row.content)) for row in found.collect()]
    [('tower', b'closed')]
    """
    require_events(decoded, function="messages")
    good = decoded.where((F.col("kind") == Kind.MESSAGE) & F.col(ERROR_CODE).isNull())
    # Debezium has bytes, in Base64; wal2json text.
    coded = _said("$.payload.message.content", "$.message.content")
    return good.select(
        *("topic", "partition", "offset", "source", "event_timestamp", "position", "transaction_id"),
        _said("$.payload.message.prefix", "$.message.prefix", "$.prefix").alias("prefix"),
        F.coalesce(F.try_to_binary(coded, F.lit("base64")), F.encode(_said("$.content"), "UTF-8")).alias(
            "content"
        ),
    )


def _said(*paths: str) -> Column:
    return F.coalesce(*(F.get_json_object("said", path) for path in paths))
