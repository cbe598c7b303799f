"""The message store: documents decoded, messages told from those that were received before, records made."""

from __future__ import annotations

import json
import os
import uuid
import zlib
from datetime import UTC, datetime, timedelta, timezone
from hashlib import sha256
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import SparkSession

from cdckit import rejects
from cdckit.datahub import decode, files, records
from cdckit.datahub.messages import MESSAGE_SCHEMA, with_statuses
from cdckit.errors import InvalidArgument, MissingColumns
from cdckit.model.records import RECORD_SCHEMA
from cdckit.parts.guids import NAMESPACE
from cdckit.parts.json_text import members
from support.hub_folders import AT, Row, statuses, table
from support.hub_programs import rows_of

# One property after another ------------------------------------------------------------------------------


def values_and_texts(text: str) -> tuple[Row, dict[str, str]]:
    values, places = members(text)
    return values, {name: text[place] for name, place in places.items()}


def test_members_are_values_and_the_texts_that_they_were_written_as() -> None:
    values, texts = values_and_texts('{"a": 1.10, "b": [1.10, {"c": 1e3}], "c": "x\\u0041", "d": null}')
    assert values == {"a": 1.1, "b": [1.1, {"c": 1000.0}], "c": "xA", "d": None}
    assert texts == {"a": "1.10", "b": '[1.10, {"c": 1e3}]', "c": '"x\\u0041"', "d": "null"}


@pytest.mark.parametrize("text", ["{}", " { } ", "\r\n{\t}\n"])
def test_an_object_may_be_empty(text: str) -> None:
    assert values_and_texts(text) == ({}, {})


def test_space_between_the_signs_says_nothing() -> None:
    values, texts = values_and_texts(' {\n "a" :\t[ 1 , 2 ]\r, "b"\n:\n5 }\n ')
    assert values == {"a": [1, 2], "b": 5}
    assert texts == {"a": "[ 1 , 2 ]", "b": "5"}


