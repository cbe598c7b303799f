"""JSON objects as columns of Arrow: read in one pass, with every digit of a number that becomes a text."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate, chain
from operator import attrgetter
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import types as T

from cdckit.parts.arrow_types import arrow_type
from cdckit.parts.json_text import refuse_constant, storable


class ObjectReader:
    """
    What JSON objects say: as a map of texts, or in the fields of a struct, which pass over all else.

    Args:
        kind: The map or the struct.  Its fields are texts, whole numbers (long), bytes, maps of texts,
            structs of such, and arrays of structs.  A text is that of a JSON text, and of any other value its
            JSON, compact and with every digit.  Bytes are the JSON of a value as it stands, which is not
            looked into.  Null is what is of another kind than its field.

    >>> reader = ObjectReader(T.StructType().add("id", "long").add("price", "string").add("row", "binary"))
    >>> sent = pa.array([b'{"id": 7, "price": 1.10, "row": {"a": 1}}', b'{"id": "x"}', b"[7]", None])
    >>> found = reader.read(sent)
    >>> found[1].id, found[2:]
    ('x', [None, None])
    >>> reader.column(found).to_pylist()[:2]
    [{'id': 7, 'price': '1.10', 'row': b'{"a": 1}'}, {'id': None, 'price': None, 'row': None}]
    """

    def __init__(self, kind: T.StructType | T.MapType) -> None:
        self._kind = kind
        self._decode = msgspec.json.Decoder(_form_of(kind), float_hook=_as_written).decode

    def read(self, texts: pa.Array) -> list[Any]:
        """What each text is; None for what is not one JSON object in UTF-8, from end to end."""
        try:
            texts.cast(pa.string())
        except pa.ArrowInvalid:
            # What is passed over is not looked at by the decoder.
            return [self._object(text) if _is_utf_8(text) else None for text in texts.to_pylist()]
        return [None if text is None else self._object(text) for text in texts.to_pylist()]

    def _object(self, text: bytes) -> Any:
        try:
            return self._decode(text)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return self._look_again(text)

    def _look_again(self, text: bytes) -> Any:
        """By Python's reader: long numbers, halves of characters, parts of another kind than their fields."""
        try:
            return _fit(_spelled(_SLOW.decode(text.decode())), self._kind)
        except (ValueError, RecursionError):
            return None

    def column(self, objects: Sequence[Any]) -> pa.Array:
        """What was read, as a column of `kind`; null for None, and in a map for what is no object."""
        try:
            return _column(objects, self._kind)
        except RecursionError:
            # What could just be read is too deep to be written; that may not cost the others their values.
            return _column([each if self._can_be_written(each) else None for each in objects], self._kind)

    def _can_be_written(self, found: Any) -> bool:
        try:
            return _column([found], self._kind) is not None
        except RecursionError:
            return False


@lru_cache(maxsize=64)
def _form(kind: T.StructType) -> type[msgspec.Struct]:
    """The struct of msgspec that has these fields."""
    fields = [(each.name, _form_of(each.dataType), None) for each in kind]
    return msgspec.defstruct("Object", fields, eq=False, gc=False)


def _form_of(kind: T.DataType) -> Any:
    if isinstance(kind, T.StructType):
        return _form(kind) | None
    if isinstance(kind, T.ArrayType):
        return list[_form_of(kind.elementType)] | None  # type: ignore[misc]
    return msgspec.Raw if isinstance(kind, T.BinaryType) else Any


def _as_written(number: str) -> msgspec.Raw:
    return msgspec.Raw(number.encode())


def _whole_number(digits: str) -> int | msgspec.Raw:
    # Python refuses to make a number of thousands of digits.
    return int(digits) if len(digits) < 1000 else _as_written(digits)


_SLOW = json.JSONDecoder(parse_float=_as_written, parse_int=_whole_number, parse_constant=refuse_constant)


def _is_utf_8(text: bytes | None) -> bool:
    try:
        return text is not None and text.decode() is not None
    except UnicodeDecodeError:
        return False


def _spelled(value: Any) -> Any:
    """A value in which halves of characters are written out."""
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, list):
        return [_spelled(each) for each in value]
    if isinstance(value, dict):
        return {storable(name): _spelled(each) for name, each in value.items()}
    return value


