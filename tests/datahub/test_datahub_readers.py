"""Readers and filters: JSON, CSV, files that stay in their folder, and those of one's own."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid5

import pyarrow as pa
import pytest
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import SparkSession

from cdckit import as_of, merge
from cdckit.datahub import (
    Context,
    Filter,
    Hub,
    InvalidSchema,
    Reader,
    UnreadableData,
    changes,
    decode,
    records,
    schema,
)
from cdckit.datahub.columns import known_guids
from cdckit.datahub.mappings import Place
from cdckit.datahub.message_statements import read_statements as stated_by
from cdckit.datahub.messages import MESSAGE_SCHEMA
from cdckit.datahub.readers import READERS, Message, ReaderSettings, RecordWalk
from cdckit.datahub.statements import MESSAGE_COLUMNS
from cdckit.parts.arrow_types import arrow_schema
from cdckit.parts.guids import NAMESPACE
from support.hub_programs import rows_of

# Spark's workers cannot import a module of the tests: what they are to run travels by value.
register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]

Row = dict[str, Any]
AT = datetime(2024, 1, 1, 9, tzinfo=UTC)


def context(files: Path | None = None, **config: Any) -> Context:
    return Context("m1", "*", "product", config, {}, None if files is None else str(files))


def read_json(data: str | None) -> list[Any]:
    return list(READERS["json"](data, context()))


def read_csv(text: Any, **config: Any) -> list[Any]:
    return list(READERS["csv"](json.dumps(text), context(**config)))


def read_file(name: Any, folder: Path | None, **config: Any) -> list[Any]:
    return list(READERS["file"](json.dumps(name), context(folder, **config)))


# JSON ----------------------------------------------------------------------------------------------------


def test_json_is_an_array_of_records_or_one() -> None:
    assert read_json('[{"a": 1}, {"b": null}]') == [{"a": 1}, {"b": None}]
    assert read_json(' {"a": 1} ') == [{"a": 1}]
    assert read_json("[]") == []


def test_elements_that_are_no_objects_are_handed_on_to_be_errors_of_their_own() -> None:
    assert read_json('[1, "a", null, [{}], {}]') == [1, "a", None, [{}], {}]


def test_numbers_are_exact() -> None:
    (record,) = read_json('{"a": 1.10, "b": 1e3, "c": 9007199254740993, "d": 0.1000000000000000000001}')
    assert record == {
        "a": Decimal("1.10"),
        "b": Decimal("1E+3"),
        "c": 9007199254740993,
        "d": Decimal("0.1000000000000000000001"),
    }
    assert str(record["a"]) == "1.10"


@pytest.mark.parametrize("data", [None, '"a"', "5", "true", "null"])
def test_json_that_holds_no_records_is_unreadable(data: str | None) -> None:
    with pytest.raises(UnreadableData, match="the data must be an array of objects, or an object"):
        read_json(data)


@pytest.mark.parametrize("data", ["", "[", "[{]", "[NaN]", "[-Infinity]", "[1] [2]", "[" * 100_000])
def test_what_is_no_json_raises_a_value_error(data: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_json(data)


def test_a_number_beyond_all_exponents_does_not_make_the_other_records_unreadable() -> None:
    """It is a number of JSON; that no type holds it is an error of its own record."""
    found = read_json('[{"a": 1e99999999999999999999}, {"a": 1}]')
    assert found[1] == {"a": 1}


def test_an_integer_of_thousands_of_digits_does_not_make_the_other_records_unreadable() -> None:
    found = read_json(f'[{{"a": {"1" * 5000}}}, {{"a": 1}}]')
    assert found[1] == {"a": 1}


# CSV -----------------------------------------------------------------------------------------------------


def test_csv_has_a_line_of_names_and_texts_in_every_other() -> None:
    text = 'id,name\r\n1,kettle\r\n2,"a, ""b"""\r\n3,"two\r\nlines"\r\n'
    assert read_csv(text) == [
        {"id": "1", "name": "kettle"},
        {"id": "2", "name": 'a, "b"'},
        {"id": "3", "name": "two\r\nlines"},
    ]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_may_end_in_any_way_and_the_last_need_not(end: str) -> None:
    assert read_csv(f"id{end}1{end}2") == [{"id": "1"}, {"id": "2"}]


