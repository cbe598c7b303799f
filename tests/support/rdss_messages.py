"""Messages of the RDSS door for tests: the valid ones of the cases, changes to them, and records of them."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from cdckit.model.records import RECORD_SCHEMA

NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)
CASES = Path(__file__).parents[1] / "cases" / "rdss"


def read_cases(name: str) -> Any:
    return json.loads((CASES / f"{name}.json").read_text())


MESSAGES: dict[str, dict[str, Any]] = read_cases("messages")["messages"]


def message(name: str = "create", *changes: dict[str, Any]) -> dict[str, Any]:
    """A valid message, changed by operations as RFC 6902 has them: add, remove and replace."""
    made = copy.deepcopy(MESSAGES[name])
    for change in changes:
        *above, last = change["path"].split("/")[1:]
        holder: Any = made
        for step in above:
            holder = holder[int(step)] if isinstance(holder, list) else holder[step]
        step = int(last) if isinstance(holder, list) and last != "-" else last
        if change["op"] == "remove":
            del holder[step]
        elif last == "-":
            holder.append(change["value"])
        else:
            assert change["op"] == "add" or step in holder or isinstance(holder, list), change
            holder[step] = change["value"]
    return made


def changed(path: str, value: Any) -> dict[str, Any]:
    return {"op": "add", "path": path, "value": value}


def as_bytes(message: Any) -> bytes:
    return json.dumps(message, ensure_ascii=False).encode()


def value_of(case: dict[str, Any]) -> bytes:
    """The bytes of a case of `validation.json`."""
    return (
        case["text"].encode()
        if "text" in case
        else as_bytes(message(case["message"], *case.get("changes", [])))
    )


# Records of messages that were sent at noon ----------------------------------------------------------------

Sent = tuple[bytes, int]
"""A value, and its offset, which says also in which second it was delivered."""


def uuid(number: int) -> str:
    return f"{number:08x}-0000-4000-8000-00000000abcd"


def told(name: str, number: int, at: str, thing: int, *changes: dict[str, Any], again: int = 0) -> Sent:
    """The message of that number about an object, published at a time of the day; of the id of *again*."""
    own = [
        changed("/messageHeader/messageId", uuid(again or number)),
        changed("/messageHeader/messageSequence/sequence", uuid(0x1000 + number)),
        changed("/messageHeader/messageTimings", {"publishedTimestamp": f"2024-03-01T{at}:00Z"}),
        changed("/messageBody/objectUUID", uuid(thing)),
    ]
    return as_bytes(message(name, *own, *changes)), number


def titled(name: str, number: int, at: str, thing: int, title: str, **others: Any) -> Sent:
    return told(name, number, at, thing, changed("/messageBody/objectTitle", title), **others)


def frame(spark: SparkSession, sent: Iterable[Sent]) -> DataFrame:
    rows = [
        (None, value, "rdss", 0, offset, NOON + timedelta(seconds=offset), 0, None) for value, offset in sent
    ]
    return spark.createDataFrame(rows, RECORD_SCHEMA).coalesce(1)
