"""What a table is over time: keys that grow or get other names, DDLs taken back, names, numbers, servers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdckit import current, merge, rejects, replicate, union_changes
from cdckit.errors import InvalidArgument
from cdckit.model import drop_rejects
from support.replicate_messages import (
    NOON,
    Record,
    Version,
    by_offset,
    header_values,
    json_envelope,
    numbered,
    record,
    sequence,
    to_dataframe,
)
from support.replicate_readings import read, read_home, rows_of

TEXT = ["null", "string"]
INT = ["null", "int"]
LONG = ["null", "long"]


def decimal(precision: int, scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


def changes_of(spark: SparkSession, values: Sequence[bytes], **options: Any) -> list[tuple[Any, ...]]:
    """The changes of ITEMS in the order of their messages: operation, data."""
    records = to_dataframe(spark, numbered(values))
    made = replicate.table_changes(records, task="shop_task", table="ITEMS", **options)
    return [
        (row["operation"], row["data"].asDict())
        for row in made.orderBy("arrival.offset", "arrival.record_number").collect()
    ]


# --- keys ---------------------------------------------------------------------------------------------------


def test_a_key_that_grew_is_null_in_the_rows_from_before(spark: SparkSession) -> None:
    old = Version({"id": "int", "x": TEXT})
    new = Version({"id": "int", "x": TEXT, "region": "string"}, keys=("id", "region"), number=2)
    values = [
        old.md(),
        old.dt("INSERT", {"id": 1, "x": "a"}),
        new.md(),
        new.dt("INSERT", {"id": 1, "x": "b", "region": "N"}),
    ]
    reading = read(spark, numbered(values))
    rows = by_offset(reading.rows())
    assert [(rows[n]["error_code"], rows[n]["key_columns"], rows[n]["absent_columns"]) for n in (1, 3)] == [
        (None, ["id"], ["region"]),
        (None, ["id", "region"], []),
    ]
    keys = ["id", "region"]
    assert changes_of(spark, values) == [
        ("upsert", {"id": 1, "x": "a", "region": None}),
        ("upsert", {"id": 1, "x": "b", "region": "N"}),
    ]
    assert replicate.changes(reading.rows(), keys=keys).count() == 2
    assert replicate.find_without_key(reading.rows(), keys=keys).count() == 0


def test_a_key_with_another_name_is_the_same_key(spark: SparkSession) -> None:
    """Its column has the same ordinal, place in the key and type: one item, told of twice."""
    old = Version({"ID": "int", "x": TEXT}, keys=("ID",))
    new = Version({"ITEM_ID": "int", "x": TEXT}, keys=("ITEM_ID",), number=2)
    values = [
        old.md(),
        old.dt("INSERT", {"ID": 1, "x": "a"}),
        old.dt("UPDATE", {"ID": 2, "x": "a"}, {"ID": 1, "x": "a"}),
        new.md(),
        new.dt("UPDATE", {"ITEM_ID": 2, "x": "b"}),
    ]
    assert changes_of(spark, values) == [
        ("upsert", {"ITEM_ID": 1, "x": "a", "ID": 1}),
        ("delete", {"ITEM_ID": 1, "x": "a", "ID": 1}),
        ("upsert", {"ITEM_ID": 2, "x": "a", "ID": 2}),
        ("upsert", {"ITEM_ID": 2, "x": "b", "ID": None}),
    ]


def test_in_json_form_too_a_key_with_another_name_is_the_same_key() -> None:
    old = Version({"ID": "int", "x": TEXT}, keys=("ID",))
    new = Version({"ITEM_ID": "int", "x": TEXT}, keys=("ITEM_ID",), number=2)

    def told(**row: str) -> bytes:
        return json_envelope("DT", {"data": row, "headers": header_values("UPDATE", columnMask="01")})

    values = [old.md(), told(ID="1", x="a"), new.md(), told(ITEM_ID="2", x="b")]
    _, rows = read_home(numbered(values), json_topics=["items"])
    assert [rows[n]["data"] for n in (1, 3)] == [
        {"ITEM_ID": 1, "x": "a", "ID": 1},
        {"ITEM_ID": 2, "x": "b", "ID": None},
    ]
    assert [rows[n]["sent"] for n in (1, 3)] == [
        {"ITEM_ID": True, "x": False, "ID": True},
        {"ITEM_ID": True, "x": False, "ID": False},
    ]


def test_rows_of_a_version_without_any_key_column_are_neither_lost_nor_one_entity(
    spark: SparkSession,
) -> None:
    old = Version({"id": "int"})
    new = Version({"id": "int", "code": "string"}, keys=("code",), number=2)
    told = [old.dt("INSERT", {"id": n}) for n in (1, 2)]
    values = [old.md(), *told, new.md(), new.dt("INSERT", {"id": 3, "code": "c"})]
    assert changes_of(spark, values) == [
        ("upsert", {"id": 1, "code": None}),
        ("upsert", {"id": 2, "code": None}),
        ("upsert", {"id": 3, "code": "c"}),
    ]
    rows = read(spark, numbered(values)).rows()
    made = replicate.changes(rows, keys=["code"])
    assert [row["data"]["id"] for row in drop_rejects(made).collect()] == [3]
    refused = by_offset(rejects(made))
    assert {offset: row["error_code"] for offset, row in refused.items()} == dict.fromkeys(
        (1, 2), "KEY_MISSING"
    )
    assert sorted(by_offset(replicate.find_without_key(rows, keys=["code"]))) == [1, 2]


def test_a_sound_row_that_does_not_say_its_key_waits_and_is_no_reject(spark: SparkSession) -> None:
    version = Version({"a": "int", "x": TEXT, "b": "int"}, keys=("b", "a"))
    row = {"a": 1, "b": 2, "x": "x"}
    masks = (b"\x05", b"\x04", b"\x03", b"")
    values = [version.md(), *(version.dt("UPDATE", row, columnMask=mask) for mask in masks)]
    rows = read(spark, [*numbered(values), record(version.dt("UPDATE", None), 9)]).rows()
    assert sorted(by_offset(rejects(rows))) == [9]
    assert sorted(by_offset(replicate.find_without_key(rows, keys=["b", "a"]))) == [2, 3, 4]
    assert sorted(by_offset(replicate.find_without_key(rows, keys=["a"]))) == [2, 4]
    made = replicate.changes(rows, keys=["b"])
    told = drop_rejects(made).select("arrival.offset").collect()
    assert sorted(each["offset"] for each in told) == [1, 2]
    codes = {offset: row["error_code"] for offset, row in by_offset(rejects(made)).items()}
    assert codes == {3: "KEY_MISSING", 4: "KEY_MISSING", 9: "NO_ROW"}


# --- metadata over time -------------------------------------------------------------------------------------


def test_a_row_is_read_by_what_was_said_of_its_id_before_it(spark: SparkSession) -> None:
    """One id: longer texts, then another key, then back again."""
    first = Version({"id": "int", "code": "string"})
    rekeyed = replace(first, keys=("code",), number=2)
    order: list[tuple[int, bytes]] = [(10, first.md()), (20, rekeyed.md()), (30, first.md())]
    places = (5, 10, 15, 20, 25, 30, 35)
    told = [record(first.dt("INSERT", {"id": 1, "code": "c"}), 100 + n, timestamp=at(n)) for n in places]
    said = [record(value, n, timestamp=at(n)) for n, value in order]
    reading = read(spark, [*told, *said])
    rows = by_offset(reading.rows())
    assert [rows[100 + n]["key_columns"] for n in places] == [["id"]] * 3 + [["code"]] * 2 + [["id"]] * 2
    assert [rows[100 + n]["table_version"] for n in places] == [1, 1, 1, 2, 2, 1, 1]
    assert replicate.keys(reading.zone) == ["id"]


def test_metadata_without_times_counts_by_its_places(spark: SparkSession) -> None:
    """Each row is there once, by what was said last."""
    first = Version({"id": "int", "code": "string"})
    rekeyed = replace(first, keys=("code",), number=2)
    said = [record(version.md(), n, timestamp=None) for n, version in enumerate((first, rekeyed))]
    told = record(first.dt("INSERT", {"id": 1, "code": "c"}), 2, timestamp=at(0))
    rows = read(spark, [*said, told]).rows().collect()
    assert [(row["offset"], row["key_columns"]) for row in rows] == [(2, ["code"])]


def test_metadata_without_a_time_came_before_that_of_any_time() -> None:
    """Kafka shows the time -1 ms where an old producer gave none; and places may lack their other parts."""
    first = Version({"id": "int", "code": "string"})
    rekeyed = replace(first, keys=("code",), number=2)
    just_before = datetime(1970, 1, 1, tzinfo=UTC) - timedelta(milliseconds=1)
    records = [
        record(first.md(), 0, timestamp=just_before),
        record(rekeyed.md(), 1, timestamp=None, topic=None, partition=None),
        record(first.dt("INSERT", {"id": 1, "code": "c"}), 2, timestamp=at(0)),
    ]
    _, rows = read_home(records)
    assert rows[2]["key_columns"] == ["id"]
    _, rows = read_home([*records, record(rekeyed.md(), 3, timestamp=None, topic="b")])
    assert rows[2]["key_columns"] == ["id"]


def test_a_message_in_json_form_is_read_by_what_was_said_last_of_its_table_before_it() -> None:
    """It names no version: of a column that was dropped and a key that grew its mask and its key say more."""
    old = Version({"id": "int", "b": TEXT, "c": TEXT})
    new = Version({"id": "int", "c": TEXT, "region": "string"}, keys=("id", "region"), number=2)

    def told(row: dict[str, str], mask: str) -> bytes:
        return json_envelope("DT", {"data": row, "headers": header_values("UPDATE", columnMask=mask)})

    before, after = told({"id": "1", "c": "x"}, "05"), told({"id": "1", "c": "y", "region": "N"}, "07")
    values = [before, old.md(), before, new.md(), after]
    timeless = record(after, 5, timestamp=None)
    _, rows = read_home([*numbered(values), timeless], json_topics=["items"])
    assert [(row["offset"], row["error_code"], row["table_version"]) for row in rows.values()] == [
        (0, None, 1),
        (2, None, 1),
        (4, None, 2),
        (5, None, 2),
    ]
    sent = {
        offset: {name for name, is_sent in row["sent"].items() if is_sent} for offset, row in rows.items()
    }
    assert sent == {0: {"id", "c"}, 2: {"id", "c"}, 4: {"id", "c", "region"}, 5: {"id", "c", "region"}}
    assert rows[2]["key_columns"] == ["id"]
    # Its key is whole, so nobody needs its bytes.
    assert rows[2]["value"] is None


def at(seconds: int) -> Any:
    return NOON + timedelta(seconds=seconds)


def test_a_table_that_was_made_anew_is_as_it_is_now(spark: SparkSession) -> None:
    old = Version({"code": "string", "id": "int"}, keys=("code",), number=5)
    new = Version({"id": "int", "code": TEXT})
    values = [
        old.md(),
        old.dt("INSERT", {"code": "c", "id": 1}),
        new.md(),
        new.dt("INSERT", {"id": 1, "code": None}),
    ]
    assert changes_of(spark, values) == [
        ("upsert", {"id": 1, "code": "c"}),
        ("upsert", {"id": 1, "code": None}),
    ]
    assert replicate.keys(read(spark, numbered(values)).zone) == ["id"]


def test_longer_texts_under_one_id_are_no_conflict(spark: SparkSession) -> None:
    version = Version({"id": "int", "name": TEXT})
    said = version.metadata()
    columns = said["tableStructure"]["tableColumns"]
    longer = {"tableColumns": {**columns, "name": {**columns["name"], "length": 200}}}
    reading = read(spark, numbered([version.md(), version.md(tableStructure=longer)]))
    assert by_offset(rejects(reading.said)) == {}
    assert reading.zone.count() == 2


# --- numbers ------------------------------------------------------------------------------------------------


def test_a_key_that_became_a_decimal_is_the_same_key(spark: SparkSession) -> None:
    old = Version({"id": "int", "price": LONG})
    new = Version({"id": decimal(12, 2), "price": ["null", decimal(9, 2)]}, number=2)
    first = [old.md(), old.dt("INSERT", {"id": 1, "price": 5}, timestamp="2024-01-01T10:00:00")]
    update = new.dt(
        "UPDATE",
        {"id": Decimal("1.00"), "price": Decimal("5.50")},
        timestamp="2024-01-01T11:00:00",
        changeSequence=sequence("20240101110000", 2),
    )
    assert changes_of(spark, [*first, new.md(), update]) == [
        ("upsert", {"id": Decimal("1.00"), "price": Decimal("5.00")}),
        ("upsert", {"id": Decimal("1.00"), "price": Decimal("5.50")}),
    ]

    def told(values: Sequence[bytes]) -> Any:
        return replicate.table_changes(to_dataframe(spark, numbered(values)), task="shop_task", table="ITEMS")

    saved, later = told(first), told([*first[:1], new.md(), update])
    both = union_changes(saved, later)
    assert both.schema["data"].dataType.simpleString() == "struct<id:decimal(12,2),price:decimal(21,2)>"
    history = merge(both, entity="item", keys=["id"])
    assert [(row["id"], row["price"]) for row in current(history).collect()] == [(1, Decimal("5.50"))]
    guid = merge(saved, entity="item", keys=["id"]).select("guid").first()
    assert {row["guid"] for row in history.collect()} == {guid and guid["guid"]}


def test_a_column_that_no_exact_type_holds_is_text(spark: SparkSession) -> None:
    old, new = Version({"id": "int", "x": LONG}), Version({"id": "int", "x": ["null", "double"]}, number=2)
    values = [
        old.md(),
        old.dt("INSERT", {"id": 1, "x": 2**53 + 1}),
        new.md(),
        new.dt("INSERT", {"id": 1, "x": 0.5}),
    ]
    reading = read(spark, numbered(values))
    exact = by_offset(reading.rows())
    assert [exact[n]["data"]["x"] for n in (1, 3)] == ["9007199254740993", "0.5"]


# --- names --------------------------------------------------------------------------------------------------


def named(version: Version, **names: str) -> dict[str, Any]:
    """The metadata of *version* with columns under the names that the source has for them."""
    columns = version.metadata()["tableStructure"]["tableColumns"]
    return {"tableColumns": {names.get(name, name): facts for name, facts in columns.items()}}


def test_columns_are_told_by_their_ordinals_where_avro_could_not_hold_their_names() -> None:
    version = Version({"CUST_NAME": "string", "CUST_NAME_2": TEXT, "GR__SSE": INT}, keys=("CUST_NAME",))
    structure = named(version, CUST_NAME="CUST NAME", CUST_NAME_2="CUST_NAME", GR__SSE="GRÖSSE")
    row = {"CUST_NAME": "a", "CUST_NAME_2": "b", "GR__SSE": 3}
    found = rows_of(
        [version.md(tableStructure=structure)],
        [version.dt("UPDATE", row, columnMask=b"\x05", changeMask=b"\x04")],
    )[0]
    assert found["error_code"] is None
    assert found["data"] == row
    assert found["sent"] == {"CUST_NAME": True, "CUST_NAME_2": False, "GR__SSE": True}
    assert found["changed"] == {"CUST_NAME": False, "CUST_NAME_2": False, "GR__SSE": True}
    assert found["key_columns"] == ["CUST_NAME"]


def test_of_names_that_differ_in_case_alone_the_later_has_its_position_behind_it() -> None:
    version = Version({"name": "string", "Name": TEXT, "größe": INT}, keys=("name",))
    row = {"name": "a", "Name": "b", "größe": 3}
    found = rows_of([version.md()], [version.dt("UPDATE", row, columnMask=b"\x05")])[0]
    assert found["error_code"] is None
    assert found["data"] == {"name": "a", "Name_2": "b", "größe": 3}
    assert found["sent"] == {"name": True, "Name_2": False, "größe": True}


def test_in_json_form_a_column_goes_by_the_sources_name_or_the_data_schemas_in_any_case() -> None:
    old = Version({"CUST_NAME": "string", "OLD_NOTE": TEXT}, keys=("CUST_NAME",))
    new = Version(
        {"CUST_NAME": "string", "CUST_NAME_2": TEXT, "name": TEXT, "Name": TEXT},
        keys=("CUST_NAME",),
        number=2,
    )
    known = [
        old.md(tableStructure=named(old, CUST_NAME="CUST NAME", OLD_NOTE="OLD NOTE")),
        new.md(tableStructure=named(new, CUST_NAME="CUST NAME", CUST_NAME_2="CUST_NAME")),
    ]
    both = {"CUST_NAME": "a", "CUST_NAME_2": "b"}
    expected: list[tuple[dict[str, str], dict[str, str]]] = [
        ({"CUST NAME": "a", "CUST_NAME": "b"}, both),
        ({"cust name": "a", "cust_name_2": "b"}, both),
        ({"CUST NAME": "a", "OLD NOTE": "n"}, {"CUST_NAME": "a", "OLD_NOTE": "n"}),
        ({"CUST NAME": "a", "old_note": "n"}, {"CUST_NAME": "a", "OLD_NOTE": "n"}),
        ({"name": "x", "Name": "y"}, {"name": "x", "Name_4": "y"}),
    ]
    in_doubt = {"NAME": "NAME", "CUST_NAME,CUST_NAME_2": "CUST_NAME_2"}
    told = [row for row, _ in expected] + [dict.fromkeys(names.split(","), "x") for names in in_doubt]
    messages = [json_envelope("DT", {"data": row, "headers": header_values("INSERT")}) for row in told]
    found = rows_of(known, messages, json_topics=["items"])
    for (_, columns), row in zip(expected, found, strict=False):
        assert row["error_code"] is None
        assert {name: text for name, text in row["data"].items() if text is not None} == columns
        assert {name for name, sent in row["sent"].items() if sent} == set(columns)
    for shown, row in zip(in_doubt.values(), found[len(expected) :], strict=True):
        assert row["error_code"] == "COLUMN_UNKNOWN"
        assert row["error_description"].endswith(f" It says: {shown}")


# --- servers ------------------------------------------------------------------------------------------------

HERE = Version({"id": "int", "x": TEXT})
THERE = replace(HERE, server="db2")


def of_two_servers() -> list[Record]:
    """One table, task, schema id and change sequence on two servers, each with a topic of its own."""
    told = []
    for place, version in enumerate((HERE, THERE)):
        told.append(record(version.md(), place, topic="metadata"))
        told.append(record(version.dt("INSERT", {"id": 1, "x": version.server}), place, topic=version.server))
    return told


def test_a_task_of_one_name_on_two_servers_is_two_sources(spark: SparkSession) -> None:
    records = to_dataframe(spark, of_two_servers())
    told = [
        replicate.table_changes(records, server=server, task="shop_task", table="ITEMS", topics=[server])
        for server in ("db1", "db2")
    ]
    found = [
        (row["source"], row["message_id"][:14], row["data"]["x"]) for row in union_changes(*told).collect()
    ]
    assert sorted(found) == [
        ("db1/shop_task", "db1/shop_task:", "db1"),
        ("db2/shop_task", "db2/shop_task:", "db2"),
    ]


def test_a_task_that_runs_on_several_servers_is_refused_without_one(spark: SparkSession) -> None:
    records = to_dataframe(spark, of_two_servers())
    with pytest.raises(InvalidArgument, match=r"needs server to be given, .* one of db1, db2; it is None"):
        replicate.table_changes(records, task="shop_task", table="ITEMS")


def test_an_id_of_two_tables_is_refused_until_the_topics_are_said(spark: SparkSession) -> None:
    records = to_dataframe(spark, of_two_servers())
    with pytest.raises(InvalidArgument, match=r"is also that of db2/shop_task SHOP.ITEMS; it is None"):
        replicate.table_changes(records, server="db1", task="shop_task", table="ITEMS")
