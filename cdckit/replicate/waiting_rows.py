"""Rows that wait: data that came before its metadata, and how long it has waited."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdckit.errors import InvalidArgument
from cdckit.parts.schemas import require_types
from cdckit.records import RECORD_COLUMNS
from cdckit.rejected import ERROR_CODE, ERROR_DESCRIPTION
from cdckit.replicate.envelope import DATA, ENVELOPE_SCHEMA
from cdckit.replicate.faults import ReplicateFault
from cdckit.replicate.schema_messages import ZONE_SCHEMA

Policy = Literal["keep", "reject", "fail"]

_OVERDUE = ReplicateFault.METADATA_MISSING


def waiting(
    decoded: DataFrame,
    zone: DataFrame,
    *,
    now: datetime,
    wait: timedelta = timedelta(seconds=10),
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
        wait: How long a message may wait for its metadata, from its record's `timestamp` on.
        overdue: The policy for messages that have waited longer: `keep` them waiting; `reject`
            them, with the code METADATA_MISSING; or `fail` the computation when it meets one.
        json_topics: The topics whose messages in JSON form `data` is told the table of.  Those of
            other topics wait: they name no schema.

    Returns:
        One row per waiting message: the record's columns, `schema_id`, `waited` (interval),
        `is_overdue`, `error_code` and `error_description` (null but for the rejected).

    Raises:
        InvalidArgument: *now* is naive, or *overdue* is no policy.
        MissingColumns, WrongColumnType: *decoded* or *zone* has other columns.

    Cost: *decoded*, which is not shuffled, and *zone*, whose ids are made distinct and broadcast.

    Source:
        Replicate, "wait a reasonable amount of time … activate the planned error policy".

    While no metadata has come, all three messages about airlines wait:

    >>> from datetime import datetime, timezone
    >>> from cdckit.replicate import decode
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
    require_types(decoded, ENVELOPE_SCHEMA, function="waiting")
    require_types(zone, ZONE_SCHEMA, function="waiting")
    if isinstance(json_topics, str):
        raise InvalidArgument("waiting", "json_topics", "a collection of topics", json_topics)
    if not isinstance(now, datetime) or now.utcoffset() is None:
        raise InvalidArgument("waiting", "now", "an aware datetime", now)
    if overdue not in ("keep", "reject", "fail"):
        raise InvalidArgument("waiting", "overdue", "'keep', 'reject' or 'fail'", overdue)
    data = decoded.where((F.col("type") == DATA) & F.col(ERROR_CODE).isNull())
    found = with_waits(data, zone, json_topics).where("waits")
    waited = found.withColumn("waited", F.lit(now) - F.col("timestamp")).withColumn(
        "is_overdue", F.col("waited") > F.lit(wait)
    )
    refused = F.col("is_overdue") & F.lit(overdue == "reject")
    described = waited.withColumns(
        {
            ERROR_CODE: F.when(refused, F.lit(_OVERDUE.value)),
            ERROR_DESCRIPTION: F.when(refused, F.concat(F.lit(_OVERDUE.sentence), _finding())),
        }
    )
    if overdue == "fail":
        # As a filter, since a column that nobody reads is never computed.
        failure = F.raise_error(F.concat(F.lit(f"{_OVERDUE.value}: {_OVERDUE.sentence}"), _finding()))
        fails = F.col("waits") & F.col("is_overdue")
        described = described.where(F.when(fails, failure.cast("boolean")).otherwise(True))
    return described.select(
        *RECORD_COLUMNS, "schema_id", "waited", "is_overdue", ERROR_CODE, ERROR_DESCRIPTION
    )


def with_waits(data: DataFrame, zone: DataFrame, json_topics: Collection[str]) -> DataFrame:
    """
    Say of data messages, in the column `waits`, whether what they need to be read is not there yet.

    In Avro form that is a statement about their schema id; in JSON form, which names no schema, that the
    table of their topic has been told: an id that such a message may hold does not help it.
    """
    is_json = F.col("form") == "json"
    has_table = F.coalesce(F.col("topic").isin(list(json_topics)), F.lit(False))
    # Not an anti join: `waiting` may fail by a condition, and Spark would ask it of all data.
    known = zone.select(F.col("schema_id").alias("known")).distinct()
    found = data.join(F.broadcast(known), on=F.col("schema_id") == F.col("known"), how="left")
    waits = F.when(is_json, ~has_table).otherwise(F.col("known").isNull())
    return found.withColumn("waits", waits).drop("known")


def _finding() -> Column:
    return F.format_string(
        " Schema id %s, in %s/%d at %d.",
        F.coalesce("schema_id", F.lit("none")),
        F.col("topic"),
        F.col("partition"),
        F.col("offset"),
    )
