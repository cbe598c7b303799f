"""`databus.find_frontiers`: until where whole windows have passed, with nothing missing before them."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from pyspark.sql import SparkSession

from cdckit import databus
from cdckit.model.records import RECORD_SCHEMA

SECONDS = 1_704_099_600  # 2024-01-01 09:00 UTC
END, ROLLBACK = -2, -51
TEXT = '{"type": "record", "name": "Plane", "fields": [{"name": "tail", "type": "string"}]}'
PLANES = databus.Source(3, "planes", [TEXT])


def event(scn: int, source: int = END, *, partition: int = 1) -> dict[str, Any]:
    """A row of planes, the end of a period, or a rollback; a second for each SCN."""
    at = {"sequence": scn, "physicalPartitionId": partition}
    at |= {"timestampInNanos": (SECONDS + scn) * 1_000_000_000, "srcId": source}
    if source != PLANES.id:
        return at
    (schema,) = PLANES.texts
    row = {"opcode": "UPSERT", "key": 7, "logicalPartitionId": 0, "schemaId": schema, "valueEnc": "JSON"}
    return at | row | {"value": "BjEyMw=="}


def test_a_window_that_was_rolled_back_and_not_sent_again_holds_the_frontier(spark: SparkSession) -> None:
    sent = [
        *(event(5, 3), event(5)),
        # Rolled back; what stands behind it waits.
        *(event(6, 3), event(6, ROLLBACK), event(9, 3), event(9)),
        # In another partition it was sent again, and the last window is open.
        *(event(6, 3, partition=2), event(6, ROLLBACK, partition=2)),
        *(event(6, 3, partition=2), event(6, partition=2), event(8, 3, partition=2)),
        # Nothing is complete.
        event(4, 3, partition=3),
    ]
    listed = [(None, json.dumps(each).encode(), "t", 0, n, None, 1, None) for n, each in enumerate(sent)]
    events = databus.decode(spark.createDataFrame(listed, RECORD_SCHEMA), [PLANES])
    found = {row["physical_partition"]: tuple(row)[3:] for row in databus.find_frontiers(events).collect()}
    assert found == {
        1: (5, datetime(2024, 1, 1, 9, 0, 5), 1),
        2: (6, datetime(2024, 1, 1, 9, 0, 6), 0),
        3: (None, None, 0),
    }
