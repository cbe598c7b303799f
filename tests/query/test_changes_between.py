"""`changes_between`: what changed in a period, from what to what, and by which message."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit.errors import InvalidArgument
from cdckit.query.differences import changes_between
from support.fold import fold
from support.histories import (
    INSTANTS,
    Row,
    as_text,
    at,
    history_schema,
    random_changes,
    rows_to_dataframe,
    to_rows,
)

SCHEMA = """
    guid string, valid_from_timestamp timestamp, valid_to_timestamp timestamp, deleted_indicator boolean,
    number int, name string, price double, source_message string,
    field_provenance struct<
        guid: struct<m: string, p: int>, number: struct<m: string, p: int>,
        name: struct<m: string, p: int>, price: struct<m: string, p: int>
    >
"""
NAN = float("nan")


def version(begins: int, ends: int | None, values: tuple[Any, ...], said_by: str, **columns: Any) -> Row:
    """A version of product 1; *said_by* are the messages of the row, number, name and price: "1 1 2 -"."""
    entries = [None if m == "-" else {"m": f"m{m}", "p": int(m)} for m in said_by.split()]
    return {
        "guid": "g",
        "valid_from_timestamp": at(begins),
        "valid_to_timestamp": None if ends is None else at(ends),
        "deleted_indicator": False,
        **dict(zip(("number", "name", "price"), values, strict=True)),
        "source_message": "not read",
        "field_provenance": dict(zip(("guid", "number", "name", "price"), entries, strict=True)),
        **columns,
    }


LIFE = (
    version(9, 10, (1, "Mug", None), "1 1 1 -"),
    version(10, 11, (1, "Mug", 2.5), "1 1 2 2"),
    version(11, 12, (1, None, None), "3 1 3 3", deleted_indicator=True),
    version(12, 13, (1, None, None), "4 1 4 4", deleted_indicator=True),
    version(13, None, (1, "Cup", None), "5 5 5 4"),
)
"""Made, priced (its name confirmed by the way), deleted, deleted again by a stronger source, made again."""


def history_of(spark: SparkSession, *versions: Row) -> DataFrame:
    return spark.createDataFrame(list(versions), SCHEMA)


def changes(found: DataFrame) -> list[tuple[Any, ...]]:
    rows: list[Row] = found.drop("guid").toArrow().to_pylist()
    return sorted((tuple(row.values()) for row in rows), key=lambda row: (row[0], row[2]))


def test_a_reader_is_told_the_key(spark: SparkSession) -> None:
    found = changes_between(history_of(spark, *LIFE), at(11), at(12), keys=["number"])
    assert found.columns[:3] == ["guid", "number", "changed_at_timestamp"]
    assert found.select("number", "operation").distinct().collect() == [(1, "delete")]
    with pytest.raises(InvalidArgument, match="one or more fields among"):
        changes_between(history_of(spark, *LIFE), at(11), at(12), keys=["id"])


def test_a_life_in_full(spark: SparkSession) -> None:
    found = changes_between(history_of(spark, *LIFE), at(1), None)
    assert found.columns == [
        "guid",
        "changed_at_timestamp",
        "operation",
        "field",
        "from_value",
        "to_value",
        "message",
        "priority",
    ]
    assert changes(found) == [
        (at(9), "insert", "deleted_indicator", None, "false", "m1", 1),
        (at(9), "insert", "name", None, "Mug", "m1", 1),
        (at(9), "insert", "number", None, "1", "m1", 1),
        (at(10), "update", "price", None, "2.5", "m2", 2),
        (at(11), "delete", "deleted_indicator", "false", "true", "m3", 3),
        (at(11), "delete", "name", "Mug", None, "m3", 3),
        (at(11), "delete", "price", "2.5", None, "m3", 3),
        (at(13), "recreate", "deleted_indicator", "true", "false", "m5", 5),
        (at(13), "recreate", "name", None, "Cup", "m5", 5),
    ]


def test_what_begins_at_the_start_is_in_the_period_and_knows_what_was_before(spark: SparkSession) -> None:
    found = changes_between(history_of(spark, *LIFE), at(10), at(11))
    assert changes(found) == [(at(10), "update", "price", None, "2.5", "m2", 2)]


def test_what_begins_at_the_end_is_not_in_the_period(spark: SparkSession) -> None:
    assert changes(changes_between(history_of(spark, *LIFE), at(1), at(9))) == []


def test_a_stronger_delete_of_what_is_deleted_changes_nothing_but_provenance(spark: SparkSession) -> None:
    assert changes(changes_between(history_of(spark, *LIFE), at(12), at(13))) == []


def test_null_and_nan_are_values(spark: SparkSession) -> None:
    history = history_of(
        spark,
        version(9, 10, (1, "", NAN), "1 1 1 1"),
        version(10, 11, (1, "", NAN), "1 1 1 2"),
        version(11, 12, (1, None, None), "1 1 3 3"),
        version(12, None, (1, "NULL", 0.0), "1 1 4 4"),
    )
    assert changes(changes_between(history, at(10), None)) == [
        (at(11), "update", "name", "", None, "m3", 3),
        (at(11), "update", "price", "NaN", None, "m3", 3),
        (at(12), "update", "name", None, "NULL", "m4", 4),
        (at(12), "update", "price", None, "0.0", "m4", 4),
    ]


def test_values_are_compared_in_their_type_not_as_text(spark: SparkSession) -> None:
    """Minus zero is zero, though it is written otherwise."""
    history = history_of(
        spark, version(9, 10, (1, "a", 0.0), "1 1 1 1"), version(10, None, (1, "a", -0.0), "1 1 1 2")
    )
    assert changes(changes_between(history, at(10), None)) == []


def test_nested_values_are_shown_as_json_and_binary_ones_in_hex(spark: SparkSession) -> None:
    history = history_of(
        spark, version(9, 10, (1, "a", 0.5), "1 1 1 1"), version(10, None, (2, "b", 0.5), "2 2 2 1")
    ).withColumns(
        {
            "name": F.col("name").cast("binary"),
            "number": F.create_map(F.lit("n"), "number"),
            "price": F.array("price", F.lit(None)),
        }
    )
    assert changes(changes_between(history, at(10), None)) == [
        (at(10), "update", "name", "61", "62", "m2", 2),
        (at(10), "update", "number", '{"n":1}', '{"n":2}', "m2", 2),
    ]


def test_after_a_gap_the_entity_is_inserted_anew(spark: SparkSession) -> None:
    """Whatever the start of the period: what was known before the gap does not count."""
    history = history_of(
        spark, version(9, 10, (1, "a", None), "1 1 1 -"), version(12, None, (1, "a", None), "2 2 2 -")
    )
    expected = [
        (at(12), "insert", "deleted_indicator", None, "false", "m2", 2),
        (at(12), "insert", "name", None, "a", "m2", 2),
        (at(12), "insert", "number", None, "1", "m2", 2),
    ]
    assert changes(changes_between(history, at(10), None)) == expected
    assert changes(changes_between(history, at(11), None)) == expected


def test_entities_do_not_mix(spark: SparkSession) -> None:
    history = history_of(
        spark,
        version(9, 10, (1, "a", None), "1 1 1 -"),
        version(10, None, (1, "b", None), "2 1 2 -", guid="other"),
    )
    found = changes_between(history, at(10), None).where("field = 'name'")
    assert changes(found) == [(at(10), "insert", "name", None, "b", "m2", 2)]


def test_without_provenance_nobody_is_named(spark: SparkSession) -> None:
    history = history_of(spark, *LIFE)
    entries = F.struct(F.col("field_provenance.guid").alias("guid"))
    part = changes(changes_between(history.withColumn("field_provenance", entries), at(10), at(12)))
    assert (at(11), "delete", "deleted_indicator", "false", "true", "m3", 3) in part
    assert (at(10), "update", "price", None, "2.5", None, None) in part
    bare = changes(changes_between(history.drop("field_provenance"), at(10), at(12)))
    assert [row[:5] for row in bare] == [row[:5] for row in part]
    assert {row[5:] for row in bare} == {(None, None)}


def test_field_names_may_be_anything(spark: SparkSession) -> None:
    """Those of the answer's own columns, for instance."""
    names = {"number": "a.b `c`", "name": "field", "price": "version"}
    entries = [
        F.col("field_provenance").getField(old).alias(new) for old, new in {"guid": "guid", **names}.items()
    ]
    odd = (
        history_of(spark, *LIFE).withColumn("field_provenance", F.struct(*entries)).withColumnsRenamed(names)
    )
    assert changes(changes_between(odd, at(9), at(11))) == [
        (at(9), "insert", "a.b `c`", None, "1", "m1", 1),
        (at(9), "insert", "deleted_indicator", None, "false", "m1", 1),
        (at(9), "insert", "field", None, "Mug", "m1", 1),
        (at(10), "update", "version", None, "2.5", "m2", 2),
    ]


