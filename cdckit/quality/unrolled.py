"""
What a suite says of all fields at once, said of each by its name where a table's columns are known.

A suite is written for tables of any fields, so it turns rows into arrays or JSON, and goes through these
element by element.  Spark compiles what names columns; lambdas and JSON it interprets, at many times
the cost.
The texts that are replaced are those of the suites of cdckit, whole, so that nothing else is taken for them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from pyspark.sql import types as T

from cdckit.history import FIELD_PROVENANCE, STANDARD_COLUMNS
from cdckit.parts.schemas import quoted

NAMELESS = (
    f"array_size(array_except(json_object_keys(to_json(struct(* EXCEPT ({', '.join(STANDARD_COLUMNS)})))), "
    f"coalesce(json_object_keys(to_json({FIELD_PROVENANCE})), array()))) > 0"
)
"""Whether a field has a value and no provenance."""

HALF = f"exists(array({FIELD_PROVENANCE}.*), each -> (each.m IS NULL) <> (each.p IS NULL))"
"""Whether provenance names a message and no priority, or the other way round."""

UNSAID = "array_size(array_remove(array_remove(array(carried.*), true), false)) > 0"
"""Whether a change does not say of each field if its message sent it."""

EMPTY = "array_size(array_remove(array(carried.*), false)) = 0"
"""Whether a change carries no field."""

FIELDLESS = "operation <> 'delete' AND data IS NULL"
"""Whether a change lacks the fields that it should have."""

SOME = re.compile(
    r"exists\(zip_with\((cdckit_[\w.]*priorities\w*), (cdckit_[\w.]*priorities\w*), \((\w+), (\w+)\) -> "
    r"([\w\s<]+)\), some -> some\)"
)
"""Whether two arrays of priorities, one for each field, differ somewhere as it is said."""

ABSENT = re.compile(r"(?<=\bIF\()`(\w+)` IS NULL(?=, \d+L, 0L\))")
"""Whether a column is null, as `with_breaks` asks it of the rows of the table."""


def unrolled(query: str, schema: T.StructType) -> str:
    """The query with such texts replaced, of a table of these columns."""
    provenance = _fields(schema, FIELD_PROVENANCE)
    fields = [name for name in schema.names if name not in STANDARD_COLUMNS]
    flags = _flags(schema)
    made: Mapping[str, Callable[[], str]] = {
        NAMELESS: lambda: _nameless(fields, provenance),
        HALF: lambda: _any(_half(name) for name in provenance),
        **({} if flags is None else {UNSAID: lambda: _unsaid(flags), EMPTY: lambda: _empty(flags)}),
        FIELDLESS: lambda: FIELDLESS + _and_leaf(schema, "data"),
    }
    for text, of in made.items():
        if text in query:
            query = query.replace(text, of())
    query = ABSENT.sub(lambda found: found[0] + _and_leaf(schema, found[1]), query)
    return SOME.sub(lambda found: _any(_differs(found, place) for place in range(len(provenance))), query)


def _fields(schema: T.StructType, column: str) -> Sequence[str]:
    kind = schema[column].dataType if column in schema.names else None
    return kind.fieldNames() if isinstance(kind, T.StructType) else []


def _name(field: str) -> str:
    """A name in SQL that is a format, so that braces are doubled."""
    return quoted(field).replace("{", "{{").replace("}", "}}")


def _any(conditions: Iterable[str]) -> str:
    return f"({' OR '.join(conditions) or 'false'})"


def _nameless(fields: Sequence[str], provenance: Sequence[str]) -> str:
    lacking = []
    for name in map(_name, fields):
        known = f"{FIELD_PROVENANCE}.{name} IS NULL AND " if name in map(_name, provenance) else ""
        lacking.append(f"({known}{name} IS NOT NULL)")
    return _any(lacking)


def _flags(schema: T.StructType) -> Sequence[str] | None:
    """The fields of `carried`; none if one is no boolean, or has no name in SQL: then the text stands."""
    kind = schema["carried"].dataType if "carried" in schema.names else None
    if not isinstance(kind, T.StructType) or any(each.dataType != T.BooleanType() for each in kind):
        return None
    return kind.fieldNames() if len(_told_apart(kind)) == len(kind) else None


def _told_apart(kind: T.StructType) -> Sequence[T.StructField]:
    """The fields whose names do not differ in case alone: of others SQL cannot tell which is meant."""
    count = Counter(name.lower() for name in kind.fieldNames())
    return [field for field in kind if count[field.name.lower()] == 1]


def _unsaid(flags: Sequence[str]) -> str:
    return _any(f"carried.{_name(each)} IS NULL" for each in flags)


def _empty(flags: Sequence[str]) -> str:
    return f"NOT {_any(f'coalesce(carried.{_name(each)}, true)' for each in flags)}"


def _and_leaf(schema: T.StructType, column: str) -> str:
    """That a small field of it is null, too: for a struct alone Spark would read all of its fields."""
    kind = schema[column].dataType if column in schema.names else None
    if not isinstance(kind, T.StructType):
        return ""
    leaves = [each for each in _told_apart(kind) if type(each.dataType) in _SIZES]
    small = min(leaves, key=lambda each: _SIZES[type(each.dataType)], default=None)
    return f" AND {_name(column)}.{_name(small.name)} IS NULL" if small is not None else ""


_SIZES: Mapping[type[T.DataType], int] = {
    T.BooleanType: 1, T.IntegerType: 4, T.LongType: 8, T.DoubleType: 9, T.StringType: 16, T.TimestampType: 17,
}  # fmt: skip


def _half(field: str) -> str:
    entry = f"{FIELD_PROVENANCE}.{_name(field)}"
    return f"({entry}.m IS NULL) <> ({entry}.p IS NULL)"


def _differs(found: re.Match[str], place: int) -> str:
    one, other, first, second, condition = found.groups()
    at = {first: f"get({one}, {place})", second: f"get({other}, {place})"}
    said = re.sub(r"\w+", lambda word: at.get(word[0], word[0]), condition)
    return f"({said})"
