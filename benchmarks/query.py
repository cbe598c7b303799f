"""Questions about the past: beliefs against the merge, and one value's story against a scan."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.measure import Result, content_hash, side_by_side
from benchmarks.merging import BEGIN_SECONDS, SPAN_SECONDS, random_changes
from cdckit import as_of, bitemporal, changes_from, merge, why
from cdckit.query import Belief, explain, reconcile

LATE = 10
"""One change in so many arrives after a delay."""
DELAY_SECONDS = 1_000_000
ROWS = 2_000_000
OFTEN = 1_000
"""One row in so many is missing, one too many, and one differs."""
WHY_SECONDS = 2.0
"""What an answer may take beyond the scan that finds the entity's changes."""


def results(spark: SparkSession, work: Path) -> list[Result]:
    """`bitemporal` of a million changes, `why` of one key, `reconcile` and `explain` of two million."""
    return [_bitemporal(spark, work), _why(spark, work), _reconcile(spark, work), _explain(spark, work)]


def _bitemporal(spark: SparkSession, work: Path) -> Result:
    frame = _stored(work / "changes_late.parquet", lambda: delayed_changes(spark, 1_000_000, 100_000), spark)
    table = bitemporal(frame, entity="flight", keys=["number"])
    history = merge(frame, entity="flight", keys=["number"])
    runs: dict[str, Callable[[], object]] = {
        "merge": lambda: _write(history, work / "history.parquet"),
        "bitemporal": lambda: _write(table, work / "beliefs.parquet"),
    }
    took = side_by_side(runs)
    seconds, memory = took["bitemporal"].seconds, took["bitemporal"].peak_memory_mb
    digest = content_hash(spark.read.parquet(str(work / "beliefs.parquet")))
    ratio = seconds / took["merge"].seconds
    return Result(
        "bitemporal_1m_over_merge", round(ratio, 2), 4.0, "lower", round(seconds, 2), memory, digest
    )


def _why(spark: SparkSession, work: Path) -> Result:
    source = work / "changes_2000000_200000.parquet"
    frame = _stored(source, lambda: random_changes(spark, 2_000_000, 200_000), spark)
    at = datetime(2013, 3, 1, tzinfo=UTC)

    def told() -> DataFrame:
        # Made anew for each run: Spark keeps what a DataFrame that was asked before has shuffled.
        return why(frame, {"number": 4711}, "gate", keys=["number"], valid_at=at)

    runs: dict[str, Callable[[], object]] = {
        "filtered scan": lambda: frame.where("data.number = 4711").collect(),
        "why": lambda: told().collect(),
    }
    took = side_by_side(runs, rounds=5)
    seconds, memory = took["why"].seconds, took["why"].peak_memory_mb
    ratio = seconds / (took["filtered scan"].seconds + WHY_SECONDS)
    name = "why_2m_over_scan_plus_2s"
    return Result(name, round(ratio, 2), 1.0, "lower", round(seconds, 2), memory, content_hash(told()))


def _reconcile(spark: SparkSession, work: Path) -> Result:
    """Two million rows, of which one in a thousand differs, one is missing and one too many."""
    number, of = F.col("id"), F.pmod(F.xxhash64("id"), F.lit(OFTEN))
    fields = {
        "number": number,
        "name": F.concat(F.lit("product "), number),
        "price": number / 7,
        "weight": F.pmod(F.xxhash64("id"), F.lit(1_000)).cast("int"),
    }
    rows = spark.range(ROWS).select(*(column.alias(name) for name, column in fields.items()), of.alias("of"))
    told = rows.where("of <> 1").drop("of").withColumn("day", F.lit(datetime(2013, 1, 1)))

    def feed() -> DataFrame:
        changes = changes_from(told, keys=["number"], effective="day", column_list=list(fields)[1:])
        return merge(changes, entity="product", keys=["number"])

    def table() -> DataFrame:
        price = F.when(F.col("of") == 2, F.col("price") + 1).otherwise(F.col("price"))
        return rows.where("of <> 0").withColumn("price", price).drop("of")

    history = _stored(work / "history_2000000.parquet", feed, spark)
    source = _stored(work / "source_2000000.parquet", table, spark)
    at = datetime(2013, 3, 1, tzinfo=UTC)
    joined = as_of(history, at).join(
        source.withColumnsRenamed({name: f"its_{name}" for name in fields}),
        F.col("number") == F.col("its_number"),
        "outer",
    )
    runs: dict[str, Callable[[], object]] = {
        "full outer join": lambda: joined.write.format("noop").mode("overwrite").save(),
        "reconcile": lambda: _write(
            reconcile(history, source, valid_at=at, keys=["number"]), work / "findings.parquet"
        ),
    }
    took = side_by_side(runs)
    seconds, memory = took["reconcile"].seconds, took["reconcile"].peak_memory_mb
    digest = content_hash(spark.read.parquet(str(work / "findings.parquet")))
    ratio = seconds / took["full outer join"].seconds
    name = "reconcile_2m_over_full_outer_join"
    return Result(name, round(ratio, 2), 1.5, "lower", round(seconds, 2), memory, digest)


def _explain(spark: SparkSession, work: Path) -> Result:
    """A sum by group in the middle of two million changes, as known then, and at their end."""
    source = work / f"changes_late_{ROWS}.parquet"
    frame = _stored(source, lambda: delayed_changes(spark, ROWS, ROWS // 10), spark)
    seconds_of = [BEGIN_SECONDS + SPAN_SECONDS // 2, BEGIN_SECONDS + SPAN_SECONDS]
    middle, end = (datetime.fromtimestamp(at, UTC) for at in seconds_of)
    then, now = Belief(frame, middle, middle), Belief(frame, end)
    history = merge(frame, entity="flight", keys=["number"])
    parts = explain(then, now, "sum", "distance", by="gate", entity="flight", keys=["number"])
    runs: dict[str, Callable[[], object]] = {
        "merge": lambda: _write(history, work / "history.parquet"),
        "explain": lambda: _write(parts, work / "parts.parquet"),
    }
    took = side_by_side(runs)
    seconds, memory = took["explain"].seconds, took["explain"].peak_memory_mb
    digest = content_hash(spark.read.parquet(str(work / "parts.parquet")))
    ratio = seconds / took["merge"].seconds
    return Result("explain_2m_over_merge", round(ratio, 2), 2.0, "lower", round(seconds, 2), memory, digest)


def delayed_changes(spark: SparkSession, changes: int, keys: int) -> DataFrame:
    """The changes of the merge's benchmark, one in ten of which arrives up to twelve days after its time."""

    def drawn(salt: str, below: int) -> Column:
        return F.pmod(F.xxhash64(F.lit(salt), "message_id"), F.lit(below))

    delay = F.when(drawn("late", LATE) == 0, drawn("delay", DELAY_SECONDS)).otherwise(0)
    arrived = F.timestamp_seconds(F.unix_timestamp("effective_timestamp") + delay)
    return random_changes(spark, changes, keys).withColumn(
        "arrival", F.col("arrival").withField("timestamp", arrived)
    )


def _stored(path: Path, make: Callable[[], DataFrame], spark: SparkSession) -> DataFrame:
    if not (path / "_SUCCESS").exists():
        make().write.mode("overwrite").parquet(str(path))
    return spark.read.parquet(str(path))


def _write(frame: DataFrame, path: Path) -> None:
    frame.write.mode("overwrite").parquet(str(path))
