"""
Suites that Great Expectations runs too, and what is shown of a version that its log gives otherwise.

In `make test`:
tests/quality/test_check.py::test_other_sorts_of_expectations_are_run_by_great_expectations,
tests/quality/test_check.py::test_whatever_is_merged_keeps_the_suites,
tests/quality/test_check.py::test_a_field_may_be_called_like_anything_in_a_suite.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdckit import Ledger, changes_from, check, merge
from cdckit.quality import check_all, find_contradictions
from cdckit.quality.checks import VIEW, count, ephemeral_context
from cdckit.quality.suites import read_suite, suite_names
from support.histories import to_dataframe
from support.ledger_programs import FIELDS, KEYS, all_of, batches
from support.suites import LEDGER_KEYS, sentences, told, views
from tools.tiers import seeds

AT = datetime(2024, 1, 1, tzinfo=UTC)


def test_of_a_version_that_its_log_gives_otherwise_the_difference_is_shown(spark: SparkSession) -> None:
    tables = views(spark, "ledger", [told("ledger")["good"]])
    long = F.lit("x" * 100)
    log = tables["cdckit_changes"].withColumn("data", F.col("data").withField("a", long))
    log = log.withColumn("carried", F.col("carried").withField("a", F.lit(True))).drop("field_priorities")
    history = merge(log, entity="guid", keys=["number"]).localCheckpoint()
    first = F.col("source_message") == "m1"
    name = F.when(first, "pot").otherwise(F.col("name"))
    entry = F.col("field_provenance")["name"].withField("p", F.lit(7))
    lies = history.withColumns(
        {"name": name, "field_provenance": F.col("field_provenance").withField("name", entry)}
    )
    found = check(lies.where(first), "ledger", tables={"changes": log}, keys=LEDGER_KEYS)
    shown = {each.sentence.says: repr(each.examples) for each in found.broken}
    differing = next(text for text in shown.values() if "name: pot" in text)
    assert 'name: pot, field_provenance.name: {"m":"m1","p":7}' in differing
    assert 'name: kettle, field_provenance.name: {"m":"m1","p":1}' in differing
    # A version that the table lacks has no other side.
    assert any("a: xxxx" in text and "NULL" in text for text in shown.values())


def test_fields_may_be_called_as_a_query_of_the_suite_calls_its_columns(spark: SparkSession) -> None:
    """And be of types that Spark does not compare."""
    words = ["has", "due", "fields", "m", "now", "was", "x (y", "a.b"]
    data = ", ".join(f"'{word}' AS `{word}`" for word in words)
    row = f"struct(1 AS number, {data}, map('a', 1, 'b', NULL) AS map, parse_json('[1]') AS variant) AS data"
    made = changes_from(
        spark.range(1).selectExpr(row).select("data.*", F.lit(AT).alias("at")),
        keys=["number"],
        sequence_by="at",
    )
    made = made.localCheckpoint()
    history = merge(made, entity="e", keys=["number"]).localCheckpoint()
    log = made.crossJoin(history.select("guid")).localCheckpoint()
    assert check(history, "history").ok
    assert check(history, "ledger", tables={"changes": log}, keys=["number"]).ok
    for other in (F.create_map(F.lit("a"), F.lit(2)), F.lit(None).cast("map<string,int>")):
        lies = history.withColumn("map", other)
        found = check(lies, "ledger", tables={"changes": log}, keys=["number"])
        assert [each.broken for each in found.results] == [0, 0, 0, 0, 1, 0, 0]


# Great Expectations runs each sentence by itself: those here have a sentence of nearly every sort.
SOON = ("history", "records", "changes")
LATER = [pytest.param(name, marks=pytest.mark.soak) for name in suite_names() if name not in SOON]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", [*SOON, *LATER])
def test_great_expectations_says_the_same_of_the_same_rows(spark: SparkSession, name: str) -> None:
    """It reads the files as they are: in plain Great Expectations they mean what they mean here."""
    import great_expectations as gx

    stated = told(name)
    cases = [stated["good"], *stated["breaks"].values(), *stated.get("breaks_more", [])]
    tables = views(spark, name, cases)
    for view, table in tables.items():
        if view.startswith(VIEW):
            table.createOrReplaceTempView(view)
    suite = read_suite(name)
    context = ephemeral_context("a test")
    asset = context.data_sources.add_spark("spark", persist=False).add_dataframe_asset("rows")
    batch = asset.add_batch_definition_whole_dataframe("all").get_batch(
        {"dataframe": tables["batch"].cache()}
    )
    given = gx.ExpectationSuite(**json.loads(json.dumps(suite.stated)))
    results = batch.validate(given, result_format="BASIC").results
    tables["batch"].unpersist()
    said = {each.expectation_config.description: each for each in results}
    _, numbers = count(sentences(suite, tables["batch"]), tables)
    for sentence, number in zip(suite.sentences, numbers, strict=True):
        result = said[sentence.says]
        assert not result.exception_info.get("raised_exception"), result.exception_info
        theirs = result.result.get("unexpected_count", result.result.get("observed_value"))
        assert (sentence.says, theirs, result.success) == (sentence.says, number, False)


@seeds(11, soak=12)
def test_whatever_a_ledger_is_told_keeps_the_suites(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """Everything at few instants: entities made and deleted at one, messages that say several things."""
    ledger = Ledger(spark, tmp_path, entity="e", keys=KEYS, buckets=1)
    ledger.apply(to_dataframe(spark, all_of(batches(seed, 120, most=4)), FIELDS))
    log = ledger.changes()
    # Of a message that was delivered twice with two effective times one counts, and the log has both.
    odd = find_contradictions(log, keys=KEYS).select("guid").distinct()
    history = ledger.history().join(odd, "guid", "left_anti")
    found = check_all(
        {
            "history": (ledger.history(), "history"),
            "beliefs": (ledger.beliefs(), "bitemporal"),
            "ledger": (history, "ledger"),
        },
        tables={"changes": log.join(odd, "guid", "left_anti")},
    )
    assert {name: repr(each) for name, each in found.items() if not each.ok} == {}
    assert found["ledger"].rows > 100
