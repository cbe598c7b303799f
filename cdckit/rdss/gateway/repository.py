"""What a gateway writes down: of each message what it must remember, its audit log, and lines in its log."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import socket
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol
from uuid import uuid4

from cdckit.errors import InvalidArgument
from cdckit.rdss.exchange_tables import KnownMessages, Outcome

MAX_BYTES = 1_000_000
"""The longest message that the audit log of the specification takes: 1000KB."""

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
        The row of the log: the message as text, or in base64 where its bytes are no UTF-8.

        One that is longer than 1000KB is told by its length and its SHA-256 alone.
        """
        at = self.at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        digest = hashlib.sha256(self.value).hexdigest()
        entry: dict[str, object] = {"at": at, "event": self.event, "channel": self.channel}
        entry |= {"outcome": self.outcome, "bytes": len(self.value), "sha256": digest}
        if len(self.value) > MAX_BYTES:
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

    def write(self, happened: Iterable[AuditEntry]) -> None:
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
        _, number, severity = next(each for each in _SEVERITIES if record.levelno >= each[0])
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        head = f"<{self._facility * 8 + number}>1 {at.replace('+00:00', 'Z')} {self._hostname}"
        text = _escape_unprintable(record.getMessage())
        return f'{head} {self._app_name} {record.process or "-"} "[{severity}] {text}"'


def _escape_unprintable(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return "".join(each if each.isprintable() else f"\\u{ord(each):04x}" for each in escaped)


@dataclass(frozen=True)
class OutgoingMessage:
    """
    A message that is to be sent: one row of the repository with the status TO_SEND, or SENT later.

    *destination* is the name of the channel.  *key* keeps messages that belong together in one order,
    where the queue has several shards.

    >>> OutgoingMessage("6d1c…", "Command", "MetadataCreate", "41aa…", 1, b"{}").destination
    'output'
    """

    message_id: str
    message_class: str
    message_type: str
    sequence: str
    position: int
    value: bytes
    destination: str = "output"

    @property
    def key(self) -> str:
        return self.sequence or self.message_id


@dataclass(frozen=True)
class IncomingMessage:
    """
    A valid message that was taken from a queue; *total* is the number of messages in its sequence.

    Of a part, *terms* and *content* are what tells it from others (see `cdckit.rdss.sequence_rules`).

    >>> IncomingMessage("6d1c…", "Command", "MetadataRead", "41aa…", 1, 1, None, b"{}").total
    1
    """

    message_id: str
    message_class: str
    message_type: str
    sequence: str
    position: int
    total: int
    correlation_id: str | None
    value: bytes
    terms: str = ""
    content: str = ""


@dataclass(frozen=True)
class RefusedMessage:
    """
    A message that cannot be processed, with its code and the channel that it is routed to.

    *original* are its bytes as they came, *decorated* those that are sent to the channel,
    `invalid` or `error`.

    >>> RefusedMessage(b"{", b"...", "invalid", "GENERR007", "Malformed JSON", None).channel
    'invalid'
    """

    original: bytes
    decorated: bytes
    channel: str
    error_code: str
    error_description: str
    message_id: str | None


Judge = Callable[[Sequence[IncomingMessage]], list[RefusedMessage]]
"""What is wrong with the message of all these parts: each of them as refused; nothing if it is valid."""


@dataclass(frozen=True)
class Statement:
    """
    A row of the application's own, written to its tables in the same commit as a message's outcome.

    >>> Statement("INSERT INTO objects VALUES (?)", ("5680e8e0",)).parameters
    ('5680e8e0',)
    """

    sql: str
    parameters: tuple[object, ...] = ()


class Repository(KnownMessages, Protocol):
    """
    The small interface that a gateway needs; `SqliteRepository` is the one that comes with it.

    Every method is one transaction: when it returns, what it was told survives the end of the process.

    >>> from cdckit.rdss.gateway.sqlite import SqliteRepository
    >>> repository: Repository = SqliteRepository(":memory:")
    >>> print(repository.status("6d1c…"))
    None
    """

    def mark_to_send(self, messages: Sequence[OutgoingMessage]) -> None:
        """Note messages as TO_SEND, unless they are so or SENT; `KnownMessage` if one was received."""

    def mark_sent(self, message_id: str) -> None:
        """Note that a message was acknowledged: TO_SEND becomes SENT."""

    def unsent_messages(self, limit: int, destination: str | None = None) -> list[OutgoingMessage]:
        """The messages that are TO_SEND, to one destination or to all, the oldest first."""

    def take(
        self,
        messages: Sequence[IncomingMessage | RefusedMessage],
        refuse: Callable[[IncomingMessage, str], RefusedMessage],
        judge: Judge,
    ) -> list[Outcome]:
        """
        Note messages of a queue as RECEIVED, or as refused and to be routed; the outcome of each so far.

        A message is a duplicate if one with its messageId waits, was processed, or is our own.  One that was
        handed over, and refused then, has not been processed: the same message is taken again.

        Of parts, what came first stands (see `cdckit.rdss.sequence_rules`); one that contradicts it becomes
        what *refuse* makes of it and the reason.  A sequence has the messageId of its first part from when it
        is whole, and *judge* finds nothing wrong with it.
        """

    def next_waiting(self, after: Sequence[IncomingMessage] = ()) -> list[IncomingMessage]:
        """
        All parts, by position, of the message that has waited longest and is whole; nothing if none is.

        Given the parts of a message, of those that have waited less than it.
        """

    def count_attempt(self, parts: Sequence[IncomingMessage]) -> int:
        """Note that a message is handed over; how often it was, this time included."""

    def settle(
        self,
        messages: Sequence[IncomingMessage],
        outcome: Outcome,
        *,
        send: Sequence[OutgoingMessage] = (),
        write: Sequence[Statement] = (),
        refused: Sequence[RefusedMessage] = (),
        keep: bool = False,
    ) -> bool:
        """
        Note the outcome of messages and all that follows; False, and nothing noted, if one waits no more.

        Their bytes go, unless *keep* says that they stay until they are forgotten.
        """

    def incomplete_parts(self, before: datetime) -> list[IncomingMessage]:
        """The parts of sequences that are not whole, and of which no part came since *before*."""

    def unrouted_messages(self, limit: int) -> list[tuple[int, RefusedMessage]]:
        """What is refused and not yet acknowledged by its channel, by number, the oldest first."""

    def refused_bytes(self, message_id: str) -> list[bytes]:
        """The bytes of what was refused of a message and of its sequence; first what had been handed over."""

    def mark_routed(self, number: int) -> None:
        """Note that the channel has acknowledged what was refused."""

    def response_to(self, message_id: str) -> list[IncomingMessage]:
        """All parts of the response to *message_id*, if it is whole and its bytes are kept."""

    def counts(self) -> Mapping[Outcome, int]:
        """How many taken messages have which outcome, each of the five."""

    def forget(self, before: datetime) -> int:
        """Remove what was noted before then and is done; how many messages.  `counts` stays as it is."""

    def position(self, stream: str, shard: str) -> str | None:
        """The position kept for a shard of a stream; None before the first."""

    def keep_positions(self, stream: str, positions: Mapping[str, str]) -> None:
        """Note up to where shards of a stream are processed."""
