"""The rows of one table, typed and exact, which of their columns were sent, and the changes that they are."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from cdckit.debezium.encodings import Encoding, encoding
from cdckit.debezium.envelopes import read_key
from cdckit.debezium.events import (
    DELETE,
    INSTANT,
    MONGODB,
    READ,
    TRUNCATE,
    UPDATE,
    Event,
    EventFault,
    Image,
    Kind,
    is_of_table,
    table_name,
)
from cdckit.parts.json_objects import json_text, plain_text
from cdckit.parts.text_values import Unreadable

PLACEHOLDER = "__debezium_unavailable_value"
"""What Debezium writes, unless told otherwise, for a large value that did not change."""


def placeholders(placeholder: str) -> list[str]:
    """
    The texts by which Debezium says that a value is not available, by the type of its column.

    Text and JSON; bytes, in Base64; lists of these; a list of numbers, which are its bytes; an hstore; and a
    list of UUIDs, made of its bytes.

    >>> placeholders("p")
    ['p', 'cA==', '["p"]', '["cA=="]', '[112]', '{"p":"p"}', '["83878c91-1713-3890-ae0f-e0fb97a8c47a"]']
    """
    raw = placeholder.encode()
    coded = base64.b64encode(raw).decode()
    by_name = UUID(bytes=hashlib.md5(raw, usedforsecurity=False).digest(), version=3)
    lists = [[placeholder], [coded], list(raw), {placeholder: placeholder}, [str(by_name)]]
    texts = (json.dumps(value, separators=(",", ":"), ensure_ascii=False) for value in lists)
    return [placeholder, coded, *texts]


@dataclass(frozen=True)
class TablePlan:
    """
    How the rows of a table are read.

    Args:
        table: Its name.
        columns: By field its types, of several the last for an event whose type is none of them, and the
            type in common.
        sent_as: By field its column, as events name it.
        keys: The key fields.
        placeholder: What stands for a value that is not available.
        reject: Whether a value that its type cannot hold costs its row, or itself alone.
        to_common: Values of one type in the type in common.
    """

    table: str
    columns: dict[str, tuple[tuple[str, ...], pa.DataType]]
    sent_as: dict[str, str]
    keys: tuple[str, ...]
    placeholder: str
    reject: bool
    to_common: Callable[[pa.Array, pa.DataType], pa.Array] = field(compare=False)

    @cached_property
    def readers(self) -> list[_Column]:
        """The columns, as they are read."""
        return [
            _Column(name, self.sent_as[name], name in self.keys, types, common, self.to_common)
            for name, (types, common) in self.columns.items()
        ]

    @cached_property
    def absent(self) -> frozenset[str]:
        """The texts that stand for a value that is not available."""
        return frozenset(placeholders(self.placeholder))


class _Column:
    """A column: how its values are read, by the event's own type of it where there are several."""

    def __init__(
        self,
        name: str,
        sent_as: str,
        is_key: bool,
        types: Sequence[str],
        common: pa.DataType,
        to_common: Callable[[pa.Array, pa.DataType], pa.Array],
    ) -> None:
        self.name, self.sent_as, self.is_key, self.type = name, sent_as, is_key, common
        self._encodings = {kind: encoding(kind, function="changes") for kind in types}
        self._only = next(iter(self._encodings.values())) if len(types) == 1 else None
        self._last, self._to_common = types[-1], to_common

    def read(self, value: Any, event: Event) -> Any:
        """The value of an event, which is not null; raises `Unreadable`."""
        if self._only is not None:
            return self._only.read(value)
        kind = (event.types or {}).get(self.sent_as)
        if kind is None:
            raise Unreadable
        by = self._encodings.get(kind) or self._encodings[self._last]
        return self._common(by, by.read(value))

    def _common(self, by: Encoding, value: Any) -> Any:
        if by.type == self.type:
            return value
        (common,) = self._to_common(pa.array([value], by.type), self.type)
        return common.cast(pa.int64()).as_py() if pa.types.is_timestamp(self.type) else common.as_py()


class Row(NamedTuple):
    """What an event says of a row; its values and flags stand beside it, column by column."""

    place: int
    """Of its record among those of the batch."""
    event: Event
    moved: bool
    old: tuple[Any, ...]
    """The key before the event, which may have sent only what changed."""
    other: tuple[Any, ...] | None
    """The key to which the row went, or from which it came, as a header says."""
    faults: list[str] | None
    error_code: str | None
    error_description: str | None


