"""The local data repository in one SQLite file, which survives the end of its process at any moment."""

from __future__ import annotations

import hashlib
import logging
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from cdckit.rdss.findings import Finding, RdssFault
from cdckit.rdss.gateway.errors import FailedStatement, KnownMessage, NoRepository, RepositoryInUse
from cdckit.rdss.outcomes import Outcome, Status
from cdckit.rdss.sequence_rules import PartOutcome, SequenceParts, contradiction


@dataclass(frozen=True)
class StoredMessage:
    """
    A valid message, taken from a queue or to be sent; *total* is the number of messages in its sequence.

    Of a part, *terms* and *content* are what tells it from others (see `cdckit.rdss.sequence_rules`).
    Messages that are to be sent stay in order with those that have the same *key*, the object they are about.

    >>> StoredMessage("6d1c…", "Command", "MetadataRead", "41aa…", 1, 1, None, b"{}").total
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
    key: str = ""


class UnsentMessage(NamedTuple):
    """A message that is to be sent; those of one *key* stay in order."""

    message_id: str
    key: str
    value: bytes


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


Judge = Callable[[Sequence[StoredMessage], Finding | None], list[RefusedMessage]]
"""What refuses parts: those of a message that is not valid, or the one for which a contradiction is given."""


@dataclass(frozen=True)
class SqlStatement:
    """
    A row of the application's own, written to its tables in the same commit as a message's outcome.

    >>> SqlStatement("INSERT INTO objects VALUES (?)", ("5680e8e0",)).parameters
    ('5680e8e0',)
    """

    sql: str
    parameters: tuple[object, ...] = ()


logger = logging.getLogger("cdckit.rdss.gateway")
_VERSION = 4
_APPLICATION = 0x52445353
"""What SQLite keeps in the header of a file to say whose it is: `RDSS` in ASCII."""

_TABLES = """
CREATE TABLE messages (
  number INTEGER PRIMARY KEY,
  message_id TEXT NOT NULL,
  message_class TEXT NOT NULL,
  message_type TEXT NOT NULL,
  sequence TEXT NOT NULL,
  position INTEGER NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('RECEIVED', 'TO_SEND', 'SENT')),
  total INTEGER, correlation_id TEXT, outcome TEXT, whole INTEGER, noted REAL NOT NULL,
  destination TEXT,
  terms TEXT, content TEXT, key TEXT,
  attempts INTEGER NOT NULL DEFAULT 0,
  value BLOB
);
CREATE INDEX ids ON messages (message_id);
CREATE UNIQUE INDEX wholes ON messages (message_id) WHERE coalesce(total, 1) = 1;
CREATE INDEX unsent ON messages (number) WHERE status = 'TO_SEND';
CREATE INDEX waiting ON messages (number) WHERE outcome = 'waiting' AND whole;
CREATE INDEX responses ON messages (correlation_id) WHERE correlation_id IS NOT NULL AND value IS NOT NULL;
CREATE UNIQUE INDEX parts ON messages (sequence, position) WHERE total > 1;
CREATE TABLE refused (
  number INTEGER PRIMARY KEY,
  digest BLOB NOT NULL UNIQUE,
  taken INTEGER NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('TO_SEND', 'SENT')),
  channel TEXT NOT NULL, error_code TEXT NOT NULL, error_description TEXT NOT NULL, message_id TEXT,
  original BLOB NOT NULL, decorated BLOB, noted REAL NOT NULL
);
CREATE INDEX refusals ON refused (message_id);
CREATE INDEX unrouted ON refused (number) WHERE status = 'TO_SEND';
CREATE TABLE only_counted (outcome TEXT PRIMARY KEY, number INTEGER NOT NULL);
CREATE TABLE positions (stream TEXT, shard TEXT, position TEXT NOT NULL, PRIMARY KEY (stream, shard));
"""


def open_database(path: str) -> sqlite3.Connection:
    """The file as a repository, with its tables; one that is something else is left as it is."""
    database = sqlite3.connect(path, isolation_level=None, timeout=30)
    try:
        [[application]] = database.execute("PRAGMA application_id")
        [[version]] = database.execute("PRAGMA user_version")
        [[tables]] = database.execute("SELECT count(*) FROM sqlite_master")
        if (application, version) != (_APPLICATION, _VERSION) and (application or version or tables):
            raise NoRepository(path, f"application_id {application:#x}, version {version}, {tables} tables")
        # What follows is written only into a file that is empty or ours.
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        if not tables:
            pragmas = f"PRAGMA application_id = {_APPLICATION}; PRAGMA user_version = {_VERSION};"
            database.executescript(f"BEGIN IMMEDIATE; {_TABLES} {pragmas} COMMIT;")
    except sqlite3.DatabaseError as error:
        database.close()
        raise NoRepository(path, str(error)) from error
    except BaseException:
        database.close()
        raise
    return database


def lock_database(path: str) -> sqlite3.Connection:
    """A lock that ends with the process, however it ends, on every system that has SQLite."""
    lock = sqlite3.connect(f"{path}.lock", isolation_level=None, timeout=0)
    try:
        lock.execute("PRAGMA locking_mode = EXCLUSIVE")
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError as error:
        lock.close()
        raise RepositoryInUse(path) from error
    return lock


_MESSAGE, _REFUSED = (", ".join(kind.__annotations__) for kind in (StoredMessage, RefusedMessage))
_FIRST = (
    "NOT EXISTS (SELECT 1 FROM messages AS parts WHERE messages.total > 1 AND parts.total > 1 "
    "AND parts.sequence = messages.sequence AND parts.number < messages.number)"
)
"""The row of a message of which the first part came, in whatever position."""
_HAS_NEWER_PART = (
    "total > 1 AND EXISTS (SELECT 1 FROM messages AS parts WHERE parts.total > 1 "
    "AND parts.sequence = messages.sequence AND parts.noted >= ?1)"
)
"""A part of a sequence that has a newer one: forgotten alone, a repeat would begin one never whole."""
_NEWEST = "taken, status, decorated, channel, error_code, error_description, noted"
"""What the newest refusal of the same bytes says anew."""
_OF_SEQUENCE = "sequence = ? AND total > 1"
_CLAIMS = (
    "status <> 'RECEIVED' OR (whole AND position = 1 "
    f"AND outcome IN ('{Outcome.WAITING}', '{Outcome.PROCESSED}'))"
)
"""Rows whose messageId makes others duplicates: our own, and first parts of what waits or was processed."""
_CLAIMED = f"SELECT 1 FROM messages AS others WHERE others.message_id = messages.message_id AND ({_CLAIMS})"
_UNPROCESSED = (
    f"(attempts AND outcome IN ('{Outcome.INVALID}', '{Outcome.ERROR}') "
    f"OR position = 1 AND outcome = '{Outcome.DUPLICATE}' AND NOT EXISTS ({_CLAIMED}))"
)
"""Parts whose handler failed; and first parts that were duplicates of what failed later."""
_ROW = "message_id = ? AND sequence = ? AND position = ? AND total = ?"


class SqliteRepository:
    """
    The file *path*, which is made if it is not there; `:memory:` keeps nothing.

    Every method is one transaction: when it returns, what it was told survives the end of the process.

    *clock* says when a message was noted, which matters only to `incomplete_parts` and `forget`.

    A row of `messages` is one message, known by its messageId, or one part, known by its sequence and its
    position; its bytes are kept while it waits or is to be sent, those of a response until it is forgotten.
    A row of `refused_bytes` is one that could not be processed, known by its bytes, which are kept.  The file
    grows by about 300 bytes with each message, and by all of each refused one, until `forget`.  A commit is
    on the disk before the method returns (WAL, synchronous FULL).

    It belongs to one thread.  Others may read the file; tables of an application may lie in it, too.

    Raises:
        RepositoryInUse: Another gateway has the file open.
        NoRepository: The file is something else.

    >>> with SqliteRepository(":memory:") as repository:
    ...     repository.mark_to_send([StoredMessage("a", "Command", "MetadataCreate", "s", 1, 1, None, b"{}")])
    ...     repository.mark_sent("a")
    ...     repository.status("a")
    <Status.SENT: 'SENT'>
    """

    def __init__(
        self, path: str | Path, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self.path, self._clock = str(path), clock
        self._lock = None if self.path == ":memory:" else lock_database(self.path)
        try:
            self._database = open_database(self.path)
        except BaseException:
            if self._lock is not None:
                self._lock.close()
            raise

    def close(self) -> None:
        """Close the file; what was noted stays."""
        self._database.close()
        if self._lock is not None:
            self._lock.close()

    def rows(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        """
        Read what a statement about tables of the application's own answers: to make them, and to read them.

        >>> with SqliteRepository(":memory:") as repository:
        ...     repository.rows("CREATE TABLE shelf (title TEXT)")
        ...     repository.rows("SELECT count(*) FROM shelf")
        []
        [(0,)]
        """
        return self._run(sql, *parameters).fetchall()

    def mark_to_send(self, messages: Sequence[StoredMessage]) -> None:
        """Note messages as TO_SEND to the output, unless they are so or SENT; `KnownMessage` if received."""
        with self._transaction():
            for message in messages:
                self._note_to_send(message, "output")

    def mark_sent(self, message_id: str) -> None:
        """Note that a message was acknowledged: TO_SEND becomes SENT."""
        with self._transaction():
            noted = "UPDATE messages SET status = 'SENT', value = NULL"
            self._run(f"{noted} WHERE status = 'TO_SEND' AND message_id = ?", message_id)

    def unsent_messages(self, limit: int, destination: str) -> list[UnsentMessage]:
        """List the messages that are TO_SEND to one destination, the oldest first."""
        columns, is_unsent = ", ".join(UnsentMessage._fields), "status = 'TO_SEND' AND destination = ?"
        query = f"SELECT {columns} FROM messages WHERE {is_unsent} ORDER BY number LIMIT ?"
        return [UnsentMessage(*row) for row in self._run(query, destination, limit)]

    def unsent_destinations(self) -> list[str]:
        """List where messages are TO_SEND to, that of the oldest first."""
        query = "SELECT destination FROM messages WHERE status = 'TO_SEND' GROUP BY destination"
        return [row[0] for row in self._run(f"{query} ORDER BY min(number)")]

    def take(self, messages: Sequence[StoredMessage | RefusedMessage], judge: Judge) -> list[Outcome]:
        """
        Note messages of a queue as RECEIVED, or as refused and to be routed; the outcome of each so far.

        A message is a duplicate if one with its messageId waits, was processed, or is our own.  One that was
        handed over, and refused then, has not been processed: the same message is taken again.

        Of parts, what came first stands (see `cdckit.rdss.sequence_rules`); one that contradicts it is
        refused by *judge*.  A sequence has the messageId of its first part from when it is whole, and *judge*
        finds nothing wrong with it.
        """
        with self._transaction():
            return [self._take(message, judge) for message in messages]

    def next_waiting(self, after: Sequence[StoredMessage] = ()) -> list[StoredMessage]:
        """
        All parts, by position, of the message that has waited longest and is whole; nothing if none is.

        Given the parts of a message, of those that have waited less than it.
        """
        place = f"SELECT min(number) FROM messages WHERE {_ROW}"
        places = [self._run(place, *_row(part)).fetchone()[0] or 0 for part in after]
        query = (
            f"SELECT {_MESSAGE} FROM messages WHERE outcome = 'waiting' AND whole AND {_FIRST} "
            "AND number > ? ORDER BY number LIMIT 1"
        )
        return self._whole_message(query, min(places, default=0))

    def count_attempt(self, parts: Sequence[StoredMessage]) -> int:
        """Note that a message is handed over; how often it was, this time included."""
        with self._transaction():
            for part in parts:
                self._change("attempts = attempts + 1", part)
            query = f"SELECT attempts FROM messages WHERE {_ROW}"
            return int(self._run(query, *_row(parts[0])).fetchone()[0])

    def response_to(self, message_id: str) -> list[StoredMessage]:
        """All parts of the response to *message_id*, if it is whole and its bytes are kept."""
        answers = "whole AND correlation_id = ? AND correlation_id IS NOT NULL AND value IS NOT NULL"
        return self._whole_message(f"SELECT {_MESSAGE} FROM messages WHERE {answers} LIMIT 1", message_id)

    def is_waiting(self, messages: Sequence[StoredMessage]) -> bool:
        """Tell whether all of these still wait."""
        return all(self._exists(f"{_ROW} AND outcome = 'waiting'", *_row(message)) for message in messages)

    def settle(
        self,
        messages: Sequence[StoredMessage],
        outcome: Outcome,
        *,
        send: Sequence[tuple[StoredMessage, str]] = (),
        write: Sequence[SqlStatement] = (),
        refused: Sequence[RefusedMessage] = (),
        keep: bool = False,
    ) -> bool:
        """
        Note the outcome of messages and all that follows; False, and nothing noted, if one waits no more.

        Messages to *send* have their destinations beside them.  The bytes of those that are settled go,
        unless *keep* says that they stay until they are forgotten.
        """
        settled = "outcome = ?" if keep else "outcome = ?, value = NULL"
        with self._transaction():
            if not self.is_waiting(messages):
                return False
            for message in messages:
                self._change(settled, message, outcome)
            for statement in write:
                self._write(statement)
            for follow_up, destination in send:
                self._note_to_send(follow_up, destination)
            for refusal in refused:
                self._note_refused(refusal, taken=False)
            return True

    def incomplete_parts(self, before: datetime) -> list[StoredMessage]:
        """The parts of sequences that are not whole, and of which no part came since *before*."""
        last = "SELECT sequence FROM messages WHERE total > 1 GROUP BY sequence HAVING max(noted) < ?"
        query = (
            f"SELECT {_MESSAGE} FROM messages WHERE outcome = 'waiting' AND NOT whole "
            f"AND sequence IN ({last}) ORDER BY sequence, position"
        )
        return [StoredMessage(*row) for row in self._run(query, before.timestamp())]

    def unrouted_messages(self, limit: int) -> list[tuple[int, RefusedMessage]]:
        """List what is refused and not yet acknowledged by its channel, by number, the oldest first."""
        query = f"SELECT number, {_REFUSED} FROM refused WHERE status = 'TO_SEND' ORDER BY number LIMIT ?"
        return [(row[0], RefusedMessage(*row[1:])) for row in self._run(query, limit)]

    def refused_bytes(self, message_id: str) -> list[bytes]:
        """The bytes of what was refused of a message and of its sequence; first what had been handed over."""
        sequences = "SELECT sequence FROM messages WHERE message_id = ? AND total > 1"
        parts = f"SELECT message_id FROM messages WHERE total > 1 AND sequence IN ({sequences})"
        # What was refused when it came goes last: it contradicted the others, and does again.
        query = (
            f"SELECT original FROM refused WHERE message_id = ? OR message_id IN ({parts}) "
            "ORDER BY taken, number"
        )
        return [row[0] for row in self._run(query, message_id, message_id)]

    def mark_routed(self, number: int) -> None:
        """Note that the channel has acknowledged what was refused."""
        with self._transaction():
            self._run("UPDATE refused SET status = 'SENT', decorated = NULL WHERE number = ?", number)

    def status(self, message_id: str) -> Status | None:
        """The status of a message; None if it is not known."""
        query = "SELECT status FROM messages WHERE message_id = ? ORDER BY status = 'RECEIVED' LIMIT 1"
        row = self._run(query, message_id).fetchone()
        return None if row is None else Status(row[0])

    def counts(self) -> dict[Outcome, int]:
        """Count how many taken messages have which outcome, each of the five."""
        counted = dict.fromkeys(Outcome, 0)
        for outcome, number in self._run(
            "SELECT outcome, count(*) FROM messages WHERE outcome IS NOT NULL GROUP BY outcome UNION ALL "
            "SELECT channel, count(*) FROM refused WHERE taken GROUP BY channel UNION ALL "
            "SELECT outcome, number FROM only_counted"
        ):
            counted[Outcome(outcome)] += number
        return counted

    def forget(self, before: datetime) -> int:
        """Remove what was noted before then and is done; how many messages.  `counts` stays as it is."""
        done = "noted < ?1 AND status <> 'TO_SEND'"
        settled = f"{done} AND outcome IS NOT 'waiting' AND NOT ({_HAS_NEWER_PART})"
        with self._transaction():
            for outcome, number in self._run(
                f"SELECT outcome, count(*) FROM messages WHERE {settled} AND outcome IS NOT NULL "
                "GROUP BY outcome "
                f"UNION ALL SELECT channel, count(*) FROM refused WHERE {done} AND taken GROUP BY channel",
                before.timestamp(),
            ).fetchall():
                self._only_count(outcome, number)
            count = self._run(f"DELETE FROM messages WHERE {settled}", before.timestamp()).rowcount
            return count + self._run(f"DELETE FROM refused WHERE {done}", before.timestamp()).rowcount

    def position(self, stream: str, shard: str) -> str | None:
        """The position kept for a shard of a stream; None before the first."""
        query = "SELECT position FROM positions WHERE stream = ? AND shard = ?"
        row = self._run(query, stream, shard).fetchone()
        return None if row is None else str(row[0])

    def keep_positions(self, stream: str, positions: Mapping[str, str]) -> None:
        """Note up to where shards of a stream are processed."""
        with self._transaction():
            for shard, position in positions.items():
                self._run("INSERT OR REPLACE INTO positions VALUES (?, ?, ?)", stream, shard, position)

    def _take(self, message: StoredMessage | RefusedMessage, judge: Judge) -> Outcome:
        if isinstance(message, RefusedMessage):
            noted = self._note_refused(message, taken=True)
            return Outcome(message.channel) if noted else self._duplicate()
        if message.total > 1:
            return self._take_part(message, judge)
        if self._exists(f"message_id = ? AND ({_CLAIMS})", message.message_id):
            return self._duplicate()
        self._begin_anew("message_id = ? AND total = 1", message.message_id)
        return self._note_received(message)

    def _take_part(self, part: StoredMessage, judge: Judge) -> Outcome:
        if self._exists("message_id = ? AND status <> 'RECEIVED'", part.message_id):
            return self._duplicate()
        if self._exists(f"{_OF_SEQUENCE} AND {_UNPROCESSED}", part.sequence):
            self._begin_anew(_OF_SEQUENCE, part.sequence)
        # What was given up waits again.
        given_up = f"{_OF_SEQUENCE} AND NOT whole AND outcome = 'invalid'"
        self._run(f"UPDATE messages SET outcome = 'waiting' WHERE {given_up}", part.sequence)
        sequence = self._sequence(part.sequence)
        outcome = sequence.judge(part.terms, part.position, part.content)
        if outcome is PartOutcome.DUPLICATE:
            return self._duplicate()
        if outcome is PartOutcome.CONTRADICTING:
            [refused] = judge([part], contradiction(part.sequence))
            return self._take(refused, judge)
        self._note_received(part)
        return self._settle_sequence(part.sequence, judge) if sequence.is_complete else Outcome.WAITING

    def _settle_sequence(self, sequence: str, judge: Judge) -> Outcome:
        """Say what becomes of a sequence whose parts are all there now."""
        parts = self._parts(sequence)
        outcome, refused = Outcome.WAITING, judge(parts, None)
        if refused:
            outcome = Outcome(refused[0].channel)
            for refusal in refused:
                self._note_refused(refusal, taken=False)
        elif self._exists(f"message_id = ? AND ({_CLAIMS})", parts[0].message_id):
            outcome = Outcome.DUPLICATE
        kept = "value" if outcome is Outcome.WAITING else "NULL"
        settled = f"UPDATE messages SET whole = 1, outcome = ?, value = {kept} WHERE {_OF_SEQUENCE}"
        self._run(settled, outcome, sequence)
        return outcome

    def _insert(self, table: str, values: Mapping[str, object], conflict: str = "") -> bool:
        """Add a row; False if nothing was changed, by what *conflict* says."""
        names, places = ", ".join(values), ", ".join("?" * len(values))
        sql = f"INSERT INTO {table} ({names}) VALUES ({places}) {conflict}"
        return self._run(sql, *values.values()).rowcount == 1

    def _note_received(self, message: StoredMessage) -> Outcome:
        state = {"status": "RECEIVED", "outcome": Outcome.WAITING, "whole": message.total == 1}
        self._insert("messages", {**vars(message), **state, "noted": self._now()})
        return Outcome.WAITING

    def _now(self) -> float:
        return self._clock().timestamp()

    def _begin_anew(self, rows: str, name: str) -> None:
        """Forget what was refused when it was handed over; it stays counted."""
        counted = f"SELECT outcome, count(*) FROM messages WHERE {rows} GROUP BY outcome"
        for outcome, number in self._run(counted, name).fetchall():
            self._only_count(outcome, number)
        self._run(f"DELETE FROM messages WHERE {rows}", name)

    def _exists(self, rows: str, *values: object) -> bool:
        return self._run(f"SELECT 1 FROM messages WHERE {rows}", *values).fetchone() is not None

    def _whole_message(self, query: str, *values: object) -> list[StoredMessage]:
        messages = [StoredMessage(*row) for row in self._run(query, *values)]
        return messages if not messages or messages[0].total == 1 else self._parts(messages[0].sequence)

    def _parts(self, sequence: str) -> list[StoredMessage]:
        query = f"SELECT {_MESSAGE} FROM messages WHERE {_OF_SEQUENCE} ORDER BY position"
        return [StoredMessage(*row) for row in self._run(query, sequence)]

    def _sequence(self, sequence: str) -> SequenceParts:
        """Read the parts that are there, by which the next one is judged."""
        query = f"SELECT terms, position, content FROM messages WHERE {_OF_SEQUENCE}"
        rows = self._run(query, sequence).fetchall()
        contents = {position: content for _, position, content in rows}
        return SequenceParts(rows[0][0] if rows else None, contents)

    def _change(self, what: str, message: StoredMessage, *values: object) -> None:
        self._run(f"UPDATE messages SET {what} WHERE {_ROW}", *values, *_row(message))

    def _write(self, statement: SqlStatement) -> None:
        try:
            self._run(statement.sql, *statement.parameters)
        except sqlite3.Error as error:
            raise FailedStatement(statement.sql, str(error)) from error

    def _note_to_send(self, message: StoredMessage, destination: str) -> None:
        if self.status(message.message_id) is Status.RECEIVED:
            raise KnownMessage(message.message_id)
        # Total and correlationId are those of what is received: nobody waits for parts of our own.
        state = {"total": None, "correlation_id": None, "status": "TO_SEND", "destination": destination}
        self._insert("messages", {**vars(message), **state, "noted": self._now()}, "ON CONFLICT DO NOTHING")

    def _note_refused(self, refused: RefusedMessage, *, taken: bool) -> bool:
        digest, again = hashlib.sha256(refused.original).digest(), "NOTHING"
        if not taken:
            # What was handed over, and is refused again, is routed again: somebody took it from its queue.
            again = f"UPDATE SET ({_NEWEST}) = (excluded.{_NEWEST.replace(', ', ', excluded.')})"
            self._only_count_refused(digest)
        state = {"digest": digest, "taken": taken, "status": "TO_SEND", "noted": self._now()}
        return self._insert("refused", {**vars(refused), **state}, f"ON CONFLICT (digest) DO {again}")

    def _only_count_refused(self, digest: bytes) -> None:
        """Count what was refused when it came as refused, whatever becomes of it later."""
        query = "SELECT channel FROM refused WHERE digest = ? AND taken"
        for (channel,) in self._run(query, digest).fetchall():
            self._only_count(channel, 1)

    def _duplicate(self) -> Outcome:
        self._only_count(Outcome.DUPLICATE, 1)
        return Outcome.DUPLICATE

    def _only_count(self, outcome: str, number: int) -> None:
        more = "ON CONFLICT (outcome) DO UPDATE SET number = number + excluded.number"
        self._run(f"INSERT INTO only_counted VALUES (?, ?) {more}", outcome, number)

    def _run(self, sql: str, *parameters: object) -> sqlite3.Cursor:
        return self._database.execute(sql, parameters)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._database.execute("COMMIT")
        except BaseException:
            try:
                self._database.execute("ROLLBACK")
            except sqlite3.Error as error:
                if self._database.in_transaction:  # otherwise SQLite did it already, as when the disk is full
                    fault = RdssFault.ROLLBACK_FAILED
                    logger.error("%s %s", fault.value, fault.describe(f"{self.path}: {error}."))
            raise

    def __enter__(self) -> SqliteRepository:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _row(message: StoredMessage) -> tuple[object, ...]:
    return message.message_id, message.sequence, message.position, message.total
