"""Changes without a hub: what messages say of one target, links, weak keys, refreshes and lists included."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from cdckit import datahub, rejects
from cdckit.errors import InvalidArgument, MissingColumns
from cdckit.model import drop_rejects
from support.hub_programs import rows_of
from support.jobs import jobs_of

Row = dict[str, Any]
AT = datetime(2024, 1, 1, 9, tzinfo=UTC)
END = 2**31 - 2  # where a message ends, after all its records

CUSTOMER: Row = {
    "reference": "customer", "priority": 2,
    "fields": [{"reference": "c", "key": True}, {"reference": "name"}],
}  # fmt: skip
ORDER: Row = {
    "reference": "order",
    "fields": [
        {"reference": "o", "type": "integer", "key": True},
        {"reference": "customer", "type": "link", "linkEntity": "customer", "linkKey": "c"},
    ],
}
PERSON: Row = {
    "reference": "person",
    "fields": [
        {"reference": "emp", "key": "emp"},
        {"reference": "nino", "key": "nino"},
        {"reference": "name"},
    ],
}
SHOP: Row = {"reference": "*", "mappings": {"customer": [CUSTOMER], "order": [ORDER], "person": [PERSON]}}

MESSAGES: list[Row] = [
    {"guid": "m1", "entity": "customer", "data": [{"c": "c1", "name": "Ada"}, {"name": "nobody"}]},
    {"guid": "m2", "entity": "order", "data": [{"o": 1, "c": "c1"}, {"o": 2, "c": "c9"}]},
    {"guid": "m3", "entity": "person", "data": [{"emp": "7", "nino": "A", "name": "Ann"}]},
    {"guid": "m4", "entity": "person", "data": [{"nino": "A", "name": "Anna"}]},
    {"guid": "m5", "entity": "customer", "refresh": True, "data": [{"c": "c2"}]},
    {"guid": "m4", "entity": "person", "data": [{"nino": "B"}]},  # m4 was received already
]


def guid_of(entity: str, **key: Any) -> str:
    """By Python's own uuid5, of the JSON text that the documentation of `guid` names."""
    text = json.dumps({"entity": entity, "key": key}, separators=(",", ":"))
    return str(uuid.uuid5(uuid.uuid5(uuid.NAMESPACE_DNS, "cdckit"), text))


ADA, EVE = guid_of("customer", c="c1"), guid_of("customer", c="c2")
ANN = guid_of("person", emp="7")

EXPECTED: dict[str, list[Row]] = {
    "customer": [
        {"guid": ADA, "operation": "upsert", "message_id": "m1", "record": 1, "priority": 2,
         "data": {"c": "c1", "name": "Ada"}, "carried": {"c": True, "name": True}},
        {"guid": EVE, "operation": "upsert", "message_id": "m5", "record": 1, "priority": 2,
         "data": {"c": "c2", "name": None}, "carried": {"c": True, "name": False}},
        {"guid": ADA, "operation": "absent", "message_id": "m5", "record": END, "priority": 2,
         "data": {"c": None, "name": None}, "carried": {"c": False, "name": False}},
    ],
    # The other order waits: there is no customer c9.
    "order": [
        {"guid": guid_of("order", o=1), "operation": "upsert", "message_id": "m2", "record": 1, "priority": 0,
         "data": {"o": 1, "customer": ADA}, "carried": {"o": True, "customer": True}},
    ],
    # One person, found by the number first, and by the insurance number then.
    "person": [
        {"guid": ANN, "operation": "upsert", "message_id": "m3", "record": 1, "priority": 0,
         "data": {"emp": "7", "nino": "A", "name": "Ann"},
         "carried": {"emp": True, "nino": True, "name": True}},
        {"guid": ANN, "operation": "upsert", "message_id": "m4", "record": 1, "priority": 0,
         "data": {"emp": None, "nino": "A", "name": "Anna"},
         "carried": {"emp": False, "nino": True, "name": True}},
    ],
}  # fmt: skip


def messages_of(spark: SparkSession) -> DataFrame:
    return datahub.decode(datahub.records(spark, MESSAGES, received_at=AT))