def test_of_a_name_that_comes_twice_the_last_counts() -> None:
    twice = '{"a": 1.0, "b": 2, "a": 1.00}'
    assert values_and_texts(twice) == ({"a": 1.0, "b": 2}, {"a": "1.00", "b": "2"})
    assert values_and_texts('{"a": 1, "\\u0061": 2}') == ({"a": 2}, {"a": "2"})


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "{",
        "}",
        '{"a"',
        '{"a":',
        '{"a":1',
        '{"a":1,',
        '{"a":1,}',
        "{,}",
        '{"a" 1}',
        '{"a":1 "b":2}',
        "{a:1}",
        "{'a':1}",
        "{1:1}",
        '{"a":01}',
        '{"a":1.}',
        '{"a":+1}',
        '{"a":.5}',
        '{"a":NaN}',
        '{"a":[Infinity]}',
        '{"a":-Infinity}',
        '{"a":nul}',
        '{"a":"\n"}',
        '{"a":"\\x"}',
        '{"a":1};',
        '{"a":1}{"b":2}',
        '{"a":1} x',
        "[]",
        '[{"a":1}]',
        "null",
        '"{}"',
        "\ufeff{}",
        "\xa0{}",
        "\x0c{}",
        "{}\x00",
        '{"a":1,,"b":2}',
        '{"a"::1}',
        '{"a":}',
    ],
)
def test_what_is_no_object_of_json_raises(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        members(text)


# Documents -----------------------------------------------------------------------------------------------

DATA = '[ {"a":1.10,  "b":1e3, "n": 9007199254740993, "t": "x\\u0041\\ud800é"} ]'

SOUND: dict[str, tuple[str, Row]] = {
    "an entity alone": (
        '{"entity": "e"}',
        {"source_system": "*", "source_entity": "e", "refresh": False, "data": None, "options": None},
    ),
    "everything": (
        '{"system": "s", "entity": "e", "timestamp": "2024-05-06T07:08:09.123456Z", "user": "u",'
        '"refresh": true, "process": true, "options": {"a": 1.0}, "data": 5, "guid": "g"}',
        {
            "message_identifier": "g",
            "source_system": "s",
            "source_entity": "e",
            "effective_timestamp": datetime(2024, 5, 6, 7, 8, 9, 123_456, tzinfo=UTC),
            "user_name": "u",
            "refresh": True,
            "options": '{"a": 1.0}',
            "data": "5",
        },
    ),
    "nulls are absent": (
        '{"system": null, "entity": "e", "timestamp": null, "user": null, "refresh": null, "process": null,'
        '"options": null, "data": null, "guid": null}',
        {
            "source_system": "*",
            "user_name": None,
            "refresh": False,
            "options": None,
            "data": None,
        },
    ),
    "data as it was written": (f'{{"entity": "e", "data": {DATA}}}', {"data": DATA}),
    "data that is a text": ('{"entity": "e", "data": "a,b\\n1,2"}', {"data": '"a,b\\n1,2"'}),
    "data that is false": ('{"entity": "e", "data": false}', {"data": "false"}),
    "data that is empty": ('{"entity": "e", "data": []}', {"data": "[]"}),
    "data before the entity": ('{ "data" : [2.0] , "entity": "f"}', {"source_entity": "f", "data": "[2.0]"}),
    "an erased record within a text": (
        '{"entity": "e", "data": "{\\"cdckit.erased\\": 1}"}',
        {"data": '"{\\"cdckit.erased\\": 1}"'},
    ),
    "a zone": (
        '{"entity": "e", "timestamp": "2024-01-01T00:30+02:00"}',
        {"effective_timestamp": datetime(2023, 12, 31, 22, 30, tzinfo=UTC)},
    ),
    "no zone": (
        '{"entity": "e", "timestamp": "2024-07-01 12:00"}',
        {"effective_timestamp": datetime(2024, 7, 1, 12, tzinfo=UTC)},
    ),
    "a day": (
        '{"entity": "e", "timestamp": "2024-07-01"}',
        {"effective_timestamp": datetime(2024, 7, 1, tzinfo=UTC)},
    ),
    "the first instant": (
        '{"entity": "e", "timestamp": "0001-01-01T00:00:00"}',
        {"effective_timestamp": datetime(1, 1, 1, tzinfo=UTC)},
    ),
    "the last instant": (
        '{"entity": "e", "timestamp": "9999-12-31T23:59:59.999999"}',
        {"effective_timestamp": datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)},
    ),
    "letters of all kinds": (
        '{"entity": "é\U0001f600\\n", "system": " "}',
        {"source_entity": "é\U0001f600\n", "source_system": " "},
    ),
    "a number of thousands of digits": (
        '{"entity": "e", "data": [' + "1" * 5000 + "]}",
        {"data": "[" + "1" * 5000 + "]"},
    ),
    "a number beyond all exponents": (
        '{"entity": "e", "data": 1e99999999999999999999}',
        {"data": "1e99999999999999999999"},
    ),
}

