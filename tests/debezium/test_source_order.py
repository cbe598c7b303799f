"""Rows in the order of their source: reads of snapshots, waiting statements and truncates, in any batches."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from cdckit import Ledger, debezium, merge, why
from cdckit.model.records import RECORD_SCHEMA
from cdckit.quality import check_all
from tools.tiers import seeds

START = datetime(2024, 3, 1, tzinfo=UTC)
NAIVE = START.replace(tzinfo=None)
KEYS = ["life", "id"]
COLUMNS = {"life": "int32", "id": "int32", "v": "string"}


@dataclass
class Event:
    """One event of one source, which is one *life*: a database of its own."""

    life: int
    op: str
    position: int
    second: int
    """What its clock says; of a read it is that of the read, of a statement perhaps that of its beginning."""
    key: int = 0
    value: str | None = None

    def record(self, offset: int) -> tuple[Any, ...]:
        """As Debezium writes it: PostgreSQL's in even lives, MySQL's in odd ones."""
        if self.life % 2:
            place: dict[str, object] = {"connector": "mysql", "file": "binlog.000007", "pos": self.position}
        else:
            place = {"connector": "postgresql", "sequence": f'["{self.position - 1}","{self.position}"]'}
        source = {
            **place,
            "name": f"life {self.life}",
            "table": "t",
            "snapshot": "incremental" if self.op == "r" else "false",
            "ts_ms": int((START.timestamp() + self.second) * 1000),
        }
        row = {"life": self.life, "id": self.key, "v": self.value}
        sent = {"after": row} if self.op in "cur" else {"before": row} if self.op == "d" else {}
        value = json.dumps({"op": self.op, "source": source, **sent}).encode()
        arrived = START + timedelta(days=1, seconds=offset)
        return (None, value, "t", 0, offset, arrived, 0, None)


def random_life(life: int, chance: random.Random) -> list[Event]:
    """
    What a connector sends of four rows, two of which were there before it.

    Its reads are of their positions, but their clock is up to 60 seconds ahead of the log's.  In odd lives
    every statement says when it began, up to 5 seconds before it had the row.
    """
    rows: dict[int, str | None] = {1: "old 1", 2: "old 2"}
    events, second = [], 0
    for position in range(10, 10 + chance.randint(5, 16)):
        second += chance.randint(1, 6)
        said = second - (chance.randint(0, 5) if life % 2 else 0)
        key, draw = chance.randint(1, 4), chance.random()
        if draw < 0.35:
            ahead = second + chance.randint(0, 60)
            events += [Event(life, "r", position, ahead, each, rows[each]) for each in sorted(rows)]
        elif draw < 0.42:
            rows.clear()
            events.append(Event(life, "t", position, said))
        elif key in rows and draw < 0.65:
            events.append(Event(life, "d", position, said, key, rows.pop(key)))
        else:
            op = "u" if key in rows else "c"
            rows[key] = f"value {position}"
            events.append(Event(life, op, position, said, key, rows[key]))
    return events


def expected(events: Sequence[Event], key: int, second: int) -> str | None:
    """The value of a row at a second, naively: of the last event of the log by then, or else of a read."""
    logged: list[tuple[int, str | None]] = []
    reads: list[tuple[int, Event]] = []
    named = False
    for event in events:
        hit = event.key == key if event.op != "t" else named
        if hit and event.op == "r":
            reads.append((len(logged), event))
        elif hit:
            # A statement has its row once all before it are through with it.
            at = max([event.second, *(each for each, _ in logged)])
            logged.append((at, event.value if event.op in "cu" else None))
        if event.op == "t":
            named = False
        elif event.key == key and event.op != "d":
            named = True
    past = [value for at, value in logged if at <= second]
    if past:
        return past[-1]
    first = [event for before, event in reads if before == 0]
    at_last = min([second + 1, *(at for at, _ in logged)])
    seen = [each.value for each in first if min(each.second, at_last) <= second]
    return seen[-1] if seen else None


def require_expected(lives: Sequence[Sequence[Event]], history: Iterable[Row]) -> None:
    """At every second something is said of, and in the end, each row is what it should be."""
    found: dict[tuple[int, int], list[Row]] = {}
    for row in history:
        found.setdefault((row["life"], row["id"]), []).append(row)
    wrong, compared = [], 0
    for events in lives:
        for key in range(1, 5):
            for second in sorted({event.second for event in events} | {10_000}):
                at = NAIVE + timedelta(seconds=second)
                standing = [
                    None if row["deleted_indicator"] else row["v"]
                    for row in found.get((events[0].life, key), [])
                    if row["valid_from_timestamp"] <= at
                    and (row["valid_to_timestamp"] is None or at < row["valid_to_timestamp"])
                ]
                compared += 1
                value = expected(events, key, second)
                if (standing or [None]) != [value]:
                    wrong.append((events[0].life, key, second, value, standing))
    assert compared > 100
    assert wrong == []


def decoded(spark: SparkSession, events: Sequence[tuple[int, Event]]) -> DataFrame:
    return debezium.decode(
        spark.createDataFrame([event.record(at) for at, event in events], RECORD_SCHEMA)
    ).localCheckpoint()


def changes(spark: SparkSession, events: Sequence[tuple[int, Event]]) -> DataFrame:
    return debezium.changes(decoded(spark, events), "t", keys=KEYS, columns=COLUMNS)


@seeds(1, soak=20)
def test_rows_are_what_their_log_says_in_one_merge_and_in_any_batches(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    """Events of 24 sources; batches of them in any order, and some of them twice."""
    chance = random.Random(seed)
    lives = [random_life(life, chance) for life in range(24)]
    events = list(enumerate(event for life in lives for event in life))
    whole = merge(changes(spark, events), entity="row", keys=KEYS).localCheckpoint()
    require_expected(lives, whole.collect())
    ledger = Ledger(spark, tmp_path / "rows", entity="row", keys=KEYS, buckets=2)
    batches: list[list[tuple[int, Event]]] = [[], [], []]
    for at, event in events:
        for batch in (
            {chance.randrange(3), chance.randrange(3)} if chance.random() < 0.2 else {chance.randrange(3)}
        ):
            again = chance.random() < 0.2 and any(each is event for some in batches for _, each in some)
            batches[batch].append((at + 1000 if again else at, event))
    for batch in batches:
        ledger.apply(changes(spark, batch))
    kept = ledger.history().select("life", "id", "v", *_VERSION).localCheckpoint()
    require_expected(lives, kept.collect())
    assert kept.exceptAll(whole.select(*kept.columns)).isEmpty()
    assert merge(ledger.changes(), entity="row", keys=KEYS).select(*kept.columns).exceptAll(kept).isEmpty()
    assert {name: each.ok for name, each in check_all(ledger).items() if not each.ok} == {}


_VERSION = ("valid_from_timestamp", "valid_to_timestamp", "deleted_indicator", "source_message")


def test_a_row_first_seen_by_a_snapshot_is_there_from_an_instant_that_is_said(spark: SparkSession) -> None:
    """Deleted at 20, read a little before but stamped 50: there from 5 on, the beginning of the stream."""
    events = [Event(0, "r", 10, 50, 1, "old"), Event(0, "d", 11, 20, 1, "old"), Event(0, "r", 12, 60, 2, "b")]
    begun = START + timedelta(seconds=5)
    said = debezium.changes(
        decoded(spark, list(enumerate(events))), "t", keys=KEYS, columns=COLUMNS, snapshot_at=begun
    )
    history = merge(said, entity="row", keys=KEYS).orderBy("id", "valid_from_timestamp").collect()
    seconds = [(row["id"], row["v"], (row["valid_from_timestamp"] - NAIVE).seconds) for row in history]
    assert seconds == [(1, "old", 5), (1, None, 20), (2, "b", 5)]


def test_why_names_the_truncate(spark: SparkSession) -> None:
    events = [Event(0, "c", 10, 1, 1, "a"), Event(0, "t", 11, 2), Event(0, "c", 12, 3, 2, "b")]
    told = why(changes(spark, list(enumerate(events))), {"life": 0, "id": 1}, "v", keys=KEYS).collect()
    assert [(row["operation"], row["value"], row["verdict"]) for row in told] == [
        ("upsert", "a", "SUPERSEDED"),
        ("absent", None, "WON"),
    ]


def mysql(offset: int, key: int, value: str, was: str | None, said: dict[str, Any]) -> tuple[Any, ...]:
    """A row of MySQL that was updated, or read where nothing is said of what it was."""
    source = {"connector": "mysql", "name": "shop", "table": "t", "row": 0, **said}
    row = {"life": 0, "id": key}
    before = {} if was is None else {"before": {**row, "v": was}}
    event = {"op": "u" if was else "r", "after": {**row, "v": value}, "source": source, **before}
    return (None, json.dumps(event).encode(), "t", 0, offset, START, 0, None)


@pytest.mark.parametrize("next_gtid", ["bbb:1", "aaa:10"])
def test_positions_of_mysql(spark: SparkSession, next_gtid: str) -> None:
    """
    Events of a compressed transaction share a position; a new master counts anew, which GTIDs tell.

    In a group all members write the group's name into them; so does a replica that of its master.

    Row 1: changed twice at one position, and delivered twice.  Row 2: read by the first snapshot, which
    knows no GTID and whose clock is ahead; changed on one server at second 2, on another at second 3.
    """
    second = int(START.timestamp()) * 1000
    together = {"file": "binlog.000009", "pos": 40, "ts_ms": second + 1000, "gtid": "aaa:1"}
    on_first = {"file": "binlog.000009", "pos": 50, "ts_ms": second + 2000, "gtid": "aaa:2"}
    on_next = {"file": "binlog.000001", "pos": 4, "ts_ms": second + 3000, "gtid": next_gtid}
    read = {"file": "binlog.000009", "pos": 45, "ts_ms": second + 9000, "snapshot": "true"}
    rows = [
        mysql(0, 1, "b", "a", together),
        mysql(1, 1, "c", "b", together),
        mysql(2, 1, "b", "a", together),
        mysql(3, 1, "c", "b", together),
        mysql(4, 2, "read", None, read),
        mysql(5, 2, "first", "read", on_first),
        mysql(6, 2, "next", "first", on_next),
    ]
    decoded = debezium.decode(spark.createDataFrame(rows, RECORD_SCHEMA)).localCheckpoint()
    said = debezium.changes(decoded, "t", keys=KEYS, columns=COLUMNS).localCheckpoint()
    assert said.select("message_id").distinct().count() == 5
    history = merge(said, entity="row", keys=KEYS).orderBy("id", "valid_from_timestamp").collect()
    seconds = [(row["id"], row["v"], (row["valid_from_timestamp"] - NAIVE).seconds) for row in history]
    assert seconds == [(1, "c", 1), (2, "first", 2), (2, "next", 3)]
