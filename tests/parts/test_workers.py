"""What workers make of batches: rows; and work on several things at once."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.parts import at_home, workers
from cdckit.parts.argument_forms import takes
from cdckit.parts.public_calls import called_function
from cdckit.parts.workers import WorkerPlan, run_together

# Spark's workers cannot import a module of the tests: what they are to run travels by value.
register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]

NUMBERS = T.StructType([T.StructField("n", T.LongType())])


def doubled(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.record_batch({"n": pc.multiply(batch.column("id"), 2)})


def test_what_is_made_comes_back_as_rows(spark: SparkSession) -> None:
    found = WorkerPlan(spark.range(0, 1000, 1, 4), doubled, NUMBERS).rows()
    assert found.schema == NUMBERS
    assert sorted(row["n"] for row in found.collect()) == [2 * n for n in range(1000)]


LISTS = """id long, list array<struct<key: string, value: binary>>, map map<string, long>,
    data struct<list: array<long>>"""


def as_sent(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def test_lists_and_maps_are_never_null_on_the_way_and_come_as_they_were(spark: SparkSession) -> None:
    """An empty list stays one."""
    rows = [
        (1, [("a", b"x"), (None, None), None], {"b": 1, "c": None}, ([1],)),
        (2, [], {}, ([],)),
        (3, None, None, (None,)),
        (4, None, {"d": 2}, None),
    ]
    given = spark.createDataFrame(rows, LISTS).coalesce(1)
    plan = WorkerPlan(given, as_sent, given.schema)
    assert sorted(map(tuple, plan.rows().collect())) == rows
    # Two marks come behind; of a struct what is in it stays as it is.
    sent, places = workers._without_null_lists(given)
    nulls = [sum(each is None for each in column) for column in zip(*sent.collect(), strict=True)]
    assert (nulls, places) == ([0, 0, 0, 1, 0, 0], [1, 2])


# At home ------------------------------------------------------------------------------------------------


def tell_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, object]]:
    """Which rows came together, and to which process."""
    yield {"rows": [n for batch in batches for n in batch.column(0).to_pylist()], "process": os.getpid()}


def refuse(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, object]]:
    raise ValueError(f"no {sum(batch.num_rows for batch in batches)} rows")


def said(rows: DataFrame, **options: Any) -> tuple[bool, list[list[int]]]:
    """Whether this program did the work, and which rows came together, of those partitions that had some."""
    reports = workers.worker_reports(rows, tell_rows, by=["third"], order=["third", "n"], **options)
    some = [report for report in reports if report["rows"]]
    homes = {report["process"] == os.getpid() for report in some}
    assert len(homes) == 1
    return homes.pop(), sorted(report["rows"] for report in some)


def test_few_rows_are_worked_on_at_home_and_others_by_workers(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = spark.createDataFrame(pa.table({"n": [5, 4, 3, 2, 1, 0], "third": [2, 1, 0, 2, 1, 0]}))
    assert said(rows) == (True, [[0, 3, 1, 4, 2, 5]])
    at_work, together = said(rows, heavy=True)
    assert not at_work
    assert sorted(n for some in together for n in some) == list(range(6))
    # Rows of one key come together, and in their order.
    assert all(
        [n for n in some if n % 3 == third] in ([], [third, third + 3])
        for some in together
        for third in range(3)
    )
    monkeypatch.setattr(at_home, "WORK_ROWS", 6)
    assert said(rows)[0]
    monkeypatch.setattr(at_home, "WORK_ROWS", 5)
    assert not said(rows)[0]


def test_a_plan_that_reads_much_is_not_looked_at(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though few rows come of it: to find them, all would have to be read by one task."""
    monkeypatch.setattr(at_home, "WORK_BYTES", 1_000)
    few = spark.createDataFrame(pa.table({"n": [5, 4], "third": [2, 1]}))
    assert said(few)[0]
    assert not said(few.join(spark.range(1_000), F.col("n") == F.col("id"), "left_semi"))[0]
    few_of_many = spark.range(1_000).where("id < 3").selectExpr("id AS n", "id AS third")
    assert not said(few_of_many)[0]


