"""The audit log: every message that a gateway sent, received or routed, as JSON lines by the day."""

from __future__ import annotations

import hashlib
import json
import os
from base64 import b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

MAX_BYTES = 1_000_000
"""The longest message that the audit log of the specification takes: 1000KB."""

SCHEMA = (
    "at timestamp, event string, channel string, fate string, bytes long, sha256 string, "
    "message string, base64 string, date date"
)
"""The columns of the log for `spark.read.schema(...).json(...)`."""


@dataclass(frozen=True)
class Audited:
    """
    One thing that happened to a message: it was `sent`, `received`, or `routed` to an error queue.

    *fate* is what became of a received message at once: waiting, duplicate, invalid or error.

    >>> Audited(datetime(2024, 2, 1, tzinfo=UTC), "sent", "output", b"{}").line()["message"]
    '{}'
    """

    at: datetime
    event: str
    channel: str
    value: bytes
    fate: str | None = None

    def line(self) -> dict[str, object]:
        """
        The row of the log: the message as text, or in base64 where its bytes are no UTF-8.

        One that is longer than 1000KB is told by its length and its SHA-256 alone.
        """
        at = self.at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        digest = hashlib.sha256(self.value).hexdigest()
        told: dict[str, object] = {"at": at, "event": self.event, "channel": self.channel}
        told |= {"fate": self.fate, "bytes": len(self.value), "sha256": digest}
        if len(self.value) > MAX_BYTES:
            return told
        try:
            return {**told, "message": self.value.decode()}
        except UnicodeDecodeError:
            return {**told, "base64": b64encode(self.value).decode()}


class AuditLog:
    """
    Lines in files below *folder*: `date=2024-02-01/<a name of this process's own>.jsonl`, by the day in UTC.

    `spark.read.schema(SCHEMA).json(folder)` reads it back with the day as the column `date`.  A line is
    written whole by one call of the system, before what it tells is committed: after a crash it may be there
    twice, and is never missing.  What an operating system that fails has not yet written is lost.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     AuditLog(folder).write([Audited(datetime(2024, 2, 1, tzinfo=UTC), "sent", "output", b"{}")])
    ...     [path.parent.name for path in Path(folder).rglob("*.jsonl")]
    ['date=2024-02-01']
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._name = f"{uuid4().hex}.jsonl"
        self._torn = False

    def write(self, happened: Iterable[Audited]) -> None:
        """Add a line for each, in this order."""
        days: dict[str, list[str]] = {}
        for each in happened:
            day = f"date={each.at.astimezone(UTC):%Y-%m-%d}"
            days.setdefault(day, []).append(json.dumps(each.line(), ensure_ascii=True) + "\n")
        for day, lines in days.items():
            self._append(self._folder / day, "".join(lines).encode())

    def _append(self, folder: Path, lines: bytes) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        file = os.open(folder / self._name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            # After a full disk the line that was cut stays a line of its own.
            left = memoryview(b"\n" + lines if self._torn else lines)
            self._torn = True
            while left:
                left = left[os.write(file, left) :]
            self._torn = False
        finally:
            os.close(file)