def test_a_version_over_as_it_begins_changed_nothing(spark: SparkSession) -> None:
    """Wherever it stands among the others."""
    mug, cup = version(9, 10, (1, "Mug", None), "1 1 1 -"), version(10, None, (1, "Cup", None), "1 1 2 -")
    never = [version(hour, hour, (1, "Jug", 9.0), "3 3 3 3") for hour in (9, 10, 11)]
    for rows in ([*never, mug, cup], [mug, cup, *never]):
        found = changes_between(history_of(spark, *rows), at(10), None)
        assert [tuple(row)[2:] for row in found.collect()] == [("update", "name", "Mug", "Cup", "m2", 2)]


def test_an_empty_history_never_changed(spark: SparkSession) -> None:
    assert changes(changes_between(history_of(spark), at(9), None)) == []


FIELDS = {"h": "int", "k": "string", "a": "int", "b": "double"}
State = dict[tuple[str, str], str | None]


@pytest.mark.parametrize(("start", "end"), [(2, None), (2, 1), (0, 3), (1, 3), (1, None)])
def test_the_state_before_the_period_and_its_changes_make_the_state_at_its_end(
    spark: SparkSession, start: int, end: int | None
) -> None:
    """For random histories, field by field; start and end are instants at which things change."""
    first = INSTANTS[start]
    last = datetime(9999, 1, 1, tzinfo=UTC) if end is None else INSTANTS[end]
    rows = fold(random_changes(61, 200, FIELDS), entity="thing", keys=["h", "k"], fields=list(FIELDS))
    history = rows_to_dataframe(spark, rows, history_schema(FIELDS))
    found: list[Row] = changes_between(history, first, None if end is None else last).toArrow().to_pylist()
    assert len(found) > 100
    versions = {(row["guid"], row["valid_from_timestamp"]): row for row in rows}
    state = state_before(rows, first)
    for row in sorted(found, key=lambda row: row["changed_at_timestamp"]):
        assert first <= row["changed_at_timestamp"] < last
        assert row["from_value"] != row["to_value"]
        assert state.get((row["guid"], row["field"])) == row["from_value"]
        state[row["guid"], row["field"]] = row["to_value"]
        provenance = versions[row["guid"], row["changed_at_timestamp"]]["field_provenance"]
        entry = provenance["guid" if row["field"] == "deleted_indicator" else row["field"]]
        assert {"m": row["message"], "p": row["priority"]} == entry
    expected = state_before(rows, last)
    assert {place: value for place, value in state.items() if value is not None} == {
        place: value for place, value in expected.items() if value is not None
    }


