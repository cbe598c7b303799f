"""The suites: what it takes to check a history and its log, against what it took to merge them."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.measure import Result, content_hash, side_by_side
from benchmarks.merging import SMALL, random_changes
from cdckit import check, merge


def results(spark: SparkSession, work: Path) -> list[Result]:
    """About 1,400,000 versions of 2,000,000 changes, which both lie in files."""
    source = work / f"changes_{SMALL}_{SMALL // 10}.parquet"
    if not (source / "_SUCCESS").exists():
        random_changes(spark, SMALL, SMALL // 10).write.mode("overwrite").parquet(str(source))
    changes = spark.read.parquet(str(source))
    made, kept = work / "checked_history.parquet", work / "checked_log.parquet"
    merged = merge(changes, entity="flight", keys=["number"])
    merged.write.mode("overwrite").parquet(str(made))
    history = spark.read.parquet(str(made))
    guids = history.select("guid", "number").distinct()
    changes.join(guids, changes["data.number"] == guids["number"]).drop("number").write.mode(
        "overwrite"
    ).parquet(str(kept))
    log = spark.read.parquet(str(kept))
    took = side_by_side(
        {
            "merge": lambda: merged.write.mode("overwrite").parquet(str(work / "history.parquet")),
            "changes": lambda: check(log, "changes").require(),
            "history": lambda: check(history, "history").require(),
            "ledger": lambda: check(history, "ledger", tables={"changes": log}, keys=["number"]).require(),
        }
    )
    digest = content_hash(history)

    def result(name: str, bar: float | None, *suites: str) -> Result:
        seconds = sum(took[each].seconds for each in suites)
        memory = max(took[each].peak_memory_mb for each in suites)
        ratio = round(seconds / took["merge"].seconds, 2)
        return Result(name, ratio, bar, "lower", round(seconds, 2), memory, digest)

    return [
        result("suites_of_a_history_over_merge", 0.3, "changes", "history"),
        result("suites_with_the_ledger_over_merge", 0.3, "changes", "history", "ledger"),
    ]
