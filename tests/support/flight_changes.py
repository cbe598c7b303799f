"""Changes of flights, from several sources: for tests of priorities."""

from __future__ import annotations

from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession

from support.histories import Row, change_schema, rows_to_dataframe

FIELDS = {"flight": "string", "tailnum": "string", "gate": "string"}


def change(number: int, source: str | None, *, stated: Row | None = None, **sent: str) -> Row:
    """What a source said of one flight, *number* o'clock; priority 7 until somebody says otherwise."""
    return {
        "operation": "upsert",
        "effective_timestamp": datetime(2024, 1, 1, number, tzinfo=UTC),
        "sequence": "",
        "arrival": {
            "timestamp": datetime(2024, 1, 2, tzinfo=UTC), "topic": "t", "partition": 0, "offset": number,
            "record_number": 0,
        },
        "message_id": f"m{number}",
        "source": source,
        "priority": 7,
        "field_priorities": stated,
        "data": {"flight": "UA1", **dict.fromkeys(["tailnum", "gate"]), **sent},
        "carried": {"flight": True, "tailnum": "tailnum" in sent, "gate": "gate" in sent},
    }  # fmt: skip


def frame(spark: SparkSession, *changes: Row, field_priorities: bool = True) -> DataFrame:
    return rows_to_dataframe(spark, changes, change_schema(FIELDS, field_priorities=field_priorities))
