"""A ledger that is cut into more buckets as it grows says what it said."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from cdckit import merge
from cdckit.ledger import Ledger, Pending, intake
from cdckit.parts import at_home
from cdckit.store import OtherKind, Store
from support import source_order
from support.ledgers import opened, price, prices, require_order, rows_of
from support.source_order import Event


@pytest.fixture
def small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket has some two files, and of the first changes it is known that they are few."""
    monkeypatch.setattr(intake, "BUCKET_BYTES", 12_000)
    monkeypatch.setattr(intake, "_PART_BYTES", 0)
    monkeypatch.setattr(intake, "plan_bytes", lambda rows: 0)


@pytest.mark.usefixtures("small_buckets")
def test_a_truncate_ends_what_is_in_every_bucket(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(spark, tmp_path, entity="row", keys=source_order.KEYS)
    first = [*(Event(0, "c", at, at, at, "a") for at in range(1, 9)), Event(0, "t", 40, 40)]
    assert ledger.apply(source_order.changes(spark, list(enumerate(first)))).news == 9
    monkeypatch.setattr(intake, "BUCKET_BYTES", 2_000)
    late = [Event(0, "c", at, at, at, "b") for at in range(20, 40)]
    assert ledger.apply(source_order.changes(spark, list(enumerate(late, 9)))).news == 20
    assert require_order(ledger, tmp_path) > 4
    assert ledger.changes().count() == 29
    is_there = "valid_to_timestamp IS NULL AND NOT deleted_indicator"
    assert ledger.history().where(is_there).isEmpty()
    merged = merge(ledger.changes(), entity="row", keys=source_order.KEYS)
    assert rows_of(ledger.history()) == rows_of(merged)


@pytest.mark.usefixtures("small_buckets")
def test_who_began_before_it_was_cut_begins_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also about an entity in whose bucket nothing was, and nothing is."""
    ledger, other = (opened(spark, tmp_path, buckets=None) for _ in range(2))
    ledger.apply(prices(spark, price(1, 1, "a")))
    asked: list[int] = []

    def gate(after: Pending) -> None:
        asked.append(after.kind.buckets)
        if len(asked) == 1:
            monkeypatch.setattr(intake, "BUCKET_BYTES", 1_500)
            other.apply(prices(spark, price(1, 2, "b")))
            monkeypatch.setattr(intake, "BUCKET_BYTES", 1 << 20)

    ledger.apply(prices(spark, *(price(number, 3, "c") for number in range(2, 9))), gate=gate)
    assert (asked[0], asked[1] > 1) == (1, True)
    assert require_order(ledger, tmp_path) == asked[1]
    assert ledger.history().where("valid_to_timestamp IS NULL").count() == 8


def test_a_new_one_has_buckets_for_what_comes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are many if nobody can tell how many they are, until it is seen what they were."""
    table = prices(spark, *(price(number, 1, "a") for number in range(9)))
    unknown = spark.createDataFrame(spark.sparkContext.parallelize(table.collect(), 1), table.schema)

    def buckets_of(name: str, *given: DataFrame) -> list[int]:
        ledger = opened(spark, tmp_path / name, buckets=None)
        return [(ledger.apply(each), require_order(ledger, tmp_path / name))[1] for each in given]

    monkeypatch.setattr(at_home, "WORK_ROWS", 8)
    assert buckets_of("unknown", unknown, table) == [64, 1]
    monkeypatch.setattr(at_home, "WORK_ROWS", 9)
    assert buckets_of("a list", unknown) == [1]
    monkeypatch.setattr(intake, "BUCKET_BYTES", 1_000)
    (many,) = buckets_of("large ones", table)
    assert many > 4


@pytest.mark.usefixtures("small_buckets")
def test_what_came_before_it_was_cut_in_one_transaction_is_news_to_a_stream(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what the table's log says of its files: streams pass over those that are no change of data."""
    ledger = opened(spark, tmp_path, buckets=None)
    ledger.apply(prices(spark, price(1, 1, "a")))
    kind = ledger.at_commit().kind
    with Store(spark, tmp_path).begin() as transaction:
        intake.apply_within(transaction, kind, prices(spark, price(2, 2, "b"), price(3, 2, "b")))
        monkeypatch.setattr(intake, "BUCKET_BYTES", 1_500)
        intake.apply_within(transaction, kind, prices(spark, price(4, 3, "c")))
        transaction.commit()
    assert require_order(ledger, tmp_path) > 1
    newest = max((tmp_path / "changes" / "_delta_log").glob("*.json"))
    added = [json.loads(line).get("add") for line in newest.read_text().splitlines()]
    news = [tmp_path / "changes" / unquote(file["path"]) for file in added if file and file["dataChange"]]
    assert sorted(message for file in news for message in read_messages(file)) == ["day 2", "day 2", "day 3"]


def read_messages(file: Path) -> list[str]:
    return pq.read_table(file, columns=["message_id"], partitioning=None).column(0).to_pylist()


def test_of_what_is_no_source_of_rows_the_estimate_makes_no_thousands_of_buckets(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark takes a join that nobody has computed for the product of its sides."""
    table = prices(spark, price(1, 1, "a"), price(2, 1, "b"))
    numbers = spark.range(20_000).join(spark.range(20_000), "id")
    joined = table.join(numbers, table["data.h"] == numbers["id"]).select(*table.columns).cache()
    try:
        ledger = opened(spark, tmp_path, buckets=None)
        assert ledger.apply(joined).news == 2
        assert require_order(ledger, tmp_path) == 64
    finally:
        joined.unpersist()


def test_what_files_say_of_their_columns_asks_for_no_buckets(tmp_path: Path) -> None:
    """Of a wide table that is nearly all of a small file, and more buckets have more of those."""
    with Store(None, tmp_path).begin() as transaction:
        for number in range(8):
            row = pa.table({f"field {column}": [number] for column in range(500)})
            transaction.append("changes", row)
        size = sum(file.size for file in transaction.files("changes"))
        assert intake._row_bytes(transaction, "changes") < size / 2


def test_one_that_decides_itself_is_no_ledger_of_a_number(spark: SparkSession, tmp_path: Path) -> None:
    """Not of the number that it has so far, either: it would be refused as soon as it has grown."""
    opened(spark, tmp_path, buckets=None).apply(prices(spark, price(1, 1, "a")))
    with pytest.raises(OtherKind, match=r"in 1 buckets; it holds .* that decides itself"):
        opened(spark, tmp_path, buckets=1).apply(prices(spark, price(1, 2, "b")))


def test_as_many_as_were_asked_for_stay(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "BUCKET_BYTES", 1_000)
    ledger = opened(spark, tmp_path, buckets=2)
    for day in (1, 2):
        ledger.apply(prices(spark, *(price(number, day, "a") for number in range(9))))
        assert require_order(ledger, tmp_path) == 2
