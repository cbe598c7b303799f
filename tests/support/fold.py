"""The merge, one change at a time: the deliberately naive reading of its contract.

`cdckit.merge` is compared with this on many thousands of random histories, so nothing here is clever,
nothing is shared with the library, and nothing but the standard library is imported.  Speed is no aim.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

NAMESPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "cdckit")

Row = dict[str, Any]


@dataclass
class Entity:
    """What is believed of one entity after the changes applied so far."""

    exists: bool = False
    deleted: bool = False
    values: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, tuple[str, int]] = field(default_factory=dict)  # no entry: never set

    def copy(self) -> Entity:
        return Entity(self.exists, self.deleted, dict(self.values), dict(self.provenance))

    def row_priority(self) -> int:
        return self.provenance["guid"][1]

    def never_set(self, name: str) -> bool:
        return name not in self.provenance


def fold(changes: Sequence[Row], *, entity: str, keys: Sequence[str], fields: Sequence[str]) -> list[Row]:
    """The history of *changes*, ordered by guid and time; *fields* are the business fields in order."""
    by_guid: dict[str, list[Row]] = {}
    for change in changes:
        by_guid.setdefault(identity(change, entity, keys), []).append(change)
    history: list[Row] = []
    for guid in sorted(by_guid):
        in_order = sorted(without_redeliveries(by_guid[guid]), key=place)
        history.extend(versions(guid, in_order, keys, fields))
    return history


def fold_with_moves(
    changes: Sequence[Row], *, entity: str, keys: Sequence[str], fields: Sequence[str]
) -> list[Row]:
    """
    As `fold`, where rows move from key to key: all changes of all keys one by one, in their order.

    What a delete that is part of a move finds, the upsert of that move that did not send it says again.
    """
    by_guid: dict[str, list[Row]] = {}
    for change in changes:
        by_guid.setdefault(identity(change, entity, keys), []).append(change)
    once = [
        (guid, order, each)
        for guid, some in by_guid.items()
        for order, each in leavers_first(without_redeliveries(some))
    ]
    states: dict[str, Entity] = {guid: Entity() for guid in by_guid}
    counted: dict[str, list[Row]] = {guid: [] for guid in by_guid}
    found: dict[str, Entity] = {}
    for guid, _, change in sorted(once, key=lambda each: each[1]):
        words = [change]
        move = json.dumps([change["source"], change.get("moved")], default=str)
        if change.get("moved") and change["operation"] == "delete":
            found[move] = states[guid]
            if change.get("effective_until", 0) != 0:
                found[move] = Entity()
                for each in counted[guid]:
                    if holds(each, change["effective_timestamp"]):
                        found[move] = apply(found[move], each, keys, fields)
        if change.get("moved") and change["operation"] == "upsert" and move in found:
            words += words_of(change, found[move], keys, fields)
        for word in words:
            states[guid] = apply(states[guid], word, keys, fields)
        counted[guid] += words
    return [row for guid in sorted(by_guid) for row in versions(guid, counted[guid], keys, fields)]


def leavers_first(changes: Sequence[Row]) -> list[tuple[tuple[Any, ...], Row]]:
    """
    The changes of one entity, each with its place among those of all entities.

    Of two rows that have a key at one instant, the one that had it first leaves first: right before the
    other one comes.
    """
    ordered = sorted(changes, key=place)
    placed = {id(change): (place(change), 0, change) for change in ordered}
    for source in {change["source"] for change in ordered}:
        rows, instant, last = list[Row](), None, dict[str, Any]()
        for change in (each for each in ordered if each["source"] == source):
            if change["effective_timestamp"] != instant:
                instant = change["effective_timestamp"]
                rows = [last] if last.get("operation") == "upsert" and holds(last, instant) else []
            if change["operation"] == "upsert":
                rows += [change] if change.get("moved") or not rows else []
            elif len(rows) > 1:
                placed[id(change)] = (place(rows[1]), -1, change)
                rows = rows[1:]
            else:
                rows = []
            last = change
    return [((*at, before), change) for at, before, change in placed.values()]


def words_of(change: Row, state: Entity, keys: Sequence[str], fields: Sequence[str]) -> list[Row]:
    """What stood under the old key and was not sent with the new one, field by field."""
    if not state.exists or state.deleted:
        return []
    words = []
    for name in fields:
        if name not in keys and not change["carried"][name] and not state.never_set(name):
            message, priority = state.provenance[name]
            said = {"message_id": message, "said_by": change["message_id"], "priority": -(2**31)}
            carried_ = {each: each == name for each in fields}
            data = {**change["data"], name: state.values[name]}
            words.append(
                {**change, **said, "carried": carried_, "data": data, "field_priorities": {name: priority}}
            )
    return words


def place(change: Row) -> tuple[Any, ...]:
    """Where a change stands in the total order."""
    arrival = change["arrival"]
    return (
        change["effective_timestamp"],
        change["sequence"],
        arrival["timestamp"],
        arrival["topic"],
        arrival["partition"],
        arrival["offset"],
        arrival["record_number"],
        change["message_id"],
        # No source sorts before every source.
        (change["source"] is not None, change["source"]),
    )


def without_redeliveries(changes: Sequence[Row]) -> list[Row]:
    """Of one entity's rows with the same source, message and record number, the one that stands first."""
    kept: dict[tuple[str | None, str, int], Row] = {}
    for change in changes:
        record = (change["source"], change["message_id"], change["arrival"]["record_number"])
        if record not in kept or place(change) < place(kept[record]):
            kept[record] = change
    return list(kept.values())


