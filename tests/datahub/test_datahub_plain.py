"""Messages that Arrow reads say what they say to the general reading; what is unusual is left to that."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

import cdckit.datahub.statements as reading
from cdckit.datahub import schema
from cdckit.datahub.message_statements import read_statements as stated_by
from cdckit.datahub.messages import MESSAGE_SCHEMA
from cdckit.datahub.readers import READERS, ReaderSettings, RecordWalk
from cdckit.datahub.statements import MESSAGE_COLUMNS
from cdckit.parts.arrow_types import arrow_schema
from tools.tiers import seeds

Row = dict[str, Any]
AT = datetime(2024, 1, 1, 9, tzinfo=UTC)

FIELDS: list[Row] = [
    {"reference": "number", "sourceReference": "no", "type": "bigint", "key": True},
    {"reference": "name", "type": "text", "length": 5},
    {"reference": "small", "type": "smallint"},
    {"reference": "size", "type": "number"},
    {"reference": "on", "type": "boolean"},
    {"reference": "day", "type": "date"},
    {"reference": "at", "type": "timestamp"},
    {
        "reference": "link",
        "type": "link",
        "linkEntity": "thing",
        "linkKey": "no",
        "sourceLinkKey": "other",
    },
]
DOCUMENT: Row = {
    "reference": "*",
    "mappings": {
        "thing": [
            {"reference": "thing", "fields": FIELDS},
            # A second mapping of the same records: its numbers lie between those of the first.
            {"reference": "spare", "fields": [{"reference": "id", "sourceReference": "name", "key": True}]},
        ],
    },
}


def work_of(entity: str = "thing") -> ReaderSettings:
    return ReaderSettings(schema(DOCUMENT), READERS, {}, None, frozenset([entity]))


def messages(*texts: str | None, entity: str = "thing") -> pa.RecordBatch:
    kinds = {each.name: each.type for each in arrow_schema(MESSAGE_SCHEMA)}
    rows = [
        (f"m{place}", "*", entity, AT, place % 7 == 0, None, text, AT, "t", 0, place)
        for place, text in enumerate(texts)
    ]
    columns = zip(*rows, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(values, kinds[name]) for name, values in zip(MESSAGE_COLUMNS, columns, strict=True)],
        list(MESSAGE_COLUMNS),
    )


def stated(batch: pa.RecordBatch, work: ReaderSettings) -> list[str]:
    """The statements as texts, sorted: they have no order."""
    rows = [row for _, made in stated_by(iter([batch]), work) for row in made.to_pylist()]
    return sorted(json.dumps(row, default=repr, sort_keys=True) for row in rows)


def both(batch: pa.RecordBatch, monkeypatch: pytest.MonkeyPatch, entity: str = "thing") -> list[str]:
    """What the messages say, having made sure that the general reading says the same."""
    found = stated(batch, work_of(entity))
    with monkeypatch.context() as changed:
        changed.setattr(reading, "plain_form", lambda *args: None)
        assert stated(batch, work_of(entity)) == found
    return found


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which messages the general reading is given."""
    found: list[str] = []
    read = RecordWalk.read

    def noted(self: RecordWalk, message: Any) -> None:
        found.append(message.identifier)
        read(self, message)

    monkeypatch.setattr(RecordWalk, "read", noted)
    return found


PLAIN = '[{"no": 1, "name": "kettle", "size": 1.5, "on": true, "day": "2024-01-31", "other": 2}, {"no": 2}]'


def test_what_is_plain_is_read_by_arrow_alone(given: list[str]) -> None:
    rows = [json.loads(each) for each in stated(messages(PLAIN, "[]"), work_of())]
    assert given == []
    first, second, refresh = sorted(rows, key=lambda row: row["record"] or "none")
    assert [first["record"], second["record"], refresh["record"]] == ["1", "2", None]
    assert first["data"]["name"] == "kettl"
    assert (first["data"]["size"], first["data"]["on"]) == (1.5, True)
    assert first["data"]["day"] == "datetime.date(2024, 1, 31)"
    # Two mappings share the records: each has every second number.
    assert [first["arrival"]["record_number"], second["arrival"]["record_number"]] == [2, 4]
    carried = {"number", "name", "size", "on", "day", "link"}
    assert {name for name, flag in first["carried"].items() if flag} == carried
    assert {name for name, flag in second["carried"].items() if flag} == {"number"}
    assert first["data"]["link"] == second["guid"]


