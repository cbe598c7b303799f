"""What other programs do to a Delta table: what changes no rows is kept, what does is told by who did it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pyspark.sql import types as T

from cdckit.store import delta_log
from cdckit.store.columns import keeps_types
from cdckit.store.delta_log import Actions, DeltaLog
from cdckit.store.errors import KEEP_OR_REBUILD, DamagedTable, ForeignChange
from cdckit.store.files import Table
from cdckit.store.locations import Location

_CONSTRAINT, _APPEND_ONLY = "delta.constraints.", "delta.appendOnly"

_EXPIRY = "delta.setTransactionRetentionDuration"
"""With it a log forgets the marks of commits and the ids of batches, which would be taken twice."""

_NOT_NULL = ('"nullable":false', '"delta.invariants"')

_KNOWN = {"appendOnly", "invariants", "timestampNtz", "changeDataFeed", "domainMetadata"}
"""The features of Delta tables that we keep to: of files that come and go whole, a change feed is told."""

_IDLE = {"variantType", "checkConstraints", "vacuumProtocolCheck"}
"""Those that are listed also where nothing is of them, or ask nothing of who writes rows."""


class ForeignCommits(NamedTuple):
    """What others did to a Delta table behind a version, until the next commit of ours."""

    kept: int
    """The last version to which they came without a change of rows."""
    foreign: ForeignChange | None = None
    """Who has changed rows."""
    mark: int = -1
    """The mark of that commit of ours; -1 if there is none."""


def upkeep_of_others(location: Location, table: Table) -> ForeignCommits:
    """Find what others did to a Delta table behind the version at which it is."""
    assert table.version is not None
    kept = table.version
    for version, actions in delta_log.entries_after(location, table.folder, kept):
        if (mark := delta_log.commit_mark(actions)) is not None:
            return ForeignCommits(kept, mark=mark)
        if is_foreign_change(location, table.folder, version, actions):
            return ForeignCommits(kept, describe_change(table.name, version, actions))
        if not delta_log.is_ours(actions):
            kept = version
    return ForeignCommits(kept)


def is_foreign_change(location: Location, folder: str, version: int, actions: Actions) -> bool:
    """Tell whether somebody else has changed rows or columns of a table by the commit that made a version."""
    return not (
        delta_log.is_ours(actions)
        or (_keeps_rows(actions) and _keeps_columns(location, folder, version, actions))
    )


def _keeps_columns(location: Location, folder: str, version: int, actions: Actions) -> bool:
    """Tell whether a commit said something of a table, such as a comment, and not of its columns."""
    texts = [action["metaData"]["schemaString"] for action in actions if "metaData" in action]
    if not texts or version == 0:
        return not texts
    try:
        before = delta_log.DeltaLog(location, folder, folder, version - 1).state.stored
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


# Demands --------------------------------------------------------------------------------------------------


Demand = tuple[str, str]
"""What a Delta table asks of its writers beyond what we do, and how ALTER TABLE takes it away."""


def require_writable(
    table_log: DeltaLog,
    partition_by: Sequence[str] = (),
    *,
    removes_rows: bool = True,
    by_bounds: bool = True,
    instead: str = "",
) -> None:
    """
    Raise `ForeignChange` for a Delta table that asks more of its writers than we do, and name what it asks.

    Args:
        table_log: The table.
        partition_by: The columns by which it was made to be partitioned.  Readers take the values of such
            columns from the log, and our commits name none of other columns.
        removes_rows: Whether rows are to go, which some tables do not allow.
        by_bounds: Whether all that its log says of files is needed.
        instead: What else than to take that away can be done.
    """
    properties = property_demands(table_log.delta.metadata().configuration, removes_rows, by_bounds)
    demands = [*_log_demands(table_log), *properties, *_column_demands(table_log.state.stored)]
    found, wanted = (", ".join(names) or "nothing" for names in (table_log.state.partition_by, partition_by))
    if found != wanted:
        remedy = (
            f"Nothing was written. The table is partitioned by {found}, and cdckit partitions it by "
            f"{wanted}: RESTORE it to a version from before that{instead}."
        )
    elif demands:
        remedy = describe_demands(demands, instead)
    else:
        return
    entries = delta_log.entries_until(table_log.location, table_log.folder, table_log.version)
    theirs = (
        entry for entry in entries if not delta_log.is_ours(entry[1]) and _says_something_of_table(entry[1])
    )
    version, actions = next(theirs, (table_log.version, []))
    raise describe_change(table_log.name, version, actions, remedy)


def describe_demands(demands: Sequence[Demand], instead: str) -> str:
    """Say what a table asks, and the way on, as the remedy of a `ForeignChange`."""
    what = ", ".join(what for what, _ in demands)
    ways = "; ".join(f"ALTER TABLE ... {way}" for _, way in demands)
    return f"Nothing was written. cdckit keeps up no tables with {what}: take that away ({ways}){instead}."


def _says_something_of_table(actions: Actions) -> bool:
    return any("metaData" in action or "protocol" in action for action in actions)


def _log_demands(table_log: DeltaLog) -> Iterator[Demand]:
    """List what the features of a table ask, and what lets its log forget."""
    protocol = table_log.delta.protocol()
    needed = {*(protocol.reader_features or []), *(protocol.writer_features or [])}
    for feature in sorted(needed - _KNOWN - _IDLE):
        yield f"the feature {feature}", f"DROP FEATURE {feature}"
    # Tables of old name no features, but a version that has them all.
    if 4 < protocol.min_writer_version < 7:
        yield f"writers of version {protocol.min_writer_version}", "DROP FEATURE"
    if expiry := table_log.delta.metadata().configuration.get(_EXPIRY):
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
        elif by_bounds and value != delta_log.BOUNDS.get(key, value):
            yield f"{key} = {value}", f"SET TBLPROPERTIES ('{key}' = '{delta_log.BOUNDS[key]}')"


def _column_demands(stored: T.StructType) -> Iterator[Demand]:
    for column in stored:
        if any(sign in column.json() for sign in _NOT_NULL):
            yield f"NOT NULL of the column {column.name}", f"ALTER COLUMN {column.name} DROP NOT NULL"
