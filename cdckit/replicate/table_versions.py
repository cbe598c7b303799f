"""One table across its versions: what the schema zone says of it, as a value that travels to the workers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import pairwise

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument
from cdckit.parts import avro
from cdckit.parts.arguments import require_types
from cdckit.parts.arrow_types import spark_type
from cdckit.parts.widening import common_type
from cdckit.replicate.schema_messages import LINEAGE, ZONE_SCHEMA, match_columns


@dataclass(frozen=True)
class TableVersion:
    """What one schema id stands for; columns go by the names that the table's newest version gives them."""

    schema_id: str
    number: int
    data_schema: str
    ordinals: Mapping[str, int]
    """The source's own number of each column."""
    places: Mapping[str, int]
    """Where each column stands in a row of this version."""
    keys: tuple[str, ...]
    source_names: Mapping[str, str]
    """What the source calls the columns."""
    since: int | None = None
    """From which record on the id means this, in microseconds; from the first on without."""
    until: int | None = None
    """From which record on it means something else."""


@dataclass(frozen=True)
class Table:
    """A source table: where it lives, its versions by age, its columns over all of them, its keys."""

    server: str
    task: str
    schema: str
    name: str
    versions: tuple[TableVersion, ...]
    fields: pa.StructType
    keys: tuple[str, ...]
    shared: Mapping[str, tuple[str, ...]]
    """The schema ids that are those of other tables too, and of which."""

    def absent(self, version: TableVersion) -> list[str]:
        """The columns of other versions that *version* does not have."""
        return [field.name for field in self.fields if field.name not in version.places]


def read_table(zone: DataFrame, *, function: str, as_double: Collection[str] = ()) -> Table:
    """The one table that *zone* speaks of; collects its rows, one per statement."""
    require_types(zone, ZONE_SCHEMA, function=function)
    return make_table(collect_zone(zone), function=function, as_double=as_double)


def collect_zone(zone: DataFrame) -> list[Row]:
    """
    The rows of *zone*, their instants as microseconds, which the local zone cannot make ambiguous.

    What came without an instant came first, as Spark sorts it.
    """

    def instant(column: str) -> Column:
        return F.coalesce(F.unix_micros(column), F.lit(0))

    latest = F.struct(
        instant("latest.timestamp").alias("timestamp"), "latest.topic", "latest.partition", "latest.offset"
    )
    return zone.withColumns({"timestamp": instant("timestamp"), "latest": latest}).collect()


