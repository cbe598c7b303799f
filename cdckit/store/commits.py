"""
The table of commits: one row per commit of a store, which names the version of each of its tables.

It is a Delta table like the others.  Commit *n* is its version *n*, or a later one where other programs have
put its files together, and adds one small file; from time to time a commit puts the rows of the last ones
into its own file, so that there are at most fifteen files for each power of sixteen in the number of commits.

The row of a commit says what it does to each Delta table (`Plan`), until another commit has done something
to that one: so the row is the commit, and whoever finds a Delta table behind it can bring it there.
"""

from __future__ import annotations

import json
import secrets
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, create_table_with_add_actions
from pyspark.sql import types as T

from cdckit.parts.arguments import StreamBatch
from cdckit.parts.arrow_types import arrow_schema
from cdckit.store.errors import BatchIdReused, DamagedTable, ForeignChange
from cdckit.store.files import OUR_FILES, File, files_of, named_metadata, require_name
from cdckit.store.locations import Location
from cdckit.store.log import (
    APPLICATION,
    NO_HOOK,
    STREAM,
    STREAM_DIGEST,
    Named,
    Plan,
    actions_of,
    change_of,
    damaged_log,
    keep_short,
    keeps_rows,
    log_options,
    properties,
    undamaged,
)

FOLDER = "commits"
FORMAT = 2
_FOLD = 16

COMMITS_SCHEMA = (
    T.StructType()
    .add("version", T.LongType())
    .add("timestamp", T.TimestampType())
    .add("batch", T.StringType())
    .add("digest", T.LongType())
    .add(
        "tables",
        T.MapType(
            T.StringType(),
            T.StructType()
            .add("folder", T.StringType())
            .add("version", T.LongType())
            .add("commit", T.LongType())
            .add("files", T.LongType())
            .add("rows", T.LongType())
            .add("digest", T.LongType()),
        ),
    )
    .add("notes", T.MapType(T.StringType(), T.StringType()))
    .add("plans", T.MapType(T.StringType(), T.StringType()))
)
"""One row per commit: its number, instant, batch and the batch's digest, tables, notes, and plans in JSON."""

_ARROW = arrow_schema(COMMITS_SCHEMA)


@dataclass(frozen=True)
class Commit:
    """
    One commit.

    Args:
        version: Its number, from 0, which is that of the store without tables.
        timestamp: When; later than the commit before it.
        tables: Where each table is, and in which state.
        notes: What was noted, by key.
        plans: What it does to the Delta tables that it writes, by the names of the tables, in JSON.
        batch: The id of the batch that it took up, if any.
        digest: Of that batch.
    """

    version: int
    timestamp: datetime
    tables: Mapping[str, Named] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    plans: Mapping[str, str] = field(default_factory=dict)
    batch: str | None = None
    digest: int | None = None