def test_a_text_of_the_callers_choice_means_that_a_field_was_not_sent() -> None:
    """Which is something else than null: what was not sent keeps its value."""
    text = "id,name,price\n1,,5\n2,NULL,\n"
    assert read_csv(text) == [
        {"id": "1", "name": None, "price": "5"},
        {"id": "2", "name": "NULL", "price": None},
    ]
    assert read_csv(text, unsent="") == [{"id": "1", "price": "5"}, {"id": "2", "name": "NULL"}]
    assert read_csv(text, unsent="", null="NULL") == [{"id": "1", "price": "5"}, {"id": "2", "name": None}]


def test_lines_without_anything_are_no_records() -> None:
    assert read_csv("\nid,name\n\n1,a\n\n\n2,b\n") == [{"id": "1", "name": "a"}, {"id": "2", "name": "b"}]
    assert read_csv("id,name\n") == []


def test_an_empty_text_is_null_and_spaces_are_kept() -> None:
    assert read_csv('id,name,size\n1,,""\n2, a ,\n') == [
        {"id": "1", "name": None, "size": None},
        {"id": "2", "name": " a ", "size": None},
    ]


def test_the_text_for_null_is_configured() -> None:
    assert read_csv("id,name\n1,\n2,NULL\n3,null\n", null="NULL") == [
        {"id": "1", "name": ""},
        {"id": "2", "name": None},
        {"id": "3", "name": "null"},
    ]


def test_delimiter_and_quote_are_configured() -> None:
    assert read_csv("id\tname\n1\t'a\tb'\n2\t\"c\"\n", delimiter="\t", quote="'") == [
        {"id": "1", "name": "a\tb"},
        {"id": "2", "name": '"c"'},
    ]


def test_columns_are_named_by_the_config_without_a_line_of_names() -> None:
    assert read_csv("1,a\n2,b\n", header=False, columns=["id", "name"]) == [
        {"id": "1", "name": "a"},
        {"id": "2", "name": "b"},
    ]
    assert read_csv("", header=False, columns=["id"]) == []


def test_columns_of_the_config_stand_for_those_of_the_line_of_names() -> None:
    assert read_csv("Nr.,Name\n1,a\n", columns=["id", "name"]) == [{"id": "1", "name": "a"}]
    assert read_csv("Nr.\n1,a\n", columns=["id", "name"]) == [{"id": "1", "name": "a"}]


@pytest.mark.parametrize(
    ("text", "config"),
    [
        ("", {}),
        ("\n\n", {}),
        ("1,a\n", {"header": False}),
        ("1,a\n", {"header": False, "columns": []}),
        ("id,id\n1,2\n", {}),
        ("a,b\n1,2\n", {"columns": ["id", "id"]}),
    ],
)
def test_csv_without_distinct_names_is_unreadable(text: str, config: Row) -> None:
    with pytest.raises(UnreadableData, match=r"the line of names is missing|need distinct names"):
        read_csv(text, **config)


@pytest.mark.parametrize("data", [None, 5, ["id,name"], {"id": 1}])
def test_csv_that_is_no_text_is_unreadable(data: Any) -> None:
    with pytest.raises(UnreadableData, match="the data must be a text of comma-separated values"):
        read_csv(data)
    with pytest.raises(UnreadableData, match="must be a text"):
        READERS["csv"](None, context())


def test_a_line_of_another_length_is_one_bad_record() -> None:
    assert read_csv("id,name\n1,a\n2\n3,c,d\n4,d\n") == [
        {"id": "1", "name": "a"},
        ["2"],
        ["3", "c", "d"],
        {"id": "4", "name": "d"},
    ]


@pytest.mark.parametrize("text", ['id\n"1', 'id\n"1"2\n'])
def test_quotes_that_do_not_match_make_the_text_unreadable(text: str) -> None:
    with pytest.raises(Exception, match=r"unexpected end of data|expected after"):
        read_csv(text)


def test_a_text_may_be_as_long_as_it_likes() -> None:
    """The text of a field has no greatest length in RFC 4180; Python's own reader stops at 131072."""
    long = "x" * 200_000
    assert read_csv(f"id,name\n1,{long}\n") == [{"id": "1", "name": long}]


