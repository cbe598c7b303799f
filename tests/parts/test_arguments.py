"""Arguments that cannot be meant: an error of ours when the function is called, which says what is needed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import cdckit
import cdckit.model.changes
import cdckit.model.records
import cdckit.quality
import cdckit.query
from cdckit import Priority
from cdckit.errors import InvalidArgument, WrongColumnType

AT = datetime(2024, 1, 1, 12, 0, tzinfo=UTC)
KEYS = {"entity": "product", "keys": ["number"]}


@pytest.fixture(scope="module")
def changes(spark: SparkSession) -> DataFrame:
    """One change of a product."""
    return (
        spark.range(1)
        .select(
            F.lit("upsert").alias("operation"),
            F.timestamp_seconds(F.lit(0)).alias("effective_timestamp"),
            F.lit("").alias("sequence"),
            F.struct(F.lit(1).alias("record_number")).alias("arrival"),
            F.lit("m1").alias("message_id"),
            F.lit("shop").alias("source"),
            F.lit(0).alias("priority"),
            F.expr("struct(1 AS number, 'mug' AS name)").alias("data"),
            F.expr("struct(true AS number, true AS name)").alias("carried"),
        )
        .withColumn(
            "arrival",
            F.expr(
                "struct(timestamp'2024-01-01 00:00:00Z' AS timestamp, 't' AS topic, 0 AS partition, "
                "0L AS offset, 1 AS record_number)"
            ),
        )
    )


@pytest.mark.parametrize("number", [1.7, 1.0, "9", 2**40, -(2**31) - 1, True, None, Decimal(1)])
def test_a_priority_is_a_whole_number_of_32_bits(number: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"Priority\(\) needs entity to be a whole number from"):
        Priority(number)
    with pytest.raises(InvalidArgument, match=r"Priority\(\) needs fields\['name'\] to be a whole number"):
        Priority(fields={"name": number})


def test_priorities_that_may_be() -> None:
    assert Priority(-(2**31), {"name": 2**31 - 1}).entity == -(2**31)
    with pytest.raises(InvalidArgument, match=r"Priority\(\) needs fields to be a mapping"):
        Priority(1, ["name"])  # type: ignore[arg-type]


@pytest.mark.parametrize("deletes", ["no", 0, None])
def test_deletes_is_true_or_false(changes: DataFrame, deletes: Any) -> None:
    """Else "no" would be as good as yes."""
    history = cdckit.merge(changes, **KEYS)
    for asked in (
        lambda: cdckit.as_of(history, AT, deletes=deletes),
        lambda: cdckit.current(history, deletes=deletes),
        lambda: cdckit.between(history, AT, None, deletes=deletes),
    ):
        with pytest.raises(InvalidArgument, match=r"needs deletes to be True or False"):
            asked()


@pytest.mark.parametrize("entity", [None, "", 7])
def test_an_entity_has_a_name(changes: DataFrame, entity: Any) -> None:
    """It is part of every guid."""
    for asked in (
        lambda: cdckit.merge(changes, entity=entity, keys=["number"]),
        lambda: cdckit.bitemporal(changes, entity=entity, keys=["number"]),
        lambda: cdckit.as_known(changes, AT, entity=entity, keys=["number"]),
    ):
        with pytest.raises(InvalidArgument, match=r"needs entity to be a name"):
            asked()


@pytest.mark.parametrize(
    "keys", ["number", None, [], ["nr"], ["number", "number"], 1, [["number"]], {"number"}]
)
def test_keys_are_fields(changes: DataFrame, keys: Any) -> None:
    for asked in (
        lambda: cdckit.merge(changes, entity="product", keys=keys),
        lambda: cdckit.bitemporal(changes, entity="product", keys=keys),
        lambda: cdckit.why(changes, {"number": 1}, "name", keys=keys, valid_at=AT),
    ):
        with pytest.raises(InvalidArgument, match=r"needs keys to be a list of distinct fields among number"):
            asked()


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ({"nr": 1}, "needs key to be a value for each of number"),
        ({}, "needs key to be a value for each of number"),
        ({"number": 1, "name": "mug"}, "needs key to be a value for each of number"),
        (None, "needs key to be a value for each of number"),
        ({"number": "1"}, r"needs key\['number'\] to be a value of the type int"),
    ],
)
def test_why_names_the_key_that_it_needs(changes: DataFrame, key: Any, says: str) -> None:
    with pytest.raises(InvalidArgument, match=says):
        cdckit.why(changes, key, "name", keys=["number"], valid_at=AT)


ASKED: dict[str, Callable[[Any], Any]] = {
    "merge": lambda frame: cdckit.merge(frame, **KEYS),
    "bitemporal": lambda frame: cdckit.bitemporal(frame, **KEYS),
    "as_known": lambda frame: cdckit.as_known(frame, AT, **KEYS),
    "keep_known": lambda frame: cdckit.keep_known(frame, AT),
    "union_changes": lambda frame: cdckit.union_changes(frame),
    "with_priorities": lambda frame: cdckit.with_priorities(frame, {}),
    "find_unused_priorities": lambda frame: cdckit.model.find_unused_priorities(frame, {}),
    "with_sequence": lambda frame: cdckit.model.with_sequence(frame, "lsn"),
    "as_of": lambda frame: cdckit.as_of(frame, AT),
    "current": lambda frame: cdckit.current(frame),
    "between": lambda frame: cdckit.between(frame, AT, None),
    "timeline": lambda frame: cdckit.query.timeline(frame, {"number": 1}),
    "with_operation": lambda frame: cdckit.query.with_operation(frame),
    "changes_between": lambda frame: cdckit.changes_between(frame, AT, None),
    "diff": lambda frame: cdckit.query.diff(frame, frame),
    "coalesce_versions": lambda frame: cdckit.quality.coalesce_versions(frame),
    "find_overlaps": lambda frame: cdckit.quality.find_overlaps(frame),
    "find_gaps": lambda frame: cdckit.quality.find_gaps(frame),
    "as_of_join": lambda frame: cdckit.as_of_join(frame, cdckit.Lookup(frame, on="n", into="p"), time="t"),
    "why": lambda frame: cdckit.why(frame, {"number": 1}, "name", keys=["number"], valid_at=AT),
    "blame": lambda frame: cdckit.blame(frame, {"number": 1}),
    "values_by_message": lambda frame: cdckit.query.values_by_message(frame, "m1"),
    "count_sources": lambda frame: cdckit.query.count_sources(frame, frame),
    "with_messages": lambda frame: cdckit.query.with_messages(frame, frame),
    "revoke": lambda frame: cdckit.query.revoke(frame, "m1"),
    "rejects": lambda frame: cdckit.rejects(frame),
    "drop_rejects": lambda frame: cdckit.model.drop_rejects(frame),
    "show": lambda frame: cdckit.show(frame),
}


@pytest.mark.parametrize("function", ASKED)
@pytest.mark.parametrize("frame", [None, [], "history"])
def test_a_table_is_a_dataframe(spark: SparkSession, function: str, frame: Any) -> None:
    needed = r" to be a DataFrame of Spark( or of pandas, .*)?; it is"
    if function == "union_changes" and isinstance(frame, list):
        needed = " to be a table of changes; it is 'a list of 0'. Give the tables one by one"
    with pytest.raises(InvalidArgument, match=rf"{function}\(\) needs .*{needed}"):
        ASKED[function](frame)


def test_a_priority_for_a_source_that_is_not_there_is_found(changes: DataFrame) -> None:
    """Only the data can tell a misspelt source from one that has said nothing yet."""
    both = changes.union(changes.withColumn("source", F.lit("web"))).union(
        changes.withColumn("source", F.lit(None).cast("string"))
    )
    ranks = {"shop": Priority(1), "wbe": Priority(2), "hsop": Priority(3)}
    found = cdckit.model.find_unused_priorities(both, ranks).orderBy("source").collect()
    assert [tuple(row) for row in found] == [("hsop", ["shop", "web"]), ("wbe", ["shop", "web"])]
    assert cdckit.model.find_unused_priorities(both, {"web": Priority()}).collect() == []
    assert cdckit.model.find_unused_priorities(both, {}).collect() == []
    nothing = cdckit.model.find_unused_priorities(both.limit(0), {"web": Priority()}).collect()
    assert [tuple(row) for row in nothing] == [("web", [])]


@pytest.mark.parametrize(
    ("priorities", "says"),
    [
        (None, "needs priorities to be a mapping of source to Priority"),
        ([("shop", Priority())], "needs priorities to be a mapping of source to Priority"),
        ({"shop": 9}, r"needs priorities\['shop'\] to be a Priority; it is 9"),
        ({None: Priority()}, "needs priorities to be of sources that are texts"),
    ],
)
def test_priorities_are_by_source(changes: DataFrame, priorities: Any, says: str) -> None:
    with pytest.raises(InvalidArgument, match=rf"with_priorities\(\) {says}"):
        cdckit.with_priorities(changes, priorities)
    with pytest.raises(InvalidArgument, match=rf"find_unused_priorities\(\) {says}"):
        cdckit.model.find_unused_priorities(changes, priorities)


def test_a_field_without_a_type_is_refused(changes: DataFrame) -> None:
    """Spark calls it void; but a list that never held anything is a list."""
    with_void = changes.withColumn("data", F.expr("struct(data.number, null AS name)"))
    with_empty = changes.withColumn("data", F.expr("struct(data.number, array(null) AS name)"))
    for asked in (cdckit.merge, cdckit.bitemporal):
        with pytest.raises(WrongColumnType, match=r"data\.name as of a type that has values: cast it"):
            asked(with_void, **KEYS)
    assert cdckit.merge(with_empty, **KEYS).first()["name"] == [None]


@pytest.mark.parametrize("column", ["data", "carried"])
def test_a_change_without_data_is_refused(changes: DataFrame, column: str) -> None:
    """It would be of the entity with a null key, and carry nothing."""
    kind = changes.schema[column].dataType
    history = cdckit.merge(changes.withColumn(column, F.lit(None).cast(kind)), **KEYS)
    with pytest.raises(
        Exception, match="The merge needs data and carried in every change; at least 1 have none"
    ):
        history.collect()


def test_a_sequence_of_numbers_sorts_as_they_do(spark: SparkSession) -> None:
    numbers = [0, 9, 10, -1, -2, -10, 2**63 - 1, -(2**63)]
    rows = spark.createDataFrame([(number,) for number in [*numbers, None]], "lsn long")
    told = cdckit.model.with_sequence(rows, "lsn")
    in_order = [row["lsn"] for row in told.where("sequence IS NOT NULL").orderBy("sequence").collect()]
    assert in_order == sorted(numbers)
    assert told.where("lsn IS NULL").first()["sequence"] is None
    assert told.where("lsn = 10").first()["sequence"] == "0" * 36 + "10"
    widest = [Decimal("9" * 38), Decimal(0), Decimal("-" + "9" * 38), Decimal("-" + "9" * 37)]
    wide = spark.createDataFrame([(number,) for number in widest], "n decimal(38,0)")
    told = cdckit.model.with_sequence(wide, "n").orderBy("sequence")
    assert [row["n"] for row in told.collect()] == sorted(widest)


@pytest.mark.parametrize("kind", ["string", "double", "decimal(10,2)", "timestamp"])
def test_a_sequence_is_made_of_whole_numbers(spark: SparkSession, kind: str) -> None:
    frame = spark.range(1).select(F.lit(None).cast(kind).alias("lsn"))
    with pytest.raises(WrongColumnType, match=r"with_sequence\(\) needs the column lsn as a whole number"):
        cdckit.model.with_sequence(frame, "lsn")


def test_a_column_beside_those_of_changes_stays(changes: DataFrame) -> None:
    more = changes.withColumns({"note": F.lit("x"), "source": F.lit("web")})
    for both in (cdckit.union_changes(changes, more), cdckit.union_changes(more, changes)):
        rows = both.orderBy("source").select("source", "note").collect()
        assert [tuple(row) for row in rows] == [("shop", None), ("web", "x")]
    with pytest.raises(
        WrongColumnType, match=r"union_changes\(\) needs the column note as string; it is int"
    ):
        cdckit.union_changes(more, changes.withColumn("note", F.lit(1)))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("d", Decimal("NaN")),
        ("d", Decimal("1E+60")),
        ("d", 1.5),
        ("i", 2**70),
        ("i", True),
        ("f", 10**400),
        ("n", AT),
        ("t", datetime(2024, 1, 1)),
        ("day", datetime(2024, 1, 1)),
        ("list", "a"),
        ("list", [1.5]),
        ("struct", {"y": 1}),
        ("variant", 1),
    ],
)
def test_a_value_that_its_field_cannot_have_is_refused(spark: SparkSession, field: str, value: Any) -> None:
    types = {
        "d": "decimal(10,2)", "i": "int", "f": "float", "n": "timestamp_ntz", "t": "timestamp", "day": "date",
        "list": "array<int>", "struct": "struct<x:int>", "variant": "variant",
    }  # fmt: skip
    history = spark.range(1).select(
        F.lit("g").alias("guid"),
        F.lit(AT).alias("valid_from_timestamp"),
        F.lit(None).cast("timestamp").alias("valid_to_timestamp"),
        F.lit(False).alias("deleted_indicator"),
        *(F.lit(None).cast(kind).alias(name) for name, kind in types.items()),
    )
    with pytest.raises(InvalidArgument, match=rf"timeline\(\) needs key\['{field}'\] to be "):
        cdckit.query.timeline(history, {field: value})


def test_a_key_of_an_entity_in_its_own_types(spark: SparkSession) -> None:
    """Through `timeline` and `blame` themselves, in a zone in which 02:30 is no time of that day."""
    key = {"f": 1.1, "n": datetime(2024, 3, 10, 2, 30), "old": datetime(1500, 1, 1), "day": date(1, 1, 1)}
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        history = spark.range(1).select(
            F.lit("g").alias("guid"),
            F.lit(AT - timedelta(days=1)).alias("valid_from_timestamp"),
            F.lit(None).cast("timestamp").alias("valid_to_timestamp"),
            F.lit(False).alias("deleted_indicator"),
            F.expr("cast(1.1 AS float)").alias("f"),
            F.expr("timestamp_ntz'2024-03-10 02:30:00'").alias("n"),
            F.expr("timestamp_ntz'1500-01-01 00:00:00'").alias("old"),
            F.expr("date'0001-01-01'").alias("day"),
            F.expr(
                "struct(struct('m' AS m, 0 AS p) AS guid, struct('m' AS m, 0 AS p) AS f, "
                "struct('m' AS m, 0 AS p) AS n, struct('m' AS m, 0 AS p) AS old, "
                "struct('m' AS m, 0 AS p) AS day)"
            ).alias("field_provenance"),
        )
        assert cdckit.query.timeline(history, key).count() == 1
        assert cdckit.blame(history, key).count() == 5
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