INVALID: dict[str, tuple[bytes | None, str]] = {
    "no value": (None, "the record has no value"),
    "nothing": (b"", "it is empty"),
    "nothing but space": (b" \n", "it is empty"),
    "an array": (b'[{"entity": "e"}]', "it is no JSON object"),
    "a byte order mark": (b'\xef\xbb\xbf{"entity": "e"}', "a byte order mark"),
    "cut off": (b'{"entity": "e"', "} is missing at character 14"),
    "two objects": (b'{"entity": "e"} {"entity": "e"}', "there is more after the object, at character 16"),
    "no UTF-8": (b'{"entity": "caf\xe9"}', "utf-8"),
    "UTF-16": ('{"entity": "e"}'.encode("utf-16"), "utf-8"),
    "a surrogate in bytes": (b'{"entity": "\xed\xa0\x80"}', "utf-8"),
    "nested without end": (b'{"entity": "e", "data": ' + b"[" * 100_000, ""),
    "NaN in the data": (b'{"entity": "e", "data": [NaN]}', "NaN is no number of JSON"),
    "no entity": (b'{"system": "s"}', "entity is missing"),
    "a property misspelt": (
        b'{"entity": "e", "tiemstamp": "2024-01-01"}',
        "'tiemstamp' is no property of a message; did you mean timestamp?",
    ),
    "a property in capitals": (
        b'{"entity": "e", "Data": []}',
        "'Data' is no property of a message; did you mean data?",
    ),
    "a property of the sender's own": (
        b'{"entity": "e", "status": [10]}',
        "'status' is no property of a message; they are system, entity, user, guid, refresh, process, ",
    ),
    # What was erased of the one that is read would still stand in the other.
    "data twice": (b'{"entity": "e", "data": [{"a": 1}], "data": []}', "the name 'data' comes twice"),
    "data twice, once in escapes": (b'{"entity": "e", "data": 1, "d\\u0061ta": 2}', "comes twice"),
    "an erased record of the sender's own": (
        b'{"entity": "e", "data": [{"a": 1}, {"cdckit.erased": 5}]}',
        "'cdckit.erased' stands in the place of what was erased",
    ),
    "the same in a list, in escapes": (
        b'{"entity": "e", "data": {"x": [{"cdckit\\u002Eer\\u0061sed" : 0}]}}',
        "'cdckit.erased' stands in the place of what was erased",
    ),
    "half a character in a name": (b'{"entity": "e", "\\ud800": 1}', "is no property of a message"),
    "an entity that is null": (b'{"entity": null}', "entity is missing"),
    "an empty entity": (b'{"entity": ""}', "entity must be a text that is not empty"),
    "an entity that is a number": (b'{"entity": 5}', "entity must be a text that is not empty"),
    "half a character": (b'{"entity": "\\ud800"}', "surrogates not allowed"),
    "half a character in the guid": (b'{"entity": "e", "guid": "\\udfff"}', "surrogates not allowed"),
    "an empty system": (b'{"entity": "e", "system": ""}', "system must be a text that is not empty"),
    "a user that is a list": (b'{"entity": "e", "user": []}', "user must be a text that is not empty"),
    "an empty guid": (b'{"entity": "e", "guid": ""}', "guid must be a text that is not empty"),
    "a guid that is a number": (b'{"entity": "e", "guid": 1}', "guid must be a text that is not empty"),
    "refresh that is a text": (b'{"entity": "e", "refresh": "true"}', "refresh must be true or false"),
    "refresh that is a number": (b'{"entity": "e", "refresh": 1}', "refresh must be true or false"),
    "process that is a number": (b'{"entity": "e", "process": 0}', "process must be true or false"),
    "options that have a name twice": (
        b'{"entity": "e", "options": {"a": {"b": 1, "b": 2}}}',
        "the name 'b' comes twice",
    ),
    "options that are a list": (b'{"entity": "e", "options": []}', "options must be an object"),
    "a timestamp that is no text": (
        b'{"entity": "e", "timestamp": 1704067200}',
        "timestamp must be an instant",
    ),
    "an empty timestamp": (b'{"entity": "e", "timestamp": ""}', "timestamp must be an instant"),
    "a day that is none": (b'{"entity": "e", "timestamp": "2023-02-29"}', "timestamp must be an instant"),
    "before all time": (
        b'{"entity": "e", "timestamp": "0001-01-01T00:00+01:00"}',
        "timestamp must be an instant",
    ),
}


@pytest.fixture(scope="module")
def decoded(spark: SparkSession) -> dict[str, Row]:
    """All documents, decoded in one job; by name."""
    values = [text.encode() for text, _ in SOUND.values()] + [value for value, _ in INVALID.values()]
    rows = sorted(rows_of(decode(table(spark, values))), key=lambda row: row["offset"])
    return dict(zip([*SOUND, *INVALID], rows, strict=True))


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_document_fills_the_columns_of_its_message(decoded: dict[str, Row], name: str) -> None:
    row, (_, expected) = decoded[name], SOUND[name]
    assert (row["error_code"], row["error_description"], row["value"]) == (None, None, None)
    assert {column: row[column] for column in expected} == expected


