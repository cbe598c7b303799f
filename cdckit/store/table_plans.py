"""
What a transaction does to one table (`Change`), a commit to its Delta table (`Plan`), and its state then.

Whoever finds a Delta table behind the commit brings it there; until then its state is what the plan says.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

from deltalake.transaction import AddAction, RemoveAction
from pyspark.sql import types as T

from cdckit.store import delta_log, foreign_changes
from cdckit.store.columns import keeps_types
from cdckit.store.delta_log import DeltaLog
from cdckit.store.errors import DamagedTable, ForeignChange
from cdckit.store.files import OUR_FILES, File, Table, to_json
from cdckit.store.locations import Location


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


@dataclass
class Change:
    """
    What a transaction does to one table.

    Args:
        before: As it was in the commit from which the transaction began; None if there was none.
        after: As the transaction sees it; None if it drops the table.
        rewritten: Whether the change is about the table as a whole: its rows were replaced,
            its types changed, or it was dropped.
        same_rows: The paths of files that came or went without a change of rows.
        over_others: Whether that stands also over what other programs have changed.
        touched: Whether its Delta table gets a version of its own, also where nothing changes.
    """

    before: Table | None
    after: Table | None
    rewritten: bool = False
    same_rows: frozenset[str] = frozenset()
    over_others: bool = False
    touched: bool = False

    @property
    def known(self) -> Mapping[str, File]:
        """The files that were there."""
        return {} if self.before is None else self.before.files

    @property
    def removed(self) -> set[str]:
        """The files that were there and are no longer."""
        return self.known.keys() - (set() if self.after is None else self.after.files.keys())

    def plan(self, now: Table | None) -> Plan | None:
        """Plan what it does to the Delta table, which stands as *now*; None if it drops the table."""
        after = self.after
        if after is None:
            return None
        if now is None or now.folder != after.folder:
            return Plan(None, after, {}, self.same_rows)
        # Of a table as a whole nothing stays that others have done to it meanwhile.
        files_before = now.files if self.rewritten or self.before is None else self.known
        added = [file for path, file in after.files.items() if path not in files_before]
        removed_paths = files_before.keys() - after.files.keys()
        removed = {path: file for path, file in now.files.items() if path in removed_paths}
        return Plan(now.version, after.with_files(added), removed, self.same_rows)

    def is_older_than(self, horizon: datetime, location: Location) -> bool:
        """Tell whether files that were written may be gone by a vacuum: by the clock of what keeps them."""
        if self.after is None:
            return False
        ours = filter(OUR_FILES.fullmatch, self.after.files.keys() - self.known.keys())
        times = (location.info(f"{self.after.folder}/{path}").mtime for path in ours)
        return any(time is None or time <= horizon for time in times)


# States ---------------------------------------------------------------------------------------------------


class State(NamedTuple):
    """A table in the state that a commit names."""

    table: Table
    log: DeltaLog | None = None
    """None where no version of the Delta table is in this state."""
    next_mark: int = -1
    """The mark of our next commit to it; -1 if there is none."""


def load_state(
    location: Location,
    name: str,
    named: CommittedTable,
    plan: Callable[[], Plan | None],
    kept: DeltaLog | None,
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
    table_log, damaged = _log_at(location, name, named, kept)
    if table_log is None or not _is_same(table_log.state, named):
        planned = plan()
        # A Delta table that others have changed is not in that state, and will not be.
        if planned is None or (table_log is not None and foreign_change(location, planned) is None):
            raise damaged
        after = _planned_state(location, name, named, planned)
        if after is None:
            raise damaged
        return State(after)
    kept_up, mark = _with_upkeep(location, table_log)
    if kept_up is not table_log and kept_up.state.rows != named.rows:
        raise damaged
    return State(kept_up.state, kept_up, mark)


def _log_at(
    location: Location, name: str, named: CommittedTable, kept: DeltaLog | None
) -> tuple[DeltaLog | None, DamagedTable]:
    """The log of a table at the version that a commit has made, None without one; and what is wrong then."""
    other = ValueError(f"it does not say what commit {named.commit} has written")
    damaged = delta_log.damaged_log(name, named.folder, named.version, other)
    if kept is not None and _is_at(kept, named):
        return kept, damaged
    table_log: DeltaLog | None = None
    try:
        table_log = delta_log.DeltaLog(location, name, named.folder, named.version)
    except DamagedTable as error:
        damaged = error  # It lags, or is damaged: what the plan says will tell.
    if table_log is None or table_log.mark != named.commit:
        version = marked_version(location, named)
        table_log = None if version is None else delta_log.DeltaLog(location, name, named.folder, version)
    return table_log, damaged


def _is_at(kept: DeltaLog, named: CommittedTable) -> bool:
    """Tell whether a log is in the state that a commit names; not where it cannot be brought there."""
    with suppress(DamagedTable):
        if kept.version < named.version:
            kept.newest()
        at_version = kept.version == named.version
        return at_version and kept.mark == named.commit and _is_same(kept.state, named)
    return False


def _with_upkeep(location: Location, base: DeltaLog) -> tuple[DeltaLog, int]:
    """The log with what others did to the table without a change of rows; and what is marked behind it."""
    others = foreign_changes.upkeep_of_others(location, base.state)
    if others.kept == base.version:
        return base, others.mark
    return delta_log.DeltaLog(location, base.name, base.folder, others.kept), others.mark


def _planned_state(location: Location, name: str, named: CommittedTable, plan: Plan) -> Table | None:
    """The state that a plan leads to, which nobody has carried out; None if it is not that of the commit."""
    if plan.base is None:
        return plan.onto(None)
    base = delta_log.DeltaLog(location, name, named.folder, plan.base)
    kept_up, _ = _with_upkeep(location, base)
    state = plan.onto((kept_up if plan.remove.keys() <= kept_up.state.files.keys() else base).state)
    is_as_committed = _is_same(state, named) if kept_up is base else state.rows == named.rows
    return state if is_as_committed else None


def _is_same(state: Table, named: CommittedTable) -> bool:
    return (len(state.files), state.rows, state.digest) == (named.files, named.rows, named.digest)


def foreign_change(location: Location, plan: Plan) -> ForeignChange | None:
    """The first change of rows or columns that others have made to a Delta table since the base of a plan."""
    base = -1 if plan.base is None else plan.base
    for version, actions in delta_log.entries_after(location, plan.after.folder, base):
        if foreign_changes.is_foreign_change(location, plan.after.folder, version, actions):
            return foreign_changes.describe_change(plan.after.name, version, actions)
    return None


def marked_version(location: Location, named: CommittedTable) -> int | None:
    """The version of a Delta table that a commit has made; None if there is none, not yet."""
    # Others may have come between the version at which it was to be and the one at which it is.
    entries = delta_log.entries_after(location, named.folder, named.version - 1)
    return next(
        (version for version, actions in entries if delta_log.commit_mark(actions) == named.commit), None
    )


# Carrying out ---------------------------------------------------------------------------------------------


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
            head = delta_log.DeltaLog(location, after.name, after.folder)
        if head is None:
            adds = [file.add(data_change=path not in plan.same_rows) for path, file in after.files.items()]
            return delta_log.create(location, after, adds, delta_log.commit_properties(commit)) or None
        now = head.newest()
        if head.mark >= commit:
            return True
        if foreign_change(location, plan) is not None:
            return False
        foreign_changes.require_writable(head, after.partition_by, removes_rows=plan.removes_rows)
        is_ready = _make_ready(head, after)
        return (is_ready and _commit(head, _actions(location, plan, now), after, commit)) or None

    return delta_log.first_answer(location.delta(after.folder), attempt)


def _actions(location: Location, plan: Plan, now: Table) -> list[AddAction | RemoveAction]:
    """List what brings a table from where it is *now* to where the plan leads."""
    adds, removes = plan.after.files, plan.remove
    if not removes.keys() <= now.files.keys():
        # Others have put files together that the plan removes: theirs go, with the rows that are in them.
        adds = plan.onto(delta_log.DeltaLog(location, now.name, now.folder, plan.base).state).files
        removes = {path: file for path, file in now.files.items() if path not in adds}
    news, outdated = plan.after.files.keys() - plan.same_rows, plan.remove.keys() - plan.same_rows
    new_files = (file for path, file in adds.items() if path not in now.files)
    added = [file.add(data_change=file.path in news) for file in new_files]
    return [*added, *(file.remove(data_change=path in outdated) for path, file in removes.items())]


def _make_ready(head: DeltaLog, after: Table) -> bool:
    """Let a table have the columns that are to come to it, in a commit of its own; False to look again."""
    if delta_log.add_features(head, after.stored):
        return False
    more = missing_columns(head.state.stored, after.stored)
    if more:
        fields = delta_log.delta_schema(more).fields
        delta_log.alter(head, lambda how: head.delta.alter.add_columns(fields, **how))
    return not more


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
        return head.commit(actions, head.state.stored, delta_log.commit_properties(commit))
    actions = [action for action in actions if isinstance(action, AddAction)]
    if after.files.keys() - {action.path for action in actions}:
        raise RuntimeError(f"Files of {after.name} would go with columns that stay: nothing was written.")
    return head.commit(actions, after.stored, delta_log.commit_properties(commit), anew=True)
