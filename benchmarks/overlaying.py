"""Overlays and durations, against shuffling, sorting and writing; joins of periods, against an equi-join."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.joining import random_versions
from benchmarks.measure import Result, content_hash, side_by_side
from cdckit.model.history import VALID_FROM, VALID_TO
from cdckit.query import Layer, durations, join_periods, overlay

START, END = datetime(2013, 1, 1, tzinfo=UTC), datetime(2020, 1, 1, tzinfo=UTC)


def results(spark: SparkSession, work: Path) -> list[Result]:
    """Of two histories of 1,400,000 versions of 200,000 keys each."""
    one, other = _histories(spark, work)
    both = overlay(Layer(one, into="one"), Layer(other, into="other"), how="full")
    lasted = durations(one, "gate", START, END, by="number")
    frames = {
        "floor of two": _sorted(one.unionByName(other)),
        "overlay": both,
        "floor of one": _sorted(one),
        "durations": lasted,
        "equi-join of periods": equi_join(one, other),
        "join of periods": join_periods(one, other, on="number", into=("one", "other")).drop("relation"),
    }
    runs = {name: _writing(frame, _output(work, name)) for name, frame in frames.items()}
    took = side_by_side(runs)

    digests = {name: content_hash(spark.read.parquet(str(_output(work, name)))) for name in runs}
    if digests["join of periods"] != digests["equi-join of periods"]:
        raise AssertionError(f"both joins should have found the same pairs: {digests}")

    def result(name: str, run: str, over: str, bar: float | None) -> Result:
        digest = digests[run]
        ratio, memory = took[run].seconds / took[over].seconds, took[run].peak_memory_mb
        return Result(name, round(ratio, 2), bar, "lower", round(took[run].seconds, 2), memory, digest)

    return [
        result("overlay_two_1400k_over_floor", "overlay", "floor of two", 2.5),
        result("durations_1400k_over_floor", "durations", "floor of one", 1.5),
        result("join_periods_over_equi_join", "join of periods", "equi-join of periods", None),
    ]


def _histories(spark: SparkSession, work: Path) -> tuple[DataFrame, DataFrame]:
    """One of the as-of join's benchmark, and the same one eleven days later, made once and then read."""
    path = work / "join_versions_uniform.parquet"
    if not (path / "_SUCCESS").exists():
        random_versions(spark, hot=False).write.mode("overwrite").parquet(str(path))
    later = work / "overlay_versions.parquet"
    if not (later / "_SUCCESS").exists():
        shifted = {end: F.col(end) + F.expr("INTERVAL 11 DAYS") for end in (VALID_FROM, VALID_TO)}
        spark.read.parquet(str(path)).withColumns(shifted).write.mode("overwrite").parquet(str(later))
    one, other = (spark.read.parquet(str(each)) for each in (path, later))
    return one, other


def equi_join(one: DataFrame, other: DataFrame) -> DataFrame:
    """The pairs that share an instant, by hand: fast while a key has few periods, and their square else."""
    left, right = (
        each.select(F.struct(*each.columns).alias(name)) for each, name in ((one, "one"), (other, "other"))
    )
    shared = F.expr(
        "one.number <=> other.number"
        f" AND (other.{VALID_TO} IS NULL OR one.{VALID_FROM} < other.{VALID_TO})"
        f" AND (one.{VALID_TO} IS NULL OR other.{VALID_FROM} < one.{VALID_TO})"
    )
    return left.join(right, shared, "inner")


def _sorted(frame: DataFrame) -> DataFrame:
    """The floor: what no sorting question can do without."""
    return frame.repartition("guid").sortWithinPartitions("guid", VALID_FROM)


def _writing(frame: DataFrame, path: Path) -> Callable[[], object]:
    return lambda: frame.write.mode("overwrite").parquet(str(path))


def _output(work: Path, run: str) -> Path:
    return work / f"{run.replace(' ', '_')}.parquet"
