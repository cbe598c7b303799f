"""The guids and buckets of keys, in a worker."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from cdckit.kernel.layout import GUID
from cdckit.ledger.columns import BUCKET
from cdckit.ledger.kinds import Kind
from cdckit.parts.identifiers import guids

_MOST = 1 << 18
"""How many keys are remembered: about 60 MB."""


class Guids:
    """
    Makes the guid and the bucket of each change, of its key: both once for each key, while it is remembered.

    Args:
        kind: What the ledger is about.
    """

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._made: dict[tuple[Any, ...], tuple[str, int]] = {}

    def beside(self, changes: pa.RecordBatch) -> pa.RecordBatch:
        """The changes with both columns; as they are if they have them."""
        if GUID in changes.schema.names:
            return changes
        data = changes.column("data")
        columns = {name: data.field(name) for name in self._kind.keys}
        keys = list(zip(*(_values(column) for column in columns.values()), strict=True))
        self._make(keys, columns)
        made = [self._made[key] for key in keys]
        found = {
            GUID: pa.array([each[0] for each in made], pa.large_string()),
            BUCKET: pa.array([each[1] for each in made], pa.int32()),
            **dict(zip(changes.schema.names, changes.columns, strict=True)),
        }
        return pa.RecordBatch.from_pydict(found)

    def _make(self, keys: list[tuple[Any, ...]], columns: dict[str, pa.Array]) -> None:
        if len(self._made) > _MOST:
            self._made.clear()
        places = {key: place for place, key in enumerate(keys) if key not in self._made}
        at = pa.array(list(places.values()), pa.int64())
        found = guids(self._kind.entity, {name: column.take(at) for name, column in columns.items()})
        for key, guid in zip(places, found.to_pylist(), strict=True):
            self._made[key] = guid, self._kind.bucket(guid)


def _values(column: pa.Array) -> list[Any]:
    """Values that tell keys apart; of texts their bytes, since Spark lets any bytes pass as a text."""
    is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    values: list[Any] = (column.cast(pa.large_binary()) if is_text else column).to_pylist()
    return values