# Files ---------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of files, beside one that is nobody's business."""
    inside = tmp_path / "files"
    (inside / "sub").mkdir(parents=True)
    (inside / "a.json").write_text('[{"id": 1.10}]', encoding="utf-8")
    (inside / "sub" / "b.json").write_text('{"id": "é"}', encoding="utf-8")
    (tmp_path / "secret.json").write_text('{"id": "secret"}')
    (tmp_path / "files2").mkdir()
    (tmp_path / "files2" / "c.json").write_text('{"id": "secret"}')
    return inside


def test_a_file_is_read_as_json(folder: Path) -> None:
    (record,) = read_file("a.json", folder)
    assert str(record["id"]) == "1.10"
    assert read_file("sub/b.json", folder) == [{"id": "é"}]
    assert read_file("sub/../a.json", folder) == read_file("./a.json", folder) == [{"id": Decimal("1.10")}]


def test_a_file_is_read_as_csv_with_the_config_of_that(folder: Path) -> None:
    (folder / "a.csv").write_text("id;name\n1;-\n", encoding="utf-8")
    assert read_file("a.csv", folder, format="csv", delimiter=";", null="-") == [{"id": "1", "name": None}]


def test_a_file_may_begin_with_a_mark_of_its_byte_order(folder: Path) -> None:
    (folder / "bom.csv").write_bytes(b"\xef\xbb\xbfid\r\n1\r\n")
    (folder / "bom.json").write_bytes(b'\xef\xbb\xbf{"id": 1}')
    assert read_file("bom.csv", folder, format="csv") == [{"id": "1"}]
    assert read_file("bom.json", folder) == [{"id": 1}]


def test_the_lines_of_a_file_end_as_they_were_written(folder: Path) -> None:
    """A line end inside of quotes is data."""
    (folder / "lines.csv").write_bytes(b'id,name\r\n1,"a\r\nb"\r\n')
    assert read_file("lines.csv", folder, format="csv") == [{"id": "1", "name": "a\r\nb"}]


def test_a_file_is_in_the_encoding_that_the_config_says(folder: Path) -> None:
    (folder / "latin.csv").write_bytes("id\né\n".encode("latin-1"))
    assert read_file("latin.csv", folder, format="csv", encoding="latin-1") == [{"id": "é"}]
    with pytest.raises(UnicodeDecodeError):
        read_file("latin.csv", folder, format="csv")


@pytest.mark.parametrize(
    "name",
    [
        "missing.json",
        "",
        ".",
        "sub",
        "../secret.json",
        "sub/../../secret.json",
        "../files2/c.json",
        "a.json/x",
    ],
)
def test_a_file_outside_of_the_folder_or_that_is_not_there_is_refused(folder: Path, name: str) -> None:
    """In the same words: who asks does not learn what there is outside."""
    with pytest.raises(UnreadableData, match=r"^there is no file '.*' in the folder of the hub's files$"):
        read_file(name, folder)


def test_an_absolute_name_is_refused(folder: Path) -> None:
    for name in (str(folder.parent / "secret.json"), "/etc/passwd", "//etc/passwd"):
        with pytest.raises(UnreadableData, match="there is no file"):
            read_file(name, folder)


def test_a_link_out_of_the_folder_is_refused_one_inside_is_not(folder: Path) -> None:
    (folder / "out.json").symlink_to(folder.parent / "secret.json")
    (folder / "outside").symlink_to(folder.parent)
    (folder / "in.json").symlink_to(folder / "a.json")
    for name in ("out.json", "outside/secret.json", "outside/files2/c.json"):
        with pytest.raises(UnreadableData, match="there is no file"):
            read_file(name, folder)
    assert read_file("in.json", folder) == [{"id": Decimal("1.10")}]
    # Out and in again is in.
    assert read_file("outside/files/a.json", folder) == [{"id": Decimal("1.10")}]


def test_the_folder_itself_may_be_a_link(folder: Path) -> None:
    (folder.parent / "alias").symlink_to(folder)
    assert read_file("a.json", folder.parent / "alias") == [{"id": Decimal("1.10")}]
    with pytest.raises(UnreadableData, match="there is no file"):
        read_file("../secret.json", folder.parent / "alias")


@pytest.mark.parametrize("name", ["a\0.json", "x" * 5000, "loop"])
def test_a_name_that_no_file_can_have_raises_an_ordinary_error(folder: Path, name: str) -> None:
    (folder / "loop").symlink_to(folder / "loop")
    with pytest.raises((ValueError, OSError, RuntimeError)):
        read_file(name, folder)


