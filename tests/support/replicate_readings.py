"""What the Replicate door reads of some records, kept, so that many tests can look at one job's result."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from cdckit import replicate
from cdckit.replicate.schema_messages import ZONE_SCHEMA
from support.replicate_messages import Record, by_offset, numbered, to_dataframe


@dataclass(frozen=True)
class Reading:
    """Records on their way through the door; the zone is computed once."""

    records: DataFrame
    decoded: DataFrame
    said: DataFrame
    zone: DataFrame

    def rows(self, table: str = "ITEMS", json_topics: Collection[str] = ()) -> DataFrame:
        zone = self.zone.where(self.zone["table"] == table)
        return replicate.data(self.records, zone, json_topics=json_topics)


def read(spark: SparkSession, records: Sequence[Record], *, partitions: int = 1) -> Reading:
    frame = to_dataframe(spark, records, partitions=partitions)
    decoded = replicate.decode(frame)
    said = replicate.metadata(decoded)
    return Reading(frame, decoded, said, settled(replicate.schema_zone(said)))


def settled(zone: DataFrame) -> DataFrame:
    """The same zone, computed."""
    return zone.sparkSession.createDataFrame(zone.collect(), ZONE_SCHEMA)


def rows_of(
    spark: SparkSession,
    versions: Iterable[bytes],
    messages: Iterable[bytes],
    *,
    table: str = "ITEMS",
    json_topics: Collection[str] = (),
) -> list[dict[str, Any]]:
    """The rows of *messages*, in their order, after the metadata messages *versions*."""
    known, told = list(versions), list(messages)
    records = numbered([*known, *told])
    for record in records[: len(known)]:
        record["topic"] = "metadata"
    found = by_offset(read(spark, records).rows(table, json_topics))
    return [found[offset] for offset in range(len(known), len(records))]
