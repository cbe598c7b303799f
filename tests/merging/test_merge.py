"""`merge`: from a set of changes to the history that processing them one by one would give."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit import merge
from cdckit.errors import InvalidArgument, MissingColumns, WrongColumnType
from cdckit.merging.arrow_changes import Layout
from cdckit.merging.versions import versions
from cdckit.parts.arrays import ROWS_AT_ONCE
from cdckit.parts.arrow_types import arrow_schema
from cdckit.parts.guids import NAMESPACE
from support.fold import fold, guid_of, identity
from support.histories import (
    EXTREME_PRIORITIES,
    INSTANTS,
    KINDS,
    Case,
    Row,
    assert_folds_to,
    by_guid,
    cases,
    change_lists,
    change_schema,
    history_schema,
    plain,
    random_changes,
    rows_to_dataframe,
    to_dataframe,
    to_rows,
)
from support.jobs import jobs_of
from tools.tiers import examples, seeds

FIELDS = {"h": "int", "k": "string", "a": "int", "b": "double"}
KEYS = ["h", "k"]

# Every example runs a job, in one session.  There is no shrinking: it would run hundreds more, and a failure
# shows the entity with the fewest changes anyway.
with_spark = settings(
    database=None,
    suppress_health_check=list(HealthCheck),
    **examples(2, soak=60),
    phases=(Phase.explicit, Phase.generate),
)


def one_change(**columns: Any) -> Row:
    """An upsert of the thing x, with some columns as the test wants them."""
    return {
        "operation": "upsert",
        "effective_timestamp": datetime(2024, 1, 1, tzinfo=UTC),
        "sequence": "",
        "arrival": {
            "timestamp": datetime(2024, 1, 2, tzinfo=UTC),
            "topic": "t",
            "partition": 0,
            "offset": 0,
            "record_number": 0,
        },
        "message_id": "m1",
        "source": "",
        "priority": 0,
        "data": {"k": "x", "a": 1},
        "carried": {"k": True, "a": True},
        **columns,
    }


ONE_FIELD = {"k": "string", "a": "int"}


# The cases -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> dict[str, list[Row]]:
    """
    The histories of all cases, by the name of the case.

    The cases of one file are merged in one job: every entity has a guid that begins with its case.
    """
    rows: list[Row] = []
    for _, group in groupby(cases(), key=lambda case: case.file):
        together = list(group)
        changes = [
            {**change, "guid": f"{case.name}|{identity(change, case.entity, case.keys)}"}
            for case in together
            for change in case.changes
        ]
        case = together[0]
        rows += to_rows(merge(to_dataframe(spark, changes, case.fields), entity=case.entity, keys=case.keys))
    found: dict[str, list[Row]] = {}
    for row in rows:
        name, guid = row["guid"].split("|")
        found.setdefault(name, []).append({**row, "guid": guid})
    return found


every_case = pytest.mark.parametrize("case", cases(), ids=lambda case: f"{case.file}: {case.name}")
cases_of_identity = pytest.mark.parametrize(
    "case",
    [case for case in cases() if case.file in ("01_worked_example", "06_identity")],
    ids=lambda case: case.name,
)


@every_case
def test_the_fold_gives_the_table_of_the_case(case: Case) -> None:
    history = fold(case.changes, entity=case.entity, keys=case.keys, fields=list(case.fields))
    assert by_guid(history) == by_guid(case.history)


@every_case
def test_merge_gives_the_table_of_the_case(tables: dict[str, list[Row]], case: Case) -> None:
    assert by_guid(tables.get(case.name, [])) == by_guid(case.history)


@cases_of_identity
def test_merge_computes_the_guids_of_the_case(spark: SparkSession, case: Case) -> None:
    changes = to_dataframe(spark, case.changes, case.fields)
    history = to_rows(merge(changes, entity=case.entity, keys=case.keys))
    assert by_guid(history) == by_guid(case.history)


def test_no_two_cases_have_one_name() -> None:
    assert len({case.name for case in cases()}) == len(cases())


def test_one_message_may_speak_of_two_entities_in_one_record(spark: SparkSession) -> None:
    """Repeats are repeats within an entity: the same message and record number of another one is news."""
    changes = [one_change(data={"k": k, "a": 1}) for k in ("x", "y", "x")]
    history = to_rows(merge(to_dataframe(spark, changes, ONE_FIELD), entity="thing", keys=["k"]))
    assert sorted(row["k"] for row in history) == ["x", "y"]


def test_sources_number_their_messages_independently(spark: SparkSession) -> None:
    """One id and record number of two sources, and of one that nobody names, are three changes, not one."""
    day = one_change()["effective_timestamp"]
    changes = [
        one_change(source=source, data={"k": "x", "a": a}, effective_timestamp=day + timedelta(hours=a))
        for a, source in enumerate(["shop", "depot", None, "depot"])
    ]
    history = to_rows(merge(to_dataframe(spark, changes, ONE_FIELD), entity="thing", keys=["k"]))
    # The last one is the depot's first one, delivered again.
    assert sorted(row["a"] for row in history) == [0, 1, 2]


def test_where_all_else_is_equal_the_names_of_the_sources_decide(spark: SparkSession) -> None:
    """Every run gives the same: the last name counts, and no name stands before every name."""
    changes = [
        one_change(source=source, data={"k": "x", "a": a}) for a, source in enumerate(["b", None, "a"])
    ]
    for some in (changes, changes[::-1]):
        history = to_rows(merge(to_dataframe(spark, some, ONE_FIELD), entity="thing", keys=["k"]))
        assert [row["a"] for row in history] == [0]


def test_the_guid_is_the_version_5_uuid_of_the_entity_and_its_key(spark: SparkSession) -> None:
    """Text, numbers, what JSON escapes and what it does not; the guids were computed with `uuid.uuid5`."""
    fields = {"a": "string", "b": "bigint"}
    values = [("x", 1), ("x", None), ('Zürich "1" / é中', -(2**40))]
    changes = [
        one_change(message_id=f"m{i}", data={"a": a, "b": b}, carried={"a": True, "b": True})
        for i, (a, b) in enumerate(values)
    ]
    history = merge(to_dataframe(spark, changes, fields), entity="thing", keys=["a", "b"])
    assert {(row["a"], row["b"]): row["guid"] for row in to_rows(history)} == {
        values[0]: "1bae0a3e-ab68-5129-b64b-d9533ff66044",
        values[1]: "3b41ca19-4fea-5b13-b50f-c417a853ab5f",
        values[2]: "9c36a175-236a-52dd-9207-b4f9748cb434",
    }


def test_keys_whose_text_only_the_jvm_knows_have_their_guid_too(spark: SparkSession) -> None:
    """An instant, a date and bytes, under names that need quoting; `uuid.uuid5` of the text is the guid."""
    fields = {"a.b`c": "timestamp", "day": "date", "raw": "binary"}
    key = {"a.b`c": INSTANTS[1], "day": date(2013, 2, 8), "raw": b"\x00\xff"}
    change = one_change(data=key, carried=dict.fromkeys(fields, True))
    history = merge(to_dataframe(spark, [change], fields), entity="thing", keys=list(fields))
    text = '{"entity":"thing","key":{"a.b`c":"2024-01-01T00:00:00.000001Z","day":"2013-02-08","raw":"AP8="}}'
    assert [row["guid"] for row in to_rows(history)] == [str(uuid.uuid5(NAMESPACE, text))]


def test_the_order_of_the_keys_and_the_name_of_the_entity_are_part_of_the_guid(spark: SparkSession) -> None:
    changes = to_dataframe(spark, random_changes(1, 1, FIELDS), FIELDS)
    guids = [
        frozenset(row["guid"] for row in to_rows(merge(changes, entity=entity, keys=keys)))
        for entity, keys in [("thing", ["h", "k"]), ("thing", ["k", "h"]), ("other", ["h", "k"])]
    ]
    assert not guids[0] & guids[1]
    assert not guids[0] & guids[2]


# The values ----------------------------------------------------------------------------------------------


def test_values_of_every_type_are_compared_null_safe(spark: SparkSession) -> None:
    """Told twice, a value is one version, null and NaN too; told otherwise, it is another one."""
    fields = {"k": "string", **{f"f{number}": kind for number, kind in enumerate(KINDS)}}
    changes, expected = [], []
    # Each type is that of one field of an entity of its own, of which nobody says anything else.
    for field, kind in list(fields.items())[1:]:
        first, second, _ = KINDS[kind].values[-3:]
        for i, value in enumerate([first, first, second, second, None, None, first]):
            changes.append(
                one_change(
                    message_id=f"m{i}",
                    effective_timestamp=datetime(2024, 1, 1, i, tzinfo=UTC),
                    data={**dict.fromkeys(fields), "k": field, field: value},
                    carried={name: name in ("k", field) for name in fields},
                )
            )
        versions = (("m0", first), ("m2", second), ("m4", None), ("m6", first))
        expected += [(field, message, repr(plain(value))) for message, value in versions]
    history = to_rows(merge(to_dataframe(spark, changes, fields), entity="thing", keys=["k"]))
    found = [(row["k"], row["source_message"], repr(plain(row[row["k"]]))) for row in history]
    assert sorted(found) == sorted(expected)


@pytest.mark.parametrize("kind", ["double", "float", "array<double>", "struct<x:double,y:string>"])
def test_zero_and_negative_zero_are_one_value_and_the_first_that_was_told_stays(
    spark: SparkSession, kind: str
) -> None:
    def wrap(number: float) -> Any:
        return {"array<double>": [number], "struct<x:double,y:string>": {"x": number, "y": None}}.get(
            kind, number
        )

    changes = [
        one_change(
            message_id=f"m{i}",
            effective_timestamp=datetime(2024, 1, 1, i, tzinfo=UTC),
            priority=priority,
            data={"k": "x", "f": wrap(value)},
            carried={"k": True, "f": True},
        )
        for i, (value, priority) in enumerate([(0.0, 0), (-0.0, 0), (-0.0, 1), (0.0, 1)])
    ]
    history = to_rows(merge(to_dataframe(spark, changes, {"k": "string", "f": kind}), entity="t", keys=["k"]))
    assert [(row["source_message"], plain(row["f"])) for row in history] == [
        ("m0", plain(wrap(0.0))),
        ("m2", plain(wrap(-0.0))),
    ]


def test_a_table_of_key_fields_alone_has_a_history(spark: SparkSession) -> None:
    fields = {"h": "int", "k": "string"}
    changes = random_changes(2, 80, fields)
    history = merge(to_dataframe(spark, changes, fields), entity="thing", keys=KEYS)
    assert_folds_to(history, changes, entity="thing", keys=KEYS)


def test_a_business_field_may_have_nearly_any_name(spark: SparkSession) -> None:
    """Names of change columns, reserved words, dots, blanks, quotes and letters of any alphabet."""
    names = [
        "priority",
        "data",
        "message_id",
        "effective_timestamp",
        "m",
        "p",
        "select",
        "a.b",
        " c d ",
        "`",
        '"',
        "é中",
    ]
    fields = {"h": "int", "k": "string", **dict.fromkeys(names, "int")}
    changes = random_changes(3, 100, fields)
    history = merge(to_dataframe(spark, changes, fields), entity="thing", keys=KEYS)
    assert history.columns[4:-2] == ["h", "k", *names]
    assert_folds_to(history, changes, entity="thing", keys=KEYS)


# Random histories ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{}, {"guids": True, "priorities": EXTREME_PRIORITIES}, {"priorities": (0,)}]
)
def test_random_histories_are_what_the_fold_makes_of_them(
    spark: SparkSession, options: dict[str, Any]
) -> None:
    """Without Spark more: tests/merging/test_ends.py."""
    changes = random_changes(4, 120, FIELDS, **options)
    history = merge(to_dataframe(spark, changes, FIELDS), entity="thing", keys=KEYS)
    assert_folds_to(history, changes, entity="thing", keys=KEYS)


@seeds(5, soak=10)
def test_random_histories_with_fields_of_all_types(spark: SparkSession, seed: int) -> None:
    fields = {"h": "int", "k": "string", **{f"f{i}": kind for i, kind in enumerate(KINDS)}}
    changes = random_changes(seed, 200, fields)
    history = merge(to_dataframe(spark, changes, fields), entity="thing", keys=KEYS)
    assert_folds_to(history, changes, entity="thing", keys=KEYS)


@seeds(6, soak=10)
def test_long_histories_of_few_values(spark: SparkSession, seed: int) -> None:
    changes = random_changes(seed, 10, FIELDS, longest=300)
    history = merge(to_dataframe(spark, changes, FIELDS), entity="thing", keys=KEYS)
    assert_folds_to(history, changes, entity="thing", keys=KEYS)


def test_the_changes_need_not_have_field_priorities(spark: SparkSession) -> None:
    changes = random_changes(7, 120, FIELDS)
    for change in changes:
        del change["field_priorities"]
    history = merge(to_dataframe(spark, changes, FIELDS), entity="thing", keys=KEYS)
    assert_folds_to(history, changes, entity="thing", keys=KEYS)


def test_a_field_that_field_priorities_does_not_name_has_the_priority_of_the_entity(
    spark: SparkSession,
) -> None:
    changes = random_changes(8, 120, FIELDS)
    frame = to_dataframe(spark, changes, FIELDS)
    frame = frame.withColumn("field_priorities", F.col("field_priorities").dropFields("h", "k", "b"))
    for change in changes:
        stated = change["field_priorities"]
        change["field_priorities"] = stated and {"a": stated["a"]}
    assert_folds_to(merge(frame, entity="thing", keys=KEYS), changes, entity="thing", keys=KEYS)


@pytest.mark.drawn
@with_spark
@given(changes=change_lists(FIELDS, histories=6))
def test_what_hypothesis_draws_is_what_the_fold_makes_of_it(spark: SparkSession, changes: list[Row]) -> None:
    history = merge(to_dataframe(spark, changes, FIELDS), entity="thing", keys=KEYS)
    assert_folds_to(history, changes, entity="thing", keys=KEYS)


# The laws ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def told() -> list[Row]:
    return random_changes(9, 120, FIELDS)


@pytest.fixture(scope="module")
def expected(told: list[Row]) -> dict[str, list[Row]]:
    return by_guid(fold(told, entity="thing", keys=KEYS, fields=list(FIELDS)))


def merged(changes: DataFrame) -> dict[str, list[Row]]:
    return by_guid(to_rows(merge(changes, entity="thing", keys=KEYS)))


@pytest.mark.drawn
@with_spark
@given(seed=st.integers(0, 2**32), partitions=st.sampled_from([1, 2, 5, 17]))
def test_order_and_partitioning_do_not_matter(
    spark: SparkSession,
    told: list[Row],
    expected: dict[str, list[Row]],
    seed: int,
    partitions: int,
) -> None:
    shuffled = random.Random(seed).sample(told, len(told))
    assert merged(to_dataframe(spark, shuffled, FIELDS).repartition(partitions)) == expected


def in_ranges(changes: DataFrame, column: str) -> DataFrame:
    return changes.repartitionByRange(3, column)


def sorted_in_parts(changes: DataFrame, column: str) -> DataFrame:
    return changes.repartition(3, column).sortWithinPartitions(F.desc(column))


@pytest.mark.parametrize(
    ("lay", "column"),
    [
        (in_ranges, "message_id"),
        (in_ranges, "effective_timestamp"),
        (sorted_in_parts, "data.k"),
        (sorted_in_parts, "arrival.topic"),
    ],
)
def test_where_a_row_lies_does_not_matter(
    spark: SparkSession,
    told: list[Row],
    expected: dict[str, list[Row]],
    lay: Callable[[DataFrame, str], DataFrame],
    column: str,
) -> None:
    assert merged(lay(to_dataframe(spark, told, FIELDS), column)) == expected


def test_repeats_do_not_matter(spark: SparkSession, told: list[Row], expected: dict[str, list[Row]]) -> None:
    changes = to_dataframe(spark, told, FIELDS)
    some = changes.where("arrival.offset = 2")
    assert merged(changes.union(changes)) == expected
    assert merged(some.union(changes).union(some)) == expected


def test_redeliveries_do_not_matter(
    spark: SparkSession, told: list[Row], expected: dict[str, list[Row]]
) -> None:
    """A broker that delivers everything a second time, an hour later, tells nothing new."""
    changes = to_dataframe(spark, told, FIELDS)
    later = F.col("arrival.timestamp") + F.expr("INTERVAL 1 HOUR")
    again = changes.withColumn("arrival", F.col("arrival").withField("timestamp", later))
    assert merged(changes.union(again)) == expected


@pytest.mark.parametrize(
    "condition", ["priority < 0", "operation = 'delete'", "effective_timestamp < '2024-01-01'"]
)
def test_two_batches_that_are_put_together_give_the_whole(
    spark: SparkSession, told: list[Row], expected: dict[str, list[Row]], condition: str
) -> None:
    changes = to_dataframe(spark, told, FIELDS)
    assert merged(changes.where(f"not ({condition})").union(changes.where(condition))) == expected


def test_entities_do_not_touch_one_another(
    spark: SparkSession, told: list[Row], expected: dict[str, list[Row]]
) -> None:
    some = merged(to_dataframe(spark, told, FIELDS).where("data.h % 2 = 0"))
    assert some == {guid: rows for guid, rows in expected.items() if rows[0]["h"] % 2 == 0}


# Arrow batches -------------------------------------------------------------------------------------------


@pytest.fixture
def configured(spark: SparkSession) -> Iterator[None]:
    """Session settings that the test may change; they are put back after it."""
    names = ["spark.sql.execution.arrow.maxRecordsPerBatch", "spark.sql.shuffle.partitions"]
    before = {name: spark.conf.get(name) for name in names}
    yield
    for name, value in before.items():
        if value is not None:
            spark.conf.set(name, value)


@pytest.mark.parametrize("size", [1, 3, 7])
@pytest.mark.usefixtures("configured")
def test_a_key_may_span_arrow_batches(
    spark: SparkSession, told: list[Row], expected: dict[str, list[Row]], size: int
) -> None:
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(size))
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    assert merged(to_dataframe(spark, told, FIELDS)) == expected


def test_the_versions_of_a_hot_key_are_handed_on_in_bounded_batches() -> None:
    """Without Spark: its worker sends a batch as soon as it is made."""
    rows, fields = 40_000, {"k": "string", "a": "int"}
    second = np.arange(rows, dtype=np.int64) * 1_000_000
    columns = {
        "effective_timestamp": pa.array(second).cast(pa.timestamp("us", "UTC")),
        "message_id": pa.array([f"m{place}" for place in range(rows)]),
        "source": pa.array(["one"] * rows),
        "operation": pa.array(np.zeros(rows, np.int8)),
        "priority": pa.array(np.zeros(rows, np.int32)),
        "record_number": pa.array(np.zeros(rows, np.int32)),
        "value_0": pa.array(["x"] * rows),
        "value_1": pa.array(np.arange(rows, dtype=np.int32)),
        "carried_0": pa.array(np.full(rows, 3)),
    }
    layout = Layout(("k", "a"), (0,), frozenset(), by_guid=False, entity="thing")
    batch = pa.RecordBatch.from_pydict(columns)
    made = list(versions([batch], layout, arrow_schema(history_schema(fields))))
    assert sum(each.num_rows for each in made) == rows
    assert max(each.num_rows for each in made) <= ROWS_AT_ONCE
    told = pa.Table.from_batches(made).to_pydict()
    assert told["a"] == list(range(rows))
    assert told["valid_to_timestamp"] == [*told["valid_from_timestamp"][1:], None]
    assert set(told["guid"]) == {guid_of("thing", {"k": "x"})}


# The shape of the result ---------------------------------------------------------------------------------


def test_the_columns_of_a_history(spark: SparkSession) -> None:
    fields = {"k": "string", "price": "decimal(12,2)", "tags": "array<int>"}
    history = merge(spark.createDataFrame([], change_schema(fields)), entity="thing", keys=["k"])
    assert history.schema.simpleString() == (
        "struct<guid:string,valid_from_timestamp:timestamp,valid_to_timestamp:timestamp,deleted_indicator:boolean,"
        "k:string,price:decimal(12,2),tags:array<int>,source_message:string,"
        "field_provenance:struct<guid:struct<m:string,p:int>,k:struct<m:string,p:int>,"
        "price:struct<m:string,p:int>,tags:struct<m:string,p:int>>>"
    )


@pytest.mark.parametrize("guid", [False, True])
@pytest.mark.parametrize("field_priorities", [False, True])
def test_the_history_of_no_changes_is_empty(spark: SparkSession, guid: bool, field_priorities: bool) -> None:
    schema = change_schema(FIELDS, field_priorities=field_priorities, guid=guid)
    history = merge(spark.createDataFrame([], schema), entity="thing", keys=KEYS)
    assert history.schema.simpleString() == history_schema(FIELDS).simpleString()
    assert history.collect() == []


def test_the_history_of_deletes_alone_is_empty(spark: SparkSession) -> None:
    changes = to_dataframe(spark, [one_change(operation="delete")], ONE_FIELD)
    assert merge(changes, entity="thing", keys=["k"]).collect() == []


def test_further_columns_of_the_changes_are_ignored(spark: SparkSession) -> None:
    changes = to_dataframe(spark, [one_change()], ONE_FIELD).withColumns(
        {"topic": F.lit("t"), "value_0": F.lit(1), "k": F.lit("noise")}
    )
    history = to_rows(merge(changes, entity="thing", keys=["k"]))
    assert [row["k"] for row in history] == ["x"]


def test_calling_merge_runs_no_job(spark: SparkSession) -> None:
    changes = to_dataframe(spark, [one_change()], ONE_FIELD)
    context = spark.sparkContext
    context.setJobGroup("merge-is-lazy", "nothing may run in this group")
    try:
        history = merge(changes, entity="thing", keys=["k"])
        assert jobs_of(spark, "merge-is-lazy") == []
        history.collect()
        assert jobs_of(spark, "merge-is-lazy") != []
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
        context.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]


# What a caller can do wrong ------------------------------------------------------------------------------

REQUIRED = [
    "operation", "effective_timestamp", "sequence", "arrival", "message_id", "source", "priority", "data",
    "carried",
]  # fmt: skip


@pytest.mark.parametrize("column", REQUIRED)
def test_a_missing_column_is_named(spark: SparkSession, column: str) -> None:
    changes = spark.createDataFrame([], change_schema(ONE_FIELD)).drop(column)
    with pytest.raises(MissingColumns, match=rf"merge\(\) needs the columns {column}; the DataFrame has"):
        merge(changes, entity="thing", keys=["k"])


@pytest.mark.parametrize(
    ("column", "found"),
    [
        ("operation", "int"),
        ("effective_timestamp", "string"),
        ("sequence", "bigint"),
        ("arrival", "string"),
        ("arrival", "struct<timestamp:timestamp,topic:string>"),
        ("message_id", "bigint"),
        ("priority", "bigint"),
        ("field_priorities", "int"),
        ("data", "map<string,string>"),
        ("carried", "map<string,boolean>"),
        ("carried", "struct<k:boolean>"),
        ("carried", "struct<k:boolean,a:string>"),
        ("guid", "int"),
    ],
)
def test_a_column_of_the_wrong_type_is_named(spark: SparkSession, column: str, found: str) -> None:
    changes = spark.createDataFrame([], change_schema(ONE_FIELD)).withColumn(column, F.lit(None).cast(found))
    with pytest.raises(WrongColumnType, match=rf"merge\(\) needs the column {column} as .*; it is {found}\."):
        merge(changes, entity="thing", keys=["k"])


def test_a_field_priority_that_is_no_int_is_named(spark: SparkSession) -> None:
    wrong = F.struct(F.lit(1.5).alias("a"))
    changes = spark.createDataFrame([], change_schema(ONE_FIELD)).withColumn("field_priorities", wrong)
    with pytest.raises(WrongColumnType, match=r"field_priorities\.a as int; it is double"):
        merge(changes, entity="thing", keys=["k"])


def test_a_priority_is_of_a_field_that_there_is(spark: SparkSession) -> None:
    """A priority that nothing can have is a typing error of the caller's."""
    misspelt = F.struct(F.lit(1).alias("b"))
    changes = spark.createDataFrame([], change_schema(ONE_FIELD)).withColumn("field_priorities", misspelt)
    with pytest.raises(
        InvalidArgument, match=r"field_priorities to be a struct of fields among k, a; it is \['b'\]"
    ):
        merge(changes, entity="thing", keys=["k"])