@pytest.mark.parametrize("name", [None, 5, ["a.json"], {"name": "a.json"}])
def test_what_is_no_name_is_unreadable(folder: Path, name: Any) -> None:
    with pytest.raises(UnreadableData, match="the data must be the name of a file"):
        read_file(name, folder)
    with pytest.raises(UnreadableData, match="the data must be the name of a file"):
        READERS["file"](None, context(folder))


def test_without_a_folder_no_file_is_read() -> None:
    with pytest.raises(UnreadableData, match="the hub was given no folder of files"):
        read_file("a.json", None)


def test_a_format_that_is_not_known_is_unreadable(folder: Path) -> None:
    with pytest.raises(UnreadableData, match="the format must be json or csv; it is 'xml'"):
        read_file("a.json", folder, format="xml")


# In a hub ------------------------------------------------------------------------------------------------


def pairs(data: str | None, context: Context) -> Iterable[Row]:
    """A reader of one's own: `id=name` in the separator of the config; what is empty is no record."""
    text = json.loads(data or '""')
    for part in text.split(context.config["separator"]):
        if part == "fail":
            raise LookupError(f"cannot read on in {context.message_identifier}")
        if part:
            key, _, name = part.partition("=")
            yield {"id": key, "name": name, "from": f"{context.system}/{context.entity}"}


def in_place(record: Row, context: Context) -> Row | None:
    """Changes the record that it is given, by what it knows of it."""
    record["name"] = (
        f"{record.get('name')}{context.config.get('suffix', '')}{context.options.get('mark', '')}"
    )
    return None if record["name"].startswith("drop") else record


def strange(record: Row, context: Context) -> Any:
    """What a filter should not do, as the record asks for it."""
    if record.get("name", "").startswith("raise"):
        raise KeyError(record["id"])
    if record.get("name", "").startswith("list"):
        return ["no record"]
    return record


FIELDS: list[Row] = [
    {"reference": "id", "key": True},
    {"reference": "name"},
    {"reference": "from"},
    {"reference": "size", "type": "integer"},
]


def entity(reader: str, **more: Any) -> list[Row]:
    return [{"reference": "thing", "fields": FIELDS, "messageReader": reader, **more}]


DOCUMENT: Row = {
    "reference": "*",
    "mappings": {
        "json": entity("json", messageFilters=["strange"]),
        "csv": entity("csv"),
        "file": entity("file"),
        "pairs": entity(
            "pairs",
            messageReaderConfig={"separator": ";"},
            messageFilters=[{"name": "in_place", "config": {"suffix": "!"}}, "strange"],
        ),
    },
}

MESSAGES: list[Row] = [
    {"guid": "pairs", "entity": "pairs", "options": {"mark": "?"}, "data": "p1=a;;p2=drop;p3=c"},
    {"guid": "pairs failed", "entity": "pairs", "data": "p4=a;fail;p5=b"},
    {"guid": "filters", "entity": "pairs", "data": "p6=a;p7=raise;p8=list;p9=c"},
    {"guid": "csv", "entity": "csv", "data": "id,name\nc1,a\nc2\nc3,b,c\nc4,d\n"},
    {"guid": "file", "entity": "file", "data": "a.json"},
    {"guid": "file outside", "entity": "file", "data": "../secret.json"},
    {"guid": "no data", "entity": "json"},
]


