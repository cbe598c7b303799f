"""Requests: the patches of each entity in them, and the schemas' own requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument
from cdckit.parts.arguments import require_types
from cdckit.parts.arrow_types import arrow_schema, make_batch
from cdckit.parts.workers import WorkerPlan
from cdckit.records import ERROR_CODE, ERROR_FIELDS, RECORD_SCHEMA
from cdckit.streams.catalogue import ENTITY_BATCHES, ENTITY_PATCHES, SCHEMA_LEARNING
from cdckit.streams.json_values import column_text, read, read_all, to_text, to_text_all
from cdckit.streams.patches import show_value

ARRIVAL_COLUMNS = ("timestamp", "topic", "partition", "offset")
"""Where a message came from, and its place among all: what is left of its record."""

ARRIVAL_FIELDS = [RECORD_SCHEMA[name] for name in ARRIVAL_COLUMNS]
ERRORS = T.StructField("errors", T.ArrayType(T.StringType()))

PATCH_SCHEMA = T.StructType([*ARRIVAL_FIELDS, *ENTITY_PATCHES.columns().fields, ERRORS])
"""One row is one patch of one entity: where it came from, what it says, and why it cannot be applied, if it
is known before it is tried."""

_HEADER = [field for field in ENTITY_PATCHES.columns() if field.name in ENTITY_BATCHES.columns().fieldNames()]
_GIVEN = T.StructType([*ARRIVAL_FIELDS, *_HEADER, ENTITY_BATCHES.columns()["patches"]])
_TEXTS = ("collection", "zone", "entity")
_ROWS_AT_ONCE = 1000


def entity_patches(batches: DataFrame, *, databases: Iterable[str] | None = None) -> DataFrame:
    """
    The patches of the batches: part i of n, with the header fields of the batch.

    Args:
        batches: What `decode` returned of `ENTITY_BATCHES`, a batch or a stream; rows in error are passed
            over.
        databases: Those that are served here; all by default.  A patch of another one is not applied: it
            gets a failure response.

    Returns:
        One row per patch (`PATCH_SCHEMA`): `timestamp`, `topic`, `partition` and `offset` of the record of
        its batch; the fields of entity-patches, `part` counting from 1; and `errors` (array of text), why it
        cannot be applied: another database, no entity.  Null where nothing is known against it.  A
        batch without patches has no rows.

    Raises:
        InvalidArgument: *databases* is a text, or has what is none.
        MissingColumns, WrongColumnType: *batches* are not what `decode` returned.

    Cost: one pass through Python in Arrow batches, no shuffle.

    Source:
        Debezium streams, "entity-patches".

    >>> from cdckit import streams
    >>> said = b'''{"db": "shop", "clientid": "c", "request": 2, "user": "ann", "begun": 7, "patches": [
    ...     {"collection": "Mugs", "zone": "z", "entity": "m1", "ops": []},
    ...     {"collection": "Mugs", "zone": "z", "entity": "m2", "ops": []}]}'''
    >>> patches = entity_patches(streams.decode(records_of(said), streams.ENTITY_BATCHES))
    >>> patches.select("request", "entity", "part", "parts", "ops", "errors").orderBy("part").show()
    +-------+------+----+-----+---+------+
    |request|entity|part|parts|ops|errors|
    +-------+------+----+-----+---+------+
    |      2|    m1|   1|    2| []|  NULL|
    |      2|    m2|   2|    2| []|  NULL|
    +-------+------+----+-----+---+------+
    <BLANKLINE>
    """
    served = require_databases(databases, function="entity_patches")
    require_types(batches, T.StructType([*_GIVEN.fields, *ERROR_FIELDS]), function="entity_patches")
    given = batches.where(batches[ERROR_CODE].isNull()).select(*_GIVEN.fieldNames())
    return WorkerPlan(given, partial(_patches, databases=served), PATCH_SCHEMA).rows()


def require_databases(databases: Iterable[str] | None, *, function: str) -> frozenset[str] | None:
    """The names of databases, None for all; raises `InvalidArgument` for one text, or what is none."""
    if databases is None:
        return None
    listed = [databases] if isinstance(databases, str) else list(databases)
    if isinstance(databases, str) or not all(isinstance(each, str) for each in listed):
        raise InvalidArgument(function, "databases", "a list of names", databases)
    return frozenset(listed)


def foreign_reason(databases: Iterable[str] | None) -> Column:
    """Why a message that names its database is not for these: `errors` of its patch, null where it is."""
    nothing = F.lit(None).cast(ERRORS.dataType)
    if databases is None:
        return nothing
    said = F.array(F.concat(F.lit("the database '"), F.col("db"), F.lit("' is not served here")))
    return F.when(~F.col("db").isin(*databases), said).otherwise(nothing)


def _patches(
    batches: Iterable[pa.RecordBatch], *, databases: frozenset[str] | None
) -> Iterator[pa.RecordBatch]:
    types = arrow_schema(PATCH_SCHEMA)
    copied = [field.name for field in (*ARRIVAL_FIELDS, *_HEADER)]
    for whole in batches:
        for start in range(0, whole.num_rows, _ROWS_AT_ONCE):
            batch = whole.slice(start, _ROWS_AT_ONCE)
            rows, made = [], []
            lists = batch.column("patches").to_pylist()
            for row, (database, patches) in enumerate(
                zip(batch.column("db").to_pylist(), lists, strict=True)
            ):
                against = _against(database, databases)
                rows += [row] * len(patches)
                for part, text in enumerate(patches, 1):
                    made.append({"part": part, "parts": len(patches), **_patch(text, against)})
            taken = batch.take(pa.array(rows, pa.int64()))
            columns = {name: taken.column(name) for name in copied}
            for field in types:
                if field.name not in columns:
                    columns[field.name] = pa.array([each.get(field.name) for each in made], field.type)
            yield make_batch(columns, types)


def _against(database: str, databases: frozenset[str] | None) -> list[str]:
    if databases is None or database in databases:
        return []
    return [f"the database {show_value(database)} is not served here"]


def _patch(text: str, against: list[str]) -> dict[str, Any]:
    said = read_all(text)
    if not isinstance(said, dict):
        return {"errors": [*against, f"the patch is {show_value(said)}, not an object"]}
    reasons = [
        f"the patch has no {name}: it is {show_value(said.get(name))}"
        for name in _TEXTS
        if not isinstance(said.get(name), str)
    ]
    if said.get("ops") is None:
        reasons.append("the patch has no ops")
    texts = {name: column_text(said[name]) for name in _TEXTS if isinstance(said.get(name), str)}
    ops = None if said.get("ops") is None else column_text(to_text_all(said["ops"]))
    return {**texts, "ops": ops, "errors": [*against, *reasons] or None}


_SCHEMA_HEADER = ("db", "client_id", "request", "user", "begun", "ended", "status")
_KEPT = T.StructType([*ARRIVAL_FIELDS, *(SCHEMA_LEARNING.columns()[name] for name in _SCHEMA_HEADER)])
_MADE = [SCHEMA_LEARNING.columns()[name] for name in ("collection", "part", "parts", "after")]
_SCHEMAS_AT_ONCE = 100  # a schema may have a megabyte

TypeRow = tuple[str | None, int | None, int, str | None]


def explode_types(schemas: DataFrame) -> DataFrame:
    """
    One row for each entity type of each schema, and for each that an update removed.

    Not by Spark's `from_json`: it loses digits of numbers, and the quotes of a type that is a text.

    Args:
        schemas: Answers to patches of schemas that were applied, with the whole `before` and `after`.

    Returns:
        When the answer arrived, and its header; `collection`, the name of the type; `part` and `parts`: it
        is the i-th of n types of the schema, without i where it was removed; `after`, an object with this
        type alone, which is null where it was removed.

    Cost: one pass through Python in Arrow batches.
    """
    columns = T.StructType([*_KEPT.fields, *_MADE])
    return WorkerPlan(
        schemas.select(*_KEPT.fieldNames(), "before", "after"), _explode_batches, columns
    ).rows()


def _explode_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    types = arrow_schema(T.StructType([*_KEPT.fields, *_MADE]))
    for whole in batches:
        for start in range(0, whole.num_rows, _SCHEMAS_AT_ONCE):
            batch = whole.slice(start, _SCHEMAS_AT_ONCE)
            texts = zip(batch.column("before").to_pylist(), batch.column("after").to_pylist(), strict=True)
            told = [_type_rows(before, after) for before, after in texts]
            rows = [row for row, each in enumerate(told) for _ in each]
            taken = batch.select(_KEPT.fieldNames()).take(pa.array(rows, pa.int64()))
            columns = dict(zip(_KEPT.fieldNames(), taken.columns, strict=True))
            made = [one for each in told for one in each]
            for place, field in enumerate(_MADE):
                columns[field.name] = pa.array([one[place] for one in made], types.field(field.name).type)
            yield make_batch(columns, types)


def _type_rows(before: str | None, after: str | None) -> list[TypeRow]:
    now, was = _types_in(after), _types_in(before)
    there = [_row(name, place, len(now), now[name]) for place, name in enumerate(sorted(now), 1)]
    return there + [_row(name, None, len(now), None) for name in sorted(was.keys() - now.keys())]


def _row(name: str, part: int | None, parts: int, type_: Any) -> TypeRow:
    return column_text(name), part, parts, column_text(to_text({name: type_}))


def _types_in(text: str | None) -> dict[str, Any]:
    return {name: type_ for name, type_ in read(text or "{}").items() if type_ is not None}
