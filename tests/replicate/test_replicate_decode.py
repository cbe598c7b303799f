"""`decode`: what an envelope holds, or why it holds nothing."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit import replicate
from cdckit.errors import MissingColumns, WrongColumnType
from cdckit.replicate.envelopes import open_envelopes
from support.replicate_messages import (
    METADATA_SCHEMA,
    NOON,
    by_offset,
    envelope,
    joined,
    json_envelope,
    numbered,
    read_cases,
    to_dataframe,
)
from tools.tiers import examples

CASES = read_cases("envelope")["cases"]
ENVELOPE = ("form", "type", "envelope_headers", "schema_id", "message_schema", "message")
ID = "0123456789abcdef0123456789abcdef"


def value_of(case: dict[str, Any]) -> bytes | None:
    if "text" in case:
        return str(case["text"]).encode()
    return None if case["value"] is None else joined(case["value"])


@pytest.fixture(scope="module")
def decoded(spark: SparkSession) -> dict[int, dict[str, Any]]:
    """The rows of all cases, by the place of the case."""
    return by_offset(replicate.decode(to_dataframe(spark, numbered(map(value_of, CASES)))))


@pytest.mark.parametrize("place", range(len(CASES)), ids=[case["name"] for case in CASES])
def test_case(decoded: dict[int, dict[str, Any]], place: int) -> None:
    case, row = CASES[place], decoded[place]
    if "error" in case:
        code, finding = case["error"]
        assert row["error_code"] == code
        assert finding in row["error_description"]
        return
    assert (row["error_code"], row["error_description"]) == (None, None)
    said = case["envelope"]
    is_json = said["form"] == "json"
    message = json.loads(row["message"]) if is_json else bytes(row["message"]).hex()
    assert {
        "form": row["form"],
        "type": row["type"],
        "headers": row["envelope_headers"],
        "schema_id": row["schema_id"],
        "message_schema": row["message_schema"],
        "message": message,
    } == said


def test_the_record_stays_as_it_came_whether_it_can_be_read_or_not(
    decoded: dict[int, dict[str, Any]],
) -> None:
    for record in numbered(map(value_of, CASES)):
        row = decoded[record["offset"]]
        # Spark shows instants as naive datetimes, in the zone of the process, which is UTC.
        record["timestamp"] = record["timestamp"].replace(tzinfo=None)
        assert {name: row[name] for name in record} == record


def test_an_envelope_that_cannot_be_read_has_nothing_in_its_columns(
    decoded: dict[int, dict[str, Any]],
) -> None:
    unread = {"NO_VALUE", "WRONG_MAGIC", "ENVELOPE_UNREADABLE"}
    rows = [row for row in decoded.values() if row["error_code"] in unread]
    assert rows
    assert {row[name] for row in rows for name in ENVELOPE} == {None}


def test_of_an_envelope_that_reads_back_and_breaks_a_rule_the_parts_are_shown(
    decoded: dict[int, dict[str, Any]],
) -> None:
    both = next(row for row in decoded.values() if row["error_code"] == "BOTH_SCHEMA_FIELDS")
    assert [both[name] for name in ENVELOPE] == ["avro", "DT", None, ID, '"long"', b"T"]


def test_a_fraction_in_json_form_keeps_all_its_digits(spark: SparkSession) -> None:
    """As a floating point number 0.1000000000000000055 would be 0.1."""
    message = b'{"data":{"a":0.1000000000000000055,"b":12.50}}'
    value = b'{"magic":"atMSG","type":"DT","message":%b}' % message
    row = by_offset(replicate.decode(to_dataframe(spark, numbered([value]))))[0]
    assert row["message"] == message


UNREADABLE = {
    "a column twice": (b'{"data": {"id": 1, "name": "a", "id": 2}}', b"null", "the name 'id' comes twice"),
    "a column twice in the row before": (
        b'{"beforeData": {"id": 1, "id": 1}}',
        b"null",
        "the name 'id' comes",
    ),
    "a header twice": (b'{"headers": {"timestamp": 1, "timestamp": 2}}', b"null", "'timestamp' comes twice"),
    "NaN": (b'{"data": {"id": NaN}}', b"null", "NaN is no number of JSON"),
    "minus infinity": (b'{"data": {"id": -Infinity}}', b"null", "-Infinity is no number of JSON"),
    "an id that is a fraction of 32 letters": (b"{}", b"0." + b"1" * 30, "messageSchemaId is not text"),
    "an id that is a number": (b"{}", b"1" * 32, "messageSchemaId is not text"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_json_form_leaves_to_the_reader_is_a_fault(name: str) -> None:
    """Python's own reader takes the last of two values, NaN, and a number as the text that it is."""
    message, schema_id, finding = UNREADABLE[name]
    value = b'{"magic":"atMSG","type":"DT","messageSchemaId":%b,"message":%b}' % (schema_id, message)
    opened = open_envelopes(pa.array([value], pa.binary()))
    fault, description = opened.findings[0]
    assert (fault.value, finding in description) == ("ENVELOPE_UNREADABLE", True)
    assert opened.message.to_pylist() == [None]


