"""A writer that ends at any step leaves nothing that is seen, and nothing that is in the way."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake.exceptions import CommitFailedError
from store_numbers import add, held, numbers

from cdckit.store import Store, commits, landing, log, writing


class Died(BaseException):
    """The end of a writer, at a certain step."""


STEPS = [
    (False, writing._OpenFile, "close", 0),  # a file that is begun
    (False, landing, "begun", 0),  # all files, no log
    (False, commits, "_write", 0),  # a file of the table of commits, before there is such a table
    (False, log, "create", 0),  # the table of commits, before a first table
    (False, log, "create", 1),  # one table of two
    (False, commits.Commits, "add", 0),  # all tables, no commit
    (False, commits, "_write", 1),
    (True, writing._OpenFile, "close", 1),
    (True, commits.Commits, "newest", 0),
    (True, log, "reach", 0),
    (True, log, "_commit", 1),  # one table of two
    (True, commits.Commits, "add", 0),
    (True, commits, "_write", 0),  # all tables, and the file of a commit, before that is made
]


@pytest.mark.parametrize(("exists", "where", "what", "after"), STEPS)
def test_a_writer_dies(
    store: Store,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    exists: bool,
    where: Any,
    what: str,
    after: int,
) -> None:
    """At a step, having taken it *after* times; *exists* is whether the tables are there already."""
    if exists:
        add(store, "log", 1)
        add(store, "history", 1)
    dies_at(monkeypatch, where, what, after)
    with pytest.raises(Died):
        write_both(store, 5)
    monkeypatch.undo()
    other = Store(None, place)
    assert other.snapshot().version in ((2,) if exists else (None, 0))
    if exists:
        assert (held(other, "log"), held(other, "history")) == ([1], [1])
    # The next one is not hindered, and nothing of the dead one comes back.
    write_both(other, 6)
    expected = [1, 6] if exists else [6]
    assert (held(store, "log"), held(store, "history")) == (expected, [6])
    write_both(other, 7)
    assert (held(store, "log"), held(store, "history")) == ([*expected, 7], [7])


def write_both(store: Store, number: int) -> None:
    """Append to one table and replace another."""
    with store.begin() as running:
        running.append("log", numbers(number))
        running.replace("history", numbers(number))
        running.commit(batch=str(number))


def dies_at(monkeypatch: pytest.MonkeyPatch, where: Any, what: str, after: int) -> None:
    """Let a function end its writer when it is called for the next time after so many."""
    calls: list[str] = []
    real = getattr(where, what)

    def ends(*given: Any, **named: Any) -> Any:
        if len(calls) == after:
            raise Died
        calls.append(what)
        return real(*given, **named)

    monkeypatch.setattr(where, what, ends)


def test_a_writer_is_overtaken_at_every_step(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one writer is between two steps, another one goes through all of them."""
    add(store, "log", 0)
    for number, (where, what) in enumerate(
        [(commits.Commits, "newest"), (log, "reach"), (log, "_commit"), (commits.Commits, "add")], start=1
    ):
        real = getattr(where, what)
        calls: list[int] = []

        def overtaken(*given: Any, real: Any = real, calls: list[int] = calls, **named: Any) -> Any:
            calls.append(1)
            if len(calls) == 1:
                add(store, "log", 100 + number)  # noqa: B023 - it is called within the loop
            return real(*given, **named)

        monkeypatch.setattr(where, what, overtaken)
        add(store, "log", number)
        monkeypatch.undo()
        assert held(store, "log") == [*range(number + 1), *range(101, 101 + number)]


@pytest.mark.parametrize("answer", [CommitFailedError("no answer"), OSError("connection reset")])
def test_a_commit_whose_answer_was_lost_is_found(
    store: Store, monkeypatch: pytest.MonkeyPatch, answer: Exception
) -> None:
    add(store, "log", 1)
    real = commits.DeltaTable.create_write_transaction

    def lost(*given: Any, **named: Any) -> None:
        real(*given, **named)
        raise answer

    monkeypatch.setattr(commits.DeltaTable, "create_write_transaction", lost)
    add(store, "log", 2)
    monkeypatch.undo()
    assert held(store, "log") == [1, 2]
    assert store.snapshot().version == 2


LOOP = """
import sys
import pyarrow as pa
from cdckit.store import Store
store = Store(None, sys.argv[1])
for number in range(int(sys.argv[2]), 10**6):
    with store.begin() as tx:
        tx.append("log", pa.table({"n": [number]}))
        tx.replace("last", pa.table({"n": [number]}))
        tx.commit(batch=str(number))
"""


def test_kill_9_in_a_loop_of_commits(store: Store, place: Path) -> None:
    """After each kill the two tables agree, and the next process goes on from them."""
    chance = random.Random(13)
    for _ in range(3):
        done = held(store, "last")[0] + 1 if store.snapshot().has("last") else 0
        with subprocess.Popen([sys.executable, "-c", LOOP, str(place), str(done)]) as process:
            try:
                while not store.snapshot().has("last") or held(store, "last")[0] < done + 2:
                    assert process.poll() is None
                    time.sleep(0.01)
                time.sleep(chance.uniform(0, 0.2))
            finally:
                process.kill()
        [last] = held(store, "last")
        assert held(store, "log") == list(range(last + 1))
        assert store.batch(str(last)) == 0
        assert store.batch(str(last + 1)) is None
    assert isinstance(store.snapshot().arrow("log"), pa.Table)
