"""Versions of objects: links, ancestry, the latest, what was missed, and cycles."""

from __future__ import annotations

import json
from collections import deque

import pytest
from pyspark.sql import DataFrame, SparkSession

from cdckit import rdss
from cdckit.errors import MissingColumns


def uuid(number: int) -> str:
    return f"{number:08}-0000-4000-8000-000000000000"


def relation(kind: str, value: str) -> dict[str, object]:
    return {"relationType": kind, "identifier": {"identifierType": "UUID", "identifierValue": value}}


OBJECTS = {
    1: [relation("isPreviousVersionOf", uuid(2))],
    2: [relation("isNewVersionOf", uuid(1)), relation("cites", uuid(9))],
    3: [relation("isNewVersionOf", f"URN:UUID:{uuid(2).upper()}"), relation("isNewVersionOf", "10.5555/x")],
    4: [],
    5: None,
}


def test_links_are_the_same_whoever_says_them(spark: SparkSession) -> None:
    rows = [(uuid(number), said if said is None else json.dumps(said)) for number, said in OBJECTS.items()]
    objects = spark.createDataFrame(rows, "objectUUID string, objectRelatedIdentifier string")
    found = sorted((row["newer"], row["older"]) for row in rdss.version_links(objects).collect())
    assert found == [(uuid(2), uuid(1)), (uuid(3), uuid(2))]
    with pytest.raises(MissingColumns, match="objectRelatedIdentifier"):
        rdss.version_links(objects.drop("objectRelatedIdentifier"))


# A chain of six, with a short cut from 6 to 1; one that parts at b; a cycle below y; one that is its own.
LINKS = "2<1 3<2 4<3 5<4 6<5 6<1 c<b b<a d<b y<x x<z z<x s<s"
HELD = "1 3 4 a d e z s"


def link_pairs() -> list[tuple[str, str]]:
    return [(newer, older) for newer, older in (each.split("<") for each in LINKS.split())]


def breadth_first() -> dict[tuple[str, str], int]:
    """Every pair with its smallest distance, found one object at a time."""
    below: dict[str, list[str]] = {}
    for newer, older in link_pairs():
        below.setdefault(newer, []).append(older)
    found: dict[tuple[str, str], int] = {}
    for start in below:
        waiting = deque([(start, 0)])
        while waiting:
            at, steps = waiting.popleft()
            for older in below.get(at, []):
                if (start, older) not in found:
                    found[start, older] = steps + 1
                    waiting.append((older, steps + 1))
    return found


@pytest.fixture(scope="module")
def ancestry(spark: SparkSession) -> DataFrame:
    return rdss.version_ancestry(spark.createDataFrame(link_pairs() * 2, "newer string, older string"))


@pytest.fixture(scope="module")
def held(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([(each,) for each in (*HELD.split(), "1")], "objectUUID string")


def test_ancestry_has_every_pair_with_the_shortest_way(ancestry: DataFrame) -> None:
    found = ancestry.collect()
    assert {(row["newer"], row["older"]): row["steps"] for row in found} == breadth_first()
    assert len(found) == len(breadth_first())


def test_the_latest_version_is_the_end_of_the_chain(ancestry: DataFrame, held: DataFrame) -> None:
    found = rdss.latest_versions(held, ancestry).collect()
    assert sorted((row["objectUUID"], row["latest"], row["steps"]) for row in found if row["latest"]) == [
        ("1", "6", 1),
        ("3", "6", 3),
        ("4", "6", 2),
        ("a", "c", 2),
        ("a", "d", 2),
        ("d", "d", 0),
        ("e", "e", 0),
        ("z", "y", 2),
    ]
    assert [tuple(row) for row in found if row["latest"] is None] == [("s", None, None)]


def test_missed_is_what_stands_before_or_after_what_is_held(ancestry: DataFrame, held: DataFrame) -> None:
    found = {row[0]: (row[1], row[2]) for row in rdss.missed_versions(held, ancestry).collect()}
    assert found == {
        "2": (["1"], ["3", "4"]),
        "5": (["1", "3", "4"], []),
        "6": (["1", "3", "4"], []),
        "b": (["a"], ["d"]),
        "c": (["a"], []),
        "x": (["z"], ["z"]),
        "y": (["z"], []),
    }


def test_a_cycle_is_found_once(ancestry: DataFrame) -> None:
    found = rdss.find_version_cycles(ancestry).collect()
    assert sorted(row["versions"] for row in found) == [["s"], ["x", "z"]]


def test_without_links_there_is_no_ancestry(spark: SparkSession) -> None:
    none = spark.createDataFrame([], "newer string, older string")
    assert rdss.version_ancestry(none).collect() == []
