"""Tables that are written together are seen together, and nothing else of them is ever seen."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal
from pathlib import Path
from unittest.mock import Mock

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from cdckit.errors import InvalidArgument
from cdckit.store import File, NoSuchTable, Store, delta_log
from cdckit.store.delta_log import DeltaLog
from cdckit.store.locations import Location
from cdckit.store.reading import _files_named
from support.store_numbers import add, held, listing, numbers


def test_several_tables_appear_together(store: Store, place: Path) -> None:
    with store.begin() as transaction:
        transaction.append("log", numbers(1, 2))
        transaction.append("history", numbers(3))
        transaction.note("kind", "flights")
        assert Store(None, place).snapshot().names() == []
        assert transaction.commit().version == 1
    snapshot = Store(None, place).snapshot()
    assert snapshot.names() == ["history", "log"]
    assert held(snapshot, "log") == [1, 2]
    assert dict(snapshot.notes) == {"kind": "flights"}


def fails(store: Store) -> None:
    with store.begin() as transaction:
        transaction.append("log", numbers(3))
        transaction.note("kind", "other")
        _ = 1 / 0


def test_what_is_not_committed_is_not_seen(store: Store) -> None:
    add(store, "log", 1)
    with store.begin() as transaction:
        transaction.append("log", numbers(2))
    with pytest.raises(ZeroDivisionError):
        fails(store)
    assert held(store, "log") == [1]
    assert dict(store.snapshot().notes) == {}


def test_a_snapshot_stays_as_it_is(store: Store) -> None:
    add(store, "log", 1)
    before = store.snapshot()
    with store.begin() as transaction:
        transaction.replace("log", numbers(7))
        transaction.commit()
    assert held(before, "log") == [1]
    assert held(store, "log") == [7]


def test_a_transaction_sees_what_it_has_written(store: Store) -> None:
    add(store, "log", 1)
    with store.begin() as transaction:
        transaction.append("log", numbers(2))
        transaction.append("new", numbers(3))
        assert transaction.names() == ["log", "new"]
        assert sum(one.rows for one in transaction.files("log")) == 2
        assert held(transaction.base, "log") == [1]


def test_decimals_are_found_in_the_transaction_that_wrote_them(store: Store) -> None:
    """The least and the greatest of a file, too: as floats they would lie beside these."""
    tenth, third = Decimal("0.1"), Decimal("0.3")
    with store.begin() as transaction:
        transaction.append("prices", pa.table({"price": pa.array([tenth, third], pa.decimal128(9, 2))}))
        for where in ([tenth], [third], (third, None), (None, tenth)):
            assert len(transaction.files("prices", {"price": where})) == 1, where
        assert transaction.files("prices", {"price": (Decimal("0.31"), None)}) == []


def test_files_are_swapped(store: Store) -> None:
    add(store, "log", 1, 2)
    add(store, "log", 3)
    with store.begin() as transaction:
        [first] = [one for one in transaction.files("log") if one.rows == 2]
        transaction.swap("log", [first], numbers(4))
        transaction.commit()
    assert held(store, "log") == [3, 4]
    with store.begin() as transaction, pytest.raises(InvalidArgument, match="files of the table 'log'"):
        transaction.swap("log", [first])


def test_a_dropped_table_may_come_back_with_other_columns(store: Store) -> None:
    add(store, "log", 1)
    with store.begin() as transaction:
        transaction.drop("log")
        assert not transaction.has("log")
        transaction.commit()
    with pytest.raises(NoSuchTable, match="Commit 2 has no table 'log'; it has none"):
        store.snapshot().arrow("log")
    with store.begin() as transaction:
        transaction.append("log", pa.table({"text": ["a"]}))
        transaction.commit()
    assert store.snapshot().arrow("log").to_pylist() == [{"text": "a"}]
    assert held(store.snapshot(version=1), "log") == [1]


def test_a_table_that_is_dropped_and_made_in_one_transaction_stays_in_its_place(store: Store) -> None:
    add(store, "log", 1)
    before = store.snapshot().path("log")
    with store.begin() as transaction:
        transaction.drop("log")
        transaction.append("log", pa.table({"text": ["a"]}))
        assert transaction.schema("log").names == ["text"]
        transaction.commit()
    found = store.snapshot()
    assert found.arrow("log").to_pylist() == [{"text": "a"}]
    assert found.path("log") == before
    assert held(store.snapshot(version=1), "log") == [1]


def test_a_column_that_another_program_described_stays(store: Store, place: Path) -> None:
    """A comment is no other column: what was there stays when a new one comes."""
    add(store, "log", 1)
    DeltaTable(str(place / "log")).alter.set_column_metadata("n", {"comment": "how many"})
    store.adopt("log")
    with store.begin() as transaction:
        transaction.append("log", pa.table({"n": [2], "m": [3]}))
        transaction.commit()
    assert sorted(map(str, store.snapshot().arrow("log").to_pylist())) == [
        "{'n': 1, 'm': None}",
        "{'n': 2, 'm': 3}",
    ]


def test_files_are_found_by_the_names_that_spark_gives() -> None:
    """Other programs put files of a partitioned table into folders."""
    ours, theirs = File("part-1.parquet", 1, 1), File("b=a%2520b/part-2.parquet", 1, 1)
    named = ["file:///store/log/b=a%2520b/part-2.parquet", "file:///store/log/part-3.parquet"]
    assert _files_named([ours, theirs], named) == [theirs]


@pytest.mark.parametrize("zone", [UTC, None])
def test_bounds_in_the_log_leave_no_value_out(store: Store, zone: tzinfo | None) -> None:
    """A log has milliseconds, and of a text its beginning: low bounds are cut off, high ones rounded up."""
    low, high = (
        datetime(1969, 12, 31, 23, 59, 59, 999_001, zone),
        datetime(2024, 1, 1, 0, 0, 0, 999_001, zone),
    )
    rows = pa.table(
        {
            "at": pa.array([low, high], pa.timestamp("us", None if zone is None else "UTC")),
            "name": ["a" * 40, "b" * 40],
        }
    )
    with store.begin() as transaction:
        transaction.append("t", rows)
        transaction.commit()
    [file] = store.snapshot().files("t")
    assert file.low == {"at": low.replace(microsecond=999_000), "name": "a" * 32}
    assert file.high == {"at": datetime(2024, 1, 1, 0, 0, 1, 0, zone), "name": "b" * 32 + "\U0010ffff"}
    assert store.snapshot().arrow("t", {"at": {high}, "name": {"b" * 40}}).num_rows == 1


def test_a_replaced_table_may_have_new_columns_between_the_others(store: Store) -> None:
    """Within structs too; Delta adds columns at the end, and later appends give them in either order."""
    rows = (
        {"a": [1], "s": [{"x": 1, "y": 2}], "b": ["x"]},
        {"a": [1], "c": [2.5], "s": [{"x": 1, "n": 7, "y": 2}], "b": ["x"]},
        {"b": ["z"], "s": [{"y": 3, "x": 4, "n": 5}], "c": [0.5], "a": [3]},
    )
    with store.begin() as transaction:
        transaction.append("t", pa.table(rows[0]))
        transaction.commit()
    with store.begin() as transaction:
        transaction.replace("t", pa.table(rows[1]))
        transaction.commit()
    with store.begin() as transaction:
        transaction.append("t", pa.table(rows[2]))
        transaction.commit()
    found = sorted(store.snapshot().arrow("t").to_pylist(), key=lambda row: row["a"])
    assert found == [
        {"a": 1, "c": 2.5, "s": {"x": 1, "n": 7, "y": 2}, "b": "x"},
        {"a": 3, "c": 0.5, "s": {"x": 4, "n": 5, "y": 3}, "b": "z"},
    ]


def test_a_replaced_table_may_have_other_columns_and_partitions(store: Store) -> None:
    add(store, "log", 1)
    with store.begin() as transaction:
        transaction.replace("log", pa.table({"text": ["a"], "m": [1]}))
        transaction.commit()
    assert store.snapshot().arrow("log").to_pylist() == [{"text": "a", "m": 1}]
    with store.begin() as transaction:
        transaction.replace("log", pa.table({"m": [1, 2, 1]}), partition_by=["m"])
        transaction.commit()
    assert store.snapshot().table("log").partition_by == ("m",)
    assert sorted(one.rows for one in store.snapshot().files("log")) == [1, 2]


def test_notes_stay_until_they_are_forgotten(store: Store) -> None:
    for notes in ({"a": "1", "b": "2"}, {"b": None, "c": "3"}):
        with store.begin() as transaction:
            for key, value in notes.items():
                transaction.note(key, value)
            transaction.commit()
    assert dict(store.snapshot().notes) == {"a": "1", "c": "3"}


def test_time_travel_by_number_and_by_instant(store: Store) -> None:
    start = datetime.now(UTC) - timedelta(seconds=1)
    for number in range(1, 40):
        assert add(store, "log", number) == number
    for number in (1, 15, 16, 31, 39):
        at = store.snapshot(version=number)
        assert held(at, "log") == list(range(1, number + 1))
        assert at.timestamp is not None
        assert store.snapshot(timestamp=at.timestamp).version == number
        assert store.snapshot(timestamp=at.timestamp - timedelta(microseconds=1)).version == number - 1
    assert store.snapshot(timestamp=start).names() == []
    assert store.snapshot(timestamp=start).version is None
    with pytest.raises(InvalidArgument, match="from 0 to 39"):
        store.snapshot(version=40)


def test_opening_and_reading_write_nothing(store: Store, place: Path) -> None:
    assert not place.exists()
    assert store.snapshot().version is None
    assert store.batch("b") is None
    assert not place.exists()
    add(store, "log", 1)
    # A writer on its way: files and logs that no commit names.
    running = store.begin()
    running.append("log", numbers(2))
    before = listing(place)
    other = Store(None, place)
    assert held(other, "log") == [1]
    assert other.batch("b") is None
    other.check()
    assert listing(place) == before
    running.commit()
    assert held(other, "log") == [1, 2]


def test_a_store_does_not_read_again_what_it_wrote_itself(
    store: Store, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another writer did meanwhile it learns, whoever of both begins."""
    read: list[str] = []

    class Read(DeltaLog):
        def __init__(self, location: Location, name: str, folder: str, version: int | None = None) -> None:
            read.append(name)
            super().__init__(location, name, folder, version)

    monkeypatch.setattr(delta_log, "DeltaLog", Read)
    for number in range(1, 6):
        add(store, "log", number)
    assert read == ["log"]
    other = Store(None, place)
    for number in range(6, 12):
        add((store, other)[number % 2], "log", number)
        assert held(Store(None, place), "log") == list(range(1, number + 1))
    store.check()


def test_a_log_that_stays_open_is_loaded_again_from_time_to_time(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that was loaded once goes through all commits since: the 300th took three times as long."""
    loaded = Mock(wraps=delta_log.DeltaTable)
    monkeypatch.setattr(delta_log, "DeltaTable", loaded)
    add(store, "log", 0)
    kept = DeltaLog(store.snapshot().location, "log", "log")
    loaded.reset_mock()
    for version in range(1, 65):
        kept.commit([], kept.state.stored, delta_log.commit_properties(version))
        assert (kept.version, kept.mark, kept.newest().rows) == (version, version, 1)
    assert loaded.call_count == 3


def test_a_failed_write_cannot_be_committed(store: Store) -> None:
    with store.begin() as transaction:
        transaction.append("log", numbers(1))
        with pytest.raises(ValueError, match="an empty text is a null"):
            transaction.append("parts", pa.table({"p": ["a", ""]}), partition_by=["p"])
        with pytest.raises(InvalidArgument, match="whose writes have all succeeded"):
            transaction.commit()
    assert store.snapshot().names() == []
