"""What is kept by a ledger and a hub is read by others: Spark's Delta connector, polars, DuckDB."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from jars import DELTA, fitting, jars
from programs import run
from pyspark.sql import SparkSession

from cdckit import Ledger, datahub
from cdckit.store import Snapshot
from support.histories import plain, random_changes, to_dataframe
from support.killed_programs import hub_of

pytestmark = pytest.mark.soak

FIELDS = {
    **{"h": "int", "k": "string", "unit price": "decimal(12,2)", "a;b": "double", "d(ay)": "date"},
    **{"at": "timestamp", "raw": "binary", "list": "array<int>", "c": "struct<x:double,y:string>"},
}
STORED = ["h", "k", "unit_x0020_price", "a_x003B_b", "d_x0028_ay_x0029_", "at", "raw", "list", "c"]
"""What other readers call the fields: a name is another one where Delta or Parquet do not take it."""

NOW = datetime(2024, 2, 1, tzinfo=UTC)
Seen = dict[str, pa.Table]
"""By table, what somebody read of it."""


@pytest.fixture(scope="module")
def kept(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Sequence[Snapshot]:
    """A ledger's newest commit, its first one, and the newest of a hub."""
    folder = tmp_path_factory.mktemp("kept")
    ledger = Ledger(spark, folder / "ledger", entity="e", keys=["h", "k"], buckets=3)
    changes = random_changes(7, 60, FIELDS)
    for number in range(4):
        ledger.apply(to_dataframe(spark, changes[number::4], FIELDS), number)
    ledger.compact()
    hub = hub_of(spark, folder / "hub")
    for number in range(3):
        said = [{"number": each, "name": f"{number} {each}"} for each in range(number + 2)]
        message: dict[str, Any] = {
            "guid": f"m{number}",
            "entity": "product",
            "timestamp": f"2024-01-0{number + 1}T00:00:00Z",
            "data": [*said, {"name": "nobody"}],
        }
        hub.receive(datahub.records(spark, [message], received_at=NOW), number)
        hub.run(now=NOW)
    return ledger.store.snapshot(), ledger.store.snapshot(1), hub.store.snapshot()


def with_delta_spark(snapshots: Sequence[Snapshot], folder: Path) -> list[Seen]:
    tables = [
        {
            "path": snapshot.path(name),
            "version": snapshot.table(name).version,
            "out": str(folder / f"{place}.{name}"),
        }
        for place, snapshot in enumerate(snapshots)
        for name in snapshot.names()
    ]
    (folder / "tables.json").write_text(json.dumps(tables))
    run("read_with_delta.py", folder / "tables.json", ",".join(map(str, jars(fitting(DELTA)))))
    return [
        {name: pq.read_table(folder / f"{place}.{name}") for name in snapshot.names()}
        for place, snapshot in enumerate(snapshots)
    ]


def with_polars(snapshots: Sequence[Snapshot], _: Path) -> list[Seen]:
    polars = pytest.importorskip("polars", reason="polars comes with the extra soak")

    def seen(path: str, version: int) -> pa.Table:
        return polars.scan_delta(path, version=version).collect().to_arrow()

    return _each(snapshots, seen)


def with_duckdb(snapshots: Sequence[Snapshot], folder: Path) -> list[Seen]:
    duckdb = pytest.importorskip("duckdb", reason="DuckDB comes with the extra dev")
    connection = duckdb.connect(config={"extension_directory": str(folder)})
    try:
        connection.execute("INSTALL delta")
        connection.execute("LOAD delta")
    except duckdb.Error as error:
        pytest.skip(f"DuckDB's extension for Delta cannot be had here: {str(error).splitlines()[0]}")

    def seen(path: str, version: int) -> pa.Table:
        told = "SELECT * FROM delta_scan(?, version => ?)"
        return connection.sql(told, params=[path, version]).to_arrow_table()

    return _each(snapshots, seen)


def with_duckdb_over_deltalake(snapshots: Sequence[Snapshot], _: Path) -> list[Seen]:
    """The way that needs no extension: deltalake chooses the files, DuckDB reads them as Arrow."""
    duckdb = pytest.importorskip("duckdb", reason="DuckDB comes with the extra dev")
    connection = duckdb.connect()

    def seen(path: str, version: int) -> pa.Table:
        connection.register("kept", DeltaTable(path, version=version).to_pyarrow_dataset())
        return connection.sql("SELECT * FROM kept").to_arrow_table()

    return _each(snapshots, seen)


def _each(snapshots: Sequence[Snapshot], seen: Callable[[str, int], pa.Table]) -> list[Seen]:
    return [
        {name: seen(snapshot.path(name), snapshot.table(name).version) for name in snapshot.names()}
        for snapshot in snapshots
    ]


@pytest.mark.parametrize(
    "read", [with_delta_spark, with_polars, with_duckdb, with_duckdb_over_deltalake], ids=lambda f: f.__name__
)
def test_others_read_the_same_rows(
    kept: Sequence[Snapshot], tmp_path: Path, read: Callable[[Sequence[Snapshot], Path], list[Seen]]
) -> None:
    """Every table of every commit, under the names by which it is stored."""
    everything = read(kept, tmp_path)
    for snapshot, seen in zip(kept, everything, strict=True):
        for name in snapshot.names():
            assert content(seen[name]) == content(snapshot.read(name).toArrow()), name
    ledger, earlier, hub = everything
    assert len(ledger["history"]) > len(earlier["history"]) > 10
    assert [name for name in ledger["history"].column_names if name in STORED] == STORED
    assert [part.name for part in ledger["changes"].schema.field("data").type] == STORED
    products = {(row["number"], row["name"]) for row in hub["history.product"].to_pylist()}
    assert products == {(0, "0 0"), (0, "1 0"), (0, "2 0"), (1, "0 1"), (1, "1 1"), (1, "2 1"),
                        (2, "1 2"), (2, "2 2"), (3, "2 3")}  # fmt: skip


def content(table: pa.Table) -> list[str]:
    """The rows by the places of their columns, whatever these are called, in one order."""
    return sorted(repr(plain(_by_place(row))) for row in table.to_pylist())


def _by_place(value: Any) -> Any:
    if isinstance(value, dict):
        return [_by_place(part) for part in value.values()]
    return [_by_place(part) for part in value] if isinstance(value, list) else value
