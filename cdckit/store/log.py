"""One Delta table as the store uses it: its state at a commit, and the commit that brings it to the next."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, TableFeatures
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction, Transaction, create_table_with_add_actions
from pyspark.sql import types as T

from cdckit.parts.arguments import StreamBatch
from cdckit.store.errors import DamagedTable, ForeignChange, StoreIsBusy
from cdckit.store.files import File, digest_of, files_of
from cdckit.store.locations import Location

APPLICATION = "cdckit"
"""
Every commit to a Delta table carries it as an application's transaction, whose version is the number of the
store's commit that it belongs to: who has it is ours.  It also makes deltalake refuse the second of two
commits that begin from one version, where it would otherwise put two appends one after the other.
"""

STREAM, STREAM_DIGEST = f"{APPLICATION}.stream", f"{APPLICATION}.digest"
"""Before the name of a stream: the number of its last batch, and the digest of that."""

COLUMNS = f"{APPLICATION}.columns"
"""What a commit carries instead that only makes a table ready for the next one: new columns, a feature."""

NO_HOOK = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
"""A checkpoint is written after a commit, which does not fail for its sake."""

TRIES = 30
_LOG = {
    # Old versions can be read for as long as their files are there; `Store.vacuum` says how long.
    "delta.enableExpiredLogCleanup": "false",
    "delta.checkpointInterval": "20",
    # All that a log says of files is read; by default nothing beyond 32 columns and parts of columns is.
    "delta.dataSkippingNumIndexedCols": "-1",
}
_CHECKPOINT = 20


@dataclass(frozen=True)
class Table:
    """
    The state of a named table.

    Args:
        name: The name that users know.
        folder: Where it lies, below the location.
        stored: Its columns under their stored names.
        partition_by: The stored names of the columns that tell files apart.
        files: By path.
        version: Of the Delta table; None where no version of it is in this state, not yet.
    """

    name: str
    folder: str
    stored: T.StructType
    partition_by: tuple[str, ...] = ()
    files: Mapping[str, File] = field(default_factory=dict)
    version: int | None = None

    def with_files(self, files: Mapping[str, File]) -> Table:
        """The same with other files."""
        return replace(self, files=dict(files))

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return sum(one.rows for one in self.files.values())

    def is_like(self, other: Table | None) -> bool:
        """Whether the other one is the same table with the same columns and files."""
        return other is not None and (self.folder, self.stored, self.files.keys()) == (
            other.folder,
            other.stored,
            other.files.keys(),
        )


@dataclass(frozen=True)
class Named:
    """
    A table as a commit of the store names it.

    Args:
        folder: Where it lies, below the location.
        version: The first version of the Delta table that can be in this state.
        commit: The last commit that wrote to it.
        files: How many files it has.
        rows: How many rows.
        digest: Of its files (`digest_of`), by which a damaged log is told.
    """

    folder: str
    version: int
    commit: int
    files: int
    rows: int
    digest: int


@dataclass(frozen=True)
class Plan:
    """
    What a commit of the store does to one Delta table: kept beside it, so that anybody can carry it out.

    Args:
        base: The version of the Delta table from which it begins; None if it makes the table.
        after: The state that it leads to, of the files only those that it adds.
        remove: The files that it removes.
        same_rows: The paths of the files that it adds and removes without a change of rows.
    """

    base: int | None
    after: Table
    remove: Mapping[str, File]
    same_rows: frozenset[str] = frozenset()

    def onto(self, base: Table | None) -> Table:
        """The state that it makes of the one from which it begins."""
        before = {} if base is None else base.files
        kept = {path: one for path, one in before.items() if path not in self.remove}
        return replace(self.after, files={**kept, **self.after.files}, version=None)

    def to_json(self) -> dict[str, Any]:
        """As JSON; see `of_json`."""
        return {
            "base": self.base,
            "folder": self.after.folder,
            "columns": self.after.stored.jsonValue(),
            "partition_by": self.after.partition_by,
            "add": [one.to_json() for one in self.after.files.values()],
            "remove": [one.to_json() for one in self.remove.values()],
            "same_rows": sorted(self.same_rows),
        }

    @staticmethod
    def of_json(name: str, found: Mapping[str, Any]) -> Plan:
        """The plan of which `to_json` says this."""
        stored = T.StructType.fromJson(found["columns"])

        def files(key: str) -> dict[str, File]:
            # What is removed may have columns of other types: of it, only the partition counts.
            no_bounds: dict[str, Any] = {} if key == "add" else {"minValues": {}, "maxValues": {}}
            return {one["path"]: File.of_json({**one, **no_bounds}, stored) for one in found[key]}

        after = Table(name, found["folder"], stored, tuple(found["partition_by"]), files("add"))
        return Plan(found["base"], after, files("remove"), frozenset(found["same_rows"]))


class Followed:
    """
    A Delta table that was loaded, and can be brought to its newest version for less than loading it again.

    Args:
        location: Of the store.
        name: The name that users know.
        folder: Where it lies, below the location.
        version: Which is loaded; the newest for None.

    Raises:
        DamagedTable: The log cannot be read.
    """

    def __init__(self, location: Location, name: str, folder: str, version: int | None = None) -> None:
        self.name, self.folder, self._location = name, folder, location
        with undamaged(name, folder, version):
            self.delta = DeltaTable(
                location.delta(folder), version=version, storage_options=location.options or None
            )
            self.state = self._state()

    @property
    def mark(self) -> int:
        """The number of the store's last commit that is in it; -1 if none is."""
        with undamaged(self.name, self.folder, None):
            found: int | None = self.delta.transaction_version(APPLICATION)
        return -1 if found is None else found

    def newest(self) -> Table:
        """The state at the newest version."""
        with undamaged(self.name, self.folder, None):
            self.delta.update_incremental()
            if self.delta.version() != self.state.version:
                self.state = self._state()
        return self.state

    def _state(self) -> Table:
        return Table(
            name=self.name,
            folder=self.folder,
            stored=T.StructType.fromJson(json.loads(self.delta.schema().to_json())),
            partition_by=tuple(self.delta.metadata().partition_columns),
            files=files_of(pa.table(self.delta.get_add_actions(flatten=False))),
            version=self.delta.version(),
        )


