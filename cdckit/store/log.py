"""Delta's log of one table: read, with what others did, and brought to where a commit of the store has it."""

from __future__ import annotations

import hashlib
import json
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias, TypeVar
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, TableFeatures
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction, Transaction, create_table_with_add_actions
from pyspark.sql import types as T

from cdckit.parts.arguments import StreamBatch
from cdckit.store.columns import keeps_types
from cdckit.store.errors import KEEP_OR_REBUILD, DamagedTable, ForeignChange, StoreIsBusy
from cdckit.store.files import File, Table, parse_files, to_json, to_signed
from cdckit.store.locations import Location

APPLICATION = "cdckit"
"""
Every commit to a Delta table carries it as an application's transaction, whose version is the number of the
store's commit that it belongs to, its *mark*: who has it is ours.  It also makes deltalake refuse the second
of two commits that begin from one version, where it would otherwise put two appends one after the other.
"""

COLUMNS = f"{APPLICATION}.columns"
"""What a commit carries instead that changes no rows: new columns, a feature, nothing (`overtake_others`)."""

NO_HOOK = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
"""A checkpoint is written after a commit, which does not fail for its sake."""

_TRIES = 30
_CHECKPOINT = 20
_BOUNDS = {"delta.dataSkippingNumIndexedCols": "-1", "delta.dataSkippingStatsColumns": ""}
"""With these all that a log says of files is read; by default nothing beyond 32 columns and their parts."""

_LOG = {
    # Old versions can be read for as long as their files are there; `Store.vacuum` says how long.
    "delta.enableExpiredLogCleanup": "false",
    "delta.checkpointInterval": str(_CHECKPOINT),
    "delta.dataSkippingNumIndexedCols": _BOUNDS["delta.dataSkippingNumIndexedCols"],
}

_CONSTRAINT, _APPEND_ONLY = "delta.constraints.", "delta.appendOnly"
_EXPIRY = "delta.setTransactionRetentionDuration"
"""With it a log forgets the marks of commits and the ids of batches, which would be taken twice."""

_NOT_NULL = ('"nullable":false', '"delta.invariants"')

_ENTRY = re.compile(r"([0-9]{20})\.(json|crc|checkpoint\.(?:.*\.)?parquet)")

_KNOWN = {"appendOnly", "invariants", "timestampNtz", "changeDataFeed", "domainMetadata"}
"""The features of Delta tables that we keep to: of files that come and go whole, a change feed is told."""

_IDLE = {"variantType", "checkConstraints", "vacuumProtocolCheck"}
"""Those that are listed also where nothing is of them, or ask nothing of who writes rows."""


Actions: TypeAlias = list[dict[str, Any]]
"""What one commit to a Delta table did, each action by its kind: an entry of its log."""


