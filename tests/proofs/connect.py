"""A Spark Connect server on loopback, where cdckit is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from jars import SCALA, SPARK_JARS
from kafka import java_path
from programs import environment, free_port, wait_until

_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
# What Spark's scripts tell Java 17, so that Arrow may use memory beside the heap.
_OPENED = ("java.nio", "sun.nio.ch", "java.lang", "java.lang.invoke", "java.util", "java.util.concurrent")


class ConnectServer:
    """A server with two cores; it ends with the `with` that it is made for."""

    def __init__(self, folder: Path) -> None:
        pytest.importorskip("grpc", reason="a client of Spark Connect needs grpcio, of the extra soak")
        java = shutil.which("java", path=java_path())
        if java is None:
            pytest.skip("a server needs `java` on the PATH or in JAVA_HOME")
        self._java, self._folder, self._port = java, folder, free_port()
        self.url = f"sc://127.0.0.1:{self._port}"

    def __enter__(self) -> ConnectServer:
        self._folder.mkdir(parents=True)
        settings = {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(self._port),
            "spark.driver.host": "127.0.0.1",
            "spark.ui.enabled": "false",
        }
        told = {"SPARK_HOME": str(SPARK_JARS.parent), "SPARK_SCALA_VERSION": SCALA}
        told |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
        command = [self._java, "-Xmx1g", *(f"--add-opens=java.base/{one}=ALL-UNNAMED" for one in _OPENED)]
        command += ["-cp", f"{SPARK_JARS}{os.sep}*", "org.apache.spark.deploy.SparkSubmit"]
        command += ["--class", _SERVER, "--master", "local[2]"]
        command += [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
        with (self._folder / "server.log").open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "spark-internal"],
                cwd=self._folder,
                env={**environment(), **told},
                stdout=log,
                stderr=log,
            )
        wait_until(self._has_started, 120, "the server has started")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _has_started(self) -> bool:
        said = (self._folder / "server.log").read_text(errors="replace")
        assert self._process.poll() is None, said[-3000:]
        return "Spark Connect server started" in said