def state_of(
    location: Location, name: str, named: Named, plan: Callable[[], Plan | None]
) -> tuple[Table, Followed | None, int]:
    """
    A table in the state that a commit names, its log, and the mark of the next commit of ours to it.

    There is no log where the table is not in that state; and -1 where no commit of ours comes next.

    What others did to its files since then without a change of rows is in it: they may have deleted the
    files before.  A Delta table that lags, since its writer died, or that others have changed at the very
    moment, is read as the *plan* of the commit says.

    Raises:
        DamagedTable: The log cannot be read, or says something else than what was committed.
    """
    try:
        followed: Followed | None = Followed(location, name, named.folder, named.version)
    except DamagedTable:
        followed = None  # It lags, or is damaged: that is told below.
    if followed is None or followed.mark != named.commit:
        version = _version_of(location, named)
        followed = None if version is None else Followed(location, name, named.folder, version)
    if followed is None or not _is_same(followed.state, named):
        found = plan()
        if followed is not None and (found is None or foreign_change(location, found) is None):
            raise _other_state(name, named)
        if found is None:
            raise damaged_log(name, named.folder, named.version, KeyError("there is no such version"))
        return _planned(location, name, named, found), None, -1
    state, mark = _kept_up(location, followed.state)
    if state is not followed.state and state.rows != named.rows:
        raise _other_state(name, named)
    return state, followed, mark


def _version_of(location: Location, named: Named) -> int | None:
    """The version of the Delta table that carries the mark of a commit; None if there is none."""
    version = named.version
    while actions := actions_of(location, named.folder, version):
        if _mark(actions) == named.commit:
            return version
        version += 1
    return None


def _kept_up(location: Location, state: Table) -> tuple[Table, int]:
    """The state with what others did to its files without a change of rows; and what is marked behind it."""
    assert state.version is not None
    others = upkeep_of_others(location, state.folder, state.version)
    if others.kept == state.version:
        return state, others.mark
    return Followed(location, state.name, state.folder, others.kept).state, others.mark


def _planned(location: Location, name: str, named: Named, plan: Plan) -> Table:
    """The state that a plan leads to, which nobody has carried out."""
    if plan.base is None:
        return plan.onto(None)
    base = Followed(location, name, named.folder, plan.base).state
    state, _ = _kept_up(location, base)
    found = plan.onto(state if plan.remove.keys() <= state.files.keys() else base)
    if found.rows != named.rows or (state is base and not _is_same(found, named)):
        raise _other_state(name, named)
    return found