# --- what no case as data can say ---------------------------------------------------------------------------


def test_each_kind_of_message_can_be_skipped_and_what_is_neither_stays(spark: SparkSession) -> None:
    values = [
        envelope("MD", b"x", schema=json.dumps(METADATA_SCHEMA)),
        envelope("DT", b"x", schema_id=ID),
        json_envelope("MD", {}),
        json_envelope("DT", {}),
        envelope("HB", b"x", schema_id=ID),
        b"?",
        None,
        envelope("MD", b"x", schema_id=ID),
    ]
    records = to_dataframe(spark, numbered(values))
    kept = {
        options: sorted(by_offset(replicate.decode(records, skip_metadata=options[0], skip_data=options[1])))
        for options in ((True, False), (False, True), (True, True))
    }
    assert kept[True, False] == [1, 3, 4, 5, 6]
    assert kept[False, True] == [0, 2, 4, 5, 6, 7]
    assert kept[True, True] == [4, 5, 6]


def test_no_records_give_no_rows(spark: SparkSession) -> None:
    assert by_offset(replicate.decode(to_dataframe(spark, []))) == {}


def test_json_that_is_nested_too_deeply_or_holds_a_monstrous_number_is_a_reject(spark: SparkSession) -> None:
    values = [
        b'{"magic":"atMSG","type":"DT","message":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001,
        b'{"magic":"atMSG","type":"DT","message":{"a":' + b"9" * 100_000 + b"}}",
        b'{"magic":"atMSG","type":"DT","message":{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}}",
    ]
    rows = by_offset(replicate.decode(to_dataframe(spark, numbered(values))))
    assert {row["error_code"] for row in rows.values()} == {"ENVELOPE_UNREADABLE"}
    assert max(len(row["error_description"]) for row in rows.values()) < 400


def test_partitions_and_order_change_no_row(spark: SparkSession, decoded: dict[int, dict[str, Any]]) -> None:
    records = numbered(map(value_of, CASES))
    shuffled = to_dataframe(spark, records[::-1], partitions=3)
    assert by_offset(replicate.decode(shuffled)) == decoded


@pytest.mark.drawn
@settings(**examples(200, soak=5_000), database=None)
@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "kind": st.sampled_from(["MD", "DT", "X", ""]),
                "message": st.binary(max_size=200),
                "schema_id": st.none() | st.just(ID) | st.text(max_size=40),
                "schema": st.none() | st.text(max_size=40),
                "headers": st.none() | st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=3),
            }
        ),
        max_size=12,
    )
)
def test_what_was_put_into_envelopes_is_what_is_found_in_them(said: list[dict[str, Any]]) -> None:
    opened = open_envelopes(pa.array([envelope(**each) for each in said], pa.binary()))
    assert opened.type.to_pylist() == [each["kind"] for each in said]
    assert opened.message.to_pylist() == [each["message"] for each in said]
    assert opened.schema_id.to_pylist() == [each["schema_id"] for each in said]
    assert opened.message_schema.to_pylist() == [each["schema"] for each in said]
    found = [None if headers is None else dict(headers) for headers in opened.envelope_headers.to_pylist()]
    assert found == [each["headers"] for each in said]
    for place, each in enumerate(said):
        by_id = each["schema_id"] is not None and len(each["schema_id"].encode()) == 32
        is_data = each["kind"] == "DT" and by_id and each["schema"] is None
        is_metadata = each["kind"] == "MD" and each["schema"] is not None and each["schema_id"] is None
        assert (place in opened.findings) == (not is_data and not is_metadata)


# --- callers ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def records(spark: SparkSession) -> DataFrame:
    return to_dataframe(spark, numbered([b"?"]))


def test_records_without_their_columns_are_refused_at_the_call(records: DataFrame) -> None:
    with pytest.raises(
        MissingColumns, match=r"decode\(\) needs the columns partition, offset; the DataFrame"
    ):
        replicate.decode(records.drop("offset", "partition"))


def test_records_with_a_column_of_another_type_are_refused_at_the_call(records: DataFrame) -> None:
    text = records.withColumn("value", F.col("value").cast("string"))
    with pytest.raises(WrongColumnType, match=r"decode\(\) needs the column value as binary; it is string"):
        replicate.decode(text)
    without_values = records.withColumn("headers", F.lit(None).cast("array<struct<key:string>>"))
    with pytest.raises(WrongColumnType, match=r"headers as array<struct<key:string,value:binary>>; it is"):
        replicate.decode(without_values)


def test_more_columns_are_no_error_and_are_left_out(records: DataFrame) -> None:
    more = records.withColumn("mine", F.lit(1))
    row = replicate.decode(more).first()
    assert row is not None
    assert "mine" not in row
    assert row["timestamp"] == NOON.replace(tzinfo=None)