@pytest.fixture(scope="module")
def planned(spark: SparkSession) -> tuple[dict[str, DataFrame], list[int]]:
    """The changes of each target, of which nothing was asked yet; and the jobs that this took."""
    spark.sparkContext.setJobGroup("changes", "no job")
    try:
        messages, shop = messages_of(spark), datahub.schema(SHOP)
        changes = {entity: datahub.changes(messages, shop, entity) for entity in EXPECTED}
        return changes, jobs_of(spark, "changes")
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", "")


@pytest.fixture(scope="module")
def found(planned: tuple[dict[str, DataFrame], list[int]]) -> dict[str, list[Row]]:
    """The changes of each target."""
    return {entity: rows_of(drop_rejects(changes)) for entity, changes in planned[0].items()}


def test_nothing_is_computed_before_it_is_asked_for(planned: tuple[dict[str, DataFrame], list[int]]) -> None:
    assert planned[1] == []


@pytest.mark.parametrize("entity", EXPECTED)
def test_messages_give_the_changes_of_a_target(found: dict[str, list[Row]], entity: str) -> None:
    for row in found[entity]:
        assert (row["source"], row["sequence"], row["effective_timestamp"].date()) == ("*", "", AT.date())
    wanted = EXPECTED[entity]
    shown = [{**row, "record": row["arrival"]["record_number"]} for row in found[entity]]
    assert in_order({name: row[name] for name in wanted[0]} for row in shown) == in_order(wanted)


@pytest.fixture(scope="module")
def hub(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> datahub.Hub:
    """It received the messages, and ran once."""
    ran = datahub.Hub(spark, datahub.schema(SHOP), tmp_path_factory.mktemp("hub"))
    ran.receive(datahub.records(spark, MESSAGES, received_at=AT))
    ran.run(now=AT)
    return ran


def test_changes_are_those_of_a_hub_after_one_run(hub: datahub.Hub, found: dict[str, list[Row]]) -> None:
    for entity, rows in found.items():
        assert in_order(rows_of(hub.changes(entity))) == in_order(rows)


def test_data_that_cannot_be_read_is_a_reject_of_each_target_of_its_source(spark: SparkSession) -> None:
    """Whoever asks for the second target alone is told too; of a source that does not bring it, nobody is."""
    brand: Row = {"reference": "brand", "fields": [{"reference": "b", "key": True}]}
    shop = datahub.schema({"reference": "*", "mappings": {"item": [CUSTOMER, brand], "order": [ORDER]}})
    sent: list[Row] = [{"guid": entity, "entity": entity, "data": "x"} for entity in ("item", "order")]
    messages = datahub.decode(datahub.records(spark, sent, received_at=AT)).localCheckpoint()
    for entity, message in {"customer": "item", "brand": "item", "order": "order"}.items():
        [row] = rejects(datahub.changes(messages, shop, entity)).collect()
        assert (json.loads(row["value"])["guid"], row["error_code"]) == (message, "DATA_INVALID"), entity


def in_order(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=str)


def test_what_cannot_be_asked_is_refused(spark: SparkSession) -> None:
    shop, messages = datahub.schema(SHOP), messages_of(spark)
    odd = datahub.schema({**SHOP, "mappings": {"customer": [{**CUSTOMER, "messageReader": "odd"}]}})
    asked: list[tuple[Callable[[], DataFrame], type[Exception], str]] = [
        (
            lambda: datahub.changes(messages, shop, "nobody"),
            InvalidArgument,
            "one of customer, order, person",
        ),
        (
            lambda: datahub.changes(messages, odd, "customer"),
            InvalidArgument,
            r"readers\['odd'\] to be given for",
        ),
        (lambda: datahub.changes(messages, SHOP, "order"), InvalidArgument, "schema"),  # type: ignore[arg-type]
        (lambda: datahub.changes(messages.drop("data"), shop, "order"), MissingColumns, "data"),
    ]
    for function, error, text in asked:
        with pytest.raises(error, match=text):
            function()
