"""Rows: the events of one source with typed values, across the versions of its schema."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.databus.event_rows import DATA, EVENT_FIELDS
from cdckit.databus.event_sources import Source
from cdckit.errors import InvalidArgument
from cdckit.parts import avro
from cdckit.parts.arrow_types import spark_type
from cdckit.parts.arrow_widening import common_type, to_common_type
from cdckit.parts.schemas import require_types
from cdckit.parts.workers import Made

_READ = T.StructType(
    [each for each in EVENT_FIELDS if each.name in ("kind", "source_id", "schema_id", "payload")]
)
_BYTES = ("key", "value", "headers", "payload")


def rows(events: DataFrame, source: Source, *, as_double: Collection[str] = ()) -> DataFrame:
    """
    The data events of one source, with typed values.

    Args:
        events: What `decode` or `consistent` returned; what is of other sources, or no data, or in error, is
            passed over.
        source: The source, as `decode` was given it.
        as_double: Fields that are to be doubles, which may cost digits, where two versions of the schema have
            numbers that no exact type holds.  They are text otherwise.

    Returns:
        One row per event, in no order: the columns of *events* but for the bytes (`payload`; `key`, `value`,
        `headers` of the record) and the errors, and

        - `data`: a struct of the fields of all versions of the schema, the newest version's first; null for
          a delete without a value;
        - `sent`: a struct of booleans: whether the schema of this event has the field.

    Raises:
        MissingColumns, WrongColumnType: *events* are not what `decode` or `consistent` returns.
        InvalidArgument: *source* is no `Source`.

    Cost: one pass through Python in Arrow batches, no shuffle.  `decode` has read the values before, to tell
    which are wrong; here they are read again, those of one source alone.

    >>> rows(events, planes).where("scn = 5").select("opcode", "scn", "data").distinct().show()
    +------+---+---------+
    |opcode|scn|     data|
    +------+---+---------+
    |UPSERT|  5|{N12, 55}|
    +------+---+---------+
    <BLANKLINE>
    """
    require_types(events, _READ, function="rows")
    if not isinstance(source, Source):
        raise InvalidArgument("rows", "source", "a Source", source)
    good = events.where((F.col("kind") == DATA) & (F.col("source_id") == source.id))
    if "error_code" in events.columns:
        good = good.where(F.col("error_code").isNull()).drop("error_code", "error_description")
    kept = good.select("schema_id", "payload", *(n for n in good.columns if n not in ("schema_id", *_BYTES)))
    fields = row_fields(source, as_double)
    columns = T.StructType([field for field in kept.schema.fields if field.name != "payload"])
    nullable = [T.StructField(field.name, field.dataType) for field in columns]
    row = T.StructType([T.StructField(field.name, spark_type(field.type)) for field in fields])
    flags = T.StructType([T.StructField(field.name, T.BooleanType()) for field in fields])
    made = T.StructType([*nullable, T.StructField("data", row), T.StructField("sent", flags)])
    return Made(kept, partial(_typed, schemas=source.texts, fields=fields), made).rows()


def row_fields(source: Source, as_double: Collection[str] = ()) -> pa.StructType:
    """The fields of all versions of a source, the newest version's first, each in a type that holds all."""
    found: dict[str, pa.Field] = {}
    for text in reversed(source.texts.values()):
        for field in avro.parse_schema(text).arrow_type:
            known = found.setdefault(field.name.lower(), field)
            kind = common_type(known.type, field.type, as_double=known.name in as_double)
            found[field.name.lower()] = known.with_type(kind)
    return pa.struct(list(found.values()))


def _typed(
    batches: Iterable[pa.RecordBatch], *, schemas: dict[str, str], fields: pa.StructType
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        ids = batch.column("schema_id")
        for number in pc.unique(ids):
            chosen = batch.filter(pc.equal(ids, number) if number.is_valid else ids.is_null())
            text = schemas.get(number.as_py()) if number.is_valid else None
            # A delete without a value may say any schema, or none.
            schema = avro.parse_schema(text or next(reversed(schemas.values())))
            yield from _of_schema(chosen, schema, fields)


def _of_schema(
    batch: pa.RecordBatch, schema: avro.AvroSchema, fields: pa.StructType
) -> Iterator[pa.RecordBatch]:
    start = 0
    for decoded in avro.decode_parts(batch.column("payload"), schema):
        count = len(decoded.errors)
        part = batch.slice(start, count)
        start += count
        data, sent = _row(decoded.values, fields)
        names = [name for name in part.schema.names if name != "payload"]
        columns = [*(part.column(name) for name in names), data, sent]
        yield pa.RecordBatch.from_arrays(columns, names=[*names, "data", "sent"])


def _row(values: pa.Array, fields: pa.StructType) -> tuple[pa.Array, pa.Array]:
    """Values of one schema in the fields of all, and which fields that schema has."""
    places = {field.name.lower(): place for place, field in enumerate(values.type)}
    own, count = values.flatten(), len(values)
    columns, sent = [], []
    for field in fields:
        place = places.get(field.name.lower())
        known = place is not None
        columns.append(
            to_common_type(own[place], field.type) if place is not None else pa.nulls(count, field.type)
        )
        sent.append(pa.array(np.full(count, known)))
    mask = values.is_null() if values.null_count else None
    flags = pa.StructArray.from_arrays(sent, names=[field.name for field in fields])
    return pa.StructArray.from_arrays(columns, fields=list(fields), mask=mask), flags
