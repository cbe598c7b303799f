"""Spark's Delta connector writes to what we keep, and follows it: nothing is reversed or read twice."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from jars import DELTA, fitting, jars
from programs import Running, run
from pyspark.sql import SparkSession

from cdckit import Ledger, merge
from cdckit.store import ForeignChange, Store
from support.histories import assert_folds_to, by_guid, random_changes, to_dataframe, to_rows
from support.ledger_programs import FIELDS, KEYS
from support.store_numbers import add, held

pytestmark = pytest.mark.soak

CHANGES = random_changes(3, 24, FIELDS)
BATCHES = [CHANGES[number::5] for number in range(5)]
"""Four are applied before others write, and one after."""


class Way(NamedTuple):
    """
    What somebody does to a table.

    Args:
        statements: In SQL; of the tables of numbers and of those of entities.
        operation: What Delta calls it; None for upkeep, which changes no rows.
    """

    statements: tuple[str, ...]
    operation: str | None


COLUMN = {"changes": "message_id", "history": "source_message", "records": "n"}
WAYS = {
    "delete": Way(("DELETE FROM {{table}} WHERE pmod(hash({column}), 3) = 0",), "DELETE"),
    "append": Way(("INSERT INTO {{table}} SELECT * FROM {{table}} LIMIT 2",), "WRITE"),
    "update": Way(("UPDATE {{table}} SET {column} = {column} WHERE pmod(hash({column}), 3) = 0",), "UPDATE"),
    "restore": Way(("RESTORE TABLE {{table}} TO VERSION AS OF 1",), "RESTORE"),
    "column": Way(("NEW COLUMN",), "WRITE"),
    "optimize": Way(("OPTIMIZE {{table}}",), None),
    "vacuum": Way(("OPTIMIZE {{table}}", "VACUUM {{table}} RETAIN 0 HOURS"), None),
}
CASES = [(table, way) for table in COLUMN for way in WAYS]


@pytest.fixture(scope="module")
def places(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Path]:
    """For each case a ledger with four batches or a store of four numbers, after somebody was there."""
    folder = tmp_path_factory.mktemp("delta_spark")
    ledger = opened(spark, folder / "ledger")
    for batch in BATCHES[:4]:
        ledger.apply(to_dataframe(spark, batch, FIELDS))
    for number in range(4):
        add(Store(None, folder / "store"), "records", number)
    found = {case: folder / "-".join(case) for case in CASES}
    told = []
    for (table, way), place in found.items():
        shutil.copytree(folder / ("store" if table == "records" else "ledger"), place)
        statements = [each.format(column=COLUMN[table]) for each in WAYS[way].statements]
        told.append({"path": str(place / table), "statements": statements})
    (folder / "changes.json").write_text(json.dumps(told))
    run("write_with_delta.py", folder / "changes.json", connector(), seconds=600)
    return found


def connector() -> str:
    """The jars of Spark's Delta connector, separated by commas."""
    return ",".join(map(str, jars(fitting(DELTA))))


def opened(spark: SparkSession, place: Path) -> Ledger:
    return Ledger(spark, place, entity="e", keys=KEYS, buckets=2)


def theirs(place: Path, table: str) -> list[str]:
    """The rows that any reader of Delta finds."""
    return sorted(map(str, DeltaTable(str(place / table)).to_pyarrow_table().to_pylist()))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("table", ["changes", "history"])
def test_a_ledger(spark: SparkSession, places: dict[tuple[str, str], Path], table: str, way: str) -> None:
    place, operation = places[table, way], WAYS[way].operation
    ledger, last = opened(spark, place), to_dataframe(spark, BATCHES[4], FIELDS)
    left = theirs(place, table)
    if operation is not None:
        for call in (ledger.store.check, lambda: ledger.apply(last)):
            with pytest.raises(ForeignChange, match=f"'{table}': {operation} by Apache-Spark") as refused:
                call()
            assert refused.value.table == table
        if table == "changes":
            with pytest.raises(ForeignChange, match=f"'changes': {operation}"):
                ledger.rebuild()
        assert theirs(place, table) == left
        _ = ledger.adopt() if table == "changes" else ledger.rebuild()
    ledger.store.check(deep=True)
    if table == "changes":
        assert len(theirs(place, table)) == len(left)
        assert_is_merge_of_log(ledger)
    ledger.apply(last)
    assert_is_merge_of_log(ledger)
    ledger.store.check(deep=True)
    if table == "history" or operation is None:
        assert_folds_to(ledger.history(), CHANGES, entity="e", keys=KEYS)


def assert_is_merge_of_log(ledger: Ledger) -> None:
    expected = merge(ledger.changes(), entity="e", keys=KEYS)
    assert by_guid(to_rows(ledger.history())) == by_guid(to_rows(expected))


@pytest.mark.parametrize("way", WAYS)
def test_records(places: dict[tuple[str, str], Path], way: str) -> None:
    """A table from which others derive, as the records of a door."""
    place, operation = places["records", way], WAYS[way].operation
    store, left = Store(None, place), theirs(places["records", way], "records")
    if operation is None:
        assert held(store, "records") == [0, 1, 2, 3]
    else:
        for call in (store.check, lambda: add(store, "records", 9)):
            with pytest.raises(ForeignChange, match=f"'records': {operation} by Apache-Spark"):
                call()
        assert held(store, "records") == [0, 1, 2, 3]
        store.adopt("records")
    assert theirs(place, "records") == left
    store.check(deep=True)
    before = held(store, "records")
    add(store, "records", 9)
    assert held(store, "records") == [*before, 9]
    assert len(theirs(place, "records")) == len(left) + 1


def test_a_stream_follows_the_log(spark: SparkSession, tmp_path: Path) -> None:
    """Through fifty batches, with what is folded and compacted between: each row comes once."""
    ledger = opened(spark, tmp_path / "ledger")
    changes = random_changes(5, 60, FIELDS)
    ledger.apply(to_dataframe(spark, changes[0::50], FIELDS))
    stop, table = tmp_path / "stop", tmp_path / "ledger" / "changes"
    with Running("stream_with_delta.py", table, tmp_path, stop, connector()) as running:
        running.wait_for("ready", 120)
        folded = 0
        for number in range(1, 50):
            before = {one.path for one in ledger.store.snapshot().files("changes")}
            ledger.apply(to_dataframe(spark, changes[number::50], FIELDS))
            folded += bool(before - {one.path for one in ledger.store.snapshot().files("changes")})
            if number in (11, 30):
                ledger.compact()
        stop.touch()
        running.ends_well(120)
    assert folded >= 2
    kept = pq.read_table(tmp_path / "rows").select(["guid", "message_id", "arrival", "operation"]).to_pylist()
    log = ledger.store.snapshot().read("changes").select("guid", "message_id", "arrival", "operation")
    assert Counter(map(str, kept)) == Counter(map(str, log.toArrow().to_pylist()))
    assert_folds_to(ledger.history(), changes, entity="e", keys=KEYS)


@pytest.mark.jvm
def test_a_ledger_is_published_in_a_catalogue(tmp_path: Path) -> None:
    """By Spark's own writer: whole, then by MERGE, and nothing over what others have done or may have."""
    told = run("publish_with_delta.py", tmp_path, connector(), seconds=600)
    assert "'spark_catalog.others.dim': DELETE by Apache-Spark" in told
    assert (
        "shortened Another program has changed the Delta table 'spark_catalog.others.dim': a commit" in told
    )
    assert told.count("refused publish() needs target to be an empty place") == 2
    assert "right" in told.splitlines()
