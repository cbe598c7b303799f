"""
A ledger whose history is not its log's, and whose columns two writers bring.

In `make test`:
tests/ledger/test_ledger.py::test_a_derived_table_that_is_damaged_is_made_anew,
tests/ledger/test_ledger.py::test_a_new_field_and_a_wider_type_come_with_a_later_batch,
tests/ledger/test_ledger.py::test_two_writers_lose_nothing_and_double_nothing.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit import changes_from
from cdckit.ledger import Pending
from cdckit.model.history import VALID_FROM
from cdckit.store import DamagedTable
from support.histories import to_dataframe
from support.ledger_programs import FIELDS, KEYS, batches
from support.ledgers import opened, price, prices


def test_a_whole_number_that_meets_a_float_stays_a_number(spark: SparkSession, tmp_path: Path) -> None:
    """As pandas has a column in which one night lacks a value; the other way round too, and a decimal."""
    orders = ("bigint", "double", "decimal(10,2)"), ("double", "bigint"), ("decimal(10,2)", "double")
    for number, kinds in enumerate(orders):
        ledger = opened(spark, tmp_path / str(number), buckets=1)
        for day, kind in enumerate(kinds, start=1):
            batch = prices(spark, price(1, day, str(day)))
            ledger.apply(batch.withColumn("data", F.col("data").withField("a", F.col("data.a").cast(kind))))
        assert ledger.history().schema["a"].dataType.simpleString() == "double"
        assert [row["a"] for row in ledger.history().orderBy(VALID_FROM).collect()] == [1.0, 2.0, 3.0][
            : len(kinds)
        ]


@pytest.mark.parametrize(
    ("ours", "theirs", "said", "found"),
    [
        (
            "a int, b int",
            "a int, c int",
            (3, 3),
            {"a": [None, 2, 3], "b": [None, 2, 2], "c": [None, None, 3]},
        ),
        ("a int, b int", "a double, b string", (3.5, "x"), {"a": [None, 2.0, 3.5], "b": [None, "2", "x"]}),
    ],
)
def test_two_writers_bring_columns_among_those_that_are_there(
    spark: SparkSession,
    tmp_path: Path,
    ours: str,
    theirs: str,
    said: tuple[object, ...],
    found: dict[str, list[object]],
) -> None:
    """The other lands while this one is asked; then both columns are there, or one that holds both values."""

    def told(columns: str, *row: object) -> DataFrame:
        frame = spark.createDataFrame([(1, "x", *row)], f"h int, k string, {columns}, z string, day int")
        return changes_from(
            frame, keys=KEYS, sequence_by="make_date(2024, 1, day)", except_column_list=["day"]
        )

    ledger, other = opened(spark, tmp_path), opened(spark, tmp_path)
    ledger.apply(told("first string", "c", "z1", 1))
    asked = []

    def gate(after: Pending) -> None:
        asked.append(after.touched_history().count())
        if len(asked) == 1:
            other.apply(told(theirs, *said, "z3", 3))

    ledger.apply(told(ours, 2, 2, "z2", 2), gate=gate)
    ledger.check(deep=True)
    rows = ledger.history().orderBy(VALID_FROM).collect()
    assert asked == [2, 3]
    expected = {"first": ["c", "c", "c"], "z": ["z1", "z2", "z3"], **found}
    assert {name: [row[name] for row in rows] for name in expected} == expected


def test_a_history_that_is_not_the_logs_is_found_and_made_anew(spark: SparkSession, tmp_path: Path) -> None:
    ledger = opened(spark, tmp_path)
    ledger.check(deep=True)
    for part in batches(23, 40, most=20):
        ledger.apply(to_dataframe(spark, part, FIELDS))
    ledger.check(deep=True)
    before = {tuple(map(str, row)) for row in ledger.history().collect()}
    with ledger.store.begin() as transaction:
        rows = transaction.read("history")
        one = rows.where("valid_to_timestamp is not null").first()
        assert one is not None
        is_one = F.col("guid").eqNullSafe(one["guid"]) & (F.col("valid_from_timestamp") == one[VALID_FROM])
        transaction.replace(
            "history", rows.withColumn("source_message", F.when(~is_one, F.col("source_message")))
        )
        transaction.commit()
    ledger.store.check(deep=True)
    with pytest.raises(DamagedTable, match=r"2 of its versions.*rebuild"):
        ledger.check(deep=True)
    ledger.rebuild()
    ledger.check(deep=True)
    assert {tuple(map(str, row)) for row in ledger.history().collect()} == before
