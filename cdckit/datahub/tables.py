"""The tables of a hub, as Parquet files in a folder: what a run writes is seen all at once, or not at all."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Lock
from typing import IO, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from cdckit.files import put
from cdckit.parts.workers import Made

if sys.platform != "win32":
    import fcntl

_CURRENT = "current.json"
_RUN = "run.json"
"""What is under way, while it is: locked by the program that does it."""

_PARTS = "parts"
"""The folder of which everything that is not listed is deleted: nobody else's files are in it."""

_PATTERN = re.compile(r"([\[\]{}*?\\])")


@dataclass
class _Table:
    parts: list[str]
    columns: str
    """Its schema, as Spark writes it in JSON."""


@dataclass
class _State:
    next: int = 0
    tables: dict[str, _Table] = field(default_factory=dict)
    notes: dict[str, list[str]] = field(default_factory=dict)


class Tables:
    """
    Named tables under a folder.

    Each is a list of parts, and a part is never changed.  What is written becomes visible with
    `commit`, which replaces one small file; a run that fails leaves the tables as they were.  What a
    commit has replaced stays until the next one: whoever still reads it can.

    One program at a time may write; nobody else's is looked after.

    Args:
        spark: The session that reads and writes.
        folder: A folder of this machine, made if it is not there.
    """

    def __init__(self, spark: SparkSession, folder: str | Path) -> None:
        self.spark, self._folder, self._lock = spark, Path(folder).resolve(), Lock()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._state = self._before = self._committed()
        if self.under_way() is None:
            self._forget_strays()

    def read(self, name: str) -> DataFrame | None:
        """The table as it stands, what was not committed yet included; None if there is none."""
        found = self._state.tables.get(name)
        return self._read(found.parts, found.columns) if found else None

    def has(self, name: str) -> bool:
        """Whether there is the table."""
        return name in self._state.tables

    def append(self, name: str, rows: DataFrame | Made) -> DataFrame:
        """Write rows as a further part of a table; the part, as read back."""
        before = self._state.tables.get(name)
        return self._write(name, [rows], before.parts if before else [])

    def replace(self, name: str, *rows: DataFrame | Made) -> DataFrame:
        """Write rows, of several sources with the same columns, as the table; the table, as read back."""
        return self._write(name, rows, [])

    def scratch(self, name: str, rows: DataFrame) -> DataFrame:
        """Write rows that nobody needs after the commit; as read back."""
        part = self._new(name)
        rows.write.parquet(str(self._folder / part))
        return self._read([part], rows.schema.json())

    def move(self, name: str, to: str) -> None:
        """Make the parts of one table parts of another, which has the same columns."""
        moved, before = self._state.tables.pop(name, None), self._state.tables.get(to)
        if moved is not None:
            self._state.tables[to] = _Table([*(before.parts if before else []), *moved.parts], moved.columns)

    def empty(self, columns: str | T.StructType) -> DataFrame:
        """No rows of these columns."""
        return self.spark.createDataFrame([], columns)

    def drop(self, name: str) -> None:
        """Forget a table."""
        self._state.tables.pop(name, None)

    def names(self, kind: str) -> list[str]:
        """The tables whose name begins with *kind* and a point."""
        return [name for name in self._state.tables if name.startswith(f"{kind}.")]

    def noted(self, name: str) -> list[str]:
        """A list that was noted beside the tables."""
        return self._state.notes.get(name, [])

    def note(self, name: str, values: list[str]) -> None:
        """Note a short list beside the tables."""
        self._state.notes[name] = values

    @contextmanager
    def marked(self, run: Mapping[str, Any]) -> Iterator[None]:
        """Let readers see that *run* is under way, until it has ended, or its program has."""
        path = self._folder / _RUN
        try:
            with path.open("a+") as file:
                _lock(file)
                file.truncate(0)
                json.dump(run, file)
                file.flush()
                try:
                    yield
                finally:
                    # Windows deletes no file that is open, be it for a reader: an empty one says nothing.
                    file.truncate(0)
        finally:
            with suppress(PermissionError):
                path.unlink(missing_ok=True)

    def under_way(self) -> dict[str, Any] | None:
        """The run that is under way in this program or another one; None if there is none."""
        try:
            with (self._folder / _RUN).open() as file:
                found: dict[str, Any] | None = json.load(file) if _is_locked(file) else None
                return found
        except (FileNotFoundError, json.JSONDecodeError):
            return None

    def refresh(self) -> None:
        """See what others have committed; not to be called while anything is written."""
        found = self._committed()
        found.next = max(found.next, self._state.next)
        if found != self._state:
            self._state = self._before = found

    def commit(self) -> None:
        """Let everything that was written since the last commit be seen."""
        current = self._folder / _CURRENT
        new = current.with_suffix(".new")
        new.write_text(json.dumps(asdict(self._state), indent=1))
        before = self._committed()
        put(new, current)
        self._before = before
        self._forget_strays()

    def rollback(self) -> None:
        """Forget everything that was written since the last commit."""
        written = self._state.next
        self._state = self._committed()
        # Nobody knows who still writes: a number is never given twice.
        self._state.next = written
        self._forget_strays(ignore_errors=True)

    def _committed(self) -> _State:
        current = self._folder / _CURRENT
        if not current.exists():
            return _State()
        found = json.loads(current.read_text())
        tables = {name: _Table(**each) for name, each in found["tables"].items()}
        return _State(found["next"], tables, found["notes"])

    def _write(self, name: str, rows: Sequence[DataFrame | Made], before: list[str]) -> DataFrame:
        part = self._new(name)
        for some in rows:
            if isinstance(some, Made):
                some.write(self._folder / part)
            else:
                # Its number is new, so what is there already is from another of the sources.
                some.write.mode("append").parquet(str(self._folder / part))
        columns = rows[0].columns if isinstance(rows[0], Made) else rows[0].schema
        self._state.tables[name] = _Table([*before, part], columns.json())
        return self._read([part], columns.json())

    def _new(self, name: str) -> str:
        with self._lock:  # several threads may write at once
            self._state.next += 1
            # What a run has left that died while this program already looked on is in nobody's way.
            while (self._folder / _PARTS / name / f"{self._state.next:06}").exists():
                self._state.next += 1
            return f"{_PARTS}/{name}/{self._state.next:06}"

    def _read(self, parts: list[str], columns: str) -> DataFrame:
        # With its columns stated, Spark need not look into the files before it reads them.
        # What workers wrote does not say that its dates are as they are written.
        reader = self.spark.read.option("datetimeRebaseMode", "CORRECTED").schema(
            T.StructType.fromJson(json.loads(columns))
        )
        # Spark takes a path for a pattern.
        return reader.parquet(*(_PATTERN.sub(r"\\\1", str(self._folder / part)) for part in parts))

    def _forget_strays(self, *, ignore_errors: bool = False) -> None:
        """Delete what no table has; after an error tasks may still write there, and the next time will do."""
        states = (self._state, self._before)
        kept = {part for state in states for each in state.tables.values() for part in each.parts}
        for part in (self._folder / _PARTS).glob("*/[0-9]*"):
            if str(part.relative_to(self._folder)) not in kept:
                shutil.rmtree(part, ignore_errors)


def _lock(file: IO[str]) -> None:
    if sys.platform != "win32":
        fcntl.flock(file, fcntl.LOCK_EX)


def _is_locked(file: IO[str]) -> bool:
    """
    Whether the program that has written the file still holds it: a lock ends with its program.

    On Windows nobody can tell, and what a killed program has left there counts until the next run ends.
    """
    if sys.platform == "win32":
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
