"""
Rows whose structs go to workers as flat columns: for the log of a ledger, most of which are structs.

With every row that Spark hands to a worker it asks each column for its size so far, and of a struct all its
parts, twice.  For the rows of a log that was half of the time; so what is true or false is a bit here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeGuard

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from cdckit.parts.arguments import quoted
from cdckit.parts.arrays import Bools

_BITS = 62
"""How many flags a whole number holds."""


def flatten_structs(rows: DataFrame) -> DataFrame:
    """
    The rows with a column for each part of a struct, which `nest_structs` puts together again in a worker.

    The columns that are no structs keep their names.

    >>> rows = session().sql("SELECT 7 AS id, struct('a' AS name, true AS sent, null AS price) AS data")
    >>> flatten_structs(rows).show()
    +-----+---+------+------+
    |flags| id|data 1|data 2|
    +-----+---+------+------+
    |    4|  7|     a|  NULL|
    +-----+---+------+------+
    <BLANKLINE>
    >>> flat = flatten_structs(rows).toArrow().to_batches()[0]
    >>> nest_structs(flat, rows.schema).to_pylist()
    [{'id': 7, 'data': {'name': 'a', 'sent': True, 'price': None}}]
    """
    flat = _Parts.of(rows.schema)
    bits = [f"IF({flag}, {1 << number % _BITS}L, 0L)" for number, flag in enumerate(flat.flags)]
    words = [" | ".join(bits[start : start + _BITS]) for start in range(0, len(bits), _BITS)]
    named = [f"{word} AS {quoted(_word_name(number))}" for number, word in enumerate(words)]
    return rows.selectExpr(*named, *(f"{path} AS {quoted(name)}" for name, path in flat.values.items()))


def nest_structs(batch: pa.RecordBatch, columns: T.StructType) -> pa.RecordBatch:
    """A batch of what `flatten_structs` made of rows with these *columns*, in their columns."""
    flat = _Parts.of(columns)
    flags = (
        (np.asarray(batch.column(_word_name(number // _BITS))) >> (number % _BITS)) & 1 == 1
        for number in range(len(flat.flags))
    )
    values = map(batch.column, flat.values)
    arrays = [_nest(column.dataType, flags, values) for column in columns]
    return pa.RecordBatch.from_arrays(arrays, columns.names)


def _word_name(number: int) -> str:
    return "flags" if number == 0 else f"flags {number}"


@dataclass(frozen=True)
class _Parts:
    """What flat rows have, in SQL: flags, which are never null, and by name the values."""

    flags: list[str] = field(default_factory=list)
    values: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, columns: T.StructType) -> _Parts:
        flat = cls()
        for column in columns:
            flat._add(column.name, quoted(column.name), column.dataType)
        return flat

    def _add(self, name: str, path: str, kind: T.DataType) -> None:
        """Add a column or, of a struct, its parts; *name* is that of the column."""
        if isinstance(kind, T.BooleanType):
            self.flags.extend((f"{path} IS NULL", f"{path} IS TRUE"))
        elif _has_parts(kind):
            self.flags.append(f"{path} IS NULL")
            for field in kind:
                self._add(name, f"{path}.{quoted(field.name)}", field.dataType)
        else:
            self.values[name if path == quoted(name) else f"{name} {len(self.values)}"] = path


def _nest(kind: T.DataType, flags: Iterator[Bools], values: Iterator[pa.Array]) -> pa.Array:
    if isinstance(kind, T.BooleanType):
        is_null = next(flags)
        return pa.array(next(flags), mask=is_null)
    if not _has_parts(kind):
        return next(values)
    is_null = next(flags)
    parts = [_nest(field.dataType, flags, values) for field in kind]
    return pa.StructArray.from_arrays(parts, kind.names, mask=pa.array(is_null) if is_null.any() else None)


def _has_parts(kind: T.DataType) -> TypeGuard[T.StructType]:
    return isinstance(kind, T.StructType) and len(kind) > 0