@pytest.fixture(scope="module")
def hub(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Hub:
    folder = tmp_path_factory.mktemp("readers")
    (folder / "files").mkdir()
    (folder / "files" / "a.json").write_text('[{"id": "x1"}, 5]')
    (folder / "secret.json").write_text('[{"id": "secret"}]')
    filters = {"in_place": in_place, "strange": strange}
    made = Hub(
        spark,
        schema(DOCUMENT),
        folder / "tables",
        readers={"pairs": pairs},
        filters=filters,
        files=folder / "files",
    )
    made.receive(records(spark, MESSAGES, received_at=AT))
    made.run(now=AT)
    return made


@pytest.fixture(scope="module")
def things(hub: Hub) -> dict[str, Row]:
    return {row["id"]: row for row in rows_of(hub.history("thing"))}


@pytest.fixture(scope="module")
def log(hub: Hub) -> dict[tuple[str, str | None], Row]:
    return {(row["message_identifier"], row["record"]): row for row in rows_of(hub.log())}


def outcomes(
    log: dict[tuple[str, str | None], Row], message: str
) -> list[tuple[str | None, str, str | None]]:
    found = [
        (record, row["outcome"], row["error_code"]) for (of, record), row in log.items() if of == message
    ]
    return sorted(found, key=lambda each: each[0] or "")


def test_a_reader_of_ones_own_knows_config_and_message_and_filters_are_called_in_order(
    things: dict[str, Row], log: dict[tuple[str, str | None], Row]
) -> None:
    assert (things["p1"]["name"], things["p1"]["from"]) == ("a!?", "*/pairs")
    assert things["p3"]["name"] == "c!?"
    assert outcomes(log, "pairs") == [("1", "upsert", None), ("2", "dropped", None), ("3", "upsert", None)]


def test_a_reader_that_fails_after_some_records_makes_the_whole_message_an_error(
    things: dict[str, Row], log: dict[tuple[str, str | None], Row]
) -> None:
    assert outcomes(log, "pairs failed") == [(None, "error", "DATA_INVALID")]
    text = log["pairs failed", None]["error_description"]
    start = "The reader cannot read the data of the message: "
    assert text.startswith(f"{start}LookupError: cannot read on in pairs failed")
    assert not {"p4", "p5"} & set(things)


def test_a_filter_that_fails_or_returns_something_else_makes_one_record_an_error(
    things: dict[str, Row], log: dict[tuple[str, str | None], Row]
) -> None:
    assert outcomes(log, "filters") == [
        ("1", "upsert", None),
        ("2", "error", "FILTER_FAILED"),
        ("3", "error", "FILTER_FAILED"),
        ("4", "upsert", None),
    ]
    start = "A filter of the mapping failed on the record: "
    assert log["filters", "2"]["error_description"].startswith(f"{start}strange: KeyError: ")
    assert log["filters", "3"]["error_description"] == f"{start}a filter must return a dictionary, or None"
    assert {"p6", "p9"} <= set(things)


def test_a_line_of_another_length_is_one_bad_record_of_its_message(
    things: dict[str, Row], log: dict[tuple[str, str | None], Row]
) -> None:
    assert outcomes(log, "csv") == [
        ("1", "upsert", None),
        ("2", "error", "RECORD_INVALID"),
        ("3", "error", "RECORD_INVALID"),
        ("4", "upsert", None),
    ]
    assert {"c1", "c4"} <= set(things)
    assert not {"c2", "c3"} & set(things)


def test_the_reject_of_a_record_that_is_no_object_holds_what_it_was(hub: Hub) -> None:
    found = {(row["message_identifier"], row["record"]): row["record_text"] for row in rows_of(hub.rejects())}
    assert json.loads(found["csv", "2"]) == ["c2"]
    assert json.loads(found["file", "2"]) == 5


def test_files_are_read_by_the_workers_and_only_in_their_folder(
    things: dict[str, Row], log: dict[tuple[str, str | None], Row]
) -> None:
    assert outcomes(log, "file") == [("1", "upsert", None), ("2", "error", "RECORD_INVALID")]
    assert outcomes(log, "file outside") == [(None, "error", "DATA_INVALID")]
    assert "x1" in things
    assert "secret" not in things


def test_no_data_is_unreadable(log: dict[tuple[str, str | None], Row]) -> None:
    assert outcomes(log, "no data") == [(None, "error", "DATA_INVALID")]


# What must never stop a run -----------------------------------------------------------------------------
#
# A message that makes the run fail is received again by every further run, and no other message is
# processed any more.  What happens in the workers is called here as the workers call it.


def stated(data: Any, *, reader: Reader | None = None, change: Filter | None = None) -> list[Row]:
    """The statements that one message makes, by its record."""
    readers = {**READERS, **({"json": reader} if reader else {})}
    filters = {"strange": change or strange, "in_place": in_place}
    found = schema(DOCUMENT)
    work = ReaderSettings(found, readers, filters, None, frozenset(["thing"]))
    text = data if isinstance(data, str) else json.dumps(data)
    values = ["m1", "*", "json", AT, False, None, text, AT, "t", 0, 0]
    kinds = {each.name: each.type for each in arrow_schema(MESSAGE_SCHEMA)}
    batch = pa.RecordBatch.from_arrays(
        [pa.array([value], kinds[name]) for name, value in zip(MESSAGE_COLUMNS, values, strict=True)],
        list(MESSAGE_COLUMNS),
    )
    rows = [row for _, made in stated_by(iter([batch]), work) for row in made.to_pylist()]
    return sorted(rows, key=lambda row: row["record"] or "")


def errors(rows: list[Row]) -> list[str | None]:
    return [row["error_code"] for row in rows]


def test_a_record_in_error_may_hold_half_a_character() -> None:
    """JSON can write it, as an escape; UTF-8 cannot: the reject holds the escape."""
    rows = stated([{"id": "j1", "size": "x", "name": "\ud800"}, {"id": "j2"}, "\udfff"])
    assert errors(rows) == ["VALUE_INVALID", None, "RECORD_INVALID"]
    assert json.loads(rows[0]["raw"]) == {"id": "j1", "size": "x", "name": "\ud800"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # A filter may read what no field does, at any depth.
        ('[{"id": "j1", "x": 1, "x": 2}, {"id": "j2"}]', ["RECORD_INVALID", None]),
        ('[{"id": "j1", "x": [{"y": 1, "y": 2}]}, {"id": "j2"}]', ["RECORD_INVALID", None]),
    ],
)
def test_a_filter_is_given_no_record_that_has_a_name_twice(text: str, expected: list[str | None]) -> None:
    assert errors(stated(text)) == expected


