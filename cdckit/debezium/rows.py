"""The rows of one table as its events send them: typed, exact, and which of their columns were sent."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from typing import Any, NamedTuple

import pyarrow as pa

from cdckit.debezium.connect_values import (
    common_reader,
    encoding,
    field_reader,
    has_places,
    known_encoding,
    refuse,
    unit_encoding,
)
from cdckit.debezium.envelopes import read_key
from cdckit.debezium.events import (
    DELETE,
    EVENT_TYPES,
    MONGODB,
    OF_ROWS,
    OF_TABLES,
    RECORD_TYPES,
    TRUNCATE,
    UPDATE,
    Event,
    EventFault,
    Image,
    is_of_table,
)
from cdckit.debezium.unsent_values import is_placeholder, placeholders
from cdckit.parts.json_objects import plain_text
from cdckit.parts.text_values import Read, Unreadable


@dataclass(frozen=True)
class TablePlan:
    """
    How the rows of a table are read.

    Args:
        table: Its name.
        columns: By field its types, and the type in common, which is the field's.
        sent_as: By field its column, as events name it.
        keys: The key fields.
        placeholder: What stands for a value that is not available.
        reject: Whether a value that its type cannot hold costs its row, or itself alone.
    """

    table: str
    columns: dict[str, tuple[tuple[str, ...], pa.DataType]]
    sent_as: dict[str, str]
    keys: tuple[str, ...]
    placeholder: str
    reject: bool

    @cached_property
    def readers(self) -> list[ColumnReader]:
        """The columns, as they are read."""
        return [
            ColumnReader(name, self.sent_as[name], kinds, common)
            for name, (kinds, common) in self.columns.items()
        ]

    @cached_property
    def key_readers(self) -> list[ColumnReader]:
        """Those of the key, in the order in which they were named, as in the tuples that are keys."""
        return [column for name in self.keys for column in self.readers if column.name == name]

    @cached_property
    def absent(self) -> frozenset[str]:
        """The texts that stand for a value that is not available."""
        return frozenset(placeholders(self.placeholder))

    @property
    def data_type(self) -> pa.StructType:
        """The type of a row."""
        return pa.struct([(name, common) for name, (_, common) in self.columns.items()])

    @property
    def carried_type(self) -> pa.StructType:
        """The type of what says which columns were sent."""
        return pa.struct([(name, pa.bool_()) for name in self.columns])

    @property
    def key_type(self) -> pa.StructType:
        """The type of a key."""
        return pa.struct([(name, self.columns[name][1]) for name in self.keys])

    def key_struct(self, key: Key) -> dict[str, Any]:
        """A key with the names of its columns."""
        return dict(zip(self.keys, key, strict=True))


Key = tuple[Any, ...]
Faults = defaultdict[int, dict[str, str]]
"""By row and column the values that could not be read, each behind the column's name."""


class ColumnReader:
    """
    A column: how its values are read.

    The column's types say what a value becomes.  If there are several, or the type has a scale or a unit, the
    event's own type says how the value is written; and so does its decimal of Connect for any number with
    places, since its Base64 may look like one.
    """

    def __init__(self, name: str, sent_as: str, kinds: Sequence[str], common: pa.DataType) -> None:
        self.name, self.sent_as, self.type = name, sent_as, common
        self._one_type = kinds[0] if len(kinds) == 1 else None
        self._readers_by_type: dict[str | None, Read] = {
            kind: common_reader(encoding(kind), common) for kind in kinds
        }
        last, has_unit = self._readers_by_type[kinds[-1]], unit_encoding(kinds[-1], common) is not None
        self._readers_by_type[None] = last if self._one_type else refuse
        self._default_reader = last if self._one_type or not has_unit else refuse
        is_read_alike = not (has_unit or has_places(common) or pa.types.is_nested(common))
        self._only_reader = last if self._one_type and is_read_alike else None

    def read(self, values: Iterable[Any], events: Sequence[Event], faults: Faults) -> list[Any]:
        """The typed values of events; None for null, and for what cannot be read, which is noted."""
        typed: list[Any] = []
        for row, (value, read) in enumerate(zip(values, self._readers(events), strict=False)):
            try:
                typed.append(None if value is None else read(value))
            except (Unreadable, RecursionError):
                typed.append(None)
                faults[row].setdefault(self.name, f"{self.name}: {(plain_text(value) or '')[:200]}")
        return typed

    def _readers(self, events: Sequence[Event]) -> Iterable[Read]:
        if self._only_reader is not None:
            return repeat(self._only_reader)
        kinds = [(event.types or {}).get(self.sent_as) for event in events]
        return [self._readers_by_type.get(kind) or self._add_reader(str(kind)) for kind in kinds]

    def _add_reader(self, kind: str) -> Read:
        """Choose the reader for a type that the column does not list, and remember it."""
        unit = unit_encoding(kind, self.type, self._one_type)
        written = unit or (None if self._one_type else encoding(known_encoding(kind)))
        read = None if written is None else field_reader(written, self.type)
        self._readers_by_type[kind] = read = read or (self._default_reader if unit is None else refuse)
        return read


