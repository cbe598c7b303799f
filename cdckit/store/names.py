"""Names that file systems, Parquet or Delta do not take, as ones that they take, and back."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection

from pyspark.sql import types as T

TRUE_NAME = "cdckit.name"
"""The key of a stored column's metadata under which its true name stands, where it is another."""

RESERVED = ("commits", "scratch")
"""Folders of a store that no table has."""

_PLAIN = re.compile(r"[A-Za-z0-9_.-]")
_NOT_TAKEN = re.compile(r"[ ,;{}()\n\t=]")
_MOST_BYTES = 120


def folder_name(table: str) -> str:
    """
    The name of the folder of a table: its own where it can be, else with ~ and two digits for odd bytes.

    >>> folder_name("history.Flight"), folder_name("a/b ~"), folder_name("_x"), folder_name("commits")
    ('history.Flight', 'a~2fb~20~7e', '~5fx', '~63ommits')
    """
    text = "".join(one if _PLAIN.fullmatch(one) else _escaped(one) for one in table)
    # Spark looks past names that begin with a point or an underscore.
    if not text or text[0] in "_." or text.lower() in RESERVED:
        text = _escaped(text[:1]) + text[1:]
    if len(text) > _MOST_BYTES:
        text = f"{text[:_MOST_BYTES]}~{hashlib.sha256(table.encode()).hexdigest()[:12]}"
    return text


def _escaped(text: str) -> str:
    return "".join(f"~{byte:02x}" for byte in text.encode("utf-8", "surrogatepass")) or "~"


def stored_names(columns: T.StructType, known: T.StructType | None = None) -> T.StructType:
    """
    The columns under names that Delta and Parquet take; the true ones stand in the fields' metadata.

    A name is another one where it is empty, has a character of ` ,;{}()=`, a tab or a line's end, or is
    that of an earlier column but for case, at any depth.  A column that is *known* keeps its stored name.

    >>> columns = T.StructType().add("a b", "long").add("x", "long").add("X", "long")
    >>> [one.name for one in stored_names(columns)]
    ['a_b', 'x', 'X_2']
    """
    before = {true_name(one): one for one in known or []}
    taken = {one.name.lower() for one in known or []}
    fields = []
    for column in columns:
        found = before.get(column.name)
        name = found.name if found else _free(_NOT_TAKEN.sub("_", column.name) or "_", taken)
        taken.add(name.lower())
        kind = _within(column.dataType, found.dataType if found else None, stored_names)
        metadata = {} if name == column.name else {TRUE_NAME: column.name}
        fields.append(T.StructField(name, kind, column.nullable, metadata))
    return T.StructType(fields)


def true_names(stored: T.StructType) -> T.StructType:
    """The columns under their true names."""
    return T.StructType(
        [
            T.StructField(
                true_name(one), _within(one.dataType, None, lambda kind, _: true_names(kind)), one.nullable
            )
            for one in stored
        ]
    )


def plain_names(stored: T.StructType) -> T.StructType:
    """The columns under their stored names, without their true ones."""
    return T.StructType(
        [
            T.StructField(
                one.name, _within(one.dataType, None, lambda kind, _: plain_names(kind)), one.nullable
            )
            for one in stored
        ]
    )


def true_name(stored: T.StructField) -> str:
    """The name under which users know a stored column."""
    return str((stored.metadata or {}).get(TRUE_NAME, stored.name))


def _free(name: str, taken: Collection[str]) -> str:
    found, number = name, 1
    while found.lower() in taken:
        number += 1
        found = f"{name}_{number}"
    return found


_OfStruct = Callable[[T.StructType, T.StructType | None], T.StructType]


def _within(kind: T.DataType, known: T.DataType | None, change: _OfStruct) -> T.DataType:
    """The type with *change* made to the structs in it."""
    if isinstance(kind, T.StructType):
        return change(kind, known if isinstance(known, T.StructType) else None)
    if isinstance(kind, T.ArrayType):
        inner = known.elementType if isinstance(known, T.ArrayType) else None
        return T.ArrayType(_within(kind.elementType, inner, change), kind.containsNull)
    if isinstance(kind, T.MapType):
        keys = known.keyType if isinstance(known, T.MapType) else None
        values = known.valueType if isinstance(known, T.MapType) else None
        return T.MapType(
            _within(kind.keyType, keys, change),
            _within(kind.valueType, values, change),
            kind.valueContainsNull,
        )
    return kind
