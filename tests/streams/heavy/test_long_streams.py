"""
Answers of any batches.

In `make test`:
tests/streams/test_streams.py::test_responses_wait_for_each_other_in_any_order_and_expire,
tests/streams/test_stream_patching.py::test_what_is_remembered_does_not_depend_on_where_a_call_ends.
"""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdckit import streams
from cdckit.streams.requests import PATCH_SCHEMA
from support import patch_interpreter

AT = datetime(2014, 11, 11, 23, 4, 46, 229_000, tzinfo=UTC)


def test_answers_do_not_depend_on_how_patches_come_in_batches(spark: SparkSession) -> None:
    """Random programs, with repeats: at once, in three batches with the state between, and interpreted."""
    chance = random.Random(7)
    entities = [f"e{number}" for number in range(12)]
    sent = [
        (chance.choice(entities), request, patch_interpreter.drawn_patch(chance)) for request in range(400)
    ]
    sent += [sent[chance.randrange(400)] for _ in range(20)]
    known: dict[str, Any] = {}
    expected, seen = [], set()
    for entity, request, ops in sent:
        if request in seen:
            expected.append((None, True))
            continue
        seen.add(request)
        status, known[entity] = patch_interpreter.answered(known.get(entity), ops)
        expected.append((status, False))

    header = ("u", 0, 1, 1, False, False, False)
    rows = [
        (
            AT + timedelta(seconds=place),
            "t",
            0,
            place,
            "db",
            "c",
            "z",
            entity,
            "me",
            request,
            *header,
            json.dumps(ops),
            None,
        )
        for place, (entity, request, ops) in enumerate(sent)
    ]
    patches = spark.createDataFrame(rows, _in_order()).select(*PATCH_SCHEMA.fieldNames()).localCheckpoint()
    at_once = streams.apply_patches(patches)
    outcome = [(row.status, row.is_repeat) for row in at_once.orderBy("offset").collect()]
    assert outcome == expected
    # By a column of the caller's, of any name, where record times tell nothing.
    place, nothing = F.col("offset"), F.lit(0).cast("long")
    timeless = {"timestamp": F.lit(AT), "begun": place, "offset": nothing, "at": place, "_group": place}
    named = patches.withColumns(timeless).orderBy(F.rand(3)).repartition(7)
    for name in ("at", "_group"):
        by_name = streams.apply_patches(named, order_by=[name]).orderBy("begun").collect()
        assert [(row.status, row.is_repeat) for row in by_name] == expected
    shuffled = streams.apply_patches(patches.orderBy(F.rand(3)).repartition(7))
    assert [(row.status, row.is_repeat) for row in shuffled.orderBy("offset").collect()] == expected

    state, kept = None, []
    for start, end in ((0, 100), (100, 230), (230, 420)):
        some = patches.where(F.col("offset").between(start, end - 1))
        answers = streams.apply_patches(some, known=state, remember=400).localCheckpoint()
        kept += [(row.status, row.is_repeat) for row in answers.orderBy("offset").collect()]
        found = streams.entities(answers, state)
        state = spark.createDataFrame(found.collect(), found.schema)
    assert kept == expected
    assert state is not None
    held = {row.entity: None if row.document is None else json.loads(row.document) for row in state.collect()}
    assert held == known


def _in_order() -> str:
    texts = (
        "topic string, partition int, offset long, db string, collection string, zone string, entity string"
    )
    header = "client_id string, request long, user string, begun long, part int, parts int"
    flags = (
        "learning boolean, include_before boolean, include_after boolean, ops string, errors array<string>"
    )
    return f"timestamp timestamp, {texts}, {header}, {flags}"
