"""Customers and their orders: the mappings and messages of a small hub."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

Row = dict[str, Any]
AT = datetime(2024, 1, 1, 9, tzinfo=UTC)

CUSTOMER: Row = {"reference": "customer", "fields": [{"reference": "c", "key": True}, {"reference": "name"}]}
ORDER: Row = {
    "reference": "order",
    "fields": [
        {"reference": "o", "type": "integer", "key": True},
        {"reference": "customer", "type": "link", "linkEntity": "customer", "linkKey": "c"},
    ],
}
SHOP: Row = {"reference": "*", "mappings": {"customer": [CUSTOMER], "order": [ORDER]}}


def after(**time: float) -> datetime:
    return AT + timedelta(**time)


def customers(guid: str, *names: str) -> Row:
    return {"guid": guid, "entity": "customer", "data": [{"c": name} for name in names]}


def order(guid: str, number: int, customer: str) -> Row:
    return {"guid": guid, "entity": "order", "data": {"o": number, "c": customer}}
