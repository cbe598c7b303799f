"""Patches: paths and operations read from JSON, and one patch on one document, all of it or nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation, Overflow
from functools import lru_cache
from typing import Any, Final

import msgspec

from cdckit.parts.json_text import depth_and_size, nesting_depth
from cdckit.streams.json_values import DEEPEST, read, same, to_text

Path = tuple[str, ...]

_LONGEST_CACHED = 200
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}", re.ASCII)
_WRONG_ESCAPE = re.compile(r"~(?![01])")

APPEND = "-"
"""The step that stands behind the last element of an array."""


class BadPath(ValueError):
    """A text is no path; the sentence says why."""


def parse_path(text: str) -> Path:
    """
    The steps of a path; none for the document itself.

    A slash at the start and one at the end may be left out; `~1` is a slash within a step, `~0` a tilde.

    Raises:
        BadPath: A step is empty, a tilde stands alone, or there are more than 100 steps.

    Source:
        facts: paths of the prototype.

    >>> parse_path("/phone/home/"), parse_path("phone/home"), parse_path("/"), parse_path("a~1b")
    (('phone', 'home'), ('phone', 'home'), (), ('a/b',))
    """
    return _cached_steps(text) if len(text) <= _LONGEST_CACHED else _steps(text)


def _steps(text: str) -> Path:
    if text in ("", "/"):
        return ()
    inner = text[1:] if text.startswith("/") else text
    inner = inner[:-1] if inner.endswith("/") else inner
    many = inner.count("/") + 1
    if many > DEEPEST:
        raise BadPath(f"the path has {many:,} steps; the most are {DEEPEST}")
    if "" in inner.split("/"):
        raise BadPath(f"the path {show_value(text)} has an empty step")
    if _WRONG_ESCAPE.search(inner):
        raise BadPath(f"the path {show_value(text)} has a tilde that is not ~0 or ~1")
    return parse_steps(inner)


_cached_steps = lru_cache(maxsize=4096)(_steps)


def step_text(step: str) -> str:
    """
    A step as a path has it.

    >>> step_text("a/b~")
    'a~1b~0'
    """
    return step.replace("~", "~0").replace("/", "~1")


def parse_steps(name: str) -> Path:
    """
    The steps of a learned field's name, as `step_text` wrote them: an empty one is a name as any other.

    >>> parse_steps("phone/home"), parse_steps("a~1b/")
    (('phone', 'home'), ('a/b', ''))
    """
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in name.split("/"))


def array_index(step: str) -> int | None:
    """The place in an array that a step names; None for one that is no number, `-` among them."""
    return int(step) if _INDEX.fullmatch(step) else None


def begins_array(step: str) -> bool:
    """Tell whether a missing value that is asked for this step is to be an array."""
    return step == APPEND or _INDEX.fullmatch(step) is not None


def show_value(value: object) -> str:
    """
    A JSON value within a sentence: cut where it is long, an object or array by that word alone.

    >>> show_value("a"), show_value(None), show_value({"a": 1})
    ("'a'", 'null', 'an object')
    """
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "an array"
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, int) and value.bit_length() > 256:
        return "a number of many digits"
    text = repr(value[:80]) if isinstance(value, str) else str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


ADD, REMOVE, REPLACE, MOVE, COPY = "add", "remove", "replace", "move", "copy"
INCREMENT, TEST = "inc", "test"

NAMES: Mapping[str, str] = {
    **{name: name for name in (ADD, REMOVE, REPLACE, MOVE, COPY, INCREMENT, TEST)},
    "increment": INCREMENT,
    "require": TEST,
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
        return [], [f"ops are no list: {show_value(ops)}"]
    patch: list[Operation] = []
    reasons: list[str] = []
    for place, members in enumerate(ops, 1):
        try:
            patch.append(_operation(members))
        except (BadOperation, BadPath) as error:
            reasons.append(f"operation {place}: {error}")
            if len(reasons) == _MOST_REASONS:
                break
    return patch, reasons


def _operation(members: Any) -> Operation:
    if not isinstance(members, dict):
        raise BadOperation(f"{show_value(members)} is no object")
    operation = members.get("op")
    name = NAMES.get(operation) if isinstance(operation, str) else None
    if name is None:
        raise BadOperation(f"{show_value(operation)} is no operation")
    return _READ[name](name, members)


def _path(members: dict[str, Any], member: str) -> Path:
    text = members.get(member)
    if not isinstance(text, str):
        raise BadOperation(f"{members['op']} needs a {member}; it is {show_value(text)}")
    return parse_path(text)


def _with_value(name: str, members: dict[str, Any]) -> Operation:
    text = members.get("path")
    path = parse_path(text) if type(text) is str else _path(members, "path")
    if "value" not in members:
        raise BadOperation(f"{members['op']} needs a value")
    value = members["value"]
    if isinstance(value, _CONTAINERS) and len(path) + nesting_depth(value) > DEEPEST:
        raise BadOperation(f"the value would be nested deeper than {DEEPEST}")
    return Operation(name, path, value)


def _with_number(name: str, members: dict[str, Any]) -> Operation:
    operation = _with_value(name, members)
    if isinstance(operation.value, _NO_NUMBERS):
        raise BadOperation(f"{members['op']} needs a number; it is {show_value(operation.value)}")
    return operation


def _without_value(name: str, members: dict[str, Any]) -> Operation:
    return Operation(name, _path(members, "path"))


def _from_to(name: str, members: dict[str, Any]) -> Operation:
    source, path = _path(members, "fromPath"), _path(members, "toPath")
    return Operation(name, path, source=source)


_READ: Mapping[str, Callable[[str, dict[str, Any]], Operation]] = {
    ADD: _with_value,
    REPLACE: _with_value,
    TEST: _with_value,
    INCREMENT: _with_number,
    REMOVE: _without_value,
    MOVE: _from_to,
    COPY: _from_to,
}


MISSING: Final = object()
"""What stands where nothing stands: no entity, no field."""

_LONGEST_NUMBER = 10_000  # bits: what Python writes without a limit of its own
_MOST_LOOKED_AT = 5_000_000  # values, in one patch, to see how deep what it moves is: a second or two
_NUMBERS = (int, Decimal)
_EXACT = Context(prec=1000, traps=[Inexact, InvalidOperation, Overflow])


class PatchError(ValueError):
    """A patch does not fit its document; the sentence says why."""


def apply_patch(document: Any, operations: Iterable[Operation], room: int) -> tuple[Any, int]:
    """
    The document after a patch, `MISSING` where it is gone, and by how many bytes copies and sums made it
    larger.

    Args:
        document: The document before, a dictionary, or `MISSING`.  It is not changed: what an operation
            touches is copied, once in a patch, and all else is shared between the two.
        operations: What is done, in this order.
        room: How many bytes copies and sums may add: a document that is copied into itself doubles each
            time, and 1 and 1e900 are 901 digits.

    Raises:
        PatchError: An operation cannot be done.  Then none is.

    >>> apply_patch({"n": 1}, [Operation(INCREMENT, ("n",), 2), Operation(ADD, ("m", "k"), 1)], room=0)
    ({'n': 3, 'm': {'k': 1}}, 0)
    """
    at_work = _WorkingDocument(document, room)
    for place, operation in enumerate(operations, 1):
        try:
            _DO[operation.name](at_work, operation)
        except PatchError as error:
            raise PatchError(f"operation {place}: {error}") from None
    return at_work.document, room - at_work.room


class _WorkingDocument:
    """A document that is worked on, and which parts of it are copies of our own."""

    def __init__(self, document: Any, room: int) -> None:
        self.document, self.room, self.looked_at = document, room, 0
        # By identity; the values keep the copies alive, so that no other object gets their identity.
        self.owned: dict[int, Any] = {}

    def own(self, value: Any) -> Any:
        if id(value) in self.owned:
            return value
        return self.keep_copy(value.copy())

    def keep_copy(self, copy: Any) -> Any:
        self.owned[id(copy)] = copy
        return copy

    def take_room(self, many: int, made: str) -> None:
        """Note that so many bytes are added by what is made; raises `PatchError` where there is no room."""
        self.room -= many
        if self.room < 0:
            raise PatchError(f"its {made} would make the document larger than it may be")

    def put(self, path: Path, value: Any) -> None:
        if not path:
            if not isinstance(value, dict):
                raise PatchError(f"an entity is a document, not {show_value(value)}")
            self.document = value
            return
        node = self.document = self.keep_copy({}) if self.document is MISSING else self.own(self.document)
        if len(path) > 1:
            node = self.parent(node, path)
        if isinstance(node, dict):
            node[path[-1]] = value
        else:
            _set(node, path[-1], value, path)

    def parent(self, node: Any, path: Path) -> Any:
        """Find what holds the last step of the path; made where it is missing."""
        for place, step in enumerate(path[:-1]):
            child = _child(node, step)
            if child is MISSING:
                child = self.keep_copy([] if begins_array(path[place + 1]) else {})
            elif isinstance(child, _CONTAINERS):
                child = self.own(child)
            else:
                raise PatchError(f"{_path_text(path[: place + 1])} is {show_value(child)}, and has no parts")
            _set(node, step, child, path[: place + 1])
            # An element that was appended stands under no name: the next step goes into it itself.
            node = child
        return node

    def find(self, path: Path) -> Any:
        node = self.document
        for step in path:
            node = _child(node, step)
            if node is MISSING:
                break
        return node

    def remove(self, path: Path) -> None:
        if not path:
            self.document = MISSING
        elif self.find(path) is not MISSING:
            node = self.document = self.own(self.document)
            for step in path[:-1]:
                child = self.own(_child(node, step))
                _set(node, step, child, path)
                node = child
            del node[path[-1] if isinstance(node, dict) else int(path[-1])]


def _child(node: Any, step: str) -> Any:
    if isinstance(node, dict):
        return node.get(step, MISSING)
    index = array_index(step) if isinstance(node, list) else None
    return MISSING if index is None or index >= len(node) else node[index]


def _set(node: Any, step: str, value: Any, path: Path) -> None:
    if isinstance(node, dict):
        node[step] = value
        return
    index = len(node) if step == APPEND else array_index(step)
    if index is None:
        raise PatchError(f"{_path_text(path)}: {show_value(step)} is no place in an array")
    if index > len(node):
        raise PatchError(f"{_path_text(path)}: the array has {len(node)} elements")
    if index == len(node):
        node.append(value)
    else:
        node[index] = value


def _path_text(path: Path) -> str:
    return show_value("/" + "/".join(map(step_text, path)))


def _move(work: _WorkingDocument, operation: Operation) -> None:
    source, path = operation.source, operation.path
    if source == path:
        return
    if path[: len(source)] == source:
        raise PatchError(f"{_path_text(source)} cannot be moved into itself")
    value = work.find(source)
    if value is not MISSING:
        if len(path) > len(source):
            _require_depth(work, path, value)
        work.remove(source)
        work.put(path, value)


def _copy(work: _WorkingDocument, operation: Operation) -> None:
    value = work.find(operation.source)
    if value is MISSING or operation.source == operation.path:
        return
    text = to_text(value)
    work.take_room(len(text), "copies")
    if isinstance(value, _CONTAINERS):
        _require_depth(work, operation.path, value)
        value = read(text)  # of its own: what is written into one is not written into the other
    work.put(operation.path, value)


def _increment(work: _WorkingDocument, operation: Operation) -> None:
    value = work.find(operation.path)
    if value is MISSING:
        work.put(operation.path, operation.value)
    elif type(value) not in _NUMBERS:
        raise PatchError(f"{_path_text(operation.path)} is {show_value(value)}, and no number")
    else:
        total = _sum(value, operation.value)
        if isinstance(total, Decimal):
            # A sum of whole numbers is as long as the longer of them; this one may have many zeros between.
            grown = len(str(total)) - len(str(value)) - len(str(operation.value))
            work.take_room(max(0, grown), "sums")
        work.put(operation.path, total)


def _sum(first: int | Decimal, second: int | Decimal) -> int | Decimal:
    if isinstance(first, int) and isinstance(second, int):
        whole = first + second
        if whole.bit_length() > _LONGEST_NUMBER:
            raise PatchError("the sum has too many digits")
        return whole
    try:
        return _EXACT.add(Decimal(first), Decimal(second))
    except DecimalException:
        raise PatchError("the sum has too many digits") from None


def _test(work: _WorkingDocument, operation: Operation) -> None:
    value = work.find(operation.path)
    if value is MISSING:
        raise PatchError(
            f"{_path_text(operation.path)} is not there, and should be {show_value(operation.value)}"
        )
    if not same(value, operation.value):
        raise PatchError(
            f"{_path_text(operation.path)} is {show_value(value)}, not {show_value(operation.value)}"
        )


def _require_depth(work: _WorkingDocument, path: Path, value: Any) -> None:
    deep, many = depth_and_size(value)
    work.looked_at += many
    if work.looked_at > _MOST_LOOKED_AT:
        raise PatchError("the patch moves too much")
    if len(path) + deep > DEEPEST:
        raise PatchError(f"the document would be nested deeper than {DEEPEST}")


_DO: Mapping[str, Callable[[_WorkingDocument, Operation], None]] = {
    **dict.fromkeys((ADD, REPLACE), lambda work, operation: work.put(operation.path, operation.value)),
    REMOVE: lambda work, operation: work.remove(operation.path),
    MOVE: _move,
    COPY: _copy,
    INCREMENT: _increment,
    TEST: _test,
}
