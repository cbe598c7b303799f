"""A Kafka broker on loopback: one process in KRaft mode, which can be killed and started again."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import uuid
from pathlib import Path

import pytest
from jars import SPARK_JARS, jars
from programs import Server, free_port

BROKER = "org.apache.kafka:kafka_2.13:4.1.1"

_SETTINGS = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={folder}/log
num.partitions=3
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
broker.session.timeout.ms=3000
"""


class Broker(Server):
    """A broker whose log lies in a folder."""

    def __init__(self, folder: Path) -> None:
        java = shutil.which("java", path=java_path())
        if java is None:
            pytest.skip("a broker needs `java` on the PATH or in JAVA_HOME")
        super().__init__(folder, "broker")
        # Spark's resolver leaves Scala away, since Spark has it.
        path = [*jars(BROKER), *SPARK_JARS.glob("scala-library*.jar")]
        self._java = [java, "-Xmx400m", "-cp", os.pathsep.join(map(str, path))]
        self._settings = folder / "server.properties"

    @property
    def address(self) -> str:
        """What clients are told."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, on what it wrote before if it ran already."""
        self.run(*self._java, "kafka.Kafka", str(self._settings))

    def __enter__(self) -> Broker:
        self.folder.mkdir(parents=True)
        told = {"port": self.port, "controller": free_port(), "folder": self.folder.as_posix()}
        self._settings.write_text(_SETTINGS.format(**told))
        command = ["kafka.tools.StorageTool", "format", "-t", _cluster_id(), "-c", str(self._settings)]
        subprocess.run([*self._java, *command], check=True, capture_output=True)
        self.start()
        return self


def _cluster_id() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def java_path() -> str:
    """Where `java` is looked for."""
    home = os.environ.get("JAVA_HOME")
    return os.pathsep.join(filter(None, [f"{home}/bin" if home else "", os.environ.get("PATH", "")]))