@pytest.mark.parametrize("name", INVALID)
def test_an_invalid_document_keeps_its_bytes_and_fills_no_column(decoded: dict[str, Row], name: str) -> None:
    row, (value, text) = decoded[name], INVALID[name]
    assert row["error_code"] == "MESSAGE_INVALID"
    assert row["error_description"].startswith("The record holds no message: ")
    assert text in row["error_description"]
    assert row["value"] == value
    empty = ("message_identifier", "source_system", "source_entity", "effective_timestamp", "data", "refresh")
    assert [row[column] for column in empty] == [None] * len(empty)


def test_every_row_says_where_it_came_from(decoded: dict[str, Row]) -> None:
    for offset, row in enumerate(decoded.values()):
        assert (row["key"], row["topic"], row["partition"], row["offset"]) == (b"k", "t", 3, offset)
        assert row["message_timestamp"] == AT + timedelta(seconds=offset)


def test_without_a_timestamp_a_message_takes_effect_when_it_was_stored(decoded: dict[str, Row]) -> None:
    for name in ("an entity alone", "nulls are absent"):
        assert decoded[name]["effective_timestamp"] == decoded[name]["message_timestamp"]


def test_without_a_guid_a_message_is_named_by_its_place_time_and_bytes(decoded: dict[str, Row]) -> None:
    digest = sha256(SOUND["an entity alone"][0].encode()).hexdigest()
    name = (
        '{"entity":"message","key":{"topic":"t","partition":3,"offset":0,'
        f'"timestamp":"2024-01-01T09:30:15.123456Z","sha256":"{digest}"}}}}'
    )
    assert decoded["an entity alone"]["message_identifier"] == str(uuid.uuid5(NAMESPACE, name))
    assert decoded["a zone"]["message_identifier"] != decoded["no zone"]["message_identifier"]


def test_the_columns_are_those_of_a_record_and_of_its_message(spark: SparkSession) -> None:
    columns = decode(table(spark, [])).columns
    own = [name for name in MESSAGE_SCHEMA.names if name not in RECORD_SCHEMA.names]
    assert columns == [*RECORD_SCHEMA.names, *own, "envelope", "error_code", "error_description"]
    assert decode(table(spark, [])).collect() == []


def test_envelope_and_data_are_the_value_as_it_came(decoded: dict[str, Row]) -> None:
    """To the byte: whoever is told of an error in a message can feed it again."""
    for name, (text, _) in SOUND.items():
        before, after = decoded[name]["envelope"].values()
        assert before + (decoded[name]["data"] or "") + after == text
    assert decoded["data before the entity"]["envelope"] == {
        "before": '{ "data" : ',
        "after": ' , "entity": "f"}',
    }


def test_rejects_of_decode_are_the_records_as_they_came(spark: SparkSession) -> None:
    """Headers have values that are null, empty, or no text, and one name twice."""
    headers = [("trace", b"\xff\x00"), ("trace", b""), ("empty", None), ('"\u00e9', b"1")]
    rows = [
        (b"\xff", b"{", "t", 0, 1, AT, 1, headers),
        (None, None, "t", 0, 2, AT, 0, []),
        (b"", b'{"entity": "e"}', "t", 0, 3, AT, 0, headers),
        (b"", b"[]", "t", 0, 4, AT, 0, None),
    ]
    came = spark.createDataFrame(rows, RECORD_SCHEMA)
    found = rejects(decode(came)).drop("error_code", "error_description")
    assert sorted(map(repr, rows_of(found))) == sorted(map(repr, rows_of(came.where("offset != 3"))))
    assert rows_of(decode(came).where("offset = 3").select("headers")) == [
        {"headers": [{"key": name, "value": value} for name, value in headers]}
    ]