@dataclass(frozen=True)
class CommittedTable:
    """
    A table as a commit of the store names it.

    Args:
        folder: Where it lies, below the location.
        version: The first version of the Delta table that can be in this state.
        commit: The last commit that wrote to it.
        files: How many files it has.
        rows: How many rows.
        digest: Of its files (`Table.digest`), by which a damaged log is told.
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

    @property
    def removes_rows(self) -> bool:
        """Whether rows go by it."""
        return not self.remove.keys() <= self.same_rows

    def onto(self, base: Table | None) -> Table:
        """The state that it makes of the one from which it begins."""
        before = {} if base is None else base.files
        kept = {path: file for path, file in before.items() if path not in self.remove}
        return replace(self.after, files={**kept, **self.after.files}, version=None)

    def to_json(self) -> str:
        """Write it as JSON; see `from_json`."""
        after, columns = self.after, self.after.stored.jsonValue()
        table = {"folder": after.folder, "columns": columns, "partition_by": after.partition_by}
        by_action = {"add": after.files, "remove": self.remove}
        files = {action: [file.to_dict() for file in some.values()] for action, some in by_action.items()}
        return to_json({"base": self.base, **table, **files, "same_rows": sorted(self.same_rows)})

    @staticmethod
    def from_json(name: str, text: str) -> Plan:
        """The plan of which `to_json` says this."""
        values = json.loads(text)
        stored = T.StructType.fromJson(values["columns"])

        def files(key: str) -> dict[str, File]:
            # What is removed may have columns of other types: of it, only the partition counts.
            no_bounds: dict[str, Any] = {} if key == "add" else {"minValues": {}, "maxValues": {}}
            return {file["path"]: File.from_json({**file, **no_bounds}, stored) for file in values[key]}

        after = Table(name, values["folder"], stored, tuple(values["partition_by"]), files("add"))
        return Plan(values["base"], after, files("remove"), frozenset(values["same_rows"]))


class DeltaLog:
    """
    A Delta table that was loaded, and can be brought to its newest version for less than loading it again.

    Raises:
        DamagedTable: The log cannot be read.
    """

    def __init__(self, location: Location, name: str, folder: str, version: int | None = None) -> None:
        self.location, self.name, self.folder = location, name, folder
        with report_damage(name, folder, version):
            self.delta = self._load(version)
            self.state = self._state()

    def _load(self, version: int | None = None) -> DeltaTable:
        options = self.location.options or None
        table = DeltaTable(self.location.delta(self.folder), version=version, storage_options=options)
        self._loaded_at = int(table.version())
        return table

    @property
    def version(self) -> int:
        """Of the Delta table."""
        return int(self.delta.version())

    @property
    def mark(self) -> int:
        """The number of the store's last commit that is in it; -1 if none is."""
        with report_damage(self.name, self.folder, None):
            mark: int | None = self.delta.transaction_version(APPLICATION)
        return -1 if mark is None else mark

    def newest(self) -> Table:
        """The state at the newest version."""
        with report_damage(self.name, self.folder, None):
            # A table that was loaded once reads every entry of the log since then for each commit.
            if self.version - self._loaded_at < _CHECKPOINT:
                self.delta.update_incremental()
            else:
                self.delta = self._load()
            if self.version != self.state.version:
                self.state = self._state(self.state.files)
        return self.state

    def commit(
        self,
        actions: Sequence[AddAction | RemoveAction],
        stored: T.StructType,
        carried: CommitProperties,
        *,
        anew: bool = False,
    ) -> bool:
        """
        Let these actions be the next version, of a table with these columns; False if somebody was faster.

        Where the answer was lost they may be that version all the same: whoever looks again sees the mark.
        With *anew* all files that are there go.
        """
        before = self.version
        try:
            self.delta.create_write_transaction(
                list(actions),
                "overwrite" if anew else "append",
                delta_schema(stored),
                partition_by=list(self.state.partition_by),
                commit_properties=carried,
                post_commithook_properties=NO_HOOK,
            )
        except DeltaError:
            # Where the entries are deleted that it knows, deltalake cannot tell what came behind them.
            self.delta = self._load()
            if self.newest().version == before:
                raise
            return False
        self.newest()
        keep_short(self.delta)
        return True

    def is_at(self, named: CommittedTable) -> bool:
        """Tell whether it is in the state that a commit names; not where it cannot be brought there."""
        with suppress(DamagedTable):
            if self.version < named.version:
                self.newest()
            at_version = self.version == named.version
            return at_version and self.mark == named.commit and _is_same(self.state, named)
        return False

    def _state(self, read_before: Mapping[str, File] = MappingProxyType({})) -> Table:
        stored = T.StructType.fromJson(json.loads(self.delta.schema().to_json()))
        by = tuple(self.delta.metadata().partition_columns)
        files = parse_files(pa.table(self.delta.get_add_actions(flatten=False)), read_before)
        return Table(self.name, self.folder, stored, by, files, self.version)


class State(NamedTuple):
    """A table in the state that a commit names."""

    table: Table
    log: DeltaLog | None = None
    """None where no version of the Delta table is in this state."""
    next_mark: int = -1
    """Of our next commit to it; -1 if there is none."""


def load_state(
    location: Location,
    name: str,
    named: CommittedTable,
    plan: Callable[[], Plan | None],
    kept: DeltaLog | None = None,
) -> State:
    """
    The state of a table that a commit names.

    What others did to its files since then without a change of rows is in it: they may have deleted the
    files before.  A Delta table that lags, since its writer died, or that others have changed at the very
    moment, is read as the *plan* of the commit says.  A log that was *kept* is not read again where it is
    in that state.

    Raises:
        DamagedTable: The log cannot be read, or says something else than what was committed.
    """
    delta_log, damaged = _log_at(location, name, named, kept)
    if delta_log is None or not _is_same(delta_log.state, named):
        planned = plan()
        # A Delta table that others have changed is not in that state, and will not be.
        if planned is None or (delta_log is not None and foreign_change(location, planned) is None):
            raise damaged
        after = _planned_state(location, name, named, planned)
        if after is None:
            raise damaged
        return State(after)
    kept_up, mark = _with_upkeep(location, delta_log)
    if kept_up is not delta_log and kept_up.state.rows != named.rows:
        raise damaged
    return State(kept_up.state, kept_up, mark)


