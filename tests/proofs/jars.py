"""Jars from Maven Central, fetched once by Spark's own resolver and kept in the user's cache."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pyspark
import pytest

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "cdckit-proofs"
"""Where all that the proofs fetch is kept."""

SPARK_JARS = Path(pyspark.__file__).parent / "jars"
SCALA = "2.13"
DELTA = {"4.1": f"io.delta:delta-spark_4.1_{SCALA}:4.4.0"}
KAFKA = {
    version[:3]: f"org.apache.spark:spark-sql-kafka-0-10_{SCALA}:{version}" for version in ("4.1.3", "4.2.0")
}
"""Spark's connectors, by the version of Spark that they are made for; not every PySpark has its own."""

KAFKA_TOKENS = f"org.apache.spark:spark-token-provider-kafka-0-10_{SCALA}"
KAFKA_TOKENS_VERSION = "4.1.0-preview1"
"""A part of the Kafka connector that is not to be had everywhere in the connector's own version."""

_LONGEST = 300


def fitting(connectors: dict[str, str]) -> str:
    """The connector for the PySpark that is installed."""
    version = ".".join(pyspark.__version__.split(".")[:2])
    if version not in connectors:
        pytest.skip(f"none of {', '.join(connectors.values())} is made for PySpark {pyspark.__version__}")
    return connectors[version]


def kafka_connector() -> list[Path]:
    """Spark's Kafka source and sink for the PySpark that is installed."""
    connector = jars(fitting(KAFKA), without=[KAFKA_TOKENS])
    tokens = jars(f"{KAFKA_TOKENS}:{KAFKA_TOKENS_VERSION}")
    return [*connector, *(each for each in tokens if "spark-token-provider" in each.name)]


def jars(*coordinates: str, without: Sequence[str] = ()) -> list[Path]:
    """
    The jars that these coordinates name, and those that they need beyond Spark's own and *without*.

    The test that asks for them is skipped where they cannot be fetched, with the reason.
    """
    told = " ".join([*coordinates, *(f"-{each}" for each in without)])
    folder = CACHE / "jars" / hashlib.sha256(told.encode()).hexdigest()[:16]
    if not folder.exists():
        _fetch(folder, coordinates, without)
    return sorted(folder.glob("jars/*.jar"))


def _fetch(folder: Path, coordinates: Sequence[str], without: Sequence[str]) -> None:
    """Let `spark-submit` run a program that does nothing, with these packages."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as made:
        nothing = Path(made, "nothing.py")
        nothing.write_text("")
        submit = SPARK_JARS.parent / "bin" / "spark-submit"
        told = [f"spark.jars.ivy={made}/ivy", "spark.driver.host=localhost", "spark.ui.enabled=false"]
        command = [str(submit), *(part for one in told for part in ("--conf", one))]
        command += ["--exclude-packages", ",".join(without)] if without else []
        environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
        try:
            ran = subprocess.run(
                [*command, "--packages", ",".join(coordinates), str(nothing)],
                env=environment,
                capture_output=True,
                text=True,
                timeout=_LONGEST,
                check=False,
            )
        except subprocess.TimeoutExpired:
            pytest.skip(f"{', '.join(coordinates)} could not be fetched within {_LONGEST} s")
        if ran.returncode != 0:
            reason = next(
                (one for one in ran.stderr.splitlines() if "unresolved" in one), "spark-submit failed"
            )
            pytest.skip(f"{', '.join(coordinates)} could not be fetched from Maven Central: {reason.strip()}")
        try:
            Path(made, "ivy").rename(folder)
        except OSError:
            # Another test was the first.
            assert folder.exists()
