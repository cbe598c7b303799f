"""The session for notebooks and tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdckit import session
from cdckit.notebook import sessions


def test_a_running_session_is_returned(spark: SparkSession) -> None:
    """Whoever made it: a notebook on a cluster keeps its cluster."""
    assert session(memory="16g") is spark


def test_instants_are_shown_in_utc(spark: SparkSession) -> None:
    """Noon UTC reads noon."""
    noon = spark.range(1).select(F.timestamp_seconds(F.lit(43_200)).cast("string"))
    assert noon.first()[0] == "1970-01-01 12:00:00"


def test_a_session_for_samples_compiles_once_and_makes_few_partitions() -> None:
    few, many = sessions.settings("1g", small=True), sessions.settings("1g")
    assert few["spark.sql.shuffle.partitions"] == "2"
    java = "spark.driver.extraJavaOptions"
    assert few[java].startswith(f"{many[java]} -XX:TieredStopAtLevel=1")
    # By itself Java gives one compiler 48 MiB, and stops compiling when they are full.
    assert "-XX:ReservedCodeCacheSize=240m" in few[java]
    assert [each["spark.sql.adaptive.enabled"] for each in (few, many)] == ["false", "true"]
    only = ("shuffle.partitions", "adaptive.enabled", "constraintPropagation.enabled")
    others = {java, "spark.buffer.pageSize", *(f"spark.sql.{name}" for name in only)}
    assert {name for name in few if few[name] != many.get(name)} <= others


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere workers are Spark's own in every case")
def test_workers_are_forked_by_us_where_that_is_sure_to_work(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Not on a cluster, with another interpreter, or where a new Python does not find this very package."""
    ours = {"spark.python.daemon.module": "cdckit.parts.worker_daemon"}
    assert sessions.forked_workers({"spark.sql.shuffle.partitions": "3"}) == ours
    assert sessions.forked_workers({"spark.master": "local[1]"}) == ours
    assert sessions.forked_workers({"spark.master": "spark://localhost:7077"}) == {}
    assert sessions.forked_workers({"spark.master": "local-cluster[2,1,1024]"}) == {}
    assert sessions.forked_workers({"spark.pyspark.python": "python3"}) == {}
    (tmp_path / "cdckit").mkdir()
    (tmp_path / "cdckit" / "__init__.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert sessions.forked_workers({}) == {}


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, str]]:
    """What PySpark is told for a session, with an environment of the test's own."""
    monkeypatch.setattr(sessions, "_running_session", lambda: None)
    monkeypatch.setattr(sessions, "_cache_java_names", lambda: None)
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", lambda builder: dict(builder._options))
    ours = {**sessions.ENVIRONMENT, **sessions.LOOPBACK_ENVIRONMENT}
    monkeypatch.setattr(os, "environ", {name: os.environ[name] for name in os.environ if name not in ours})
    return session  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("master", "is_here"),
    [("local[2]", True), ("local-cluster[2,1,1024]", True), ("spark://there:7077", False)],
)
def test_a_driver_keeps_to_loopback_where_all_executors_do(
    begun: Callable[..., dict[str, str]], master: str, is_here: bool
) -> None:
    """Those of a cluster would look for it on their own machines."""
    told = begun(config={"spark.master": master})
    assert told["spark.master"] == master
    assert ("spark.driver.host" in told, "spark.driver.bindAddress" in told) == (is_here, is_here)
    assert ("SPARK_LOCAL_IP" in os.environ, "SPARK_LOCAL_HOSTNAME" in os.environ) == (is_here, is_here)
    assert os.environ["TZ"] == "UTC"


def test_a_server_that_the_environment_names_is_connected_to(begun: Callable[..., dict[str, str]]) -> None:
    os.environ["SPARK_REMOTE"] = "sc://there"
    told = begun(config={"spark.sql.shuffle.partitions": "3"})
    assert told == {
        "spark.app.name": "cdckit",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "3",
    }
    assert os.environ["TZ"] == "UTC"
    assert "SPARK_LOCAL_IP" not in os.environ


def test_a_running_session_is_found_from_another_thread(spark: SparkSession) -> None:
    """And left as it is: its settings are not those of a session that would be made here."""
    name, found = "spark.sql.shuffle.partitions", []
    kept = spark.conf.get(name)
    thread = Thread(target=lambda: found.append((session(), spark.conf.get(name))))
    thread.start()
    thread.join()
    assert found == [(spark, kept)]
    assert kept != sessions.settings("1g")[name]


def test_a_system_that_does_not_tell_its_memory_gets_two_gibibytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows has no sysconf at all, other systems not its words."""
    assert re.fullmatch("[1-8]g", sessions._default_memory())
    monkeypatch.setattr(os, "sysconf", lambda name: int("SC_PAGE_SIZE"))
    assert sessions._default_memory() == "2g"
    monkeypatch.delattr(os, "sysconf")
    assert sessions._default_memory() == "2g"


@pytest.mark.parametrize(
    ("limits", "memory"), [(["7516192768"], "2g"), (["max", "7516192768"], "2g"), (["max"], "8g"), ([], "8g")]
)
def test_a_container_has_the_memory_that_it_was_given(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, limits: list[str], memory: str
) -> None:
    """Of 7 GiB a third, on a machine of 64: Java would be ended by the system without a word."""
    monkeypatch.setattr(os, "sysconf", {"SC_PHYS_PAGES": 1 << 24, "SC_PAGE_SIZE": 1 << 12}.__getitem__)
    files = [tmp_path / "memory.max", tmp_path / "memory.limit_in_bytes"]
    for file, limit in zip(files, limits, strict=False):
        file.write_text(f"{limit}\n")
    monkeypatch.setattr(sessions, "MEMORY_LIMITS", files)
    assert sessions._default_memory() == memory


def test_a_machine_without_java_is_told_so() -> None:
    """The remedy, not the port number of a gateway."""
    code = "from cdckit.notebook import sessions\n"
    code += "try:\n    sessions.session()\nexcept sessions.NoJava as error:\n    print(error)"
    env = {"PATH": "/nowhere", "JAVA_HOME": "/nowhere", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert "needs Java 17 or newer" in done.stdout
