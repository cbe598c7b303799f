"""What is missing or broken is said, with the table, the file and what to do; nothing is just left out."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from cdckit.parts.arguments import StreamBatch
from cdckit.store import DamagedTable, Store
from cdckit.store.commits import FORMAT
from cdckit.store.locations import Location
from support.store_numbers import add, held, listing, numbers


def data_file(place: Path) -> Path:
    [found] = (place / "log").glob("cdc-*.parquet")
    return found


def lose_a_file(place: Path) -> None:
    data_file(place).unlink()


def cut_a_file(place: Path) -> None:
    path = data_file(place)
    path.write_bytes(path.read_bytes()[:-20])


def hold_texts(place: Path) -> None:
    """Where numbers were, in a file of one name and as many rows."""
    pq.write_table(pa.table({"n": ["one"]}), data_file(place))


def lose_a_log(place: Path) -> None:
    add(Store(None, place), "log", 2)
    shutil.rmtree(place / "log" / "_delta_log")


def lose_a_table(place: Path) -> None:
    add(Store(None, place), "log", 2)
    shutil.rmtree(place / "log")


def cut_a_log(place: Path, number: int = 0) -> None:
    path = place / "log" / "_delta_log" / f"{number:020}.json"
    path.write_bytes(path.read_bytes()[:-20])


def empty_a_log(place: Path) -> None:
    """Its last entry, which a writer left that the power failed."""
    add(Store(None, place), "log", 2)
    (place / "log" / "_delta_log" / f"{1:020}.json").write_bytes(b"")


def swap_files(place: Path) -> None:
    """Two of one size."""
    add(Store(None, place), "log", 2)
    swap(*(place / "log").glob("cdc-*.parquet"))


def swap_files_of_commits(place: Path) -> None:
    swap(*(place / "commits").glob("cdc-*.parquet"))


def swap(one: Path, other: Path) -> None:
    content = one.read_bytes(), other.read_bytes()
    other.write_bytes(content[0])
    one.write_bytes(content[1])


def lose_the_last_of_two_commits(place: Path) -> None:
    add(Store(None, place), "log", 2)
    (place / "commits" / "_delta_log" / f"{2:020}.json").unlink()


def empty_the_last_commit(place: Path) -> None:
    (place / "commits" / "_delta_log" / f"{1:020}.json").write_bytes(b"")


def lose_the_commits(place: Path) -> None:
    shutil.rmtree(place / "commits")


def lose_a_file_of_commits(place: Path) -> None:
    for path in (place / "commits").glob("cdc-*.parquet"):
        path.unlink()


def cut_the_log_of_commits(place: Path) -> None:
    path = place / "commits" / "_delta_log" / f"{1:020}.json"
    path.write_text(path.read_text().replace("{", "(", 1))


def be_of_the_future(place: Path) -> None:
    path = place / "commits" / "_delta_log" / f"{0:020}.json"
    path.write_text(path.read_text().replace(f'cdckit.format\\":\\"{FORMAT}', 'cdckit.format\\":\\"99'))


@pytest.mark.parametrize(
    ("damage", "table", "file", "found"),
    [
        (lose_a_file, "log", "log/cdc-", "the file is not there"),
        (cut_a_file, "log", "log/cdc-", "cannot be read"),
        (hold_texts, "log", "log/cdc-", "cannot be read"),
        (lose_a_log, "log", "log/_delta_log", "log cannot be read at version 0"),
        (lose_a_table, "log", "log/_delta_log", "log cannot be read at version 0"),
        (empty_a_log, "log", "log/_delta_log", r"the entry 0+1\.json is empty"),
        (swap_files, "log", "log/cdc-", "it is the file cdc-"),
        (swap_files_of_commits, "commits", "commits/cdc-", "it is the file cdc-"),
        (lose_the_last_of_two_commits, "commits", "commits/_delta_log", "it lacks commit 2"),
        (empty_the_last_commit, "commits", "commits/_delta_log", r"the entry 0+1\.json is empty"),
        (cut_a_log, "log", "log/_delta_log", "log cannot be read at version 0"),
        (lose_the_commits, "commits", "commits/_delta_log", r"there are tables \(log, ...\)"),
        (lose_a_file_of_commits, "commits", "commits/cdc-", "the file is not there"),
        (cut_the_log_of_commits, "commits", "commits/_delta_log", "log cannot be read"),
        (be_of_the_future, "commits", "commits/_delta_log", "its format is 99"),
    ],
)
def test_damage_is_an_error(
    store: Store, place: Path, damage: Callable[[Path], None], table: str, file: str, found: str
) -> None:
    add(store, "log", 1)
    damage(place)
    before = listing(place)
    with pytest.raises(DamagedTable, match=found) as raised:
        held(Store(None, place), "log")
    assert (raised.value.table, raised.value.file[: len(file)]) == (table, file)
    assert listing(place) == before


@pytest.mark.parametrize(
    ("damage", "found"), [(lose_a_file, "the file is not there"), (cut_a_file, r"it has \d+ bytes, not \d+")]
)
def test_check_looks_at_every_file(
    store: Store, place: Path, damage: Callable[[Path], None], found: str
) -> None:
    add(store, "log", 1)
    store.check()
    damage(place)
    with pytest.raises(DamagedTable, match=found):
        store.check()


@pytest.mark.parametrize("batch", ["monday", StreamBatch("orders", 7)])
def test_a_batch_id_that_is_damaged_is_not_taken_for_a_new_one(store: Store, place: Path, batch: str) -> None:
    with store.begin() as transaction:
        transaction.append("log", numbers(1))
        transaction.commit(batch=batch, digest=5)
    path = place / "commits" / "_delta_log" / f"{1:020}.json"
    content = path.read_text()
    id_ = "orders" if isinstance(batch, StreamBatch) else batch
    for number in range(content.count(f":{id_}")):
        parts = content.split(f":{id_}")
        path.write_text(
            f":{id_}".join(parts[: number + 1]) + f":x{id_[1:]}" + f":{id_}".join(parts[number + 1 :])
        )
        with pytest.raises(DamagedTable, match="two things about the batch"):
            Store(None, place).batch(batch)
    path.write_text(content)
    assert Store(None, place).batch(batch) == 5


def test_spark_is_not_given_a_file_that_is_gone(spark: SparkSession, store: Store, place: Path) -> None:
    add(store, "log", 1)
    lose_a_file(place)
    with pytest.raises(DamagedTable, match=r"log.*cdc-.*the file is not there"):
        Store(spark, place).snapshot().read("log")


def test_a_storage_that_does_not_answer_is_no_damage(
    store: Store, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Silent:
        def open_input_file(self, path: str) -> None:
            raise TimeoutError("no answer")

    add(store, "log", 1)
    monkeypatch.setattr(Location, "file_system", lambda _: Silent())
    with pytest.raises(TimeoutError, match="no answer"):
        held(Store(None, place), "log")


def test_a_store_that_cannot_be_written_stays_as_it_was(store: Store, place: Path) -> None:
    """The disk is full, or the folder is not ours: the error is the system's, and nothing was committed."""
    add(store, "log", 1)
    (place / "new").write_text("a file where a table would be")
    with pytest.raises(OSError, match="new"):
        add(store, "new", 2)
    os.remove(place / "new")
    assert held(store, "log") == [1]
    assert store.snapshot().names() == ["log"]


