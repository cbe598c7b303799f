"""
Faults in a captured feed: each is found, by the gap that it leaves or by the rows that it spoils.

In `make test`:
tests/query/test_reconcile.py::test_every_fault_in_a_feed_is_found_and_none_where_there_is_none.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import SparkSession

from cdckit import debezium, merge
from cdckit.model import find_frontiers
from cdckit.model.records import RECORD_SCHEMA
from cdckit.query import reconcile
from tools.tiers import seeds

FAULTS = ("none", "lost", "page", "doubled", "reordered", "false delete", "cut", "by hand")
WORLDS = 96
"""Of each fault, and of none, one in eight; a soak draws twelve times as many: 1,008 faults."""

BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
NOW = datetime(2024, 1, 2, tzinfo=UTC)
COLUMNS = {"world": "int32", "id": "int32", "name": "string", "price": "int32"}
TABLE = "s.products"

Values = dict[str, Any]
Record = tuple[Any, ...]


@dataclass
class Event:
    """One event of a row; its `place` in the log is that of all worlds together."""

    operation: str
    place: int
    transaction: str
    number: int
    row: Values
    offset: int = 0

    def record(self) -> Record:
        image = {"before": self.row} if self.operation == "d" else {"after": self.row}
        source = {
            **{"connector": "postgresql", "name": "shop", "db": "d", "schema": "s", "table": "products"},
            **{"sequence": f'["{self.place - 1}","{self.place}"]', "ts_ms": milliseconds(self.place)},
        }
        numbers = {"id": self.transaction, "total_order": self.number, "data_collection_order": self.number}
        value = {"op": self.operation, "source": source, "transaction": numbers, **image}
        return message(value, "shop.s.products", self.row["world"], self.offset, self.place)


@dataclass
class World:
    """Some products, all that is said of them, and what of it comes."""

    number: int
    fault: str
    sent: list[Event] = field(default_factory=list)
    came: list[Event] = field(default_factory=list)
    table: dict[int, Values] = field(default_factory=dict)
    false: int | None = None

    @property
    def lost(self) -> set[tuple[str, int]]:
        kept = {(each.transaction, each.number) for each in self.came}
        return {(each.transaction, each.number) for each in self.sent} - kept


def milliseconds(place: int) -> int:
    return int((BEGIN + timedelta(seconds=place)).timestamp() * 1000)


def message(value: Values, topic: str, partition: int, offset: int, place: int) -> Record:
    arrived = BEGIN + timedelta(seconds=place)
    return (None, json.dumps(value).encode(), topic, partition, offset, arrived, 1, None)


def draw_world(drawn: random.Random, number: int, places: Iterator[int]) -> World:
    world = World(number, FAULTS[number % len(FAULTS)])
    for transaction in range(drawn.randint(3, 6)):
        for order in range(1, drawn.randint(1, 4) + 1):
            key = drawn.choice([*sorted(world.table), len(world.sent) + 1])
            is_delete = key in world.table and drawn.random() < 0.2
            row = {"world": number, "id": key, "name": drawn.choice("abc"), "price": drawn.randint(1, 3)}
            operation = "d" if is_delete else "u" if key in world.table else "c"
            world.sent.append(Event(operation, next(places), f"{number}-{transaction}", order, row))
            apply(world.table, world.sent[-1])
    for offset, event in enumerate(world.sent):
        event.offset = offset
    spoil(drawn, world, places)
    return world


def apply(table: dict[int, Values], event: Event) -> None:
    if event.operation == "d":
        table.pop(event.row["id"], None)
    else:
        table[event.row["id"]] = event.row


def spoil(drawn: random.Random, world: World, places: Iterator[int]) -> None:
    """Let happen to a world what its fault is."""
    came = world.came = list(world.sent)
    at = drawn.randrange(len(came))
    if world.fault in ("lost", "page", "cut"):
        del came[at : {"lost": at + 1, "page": at + 3, "cut": len(came)}[world.fault]]
    elif world.fault == "doubled":  # as a consumer reads a record again, or a connector writes one again
        again = came[at]
        later = drawn.choice((again.offset, len(came)))
        came.append(Event(again.operation, again.place, again.transaction, again.number, again.row, later))
    elif world.fault == "reordered":
        other = drawn.randrange(len(came))
        came[at].offset, came[other].offset = came[other].offset, came[at].offset
    elif world.fault == "false delete":
        alive = next(iter(world.table.values()), None)
        row = alive or {"world": world.number, "id": 99, "name": "z", "price": 1}
        world.table[row["id"]] = row
        if alive is None:
            came.append(Event("c", next(places), f"{world.number}-new", 1, row, len(came)))
            world.sent.append(came[-1])
        world.false = next(places)
        came.append(Event("d", world.false, f"{world.number}-false", 1, row, len(came)))
    elif world.fault == "by hand":
        row = {"world": world.number, "id": 77, "name": "by hand", "price": None}
        kept = drawn.choice([*world.table, None])
        if kept is None:
            world.table[77] = row
        elif drawn.random() < 0.5:
            del world.table[kept]
        else:
            world.table[kept] = {**world.table[kept], "price": 9}


def ends_of(world: World) -> list[Values]:
    """What the topic of transactions says: it came whole."""
    counts: dict[str, list[Event]] = {}
    for event in world.sent:
        counts.setdefault(event.transaction, []).append(event)
    return [
        {
            **{"status": "END", "id": name, "event_count": len(events)},
            "data_collections": [{"data_collection": TABLE, "event_count": len(events)}],
            "ts_ms": milliseconds(events[-1].place),
        }
        for name, events in counts.items()
    ]


@seeds(1, soak=12)
def test_each_fault_is_found_and_a_sound_feed_raises_no_alarm(spark: SparkSession, seed: int) -> None:
    drawn = random.Random(seed)
    places = iter(range(1, 100_000))
    worlds = [draw_world(drawn, number, places) for number in range(WORLDS)]
    ends = sorted((end for world in worlds for end in ends_of(world)), key=lambda end: end["ts_ms"])
    records = [event.record() for world in worlds for event in world.came]
    records += [message(end, "shop.transaction", 0, offset, offset) for offset, end in enumerate(ends)]
    drawn.shuffle(records)
    captured = spark.createDataFrame(records, RECORD_SCHEMA).localCheckpoint()
    decoded = debezium.decode(captured).localCheckpoint()

    missing = debezium.find_missing_events(decoded).collect()
    numbers = {(row[1], number) for row in missing for number in range(row[3], row[4] + 1)}
    assert numbers == {each for world in worlds for each in world.lost}
    # By offsets, what is missing before something that came.
    frontiers = {row["partition"]: row for row in find_frontiers(captured).where("topic like '%s'").collect()}
    assert {number for number, row in frontiers.items() if row["missing"]} == {
        world.number for world in worlds if has_gap(world)
    }
    for world in worlds:
        offsets = {each.offset for each in world.came}
        if offsets:
            until = min(n for n in offsets if n + 1 not in offsets)
            assert frontiers[world.number]["complete_until_position"] == until

    changes = debezium.changes(decoded, TABLE, keys=["world", "id"], columns=COLUMNS).localCheckpoint()
    history = merge(changes, entity="product", keys=["world", "id"]).localCheckpoint()
    rows = [tuple(row.values()) for world in worlds for row in world.table.values()]
    source = spark.createDataFrame(rows, "world int, id int, name string, price int")
    found = reconcile(history, source, valid_at=NOW, keys=["world", "id"], changes=changes).collect()
    told = {(row["world"], row["id"], row["finding"], row["field"]): row for row in found}
    assert len(told) == len(found)
    assert set(told) == {each for world in worlds for each in differences(world)}
    spoilt = {key[0] for key in told}
    for world in worlds:
        own = [row for key, row in told.items() if key[0] == world.number]
        if world.fault in ("none", "doubled", "reordered"):
            assert own == []
        elif world.fault == "false delete":
            (row,) = own
            assert (row["finding"], row["explanation"], row["evidence"]) == (
                "missing",
                "DELETED",
                row["message"],
            )
            assert row["message"].endswith(f"/{world.false:020d}")
        elif world.fault == "by hand":
            assert world.number in spoilt
        else:
            lost = [each for each in world.sent if (each.transaction, each.number) in world.lost]
            assert lost
            assert {row["id"] for row in own} <= {each.row["id"] for each in lost}


def has_gap(world: World) -> bool:
    offsets = [each.offset for each in world.came]
    return bool(offsets) and max(offsets) - min(offsets) + 1 > len(set(offsets))


def differences(world: World) -> set[tuple[int, int, str, str]]:
    """What is wrong with the copy, by applying what came, one by one in the order of the log."""
    copy: dict[int, Values] = {}
    for event in sorted(world.came, key=lambda event: event.place):
        apply(copy, event)
    found = set()
    for key in copy.keys() | world.table.keys():
        here, there = copy.get(key), world.table.get(key)
        if here is None or there is None:
            kind = "missing" if here is None else "extra"
            found.add((world.number, key, kind, "deleted_indicator"))
        else:
            names = [name for name in ("name", "price") if here[name] != there[name]]
            found |= {(world.number, key, "different", name) for name in names}
    return found
