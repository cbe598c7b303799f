"""What a real Debezium sends of a real PostgreSQL, captured now."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit import complete_moves, debezium, merge
from cdckit.query import reconcile
from tests.debezium.test_debezium_captured import require_what_the_engine_said
from tests.proofs.debezium_engine import capture
from tools.tiers import seeds


@pytest.mark.soak
@seeds(1, soak=2)
def test_the_history_is_what_the_table_held_at_every_instant(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    """Incremental snapshots under lag, several writers, truncates, an engine that is killed."""
    chance = random.Random(seed)
    capture(tmp_path, seconds=40, pause=chance.randint(2, 15), seed=seed)
    require_what_the_engine_said(spark, tmp_path)


LAST = """
INSERT INTO items SELECT i, 1, 'a' FROM generate_series(101, 107) i WHERE i <> 102;
UPDATE items SET n = 2 WHERE id = 101;
INSERT INTO items VALUES (102, 1, 'a');
DELETE FROM items WHERE id = 103;
UPDATE items SET n = 3 WHERE id = 104;
"""
BY_HAND = """
UPDATE items SET n = -1 WHERE id = 106;
DELETE FROM items WHERE id = 107;
INSERT INTO items VALUES (108, 7, 'h')
"""
LOST = [(101, "u"), (102, "c"), (103, "d")]


@pytest.mark.soak
@seeds(1, soak=2)
def test_each_fault_of_a_captured_feed_and_of_its_source_is_found(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    """Of a table that is written to all the while; where nothing is wrong, nothing is found."""
    capture(tmp_path, seconds=20, pause=3, seed=seed, last=LAST, by_hand=BY_HAND)
    records = spark.read.parquet(str(tmp_path / "engine.parquet"))
    *_, sound, by_hand = instants = json.loads((tmp_path / "engine_instants.json").read_text())
    early = random.Random(seed).sample(instants[:-2], 4)

    decoded = debezium.decode(records).localCheckpoint()
    frontiers = debezium.find_frontiers(decoded).collect()
    assert [(row["source"], row["incomplete"]) for row in frontiers] == [("shop", 0)]
    assert debezium.find_missing_events(decoded).count() == 0
    holds = reconciliation(spark, decoded)
    for instant in (*early, sound):
        assert holds(instant) == {}
    unheard = {
        (106, "different", "n"): (None, None),
        (107, "extra", "deleted_indicator"): (None, None),
        (108, "missing", "deleted_indicator"): (None, None),
    }
    assert holds(by_hand) == unheard

    faulty = debezium.decode(spoil(records)).localCheckpoint()
    gone = debezium.find_missing_events(faulty)
    assert gone.agg(F.sum(F.expr("last_position - first_position + 1"))).first()[0] == len(LOST)
    (frontier,) = debezium.find_frontiers(faulty).collect()
    assert frontier["incomplete"] == len(LOST)
    holds = reconciliation(spark, faulty)
    for instant in early:
        assert holds(instant) == {}
    found = holds(by_hand)
    place = found[105, "missing", "deleted_indicator"][1]
    assert place is not None
    assert place.startswith("shop:d/")
    assert found == unheard | {
        (101, "different", "n"): (None, None),
        (102, "missing", "deleted_indicator"): (None, None),
        (103, "extra", "deleted_indicator"): (None, None),
        (105, "missing", "deleted_indicator"): ("DELETED", place),
    }
    # Where the feed is known to lack something, that may still come.
    until = frontier["complete_until_timestamp"].replace(tzinfo=UTC)
    assert {said[0] for said in holds(by_hand, until).values()} == {"DELETED", "NOT_YET_SEEN"}


Findings = dict[tuple[int, str, str], tuple[str | None, str | None]]


def reconciliation(spark: SparkSession, decoded: DataFrame) -> Callable[..., Findings]:
    """The function that holds the history of a feed against what the table held at an instant."""
    columns = {"id": "int32", "n": "int32", "big": "string"}
    told = complete_moves(debezium.changes(decoded, "items", keys=["id"], columns=columns).localCheckpoint())
    told = told.withColumn("data", F.col("data").withField("big", F.md5("data.big"))).localCheckpoint()
    history = merge(told, entity="item", keys=["id"]).localCheckpoint()

    def holds(instant: Any, complete_until: datetime | None = None) -> Findings:
        at = datetime.fromisoformat(instant["at"])
        table = spark.createDataFrame([tuple(row) for row in instant["rows"]], "id int, n int, big string")
        call: dict[str, Any] = {"keys": ["id"], "changes": told, "complete_until": complete_until}
        found = reconcile(history, table, valid_at=at, **call).collect()
        said = {
            (row["id"], row["finding"], row["field"]): (row["explanation"], row["evidence"]) for row in found
        }
        assert len(said) == len(found)
        return said

    return holds


def spoil(records: DataFrame) -> DataFrame:
    """The feed without some records, with one twice, and with a delete that never was."""
    listed = records.collect()
    of_items = [row for row in listed if row["topic"] == "shop.public.items" and row["value"] is not None]
    events = {row["offset"]: json.loads(row["value"]) for row in of_items}

    def offsets(key: int, operation: str) -> set[int]:
        found = set()
        for offset, event in events.items():
            said = event["payload"]
            if said["op"] == operation and (said["after"] or said["before"])["id"] == key:
                found.add(offset)
        assert found
        return found

    gone = {offset for key, operation in LOST for offset in offsets(key, operation)}
    rows = [row.asDict() for row in listed if row["offset"] not in gone]
    (again,) = [row for row in rows if row["offset"] == max(offsets(104, "u"))]
    behind = max(row["offset"] for row in listed)
    false = max(offsets(105, "c"))
    said = events[false]
    block = said["payload"]["source"]
    block["lsn"] += 1_000_000_000
    block["sequence"] = json.dumps([str(block["lsn"] - 1), str(block["lsn"])])
    said["payload"] |= {"op": "d", "before": said["payload"]["after"], "after": None, "transaction": None}
    (like,) = [row for row in rows if row["offset"] == false]
    rows += [
        again | {"offset": behind + 1},
        like | {"offset": behind + 2, "value": json.dumps(said).encode()},
    ]
    return records.sparkSession.createDataFrame(rows, records.schema)
