"""The SQLite file of a repository: whose it is, its tables, and that it is open once."""

from __future__ import annotations

import sqlite3

from cdckit.rdss.gateway.errors import NoRepository, RepositoryInUse

_VERSION = 3
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
  total INTEGER, correlation_id TEXT, fate TEXT, whole INTEGER, noted REAL NOT NULL,
  destination TEXT,
  terms TEXT, content TEXT,
  attempts INTEGER NOT NULL DEFAULT 0,
  value BLOB
);
CREATE INDEX ids ON messages (message_id);
CREATE UNIQUE INDEX wholes ON messages (message_id) WHERE coalesce(total, 1) = 1;
CREATE INDEX unsent ON messages (number) WHERE status = 'TO_SEND';
CREATE INDEX waiting ON messages (number) WHERE fate = 'waiting' AND whole;
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
CREATE TABLE only_counted (fate TEXT PRIMARY KEY, number INTEGER NOT NULL);
CREATE TABLE positions (stream TEXT, shard TEXT, position TEXT NOT NULL, PRIMARY KEY (stream, shard));
"""


def opened(path: str) -> sqlite3.Connection:
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
            made = f"PRAGMA application_id = {_APPLICATION}; PRAGMA user_version = {_VERSION};"
            database.executescript(f"BEGIN IMMEDIATE; {_TABLES} {made} COMMIT;")
    except sqlite3.DatabaseError as error:
        database.close()
        raise NoRepository(path, str(error)) from error
    except BaseException:
        database.close()
        raise
    return database


def locked(path: str) -> sqlite3.Connection:
    """A lock that ends with the process, however it ends, on every system that has SQLite."""
    lock = sqlite3.connect(f"{path}.lock", isolation_level=None, timeout=0)
    try:
        lock.execute("PRAGMA locking_mode = EXCLUSIVE")
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError as error:
        lock.close()
        raise RepositoryInUse(path) from error
    return lock
