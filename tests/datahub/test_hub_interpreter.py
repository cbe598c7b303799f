"""The interpreter of the data hub gives what the hand-written cases expect."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from support.hub_interpreter import InterpretedHub, guid_of
from support.hub_programs import FILTERS, READERS, Case, case_files, run_together

Row = dict[str, Any]
FILES = case_files()
EVERY_CASE = [(file, case) for file in FILES for case in file.cases]
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)

THINGS: list[Row] = [
    {
        "reference": "*",
        "mappings": {
            "thing": [
                {
                    "reference": "thing",
                    "fields": [
                        {"reference": "id", "key": True},
                        {"reference": "other", "type": "link", "linkEntity": "thing", "linkKey": "id",
                         "sourceLinkKey": "other_id"},
                    ],
                }
            ]
        },
    }
]  # fmt: skip


def message(offset: int, document: Any, at: datetime = NOON) -> Row:
    return {"document": document, "message_timestamp": at, "topic": "t", "partition": 0, "offset": offset}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_interpreter_gives_the_tables_of_the_cases_together(file: Any) -> None:
    """As the hub will run them: all cases of a file in one world, where the file allows it."""
    for cases in file.runs():
        world = InterpretedHub(file.schema, readers=READERS, filters=FILTERS)
        failed = {name: found for name, found in run_together(world, cases).items() if found}
        assert failed == {}


@pytest.mark.parametrize(
    ("schema", "case"),
    [(file.schema, case) for file, case in EVERY_CASE],
    ids=[f"{case.file}: {case.name}" for _, case in EVERY_CASE],
)
def test_the_interpreter_gives_the_tables_of_the_case(schema: list[Row], case: Case) -> None:
    world = InterpretedHub(schema, readers=READERS, filters=FILTERS)
    assert run_together(world, [case])[case.name] == []


def test_no_two_cases_of_a_file_share_a_name_or_a_message() -> None:
    for file in FILES:
        names = [case.name for case in file.cases]
        assert len(set(names)) == len(names)
        identifiers = [identifier for case in file.cases for identifier in case.identifiers()]
        assert len(set(identifiers)) == len(identifiers)


def test_every_case_names_its_source() -> None:
    assert all(case.source for _, case in EVERY_CASE)


def test_the_guid_of_an_entity_is_that_of_the_merge() -> None:
    """The same text that the merge's guid is made of: see the example of `cdckit.parts.guids.guid`."""
    assert guid_of("product", {"product_number": 1234567}) == "e5d2e9d5-3392-53e3-8df4-cbded0d4a616"
    assert guid_of("product", {"a": None, "product_number": 1234567}) == guid_of(
        "product", {"product_number": 1234567}
    )


def test_a_message_that_was_received_is_not_processed_until_a_run() -> None:
    world = InterpretedHub(THINGS)
    receipts = world.receive([message(0, {"guid": "m1", "entity": "thing", "data": {"id": "a"}})])
    assert receipts == [{"message_identifier": "m1", "status": 0}]
    assert world.statuses == {"m1": 0}
    assert world.history("thing") == []
    world.process(NOON)
    assert world.statuses == {"m1": 10}
    assert [row["id"] for row in world.history("thing")] == ["a"]


def test_a_message_without_a_guid_is_named_by_its_place() -> None:
    """The same place is the same message, another place another one."""
    world = InterpretedHub(THINGS)
    document = {"entity": "thing", "data": {"id": "a"}}
    statuses = [row["status"] for offset in (0, 1, 0) for row in world.receive([message(offset, document)])]
    assert statuses == [0, 0, 5]


def test_a_message_is_given_up_when_it_waited_longer_than_the_maximum() -> None:
    world = InterpretedHub(THINGS, maximum=timedelta(days=2))
    world.receive([message(0, {"guid": "m1", "entity": "thing", "data": {"id": "a", "other_id": "b"}})])
    # It waits since the run that found so, however old it is.
    world.process(NOON + timedelta(days=5))
    world.process(NOON + timedelta(days=7))
    assert world.statuses == {"m1": 1}
    world.process(NOON + timedelta(days=7, seconds=1))
    assert world.statuses == {"m1": 26}


def test_a_circle_over_two_messages_is_tried_when_either_is_due() -> None:
    """
    Each is tried at its own times, and alone would never find the other.

    Not so what could be applied by itself: it waits for its time, and what waits for it with it.
    """
    world = InterpretedHub(THINGS, first_delay=timedelta(seconds=60))

    def run(seconds: int, name: str | None = None, *others: str | None) -> dict[str, int]:
        """Things of one message, each with the other that it links to; then the statuses."""
        data = [{"id": f"{name}{at}", "other_id": other} for at, other in enumerate(others)]
        if name is not None:
            world.receive([message(seconds, {"guid": name, "entity": "thing", "data": data})])
        world.process(NOON + timedelta(seconds=seconds))
        return world.statuses

    assert run(0, "a", "b0", "nobody") == {"a": 1}
    assert run(10, "b", "a0") == {"a": 1, "b": 10}
    assert sorted(row["id"] for row in world.history("thing")) == ["a0", "b0"]
    assert (world.attempts["a"], world.due["a"]) == (2, NOON + timedelta(seconds=130))
    # Three in a circle, of which two have come.
    assert [run(20, "c", "d0")["c"], run(30, "d", "e0")["d"]] == [1, 1]
    assert run(40, "e", "c0") == {"a": 1, "b": 10, "c": 10, "d": 10, "e": 10}
    # What stands alone waits for its time, and so does what comes to wait for it.
    assert [run(50, "f", "g0")["f"], run(55, "g", None)["f"], run(60, "h", "f0")["f"]] == [1, 1, 1]
    assert run(110)["f"] == 10


def test_a_receipt_is_by_arrival_and_not_by_place_in_the_batch() -> None:
    world = InterpretedHub(THINGS)
    early = message(7, {"guid": "m1", "entity": "thing", "data": {"id": "early"}}, NOON)
    late = message(1, {"guid": "m1", "entity": "thing", "data": {"id": "late"}}, NOON + timedelta(1))
    assert [row["status"] for row in world.receive([late, early])] == [0, 5]
    world.process(NOON)
    assert [row["id"] for row in world.history("thing")] == ["early"]
