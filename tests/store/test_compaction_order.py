"""Which files are written together, where files follow one another: neighbours, in their order."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from cdckit.parts import at_home
from cdckit.store import Store
from cdckit.store.writing import small_files


def groups(place: Path, *ranges: range) -> list[list[tuple[int, int]]]:
    """The groups of a table of two partitions, whose files have these numbers and come in this order."""
    store = Store(None, place)
    with store.begin() as transaction:
        for numbers in ranges:
            for part in (0, 1):
                rows = pa.table({"part": [part] * len(numbers), "n": list(numbers)})
                transaction.append("t", rows, partition_by=["part"])
        transaction.commit()
    found = small_files(store.snapshot().table("t"), 5_000)
    assert found[: len(found) // 2] != found[len(found) // 2 :]
    one_part = found[: len(found) // 2]
    return [[(one.low["n"], one.high["n"]) for one in group] for group in one_part]


def test_no_file_is_passed_over_by_smaller_ones_around_it(tmp_path: Path) -> None:
    large = range(100, 100_000)
    first, second, fourth, fifth, sixth = (range(at, at + 5) for at in (0, 10, 200_000, 200_010, 200_020))
    found = groups(tmp_path, fifth, second, large, sixth, first, fourth)
    assert found == [[(0, 4), (10, 14)], [(200_000, 200_004), (200_010, 200_014), (200_020, 200_024)]]


def test_files_that_do_not_follow_one_another_go_together_as_they_come(tmp_path: Path) -> None:
    found = groups(tmp_path, range(0, 5), range(100, 100_000), range(3, 8), range(200_000, 200_005))
    assert sorted(found[0]) == [(0, 4), (3, 7), (200_000, 200_004)]


def test_few_rows_are_put_together_by_this_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Spark, in the order of files and rows; what is in lists and maps stays as it is."""
    monkeypatch.setattr(at_home, "READ_ROWS", 1_000)
    store = Store(None, tmp_path)
    price = pa.struct([("price", pa.decimal128(5, 2)), ("at", pa.timestamp("us", "UTC"))])
    mapped = pa.map_(pa.string(), pa.binary())
    columns = [("part", pa.int32()), ("n", pa.int64()), ("listed", pa.list_(price)), ("mapped", mapped)]
    at = datetime(1582, 10, 10, 12, tzinfo=UTC)
    with store.begin() as transaction:
        for first in (20, 0, 10):
            rows = [
                {"part": 0, "n": first + 1, "listed": [{"price": Decimal("1.25"), "at": at}], "mapped": []},
                {"part": 1, "n": first, "listed": None, "mapped": [("k", b"\0\xff"), ("null", None)]},
                {"part": 0, "n": first, "listed": [], "mapped": None},
            ]
            transaction.append("t", pa.Table.from_pylist(rows, pa.schema(columns)), partition_by=["part"])
        transaction.append("t", pa.table({"part": pa.array([1], pa.int32()), "n": [30], "later": ["é"]}))
        transaction.commit()
    before = store.snapshot()
    assert len(before.files("t")) == 7
    store.compact()
    after = store.snapshot()
    assert sorted((file.partition["part"], file.rows) for file in after.files("t")) == [(0, 6), (1, 4)]
    for part, numbers in {0: [1, 0, 11, 10, 21, 20], 1: [0, 10, 20, 30]}.items():
        rows = after.arrow("t", where={"part": {part}})
        assert rows.column("n").to_pylist() == numbers
        rows_before = before.arrow("t", where={"part": {part}}).to_pylist()
        assert rows.to_pylist() == sorted(rows_before, key=lambda row: numbers.index(row["n"]))
    # Whoever reads the table as a stream has had these rows.
    log = (tmp_path / "t" / "_delta_log" / f"{after.table('t').version:020}.json").read_text()
    changes = [action for line in log.splitlines() for action in json.loads(line).items()]
    assert [fields["dataChange"] for name, fields in changes if name in ("add", "remove")] == [False] * 9
