"""A RabbitMQ broker on loopback, from Debian's package, which can be killed and started again."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from programs import Server, free_port

_PLACES = ("/usr/lib/rabbitmq/lib", "/usr/lib/rabbitmq", "/opt/rabbitmq")
"""Where packages keep the server itself; what is on the PATH changes the user and writes to /var."""


class Rabbit(Server):
    """A broker whose data lie in a folder: a shell script, and the Erlang machine that it starts."""

    def __init__(self, folder: Path) -> None:
        self._server = _server()
        super().__init__(folder, "broker")
        self._names = free_port()

    @property
    def url(self) -> str:
        """What clients are told."""
        return f"amqp://guest:guest@127.0.0.1:{self.port}/%2F?socket_timeout=5&blocked_connection_timeout=20"

    def start(self) -> None:
        """Start it, on what it wrote before if it ran already."""
        self.run(self._server, env=self._environment())

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

    def __enter__(self) -> Rabbit:
        self.folder.mkdir(parents=True)
        # Erlang's register of names, which the broker would start as a daemon that stays when it is killed.
        command = ["epmd", "-address", "127.0.0.1", "-port", str(self._names)]
        self._register = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._register.kill()
        self._register.wait()


def _server() -> str:
    if sys.platform != "linux" or shutil.which("epmd") is None:
        pytest.skip("a RabbitMQ broker needs Debian's package: apt-get install rabbitmq-server")
    for place in _PLACES:
        for found in sorted(Path(place).glob("rabbitmq_server-*/sbin/rabbitmq-server"), reverse=True):
            return str(found)
    pytest.skip(f"no rabbitmq-server below {', '.join(_PLACES)}: apt-get install rabbitmq-server")