def _log_at(
    location: Location, name: str, named: CommittedTable, kept: DeltaLog | None
) -> tuple[DeltaLog | None, DamagedTable]:
    """The log of a table at the version that a commit has made, None without one; and what is wrong then."""
    other = ValueError(f"it does not say what commit {named.commit} has written")
    damaged = damaged_log(name, named.folder, named.version, other)
    if kept is not None and kept.is_at(named):
        return kept, damaged
    delta_log: DeltaLog | None = None
    try:
        delta_log = DeltaLog(location, name, named.folder, named.version)
    except DamagedTable as error:
        damaged = error  # It lags, or is damaged: what the plan says will tell.
    if delta_log is None or delta_log.mark != named.commit:
        version = marked_version(location, named)
        delta_log = None if version is None else DeltaLog(location, name, named.folder, version)
    return delta_log, damaged


def _with_upkeep(location: Location, base: DeltaLog) -> tuple[DeltaLog, int]:
    """The log with what others did to the table without a change of rows; and what is marked behind it."""
    others = upkeep_of_others(location, base.state)
    if others.kept == base.version:
        return base, others.mark
    return DeltaLog(location, base.name, base.folder, others.kept), others.mark


def _planned_state(location: Location, name: str, named: CommittedTable, plan: Plan) -> Table | None:
    """The state that a plan leads to, which nobody has carried out; None if it is not that of the commit."""
    if plan.base is None:
        return plan.onto(None)
    base = DeltaLog(location, name, named.folder, plan.base)
    kept_up, _ = _with_upkeep(location, base)
    state = plan.onto((kept_up if plan.remove.keys() <= kept_up.state.files.keys() else base).state)
    is_right = _is_same(state, named) if kept_up is base else state.rows == named.rows
    return state if is_right else None


def _is_same(state: Table, named: CommittedTable) -> bool:
    return (len(state.files), state.rows, state.digest) == (named.files, named.rows, named.digest)


@contextmanager
def report_damage(name: str, folder: str, version: int | None) -> Iterator[None]:
    """Within it, what is wrong with a log is a `DamagedTable`; what its storage says stays an OSError."""
    try:
        yield
    except (DeltaError, FileNotFoundError, ValueError) as error:
        raise damaged_log(name, folder, version, error) from error


def damaged_log(name: str, folder: str, version: int | None, error: Exception) -> DamagedTable:
    """Make what is raised where the log of a table cannot be read."""
    what = "" if version is None else f" at version {version}"
    why = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
    return DamagedTable(
        name,
        f"{folder}/_delta_log",
        f"its log cannot be read{what} ({why})",
        "Bring back the files of the log from a copy of the store, or read an older commit. A table that is "
        "made of a log, as a history, `rebuild()` makes anew.",
    )


# What others did -------------------------------------------------------------------------------------------


class ForeignCommits(NamedTuple):
    """What others did to a Delta table behind a version, until the next commit of ours."""

    kept: int
    """The last version to which they came without a change of rows."""
    foreign: ForeignChange | None = None
    """Who has changed some."""
    mark: int = -1
    """Of the commit of ours; -1 if there is none."""


def upkeep_of_others(location: Location, table: Table) -> ForeignCommits:
    """Find what others did to a Delta table behind the version at which it is."""
    assert table.version is not None
    kept = table.version
    for version, actions in entries_after(location, table.folder, kept):
        if (mark := commit_mark(actions)) is not None:
            return ForeignCommits(kept, mark=mark)
        if is_foreign_change(location, table.folder, version, actions):
            return ForeignCommits(kept, describe_change(table.name, version, actions))
        if not _is_ours(actions):
            kept = version
    return ForeignCommits(kept)


def foreign_change(location: Location, plan: Plan) -> ForeignChange | None:
    """The first change of rows or columns that others have made to a Delta table since the base of a plan."""
    base = -1 if plan.base is None else plan.base
    for version, actions in entries_after(location, plan.after.folder, base):
        if is_foreign_change(location, plan.after.folder, version, actions):
            return describe_change(plan.after.name, version, actions)
    return None


