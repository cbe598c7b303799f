"""Events of a database in the order of its log, and their changes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from cdckit import debezium
from cdckit.model.records import RECORD_SCHEMA

START = datetime(2024, 3, 1, tzinfo=UTC)
NAIVE = START.replace(tzinfo=None)
KEYS = ["life", "id"]
COLUMNS = {"life": "int32", "id": "int32", "v": "string"}


@dataclass
class Event:
    """One event of one source, which is one *life*: a database of its own."""

    life: int
    op: str
    position: int
    second: int
    """What its clock says; of a read it is that of the read, of a statement perhaps that of its beginning."""
    key: int = 0
    value: str | None = None

    def record(self, offset: int) -> tuple[Any, ...]:
        """As Debezium writes it: PostgreSQL's in even lives, MySQL's in odd ones."""
        if self.life % 2:
            place: dict[str, object] = {"connector": "mysql", "file": "binlog.000007", "pos": self.position}
        else:
            place = {"connector": "postgresql", "sequence": f'["{self.position - 1}","{self.position}"]'}
        source = {
            **place,
            "name": f"life {self.life}",
            "table": "t",
            "snapshot": "incremental" if self.op == "r" else "false",
            "ts_ms": int((START.timestamp() + self.second) * 1000),
        }
        row = {"life": self.life, "id": self.key, "v": self.value}
        sent = {"after": row} if self.op in "cur" else {"before": row} if self.op == "d" else {}
        value = json.dumps({"op": self.op, "source": source, **sent}).encode()
        arrived = START + timedelta(days=1, seconds=offset)
        return (None, value, "t", 0, offset, arrived, 0, None)


def decoded(spark: SparkSession, events: Sequence[tuple[int, Event]]) -> DataFrame:
    return debezium.decode(
        spark.createDataFrame([event.record(at) for at, event in events], RECORD_SCHEMA)
    ).localCheckpoint()


def changes(spark: SparkSession, events: Sequence[tuple[int, Event]]) -> DataFrame:
    return debezium.changes(decoded(spark, events), "t", keys=KEYS, columns=COLUMNS)