class Rows(NamedTuple):
    """The rows of a table in one batch, the values of each column, and whether each was sent."""

    rows: list[Row]
    values: list[list[Any]]
    carried: list[list[bool]]


def read_rows(events: Sequence[Event], plan: TablePlan, operations: Sequence[str]) -> Rows:
    """What the events say of the rows of a table; those in error and of other tables are passed over."""
    table, columns = plan.table, plan.readers
    rows: list[Row] = []
    values: list[list[Any]] = [[] for _ in columns]
    carried: list[list[bool]] = [[] for _ in columns]
    for place, event in enumerate(events):
        if event.operation not in operations or event.kind not in _OF_TABLES or event.error_code is not None:
            continue
        if event.table != table and not is_of_table(event, table):
            continue
        sent = _sent_values(event, plan)
        faults, row = _Faults(), []
        for column, (value, is_sent), to, flags in zip(columns, sent, values, carried, strict=True):
            typed = faults.read(column, value, event)
            row.append(typed)
            to.append(typed)
            flags.append(is_sent)
        rows.append(_row(place, event, plan, [value for value, _ in sent], row, faults))
    return Rows(rows, values, carried)


_OF_TABLES = (Kind.ROW, Kind.TRUNCATE)


class RejectedRecord(NamedTuple):
    """An event that cannot be used: the place of its record in the batch, why, and its source."""

    place: int
    error_code: str
    error_description: str | None
    source: str | None


def find_rejects(events: Sequence[Event], found: Rows, table: str) -> list[RejectedRecord]:
    """The events in error, of a table or of nobody knows which, and its rows that cannot be changes."""
    unread = [
        RejectedRecord(place, event.error_code, event.error_description, event.source)
        for place, event in enumerate(events)
        if event.error_code is not None and (event.table is None or is_of_table(event, table))
    ]
    rows = (row for row in found.rows if row.error_code is not None)
    return unread + [
        RejectedRecord(row.place, row.error_code or "", row.error_description, row.event.source)
        for row in rows
    ]


class _Faults:
    """The values of a row that could not be read: by column what was sent."""

    def __init__(self) -> None:
        self.findings: dict[str, str] = {}

    def read(self, column: _Column, value: Any, event: Event) -> Any:
        """The typed value, None for null and for what cannot be read."""
        if value is None:
            return None
        try:
            return column.read(value, event)
        except (Unreadable, RecursionError):
            self.findings.setdefault(column.name, f"{column.name}: {(plain_text(value) or '')[:200]}")
            return None


def _sent_values(event: Event, plan: TablePlan) -> list[tuple[Any, bool]]:
    """
    By column the value, and whether it is what the event says, null or not.

    Of a delete, which says no more than its key, that alone.  What was not sent because it did not change is
    what it was before, if that was sent.  A null there is no value: Debezium fills up with them what `before`
    does not hold.  A document of MongoDB is sent whole: of a field that it lacks nothing is left.
    """
    before, after, absent = event.before or {}, event.after, plan.absent
    if event.operation == DELETE:
        return [
            (_key_of_delete(event, column) if column.is_key else None, column.is_key)
            for column in plan.readers
        ]
    is_whole, now = event.connector == MONGODB, after or {}
    sent = []
    for column in plan.readers:
        value = now.get(column.sent_as)
        if value is not None and not _is_absent(value, absent):
            sent.append((value, True))
        elif value is None and (is_whole or column.sent_as in now):
            sent.append((None, True))
        else:
            was = before.get(column.sent_as)
            is_there = was is not None and not _is_absent(was, absent)
            sent.append((was if is_there else None, is_there))
    return sent


def _key_of_delete(event: Event, column: _Column) -> Any:
    value = (event.before or {}).get(column.sent_as)
    return (event.row_key or {}).get(column.sent_as) if value is None else value


def _is_absent(value: Any, absent: frozenset[str]) -> bool:
    """Whether a value is one of the placeholders."""
    if value.__class__ is str:
        return value in absent
    return value.__class__ in (list, dict) and json_text(value) in absent


