"""
Changes as the kernel reads them: their columns, what each says of what, and the order of their source.

A log is in order; the times in it need not be.  A snapshot says when it read a row, while what changed the
row after that, and is delivered after it, says an earlier time: of its commit.  MySQL says when a statement
began, before it waited for the commit of another one.  So of each entity and source, the changes that say a
place count in the order of their places, and their times follow:

- one that the log says is true from its own time on, but not before any that stands ahead of it;
- one that a snapshot read is true from its own time on, but no later than what stands behind it.

A source may have had several logs, such as those of the servers that were its master one after another: then
a place begins with the name of its log and `LOG_END`.  Of two logs not the places count, but the times.  A
read may not know the name; it is true no later than what stands behind it in any of them.

A truncate is said once, of all entities of its source: each that the source spoke of since the truncate
before has an absence at its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdckit.errors import CdcError
from cdckit.model.changes import ABSENT, DELETE, LOG_END, TRUNCATE, UNTIL, UPSERT
from cdckit.parts.arguments import quoted
from cdckit.parts.arrays import (
    NEVER,
    NOWHERE,
    Bools,
    Ints,
    bools,
    first_of_entity,
    ints,
    number_texts,
    positions,
    rank_values,
    whole_entities,
)
from cdckit.parts.arrow_types import make_batch

OPERATIONS = (UPSERT, DELETE, ABSENT, TRUNCATE)
"""The operations travel as their places in this list; truncates only among changes with `SNAPSHOT`."""

SNAPSHOT = "snapshot"
"""The column that says whether a snapshot read the entity, or its source's log says it: see `places`."""

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
        """Whether the field at *index* tells one entity from the next, so that it never changes in one."""
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
    """What these columns are, as texts: a column made by functions is half a dozen calls into the JVM."""
    known = [name for name in OPERATIONS if says_places or name != TRUNCATE]
    codes = " ".join(f"WHEN '{name}' THEN {OPERATIONS.index(name)}" for name in known)
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
    """Whether each of these fields was carried, as the bits of one number: less to shuffle and to send."""
    bits = " | ".join(f"if(carried.{quoted(name)}, {1 << bit}L, 0L)" for bit, name in enumerate(names))
    # Of a change that has no data, no field would be sent, and each be null: the workers refuse it.
    return f"if(data IS NULL OR carried IS NULL, NULL, {bits})"


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


