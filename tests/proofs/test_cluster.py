"""Elsewhere than in local mode the same comes out: on a cluster, and through Spark Connect."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from cluster import WORKERS, Cluster
from connect import ConnectServer
from everywhere import results
from programs import run
from pyspark.sql import DataFrame, SparkSession

from support.histories import plain

pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def here(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, DataFrame]:
    """What local mode gives."""
    return results(spark, tmp_path_factory.mktemp("here"))


def test_a_standalone_master_with_four_workers(here: dict[str, DataFrame], tmp_path: Path) -> None:
    """The workers' Python has no cdckit and no PySpark: the one is sent, the other is the executors'."""
    with Cluster(tmp_path / "cluster") as cluster:
        (tmp_path / "there").mkdir()
        python, package = cluster.python, cluster.package()
        told = run("everywhere.py", cluster.master, python, package, tmp_path / "there", seconds=900)
    folders, interpreters = zip(*json.loads(told.splitlines()[-1]), strict=True)
    assert set(interpreters) == {str(python)}
    assert {Path(each).parts[-3] for each in folders} == set(WORKERS)
    assert_same(here, tmp_path / "there")


def test_spark_connect(here: dict[str, DataFrame], tmp_path: Path) -> None:
    """A client without a JVM: all of it works, streams with their sinks too."""
    with ConnectServer(tmp_path / "server") as server:
        (tmp_path / "there").mkdir()
        told = run("everywhere.py", server.url, sys.executable, "none", tmp_path / "there", seconds=900)
    assert {python for _, python in json.loads(told.splitlines()[-1])} == {sys.executable}
    assert_same(here, tmp_path / "there")


def assert_same(here: dict[str, DataFrame], there: Path) -> None:
    for name, frame in here.items():
        found = pq.read_table(there / f"{name}.parquet").to_pylist()
        assert rows(found) == rows(frame.toArrow().to_pylist()) != [], name


def rows(listed: list[dict[str, object]]) -> list[str]:
    """Rows in one order, whatever order their columns are in."""
    return sorted(repr(sorted(plain(row).items())) for row in listed)
