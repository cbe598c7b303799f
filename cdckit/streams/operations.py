"""What the operations of a patch are, read from its JSON; every reason that one is none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from cdckit.streams.json_values import DEEPEST, depth
from cdckit.streams.paths import BadPath, Path, path_of, shown

ADD, REMOVE, REPLACE, MOVE, COPY = "add", "remove", "replace", "move", "copy"
INCREMENT, REQUIRE = "inc", "test"

NAMES: Mapping[str, str] = {
    **{name: name for name in (ADD, REMOVE, REPLACE, MOVE, COPY, INCREMENT, REQUIRE)},
    "increment": INCREMENT,
    "require": REQUIRE,
}
"""What an operation may be called."""

_MOST_REASONS = 10
# As a tuple: to look into `dict | list` takes twice the time, and this is asked of each operation.
_CONTAINERS = (dict, list)
_NO_NUMBERS = (bool, str, dict, list, type(None))


class Operation(msgspec.Struct, frozen=True):
    """
    One operation of a patch.

    `move` and `copy` read at *source* and write at *path*; the others have no *source*.
    """

    name: str
    path: Path
    value: Any = None
    source: Path = ()


class BadOperation(ValueError):
    """An object is no operation; the sentence says why."""


def operations(ops: Any) -> tuple[list[Operation], list[str]]:
    """
    The operations of a patch, and the reasons why some are none: at most ten, a sentence each.

    Args:
        ops: The value of `ops`; null is no operation, as an empty list is.

    >>> operations([{"op": "add", "path": "a", "value": 1}, {"op": "twist"}])
    ([Operation(name='add', path=('a',), value=1, source=())], ["operation 2: 'twist' is no operation"])
    """
    if ops is None:
        return [], []
    if not isinstance(ops, list):
        return [], [f"ops are no list: {shown(ops)}"]
    found: list[Operation] = []
    reasons: list[str] = []
    for place, each in enumerate(ops, 1):
        try:
            found.append(_operation(each))
        except (BadOperation, BadPath) as error:
            reasons.append(f"operation {place}: {error}")
            if len(reasons) == _MOST_REASONS:
                break
    return found, reasons


def _operation(each: Any) -> Operation:
    if not isinstance(each, dict):
        raise BadOperation(f"{shown(each)} is no object")
    said = each.get("op")
    name = NAMES.get(said) if isinstance(said, str) else None
    if name is None:
        raise BadOperation(f"{shown(said)} is no operation")
    return _READ[name](name, each)


def _path(each: dict[str, Any], member: str) -> Path:
    text = each.get(member)
    if not isinstance(text, str):
        raise BadOperation(f"{each['op']} needs a {member}; it is {shown(text)}")
    return path_of(text)


def _with_value(name: str, each: dict[str, Any]) -> Operation:
    text = each.get("path")
    path = path_of(text) if type(text) is str else _path(each, "path")
    if "value" not in each:
        raise BadOperation(f"{each['op']} needs a value")
    value = each["value"]
    if isinstance(value, _CONTAINERS) and len(path) + depth(value) > DEEPEST:
        raise BadOperation(f"the value would be nested deeper than {DEEPEST}")
    return Operation(name, path, value)


def _with_number(name: str, each: dict[str, Any]) -> Operation:
    found = _with_value(name, each)
    if isinstance(found.value, _NO_NUMBERS):
        raise BadOperation(f"{each['op']} needs a number; it is {shown(found.value)}")
    return found


def _without_value(name: str, each: dict[str, Any]) -> Operation:
    return Operation(name, _path(each, "path"))


def _from_to(name: str, each: dict[str, Any]) -> Operation:
    source, path = _path(each, "fromPath"), _path(each, "toPath")
    return Operation(name, path, source=source)


_READ: Mapping[str, Callable[[str, dict[str, Any]], Operation]] = {
    ADD: _with_value,
    REPLACE: _with_value,
    REQUIRE: _with_value,
    INCREMENT: _with_number,
    REMOVE: _without_value,
    MOVE: _from_to,
    COPY: _from_to,
}
