"""The type of a column about which two versions of one table disagree, for workers that have it in Arrow."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.compute as pc

from cdckit.parts.widening import DOUBLE, Number, number_texts, wider


def common_type(left: pa.DataType, right: pa.DataType, *, as_double: bool = False) -> pa.DataType:
    """
    The type that a column has when two versions of its table disagree.

    Numbers widen where that loses nothing (`cdckit.parts.widening`), null gives way; all else is text.

    Args:
        as_double: Whether numbers that no exact type holds become doubles.

    >>> common_type(pa.int32(), pa.int64()), common_type(pa.int64(), pa.date32())
    (DataType(int64), DataType(string))
    >>> common_type(pa.int64(), pa.decimal128(7, 2))
    Decimal128Type(decimal128(21, 2))
    """
    if left == right or pa.types.is_null(right):
        return left
    if pa.types.is_null(left):
        return right
    one, other = _number(left), _number(right)
    found = wider(one, other) if one and other else None
    if one and other and as_double:
        found = found or DOUBLE
    return _arrow_type(found) if found else pa.string()


def _number(kind: pa.DataType) -> Number | None:
    if pa.types.is_decimal(kind):
        return Number("decimal", kind.precision, kind.scale)
    if pa.types.is_integer(kind):
        return Number("integer", kind.bit_width)
    return Number("float", kind.bit_width) if pa.types.is_floating(kind) else None


def _arrow_type(number: Number) -> pa.DataType:
    if number.kind == "decimal":
        return pa.decimal128(number.size, number.scale)
    if number.kind == "integer":
        return pa.int64() if number.size == 64 else pa.int32()
    return pa.float64() if number.size == 64 else pa.float32()


def to_common_type(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """
    The *values* of one version in the type that `common_type` found for all versions.

    Bytes become hex text, as in JSON form; nested values become JSON text; instants are in UTC, written
    as `cdckit.parts.values.as_text` does; numbers are written as `union_changes` does.

    >>> to_common_type(pa.array([b"\\xff", None]), pa.string()).to_pylist()
    ['ff', None]
    """
    if values.type == kind:  # Arrow's cast of a list of nulls to its own type loses items
        return values
    if not pa.types.is_string(kind):
        # Only who asks for doubles has numbers that a float does not hold.
        return values.cast(kind, safe=not pa.types.is_floating(kind))
    if pa.types.is_binary(values.type):
        return pa.array([None if value is None else value.hex() for value in values.to_pylist()], kind)
    if pa.types.is_nested(values.type):
        texts = [None if value is None else json.dumps(value, default=str) for value in values.to_pylist()]
        return pa.array(texts, kind)
    if pa.types.is_timestamp(values.type):
        texts = values.cast(pa.timestamp("us")).cast(kind)
        whole = pc.replace_substring_regex(texts, r"\.0+$", "")
        return pc.replace_substring_regex(whole, r"(\.[0-9]*[1-9])0+$", r"\1")
    return number_texts(values) if _number(values.type) else values.cast(kind)