class Commits:
    """The table of commits as it stands when this is made."""

    def __init__(self, location: Location, table: DeltaTable) -> None:
        self._location, self._table = location, table
        self.at: int = table.version()
        self._files = files_of(pa.table(table.get_add_actions(flatten=False)))
        found = sorted(
            (one.low.get("version", -1), one.high.get("version", -1)) for one in self._files.values()
        )
        # Each commit stands in one file, from the first on: a log that lost an entry says something else.
        ends = [-1, *(high for _, high in found)]
        self.version: int = ends[-1]
        is_whole = [low for low, _ in found] == [end + 1 for end in ends[:-1]]
        if not is_whole or self.version != self.at:
            self._require_kept_by_others(is_whole)

    def _require_kept_by_others(self, is_whole: bool) -> None:
        """Raise for entries of its log that are neither ours nor such as keep all rows."""
        version, foreign = self.at, None
        while actions := actions_of(self._location, FOLDER, version):
            if any(one["txn"]["appId"] == APPLICATION for one in actions if "txn" in one):
                added = [one["add"]["stats"] for one in actions if "add" in one]
                last = max(json.loads(stats)["maxValues"]["version"] for stats in added)
                restored = all(OUR_FILES.fullmatch(path) for path in self._files)
                if is_whole and last == self.version and (foreign is None or restored):
                    return
                break
            if not keeps_rows(actions):
                foreign = change_of(FOLDER, version, actions)
            version -= 1
        if foreign is not None:
            remedy = (
                "Nothing was written. This table says which files of the others count: put it back to "
                f"version {foreign.version - 1} by that program, as with RESTORE."
            )
            raise ForeignChange(FOLDER, foreign.version, foreign.operation, foreign.author, remedy)
        raise damaged_log(FOLDER, FOLDER, self.at, ValueError("it does not name every commit"))

    def newest(self) -> Commits:
        """The table of commits as it stands now."""
        with undamaged(FOLDER, FOLDER, None):
            self._table.update_incremental()
            if self._table.version() == self.at:
                return self
            return Commits(self._location, self._table)

    def plan(self, name: str, named: Named) -> Plan | None:
        """What the last commit that wrote to a table does to it; None if that is told no more."""
        commit = self.commit(named.commit)
        text = None if commit is None else commit.plans.get(name)
        return None if text is None else Plan.of_json(name, json.loads(text))

    def commit(self, version: int | None = None) -> Commit | None:
        """One commit, the newest for None; None if there is none of that number."""
        wanted = self.version if version is None else version
        for one in self._files.values():
            if one.low["version"] <= wanted <= one.high["version"]:
                for row in self._rows(one, wanted):
                    return row
        return None

    def all(self) -> list[Commit]:
        """Every commit, the oldest first."""
        found = [row for one in self._files.values() for row in self._rows(one)]
        return sorted(found, key=lambda one: one.version)

    def since(self, instant: datetime) -> list[Commit]:
        """The commits after an instant, and the one that held at it; the oldest first."""
        files = sorted(self._files.values(), key=lambda one: one.low["version"], reverse=True)
        found: list[Commit] = []
        for one in files:
            found.extend(self._rows(one))
            if min(row.timestamp for row in found) <= instant:
                break
        found.sort(key=lambda one: one.version)
        before = [one for one in found if one.timestamp <= instant]
        return before[-1:] + [one for one in found if one.timestamp > instant]

    def digest(self, batch: str) -> int | None:
        """
        The digest of a batch that was committed; None if there is no such batch.

        Raises:
            BatchIdReused: A later batch of its stream was committed: of older ones nothing is known.
        """
        if isinstance(batch, StreamBatch):
            last = self._table.transaction_version(f"{STREAM}:{batch.stream}")
            if last is None or last < batch.number:
                return None
            if last > batch.number:
                raise BatchIdReused(batch, 0, 0, last)
            return self._table.transaction_version(f"{STREAM_DIGEST}:{batch.stream}")
        return self._table.transaction_version(f"{APPLICATION}:{batch}")

    @property
    def id(self) -> str:
        """What tells the store from all others."""
        return str(self._table.metadata().id)

    def files(self) -> set[str]:
        """The names of its files."""
        return set(self._files)

    def add(self, commit: Commit) -> bool:
        """Let *commit*, whose number is the next one, be seen; False if another writer was faster."""
        assert commit.version == self.version + 1
        folded = self._folded(commit.version)
        rows = [_shortened(row, commit) for one in folded for row in self._rows(one)] + [commit]
        mark = secrets.randbits(62)
        removes = [one.remove(data_change=False) for one in folded]
        batch = None if commit.batch is None else (commit.batch, commit.digest or 0)
        try:
            self._table.create_write_transaction(
                [_write(self._location, rows), *removes],
                "append",
                _schema(),
                commit_properties=properties(mark, batch),
                post_commithook_properties=NO_HOOK,
            )
        except (DeltaError, OSError):
            # Another writer was faster; or the answer was lost, and the commit is there: its mark tells.
            if not self._has_landed(self.at + 1, mark):
                if self.newest().version > self.version:
                    return False
                raise
        with suppress(Exception):  # The commit has landed: whatever happens now is no fault of it.
            keep_short(self.newest()._table)
        return True

    def _has_landed(self, version: int, mark: int) -> bool:
        actions = actions_of(self._location, FOLDER, version)
        return {"appId": APPLICATION, "version": mark}.items() <= next(
            (one["txn"] for one in actions if "txn" in one and one["txn"]["appId"] == APPLICATION), {}
        ).items()

    def _folded(self, version: int) -> list[File]:
        size = 1
        while (version + 1) % (size * _FOLD) == 0:
            size *= _FOLD
        return [one for one in self._files.values() if size > 1 and one.low["version"] > version - size]

    def _rows(self, one: File, version: int | None = None) -> list[Commit]:
        path = f"{FOLDER}/{one.path}"
        try:
            with self._location.file_system().open_input_file(self._location.path(path)) as file:
                found = pq.ParquetFile(
                    file, page_checksum_verification=True, coerce_int96_timestamp_unit="us"
                )
                require_name(found, one.path)
                table = found.read().select(_ARROW.names).cast(_ARROW)
        except (OSError, pa.ArrowException) as error:
            raise DamagedTable(
                FOLDER,
                path,
                self._location.fault_of(path, error),
                "Bring the file back from a copy of the store: without it nobody knows which files count.",
            ) from error
        return [_commit(row) for row in table.to_pylist() if version is None or row["version"] == version]


