"""Whether a transaction can land on a commit that came after the one from which it began."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cdckit.errors import InvalidArgument
from cdckit.store.errors import ConflictingCommit
from cdckit.store.files import File
from cdckit.store.log import Plan, Table
from cdckit.store.names import true_name
from cdckit.store.snapshot import Snapshot

Scope = str | tuple[str, Mapping[str, Collection[Any]]]
"""
What a transaction has read: a table, or the part of it where columns by which it is partitioned have
certain values.
"""


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
    """

    before: Table | None
    after: Table | None
    rewritten: bool = False
    same_rows: frozenset[str] = frozenset()
    over_others: bool = False

    def is_none(self) -> bool:
        """Whether nothing is changed."""
        return self.before == self.after

    def removed(self) -> set[str]:
        """The files that were there and are no longer."""
        kept = set() if self.after is None else set(self.after.files)
        return set() if self.before is None else set(self.before.files) - kept

    def onto(self, now: Table | None) -> Table | None:
        """The state that the change makes of the table as it stands *now*."""
        if self.after is None or now is None or self.before is None or self.after.folder != now.folder:
            return self.after
        if self.rewritten:
            return replace(self.after, version=now.version)
        removed = self.removed()
        files = {path: one for path, one in now.files.items() if path not in removed}
        added = {path: one for path, one in self.after.files.items() if path not in self.before.files}
        return replace(self.after, version=now.version, files={**files, **added})

    def plan(self, now: Table | None) -> Plan | None:
        """What it does to the Delta table, which stands as *now*; None if it drops the table."""
        after = self.onto(now)
        if after is None:
            return None
        if now is None or now.folder != after.folder:
            return Plan(None, after, {}, self.same_rows)
        added = {path: one for path, one in after.files.items() if path not in now.files}
        removed = {path: one for path, one in now.files.items() if path not in after.files}
        return Plan(now.version, after.with_files(added), removed, self.same_rows)


@dataclass(frozen=True)
class Reads:
    """What must not have changed: whole tables, and parts of tables, by name."""

    whole: frozenset[str] = frozenset()
    parts: Mapping[str, list[Mapping[str, Collection[Any]]]] = field(default_factory=dict)


def reads_of(scopes: Iterable[Scope]) -> Reads:
    """The same, sorted out; raises `InvalidArgument`."""
    whole: set[str] = set()
    parts: dict[str, list[Mapping[str, Collection[Any]]]] = {}
    for scope in scopes:
        if isinstance(scope, str):
            whole.add(scope)
        elif isinstance(scope, tuple) and len(scope) == 2 and isinstance(scope[1], Mapping):
            parts.setdefault(scope[0], []).append(scope[1])
        else:
            raise InvalidArgument(
                "commit", "reads", "table names, or pairs of one and partition values", scope
            )
    return Reads(frozenset(whole), parts)


def require_no_conflict(changes: Mapping[str, Change], reads: Reads, then: Snapshot, now: Snapshot) -> None:
    """
    Raise `ConflictingCommit` where others have changed what the transaction goes by.

    That is: a table that it read, replaced, dropped or made; the part of one that it said it read; a
    file that it removes; the columns of a table that it writes.  Rows that others appended to a table to
    which it only appends are no conflict.

    Args:
        changes: What the transaction does, by table.
        reads: What it has read.
        then: The tables at the commit from which it began.
        now: Those at the newest one.
    """

    def conflict(name: str, because: str) -> ConflictingCommit:
        return ConflictingCommit([name], then.version or 0, now.version or 0, because)

    for name in sorted({*changes, *reads.whole, *reads.parts}):
        is_unread = name not in changes or changes[name].before is None
        if is_unread and then.named.get(name) == now.named.get(name):
            continue  # Perhaps it could not be read.
        before, after = (each.table(name) if each.has(name) else None for each in (then, now))
        if before is after or (before is not None and before.is_like(after)):
            continue
        change = changes.get(name)
        if name in reads.whole or (change and (change.rewritten or change.before is None)):
            raise conflict(name, "it has changed a table that was read, made, replaced or dropped")
        if before is None or after is None or before.folder != after.folder:
            raise conflict(name, "it has made or dropped a table that is used here")
        if change and before.stored != after.stored:
            raise conflict(name, "it has changed the columns of a table that is written here")
        gone = set(before.files) - set(after.files)
        if change and gone & change.removed():
            raise conflict(name, "it has replaced files that are replaced here")
        touched = [before.files[path] for path in gone]
        touched += [after.files[path] for path in set(after.files) - set(before.files)]
        names = {true_name(one): one.name for one in after.stored}
        for part in reads.parts.get(name, []):
            where = {names.get(column, column): values for column, values in part.items()}
            if any(_is_within(one, where) for one in touched):
                raise conflict(name, "it has changed a part of a table that was read")


def _is_within(one: File, where: Mapping[str, Collection[Any]]) -> bool:
    return all(
        column not in one.partition or one.partition[column] in values for column, values in where.items()
    )
