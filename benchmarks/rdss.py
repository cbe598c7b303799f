"""RDSS messages: validation beside Spark's own JSON reader, and parts put together beside their shuffle."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Iterator
from copy import deepcopy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.measure import Result, content_hash, side_by_side
from cdckit import rdss, samples
from cdckit.model.records import RECORD_SCHEMA
from cdckit.parts.arrow_types import arrow_schema

MESSAGES = 100_000
SEQUENCES = 10_000
START = datetime(2024, 3, 4, 8, tzinfo=UTC)
PIECE = rdss.Rules(max_bytes=2000)


def results(spark: SparkSession, work: Path) -> list[Result]:
    """100,000 valid messages of 2 KB; and 10,000 messages in ten parts each."""
    return [*_validation(spark, work), *_assembly(spark, work)]


def _validation(spark: SparkSession, work: Path) -> list[Result]:
    records = _records(spark, work / f"rdss_{MESSAGES}", MESSAGES, _messages)
    [one] = records.select(F.decode("value", "UTF-8")).take(1)
    parsed = records.select(
        F.from_json(F.decode("value", "UTF-8"), F.schema_of_json(one[0])).alias("message")
    )
    decoded = rdss.decode(records)
    took = side_by_side(
        {
            "rdss, decoded and validated": lambda: _drain(decoded),
            "rdss, from_json of all fields": lambda: _drain(parsed),
        }
    )
    if decoded.where("error_code is not null").count():
        raise RuntimeError("every one of the messages should be valid")
    ours, theirs = took["rdss, decoded and validated"], took["rdss, from_json of all fields"]
    cores = spark.sparkContext.defaultParallelism
    digest = content_hash(decoded.select("message_id", "object_uuid", "body"))
    rate = MESSAGES / ours.seconds / cores
    return [
        Result.of("rdss_messages_a_second_and_core", rate, 15_000, ours, digest, better="higher"),
        Result.of("rdss_decode_over_from_json", ours.seconds / theirs.seconds, None, ours, digest),
    ]


def _assembly(spark: SparkSession, work: Path) -> list[Result]:
    records = _records(spark, work / f"rdss_parts_{SEQUENCES}", SEQUENCES, _parts)
    kept = work / "rdss_parts_decoded"
    rdss.decode(records).write.mode("overwrite").parquet(str(kept))
    decoded = spark.read.parquet(str(kept))
    made, moved = work / "rdss_assembled", work / "rdss_moved"

    def assemble() -> None:
        rdss.assemble_messages(rdss.parts(decoded)).write.mode("overwrite").parquet(str(made))

    def move() -> None:
        sorted_rows = decoded.repartition("sequence_id").sortWithinPartitions(
            "sequence_id", "sequence_position"
        )
        sorted_rows.write.mode("overwrite").parquet(str(moved))

    took = side_by_side({"rdss, parts put together": assemble, "rdss, parts shuffled, sorted, written": move})
    ours, floor = took.values()
    whole = spark.read.parquet(str(made))
    if whole.where("error_code is null").count() != SEQUENCES:
        raise RuntimeError(f"{SEQUENCES:,} messages should have been put together")
    digest = content_hash(whole.select("body"))
    return [Result.of("rdss_assembly_over_shuffle", ours.seconds / floor.seconds, 3.0, ours, digest)]


def _messages(count: int) -> Iterator[bytes]:
    """Messages about a hundred objects without files, each with an id of its own."""
    chance = random.Random(1)
    plain = [message for message in _deposits() if "objectFile" not in message["messageBody"]]
    made = [_described(chance.choice(plain), 60, chance) for _ in range(100)]
    for place in range(count):
        yield _as_bytes(_with_ids(made[place % 100], chance))


def _parts(count: int) -> Iterator[bytes]:
    """The parts of larger messages, in an order that is drawn."""
    chance = random.Random(2)
    message = _deposits()[0]
    found = []
    for _ in range(count):
        large = _with_ids(_described(message, 1500, chance), chance)
        found += rdss.split(_as_bytes(large), rules=PIECE)
    chance.shuffle(found)
    yield from found


def _deposits() -> list[Any]:
    """The messages of the sample that deposit an object."""
    files = (pq.read_table(samples(f"rdss/{name}.parquet")).to_pylist() for name in ("records", "truth"))
    rows = zip(*files, strict=True)
    return [json.loads(record["value"]) for record, truth in rows if truth["what"] == "create"]


def _described(message: Any, words: int, chance: random.Random) -> Any:
    """The message with a description of so many words, which are its own."""
    made = deepcopy(message)
    description = made["messageBody"]["objectDescription"][0]
    own = description["descriptionValue"].split()
    description["descriptionValue"] = " ".join(chance.choices(own, k=words))
    return made


def _with_ids(message: Any, chance: random.Random) -> Any:
    """The message as another one of its kind; changed in place."""
    first, second = (str(uuid.UUID(int=chance.getrandbits(128), version=4)) for _ in range(2))
    message["messageHeader"]["messageId"] = first
    message["messageHeader"]["messageSequence"]["sequence"] = second
    return message


def _as_bytes(message: Any) -> bytes:
    return json.dumps(message, ensure_ascii=False).encode()


def _records(spark: SparkSession, folder: Path, count: int, values: Any) -> DataFrame:
    """Records with these values, made once and then kept."""
    path = folder / "records.parquet"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        rows = [
            {"value": value, "topic": "rdss", "partition": 0, "offset": offset, "timestamp": START}
            for offset, value in enumerate(values(count))
        ]
        # Several row groups, so that several tasks read it.
        table = pa.Table.from_pylist(rows, arrow_schema(RECORD_SCHEMA))
        pq.write_table(table, path, row_group_size=len(rows) // 8 + 1)
    return spark.read.parquet(str(folder)).repartition(8).cache()


def _drain(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()
