"""An S3 API on loopback: moto's server, which keeps its buckets in memory."""

from __future__ import annotations

import socket
import subprocess
import urllib.request
from pathlib import Path

from kafka import free_port
from programs import wait_until
from pythons import python_with

# In an environment of its own: botocore holds python-dateutil back.
SERVER = ("moto[s3]>=5.2", "flask", "flask-cors")


class S3:
    """A server with one bucket, `kept`; it ends with the `with` that it is made for."""

    bucket = "kept"

    def __init__(self, folder: Path) -> None:
        self._folder, self.port = folder, free_port()
        self._python = python_with(*SERVER)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def options(self) -> dict[str, str]:
        """What deltalake is told to reach it."""
        return {
            "aws_endpoint_url": self.endpoint,
            "aws_access_key_id": "nobody",
            "aws_secret_access_key": "nothing",
            "aws_region": "us-east-1",
            "aws_allow_http": "true",
        }

    def requests(self) -> str:
        """What the server was asked so far."""
        return (self._folder / "s3.log").read_text()

    def __enter__(self) -> S3:
        command = [str(self._python), "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]
        self._log = (self._folder / "s3.log").open("ab")
        self._process = subprocess.Popen(command, stdout=self._log, stderr=self._log)
        wait_until(self._answers, 60, "the S3 server answers")
        made = urllib.request.Request(f"{self.endpoint}/{self.bucket}", method="PUT")
        with urllib.request.urlopen(made, timeout=10) as answer:
            assert answer.status == 200
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()

    def _answers(self) -> bool:
        assert self._process.poll() is None, self.requests()[-3000:]
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0
