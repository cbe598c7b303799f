"""One update as a statement about fields: which of them its patch touched, and their values behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial
from math import isinf
from typing import Any

from pyspark.sql import types as T

from cdckit.changes import DELETE, UPSERT
from cdckit.parts.instants import instant
from cdckit.streams.codes import StreamFault
from cdckit.streams.json_values import column_text, read, read_all, written
from cdckit.streams.operations import (
    ADD,
    INCREMENT,
    MOVE,
    REMOVE,
    REPLACE,
    REQUIRE,
    Operation,
    operations,
)
from cdckit.streams.paths import Path, shown

_MOST_STEPS = 6  # each doubles in how many ways a name can be read

Row = tuple[str, list[Any], list[bool], str | None, str | None]
"""Operation, values, which fields were touched, and the code and sentence of what is wrong."""


def statement(
    ops: str | None,
    after: str | None,
    places: list[list[Path]],
    convert: list[Callable[[Any], Any]],
    names: list[str],
) -> Row:
    """
    What one update says of the fields.

    Args:
        ops: The operations of its patch, JSON text.
        after: The entity after it, JSON text; null where nobody said.
        places: By field, where it may stand in a document.
        convert: By field, what makes its value of one of JSON, or raises.
        names: By field, its name.
    """
    nothing: list[Any] = [None] * len(places)
    done, _ = operations(read_all(ops or "[]"))
    if after is None:
        if _ends_without(done):
            return DELETE, nothing, [False] * len(places), None, None
        return _unfit(StreamFault.NO_DOCUMENT, "", nothing)
    document = read(after)
    written_at = [path for operation in done for path in _written_at(operation)]
    touched = [any(_overlap(path, at) for path in each for at in written_at) for each in places]
    values = []
    for paths, is_touched, converted, name in zip(places, touched, convert, names, strict=True):
        found = [_value(document, path) for path in paths] if is_touched else []
        value, *more = [each for each in found if each is not None] or [None]
        if more:
            return _unfit(StreamFault.UNFIT_VALUE, f"{name} is there twice: a name has the dot.", nothing)
        try:
            values.append(None if value is None else converted(value))
        except (TypeError, ValueError, OverflowError):
            return _unfit(StreamFault.UNFIT_VALUE, f"{name} is {shown(value)}.", nothing)
    return UPSERT, values, touched, None, None


def _unfit(fault: StreamFault, finding: str, nothing: list[Any]) -> Row:
    return UPSERT, nothing, [False] * len(nothing), fault.value, column_text(fault.describe(finding))


def _ends_without(done: list[Operation]) -> bool:
    """Whether the entity is gone after these operations, given that nothing is said of it after them."""
    gone = False
    for operation in done:
        if operation.name == REMOVE:
            gone = gone or not operation.path
        elif operation.name in _MAKES:
            gone = False
    return gone


# What makes an entity anew that is gone: what is moved or copied must be there.
_MAKES = (ADD, REPLACE, INCREMENT)


def places_of(name: str) -> list[Path]:
    """
    Where a field may stand: `a.b` is `b` within `a`, or the field of an entity whose name has the dot.

    >>> places_of("a.b")
    [('a', 'b'), ('a.b',)]
    """
    steps = name.split(".")
    if len(steps) > _MOST_STEPS:
        return [tuple(steps), (name,)]
    found: list[Path] = [(steps[-1],)]
    for step in reversed(steps[:-1]):
        found = [each for rest in found for each in ((step, *rest), (f"{step}.{rest[0]}", *rest[1:]))]
    return found


def _written_at(operation: Operation) -> tuple[Path, ...]:
    if operation.name == REQUIRE:
        return ()
    return (operation.path, operation.source) if operation.name == MOVE else (operation.path,)


def _overlap(first: Path, second: Path) -> bool:
    short = min(len(first), len(second))
    return first[:short] == second[:short]


def _value(document: Any, path: Path) -> Any:
    for step in path:
        if not isinstance(document, dict) or step not in document:
            return None
        document = document[step]
    return document


def _text(value: Any) -> str | None:
    return column_text(value if isinstance(value, str) else written(value))


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _whole(value: Any, *, bits: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not -(1 << bits) <= value < 1 << bits:
        raise TypeError
    return value


def _double(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise TypeError
    found = float(value)
    if isinf(found):  # a decimal beyond all doubles; of an int Python says so itself
        raise OverflowError
    return found


def _instant(value: Any) -> Any:
    found = instant(value)
    if found is None:
        raise TypeError
    return found


CONVERT: Mapping[type[T.DataType], Callable[[Any], Any]] = {
    T.StringType: _text,
    T.BooleanType: _boolean,
    T.IntegerType: partial(_whole, bits=31),
    T.LongType: partial(_whole, bits=63),
    T.DoubleType: _double,
    T.TimestampType: _instant,
}
