"""Two transactions from one commit: disjoint work lands twice, overlapping work is done again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Barrier, Event, Thread

import pyarrow as pa
import pytest

import cdckit.store.store as store_module
from cdckit.store import BatchIdReused, ConflictingCommit, Store, StoreIsBusy, Transaction
from cdckit.store.commits import CLAIM
from support.store_numbers import add, held, numbers

PARTED = pa.table({"part": ["a", "b"], "n": [1, 2]})


def both(store: Store) -> tuple[Transaction, Transaction]:
    return store.begin(), store.begin()


def test_two_appends_to_one_table_both_land(store: Store) -> None:
    add(store, "log", 1)
    one, two = both(store)
    one.append("log", numbers(2))
    two.append("log", numbers(3))
    assert one.commit().version == 2
    assert two.commit().version == 3
    assert held(store, "log") == [1, 2, 3]
    assert held(store.snapshot(version=2), "log") == [1, 2]


def test_writes_to_different_tables_both_land(store: Store) -> None:
    add(store, "log", 1)
    one, two = both(store)
    one.replace("log", numbers(2))
    two.append("new", numbers(3))
    one.commit()
    two.commit()
    assert (held(store, "log"), held(store, "new")) == ([2], [3])


def read_all(transaction: Transaction) -> None:
    transaction.files("log")


def replace(transaction: Transaction) -> None:
    transaction.replace("log", numbers(9))


def swap_first(transaction: Transaction) -> None:
    transaction.swap("log", transaction.files("log")[:1], numbers(9))


def append(transaction: Transaction) -> None:
    transaction.append("log", numbers(9))


def drop(transaction: Transaction) -> None:
    transaction.drop("log")


def widen(transaction: Transaction) -> None:
    transaction.append("log", pa.table({"n": [9], "more": ["x"]}))


def note(transaction: Transaction) -> None:
    transaction.note("position", "9")


def make(transaction: Transaction) -> None:
    transaction.append("made", numbers(9))


CONFLICTS = [
    (append, read_all, None, "a table that was read"),
    (append, replace, (), "was read, made, replaced or dropped"),
    (replace, replace, (), "was read, made, replaced or dropped"),
    (append, drop, (), "was read, made, replaced or dropped"),
    (drop, append, (), "made or dropped a table"),
    (swap_first, swap_first, (), "files that are replaced here"),
    (widen, append, (), "the columns of a table"),
    (make, make, (), "was read, made, replaced or dropped"),
]


@pytest.mark.parametrize(("first", "second", "reads", "message"), CONFLICTS)
def test_overlapping_work_is_refused(
    store: Store,
    first: Callable[[Transaction], None],
    second: Callable[[Transaction], None],
    reads: Iterable[str] | None,
    message: str,
) -> None:
    add(store, "log", 1)
    one, two = both(store)
    first(one)
    second(two)
    two.note("mine", "x")
    one.commit()
    now = store.snapshot()
    with pytest.raises(ConflictingCommit, match=message) as refused:
        two.commit(reads=reads)
    assert (refused.value.base, refused.value.found) == (1, 2)
    # What was refused has changed nothing.
    assert store.snapshot().version == now.version
    for name in now.names():
        assert store.snapshot().arrow(name).equals(now.arrow(name))


def test_one_note_with_two_values_is_a_conflict(store: Store) -> None:
    one, two = both(store)
    one.note("position", "1")
    note(two)
    one.commit()
    with pytest.raises(ConflictingCommit, match="noted something else as 'position'"):
        two.commit()


def test_the_files_of_other_partitions_may_change(store: Store) -> None:
    """Both have read and replaced one partition only, and said so."""
    with store.begin() as transaction:
        transaction.append("log", PARTED, partition_by=["part"])
        transaction.commit()
    writers = both(store)
    for part, writer in zip("ab", writers, strict=True):
        where = {"part": {part}}
        writer.swap("log", writer.files("log", where), pa.table({"part": [part], "n": [10]}))
        writer.commit(reads=[("log", where)])
    assert store.snapshot().arrow("log").column("n").to_pylist() == [10, 10]
    one, two = both(store)
    one.append("log", pa.table({"part": ["a"], "n": [11]}))
    one.commit(reads=())
    two.append("log", pa.table({"part": ["b"], "n": [12]}))
    with pytest.raises(ConflictingCommit, match="a part of a table that was read"):
        two.commit(reads=[("log", {"part": {"a", "b"}})])


def test_a_batch_is_committed_once(store: Store) -> None:
    one, two = both(store)
    for each in (one, two):
        each.append("log", numbers(1))
    first = one.commit(batch="monday", digest=-7)
    second = two.commit(batch="monday", digest=-7)
    assert (first.version, first.repeated, second.version, second.repeated) == (1, False, 1, True)
    assert held(store, "log") == [1]
    assert store.batch("monday") == -7
    assert store.batch("tuesday") is None
    with store.begin() as transaction:
        transaction.append("log", numbers(2))
        with pytest.raises(BatchIdReused, match="digest -7; now its digest is 8"):
            transaction.commit(batch="monday", digest=8)
    assert held(store, "log") == [1]


def test_many_threads_lose_and_double_nothing(store: Store, place: Path) -> None:
    """Each of four writers appends five numbers to the one log, and to a table of its own."""

    def write(writer: int) -> None:
        mine = Store(None, place)
        for number in range(5):
            with mine.begin() as transaction:
                transaction.append("log", numbers(5 * writer + number))
                transaction.append(f"own{writer}", numbers(number))
                transaction.commit(batch=f"{writer}.{number}", reads=())

    add(store, "log", 99)
    threads = [Thread(target=write, args=[writer]) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert held(store, "log") == [*range(20), 99]
    for writer in range(4):
        assert held(store, f"own{writer}") == list(range(5))
    assert store.snapshot().version == 21


@pytest.mark.parametrize("number", range(3))
def test_many_writers_begin_one_store_at_once(place: Path, number: int) -> None:
    """Each makes the store, and the one table, if it is not there: one of them does, the others add to it."""
    together, failed = Barrier(4), list[BaseException]()

    def write(writer: int) -> None:
        together.wait()
        try:
            for _ in range(20):
                with Store(None, place).begin() as transaction:
                    transaction.append("log", numbers(writer))
                    try:
                        transaction.commit(batch=f"{writer}", reads=())
                        return
                    except ConflictingCommit:
                        continue
        except BaseException as error:
            failed.append(error)

    threads = [Thread(target=write, args=[writer]) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert held(Store(None, place), "log") == [0, 1, 2, 3]
    assert Store(None, place).snapshot().version == 4


def test_work_that_reads_all_ends_while_others_write_all_the_time(store: Store, place: Path) -> None:
    """Once it was overtaken, others wait; whoever was on their way then may overtake it once more."""
    add(store, "log", 0)
    came, stopped, tries = Event(), Event(), list[int]()

    def write() -> None:
        def one_more(transaction: Transaction) -> None:
            transaction.append("log", numbers(1))
            transaction.commit()

        while not stopped.is_set():
            Store(None, place).atomically(one_more)
            came.set()

    def replace_all(transaction: Transaction) -> int:
        tries.append(1)
        found = len(held(transaction.base, "log"))
        came.clear()
        came.wait(1)
        transaction.replace("log", numbers(*range(100, 100 + found)))
        transaction.commit()
        return found

    writer = Thread(target=write)
    writer.start()
    try:
        found = store.atomically(replace_all, alone=True)
        came.clear()
        assert came.wait(30)  # the writer goes on
    finally:
        stopped.set()
        writer.join()
    assert 2 <= len(tries) <= 3
    rows = held(store, "log")
    assert sum(each >= 100 for each in rows) == found < len(rows)
    assert CLAIM not in store.snapshot().notes


def test_a_claim_that_nobody_could_note_or_take_back_is_no_failure(
    store: Store, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has landed has landed, however busy the store is afterwards."""
    add(store, "log", 1)
    tries = list[int]()

    def note(*_: object) -> None:
        raise StoreIsBusy("log", 1)

    def replace_all(transaction: Transaction) -> None:
        tries.append(1)
        held(transaction.base, "log")
        if len(tries) == 1:
            add(Store(None, place), "log", 2)
        transaction.replace("log", numbers(3))
        transaction.commit()

    monkeypatch.setattr(Transaction, "note", note)
    store.atomically(replace_all, alone=True)
    assert (len(tries), held(store, "log")) == (2, [3])


def test_a_claim_of_one_that_has_died_ends(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "_PATIENCE", 0.3)
    add(store, "log", 1)
    with store.begin() as transaction:
        transaction.note(CLAIM, "whoever 3")
        transaction.commit()

    def append_another(transaction: Transaction) -> None:
        transaction.append("log", numbers(2))
        transaction.commit()

    store.atomically(append_another)
    assert held(store, "log") == [1, 2]
    assert CLAIM not in store.snapshot().notes


def test_a_folder_without_a_log_is_no_damage(place: Path) -> None:
    """The first writer died, or is still on its way, between making the folder and making the log."""
    (place / "commits" / "_delta_log").mkdir(parents=True)
    assert Store(None, place).snapshot().names() == []
    assert add(Store(None, place), "log", 1) == 1