def identity(change: Row, entity: str, keys: Sequence[str]) -> str:
    """The guid that the change brings along, else the one of its entity and key."""
    if "guid" in change:
        return str(change["guid"])
    return guid_of(entity, {key: change["data"][key] for key in keys})


def guid_of(entity: str, key: Row) -> str:
    """The guid of an entity and its key; parts that are null are left out."""
    parts = {name: value for name, value in key.items() if value is not None}
    text = json.dumps({"entity": entity, "key": parts}, separators=(",", ":"), ensure_ascii=False)
    return str(uuid.uuid5(NAMESPACE, text))


def versions(guid: str, changes: Sequence[Row], keys: Sequence[str], fields: Sequence[str]) -> list[Row]:
    """The versions of one entity, from its changes in order."""
    if any(change.get("effective_until") for change in changes):
        return versions_with_ends(guid, changes, keys, fields)
    history: list[Row] = []
    state = Entity()
    position = 0
    while position < len(changes):
        instant = changes[position]["effective_timestamp"]
        before = state
        last_changed_by = None
        while position < len(changes) and changes[position]["effective_timestamp"] == instant:
            after = apply(state, changes[position], keys, fields)
            if not same_state(after, state, fields):
                last_changed_by = changes[position].get("said_by", changes[position]["message_id"])
            state = after
            position += 1
        if same_state(state, before, fields):
            continue
        if history:
            history[-1]["valid_to_timestamp"] = instant
        history.append(version(guid, instant, state, last_changed_by, fields))
    return history


def versions_with_ends(
    guid: str, changes: Sequence[Row], keys: Sequence[str], fields: Sequence[str]
) -> list[Row]:
    """The same where changes end: at each instant the fold, from nothing, of those that hold then."""
    history: list[Row] = []
    before = None
    times = {change[name] for change in changes for name in ("effective_timestamp", "effective_until")}
    for instant in sorted(times - {None}):
        held = [{**each, "effective_until": None} for each in changes if holds(each, instant)]
        now = next(reversed(versions(guid, held, keys, fields)), None)
        if content(now) != content(before):
            if before:
                history[-1]["valid_to_timestamp"] = instant
            if now:
                history.append({**now, "valid_from_timestamp": instant})
        before = now
    return history


def content(row: Row | None) -> str:
    """What a version says, but for when it begins and for what said so."""
    names = ("valid_from_timestamp", "source_message")
    return repr(row and {name: value for name, value in row.items() if name not in names})


def holds(change: Row, instant: Any) -> bool:
    until = change.get("effective_until")
    return change["effective_timestamp"] <= instant and (until is None or instant < until)


def version(guid: str, instant: Any, state: Entity, source_message: str | None, fields: Sequence[str]) -> Row:
    """One row of the history, current until another one follows."""
    provenance = {name: as_struct(state.provenance.get(name)) for name in ["guid", *fields]}
    return {
        "guid": guid,
        "valid_from_timestamp": instant,
        "valid_to_timestamp": None,
        "deleted_indicator": state.deleted,
        **{name: state.values.get(name) for name in fields},
        "source_message": source_message,
        "field_provenance": provenance,
    }


