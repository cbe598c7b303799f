"""What an update says of the fields of its entity: patches know exactly which fields they touch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property, partial
from math import isinf
from typing import Any

import pyarrow as pa

from cdckit.model.faults import ERROR_CODE, ERROR_DESCRIPTION
from cdckit.parts.fold import Result
from cdckit.parts.instants import INSTANT, parse_instant
from cdckit.streams.catalogue import Status, Stream, StreamFault
from cdckit.streams.json_values import column_text, read, to_text
from cdckit.streams.messages import message
from cdckit.streams.patches import (
    ADD,
    INCREMENT,
    MOVE,
    REMOVE,
    REPLACE,
    TEST,
    Operation,
    Path,
    operations,
    show_value,
)

_MOST_STEPS = 6  # each doubles in how many ways a name can be read


@dataclass(frozen=True)
class Fields:
    """
    The fields of the entities of a collection.

    Args:
        types: Their names and types: one of `CONVERT`.
        dotted: Whether `a.b` is `b` within `a`, or the field whose name has the dot; else a name is a name.
    """

    types: pa.Schema
    dotted: bool

    @cached_property
    def places(self) -> list[list[Path]]:
        """By field, where it may stand in a document."""
        return [field_paths(name) if self.dotted else [(name,)] for name in self.types.names]

    @cached_property
    def statement(self) -> pa.Schema:
        """What an update says of the fields: values, which of them were touched, and what is wrong."""
        data = pa.struct([field.with_nullable(True) for field in self.types])
        carried = pa.struct([(name, pa.bool_()) for name in self.types.names])
        error = [(name, pa.string()) for name in (ERROR_CODE, ERROR_DESCRIPTION)]
        return pa.schema([("is_delete", pa.bool_()), ("data", data), ("carried", carried), *error])

    def read(
        self, ops: str | None, after: str | None, error_code: str | None, error_description: str | None
    ) -> Result:
        """
        Read what one update says (`statement`).

        Args:
            ops: The operations of its patch, JSON text.
            after: The entity after it, JSON text; null where nobody said.
            error_code, error_description: What is wrong with the update itself, if anything is.
        """
        names = self.types.names
        nothing, untouched = dict.fromkeys(names), dict.fromkeys(names, False)
        if error_code is not None:
            return False, nothing, untouched, error_code, error_description
        patch, _ = operations(read(ops or "[]"))
        if after is None and ends_without(patch):
            return True, nothing, untouched, None, None
        try:
            touched, values = self._values(patch, after)
        except _NoChange as reason:
            fault, finding = reason.args
            return False, nothing, untouched, fault.value, column_text(fault.describe(finding))
        return False, values, touched, None, None

    def _values(self, patch: list[Operation], after: str | None) -> tuple[dict[str, bool], dict[str, Any]]:
        """Find which fields a patch touched, and the values of those behind it."""
        if after is None:
            raise _NoChange(StreamFault.NO_DOCUMENT, "")
        document = read(after)
        written = [path for operation in patch for path in written_paths(operation)]
        touched: dict[str, bool] = {}
        values: dict[str, Any] = {}
        for field, paths in zip(self.types, self.places, strict=True):
            touched[field.name] = any(_paths_overlap(path, other) for path in paths for other in written)
            values[field.name] = self._value(document, field, paths) if touched[field.name] else None
        return touched, values

    def _value(self, document: Any, field: pa.Field, paths: list[Path]) -> Any:
        values = [value for path in paths if (value := _value_at(document, path)) is not None]
        if len(values) > 1:
            raise _NoChange(StreamFault.UNFIT_VALUE, f"{field.name} is there twice: a name has the dot.")
        try:
            return CONVERT[field.type](values[0]) if values else None
        except (TypeError, ValueError, OverflowError):
            raise _NoChange(StreamFault.UNFIT_VALUE, f"{field.name} is {show_value(values[0])}.") from None


class _NoChange(Exception):
    """An update is no change: the fault, and what was found."""


def statement_extent(value: bytes | None, key: bytes | None = None, *, stream: Stream) -> Result:
    """
    Tell when an update was done, and whether it says all that is there after it; no time if it says nothing.

    >>> from cdckit.streams import SCHEMA_UPDATES
    >>> text = (
    ...     b'{"db": "s", "clientid": "c", "request": 1, "user": "ann", "begun": 7, "ended": 9, "part": 1,'
    ...     b'"parts": 1, "status": 1, "ops": [{"op": "add", "path": "/", "value": {}}], "after": {}}'
    ... )
    >>> statement_extent(text, stream=SCHEMA_UPDATES), statement_extent(b"?", stream=SCHEMA_UPDATES)
    ((9, True), (None, False))
    """
    columns = message(value, stream, key)
    if ERROR_CODE in columns or columns["status"] != Status.DONE:
        return None, False
    patch, _ = operations(read(columns["ops"] or "[]"))
    if columns["after"] is None:
        return columns["ended"], ends_without(patch)
    return columns["ended"], any(not path for operation in patch for path in written_paths(operation))


def ends_without(patch: list[Operation]) -> bool:
    """Tell whether the entity is gone after these operations, if nothing is said of it after them."""
    is_gone = False
    for operation in patch:
        if operation.name == REMOVE:
            is_gone = is_gone or not operation.path
        elif operation.name in _MAKES:
            is_gone = False
    return is_gone


# What makes an entity anew that is gone: what is moved or copied must be there.
_MAKES = (ADD, REPLACE, INCREMENT)


def field_paths(name: str) -> list[Path]:
    """
    List where a field may stand: `a.b` is `b` within `a`, or the field of an entity whose name has the dot.

    >>> field_paths("a.b")
    [('a', 'b'), ('a.b',)]
    """
    steps = name.split(".")
    if len(steps) > _MOST_STEPS:
        return [tuple(steps), (name,)]
    paths: list[Path] = [(steps[-1],)]
    for step in reversed(steps[:-1]):
        paths = [path for end in paths for path in ((step, *end), (f"{step}.{end[0]}", *end[1:]))]
    return paths


def written_paths(operation: Operation) -> tuple[Path, ...]:
    """The places that an operation changes; the document itself has no steps."""
    if operation.name == TEST:
        return ()
    return (operation.path, operation.source) if operation.name == MOVE else (operation.path,)


def _paths_overlap(first: Path, second: Path) -> bool:
    short = min(len(first), len(second))
    return first[:short] == second[:short]


def _value_at(document: Any, path: Path) -> Any:
    for step in path:
        if not isinstance(document, dict) or step not in document:
            return None
        document = document[step]
    return document


def _text(value: Any) -> str | None:
    return column_text(value if isinstance(value, str) else to_text(value))


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
    number = float(value)
    if isinf(number):  # a decimal beyond all doubles; of an int Python says so itself
        raise OverflowError
    return number


def _instant(value: Any) -> Any:
    instant = parse_instant(value)
    if instant is None:
        raise TypeError
    return instant


CONVERT: Mapping[pa.DataType, Callable[[Any], Any]] = {
    pa.string(): _text,
    pa.bool_(): _boolean,
    pa.int32(): partial(_whole, bits=31),
    pa.int64(): partial(_whole, bits=63),
    pa.float64(): _double,
    INSTANT: _instant,
}
"""By the type of a field, what makes its value of one of JSON, or raises."""
