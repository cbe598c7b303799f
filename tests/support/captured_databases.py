"""
A random program of a captured database, and a reader of its records that is as naive as can be.

The program writes what Debezium would of a PostgreSQL: two snapshots, between which changes are lost, rows
that get another key, a column that comes and one that goes, schemas that are switched on and off; values that
their type cannot hold, cut JSON, and records that are sent again.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

BEGIN = datetime(2024, 3, 1, 12, tzinfo=UTC)
TYPES = {"id": "int32", "name": "string", "number": "int32", "extra": "int64"}
TABLES = ("kettles", "mugs", "logs")
"""The last has no key, and the keys of its records are null."""


class Record(NamedTuple):
    """A record of Debezium, and what the program knows of it."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]] | None
    fault: str | None
    """`cut`, or `invalid`: a number that is none."""

    def row(self, offset: int) -> tuple[Any, ...]:
        """The record as it arrives at an offset of its topic, a second after the one before it."""
        at = BEGIN + timedelta(seconds=offset)
        return self.key, self.value, self.topic, 0, offset, at, 0, self.headers


class Database:
    """Tables whose changes are written down as records."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.records: list[Record] = []
        self.lsn = 100
        self.rows: dict[str, dict[int, dict[str, Any]]] = {table: {} for table in TABLES}
        self.columns = ["id", "name", "number"]
        self.has_schema = True

    def run(self, steps: int) -> list[Record]:
        """All records of a program with so many steps on each side of a snapshot."""
        for table in TABLES:
            for key in range(1, 5):
                self.rows[table][key] = self.new_row(key)
        self.snapshot()
        for step in range(steps):
            if step == steps // 3:
                self.columns = ["id", "name", "number", "extra"]
            if step == steps // 2:
                self.columns = ["id", "number", "extra"]
            self.has_schema = step % 5 != 4
            self.change()
            if self.chance.random() < 0.15:
                again = self.chance.randint(1, 6)
                self.records += self.records[-again:]
        self.has_schema = True
        seen = len(self.records)
        for _ in range(4):
            self.change()
        del self.records[seen:]
        self.snapshot()
        for _ in range(steps // 2):
            self.change()
        return self.records

    def new_row(self, key: int) -> dict[str, Any]:
        row = {"id": key, "name": f"n{self.chance.randint(0, 9)}", "number": self.chance.randint(0, 99)}
        row["extra"] = self.chance.randint(0, 9)
        return row

    def snapshot(self) -> None:
        """Read all rows of all tables at one place in the log."""
        self.lsn += 10
        rows = [(table, row) for table in TABLES for row in self.rows[table].values()]
        for place, (table, row) in enumerate(rows):
            marker = "last" if place == len(rows) - 1 else "first" if place == 0 else "true"
            self.write(table, "r", None, row, snapshot=marker)

    def change(self) -> None:
        """Change one row, in a transaction of its own."""
        self.lsn += 10
        table = self.chance.choice(TABLES)
        rows = self.rows[table]
        key = self.chance.choice([*rows, 0])
        new_key = max([*rows, 4]) + 1 if self.chance.random() < 0.5 else self.chance.randint(1, 12)
        if key == 0 or not rows:
            if new_key not in rows:
                rows[new_key] = self.new_row(new_key)
                self.write(table, "c", None, rows[new_key])
        elif self.chance.random() < 0.25:
            self.write(table, "d", rows.pop(key), None)
        elif self.chance.random() < 0.25 and new_key not in rows:
            before = rows.pop(key)
            rows[new_key] = {**before, "id": new_key}
            self.write(table, "d", before, None, headers={"newkey": new_key})
            self.write(table, "c", None, rows[new_key], headers={"oldkey": key})
        else:
            before = rows[key]
            rows[key] = {**self.new_row(key), "extra": before["extra"]}
            self.write(table, "u", before, rows[key])

    def write(
        self,
        table: str,
        op: str,
        before: dict[str, Any] | None,
        after: dict[str, Any] | None,
        snapshot: str = "false",
        headers: dict[str, int] | None = None,
    ) -> None:
        """Write an event, and a tombstone behind a delete."""
        key = (after or before or {})["id"]
        before, after = (
            None if row is None else {name: row[name] for name in self.columns} for row in (before, after)
        )
        fault = None
        if after is not None and snapshot != "last":
            fault = self.chance.choices([None, "invalid", "cut"], [20, 1, 1])[0]
        if fault == "invalid" and after is not None:
            after["number"] = "none"
        source = {"connector": "postgresql", "name": "shop", "db": "d", "schema": "s", "table": table}
        source |= {"snapshot": snapshot, "lsn": self.lsn, "sequence": f'["{self.lsn - 5}","{self.lsn}"]'}
        source["ts_ms"] = int(BEGIN.timestamp() * 1000) + self.lsn
        event: dict[str, Any] = {"op": op, "before": before, "after": after, "source": source}
        if self.has_schema:
            fields = [{"field": name, "type": TYPES[name]} for name in self.columns]
            images = [{"field": image, "type": "struct", "fields": fields} for image in ("before", "after")]
            event = {"schema": {"type": "struct", "fields": images}, "payload": event}
        text = json.dumps(event).encode()
        if fault == "cut":
            text = text[: self.chance.randint(1, len(text) - 1)]
        key_text = None if table == TABLES[-1] else json.dumps({"id": key}).encode()
        named = [(f"__debezium.{name}", b'{"id": %d}' % value) for name, value in (headers or {}).items()]
        topic = f"shop.s.{table}"
        self.records.append(Record(topic, key_text, text, named or None, fault))
        if op == "d" and key_text is not None:
            self.records.append(Record(topic, key_text, None, None, None))


class Answer(NamedTuple):
    """What a naive reader makes of records: the rows that are there, and the offsets of what is no event."""

    rows: dict[str, dict[int, dict[str, Any]]]
    rejects: set[int]
    tombstones: set[int]


def read_naively(records: Sequence[Record]) -> Answer:
    """Read records one by one, in the order of the log, events that came again once."""
    events: dict[tuple[Any, ...], tuple[dict[str, Any], Record]] = {}
    offsets: dict[str, set[int]] = {"cut": set(), "invalid": set(), "tombstone": set()}
    reads: dict[tuple[str, int], list[int]] = {}
    for offset, record in enumerate(records):
        if record.value is None or record.fault == "cut":
            offsets["cut" if record.fault else "tombstone"].add(offset)
            continue
        said = json.loads(record.value)
        event = said.get("payload", said)
        table, lsn = event["source"]["table"], event["source"]["lsn"]
        key = (event["after"] or event["before"])["id"]
        if record.fault == "invalid" and table != TABLES[-1]:
            offsets["invalid"].add(offset)
        elif event["op"] == "r":
            reads.setdefault((table, lsn), []).append(offset)
        order = (lsn, event["op"] != "d", table, key, event["op"])
        events.setdefault(order, (event, record))
    ended = {
        event["source"]["lsn"]: next(at for at, other in enumerate(records) if other is record)
        for event, record in events.values()
        if event["source"]["snapshot"] == "last"
    }
    rows: dict[str, dict[int, dict[str, Any]]] = {table: {} for table in TABLES[:-1]}
    for lsn in sorted({order[0] for order in events}):
        at_lsn = [events[order] for order in sorted(events) if order[0] == lsn]
        for table, there in rows.items():
            of_table = [each for each in at_lsn if each[0]["source"]["table"] == table]
            if lsn in ended and reads.get((table, lsn)):
                topic = f"shop.s.{table}"
                # What is cut right before the first read may have been a read.
                sound = [
                    at
                    for at, record in enumerate(records[: min(reads[table, lsn])])
                    if record.topic == topic and record.fault is None and record.value is not None
                ]
                begun = max(sound, default=-1) + 1
                in_doubt = [at for at in offsets["cut"] if records[at].topic == topic]
                read = {event["after"]["id"] for event, _ in of_table}
                if not any(begun <= at <= ended[lsn] for at in in_doubt):
                    for key in there.keys() - read:
                        del there[key]
            for event, record in of_table:
                key = (event["after"] or event["before"])["id"]
                if event["op"] == "d":
                    there.pop(key, None)
                elif record.fault is None:
                    old = there.get(key, {"name": None, "number": None, "extra": None})
                    there[key] = {**old, **event["after"]}
    return Answer(rows, offsets["cut"] | offsets["invalid"], offsets["tombstone"])
