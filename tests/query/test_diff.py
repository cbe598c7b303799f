"""`diff`: where two histories of one kind of entity say different things."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit.errors import InvalidArgument, MissingColumns, WrongColumnType
from cdckit.query.differences import diff
from support.fold import fold, same_value
from support.histories import (
    INSTANTS,
    PRIORITIES,
    Row,
    as_text,
    at,
    history_schema,
    holds,
    random_changes,
    rows_to_dataframe,
)

SCHEMA = """
    guid string, valid_from_timestamp timestamp, valid_to_timestamp timestamp, deleted_indicator boolean,
    name string, price double, source_message string, field_provenance struct<
        guid: struct<m: string, p: int>, name: struct<m: string, p: int>, price: struct<m: string, p: int>
    >
"""
NAN = float("nan")


def version(
    begins: int, ends: int | None, name: str | None, price: float | None, said_by: str, **columns: Any
) -> Row:
    """A version of the mug; *said_by* are the messages of the row, of its name and of its price: "1 2 -"."""
    entries = [None if m == "-" else {"m": f"m{m}", "p": 0} for m in said_by.split()]
    return {
        "guid": "mug",
        "valid_from_timestamp": at(begins),
        "valid_to_timestamp": None if ends is None else at(ends),
        "deleted_indicator": False,
        "name": name,
        "price": price,
        "source_message": "not read",
        "field_provenance": dict(zip(("guid", "name", "price"), entries, strict=True)),
        **columns,
    }


def history_of(spark: SparkSession, *versions: Row) -> DataFrame:
    return spark.createDataFrame(list(versions), SCHEMA)


def differences(found: DataFrame) -> list[tuple[Any, ...]]:
    rows: list[Row] = found.drop("guid").toArrow().to_pylist()
    return sorted((tuple(row.values()) for row in rows), key=lambda row: (row[0], row[1]))


def test_a_history_that_says_two_things_at_once_is_not_sound(spark: SparkSession) -> None:
    """Nobody could say which of them differs."""
    a = history_of(spark, version(9, 11, "Mug", 1.0, "1 1 1"), version(10, None, "Cup", 1.0, "1 3 1"))
    b = history_of(spark, version(9, None, "Mug", 1.0, "1 1 1"))
    with pytest.raises(
        PySparkException, match=r"diff\(\) needs .* side b; of the key \[\"mug\"\] two overlap at "
    ):
        diff(b, a).collect()


def test_a_field_differs_from_when_to_when(spark: SparkSession) -> None:
    a = history_of(spark, version(9, 11, "Mug", 1.0, "1 1 1"), version(11, None, "Cup", 1.0, "1 3 1"))
    b = history_of(spark, version(9, 10, "Mug", 1.0, "1 1 1"), version(10, None, "Cup", 1.0, "1 2 1"))
    assert diff(a, b).columns == [
        "guid",
        "field",
        "valid_from_timestamp",
        "valid_to_timestamp",
        "a_value",
        "b_value",
        "a_message",
        "b_message",
    ]
    assert differences(diff(a, b)) == [("name", at(10), at(11), "Mug", "Cup", "m1", "m2")]
    assert differences(diff(b, a)) == [("name", at(10), at(11), "Cup", "Mug", "m2", "m1")]


def test_a_version_over_as_it_begins_was_never_there(spark: SparkSession) -> None:
    """Wherever it stands among the others, and also where it ends before it begins."""
    mug, cup = version(9, 10, "Mug", 1.0, "1 1 1"), version(10, None, "Cup", 1.0, "1 2 1")
    never = [version(hour, hour, "Jug", 9.0, "3 3 3") for hour in (9, 10, 11)]
    backwards = version(12, 8, "Jug", 9.0, "3 3 3")
    b = history_of(spark, mug, cup)
    for rows in ([*never, backwards, mug, cup], [mug, cup, *never, backwards]):
        a = history_of(spark, *rows)
        assert differences(diff(a, b)) == differences(diff(b, a)) == []


def test_a_reader_is_told_the_key(spark: SparkSession) -> None:
    """Of either history, where one of them lacks it.  No key is called as a column of the answer."""
    a = history_of(spark, version(9, None, "Mug", 1.0, "1 1 1"))
    b = history_of(spark)
    found = diff(a, b, keys=["name"])
    assert found.columns[:3] == ["guid", "name", "field"]
    assert {(row["name"], row["field"]) for row in found.collect()} == {
        *(("Mug", "deleted_indicator"), ("Mug", "name"), ("Mug", "price")),
    }
    assert diff(b, a, keys="name").select("name").distinct().collect() == [("Mug",)]
    # The key of one version, also where a part of it is null; a deleted one has none to tell.
    nameless = history_of(spark, version(9, None, None, 2.0, "1 1 1"))
    gone = history_of(spark, version(9, None, None, None, "1 1 1", deleted_indicator=True))
    told = diff(nameless, a, keys=["name", "price"]).union(diff(gone, a, keys=["name", "price"]))
    assert set(told.select("name", "price", "a_value").collect()) == {
        *((None, 2.0, None), (None, 2.0, "2.0"), ("Mug", 1.0, "true"), ("Mug", 1.0, None)),
    }
    with pytest.raises(InvalidArgument, match="Is it name for nmae"):
        diff(a, b, keys=["nmae"])
    called_so = a.withColumn("field", F.lit("x"))
    with pytest.raises(InvalidArgument, match="keys to be called otherwise than field"):
        diff(called_so, called_so, keys=["field"])


PAIRS: dict[str, tuple[list[Row], list[Row], list[tuple[Any, ...]]]] = {
    "what still differs has no end": (
        [version(9, None, "Mug", 1.0, "1 1 1")],
        [version(9, 10, "Mug", 1.0, "1 1 1"), version(10, None, "Mug", 2.0, "1 1 2")],
        [("price", at(10), None, "1.0", "2.0", "m1", "m2")],
    ),
    # Nothing known is neither there nor deleted: the value of `deleted_indicator` is null.
    "an entity that one of them does not know": (
        [version(9, None, "Mug", None, "1 1 -")],
        [],
        [
            ("deleted_indicator", at(9), None, "false", None, "m1", None),
            ("name", at(9), None, "Mug", None, "m1", None),
        ],
    ),
    "what one deleted and the other did not": (
        [version(9, None, "Mug", None, "1 1 -")],
        [
            version(9, 10, "Mug", None, "1 1 -"),
            version(10, None, None, None, "2 2 2", deleted_indicator=True),
        ],
        [
            ("deleted_indicator", at(10), None, "false", "true", "m1", "m2"),
            ("name", at(10), None, "Mug", None, "m1", "m2"),
        ],
    ),
    "after the end of a version that none follows nothing is known": (
        [version(9, 10, "Mug", None, "1 1 -"), version(12, None, "Mug", None, "1 1 -")],
        [version(9, 13, "Mug", None, "1 1 -")],
        [
            ("deleted_indicator", at(10), at(12), None, "false", None, "m1"),
            ("deleted_indicator", at(13), None, "false", None, "m1", None),
            ("name", at(10), at(12), None, "Mug", None, "m1"),
            ("name", at(13), None, "Mug", None, "m1", None),
        ],
    ),
    "the same value from another message is no difference": (
        [version(9, None, "Mug", NAN, "1 1 1")],
        [version(9, 10, "Mug", NAN, "2 2 2"), version(10, None, "Mug", NAN, "1 3 3")],
        [],
    ),
    "null and NaN are values": (
        [version(9, None, None, NAN, "1 1 1")],
        [version(9, None, "", None, "2 2 2")],
        [
            ("name", at(9), None, None, "", "m1", "m2"),
            ("price", at(9), None, "NaN", None, "m1", "m2"),
        ],
    ),
    # The price cuts the name's interval, which is folded; another message for the same name is kept.
    "intervals that say the same are one, and others are not": (
        [
            version(9, 10, "Mug", 1.0, "1 1 1"),
            version(10, 11, "Mug", 2.0, "1 1 2"),
            version(11, None, "Mug", 2.0, "1 3 2"),
        ],
        [version(9, 12, "Cup", 2.0, "4 4 4"), version(12, None, "Mug", 2.0, "4 5 4")],
        [
            ("name", at(9), at(11), "Mug", "Cup", "m1", "m4"),
            ("name", at(11), at(12), "Mug", "Cup", "m3", "m4"),
            ("price", at(9), at(10), "1.0", "2.0", "m1", "m4"),
        ],
    ),
    "the same difference with a pause is two": (
        [version(9, None, "Mug", 1.0, "1 1 1")],
        [
            version(9, 10, "Cup", 1.0, "2 2 1"),
            version(10, 11, "Mug", 1.0, "2 1 1"),
            version(11, None, "Cup", 1.0, "2 2 1"),
        ],
        [
            ("name", at(9), at(10), "Mug", "Cup", "m1", "m2"),
            ("name", at(11), None, "Mug", "Cup", "m1", "m2"),
        ],
    ),
}
"""By rule: the versions of one entity in a, those in b, and where the two differ."""


@pytest.fixture(scope="module")
def told(spark: SparkSession) -> dict[str, list[tuple[Any, ...]]]:
    """The differences of each pair, which is an entity of its own: one question for all."""
    a, b = (
        history_of(spark, *({**row, "guid": rule} for rule, pair in PAIRS.items() for row in pair[side]))
        for side in range(2)
    )
    found: dict[str, list[tuple[Any, ...]]] = {rule: [] for rule in PAIRS}
    for row in diff(a, b).toArrow().to_pylist():
        found[row.pop("guid")].append(tuple(row.values()))
    return found


@pytest.mark.parametrize("rule", PAIRS)
def test_two_histories_differ_by_the_rule(told: dict[str, list[tuple[Any, ...]]], rule: str) -> None:
    assert sorted(told[rule], key=lambda row: row[:2]) == PAIRS[rule][2]


def test_entities_do_not_mix(spark: SparkSession) -> None:
    a = history_of(spark, version(9, None, "Mug", None, "1 1 -"))
    b = history_of(spark, version(9, None, "Mug", None, "1 1 -", guid="other"))
    found = [(row["guid"], row["field"]) for row in diff(a, b).collect()]
    assert sorted(found) == [
        ("mug", "deleted_indicator"),
        ("mug", "name"),
        ("other", "deleted_indicator"),
        ("other", "name"),
    ]


def test_the_order_of_fields_does_not_matter_and_provenance_may_be_missing(spark: SparkSession) -> None:
    a = history_of(spark, version(9, None, "Mug", 1.0, "1 1 1"))
    b = history_of(spark, version(9, None, "Cup", 1.0, "2 2 2"))
    turned = b.select(
        "price", "name", *(c for c in b.columns if c not in ("price", "name", "field_provenance"))
    )
    assert differences(diff(a, turned)) == [("name", at(9), None, "Mug", "Cup", "m1", None)]


def test_field_names_and_types_may_be_anything(spark: SparkSession) -> None:
    names = {"name": "a.b `c`", "price": "version"}
    odd = [
        history_of(spark, *versions)
        .drop("field_provenance")
        .withColumn("price", F.create_map(F.lit("p"), "price"))
        .withColumnsRenamed(names)
        for versions in (
            [version(9, None, "Mug", 1.0, "1 1 1")],
            [version(9, None, "Cup", 2.0, "1 1 1")],
        )
    ]
    assert differences(diff(*odd)) == [
        ("a.b `c`", at(9), None, "Mug", "Cup", None, None),
        ("version", at(9), None, '{"p":1.0}', '{"p":2.0}', None, None),
    ]


def test_histories_of_other_fields_are_refused(spark: SparkSession) -> None:
    a = history_of(spark)
    with pytest.raises(
        InvalidArgument, match=r"diff\(\) needs b to be .* with price double; .*'price': None"
    ):
        diff(a, a.drop("price"))
    with pytest.raises(InvalidArgument, match=r"with no colour; .*'colour': 'string'"):
        diff(a, a.withColumn("colour", F.lit("red")))
    with pytest.raises(InvalidArgument, match=r"with price double; .*'price': 'float'"):
        diff(a, a.withColumn("price", F.col("price").cast("float")))


def test_a_missing_or_wrong_column_is_named(spark: SparkSession) -> None:
    a = history_of(spark)
    with pytest.raises(MissingColumns, match=r"diff\(\) needs the columns guid"):
        diff(a, a.drop("guid"))
    with pytest.raises(WrongColumnType, match="valid_to_timestamp as timestamp"):
        diff(a.withColumn("valid_to_timestamp", F.lit("x")), a)


# Laws on random histories --------------------------------------------------------------------------------

FIELDS = {"h": "int", "k": "string", "a": "int", "b": "double"}
MOMENT = timedelta(microseconds=1)
ASKED = sorted({instant + step for instant in INSTANTS for step in (-MOMENT, 0 * MOMENT, MOMENT)})


def random_history(seed: int, *, priorities: int = 0, lost: float = 0.0, torn: float = 0.0) -> list[Row]:
    """Some random history, or the same under other priorities, without some changes or some versions."""
    chance = random.Random(priorities)
    changes = random_changes(seed, 150, FIELDS)
    if priorities:
        changes = [{**change, "priority": chance.choice(PRIORITIES)} for change in changes]
    changes = [change for change in changes if chance.random() >= lost]
    rows = fold(changes, entity="thing", keys=["h", "k"], fields=list(FIELDS))
    return [row for row in rows if chance.random() >= torn]


def to_history(spark: SparkSession, rows: Sequence[Row]) -> DataFrame:
    return rows_to_dataframe(spark, rows, history_schema(FIELDS))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ({}, {"priorities": 3}),
        ({}, {"lost": 0.2}),
        ({"torn": 0.2}, {"torn": 0.2, "priorities": 5, "lost": 0.1}),
    ],
    ids=["other priorities", "lost changes", "torn"],
)
def test_at_every_instant_it_is_what_a_loop_over_both_finds(
    spark: SparkSession, a: dict[str, Any], b: dict[str, Any]
) -> None:
    left, right = random_history(71, **a), random_history(71, **b)
    found: list[Row] = diff(to_history(spark, left), to_history(spark, right)).toArrow().to_pylist()
    assert len(found) > 100
    for instant in ASKED:
        listed = [
            (row["guid"], row["field"], row["a_value"], row["b_value"], row["a_message"], row["b_message"])
            for row in found
            if holds(row, instant)
        ]
        assert len(set(listed)) == len(listed)
        assert set(listed) == looped(left, right, instant)


def test_every_row_is_as_long_as_it_can_be(spark: SparkSession) -> None:
    a, b = random_history(73), random_history(73, priorities=4, torn=0.1)
    found: list[Row] = diff(to_history(spark, a), to_history(spark, b)).toArrow().to_pylist()
    said = ("guid", "field", "a_value", "b_value", "a_message", "b_message")
    begins = {(*(row[name] for name in said), row["valid_from_timestamp"]) for row in found}
    ends = {(*(row[name] for name in said), row["valid_to_timestamp"]) for row in found}
    assert len(begins) == len(found)
    assert begins & ends == set()
    assert all(
        r["valid_to_timestamp"] is None or r["valid_to_timestamp"] > r["valid_from_timestamp"] for r in found
    )


@pytest.mark.parametrize("torn", [0.0, 0.3])
def test_a_history_does_not_differ_from_itself(spark: SparkSession, torn: float) -> None:
    a = random_history(79, torn=torn)
    assert diff(to_history(spark, a), to_history(spark, list(reversed(a)))).collect() == []


def looped(left: Sequence[Row], right: Sequence[Row], instant: datetime) -> set[tuple[Any, ...]]:
    a = {row["guid"]: row for row in left if holds(row, instant)}
    b = {row["guid"]: row for row in right if holds(row, instant)}
    differing = set()
    for guid in a.keys() | b.keys():
        for name in ["deleted_indicator", *FIELDS]:
            (x, m), (y, n) = said(a.get(guid), name), said(b.get(guid), name)
            if not same_value(x, y):
                differing.add((guid, name, as_text(x), as_text(y), m, n))
    return differing


def said(version: Row | None, name: str) -> tuple[Any, str | None]:
    if version is None:
        return None, None
    entry = version["field_provenance"]["guid" if name == "deleted_indicator" else name]
    return version[name], None if entry is None else entry["m"]
