"""Columns that come in another type than before: what they become, and that every later batch is taken."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from itertools import product
from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from cdckit import Ledger, changes_from
from cdckit.errors import WrongColumnType
from cdckit.ledger.intake import apply_within
from cdckit.ledger.kind import Kind
from cdckit.ledger.log_rows import require_keys_keep_their_texts, require_times_stay
from cdckit.store.columns import unite_columns
from cdckit.store.errors import NotStorable

INT, LONG, DOUBLE, DECIMAL = T.IntegerType(), T.LongType(), T.DoubleType(), T.DecimalType(7, 2)
DATE, CLOCK, INSTANT = T.DateType(), T.TimestampNTZType(), T.TimestampType()
TEXT, FLAG, BYTES, LIST = T.StringType(), T.BooleanType(), T.BinaryType(), T.ArrayType(T.LongType())
EXACT = {
    frozenset({INT, LONG}): LONG,
    frozenset({INT, DOUBLE}): DOUBLE,
    frozenset({INT, DECIMAL}): T.DecimalType(12, 2),
    frozenset({LONG, DOUBLE}): DOUBLE,  # a number that would lose digits ends the job
    frozenset({LONG, DECIMAL}): T.DecimalType(21, 2),
    frozenset({DECIMAL, DOUBLE}): DOUBLE,
    frozenset({DATE, CLOCK}): CLOCK,
    frozenset({DATE, INSTANT}): INSTANT,
    frozenset({CLOCK, INSTANT}): INSTANT,
}
"""What two types become that is neither text nor refused, by hand."""
KINDS = [INT, LONG, DOUBLE, DECIMAL, DATE, CLOCK, INSTANT, TEXT, FLAG, BYTES, LIST]


def united(left: T.DataType, right: T.DataType, *, of_lists: bool) -> T.DataType | None:
    """What a ledger makes of a column, None where it refuses the second type and stays as it was."""
    before, after = T.StructType().add("x", left), T.StructType().add("x", right)
    try:
        require_times_stay(before, after, of_lists=of_lists)
        return unite_columns(before, after, "t")["x"].dataType
    except (WrongColumnType, NotStorable):
        return None


@pytest.mark.parametrize("of_lists", [False, True], ids=["changes", "lists"])
def test_what_two_types_of_one_column_become_is_no_dead_end(of_lists: bool) -> None:
    """Of all pairs: exact, text, or refused; and the types that were taken are taken again after that."""
    times, numbers = {DATE, CLOCK, INSTANT}, {INT, LONG, DOUBLE, DECIMAL}
    for left, right in product(KINDS, repeat=2):
        pair, common = {left, right}, united(left, right, of_lists=of_lists)
        is_beside_time = bool(pair & times) and bool(pair - times)
        if left == right:
            assert common == left
        elif LIST in pair or (is_beside_time and (of_lists or pair & numbers)):
            assert common is None, (left, right)
        else:
            assert common == EXACT.get(frozenset(pair), TEXT), (left, right)
        for kind in pair if common is not None else ():
            assert united(common, kind, of_lists=of_lists) == common, (left, right, kind)


def test_a_key_keeps_its_text() -> None:
    """A day that becomes an instant would be another entity: refused, and the ledger stays as it was."""
    kind = Kind("e", ("x",), buckets=1)
    numbers = {INT, LONG, DECIMAL}
    for left, right in product([*numbers, DOUBLE, DATE, CLOCK, INSTANT, TEXT, FLAG, BYTES], repeat=2):
        before, after = T.StructType().add("x", left), T.StructType().add("x", right)
        if left == right or {left, right} <= numbers or {left, right} == {INT, DOUBLE}:
            require_keys_keep_their_texts(before, after, kind)
        else:
            needed = (
                "a number as before"
                if isinstance(left, T.NumericType)
                else f"{left.simpleString()}, as before"
            )
            with pytest.raises(WrongColumnType, match=re.escape(f"data.x as {needed}")) as raised:
                require_keys_keep_their_texts(before, after, kind)
            # What pandas does to whole numbers concerns numbers alone.
            assert ("pandas" in str(raised.value)) == (left in numbers and right == DOUBLE)


def test_the_same_days_as_dates_and_as_instants_are_no_news(spark: SparkSession, tmp_path: Path) -> None:
    """A parser was changed for one night: midnight of a day is that day."""
    dates = spark.sql("SELECT 1 AS id, date'2024-05-01' AS day")
    instants = spark.sql("SELECT 1 AS id, timestamp'2024-05-01 00:00:00Z' AS day")
    ledger = Ledger(spark, tmp_path, entity="e", keys=["id"], buckets=1)
    nights = [datetime(2024, 6, day, tzinfo=UTC) for day in (1, 2, 3)]
    taken = zip(nights, (dates, instants, dates), strict=True)
    assert [ledger.apply_list(rows, taken_at=at).news for at, rows in taken] == [1, 0, 0]
    assert ledger.history().select("day").collect() == [(datetime(2024, 5, 1),)]


def test_numbers_where_a_door_had_times_become_texts(spark: SparkSession, tmp_path: Path) -> None:
    """What a source has altered must not be refused: the two stand beside each other as they were."""
    ledger = Ledger(spark, tmp_path, entity="e", keys=["id"], buckets=1)
    times = pd.DataFrame({"id": [1], "at": [datetime(2024, 3, 18, tzinfo=UTC)]})
    numbers = pd.DataFrame({"id": [1], "at": [19800]})
    for day, table in enumerate((times, numbers), 1):
        changes = changes_from(table, keys=["id"], effective=datetime(2024, 4, day, tzinfo=UTC))
        with ledger.store.begin() as transaction:
            reads = apply_within(transaction, Kind("e", ("id",), 1, False), changes)
            transaction.commit(reads=reads)
    history = ledger.history().orderBy("valid_from_timestamp").select("at").collect()
    assert [row["at"] for row in history] == ["2024-03-18 00:00:00", "19800"]
    ledger.check(deep=True)


def test_a_text_in_a_row_that_is_a_reject_makes_no_texts(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing else stands in the column of that night, so the numbers of before stay numbers."""
    ledger = Ledger(spark, tmp_path, entity="e", keys=["id"], buckets=1)
    for day, rows in enumerate(("(1, 20)", "(1, CAST(NULL AS string)), (NULL, 'n/a')"), 1):
        table = spark.sql(f"SELECT * FROM VALUES {rows} AS rows(id, price)")
        ledger.apply(changes_from(table, keys=["id"], effective=datetime(2024, 4, day, tzinfo=UTC)))
    assert ledger.history().select("price").collect() == [(20,)]
    assert ledger.rejects().count() == 1