def _shortened(row: Commit, newest: Commit) -> Commit:
    """The row without the plans of tables to which later commits have written: they were carried out."""
    last = {name: one.commit for name, one in newest.tables.items()}
    plans = {name: text for name, text in row.plans.items() if last.get(name) == row.version}
    return replace(row, plans=plans)


def load(location: Location) -> Commits | None:
    """
    The table of commits; None for a store in which nothing was ever committed.

    Raises:
        DamagedTable: It cannot be read, or is not there while tables are, or was made by a later version.
    """
    if not location.has_log(FOLDER):
        orphans = [one for one in location.listed() if location.has_log(one.base_name)]
        # Another writer may have begun the store between the two looks.
        if orphans and not location.has_log(FOLDER):
            raise DamagedTable(
                FOLDER,
                f"{FOLDER}/_delta_log",
                f"there is none, but there are tables ({orphans[0].base_name}, ...)",
                "Bring the folder back from a copy; or, if this was never a store, use another place.",
            )
        if not orphans:
            return None
    try:
        table = DeltaTable(location.delta(FOLDER), storage_options=location.options or None)
        made_by = json.loads(table.metadata().description or "{}").get("format")
    except (DeltaError, OSError, ValueError) as error:
        raise damaged_log(FOLDER, FOLDER, None, error) from error
    if made_by != FORMAT:
        raise DamagedTable(
            FOLDER,
            f"{FOLDER}/_delta_log",
            f"its format is {made_by}, and this version of cdckit reads {FORMAT}",
            "Open it with the version of cdckit that made it, or make it anew from its records.",
        )
    return Commits(location, table)


def begun(location: Location) -> Commits:
    """The table of commits, made with commit 0 if there is none yet: it is there before any table is."""
    found = load(location)
    if found is None:
        location.make_folder(FOLDER)
        first = Commit(0, datetime.now(UTC))
        try:
            create_table_with_add_actions(
                location.delta(FOLDER),
                _schema(),
                [_write(location, [first])],
                mode="error",
                name=FOLDER,
                description=json.dumps({"format": FORMAT}),
                configuration=log_options(),
                storage_options=location.options or None,
                commit_properties=properties(secrets.randbits(62)),
                post_commithook_properties=NO_HOOK,
            )
        except DeltaError:
            if not location.has_log(FOLDER):
                raise  # else another writer was faster, which is as good
        found = load(location)
    assert found is not None
    return found


def next_instant(after: datetime) -> datetime:
    """Now, or a little after the commit before: clocks of different machines may disagree."""
    return max(datetime.now(UTC), after + timedelta(microseconds=1))


def _schema() -> Schema:
    return Schema.from_json(COMMITS_SCHEMA.json())


def _write(location: Location, rows: list[Commit]) -> AddAction:
    name = f"cdc-{uuid.uuid4().hex}.parquet"
    listed: list[dict[str, Any]] = [
        {
            "version": one.version,
            "timestamp": one.timestamp,
            "batch": one.batch,
            "digest": one.digest,
            "tables": [(name, asdict(named)) for name, named in one.tables.items()],
            "notes": list(one.notes.items()),
            "plans": list(one.plans.items()),
        }
        for one in rows
    ]
    with location.file_system().open_output_stream(location.path(f"{FOLDER}/{name}")) as sink:
        with pq.ParquetWriter(sink, _ARROW, store_schema=False, write_page_checksum=True) as writer:
            writer.write_table(pa.Table.from_pylist(listed, _ARROW))
            writer.add_key_value_metadata(named_metadata(name))
        size = sink.tell()
    bounds = [
        {"version": each} for each in (min(one.version for one in rows), max(one.version for one in rows))
    ]
    return File(name, size, len(rows), low=bounds[0], high=bounds[1], nulls={"version": 0}).add()


def _commit(row: dict[str, Any]) -> Commit:
    tables = {name: Named(**each) for name, each in row["tables"]}
    plans, notes = dict(row["plans"]), dict(row["notes"])
    return Commit(row["version"], row["timestamp"], tables, notes, plans, row["batch"], row["digest"])