def is_foreign_change(location: Location, folder: str, version: int, actions: Actions) -> bool:
    """Tell whether somebody else has changed rows or columns of a table by the commit that made a version."""
    return not (
        _is_ours(actions) or (_keeps_rows(actions) and _keeps_columns(location, folder, version, actions))
    )


def _keeps_columns(location: Location, folder: str, version: int, actions: Actions) -> bool:
    """Tell whether a commit said something of a table, such as a comment, and not of its columns."""
    texts = [action["metaData"]["schemaString"] for action in actions if "metaData" in action]
    if not texts or version == 0:
        return not texts
    try:
        before = DeltaLog(location, folder, folder, version - 1).state.stored
    except DamagedTable:
        return False  # Nothing tells any more what the columns were.
    after = T.StructType.fromJson(json.loads(texts[-1]))
    return keeps_types(before, after) and keeps_types(after, before)


def _keeps_rows(actions: Actions) -> bool:
    """Tell whether a commit only wrote files anew, or did nothing to the rows of a table."""
    kinds = {"add", "remove", "commitInfo", "txn", "cdc", "domainMetadata", "metaData", "protocol"}
    return all(
        set(action) <= kinds
        and not any(
            content.get("dataChange", True) for kind, content in action.items() if kind in ("add", "remove")
        )
        and not (action.get("add") or {}).get("deletionVector")
        for action in actions
    )


def describe_change(
    table: str, version: int, actions: Actions, remedy: str = KEEP_OR_REBUILD
) -> ForeignChange:
    """Tell who has made a version, and how."""
    commit_info: dict[str, Any] = next(
        (action["commitInfo"] for action in actions if "commitInfo" in action), {}
    )
    author = ", ".join(str(commit_info[key]) for key in ("userName", "engineInfo") if commit_info.get(key))
    operation = str(commit_info.get("operation", "a commit"))
    return ForeignChange(table, version, operation, author or "somebody", remedy)


def _is_ours(actions: Actions) -> bool:
    return any(action["txn"]["appId"] in (APPLICATION, COLUMNS) for action in actions if "txn" in action)


def commit_mark(actions: Actions, name: str = APPLICATION) -> int | None:
    """The mark of a commit, or what it carries under another name; None if it is not ours."""
    transactions = (action["txn"] for action in actions if "txn" in action)
    return next(
        (transaction["version"] for transaction in transactions if transaction["appId"] == name), None
    )


def marked_version(location: Location, named: CommittedTable) -> int | None:
    """The version of a Delta table that a commit has made; None if there is none, not yet."""
    # Others may have come between the version at which it was to be and the one at which it is.
    entries = entries_after(location, named.folder, named.version - 1)
    return next((version for version, actions in entries if commit_mark(actions) == named.commit), None)


def entries_after(location: Location, folder: str, version: int) -> Iterator[tuple[int, Actions]]:
    """The versions behind one, and what each did."""
    while actions := read_actions(location, folder, version + 1):
        version += 1
        yield version, actions


def entries_until(location: Location, folder: str, version: int) -> Iterator[tuple[int, Actions]]:
    """The versions up to one, the last first, and what each did; as far back as the log goes."""
    while actions := read_actions(location, folder, version):
        yield version, actions
        version -= 1


def live_files(location: Location, folder: str, version: int) -> set[str]:
    """The files that a Delta table has at one of its versions, or had at a later one, below its folder."""
    paths = set(DeltaLog(location, folder, folder, version).state.files)
    for _, actions in entries_after(location, folder, version):
        paths.update(action["add"]["path"] for action in actions if "add" in action)
    return {unquote(path) for path in paths}


def read_actions(location: Location, folder: str, version: int) -> Actions:
    """
    Read what one commit to a Delta table did; nothing if there is none of that number.

    Raises:
        DamagedTable: It cannot be read, or says nothing: each commit says something.
    """
    path = location.path(f"{folder}/_delta_log/{version:020}.json")
    try:
        with location.file_system().open_input_file(path) as file:
            actions = [json.loads(line) for line in file.read().splitlines()]
        if not actions:
            raise ValueError(f"the entry {version:020}.json is empty")
    except FileNotFoundError:
        return []
    except ValueError as error:
        raise damaged_log(folder, folder, version, error) from error
    return actions


