"""
Landing: how a transaction's writes come to be seen, all at once.

A commit goes in four steps.  What becomes of it when a writer dies or is overtaken is told after them.

1. *Files.*  Workers write files under names that nobody else has, where they stay.  No log names them:
   a writer that dies here leaves garbage that nobody sees, and `Store.vacuum` deletes.
2. *The newest commit is compared* with the one from which the transaction began.  Where others have
   changed what it read or removes, it ends with `ConflictingCommit`.  Each Delta table that it writes is
   looked at: one that lags behind the newest commit is brought up first; one in which another program has
   changed rows ends the transaction with `ForeignChange`, unless it is replaced as a whole.
3. *The commit* is one row in the table of commits, as its version n + 1 if n was the newest one in step 2.
   The row says what is to be done to each Delta table.  Of several writers exactly one can be version
   n + 1; another one goes back to step 2.  Before this step nothing is seen, after it everything.
4. *Each Delta table* that is written gets its commit, as the row says; several of them at once.  So a
   Delta table never says what is not committed, and nothing in it is ever taken back: other programs may
   read it at any moment.

A writer that dies after step 3 has committed.  Delta tables that it did not reach are older states: who
opens the store reads them as the row says, and the next writer to one of them, or `Store.vacuum`, brings it
up.  Several may do that at once, since each commit to a Delta table carries the number of its row.  Whatever
fails in step 4 therefore does not fail the commit.
A batch id is looked up in step 2, each time: two writers with one batch cannot both commit it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from cdckit.store import log
from cdckit.store.commits import Commit, Commits, begun, next_instant
from cdckit.store.conflicts import Change, Reads, require_no_conflict
from cdckit.store.errors import BatchIdReused, ConflictingCommit, StoreIsBusy
from cdckit.store.files import OUR_FILES, digest_of
from cdckit.store.log import Named, Plan, Table
from cdckit.store.snapshot import Snapshot

VACUUMED_UNTIL = "cdckit.vacuumed_until"
"""The note that says until which instant files that no commit named were deleted; and the vacuum's id."""

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
        used: The tables that were read.
        changes: What was done to each table.
        reads: What must not have changed since then.
        notes: What was noted, by key; None for what is to be forgotten.
    """

    def __init__(
        self,
        base: Snapshot,
        commits: Commits | None,
        used: Set[str],
        changes: Mapping[str, Change],
        reads: Reads,
        notes: Mapping[str, str | None],
    ) -> None:
        self._base, self._now, self._commits = base, base, commits
        self._used, self._changes, self._reads, self._notes = used, changes, reads, notes
        self._heads: dict[str, Table] = {}

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
            self._now = self._base.at(newest, commits)
            self._bring_up(newest)
            self._require_no_conflict(newest)
            if not self._changes and not self._notes and batch is None:
                return Committed(self._base.version or 0)
            plans = {name: one.plan(self._heads.get(name)) for name, one in self._changes.items()}
            next_one = self._next(newest, plans, batch, digest)
            if commits.add(next_one):
                self._carry_out(next_one.version, plans)
                return Committed(next_one.version)
            time.sleep(wait)
        raise StoreIsBusy(location.root, log.TRIES)

    def _bring_up(self, newest: Commit) -> None:
        """Let the Delta tables that are written be where the newest commit has them."""
        self._heads = {}
        for name in self._used & newest.tables.keys() - self._changes.keys():
            # What was read would be held against something that others have changed.
            if (foreign := self._now.change_by_others(name)) is not None:
                raise foreign.of(name)
        for name, change in self._changes.items():
            if change.over_others and change.before is None:
                continue  # What cannot be read is made anew elsewhere.
            if name in newest.tables:
                foreign = self._now.bring_up(name)
                if foreign is not None and not change.over_others:
                    raise foreign.of(name)
                self._heads[name] = self._now.table(name) if foreign is None else self._now.head(name)

    def _require_no_conflict(self, newest: Commit) -> None:
        base = self._base.version or 0
        until = newest.notes.get(VACUUMED_UNTIL)
        if until is not None and until != self._base.notes.get(VACUUMED_UNTIL):
            horizon = datetime.fromisoformat(until.split()[0])
            old = [name for name, one in self._changes.items() if self._is_old(one, horizon)]
            if old:
                because = "its files may have been deleted by `vacuum`, which keeps younger ones only"
                raise ConflictingCommit(old, base, newest.version, because)
        require_no_conflict(self._changes, self._reads, self._base, self._now)
        for key, value in self._notes.items():
            found = newest.notes.get(key)
            if found not in (value, self._base.notes.get(key)):
                raise ConflictingCommit([], base, newest.version, f"it has noted something else as {key!r}")

    def _is_old(self, change: Change, horizon: datetime) -> bool:
        """Whether files that were written for a table may be gone: by the clock of what keeps them."""
        after = change.after
        if after is None:
            return False
        before = {} if change.before is None else change.before.files
        ours = filter(OUR_FILES.fullmatch, after.files.keys() - before.keys())
        times = (self._base.location.modified(f"{after.folder}/{path}") for path in ours)
        return any(time is None or time <= horizon for time in times)

    def _next(
        self, newest: Commit, plans: Mapping[str, Plan | None], batch: str | None, digest: int
    ) -> Commit:
        number, tables = newest.version + 1, dict(newest.tables)
        for name, plan in plans.items():
            if plan is None:
                tables.pop(name, None)
            else:
                tables[name] = _named(plan, self._changes[name].onto(self._heads.get(name)), number)
        return Commit(
            version=number,
            timestamp=next_instant(newest.timestamp),
            tables=tables,
            notes=self._noted(newest),
            plans={name: json.dumps(plan.to_json()) for name, plan in plans.items() if plan is not None},
            batch=batch,
            digest=None if batch is None else digest,
        )

    def _carry_out(self, commit: int, plans: Mapping[str, Plan | None]) -> None:
        def reach(name: str, plan: Plan) -> None:
            with suppress(Exception):  # The commit has landed: who comes next does what is left.
                log.carry_out(self._base.location, plan, commit, self._now.log_of(name, plan))

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            tried = [pool.submit(reach, name, plan) for name, plan in plans.items() if plan is not None]
        for one in tried:
            one.result()

    def _noted(self, newest: Commit) -> dict[str, str]:
        found: dict[str, str | None] = {**newest.notes, **self._notes}
        return {key: value for key, value in found.items() if value is not None}


def _named(plan: Plan, after: Table | None, commit: int) -> Named:
    assert after is not None
    files = after.files.values()
    version = 0 if plan.base is None else plan.base + 1
    return Named(after.folder, version, commit, len(files), after.rows, digest_of(files))