def _is_same(found: Table, named: Named) -> bool:
    files = found.files.values()
    return (len(files), found.rows, digest_of(files)) == (named.files, named.rows, named.digest)


def _other_state(name: str, named: Named) -> DamagedTable:
    error = ValueError(f"it does not say what commit {named.commit} has written")
    return damaged_log(name, named.folder, named.version, error)


@contextmanager
def undamaged(name: str, folder: str, version: int | None) -> Iterator[None]:
    """Within it, what is wrong with a log is a `DamagedTable`; what its storage says stays an OSError."""
    try:
        yield
    except (DeltaError, FileNotFoundError, ValueError) as error:
        raise damaged_log(name, folder, version, error) from error


def damaged_log(name: str, folder: str, version: int | None, error: Exception) -> DamagedTable:
    """What is raised where the log of a table cannot be read."""
    what = "" if version is None else f" at version {version}"
    return DamagedTable(
        name,
        f"{folder}/_delta_log",
        f"its log cannot be read{what} ({_first_line(error)})",
        "Bring back the files of the log from a copy of the store, or read an older commit. A table that is "
        "made of a log, as a history, `rebuild()` makes anew.",
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


# What others did -------------------------------------------------------------------------------------------


class Others(NamedTuple):
    """What others did to a Delta table behind a version, until the next commit of ours."""

    kept: int
    """The last version to which they came without a change of rows."""
    foreign: ForeignChange | None = None
    """Who has changed some."""
    mark: int = -1
    """Of the commit of ours; -1 if there is none."""


def upkeep_of_others(location: Location, folder: str, version: int) -> Others:
    """What others did to a Delta table behind *version*."""
    kept = version
    while actions := actions_of(location, folder, version + 1):
        version += 1
        if (mark := _mark(actions)) is not None:
            return Others(kept, mark=mark)
        if not _is_ours(actions):
            if not keeps_rows(actions):
                return Others(kept, change_of(folder, version, actions))
            kept = version
    return Others(kept)


def foreign_change(location: Location, plan: Plan) -> ForeignChange | None:
    """The first change of rows or columns that others have made to a Delta table since the base of a plan."""
    version = -1 if plan.base is None else plan.base
    while actions := actions_of(location, plan.after.folder, version + 1):
        version += 1
        if not (_is_ours(actions) or keeps_rows(actions)):
            return change_of(plan.after.folder, version, actions)
    return None


def change_since_ours(location: Location, folder: str, version: int) -> ForeignChange | None:
    """The first change of rows or columns that others have made to a Delta table since our last commit."""
    found = None
    while actions := actions_of(location, folder, version):
        if _mark(actions) is not None:
            return found
        if not (_is_ours(actions) or keeps_rows(actions)):
            found = change_of(folder, version, actions)
        version -= 1
    # Whoever shortened the log has left nothing that tells what came after ours.
    return found or ForeignChange(folder, version, "a commit", "somebody")


def keeps_rows(actions: list[dict[str, Any]]) -> bool:
    """Whether a commit only wrote files anew, or did nothing to a table."""
    known = {"add", "remove", "commitInfo", "txn", "cdc", "domainMetadata"}
    return all(
        set(action) <= known
        and not any(one.get("dataChange", True) for kind, one in action.items() if kind in ("add", "remove"))
        and not (action.get("add") or {}).get("deletionVector")
        for action in actions
    )


def change_of(folder: str, version: int, actions: list[dict[str, Any]]) -> ForeignChange:
    told: dict[str, Any] = next((one["commitInfo"] for one in actions if "commitInfo" in one), {})
    author = ", ".join(str(told[key]) for key in ("userName", "engineInfo") if told.get(key))
    return ForeignChange(folder, version, str(told.get("operation", "a commit")), author or "somebody")


def _is_ours(actions: list[dict[str, Any]]) -> bool:
    return any(one["txn"]["appId"] in (APPLICATION, COLUMNS) for one in actions if "txn" in one)


def _mark(actions: list[dict[str, Any]]) -> int | None:
    found = [one["txn"] for one in actions if "txn" in one]
    return next((one["version"] for one in found if one["appId"] == APPLICATION), None)


_KNOWN = {
    "appendOnly",
    "invariants",
    "timestampNtz",
    "changeDataFeed",
    "domainMetadata",
    "vacuumProtocolCheck",
}
"""The features of Delta tables that we keep to: of files that come and go whole, a change feed is told."""

_IDLE = {"variantType", "checkConstraints"}
"""Those that are listed also where nothing is of them: of the types it is the columns that tell."""


def require_known_features(followed: Followed) -> None:
    """Raise `ForeignChange` for a Delta table that needs more of its writers than we do."""
    protocol, configuration = followed.delta.protocol(), followed.delta.metadata().configuration
    needed = {*(protocol.reader_features or []), *(protocol.writer_features or [])}
    needed -= _KNOWN | _IDLE
    # Tables of old name no features, but a version that has them all.
    if 4 < protocol.min_writer_version < 7:
        needed.add(f"writers of version {protocol.min_writer_version}")
    if any(key.startswith("delta.constraints.") for key in configuration):
        needed.add("constraints")
    if not needed:
        return
    raise ForeignChange(
        followed.name,
        followed.delta.version(),
        "a change of what the table needs",
        "somebody",
        f"Nothing was written. cdckit cannot read and write tables with {', '.join(sorted(needed))}: "
        "let that program take it away, for example by ALTER TABLE ... DROP FEATURE.",
    )


# Committing ------------------------------------------------------------------------------------------------


def carry_out(location: Location, plan: Plan, commit: int, head: Followed | None = None) -> bool:
    """
    Bring a Delta table to where *plan*, of the store's *commit*, leads; nothing is done if it is there.

    Whoever finds a plan may carry it out, several at once too.  False if others have changed rows since its
    base: then their change stays, and the plan is read in its place until somebody decides.
    """
    after = plan.after
    for wait in waits():
        if head is None and location.has_log(after.folder):
            head = Followed(location, after.name, after.folder)
        if head is None:
            if _create(location, plan, commit):
                return True
            continue
        now = head.newest()
        if head.mark >= commit:
            return True
        assert now.version is not None
        if foreign_change(location, plan) is not None:
            return False
        if _make_ready(head, now, after) and _commit(head, _actions(location, plan, now), after, commit):
            head.newest()
            keep_short(head.delta)
            return True
        time.sleep(wait)
    raise StoreIsBusy(location.delta(after.folder), TRIES)


def _create(location: Location, plan: Plan, commit: int) -> bool:
    table = plan.after
    location.make_folder(table.folder)
    try:
        create_table_with_add_actions(
            location.delta(table.folder),
            schema_of(table),
            [one.add(data_change=path not in plan.same_rows) for path, one in table.files.items()],
            mode="error",
            partition_by=list(table.partition_by),
            name=table.name,
            configuration=log_options(),
            storage_options=location.options or None,
            commit_properties=properties(commit),
            post_commithook_properties=NO_HOOK,
        )
    except DeltaError:
        if not location.has_log(table.folder):
            raise
        return False  # Another writer was faster.
    return True


def _actions(location: Location, plan: Plan, now: Table) -> list[AddAction | RemoveAction]:
    """What brings a table from where it is *now* to where the plan leads."""
    adds, removes = dict(plan.after.files), dict(plan.remove)
    if not plan.remove.keys() <= now.files.keys():
        # Others have put files together that the plan removes: theirs go, with the rows that are in them.
        assert plan.base is not None
        target = plan.onto(Followed(location, now.name, now.folder, plan.base).state)
        adds, removes = (
            dict(target.files),
            {path: one for path, one in now.files.items() if path not in target.files},
        )
    actions: list[AddAction | RemoveAction] = []
    for path, one in adds.items():
        if path not in now.files:
            is_new = path in plan.after.files and path not in plan.same_rows
            actions.append(one.add(data_change=is_new))
    for path, one in removes.items():
        actions.append(one.remove(data_change=path in plan.remove and path not in plan.same_rows))
    return actions


def _make_ready(head: Followed, now: Table, after: Table) -> bool:
    """Let a table have the columns that are to come to it, in a commit of its own; False to look again."""
    try:
        if "timestamp_ntz" in after.stored.json() and "timestampNtz" not in (
            head.delta.protocol().reader_features or []
        ):
            # The one type that not every reader of Delta knows.
            head.delta.alter.add_feature(
                TableFeatures.TimestampWithoutTimezone,
                allow_protocol_versions_increase=True,
                commit_properties=_properties(COLUMNS, 0),
                post_commithook_properties=NO_HOOK,
            )
            return False
        if now.stored != after.stored and _is_wider(now.stored, after.stored):
            before = {one.name: one for one in now.stored}
            more = [one for one in after.stored if before.get(one.name) != one]
            fields = Schema.from_json(T.StructType(more).json()).fields
            head.delta.alter.add_columns(
                fields, commit_properties=_properties(COLUMNS, 0), post_commithook_properties=NO_HOOK
            )
            return False
    except (CommitFailedError, DeltaError):
        return False
    return True


def _is_wider(before: T.DataType, after: T.DataType) -> bool:
    """Whether there are only more columns, or more fields in structs of no list or map."""
    if isinstance(before, T.StructType) and isinstance(after, T.StructType):
        later = {one.name: one for one in after}
        return all(
            one.name in later
            and one.metadata == later[one.name].metadata
            and _is_wider(one.dataType, later[one.name].dataType)
            for one in before
        )
    return before == after


def _commit(head: Followed, actions: list[AddAction | RemoveAction], after: Table, commit: int) -> bool:
    """Whether these actions are the version after *head*, or may be: who looks again sees the mark."""
    # Columns of other types come with other files for all rows: one commit takes out all that there is.
    mode = "append" if head.state.stored == after.stored else "overwrite"
    if mode == "overwrite":
        actions = [one for one in actions if isinstance(one, AddAction)]
    try:
        head.delta.create_write_transaction(
            actions,
            mode,
            schema_of(after),
            partition_by=list(after.partition_by),
            commit_properties=properties(commit),
            post_commithook_properties=NO_HOOK,
        )
    except CommitFailedError:
        return False
    return True


def keep_short(table: DeltaTable) -> None:
    """Write a checkpoint from time to time, so that whoever opens the table reads few files of its log."""
    if table.version() % _CHECKPOINT == 0:
        with suppress(Exception):  # Without it the table is opened more slowly, and is as right.
            table.create_checkpoint()


def actions_of(location: Location, folder: str, version: int) -> list[dict[str, Any]]:
    """
    What one commit to a Delta table did; nothing if there is none of that number.

    Raises:
        DamagedTable: It cannot be read, or says nothing: each commit says something.
    """
    path = location.path(f"{folder}/_delta_log/{version:020}.json")
    try:
        with location.file_system().open_input_file(path) as file:
            found = [json.loads(line) for line in file.read().splitlines()]
    except FileNotFoundError:
        return []
    except ValueError as error:
        raise damaged_log(folder, folder, version, error) from error
    if not found:
        raise damaged_log(folder, folder, version, ValueError(f"the entry {version:020}.json is empty"))
    return found


def properties(mark: int, batch: tuple[str, int] | None = None) -> CommitProperties:
    """
    What each commit to a Delta table carries.

    deltalake is not to try again by itself: of two that make one table at once, the later one would find it
    made, and add its own files and columns to it as version 1.
    """
    return _properties(APPLICATION, mark, batch)


def _properties(application: str, mark: int, batch: tuple[str, int] | None = None) -> CommitProperties:
    told = {application: mark}
    if batch is not None and isinstance(batch[0], StreamBatch):
        told |= {
            f"{STREAM}:{batch[0].stream}": batch[0].number,
            f"{STREAM_DIGEST}:{batch[0].stream}": batch[1],
        }
    elif batch is not None:
        told[f"{APPLICATION}:{batch[0]}"] = batch[1]
    transactions = [Transaction(name, version, int(time.time() * 1000)) for name, version in told.items()]
    return CommitProperties(max_commit_retries=0, app_transactions=transactions)


def waits() -> list[float]:
    """Seconds to wait after each of the tries, longer and longer, and of no two writers the same."""
    return [random.uniform(0, min(1.0, 0.01 * 2**number)) for number in range(TRIES)]


def log_options() -> dict[str, str]:
    """The properties of every Delta table of a store."""
    return dict(_LOG)


def schema_of(table: Table) -> Schema:
    """The columns of a table as deltalake has them."""
    return Schema.from_json(table.stored.json())
