"""JSON objects as records of msgspec: read in one pass, with every digit of a number."""

from __future__ import annotations

import json
from collections.abc import Iterable
from types import UnionType
from typing import Any, Union, get_args, get_origin

import msgspec
import pyarrow as pa

from cdckit.parts.json_text import each_name_once, refuse_constant, storable


class ObjectReader:
    """
    What JSON objects say, in the fields of a struct of msgspec, which pass over all else; or as dictionaries.

    Args:
        kind: The struct, or `dict`.  Its fields are of any value, of structs, of lists of structs, or `Raw`,
            the JSON of a value as it stands, which is not looked into.  None is what is of another kind than
            its field.  A number that is not whole is a `Raw`, with all its digits; `json_text` writes it.

    >>> class Product(msgspec.Struct):
    ...     id: Any = None
    ...     price: Any = None
    >>> sent = pa.array([b'{"id": 7, "price": 1.10, "more": {}}', b'{"id": "x"}', b"[7]", None])
    >>> first, *others = ObjectReader(Product).read(sent)
    >>> first.id, json_text(first.price), others
    (7, '1.10', [Product(id='x', price=None), None, None])
    """

    def __init__(self, kind: type[Any]) -> None:
        self._kind = kind
        self._decode = msgspec.json.Decoder(kind, float_hook=_as_written).decode

    def read(self, texts: pa.Array) -> list[Any]:
        """Read each text; None for what is not one JSON object in UTF-8, from end to end."""
        try:
            texts.cast(pa.string())
        except pa.ArrowInvalid:
            # What is passed over is not looked at by the decoder.
            return [self.object(text) if _is_utf_8(text) else None for text in texts.to_pylist()]
        return [None if text is None else self.object(text) for text in texts.to_pylist()]

    def object(self, text: bytes) -> Any:
        """The object of one text; None for what is none."""
        try:
            return self._decode(text)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return self._look_again(text)

    def _look_again(self, text: bytes) -> Any:
        """Read by Python's reader: long numbers, halves of characters, parts of other kinds than fields."""
        try:
            value = json_value(text.decode())
        except (ValueError, RecursionError):
            return None
        return _fit(value, self._kind) if isinstance(value, dict) else None


def json_value(text: str) -> Any:
    """
    Any JSON text as a value of `ObjectReader`, by Python's reader.

    Raises:
        ValueError, RecursionError: It is no JSON, or too deep.
    """
    return _spelled(_SLOW.decode(text))


def json_text(value: Any) -> str:
    """The JSON of a value that was read, compact."""
    if value.__class__ is int:
        return str(value)
    return (bytes(value) if value.__class__ is msgspec.Raw else _encode(value)).decode()


def plain_text(value: Any) -> str | None:
    """The letters of a text, and of any other value its JSON; None for null."""
    return value if value is None or value.__class__ is str else json_text(value)


_encode = msgspec.json.Encoder().encode


def _as_written(number: str) -> msgspec.Raw:
    return msgspec.Raw(number.encode())


def _whole_number(digits: str) -> int | msgspec.Raw:
    # Python refuses to make a number of thousands of digits.
    return int(digits) if len(digits) < 1000 else _as_written(digits)


STRICT_JSON = json.JSONDecoder(
    parse_float=_as_written, parse_constant=refuse_constant, object_pairs_hook=each_name_once
)
"""Reads JSON in which no object has a name twice; `json_text` writes its values with every digit."""

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
        return [_spelled(part) for part in value]
    if isinstance(value, dict):
        return {storable(name): _spelled(part) for name, part in value.items()}
    return value


def _fit(value: Any, kind: Any) -> Any:
    """A value that was read without a kind as one of that kind; None for what is none."""
    if get_origin(kind) in (Union, UnionType):
        (kind,) = (part for part in get_args(kind) if part is not type(None))
    if kind is msgspec.Raw:
        return msgspec.Raw(json_text(value).encode())
    if get_origin(kind) is list:
        (part,) = get_args(kind)
        return [_fit(item, part) for item in value] if isinstance(value, list) else None
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        if not isinstance(value, dict):
            return None
        fields: Iterable[Any] = msgspec.structs.fields(kind)
        sent = (field for field in fields if field.encode_name in value)
        return kind(**{field.name: _fit(value[field.encode_name], field.type) for field in sent})
    return value