def log_entry(name: str) -> tuple[int, str] | None:
    """The version and the kind, such as `json`, of a file of a log by its name; None for any other file."""
    match = _ENTRY.fullmatch(name)
    return None if match is None else (int(match[1]), match[2])


Demand = tuple[str, str]
"""What a Delta table asks of its writers beyond what we do, and how ALTER TABLE takes it away."""


def require_writable(
    delta_log: DeltaLog,
    partition_by: Sequence[str] = (),
    *,
    removes_rows: bool = True,
    by_bounds: bool = True,
    instead: str = "",
) -> None:
    """
    Raise `ForeignChange` for a Delta table that asks more of its writers than we do, and name what it asks.

    Args:
        delta_log: The table.
        partition_by: The columns by which it was made to be partitioned.  Readers take the values of such
            columns from the log, and our commits name none of other columns.
        removes_rows: Whether rows are to go, which some tables do not allow.
        by_bounds: Whether all that its log says of files is needed.
        instead: What else than to take that away can be done.
    """
    properties = property_demands(delta_log.delta.metadata().configuration, removes_rows, by_bounds)
    demands = [*_log_demands(delta_log), *properties, *_column_demands(delta_log.state.stored)]
    found, wanted = (", ".join(names) or "nothing" for names in (delta_log.state.partition_by, partition_by))
    if found != wanted:
        remedy = (
            f"Nothing was written. The table is partitioned by {found}, and cdckit partitions it by "
            f"{wanted}: RESTORE it to a version from before that{instead}."
        )
    elif demands:
        remedy = describe_demands(demands, instead)
    else:
        return
    entries = entries_until(delta_log.location, delta_log.folder, delta_log.version)
    theirs = (entry for entry in entries if not _is_ours(entry[1]) and _says_something_of_table(entry[1]))
    version, actions = next(theirs, (delta_log.version, []))
    raise describe_change(delta_log.name, version, actions, remedy)


def describe_demands(demands: Sequence[Demand], instead: str = "") -> str:
    """Say what a table asks, and the way on, as the remedy of a `ForeignChange`."""
    what = ", ".join(what for what, _ in demands)
    ways = "; ".join(f"ALTER TABLE ... {way}" for _, way in demands)
    return f"Nothing was written. cdckit keeps up no tables with {what}: take that away ({ways}){instead}."


def _says_something_of_table(actions: Actions) -> bool:
    return any("metaData" in action or "protocol" in action for action in actions)


def _log_demands(delta_log: DeltaLog) -> Iterator[Demand]:
    """List what the features of a table ask, and what lets its log forget."""
    protocol = delta_log.delta.protocol()
    needed = {*(protocol.reader_features or []), *(protocol.writer_features or [])}
    for feature in sorted(needed - _KNOWN - _IDLE):
        yield f"the feature {feature}", f"DROP FEATURE {feature}"
    # Tables of old name no features, but a version that has them all.
    if 4 < protocol.min_writer_version < 7:
        yield f"writers of version {protocol.min_writer_version}", "DROP FEATURE"
    if expiry := delta_log.delta.metadata().configuration.get(_EXPIRY):
        yield f"{_EXPIRY} = {expiry}", f"UNSET TBLPROPERTIES ('{_EXPIRY}')"


def property_demands(
    configuration: Mapping[str, str], removes_rows: bool = True, by_bounds: bool = False
) -> Iterator[Demand]:
    """List what the properties of a table ask; see `require_writable`."""
    for key, value in sorted(configuration.items()):
        name = key.removeprefix(_CONSTRAINT)
        if name != key:
            yield f"the CHECK constraint {name} ({value})", f"DROP CONSTRAINT {name}"
        elif removes_rows and key == _APPEND_ONLY and value.lower() == "true":
            yield f"{key} = {value}", f"SET TBLPROPERTIES ('{key}' = 'false')"
        elif by_bounds and value != _BOUNDS.get(key, value):
            yield f"{key} = {value}", f"SET TBLPROPERTIES ('{key}' = '{_BOUNDS[key]}')"


def _column_demands(stored: T.StructType) -> Iterator[Demand]:
    for column in stored:
        if any(sign in column.json() for sign in _NOT_NULL):
            yield f"NOT NULL of the column {column.name}", f"ALTER COLUMN {column.name} DROP NOT NULL"