def test_what_is_no_table_of_records_is_refused_at_the_call(spark: SparkSession) -> None:
    with pytest.raises(MissingColumns, match=r"decode\(\) needs the columns value"):
        decode(table(spark, []).drop("value"))


# Received before -----------------------------------------------------------------------------------------


def message(guid: str, second: int, *, topic: str = "t", partition: int = 0, offset: int = 0) -> Row:
    at = AT + timedelta(seconds=second)
    place = {"topic": topic, "partition": partition, "offset": offset, "message_timestamp": at}
    return {"message_identifier": guid, "source_entity": "e", "data": f"[{second}]", **place}


def test_the_second_with_an_identifier_is_received_before_in_the_order_of_arrival(
    spark: SparkSession,
) -> None:
    """By time, topic, partition, offset; how the rows lie in the table does not matter."""
    messages = [
        message("a", 2, offset=1),
        message("a", 1, offset=9),
        message("b", 1, topic="u"),
        message("b", 1, topic="t", partition=8),
        message("c", 1, partition=2, offset=2),
        message("c", 1, partition=1, offset=3),
        message("d", 1, offset=5),
        message("d", 1, offset=4),
        message("D", 1, offset=6),
    ]
    found = statuses(spark, messages)
    assert [row["status"] for row in found] == [5, 0, 5, 0, 5, 0, 5, 0, 0]
    assert [row["data"] for row in found] == [None, "[1]", None, "[1]", None, "[1]", None, "[1]", "[1]"]


def test_what_is_in_the_store_is_received_before_however_early_it_comes_again(spark: SparkSession) -> None:
    messages = [message("a", -1000), message("b", 1, offset=1), message("b", 2, offset=2)]
    found = statuses(spark, messages, ["a", "a", "c"])
    assert [row["status"] for row in found] == [5, 0, 5]
    assert statuses(spark, messages[:2], [])[0]["status"] == 0


def test_invalid_messages_have_no_identifier_and_are_not_each_others_second(spark: SparkSession) -> None:
    found = rows_of(with_statuses(decode(table(spark, [b"{", b"{", b'{"entity": "e", "guid": "a"}']))))
    assert sorted(row["status"] for row in found) == [0, 22, 22]
    assert [row["value"] for row in found if row["status"] == 22] == [b"{", b"{"]


# Records -------------------------------------------------------------------------------------------------


def test_documents_stand_in_their_order_with_offsets_that_rise_from_call_to_call(spark: SparkSession) -> None:
    documents = [{"entity": "e", "data": [number, "é"]} for number in range(3)]
    first = sorted(rows_of(records(spark, documents, received_at=AT)), key=lambda row: row["offset"])
    assert [json.loads(row["value"]) for row in first] == documents
    assert {row["timestamp"] for row in first} == {AT}
    assert {(row["key"], row["topic"], row["partition"]) for row in first} == {(None, "web", 0)}
    later = rows_of(records(spark, iter(documents), received_at=AT + timedelta(seconds=1)))
    assert min(row["offset"] for row in later) > max(row["offset"] for row in first)
    assert records(spark, [], received_at=AT).schema == records(spark, documents, received_at=AT).schema
    assert records(spark, [], received_at=AT).columns == RECORD_SCHEMA.names
    assert records(spark, [], received_at=AT).count() == 0


def test_an_instant_is_the_same_in_any_zone(spark: SparkSession) -> None:
    there = AT.astimezone(timezone(timedelta(hours=5)))
    (row,) = rows_of(records(spark, [{}], received_at=there))
    assert row["timestamp"] == AT


def test_an_instant_without_its_zone_is_refused(spark: SparkSession) -> None:
    for documents in ([], [{"entity": "e"}]):
        with pytest.raises(InvalidArgument, match=r"records\(\) needs received_at to be an aware datetime"):
            records(spark, documents, received_at=datetime(2024, 1, 1))


@pytest.mark.parametrize("documents", [{"entity": "e"}, '{"entity": "e"}', b"{}"])
def test_a_single_document_is_refused(spark: SparkSession, documents: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"records\(\) needs documents to be a list of documents"):
        records(spark, documents, received_at=AT)