def test_children_that_have_a_name_twice_are_in_error_alone() -> None:
    link = {"reference": "of", "type": "link", "linkEntity": "order", "linkKey": "n", "key": True}
    number = {"reference": "n", "type": "integer", "key": True}
    children = {"type": "children", "childEntity": "line", "parentIdentifier": "of"}
    order = {"reference": "order", "fields": [number, {"reference": "lines", **children}]}
    line = {"reference": "line", "fields": [link, number]}
    shop = schema({"reference": "*", "mappings": {"order": [order], "line": [line]}})
    walk = RecordWalk(ReaderSettings(shop, READERS, {}, None), Place("*", "order", 0))
    lists = '"lines": [{"n": 1, "n": 2}, {"n": 3}]'
    walk.read(
        Message(0, "m1", "*", "order", None, f'[{{"n": 1, {lists}}}, {{"n": 2, {lists}, "lines": []}}]')
    )
    [lines] = walk.nodes.below.values()
    assert {lines.path[at]: fault.text for at, fault in lines.faults.items()} == {
        "1/lines/1": "the name 'n' comes twice"
    }
    assert lines.records == [{}, {"n": 3}]
    assert {at: fault.text for at, fault in walk.nodes.faults.items()} == {1: "the name 'lines' comes twice"}


def test_a_key_or_a_name_may_hold_half_a_character() -> None:
    rows = stated([{"id": "\ud800"}, {"id": "j2", "\udfff": 1}, {"id": None, "\udfff": 1}])
    assert errors(rows) == ["VALUE_INVALID", None, "KEY_MISSING"]


def fails_in_halves(data: Any, context: Context) -> Any:
    raise KeyError(type("Odd", (), {"__repr__": lambda self: "\ud800"})())


def test_what_a_reader_or_a_filter_raises_may_hold_half_a_character() -> None:
    assert errors(stated([], reader=fails_in_halves)) == ["DATA_INVALID"]
    assert errors(stated([{"id": "j1"}], change=fails_in_halves)) == ["FILTER_FAILED"]


@pytest.mark.parametrize(
    "record",
    [
        {b"bytes": 1},
        {("a", "tuple"): 1},
        {"set": {1}},
        {"deep": {("a",): 1}},
        {"bytes": b"\xff"},
        {"date": AT},
        {"large": 10**5000},
    ],
)
def test_a_reader_of_ones_own_may_return_what_json_does_not_know(record: Row) -> None:
    """Where nobody reads it, it does not matter; where the record is in error, it must be written."""
    rows = stated([], reader=lambda data, context: [{"id": "a"} | record, record, {"id": "c"}])
    assert errors(rows) == [None, "KEY_MISSING", None]


def test_a_reader_of_ones_own_may_return_what_holds_itself() -> None:
    loop: Row = {"id": "a", "size": "x"}
    loop["self"] = loop
    assert errors(stated([], reader=lambda data, context: [loop, {"id": "b"}])) == ["VALUE_INVALID", None]


