"""Schema learning: types, optional fields, nested documents, told when they change; the fixtures' steps."""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdckit import streams
from cdckit.errors import InvalidArgument
from cdckit.model.records import RECORD_SCHEMA
from cdckit.streams import collection_types
from cdckit.streams.collection_types import EntityType, common_type, value_type
from cdckit.streams.json_values import to_text

FIXTURES = Path(__file__).parents[3] / "shared/fixtures/debezium-streams/schema-learning"
DIGITS = "12345678901234567890.12345678901234567890"
DOCUMENTS = [
    {"a": 1},
    {"a": 2**40, "b": {"c": "x"}},
    {"a": None, "b": {"c": 5, "d": [1]}},
    {"b": "text", "at": "2024-01-01T00:00:00Z"},
]


def fields(of: EntityType) -> dict[str, tuple[str, bool]]:
    told = json.loads(of.state()[0] or "{}")
    return {name: (each["type"], each["optional"]) for name, each in told["C"]["fields"].items()}


def taught(updates: Iterable[tuple[Any, Any]]) -> EntityType:
    of = EntityType()
    for before, after in updates:
        of.take(False, "C", *(None if each is None else json.dumps(each) for each in (before, after)))
    return of


def test_the_fixtures_five_steps() -> None:
    if not FIXTURES.exists():
        pytest.skip("the fixtures of the upstream are not here")
    of, required, optional = EntityType(), [], []
    for step in range(1, 6):
        text = re.sub(r"/\*.*?\*/", "", (FIXTURES / f"contacts-step{step}.json").read_text())
        for update in json.loads(text)["entityChanges"]:
            documents = (
                None if update[name] is None else json.dumps(update[name]) for name in ("before", "after")
            )
            of.take(False, "C", *documents)
        found = {name: is_optional for name, (_, is_optional) in fields(of).items()}
        required.append({name for name, is_optional in found.items() if not is_optional})
        optional.append({name for name, is_optional in found.items() if is_optional})
    names = {"firstName", "lastName", "homePhone"}
    assert required == [
        names,
        names | {"age"},
        names | {"title"},
        names | {"title"},
        (names | {"title"}) - {"homePhone"},
    ]
    assert optional == [{"title", "age"}, {"title"}, {"age"}, {"age"}, {"age", "homePhone", "mobilePhone"}]


def test_types_widen_whatever_the_order() -> None:
    expected = {
        "a": ("LONG", True),
        "b": ("STRING", True),
        "b/c": ("STRING", True),
        "b/d": ("STRING", True),
        "at": ("TIMESTAMP", True),
    }
    for order in itertools.permutations(DOCUMENTS):
        assert fields(taught((None, each) for each in order)) == expected


def test_a_field_that_was_only_null_is_told_once_it_has_a_type() -> None:
    """As a text it would become narrower with the first number."""
    of = taught([(None, {"a": None})])
    assert fields(of) == {}
    of.take(False, "C", '{"a": null}', '{"a": 1}')
    assert fields(of) == {"a": ("INTEGER", False)}


def test_names_are_learnt_up_to_a_length_that_a_hundred_of_them_may_have() -> None:
    """A document of half a megabyte, whose paths have 25 megabytes; by hand: two names of 499 fit."""
    deep: Any = 1
    for _ in range(100):
        deep = {"n" * 499: deep}
    of = taught([(None, deep), (None, {"x" * 1000: 1, "y" * 1001: 1})])
    of.take(False, "C", json.dumps({"y" * 1001: 1}), None)
    assert sorted(map(len, fields(of))) == [499, 999, 1000]
    assert fields(of)["x" * 1000] == ("INTEGER", False)
    assert len(of.state()[1]) < 10_000


def test_common_types_are_a_matter_of_the_set() -> None:
    known = ["INTEGER", "LONG", "DOUBLE", "STRING", "UUID", "DOCUMENT"]
    for three in itertools.combinations_with_replacement(known, 3):
        for one, two, last in itertools.permutations(three):
            assert common_type({common_type({one, two}), last}) == common_type(three), three