class InvalidEnds(CdcError, ValueError):
    """Changes reached the merge that end before they begin, or as they do: they hold at no time."""

    def __init__(self, count: int, begin: Any, end: Any) -> None:
        self.count, self.begin, self.end = count, begin, end
        super().__init__(count, begin, end)

    def __str__(self) -> str:
        return (
            f"A change holds from effective_timestamp until {UNTIL}, which must be later; at least "
            f"{self.count} do not, such as one from {self.begin} until {self.end}: keep them out before the "
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
    """Whether some of the changes end."""
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

    def until(self) -> Ints:
        """Until when each change holds, in microseconds; `NEVER` if it has no end."""
        if not self.has_ends:
            return np.full(len(self), NEVER)
        return ints(pc.fill_null(self.table.column(UNTIL).cast(pa.int64()), NEVER))

    def find_repeats(self, entity: Ints) -> Bools:
        """The same (source, message, record number) twice is one change of an entity: all but the first."""
        again = np.zeros(len(self), dtype=bool)
        if not self._identity.distinct:
            order = self.order_by_record(entity)
            again[order[1:]] = self.same_record(entity, order[1:], order[:-1])
        return again

    def same_record(self, entity: Ints, one: Ints, other: Ints) -> Bools:
        """Pair by pair, whether the changes at *one* and at *other* are the same word about one entity."""
        columns = (entity, *self._identity.identity)
        same: Bools = np.logical_and.reduce([column[one] == column[other] for column in columns])
        return same

    def order_by_record(self, entity: Ints) -> Ints:
        """The positions, sorted by entity and by which word they are about it."""
        order: Ints = np.lexsort((*self._identity.identity, entity))
        return order

    def share_messages(self, entity: Ints) -> bool:
        """Whether messages of one id made several changes of one entity."""
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


PLACES = ("sequence", "arrival", SNAPSHOT)
"""The columns that say a place; from here on they are not needed."""

_ARRIVAL = ("timestamp", "topic", "partition", "offset", "record_number")


def order_entities(
    batches: Iterable[pa.RecordBatch], layout: Layout, together: Sequence[str] = ()
) -> Iterator[pa.RecordBatch]:
    """
    The changes of whole entities, in the order in which they count.

    Args:
        batches: The changes, sorted by identity and then by the order of changes; truncates stand first.
            Where they lack the columns `PLACES` they are in order as they are.
        layout: Of their columns.
        together: The columns that say which entities are wanted in one batch, if several are; then the
            changes are sorted by these first.
    """
    truncates = None
    for table in whole_entities(batches, together or layout.identity):
        if SNAPSHOT not in table.schema.names:
            yield table
            continue
        require_whole(table)
        is_truncate = ints(table.column("operation")) == OPERATIONS.index(TRUNCATE)
        if is_truncate.any():
            # Each task and bucket has a copy of every truncate, a task with several of them more.
            truncates = _distinct_truncates(table.filter(pa.array(is_truncate)))
            table = table.filter(pa.array(~is_truncate))
        if table.num_rows:
            yield _order_entity(table, truncates, layout)


def _distinct_truncates(truncates: pa.RecordBatch) -> pa.RecordBatch:
    names = ("record_number", "message_id", "source")
    same = np.stack([rank_values(truncates.column(name)) for name in names])
    first = np.unique(same, axis=1, return_index=True)[1]
    return truncates.take(pa.array(np.sort(first)))


def _order_entity(table: pa.RecordBatch, truncates: pa.RecordBatch | None, layout: Layout) -> pa.RecordBatch:
    entity = np.cumsum(first_of_entity(table, layout.identity), dtype=np.int64)
    count = len(entity)
    if truncates is not None:
        table, entity = _with_absences(table, entity, truncates, layout)
    instants = _bound_reads(table, entity, _placed_times(table, entity))
    if len(entity) > count or (instants != ints(table.column("effective_timestamp"))).any():
        at = table.schema.get_field_index("effective_timestamp")
        followed = pa.array(instants).cast(table.schema.field(at).type)
        table = table.set_column(at, table.schema.field(at), followed)
        table = table.take(pa.array(order_positions(table, entity, instants)))
        if has_ends(table):
            # What would begin later than it ends never holds.
            table = table.filter(pc.fill_null(pc.greater(table.column(UNTIL), table.column(at)), True))
    return table.select([name for name in table.schema.names if name not in PLACES])


def order_positions(rows: pa.RecordBatch, *before: Ints) -> Ints:
    """The positions of changes, sorted by *before* and then by the order of changes after their times."""
    source, message, sequence = (
        rank_values(rows.column(name)) for name in ("source", "message_id", "sequence")
    )
    order: Ints = np.lexsort((source, message, arrivals(rows), sequence, *reversed(before)))
    return order


def arrivals(rows: pa.RecordBatch) -> Ints:
    """Numbers that sort as the arrivals of changes do."""
    arrival = rows.column("arrival")
    columns = [rank_values(arrival.field(name)) for name in _ARRIVAL]
    order = np.lexsort(columns[::-1])
    later = [column[order[1:]] != column[order[:-1]] for column in columns]
    numbers = np.zeros(len(order), np.int64)
    numbers[order[1:]] = np.cumsum(np.logical_or.reduce(later))
    return numbers


def is_placed(rows: pa.RecordBatch) -> Bools:
    """Which changes say their place in the log of their source."""
    sequence = pc.fill_null(rows.column("sequence"), "")
    return bools(pc.and_(pc.not_equal(sequence, ""), rows.column(SNAPSHOT).is_valid()))


def _placed_times(table: pa.RecordBatch, entity: Ints) -> Ints:
    """The times of changes, which follow the places of those that say one."""
    instants = ints(table.column("effective_timestamp")).copy()
    at = np.flatnonzero(is_placed(table))
    if not len(at):
        return instants
    rows = table.take(pa.array(at))
    own, is_read = instants[at], bools(rows.column(SNAPSHOT))
    source, log = rank_values(rows.column("source")), _logs(rows)
    order = order_positions(rows, entity[at], source, log)
    instants[at[order]], _ = _order_times(
        own[order], is_read[order], entity[at][order], source[order], log[order]
    )
    if log.any():
        order = np.lexsort((own, rank_values(_places_in_log(rows)), source, entity[at]))
        _, bound = _order_times(own[order], is_read[order], entity[at][order], source[order])
        unnamed = (is_read & (log == 0))[order]
        instants[at[order][unnamed]] = bound[unnamed]
    return instants


def _bound_reads(table: pa.RecordBatch, entity: Ints, instants: Ints) -> Ints:
    """
    The times of changes, where those of reads without a place are no later than what came after them.

    Of what came twice the first bounds, which is the one that a ledger keeps.
    """
    is_read = bools(table.column(SNAPSHOT))
    unplaced = is_read & ~is_placed(table)
    if not unplaced.any():
        return instants
    source, arrived = rank_values(table.column("source")), arrivals(table)
    message, record = rank_values(table.column("message_id")), ints(table.column("record_number"))
    order = np.lexsort((arrived, record, message, source, entity))
    copied = np.zeros(len(order), dtype=bool)
    same = [each[order[1:]] == each[order[:-1]] for each in (record, message, source, entity)]
    copied[order[1:]] = np.logical_and.reduce(same)
    order = np.lexsort((arrived, source, entity))
    new = np.ones(len(order), dtype=bool)
    new[1:] = np.logical_or.reduce([each[order[1:]] != each[order[:-1]] for each in (source, entity)])
    times, rank = np.unique(instants, return_inverse=True)
    # As ranks after that of whose they are: a running minimum from the end needs no restart.
    whose = np.cumsum(new) * (len(times) + 1)
    behind = whose + np.where(is_read | copied, len(times), rank)[order]
    bound = np.minimum.accumulate(behind[::-1])[::-1] - whose
    bounded = np.empty_like(rank)
    bounded[order] = np.minimum(rank[order], bound)
    return np.where(unplaced, times[bounded], instants)


def _order_times(own: Ints, is_read: Bools, *whose: Ints) -> tuple[Ints, Ints]:
    """The times of changes that stand in the order of their places; and what bounds those of reads."""
    new = np.ones(len(own), dtype=bool)
    new[1:] = np.logical_or.reduce([each[1:] != each[:-1] for each in whose])
    of = np.cumsum(new)
    # Times as their ranks: a running maximum of (whose, rank) needs no restart.
    times, rank = np.unique(own, return_inverse=True)
    several = len(times) + 1
    logged = np.maximum.accumulate(of * several + np.where(is_read, 0, rank + 1))
    behind = np.where(is_read, of * several + rank, logged - 1)
    behind = np.minimum.accumulate(behind[::-1])[::-1] - of * several
    rank = np.where(is_read, behind, rank)
    return times[np.maximum.accumulate(of * several + rank) - of * several], times[rank]


def _logs(rows: pa.RecordBatch) -> Ints:
    """The log of each place as a number: 0 where it has no name."""
    name = pc.replace_substring_regex(rows.column("sequence"), f"^([^{LOG_END}]*{LOG_END})?.*$", r"\1")
    return np.where(bools(pc.equal(name, "")), 0, rank_values(name) + 1)


def _places_in_log(rows: pa.RecordBatch) -> pa.Array:
    """The places without the names of their logs, and the numbers of their transactions."""
    return pc.replace_substring_regex(rows.column("sequence"), f"^.*{LOG_END}", "")


def _with_absences(
    table: pa.RecordBatch, entity: Ints, truncates: pa.RecordBatch, layout: Layout
) -> tuple[pa.RecordBatch, Ints]:
    """The changes, and of each entity its absences at the truncates that found it."""
    both = pa.Table.from_batches([truncates.select(_ORDERED), table.select(_ORDERED)])
    rows = both.combine_chunks().to_batches()[0]
    source, placed, count = rank_values(rows.column("source")), is_placed(rows), truncates.num_rows
    found = [_next_truncate(order_positions(rows, source), source, count, placed)]
    if not placed.all() or _logs(rows).any():
        # An absence that is too many does nothing: when it is true decides.
        instants = ints(rows.column("effective_timestamp"))
        found.append(
            _next_truncate(order_positions(rows, source, instants), source, count, np.ones_like(placed))
        )
    says = ints(table.column("operation")) == OPERATIONS.index(UPSERT)
    mention = np.concatenate([np.flatnonzero(says & (each[count:] != NOWHERE)) for each in found])
    truncate = np.concatenate([each[count:][says & (each[count:] != NOWHERE)] for each in found])
    first = np.unique(entity[mention] * count + truncate, return_index=True)[1]
    mention, truncate = mention[first], truncate[first]
    absences = _absences(table.take(pa.array(mention)), truncates.take(pa.array(truncate)), layout)
    joined = pa.Table.from_batches([table, absences]).combine_chunks().to_batches()[0]
    return joined, np.concatenate([entity, entity[mention]])


_ORDERED = ["effective_timestamp", *PLACES, "message_id", "source"]


def _next_truncate(order: Ints, source: Ints, count: int, asks: Bools) -> Ints:
    """For each change that *asks*, the next truncate of its source in *order*; those are the first rows."""
    is_truncate = order < count
    behind = np.where(is_truncate, np.arange(len(order)), len(order))
    behind = np.minimum.accumulate(behind[::-1])[::-1]
    there = np.append(order, NOWHERE)[behind]
    same = (there != NOWHERE) & (source[there] == source[order])
    found = np.empty(len(order), np.int64)
    found[order] = np.where(same, there, NOWHERE)
    return np.where(asks, found, NOWHERE)


def _absences(mentions: pa.RecordBatch, truncates: pa.RecordBatch, layout: Layout) -> pa.RecordBatch:
    """An absence of the entity of each mention, at the truncate beside it."""
    count = mentions.num_rows
    columns = dict(zip(truncates.schema.names, truncates.columns, strict=True))
    columns["operation"] = pa.array(
        np.full(count, OPERATIONS.index(ABSENT)), mentions.schema.field("operation").type
    )
    for index, _ in enumerate(layout.fields):
        if index in layout.keys:
            columns[value_column(index)] = mentions.column(value_column(index))
    for word, _ in enumerate(carried_words(layout.fields)):
        bits = sum(1 << index % WORD for index in layout.keys if index // WORD == word)
        columns[carried_column(word)] = pa.array(np.full(count, bits, np.int64))
    if GUID in columns:
        columns[GUID] = mentions.column(GUID)
    return make_batch(columns, mentions.schema)
