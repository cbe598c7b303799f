"""Random logs of the streams that a service takes: requests, repeats, what is damaged, what lacks a part."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from cdckit import streams
from cdckit.model.records import RECORD_SCHEMA
from support import patch_interpreter

AT = datetime(2014, 11, 11, tzinfo=UTC)
Record = tuple[Any, ...]

_HEADER = {"db": "d", "clientid": "c", "user": "u", "begun": 1}


def drawn_log(seed: int, many: int) -> list[Record]:
    """Records in the order in which they were written, one of each kind first; two at a time."""
    chance = random.Random(seed)
    log: list[Record] = []
    for place in range(many):
        if place >= len(_KINDS) and chance.random() < 0.06:
            _, value, topic, *_ = chance.choice(log)
        else:
            kinds, weights = zip(*_KINDS, strict=True)
            kind = kinds[place] if place < len(kinds) else chance.choices(kinds, weights)[0]
            topic, said = kind(chance, place)
            value = said if isinstance(said, bytes) else json.dumps(said).encode()
        log.append((None, value, topic, 0, place, AT + timedelta(seconds=place // 2), 0, None))
    # In the order that counts, since batches are cut from it.
    return sorted(log, key=lambda each: (each[5], each[2], each[4]))


def to_records(spark: SparkSession, log: list[Record]) -> DataFrame:
    return spark.createDataFrame(log, RECORD_SCHEMA)


def rows(frame: DataFrame) -> list[str]:
    """The rows of a table in one order, whatever order its columns are in."""
    listed = frame.select(sorted(frame.columns)).toArrow().to_pylist()
    return sorted(repr(each) for each in listed)


def told(service: streams.Service) -> dict[str, list[str]]:
    """All that a service answers."""
    own = (
        "entities",
        "schemas",
        "entity_types",
        "learned_types",
        "subscriptions",
        "devices",
        "waiting",
        "rejects",
    )
    tables = {name: getattr(service, name)() for name in own}
    tables |= {name: service.messages(stream) for name, stream in streams.STREAMS.items()}
    return {name: rows(each) for name, each in tables.items()}


def _batch(chance: random.Random, place: int) -> tuple[str, Any]:
    patches = [_patch(chance) for _ in range(chance.randrange(1, 4))]
    asked = {name: chance.random() < 0.4 for name in ("learning", "includeBefore", "includeAfter")}
    return "entity-batches", {**_HEADER, "request": place, **asked, "patches": patches}


def _patch(chance: random.Random) -> dict[str, Any]:
    where = {"collection": chance.choice("CD"), "zone": chance.choice("AB")}
    return {**where, "entity": f"e{chance.randrange(5)}", "ops": patch_interpreter.drawn_patch(chance)}


def _part(chance: random.Random, place: int) -> tuple[str, Any]:
    part = {"request": 10_000 + chance.randrange(6), "part": chance.randrange(1, 4), "parts": 3}
    return "entity-patches", {**_HEADER, **_patch(chance), **part}


def _subscription(chance: random.Random, place: int) -> tuple[str, Any]:
    entity = {"collection": "$zoneSubscription", "zone": "own", "entity": f"s{chance.randrange(3)}"}
    wants = {name: chance.random() < 0.6 for name in ("creates", "updates", "deletes")}
    value = {"device": f"device{chance.randrange(2)}", "zone": chance.choice("AB"), **wants}
    op = {"op": "remove", "path": "/"} if chance.random() < 0.2 else _add("/", value)
    return "entity-patches", {**_HEADER, **entity, "request": place, "part": 1, "parts": 1, "ops": [op]}


def _schema(chance: random.Random, place: int) -> tuple[str, Any]:
    name = chance.choice("CDE")
    field = {"type": chance.choice(["STRING", "LONG"]), "optional": chance.random() < 0.5}
    op = _add(f"{name}/fields/{chance.choice('abc')}", field)
    if place >= len(_KINDS) and chance.random() < 0.3:
        op = {"op": "remove", "path": name}
    return "schema-patches", {**_HEADER, "request": place, "part": 1, "parts": 1, "ops": [op]}


def _connection(chance: random.Random, place: int) -> tuple[str, Any]:
    device = {"device": f"device{chance.randrange(3)}", "appVersion": chance.choice("12"), "begun": place}
    return "connections", {**_HEADER, **device, "user": chance.choice(["ann", "ben"])}


def _damaged(chance: random.Random, place: int) -> tuple[str, Any]:
    topic = chance.choice(["entity-batches", "entity-patches", "connections", "unknown", "entity-updates"])
    return topic, chance.choice([b"?", b"{}", b"[]"])


def _add(path: str, value: Any) -> dict[str, Any]:
    return {"op": "add", "path": path, "value": value}


_KINDS = ((_batch, 10), (_part, 3), (_subscription, 3), (_schema, 2), (_connection, 2), (_damaged, 1))