# Committing ------------------------------------------------------------------------------------------------


def carry_out(location: Location, plan: Plan, commit: int, head: DeltaLog | None = None) -> bool:
    """
    Bring a Delta table to where *plan*, of the store's *commit*, leads; nothing is done if it is there.

    Whoever finds a plan may carry it out, several at once too.  False if others have changed rows since its
    base: then their change stays, and the plan is read in its place until somebody decides.
    """
    after = plan.after

    def attempt() -> bool | None:
        nonlocal head
        if head is None and location.has_log(after.folder):
            head = DeltaLog(location, after.name, after.folder)
        if head is None:
            adds = [file.add(data_change=path not in plan.same_rows) for path, file in after.files.items()]
            return create(location, after, adds, commit_properties(commit)) or None
        now = head.newest()
        if head.mark >= commit:
            return True
        if foreign_change(location, plan) is not None:
            return False
        require_writable(head, after.partition_by, removes_rows=plan.removes_rows)
        is_ready = _make_ready(head, after)
        return (is_ready and _commit(head, _actions(location, plan, now), after, commit)) or None

    return first_answer(location.delta(after.folder), attempt)


def create(location: Location, table: Table, adds: Sequence[AddAction], carried: CommitProperties) -> bool:
    """Make a Delta table; False if another writer was faster."""
    location.make_folder(table.folder)
    try:
        create_table_with_add_actions(
            location.delta(table.folder),
            delta_schema(table.stored),
            list(adds),
            mode="error",
            partition_by=list(table.partition_by),
            name=table.name,
            configuration=_LOG,
            storage_options=location.options or None,
            commit_properties=carried,
            post_commithook_properties=NO_HOOK,
        )
    except DeltaError:
        if not location.has_log(table.folder):
            raise
        return False
    return True


def _actions(location: Location, plan: Plan, now: Table) -> list[AddAction | RemoveAction]:
    """List what brings a table from where it is *now* to where the plan leads."""
    adds, removes = plan.after.files, plan.remove
    if not removes.keys() <= now.files.keys():
        # Others have put files together that the plan removes: theirs go, with the rows that are in them.
        adds = plan.onto(DeltaLog(location, now.name, now.folder, plan.base).state).files
        removes = {path: file for path, file in now.files.items() if path not in adds}
    news, outdated = plan.after.files.keys() - plan.same_rows, plan.remove.keys() - plan.same_rows
    new_files = (file for path, file in adds.items() if path not in now.files)
    added = [file.add(data_change=file.path in news) for file in new_files]
    return [*added, *(file.remove(data_change=path in outdated) for path, file in removes.items())]


def _make_ready(head: DeltaLog, after: Table) -> bool:
    """Let a table have the columns that are to come to it, in a commit of its own; False to look again."""
    if add_features(head, after.stored):
        return False
    more = missing_columns(head.state.stored, after.stored)
    if more:
        fields = delta_schema(more).fields
        _alter(head, lambda how: head.delta.alter.add_columns(fields, **how))
    return not more


def add_features(head: DeltaLog, stored: T.StructType) -> bool:
    """Let a table have what such columns need, in a commit of its own; whether that was to be done."""
    # The one type that not every reader of Delta knows.
    feature, features = TableFeatures.TimestampWithoutTimezone, head.delta.protocol().reader_features or []
    if "timestamp_ntz" not in stored.json() or "timestampNtz" in features:
        return False
    _alter(
        head, lambda how: head.delta.alter.add_feature(feature, allow_protocol_versions_increase=True, **how)
    )
    return True


def overtake_others(location: Location, folder: str) -> None:
    """
    Let nobody commit to a Delta table what was begun before this.

    Of two transactions that run at once Delta fails the one that has not seen a change of the table's
    properties.  This changes none.
    """

    def attempt() -> bool | None:
        head = DeltaLog(location, folder, folder)
        return _alter(head, lambda how: head.delta.alter.set_table_properties({}, **how)) or None

    first_answer(location.delta(folder), attempt)


def _alter(head: DeltaLog, change: Callable[[dict[str, Any]], None]) -> bool:
    """Make a change that makes a table ready; False if another writer was faster."""
    before, carried = head.version, commit_properties(0, application=COLUMNS)
    try:
        change({"commit_properties": carried, "post_commithook_properties": NO_HOOK})
    except DeltaError:
        if head.newest().version == before:
            raise
        return False
    return True


