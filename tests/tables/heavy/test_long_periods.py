"""
Tables of periods, night after night in a ledger, and tables of type 2 as they are read again.

In `make test`:
tests/tables/test_changes_from_periods.py::test_a_row_that_ends_on_the_third_night,
tests/tables/test_changes_from_periods.py::test_an_end_in_the_year_9999_is_open,
tests/tables/test_changes_from_periods.py::test_a_table_of_type_2_becomes_the_history_that_it_was_made_of.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pandas as pd
import pytest
from deltalake import DeltaTable
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit import Ledger, changes_from, current, merge, union_changes
from cdckit.outputs import scd_type_2
from support.periods import PERIOD, prices, rows_of_type_2, versions
from tools.tiers import seeds

NIGHTS = {
    "a row follows": (prices((1, 50, "2024-01-01", "2024-01-03"), (1, 60, "2024-01-03", None)), True),
    "two rows follow": (
        prices(
            (1, 50, "2024-01-01", "2024-01-03"),
            (1, 60, "2024-01-03", "2024-01-05"),
            (1, 70, "2024-01-05", None),
        ),
        True,
    ),
    "what follows overlaps": (
        prices((1, 50, "2024-01-01", "2024-01-10"), (1, 60, "2024-01-05", None)),
        True,
    ),
    "nothing follows": (prices((1, 50, "2024-01-01", "2024-01-03")), False),
    "what follows ends": (
        prices((1, 50, "2024-01-01", "2024-01-03"), (1, 60, "2024-01-03", "2024-01-05")),
        False,
    ),
    "one follows later": (prices((1, 50, "2024-01-01", "2024-01-03"), (1, 60, "2024-01-04", None)), False),
    "it says something else now": (prices((1, 51, "2024-01-01", "2024-01-03")), False),
    "what follows has no price": (
        prices((1, 50, "2024-01-01", "2024-01-03"), (1, None, "2024-01-03", None)),
        False,
    ),
    "another from then on": (
        prices((1, 50, "2024-01-01", None), (1, 40, "2024-01-01", "2024-01-02")),
        True,
    ),
    "of another room": (prices((1, 50, "2024-01-01", None), (2, 50, "2024-01-01", "2024-01-03")), True),
}


def test_a_table_of_periods_that_is_read_again(spark: SparkSession, tmp_path: Path) -> None:
    """An open row that has an end now is refused where it would be seen, and taken once it was revoked."""
    rooms = {night: 10 * number for number, night in enumerate(NIGHTS)}
    refused, taken = (
        [night for night, (_, is_taken) in NIGHTS.items() if is_taken is each] for each in (False, True)
    )

    def tonight(nights: list[str]) -> DataFrame:
        table = pd.concat(
            NIGHTS[night][0].assign(id=lambda rows, n=night: rows["id"] + rooms[n]) for night in nights
        )
        return changes_from(table.assign(price=table["price"].astype("Int64")), keys=["id"], **PERIOD)

    ledger = Ledger(spark, tmp_path, entity="room", keys=["id"], buckets=1)
    first = prices(*((room + 1, 50, "2024-01-01", None) for room in rooms.values()))
    ledger.apply(changes_from(first, keys=["id"], **PERIOD))
    for night in refused:
        with pytest.raises(PythonException, match=r"OpenInLedger.*would still be"):
            ledger.apply(tonight([night]))
    for _ in range(2):
        ledger.apply(tonight(taken))
    still_open = ledger.changes().where("source = 'table' AND effective_until IS NULL")
    ledger.revoke(still_open.where(F.col("data.id").isin([rooms[night] + 1 for night in refused])))
    for _ in range(2):
        ledger.apply(tonight(refused))
    # Values alone: that a room is there may be the word of a row of the first night, which has no end.
    assert stretches(ledger.changes()) == stretches(tonight(list(NIGHTS)))


@pytest.mark.parametrize("valid_to_current", [None, datetime(2999, 12, 31, tzinfo=UTC)])
@seeds(5, soak=10)
def test_many_tables_of_type_2_become_the_histories_that_they_were_made_of(
    spark: SparkSession, seed: int, valid_to_current: datetime | None
) -> None:
    made, again = rows_of_type_2(spark, seed, histories=500, valid_to_current=valid_to_current)
    assert made == again
    assert len(made) > 1000


def test_a_published_table_of_type_2_goes_in_again(spark: SparkSession, tmp_path: Path) -> None:
    """Its files have no metadata of Spark, which say elsewhere what stands for an open end."""
    ledger = Ledger(spark, tmp_path / "ledger", entity="room", keys=["id"], buckets=1)
    frame = prices((1, 50, "2024-01-01", None), (1, 60, "2024-01-03", None), (2, 70, "2024-01-01", None))
    ledger.apply(changes_from(frame, keys=["id"], sequence_by="since", column_list=["price"]))
    never = datetime(9999, 12, 31, tzinfo=UTC)
    ledger.publish(tmp_path / "rooms", partial(scd_type_2, valid_to_current=never))
    rooms = spark.read.parquet(*DeltaTable(str(tmp_path / "rooms")).file_uris())
    assert rooms.where("valid_to_timestamp = TIMESTAMP '9999-12-31 00:00:00Z'").count() == 2
    period = {"valid_from": "valid_from_timestamp", "valid_to": "valid_to_timestamp"}
    read = changes_from(rooms, keys=["id"], column_list=["price"], **period)
    found = current(merge(read, entity="room", keys=["id"])).orderBy("id").select("id", "price")
    assert [tuple(row) for row in found.collect()] == [(1, 60), (2, 70)]


@seeds(1, soak=20)
def test_a_table_of_periods_night_after_night(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """What is taken is what the table says, and what is refused would not have been."""
    chance, rows = Random(seed), dict[int, list[list[Any]]]({room: [] for room in range(12)})
    ledger = Ledger(spark, tmp_path, entity="room", keys=["id"], buckets=1)
    outcomes = list[bool]()
    for night in range(1, 8):
        today, yesterday = (f"2024-01-{2 * night + back:02}" for back in (0, -1))
        for said in rows.values():
            is_open = bool(said) and said[-1][2] is None
            if is_open and chance.random() < 0.3 and said[-1][1] < yesterday:
                said[-1][2] = yesterday
                is_open = False
            if not is_open and chance.random() < 0.5:
                begin = said[-1][2] if said and chance.random() < 0.5 else today
                said.append([chance.choice([50, 60, None]), begin, None])
        table = prices(*((room, *each) for room, said in rows.items() for each in said))
        tonight = changes_from(table.assign(price=table["price"].astype("Int64")), keys=["id"], **PERIOD)
        # What would come of it, by the same words merged as a whole.
        before = ledger.changes() if outcomes else None
        both = tonight if before is None else union_changes(before, tonight)
        expected = stretches(tonight)
        is_right = stretches(both) == expected
        outcomes.append(is_right)
        if not is_right:
            with pytest.raises(PythonException, match="OpenInLedger"):
                ledger.apply(tonight)
            ledger.revoke(ledger.changes().where("source = 'table' AND effective_until IS NULL"))
        ledger.apply(tonight)
        assert stretches(ledger.changes()) == expected
    assert len({*outcomes}) == 2


def stretches(changes: DataFrame) -> list[tuple[Any, ...]]:
    """The versions of rooms that are there, those that say the same and follow each other as one."""
    found = list[list[Any]]()
    for room, price, begin, end, *_ in versions(changes):
        if found and found[-1][:2] == [room, price] and found[-1][3] == begin:
            found[-1][3] = end
        else:
            found.append([room, price, begin, end])
    return [tuple(each) for each in found]
