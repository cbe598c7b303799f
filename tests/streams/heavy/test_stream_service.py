"""
A service: what it answers does not depend on the batches in which messages came.

In `make test`:
tests/streams/test_streams.py::test_responses_wait_for_each_other_in_any_order_and_expire,
tests/test_doors.py::test_what_waited_too_long_is_given_up_once_and_is_a_reject_then.
"""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdckit import streams
from cdckit.errors import InvalidArgument
from support import patch_interpreter
from support.stream_programs import AT, Record, drawn_log, to_records, told
from tools.tiers import seeds


@pytest.mark.soak
@seeds(1, soak=3)
def test_any_batches_give_what_one_gives(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    log = drawn_log(seed, 60)
    requests = ("entity-batches", "entity-patches")
    apart = [
        [record for record in log if record[2] not in requests],
        [record for record in log if record[2] in requests],
    ]
    arranged = {"one": [log], "three": [log[:7], log[7:31], log[31:]], "apart": apart}
    answers = {}
    for name, batches in arranged.items():
        service = streams.Service(spark, tmp_path / name)
        for number, batch in enumerate(batches):
            records = to_records(spark, batch)
            assert service.receive(records, number).records == len(batch)
            if number % 2:
                again = service.receive(records, number)
                assert (again.repeated, again.records) == (True, 0)
        answers[name] = told(service)
    assert {name for name, table in answers["one"].items() if not table} <= {
        "waiting",
        "schemas",
        "changes-by-device",
    }
    assert answers["three"] == answers["one"]
    told_by_one = dict(answers["one"])
    # Of entities and schemas that came apart, what is learnt on the way is another thing.
    answers["one"].pop("learned_types"), answers["apart"].pop("learned_types")
    assert answers["apart"] == answers["one"]
    service.rebuild()
    assert told(service) == told_by_one
    entities = service.entities().collect()
    held = {(row.collection, row.zone, row.entity): json.loads(row.document) for row in entities}
    assert held == interpreted(log)


def interpreted(log: list[Record]) -> dict[tuple[str, ...], Any]:
    """The entities that are there after all requests, by the naive interpreter."""
    seen: set[tuple[Any, ...]] = set()
    known: dict[tuple[str, ...], Any] = {}
    for record in log:
        value, topic = record[1:3]
        if topic not in ("entity-batches", "entity-patches") or len(value) < 3:
            continue  # another stream, or damaged
        request = json.loads(value)
        for number, patch in enumerate(request.get("patches", [request]), 1):
            entity = tuple(patch[name] for name in ("collection", "zone", "entity"))
            name = (entity, request["request"], request.get("part", number))
            if name not in seen:
                seen.add(name)
                known[entity] = patch_interpreter.answered(known.get(entity), patch["ops"])[1]
    return {entity: document for entity, document in known.items() if document is not None}


def request(number: int, *ops: dict[str, Any], part: int = 1, parts: int = 1, **more: Any) -> dict[str, Any]:
    header = {"db": "d", "clientid": "c", "request": number, "user": "u", "begun": 1, "part": part}
    return {**header, "parts": parts, "collection": "C", "zone": "z", "entity": "e", "ops": list(ops), **more}


def test_a_request_waits_for_its_parts_is_given_up_and_heals(spark: SparkSession, tmp_path: Path) -> None:
    service = streams.Service(spark, tmp_path, databases=["d"])
    wish = {"device": "phone", "zone": "z", "creates": True}
    where = {"collection": "$zoneSubscription", "zone": "own", "entity": "s"}
    subscribed = request(4, {"op": "add", "path": "/", "value": wish}, **where)
    first = [request(1, part=2, parts=2), {**request(2), "db": "other"}, request(3), subscribed]
    service.receive(first, "a", stream=streams.ENTITY_PATCHES, received_at=AT)
    assert [(row.part, row.waiting_for) for row in service.waiting().collect()] == [
        (2, "1 of 2 parts, the first of them part 1")
    ]
    assert service.expire(now=AT + timedelta(minutes=59)) == 0
    assert service.expire(now=AT + timedelta(minutes=61)) == 1
    assert service.waiting().isEmpty()
    [given_up] = service.rejects().collect()
    assert (given_up.error_code, given_up.topic, json.loads(given_up.value)["part"]) == (
        "MISSING_PART",
        "partial-responses",
        2,
    )
    created = request(1, {"op": "add", "path": "a", "value": 1}, parts=2)
    refused = service.messages(streams.PARTIAL_RESPONSES).where("request = 2").collect()
    assert [(row.status, row.errors) for row in refused] == [(3, ["the database 'other' is not served here"])]
    service.receive([created], "b", stream=streams.ENTITY_PATCHES, received_at=AT + timedelta(hours=2))
    assert service.rejects().isEmpty()
    whole = service.messages(streams.COMPLETE_RESPONSES, after=1).collect()
    assert [(row.request, row.parts) for row in whole] == [(1, 2)]

    # The phone had subscribed when request 1 created the entity.
    told = service.messages(streams.CHANGES_BY_DEVICE).select("device", "action", "entity", "notification")
    [notification] = told.collect()
    assert notification[:3] == ("phone", "created", "e")
    later = int((AT + timedelta(hours=2)).timestamp()) * 1000
    for count in (1, 0):
        [left] = service.messages(streams.DEVICE_NOTIFICATIONS).collect()
        assert tuple(left) == ("d", None, "phone", count, later, later)
        seen = [("phone", notification[3]), ("phone", notification[3]), ("phone", "unknown")]
        service.acknowledge(
            spark.createDataFrame(seen, "device string, notification string"), f"seen {count}"
        )

    with pytest.raises(InvalidArgument, match="one of connections, entity-batches"):
        service.receive([], stream=streams.ENTITY_UPDATES)
    with pytest.raises(InvalidArgument, match="settings to be those by which the tables were made"):
        streams.Service(spark, tmp_path, remember=5).receive([created], stream=streams.ENTITY_PATCHES)


def test_a_topic_that_is_read_again_from_its_beginning_changes_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    # More patches of an entity than are remembered; and a record of no stream, which is given one later.
    service = streams.Service(spark, tmp_path, remember=1)
    patches = [request(1, {"op": "add", "path": "n", "value": 1})]
    patches += [request(number, {"op": "inc", "path": "n", "value": 1}) for number in (2, 3, 4)]
    used = {"db": "d", "clientid": "c", "user": "u", "device": "phone", "appVersion": "1", "begun": 1}
    said = [*((each, "entity-patches") for each in patches[:3]), (used, "connections"), (patches[3], "other")]
    log = to_records(
        spark,
        [
            (None, json.dumps(each).encode(), topic, 0, place, AT + timedelta(seconds=place), 0, None)
            for place, (each, topic) in enumerate(said)
        ],
    )
    service.receive(log, "old 1")
    once = told(service)
    again = service.receive(log, "new 1")
    assert (again.repeated, again.records, told(service)) == (False, 0, once)
    [entity] = service.entities().collect()
    [device] = service.devices().collect()
    assert (json.loads(entity.document), device.connections) == ({"n": 3}, 1)

    assert service.receive(log.where("topic = 'other'"), stream=streams.ENTITY_PATCHES).records == 1
    # What comes at a place where something else was is no repeat.
    other = F.encode(F.lit(json.dumps({**patches[1], "request": 9})), "utf-8")
    assert service.receive(log.where("offset = 0").withColumn("value", other)).records == 1
    [entity] = service.entities().collect()
    assert json.loads(entity.document) == {"n": 5}
