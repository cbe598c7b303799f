"""Which files are written together, where files follow one another: neighbours, in their order."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

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