class Rows(NamedTuple):
    """
    The rows of a table in one batch; each list has an entry for each of them.

    Args:
        places: Those of their records in the batch.
        events: What the records say.
        values, carried: By column of the table the typed values, and whether each was sent.
        keys: The key.
        old_keys: The key before the event, which may have sent only what changed.
        moved: Whether the event gave the row another key.
        other_keys: The key to which the row went, or from which it came, as a header says.
        faults: The values that could not be read and are null, where that does not cost the row.
        errors: Why the row cannot be used: a fault, and what is wrong.
    """

    places: list[int]
    events: list[Event]
    values: list[list[Any]]
    carried: list[list[bool]]
    keys: list[Key]
    old_keys: list[Key]
    moved: list[bool]
    other_keys: list[Key | None]
    faults: list[list[str] | None]
    errors: list[tuple[str, str] | None]

    def leave(self, row: int, plan: TablePlan) -> int:
        """Add an image of a row that says its old key alone, and that it was sent; its place."""
        old = plan.key_struct(self.old_keys[row])
        for name, values, carried in zip(plan.columns, self.values, self.carried, strict=True):
            values.append(old.get(name))
            carried.append(name in old)
        return len(self.carried[0]) - 1

    def structs(self, plan: TablePlan) -> tuple[pa.StructArray, pa.StructArray]:
        """The typed rows, and what was sent of them."""
        data, carried = (
            pa.StructArray.from_arrays(
                [pa.array(values, part.type) for values, part in zip(columns, kind, strict=True)],
                fields=list(kind),
            )
            for columns, kind in ((self.values, plan.data_type), (self.carried, plan.carried_type))
        )
        return data, carried


def read_rows(events: Sequence[Event], plan: TablePlan, operations: Sequence[str]) -> Rows:
    """Read the rows of a table out of events; those in error and of other tables are passed over."""
    chosen = [
        (place, event)
        for place, event in enumerate(events)
        if event.operation in operations
        and event.kind in OF_TABLES
        and event.error_code is None
        and is_of_table(event, plan.table)
    ]
    of_table = [event for _, event in chosen]
    sent = [_sent_values(event, plan) for event in of_table]
    faults: Faults = defaultdict(dict)
    values = [
        column.read([row.get(column.sent_as) for row in sent], of_table, faults) for column in plan.readers
    ]
    listed = {} if plan.reject else {row: list(findings.values()) for row, findings in faults.items()}
    typed = dict(zip(plan.columns, values, strict=True))
    key_parts = [_read_old(column, typed[column.name], of_table, sent, faults) for column in plan.key_readers]
    changed, old_keys = (list(zip(*parts, strict=True)) for parts in zip(*key_parts, strict=True))
    keys = list(zip(*(typed[name] for name in plan.keys), strict=True))
    return Rows(
        places=[place for place, _ in chosen],
        events=of_table,
        values=values,
        carried=[[column.sent_as in row for row in sent] for column in plan.readers],
        keys=keys,
        old_keys=old_keys,
        moved=[
            event.operation == UPDATE and any(of_row) for event, of_row in zip(of_table, changed, strict=True)
        ],
        other_keys=[_other_key(event, plan) for event in of_table],
        faults=[listed.get(row) for row in range(len(of_table))],
        errors=[
            _find_error(event, key, faults.get(row, {}), plan)
            for row, (event, key) in enumerate(zip(of_table, keys, strict=True))
        ],
    )


