"""Messages about objects, and what becomes of them: the cases of `objects.json`, in two exchanges."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from cdckit.model.records import RECORD_SCHEMA
from cdckit.rdss import Exchange
from support.rdss_messages import as_bytes, changed, message, read_cases

CASES = read_cases("objects")
GROUPS = ("repository", "preservation")
NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)

Place = tuple[int, int]
"""A message: the number of its case, and its own there."""


def uuid(case: int, number: int) -> str:
    return f"{case:04x}{number:04x}-0000-4000-8000-00000000abcd"


def value_of(case: int, number: int, said: dict[str, Any]) -> bytes:
    own = 1000 + said.get("again", number)
    changes = [
        changed("/messageHeader/messageId", uuid(case, own)),
        changed("/messageHeader/messageTimings", {"publishedTimestamp": f"2024-03-01T{said['at']}:00Z"}),
        changed("/messageBody/objectUUID", uuid(case, said["object"])),
        *said.get("changes", []),
    ]
    if "title" in said:
        changes.append(changed("/messageBody/objectTitle", said["title"]))
    if "type" in said:
        changes.append(changed("/messageHeader/messageType", said["type"]))
    if "version_of" in said:
        other = {"identifierType": "URN", "identifierValue": uuid(case, said["version_of"])}
        relation = {"relationType": "isNewVersionOf", "identifier": other}
        changes.append(changed("/messageBody/objectRelatedIdentifier", [relation]))
    return as_bytes(message(said["message"], *changes))


def became(exchange: Exchange) -> dict[Place, str]:
    """The code or the outcome of each message."""
    rows = exchange.messages().select("partition", "offset", "outcome", "error_code").collect()
    return {(row["partition"], row["offset"]): row["error_code"] or row["outcome"] for row in rows}


class Seen(NamedTuple):
    """What an exchange made of all cases of a group: of each message after each batch, of the objects; and
    what it says of rejects."""

    after: list[dict[Place, str]]
    versions: dict[str, list[dict[str, Any]]]
    sentences: dict[Place, str]


@pytest.fixture(scope="module")
def seen(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Seen:
    group: str = request.param
    exchange = Exchange(
        spark,
        tmp_path_factory.mktemp(group),
        types=["ResearchObject"],
        keeps_deleted=group == "preservation",
    )
    after = []
    for batch in (1, 2):
        rows = [
            (None, value_of(case, number, said), "t", case, number, NOON, 0, None)
            for case, each in enumerate(CASES[group])
            for number, said in enumerate(each["messages"])
            if said.get("batch", 1) == batch
        ]
        exchange.receive(spark.createDataFrame(rows, RECORD_SCHEMA).coalesce(1))
        after.append(became(exchange))
    versions = defaultdict(list)
    for row in exchange.history().orderBy("valid_from_timestamp").collect():
        versions[row["objectUUID"]].append(row.asDict())
    refused = exchange.rejects().select("partition", "offset", "error_description").collect()
    return Seen(after, versions, {(row[0], row[1]): row[2] for row in refused})


def as_written(row: dict[str, Any], field: str, group: str) -> list[Any]:
    asked = row.get("delete_requested_timestamp")
    last = (asked and f"{asked:%H:%M}") if group == "preservation" else row["deleted_indicator"]
    return [f"{row['valid_from_timestamp']:%H:%M}", row[field], last]


@pytest.mark.parametrize(
    ("seen", "place"),
    [
        # A number alone comes in both groups: pytest would go to and fro between them, and make each anew.
        pytest.param(group, (group, number), id=each["name"])
        for group in GROUPS
        for number, each in enumerate(CASES[group])
    ],
    indirect=["seen"],
    scope="module",  # or the fixture would be made for each of the cases
)
def test_what_becomes_of_messages_about_objects(seen: Seen, place: tuple[str, int]) -> None:
    group, number = place
    case = CASES[group][number]
    for found, name in ((seen.after[1], "became"), (seen.after[0], "before")):
        own = [outcome for (of, _), outcome in sorted(found.items()) if of == number]
        assert own == case.get(name, own)
    field = case.get("field", "objectTitle")
    for thing, expected in case["versions"].items():
        rows = seen.versions[uuid(number, int(thing))]
        assert [as_written(row, field, group) for row in rows] == expected


@pytest.mark.parametrize("seen", ["repository"], indirect=True)
def test_a_message_about_an_unknown_object_says_which(seen: Seen) -> None:
    names = [case["name"] for case in CASES["repository"]]
    case = names.index("a delete of what nobody created, and a read of it")
    assert seen.sentences[case, 0] == (
        f"The object to delete does not exist. At $.messageBody.objectUUID: no object {uuid(case, 1)} was "
        "known when the message was published."
    )
