"""
Exports of a hub that goes on.

In `make test`:
tests/datahub/test_datahub_exports.py::test_the_last_state_is_indexed_whatever_the_order_of_the_lines,
tests/datahub/test_datahub_exports.py::test_what_is_no_position_is_refused.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from cdckit.datahub import Hub, schema
from support.hub_exports import AT, NUMBER, Row, taken
from support.hub_programs import rows_of

# Positions -----------------------------------------------------------------------------------------------

AUTHOR: Row = {"reference": "author", "fields": [{"reference": "name", "key": True}]}
BOOK: Row = {
    "reference": "book",
    "export": True,
    "exportIdentifier": "number",
    "fields": [
        NUMBER,
        {"reference": "title"},
        {"reference": "author", "type": "link", "linkEntity": "author", "linkKey": "name"},
    ],
}


def library(book: Row = BOOK) -> Row:
    return {"reference": "*", "mappings": {"author": [AUTHOR], "book": [book]}}


def book(number: int, title: str, author: str, *, at: str = "2024-01-01") -> Row:
    data = {"number": number, "title": title, "name": author}
    return {"guid": f"book {number}", "entity": "book", "timestamp": at, "data": data}


def author(name: str) -> Row:
    return {"guid": name, "entity": "author", "data": {"name": name}}


def test_exports_go_on_after_a_position(spark: SparkSession, tmp_path: Path) -> None:
    """By the run since which a record is exported, and not by its arrival: what had to wait comes late."""
    minute = timedelta(minutes=1)
    hub = Hub(spark, schema(library()), tmp_path)
    hub.receive([author("ann"), book(1, "one", "ann"), book(2, "two", "bob")], received_at=AT)
    hub.run(now=AT)
    assert taken(hub) == taken(hub, 0) == [(1, "1", "one")]
    assert taken(hub, 1) == []

    hub.receive([book(3, "three", "ann", at="2000-01-01")], received_at=AT + minute)
    hub.run(now=AT + minute)
    assert taken(hub, 1) == [(2, "3", "three")]

    hub.receive([author("bob")], received_at=AT + 9 * minute)
    hub.run(now=AT + 9 * minute)
    assert taken(hub, 2) == [(3, "2", "two")]
    assert taken(hub) == [(1, "1", "one"), (2, "3", "three"), (3, "2", "two")]

    # A run with nothing to export, and one that makes everything anew, hand nothing out again.
    hub.receive([author("cid")], received_at=AT + 10 * minute)
    hub.run(now=AT + 10 * minute)
    hub.rebuild(now=AT + 10 * minute)
    assert taken(hub, 3) == []
    assert len(taken(hub)) == 3
    seen: list[DataFrame] = []
    hub.export("book", seen.append, after=2)
    assert [row["id"] for row in rows_of(seen[0])] == ["2"]

    # By another schema the records whose documents change come again; by the first they do once more.
    longer = {**BOOK, "fields": [NUMBER, {"reference": "title", "length": 3}, *BOOK["fields"][2:]]}
    hub = Hub(spark, schema(library(longer)), tmp_path)
    hub.run(now=AT + 11 * minute)
    assert taken(hub, 3) == [(4, "3", "thr")]
    hub = Hub(spark, schema(library()), tmp_path)
    hub.run(now=AT + 12 * minute)
    assert taken(hub, 4) == [(5, "3", "three")]
    assert taken(hub) == [(1, "1", "one"), (3, "2", "two"), (5, "3", "three")]
