"""
Devices and their subscriptions over time.

In `make test`:
tests/streams/test_stream_devices.py::test_changes_carry_what_patches_touch_and_merge_to_the_entities.
"""

from __future__ import annotations

import json

import pytest
from pyspark.sql import DataFrame, SparkSession

from cdckit import merge, streams
from cdckit.model.records import RECORD_SCHEMA
from support.devices import AT, answers_of_devices


@pytest.fixture(scope="module")
def answers(spark: SparkSession) -> DataFrame:
    return answers_of_devices(spark)


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
    messages = streams.changes_by_device(zones, history).localCheckpoint()
    answers_by_time = sorted(
        (row.ended // 1000 % 60, row.device, row.action, row.entity) for row in messages.collect()
    )
    assert answers_by_time == [
        (2, "device1", "created", "c1"),
        (2, "device2", "created", "c1"),
        (3, "device2", "updated", "c1"),
        (6, "device1", "deleted", "c2"),
        (7, "device2", "deleted", "c1"),
        (12, "device2", "created", "o1"),
        (14, "device2", "created", "o2"),
    ]
    notifications = {row.notification for row in messages.collect()}
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
    seen = messages.where("device = 'device1' OR entity <> 'o2' AND action <> 'deleted'").select(
        "device", "notification"
    )
    left = streams.device_notifications(messages, streams.user_devices(connections), seen)
    at = int(AT.timestamp()) * 1000
    assert [tuple(row) for row in left.orderBy("device").collect()] == [
        ("d", "ben", "device1", 0, at + 6000, at + 6000),  # all is acknowledged: it has to be told that
        ("d", None, "device2", 2, at + 7000, at + 14000),
    ]
