"""Rows of exports, and what a hub hands on after a position."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from cdckit.datahub import Hub
from support.hub_programs import rows_of

Row = dict[str, Any]
AT = datetime(2024, 1, 1, 9, tzinfo=UTC)


def row(
    operation: str,
    identifier: str | None,
    version: int,
    name: str | None,
    *,
    offset: int = 0,
    number: int = 1,
) -> tuple[Any, ...]:
    arrival = (AT, "t", 0, offset, number)
    return operation, identifier, version, arrival, (name, None, None, None, None, None)


# Exports of a hub ----------------------------------------------------------------------------------------

NUMBER: Row = {"reference": "number", "type": "integer", "key": True}


def taken(hub: Hub, after: int | None = None) -> list[tuple[int, str, str | None]]:
    rows = rows_of(hub.exports("book", after=after))
    return sorted((row["position"], row["id"], row["document"]["title"]) for row in rows)