def test_counts_follow_updates_and_deletes() -> None:
    """Against counting the entities that are there."""
    chance = random.Random(5)
    of, there = EntityType(), dict[int, Any]()
    for _ in range(300):
        entity = chance.randrange(6)
        after = chance.choice([None, *DOCUMENTS])
        of.take(
            False, "C", *(None if each is None else json.dumps(each) for each in (there.get(entity), after))
        )
        there.pop(entity, None)
        if after is not None:
            there[entity] = after
        have = {name: sum(name in document for document in there.values()) for name in ("a", "b", "at")}
        learned = fields(of)
        assert {name: learned[name][1] for name in have if name in learned} == {
            name: count < len(there) for name, count in have.items() if name in learned
        }
        state = of.state()
        assert EntityType(state).state() == state


def test_a_type_is_written_only_where_it_may_have_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many lessons of one kind: to write all fields each time took most of the time."""
    texts: list[str] = []

    def counted(value: Any) -> str:
        texts.append(to_text(value))
        return texts[-1]

    monkeypatch.setattr(collection_types, "to_text", counted)
    of = taught([(None, {"a": 1, "b": "x"})] * 50 + [({"a": 1, "b": "x"}, {"a": 2, "b": "y"})] * 50)
    assert len(texts) == 1
    of.take(False, "C", None, '{"a": 1}')
    assert len(texts) == 2
    assert fields(of) == {"a": ("INTEGER", False), "b": ("STRING", True)}


def test_what_a_schema_declares_stands_and_only_learning_updates_teach(spark: SparkSession) -> None:
    def patch(request: int, entity: str, *ops: dict[str, Any], learning: bool = True) -> dict[str, Any]:
        said = {"db": "d", "clientid": "c", "request": request, "user": "u", "begun": 1, "learning": learning}
        place = {"collection": "C", "zone": "z", "entity": entity, "part": 1, "parts": 1}
        return {**said, **place, "ops": list(ops)}

    def add(path: str, value: Any) -> dict[str, Any]:
        return {"op": "add", "path": path, "value": value}

    def records(*said: dict[str, Any] | bytes, start: int) -> Any:
        rows = [
            (None, value, "t", 0, start + place, None, 0, None)
            for place, each in enumerate(said)
            for value in [each if isinstance(each, bytes) else json.dumps(each).encode()]
        ]
        return spark.createDataFrame(rows, RECORD_SCHEMA)

    sent = [
        patch(1, "e1", add("a", 1), add("b/c", "x")),
        patch(2, "e2", add("a", 2), learning=False),  # not learnt: a stays required
        patch(3, "e2", add("z", True)),  # learnt now, with all that it is: a and z
        patch(4, "e2", {"op": "remove", "path": "z"}, learning=False),
        patch(5, "e1", {"op": "inc", "path": "a", "value": 2**40}),
    ]
    declared = {
        "fields": {"a": {"type": "LONG", "optional": True}, "n": {"type": "STRING", "optional": False}}
    }
    header = {"db": "d", "clientid": "c", "request": 9, "user": "u", "begun": 1, "part": 1, "parts": 1}
    n = declared["fields"]["n"]
    schema = {**header, "ops": [add("C", declared), add("D", {"fields": {"n": n}})]}
    without = {**header, "request": 10, "ops": [{"op": "remove", "path": "D"}]}

    # In another database: types that are texts, one as long as a type, and more digits than doubles have.
    odd = {"db": "odd", **{name: header[name] for name in header if name != "db"}}
    texts = [add("T", "text"), add("U", '{"fields'), add("V", ""), add("W", 5), add("N", None)]
    long_number = json.dumps({**odd, "includeBefore": True, "ops": [*texts, add("X", 0)]}).replace(
        '"value": 0', f'"value": {{"fields": {{"f": {DIGITS}}}}}'
    )

    patches = streams.decode(records(*sent, start=0), streams.ENTITY_PATCHES)
    schemas = streams.decode(records(schema, without, long_number.encode(), start=3), streams.SCHEMA_PATCHES)
    answers = streams.apply_patches(patches).localCheckpoint()
    types = streams.apply_schema_patches(schemas).localCheckpoint()  # nobody asked for `after`
    told_by = streams.learn(streams.schema_learning(answers, types)).cache()
    told = streams.learned_types(told_by).where("collection = 'C'").orderBy("offset", "entities").collect()
    long = {"type": "LONG", "optional": True}
    seen = {"b": {"type": "DOCUMENT", "optional": False}, "b/c": {"type": "STRING", "optional": False}}
    now_optional = {name: {**each, "optional": True} for name, each in seen.items()}
    integer, flag = {"type": "INTEGER", "optional": False}, {"type": "BOOLEAN", "optional": True}
    assert [(row.offset, json.loads(row.entity_type)["C"]["fields"]) for row in told] == [
        (0, {"a": integer, **seen}),
        (2, {"a": integer, **now_optional, "z": flag}),
        (3, {"a": long, **now_optional, "n": n, "z": flag}),
    ]
    # The page: one message for each entity type of the schema, without ops.
    messages = streams.schema_learning(answers, types).where("is_type").orderBy("offset", "collection")
    sent_on = streams.to_records(messages, streams.SCHEMA_LEARNING).collect()
    said = [json.loads(row.value) for row in sent_on]
    own = {"status": 1, "ended": 1, "begun": 1, "clientid": "c", "user": "u"}
    first, second = {**own, "db": "d", "request": 9}, {**own, "db": "d", "request": 10}
    assert said[:4] == [
        {**first, "collection": "C", "part": 1, "parts": 2, "after": {"C": declared}},
        {**first, "collection": "D", "part": 2, "parts": 2, "after": {"D": {"fields": {"n": n}}}},
        # Of one that was removed there is a message as well, or nobody would know.
        {**second, "collection": "C", "part": 1, "parts": 1, "after": {"C": declared}},
        {**second, "collection": "D", "parts": 1, "after": {"D": None}},
    ]
    # The page: the key is the entity's, or the database's.
    assert [bytes(row.key) for row in sent_on[3:5]] == [b"d", b"odd"]
    assert [(each["part"], each["parts"], each["after"]) for each in said[4:8]] == [
        *((1, 5, {"T": "text"}), (2, 5, {"U": '{"fields'}), (3, 5, {"V": ""}), (4, 5, {"W": 5})),
    ]
    assert bytes(sent_on[8].value).endswith(f'"after":{{"X":{{"fields":{{"f":{DIGITS}}}}}}}}}'.encode())
    told = streams.learned_types(told_by).where("collection = 'D'").orderBy("offset").collect()
    assert [json.loads(row.entity_type)["D"]["fields"] for row in told] == [{"n": n}, {}]
    known = streams.entity_types(told_by).where("db = 'd'")
    assert sorted(row.collection for row in known.collect()) == ["C", "D"]
    nothing = streams.learn(streams.schema_learning(answers.where(F.lit(False))), known=known)
    assert {row.collection for row in streams.entity_types(nothing, known).collect()} == {"C", "D"}


def test_fields_are_of_whatever_a_schema_declares() -> None:
    """A type that is none, a name that is no path, and two names that are one with dots."""
    fields = {
        **{"a": 5, "b": {}, "c": {"type": ["LONG"]}, "x~y": {"type": "LONG"}, "d//e": {"type": "LONG"}},
        **{"n/": {"type": "LONG"}, "n": {"type": "DOCUMENT"}},
        **{
            "p.q": {"type": "LONG"},
            "p/q": {"type": "STRING"},
            "r.s": {"type": "LONG"},
            "r/s": {"type": "LONG"},
        },
    }
    spark_fields = streams.type_fields(json.dumps({"C": {"fields": fields}}))
    texts = dict.fromkeys(("a", "b", "c", "p.q"), "string")
    with pytest.raises(InvalidArgument, match=r"type_fields\(\)"):
        streams.type_fields("{}", nested="flat")  # type: ignore[arg-type]
    longs = dict.fromkeys(("x~y", "d..e", "n.", "r.s"), "bigint")
    assert {field.name: field.dataType.simpleString() for field in spark_fields} == {**texts, **longs}


def test_types_of_numbers_at_their_ends() -> None:
    """Two's complement has one more below zero."""
    ends = [-(2**31), 2**31 - 1, -(2**31) - 1, 2**31, -(2**63), 2**63 - 1, -(2**63) - 1, 2**63]
    assert [value_type(end) for end in ends] == [*["INTEGER"] * 2, *["LONG"] * 4, *["BIG_INTEGER"] * 2]
