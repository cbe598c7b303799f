"""What a test run tells its JVM: its own options always, whatever the environment says beside them."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tools.classes import ARCHIVING
from tools.jvm_options import with_generated_code, with_ours


def test_what_was_given_comes_after_and_wins() -> None:
    both = with_ours("-Xms2g", generated=True)
    assert "-XX:TieredStopAtLevel=1" in both
    assert both.endswith(" -Xms2g")


def test_a_worker_is_not_told_twice() -> None:
    once = with_ours("-Xms2g", generated=False)
    assert with_ours(once, generated=False) == once


def test_only_tests_go_without_generated_code() -> None:
    off = "-Dspark.sql.codegen.wholeStage=false"
    assert off in with_ours("", generated=False)
    assert off not in with_ours("", generated=True)


def test_a_run_whose_classes_are_archived_keeps_its_options() -> None:
    given = f'"{ARCHIVING}=some.jsa"'
    assert with_ours(given, generated=False) == given


def test_a_sort_of_few_rows_takes_little_memory(spark: SparkSession) -> None:
    """By Spark's own choice its pages would be 32 MiB each."""
    assert spark.sparkContext._jvm.org.apache.spark.SparkEnv.get().memoryManager().pageSizeBytes() == 4 << 20


def test_a_part_of_the_tests_goes_by_generated_code(spark: SparkSession) -> None:
    def is_generated() -> bool:
        plan = spark.range(9).selectExpr("id + 1 AS n")._jdf.queryExecution().executedPlan()
        return "*(1)" in plan.toString()

    before = is_generated()
    assert before == (spark.conf.get("spark.sql.codegen.wholeStage") == "true")
    with with_generated_code(spark):
        assert is_generated()
        assert spark.conf.get("spark.sql.codegen.factoryMode") == "FALLBACK"
    assert is_generated() == before
