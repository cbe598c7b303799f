"""What the Replicate door reads of some records, kept, so that many tests can look at one job's result."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from cdckit import replicate
from cdckit.replicate.data_messages import Reading as TableReading
from cdckit.replicate.data_messages import read_messages
from cdckit.replicate.decoding import ZONE_SCHEMA
from cdckit.replicate.envelopes import METADATA, open_envelopes
from cdckit.replicate.metadata_messages import read_metadata
from cdckit.replicate.schema_ids import PLACE_TYPES, message_rows, statements
from cdckit.replicate.table_versions import make_table
from support.replicate_messages import RECORD_SCHEMA, Record, numbered, to_dataframe


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


def read_home(
    records: Sequence[Record], table: str = "ITEMS", **reading: Any
) -> tuple[list[dict[str, Any]], dict[int, dict[str, Any]]]:
    """
    The metadata messages, and the rows of a table by offset, made by the kernels alone: no JVM is started.

    Instants have no zone, as `collect` gives them; *reading* as for `cdckit.replicate.data_messages.Reading`.
    """
    batch = pa.RecordBatch.from_pylist(list(records), RECORD_SCHEMA)
    opened = open_envelopes(batch.column("value"))
    places = message_rows(batch.select(list(PLACE_TYPES)))
    messages = []
    parts = (opened.form, opened.message_schema, opened.message)
    for row, place in enumerate(places):
        if row not in opened.findings and opened.type[row].as_py() == METADATA:
            said = read_metadata(*(part[row].as_py() for part in parts))
            messages.append({**said, **place, "places": None})
    messages.sort(key=itemgetter("schema_id"))
    zone = [row for _, about in groupby(messages, itemgetter("schema_id")) for row in statements(about)]
    made = make_table([row for row in zone if row["table"] == table])
    found: dict[int, dict[str, Any]] = {}
    for rows in read_messages([batch], TableReading(made, **reading)):
        rows.validate(full=True)
        for row in rows.to_pylist():
            assert row["offset"] not in found, "an offset stands in two rows"
            version = made.versions[row.pop("version")]
            of_version = {
                "table": made.name,
                "table_version": version.number,
                "schema_id": version.schema_id,
                "key_columns": list(version.keys),
            }
            found[row["offset"]] = {**without_zones(row), **of_version}
    return zone, found


def without_zones(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_zones(part) for name, part in value.items()}
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


def rows_of(
    versions: Iterable[bytes],
    messages: Iterable[bytes],
    *,
    table: str = "ITEMS",
    json_topics: Collection[str] = (),
) -> list[dict[str, Any]]:
    """The rows of *messages*, in their order, after the metadata messages *versions*; no JVM is started."""
    known, told = list(versions), list(messages)
    records = numbered([*known, *told])
    for record in records[: len(known)]:
        record["topic"] = "metadata"
    _, found = read_home(records, table, json_topics=json_topics)
    return [found[offset] for offset in range(len(known), len(records))]
