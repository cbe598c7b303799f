"""The captured stream of a real PostgreSQL: its history is, at every check, what the tables held."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from hashlib import md5
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdckit import Ledger, complete_moves, debezium, merge, samples
from tools.samples import debezium as debezium_samples
from tools.tiers import seeds

SAMPLE = Path(samples("debezium"))
KEYS = {table: list(keys) for table, keys in debezium_samples.TABLES.items()}


def held(table: str, folder: Path = SAMPLE) -> Iterator[tuple[datetime, list[tuple[Any, ...]]]]:
    """For each check the time of the last commit before it, and the rows that the database wrote down."""
    stream = [json.loads(each) for each in pq.read_table(folder / "wal2json.parquet")["value"].to_pylist()]
    rows = pq.read_table(folder / f"rows_{table}.parquet").to_pylist()
    ends = sorted({int(row["records"]) for row in pq.read_table(folder / "rows_flights.parquet").to_pylist()})
    for end in ends:
        at = max(datetime.fromisoformat(said["timestamp"]) for said in stream[:end] if said["action"] == "C")
        found = [json.loads(row["row"], parse_float=Decimal) for row in rows if int(row["records"]) == end]
        yield at, sorted((values(row) for row in found), key=repr)


def values(row: dict[str, Any]) -> tuple[Any, ...]:
    """A row of the database's own JSON, in Python's types."""
    typed = {
        "flight_date": date.fromisoformat,
        "scheduled_departure": lambda text: datetime.fromisoformat(text).replace(tzinfo=None),
        "written": datetime.fromisoformat,
        "raw": lambda text: bytes.fromhex(text.removeprefix("\\x")),
        "load": float,
        "fare": lambda number: Decimal(number).quantize(Decimal("0.01")),
    }
    return tuple(
        None if value is None else typed.get(name, lambda same: same)(value) for name, value in row.items()
    )


@pytest.mark.parametrize("table", ["flights", "remarks"])
def test_the_history_is_what_the_database_held_at_every_check(spark: SparkSession, table: str) -> None:
    """Concurrent sessions, rolled back transactions, large values left alone, moved keys, a truncate."""
    require_what_was_held(spark, table, SAMPLE)


def require_what_was_held(spark: SparkSession, table: str, folder: Path) -> None:
    """The history of a captured stream is, at each of six checks, what the database wrote down."""
    records = spark.read.parquet(str(folder / "wal2json.parquet"))
    decoded = debezium.decode_wal2json(records).localCheckpoint()
    told = complete_moves(debezium.changes(decoded, table, keys=KEYS[table]).localCheckpoint())
    fields = told.schema["data"].dataType.fieldNames()
    history = merge(told, entity=table, keys=KEYS[table]).collect()
    checks = list(held(table, folder))
    assert len(checks) == 6
    for at, rows in checks:
        naive = at.replace(tzinfo=None)
        current = [
            tuple(bytes(row[name]) if name == "raw" else row[name] for name in fields)
            for row in history
            if row["valid_from_timestamp"] <= naive
            and (row["valid_to_timestamp"] is None or row["valid_to_timestamp"] > naive)
            and not row["deleted_indicator"]
        ]
        assert sorted(current, key=repr) == rows


def test_what_a_debezium_engine_sent_gives_what_the_table_held_at_every_instant(spark: SparkSession) -> None:
    """Incremental snapshots while the engine lags and is killed; three sessions, moved keys, a truncate."""
    require_what_the_engine_said(spark, SAMPLE)


def require_what_the_engine_said(spark: SparkSession, folder: Path) -> None:
    """The history is what the table held, large values that no message sent with a new key among them."""
    decoded = debezium.decode(spark.read.parquet(str(folder / "engine.parquet"))).localCheckpoint()
    columns = {"id": "int32", "n": "int32", "big": "string"}
    told = complete_moves(debezium.changes(decoded, "items", keys=["id"], columns=columns).localCheckpoint())
    history = merge(told, entity="item", keys=["id"])
    versions = history.drop("field_provenance", "source_message").collect()
    instants = json.loads((folder / "engine_instants.json").read_text())
    assert len(instants) > 5
    for instant in instants:
        at = datetime.fromisoformat(instant["at"]).astimezone(UTC).replace(tzinfo=None)
        found = {
            row["id"]: row
            for row in versions
            if row["valid_from_timestamp"] <= at
            and (row["valid_to_timestamp"] is None or row["valid_to_timestamp"] > at)
            and not row["deleted_indicator"]
        }
        held = {
            (key, row["n"], row["big"] and md5(row["big"].encode()).hexdigest()) for key, row in found.items()
        }
        assert held == {tuple(row) for row in instant["rows"]}


def test_the_sample_has_what_makes_streams_hard() -> None:
    """Large values that were not sent, moved keys, a truncate, messages; and LSNs that go back."""
    table = pq.read_table(samples("debezium/wal2json.parquet"))
    stream = [json.loads(value) for value in table["value"].to_pylist()]
    updates = [each for each in stream if each["action"] == "U" and each["table"] == "flights"]
    named = [{column["name"]: column["value"] for column in each["columns"]} for each in updates]
    assert sum("log" not in row for row in named) > 50
    was = [{column["name"]: column["value"] for column in each["identity"]} for each in updates]
    moved = [old["flight"] != new["flight"] for old, new in zip(was, named, strict=True)]
    assert sum(moved) > 10
    assert {"B", "C", "I", "U", "D", "T", "M"} == {each["action"] for each in stream}
    lsns = [debezium_lsn(each["lsn"]) for each in stream if each["action"] in "IUD"]
    assert any(later < earlier for earlier, later in itertools.pairwise(lsns))


def debezium_lsn(text: str) -> int:
    high, low = text.split("/")
    return (int(high, 16) << 32) + int(low, 16)


@pytest.mark.soak
def test_a_stream_captured_now_is_like_the_committed_one(spark: SparkSession, tmp_path: Path) -> None:
    """A server of its own; skipped where there is none."""
    try:
        debezium_samples.write(tmp_path)
    except debezium_samples.NoServer as missing:
        pytest.skip(str(missing))
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    committed = json.loads(Path(samples("debezium/manifest.json")).read_text())
    assert manifest["records"].keys() == committed["records"].keys()
    assert [len(rows) > 0 for _, rows in held("flights", tmp_path)] == [True] * 6
    for table in KEYS:
        require_what_was_held(spark, table, tmp_path)


@pytest.mark.soak
@seeds(1, soak=2)
def test_any_batches_give_the_history_of_one(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """Records fall into batches at random, some into two, and batches come in any order."""
    chance, keys = random.Random(seed), KEYS["flights"]
    records = spark.read.parquet(str(samples("debezium/wal2json.parquet")))
    decoded = debezium.decode_wal2json(records).localCheckpoint()
    told = complete_moves(debezium.changes(decoded, "flights", keys=keys).localCheckpoint())
    ledger = Ledger(spark, tmp_path / "flights", entity="flight", keys=keys, buckets=2)
    batch = F.pmod(F.xxhash64("arrival", F.lit(seed)), F.lit(4))
    for number in chance.sample(range(4), 4):
        came = told.where((batch == number) | (F.pmod(F.col("arrival.offset"), F.lit(7)) == number))
        ledger.apply(came, f"batch {number}")
    whole = merge(told, entity="flight", keys=keys)
    kept = ledger.history().select(*whole.columns)
    assert kept.count() == whole.count() > 500
    assert kept.exceptAll(whole).isEmpty()