def test_few_rows_are_computed_once_and_held_here_and_more_by_the_executors(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = workers.compute_rows(spark.range(3))
    assert isinstance(held, pa.Table)
    assert held.to_pydict() == {"id": [0, 1, 2]}
    assert workers.compute_once(spark.range(0)) is None
    monkeypatch.setattr(at_home, "WORK_BYTES", -1)
    monkeypatch.setattr(at_home, "HELD_ROWS", 2)
    assert isinstance(workers.compute_rows(spark.range(2)), pa.Table)
    kept = workers.compute_rows(spark.range(3))
    assert isinstance(kept, DataFrame)
    assert sorted(row["id"] for row in kept.collect()) == [0, 1, 2]


def test_what_is_raised_at_home_is_what_a_worker_would_have_raised(spark: SparkSession) -> None:
    rows = spark.createDataFrame(pa.table({"n": [1, 2]}))
    for heavy in (False, True):
        with pytest.raises(PythonException, match="ValueError: no 2 rows"):
            workers.worker_reports(rows.coalesce(1), refuse, heavy=heavy)


# Threads -------------------------------------------------------------------------------------------------


def test_results_come_in_the_order_of_the_items(spark: SparkSession) -> None:
    assert run_together(spark, lambda n: spark.range(n).count(), [3, 1, 2, 0, 5, 4]) == [3, 1, 2, 0, 5, 4]
    assert run_together(spark, str, []) == []


def test_an_error_is_raised_when_what_had_begun_has_ended(spark: SparkSession) -> None:
    ended, all_began = [], Barrier(3)

    def work(n: int) -> None:
        all_began.wait(timeout=60)
        if n == 0:
            raise ValueError("the first")
        spark.range(n).count()
        ended.append(n)

    with pytest.raises(ValueError, match="the first"):
        run_together(spark, work, [0, 1, 2])
    assert sorted(ended) == [1, 2]


def test_jobs_of_threads_belong_to_the_group_of_their_caller(spark: SparkSession) -> None:
    context = spark.sparkContext
    context.setLocalProperty("who", "the caller")
    try:
        seen = run_together(spark, lambda _: context.getLocalProperty("who"), [1, 2])
    finally:
        context.setLocalProperty("who", None)  # type: ignore[arg-type]
    assert seen == ["the caller", "the caller"]


def test_threads_do_not_see_what_each_other_notes(spark: SparkSession) -> None:
    """Spark notes there which query a thread is running, and forgets it when that ends."""
    context, both = spark.sparkContext, Barrier(2)

    def work(name: str) -> str | None:
        context.setLocalProperty("mine", name)
        both.wait(timeout=60)
        return context.getLocalProperty("mine")

    assert run_together(spark, work, ["a", "b"]) == ["a", "b"]


def test_nothing_more_is_begun_after_an_error(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, closed = [], Event()

    class Pool(ThreadPoolExecutor):
        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            super().shutdown(wait=False, cancel_futures=cancel_futures)
            closed.set()
            super().shutdown(wait)

    def work(n: int) -> None:
        begun.append(n)
        if n == 0:
            raise ValueError("the first")
        assert closed.wait(60)

    monkeypatch.setattr(workers, "ThreadPoolExecutor", Pool)
    with pytest.raises(ValueError, match="the first"):
        run_together(spark, work, range(40))
    # As many as work at once, and one in the place of the first.
    assert len(begun) <= 5


LARGE_TEXTS = "spark.sql.execution.arrow.useLargeVarTypes"
TEXTS = T.StructType().add("t", T.StringType()).add("b", T.ArrayType(T.BinaryType()))


def as_they_come(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        kinds = [f"{column.type}" for column in batch.columns]
        assert kinds in (
            ["string", "list<element: binary not null>"],
            ["large_string", "list<element: large_binary not null>"],
        )
        yield batch.set_column(0, "t", pa.array(kinds[:1] * batch.num_rows, batch.column("t").type))


@pytest.mark.parametrize("session_has_large", ["false", "true"])
@pytest.mark.parametrize("large", [False, True])
def test_texts_come_large_or_not_as_asked_for_whatever_the_session_sends(
    spark: SparkSession, session_has_large: str, large: bool
) -> None:
    given = spark.range(3).selectExpr("'x' as t", "array(X'ff') as b")
    made = WorkerPlan(given, as_they_come, TEXTS, large=large)
    expected = [("large_string" if large else "string", [b"\xff"])] * 3
    spark.conf.set(LARGE_TEXTS, session_has_large)
    try:
        assert [tuple(row) for row in made.rows().collect()] == expected
    finally:
        spark.conf.unset(LARGE_TEXTS)


def test_a_large_batch_comes_in_parts_that_offsets_of_32_bits_can_tell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Five texts of 100 bytes, where no more than 250 fit; one that is larger alone comes alone."""
    monkeypatch.setattr(workers, "_MOST_BYTES", 250)
    texts = [letter * (100 if letter != "d" else 300) for letter in "abcde"]
    batch = pa.record_batch({"t": pa.array(texts, pa.large_string())})
    parts = list(workers._with_texts([batch], large=False))
    assert [part.column("t").type for part in parts] == [pa.string()] * len(parts)
    assert [part.column("t").to_pylist() for part in parts] == [texts[:2], texts[2:3], texts[3:4], texts[4:]]


def test_what_works_beside_others_raises_in_the_name_of_the_same_call(spark: SparkSession) -> None:
    @takes()
    def receive() -> list[str]:
        """Ask each of two threads by which name it would raise."""
        return run_together(spark, lambda _: called_function(), [1, 2])

    assert receive() == ["receive", "receive"]
