"""What each change of a sorted table says, and which of them count."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdckit.changes import ABSENT
from cdckit.errors import CdcError
from cdckit.kernel.arrays import bools, ints, positions
from cdckit.kernel.layout import (
    ARRIVED,
    GUID,
    NO_PRIORITY,
    OPERATIONS,
    TAKEN_ALONG,
    WORD,
    Layout,
    carried_column,
    carried_words,
    priority_column,
    value_column,
)
from cdckit.parts.running_aggregates import NOWHERE, Bools, Ints

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


def require_whole(table: pa.RecordBatch) -> None:
    """Raise `InvalidChanges` where a change lacks what every change needs."""
    for name in (*_NEEDED, *({ARRIVED, GUID} & set(table.schema.names))):
        if table.column(name).null_count:
            stated = {ARRIVED: "arrival.timestamp"}.get(name, name)
            raise InvalidChanges(stated, table.column(name).null_count)
    without_data = table.column(carried_column(0)).null_count
    if without_data:
        raise InvalidChanges("data and carried", without_data)


class Changes:
    """Changes as Arrow columns, sorted by entity and then by the order of changes."""

    def __init__(self, table: pa.RecordBatch, layout: Layout, said: Said | None = None) -> None:
        self.table, self.layout = table, layout
        operation = ints(table.column("operation"))
        self.is_delete, self.is_absence = operation > 0, operation == OPERATIONS.index(ABSENT)
        self.priority = ints(table.column("priority"))
        self._said = Said.of(table) if said is None else said
        # Others have such numbers, too: hashes of rows, and what follows the last record of a message.
        self.is_taken_along = (self._said.record >= TAKEN_ALONG) & (self.priority == NO_PRIORITY)
        self._carried = [
            ints(table.column(carried_column(word))) for word, _ in enumerate(carried_words(layout.fields))
        ]

    @property
    def message(self) -> Ints:
        """The ids of the messages as numbers: equal numbers, equal ids.  Of two sources they may be one."""
        return self._said.message

    @classmethod
    def of(cls, table: pa.RecordBatch, layout: Layout) -> Changes:
        """The changes of *table*; raises `InvalidChanges` where one lacks what every change needs."""
        require_whole(table)
        return cls(table, layout)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def take(self, at: Ints) -> Changes:
        """The changes at these positions; one may be there for several entities, but once for each."""
        return Changes(self.table.take(pa.array(at)), self.layout, self._said.at(at))

    def where(self, keep: Bools) -> Changes:
        """Some of the changes, in their order."""
        return Changes(self.table.filter(pa.array(keep)), self.layout, self._said.at(keep))

    def carries(self, index: int) -> Bools:
        """Whether each change carried the field at *index*."""
        word, bit = divmod(index, WORD)
        return ((self._carried[word] >> bit) & 1).astype(bool)

    def field_priority(self, index: int) -> Ints:
        """The priority with which each change speaks of a field: its own, or else the entity's."""
        if index not in self.layout.field_priorities:
            return self.priority
        return self._field_priority(self.table.column(priority_column(index)), self.priority)

    def field_priority_at(self, index: int, at: Ints) -> Ints:
        """That of the changes at these positions; anything where there is none."""
        if index not in self.layout.field_priorities:
            return self.priority[at]
        own = self.table.column(priority_column(index)).take(positions(at))
        return self._field_priority(own, self.priority[at])

    @staticmethod
    def _field_priority(own: pa.Array, priority: Ints) -> Ints:
        return np.where(bools(own.is_null()), priority, ints(pc.fill_null(own, 0)))

    def values_at(self, index: int, at: Ints) -> pa.Array:
        """The field's value as the changes at these positions leave it: null after a delete or nowhere."""
        if index not in self.layout.keys:
            at = np.where(self.is_delete[at], NOWHERE, at)
        return self.table.column(value_column(index)).take(positions(at))

    def instants(self) -> Ints:
        """When each change is true, in microseconds."""
        return ints(self.table.column("effective_timestamp"))

    def repeated(self, entity: Ints) -> Bools:
        """The same (source, message, record number) twice is one change of an entity: all but the first."""
        again = np.zeros(len(self), dtype=bool)
        if not self._said.distinct:
            order = self.by_record(entity)
            again[order[1:]] = self.same_record(entity, order[1:], order[:-1])
        return again

    def same_record(self, entity: Ints, one: Ints, other: Ints) -> Bools:
        """Pair by pair, whether the changes at *one* and at *other* are the same word about one entity."""
        columns = (entity, *self._said.identity)
        same: Bools = np.logical_and.reduce([column[one] == column[other] for column in columns])
        return same

    def by_record(self, entity: Ints) -> Ints:
        """The positions, sorted by entity and by which word they are about it."""
        order: Ints = np.lexsort((*self._said.identity, entity))
        return order

    def share_messages(self, entity: Ints) -> bool:
        """Whether messages of one id made several changes of one entity."""
        if self._said.distinct:
            return False
        pairs = np.sort((entity << 32) + self.message)
        return bool((pairs[1:] == pairs[:-1]).any())


class Said(NamedTuple):
    """Which word each change is: of which source, in which of its messages, as which record of it."""

    message: Ints
    source: Ints
    record: Ints
    distinct: bool
    """No entity has two changes of one message id."""

    @property
    def identity(self) -> tuple[Ints, ...]:
        """What two deliveries of one word have in common."""
        return (self.record, self.message, self.source)

    @classmethod
    def of(cls, table: pa.RecordBatch) -> Said:
        """That of every row of *table*."""
        message = _numbered(table.column("message_id"))
        distinct = bool(message.max(initial=-1) + 1 == len(message))
        return cls(message, _numbered(table.column("source")), ints(table.column("record_number")), distinct)

    def at(self, which: Ints | Bools) -> Said:
        """That of some of the changes."""
        return Said(self.message[which], self.source[which], self.record[which], self.distinct)


def _numbered(texts: pa.Array) -> Ints:
    """Each text's place among the distinct ones, in the order in which they first appear; null is one."""
    return ints(texts.dictionary_encode("encode").indices)
