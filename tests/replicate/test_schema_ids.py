"""What a schema id stands for, by the kernels alone: tables of cases, and pieces in any order."""

from __future__ import annotations

import random
from typing import Any

import pytest

from cdckit.replicate.schema_ids import find_conflict, statements
from support.replicate_messages import Version

TEXT = ["null", "string"]
ITEMS, THINGS = ("db1", "shop_task", "SHOP", "ITEMS"), ("db1", "shop_task", "SHOP", "THINGS")
SCHEMA_ID = Version({"id": "int"}).schema_id

Message = dict[str, Any]


def message(offset: int, layout: str = "a b", **others: Any) -> Message:
    """A metadata message about the id, with the layout of some letters; *others* replace what it says."""
    server, task, schema, table = others.pop("of", ITEMS)
    return {
        "schema_id": SCHEMA_ID,
        "server": server,
        "task": task,
        "schema": schema,
        "table": table,
        "table_version": 1,
        "lineage_timestamp": f"lineage {offset}",
        "columns": [{"name": "id", "ordinal": 1}],
        "data_schema": "{}",
        "layout": layout.split(),
        "timestamp": offset * 10,
        "topic": "metadata",
        "partition": 0,
        "offset": offset,
        "places": None,
        "known": None,
        "error_code": None,
        **others,
    }


WORD = {**dict(zip(("server", "task", "schema", "table"), THINGS, strict=True)), "layout": ["a", "x"]}
CONFLICTS: dict[str, tuple[list[Message], list[str | None]]] = {
    "nothing was said": ([], []),
    "the same layout again, for another table and version": (
        [message(1), message(2, of=THINGS, table_version=2)],
        [None, None],
    ),
    "another field": (
        [message(1), message(2, "a c c"), message(3)],
        [
            None,
            "Here, for db1/shop_task SHOP.ITEMS, it has c; before, for db1/shop_task SHOP.ITEMS, it had b.",
            None,
        ],
    ),
    "the same fields in another order": (
        [message(1), message(2, "b a", of=THINGS)],
        [
            None,
            "Here, for db1/shop_task SHOP.THINGS, it has the same in another order;"
            " before, for db1/shop_task SHOP.ITEMS, it had the same in another order.",
        ],
    ),
    "a message that cannot be used is no first word": (
        [message(1, error_code="DATA_SCHEMA_INVALID"), message(2, "c"), message(3, "c")],
        [None, None, None],
    ),
    "a word from earlier stands, whatever comes first now": (
        [message(1, known=WORD), message(2, "a x", known=WORD)],
        [
            "Here, for db1/shop_task SHOP.ITEMS, it has b; before, for db1/shop_task SHOP.THINGS, it had x.",
            None,
        ],
    ),
}


@pytest.mark.parametrize("name", CONFLICTS)
def test_a_layout_stands_and_what_contradicts_it_is_told(name: str) -> None:
    messages, expected = CONFLICTS[name]
    sentence = "An earlier message gave this schema id another layout, which stands. "
    firsts: dict[str, Any] = {}
    found = [find_conflict(message, firsts) for message in messages]
    assert found == [text and sentence + text for text in expected]


REKEYED = {"columns": [{"name": "id", "ordinal": 1}, {"name": "code", "ordinal": 2}]}
STATEMENTS: dict[str, tuple[list[Message], list[tuple[int, int, list[str]]]]] = {
    "nothing was said": ([], []),
    "the same said again is one statement": ([message(1), message(2), message(3)], [(1, 3, [])]),
    "another time of the lineage is nothing new": (
        [message(1, lineage_timestamp="a"), message(2, lineage_timestamp="b")],
        [(1, 2, [])],
    ),
    "what was taken back was said for a while": (
        [message(1), message(2, **REKEYED), message(3), message(4)],
        [(1, 1, []), (2, 2, []), (3, 4, [])],
    ),
    "another version is another statement": (
        [message(1), message(2, table_version=2)],
        [(1, 1, []), (2, 2, [])],
    ),
    "an id of two tables says so": (
        [message(1), message(2, of=THINGS), message(3)],
        [(1, 3, ["db1/shop_task SHOP.THINGS"]), (2, 2, ["db1/shop_task SHOP.ITEMS"])],
    ),
    "time counts before the offset": (
        [message(9, timestamp=1), message(2, timestamp=2, **REKEYED)],
        [(9, 9, []), (2, 2, [])],
    ),
    "what came without a time came first": (
        [message(1), message(9, timestamp=None, **REKEYED)],
        [(9, 9, []), (1, 1, [])],
    ),
}


def short(found: list[Message]) -> list[tuple[int, int, list[str]]]:
    return [(row["offset"], row["places"][-1]["offset"], row["other_tables"]) for row in found]


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_holds_from_its_first_message_until_another_is_made(name: str) -> None:
    messages, expected = STATEMENTS[name]
    assert short(list(statements(messages))) == expected
    assert sorted(short(list(statements(reversed(messages))))) == sorted(expected)


def test_a_statement_is_that_of_its_first_message() -> None:
    (row,) = statements([message(2), message(1)])
    assert row == {
        **{name: value for name, value in message(1).items() if name not in ("known", "error_code")},
        "places": [
            {
                "timestamp": offset * 10,
                "topic": "metadata",
                "partition": 0,
                "offset": offset,
                "lineage_timestamp": f"lineage {offset}",
            }
            for offset in (1, 2)
        ],
        "other_tables": [],
    }


@pytest.mark.parametrize("seed", range(200))
def test_a_zone_that_grows_is_the_zone_of_all_at_once(seed: int) -> None:
    """The statements of some messages, kept and taken again with later ones, are those of all messages."""
    chance = random.Random(seed)
    messages = [
        message(
            offset,
            of=chance.choice([ITEMS, THINGS]),
            table_version=chance.randrange(2),
            timestamp=chance.choice([None, 1]) if offset < 3 else offset // 2,
        )
        for offset in range(chance.randrange(1, 9))
    ]
    whole = sorted(map(repr, statements(messages)))
    chance.shuffle(messages)
    kept: list[Message] = []
    while messages:
        count = chance.randrange(1, len(messages) + 1)
        together = [*kept, *messages[:count]]
        chance.shuffle(together)
        kept = list(statements(together))
        messages = messages[count:]
    assert sorted(map(repr, kept)) == whole
