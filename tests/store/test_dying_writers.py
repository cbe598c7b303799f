"""A writer that ends at any step leaves nothing that is seen, and nothing that is in the way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from cdckit.store import Store, commits, delta_log, table_plans, transaction, writing
from support.dying import Died, dies_at
from support.store_numbers import add, held, numbers


class Step(NamedTuple):
    """A step at which a writer dies, when it has taken it *after* times."""

    exists: bool
    """Whether the tables are there already."""
    is_seen: bool
    """Whether others then see what it wrote."""
    where: Any
    what: str
    after: int

    def name(self) -> str:
        return f"{self.what} {self.after} {'with' if self.exists else 'without'} tables"


Reader = Callable[[Path, str], list[int]]
"""Finds the numbers in a table at a place."""

STEPS = [
    Step(False, False, writing._OpenFile, "close", 0),  # a file that is begun
    Step(False, False, transaction, "load_or_begin", 0),  # all files, no log
    Step(False, False, commits, "_write", 0),  # a file of the table of commits, before there is such a table
    Step(False, False, commits.Commits, "add", 0),  # the table of commits, without this one
    Step(False, False, commits, "_write", 1),
    Step(False, True, table_plans, "carry_out", 0),  # the commit, no table
    Step(False, True, delta_log, "create", 2),  # the table of commits, and one table of two
    Step(True, False, writing._OpenFile, "close", 1),
    Step(True, False, commits.Commits, "newest", 0),
    Step(True, False, commits.Commits, "add", 0),
    Step(True, False, commits, "_write", 0),  # the file of a commit, before that is made
    Step(True, True, delta_log, "keep_short", 0),
    Step(True, True, table_plans, "carry_out", 0),
    Step(True, True, table_plans, "_commit", 0),
    Step(True, True, table_plans, "_commit", 1),  # one table of two
]


@pytest.mark.parametrize("step", STEPS, ids=Step.name)
def test_a_writer_dies(store: Store, place: Path, monkeypatch: pytest.MonkeyPatch, step: Step) -> None:
    require_all_or_nothing(store, place, monkeypatch, step, heads)


def require_all_or_nothing(
    store: Store, place: Path, monkeypatch: pytest.MonkeyPatch, step: Step, heads: Reader
) -> None:
    """The store, and who reads its Delta tables alone, see all of a commit or nothing."""
    exists, is_seen, where, what, after = step
    if exists:
        add(store, "log", 1)
        add(store, "history", 1)
    dies_at(monkeypatch, where, what, after)
    with pytest.raises(Died):
        write_both(store, 5)
    monkeypatch.undo()
    log_then = [1] * exists + [5] * is_seen
    history_then = [5] if is_seen else [1] * exists
    others = Store(None, place)
    if exists or is_seen:
        assert (held(others, "log"), held(others, "history")) == (log_then, history_then)
    else:
        assert others.snapshot().version in (None, 0)
    # Whoever reads the Delta tables alone finds what is committed, or what was committed before that.
    assert heads(place, "log") in ([1] * exists, log_then)
    assert heads(place, "history") in ([1] * exists, history_then)
    # The next one is not hindered, and what is committed stays.
    for number in (6, 7):
        write_both(others, number)
        log_then.append(number)
        assert (held(store, "log"), held(store, "history")) == (log_then, [number])
        assert (heads(place, "log"), heads(place, "history")) == (log_then, [number])


def with_polars(place: Path, name: str) -> list[int]:
    """As `heads`, by polars."""
    polars = pytest.importorskip("polars", reason="polars comes with the extra soak")
    folder = str(place / name)
    if not DeltaTable.is_deltatable(folder):
        return []
    return sorted(polars.scan_delta(folder).collect()["n"].to_list())


def with_duckdb(place: Path, name: str) -> list[int]:
    """As `heads`, by DuckDB's extension for Delta."""
    duckdb = pytest.importorskip("duckdb", reason="DuckDB comes with the extra dev")
    folder = str(place / name)
    if not DeltaTable.is_deltatable(folder):
        return []
    with duckdb.connect() as connection:
        try:
            connection.execute("INSTALL delta")
            connection.execute("LOAD delta")
        except duckdb.Error as error:
            pytest.skip(f"DuckDB's extension for Delta cannot be had here: {str(error).splitlines()[0]}")
        rows = connection.execute("SELECT n FROM delta_scan(?)", [folder]).fetchall()
    return sorted(row[0] for row in rows)


@pytest.mark.soak
@pytest.mark.parametrize("reader", [with_polars, with_duckdb], ids=lambda each: each.__name__)
@pytest.mark.parametrize("step", STEPS, ids=Step.name)
def test_other_readers_see_the_same_of_a_writer_that_dies(
    store: Store, place: Path, monkeypatch: pytest.MonkeyPatch, reader: Reader, step: Step
) -> None:
    require_all_or_nothing(store, place, monkeypatch, step, reader)


def heads(place: Path, name: str) -> list[int]:
    """The numbers that any reader of Delta tables finds, sorted; none where there is no table."""
    folder = str(place / name)
    if not DeltaTable.is_deltatable(folder):
        return []
    return sorted(DeltaTable(folder).to_pyarrow_table().column("n").to_pylist())


def write_both(store: Store, number: int) -> None:
    """Append to one table and replace another."""
    with store.begin() as running:
        running.append("log", numbers(number))
        running.replace("history", numbers(number))
        running.commit(batch=str(number))


def test_a_writer_is_overtaken_at_every_step(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one writer is between two steps, another one goes through all of them."""
    add(store, "log", 0)
    for number, (where, what) in enumerate(
        [
            (commits.Commits, "newest"),
            (commits.Commits, "add"),
            (table_plans, "carry_out"),
            (table_plans, "_commit"),
        ],
        start=1,
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
    real = DeltaTable.create_write_transaction

    def lost(*given: Any, **named: Any) -> None:
        real(*given, **named)
        raise answer

    monkeypatch.setattr(DeltaTable, "create_write_transaction", lost)
    add(store, "log", 2)
    monkeypatch.undo()
    assert held(store, "log") == [1, 2]
    assert store.snapshot().version == 2


@pytest.mark.parametrize(("where", "what"), [(table_plans, "carry_out"), (delta_log, "keep_short")])
def test_what_fails_after_a_commit_does_not_fail_it(
    store: Store, monkeypatch: pytest.MonkeyPatch, where: Any, what: str
) -> None:
    add(store, "log", 1)

    def full(*given: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(where, what, full)
    assert add(store, "log", 2) == 2
    monkeypatch.undo()
    assert held(store, "log") == [1, 2]
    assert add(store, "log", 3) == 3
    assert held(store, "log") == [1, 2, 3]
