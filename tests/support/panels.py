"""Two entities of a shop and a till, and how a widget is read."""

from __future__ import annotations

import re
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from support.histories import Row, at, to_dataframe

FIELDS = {"h": "int", "k": "string", "a": "int", "b": "string"}
KEYS = ["h", "k"]


def change(hour: int, message: str, source: str, a: int | None, *, h: int = 1, priority: int = 0) -> Row:
    """At an hour a source says of the entity (h, "x") that `a` is a number; None deletes it."""
    place = {"timestamp": at(hour), "topic": "t", "partition": 0, "offset": 0, "record_number": 0}
    return {
        "operation": "delete" if a is None else "upsert",
        "effective_timestamp": at(hour),
        "sequence": "",
        "arrival": place,
        "message_id": message,
        "source": source,
        "priority": priority,
        "field_priorities": {"h": None, "k": None, "a": None, "b": 7},
        "data": {"h": h, "k": "x", "a": a, "b": "<b>" if a else None},
        "carried": {"h": True, "k": True, "a": a is not None, "b": a is not None},
    }


def all_of(widget: Any, kind: str) -> list[Any]:
    """The widgets of a kind in a widget, from the top."""
    found = [widget] if type(widget).__name__ == kind else []
    return found + [each for child in getattr(widget, "children", ()) for each in all_of(child, kind)]


def shown(widget: Any) -> str:
    """What can be read in a widget, each table row on a line, cells between bars."""
    text = " ".join(each.value for each in all_of(widget, "HTML"))
    text = re.sub(r"<sup.*?</sup>", "", text)
    text = re.sub(r"</t[dh]>", "|", re.sub(r"</tr>|</p>", "\n", text))
    return re.sub(r"<[^>]*>", "", text)


def two_entities(spark: SparkSession) -> DataFrame:
    """The shop says 10 and, at ten, 11; the till, at eleven, 12; a second entity is deleted by the shop."""
    listed = [
        change(9, "m1", "shop", 10, priority=1),
        change(10, "m2", "shop", 11, priority=1),
        change(11, "m3", "till", 12),
        change(9, "m4", "till", 20, h=2),
        change(12, "m5", "shop", None, h=2, priority=1),
    ]
    return to_dataframe(spark, listed, FIELDS).coalesce(1).localCheckpoint()
