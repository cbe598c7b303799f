"""One table across its versions: what the schema zone says of it, as a value that travels to the workers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import groupby, pairwise
from operator import itemgetter

import pyarrow as pa

from cdckit.errors import InvalidArgument
from cdckit.parts import avro
from cdckit.parts.arrow_widening import common_type
from cdckit.replicate.metadata_messages import LINEAGE, match_columns, table_text
from cdckit.replicate.schema_ids import Statement, place_order

BEGINNING = -(2**63)
"""Before every instant: when a message without a time came."""


@dataclass(frozen=True)
class TableVersion:
    """What one schema id stands for; columns go by the names that the table's newest version gives them."""

    schema_id: str
    number: int
    data_schema: str
    ordinals: Mapping[str, int]
    """The source's own number of each column."""
    positions: Mapping[str, int]
    """Where each column stands in a row of this version."""
    keys: tuple[str, ...]
    source_names: Mapping[str, str]
    """What the source calls the columns."""
    renamed: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """The older name in this version of a key column that the newest one has under another."""
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
    newest_since: tuple[tuple[int, int], ...]
    """From which records on, in microseconds, which of the versions was the newest."""

    def absent(self, version: TableVersion) -> list[str]:
        """The columns of other versions that *version* does not have."""
        return [field.name for field in self.fields if field.name not in version.positions]


def make_table(rows: Iterable[Statement]) -> Table:
    """
    The one table that statements of a zone speak of (`message_rows`).

    What came without an instant came first.
    """
    rows = sorted(rows, key=lambda row: (place_order(row["places"][-1]), row["schema_id"]))
    tables = sorted({table_text(row) for row in rows})
    if len(tables) != 1:
        needed = "the schema zone of one table (filter it by server, task, schema and table)"
        raise InvalidArgument(None, "zone", needed, ", ".join(tables[:20]) or "none")
    fields = _fields(rows)
    spelling = {field.name.lower(): field.name for field in fields}
    versions = _with_renamed_keys([_version(row, spelling) for row in rows], fields)
    shared = {row["schema_id"]: tuple(row["other_tables"]) for row in rows if row["other_tables"]}
    server, task, schema, name = (rows[0][part] for part in LINEAGE)
    timed = tuple(_with_times(versions, rows))
    keys, newest_since = _keys(versions), tuple(_newest_since(rows))
    return Table(server, task, schema, name, timed, fields, keys, shared, newest_since)


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
    names = {column: spelling[fields[position].lower()] for column, position in matched.items()}
    in_key = sorted((column["key_position"], column["name"]) for column in row["columns"])
    return TableVersion(
        row["schema_id"],
        row["table_version"],
        row["data_schema"],
        ordinals={column: ordinals[name] for name, column in names.items()},
        positions={spelling[name.lower()]: position for position, name in enumerate(fields)},
        keys=tuple(names[name] for number, name in in_key if number > 0 and name in names),
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
        names = {
            new: old
            for new, old in zip(newest.keys, version.keys, strict=False)
            if new not in version.positions
            and old not in newest.positions
            and newest.ordinals[new] == version.ordinals[old]
            and kinds[new] == kinds[old]
        }
        return replace(
            version,
            ordinals={**version.ordinals, **{new: version.ordinals[old] for new, old in names.items()}},
            positions={**version.positions, **{new: version.positions[old] for new, old in names.items()}},
            renamed=names,
        )

    return [renamed(version) for version in versions]


def _with_times(versions: Sequence[TableVersion], rows: Sequence[Statement]) -> list[TableVersion]:
    """Give *versions* the records that they are of, where one id has meant several."""
    of_id: dict[str, list[int]] = {}
    for index in sorted(range(len(rows)), key=lambda index: place_order(rows[index])):
        of_id.setdefault(rows[index]["schema_id"], []).append(index)
    timed = list(versions)
    for indexes in of_id.values():
        for earlier, later in pairwise(indexes):
            begin = _instant(rows[later])
            timed[earlier] = replace(timed[earlier], until=begin)
            timed[later] = replace(timed[later], since=begin)
    return timed


def _newest_since(rows: Sequence[Statement]) -> Iterator[tuple[int, int]]:
    """Tell from when on which of the statements was the last that was made of the table."""
    places = [(place, index) for index, row in enumerate(rows) for place in row["places"]]
    places.sort(key=lambda entry: place_order(entry[0]))
    for index, run in groupby(places, itemgetter(1)):
        first, _ = next(run)
        yield _instant(first), index


def _instant(place: Statement) -> int:
    return BEGINNING if place["timestamp"] is None else place["timestamp"]


def _data_type(row: Statement) -> pa.StructType:
    return avro.parse_schema(row["data_schema"]).arrow_type.field("data").type


def _keys(versions: Sequence[TableVersion]) -> tuple[str, ...]:
    keys = versions[-1].keys
    for version in reversed(versions[:-1]):
        if keys and not set(keys) & set(version.positions):
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
