"""One table across its versions: what the schema zone says of it, as a value that travels to the workers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import pairwise
from typing import Any

import pyarrow as pa

from cdckit.errors import InvalidArgument
from cdckit.parts import avro
from cdckit.parts.arrow_widening import common_type
from cdckit.replicate.metadata_messages import LINEAGE, match_columns, table_text

Statement = Mapping[str, Any]
"""A row of a zone, with its instants as microseconds (see `cdckit.replicate.schema_ids`)."""


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


def make_table(rows: Iterable[Statement], *, function: str) -> Table:
    """
    The one table that statements of a zone speak of (`message_rows`); *function* is who asks, for errors.

    What came without an instant came first.
    """
    rows = sorted(rows, key=_latest)
    tables = sorted({table_text(row) for row in rows})
    if len(tables) != 1:
        needed = "the schema zone of one table (filter it by server, task, schema and table)"
        raise InvalidArgument(function, "zone", needed, ", ".join(tables[:20]) or "none")
    fields = _fields(rows)
    spelling = {field.name.lower(): field.name for field in fields}
    versions = _with_renamed_keys([_version(row, spelling) for row in rows], fields)
    shared = {row["schema_id"]: tuple(row["other_tables"]) for row in rows if row["other_tables"]}
    server, task, schema, name = (rows[0][part] for part in LINEAGE)
    timed = tuple(_with_times(versions, rows))
    return Table(server, task, schema, name, timed, fields, _keys(versions), shared)


def _latest(row: Statement) -> tuple[Any, ...]:
    place = row["places"][-1]
    return place["timestamp"] or 0, place["topic"], place["partition"], place["offset"], row["schema_id"]


def near_names(tables: Iterable[Statement], wanted: Mapping[str, str | None]) -> list[str]:
    """At most ten of *tables* (rows of a zone): those whose names are nearest to what was *wanted* for."""

    def text(names: Mapping[str, str | None]) -> str:
        return " ".join((names[name] or "") for name in ("table", "task", "schema", "server")).lower()

    by_text = {text(row): row for row in tables}
    near = get_close_matches(text(wanted), by_text, n=10, cutoff=0.0)
    return [table_text(by_text[name]) for name in near]


def _version(row: Statement, spelling: Mapping[str, str]) -> TableVersion:
    fields = [field.name for field in _data_type(row)]
    ordinals = {column["name"]: column["ordinal"] for column in row["columns"]}
    matched = match_columns(list(ordinals.items()), fields)
    names = {column: spelling[fields[place].lower()] for column, place in matched.items()}
    in_key = sorted((column["key_position"], column["name"]) for column in row["columns"])
    return TableVersion(
        row["schema_id"],
        row["table_version"],
        row["data_schema"],
        ordinals={column: ordinals[name] for name, column in names.items()},
        places={spelling[name.lower()]: place for place, name in enumerate(fields)},
        keys=tuple(names[name] for position, name in in_key if position > 0 and name in names),
        source_names={column: name for name, column in names.items()},
    )


def _with_renamed_keys(versions: Sequence[TableVersion], fields: pa.StructType) -> list[TableVersion]:
    """
    Give *versions* that have the newest one's key column under an older name that column under both.

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
        return replace(
            version,
            ordinals={**version.ordinals, **{new: version.ordinals[old] for new, old in pairs}},
            places={**version.places, **{new: version.places[old] for new, old in pairs}},
        )

    return [renamed(version) for version in versions]


def _with_times(versions: Sequence[TableVersion], rows: Sequence[Statement]) -> list[TableVersion]:
    """Give *versions* the records that they are of, where one id has meant several."""
    begins = [row["timestamp"] or 0 for row in rows]
    of_id: dict[str, list[int]] = {}
    for place in sorted(range(len(rows)), key=begins.__getitem__):
        of_id.setdefault(rows[place]["schema_id"], []).append(place)
    timed = list(versions)
    for places in of_id.values():
        for earlier, later in pairwise(places):
            timed[earlier] = replace(timed[earlier], until=begins[later])
            timed[later] = replace(timed[later], since=begins[later])
    return timed


def _data_type(row: Statement) -> pa.StructType:
    return avro.parse_schema(row["data_schema"]).arrow_type.field("data").type


def _keys(versions: Sequence[TableVersion]) -> tuple[str, ...]:
    keys = versions[-1].keys
    for version in reversed(versions[:-1]):
        if keys and not set(keys) & set(version.places):
            keys = (*keys, *version.keys)
    return keys


def _fields(rows: Sequence[Statement]) -> pa.StructType:
    """
    The columns of all versions, the newest's first, each in a type that holds what any of them sent.

    Names that differ in case alone are one column if they are of two versions (of one version the later
    has another name: see `cdckit.parts.avro.parse_schema`).
    """
    fields: dict[str, pa.Field] = {}
    for row in reversed(rows):
        for field in _data_type(row):
            name = field.name.lower()
            newest = fields.setdefault(name, field)
            fields[name] = newest.with_type(common_type(newest.type, field.type))
    return pa.struct(list(fields.values()))
