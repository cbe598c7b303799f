"""`check`: what it says, what it costs, and that Great Expectations says the same of the same rows."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit import Ledger, bitemporal, check, merge
from cdckit.errors import InvalidArgument, MissingColumns, MissingExtra, WrongColumnType
from cdckit.parts.files import expectations
from cdckit.quality import BrokenPromises, check_all, gate
from cdckit.quality.suites import field_conditions, names_in_braces, read_suite, suite_names
from support.jobs import jobs_of
from support.sound_flights import sound_changes
from support.suites import LEDGER_KEYS, told, views

NAMED = {
    "type": "expect_column_values_to_not_be_null",
    "kwargs": {"column": "name"},
    "notes": "It has a name.",
}
SUITE = {"name": "mine", "expectations": [{**NAMED, "severity": "warning"}]}


@pytest.fixture(scope="module")
def sound(spark: SparkSession) -> DataFrame:
    return sound_changes(spark)


@pytest.fixture(scope="module")
def products(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([(1, "kettle"), (2, None), (3, None)], "number int, name string").coalesce(1)


def test_it_says_how_many_rows_break_a_sentence_and_shows_the_first(products: DataFrame) -> None:
    found = check(products, SUITE, rows=1)
    assert (found.ok, found.rows, [each.broken for each in found.results]) == (False, 3, [2])
    assert repr(found).splitlines() == [
        "rows that break it  of what weight  sentence",
        "2                   warning         It has a name.",
        "(mine: 0 of 1 sentence kept by 3 rows)",
        "",
        "It has a name.",
        "number  name",
        "2       NULL",
        "(first 1 row of more)",
    ]
    html = found._repr_html_()
    assert html == check(products, SUITE, rows=1)._repr_html_()
    assert html.count("<table") == 2


def test_require_raises_what_matters_enough(products: DataFrame) -> None:
    found = check(products, SUITE)
    assert found.require("critical") is found
    with pytest.raises(
        BrokenPromises, match="A table of 3 rows breaks 1 sentence of the suite mine"
    ) as error:
        found.require()
    assert (error.value.suite, error.value.rows, error.value.broken) == ("mine", 3, {"It has a name.": 2})
    with pytest.raises(InvalidArgument, match="severity"):
        found.require("much")


def test_what_cannot_be_checked_is_told_before_a_job_runs(spark: SparkSession, products: DataFrame) -> None:
    with pytest.raises(InvalidArgument, match="Probably 'history' was meant"):
        check(products, "histroy")
    with pytest.raises(InvalidArgument, match="a mapping, name and expectations"):
        check(products, {"name": "empty"})
    with pytest.raises(MissingColumns, match=r"check\(\) needs the columns guid"):
        check(products, "history")
    texts = sound_changes(spark).withColumn("effective_timestamp", F.lit("2024-01-01"))
    with pytest.raises(WrongColumnType, match=r"check\(\) needs the column effective_timestamp as timestamp"):
        check(texts, "changes")
    stream = spark.readStream.format("rate").load().selectExpr("value AS number", "'x' AS name")
    with pytest.raises(InvalidArgument, match="foreachBatch"):
        check(stream, SUITE)
    tables = views(spark, "ledger", [told("ledger")["good"]])
    with pytest.raises(InvalidArgument, match="a mapping with changes, which the suite ledger reads"):
        check(tables["batch"], "ledger")
    with pytest.raises(InvalidArgument, match=r"needs keys to be the key fields, which only the log"):
        check(tables["batch"], "ledger", tables={"changes": tables["cdckit_changes"]})


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_other_sorts_of_expectations_are_run_by_great_expectations(
    products: DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = {"type": "expect_table_row_count_to_be_between", "kwargs": {"max_value": 2}}
    short = {
        "type": "expect_column_value_lengths_to_be_between",
        "kwargs": {"column": "name", "max_value": 3},
    }
    sets: list[list[str | None]] = [[], [None, "kettle"]]
    of_sets = [
        {"type": "expect_column_values_to_be_in_set", "kwargs": {"column": "name", "value_set": each}}
        for each in sets
    ]
    found = check(products, {"name": "others", "expectations": [few, NAMED, short, *of_sets]})
    assert [each.broken for each in found.results] == [1, 2, 1, 1, 0]
    between = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "number"}}
    elsewhere = {**short, "kwargs": {"column": "nmae", "max_value": 3}}
    for wrong, message in [
        ({**NAMED, "type": "expect_to_be_named"}, "expect_to_be_named not found"),
        (elsewhere, 'The column "nmae" .* does not exist'),
        (between, "min_value and max_value cannot both be None"),
    ]:
        with pytest.raises(InvalidArgument, match=f"Great Expectations says: .*{message}"):
            check(products, {"name": "others", "expectations": [wrong]})
    monkeypatch.setitem(__import__("sys").modules, "great_expectations", None)
    with pytest.raises(
        MissingExtra, match=r"check needs great_expectations, which the extra `quality` brings"
    ):
        check(products, {"name": "others", "expectations": [few]})


def test_a_query_is_counted_as_it_stands(products: DataFrame) -> None:
    """Whatever its end, and whatever its columns are called."""
    nameless = "SELECT * FROM {batch} WHERE name IS NULL"
    queries = {
        nameless: 2,
        f"{nameless} ORDER BY number": 2,
        f"{nameless} LIMIT 1": 1,
        f"{nameless};\n": 2,
        f"{nameless} -- or so": 2,
        f"{nameless} UNION ALL SELECT * FROM {{batch}} WHERE number = 2": 3,
        "SELECT name FROM {batch} WHERE number > 1 GROUP BY name": 1,
        "SELECT * FROM {batch} WHERE concat(name, '  ') = 'kettle  '": 1,
        "SELECT * FROM {batch} WHERE trim(BOTH ')' FROM name) = 'kettle'": 1,
        "SELECT * FROM (SELECT number AS n, ')' AS name FROM {batch} WHERE number > 1) WHERE n > 2": 1,
        "SELECT * FROM {batch}, (SELECT number FROM {batch}) AS other WHERE name IS NULL": 6,
    }
    stated = [
        {"type": "unexpected_rows_expectation", "kwargs": {"unexpected_rows_query": query}}
        for query in queries
    ]
    braces = {**NAMED, "kwargs": {"column": "{name}"}}
    nested = {**NAMED, "kwargs": {"column": "place"}}  # there in row 2, though all of its fields are null
    suite = {"name": "queries", "meta": {"order_by": ["number"]}, "expectations": [*stated, braces, nested]}
    place = F.expr("IF(number = 1, NULL, named_struct('x', name, 'y', nullif(number, 2)))")
    found = check(products.withColumns({"{name}": F.col("name"), "place": place}), suite)
    assert [each.broken for each in found.results] == [*queries.values(), 2, 1]
    assert repr(found.results[10].examples).startswith("number  name  {name}  place")


def test_what_speaks_of_all_columns_is_not_given_one_more(products: DataFrame) -> None:
    """Sentences about the rows of the table are counted by a column, which would be one of them."""
    keys = "array_size(json_object_keys(to_json(struct(*))))"
    queries = {
        f"SELECT * FROM (SELECT *, {keys} AS filled FROM {{batch}}) WHERE filled < 2": 2,
        f"SELECT * FROM (SELECT *, number * 2 AS twice FROM {{batch}}) WHERE {keys} < 3": 2,
        "SELECT * FROM (SELECT *, count(*) OVER (PARTITION BY name) AS n FROM {batch}) WHERE n > 1": 2,
    }
    for query, broken in queries.items():
        stated = {"type": "unexpected_rows_expectation", "kwargs": {"unexpected_rows_query": query}}
        found = check(products, {"name": "both", "expectations": [stated, NAMED]})
        assert [each.broken for each in found.results] == [broken, 2]
    with pytest.raises(InvalidArgument, match="without the columns cdckit_breaks and cdckit_alike"):
        check(products.withColumn("CDCKIT_breaks", F.lit(1)), SUITE)


def test_a_query_that_leaves_rows_out_hides_none_from_other_sentences(products: DataFrame) -> None:
    """Though its `meta` says what breaks it; only where it says `keeps_rows` are others asked of its rows."""
    rows = "(SELECT *, lag(number) OVER (ORDER BY number) AS was FROM {batch}%s)"
    for filtered, meta in ((" WHERE number > 2", {}), ("", {"keeps_rows": True})):
        query = f"SELECT * FROM {rows % filtered} WHERE was < number"
        stated = {
            "type": "unexpected_rows_expectation",
            "kwargs": {"unexpected_rows_query": query},
            "meta": {"breaks": "was < number", **meta},
        }
        found = check(products, {"name": "both", "expectations": [NAMED, stated]})
        assert (found.rows, [each.broken for each in found.results]) == (3, [2, 2 if meta else 0])


def test_sentences_without_words_are_told_apart(products: DataFrame) -> None:
    plain = {name: NAMED[name] for name in ("type", "kwargs")}
    other = {**plain, "kwargs": {"column": "kind"}}
    found = check(products.withColumn("kind", F.col("name")), {"name": "x", "expectations": [plain, other]})
    with pytest.raises(BrokenPromises, match=r"breaks 2 sentences(.|\n)*not be null: column kind") as error:
        found.require()
    assert error.value.broken == dict.fromkeys((each.sentence.says for each in found.results), 2)
    alike = {"name": "x", "expectations": [NAMED, {**NAMED, "kwargs": {"column": "kind"}}]}
    with pytest.raises(BrokenPromises) as error:
        check(products.withColumn("kind", F.nullif("name", F.lit("kettle"))), alike).require()
    assert error.value.broken == {"It has a name.": 2, "It has a name. (2)": 3}


def test_a_field_without_a_column_has_no_value(spark: SparkSession) -> None:
    tables = views(spark, "ledger", [told("ledger")["good"]])
    log = {"changes": tables["cdckit_changes"]}
    found = check(tables["batch"].drop("name"), "ledger", tables=log, keys=LEDGER_KEYS)
    # The versions of m1 and m3; what says null, and the two that are deleted, have none anyway.
    assert [each.broken for each in found.results] == [0, 0, 0, 0, 2, 0, 0]


def test_the_table_is_read_once_and_released_even_if_that_fails(
    spark: SparkSession, products: DataFrame
) -> None:
    def is_held() -> bool:
        return products.where("number > 0").storageLevel.useMemory

    held = products.where("number > 0")
    check(held, SUITE, cache=True)
    assert not is_held()
    held.cache()
    check(held, SUITE)
    check(products.where("number > 0"), SUITE, cache=True)  # another object, the same table
    assert is_held()
    held.unpersist()
    fails = products.withColumn(
        "name", F.when(F.col("number") == 3, F.raise_error(F.lit("no"))).otherwise("x")
    )
    with pytest.raises(PySparkException):
        check(fails, SUITE, cache=True)
    assert not fails.is_cached


def test_a_sound_history_is_one_query(spark: SparkSession, sound: DataFrame) -> None:
    context = spark.sparkContext
    history = merge(sound, entity="flight", keys=["number"]).cache()
    history.count()
    context.setJobGroup("checking", "")
    try:
        assert check(history, "history").ok
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
        history.unpersist()
    # One query for each sentence would be 17 of them at least.
    assert len(jobs_of(spark, "checking")) <= 4


def test_whatever_is_merged_keeps_the_suites(sound: DataFrame) -> None:
    history = merge(sound, entity="flight", keys=["number"]).localCheckpoint()
    ids = history.select("guid", F.struct("number").alias("key")).distinct()
    log = sound.join(ids, F.col("data.number") == F.col("key.number")).drop("key").localCheckpoint()
    found = check_all(
        {
            "changes": (sound, "changes"),
            "history": (history, "history"),
            "ledger": (history, "ledger"),
            "bitemporal": (bitemporal(sound, entity="flight", keys=["number"]), "bitemporal"),
        },
        tables={"changes": log},
        keys=["number"],
    )
    assert {name: repr(each) for name, each in found.items() if not each.ok} == {}


def test_a_gate_lets_pass_what_is_sound_and_commits_nothing_else(
    spark: SparkSession, sound: DataFrame, tmp_path: Path
) -> None:
    ledger = Ledger(spark, tmp_path, entity="flight", keys=["number"], buckets=1)
    take = gate(ledger.sink("operations"), "changes")
    few = sound.where("data.number < 5")
    assert take(few, 0).news == few.count()
    before = ledger.store.snapshot().version
    with pytest.raises(BrokenPromises, match="A change says who said so"):
        take(few.withColumn("source", F.lit(None).cast("string")), 1)
    assert ledger.store.snapshot().version == before
    assert check(ledger.history(), "ledger", tables={"changes": ledger.changes()}).ok


def test_a_batch_of_a_stream_is_compared_with_other_tables(
    spark: SparkSession, products: DataFrame, tmp_path: Path
) -> None:
    """Each batch has a session of its own, which does not know the tables of ours."""
    products.write.parquet(str(tmp_path / "in"))
    query = "SELECT * FROM {batch} LEFT ANTI JOIN cdckit_known USING (number)"
    known = {"type": "unexpected_rows_expectation", "kwargs": {"unexpected_rows_query": query}}
    suite = {"name": "known", "meta": {"tables": ["known"]}, "expectations": [known]}
    taken, missed = [], []

    def take(batch: DataFrame, number: int) -> None:
        gate(lambda _, number: taken.append(number), suite, tables={"known": products})(batch, number)
        first = products.where("number = 1")
        missed.append(check(batch, suite, tables={"known": first}).results[0].broken)

    stream = spark.readStream.schema("number int, name string").parquet(str(tmp_path / "in"))
    writer = stream.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "place"))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert (taken, missed) == ([0], [2])


def test_a_field_may_be_called_like_anything_in_a_suite(spark: SparkSession) -> None:
    history = views(spark, "history", [told("history")["good"]])["batch"]
    said = F.col("field_provenance").withField("before", F.col("field_provenance.number"))
    assert check(history.withColumns({"before": F.lit("x"), "field_provenance": said}), "history").ok
    table = views(spark, "bitemporal", [told("bitemporal")["good"]])["batch"]
    assert check(table.withColumns({"held": F.lit("x"), "believed": F.lit("x")}), "bitemporal").ok
    changes = views(spark, "changes", [told("changes")["good"]])["batch"]
    alike = F.expr("named_struct('number', true, 'NUMBER', true)")
    assert check(changes.withColumn("carried", alike), "changes").results


def test_what_suites_ask_field_by_field_is_known() -> None:
    """And all that is known is asked: in a table with these columns, by some suite."""
    carried = T.StructType().add("number", "boolean")
    known = field_conditions(T.StructType().add("carried", carried))
    suites = [read_suite(name) for name in suite_names()]
    asked = [names_in_braces(each.by_field) for suite in suites for each in suite.sentences]
    assert set().union(*asked) == known.keys()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of modules that Great Expectations imports
def test_data_docs_are_written_to_the_folder_that_is_named_and_nowhere_else(
    products: DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    refused = products.selectExpr(
        "'t' AS topic", "1L AS offset", "name AS error_code", "name AS error_description"
    )
    found = check_all({"refused": (refused, "rejects")}, docs=tmp_path / "docs")
    assert not found["refused"].ok
    pages = list((tmp_path / "docs").rglob("refused.html"))
    assert len(pages) == 1
    assert "A record that cannot be used says why, by a code." in pages[0].read_text()
    assert (tmp_path / "docs" / "index.html").exists()
    assert list((tmp_path / "here").iterdir()) == []
    assert capsys.readouterr() == ("", "")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_files_run_in_a_folder_of_great_expectations(
    products: DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Put where it keeps its suites, one is found there, and its page says the sentence that is broken."""
    import great_expectations as gx

    monkeypatch.setenv("GX_ANALYTICS_ENABLED", "false")
    gx.get_context(mode="file", project_root_dir=tmp_path)
    for each in suite_names():
        shutil.copy(expectations(f"{each}.json"), tmp_path / "gx" / "expectations")
    context = gx.get_context(mode="file", project_root_dir=tmp_path)
    context.variables.progress_bars = {"globally": False}  # type: ignore[assignment]
    assert {each.name for each in context.suites.all()} == {*suite_names()}
    assert [each.name for each in context.suites.all() if not each.is_fresh().success] == []
    names = ("topic", "offset", "error_code")
    refused = products.where("number = 2").selectExpr(
        *(f"name AS {each}" for each in names), "'why' AS error_description"
    )
    asset = context.data_sources.add_spark("spark", persist=False).add_dataframe_asset("rows")
    suite = context.suites.get("rejects")
    of_rows = gx.ValidationDefinition(
        name="rejects", data=asset.add_batch_definition_whole_dataframe("all"), suite=suite
    )
    run = gx.Checkpoint(
        name="rejects",
        validation_definitions=[context.validation_definitions.add(of_rows)],
        actions=[gx.checkpoint.UpdateDataDocsAction(name="pages")],
    )
    result = context.checkpoints.add(run).run(batch_parameters={"dataframe": refused})
    assert not result.success
    (page,) = (tmp_path / "gx").rglob("validations/**/*.html")
    assert "A record that cannot be used says why, by a code." in page.read_text()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of modules that Great Expectations imports
def test_every_answer_has_a_page_whatever_it_is_called(products: DataFrame, tmp_path: Path) -> None:
    names = ["a/b", "..", "x" * 300]
    other = {**SUITE, "name": "of mine/this: year"}
    found = check_all({name: (products, other if name == "a/b" else SUITE) for name in names}, docs=tmp_path)
    assert [*found] == names
    assert len([*(tmp_path / "validations").rglob("*.html")]) == len(names)
    assert len([*(tmp_path / "expectations").rglob("*.html")]) == 2
