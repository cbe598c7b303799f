"""What every record says: the envelope, the metadata messages, the schema zone, and data that wait for it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from datetime import datetime, timedelta
from functools import partial
from itertools import chain, groupby
from operator import itemgetter
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdckit.model.faults import ERROR_CODE, ERROR_DESCRIPTION, Findings, FoundFault, error_columns
from cdckit.model.forms import RECORDS
from cdckit.model.records import RECORD_COLUMNS, decoded_columns
from cdckit.model.rejected_records import ERROR_FIELDS
from cdckit.parts.argument_forms import DURATION, INSTANT, NAMES, no_stream, one_of, rows_of, takes
from cdckit.parts.arrow_types import spark_columns
from cdckit.parts.workers import WorkerPlan
from cdckit.replicate.envelopes import DATA, ENVELOPE_TYPES, METADATA, ReplicateFault, open_envelopes
from cdckit.replicate.metadata_messages import LINEAGE, METADATA_TYPES, read_metadata
from cdckit.replicate.schema_ids import (
    PLACE_TYPES,
    STATEMENT_TYPES,
    Statement,
    find_conflict,
    message_rows,
    statements,
)
from cdckit.shell.waiting import with_waited

ENVELOPE_SCHEMA = decoded_columns(ENVELOPE_TYPES, *ERROR_FIELDS)
"""One row is one record, and what its envelope says; or why it says nothing."""

METADATA_SCHEMA = decoded_columns(METADATA_TYPES, *ERROR_FIELDS)
"""One row is one metadata message: its record, and the table version that it describes."""

ZONE_SCHEMA = spark_columns(pa.schema(STATEMENT_TYPES.items()))
"""One row is one statement about a schema id: what it stands for, from where and when on that was said,
and the places of all messages that said so (`places`), until another one about the same id and table said
something else.  `other_tables` are those that the same id stands for as well."""

BATCH = no_stream("keep a Feed up: records.writeStream.foreachBatch(feed.sink('a name'))")
ZONE = rows_of(ZONE_SCHEMA, "{} is no schema zone")
_DECODED = rows_of(ENVELOPE_SCHEMA, "{} is not what `decode` returns")
"""What to do with a stream, where all metadata is needed at once."""


@takes(records=RECORDS)
def decode(records: DataFrame, *, skip_metadata: bool = False, skip_data: bool = False) -> DataFrame:
    """
    Open the envelope of every record.

    Args:
        records: One row per transported message (`cdckit.model.RECORD_SCHEMA`).
        skip_metadata: Leave out the messages of type MD.
        skip_data: Leave out the messages of type DT.

    Returns:
        One row per record, in no order: the record's columns, then `form` (`avro` or `json`),
        `type` (`MD` or `DT`), `envelope_headers`, `schema_id` (messageSchemaId), `message_schema`,
        `message` (Avro bytes, or the UTF-8 text of the JSON object), `error_code` and
        `error_description` (null where all is well).  It never fails on data: where an error stands,
        the envelope's columns hold what could be read.

    Cost: one pass through Python in Arrow batches, no shuffle.

    Source:
        Replicate, "The Replicate envelope" and the two decoding scenarios.

    >>> value = b"atMSG" + bytes([4]) + b"DT" + bytes([0, 2, 64]) + b"f" * 32 + bytes([0, 4]) + b"hi"
    >>> decode(records_of(value, b"at", None)).select("type", "schema_id", "message", "error_code").show()
    +----+--------------------+-------+-----------+
    |type|           schema_id|message| error_code|
    +----+--------------------+-------+-----------+
    |  DT|ffffffffffffffff...|[68 69]|       NULL|
    |NULL|                NULL|   NULL|WRONG_MAGIC|
    |NULL|                NULL|   NULL|   NO_VALUE|
    +----+--------------------+-------+-----------+
    <BLANKLINE>
    """
    skipped = frozenset([METADATA] * skip_metadata + [DATA] * skip_data)
    by = partial(_decode_batches, skipped=skipped)
    return WorkerPlan(records.select(*RECORD_COLUMNS), by, ENVELOPE_SCHEMA).rows()


def _decode_batches(
    batches: Iterator[pa.RecordBatch], *, skipped: frozenset[str]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        *parts, findings = open_envelopes(batch.column("value"))
        errors = error_columns(findings, batch.num_rows)
        decoded = pa.RecordBatch.from_arrays([*batch.columns, *parts, *errors], ENVELOPE_SCHEMA.names)
        is_skipped = pc.is_in(decoded.column("type"), pa.array(sorted(skipped), pa.string()))
        yield decoded.filter(pc.invert(is_skipped)) if is_skipped.true_count else decoded


def is_sound(kind: str) -> Column:
    """Tell whether a decoded record is a sound message of a type."""
    return (F.col("type") == kind) & F.col(ERROR_CODE).isNull()


# The schema zone ------------------------------------------------------------------------------------------


@takes(decoded=[_DECODED, BATCH], zone=ZONE.or_none())
def metadata(decoded: DataFrame, *, zone: DataFrame | None = None) -> DataFrame:
    """
    Read the metadata messages: the evidence for the schema zone.

    Args:
        decoded: What `decode` returned; rows that are not MD, or have an error already, are passed over.
        zone: A schema zone from earlier, against which conflicts are found as well.

    Returns:
        One row per metadata message (`METADATA_SCHEMA`): the record's columns, `schema_id`, the
        lineage (`server`, `task`, `schema`, `table`, `table_version`, `lineage_timestamp`),
        `columns`, `data_schema` (Avro, as JSON text), `layout` (the fields of a data message in the
        order of their bytes), `error_code` and `error_description`.  Two messages contradict each
        other only if data messages of one id would decode differently: then the first to arrive
        stands, and the others are in error and say what differs.  Another length of a column,
        another key, version or table under one id is none: see `schema_zone`.

    Cost: one pass through Python over the metadata messages, one small shuffle by schema id.

    Source:
        Replicate, "Decoding a self-describing message" and "Typical consumer logic".

    >>> messages = metadata(decode(records))
    >>> messages.select("task", "table", "table_version", "columns.name", "error_code").show()
    +--------+--------+-------------+---------------+----------+
    |    task|   table|table_version|           name|error_code|
    +--------+--------+-------------+---------------+----------+
    |schedule|AIRLINES|            1|[carrier, name]|      NULL|
    +--------+--------+-------------+---------------+----------+
    <BLANKLINE>
    """
    messages = decoded.where(is_sound(METADATA))
    needed = messages.select(*RECORD_COLUMNS, "form", "message_schema", "message")
    read = WorkerPlan(needed, _metadata_batches, METADATA_SCHEMA).rows()
    word = F.struct("layout", *LINEAGE)
    if zone is None:
        compared = read.withColumn("known", F.when(F.lit(False), word))
    else:
        first = F.min_by(word, F.struct(*PLACE_TYPES)).alias("known")
        earlier = zone.groupBy("schema_id").agg(first)
        compared = read.join(F.broadcast(earlier), on="schema_id", how="left")
    in_order = compared.select(*METADATA_SCHEMA.names, "known").repartition("schema_id")
    in_order = in_order.sortWithinPartitions("schema_id", *PLACE_TYPES)
    return WorkerPlan(in_order, _conflict_batches, METADATA_SCHEMA).rows()


def _metadata_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        contents: list[dict[str, Any]] = []
        findings: Findings = {}
        parts = (batch.column(name).to_pylist() for name in ("form", "message_schema", "message"))
        for row, message in enumerate(zip(*parts, strict=True)):
            try:
                contents.append(read_metadata(*message))
            except FoundFault as unusable:
                contents.append({})
                findings[row] = (unusable.fault, unusable.finding)
        columns = [
            pa.array([row.get(name) for row in contents], kind) for name, kind in METADATA_TYPES.items()
        ]
        record = [batch.column(name) for name in RECORD_COLUMNS]
        errors = error_columns(findings, len(contents))
        yield pa.RecordBatch.from_arrays([*record, *columns, *errors], METADATA_SCHEMA.names)


_COMPARED = ("schema_id", *LINEAGE, "layout", "known", ERROR_CODE)


def _conflict_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Find conflicts among messages that come by schema id, each id's by their places."""
    firsts: dict[str, Statement] = {}
    for batch in batches:
        conflicts = [find_conflict(message, firsts) for message in batch.select(_COMPARED).to_pylist()]
        texts = pa.array(conflicts, pa.string())
        code = pc.if_else(texts.is_valid(), ReplicateFault.SCHEMA_CONFLICT.value, batch.column(ERROR_CODE))
        errors = [code, pc.coalesce(texts, batch.column(ERROR_DESCRIPTION))]
        columns = batch.select(METADATA_SCHEMA.names).columns[: -len(errors)]
        yield pa.RecordBatch.from_arrays([*columns, *errors], METADATA_SCHEMA.names)


