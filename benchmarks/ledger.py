"""The ledger: kept up by batches, against what Spark takes to shuffle, sort and write all its changes."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.measure import PeakMemory, Result, content_hash
from benchmarks.merging import floor, random_changes
from cdckit import Ledger, merge
from cdckit.merging.merge import plan_versions
from cdckit.query import correct
from cdckit.store import Store

SMALL, MIDDLE, LARGE = 1_000_000, 2_000_000, 10_000_000
"""Numbers of changes; a tenth as many keys."""
MANY = 100
"""How many small batches come one after the other."""


def results(spark: SparkSession, work: Path) -> list[Result]:
    """A new ledger and its rebuild; batches of 1 % of the keys, and of a hundred of them."""
    return [
        *_whole(spark, work),
        *_batches(spark, work),
        *_many_batches(spark, work),
        *_erasures(spark, work),
    ]


def _whole(spark: SparkSession, work: Path) -> list[Result]:
    frame = _changes(spark, work, MIDDLE)
    ledger = _ledger(spark, work, MIDDLE)
    merged = work / "merged"
    shutil.rmtree(merged, ignore_errors=True)

    def merge_into_store() -> None:
        with Store(spark, merged).begin() as transaction:
            transaction.replace("history", plan_versions(frame, entity="flight", keys=["number"]))
            transaction.commit()

    _timed("floor (warm-up)", lambda: _floor(frame, work))
    first, _ = _timed("floor", lambda: _floor(frame, work))
    timings = {
        "merge_2m_through_store": _timed("merge through the store", merge_into_store),
        "ledger_new_2m": _timed("new ledger", lambda: ledger.apply(frame)),
        "ledger_rebuild_2m": _timed("rebuild", ledger.rebuild),
    }
    second, _ = _timed("floor", lambda: _floor(frame, work))
    digest = _checked(ledger)
    bars = {"merge_2m_through_store": 1.15, "ledger_new_2m": 1.5, "ledger_rebuild_2m": 0.6}
    return [
        _result(f"{name}_over_floor", took / ((first + second) / 2), bars[name], took, memory, digest)
        for name, (took, memory) in timings.items()
    ]


def _batches(spark: SparkSession, work: Path) -> list[Result]:
    """Batches for a ledger of 10 million changes, the small ones in turns with one of a million."""
    frame, ledger = _changes(spark, work, LARGE), _ledger(spark, work, LARGE)
    other = _ledger(spark, work, SMALL)
    other.apply(_changes(spark, work, SMALL))
    _timed("new ledger of 10 million", lambda: ledger.apply(frame))
    first, _ = _timed("floor of 10 million", lambda: _floor(frame, work))
    found = {
        name: _timed(
            name, _applied(ledger, _batch(spark, work, LARGE, LARGE // 1000, LARGE // 1000, name, days))
        )
        for name, days in (("in order", 100), ("late", 0))
    }
    found["corrected"] = _timed("corrected", _applied(ledger, _correction(ledger, work)))
    second, _ = _timed("floor of 10 million", lambda: _floor(frame, work))
    both = {SMALL: other, LARGE: ledger}
    seconds: dict[int, list[float]] = {SMALL: [], LARGE: []}
    share = 0.0
    for turn in range(4):
        for size, one in both.items():
            rows = _batch(spark, work, size, 100, 1_000, f"small {turn}", 200 + turn)
            before = _files(one)
            took, _ = _timed(f"1,000 changes after {size:,}", _applied(one, rows))
            after = _files(one)
            if turn:
                seconds[size].append(took)
            written = sum(size for path, size in after.items() if path not in before)
            if one is ledger:
                share = max(share, written / sum(after.values()))
    digest = _checked(other)
    floor_seconds = (first + second) / 2
    small = {size: statistics.median(each) for size, each in seconds.items()}
    bars = {"in order": 0.2, "late": 0.35, "corrected": 0.35}
    return [
        *(
            _result(
                f"ledger_1_percent_{name.replace(' ', '_')}_over_floor_10m",
                took / floor_seconds,
                bars[name],
                took,
                memory,
                "",
            )
            for name, (took, memory) in found.items()
        ),
        _result("ledger_small_batch_10m_over_1m", small[LARGE] / small[SMALL], 1.3, small[LARGE], 0, digest),
        _result("ledger_small_batch_share_of_bytes", share, 0.05, 0, 0, digest),
    ]


def _many_batches(spark: SparkSession, work: Path) -> list[Result]:
    ledger = _ledger(spark, work, SMALL)
    ledger.apply(_changes(spark, work, SMALL))
    seconds = []
    for number in range(MANY):
        rows = _batch(spark, work, SMALL, 100, 1_000, f"many {number}", 200 + number)
        seconds.append(_timed(f"batch {number}", _applied(ledger, rows))[0])
    first, last = statistics.median(seconds[:10]), statistics.median(seconds[-10:])
    digest = _checked(ledger)
    print(f"  {len(_files(ledger)):,} live files after {MANY} batches")
    return [_result("ledger_last_10_of_100_over_first_10", last / first, 1.2, last, 0, digest)]


def _erasures(spark: SparkSession, work: Path) -> list[Result]:
    """A hundred keys are erased, in turns with a late batch of a hundred."""
    ledger = _ledger(spark, work, SMALL)
    ledger.apply(_changes(spark, work, SMALL))
    seconds: dict[str, list[float]] = {"late": [], "erased": []}
    for turn in range(4):
        rows = _batch(spark, work, SMALL, 100, 1_000, f"late {turn}", 0)
        late, _ = _timed("a late batch of 100 keys", _applied(ledger, rows))
        some = ledger.history().where("valid_to_timestamp IS NULL").select("number").distinct()
        keys = some.orderBy(F.xxhash64("number")).limit(100).toPandas()
        erase = partial(ledger.erase, keys=keys, by="anna", reason="asked for")
        erased, _ = _timed("100 keys are erased", erase)
        if turn:
            seconds["late"].append(late)
            seconds["erased"].append(erased)
    digest = _checked(ledger)
    late, erased = (statistics.median(seconds[name]) for name in ("late", "erased"))
    return [_result("ledger_erase_100_over_late_batch_1m", erased / late, 3.0, erased, 0, digest)]


def _changes(spark: SparkSession, work: Path, changes: int) -> DataFrame:
    source = work / f"changes_{changes}_{changes // 10}.parquet"
    if not (source / "_SUCCESS").exists():
        random_changes(spark, changes, changes // 10).write.mode("overwrite").parquet(str(source))
    return spark.read.parquet(str(source))


def _batch(
    spark: SparkSession, work: Path, size: int, keys: int, changes: int, name: str, days: int
) -> DataFrame:
    """Changes of so many of the ledger's keys at random, all *days* later than those before."""
    number = F.pmod(F.xxhash64(F.lit(name), "data.number"), F.lit(size // 10))
    rows = random_changes(spark, changes, keys).withColumns(
        {
            "data": F.col("data").withField("number", number),
            "message_id": F.concat(F.lit(f"{name} "), "message_id"),
            "effective_timestamp": F.col("effective_timestamp") + F.lit(timedelta(days=days)),
        }
    )
    return _kept(rows, work)


def _kept(rows: DataFrame, work: Path) -> DataFrame:
    """The rows of a batch as a file: what it takes to make them is not what is measured."""
    path = str(work / "batch.parquet")
    rows.write.mode("overwrite").parquet(path)
    return rows.sparkSession.read.parquet(path)


def _correction(ledger: Ledger, work: Path) -> DataFrame:
    """Another gate for a day, for 1 % of the ledger's keys."""
    some = F.pmod(F.xxhash64(F.lit("corrected"), "number"), F.lit(100)) == 0
    start, end = datetime(2013, 2, 10, tzinfo=UTC), datetime(2013, 2, 11, tzinfo=UTC)
    entities, right = ledger.history().where(some), {"gate": "Z9"}
    rows = correct(entities, right, start, end, keys=["number"], by="anna", reason="misread")
    return _kept(rows, work)


def _ledger(spark: SparkSession, work: Path, size: int) -> Ledger:
    place = work / f"ledger_{size}"
    shutil.rmtree(place, ignore_errors=True)
    return Ledger(spark, place, entity="flight", keys=["number"])


def _files(ledger: Ledger) -> dict[str, int]:
    """The live files and their sizes."""
    snapshot = ledger.store.snapshot()
    return {one.path: one.size for name in snapshot.names() for one in snapshot.files(name)}


def _applied(ledger: Ledger, rows: DataFrame) -> Callable[[], object]:
    return lambda: ledger.apply(rows)


def _floor(frame: DataFrame, work: Path) -> None:
    floor(frame).write.mode("overwrite").parquet(str(work / "floor.parquet"))


def _checked(ledger: Ledger) -> str:
    """The hash of the history, which is that of one merge of all changes."""
    expected = content_hash(merge(ledger.changes().drop("guid"), entity="flight", keys=["number"]))
    found = content_hash(ledger.history())
    assert found == expected, (found, expected)
    return found


def _result(name: str, ratio: float, bar: float, seconds: float, memory: int, digest: str) -> Result:
    return Result(name, round(ratio, 3), bar, "lower", round(seconds, 2), memory, digest)


def _timed(name: str, run: Callable[[], object]) -> tuple[float, int]:
    with PeakMemory() as peak:
        began = time.perf_counter()
        run()
        took = time.perf_counter() - began
    print(f"  {name:<36}{took:8.1f} s", flush=True)
    return took, peak.megabytes
