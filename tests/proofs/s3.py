"""An S3 API on loopback, whose buckets are kept in memory."""

from __future__ import annotations

import urllib.request
from pathlib import Path
from typing import Self

from programs import MotoServer


class S3(MotoServer):
    """A server with one bucket, `kept`."""

    bucket = "kept"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "s3")

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
        return self.log.read_text()

    def __enter__(self) -> Self:
        super().__enter__()
        made = urllib.request.Request(f"{self.endpoint}/{self.bucket}", method="PUT")
        with urllib.request.urlopen(made, timeout=10) as answer:
            assert answer.status == 200
        return self
