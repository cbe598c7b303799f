"""What a feed knows of the tables of a captured database, by tables of cases."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from cdckit.debezium.captured_tables import (
    CapturedTable,
    Mention,
    Reading,
    describe_news,
    read_captured_table,
)

NAME = "shop.public.orders"


def name_types(types: Sequence[str]) -> tuple[str, ...]:
    return tuple(types) or ("untyped",)


def learn(*mentions: tuple[str | None, str | None], keys: tuple[str, ...] | None = ("id",)) -> CapturedTable:
    said = [Mention(NAME, keys, column, kind) for column, kind in mentions]
    return CapturedTable.new(NAME).learn(said)


def read(table: CapturedTable, **given: dict[str, tuple[str, ...]]) -> Reading:
    return table.reading({}, {"orders": given["columns"]} if given else {}, name_types)


@pytest.mark.parametrize(
    ("said", "named", "keys"),
    [
        pytest.param(("id",), {}, ("id",), id="the keys of the records name it"),
        pytest.param(("id", "__table"), {}, ("id",), id="what no row has is no key column"),
        pytest.param(None, {}, (), id="nobody names it"),
        pytest.param(None, {"orders": ("price",)}, ("price",), id="the user does"),
        pytest.param(
            ("id",), {"orders": ("price",), "public.orders": ("id",)}, ("id",), id="the longer name"
        ),
        pytest.param(("id",), {"rders": ("price",), "old.orders": ("price",)}, ("id",), id="other tables"),
    ],
)
def test_the_key_of_a_table(
    said: tuple[str, ...] | None, named: dict[str, tuple[str, ...]], keys: tuple[str, ...]
) -> None:
    table = learn(("id", "int32"), ("price", "int32"), keys=said)
    reading = table.reading(named, {}, name_types)
    assert reading.keys == keys
    assert reading.is_ready == bool(keys)


@pytest.mark.parametrize(
    ("key", "columns", "found"),
    [
        pytest.param(("tenant", "id"), ("id", "tenant"), (), id="a wider one"),
        pytest.param(("id", "__table"), ("id", "tenant"), ("id",), id="one that a route has given more"),
        pytest.param(("price",), ("id", "price"), (), id="another one"),
    ],
)
def test_a_key_that_changes_is_for_the_user_to_say(
    key: tuple[str, ...], columns: tuple[str, ...], found: tuple[str, ...]
) -> None:
    """By the first one alone rows of two entities would be one."""
    table = learn(*((column, "int32") for column in columns))
    later = table.learn(Mention(NAME, key, column, "int32") for column in columns)
    assert read_captured_table(later.text()) == later
    assert read(later).keys == found
    assert later.reading({"orders": ("id",)}, {}, name_types).is_ready


def test_a_key_that_no_event_has_yet_is_missing() -> None:
    """As where a truncate comes first."""
    reading = learn((None, None)).reading({"orders": ("id",)}, {}, name_types)
    assert (reading.missing_keys, reading.is_ready) == (("id",), False)


@pytest.mark.parametrize(
    ("before", "came", "continues"),
    [
        pytest.param([("n", "int32")], [("m", "int64")], True, id="a column comes"),
        pytest.param([("n", "int32")], [("n", "int64")], True, id="another type beside one"),
        pytest.param([("n", "int32")], [("n", None)], True, id="some say no type: they are read by it"),
        pytest.param([("n", None)], [("n", "int32")], False, id="texts become values"),
        pytest.param([("n", "int32"), ("n", None)], [("n", "int64")], False, id="which of both is not said"),
        pytest.param([("id", "int32")], [("id", "int64")], False, id="a key has one type"),
    ],
)
def test_rows_read_the_same_by_what_came(
    before: list[tuple[str, str]], came: list[tuple[str, str]], continues: bool
) -> None:
    """Else the table is made anew from its records."""
    table = learn(("id", "int32"), *before)
    made = CapturedTable(table.name, table.keys, table.types, read(table))
    assert read_captured_table(made.text()) == made
    after = made.learn(Mention(NAME, ("id",), column, kind) for column, kind in came)
    assert after.continues(made, read(after)) is continues


def test_events_without_a_type_are_read_by_the_type_of_others() -> None:
    assert read(learn(("n", None), ("n", "int32"))).columns == {"n": ("int32",)}
    given = {"n": ("decimal(10,2)",)}
    assert read(learn(("n", "int32"), ("m", "date")), columns=given).columns == {**given, "m": ("date",)}


@pytest.mark.parametrize(
    ("before", "came", "given", "named", "sentences"),
    [
        pytest.param([], ["n"], {}, [], [], id="the first columns of a table are no news"),
        pytest.param([], ["n"], {}, ["orders"], [], id="nor is a table that is named"),
        pytest.param([], ["n"], {}, ["items"], [f"{NAME} is a table that was not named"], id="another table"),
        pytest.param(["n"], ["m"], {}, [], [f"{NAME} has another column, m (int32)"], id="a later column"),
        pytest.param(
            [],
            ["id", "n"],
            {"id": ("int32",)},
            [],
            [f"{NAME} has another column, n (int32)"],
            id="not among the given",
        ),
        pytest.param(
            [],
            ["n"],
            {"id": ("int32",), "n": ("int32",)},
            [],
            [f"{NAME} has no column id, of which columns= says a type"],
            id="a column that is given and does not come",
        ),
    ],
)
def test_news_is_told(
    before: list[str],
    came: list[str],
    given: dict[str, tuple[str, ...]],
    named: list[str],
    sentences: list[str],
) -> None:
    table = learn(*((name, "int32") for name in before))
    after = table.learn(Mention(NAME, ("id",), name, "int32") for name in came)
    reading = read(after, columns=given) if given else read(after)
    assert describe_news(table, after, reading, named) == sentences


def test_types_beside_others_are_told() -> None:
    before = learn(("n", "int32"))
    for kind, words in (
        (None, "some events say its type and others none"),
        ("date", "several types (int32, date)"),
    ):
        after = before.learn([Mention(NAME, None, "n", kind)])
        [sentence] = describe_news(before, after, read(after), [])
        assert words in sentence


def test_a_second_source_of_a_table_is_told_once() -> None:
    """As of two shards: each has a row 7, and here they are one."""
    first, both = (
        CapturedTable.new(NAME).learn(Mention(NAME, ("id",), "id", "int32", source) for source in sources)
        for sources in (["shard1"], ["shard1", "shard2", None])
    )
    assert read_captured_table(both.text()) == both
    [sentence] = describe_news(first, both, read(both), [])
    assert sentence.startswith(f"{NAME} comes from several sources, shard1, shard2: rows of equal keys are")
    assert describe_news(both, both, read(both), []) == []