def missing_columns(before: T.StructType, after: T.StructType) -> T.StructType | None:
    """
    The columns of *after* that *before* does not have, or not all of; None if its own do not stay.

    A table made anew may have new ones in the middle; those that come to a Delta table come to its end.
    """
    if not keeps_types(before, after):
        return None
    types = {column.name: column.dataType for column in before}
    void = T.NullType()
    missing = (column for column in after if not keeps_types(column.dataType, types.get(column.name, void)))
    return T.StructType(list(missing))


def _commit(head: DeltaLog, actions: list[AddAction | RemoveAction], after: Table, commit: int) -> bool:
    """Commit the actions that bring a table to the state *after*; False if another writer was faster."""
    # Columns of other types come with other files for all rows: one commit takes out all that there is.
    is_append = missing_columns(head.state.stored, after.stored) == T.StructType()
    if is_append:
        return head.commit(actions, head.state.stored, commit_properties(commit))
    actions = [action for action in actions if isinstance(action, AddAction)]
    if after.files.keys() - {action.path for action in actions}:
        raise RuntimeError(f"Files of {after.name} would go with columns that stay: nothing was written.")
    return head.commit(actions, after.stored, commit_properties(commit), anew=True)


def keep_short(table: DeltaTable) -> None:
    """Write a checkpoint from time to time, so that whoever opens the table reads few files of its log."""
    if table.version() % _CHECKPOINT == 0:
        with suppress(Exception):  # Without it the table is opened more slowly, and is as right.
            table.create_checkpoint()


def commit_properties(
    mark: int,
    batch: tuple[str, int] | None = None,
    *,
    application: str = APPLICATION,
    more: Mapping[str, int] | None = None,
) -> CommitProperties:
    """
    Make what a commit to a Delta table carries: its mark, the id and the digest of a batch, and what *more*.

    deltalake is not to try again by itself: of two that make one table at once, the later one would find it
    made, and add its own files and columns to it as version 1.
    """
    versions = {application: mark, **(more or {})}
    if batch is not None:
        id_, digest = batch
        last, names = (id_.number if isinstance(id_, StreamBatch) else id_), batch_names(id_)
        versions |= {names.digest: digest, names.check: batch_check(last, digest)}
        versions |= {names.number: last} if names.number and isinstance(last, int) else {}
    transactions = [Transaction(name, version, int(time.time() * 1000)) for name, version in versions.items()]
    return CommitProperties(max_commit_retries=0, app_transactions=transactions)


class BatchNames(NamedTuple):
    """Under which names a commit carries a batch."""

    digest: str
    check: str
    """Of the digest and what tells the batch, by which damage is told."""
    number: str | None = None
    """Of a stream, whose last batch alone is known."""


def batch_names(id_: str) -> BatchNames:
    """Under which names a commit carries a batch of this id."""
    if isinstance(id_, StreamBatch):
        number = f"{APPLICATION}.stream:{id_.stream}"
        return BatchNames(f"{APPLICATION}.digest:{id_.stream}", f"{APPLICATION}.check:{number}", number)
    digest = f"{APPLICATION}:{id_}"
    return BatchNames(digest, f"{APPLICATION}.check:{digest}")


def batch_check(id_: str | int, digest: int) -> int:
    """A digest of the id of a batch, or of its number in a stream, and of that of its content."""
    text = f"{id_} {digest}".encode("utf-8", "surrogatepass")
    return to_signed(int.from_bytes(hashlib.blake2b(text, digest_size=8).digest()))


Answer = TypeVar("Answer")


def first_answer(place: str, attempt: Callable[[], Answer | None]) -> Answer:
    """
    Call *attempt* until it answers, with waits that grow as long as its answer is None.

    Raises:
        StoreIsBusy: It was None each time, since other writers at the *place* were faster.
    """
    for number in range(_TRIES):
        if (answer := attempt()) is not None:
            return answer
        # Longer and longer, and of no two writers the same.
        time.sleep(random.uniform(0, min(1.0, 0.01 * 2**number)))
    raise StoreIsBusy(place, _TRIES)


def delta_schema(stored: T.StructType) -> Schema:
    """Columns as deltalake has them."""
    return Schema.from_json(stored.json())