def _row(
    place: int, event: Event, plan: TablePlan, sent: Sequence[Any], typed: Sequence[Any], faults: _Faults
) -> Row:
    """The row with its key before, the key that headers name, and what is wrong with it."""
    keys = [(column, sent[at], typed[at]) for at, column in enumerate(plan.readers) if column.is_key]
    findings = dict(faults.findings)
    old, moved = [], False
    for column, value, now in keys:
        was = _old_value(event, column.sent_as)
        if was is value or plain_text(was) == plain_text(value):
            old.append(now)
        else:
            moved = moved or event.operation == UPDATE
            old.append(faults.read(column, was, event))
    other = _other_key(event, plan)
    wrong = faults.findings if plan.reject else {k: v for k, v in faults.findings.items() if k in plan.keys}
    fault, shown = _fault(event, plan, wrong, keys)
    listed = None if plan.reject or not findings else list(findings.values())
    described = None if fault is None else fault.describe(f"It says: {shown[:200]}")
    return Row(place, event, moved, tuple(old), other, listed, fault and fault.value, described)


def _fault(
    event: Event, plan: TablePlan, wrong: dict[str, str], keys: Sequence[tuple[_Column, Any, Any]]
) -> tuple[EventFault | None, str]:
    if wrong:
        return EventFault.VALUE_INVALID, next(wrong[name] for name in plan.columns if name in wrong)
    if event.operation != TRUNCATE:
        for column, _, value in keys:
            if value is None:
                return EventFault.KEY_MISSING, column.name
    return None, ""


def _old_value(event: Event, name: str) -> Any:
    """
    The value of a key column before the event, which may have sent only what changed.

    Where another index than the primary key is a table's replica identity, `before` has null for the key.
    """
    was = None if event.before is None else event.before.get(name)
    return (event.after or {}).get(name) if was is None else was


def _other_key(event: Event, plan: TablePlan) -> tuple[Any, ...] | None:
    text = event.new_key if event.operation == DELETE else event.old_key
    key: Image | None = None if text is None else read_key(text.encode())
    if key is None:
        return None
    columns, faults = {column.name: column for column in plan.readers}, _Faults()
    values = tuple(faults.read(columns[name], key.get(plan.sent_as[name]), event) for name in _in_order(plan))
    return None if None in values else values


def _in_order(plan: TablePlan) -> list[str]:
    """The key columns in the order in which they stand in a row."""
    return [name for name in plan.columns if name in plan.keys]


# As columns -----------------------------------------------------------------------------------------------

KEPT = (
    "source", "operation", "snapshot", "event_timestamp", "time_taken_from", "position", "transaction_id",
    "new_key", "old_key",
)  # fmt: skip


def data_type(plan: TablePlan) -> pa.StructType:
    """The type of a row."""
    return pa.struct([(name, common) for name, (_, common) in plan.columns.items()])


def key_type(plan: TablePlan) -> pa.StructType:
    """The type of a key; its columns are in the order in which they were named."""
    return pa.struct([(name, plan.columns[name][1]) for name in plan.keys])


def carried_type(plan: TablePlan) -> pa.StructType:
    """The type of what says which columns were sent."""
    return pa.struct([(name, pa.bool_()) for name in plan.columns])


def row_types(plan: TablePlan) -> dict[str, pa.DataType]:
    """What stands beside the columns of the records in a table of rows."""
    kept = {name: INSTANT if name == "event_timestamp" else pa.string() for name in KEPT}
    return kept | {
        "data": data_type(plan),
        "carried": carried_type(plan),
        "old": key_type(plan),
        "moved": pa.bool_(),
        "faults": pa.list_(pa.field("element", pa.string())),
        "error_code": pa.string(),
        "error_description": pa.string(),
    }


def row_columns(found: Rows, plan: TablePlan) -> list[pa.Array]:
    """The columns of `row_types`."""
    types = row_types(plan)
    kept = [
        pa.array(
            [getattr(row.event, "at" if name == "event_timestamp" else name) for row in found.rows],
            types[name],
        )
        for name in KEPT
    ]
    data, carried = _structs(found, plan)
    return [
        *kept,
        data,
        carried,
        _keys([row.old for row in found.rows], plan),
        *(
            pa.array([getattr(row, name) for row in found.rows], types[name])
            for name in ("moved", "faults", "error_code", "error_description")
        ),
    ]