def _fit(value: Any, kind: T.DataType) -> Any:
    """A value that was read without a kind as one of that kind; None for what is none."""
    if isinstance(kind, T.StructType):
        if not isinstance(value, dict):
            return None
        return _form(kind)(*(_fit(value.get(each.name), each.dataType) for each in kind))
    if isinstance(kind, T.ArrayType):
        return [_fit(each, kind.elementType) for each in value] if isinstance(value, list) else None
    if isinstance(kind, T.BinaryType) and value is not None:
        return msgspec.Raw(_json(value).encode())
    return value


def _structs(objects: Sequence[Any], kind: T.StructType) -> pa.Array:
    mask, nothing = _mask(objects), _form(kind)()
    some = objects if mask is None else [nothing if each is None else each for each in objects]
    names = kind.fieldNames()
    columns: list[Sequence[Any]] = [[]] * len(names)
    if len(names) == 1:
        columns = [[getattr(each, names[0]) for each in some]]
    elif some:
        columns = list(zip(*map(attrgetter(*names), some), strict=True))
    parts = [_column(values, each.dataType) for each, values in zip(kind, columns, strict=True)]
    return pa.StructArray.from_arrays(parts, fields=list(arrow_type(kind)), mask=mask)


def _column(values: Sequence[Any], kind: T.DataType) -> pa.Array:
    # What is some value at first need not be counted.
    if not values or (values[0] is None and values.count(None) == len(values)):
        return pa.nulls(len(values), arrow_type(kind))
    return _COLUMNS[type(kind)](values, kind)


def _texts(values: Sequence[Any], kind: T.DataType) -> pa.Array:
    try:
        return pa.array(values, pa.string())
    except pa.ArrowException:
        texts = [each if each is None or each.__class__ is str else _json(each) for each in values]
        return pa.array(texts, pa.string())


def _longs(values: Sequence[Any], kind: T.DataType) -> pa.Array:
    try:
        return pa.array(values, pa.int64())
    except (pa.ArrowException, OverflowError):
        fitting = [each if each.__class__ is int and -_MOST <= each < _MOST else None for each in values]
        return pa.array(fitting, pa.int64())


_MOST = 1 << 63


def _bytes(values: Sequence[Any], kind: T.DataType) -> pa.Array:
    whole = [None if each is None else bytes(each) for each in values]
    return pa.array([None if each == b"null" else each for each in whole], pa.binary())


def _maps(values: Sequence[Any], kind: T.DataType) -> pa.Array:
    rows = [each if each.__class__ is dict else None for each in values]
    there = [each for each in rows if each is not None]
    names = pa.array(list(chain.from_iterable(there)), pa.string())
    texts = _texts(list(chain.from_iterable(each.values() for each in there)), kind)
    return pa.MapArray.from_arrays(_offsets(rows), names, texts, type=arrow_type(kind), mask=_mask(rows))


def _lists(values: Sequence[Any], kind: T.DataType) -> pa.Array:
    assert isinstance(kind, T.ArrayType)
    parts = _column([part for each in values if each is not None for part in each], kind.elementType)
    return pa.ListArray.from_arrays(_offsets(values), parts, type=arrow_type(kind), mask=_mask(values))


_COLUMNS: dict[type[T.DataType], Callable[[Sequence[Any], Any], pa.Array]] = {
    T.StringType: _texts,
    T.LongType: _longs,
    T.BinaryType: _bytes,
    T.MapType: _maps,
    T.ArrayType: _lists,
    T.StructType: _structs,
}


def _offsets(rows: Sequence[Any]) -> pa.Array:
    """Where the parts of each row begin, and where those of the last one end."""
    return pa.array(accumulate((0 if row is None else len(row) for row in rows), initial=0), pa.int32())


def _mask(rows: Sequence[Any]) -> pa.Array | None:
    return None if all(rows) else pa.array([row is None for row in rows], pa.bool_())


_encode = msgspec.json.Encoder().encode


def _json(value: Any) -> str:
    """The JSON of a value that was read, compact."""
    if value.__class__ is int:
        return str(value)
    return (bytes(value) if value.__class__ is msgspec.Raw else _encode(value)).decode()
