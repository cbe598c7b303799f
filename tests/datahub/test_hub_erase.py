"""`Hub.erase`: records go out of the messages; all others are what they were, or it is refused."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from cdckit.datahub import Hub, schema
from cdckit.datahub.erased_records import mask_records
from cdckit.errors import InvalidArgument
from cdckit.ledger import Receipt
from support.hub_programs import rows_of
from support.remains import find_remains


@pytest.mark.parametrize(
    ("data", "paths", "expected"),
    [
        ('[{"a": 1.10},{"a":2}]', [("2", 0)], '[{"a": 1.10},{"cdckit.erased": 0}]'),
        (' {"a": 1} ', [("1", 3)], '{"cdckit.erased": 3}'),
        ('[{"x": [1, {"k": "]"}, 3]}]', [("1/x/2", 1)], '[{"x": [1, {"cdckit.erased": 1}, 3]}]'),
        # What is inside a record that goes, goes with it.
        ('[{"x": [{}]}, "y"]', [("1/x/1", 0), ("1", 1)], '[{"cdckit.erased": 1}, "y"]'),
        ('{"x": [[], {"y": [2]}]}', [("1/x/2/y/1", 0)], '{"x": [[], {"y": [{"cdckit.erased": 0}]}]}'),
    ],
)
def test_a_record_is_cut_out_of_the_text_and_nothing_else(
    data: str, paths: list[tuple[str, int]], expected: str
) -> None:
    assert mask_records(data, paths) == expected


@pytest.mark.parametrize(
    ("data", "path"),
    [
        *(("[{}]", "2"), ("{}", "2"), ("[{}]", "1/x/1"), ('[{"x": {}}]', "1/x/1"), ('"a,b"', "1")),
        # Of a name that comes twice, the first one would be left.
        ('[{"x": [{"a": 1}], "x": [{"a": 2}]}]', "1/x/1"),
    ],
)
def test_what_does_not_stand_there_is_not_cut_out(data: str, path: str) -> None:
    with pytest.raises(ValueError, match=r"there is nothing at|is missing|comes twice|no JSON"):
        mask_records(data, [(path, 0)])


# One hub that forgets a customer --------------------------------------------------------------------------

AT = datetime(2024, 1, 1, 9, tzinfo=UTC)
ADA = 71_900_417
CUSTOMER = {
    "reference": "customer",
    "fields": [{"reference": "c", "type": "integer", "key": True}, {"reference": "name"}],
}


class Erased(NamedTuple):
    """A hub that forgot one of three customers, then a fourth: what was left of her, and whom it knew."""

    receipt: Receipt
    remains: dict[str, Any]
    customers: list[set[int]]
    refused: list[tuple[int, str]]


@pytest.fixture(scope="module")
def erased(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Erased:
    place = tmp_path_factory.mktemp("erased")
    hub = Hub(spark, schema({"reference": "*", "mappings": {"customer": [CUSTOMER]}}), place)
    ada = {"c": ADA, "name": "ada lovelace"}
    first = {"entity": "customer", "guid": "m1", "data": [{"c": 1, "name": "bob"}, ada, {"c": 3}]}

    def receive(*messages: dict[str, Any]) -> set[int]:
        hub.receive(list(messages), received_at=AT)
        hub.run(now=AT)
        return {row["c"] for row in rows_of(hub.history("customer"))}

    customers = [receive(first)]
    receipt = hub.erase("customer", keys=[{"c": ADA}], by="dana", reason="asked for by letter")
    remains = find_remains(place, {"ada": ["ada lovelace", ADA]})
    customers += [receive(first), receive({"entity": "customer", "guid": "m2", "data": [ada, {"c": 6}]})]
    refused = hub.ledgers()["customer"].refused().collect()
    # Nothing is left of its message, so that nothing that is read anew speaks of customers.
    hub.erase("customer", keys=[{"c": 6}], by="dana", reason="asked for by letter")
    customers.append({row["c"] for row in rows_of(hub.history("customer"))})
    return Erased(receipt, remains, customers, [(row["record_number"], row["error_code"]) for row in refused])


def test_nothing_of_an_erased_entity_remains(erased: Erased) -> None:
    assert erased.receipt.is_proven
    parts = {part.table: part.erased for part in erased.receipt.parts}
    assert parts == {"messages": 1, "history.customer": 1}
    assert erased.remains == {}


def test_who_was_erased_is_refused_when_it_comes_again(erased: Erased) -> None:
    """By the message that spoke of her before, and by another; those beside her stay and come."""
    assert erased.customers[:3] == [{1, ADA, 3}, {1, 3}, {1, 3, 6}]
    assert erased.refused == [(1, "ENTITY_ERASED")]


def test_who_is_alone_in_a_message_goes_with_all_that_it_says(erased: Erased) -> None:
    assert erased.customers[3] == {1, 3}


def test_a_target_with_several_keys_is_there_and_cannot_be_erased_from(
    spark: SparkSession, tmp_path: Path
) -> None:
    """`ledgers` names it, so the error must not say that there is none."""
    weak = {"reference": "w", "fields": [{"reference": "a", "key": "one"}, {"reference": "b", "key": "two"}]}
    hub = Hub(spark, schema({"reference": "*", "mappings": {"w": [weak]}}), tmp_path)
    hub.receive([{"entity": "w", "data": [{"a": "x", "b": "y"}]}], received_at=AT)
    hub.run(now=AT)
    assert set(hub.ledgers()) == {"w"}
    with pytest.raises(InvalidArgument, match=r"can be erased: none is; .* its entities have several keys"):
        hub.erase("w", keys=[{"a": "x"}], by="dana", reason="asked for")