def make_table(rows: Iterable[Row], *, function: str, as_double: Collection[str] = ()) -> Table:
    """The one table that these *rows* of a zone speak of (see `collect_zone`)."""
    rows = sorted(rows, key=lambda row: (tuple(row["latest"]), row["schema_id"]))
    tables = sorted({tuple(row[name] for name in LINEAGE) for row in rows})
    if len(tables) != 1:
        found = ", ".join(f"{server}/{task} {schema}.{table}" for server, task, schema, table in tables[:20])
        raise InvalidArgument(
            function,
            "zone",
            "the schema zone of one table (filter it by server, task, schema and table)",
            found or "none",
        )
    fields = _fields(rows, as_double)
    spelling = {field.name.lower(): field.name for field in fields}
    versions = _with_renamed_keys([_version(row, spelling) for row in rows], fields)
    shared = {row["schema_id"]: tuple(row["other_tables"]) for row in rows if row["other_tables"]}
    server, task, schema, name = tables[0]
    timed = tuple(_with_times(versions, rows))
    return Table(server, task, schema, name, timed, fields, _keys(versions), shared)


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
        MissingColumns, WrongColumnType: *zone* is not a schema zone.

    Cost: collects the zone's rows.

    Source:
        Replicate, primaryKeyPosition (0 = not in the key).

    >>> keys(zone)
    ['carrier']
    """
    return list(read_table(zone, function="keys").keys)


def near_names(tables: Iterable[Row], wanted: Mapping[str, str | None]) -> list[str]:
    """At most ten of *tables* (rows of a zone): those whose names are nearest to what was *wanted* for."""

    def text(names: Mapping[str, str | None]) -> str:
        return " ".join((names[name] or "") for name in ("table", "task", "schema", "server")).lower()

    by_text = {text(row.asDict()): row for row in tables}
    near = get_close_matches(text(wanted), by_text, n=10, cutoff=0.0)
    return ["{server}/{task} {schema}.{table}".format(**by_text[each].asDict()) for each in near]


def _version(row: Row, spelling: Mapping[str, str]) -> TableVersion:
    fields = [field.name for field in _data_type(row)]
    columns = {column["name"]: column for column in row["columns"]}
    matched = match_columns([(name, column["ordinal"]) for name, column in columns.items()], fields)
    names = {column: spelling[fields[place].lower()] for column, place in matched.items()}
    in_key = sorted((column["key_position"], name) for name, column in columns.items() if name in names)
    return TableVersion(
        row["schema_id"],
        row["table_version"],
        row["data_schema"],
        ordinals={names[name]: column["ordinal"] for name, column in columns.items() if name in names},
        places={spelling[name.lower()]: place for place, name in enumerate(fields)},
        keys=tuple(names[name] for position, name in in_key if position > 0),
        source_names={name: column for column, name in names.items()},
    )


def _with_renamed_keys(versions: Sequence[TableVersion], fields: pa.StructType) -> list[TableVersion]:
    """
    The same *versions*; those that have the newest one's key column under an older name have it under both.

    It is the same column if it has the same ordinal, position in the key and type, and neither version
    has the other's name.  Rows from before and after the renaming are then of one entity.
    """
    newest = versions[-1]
    kinds = {field.name: field.type for field in fields}

    def renamed(version: TableVersion) -> TableVersion:
        pairs = [
            (new, old)
            for new, old in zip(newest.keys, version.keys, strict=False)
            if new not in version.places
            and old not in newest.places
            and newest.ordinals[new] == version.ordinals[old]
            and kinds[new] == kinds[old]
        ]
        more = {
            "ordinals": {new: version.ordinals[old] for new, old in pairs},
            "places": {new: version.places[old] for new, old in pairs},
        }
        return replace(
            version,
            ordinals={**version.ordinals, **more["ordinals"]},
            places={**version.places, **more["places"]},
        )

    return [renamed(version) for version in versions]


def _with_times(versions: Sequence[TableVersion], rows: Sequence[Row]) -> list[TableVersion]:
    """The same *versions* with the records that they are of, where one id has meant several."""
    begins = [row["timestamp"] for row in rows]
    of_id: dict[str, list[int]] = {}
    for place in sorted(range(len(rows)), key=begins.__getitem__):
        of_id.setdefault(rows[place]["schema_id"], []).append(place)
    timed = list(versions)
    for places in of_id.values():
        for earlier, later in pairwise(places):
            timed[earlier] = replace(timed[earlier], until=begins[later])
            timed[later] = replace(timed[later], since=begins[later])
    return timed


def _data_type(row: Row) -> pa.StructType:
    return avro.parse_schema(row["data_schema"]).arrow_type.field("data").type


def _keys(versions: Sequence[TableVersion]) -> tuple[str, ...]:
    keys = versions[-1].keys
    for version in reversed(versions[:-1]):
        if keys and not set(keys) & set(version.places):
            keys = (*keys, *version.keys)
    return keys


def _fields(rows: Sequence[Row], as_double: Collection[str]) -> pa.StructType:
    """
    The columns of all versions, the newest's first, each in a type that holds what any of them sent.

    Names that differ in case alone are one column if they are of two versions (of one version the later
    has another name: see `cdckit.parts.avro.parse_schema`).
    """
    found: dict[str, pa.Field] = {}
    doubles = {name.lower() for name in as_double}
    for row in reversed(rows):
        for field in _data_type(row):
            name = field.name.lower()
            known = found.setdefault(name, field)
            kind = common_type(known.type, field.type, as_double=name in doubles)
            found[name] = known.with_type(kind)
    return pa.struct(list(found.values()))


def row_type(table: Table) -> T.StructType:
    """A row of *table*, in the columns of all its versions."""
    return T.StructType([T.StructField(field.name, spark_type(field.type)) for field in table.fields])


def row_fields(table: Table) -> list[T.StructField]:
    """`data`, `before`, `sent` and `changed` for *table*."""
    row = row_type(table)
    flags = T.StructType([T.StructField(name, T.BooleanType()) for name in row.fieldNames()])
    return [
        T.StructField("data", row),
        T.StructField("before", row),
        T.StructField("sent", flags),
        T.StructField("changed", flags),
    ]
