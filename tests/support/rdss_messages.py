"""Messages of the RDSS door for tests: the valid ones of the cases, and changes to them."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

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