@pytest.mark.parametrize("keys", [[], ["nobody"], ["k", "nobody"], ["k", "k"], ["K"], "k"])
def test_keys_are_a_list_of_distinct_fields(spark: SparkSession, keys: Any) -> None:
    changes = spark.createDataFrame([], change_schema(ONE_FIELD))
    with pytest.raises(InvalidArgument, match=r"merge\(\) needs keys to be .*k, a; it is"):
        merge(changes, entity="thing", keys=keys)


@pytest.mark.parametrize("kind", ["double", "float", "array<int>", "struct<x:double,y:string>"])
def test_a_key_has_a_type_with_one_text(spark: SparkSession, kind: str) -> None:
    changes = spark.createDataFrame([], change_schema({"k": kind, "a": "int"}))
    with pytest.raises(WrongColumnType, match=rf"data\.k .* it is {kind}"):
        merge(changes, entity="thing", keys=["k"])


@pytest.mark.parametrize(
    "name",
    [
        "guid", "valid_from_timestamp", "valid_to_timestamp", "deleted_indicator", "source_message",
        "field_provenance", "GUID", "Source_Message",
    ],
)  # fmt: skip
def test_a_business_field_cannot_have_the_name_of_a_standard_column(spark: SparkSession, name: str) -> None:
    changes = spark.createDataFrame([], change_schema({"k": "string", name: "string"}))
    with pytest.raises(InvalidArgument, match=rf"merge\(\) needs data .*'{name}'"):
        merge(changes, entity="thing", keys=["k"])


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("operation", "update"),
        ("operation", None),
        ("effective_timestamp", None),
        ("message_id", None),
        ("priority", None),
    ],
)
def test_a_change_that_has_no_place_in_the_merge_stops_it(
    spark: SparkSession, column: str, value: Any
) -> None:
    """Such a change cannot be merged and must not be dropped in silence: the job says what is missing."""
    changes = [one_change(), one_change(**{"message_id": "m2", column: value})]
    frame = rows_to_dataframe(spark, changes, change_schema(ONE_FIELD, field_priorities=False))
    history = merge(frame, entity="thing", keys=["k"])
    with pytest.raises(PySparkException, match=rf"The merge needs {column} in every change"):
        history.collect()


def test_a_change_without_the_guid_that_is_its_identity_stops_the_merge(spark: SparkSession) -> None:
    """Otherwise all entities without one would be one entity."""
    changes = [one_change(guid="g1"), one_change(message_id="m2", guid=None)]
    frame = rows_to_dataframe(spark, changes, change_schema(ONE_FIELD, field_priorities=False, guid=True))
    with pytest.raises(PySparkException, match="The merge needs guid in every change"):
        merge(frame, entity="thing", keys=["k"]).collect()