@takes(messages=[rows_of(METADATA_SCHEMA, "{} is not what `metadata` returns"), BATCH], zone=ZONE.or_none())
def schema_zone(messages: DataFrame, *, zone: DataFrame | None = None) -> DataFrame:
    """
    Tell what each schema id stands for, as it was said over time.

    Nothing that was said is lost: a data message is read by what was said last about its id before it
    came, and a table is now as its latest metadata message says, whatever number its version has.  So
    a DDL that was taken back, or a table that was made anew, is as the source has it.

    Args:
        messages: What `metadata` returned (with the same *zone*).
        zone: The zone as it was before.  A zone is a small table: save and load it like any other.

    Returns:
        One row per statement (`ZONE_SCHEMA`): what one id stands for in one table, from the first
        message that said so on.  The same said again is the same statement, unless something else was
        said about the id and table in between.

    Cost: one pass through Python over the messages, in one task.

    Source:
        Replicate, "save the data schemas … in a customer defined zone"; nothing says that an id is that
        of one version of a table alone.

    >>> made = schema_zone(metadata(decode(records)))
    >>> made.select("table", "table_version", "timestamp", "other_tables").show()
    +--------+-------------+-------------------+------------+
    |   table|table_version|          timestamp|other_tables|
    +--------+-------------+-------------------+------------+
    |AIRLINES|            1|2013-02-07 04:59:00|          []|
    +--------+-------------+-------------------+------------+
    <BLANKLINE>
    """
    own_alone = F.lit(None).cast(ZONE_SCHEMA["places"].dataType).alias("places")
    evidence = messages.where(F.col(ERROR_CODE).isNull()).select(*METADATA_TYPES, *PLACE_TYPES, own_alone)
    if zone is not None:
        evidence = evidence.unionByName(zone.select(evidence.columns))
    # They are few, and what `metadata` returned was shuffled by their ids already: one task takes all.
    by_id = evidence.coalesce(1).sortWithinPartitions("schema_id")
    return WorkerPlan(by_id, _statement_batches, ZONE_SCHEMA).rows()


