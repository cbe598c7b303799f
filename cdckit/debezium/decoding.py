"""What every record of a captured database says, in the same columns whoever produced it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdckit.debezium.envelopes import read_records
from cdckit.debezium.events import EVENT_TYPES, READ_COLUMNS, Kind, Reader, event_batch
from cdckit.debezium.other_producers import read_maxwell, read_wal2json
from cdckit.model.faults import ERROR_CODE
from cdckit.model.forms import RECORDS
from cdckit.model.records import RECORD_COLUMNS, decoded_columns
from cdckit.parts.argument_forms import rows_of, takes
from cdckit.parts.arguments import quoted
from cdckit.parts.arrow_types import spark_columns
from cdckit.parts.workers import map_columns, without_garbage_collection

EVENT_SCHEMA = decoded_columns(EVENT_TYPES)
"""One row is one record, and what it says of the database; or why it says nothing.

- `form`: `json`; `kind`: see `Kind`; `connector`: the kind of database, in Debezium's words;
- `source`: the name of the source; `db`, `schema`, `table`: whose row it is;
- `operation`: c, u, d, r, t or m, of any producer; `snapshot`: whether a snapshot read it, as the producer
  says (`true`, `first`, `last`, `incremental`, …; `false` or null in the stream);
- `event_timestamp`: when it was so at the source, and `time_taken_from`: `source`; `event`, when the
  producer handled it; or `record`;
- `position`: the place in the source's own order, text that sorts; null where the source has none, or says
  one that says nothing, such as an LSN of 0;
- `transaction_id`: which transaction; of PostgreSQL its number, without the LSN that Debezium puts behind it;
- `row_key`, `before`, `after`: column by column the text of the JSON value, null for null.  What is not
  in a map was not sent;
- `types`: by column what the record says of its type, of an array, a map or a struct its schema as JSON;
  empty or null if it says nothing;
- `new_key`, `old_key`: where the row went to, or came from, when its key changed (JSON);
- `said`: the value as text, where it is not about a row."""

EVENTS = rows_of(EVENT_SCHEMA, "{} is not what `decode` returned")


def by_batch(
    batches: Iterable[pa.RecordBatch], work: Callable[[pa.RecordBatch], pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Let *work* read each batch."""
    for batch in batches:
        with without_garbage_collection():
            made = work(batch)
        yield made


def decoded_by(records: DataFrame, reader: Reader) -> DataFrame:
    """
    Records with what they say beside them, and a note of how they are read, for who makes more of it at once.

    Spark puts what a column is made of wherever a filter reads it.  It does not for what is exploded; and
    filters that do not read it go on to the records, and to their files.
    """
    kind = spark_columns(pa.schema(EVENT_TYPES.items()))
    work = partial(event_batch, reader=reader)
    read = map_columns([*READ_COLUMNS[:-1], _HEADERS], partial(by_batch, work=work), kind, pure=True)
    # For each row Spark looks back for the last list that was not null; an empty one is no different here.
    sent = records.selectExpr(*RECORD_COLUMNS, f"coalesce(headers, array()) AS {quoted(_HEADERS)}")
    decoded = sent.withColumn("read", F.explode(F.array(read))).selectExpr(*RECORD_COLUMNS, "read.*")
    vars(decoded)[_READ_BY] = (records, reader)
    return decoded


_HEADERS = "headers, none for null"
_READ_BY = "_cdckit_read_by"


def read_by(decoded: DataFrame) -> tuple[DataFrame, Reader] | None:
    """The records that *decoded* was made of, and how, if nothing else was done to it since."""
    note: tuple[DataFrame, Reader] | None = vars(decoded).get(_READ_BY)
    return note


@takes(records=RECORDS)
def decode(records: DataFrame) -> DataFrame:
    """
    Decode every record of Debezium's topics: changes of rows, and all that lies beside them.

    Args:
        records: One row per transported message (`cdckit.model.RECORD_SCHEMA`): of one topic or of many,
            of one table or of many.  Values and keys are JSON, with or without the schema beside the
            payload; those in Avro are in error (`NOT_JSON`): see `decode_avro`.  A row that
            `ExtractNewRecordState` took out of its envelope is no event (`UNWRAPPED`, with the call of
            `changes_from` that reads it; `NOT_AN_EVENT` where no field of its own tells), nor is a
            CloudEvent (`NOT_AN_EVENT`).  The cells of YugabyteDB's rows are read, by either connector; those
            of Cassandra's, and of others, are not (`OTHER_ENVELOPE`).  What an update of Spanner did not
            modify is null before and after, so it was not sent; where its change stream captures
            `NEW_VALUES` alone, an update with such a null is in error (`OTHER_ENVELOPE`).

    Returns:
        One row per record, in no order, in the columns of `EVENT_SCHEMA`.  It never fails on data.

    Cost: one pass through Python in Arrow batches; no shuffle.

    Source:
        Debezium, the reference pages of its connectors, "Data change events".

    >>> from cdckit import debezium
    >>> value = b'{"op": "t", "ts_ms": 1, "source": {"connector": "postgresql", "table": "products"}}'
    >>> found = debezium.decode(records_of(value, b'{"op": "x"}', None))
    >>> found.orderBy("offset").select("kind", "table", "operation", "error_code").show()
    +---------+--------+---------+-----------------+
    |     kind|   table|operation|       error_code|
    +---------+--------+---------+-----------------+
    | truncate|products|        t|             NULL|
    |     NULL|    NULL|        x|UNKNOWN_OPERATION|
    |tombstone|    NULL|     NULL|             NULL|
    +---------+--------+---------+-----------------+
    <BLANKLINE>
    """
    return decoded_by(records, read_records)


