"""Two mappings of a shop, messages of a minute, a history: for hubs that run more than once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import SparkSession

from cdckit.datahub import Hub, records
from support.hub_programs import rows_of

Row = dict[str, Any]
AT = datetime(2024, 1, 1, 9, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
PRODUCT: Row = {"reference": "product", "fields": [{"reference": "no", "key": True}, {"reference": "name"}]}
ORDER: Row = {
    "reference": "order",
    "fields": [
        {"reference": "o", "key": True},
        {"reference": "product", "type": "link", "linkEntity": "product", "linkKey": "no"},
    ],
}


def system(**mappings: Row) -> Row:
    return {"reference": "*", "mappings": {entity: [mapping] for entity, mapping in mappings.items()}}


def sent(hub: Hub, spark: SparkSession, *documents: Row, minute: int) -> None:
    """Receive the documents in the minute, and process them in it."""
    hub.receive(records(spark, documents, received_at=AT + minute * MINUTE))
    hub.run(now=AT + minute * MINUTE)


def history(hub: Hub, entity: str) -> list[Row]:
    rows = rows_of(hub.history(entity))
    return sorted(rows, key=lambda row: (row["guid"], row["valid_from_timestamp"]))
