"""Changes as the kernel reads them: their columns, and what each says of what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdckit.errors import ErrorWithFacts
from cdckit.model.changes import ABSENT, DELETE, TRUNCATE, UNTIL, UPSERT
from cdckit.parts.arguments import quoted
from cdckit.parts.arrays import NEVER, NOWHERE, Bools, Ints, bools, ints, number_texts, positions

OPERATIONS = (UPSERT, DELETE, ABSENT, TRUNCATE)
"""The operations travel as their places in this list; truncates only among changes with `SNAPSHOT`."""

SNAPSHOT = "snapshot"
"""The column that says whether a snapshot read the entity, or its source's log says it: see `places`."""

MOVED_HERE = "moved_here"
"""The column that says whether an upsert brings a row that had another key before: see `shifts`."""

GUID = "guid"
KEYS = "cdckit.keys"
"""In the metadata of a column `guid` that is an identity itself: the key fields all the same."""

ARRIVED = "arrived"

TAKEN_ALONG = 1 << 30
"""From here on are the numbers of records that words have which a move took along: see `moves`."""

NO_PRIORITY = -(2**31)
"""The priority of such words: they say nothing of the row itself."""

WORD = 63
"""How many fields' flags one number holds: as many as stay positive."""


@dataclass(frozen=True)
class Layout:
    """
    Which columns stand for what.

    Args:
        fields: The names of the business fields, in order.
        keys: Which of the fields (by index) are key fields, in the order of the key.
        field_priorities: Which of the fields have a priority column of their own.
        by_guid: Whether the column `guid`, not the key fields, tells one entity from the next.
        entity: What the guids are made of beside the keys; None leaves them null.
        has_guid: Whether the column `guid` is there all the same, made of the key fields: then it need not
            be made, and one column tells entities apart.
    """

    fields: tuple[str, ...]
    keys: tuple[int, ...]
    field_priorities: frozenset[int]
    by_guid: bool
    entity: str | None
    has_guid: bool = False

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns that tell one entity from the next."""
        return (GUID,) if self.by_guid or self.has_guid else tuple(value_column(index) for index in self.keys)

    def tells_apart(self, index: int) -> bool:
        """Tell whether the field at *index* tells entities apart, so that it never changes in one."""
        return not self.by_guid and index in self.keys


def value_column(index: int) -> str:
    """The column with the values of the field at *index*."""
    return f"value_{index}"


def priority_column(index: int) -> str:
    """The column with the priority of the field at *index*, null where it is the entity's."""
    return f"priority_{index}"


def carried_words(names: Sequence[str]) -> list[Sequence[str]]:
    """The fields whose flags share a number: the first 63, the next 63, ..."""
    return [names[start : start + WORD] for start in range(0, len(names), WORD)]


def carried_column(word: int) -> str:
    """The column whose bits say which of the fields of a *word* the message sent."""
    return f"carried_{word}"


def flat_columns(names: Sequence[str], priorities: Sequence[str], says_places: bool) -> list[str]:
    """Write these columns as texts: a column made by functions is half a dozen calls into the JVM."""
    operations = [name for name in OPERATIONS if says_places or name != TRUNCATE]
    codes = " ".join(f"WHEN '{name}' THEN {OPERATIONS.index(name)}" for name in operations)
    columns = [
        f"CAST(CASE operation {codes} END AS byte) AS operation",
        "priority",
        "arrival.record_number AS record_number",
    ]
    for index, name in enumerate(names):
        columns.append(f"data.{quoted(name)} AS {quoted(value_column(index))}")
        if name in priorities:
            columns.append(f"field_priorities.{quoted(name)} AS {quoted(priority_column(index))}")
    for word, some in enumerate(carried_words(names)):
        columns.append(f"{_pack_carried(some)} AS {quoted(carried_column(word))}")
    return columns


def _pack_carried(names: Sequence[str]) -> str:
    """Pack whether each of these fields was carried into the bits of one number: less to send."""
    bits = " | ".join(f"if(carried.{quoted(name)}, {1 << bit}L, 0L)" for bit, name in enumerate(names))
    # Of a change that has no data, no field would be sent, and each be null: the workers refuse it.
    return f"if(data IS NULL OR carried IS NULL, NULL, {bits})"


_NEEDED = ("operation", "effective_timestamp", "message_id", "priority", "record_number")


class InvalidChanges(ErrorWithFacts, ValueError):
    """Changes reached the merge without what each needs: an instant, a message, data, an operation, ..."""

    column: str
    count: int
    sentence = (
        "The merge needs {column} in every change; at least {count} have none (or, "
        f"for the operation, none of {', '.join(OPERATIONS)}): keep them out before the merge."
    )


class InvalidEnds(ErrorWithFacts, ValueError):
    """Changes reached the merge that end before they begin, or as they do: they hold at no time."""

    count: int
    begin: Any
    end: Any
    sentence = (
        f"A change holds from effective_timestamp until {UNTIL}, which must be later; at least "
        "{count} do not, such as one from {begin} until {end}: keep them out before the "
        f"merge, or let {UNTIL} be null if they hold until something else is said."
    )


