"""The rows of one table, typed, as a DataFrame."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from functools import partial
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument
from cdckit.model.forms import RECORDS
from cdckit.model.records import RECORD_COLUMNS, decoded_columns
from cdckit.parts.argument_forms import NAMES, Form, takes
from cdckit.parts.arguments import require_instant
from cdckit.parts.arrow_types import spark_columns
from cdckit.parts.workers import WorkerPlan
from cdckit.replicate.data_messages import Reading, read_messages
from cdckit.replicate.decoding import ZONE
from cdckit.replicate.envelopes import PLAIN_START, SCHEMA_ID_BYTES
from cdckit.replicate.message_rules import LOADED_AT, row_types
from cdckit.replicate.metadata_messages import LINEAGE
from cdckit.replicate.schema_ids import SAID_AT_TYPES, Statement
from cdckit.replicate.table_versions import Table, make_table


@takes(zone=ZONE)
def keys(zone: DataFrame) -> list[str]:
    """
    The key columns of the one table that *zone* speaks of, by their position in the key.

    Args:
        zone: The part of a schema zone (`ZONE_SCHEMA`) that is about one table.  Its latest metadata
            message counts.  Where an older version has none of the columns of that key, the columns of
            its own follow, so that its rows have a key as well.

    Returns:
        Column names; empty for a table without a key, whose key the caller has to name.

    Raises:
        InvalidArgument: *zone* is empty or about several tables.

    Cost: collects the zone's rows.

    Source:
        Replicate, primaryKeyPosition (0 = not in the key).

    >>> keys(zone)
    ['carrier']
    """
    return list(make_table(collect_zone(zone)).keys)


def collect_zone(zone: DataFrame) -> list[Statement]:
    """The rows of *zone*, their instants as microseconds, which the local zone cannot make ambiguous."""
    places = F.col("places").cast(_PLACES_IN_SECONDS)
    rows = zone.withColumns({"timestamp": F.unix_micros("timestamp"), "places": places}).collect()
    statements: list[Statement] = [row.asDict(recursive=True) for row in rows]
    for place in chain.from_iterable(statement["places"] for statement in statements):
        seconds = place["timestamp"]
        place["timestamp"] = None if seconds is None else int(seconds.scaleb(6))
    return statements


# A cast, unlike a function of each element, needs no job where the zone is in the plan already.
_PLACES_IN_SECONDS = T.ArrayType(
    T.StructType(
        [
            T.StructField(field.name, T.DecimalType(20, 6) if field.name == "timestamp" else field.dataType)
            for field in spark_columns(pa.schema(SAID_AT_TYPES.items()))
        ]
    )
)


def _check_load_time(loaded_at: Any, argument: str) -> Any:
    is_instant = isinstance(loaded_at, datetime) and loaded_at.utcoffset() is not None
    if not (loaded_at is None or isinstance(loaded_at, Column) or is_instant):
        raise InvalidArgument(None, argument, "an aware datetime, or a column of the records", loaded_at)
    return loaded_at


LOAD_TIME = Form(_check_load_time, "InvalidArgument: {} is naive, or no instant")


@takes(records=RECORDS, json_topics=NAMES, topics=NAMES, loaded_at=LOAD_TIME, zone=ZONE)
def data(
    records: DataFrame,
    zone: DataFrame,
    *,
    json_topics: Collection[str] = (),
    topics: Collection[str] | None = None,
    loaded_at: datetime | Column | None = None,
) -> DataFrame:
    """
    The data messages of one table, as typed rows.

    Args:
        records: One row per transported message (`cdckit.model.RECORD_SCHEMA`), of any topics.
        zone: The part of the schema zone that is about one table:
            `zone.where("server = 'ny1' and task = 'orders' and table = 'ITEMS'")`.
        json_topics:
            The topics whose messages in JSON form are of this table: unlike those in Avro form,
            they do not say so themselves.  Columns may go by the source's names or the data schema's, in
            letters of any case where that leaves one column; a message that names what no version of the
            table has is a reject.  They do not name their version either: that is the one of which the
            metadata said last before they came.
        topics:
            The topics whose messages in Avro form are looked at; all without it.  Needed where a schema
            id of the table is that of another table too, such as the same table on another server.
        loaded_at:
            From when on the rows of a full load are true if their messages do not say so, as those of
            real producers do not: an instant, if the table was loaded once.  For several loads, a column made
            of the records' `topic`, `partition`, `offset` and `timestamp`: as of the first load, what the
            second one says would be covered by the changes between them.  Without it, their records'
            `timestamp`: then a copy of such a row that the broker took later says it again for that later
            time.  A change of the row that comes after it in the topic and happened earlier counts after it
            all the same.

    Returns:
        One row per message of type DT that is of this table: in Avro form, by its schema id; in
        JSON form, by its topic.  Every other record has its row elsewhere (`decode`, `metadata`,
        `waiting`, another table).

        - the columns of the record; `key`, `value` and `headers` only where there is an error, or where
          a column of its key, or of the table's, was not sent, or changed and what it was is not said;
        - `schema_id`, `server`, `task`, `schema`, `table`, `table_version`;
        - `key_columns`: the key of that version; `absent_columns`: the columns of `data` that it does
          not have, which are null and not sent;
        - `operation` (INSERT, UPDATE, DELETE, REFRESH), `change_sequence`, `change_timestamp`,
          `time_taken_from` (where that time is from: `change`, the message itself; `sequence`, its
          change sequence; `record`; or `given`, *loaded_at*), `stream_position`, `transaction_id`,
          `transaction_event_counter`, `transaction_last_event`;
        - `data`: a struct of the columns of all versions, the newest version's first, under the names
          that the data schema has for them; text where two versions have numbers that no exact type holds
          (such as long and double).  On a DELETE it is the deleted row, whichever of the two
          places it was sent in.  A key column that was renamed is there under both names;
        - `before`: the row as it was, null where it was not sent; a column of the key that beforeData lacks
          is as in `data`, unless the mask says that it changed;
        - `sent`: a struct of booleans: whether the message held that column (from columnMask;
          without a mask, in Avro form every column of the message's version, in JSON form those that
          the object names).  `data` says nothing of the rest;
        - `changed`: likewise, whether the value changed (from changeMask; null without one);
        - `error_code`, `error_description`: null where all is well.

    Raises:
        InvalidArgument: *zone* is empty or about several tables; or a schema id of the table is that of
            another one too and no *topics* are given.

    Cost: one pass through Python in Arrow batches, no shuffle.  Collects *zone* when called: one that was
    neither saved nor cached is computed from its records each time, here and in `keys`.

    Source:
        Replicate, "Decoding a message by referenced schema ID".

    >>> rows = data(records, zone).orderBy("offset")
    >>> rows.select("offset", "operation", "data.*").show(truncate=False)
    +------+---------+-------+----------------------------+
    |offset|operation|carrier|name                        |
    +------+---------+-------+----------------------------+
    |3     |REFRESH  |MQ     |American Eagle Airlines Inc.|
    |4     |REFRESH  |AA     |American Airlines Inc.      |
    |17    |UPDATE   |MQ     |Envoy Air                   |
    +------+---------+-------+----------------------------+
    <BLANKLINE>
    """
    table = make_table(collect_zone(zone))
    return rows_of_table(records, table, json_topics=json_topics, topics=topics, loaded_at=loaded_at)


def rows_of_table(
    records: DataFrame,
    table: Table,
    *,
    json_topics: Collection[str] = (),
    topics: Collection[str] | None = None,
    loaded_at: datetime | Column | None = None,
    unreadable: bool = False,
    keys: Collection[str] = (),
) -> DataFrame:
    """
    Read `data` of a table whose zone has been read.

    With *unreadable* also the records that hold no envelope, so that nobody knows of which table they are;
    *keys* are as of a `Reading`.
    """
    if topics is None and table.shared:
        shared, others = next(iter(table.shared.items()))
        needed = f"those of {table.name}: its schema id {shared} is also that of {', '.join(others[:10])}"
        raise InvalidArgument(None, "topics", needed, topics)
    # What begins like a message of another table may still be no envelope.
    chosen = records if unreadable else records.where(_may_be_of(table))
    if topics is not None:
        chosen = chosen.where(F.col("topic").isin([*topics, *json_topics]))
    columns = [F.col(name) for name in RECORD_COLUMNS]
    if isinstance(loaded_at, Column):
        columns.append(loaded_at.cast("timestamp_ltz").alias(LOADED_AT))
    elif loaded_at is not None:
        columns.append(require_instant(loaded_at, "loaded_at").alias(LOADED_AT))
    reading = Reading(table, tuple(json_topics), None if topics is None else tuple(topics), unreadable, keys)
    read = partial(read_messages, reading=reading)
    rows = WorkerPlan(chosen.select(*columns), read, decoded_columns(row_types(table))).rows()
    return _with_version(rows, table)


def _may_be_of(table: Table) -> Column:
    """
    False for the values that are no sound message of the table: it saves them the way through Python.

    A data message without application headers begins with the magic, its type, no headers, and a
    schema id of 32 bytes; what begins otherwise is left for the real reader to judge.
    """
    plain = F.substring("value", 1, len(PLAIN_START)) == F.lit(PLAIN_START)
    schema_id = F.substring("value", len(PLAIN_START) + 1, SCHEMA_ID_BYTES)
    other = ~schema_id.isin([version.schema_id.encode() for version in table.versions])
    return F.coalesce(~(plain & other), F.lit(True))


def _with_version(rows: DataFrame, table: Table) -> DataFrame:
    """Put in the place of `version`, which is one of *table*'s, what that version is called."""

    def of_version(values: Iterable[Any], kind: str) -> Column:
        return F.element_at(F.array(*(F.lit(value).cast(kind) for value in values)), F.col("version") + 1)

    lineage = zip(LINEAGE, (table.server, table.task, table.schema, table.name), strict=True)
    versions = table.versions
    of_row = [name for name in row_types(table) if name != "version"]
    return rows.select(
        *RECORD_COLUMNS,
        of_version((version.schema_id for version in versions), "string").alias("schema_id"),
        *(F.lit(part).alias(name) for name, part in lineage),
        of_version((version.number for version in versions), "int").alias("table_version"),
        of_version((list(version.keys) for version in versions), "array<string>").alias("key_columns"),
        of_version(map(table.absent, versions), "array<string>").alias("absent_columns"),
        *of_row,
    )
