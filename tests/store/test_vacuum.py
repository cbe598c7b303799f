"""Files that nobody needs are deleted when that is asked for; all others stay."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import cdckit.store.store
from cdckit.errors import InvalidArgument
from cdckit.parts.arguments import StreamBatch
from cdckit.store import BatchIdReused, ConflictingCommit, DamagedTable, Store
from cdckit.store.locations import Location
from support.store_numbers import add, held, numbers

DAY = timedelta(days=1)


class Ahead(datetime):
    """A clock that is a year ahead."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Ahead:
        return super().now(tz) + 365 * DAY


def age(folder: Path, days: float) -> None:
    """Let every file look as if it had been written so long ago."""
    for path in folder.rglob("*"):
        then = time.time() - days * 86400
        os.utime(path, (then, then))


def replaced(store: Store, number: int) -> None:
    with store.begin() as transaction:
        transaction.replace("log", numbers(number))
        transaction.commit()


def test_scratch_that_cannot_be_deleted_does_not_undo_a_commit(
    spark: SparkSession, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(self: Location, path: str) -> None:
        raise OSError("no answer")

    monkeypatch.setattr(Location, "delete", refused)
    with Store(spark, place).begin() as transaction:
        transaction.append("log", transaction.scratch(spark.range(3).toDF("n")))
        assert transaction.commit().version == 1


def test_what_no_commit_of_the_retention_names_goes(store: Store, place: Path) -> None:
    for number in range(20):
        replaced(store, number)
    running = store.begin()
    running.append("log", numbers(99))
    age(place, 2)
    foreign = [
        place / "notes.txt",
        place / "log" / "mine.parquet",
        place / "log" / "part-00000-1234.parquet",
        place / "other" / f"cdc-{'0' * 32}.parquet",
    ]
    for path in foreign:
        path.parent.mkdir(exist_ok=True)
        path.write_text("foreign")
    age(place, 2)
    assert len(list((place / "log").glob("cdc-*"))) == 21
    assert store.vacuum(10 * DAY) == []
    # All commits are younger than a day, whatever the files look like, so only what no commit names goes.
    assert [path.split("/")[0] for path in store.vacuum(DAY)].count("log") == 1
    assert held(store.snapshot(version=3), "log") == [2]
    before = store.snapshot()
    gone = store.vacuum(timedelta(0))
    assert [path.split("/")[0] for path in gone].count("log") == 19
    assert held(before, "log") == [19]
    assert held(store, "log") == [19]
    store.check()
    assert [path.exists() for path in foreign] == [True] * 4
    assert [len(list((place / name).glob("cdc-*"))) for name in ("log", "other")] == [1, 1]
    with pytest.raises(
        InvalidArgument, match=r"^snapshot\(\) needs version to be .* or later, because of vacuum"
    ):
        store.snapshot(version=3)
    assert store.commits is not None
    add(store, "log", 20)
    assert held(store, "log") == [19, 20]


def test_a_file_that_is_gone_already_is_none_to_delete(
    store: Store, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else deletes the same files meanwhile."""
    for number in range(3):
        replaced(store, number)
    real = Location.delete

    def twice(self: Location, path: str) -> None:
        real(self, path)
        real(self, path)

    monkeypatch.setattr(Location, "delete", twice)
    assert [path.split("/")[0] for path in store.vacuum(timedelta(0))].count("log") == 2
    assert len(list((place / "log").glob("cdc-*"))) == 1
    store.check()


def test_young_files_of_a_writer_on_its_way_stay(store: Store) -> None:
    add(store, "log", 1)
    running = store.begin()
    running.append("log", numbers(2))
    assert store.vacuum() == []
    running.commit()
    store.check()
    assert held(store, "log") == [1, 2]


def test_a_writer_whose_files_may_be_gone_begins_again(store: Store) -> None:
    """It began before the instant until which files were deleted, and says so instead of naming them."""
    add(store, "log", 1)
    running = store.begin()
    running.append("log", numbers(2))
    assert len([path for path in store.vacuum(timedelta(0)) if path.startswith("log/")]) == 1
    with pytest.raises(ConflictingCommit, match="may have been deleted by `vacuum`"):
        running.commit()
    store.check(deep=True)
    assert add(store, "log", 3) == 3
    assert held(store, "log") == [1, 3]


def test_a_clock_that_was_ahead_hinders_nobody_who_comes_later(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A vacuum whose clock is a year ahead deletes files of who is on the way, and no later ones."""
    add(store, "log", 1)
    running = store.begin()
    running.append("log", numbers(2))
    with monkeypatch.context() as ahead:
        ahead.setattr(cdckit.store.store, "datetime", Ahead)
        store.vacuum()
    with pytest.raises(ConflictingCommit, match="may have been deleted by `vacuum`"):
        running.commit()
    assert add(store, "log", 3) == 3
    store.check(deep=True)


def test_files_of_dropped_tables_go(store: Store, place: Path) -> None:
    add(store, "log", 1)
    add(store, "kept", 1)
    with store.begin() as transaction:
        transaction.drop("log")
        transaction.commit()
    age(place, 2)
    assert [path for path in store.vacuum(timedelta(0)) if path.startswith("log/")] != []
    assert list((place / "log").glob("*.parquet")) == []
    assert held(store, "kept") == [1]


def entries(place: Path, table: str) -> list[str]:
    return sorted(path.name for path in (place / table / "_delta_log").iterdir())


@pytest.mark.parametrize("commits", [50, pytest.param(2_000, marks=pytest.mark.soak)])
def test_logs_are_as_long_as_what_is_kept(store: Store, place: Path, commits: int) -> None:
    """However many commits there were; of a stream the last batch is known, of other batches each one."""
    last = commits - 1
    for number in range(commits):
        with store.begin() as transaction:
            transaction.replace("log", numbers(number))
            transaction.commit(batch=StreamBatch("orders", number), digest=number + 5)
        if number % 40 == 39:
            assert len(store.vacuum(timedelta(0))) > 120
            assert len(entries(place, "log")) <= 22
            # From one checkpoint to the next, which may be there already.
            own = [name for name in entries(place, "commits") if "_" not in name]
            assert len([name for name in own if name.endswith(".json")]) <= 21
            assert len([name for name in own if name.endswith(".checkpoint.parquet")]) <= 2
    with store.begin() as transaction:
        transaction.append("log", numbers(last + 1))
        transaction.commit(batch="by hand", digest=3)
    age(place, 2)
    store.vacuum(timedelta(0))
    store.check(deep=True)
    assert held(store, "log") == [last, last + 1]
    assert (store.batch(StreamBatch("orders", last)), store.batch("by hand")) == (last + 5, 3)
    assert store.batch(StreamBatch("orders", last + 1)) is None
    with (
        store.begin() as transaction,
        pytest.raises(BatchIdReused, match=f"is older than {last}, the last one"),
    ):
        transaction.commit(batch=StreamBatch("orders", 0), digest=5)
    # What a checkpoint says grows with the logarithm of the number of commits.
    checkpoint = entries(place, "commits")[0]
    assert checkpoint.endswith("checkpoint.parquet")
    assert pq.read_table(place / "commits" / "_delta_log" / checkpoint).num_rows < 60


def test_commits_that_are_kept_are_read_from_a_shortened_log(
    store: Store, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(25):
        replaced(store, number)
    age(place, 2)
    old = store.snapshot().version
    time.sleep(0.01)
    horizon = datetime.now(UTC)
    for number in range(25, 30):
        replaced(store, number)
    # By a clock that stands: a machine that halts for a moment would move the horizon beyond a commit.
    clock = SimpleNamespace(now=lambda zone: horizon, fromisoformat=datetime.fromisoformat)
    monkeypatch.setattr(cdckit.store.store, "datetime", clock)
    gone = store.vacuum(timedelta(0))
    assert sum("_delta_log" in path for path in gone) > 30
    # The first that is kept is the one that held at the horizon.
    assert [held(store.snapshot(version), "log") for version in range(old, old + 6)] == [
        [number] for number in range(24, 30)
    ]


def test_a_wider_vacuum_keeps_what_a_narrower_one_has_kept(store: Store, place: Path) -> None:
    begun = datetime.now(UTC)
    for number in range(25):
        add(store, "log", number)
    age(place, 2)
    store.vacuum(timedelta(0))
    kept = add(store, "log", 25)
    age(place, 2)
    replaced(store, 26)
    assert store.vacuum(datetime.now(UTC) - begun) == []
    assert held(store.snapshot(kept), "log") == list(range(26))


def test_a_log_whose_checkpoint_is_broken_keeps_its_entries(store: Store, place: Path) -> None:
    for number in range(25):
        replaced(store, number)
    [checkpoint] = (place / "log" / "_delta_log").glob("*.checkpoint.parquet")
    checkpoint.write_bytes(checkpoint.read_bytes()[:-100])
    age(place, 2)
    before = entries(place, "log")
    with pytest.raises(DamagedTable):
        store.vacuum(timedelta(0))
    assert entries(place, "log") == before


def test_an_empty_store_and_a_negative_time(store: Store, place: Path) -> None:
    assert store.vacuum() == []
    assert not place.exists()
    with pytest.raises(InvalidArgument, match="not negative"):
        store.vacuum(-DAY)