def test_integers_of_thousands_of_digits_are_errors_of_their_records() -> None:
    large = [{"id": "a", "size": 10**5000}, {"id": 10**5000}, {"id": "c", "size": 1}]
    assert errors(stated([], reader=lambda data, context: large)) == ["VALUE_INVALID", "VALUE_INVALID", None]


def read_instead(text: str, data: str | None, context: Context) -> Iterable[Any]:
    return READERS["json"](text, context)


def test_records_may_be_nested_as_deep_as_they_can_be_read() -> None:
    """At any depth the other record is applied, or the data is unreadable; nothing else may happen."""
    for depth in range(880, 1000):
        text = f'[{{"id": "a", "size": {"[" * depth}{"]" * depth}}}, {{"id": "b"}}]'
        rows = stated([], reader=partial(read_instead, text))
        assert errors(rows) in (["VALUE_INVALID", None], ["DATA_INVALID"]), depth


def test_a_number_that_only_python_cannot_hold_is_none_of_the_options_faults() -> None:
    found: list[Any] = []

    def note_options(data: str | None, context: Context) -> list[Any]:
        found.append(context.options)
        return []

    work = ReaderSettings(schema(DOCUMENT), {**READERS, "json": note_options}, {}, None)
    options = f'{{"a": {"1" * 5000}, "b": 1.5, "c": {"2" * 30}}}'
    RecordWalk(work, Place("*", "json", 0)).read(Message(0, "m", "*", "json", options, None))
    assert found == [{"a": float("inf"), "b": 1.5, "c": int("2" * 30)}]


def test_numbers_beyond_decimals_are_zero_or_beyond_all_with_space_before_them_too() -> None:
    text = "\n [1e-99999999999999999999, 0e99999999999999999999, 1e99999999999999999999] "
    assert read_json(text) == [0, 0, Decimal("Infinity")]
    [long] = read_json(" [" + "1" * 5000 + "]")
    assert long == Decimal("1" * 5000)


def test_guids_are_remembered_by_the_type_of_the_key_too() -> None:
    text = '{"entity":"e","key":{"f":true}}'
    of_text = json.dumps({"entity": "e", "key": {"f": text}}, separators=(",", ":"))
    found = [known_guids("e", {"f": pa.array([key])})[0].as_py() for key in (text, True)]
    assert found == [str(uuid5(NAMESPACE, name)) for name in (of_text, text)]


# Data that cannot be read ----------------------------------------------------------------------------------

ITEM: Row = {
    "reference": "*",
    "mappings": {
        "item": [
            {"reference": "product", "fields": [{"reference": "no", "key": True}]},
            {
                "reference": "brand",
                "fields": [
                    {"reference": "brand", "key": True},
                    {"reference": "parts", "type": "children", "childEntity": "part",
                     "parentIdentifier": "brand"},
                ],
            },
        ],
        "part": [
            {
                "reference": "part",
                "fields": [
                    {"reference": "brand", "type": "link", "linkEntity": "brand", "linkKey": "brand",
                     "key": True},
                    {"reference": "p", "key": True},
                ],
            }
        ],
        "brand": [{"reference": "brand", "fields": [{"reference": "brand", "key": True}]}],
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("entities", "expected"),
    [
        (None, ["product"]),
        (["product"], ["product"]),
        (["brand"], ["brand"]),
        # It might have held parts.
        (["part"], ["part"]),
        (["brand", "part"], ["brand"]),
    ],
)
def test_data_that_cannot_be_read_is_told_once_whatever_target_is_looked_at(
    entities: list[str] | None, expected: list[str]
) -> None:
    kinds = arrow_schema(MESSAGE_SCHEMA)
    values = ["m1", "*", "item", AT, False, None, '"x"', AT, "t", 0, 0]
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([value], kinds.field(name).type)
            for name, value in zip(MESSAGE_COLUMNS, values, strict=True)
        ],
        list(MESSAGE_COLUMNS),
    )
    looked_at = None if entities is None else frozenset(entities)
    work = ReaderSettings(schema(ITEM), READERS, {}, None, looked_at)
    rows = [(entity, row) for entity, made in stated_by(iter([batch]), work) for row in made.to_pylist()]
    assert [entity for entity, _ in rows] == expected
    assert [(row["operation"], row["error_code"]) for _, row in rows] == [("unreadable", "DATA_INVALID")]


# Times of records ------------------------------------------------------------------------------------------


