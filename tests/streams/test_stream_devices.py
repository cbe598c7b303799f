"""Zones, subscriptions that change over time, what each device is told, and changes for the spine."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from cdckit import as_of, merge, streams
from cdckit.errors import InvalidArgument, WrongColumnType
from cdckit.model.records import RECORD_SCHEMA
from cdckit.streams.entity_changes import CONVERT

AT = datetime(2024, 1, 1, tzinfo=UTC)
SUBSCRIPTIONS = "$zoneSubscription"


def add(path: str, value: Any) -> dict[str, Any]:
    return {"op": "add", "path": path, "value": value}


REMOVE = {"op": "remove", "path": "/"}


def subscribe(device: str, zone: str, **wants: bool) -> dict[str, Any]:
    return add("/", {"device": device, "zone": zone, **wants})


SENT: list[tuple[int, str, str, str, dict[str, Any]]] = [
    # second, collection, zone, entity, operation
    (0, "Contacts", "A", "c0", add("name", "before any subscription")),
    (1, SUBSCRIPTIONS, "own", "s1", subscribe("device1", "A", creates=True, deletes=True)),
    (1, SUBSCRIPTIONS, "own", "s2", subscribe("device2", "A", creates=True, deletes=True, updates=True)),
    (2, "Contacts", "A", "c1", add("name", "Sally")),
    (3, "Contacts", "A", "c1", add("name", "Sal")),
    (4, "Contacts", "B", "c2", add("name", "elsewhere")),
    (5, SUBSCRIPTIONS, "own", "s1", add("zone", "B")),  # device1 moves to zone B
    (6, "Contacts", "B", "c2", REMOVE),
    (7, "Contacts", "A", "c1", REMOVE),
    (8, SUBSCRIPTIONS, "own", "s2", REMOVE),
    (9, "Contacts", "A", "c3", add("name", "too late")),
    (
        10,
        SUBSCRIPTIONS,
        "own",
        "s2",
        add("/", {"device": "device2", "zone": "A", "collection": "Other", "creates": True}),
    ),
    (11, "Contacts", "A", "c4", add("name", "another collection")),
    (12, "Other", "A", "o1", add("name", "this collection")),
    (13, SUBSCRIPTIONS, "own", "s3", add("/", {"device": "device2", "zone": "A", "creates": True})),
    (14, "Other", "A", "o2", add("name", "two subscriptions, one device")),
]


@pytest.fixture(scope="module")
def answers(spark: SparkSession) -> DataFrame:
    rows = []
    for place, (second, collection, zone, entity, op) in enumerate(SENT):
        said = {"db": "d", "clientid": "c", "request": place, "user": "u", "begun": 0, "part": 1, "parts": 1}
        message = {**said, "collection": collection, "zone": zone, "entity": entity, "ops": [op]}
        rows.append(
            (None, json.dumps(message).encode(), "t", 0, place, AT + timedelta(seconds=second), 0, None)
        )
    patches = streams.decode(spark.createDataFrame(rows, RECORD_SCHEMA), streams.ENTITY_PATCHES)
    return streams.apply_patches(patches).cache()  # nobody asked for `after`


def test_devices_are_told_what_they_had_subscribed_to_at_the_time(
    spark: SparkSession, answers: DataFrame
) -> None:
    zones = streams.zone_changes(answers).localCheckpoint()
    subjects = {(row.entity, row.offset): row.subject_zone for row in zones.collect()}
    assert (subjects["s1", 1], subjects["s1", 6], subjects["s2", 9], subjects["c2", 5]) == (
        "A",
        "B",
        "A",
        "B",
    )

    stated = streams.subscription_changes(zones)
    history = merge(stated, entity="subscription", keys=["db", "subscription"]).localCheckpoint()
    told = streams.changes_by_device(zones, history).localCheckpoint()
    found = sorted((row.ended // 1000 % 60, row.device, row.action, row.entity) for row in told.collect())
    assert found == [
        (2, "device1", "created", "c1"),
        (2, "device2", "created", "c1"),
        (3, "device2", "updated", "c1"),
        (6, "device1", "deleted", "c2"),
        (7, "device2", "deleted", "c1"),
        (12, "device2", "created", "o1"),
        (14, "device2", "created", "o2"),
    ]
    notifications = {row.notification for row in told.collect()}
    assert len(notifications) == 7
    assert {row.notification for row in streams.changes_by_device(zones, history).collect()} == notifications

    said = [
        {"db": "d", "clientid": "c", "user": user, "device": device, "appVersion": version, "begun": begun}
        for user, device, version, begun in (
            ("ann", "device1", "1", 5),
            ("ben", "device1", "2", 9),
            ("ann", "device3", "2", 7),
        )
    ]
    rows = [(None, json.dumps(each).encode(), "t", 0, place, AT, 0, None) for place, each in enumerate(said)]
    connections = streams.decode(spark.createDataFrame(rows, RECORD_SCHEMA), streams.CONNECTIONS)
    used = streams.app_versions(connections).orderBy("app_version").collect()
    assert [(row.app_version, row.users, row.devices, row.connections) for row in used] == [
        ("1", 1, 1, 1),
        ("2", 2, 2, 2),
    ]
    seen = told.where("device = 'device1' OR entity <> 'o2' AND action <> 'deleted'").select(
        "device", "notification"
    )
    left = streams.device_notifications(told, streams.user_devices(connections), seen)
    at = int(AT.timestamp()) * 1000
    assert [tuple(row) for row in left.orderBy("device").collect()] == [
        ("d", "ben", "device1", 0, at + 6000, at + 6000),  # all is acknowledged: it has to be told that
        ("d", None, "device2", 2, at + 7000, at + 14000),
    ]


FIELDS = T.StructType([T.StructField("name", T.StringType())])


def test_changes_carry_what_patches_touch_and_merge_to_the_entities(spark: SparkSession) -> None:
    ops = [
        [add("/", {"name": "Sally", "age": 1, "phone": {"home": "1", "cell": "2"}, "tags": ["x"]})],
        [{"op": "inc", "path": "age", "value": 1}, {"op": "test", "path": "name", "value": "Sally"}],
        [{"op": "move", "fromPath": "phone/home", "toPath": "phone/work"}],
        [{"op": "add", "path": "tags/-", "value": "y"}],
        [{"op": "remove", "path": "phone"}],
        [{"op": "replace", "path": "age", "value": "old"}],
        [REMOVE],
    ]
    rows = []
    for place, each in enumerate(ops):
        said = {"db": "d", "clientid": "c", "request": place, "user": "u", "begun": 0, "part": 1, "parts": 1}
        message = {**said, "collection": "C", "zone": "z", "entity": "e", "ops": each}
        rows.append(
            (None, json.dumps(message).encode(), "t", 0, place, AT + timedelta(seconds=place), 0, None)
        )
    patches = streams.decode(spark.createDataFrame(rows, RECORD_SCHEMA), streams.ENTITY_PATCHES)
    answers = streams.apply_patches(patches, documents=True).localCheckpoint()

    types = {"name": T.StringType(), "age": T.LongType(), "tags": T.StringType()}
    phones = {f"phone.{name}": T.StringType() for name in ("home", "cell", "work")}
    fields = T.StructType([T.StructField(name, kind) for name, kind in {**types, **phones}.items()])
    told = streams.changes(answers, "C", fields).orderBy("effective_timestamp").collect()
    all_of = ["name", "age", "tags", "phone.home", "phone.cell", "phone.work"]
    touched = [[name for name in all_of if row.carried[name]] for row in told]
    assert touched == [all_of, ["age"], ["phone.home", "phone.work"], ["tags"], all_of[3:], []]
    assert [(row.operation, row.data["phone.work"], row.data["tags"]) for row in told] == [
        ("upsert", None, '["x"]'),
        ("upsert", None, None),
        ("upsert", "1", None),
        ("upsert", None, '["x","y"]'),
        ("upsert", None, None),
        ("delete", None, None),
    ]
    unfit = streams.find_unfit(answers, "C", fields).collect()
    assert [(row.offset, row.error_code, row.error_description.split(". ")[1]) for row in unfit] == [
        (5, "UNFIT_VALUE", "age is 'old'.")
    ]
    whole = T.StructType([T.StructField("phone", T.StringType())])
    stated = streams.changes(answers, "C", whole, nested="whole")
    history = merge(stated, entity="contact", keys=list(streams.KEYS))
    [then] = as_of(history, AT + timedelta(seconds=3)).collect()
    assert json.loads(then.phone) == {"cell": "2", "work": "1"}
    assert as_of(history, AT + timedelta(seconds=6)).count() == 0


def test_updates_of_others_say_what_became_of_the_entity_and_fields_may_have_dots(
    spark: SparkSession,
) -> None:
    anew: list[dict[str, Any]] = [REMOVE, add("x", 1)]
    dots = {"a.b": 1, "x": {"a.b": 2}}
    said: list[tuple[list[dict[str, Any]], Any]] = [
        (anew, None),  # made anew: what it is now nobody said
        ([*anew, REMOVE], None),
        ([REMOVE, {"op": "copy", "fromPath": "x", "toPath": "y"}], None),  # there is nothing to copy
        ([add("a.b", 1)], dots),
        ([add("x/a.b", 2)], dots),
        ([add("a/b", 3)], {**dots, "a": {"b": 3}}),  # which of the two is a.b?
        (anew, {"x": 1}),
    ]
    header = {"db": "d", "clientid": "c", "user": "u", "begun": 0, "ended": 1, "part": 1, "parts": 1}
    place = {"collection": "C", "zone": "z", "entity": "e", "status": 1}
    rows = [
        (None, json.dumps(each).encode(), "t", 0, number, AT, 0, None)
        for number, (ops, after) in enumerate(said)
        for each in [{**header, **place, "request": number, "ops": ops, "after": after}]
    ]
    updates = streams.decode(
        spark.createDataFrame(rows, RECORD_SCHEMA), streams.ENTITY_UPDATES
    ).localCheckpoint()
    fields = T.StructType([T.StructField(name, T.LongType()) for name in ("a.b", "x.a.b")])
    told = streams.changes(updates, "C", fields).orderBy("arrival.offset").collect()
    assert [(row.arrival.offset, row.operation, row.data["a.b"], row.data["x.a.b"]) for row in told] == [
        *((1, "delete", None, None), (2, "delete", None, None)),
        *((3, "upsert", 1, None), (4, "upsert", None, 2), (6, "upsert", None, None)),
    ]
    assert [list(row.carried)[-2:] for row in told[2:]] == [[True, False], [False, True], [True, True]]
    unfit = streams.find_unfit(updates, "C", fields).orderBy("offset").collect()
    assert [(row.offset, row.error_code) for row in unfit] == [(0, "NO_DOCUMENT"), (5, "UNFIT_VALUE")]
    assert "a.b is there twice" in unfit[1].error_description


def test_the_device_that_is_told_is_the_key_of_the_record(spark: SparkSession) -> None:
    """Its message does not have it: "it is included as the key for the message"."""
    told = {"db": "d", "collection": "C", "zone": "z", "entity": "e", "action": "created", "ended": 7}
    text = json.dumps({**told, "notification": "n"}).encode()
    keys = [b"device/1", None, b"\xff"]
    rows = [(key, text, "t", 0, offset, AT, 0, None) for offset, key in enumerate(keys)]
    decoded = streams.decode(spark.createDataFrame(rows, RECORD_SCHEMA), streams.CHANGES_BY_DEVICE)
    found = decoded.orderBy("offset").select("device", "error_code", "error_description").collect()
    assert [(row.device, row.error_code) for row in found] == [
        ("device/1", None),
        (None, "MISSING_FIELD"),
        (None, "WRONG_TYPE"),
    ]
    assert found[1].error_description.endswith("Missing: device, the key of the record.")
    [again] = streams.to_records(decoded.where("offset = 0"), streams.CHANGES_BY_DEVICE).collect()
    assert (bytes(again.key), json.loads(again.value)) == (b"device/1", json.loads(text))


def test_numbers_at_the_ends_of_their_types() -> None:
    for kind, lowest in ((T.IntegerType, -(2**31)), (T.LongType, -(2**63))):
        assert [CONVERT[kind](each) for each in (lowest, ~lowest)] == [lowest, ~lowest]
        for beyond in (lowest - 1, -lowest):
            with pytest.raises(TypeError):
                CONVERT[kind](beyond)
    assert CONVERT[T.DoubleType](Decimal("1e308")) == 1e308
    for far in (Decimal("1e309"), Decimal("-1e309"), 10**309):
        with pytest.raises(OverflowError):  # no infinity instead of what was sent
            CONVERT[T.DoubleType](far)


def test_fields_that_cannot_be_are_said_when_called(answers: DataFrame) -> None:
    with pytest.raises(InvalidArgument, match="none of db, zone, entity"):
        streams.changes(answers, "C", T.StructType([T.StructField("Zone", T.StringType())]))
    with pytest.raises(WrongColumnType, match="double or timestamp"):
        streams.changes(answers, "C", T.StructType([T.StructField("a", T.DateType())]))
    with pytest.raises(InvalidArgument, match="'dotted' or 'whole'"):
        streams.changes(answers, "C", FIELDS, nested="flat")  # type: ignore[arg-type]