def test_operations_of_random_histories_are_what_became_of_the_entity(spark: SparkSession) -> None:
    rows = fold(random_changes(67, 200, FIELDS), entity="thing", keys=["h", "k"], fields=list(FIELDS))
    history = rows_to_dataframe(spark, rows, history_schema(FIELDS))
    found: list[Row] = changes_between(history, INSTANTS[2], None).toArrow().to_pylist()
    became = {
        (None, "false"): "insert",
        ("false", "true"): "delete",
        (None, "true"): "delete",  # made and deleted at one instant
        ("true", "false"): "recreate",
    }
    of_instant = {
        (row["guid"], row["changed_at_timestamp"]): became[row["from_value"], row["to_value"]]
        for row in found
        if row["field"] == "deleted_indicator"
    }
    assert set(of_instant.values()) == {"insert", "delete", "recreate"}
    for row in found:
        expected = of_instant.get((row["guid"], row["changed_at_timestamp"]), "update")
        assert row["operation"] == expected


def state_before(rows: list[Row], instant: datetime) -> State:
    """What was in force just before *instant*, as text by entity and field."""
    return {
        (row["guid"], name): as_text(row[name])
        for row in rows
        if row["valid_from_timestamp"] < instant
        and (row["valid_to_timestamp"] is None or row["valid_to_timestamp"] >= instant)
        for name in ["deleted_indicator", *FIELDS]
    }


def test_the_answer_is_the_same_however_rows_are_ordered(spark: SparkSession) -> None:
    history = history_of(spark, *LIFE)
    backwards = history_of(spark, *reversed(LIFE))
    assert changes(changes_between(history, at(9), None)) == changes(changes_between(backwards, at(9), None))
    assert to_rows(history) == to_rows(backwards)