def dated(reader: str = "json", **config: Any) -> Row:
    """A shop whose orders say in `since` from when on they are true, and hold lines."""
    line = [
        {"reference": "order", "type": "link", "key": True, "linkEntity": "order", "linkKey": "id"},
        {"reference": "product", "key": True},
    ]
    lines = {"reference": "lines", "type": "children", "childEntity": "line", "parentIdentifier": "order"}
    order = [{"reference": "id", "type": "integer", "key": True}, {"reference": "state"}, lines]
    mapping = {"reference": "order", "fields": order, "messageReader": reader}
    return {
        "reference": "*",
        "mappings": {
            "order": [mapping | {"messageReaderConfig": {"timestamp": "since", **config}}],
            "line": [{"reference": "line", "fields": line}],
        },
    }


def times_of(data: Any, *, refresh: bool = False) -> list[tuple[Any, ...]]:
    """Of each statement of one message: the record, what it does, from which hour on, and its error."""
    values = {
        "message_identifier": "m1", "source_system": "*", "source_entity": "order", "effective_timestamp": AT,
        "refresh": refresh, "data": json.dumps(data), "message_timestamp": AT, "topic": "t",
        "partition": 0, "offset": 0,
    }  # fmt: skip
    kinds = arrow_schema(MESSAGE_SCHEMA)
    batch = pa.RecordBatch.from_arrays(
        [pa.array([values.get(name)], kinds.field(name).type) for name in MESSAGE_COLUMNS],
        list(MESSAGE_COLUMNS),
    )
    work = ReaderSettings.create(schema(dated()), None, None, None)
    rows = [row for _, made in stated_by(iter([batch]), work) for row in made.to_pylist()]
    return sorted(
        (row["record"] or "", row["operation"], row["effective_timestamp"].hour, row["error_code"])
        for row in rows
    )


def test_a_record_can_say_itself_from_when_on_it_is_true() -> None:
    """What it holds has the time of its parent; one that says none, or none that can be read, is an error."""
    found = times_of(
        [
            {"id": 1, "since": "2024-01-01T03:00", "lines": [{"product": "a"}]},
            {"id": 2, "since": None},
            {"id": 3},
            {"id": 4, "since": "yesterday"},
        ]
    )
    assert found == [
        ("1", "list", 3, None),
        ("1", "upsert", 3, None),
        ("1/lines/1", "upsert", 3, None),
        *((number, "upsert", 9, "VALUE_INVALID") for number in "234"),
    ]


def test_a_refresh_is_true_at_one_instant() -> None:
    assert times_of([{"id": 1, "since": "2024-01-01T03:00"}], refresh=True) == [
        ("", "unreadable", 9, "DATA_INVALID")
    ]


def test_the_property_of_the_time_has_a_name() -> None:
    with pytest.raises(InvalidSchema, match=r"messageReaderConfig.timestamp.* the name of a property"):
        schema(dated(timestamp=["since"]))


def test_a_dated_dump_is_one_message(spark: SparkSession) -> None:
    """Three days of one table, later lines first; an empty cell says nothing: what was so on each day."""
    dump = """id,state,since,gone
1,paid,2024-03-03,
1,ordered,2024-03-01,
2,ordered,2024-03-02,
2,,2024-03-03,true
1,,2024-03-02,
"""
    order = [
        {"reference": "id", "type": "integer", "key": True},
        {"reference": "state"},
        {"reference": "deleted_indicator", "sourceReference": "gone"},
    ]
    config = {"timestamp": "since", "unsent": ""}
    mapping = {"reference": "order", "fields": order, "messageReader": "csv", "messageReaderConfig": config}
    shop = schema({"reference": "*", "mappings": {"order": [mapping]}})
    sent = records(spark, [{"entity": "order", "guid": "dump", "data": dump}], received_at=AT)
    history = merge(changes(decode(sent), shop, "order"), entity="order", keys=["id"]).localCheckpoint()
    days = {day: as_of(history, datetime(2024, 3, day, 12, tzinfo=UTC)) for day in (1, 2, 3)}
    found = {day: sorted((row["id"], row["state"]) for row in rows.collect()) for day, rows in days.items()}
    assert found == {1: [(1, "ordered")], 2: [(1, "ordered"), (2, "ordered")], 3: [(1, "paid")]}
    assert {row["source_message"] for row in history.collect()} == {"dump"}
