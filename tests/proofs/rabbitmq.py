"""A RabbitMQ broker on loopback, from Debian's package, which can be killed and started again."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from kafka import free_port
from programs import wait_until

_PLACES = ("/usr/lib/rabbitmq/lib", "/usr/lib/rabbitmq", "/opt/rabbitmq")
"""Where packages keep the server itself; what is on the PATH changes the user and writes to /var."""


class Rabbit:
    """A broker whose data lie in a folder; it ends with the `with` that it is made for."""

    def __init__(self, folder: Path) -> None:
        self._server = _server()
        self.folder, self.port, self._names = folder, free_port(), free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """What clients are told."""
        return f"amqp://guest:guest@127.0.0.1:{self.port}/%2F?socket_timeout=5&blocked_connection_timeout=20"

    def start(self) -> None:
        """Start it, on what it wrote before if it ran already."""
        with (self.folder / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._server], env=self._environment(), stdout=log, stderr=log, start_new_session=True
            )
        wait_until(self._answers, 60, f"the broker answers (see {self.folder}/broker.log)")

    def kill(self) -> None:
        """kill -9 of the shell script and the Erlang machine that it has started."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _environment(self) -> dict[str, str]:
        told = {
            "BASE": self.folder,
            "MNESIA_BASE": self.folder / "kept",
            "LOG_BASE": self.folder / "log",
            "PID_FILE": self.folder / "pid",
            "ENABLED_PLUGINS_FILE": self.folder / "plugins",
            "CONFIG_FILE": self.folder / "none",
            "NODENAME": f"cdckit{self.port}@localhost",
            "NODE_IP_ADDRESS": "127.0.0.1",
            "NODE_PORT": self.port,
            "DIST_PORT": free_port(),
            "SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }
        names = {"ERL_EPMD_ADDRESS": "127.0.0.1", "ERL_EPMD_PORT": str(self._names), "HOME": str(self.folder)}
        return {**os.environ, **names, **{f"RABBITMQ_{name}": str(value) for name, value in told.items()}}

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "broker.log").read_text()[-3000:]
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0

    def __enter__(self) -> Rabbit:
        self.folder.mkdir(parents=True)
        # Erlang's register of names, which the broker would start as a daemon that stays when it is killed.
        command = ["epmd", "-address", "127.0.0.1", "-port", str(self._names)]
        self._register = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()
        self._register.kill()
        self._register.wait()


def _server() -> str:
    if sys.platform != "linux" or shutil.which("epmd") is None:
        pytest.skip("a RabbitMQ broker needs Debian's package: apt-get install rabbitmq-server")
    for place in _PLACES:
        for found in sorted(Path(place).glob("rabbitmq_server-*/sbin/rabbitmq-server"), reverse=True):
            return str(found)
    pytest.skip(f"no rabbitmq-server below {', '.join(_PLACES)}: apt-get install rabbitmq-server")
