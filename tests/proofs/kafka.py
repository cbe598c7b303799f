"""A Kafka broker on loopback: one process in KRaft mode, which can be killed and started again."""

from __future__ import annotations

import base64
import os
import shutil
import signal
import socket
import subprocess
import uuid
from pathlib import Path

import pytest
from jars import SPARK_JARS, jars
from programs import wait_until

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


class Broker:
    """A broker whose log lies in a folder; it ends with the `with` that it is made for."""

    def __init__(self, folder: Path) -> None:
        java = shutil.which("java", path=java_path())
        if java is None:
            pytest.skip("a broker needs `java` on the PATH or in JAVA_HOME")
        self.folder, self.port = folder, free_port()
        # Spark's resolver leaves Scala away, since Spark has it.
        path = [*jars(BROKER), *SPARK_JARS.glob("scala-library*.jar")]
        self._java = [java, "-Xmx400m", "-cp", os.pathsep.join(map(str, path))]
        self._settings = folder / "server.properties"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """What clients are told."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, on what it wrote before if it ran already."""
        with (self.folder / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._java, "kafka.Kafka", str(self._settings)], stdout=log, stderr=log
            )
        wait_until(self._answers, 60, f"the broker answers (see {self.folder}/broker.log)")

    def kill(self) -> None:
        """kill -9: it writes nothing more and says goodbye to nobody."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "broker.log").read_text()[-3000:]
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0

    def __enter__(self) -> Broker:
        self.folder.mkdir(parents=True)
        told = {"port": self.port, "controller": free_port(), "folder": self.folder.as_posix()}
        self._settings.write_text(_SETTINGS.format(**told))
        command = ["kafka.tools.StorageTool", "format", "-t", _cluster_id(), "-c", str(self._settings)]
        subprocess.run([*self._java, *command], check=True, capture_output=True)
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()


def free_port() -> int:
    """A port of loopback that nobody has now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _cluster_id() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def java_path() -> str:
    """Where `java` is looked for."""
    home = os.environ.get("JAVA_HOME")
    return os.pathsep.join(filter(None, [f"{home}/bin" if home else "", os.environ.get("PATH", "")]))
