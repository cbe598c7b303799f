"""What a gateway tells of messages: its audit log, by day, and lines in its log."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import socket
from base64 import b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

from cdckit.errors import InvalidArgument
from cdckit.rdss.gateway.channels import timestamp
from cdckit.rdss.reading import RULES

SCHEMA = (
    "at timestamp, event string, channel string, outcome string, bytes long, sha256 string, "
    "message string, base64 string, date date"
)
"""The columns of the log for `spark.read.schema(...).json(...)`."""


@dataclass(frozen=True)
class AuditEntry:
    """
    One thing that happened to a message: it was `sent`, `received`, or `routed` to an error queue.

    *outcome* is what became of a received message at once: waiting, duplicate, invalid or error.

    >>> AuditEntry(datetime(2024, 2, 1, tzinfo=UTC), "sent", "output", b"{}").line()["message"]
    '{}'
    """

    at: datetime
    event: str
    channel: str
    value: bytes
    outcome: str | None = None

    def line(self) -> dict[str, object]:
        """
        Make the row of the log: the message as text, or in base64 where its bytes are no UTF-8.

        One that is longer than 1000KB is told by its length and its SHA-256 alone.
        """
        entry: dict[str, object] = {
            "at": timestamp(self.at, "microseconds"),
            **{"event": self.event, "channel": self.channel, "outcome": self.outcome},
            **{"bytes": len(self.value), "sha256": hashlib.sha256(self.value).hexdigest()},
        }
        if len(self.value) > RULES.max_bytes:  # nor does the audit log of the specification take more
            return entry
        try:
            return {**entry, "message": self.value.decode()}
        except UnicodeDecodeError:
            return {**entry, "base64": b64encode(self.value).decode()}


class AuditLog:
    """
    Lines in files below *folder*: `date=2024-02-01/<a name of this process's own>.jsonl`, by the day in UTC.

    `spark.read.schema(SCHEMA).json(folder)` reads it back with the day as the column `date`.  A line is
    written whole by one call of the system, before what it tells is committed: after a crash it may be there
    twice, and is never missing.  What an operating system that fails has not yet written is lost.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     AuditLog(folder).write([AuditEntry(datetime(2024, 2, 1, tzinfo=UTC), "sent", "output", b"{}")])
    ...     [path.parent.name for path in Path(folder).rglob("*.jsonl")]
    ['date=2024-02-01']
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._name = f"{uuid4().hex}.jsonl"
        self._torn = False

    def write(self, entries: Iterable[AuditEntry]) -> None:
        """Add a line for each entry, in this order."""
        days: dict[str, list[str]] = {}
        for entry in entries:
            day = f"date={entry.at.astimezone(UTC):%Y-%m-%d}"
            days.setdefault(day, []).append(json.dumps(entry.line(), ensure_ascii=True) + "\n")
        for day, lines in days.items():
            self._append(self._folder / day, "".join(lines).encode())

    def _append(self, folder: Path, lines: bytes) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / self._name, "ab", opener=_open_for_all_to_read) as file:
            # After a full disk the line that was cut stays a line of its own.
            was_torn, self._torn = self._torn, True
            file.write(b"\n" * was_torn + lines)
        self._torn = False


def _open_for_all_to_read(path: str, flags: int) -> int:
    """Open a file that its owner alone writes, whatever the process lets others do."""
    return os.open(path, flags, 0o644)


_SEVERITIES = (
    (logging.CRITICAL, 2, "CRITICAL"),
    (logging.ERROR, 3, "ERROR"),
    (logging.WARNING, 4, "WARNING"),
    (logging.INFO, 6, "INFO"),
    (logging.NOTSET, 7, "DEBUG"),
)
"""From a level of Python on: the number of the severity as syslog has it, and its name."""


class LogFormatter(logging.Formatter):
    r"""
    A formatter of `logging`: `<PRI>VERSION TIMESTAMP HOSTNAME APP-NAME PROCID "[SEVERITY] text"`.

    PRI is facility · 8 + severity.  What would end the line or the quotes is escaped, so that no message
    can forge a line; a traceback is left out.

    Args:
        app_name: The name of the application.
        facility: 16 to 23, the facilities for local use.
        hostname: The machine; its own name without it.

    Raises:
        InvalidArgument: Another facility, or a name with a blank or nothing in it.

    >>> record = logging.LogRecord("gateway", logging.ERROR, "", 0, 'GENERR005 "input"\n', (), None)
    >>> record.created, record.process = 1706778000.25, 4711
    >>> print(LogFormatter("repository", hostname="gateway.example").format(record))
    <131>1 2024-02-01T09:00:00.250Z gateway.example repository 4711 "[ERROR] GENERR005 \"input\"\n"
    """

    def __init__(self, app_name: str, *, facility: int = 16, hostname: str | None = None) -> None:
        super().__init__()
        self._app_name, self._facility, self._hostname = app_name, facility, hostname or socket.gethostname()
        if not 16 <= facility <= 23:
            raise InvalidArgument("LogFormatter", "facility", "16 to 23, those for local use", facility)
        for argument, name in (("app_name", app_name), ("hostname", self._hostname)):
            if not name.isascii() or not name.isprintable() or not name or " " in name:
                raise InvalidArgument("LogFormatter", argument, "a name of visible ASCII characters", name)

    def format(self, record: logging.LogRecord) -> str:
        _, number, severity = next(row for row in _SEVERITIES if record.levelno >= row[0])
        at = timestamp(datetime.fromtimestamp(record.created, UTC))
        head = f"<{self._facility * 8 + number}>1 {at} {self._hostname}"
        text = "".join(_ESCAPES.get(sign, sign) for sign in record.getMessage())
        text = "".join(sign if sign.isprintable() else f"\\u{ord(sign):04x}" for sign in text)
        return f'{head} {self._app_name} {record.process or "-"} "[{severity}] {text}"'


_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"}