def lose_the_last_entry(place: Path) -> None:
    (place / "log" / "_delta_log" / f"{1:020}.json").unlink()


def empty_the_first_entry(place: Path) -> None:
    (place / "log" / "_delta_log" / f"{0:020}.json").write_bytes(b"")


def cut_the_last_entry(place: Path) -> None:
    cut_a_log(place, 1)


@pytest.mark.parametrize(
    ("damage", "lands", "is_whole"),
    [
        # What is known of the commit writes it again.
        (lose_the_last_entry, True, True),
        # Nobody read it any more.
        (empty_the_first_entry, True, False),
        (cut_the_last_entry, False, False),
    ],
)
def test_a_log_that_is_damaged_between_two_commits_of_one_store_is_told_or_made_whole(
    store: Store, place: Path, damage: Callable[[Path], None], lands: bool, is_whole: bool
) -> None:
    """A store keeps what it knows of its tables from one commit to the next."""
    add(store, "log", 1)
    add(store, "log", 2)
    damage(place)
    if lands:
        add(store, "log", 3)
    else:
        with pytest.raises(DamagedTable, match="log cannot be read at version 1"):
            add(store, "log", 3)
    for each in (store, Store(None, place)):
        if is_whole:
            each.check()
            assert held(each, "log") == [1, 2, 3]
        else:
            with pytest.raises(DamagedTable, match="log cannot be read"):
                held(each, "log")


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 4] ^= 1
    path.write_bytes(content)


def drop_a_row(path: Path) -> None:
    """As large as it was: before the footer, which says where all else is, stands what nobody reads."""
    size, rest = path.stat().st_size, pq.read_table(path).slice(1).replace_schema_metadata(None)
    slim = {"use_dictionary": False, "write_statistics": False, "store_schema": False}
    pq.write_table(rest, path, **slim, compression="zstd", write_page_checksum=True)
    content = path.read_bytes()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    path.write_bytes(content[:footer] + bytes(size - len(content)) + content[footer:])
    assert path.stat().st_size == size


@pytest.mark.parametrize(
    ("damage", "told"), [(flip_a_bit, "(?i)checksum|CRC"), (drop_a_row, "it has {} rows, not {}")]
)
@pytest.mark.parametrize("rows", [10, 1_000])
def test_a_deep_check_names_the_damaged_file_whoever_reads_it(
    spark: SparkSession, tmp_path: Path, rows: int, damage: Callable[[Path], None], told: str
) -> None:
    """This program reads few rows, workers read many; of two damaged files the first is named."""
    store = Store(spark, tmp_path / "store")
    for start in range(4):
        add(store, "log", *range(start * rows, (start + 1) * rows))
    store.check(deep=True)
    _, first, _, last = sorted((tmp_path / "store" / "log").glob("cdc-*.parquet"))
    for path in (first, last):
        damage(path)
    store.check()
    with pytest.raises(DamagedTable, match=told.format(rows - 1, rows)) as raised:
        store.check(deep=True)
    assert (raised.value.table, raised.value.file) == ("log", f"log/{first.name}")


def test_what_a_session_passes_over_elsewhere_a_store_does_not(spark: SparkSession, tmp_path: Path) -> None:
    """Rows that are read may be written anew: without those of a file that nobody could read."""
    store = Store(spark, tmp_path / "store")
    add(store, "log", *range(2_000))
    [path] = (tmp_path / "store" / "log").glob("cdc-*.parquet")
    flip_a_bit(path)
    spark.conf.set("spark.sql.files.ignoreCorruptFiles", "true")
    try:
        with pytest.raises(Exception, match=r"(?i)checksum|CRC"):
            store.snapshot().read("log").agg({"n": "sum"}).collect()
    finally:
        spark.conf.unset("spark.sql.files.ignoreCorruptFiles")