UNUSUAL = {
    "an object, no array": '{"no": 1}',
    "no data": None,
    "a null": "null",
    "a number": "7",
    "no object": '[{"no": 1}, 7]',
    "a null element": '[{"no": 1}, null]',
    "a name twice": '[{"no": 1, "no": 2}]',
    "a name twice, once in escapes": '[{"no": 1, "n\\u006f": 2}]',
    "a number as text": '[{"no": "1"}]',
    "a text as number": '[{"no": 1, "name": 7}]',
    "a whole number with a point": '[{"no": 1.0}]',
    "a number that rounds": '[{"no": 1, "small": 1.5}]',
    "a number that is too large": '[{"no": 1, "small": 99999}]',
    "a number beyond all": '[{"no": 1, "size": 1e999}]',
    "a number beyond even that": '[{"no": 1, "size": 1e99999999999999999999}]',
    "minus zero": '[{"no": 1, "size": -0}]',
    "yes": '[{"no": 1, "on": "yes"}]',
    "one": '[{"no": 1, "on": 1}]',
    "no day": '[{"no": 1, "day": "2024-02-30"}]',
    "the year 0": '[{"no": 1, "day": "0000-02-03"}]',
    "a day with spaces": '[{"no": 1, "day": " 2024-02-03"}]',
    "a zone": '[{"no": 1, "at": "2024-01-01T09:00:00+01:00"}]',
    "a deletion in words": '[{"no": 1, "deleted_indicator": "true"}]',
    "no key": '[{"name": "a"}]',
    "an unknown key": '[{"no": null}]',
    "null and absent": '[{"no": 1, "name": null}]',
    "null and absent, a null elsewhere": '[{"no": 1, "x": null, "y": {"name": null}}]',
    "half a character": '[{"no": 1, "name": "\\ud800"}]',
    "a list": '[{"no": 1, "name": ["a"]}]',
    "an object in a field": '[{"no": 1, "size": {"a": 1}}]',
}
ALL = '{"no": 3, "name": %s, "small": 1, "size": 1, "on": true, "day": null, "at": null, "other": null, ' + (
    '"deleted_indicator": null}'
)