def require_whole(table: pa.RecordBatch) -> None:
    """Raise where a change lacks what every change needs, or (`InvalidEnds`) holds at no time."""
    for name in (*_NEEDED, *({ARRIVED, GUID} & set(table.schema.names))):
        if table.column(name).null_count:
            stated = {ARRIVED: "arrival.timestamp"}.get(name, name)
            raise InvalidChanges(stated, table.column(name).null_count)
    without_data = table.column(carried_column(0)).null_count
    if without_data:
        raise InvalidChanges("data and carried", without_data)
    if has_ends(table):
        begin, end = table.column("effective_timestamp"), table.column(UNTIL)
        wrong = bools(pc.less_equal(end, begin))
        if wrong.any():
            at = int(np.argmax(wrong))
            raise InvalidEnds(int(wrong.sum()), begin[at].as_py(), end[at].as_py())


def has_ends(table: pa.RecordBatch) -> bool:
    """Tell whether some of the changes end."""
    return UNTIL in table.schema.names and table.column(UNTIL).null_count < table.num_rows


class Changes:
    """Changes as Arrow columns, sorted by entity and then by the order of changes."""

    def __init__(self, table: pa.RecordBatch, layout: Layout, identity: ChangeIdentity | None = None) -> None:
        self.table, self.layout = table, layout
        operation = ints(table.column("operation"))
        self.is_delete, self.is_absence = operation > 0, operation == OPERATIONS.index(ABSENT)
        self.priority = ints(table.column("priority"))
        self._identity = ChangeIdentity.from_table(table) if identity is None else identity
        # Others have such numbers, too: hashes of rows, and what follows the last record of a message.
        self.is_taken_along = (self._identity.record >= TAKEN_ALONG) & (self.priority == NO_PRIORITY)
        self.has_ends = has_ends(table)
        self._carried = [
            ints(table.column(carried_column(word))) for word, _ in enumerate(carried_words(layout.fields))
        ]

    @property
    def message(self) -> Ints:
        """The ids of the messages as numbers: equal numbers, equal ids.  Of two sources they may be one."""
        return self._identity.message

    @classmethod
    def from_table(cls, table: pa.RecordBatch, layout: Layout) -> Changes:
        """The changes of *table*; raises `InvalidChanges` where one lacks what every change needs."""
        require_whole(table)
        return cls(table, layout)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def take(self, at: Ints) -> Changes:
        """The changes at these positions; one may be there for several entities, but once for each."""
        return Changes(self.table.take(pa.array(at)), self.layout, self._identity.select(at))

    def where(self, keep: Bools) -> Changes:
        """Some of the changes, in their order."""
        return Changes(self.table.filter(pa.array(keep)), self.layout, self._identity.select(keep))

    def carries(self, index: int) -> Bools:
        """Tell whether each change carried the field at *index*."""
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
        stated = self.table.column(priority_column(index)).take(positions(at))
        return self._field_priority(stated, self.priority[at])

    @staticmethod
    def _field_priority(stated: pa.Array, priority: Ints) -> Ints:
        return np.where(bools(stated.is_null()), priority, ints(pc.fill_null(stated, 0)))

    def values_at(self, index: int, at: Ints) -> pa.Array:
        """The field's value as the changes at these positions leave it: null after a delete or nowhere."""
        if index not in self.layout.keys:
            at = np.where(self.is_delete[at], NOWHERE, at)
        return self.table.column(value_column(index)).take(positions(at))

    def instants(self) -> Ints:
        """Tell when each change is true, in microseconds."""
        return ints(self.table.column("effective_timestamp"))

    def until(self) -> Ints:
        """Until when each change holds, in microseconds; `NEVER` if it has no end."""
        if not self.has_ends:
            return np.full(len(self), NEVER)
        return ints(pc.fill_null(self.table.column(UNTIL).cast(pa.int64()), NEVER))

    def find_repeats(self, entity: Ints) -> Bools:
        """Find all but the first of each (source, message, record number): it is one change of an entity."""
        again = np.zeros(len(self), dtype=bool)
        if not self._identity.distinct:
            order = self.order_by_record(entity)
            again[order[1:]] = self.same_record(entity, order[1:], order[:-1])
        return again

    def same_record(self, entity: Ints, first: Ints, other: Ints) -> Bools:
        """Pair by pair, whether the changes at *first* and at *other* are the same word about one entity."""
        columns = (entity, *self._identity.identity)
        same: Bools = np.logical_and.reduce([column[first] == column[other] for column in columns])
        return same

    def order_by_record(self, entity: Ints) -> Ints:
        """The positions, sorted by entity and by which word they are about it."""
        order: Ints = np.lexsort((*self._identity.identity, entity))
        return order

    def share_messages(self, entity: Ints) -> bool:
        """Tell whether messages of one id made several changes of one entity."""
        if self._identity.distinct:
            return False
        pairs = np.sort((entity << 32) + self.message)
        return bool((pairs[1:] == pairs[:-1]).any())


class ChangeIdentity(NamedTuple):
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
    def from_table(cls, table: pa.RecordBatch) -> ChangeIdentity:
        """That of every row of *table*."""
        message = number_texts(table.column("message_id"))
        distinct = bool(message.max(initial=-1) + 1 == len(message))
        return cls(
            message, number_texts(table.column("source")), ints(table.column("record_number")), distinct
        )

    def select(self, which: Ints | Bools) -> ChangeIdentity:
        """That of some of the changes."""
        return ChangeIdentity(self.message[which], self.source[which], self.record[which], self.distinct)
