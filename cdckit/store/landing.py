"""
Landing: how a transaction's writes come to be seen, all at once.

A commit goes in five steps.  What becomes of it when a writer dies or is overtaken is told after them.

1. *Files.*  Workers write files under names that nobody else has, where they stay.  No log names them:
   a writer that dies here leaves garbage that nobody sees, and `Store.vacuum` deletes.
2. *The table of commits* is made if there is none, with commit 0, which has no tables.  So tables without
   a table of commits are a damaged store, never one whose first writer died.
3. *The newest commit is compared* with the one from which the transaction began.  Where others have
   changed what it read or removes, it ends with `ConflictingCommit`; else its changes are made to the
   tables as they stand now.
4. *Each Delta table* that is written gets a commit that brings it from whatever its head is to that
   state; several of them are made at once.  The head may be ahead of what the newest commit names: its
   writer died before step 5, or is between the two.  What that writer added is taken out, what it removed
   is put back, in the same commit as our own changes.  Readers go by versions that a commit names, so they
   see neither.  When all of these have ended, step 5 begins; if one of them has failed, it does not.
5. *The commit* is one row in the table of commits, as its version n + 1 if n was the newest one in step
   3.  Of several writers exactly one can be version n + 1.  Before this step nothing is seen, after it
   everything.

A writer that is overtaken at step 4 (another one commits to the same Delta table) sees that its own commit
was refused, or came after another, and makes it again from the new head.  One that is overtaken at step 5
goes back to step 3; that its own commit of step 4 may have been undone meanwhile is no matter, as step 4
begins from the head, whatever it is.  One that dies at step 4 or before step 5 has left heads that the
next writer to these tables brings right, and that nobody else looks at.  One that dies after step 5 has
committed.  If it does not know whether step 5 was done, because the answer was lost, it looks for the mark
that each of its commits carries.
A batch id is looked up in step 3, each time: two writers with one batch cannot both commit it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from cdckit.store import log
from cdckit.store.commits import Commit, Commits, begun, next_instant
from cdckit.store.conflicts import Change, Reads, require_no_conflict
from cdckit.store.errors import BatchIdReused, ConflictingCommit, StoreIsBusy
from cdckit.store.log import Table
from cdckit.store.snapshot import Snapshot

_AT_ONCE = 8
"""So many Delta tables are committed to at once: each waits for its storage most of the time."""


@dataclass(frozen=True)
class Committed:
    """
    What `Transaction.commit` did.

    Args:
        version: The commit by which everything is seen.
        repeated: Whether nothing was committed, because the batch was committed before.

    >>> from tempfile import TemporaryDirectory
    >>> import pyarrow as pa
    >>> from cdckit.store import Store
    >>> with TemporaryDirectory() as folder:
    ...     for _ in range(2):
    ...         with Store(None, folder).begin() as transaction:
    ...             _ = transaction.append("products", pa.table({"number": [1, 2]}))
    ...             transaction.commit(batch="monday")
    Committed(version=1, repeated=False)
    Committed(version=1, repeated=True)
    """

    version: int
    repeated: bool = False


class Landing:
    """
    The commit of one transaction.

    Args:
        base: The tables as they were when the transaction began.
        commits: The table of commits as it was then; None if there was none.
        changes: What was done to each table.
        reads: What must not have changed since then.
        notes: What was noted, by key; None for what is to be forgotten.
    """

    def __init__(
        self,
        base: Snapshot,
        commits: Commits | None,
        changes: Mapping[str, Change],
        reads: Reads,
        notes: Mapping[str, str | None],
    ) -> None:
        self._base, self._now, self._commits = base, base, commits
        self._changes, self._reads, self._notes = dict(changes), reads, notes
        self._heads: dict[str, log.Followed] = {}

    def commit(self, batch: str | None, digest: int) -> Committed:
        """Let the changes be seen; see `Transaction.commit`."""
        commits, location = self._commits, self._base.location
        for wait in log.waits():
            # It is there before any table is.
            commits = begun(location) if commits is None else commits.newest()
            if batch is not None:
                before = commits.digest(batch)
                if before is not None:
                    if before != digest:
                        raise BatchIdReused(batch, before, digest)
                    return Committed(commits.version, repeated=True)
            newest = commits.commit()
            assert newest is not None
            self._require_no_conflict(newest)
            if not self._changes and not self._notes and batch is None:
                return Committed(self._base.version or 0)
            next_one = Commit(
                version=newest.version + 1,
                tables=self._land(newest),
                timestamp=next_instant(newest.timestamp),
                notes=self._noted(newest),
                batch=batch,
                digest=None if batch is None else digest,
            )
            if commits.add(next_one):
                return Committed(next_one.version)
            time.sleep(wait)
        raise StoreIsBusy(location.root, log.TRIES)

    def _require_no_conflict(self, newest: Commit) -> None:
        base = self._base.version or 0
        if newest.version == base:
            return
        now = self._at(newest)
        require_no_conflict(
            self._changes,
            self._reads,
            base,
            newest.version,
            lambda name: _state_in(self._base, name),
            lambda name: _state_in(now, name),
        )
        for key, value in self._notes.items():
            found = newest.notes.get(key)
            if found not in (value, self._base.notes.get(key)):
                raise ConflictingCommit([], base, newest.version, f"it has noted something else as {key!r}")

    def _land(self, newest: Commit) -> dict[str, tuple[str, int]]:
        """Bring the Delta tables to their new states; the tables of the commit that will name them."""
        now, tables = self._at(newest), dict(newest.tables)
        targets: dict[str, Table] = {}
        for name, change in self._changes.items():
            target = change.onto(_state_in(now, name))
            if target is None:
                tables.pop(name, None)
            else:
                targets[name] = target
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            # The pool ends when all have ended: after an error, too, nothing of this goes on.
            reached = {
                name: pool.submit(self._reached, name, one, newest.version) for name, one in targets.items()
            }
        for name, one in reached.items():
            tables[name] = (targets[name].folder, one.result())
        return tables

    def _reached(self, name: str, target: Table, newest: int) -> int:
        """The version of the Delta table that is in the state *target*."""
        if target.version is not None:
            return log.reach(self._base.location, target, self._head(name, target))
        version = log.create(self._base.location, target, newest)
        # If another round is needed, the table is there.
        change = self._changes[name]
        self._changes[name] = replace(change, after=replace(target, version=version))
        return version

    def _at(self, newest: Commit) -> Snapshot:
        """The tables at the newest commit; looked up once for one commit."""
        if newest.version != self._now.version:
            self._now = self._base.at(newest)
        return self._now

    def _head(self, name: str, target: Table) -> log.Followed:
        if name not in self._heads:
            known = self._base.has(name) and self._base.table(name).folder == target.folder
            self._heads[name] = (
                self._base.followed(name) if known else log.Followed(self._base.location, name, target.folder)
            )
        return self._heads[name]

    def _noted(self, newest: Commit) -> dict[str, str]:
        found: dict[str, str | None] = {**newest.notes, **self._notes}
        return {key: value for key, value in found.items() if value is not None}


def _state_in(snapshot: Snapshot, name: str) -> Table | None:
    return snapshot.table(name) if snapshot.has(name) else None
