"""A Kinesis API on loopback, whose streams are kept in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import boto3
from programs import MotoServer


class KinesisServer(MotoServer):
    """A server without streams."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "kinesis")

    @property
    def options(self) -> dict[str, str]:
        """What boto3 is told to reach it."""
        return {
            "endpoint_url": self.endpoint,
            "region_name": "us-east-1",
            "aws_access_key_id": "nobody",
            "aws_secret_access_key": "nothing",
        }

    def client(self) -> Any:
        return boto3.client("kinesis", **self.options)
