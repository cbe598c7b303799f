"""Many tables of one feed: one pass says whose each message is; and what is set for a table of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument
from cdckit.parts.arguments import require_types
from cdckit.records import ERROR_CODE, RECORD_COLUMNS, require_records
from cdckit.replicate import table_versions
from cdckit.replicate.envelope import DATA, decode
from cdckit.replicate.row_changes import changes
from cdckit.replicate.schema_messages import LINEAGE, ZONE_SCHEMA
from cdckit.replicate.table_rows import require_load_time, rows_of_table
from cdckit.replicate.table_versions import Table

_NAMES = T.StructType([ZONE_SCHEMA[name] for name in LINEAGE])


class TableName(NamedTuple):
    """
    What names one table among all that are replicated.

    >>> TableName("ny1", "orders", "SHOP", "ITEMS").table
    'ITEMS'
    """

    server: str
    task: str
    schema: str
    table: str


def with_table(records: DataFrame, zone: DataFrame) -> DataFrame:
    """
    Say of each record of which table it is.

    Save the result partitioned by these columns; then each table is read from its own part, and a feed of
    a thousand tables has been read once:

        sorted_out = replicate.with_table(records, zone)
        sorted_out.write.partitionBy("server", "task", "schema", "table").parquet(folder)
        saved = spark.read.schema(sorted_out.schema).parquet(folder)
        every = replicate.tables_changes(saved, zone)

    The schema is given since Spark would take a folder's name for a number where it looks like one.

    Args:
        records: One row per transported message (`cdckit.records.RECORD_SCHEMA`).
        zone: The schema zone, of all tables.

    Returns:
        The same rows, in the columns of records and behind them `server`, `task`, `schema` and `table`.
        They are null for what is no data message in Avro form of one known table: metadata, rejects,
        JSON form, messages that wait, and those whose schema id is that of several tables.

    Raises:
        MissingColumns, WrongColumnType: *records* are not records, or *zone* is not a zone.

    Cost: one look at every envelope, no shuffle of the records; *zone* is broadcast.

    >>> with_table(records, zone).orderBy("topic", "offset").select("topic", "offset", "task", "table").show()
    +-----------------+------+--------+--------+
    |            topic|offset|    task|   table|
    +-----------------+------+--------+--------+
    | flights.metadata|     1|    NULL|    NULL|
    |schedule.airlines|     3|schedule|AIRLINES|
    |schedule.airlines|     4|schedule|AIRLINES|
    |schedule.airlines|    17|schedule|AIRLINES|
    +-----------------+------+--------+--------+
    <BLANKLINE>
    """
    require_types(zone, ZONE_SCHEMA, function="with_table")
    decoded = decode(records)
    is_data = (F.col("type") == DATA) & (F.col("form") == "avro") & F.col(ERROR_CODE).isNull()
    routed = decoded.withColumn("routed_by", F.when(is_data, F.col("schema_id")))
    names = (
        zone.where(F.size("other_tables") == 0)
        .select(F.col("schema_id").alias("routed_by"), *LINEAGE)
        .distinct()
    )
    return routed.join(F.broadcast(names), on="routed_by", how="left").select(*RECORD_COLUMNS, *LINEAGE)


def tables_changes(
    records: DataFrame,
    zone: DataFrame,
    *,
    loaded_at: datetime | Column | None = None,
    as_double: Collection[str] = (),
) -> Mapping[TableName, DataFrame]:
    """
    The changes of every table that has a key, each in the types of its own columns.

    Args:
        records: What `with_table` returned, read back from where it was saved: each table then reads its
            own part alone.  Any other table with these columns works as well, but is read for each table.
        zone: The schema zone, of all tables or of those that are wanted.
        loaded_at: As for `data`.
        as_double: As for `data`, in whatever table a column of that name is.

    Returns:
        By table what `changes` returns, under the keys of the metadata.  Tables without a key, and those
        whose schema ids are not theirs alone, are left out: take `data` and `changes` for them.

    Raises:
        MissingColumns, WrongColumnType: *records* are not what `with_table` returns (the names of tables
            and the like must be texts: see there how to read them back), or *zone* is no zone.

    Cost: *zone* is collected once, when this is called; each table is planned when it is asked for.

    >>> every = tables_changes(with_table(records, zone), zone)
    >>> [(name.task, name.table, told.count()) for name, told in every.items()]
    [('schedule', 'AIRLINES', 3)]
    """
    require_load_time(loaded_at, function="tables_changes")
    require_types(zone, ZONE_SCHEMA, function="tables_changes")
    require_records(records, function="tables_changes")
    require_types(records, _NAMES, function="tables_changes")
    found: dict[TableName, list[Row]] = {}
    for row in table_versions.collect_zone(zone):
        found.setdefault(TableName(*(row[name] for name in LINEAGE)), []).append(row)
    known = {
        name: table_versions.make_table(rows, function="tables_changes", as_double=as_double)
        for name, rows in sorted(found.items())
    }
    usable = {name: table for name, table in known.items() if table.keys and not table.shared}
    return _Changes(usable, partial(_changes, records, loaded_at=loaded_at))


def _changes(records: DataFrame, table: Table, *, loaded_at: datetime | Column | None) -> DataFrame:
    lineage = TableName(table.server, table.task, table.schema, table.name)
    is_of = [F.col(column) == value for column, value in zip(LINEAGE, lineage, strict=True)]
    part = records.where(is_of[0] & is_of[1] & is_of[2] & is_of[3])
    rows = rows_of_table(part, table, loaded_at=loaded_at, function="tables_changes")
    return changes(rows, keys=table.keys)


class _Changes(Mapping[TableName, DataFrame]):
    """The changes by table, each planned when it is asked for: planning thousands takes minutes."""

    def __init__(self, known: Mapping[TableName, Table], plan: Callable[[Table], DataFrame]) -> None:
        self._known, self._plan = known, plan

    def __getitem__(self, name: TableName) -> DataFrame:
        return self._plan(self._known[name])

    def __iter__(self) -> Iterator[TableName]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


@dataclass(frozen=True)
class TableSettings:
    """
    How a feed reads one table.

    Args:
        entity: The name of the kind of entity, as for `merge`; the name of the table without it.
        keys: The key columns, as for `changes`; those of the metadata without them.
        topics: As for `data`: needed where a schema id of the table is that of another table too.
        json_topics: As for `data`: the topics whose messages in JSON form are of this table.
        loaded_at: As for `data`.
        as_double: As for `data`.

    Raises:
        InvalidArgument: A list is given as one text, or *loaded_at* is naive.

    >>> TableSettings(entity="item", keys=["number"], topics=["shop.items"]).keys
    ('number',)
    """

    entity: str | None = None
    keys: Sequence[str] | None = None
    topics: Sequence[str] | None = None
    json_topics: Sequence[str] = ()
    loaded_at: datetime | None = None
    as_double: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name in ("keys", "topics", "json_topics", "as_double"):
            given = getattr(self, name)
            if isinstance(given, str):
                raise InvalidArgument("TableSettings", name, "a list of names", given)
            object.__setattr__(self, name, None if given is None else tuple(given))
        if self.loaded_at is not None and self.loaded_at.utcoffset() is None:
            raise InvalidArgument("TableSettings", "loaded_at", "an aware datetime", self.loaded_at)

    def text(self) -> str:
        """The settings as a text that is the same for the same settings."""
        told = asdict(self)
        told["loaded_at"] = self.loaded_at and self.loaded_at.timestamp()
        return json.dumps(told, sort_keys=True)


def table_text(name: TableName) -> str:
    """The name of a table as one text, which names its ledger in the feed's store."""
    return f"{name.server}/{name.task} {name.schema}.{name.table}"
