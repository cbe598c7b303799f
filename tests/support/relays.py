"""Windows of two sources, and relays of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from cdckit import databus
from cdckit.databus import Relay
from cdckit.model.records import RECORD_SCHEMA
from support.databus_streams import record_of

NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)
FIELDS = [{"name": name, "type": "long"} for name in ("id", "amount")]
SCHEMA = json.dumps({"type": "record", "name": "R", "fields": FIELDS})
SOURCES = {name: databus.Source(ord(name), name, [SCHEMA]) for name in "ab"}
KEYS = {"a": ["id"], "b": ["id"]}

Sent = tuple[bytes, int, int]
"""A value, the partition of its topic, and its offset."""


def frame(spark: SparkSession, sent: Sequence[Sent]) -> DataFrame:
    rows = [
        (None, value, "t", part, offset, NOON + timedelta(seconds=offset), 0, None)
        for value, part, offset in sent
    ]
    return spark.createDataFrame(rows, RECORD_SCHEMA).coalesce(1)


def sent_of(text: str, start: int = 0) -> list[Sent]:
    return [(record_of(word, at, SOURCES), 0, at) for at, word in enumerate(text.split(), start)]


def relay_of(spark: SparkSession, folder: Path, *batches: Sequence[Sent]) -> Relay:
    relay = Relay(spark, folder, SOURCES.values(), keys=KEYS)
    for sent in batches:
        relay.receive(frame(spark, sent))
    return relay


def sums(relay: Relay) -> list[int]:
    """What the two tables have together: at the end, and at every instant at which something changes."""
    found = {name: view.history().collect() for name, view in relay.ledgers().items()}
    versions = [row for rows in found.values() for row in rows]
    instants = sorted({row["valid_from_timestamp"] for row in versions})
    return [
        sum(
            row["amount"] or 0
            for row in versions
            if row["valid_from_timestamp"] <= at
            and (row["valid_to_timestamp"] is None or at < row["valid_to_timestamp"])
        )
        for at in instants
    ]