@pytest.mark.parametrize("documents", [None, 5, {"a", "b"}, pd.DataFrame({"entity": ["e"]})])
def test_what_has_no_order_or_is_no_list_is_refused(spark: SparkSession, documents: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"records\(\) needs documents to be a list of documents"):
        records(spark, documents, received_at=AT)


@pytest.mark.parametrize(
    ("document", "needed"),
    [
        (5, r"documents\[1\] to be a dictionary, or JSON text or bytes; it is 5"),
        (
            {"entity": "e", "timestamp": AT},
            r"documents\[1\] to be of values that JSON knows, instants as texts",
        ),
        ("\ud800", r"documents\[1\] to be of values that JSON knows"),
    ],
)
def test_what_is_no_document_is_named_by_its_place(spark: SparkSession, document: Any, needed: str) -> None:
    with pytest.raises(InvalidArgument, match=rf"records\(\) needs {needed}"):
        records(spark, [{"entity": "e"}, document], received_at=AT)


def test_the_files_of_a_folder_are_records_by_the_time_of_their_last_change(
    spark: SparkSession, tmp_path: Path
) -> None:
    names = ["b é 1%20.json", "a.json", "c.txt", "b.json"]
    for second, name in enumerate(names):
        (tmp_path / name).write_bytes(name.encode())
        os.utime(tmp_path / name, (1_700_000_000 + second, 1_700_000_000 + second))
    found = sorted(rows_of(files(spark, tmp_path)), key=lambda row: row["offset"])
    in_order = ["b é 1%20.json", "a.json", "b.json"]
    assert [row["value"].decode() for row in found] == in_order
    assert [row["offset"] - 1_700_000_000_000_000 for row in found] == [0, 1_000_000, 3_000_000]
    assert [row["timestamp"].timestamp() for row in found] == [1_700_000_000, 1_700_000_001, 1_700_000_003]
    assert [row["key"].decode() for row in found] == in_order
    checksums = [zlib.crc32(name.encode()) % 2**31 for name in in_order]
    assert [row["partition"] for row in found] == checksums
    assert [row["topic"] for row in found] == [f"files/{name}" for name in in_order]
    assert files(spark, tmp_path).columns == RECORD_SCHEMA.names


def test_files_of_one_name_and_time_in_two_folders_are_two_messages(
    spark: SparkSession, tmp_path: Path
) -> None:
    for name, entity in (("a", "product"), ("b", "price"), ("archive", "product")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "of.json").write_text(json.dumps({"entity": entity}))
        os.utime(tmp_path / name / "of.json", (1_700_000_000, 1_700_000_000))
    a, b, archive = (decode(files(spark, tmp_path / name)).first() for name in ("a", "b", "archive"))
    assert a.message_identifier == archive.message_identifier != b.message_identifier


def test_messages_of_a_topic_that_was_made_anew_are_others(spark: SparkSession) -> None:
    """It counts its offsets from 0 again; the same record read again is the same message."""
    first = (None, b'{"entity": "e", "data": []}', "t", 0, 0, AT, 0, None)
    later = [(*first[:1], b'{"entity": "e"}', *first[2:]), (*first[:5], AT + timedelta(seconds=1), 0, None)]
    came = decode(spark.createDataFrame([first, first, *later], RECORD_SCHEMA))
    assert sorted(row["status"] for row in rows_of(with_statuses(came))) == [0, 0, 0, 5]


def test_the_names_of_files_are_chosen_by_a_pattern(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.json").write_text("1")
    (tmp_path / "a.txt").write_text("2")
    assert [row["value"] for row in rows_of(files(spark, str(tmp_path), "*.txt"))] == [b"2"]
    assert rows_of(files(spark, tmp_path, "*.csv")) == []
    (tmp_path / "_late.txt").write_bytes(b"3")
    assert len(rows_of(files(spark, tmp_path, "*.txt"))) == 1
    assert "passes over _late.txt" in caplog.text