@pytest.mark.parametrize("text", UNUSUAL.values(), ids=list(UNUSUAL))
def test_what_is_unusual_is_read_by_python(
    text: str | None, given: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for batch in (messages(PLAIN, text), messages(text)):
        given.clear()
        stated(batch, work_of())
        assert given, "Arrow alone read it"
        both(batch, monkeypatch)


def test_an_escape_beside_a_null_is_unusual(given: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ('"a\\"b"', '"\\\\"', '"\\"name\\":null"'):
        given.clear()
        batch = messages("[" + ALL % name + "]")
        stated(batch, work_of())
        assert given == ["m0"]
        both(batch, monkeypatch)


@pytest.mark.parametrize("name", ['"null"', '":null"', '"name:null"', "null", '", null"'])
def test_nulls_that_are_all_sent_are_plain(
    name: str, given: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = messages("[" + ALL % name + ", " + ALL % '"a"' + "]", "[\n" + ALL % '"b"' + "\n]")
    rows = [json.loads(each) for each in stated(batch, work_of())]
    assert given == []
    records = [row for row in rows if row["operation"] == "upsert"]
    assert len(records) == 3
    assert all(all(row["carried"].values()) for row in records)
    both(batch, monkeypatch)


def test_no_null_is_taken_for_another(given: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """One property is null and unknown, one known and absent: as many nulls as values are missing."""
    text = ALL.replace('"day": null, ', "") % '"a"'
    for unknown in ('"x": null', '"x": {"day": null}', '"x": [{"day": null}]'):
        given.clear()
        batch = messages("[" + text.replace('"no"', f'{unknown}, "no"') + "]")
        rows = [json.loads(each) for each in stated(batch, work_of())]
        assert given == ["m0"]
        assert not next(row for row in rows if row["operation"] == "upsert")["carried"]["day"]
        both(batch, monkeypatch)


def test_a_property_that_is_read_as_two_types_is_left_to_python(given: list[str]) -> None:
    fields = [FIELDS[0], {"reference": "text", "sourceReference": "no", "type": "text"}]
    found = schema({"reference": "*", "mappings": {"thing": [{"reference": "thing", "fields": fields}]}})
    rows = stated(messages('[{"no": 1}]'), ReaderSettings(found, READERS, {}, None))
    assert given == ["m0"]
    said = [json.loads(row)["data"] for row in rows if '"upsert"' in row]
    assert said == [{"number": 1, "text": "1"}]


def test_few_messages_pay_for_an_unusual_one(given: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f'[{{"no": {number}}}]' for number in range(3000)]
    texts[700] = '[{"no": "700"}]'
    batch = messages(*texts)
    stated(batch, work_of())
    assert given == [f"m{number}" for number in range(512, 768)]
    both(batch, monkeypatch)


def test_a_mapping_whose_messages_are_unusual_is_not_tried_for_ever(
    given: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []
    plain_objects = reading.plain_objects

    def noted(data: pa.Array, *args: Any) -> Any:
        tried.append(len(data))
        return plain_objects(data, *args)

    monkeypatch.setattr(reading, "plain_objects", noted)
    batch = messages(*(f'[{{"no": "{number}"}}]' for number in range(9000)))
    stated(batch, work_of())
    assert tried == [4096, *[256] * 16]
    assert len(given) == 9000


NAMES = [
    '"a"',
    '"abcdefg"',
    '"null"',
    '"\\"name\\":null"',
    '"\\u00e9\\ud83d\\ude00"',
    '""',
    "7",
    '"é😀é😀é😀"',
]
VALUES = {
    "no": ["1", "2", "3", "-4", "9223372036854775807", '"5"', "1.0", "null", "9223372036854775808"],
    "name": NAMES,
    "small": ["1", "-32768", "0", "32768", "null", '"3"', "-0"],
    "size": [
        "1",
        "1.25",
        "-3e2",
        "1e-400",
        "-0",
        "-0.0",
        "0.1",
        "1e-99999999999999999999",
        "0e99999999999999999999",
        "123456789012345678901",
        "1e400",
        "null",
    ],
    "on": ["true", "false", "null", "1", '"no"'],
    "day": ['"2024-02-29"', '"0001-01-01"', '"9999-12-31"', '"2023-02-29"', "null", '"2024-01-01T00:00:00"'],
    "at": ['"2024-01-01T10:00:00"', '"2024-01-01"', '"1500-03-01T00:00:00"', '"x"', '"2024-01-01T10:00:00Z"'],
    "other": ["1", "2", "null", '"2"'],
    "deleted_indicator": ["true", "false", "null", '"yes"', "0"],
    "extra": ["null", '{"name": null, "no": [1, {"no": 2}]}', '"null"', "1e999"],
}
USUAL = {
    "no": 4,
    "name": 3,
    "small": 3,
    "size": 5,
    "on": 2,
    "day": 3,
    "at": 1,
    "other": 2,
    "deleted_indicator": 2,
}


def random_record(chance: random.Random, odd: float, sent: float) -> str:
    parts = []
    for name, values in VALUES.items():
        usual = name in USUAL and chance.random() >= odd
        if usual and name != "no" and chance.random() >= sent:
            continue
        if usual:
            values = values[: USUAL[name]]
        elif name == "extra" and chance.random() >= odd:
            continue
        parts.append(f'"{name}":{" " * chance.randrange(2)}{chance.choice(values)}')
    if chance.random() < odd / 4:
        parts.append(f'"{chance.choice(list(VALUES))}": 1')
    chance.shuffle(parts)
    return "{" + ", ".join(parts) + "}"


@seeds(*range(12), soak=300)
def test_random_messages_say_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(reading, "_MANY", 64)
    monkeypatch.setattr(reading, "_FEW", chance.choice([1, 4, 16]))
    odd, sent = chance.choice([0.0, 0.003, 0.03, 0.3]), chance.choice([0.0, 0.5, 1.0])
    texts = [
        "[" + ",".join(random_record(chance, odd, sent) for _ in range(chance.randrange(5))) + "]"
        for _ in range(120)
    ]
    batch = messages(*texts)
    for entity in ("thing", "spare"):
        both(batch, monkeypatch, entity)


def test_a_name_that_comes_twice_is_an_error_where_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """So a record says the same whether Arrow reads its message or not: `spare` reads other names."""
    batch = messages('[{"no": 1, "no": 2, "name": "a"}, {"no": 3, "x": 1, "x": 2, "name": "b"}]')
    rows = [row for row in map(json.loads, both(batch, monkeypatch)) if row["record"]]
    assert {row["record"]: (row["data"]["number"], row["error_code"], row["raw"]) for row in rows} == {
        "1": (None, "RECORD_INVALID", '{"no": 1, "no": 2, "name": "a"}'),
        "2": (3, None, None),
    }
    assert "A record must be an object that has each name once: the name 'no' comes twice" in str(rows)
    spare = map(json.loads, both(batch, monkeypatch, "spare"))
    assert sorted((row["data"]["id"], row["error_code"]) for row in spare if row["record"]) == [
        ("a", None),
        ("b", None),
    ]


def test_what_was_erased_is_no_record_without_values(given: list[str]) -> None:
    """An export needs no key, by whose lack one would be found."""
    copy = {"reference": "copy", "export": True, "fields": [{"reference": "no"}]}
    work = ReaderSettings(schema({"reference": "*", "mappings": {"thing": [copy]}}), READERS, {}, None)
    rows = [json.loads(row) for row in stated(messages('[{"cdckit.erased": 0}, {"no": "1"}]'), work)]
    assert [(row["record"], row["data"]) for row in rows if row["operation"] == "upsert"] == [
        ("2", {"no": "1"})
    ]
