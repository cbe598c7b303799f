"""Random programs for a ledger in which each world is a person: all that is said of one names nobody else."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from support.fold import guid_of
from support.histories import Row
from support.ledger_programs import batches

FIELDS = {"h": "bigint", "k": "string", "a": "string", "b": "double", "c": "struct<x:double,y:string>"}
KEYS = ["h", "k"]
ENTITY = "person"
_FIRST = 9_182_000_000


def personal_batches(seed: int, people: int, **options: Any) -> list[list[Row]]:
    """As `batches`, of so many people."""
    return [[_of_person(change) for change in batch] for batch in batches(seed, people, **options)]


def person_of(change: Row) -> int:
    """The number of the person whom a change speaks of."""
    return int(change["data"]["h"] - _FIRST)


def traces(people: Iterable[int], changes: Iterable[Row]) -> dict[str, list[str | int | float]]:
    """By person, what may be nowhere once they are erased: texts, numbers, and the guids made of them."""
    found: dict[str, list[str | int | float]] = {
        _name(each): [_name(each), _FIRST + each, _number(each)] for each in people
    }
    for change in changes:
        key = {name: change["data"][name] for name in KEYS}
        if (name := _name(person_of(change))) in found:
            found[name].append(str(guid_of(ENTITY, key)))
    return {name: list(dict.fromkeys(values)) for name, values in found.items()}


def _of_person(change: Row) -> Row:
    data = change["data"]
    number = data["h"]
    name = _name(number)
    return {
        **change,
        "message_id": f"{change['message_id']} of {name}",
        "data": {
            "h": _FIRST + number,
            "k": _personal(data["k"], name),
            "a": _personal(data["a"], name),
            "b": _number(number) if data["b"] == 1.5 else data["b"],
            "c": data["c"] and {**data["c"], "y": _personal(data["c"]["y"], name)},
        },
    }


def _personal(text: str | None, name: str) -> str | None:
    return None if text is None else f"{text}{name}"


def _name(number: int) -> str:
    return f"person{number:05d}."


def _number(number: int) -> float:
    return 1_000_000.5 + number