def _structs(found: Rows, plan: TablePlan) -> tuple[pa.StructArray, pa.StructArray]:
    kind, flags = data_type(plan), carried_type(plan)
    values = [pa.array(column, part.type) for column, part in zip(found.values, kind, strict=True)]
    carried = [pa.array(column, pa.bool_()) for column in found.carried]
    return pa.StructArray.from_arrays(values, fields=list(kind)), pa.StructArray.from_arrays(
        carried, fields=list(flags)
    )


def _keys(keys: Sequence[Sequence[Any] | None], plan: TablePlan) -> pa.StructArray:
    """Keys as structs; null for None."""
    kind, order = key_type(plan), _in_order(plan)
    columns = [
        pa.array([None if key is None else key[order.index(part.name)] for key in keys], part.type)
        for part in kind
    ]
    mask = pa.array([key is None for key in keys], pa.bool_())
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=mask)


# As changes -----------------------------------------------------------------------------------------------


def move_type(plan: TablePlan) -> pa.StructType:
    """The type of what says how a row came to another key."""
    return pa.struct([("id", pa.string()), ("old_key", key_type(plan)), ("new_key", key_type(plan))])


ARRIVAL = ("timestamp", "topic", "partition", "offset")
ARRIVAL_TYPE = pa.struct(
    [
        ("timestamp", INSTANT),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("record_number", pa.int32()),
    ]
)


def change_types(plan: TablePlan) -> dict[str, pa.DataType]:
    """The columns of changes, and their types."""
    return {
        "operation": pa.string(),
        "effective_timestamp": INSTANT,
        "sequence": pa.string(),
        "arrival": ARRIVAL_TYPE,
        "message_id": pa.string(),
        "source": pa.string(),
        "priority": pa.int32(),
        "data": data_type(plan),
        "carried": carried_type(plan),
        "snapshot": pa.bool_(),
        "moved": move_type(plan),
        "faults": pa.list_(pa.field("element", pa.string())),
    }


Move = tuple[str | None, Sequence[Any], Sequence[Any]]
"""Which move it is of a row, its old key and its new one."""


class _Change(NamedTuple):
    """One change, but for its data: those of the row at this place of the batch, or its old key alone."""

    at: int
    operation: str
    effective_timestamp: int | None
    sequence: str
    message_id: str
    source: str | None
    snapshot: bool
    record_number: int
    move: Move | None
    faults: list[str] | None
    record: int


def change_columns(
    found: Rows,
    plan: TablePlan,
    arrivals: Sequence[pa.Array],
    source: str | None,
    read_at: Sequence[int | None] | None,
) -> list[pa.Array]:
    """
    The columns of `change_types`.

    Args:
        found: The rows; those in error are passed over.
        plan: How they were read.
        arrivals: The columns `ARRIVAL` of the batch's records.
        source: Its name; without it, what each event says, or else its topic.
        read_at: For each record, from when on a row that a snapshot read is true; without it, as it says.
    """
    places = list(zip(*(column.to_pylist() for column in arrivals[1:]), strict=True))
    changes = []
    for at, row in enumerate(found.rows):
        if row.error_code is None:
            since = None if read_at is None or row.event.operation != READ else read_at[row.place]
            key = [
                values[at]
                for values, name in zip(found.values, plan.columns, strict=True)
                if name in plan.keys
            ]
            name = source or row.event.source or places[row.place][0]
            changes += _changes(
                row, at, name, places[row.place], row.event.at if since is None else since, key
            )
    stands, operations, times, sequences, messages, sources, snapshots, numbers, moves, faults, records = (
        zip(*changes, strict=True) if changes else [()] * len(_Change._fields)
    )
    data, carried = _structs(found, plan)
    rows, taken = pa.array(stands, pa.int64()), pa.array(records, pa.int64())
    types = change_types(plan)
    arrival = [*(column.take(taken) for column in arrivals), pa.array(numbers, pa.int32())]
    return [
        pa.array(operations, pa.string()),
        pa.array(times, INSTANT),
        pa.array(sequences, pa.string()),
        pa.StructArray.from_arrays(arrival, fields=list(ARRIVAL_TYPE)),
        pa.array(messages, pa.string()),
        pa.array(sources, pa.string()),
        pa.array([0] * len(changes), pa.int32()),
        *_with_old_keys(data.take(rows), carried.take(rows), changes, found, plan),
        pa.array(snapshots, pa.bool_()),
        _moves(moves, plan),
        pa.array(faults, types["faults"]),
    ]