def _sent_values(event: Event, plan: TablePlan) -> Image:
    """
    Read by column what the event says, null or not; what is not there was not sent.

    Of a delete, which says no more than its key, that alone.  What was not sent because it did not change is
    what it was before, if that was sent.  A null there is no value: Debezium fills up with them what `before`
    does not hold.  A document of MongoDB is sent whole: of a field that it lacks nothing is left.
    """
    before, after, absent = event.before or {}, event.after or {}, plan.absent
    if event.operation == DELETE:
        names = [column.sent_as for column in plan.key_readers]
        key = event.row_key or {}
        return {name: key.get(name) if before.get(name) is None else before[name] for name in names}
    sent = {
        name: value
        for name, value in after.items()
        if not (value in absent if value.__class__ is str else is_placeholder(value, absent))
    }
    if event.connector == MONGODB:
        sent = {name: None for name in plan.sent_as.values() if name not in after} | sent
    unchanged = {
        name: was
        for name, was in before.items()
        if was is not None and name not in sent and not is_placeholder(was, absent)
    }
    return sent | unchanged if unchanged else sent


def _read_old(
    column: ColumnReader, typed: Sequence[Any], events: Sequence[Event], sent: Sequence[Image], faults: Faults
) -> tuple[list[bool], list[Any]]:
    """Tell whether the values of a key column were others before the events, and which they were."""
    before = [_old_value(event, column.sent_as) for event in events]
    changed = [
        was is not (now := row.get(column.sent_as)) and plain_text(was) != plain_text(now)
        for was, row in zip(before, sent, strict=True)
    ]
    others = [was if is_other else None for was, is_other in zip(before, changed, strict=True)]
    read = zip(changed, column.read(others, events, faults), typed, strict=True)
    return changed, [was if is_other else now for is_other, was, now in read]


def _old_value(event: Event, name: str) -> Any:
    """
    The value of a key column before the event, which may have sent only what changed.

    Where another index than the primary key is a table's replica identity, `before` has null for the key.
    """
    was = None if event.before is None else event.before.get(name)
    return (event.after or {}).get(name) if was is None else was


def _other_key(event: Event, plan: TablePlan) -> Key | None:
    text = event.new_key if event.operation == DELETE else event.old_key
    sent = None if text is None else read_key(text.encode())
    if sent is None:
        return None
    unread: Faults = defaultdict(dict)
    key = tuple(column.read([sent.get(column.sent_as)], [event], unread)[0] for column in plan.key_readers)
    return None if None in key else key


def _find_error(event: Event, key: Key, findings: dict[str, str], plan: TablePlan) -> tuple[str, str] | None:
    """The code and the sentence of what is wrong with a row, if anything is."""
    for name in plan.columns if findings else ():
        if name in findings and (plan.reject or name in plan.keys):
            return _error(EventFault.VALUE_INVALID, findings[name])
    if None in key and event.operation != TRUNCATE:
        values = plan.key_struct(key)
        return _error(EventFault.KEY_MISSING, next(n for n in plan.columns if values.get(n, "") is None))
    return None


def _error(fault: EventFault, shown: str) -> tuple[str, str]:
    return fault.value, fault.describe(f"It says: {shown[:200]}")


# As columns -----------------------------------------------------------------------------------------------

_OF_EVENTS = (
    "source", "operation", "snapshot", "event_timestamp", "time_taken_from", "position", "transaction_id",
    "new_key", "old_key",
)  # fmt: skip
FAULTS = pa.list_(pa.field("element", pa.string()))


def row_types(plan: TablePlan) -> dict[str, pa.DataType]:
    """Name what stands beside the columns of the records in a table of rows."""
    return {name: EVENT_TYPES[name] for name in _OF_EVENTS} | {
        "data": plan.data_type,
        "carried": plan.carried_type,
        "old": plan.key_type,
        "moved": pa.bool_(),
        "faults": FAULTS,
        "error_code": pa.string(),
        "error_description": pa.string(),
    }


def row_batch(
    batch: pa.RecordBatch, events: Callable[[pa.RecordBatch], list[Event]], plan: TablePlan
) -> pa.RecordBatch:
    """The columns of the records and of `row_types`, a row for each that is about a row of the table."""
    rows = read_rows(events(batch), plan, OF_ROWS)
    data, carried = rows.structs(plan)
    errors = [error or (None, None) for error in rows.errors]
    places = pa.array(rows.places, pa.int64())
    columns = [
        *(batch.column(name).take(places) for name in RECORD_TYPES),
        *(
            pa.array([getattr(event, name) for event in rows.events], EVENT_TYPES[name])
            for name in _OF_EVENTS
        ),
        data,
        carried,
        pa.array([plan.key_struct(key) for key in rows.old_keys], plan.key_type),
        pa.array(rows.moved, pa.bool_()),
        pa.array(rows.faults, FAULTS),
        *(pa.array([error[part] for error in errors], pa.string()) for part in (0, 1)),
    ]
    return pa.RecordBatch.from_arrays(columns, [*RECORD_TYPES, *row_types(plan)])
