"""A standalone cluster on loopback: a master and four workers, which share no Python with the driver."""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from importlib.metadata import requires, version
from pathlib import Path

import pytest
from jars import SCALA, SPARK_JARS
from kafka import java_path
from packaging.requirements import Requirement
from programs import ROOT, free_port, wait_until
from pythons import python_with


def needed() -> Iterator[str]:
    """What cdckit needs where it reads Avro, in our versions; PySpark itself comes with the executors."""
    for each in map(Requirement, requires("cdckit") or []):
        if (each.marker is None or each.marker.evaluate({"extra": "avro"})) and each.name != "pyspark":
            yield f"{each.name}=={version(each.name)}"


WORKERS = ("first", "second", "third", "fourth")


class Cluster:
    """A master with workers of one core each; they end with the `with` that it is made for."""

    def __init__(self, folder: Path) -> None:
        java = shutil.which("java", path=java_path())
        if java is None:
            pytest.skip("a cluster needs `java` on the PATH or in JAVA_HOME")
        self._folder, self._java = folder, java
        self.master = f"spark://127.0.0.1:{free_port()}"
        self.python = python_with(*needed())
        self._processes: list[subprocess.Popen[bytes]] = []

    def package(self) -> Path:
        """cdckit as a file that a driver hands to its executors."""
        path = self._folder / "cdckit.zip"
        with zipfile.ZipFile(path, "w") as zipped:
            for one in sorted((ROOT / "cdckit").rglob("*.py*")):
                if one.suffix in (".py", ".pyi"):
                    zipped.write(one, one.relative_to(ROOT))
        return path

    def _start(self, name: str, main: str, *arguments: str) -> None:
        # Of our environment they get nothing but what finds Java.
        told = {"PATH": os.environ["PATH"], "SPARK_HOME": str(SPARK_JARS.parent), "TZ": "UTC"}
        told |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "127.0.0.1"}
        told |= {"SPARK_SCALA_VERSION": SCALA}  # what Spark's scripts find out
        told |= {each: os.environ[each] for each in ("JAVA_HOME",) if each in os.environ}
        with (self._folder / f"{name}.log").open("wb") as log:
            command = [self._java, "-Xmx256m", "-cp", f"{SPARK_JARS}/*", f"org.apache.spark.deploy.{main}"]
            self._processes.append(
                subprocess.Popen(
                    [*command, "--host", "127.0.0.1", "--webui-port", "0", *arguments],
                    cwd=self._folder,
                    env=told,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

    def _said(self, name: str, what: str) -> bool:
        return what in (self._folder / f"{name}.log").read_text(errors="replace")

    def __enter__(self) -> Cluster:
        self._folder.mkdir(parents=True)
        self._start("master", "master.Master", "--port", self.master.rsplit(":", 1)[1])
        wait_until(lambda: self._said("master", "New state: ALIVE"), 60, "the master is alive")
        for name in WORKERS:
            work = str(self._folder / name)
            self._start(
                name, "worker.Worker", "--cores", "1", "--memory", "1g", "--work-dir", work, self.master
            )
        for name in WORKERS:
            wait_until(
                lambda name=name: self._said(name, "Successfully registered"), 60, f"worker {name} is there"
            )
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            process.terminate()  # a worker ends its executors then
        for process in self._processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
