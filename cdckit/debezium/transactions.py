"""Transactions: whether all events of each came, by the counts that a connector sends when one ends."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdckit.debezium.decoding import EVENTS
from cdckit.debezium.events import OF_ROWS, TRUNCATE, Kind
from cdckit.model.frontiers import find_missing_positions
from cdckit.parts.argument_forms import no_stream, takes

_TABLE = ("source", "transaction_id", "collection")
_COLLECTIONS = "array<struct<data_collection string, event_count bigint>>"


@takes(decoded=[EVENTS, no_stream("take what a table keeps of it")])
def find_missing_events(decoded: DataFrame) -> DataFrame:
    """
    Find the events of transactions that did not come.

    A connector that is told so (`provide.transaction.metadata`) numbers the events of a transaction table by
    table, and says at its end how many there were of each.

    Args:
        decoded: What `decode` returned of a JSON feed: the topic of transactions, which is named
            `<source>.transaction` unless it was set otherwise, and topics of rows.  A table of which there is
            no event at all is taken for one that is not read.  Rejects belong to it: they came.

    Returns:
        One row per gap, in no order: `source`, `transaction_id`, `collection` (the table, with its schema or
        database before it), `first_position` and `last_position`, the numbers of the missing events, both
        inclusive.  Of a transaction without an end, only what is missing between others; of one that is
        missing whole, end included, the offsets of its topic tell (`cdckit.model.find_frontiers`).

    Cost: one shuffle of two numbers per event, and a join of these with themselves.  *decoded* is looked at
    three times: keep it (`decoded.cache()`, or a table), or it is decoded as often.

    Source:
        Debezium, "Transaction metadata".

    >>> from cdckit import debezium
    >>> row = '{"op":"c","after":{"id":1},"source":{"connector":"postgresql","name":"shop","db":"shop",%s'
    >>> row %= '"schema":"s","table":"a"},"transaction":{"id":"5","data_collection_order":2}}'
    >>> end = '{"status":"END","id":"5","event_count":3,"data_collections":'
    >>> end += '[{"data_collection":"s.a","event_count":3}],"ts_ms":1704099600000}'
    >>> decoded = debezium.decode(records_of(row.encode(), end.encode())).localCheckpoint()
    >>> named = F.when(F.col("offset") == 1, "shop.transaction").otherwise("shop.s.a")
    >>> debezium.find_missing_events(decoded.withColumn("topic", named)).orderBy("first_position").show()
    +------+--------------+----------+--------------+-------------+
    |source|transaction_id|collection|first_position|last_position|
    +------+--------------+----------+--------------+-------------+
    |  shop|             5|       s.a|             1|            1|
    |  shop|             5|       s.a|             3|            3|
    +------+--------------+----------+--------------+-------------+
    <BLANKLINE>
    """
    seen, ends = _numbered_events(decoded).select(*_TABLE, "number"), _ends(decoded)
    read = seen.select("source", "collection").distinct()
    counted = ends.select(
        "source", "transaction_id", F.inline(F.from_json(_of_end("data_collections"), _COLLECTIONS))
    ).select(
        *_TABLE[:2],
        F.substring_index("data_collection", ".", -2).alias("collection"),
        # What stands on both sides of a transaction, so that what is missing at its ends is a gap, too.
        F.explode(F.array(F.lit(0).cast("bigint"), F.col("event_count") + 1)).alias("number"),
    )
    numbers = seen.unionByName(counted.join(read, ["source", "collection"], "left_semi"))
    return find_missing_positions(numbers, stream=_TABLE, position="number")


@takes()
def find_frontiers(decoded: DataFrame) -> DataFrame:
    """
    Find until when the transactions of each source have come whole.

    Args:
        decoded: As for `find_missing_events`.

    Returns:
        One row per source that tells its transactions, in no order: `source`; `complete_until_timestamp`,
        the end of the last transaction before the first that is incomplete, null where none is before it;
        `incomplete`, how many are: they lack an event, or their end did not come and that of a later one
        did.  Later is what stands behind it in the log, by its events' `position`; of an end without events,
        and of a connector without positions, what says a time that is not earlier.  The last transactions,
        whose ends may still come, are not counted; nor is one of which nothing came at all: of that the
        offsets of the topic of transactions tell (`cdckit.model.find_frontiers`).
        Heartbeats count for nothing: they say when a connector was alive, not how far it had read.

    Raises:
        MissingColumns, WrongColumnType, InvalidArgument: As `find_missing_events`.

    Cost: as `find_missing_events`, and joins of the transactions, which are kept by the executors for that.

    >>> from cdckit import debezium
    >>> end = b'{"status":"END","id":"5","event_count":0,"data_collections":[],"ts_ms":1704099600000}'
    >>> decoded = debezium.decode(records_of(end)).withColumn("topic", F.lit("shop.transaction"))
    >>> debezium.find_frontiers(decoded).show()
    +------+------------------------+----------+
    |source|complete_until_timestamp|incomplete|
    +------+------------------------+----------+
    |  shop|     2024-01-01 09:00:00|         0|
    +------+------------------------+----------+
    <BLANKLINE>
    """
    # The joins look at them four times, and each time at all events.
    transactions = _find_incomplete(_transactions(decoded).localCheckpoint(eager=False))
    incomplete = F.col("incomplete")
    # An end that was lost is not before the first event; where no time is said, nothing is before it.
    instant = F.coalesce("ended", "begun", F.lit(_NEVER).cast("timestamp_ltz"))
    firsts = transactions.groupBy("source").agg(
        F.min(F.when(incomplete, instant)).alias("first"),
        F.min(F.when(incomplete, F.col("place"))).alias("first_place"),
        F.count_if(incomplete).alias("count"),
    )
    is_ahead = F.coalesce(F.col("place") < F.col("first_place"), F.lit(True))
    is_whole = F.col("first").isNull() | (F.col("ended") < F.col("first")) & is_ahead
    until = F.max(F.when(is_whole, F.col("ended"))).alias("complete_until_timestamp")
    return (
        transactions.join(firsts, "source").groupBy("source").agg(until, F.first("count").alias("incomplete"))
    )


_NEVER = "0001-01-02 00:00:00Z"


def _transactions(decoded: DataFrame) -> DataFrame:
    """Each transaction: when it `ended`, since when and where its events are, whether it `lacks` some."""
    missing = find_missing_events(decoded).select(*_TABLE[:2]).distinct().withColumn("lacks", F.lit(True))
    ends = _ends(decoded).groupBy(*_TABLE[:2]).agg(F.min("event_timestamp").alias("ended"))
    begun = F.min(F.when(F.col("time_taken_from") == "source", F.col("event_timestamp")))
    events = _numbered_events(decoded).groupBy(*_TABLE[:2])
    places = events.agg(F.min("position").alias("place"), begun.alias("begun"))
    return ends.join(places, [*_TABLE[:2]], "full").join(missing, [*_TABLE[:2]], "left")


def _find_incomplete(transactions: DataFrame) -> DataFrame:
    """The transactions of sources that tell ends, with `incomplete`: what lacks an event, or lost its end."""
    has_end, has_place = F.col("ended").isNotNull(), F.col("place").isNotNull()
    lasts = transactions.where(has_end).groupBy("source")
    last = lasts.agg(
        F.max("place").alias("last_place"),
        F.max("ended").alias("last_end"),
        F.max(F.when(~has_place, F.col("ended"))).alias("last_end_without_place"),
    )
    is_followed = F.coalesce(F.col("place") < F.col("last_place"), F.col("begun") <= F.col("last_end"))
    is_followed |= F.coalesce(F.col("begun") <= F.col("last_end_without_place"), F.lit(False))
    # Of which neither time nor place is said may be anywhere.
    incomplete = F.when(has_end, F.col("lacks").isNotNull()).otherwise(F.coalesce(is_followed, F.lit(True)))
    return transactions.join(last, "source").withColumn("incomplete", incomplete)


def _numbered_events(decoded: DataFrame) -> DataFrame:
    """Each event of a row, or truncate, that tells its number in its table's part of a transaction."""
    of_rows = decoded.where(F.col("operation").isin(*OF_ROWS, TRUNCATE))
    path = "transaction.data_collection_order"
    number = F.coalesce(*(F.get_json_object(_text_of_value(), f"$.{at}{path}") for at in ("payload.", "")))
    table = F.concat_ws(".", F.coalesce("schema", "db"), "table")
    return of_rows.select(
        *_TABLE[:2],
        F.substring_index(table, ".", -2).alias("collection"),
        number.try_cast("bigint").alias("number"),
        *("position", "event_timestamp", "time_taken_from"),
    ).where(F.col("number").isNotNull())


def _text_of_value() -> Column:
    return F.try_validate_utf8(F.col("value").cast("string"))


def _ends(decoded: DataFrame) -> DataFrame:
    """The ends of transactions, of the source that their topic names."""
    is_end = (F.col("kind") == Kind.TRANSACTION) & (_of_end("status") == "END")
    return decoded.where(is_end).withColumn("source", F.regexp_replace("topic", r"\.transaction$", ""))


def _of_end(name: str) -> Column:
    return F.coalesce(*(F.get_json_object("said", f"$.{at}{name}") for at in ("payload.", "")))
