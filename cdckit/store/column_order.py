"""Arrow batches in the columns of a table: its names, its order, nulls where columns are lacking."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from pyspark.sql import types as T

from cdckit.parts.arrow_types import arrow_schema
from cdckit.store.names import plain_names, true_names


class Shape:
    """
    How batches get the columns of a table: by name, at every depth.

    Args:
        found: The columns under the names that batches have; a batch may lack some, or have others.
        wanted: The same columns in the same order, under the names that are wanted.
    """

    def __init__(self, found: T.StructType, wanted: T.StructType) -> None:
        self._found = found
        self.schema = arrow_schema(wanted, large=True)

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch in that shape."""
        parts = dict(zip(batch.schema.names, batch.columns, strict=True))
        columns = _parts(parts, batch.num_rows, self._found, list(self.schema))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def to_stored(stored: T.StructType) -> Shape:
    """From true names to stored ones."""
    return Shape(true_names(stored), plain_names(stored))


def to_true(stored: T.StructType) -> Shape:
    """From stored names to true ones."""
    return Shape(plain_names(stored), true_names(stored))


def _parts(
    parts: Mapping[str, pa.Array], rows: int, columns: T.StructType, wanted: list[pa.Field]
) -> list[pa.Array]:
    return [
        _shaped(parts[one.name], field.type, one.dataType)
        if one.name in parts
        else pa.nulls(rows, field.type)
        for one, field in zip(columns, wanted, strict=True)
    ]


def _shaped(values: pa.Array, kind: pa.DataType, column: T.DataType) -> pa.Array:
    if values.type == kind:
        return values
    if isinstance(column, T.StructType):
        named = {one.name: values.field(place) for place, one in enumerate(values.type)}
        parts = _parts(named, len(values), column, list(kind))
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=values.is_null())
    if isinstance(column, T.ArrayType | T.MapType):
        # With a mask, Arrow wants offsets that are no slice.
        offsets, mask = pa.array(np.asarray(values.offsets)), values.is_null()
        if isinstance(column, T.ArrayType):
            elements = _shaped(values.values, kind.value_type, column.elementType)
            return pa.ListArray.from_arrays(offsets, elements, type=kind, mask=mask)
        keys = _shaped(values.keys, kind.key_type, column.keyType)
        items = _shaped(values.items, kind.item_type, column.valueType)
        return pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=mask)
    return values.cast(kind)
