"""A Kinesis API on loopback: moto's server, which keeps its streams in memory."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path
from typing import Any

import boto3
from kafka import free_port
from programs import wait_until
from pythons import python_with

SERVER = ("moto[kinesis]>=5.2", "flask", "flask-cors")


class KinesisServer:
    """A server without streams; it ends with the `with` that it is made for."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.port = folder, free_port()
        self._python = python_with(*SERVER)

    @property
    def options(self) -> dict[str, str]:
        """What boto3 is told to reach it."""
        return {
            "endpoint_url": f"http://127.0.0.1:{self.port}",
            "region_name": "us-east-1",
            "aws_access_key_id": "nobody",
            "aws_secret_access_key": "nothing",
        }

    def client(self) -> Any:
        return boto3.client("kinesis", **self.options)

    def __enter__(self) -> KinesisServer:
        command = [str(self._python), "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]
        self._log = (self._folder / "kinesis.log").open("ab")
        self._process = subprocess.Popen(command, stdout=self._log, stderr=self._log)
        wait_until(self._answers, 60, "the Kinesis server answers")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()

    def _answers(self) -> bool:
        assert self._process.poll() is None, (self._folder / "kinesis.log").read_text()[-3000:]
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0