def as_struct(entry: tuple[str, int] | None) -> Row | None:
    return None if entry is None else {"m": entry[0], "p": entry[1]}


def apply(state: Entity, change: Row, keys: Sequence[str], fields: Sequence[str]) -> Entity:
    """The state after one change; *state* itself is left as it is."""
    after = state.copy()
    if change["operation"] == "upsert":
        if not state.exists:
            create(after, change, keys, fields)
        elif state.deleted:
            recreate(after, change, keys, fields)
        else:
            update(after, change, keys, fields)
    elif change["operation"] == "delete":
        if not state.exists:
            pass  # nothing, no trace
        elif state.deleted:
            delete_again(after, change, keys, fields)
        else:
            delete(after, change, keys, fields)
    elif change["operation"] == "absent":
        if state.exists and not state.deleted:
            delete(after, change, keys, fields)
    else:
        raise ValueError(f"unknown operation {change['operation']!r}")
    return after


def create(state: Entity, change: Row, keys: Sequence[str], fields: Sequence[str]) -> None:
    state.exists = True
    state.provenance["guid"] = (change["message_id"], change["priority"])
    for name in carried(change, fields):
        take(state, change, name, keys)


def update(state: Entity, change: Row, keys: Sequence[str], fields: Sequence[str]) -> None:
    for name in carried(change, fields):
        if state.never_set(name):
            take(state, change, name, keys)
            continue
        offered, current = field_priority(change, name), state.provenance[name][1]
        differs = not same_value(change["data"][name], state.values[name])
        if offered >= current and (differs or offered > current):
            take(state, change, name, keys)
    if change["priority"] > state.row_priority():
        state.provenance["guid"] = (change["message_id"], change["priority"])


def recreate(state: Entity, change: Row, keys: Sequence[str], fields: Sequence[str]) -> None:
    if change["priority"] < state.row_priority():
        return
    state.deleted = False
    state.provenance["guid"] = (change["message_id"], change["priority"])
    for name in carried(change, fields):
        take(state, change, name, keys)


def delete(state: Entity, change: Row, keys: Sequence[str], fields: Sequence[str]) -> None:
    if change["priority"] < state.row_priority():
        return
    state.deleted = True
    clear(state, change, keys, fields)


def delete_again(state: Entity, change: Row, keys: Sequence[str], fields: Sequence[str]) -> None:
    if change["priority"] > state.row_priority():
        clear(state, change, keys, fields)


def clear(state: Entity, change: Row, keys: Sequence[str], fields: Sequence[str]) -> None:
    """What a delete leaves: keys as they were, what was ever set null, each with its own priority."""
    message = change["message_id"]
    state.provenance["guid"] = (message, change["priority"])
    for name in fields:
        if name not in keys and not state.never_set(name):
            state.values[name] = None
            state.provenance[name] = (message, field_priority(change, name))


def take(state: Entity, change: Row, name: str, keys: Sequence[str]) -> None:
    """Value, message and priority are those of the change; a key field of equal value keeps its message."""
    message = change["message_id"]
    if name in keys and not state.never_set(name) and same_value(change["data"][name], state.values[name]):
        message = state.provenance[name][0]
    state.values[name] = change["data"][name]
    state.provenance[name] = (message, field_priority(change, name))


def carried(change: Row, fields: Sequence[str]) -> list[str]:
    return [name for name in fields if change["carried"][name]]


def field_priority(change: Row, name: str) -> int:
    stated = (change.get("field_priorities") or {}).get(name)
    return int(change["priority"] if stated is None else stated)


def same_state(one: Entity, other: Entity, fields: Sequence[str]) -> bool:
    return (
        one.exists == other.exists
        and one.deleted == other.deleted
        and one.provenance == other.provenance
        and all(same_value(one.values.get(name), other.values.get(name)) for name in fields)
    )


def same_value(one: Any, other: Any) -> bool:
    """Equality as SQL's null-safe one: null equals null, NaN equals NaN, 0.0 equals -0.0, at any depth."""
    if one is None or other is None:
        return one is None and other is None
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (one != one and other != other)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same_value, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same_value(one[name], other[name]) for name in one)
    return bool(one == other)
