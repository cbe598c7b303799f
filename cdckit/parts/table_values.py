"""
Values of a table of any library in the types that Spark takes: one table of types, at every depth.

What comes as Arrow goes through `in_spark_types`, objects of Python before that through `read_objects`.  The
page "Types" shows the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from cdckit.parts import instants
from cdckit.parts.arrow_types import list_parts


class UnfitValues(TypeError):
    """A type, or values, that no type of Spark holds exactly."""


_WIDER: dict[pa.DataType, pa.DataType] = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20),
    pa.float16(): pa.float32(),
}
_AS_THEY_ARE = (pa.types.is_null, pa.types.is_boolean, pa.types.is_signed_integer, pa.types.is_floating)
_TEXTS = (pa.string(), pa.large_string(), pa.string_view())
_BYTES = (pa.binary(), pa.large_binary(), pa.binary_view())


def in_spark_types(values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """
    The same values in an Arrow type that Spark has; raises `UnfitValues`, or Arrow's error, where none is.

    Instants are in microseconds of UTC, whether they say a zone or not (`instants.as_instants`).

    >>> in_spark_types(pa.array([[1, None]], pa.large_list(pa.uint32()))).type
    ListType(list<item: int64>)
    """
    kind = values.type
    if isinstance(values, pa.ChunkedArray):
        # Without a chunk there would be no type.
        chunks = values.chunks or [pa.nulls(0, kind)]
        return pa.chunked_array([in_spark_types(chunk) for chunk in chunks])
    if pa.types.is_dictionary(kind):
        # Arrow decodes no dictionary of a view, as polars has it.
        entries = in_spark_types(values.dictionary)
        return pa.DictionaryArray.from_arrays(values.indices, entries).dictionary_decode()
    if pa.types.is_run_end_encoded(kind):
        return in_spark_types(pc.run_end_decode(values))
    if isinstance(kind, pa.BaseExtensionType):
        return _of_extension(values)
    if pa.types.is_nested(kind):
        return _nested(values)
    if kind in _WIDER:
        return values.cast(_WIDER[kind])
    if any(is_one(kind) for is_one in _AS_THEY_ARE):
        return values
    if kind in _TEXTS:
        return values.cast(pa.string())
    if kind in _BYTES or pa.types.is_fixed_size_binary(kind):
        return values.cast(pa.binary())
    if pa.types.is_date(kind):
        return values.cast(pa.date32())
    if pa.types.is_timestamp(kind):
        return instants.as_instants(values)
    if pa.types.is_duration(kind):
        return values.cast(pa.duration("us"))
    if pa.types.is_decimal(kind):
        return _decimals(values)
    raise UnfitValues(str(kind))


def require_known_type(field: pa.Field) -> None:
    """Raise `UnfitValues` for a type of a library's own: its bytes in Arrow may mean anything."""
    name = (field.metadata or {}).get(b"ARROW:extension:name")
    if name is not None and not isinstance(field.type, pa.BaseExtensionType):
        raise UnfitValues(f"a type that only its library knows, {name.decode(errors='replace')}")


def _nested(values: pa.Array) -> pa.Array:
    kind = values.type
    for place in range(kind.num_fields):
        require_known_type(kind.field(place))
    if pa.types.is_struct(kind):
        return _struct(values)
    if pa.types.is_union(kind):
        raise UnfitValues(str(kind))
    if pa.types.is_map(kind):
        offsets, *parts = list_parts(values)
        return pa.MapArray.from_arrays(offsets, *map(in_spark_types, parts), mask=values.is_null())
    # Not by Arrow's cast, which takes wrong elements of a view.
    lengths = pc.fill_null(pc.list_value_length(values), 0)
    offsets = pa.array(np.append(0, np.cumsum(lengths, dtype=np.int64))).cast(pa.int32())
    return pa.ListArray.from_arrays(offsets, in_spark_types(values.flatten()), mask=values.is_null())


def _struct(values: pa.StructArray) -> pa.Array:
    names = [field.name.lower() for field in values.type]
    if len(set(names)) < len(names):
        raise UnfitValues("a struct with fields that differ in case alone")
    # Not by `flatten`, which would make values null that a struct that is null hides.
    parts = [in_spark_types(values.field(place)) for place in range(len(names))]
    fields = [pa.field(field.name, part.type) for field, part in zip(values.type, parts, strict=True)]
    return pa.StructArray.from_arrays(parts, fields=fields, mask=values.is_null())


def _of_extension(values: pa.ExtensionArray) -> pa.Array:
    """Values of a type that Arrow itself defines beyond its own: a UUID is its text."""
    name = getattr(values.type, "extension_name", "")
    if name == "arrow.uuid":
        texts = [value if value is None else str(UUID(bytes=value)) for value in values.storage.to_pylist()]
        return pa.array(texts, pa.string())
    if name == "arrow.bool8":
        return pc.not_equal(values.storage, 0)
    if name == "arrow.json":
        return in_spark_types(values.storage)
    raise UnfitValues(str(values.type))