@takes(records=RECORDS)
def decode_maxwell(records: DataFrame) -> DataFrame:
    """
    Decode every record of Maxwell, in the columns of `decode`.

    A row that is updated is sent whole, and in `old` what its changed columns were, the key among them: a
    column that only `old` has became null (Maxwell's option `output_nulls=false` leaves nulls out).  A value
    has the type that JSON has, so nothing is said of the columns' types: give them to `changes`.  Decimals
    are JSON numbers, which keep their digits.

    Args:
        records: One row per transported message (`cdckit.model.RECORD_SCHEMA`).

    Returns:
        One row per record, in the columns of `EVENT_SCHEMA`: `operation` in Debezium's letters, of a
        bootstrap's row r; the start and the end of a bootstrap are of the kind `heartbeat`, DDL is of the
        kind `schema_change`.  `event_timestamp` has whole seconds, so `position` decides within one: the
        place in the binlog (of Maxwell's option `output_binlog_position`) and the row in its
        transaction (`output_xoffset`; the last one says no number).  Another server counts its places
        anew: after a failover, read its records as another `source`, or leave the option out.  It never
        fails on data.

    Cost: as `decode`.

    Source:
        Maxwell's Daemon, "Data Format" and "Bootstrapping".

    >>> value = b'{"type": "delete", "table": "products", "ts": 1709294400, "data": {"id": 1}}'
    >>> found = decode_maxwell(records_of(value, b'{"type": "table-drop", "ts": 1709294400000}'))
    >>> found.orderBy("offset").select("kind", "operation", "table", "event_timestamp", "before").show()
    +-------------+---------+--------+-------------------+---------+
    |         kind|operation|   table|    event_timestamp|   before|
    +-------------+---------+--------+-------------------+---------+
    |          row|        d|products|2024-03-01 12:00:00|{id -> 1}|
    |schema_change|     NULL|    NULL|2024-03-01 12:00:00|     NULL|
    +-------------+---------+--------+-------------------+---------+
    <BLANKLINE>
    """
    return decoded_by(records, read_maxwell)


@takes(records=RECORDS)
def decode_wal2json(records: DataFrame) -> DataFrame:
    """
    Decode every record of wal2json, in the columns of `decode`.

    A record is one JSON object of format version 2.  A value that was not sent is one that did not change.
    Say `include-timestamp`, `include-lsn` and `include-xids` to the plugin: without the first, times are
    those of the records; without the second, their order is that of arrival.  A `numeric` is a JSON number,
    which keeps its digits; for NaN and the infinities the plugin writes null, unless it knows the option
    `numeric-data-types-as-string` and is told to.

    Args:
        records: One row per transported message (`cdckit.model.RECORD_SCHEMA`).

    Returns:
        One row per record, in the columns of `EVENT_SCHEMA`: `operation` in Debezium's letters; begin and
        commit are of the kind `transaction`; `event_timestamp` is the time of the commit; `position` the
        LSN, which sorts the changes of one row, while concurrent transactions interleave; `types` are
        PostgreSQL's.  It never fails on data; an object of format 1 is in error.

    Cost: as `decode`.

    Source:
        wal2json, "Parameters", and its examples of format version 2.

    >>> value = b'{"action": "T", "timestamp": "2024-03-01 12:00:00+00", "lsn": "0/2A", "table": "products"}'
    >>> found = decode_wal2json(records_of(value, b'{"change": []}')).orderBy("offset")
    >>> found.select("operation", "table", "event_timestamp", "position", "error_code").show()
    +---------+--------+-------------------+-----------------+------------+
    |operation|   table|    event_timestamp|         position|  error_code|
    +---------+--------+-------------------+-----------------+------------+
    |        t|products|2024-03-01 12:00:00|00000000/0000002A|        NULL|
    |     NULL|    NULL|               NULL|             NULL|NOT_AN_EVENT|
    +---------+--------+-------------------+-----------------+------------+
    <BLANKLINE>
    """
    return decoded_by(records, read_wal2json)


@takes(decoded=EVENTS)
def messages(decoded: DataFrame) -> DataFrame:
    """
    The messages of logical decoding: what programs wrote with `pg_logical_emit_message`.

    Args:
        decoded: What `decode` or `decode_wal2json` returned.

    Returns:
        One row per message: `topic`, `partition`, `offset`, `source`, `event_timestamp`, `position`,
        `transaction_id`, `prefix` and `content` (binary; wal2json ends it at a zero byte).

    Cost: a projection, no shuffle.

    >>> value = b'{"action": "M", "prefix": "tower", "content": "closed", "transactional": false}'
    >>> from cdckit import debezium
    >>> found = debezium.messages(debezium.decode_wal2json(records_of(value)))
    >>> [(row.prefix, bytes(row.content)) for row in found.collect()]
    [('tower', b'closed')]
    """
    good = decoded.where((F.col("kind") == Kind.MESSAGE) & F.col(ERROR_CODE).isNull())
    # Debezium has bytes, in Base64; wal2json text.
    coded = _json_value("$.payload.message.content", "$.message.content")
    return good.select(
        *("topic", "partition", "offset", "source", "event_timestamp", "position", "transaction_id"),
        _json_value("$.payload.message.prefix", "$.message.prefix", "$.prefix").alias("prefix"),
        F.coalesce(
            F.try_to_binary(coded, F.lit("base64")), F.encode(_json_value("$.content"), "UTF-8")
        ).alias("content"),
    )


def _json_value(*paths: str) -> Column:
    return F.coalesce(*(F.get_json_object("said", path) for path in paths))
