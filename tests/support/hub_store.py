"""A change feed of products that any store of a hub takes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from cdckit.datahub import Hub, schema
from support.hub_programs import rows_of

Row = dict[str, Any]
AT = datetime(2024, 1, 1, 9, tzinfo=UTC)
HOUR = timedelta(hours=1)

PRODUCT: Row = {"reference": "product", "fields": [{"reference": "no", "key": True}, {"reference": "name"}]}
SHOP = schema({"reference": "*", "mappings": {"product": [PRODUCT]}})


def product(guid: str, name: str = "kettle") -> Row:
    return {"entity": "product", "guid": guid, "data": {"no": guid, "name": name}}


def names(hub: Hub) -> list[tuple[str, str]]:
    return sorted((row["no"], row["name"]) for row in rows_of(hub.history("product")))
