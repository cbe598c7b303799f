"""What each change of a sorted table says, and which of them count."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdckit.changes import ABSENT
from cdckit.errors import CdcError
from cdckit.kernel.arrays import bools, ints
from cdckit.kernel.layout import (
    ARRIVED,
    GUID,
    OPERATIONS,
    WORD,
    Layout,
    carried_column,
    carried_words,
    priority_column,
    value_column,
)
from cdckit.running import Bools, Ints

_NEEDED = ("operation", "effective_timestamp", "message_id", "priority", "record_number")


class InvalidChanges(CdcError, ValueError):
    """Changes reached the merge without what each needs: an instant, a message, data, an operation, ..."""

    def __init__(self, column: str, count: int) -> None:
        self.column, self.count = column, count
        super().__init__(column, count)

    def __str__(self) -> str:
        return (
            f"The merge needs {self.column} in every change; at least {self.count} have none (or, "
            f"for the operation, none of {', '.join(OPERATIONS)}): keep them out before the merge."
        )


class Changes:
    """Changes as Arrow columns, sorted by entity and then by the order of changes."""

    def __init__(
        self, table: pa.RecordBatch, layout: Layout, message: Ints | None = None, *, distinct: bool = False
    ) -> None:
        self.table, self.layout = table, layout
        operation = ints(table.column("operation"))
        self.is_delete, self.is_absence = operation > 0, operation == OPERATIONS.index(ABSENT)
        self.priority = ints(table.column("priority"))
        self.record = ints(table.column("record_number"))
        self.message = _numbered(table.column("message_id")) if message is None else message
        """The messages as numbers: equal numbers, equal messages."""
        self.distinct = (
            distinct if message is not None else bool(self.message.max(initial=-1) + 1 == len(self))
        )
        """No message made two changes of one entity."""
        self._carried = [
            ints(table.column(carried_column(word))) for word, _ in enumerate(carried_words(layout.fields))
        ]

    @classmethod
    def of(cls, table: pa.RecordBatch, layout: Layout) -> Changes:
        """The changes of *table*; raises `InvalidChanges` where one lacks what every change needs."""
        for name in (*_NEEDED, *({ARRIVED, GUID} & set(table.schema.names))):
            if table.column(name).null_count:
                stated = {ARRIVED: "arrival.timestamp"}.get(name, name)
                raise InvalidChanges(stated, table.column(name).null_count)
        without_data = table.column(carried_column(0)).null_count
        if without_data:
            raise InvalidChanges("data and carried", without_data)
        return cls(table, layout)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def take(self, at: Ints) -> Changes:
        """The changes at these positions; one may be there for several entities, but once for each."""
        return Changes(self.table.take(pa.array(at)), self.layout, self.message[at], distinct=self.distinct)

    def where(self, keep: Bools) -> Changes:
        """Some of the changes, in their order."""
        table = self.table.filter(pa.array(keep))
        return Changes(table, self.layout, self.message[keep], distinct=self.distinct)

    def carries(self, index: int) -> Bools:
        """Whether each change carried the field at *index*."""
        word, bit = divmod(index, WORD)
        return ((self._carried[word] >> bit) & 1).astype(bool)

    def field_priority(self, index: int) -> Ints:
        """The priority with which each change speaks of a field: its own, but the entity's on a delete."""
        if index not in self.layout.field_priorities:
            return self.priority
        own = self.table.column(priority_column(index))
        return np.where(self.is_delete | bools(own.is_null()), self.priority, ints(pc.fill_null(own, 0)))

    def values(self, index: int) -> pa.Array:
        """The field's value as each change leaves it: null where it deletes."""
        values = self.table.column(value_column(index))
        if index in self.layout.keys or not self.is_delete.any():
            return values
        return pc.if_else(pa.array(self.is_delete), pa.scalar(None, values.type), values)

    def instants(self) -> Ints:
        """When each change is true, in microseconds."""
        return ints(self.table.column("effective_timestamp"))

    def repeated(self, entity: Ints) -> Bools:
        """The same (message, record number) twice is one change of an entity: all but the first."""
        again = np.zeros(len(self), dtype=bool)
        if not self.distinct:
            order = np.lexsort((self.record, self.message, entity))
            sorted_ = [column[order] for column in (entity, self.message, self.record)]
            again[order[1:]] = np.logical_and.reduce([column[1:] == column[:-1] for column in sorted_])
        return again

    def share_messages(self, entity: Ints) -> bool:
        """Whether a message made several changes of one entity."""
        if self.distinct:
            return False
        pairs = np.sort((entity << 32) + self.message)
        return bool((pairs[1:] == pairs[:-1]).any())


def _numbered(messages: pa.Array) -> Ints:
    """Each message's place among the distinct ones, in the order in which they first appear."""
    return ints(messages.dictionary_encode().indices)
