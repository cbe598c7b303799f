"""Changes as the kernel's workers read them, made without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from cdckit.merging.arrow_changes import (
    OPERATIONS,
    Layout,
    carried_column,
    carried_words,
    priority_column,
    value_column,
)
from support.fold import place
from support.histories import KINDS, Row

INSTANT = pa.timestamp("us", "UTC")


def layout_of(fields: dict[str, str], keys: Sequence[str]) -> Layout:
    """Every field has a priority of its own, and the key fields are the identity."""
    names = list(fields)
    own = frozenset(range(len(names)))
    return Layout(tuple(names), tuple(names.index(key) for key in keys), own, by_guid=False, entity="thing")


def kernel_rows(
    changes: Sequence[Row],
    fields: dict[str, str],
    keys: Sequence[str],
    more: Mapping[str, pa.DataType] = MappingProxyType({}),
) -> pa.RecordBatch:
    """The changes of each entity together, in their order; *more* are further columns, by their types."""

    def key(change: Row) -> tuple[Any, ...]:
        return tuple(change["data"][name] for name in keys)

    together = [
        change for _, some in groupby(sorted(changes, key=key), key=key) for change in sorted(some, key=place)
    ]

    def column(name: str, kind: pa.DataType) -> pa.Array:
        return pa.array([change.get(name) for change in together], kind)

    columns = {name: column(name, pa.string()) for name in ("message_id", "source")}
    columns |= {name: column(name, INSTANT) for name in ("effective_timestamp", "effective_until")}
    columns |= {name: column(name, kind) for name, kind in more.items()}
    columns["priority"] = column("priority", pa.int32())
    columns["operation"] = pa.array([OPERATIONS.index(each["operation"]) for each in together], pa.int8())
    columns["record_number"] = pa.array([each["arrival"]["record_number"] for each in together], pa.int32())
    columns["arrived"] = pa.array([each["arrival"]["timestamp"] for each in together], INSTANT)
    for index, (name, kind) in enumerate(fields.items()):
        values = [each["data"][name] for each in together]
        columns[value_column(index)] = pa.array(values, KINDS[kind].arrow)
        own = [(each.get("field_priorities") or {}).get(name) for each in together]
        columns[priority_column(index)] = pa.array(own, pa.int32())
    for word, names in enumerate(carried_words(list(fields))):
        bits = [sum(each["carried"][name] << bit for bit, name in enumerate(names)) for each in together]
        columns[carried_column(word)] = pa.array(bits, pa.int64())
    return pa.RecordBatch.from_pydict(columns)