def _changes(
    row: Row, at: int, source: str | None, place: tuple[Any, ...], since: int | None, key: Sequence[Any]
) -> list[_Change]:
    """The change that a row is; of one that an update moved, that the old key is left is one of its own."""
    event, record = row.event, "/".join(str(part) for part in place if part is not None)
    kind = _KINDS.get(event.operation or "", UPSERT)
    whole = _Change(
        at,
        kind,
        since,
        _sequence(event),
        _message_id(event, source, record),
        source,
        event.operation == READ,
        1,
        _move(row, key, record),
        row.faults,
        row.place,
    )
    if not row.moved:
        return [whole]
    return [whole._replace(operation=DELETED), whole._replace(record_number=2)]


UPSERT, DELETED = "upsert", "delete"
_KINDS = {DELETE: DELETED, TRUNCATE: "truncate"}


def _sequence(event: Event) -> str:
    """The position; of a create that a changed key brought, the one behind that of its delete."""
    if event.position is None:
        return ""
    return event.position if event.old_key is None else f"{event.position}/1"


def _message_id(event: Event, source: str | None, record: str) -> str:
    """
    Which event it is, of its source: by its position where it has one, else by its record.

    The row that an incremental snapshot read may stand at the position of a change of the same row; and a
    delete at that of a create, where the key that changed is not, or not all of, the key that is asked for.
    """
    if event.position is None:
        return f"{source}:{record}"
    place = f"{event.operation}/{event.position}" if event.operation in (READ, DELETE) else event.position
    apart = _apart(event)
    return f"{source}:{place}" if apart is None else f"{source}:{place}#{apart}"


def _apart(event: Event) -> str | None:
    """
    What tells events at one position apart.

    Of MySQL a hash of both rows: events of a compressed transaction may share one.  Of what a snapshot read
    the table: it has one for all its tables, and two of them may be of one entity.
    """
    if event.connector in ("mysql", "mariadb"):
        images = [
            row and {name: plain_text(value) for name, value in row.items()}
            for row in (event.before, event.after)
        ]
        return hashlib.blake2b(json.dumps(images).encode(), digest_size=8).hexdigest().upper()
    return table_name(event) if event.operation == READ else None


def _move(row: Row, key: Sequence[Any], record: str) -> Move | None:
    """How the row came to another key: in one update, or in a delete and a create that name each other."""
    event = row.event
    # Without the offset that a transaction of Oracle may need: its delete and its create are one move.
    id_ = None if event.position is None else _WITH_OFFSET.sub(r"\1", event.position)
    if row.moved:
        return id_ or record, row.old, key
    if row.other is None:
        return None
    id_ = id_ or (None if event.at is None else str(event.at))
    return (id_, key, row.other) if event.operation == DELETE else (id_, row.other, key)


_WITH_OFFSET = re.compile(r"^(\d+/\d+/0+)/\d+$")


def _moves(moves: Sequence[Move | None], plan: TablePlan) -> pa.StructArray:
    there = [move or (None, None, None) for move in moves]
    columns = [
        pa.array([move[0] for move in there], pa.string()),
        _keys([move[1] for move in there], plan),
        _keys([move[2] for move in there], plan),
    ]
    mask = pa.array([move is None for move in moves], pa.bool_())
    return pa.StructArray.from_arrays(columns, fields=list(move_type(plan)), mask=mask)


def _with_old_keys(
    data: pa.StructArray, carried: pa.StructArray, changes: Sequence[_Change], found: Rows, plan: TablePlan
) -> list[pa.StructArray]:
    """The rows of changes, and what was sent of them; of one that leaves its key, that key alone."""
    leaving = [found.rows[change.at].moved and change.record_number == 1 for change in changes]
    if not any(leaving):
        return [data, carried]
    mask, keys = pa.array(leaving, pa.bool_()), _keys([found.rows[change.at].old for change in changes], plan)
    values, flags = [], []
    for name, part, flag in zip(plan.columns, data.flatten(), carried.flatten(), strict=True):
        is_key = name in plan.keys
        old = keys.field(plan.keys.index(name)) if is_key else pa.scalar(None, part.type)
        values.append(pc.if_else(mask, old, part))
        flags.append(pc.if_else(mask, is_key, flag))
    return [
        pa.StructArray.from_arrays(values, fields=list(data.type)),
        pa.StructArray.from_arrays(flags, fields=list(carried.type)),
    ]
