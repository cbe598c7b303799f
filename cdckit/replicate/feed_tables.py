"""The tables of a feed: those that its store keeps, and those that its metadata knows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.ledger.kinds import BUCKETS, Kind
from cdckit.records import RECORD_SCHEMA
from cdckit.rejected import ERROR_CODE, ERROR_FIELDS
from cdckit.replicate import table_versions
from cdckit.replicate.envelope import DATA
from cdckit.replicate.many_tables import TableName
from cdckit.replicate.schema_messages import LINEAGE
from cdckit.replicate.settings import TableSettings, table_text
from cdckit.replicate.table_versions import Table

RECORDS, WAITING, REJECTS, ZONE = "records", "waiting", "rejects", "schema_zone"
GIVEN_UP = "given_up_timestamp"
ADDRESS = ("form", "schema_id", "topic")
"""The columns of a received record that say of which table it is."""

RECEIVED_SCHEMA = T.StructType(
    [
        *RECORD_SCHEMA.fields,
        T.StructField("form", T.StringType()),
        T.StructField("type", T.StringType()),
        T.StructField("schema_id", T.StringType()),
        *ERROR_FIELDS,
    ]
)
"""One row is one record as it came, and what its envelope says of it: enough to find it again."""


@dataclass(frozen=True)
class FeedTable:
    """One table as a feed reads it: what the metadata says, and what the feed was told."""

    name: TableName
    table: Table
    settings: TableSettings

    @property
    def entity(self) -> str:
        """The name of the kind of entity."""
        return self.settings.entity or self.name.table

    @property
    def keys(self) -> tuple[str, ...]:
        """The key columns; none if there is none."""
        return tuple(self.settings.keys or self.table.keys)

    @property
    def reading(self) -> Mapping[str, Any]:
        """How its rows are read: arguments of `rows_of_table`."""
        told = self.settings
        return {"json_topics": told.json_topics, "topics": told.topics, "loaded_at": told.loaded_at}

    def kind(self, buckets: int | None) -> Kind:
        """What its ledger is about."""
        return Kind(self.entity, self.keys, buckets or BUCKETS, False, str(self))

    def of(self, received: DataFrame) -> DataFrame:
        """The data among received records that can be of this table."""
        ids = [version.schema_id for version in self.table.versions]
        in_avro = (F.col("form") == "avro") & F.col("schema_id").isin(ids)
        if self.settings.topics is not None:
            in_avro &= F.col("topic").isin(list(self.settings.topics))
        in_json = (F.col("form") == "json") & F.col("topic").isin(list(self.settings.json_topics))
        return received.where(is_data() & (in_avro | in_json))

    def is_meant(self, form: str | None, schema_id: str | None, topic: str) -> bool:
        """Whether data with this form, schema id and topic can be of this table: what `of` says of rows."""
        if form == "json":
            return topic in self.settings.json_topics
        in_topic = self.settings.topics is None or topic in self.settings.topics
        return form == "avro" and in_topic and schema_id in {one.schema_id for one in self.table.versions}

    def is_among(self, addresses: Iterable[tuple[str | None, str | None, str]]) -> bool:
        """Whether data with one of these addresses can be of this table."""
        return any(self.is_meant(*address) for address in addresses)

    def goes_on_from(self, before: FeedTable) -> bool:
        """Whether rows that were read as of *before* would read the same now, but for columns that came."""
        return (
            self.keys == before.keys
            and all(each in self.table.versions for each in before.table.versions)
            and all(
                field.name in _names(self) and self.table.fields.field(field.name).type == field.type
                for field in before.table.fields
            )
        )

    def __str__(self) -> str:
        return table_text(self.name)


def is_data() -> Column:
    """Whether a received record is a sound data message."""
    return (F.col("type") == DATA) & F.col(ERROR_CODE).isNull()


def feed_tables(zone: DataFrame, settings: Mapping[TableName, TableSettings]) -> dict[TableName, FeedTable]:
    """The tables that a zone knows; collects it."""

    def of(row: Row) -> TableName:
        return TableName(*(row[name] for name in LINEAGE))

    rows = sorted(table_versions.collect_zone(zone), key=of)
    found = {}
    for name, some in groupby(rows, of):
        told = settings.get(name, TableSettings())
        table = table_versions.table_of_rows(list(some), function="Feed", as_double=told.as_double)
        found[name] = FeedTable(name, table, told)
    return found


def json_topics(tables: Iterable[FeedTable]) -> list[str]:
    """The topics whose messages in JSON form have a table that is known."""
    return sorted({topic for each in tables for topic in each.settings.json_topics})


def _names(table: FeedTable) -> set[str]:
    return {field.name for field in table.table.fields}
