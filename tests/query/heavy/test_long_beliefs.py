"""
What was believed of long texts, of which each came late.

In `make test`: tests/query/test_bitemporal.py::test_it_does_not_matter_how_many_epochs_are_merged_together.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from pyspark.sql import SparkSession

from cdckit import bitemporal
from support.histories import Row, to_dataframe

FIELDS = {"h": "int", "k": "string", "a": "int", "b": "string"}
KEYS = ["h", "k"]
START = datetime(2024, 7, 1, tzinfo=UTC)


def told(number: int) -> Row:
    """A text of 20 kB, told in that minute of the same minute before the start."""
    minutes, message = timedelta(minutes=number), f"m{number}"
    place = {"topic": "t", "partition": 0, "offset": 0, "record_number": 0}
    return {
        "operation": "upsert",
        "effective_timestamp": START - minutes,
        "sequence": "",
        "arrival": {"timestamp": START + minutes, **place},
        "message_id": message,
        "source": "one",
        "priority": 0,
        "data": {"h": 1, "k": "x", "a": None, "b": f"{message:x>20000}"},
        "carried": dict.fromkeys(FIELDS, True),
    }


def test_long_texts_and_many_late_changes_stay_in_bounds(spark: SparkSession) -> None:
    """Told from the newest to the oldest, 400 texts of 20 kB: each in portions and rows that fit."""
    changes = [told(number) for number in range(1, 401)]
    table = bitemporal(to_dataframe(spark, changes, FIELDS), entity="thing", keys=KEYS)
    assert table.count() > 400
