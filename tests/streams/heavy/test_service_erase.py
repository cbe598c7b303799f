"""
`Service.erase`: what patches said of an entity goes, wherever it is; their requests stay as they were.

In `make test`:
tests/test_doors.py::test_who_was_erased_is_gone_and_does_not_come_again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdckit import streams
from cdckit.ledger import UnfinishedErasure, UnknownEntities
from cdckit.shell import shell
from cdckit.shell.record_places import SharedRecords
from cdckit.store import erasure as store_erasure
from support.dying import Died, dies_at
from support.remains import find_remains
from support.stream_programs import AT, Record, drawn_log, to_records, told
from tools.tiers import seeds

WHO = {"by": "dana", "reason": "asked for by letter"}
SEEN = "device string, notification string"
HEADER = {"db": "d", "clientid": "c", "user": "u", "begun": 1}
ADA = {"db": "d", "collection": "People", "zone": "london", "entity": "ada.lovelace"}
SUBSCRIPTION = {"db": "d", "collection": "$zoneSubscription", "zone": "own", "entity": "adas.telegraph"}
BOB = {**ADA, "entity": "bob"}
TRACES: dict[str, list[str | int | float]] = {
    "ada": ["ada.lovelace", "adas secret", "adas_field", 7_190_041_700],
    "subscription": ["adas.telegraph"],
}
HERS = {(entity["collection"], entity["zone"], entity["entity"]) for entity in (ADA, SUBSCRIPTION)}
SECRET = [
    {"op": "add", "path": "adas_field", "value": "adas secret"},
    {"op": "add", "path": "number", "value": 7_190_041_700},
]


def set_name(value: str) -> list[dict[str, str]]:
    return [{"op": "add", "path": "name", "value": value}]


def part_of(
    request: int, ops: list[Any], who: dict[str, str], part: int = 1, parts: int = 1
) -> dict[str, Any]:
    return {**HEADER, **who, "request": request, "part": part, "parts": parts, "ops": ops}


def batch_of(request: int, *patches: tuple[list[Any], dict[str, str]], **more: Any) -> dict[str, Any]:
    listed = [{**who, "ops": ops} for ops, who in patches]
    return {**HEADER, "request": request, "includeAfter": True, **more, "patches": listed}


def log_of(*messages: dict[str, Any] | bytes, start: int = 0) -> list[Record]:
    records = []
    for at, message in enumerate(messages, start):
        topic = "entity-batches" if isinstance(message, dict) and "patches" in message else "entity-patches"
        value = message if isinstance(message, bytes) else json.dumps(message).encode()
        key = value if isinstance(message, bytes) else json.dumps([message.get("entity")]).encode()
        records.append((key, value, topic, 0, at, AT + timedelta(seconds=at), 0, None))
    return records


def test_an_entity_goes_and_its_requests_stay(spark: SparkSession, tmp_path: Path) -> None:
    """And does not come back: sent again, sent anew, made anew; who shares a request with it keeps all."""
    service = streams.Service(spark, tmp_path)
    wish = [{"op": "add", "path": "/", "value": {"device": "phone", "zone": "london", "updates": True}}]
    first = [
        part_of(1, wish, {**SUBSCRIPTION, "entity": "everybodys"}),
        batch_of(2, (SECRET, ADA), (set_name("bob"), BOB), learning=True),
        part_of(3, SECRET, ADA, part=1, parts=2),
        part_of(4, set_name("bobby"), BOB),
        part_of(5, set_name("adas secret"), ADA),
        {**part_of(6, SECRET, ADA), "begun": "adas secret"},
        b"no message",
    ]
    log = log_of(*first)
    service.receive(to_records(spark, log), "first")
    told_of = service.messages(streams.CHANGES_BY_DEVICE).select("device", "notification")
    assert told_of.count() == 3
    service.acknowledge(told_of.localCheckpoint())
    bob = service.messages(streams.ENTITY_UPDATES).where("entity = 'bob'").collect()
    assert {"records", "answers", "states", "commits"} < {
        path.split("/")[0].split("-")[0] for path in find_remains(tmp_path, TRACES)
    }
    receipt = service.erase("entity", keys=[ADA], **WHO)

    def check() -> None:
        assert find_remains(tmp_path, TRACES) == {}
        assert service.messages(streams.ENTITY_UPDATES).where("entity = 'bob'").collect() == bob
        documents = {row.entity: row.document for row in service.entities().collect()}
        assert set(documents) == {"bob", "everybodys"}
        assert documents["bob"] == '{"name":"bobby"}'
        [whole] = service.messages(streams.COMPLETE_RESPONSES).where("request = 2").collect()
        hers, his = map(json.loads, whole.responses)
        assert (hers["part"], hers["status"], hers["error"]) == (
            *(1, 3),
            "the patch spoke of an entity that was erased",
        )
        assert (his["entity"], his["status"], his["after"]) == ("bob", 1, {"name": "bob"})
        assert json.loads(whole.message)["responses"] == [hers, his]
        [waits] = service.waiting().collect()
        assert (waits.request, waits.part, waits.entity, waits.ops) == (3, 1, None, None)
        types = {row.collection: row.entity_type for row in service.entity_types().collect()}
        name = '{"name":{"type":"STRING","optional":false}}'
        assert types == {"People": f'{{"People":{{"fields":{name}}}}}'}
        # Rejects are noted each time that they come.
        assert {bytes(row.value) for row in service.rejects().collect()} == {b"no message"}

    check()
    assert service.store.snapshot().read("acknowledged").count() == 1
    assert receipt.is_proven
    assert {part.table: part.erased for part in receipt.parts} == {
        "records": 4,
        "answers": 3,
        "acknowledged": 2,
        "responses": 2,
        "learned types": 2,
    }
    service.rebuild()
    # The same again, and what is new of her, is refused.
    service.receive(to_records(spark, [*log, *log_of(part_of(7, SECRET, ADA), start=99)]), "again")
    check()
    [answer] = service.messages(streams.PARTIAL_RESPONSES).where("request = 7").collect()
    assert (answer.status, answer.entity, answer.ops) == (3, None, None)
    assert [(row.offset, row.record_number) for row in service.refused().orderBy("offset").collect()] == [
        *((1, 1), (2, 1), (4, 1), (5, 1), (99, 1)),
    ]
    assert [row.erased_by for row in service.erased().collect()] == ["dana"]
    service.store.check(deep=True)


@pytest.mark.soak
def test_entities_by_what_they_were_and_those_that_are_gone(spark: SparkSession, tmp_path: Path) -> None:
    service = streams.Service(spark, tmp_path)
    remove = [{"op": "remove", "path": "/"}]
    twin = {**SUBSCRIPTION, "collection": "$zoneSubscriptions"}
    people = [{**ADA, "entity": name} for name in ("ada", "bob", "cid")]
    sent = [
        *(part_of(1, set_name("ada"), people[0]), part_of(2, set_name("else"), people[0])),
        *(part_of(3, set_name("bob"), people[1]), part_of(4, remove, people[1])),
        part_of(5, set_name("cid"), people[2]),
        *(part_of(6, set_name("s"), SUBSCRIPTION), part_of(7, set_name("s"), twin)),
    ]
    service.receive(to_records(spark, log_of(*sent)))

    def there() -> list[str]:
        return sorted(row.entity for row in service.entities().collect())

    with pytest.raises(UnknownEntities, match="of 1 of the 2"):
        service.erase("entity", keys=[ADA, people[0]], **WHO)
    with pytest.raises(SharedRecords, match="1 of the records speak of others"):
        service.erase("entity", keys=[SUBSCRIPTION], **WHO)
    assert service.erase("entity", where="document like '%\"ada\"%'", later="erase", **WHO).entities == 1
    assert there() == ["adas.telegraph", "adas.telegraph", "cid"]
    year = timedelta(days=365)
    assert service.erase("entity", keep=year, at=AT + year, **WHO).entities == 0
    assert service.erase("entity", keep=year, at=AT + 2 * year, **WHO).entities == 1
    assert service.erase("entity", keys=[SUBSCRIPTION, twin], **WHO).entities == 2
    assert there() == ["cid"]
    assert service.subscriptions().isEmpty()
    service.receive(to_records(spark, log_of(*sent)))
    # Of what is erased again in silence, nothing is noted.
    assert {row.offset for row in service.refused().collect()} == {2, 3, 5, 6}
    assert there() == ["cid"]
    assert service.subscriptions().isEmpty()


# Random programs --------------------------------------------------------------------------------------------


def personal_log(seed: int, many: int) -> list[Record]:
    """A random log in which one entity, and one subscription, have names and words that nobody else has."""
    return [_with_value(record, _make_personal(record)) for record in drawn_log(seed, many)]


def _make_personal(record: Record) -> bytes:
    try:
        message = json.loads(record[1])
    except ValueError:
        return bytes(record[1])
    for patch in message.get("patches", [message]) if isinstance(message, dict) else []:
        if patch.get("entity") == "e1" and patch["collection"] == "C":
            patch.update({**ADA, "ops": [*patch["ops"], *SECRET]})
        elif patch.get("entity") == "s1":
            patch.update(SUBSCRIPTION)
    return json.dumps(message).encode()


def without_her(log: Iterable[Record]) -> list[Record]:
    """The log as if nobody had ever spoken of her."""
    records = []
    for record in log:
        message = json.loads(record[1]) if record[1].startswith(b"{") else {}
        if "patches" in message:
            message["patches"] = [patch for patch in message["patches"] if not _is_hers(patch)]
            records.append(_with_value(record, json.dumps(message).encode()))
        elif not _is_hers(message):
            records.append(record)
    return records


def _is_hers(patch: dict[str, Any]) -> bool:
    return tuple(patch.get(name) for name in ("collection", "zone", "entity")) in HERS


def _with_value(record: Record, value: bytes) -> Record:
    return (record[0], value, *record[2:])


def of_others(service: streams.Service) -> dict[str, list[str]]:
    """What a service says of everybody else, and of all requests."""
    named = {
        stream.name: service.messages(stream)
        for stream in (
            *(streams.ENTITY_PATCHES, streams.ENTITY_UPDATES, streams.PARTIAL_RESPONSES),
            *(streams.SCHEMA_LEARNING, streams.ZONE_CHANGES, streams.SCHEMA_UPDATES),
        )
    }
    named |= {"entities": service.entities(), "waiting": service.waiting()}
    answers = {
        name: sorted(
            repr(row.asDict())
            for row in frame.collect()
            if "entity" not in frame.columns or (row.entity is not None and not _is_hers(row.asDict()))
        )
        for name, frame in named.items()
    }
    return answers | {
        "complete": sorted(
            repr((*row[:6], [text for text in row.responses if not _is_masked_or_hers(text)]))
            for row in service.messages(streams.COMPLETE_RESPONSES).collect()
        ),
        "batches": sorted(
            repr((row.request, row.user, [text for text in row.patches if not _is_masked_or_hers(text)]))
            for row in service.messages(streams.ENTITY_BATCHES).collect()
        ),
    }


def _is_masked_or_hers(text: str) -> bool:
    members = json.loads(text)
    return members == "ERASED" or _is_hers(members) or "erased" in str(members.get("error"))


@seeds(1, soak=3)
@pytest.mark.soak
def test_entities_of_random_logs_are_forgotten_whenever_it_is_stopped(
    spark: SparkSession, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests in several batches; it dies at a step, is called again, and all comes once more."""
    draw, log = Random(seed), personal_log(seed, 80)
    service = streams.Service(spark, tmp_path / "one")
    cuts = sorted({0, *draw.choices(range(len(log)), k=2), len(log)})
    for start, stop in pairwise(cuts):
        service.receive(to_records(spark, log[start:stop]))
    service.acknowledge(service.messages(streams.CHANGES_BY_DEVICE).select("device", "notification"))
    before = of_others(service)
    steps: list[tuple[Any, str]] = [
        (shell, "erase_within"),
        (shell, "forget_past"),
        (store_erasure, "forget_versions"),
        (store_erasure.Location, "delete"),
        (shell, "finish"),
    ]
    dies_at(monkeypatch, *draw.choice(steps), 0)
    keys = [ADA, SUBSCRIPTION]
    with pytest.raises((Died, UnfinishedErasure)):
        service.erase("entity", keys=keys, **WHO)
    monkeypatch.undo()
    assert service.erase("entity", keys=keys, **WHO).is_proven
    assert find_remains(tmp_path / "one", TRACES) == {}
    assert of_others(service) == before
    # What is not of one entity is what it would be without her.
    other = streams.Service(spark, tmp_path / "other")
    other.receive(to_records(spark, without_her(log)))
    now, never = told(service), told(other)
    shared = ("entities", "schemas", "entity_types", "learned_types", "subscriptions", "devices")
    for name in shared:
        assert now[name] == never[name], name
    service.rebuild()
    assert told(service) == now
    service.receive(to_records(spark, log))
    assert find_remains(tmp_path / "one", TRACES) == {}
    service.rebuild()
    assert find_remains(tmp_path / "one", TRACES) == {}
    assert told(service)["entities"] == now["entities"]
    service.store.check(deep=True)
