"""Messages that come again: the same messageId, or the same bytes where there is none to go by."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.parts.schemas import require_batch, require_types
from cdckit.rdss.decoding import DECODED_SCHEMA
from cdckit.rdss.sequences import CAME
from cdckit.rejected import ERROR_CODE

IDENTITY = "identity"
IDENTITY_SCHEMA = T.StructType([T.StructField(IDENTITY, T.StringType())])
"""One row is one message that was received: what makes it the same message again."""

_READ = T.StructType(
    [
        DECODED_SCHEMA[name]
        for name in ("value", "topic", "partition", "offset", "timestamp", "message_id", "sequence_total")
    ]
    + [DECODED_SCHEMA[ERROR_CODE]]
)


def identity() -> Column:
    """
    What makes a row of `decode` the same message again: its `messageId`; of a refused one its bytes, since
    nobody knows whether its id is one.  Null for a part of a longer message, which has a place in a sequence.
    """
    refused = F.col(ERROR_CODE).isNotNull()
    return F.when(refused, digest()).when(F.col("sequence_total") == 1, F.col("message_id"))


def digest() -> Column:
    """What makes a refused message the same again: its bytes."""
    return F.sha2(F.coalesce("value", F.lit(b"")), 256)


def with_repeats(decoded: DataFrame, *, known: DataFrame | None = None) -> DataFrame:
    """
    Say of each message, in the column `is_repeat`, whether it was received before.

    Args:
        decoded: What `decode` returned, or `assembled`.
        known: The messages that were received before *decoded*: one row per message, `identity`; without
            it none.

    Returns:
        The same rows and `is_repeat`: true where the message is among *known*, or stands in *decoded*
        before, by record time, topic, partition and offset.  Such a message is to be discarded.  Parts of
        longer messages never are one here: see `parts`.

    Raises:
        InvalidArgument: *decoded* is a stream.
        MissingColumns, WrongColumnType: *decoded* is not what `decode` returned, or *known* lacks `identity`.

    Cost: a shuffle by identity of *decoded* and of *known*.

    Source:
        RDSS, "Receiving", "Local Data Repository".

    >>> with_repeats(decoded.union(decoded)).groupBy("is_repeat").count().orderBy("is_repeat").show()
    +---------+-----+
    |is_repeat|count|
    +---------+-----+
    |    false|    3|
    |     true|    3|
    +---------+-----+
    <BLANKLINE>
    """
    require_types(decoded, _READ, function="with_repeats")
    require_batch(decoded, "decoded", "decode each batch (foreachBatch)", function="with_repeats")
    arrival = F.struct("timestamp", "topic", "partition", "offset").alias(CAME)
    named = decoded.withColumns({IDENTITY: identity(), CAME: arrival})
    if known is not None:
        require_types(known, IDENTITY_SCHEMA, function="with_repeats")
    return marked(named, known).drop(IDENTITY, CAME)


def marked(named: DataFrame, known: DataFrame | None) -> DataFrame:
    """The rows with `is_repeat`: it has the `identity` of one before it, by `came`, or of one of *known*."""
    # What has no identity is none again: each such row is looked at alone, not all of them by one task.
    same = Window.partitionBy(F.coalesce(IDENTITY, F.to_json(CAME))).orderBy(CAME)
    again = (F.row_number().over(same) > 1) & F.col(IDENTITY).isNotNull()
    placed = named.withColumn("is_repeat", again)
    if known is None:
        return placed
    before = known.select(IDENTITY, F.lit(True).alias("_known")).distinct()
    found = placed.join(before, on=IDENTITY, how="left")
    return found.withColumn("is_repeat", F.col("is_repeat") | F.col("_known").isNotNull()).drop("_known")
