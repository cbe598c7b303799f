"""The local data repository in one SQLite file, which survives the end of its process at any moment."""

from __future__ import annotations

import hashlib
import logging
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from cdckit.rdss.codes import RdssFault
from cdckit.rdss.fates import Fate, Status
from cdckit.rdss.gateway.errors import FailedStatement, KnownMessage
from cdckit.rdss.gateway.repository import Incoming, Outgoing, Refused, Statement
from cdckit.rdss.gateway.sqlite_file import locked, opened

logger = logging.getLogger("cdckit.rdss.gateway")

_INCOMING = "message_id, message_class, message_type, sequence, position, total, correlation_id, value"
_OUTGOING = "message_id, message_class, message_type, sequence, position, value, destination"
_REFUSED = "original, decorated, channel, error_code, error_description, message_id"


class SqliteRepository:
    """
    A `Repository` in the file *path*, which is made if it is not there; `:memory:` keeps nothing.

    *clock* says when a message was noted, which matters only to `incomplete` and `forget`.

    A row of `messages` is one message that is known by its messageId; its bytes are kept while it waits or
    is to be sent, those of a response until it is forgotten.  A row of `refused` is one that could not be
    processed, known by its bytes, which are kept.  The file grows by about 300 bytes with each message, and
    by all of each refused one, until `forget`.  A commit is on the disk before the method returns (WAL,
    synchronous FULL).

    It belongs to one thread.  Others may read the file; tables of an application may lie in it, too.

    Raises:
        RepositoryInUse: Another gateway has the file open.
        NoRepository: The file is something else.

    >>> with SqliteRepository(":memory:") as repository:
    ...     repository.to_send([Outgoing("a", "Command", "MetadataCreate", "s", 1, b"{}")])
    ...     repository.sent("a")
    ...     repository.status("a")
    <Status.SENT: 'SENT'>
    """

    def __init__(
        self, path: str | Path, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self.path, self._clock = str(path), clock
        self._lock = None if self.path == ":memory:" else locked(self.path)
        try:
            self._database = opened(self.path)
        except BaseException:
            self._unlock()
            raise

    def close(self) -> None:
        """Close the file; what was noted stays."""
        self._database.close()
        self._unlock()

    def rows(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        """
        What a statement about tables of the application's own answers: to make them, and to read them.

        >>> with SqliteRepository(":memory:") as repository:
        ...     repository.rows("CREATE TABLE shelf (title TEXT)")
        ...     repository.rows("SELECT count(*) FROM shelf")
        []
        [(0,)]
        """
        return self._run(sql, *parameters).fetchall()

    def to_send(self, messages: Sequence[Outgoing]) -> None:
        with self._transaction():
            self._note_to_send(messages)

    def sent(self, message_id: str) -> None:
        with self._transaction():
            noted = "UPDATE messages SET status = 'SENT', value = NULL"
            self._run(f"{noted} WHERE status = 'TO_SEND' AND message_id = ?", message_id)

    def unsent(self, limit: int, destination: str | None = None) -> list[Outgoing]:
        wanted = "status = 'TO_SEND' AND coalesce(destination = ?, true)"
        asked = f"SELECT {_OUTGOING} FROM messages WHERE {wanted} ORDER BY number LIMIT ?"
        return [Outgoing(*row) for row in self._run(asked, destination, limit)]

    def take(
        self, messages: Sequence[Incoming | Refused], refuse: Callable[[Incoming, str], Refused]
    ) -> list[Fate]:
        with self._transaction():
            return [self._take(each, refuse) for each in messages]

    def next_waiting(self) -> list[Incoming]:
        asked = f"SELECT {_INCOMING} FROM messages WHERE fate = 'waiting' AND whole ORDER BY number LIMIT 1"
        return self._whole(asked)

    def response_to(self, message_id: str) -> list[Incoming]:
        answers = "whole AND correlation_id = ? AND correlation_id IS NOT NULL AND value IS NOT NULL"
        return self._whole(f"SELECT {_INCOMING} FROM messages WHERE {answers} LIMIT 1", message_id)

    def settle(
        self,
        message_ids: Iterable[str],
        fate: Fate,
        *,
        send: Sequence[Outgoing] = (),
        write: Sequence[Statement] = (),
        refused: Sequence[Refused] = (),
        keep: bool = False,
    ) -> bool:
        named = list(message_ids)
        left = "fate = ?" if keep else "fate = ?, value = NULL"
        with self._transaction():
            if not all(self._waits(each) for each in named):
                return False
            for each in named:
                self._run(f"UPDATE messages SET {left} WHERE message_id = ?", fate, each)
            for statement in write:
                self._write(statement)
            self._note_to_send(send)
            for one in refused:
                self._note_refused(one, taken=False)
            return True

    def incomplete(self, before: datetime) -> list[Incoming]:
        last = "SELECT sequence FROM messages WHERE total > 1 GROUP BY sequence HAVING max(noted) < ?"
        asked = (
            f"SELECT {_INCOMING} FROM messages WHERE fate = 'waiting' AND NOT whole AND sequence IN ({last}) "
            "ORDER BY sequence, position"
        )
        return [Incoming(*row) for row in self._run(asked, before.timestamp())]

    def unrouted(self, limit: int) -> list[tuple[int, Refused]]:
        asked = f"SELECT number, {_REFUSED} FROM refused WHERE status = 'TO_SEND' ORDER BY number LIMIT ?"
        return [(row[0], Refused(*row[1:])) for row in self._run(asked, limit)]

    def routed(self, number: int) -> None:
        with self._transaction():
            self._run("UPDATE refused SET status = 'SENT', decorated = NULL WHERE number = ?", number)

    def status(self, message_id: str) -> Status | None:
        found = self._run("SELECT status FROM messages WHERE message_id = ?", message_id).fetchone()
        return None if found is None else Status(found[0])

    def counts(self) -> dict[Fate, int]:
        counted = dict.fromkeys(Fate, 0)
        for fate, number in self._run(
            "SELECT fate, count(*) FROM messages WHERE fate IS NOT NULL GROUP BY fate UNION ALL "
            "SELECT channel, count(*) FROM refused WHERE taken GROUP BY channel UNION ALL "
            "SELECT fate, number FROM only_counted"
        ):
            counted[Fate(fate)] += number
        return counted

    def forget(self, before: datetime) -> int:
        done = "noted < ? AND status <> 'TO_SEND'"
        settled = f"{done} AND fate IS NOT 'waiting'"
        with self._transaction():
            for fate, number in self._run(
                f"SELECT fate, count(*) FROM messages WHERE {settled} AND fate IS NOT NULL GROUP BY fate "
                f"UNION ALL SELECT channel, count(*) FROM refused WHERE {done} AND taken GROUP BY channel",
                *(before.timestamp(), before.timestamp()),
            ).fetchall():
                self._only_count(fate, number)
            gone = self._run(f"DELETE FROM messages WHERE {settled}", before.timestamp()).rowcount
            return gone + self._run(f"DELETE FROM refused WHERE {done}", before.timestamp()).rowcount

    def position(self, stream: str, shard: str) -> str | None:
        asked = "SELECT position FROM positions WHERE stream = ? AND shard = ?"
        found = self._run(asked, stream, shard).fetchone()
        return None if found is None else str(found[0])

    def keep_positions(self, stream: str, positions: Mapping[str, str]) -> None:
        with self._transaction():
            for shard, position in positions.items():
                self._run("INSERT OR REPLACE INTO positions VALUES (?, ?, ?)", stream, shard, position)

    def _take(self, message: Incoming | Refused, refuse: Callable[[Incoming, str], Refused]) -> Fate:
        if isinstance(message, Refused):
            noted = self._note_refused(message, taken=True)
            return Fate(message.channel) if noted else self._duplicate()
        if self._run("SELECT 1 FROM messages WHERE message_id = ?", message.message_id).fetchone():
            return self._duplicate()
        if message.total > 1 and (reason := self._contradiction(message)):
            return self._take(refuse(message, reason), refuse)
        self._run(
            f"INSERT INTO messages ({_INCOMING}, status, fate, whole, noted) "
            "VALUES (?,?,?,?,?,?,?,?,'RECEIVED',?,?,?)",
            *(message.message_id, message.message_class, message.message_type, message.sequence),
            *(message.position, message.total, message.correlation_id, message.value),
            *(Fate.WAITING, message.total == 1, self._clock().timestamp()),
        )
        if message.total > 1:
            self._complete(message)
        return Fate.WAITING

    def _contradiction(self, part: Incoming) -> str | None:
        """What a part says of its sequence that another part, which came first, denies."""
        asked = "SELECT message_id, position, total FROM messages WHERE sequence = ? AND total > 1"
        for message_id, position, total in self._run(asked, part.sequence):
            if total != part.total:
                return (
                    f"messageSequence.total is {part.total}; of part {position}, {message_id}, it is {total}."
                )
            if position == part.position:
                return f"messageSequence.position is {position}, which {message_id} has already."
        return None

    def _complete(self, part: Incoming) -> None:
        """Mark the parts of a sequence as whole once all are there."""
        asked = "SELECT count(*) FROM messages WHERE sequence = ? AND total > 1 AND fate = 'waiting'"
        if self._run(asked, part.sequence).fetchone()[0] == part.total:
            self._run("UPDATE messages SET whole = 1 WHERE sequence = ? AND total > 1", part.sequence)

    def _whole(self, asked: str, *told: object) -> list[Incoming]:
        found = [Incoming(*row) for row in self._run(asked, *told)]
        if not found or found[0].total == 1:
            return found
        asked = f"SELECT {_INCOMING} FROM messages WHERE sequence = ? AND total > 1 ORDER BY position"
        return [Incoming(*row) for row in self._run(asked, found[0].sequence)]

    def _waits(self, message_id: str) -> bool:
        asked = "SELECT 1 FROM messages WHERE message_id = ? AND fate = 'waiting'"
        return self._run(asked, message_id).fetchone() is not None

    def _write(self, statement: Statement) -> None:
        try:
            self._run(statement.sql, *statement.parameters)
        except sqlite3.Error as error:
            raise FailedStatement(statement.sql, str(error)) from error

    def _note_to_send(self, messages: Sequence[Outgoing]) -> None:
        for each in messages:
            if self.status(each.message_id) is Status.RECEIVED:
                raise KnownMessage(each.message_id)
            self._run(
                f"INSERT OR IGNORE INTO messages ({_OUTGOING}, status, noted) "
                "VALUES (?,?,?,?,?,?,?,'TO_SEND',?)",
                *(each.message_id, each.message_class, each.message_type, each.sequence, each.position),
                *(each.value, each.destination, self._clock().timestamp()),
            )

    def _note_refused(self, each: Refused, *, taken: bool) -> bool:
        noted = self._run(
            f"INSERT OR IGNORE INTO refused (digest, taken, status, {_REFUSED}, noted) "
            "VALUES (?,?,'TO_SEND',?,?,?,?,?,?,?)",
            *(hashlib.sha256(each.original).digest(), taken, each.original, each.decorated),
            *(each.channel, each.error_code, each.error_description, each.message_id),
            self._clock().timestamp(),
        )
        return noted.rowcount == 1

    def _duplicate(self) -> Fate:
        self._only_count(Fate.DUPLICATE, 1)
        return Fate.DUPLICATE

    def _only_count(self, fate: str, number: int) -> None:
        more = "ON CONFLICT (fate) DO UPDATE SET number = number + excluded.number"
        self._run(f"INSERT INTO only_counted VALUES (?, ?) {more}", fate, number)

    def _run(self, sql: str, *parameters: object) -> sqlite3.Cursor:
        return self._database.execute(sql, parameters)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._database.execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise

    def _roll_back(self) -> None:
        try:
            self._database.execute("ROLLBACK")
        except sqlite3.Error as error:
            if self._database.in_transaction:  # otherwise SQLite did it already, as when the disk is full
                fault = RdssFault.ROLLBACK_FAILED
                logger.error("%s %s", fault.value, fault.describe(f"{self.path}: {error}."))

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.close()

    def __enter__(self) -> SqliteRepository:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