def _statement_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    messages = chain.from_iterable(map(message_rows, batches))
    for _, about in groupby(messages, itemgetter("schema_id")):
        yield pa.RecordBatch.from_pylist(list(statements(about)), pa.schema(STATEMENT_TYPES.items()))


# What waits -----------------------------------------------------------------------------------------------

Policy = Literal["keep", "reject", "fail"]

WAIT = timedelta(seconds=10)
"""How long data may wait for their metadata: usually it is milliseconds, and no more than a few seconds."""


@takes(
    decoded=_DECODED,
    zone=ZONE,
    json_topics=NAMES,
    now=INSTANT,
    wait=DURATION,
    overdue=one_of("keep", "reject", "fail"),
)
def waiting(
    decoded: DataFrame,
    zone: DataFrame,
    *,
    now: datetime,
    wait: timedelta = WAIT,
    overdue: Policy = "keep",
    json_topics: Collection[str] = (),
) -> DataFrame:
    """
    The data messages whose schema is not known yet.

    Save their record columns, and feed them again together with what has come since: rows, rejects
    and history are then what the right order would have given, since nothing here depends on when
    a message is read.

    Args:
        decoded: What `decode` returned.
        zone: The whole schema zone, of all tables.
        now: The instant at which waiting is measured, aware: time comes from the caller, not a clock.
        wait: How long a message may wait for its metadata, from its record's `timestamp` on; of a record that
            has none nobody can tell how long it has waited, so it is overdue.
        overdue: The policy for messages that have waited longer: `keep` them waiting; `reject`
            them, with the code METADATA_MISSING; or `fail` the computation when it meets one.
        json_topics: The topics whose messages in JSON form `data` is told the table of.  Those of
            other topics wait: they name no schema.

    Returns:
        One row per waiting message: the record's columns, `schema_id`, `waited` (interval),
        `is_overdue`, `error_code` and `error_description` (null but for the rejected).

    Cost: *decoded*, which is not shuffled, and *zone*, whose ids are made distinct and broadcast.

    Source:
        Replicate, "wait a reasonable amount of time … activate the planned error policy".

    While no metadata has come, all three messages about airlines wait:

    >>> from datetime import datetime, timezone
    >>> now = datetime(2013, 2, 8, 12, 0, 10, tzinfo=timezone.utc)
    >>> late = waiting(decode(records), zone.limit(0), now=now).orderBy("offset")
    >>> late.select("offset", "timestamp", "is_overdue").show(truncate=False)
    +------+-----------------------+----------+
    |offset|timestamp              |is_overdue|
    +------+-----------------------+----------+
    |3     |2013-02-07 05:00:00.413|true      |
    |4     |2013-02-07 05:00:00.459|true      |
    |17    |2013-02-08 12:00:01.247|false     |
    +------+-----------------------+----------+
    <BLANKLINE>
    """
    data = decoded.where(is_sound(DATA))
    # Not an anti join: `fail` is a condition, and Spark would ask it of all data.
    known_ids = zone.select(F.col("schema_id").alias("known_id")).distinct()
    compared = data.join(F.broadcast(known_ids), on=F.col("schema_id") == F.col("known_id"), how="left")
    # An id that a message in JSON form may hold does not help it: it is of no table until its topic is.
    has_table = F.coalesce(F.col("topic").isin(list(json_topics)), F.lit(False))
    waits = F.when(F.col("form") == "json", ~has_table).otherwise(F.col("known_id").isNull())
    waiting_data = compared.withColumn("waits", waits).where("waits")
    waited = with_waited(waiting_data, F.col("timestamp"), now, wait)
    refused = F.col("is_overdue") & F.lit(overdue == "reject")
    described = waited.withColumns(
        {
            ERROR_CODE: F.when(refused, F.lit(ReplicateFault.METADATA_MISSING.value)),
            ERROR_DESCRIPTION: F.when(refused, describe_missing()),
        }
    )
    if overdue == "fail":
        # As a filter, since a column that nobody reads is never computed.
        code = F.lit(f"{ReplicateFault.METADATA_MISSING.value}: ")
        failure = F.raise_error(F.concat(code, describe_missing())).cast("boolean")
        fails = F.col("waits") & F.col("is_overdue")
        described = described.where(F.when(fails, failure).otherwise(True))
    return described.select(
        *RECORD_COLUMNS, "schema_id", "waited", "is_overdue", ERROR_CODE, ERROR_DESCRIPTION
    )


def describe_missing() -> Column:
    """The description of data that are given up: which schema id they name, and where they stand."""
    finding = F.format_string(
        " Schema id %s, in %s/%d at %d.",
        F.coalesce("schema_id", F.lit("none")),
        F.col("topic"),
        F.col("partition"),
        F.col("offset"),
    )
    return F.concat(F.lit(ReplicateFault.METADATA_MISSING.sentence), finding)
