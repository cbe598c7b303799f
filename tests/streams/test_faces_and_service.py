"""The functions on tables, and a service: two ways to one answer, for random requests."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit import streams
from cdckit.streams.catalogue import COMPLETE_RESPONSES, ENTITY, REQUEST, Stream
from cdckit.streams.documents import ANSWER, STATE
from cdckit.streams.requests import PATCH_SCHEMA
from cdckit.streams.service_rules import Answer, CompleteResponse, LearnedType, read_state
from support.service_memory import ServiceInMemory
from support.stream_programs import Record, drawn_log, to_records
from tools.tiers import seeds

ANSWERED = ("topic", "offset", "part", *REQUEST, "include_before", "include_after", *ENTITY, *ANSWER.names)
TAUGHT = ("topic", "offset", "db", "collection", "ended", "entities", "entity_type")
LEFT = (*REQUEST, "part")


@seeds(1, soak=30)
def test_a_service_answers_as_the_functions_do(spark: SparkSession, seed: int) -> None:
    log = [_made_harder(record, place) for place, record in enumerate(drawn_log(seed, 150))]
    service = ServiceInMemory()
    service.receive(log)
    records = to_records(spark, log)

    def decoded(stream: Stream) -> DataFrame:
        mine = streams.decode(records.where(F.col("topic") == stream.name), stream)
        return mine.where("error_code IS NULL").withColumn("errors", F.lit(None).cast("array<string>"))

    batches = streams.entity_patches(decoded(streams.ENTITY_BATCHES)).select(*PATCH_SCHEMA.names)
    patches = batches.unionByName(decoded(streams.ENTITY_PATCHES).select(*PATCH_SCHEMA.names))
    answers = streams.apply_patches(patches).localCheckpoint()
    schemas = streams.apply_schema_patches(decoded(streams.SCHEMA_PATCHES)).localCheckpoint()
    made = [row.columns for row in service.rows if isinstance(row, Answer)]
    for is_schema, frame in ((False, answers), (True, schemas)):
        names = [name for name in ANSWERED if name in frame.columns]
        mine = [answer for answer in made if answer["is_schema"] == is_schema]
        assert listed(mine, names) == collected(frame, names)
    assert states_of(service, "entities") == collected(streams.entities(answers), [*ENTITY, *STATE.names])
    assert states_of(service, "schemas") == collected(streams.entities(schemas), ["db", *STATE.names])

    parts = streams.response_parts(streams.partial_responses(answers, schemas)).localCheckpoint()
    complete = [row.columns for row in service.rows if isinstance(row, CompleteResponse)]
    names = COMPLETE_RESPONSES.columns().names
    assert listed(complete, names) == collected(streams.complete_responses(parts), names)
    waits = [
        {**answer, **said._asdict()}
        for answer in made
        if (said := service.outcomes.get((answer["batch"], answer["number"]))) and not answer["is_repeat"]
    ]
    late = parts.where(F.col("part_is").isin("waiting", "contradicting"))
    assert listed(waits, [*LEFT, "outcome", "code", "waits_for"]) == collected(
        late, [*LEFT, "part_is", "error_code", "waiting_for"]
    )

    lessons = streams.learn(streams.schema_learning(answers, schemas)).localCheckpoint()
    learned = [row.columns for row in service.rows if isinstance(row, LearnedType)]
    assert listed(learned, TAUGHT) == collected(streams.learned_types(lessons), TAUGHT)
    types = collected(streams.entity_types(lessons), ["db", "collection", "entity_type", "lessons"])
    assert states_of(service, "types") == types
    assert all((made, complete, waits, learned))


def _made_harder(record: Record, place: int) -> Record:
    """Clocks go back, some batches are of another client, a patch names no entity; parts lack an offset."""
    if not record[1].startswith(b'{"'):
        return record
    key, value, topic, partition, offset, at, *more = record
    if at is not None and place % 4 == 0:
        at -= timedelta(minutes=1)
    message = json.loads(value)
    if "patches" in message and place % 3 == 0:
        message["clientid"] = ""
        del message["patches"][0]["entity"]
    if message.get("request", 0) >= 10_000:
        offset = None
    return (key, json.dumps(message).encode(), topic, partition, offset, at, *more)


def states_of(service: ServiceInMemory, fold: str) -> list[str]:
    known = ((scope, kept.state) for (name, scope), kept in service.states.items() if name == fold)
    return sorted(repr(read_state(scope, state)) for scope, state in known if state is not None)


def listed(rows: Iterable[Mapping[str, Any]], names: Sequence[str]) -> list[str]:
    # A number of an enumeration is shown as one.
    return sorted(repr(tuple(map(_plain, map(row.get, names)))) for row in rows)


def collected(frame: DataFrame, names: Sequence[str]) -> list[str]:
    return listed(frame.select(*names).toArrow().to_pylist(), names)


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value
