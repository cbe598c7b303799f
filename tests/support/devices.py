"""What devices subscribe to and what becomes of contacts, second by second."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from cdckit import streams
from cdckit.model.records import RECORD_SCHEMA

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


def answers_of_devices(spark: SparkSession) -> DataFrame:
    rows = []
    for place, (second, collection, zone, entity, op) in enumerate(SENT):
        said = {"db": "d", "clientid": "c", "request": place, "user": "u", "begun": 0, "part": 1, "parts": 1}
        message = {**said, "collection": collection, "zone": zone, "entity": entity, "ops": [op]}
        rows.append(
            (None, json.dumps(message).encode(), "t", 0, place, AT + timedelta(seconds=second), 0, None)
        )
    patches = streams.decode(spark.createDataFrame(rows, RECORD_SCHEMA), streams.ENTITY_PATCHES)
    return streams.apply_patches(patches).cache()  # nobody asked for `after`
