"""Exported records: inserts and deletes of a hub, and the same as lines of Elasticsearch's bulk interface."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from cdckit.datahub import Hub, bulk_lines, records, schema
from cdckit.datahub.outcomes import EXPORTED_COLUMNS, export_rows, new_exports
from cdckit.errors import InvalidArgument, MissingColumns
from support.hub_exports import AT, NUMBER, Row, row
from support.hub_programs import rows_of

SINCE_YEAR_1 = 62_135_596_800_000_000
COLUMNS = (
    "operation string, id string, version long, "
    "arrival struct<timestamp: timestamp, topic: string, partition: int, offset: long, record_number: int>, "
    "document struct<name: string, size: int, price: decimal(6,2), day: date, at: timestamp, `a.b`: double>"
)


# An interpreter of the format ----------------------------------------------------------------------------

Action = tuple[Row, Row | None]


def actions(lines: Sequence[str]) -> list[Action]:
    """Each row of text is an action, and under an index its document."""
    found: list[Action] = []
    for text in lines:
        action, *documents = map(json.loads, text.split("\n"))
        (kind,) = action
        assert kind in ("index", "delete")
        assert len(documents) == (1 if kind == "index" else 0)
        found.append((action, documents[0] if documents else None))
    return found


def indexed(some: Sequence[Action]) -> dict[str, Row]:
    """What an index holds in the end: of one id the greatest version stays, of two equal ones the later."""
    versions: dict[str, int] = {}
    documents: dict[str, Row] = {}
    for number, (action, document) in enumerate(some):
        (meta,) = action.values()
        assert meta["_index"] == "things"
        identifier = meta.get("_id", f"made {number}")
        if "_id" in meta:
            assert meta["version_type"] == "external_gte"
            if meta["version"] < versions.get(identifier, 0):
                continue
            versions[identifier] = meta["version"]
        else:
            assert list(meta) == ["_index"]
        documents.pop(identifier, None)
        if document is not None:
            documents[identifier] = document
    return documents


def names(documents: dict[str, Row]) -> dict[str, Any]:
    return {identifier: document["name"] for identifier, document in documents.items()}


def lines_of(frame: DataFrame, index: str = "things") -> list[str]:
    return [each["value"] for each in bulk_lines(frame, index).collect()]


# What is handed on once ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "now"),
    [
        # A field has another name, a value stands in another field, and what was null is a text.
        ("'1' AS id, named_struct('a', 1) AS document", "'1' AS id, named_struct('b', 1) AS document"),
        (
            "'1' AS id, named_struct('a', 1, 'b', CAST(NULL AS int)) AS document",
            "'1' AS id, named_struct('a', CAST(NULL AS int), 'b', 1) AS document",
        ),
        (
            "CAST(NULL AS string) AS id, struct('x' AS a) AS document",
            "'' AS id, struct('x' AS a) AS document",
        ),
    ],
)
def test_a_record_is_handed_on_again_where_its_document_is_another(
    spark: SparkSession, before: str, now: str
) -> None:
    more = "'insert' AS operation, 'm1' AS message_id, struct(1 AS record_number) AS arrival"
    first, later = (spark.sql(f"SELECT {more}, {columns}") for columns in (before, now))
    nothing = spark.createDataFrame([], EXPORTED_COLUMNS)
    exported = new_exports(first, nothing, 1)
    assert new_exports(first, exported, 2).count() == 0
    assert new_exports(later, exported, 2).count() == 1


def test_an_instant_has_one_id_whatever_the_zone(spark: SparkSession) -> None:
    at = {"reference": "at", "type": "timestamp"}
    mapping = {"reference": "e", "export": True, "exportIdentifier": "at", "fields": [at]}
    rows = "'upsert' AS operation, struct(TIMESTAMP '2024-01-01T09:00:00Z' AS at) AS data, 0 AS place"
    more = "current_timestamp() AS effective_timestamp, 'm1' AS message_id, 1 AS arrival"
    exported = export_rows(
        schema({"reference": "*", "mappings": {"e": [mapping]}}), "e", spark.sql(f"SELECT {rows}, {more}")
    )
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        assert [row["id"] for row in rows_of(exported.select("id"))] == ["2024-01-01 09:00:00"]
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


# Lines ---------------------------------------------------------------------------------------------------


def test_an_insert_is_two_lines_and_a_delete_one(spark: SparkSession) -> None:
    frame = spark.createDataFrame([row("insert", "a", 5, "x"), row("delete", "b", 6, None)], COLUMNS)
    meta = {"_index": "things", "version_type": "external_gte"}
    assert sorted(actions(lines_of(frame)), key=str) == [
        ({"delete": meta | {"_id": "b", "version": SINCE_YEAR_1 + 6}}, None),
        (
            {"index": meta | {"_id": "a", "version": SINCE_YEAR_1 + 5}},
            {"name": "x", "size": None, "price": None, "day": None, "at": None, "a.b": None},
        ),
    ]


def test_the_last_state_is_indexed_whatever_the_order_of_the_lines(spark: SparkSession) -> None:
    rows = [
        row("insert", "a", 1, "a1"),
        row("insert", "a", 3, "a3"),
        row("insert", "a", 2, "a2"),
        row("insert", "b", 1, "b1"),
        row("delete", "b", 2, None),
        row("delete", "c", 1, None),
        row("insert", "c", 2, "c2"),
        row("insert", "d", 9, None),
        row("delete", "e", 4, None),
    ]
    lines = lines_of(spark.createDataFrame(rows, COLUMNS))
    assert len(lines) == len(rows)
    for seed in range(50):
        random.Random(seed).shuffle(lines)
        assert names(indexed(actions(lines))) == {"a": "a3", "c": "c2", "d": None}


def test_of_two_records_at_one_instant_the_later_arrival_is_indexed(spark: SparkSession) -> None:
    rows = [
        row("insert", "a", 1, "first", offset=1),
        row("insert", "a", 1, "last", offset=2, number=2),
        row("insert", "a", 1, "middle", offset=2, number=1),
        row("delete", "b", 1, None, offset=9),
        row("insert", "b", 1, "before the delete", offset=8),
        row("delete", "c", 1, None, offset=8),
        row("insert", "c", 1, "after the delete", offset=9),
    ]
    for seed in range(3):
        random.Random(seed).shuffle(rows)
        frame = spark.createDataFrame(rows, COLUMNS).repartition(3)
        assert names(indexed(actions(lines_of(frame)))) == {"a": "last", "c": "after the delete"}


def test_without_an_id_every_insert_is_a_document_and_a_delete_is_left_out(spark: SparkSession) -> None:
    rows = [row("insert", None, 1, "x"), row("insert", None, 1, "x"), row("delete", None, 2, "x")]
    lines = lines_of(spark.createDataFrame(rows, COLUMNS))
    assert [json.loads(text.split("\n")[0]) for text in lines] == [{"index": {"_index": "things"}}] * 2
    assert sorted(names(indexed(actions(lines))).values()) == ["x", "x"]


def test_values_are_written_exactly_and_on_one_line(spark: SparkSession) -> None:
    text = 'a\n"b"\\ \u2028 é\U0001f600\x01'
    document = (text, -1, Decimal("19.20"), date(1000, 2, 28), AT + timedelta(microseconds=1), 0.1)
    frame = spark.createDataFrame([("insert", 'i"d\n', 1, (AT, "t", 0, 0, 1), document)], COLUMNS)
    (line,) = lines_of(frame)
    assert line.count("\n") == 1
    action, found = json.loads(line.split("\n")[0]), json.loads(line.split("\n")[1], parse_float=Decimal)
    assert action["index"]["_id"] == 'i"d\n'
    assert found == {
        "name": text,
        "size": -1,
        "price": Decimal("19.20"),
        "day": "1000-02-28",
        "at": "2024-01-01T09:00:00.000001Z",
        "a.b": Decimal("0.1"),
    }


def test_a_version_is_never_below_zero(spark: SparkSession) -> None:
    """Elasticsearch takes external versions from 0 to 2^63 - 1; an instant before 1970 is below."""
    year_one = -62_135_596_800_000_000
    rows = [row("insert", "a", year_one, "first"), row("insert", "a", -1, "last"), row("insert", "b", 0, "b")]
    found = actions(lines_of(spark.createDataFrame(rows, COLUMNS)))
    assert all(action["index"]["version"] >= 0 for action, _ in found)
    for order in (found, found[::-1]):
        assert names(indexed(order)) == {"a": "last", "b": "b"}


def test_of_nothing_there_are_no_lines(spark: SparkSession) -> None:
    assert lines_of(spark.createDataFrame([], COLUMNS)) == []


def test_what_is_not_exported_and_an_index_without_a_name_are_refused(spark: SparkSession) -> None:
    frame = spark.createDataFrame([], COLUMNS)
    with pytest.raises(MissingColumns, match=r"bulk_lines\(\) needs the columns version, document"):
        bulk_lines(frame.drop("version", "document"), "things")
    with pytest.raises(InvalidArgument, match=r"bulk_lines\(\) needs index to be the name of an index"):
        bulk_lines(frame, "")


LETTER: list[Row] = [NUMBER, {"reference": "title"}, {"reference": "paid", "type": "boolean"}]
DOCUMENT: Row = {
    "reference": "*",
    "mappings": {
        "letter": [
            {
                "reference": "letter",
                "export": True,
                "exportIdentifier": "number",
                "exportStandardFields": True,
                "fields": LETTER,
            }
        ],
        "line": [{"reference": "line", "export": True, "fields": [{"reference": "text"}]}],
        "kept": [{"reference": "kept", "fields": [NUMBER]}],
    },
}
MESSAGES: list[Row] = [
    {
        "guid": "m1",
        "entity": "letter",
        "timestamp": "2024-01-01T00:00:01",
        "data": [{"number": 1, "title": "a", "paid": "no"}, {"number": "x"}, {"number": 2}],
    },
    {
        "guid": "m2",
        "entity": "letter",
        "timestamp": "2024-01-01T00:00:03",
        "data": {"number": 1, "paid": None},
    },
    {
        "guid": "m3",
        "entity": "letter",
        "timestamp": "2024-01-01T00:00:02",
        "data": {"number": 1, "title": "b"},
    },
    {
        "guid": "m4",
        "entity": "letter",
        "timestamp": "2024-01-01T00:00:09",
        "data": {"number": "2", "deleted_indicator": 1},
    },
    {"guid": "m5", "entity": "line", "data": [{"text": "x"}, {"text": "x"}, {"deleted_indicator": True}]},
]


@pytest.fixture(scope="module")
def hub(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Hub:
    made = Hub(spark, schema(DOCUMENT), tmp_path_factory.mktemp("exports"))
    made.receive(records(spark, MESSAGES, received_at=AT))
    made.run(now=AT)
    return made


def test_every_record_is_an_insert_or_a_delete_with_all_fields(hub: Hub) -> None:
    found = sorted(rows_of(hub.exports("letter")), key=lambda each: (each["message_id"], each["id"]))
    plain = [(each["message_id"], each["operation"], each["id"]) for each in found]
    assert plain == [
        ("m1", "insert", "1"),
        ("m1", "insert", "2"),
        ("m2", "insert", "1"),
        ("m3", "insert", "1"),
        ("m4", "delete", "2"),
    ]
    assert [each["version"] - 1_704_067_200_000_000 for each in found] == [
        1_000_000, 1_000_000, 3_000_000, 2_000_000, 9_000_000,
    ]  # fmt: skip
    second = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(seconds=1)
    assert found[0]["document"] == {
        "number": 1,
        "title": "a",
        "paid": False,
        "valid_from_timestamp": second,
        "deleted_indicator": False,
        "source_message": "m1",
    }
    assert found[4]["document"] == {
        "number": 2,
        "title": None,
        "paid": None,
        "valid_from_timestamp": second + timedelta(seconds=8),
        "deleted_indicator": True,
        "source_message": "m4",
    }


def test_the_lines_of_a_hub_leave_its_last_word_in_the_index(hub: Hub) -> None:
    lines = lines_of(hub.exports("letter"))
    for seed in range(20):
        random.Random(seed).shuffle(lines)
        documents = indexed(actions(lines))
        assert set(documents) == {"1"}
        assert documents["1"]["source_message"] == "m2"


def test_without_an_identifier_and_standard_fields_the_document_is_the_record(hub: Hub) -> None:
    found = rows_of(hub.exports("line"))
    assert [each["id"] for each in found] == [None] * 3
    assert sorted(each["operation"] for each in found) == ["delete", "insert", "insert"]
    assert {tuple(each["document"]) for each in found} == {("text",)}


def test_a_sink_is_called_once_with_the_rows(hub: Hub) -> None:
    taken: list[DataFrame] = []

    def sink(rows: DataFrame) -> None:
        taken.append(rows)

    hub.export("letter", sink)
    (frame,) = taken
    assert frame.columns == ["operation", "id", "version", "position", "message_id", "arrival", "document"]
    assert frame.count() == 5


def test_what_is_exported_has_no_history_and_what_has_one_is_not_exported(hub: Hub) -> None:
    with pytest.raises(InvalidArgument, match=r"history\(\) needs entity to be one of kept; it is 'letter'"):
        hub.history("letter")
    with pytest.raises(InvalidArgument, match=r"changes\(\) needs entity to be one of kept; it is 'letter'"):
        hub.changes("letter")
    with pytest.raises(
        InvalidArgument, match=r"exports\(\) needs entity to be one of letter, line; .* 'kept'"
    ):
        hub.exports("kept")
    with pytest.raises(
        InvalidArgument, match=r"export\(\) needs entity to be one of letter, line; .* 'nobody'"
    ):
        hub.export("nobody", lambda rows: None)


@pytest.mark.parametrize("after", ["1", 1.0, True])
def test_what_is_no_position_is_refused(hub: Hub, after: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"exports\(\) needs after to be a position: a whole number"):
        hub.exports("letter", after=after)
    with pytest.raises(InvalidArgument, match=r"export\(\) needs after to be a position: a whole number"):
        hub.export("letter", lambda rows: None, after=after)