def _decimals(values: pa.Array) -> pa.Array:
    kind = values.type
    scale = max(kind.scale, 0)
    digits = max(kind.precision - kind.scale, 0) + scale
    if scale > 38:
        raise UnfitValues(str(kind))
    decimals = values.cast(pa.decimal128(max(min(digits, 38), 1), scale))
    # What a library says to be of 38 digits may have 39.
    decimals.validate(full=True)
    return decimals


_Reader = Callable[[Any], Any]
_LISTS = (list, tuple, np.ndarray)
_KINDS: dict[str, tuple[type, ...]] = {
    "truths": (bool, np.bool_),
    "texts": (str, UUID),
    "bytes": (bytes, bytearray, memoryview),
    "numbers": (int, float, Decimal, np.number),
    "dates": (date, np.datetime64),
    "times of day": (time,),
    "durations": (timedelta, np.timedelta64),
    "lists": _LISTS,
    "structs": (dict,),
}


def read_objects(values: Iterable[Any]) -> Iterable[Any]:
    """
    Objects of one column as Arrow takes them without loss; raises `UnfitValues` for those of several kinds.

    A date beside a datetime is its midnight, where Arrow would cut the clock of the other; a UUID is its
    text.

    >>> read_objects([date(2024, 1, 1), datetime(2024, 1, 2, 12, 30)])[0]
    datetime.datetime(2024, 1, 1, 0, 0, tzinfo=datetime.timezone.utc)
    """
    reader = _reader(values)
    return values if reader is None else list(map(reader, values))


def _reader(values: Iterable[Any]) -> _Reader | None:
    """What reads each of these objects, at every depth; None where they are read as they are."""
    values = [value for value in values if not _is_missing(value)]
    classes = set(map(type, values))

    def has(*kinds: type) -> bool:
        return any(issubclass(class_, kinds) for class_ in classes)

    # Arrow would make bytes of texts, and days since 1970 of numbers beside dates.
    several = {_kind_of(class_) for class_ in classes} - {None}
    if len(several) > 1:
        raise UnfitValues(" and ".join(name for name in _KINDS if name in several))
    if has(set, frozenset):
        raise UnfitValues("sets, which have no order: make lists of them, such as by sorted()")
    if has(pd.Timestamp, pd.Timedelta) and any(map(_has_nanoseconds, values)):
        raise UnfitValues("nanoseconds as objects: pandas.to_datetime() or to_timedelta() makes their type")
    if has(Decimal) and any(isinstance(value, Decimal) and value.is_infinite() for value in values):
        raise UnfitValues("an infinite decimal")
    if has(UUID):
        return lambda value: str(value) if isinstance(value, UUID) else value
    if has(datetime) and (date in classes or _mix_zones(values)):
        return _as_instant
    if has(*_LISTS):
        within = _reader(part for value in values if isinstance(value, _LISTS) for part in value)
        return within and (lambda value: list(map(within, value)) if isinstance(value, _LISTS) else value)
    return _reader_of_mappings([value for value in values if isinstance(value, dict)]) if has(dict) else None


def _reader_of_mappings(values: list[dict[Any, Any]]) -> _Reader | None:
    names = {name for value in values for name in value}
    every_reader = {name: _reader(value[name] for value in values if name in value) for name in names}
    readers = {name: reader for name, reader in every_reader.items() if reader is not None}

    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {name: readers[name](part) if name in readers else part for name, part in value.items()}

    return read if readers else None


def _kind_of(of: type) -> str | None:
    # The first: to Python, a truth is a number too.
    return next((name for name, kinds in _KINDS.items() if issubclass(of, kinds)), None)


def _has_nanoseconds(value: Any) -> bool:
    part = "nanosecond" if isinstance(value, pd.Timestamp) else "nanoseconds"
    return bool(getattr(value, part, 0))


def _is_missing(value: Any) -> bool:
    """Whether pandas takes it for a missing value; its NaN and NaT are not equal to themselves."""
    return value is None or value is pd.NA or (not isinstance(value, np.ndarray) and value != value)


def _mix_zones(values: list[Any]) -> bool:
    zones = (value.tzinfo for value in values if instants.is_datetime(value))
    return len({zone is None for zone in zones}) > 1


def _as_instant(value: Any) -> Any:
    """A date or a datetime as an instant, in UTC where it says no zone; anything else as it is."""
    if instants.is_datetime(value):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value
    return datetime(value.year, value.month, value.day, tzinfo=UTC) if type(value) is date else value
