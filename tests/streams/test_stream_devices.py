"""Zones, subscriptions that change over time, what each device is told, and changes for the spine."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from cdckit import as_of, merge, rejects, streams
from cdckit.errors import InvalidArgument, WrongColumnType
from cdckit.model.records import RECORD_SCHEMA
from cdckit.model.rejected_records import drop_rejects
from support.devices import AT, REMOVE, add, answers_of_devices

FIELDS = T.StructType([T.StructField("name", T.StringType())])


@pytest.fixture(scope="module")
def answers(spark: SparkSession) -> DataFrame:
    return answers_of_devices(spark)


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
    answers = streams.apply_patches(patches).localCheckpoint()

    types = {"name": T.StringType(), "age": T.LongType(), "tags": T.StringType()}
    phones = {f"phone.{name}": T.StringType() for name in ("home", "cell", "work")}
    fields = T.StructType([T.StructField(name, kind) for name, kind in {**types, **phones}.items()])
    made = streams.changes(answers, "C", fields).orderBy("effective_timestamp")
    stated_changes = drop_rejects(made).collect()
    all_of = ["name", "age", "tags", "phone.home", "phone.cell", "phone.work"]
    touched = [[name for name in all_of if row.carried[name]] for row in stated_changes]
    assert touched == [all_of, ["age"], ["phone.home", "phone.work"], ["tags"], all_of[3:], []]
    assert [(row.operation, row.data["phone.work"], row.data["tags"]) for row in stated_changes] == [
        ("upsert", None, '["x"]'),
        ("upsert", None, None),
        ("upsert", "1", None),
        ("upsert", None, '["x","y"]'),
        ("upsert", None, None),
        ("delete", None, None),
    ]
    unfit = rejects(made).collect()
    assert [(row.offset, row.error_code, row.error_description.split(". ")[1]) for row in unfit] == [
        (5, "UNFIT_VALUE", "age is 'old'.")
    ]
    whole = T.StructType([T.StructField("phone", T.StringType())])
    stated = streams.changes(answers, "C", whole, nested="whole")
    history = merge(stated, entity="contact", keys=list(streams.KEYS))
    [then] = as_of(history, AT + timedelta(seconds=3)).collect()
    assert json.loads(then.phone) == {"cell": "2", "work": "1"}
    assert as_of(history, AT + timedelta(seconds=6)).count() == 0


def test_the_device_that_is_told_is_the_key_of_the_record(spark: SparkSession) -> None:
    """Its message does not have it: "it is included as the key for the message"."""
    message = {"db": "d", "collection": "C", "zone": "z", "entity": "e", "action": "created", "ended": 7}
    text = json.dumps({**message, "notification": "n"}).encode()
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


def test_fields_that_cannot_be_are_said_when_called(answers: DataFrame) -> None:
    with pytest.raises(InvalidArgument, match="none of db, zone, entity"):
        streams.changes(answers, "C", T.StructType([T.StructField("Zone", T.StringType())]))
    with pytest.raises(WrongColumnType, match="double or timestamp"):
        streams.changes(answers, "C", T.StructType([T.StructField("a", T.DateType())]))
    with pytest.raises(InvalidArgument, match="'dotted' or 'whole'"):
        streams.changes(answers, "C", FIELDS, nested="flat")  # type: ignore[arg-type]
