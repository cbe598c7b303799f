"""The entity types of schemas: of each update of a schema, a row for each of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from cdckit.parts.arrow_types import arrow_schema, batch_of
from cdckit.parts.workers import Made
from cdckit.streams.batches import ARRIVAL_FIELDS
from cdckit.streams.catalogue import SCHEMA_LEARNING
from cdckit.streams.json_values import column_text, read, written

_HEADER = ("db", "client_id", "request", "user", "begun", "ended", "status")
_KEPT = T.StructType([*ARRIVAL_FIELDS, *(SCHEMA_LEARNING.columns()[name] for name in _HEADER)])
_MADE = [SCHEMA_LEARNING.columns()[name] for name in ("collection", "part", "parts", "after")]
_ROWS_AT_ONCE = 100  # a schema may have a megabyte

Told = tuple[str | None, int | None, int, str | None]


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
    return Made(schemas.select(*_KEPT.fieldNames(), "before", "after"), _exploded, columns).rows()


def _exploded(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    types = arrow_schema(T.StructType([*_KEPT.fields, *_MADE]))
    for whole in batches:
        for start in range(0, whole.num_rows, _ROWS_AT_ONCE):
            batch = whole.slice(start, _ROWS_AT_ONCE)
            texts = zip(batch.column("before").to_pylist(), batch.column("after").to_pylist(), strict=True)
            told = [_told(before, after) for before, after in texts]
            rows = [row for row, each in enumerate(told) for _ in each]
            taken = batch.select(_KEPT.fieldNames()).take(pa.array(rows, pa.int64()))
            columns = dict(zip(_KEPT.fieldNames(), taken.columns, strict=True))
            made = [one for each in told for one in each]
            for place, field in enumerate(_MADE):
                columns[field.name] = pa.array([one[place] for one in made], types.field(field.name).type)
            yield batch_of(columns, types)


def _told(before: str | None, after: str | None) -> list[Told]:
    now, was = _types_in(after), _types_in(before)
    there = [_row(name, place, len(now), now[name]) for place, name in enumerate(sorted(now), 1)]
    return there + [_row(name, None, len(now), None) for name in sorted(was.keys() - now.keys())]


def _row(name: str, part: int | None, parts: int, type_: Any) -> Told:
    return column_text(name), part, parts, column_text(written({name: type_}))


def _types_in(text: str | None) -> dict[str, Any]:
    return {name: type_ for name, type_ in read(text or "{}").items() if type_ is not None}
