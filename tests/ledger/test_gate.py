"""The gate of a ledger: what it is shown, and what becomes of the batch that it refuses."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit import changes_from
from cdckit.ledger import Ledger, Pending
from cdckit.parts.arguments import StreamBatch
from cdckit.store import ConflictingCommit

ROWS = "id int, `net.``eur` {}, day int"
"""A number, a price under a name that SQL must quote, and a day of January 2024."""


def opened(spark: SparkSession, place: Path, *, buckets: int = 1) -> Ledger:
    return Ledger(spark, place, entity="price", keys=["id"], buckets=buckets)


def changed(rows: DataFrame) -> DataFrame:
    by = "make_date(2024, 1, day)"
    return changes_from(rows, keys=["id"], sequence_by=by, except_column_list=["day"])


def told(spark: SparkSession, *rows: tuple[int, float, int], kind: str = "int") -> DataFrame:
    return changed(spark.createDataFrame(rows, ROWS.format(kind)))


def test_it_is_shown_the_entities_of_which_there_is_news(spark: SparkSession, tmp_path: Path) -> None:
    """Not those of which a batch writes older changes again: small files as one, or all for a wider type."""
    ledger = opened(spark, tmp_path)
    first = told(spark, *((number, -1, 2) for number in range(15)))
    for number in range(15):
        ledger.apply(first.where(f"data.id = {number}"))
    seen = []

    def look(after: Pending) -> None:
        changes, versions = after.touched_changes(), after.touched_history()
        assert (changes.columns, versions.columns) == (after.changes().columns, after.history().columns)
        found = changes.selectExpr("data.id", "'change'").union(versions.selectExpr("id", "'version'"))
        seen.append(sorted(map(tuple, found.collect())))

    # Of number 3 the message again, as one that was true a day before: of the two the log has both.
    earlier = first.where("data.id = 3").withColumn(
        "effective_timestamp", F.lit(datetime(2024, 1, 1, tzinfo=UTC))
    )
    files = len(ledger.store.snapshot().files("changes"))
    ledger.apply(told(spark, (15, 7, 2)).union(earlier), gate=look)
    # The fifteen as one, and what is new.
    assert (files, len(ledger.store.snapshot().files("changes"))) == (15, 2)
    ledger.apply(told(spark, (4, 2.5, 3), kind="double"), gate=look)
    assert seen == [
        [(3, "change"), (3, "change"), (3, "version"), (15, "change"), (15, "version")],
        [(4, "change"), (4, "change"), (4, "version"), (4, "version")],
    ]


def test_it_is_asked_again_if_another_writer_changed_what_it_was_shown(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A gate that asks for the whole ledger passes no batch by what another bucket held before."""
    ledger, other = (opened(spark, tmp_path, buckets=4) for _ in range(2))
    ledger.apply(told(spark, *((number, 1, 1) for number in range(4))))
    buckets = {row["id"]: ledger.at_commit().kind.bucket(row["guid"]) for row in ledger.history().collect()}
    one, another = next((a, b) for a in buckets for b in buckets if buckets[a] != buckets[b])
    asked: list[int] = []

    def apply(day: int, versions: Callable[[Pending], DataFrame], most: int) -> None:
        def gate(after: Pending) -> None:
            asked.append(versions(after).count())
            if len(asked) == 1:
                other.apply(told(spark, (another, day, day)))
            if asked[-1] > most:
                raise ValueError("too many versions")

        asked.clear()
        ledger.apply(told(spark, (one, day, day)), gate=gate)

    with pytest.raises(ValueError, match="too many versions"):
        apply(2, Pending.history, 5)
    assert (asked, ledger.history().count()) == ([5, 6], 5)
    apply(3, Pending.touched_history, 2)
    assert (asked, ledger.history().count()) == ([2], 7)

    def conflicting(after: Pending) -> None:
        asked.append(after.touched_history().count())
        raise ConflictingCommit(["orders"], 0, 1, "a store of its own")

    with pytest.raises(ConflictingCommit, match="a store of its own"):
        ledger.apply(told(spark, (one, 4, 4)), gate=conflicting)
    assert (asked, ledger.history().count()) == ([2, 3], 7)


def test_a_stream_ends_with_what_it_refuses_and_goes_on_from_there(
    spark: SparkSession, tmp_path: Path
) -> None:
    ledger = opened(spark, tmp_path / "ledger")
    spark.createDataFrame([(1, 5, 1), (2, -5, 1)], ROWS.format("int")).write.parquet(str(tmp_path / "in"))
    asked = []

    def run(least: int) -> None:
        def gate(after: Pending) -> None:
            asked.append(after.touched_history().where(f"`net.``eur` < {least}").count())
            if asked[-1]:
                raise ValueError("a price is too low")

        rows = spark.readStream.schema(ROWS.format("int")).parquet(str(tmp_path / "in"))
        writer = (
            changed(rows).writeStream.foreachBatch(ledger.sink("in", gate=gate)).trigger(availableNow=True)
        )
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()

    with pytest.raises(StreamingQueryException, match="a price is too low"):
        run(least=0)
    assert (ledger.at_commit().version, ledger.vacuum(timedelta(0))) == (None, [])
    run(least=-9)
    run(least=0)
    assert (asked, ledger.history().count()) == ([1, 0], 2)
    assert [ledger.store.batch(StreamBatch("in", number)) is None for number in (0, 1)] == [False, True]
    assert {path.partition("/")[0] for path in ledger.vacuum(timedelta(0))} >= {"changes", "history"}
