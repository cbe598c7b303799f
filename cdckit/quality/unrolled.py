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

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from cdckit.history import FIELD_PROVENANCE, STANDARD_COLUMNS
from cdckit.parts.schemas import quoted, text_literal

NAMELESS = (
    f"array_size(array_except(json_object_keys(to_json(struct(* EXCEPT ({', '.join(STANDARD_COLUMNS)})))), "
    f"coalesce(json_object_keys(to_json({FIELD_PROVENANCE})), array()))) > 0"
)
"""Whether a field has a value and no provenance."""

HALF = f"exists(array({FIELD_PROVENANCE}.*), each -> (each.m IS NULL) <> (each.p IS NULL))"
"""Whether provenance names a message and no priority, or the other way round."""

SAID = (
    "zip_with(array(carried.*), array(field_priorities.*), "
    "(sent, own) -> IF(sent, coalesce(own, priority), NULL))"
)
"""With which priority a change says something of each field; null of what it does not carry."""

UNSAID = "array_size(array_remove(array_remove(array(carried.*), true), false)) > 0"
"""Whether a change does not say of each field if its message sent it."""

EMPTY = "array_size(array_remove(array(carried.*), false)) = 0"
"""Whether a change carries no field."""

FIELDLESS = "operation <> 'delete' AND data IS NULL"
"""Whether a change lacks the fields that it should have."""

PRIORITIES = f"slice(array({FIELD_PROVENANCE}.*).p, 2, 100000)"
"""The priorities of all fields, without that of the row, which comes first."""

NEWS = (
    "zip_with(names, coalesce(names_before, CAST(array() AS array<string>)), "
    "(now, was) -> IF(now <=> was, NULL, now))"
)
"""The messages that a version names where the one before it names another, or none; else null."""

UNTOLD = "array_size(array_except(names, array_append(told, NULL))) > 0"
"""Whether a version names a message that its instant does not have."""

_PAIRS = "'map<string,struct<m:string>>'"
VOIDS = (
    f"transform(array_except(coalesce(json_object_keys(to_json({FIELD_PROVENANCE})), array()), "
    f"array_append(coalesce(json_object_keys(to_json(struct(* EXCEPT ({', '.join(STANDARD_COLUMNS)})))), "
    "array()), 'guid')), "
    f"field -> struct(field, from_json(to_json({FIELD_PROVENANCE}), {_PAIRS})[field].m AS message))"
)
"""The fields that have provenance and no value, each with the message that is named."""

NULLS = (
    "array_except(filter(json_object_keys(to_json(carried)), "
    "field -> from_json(to_json(carried), 'map<string,boolean>')[field]), "
    "coalesce(json_object_keys(to_json(data)), array()))"
)
"""The fields that a change says to be null."""

SOME = re.compile(
    r"exists\(zip_with\((cdckit_[\w.]*priorities\w*), (cdckit_[\w.]*priorities\w*), \((\w+), (\w+)\) -> "
    r"([\w\s<]+)\), some -> some\)"
)
"""Whether two arrays of priorities, one for each field, differ somewhere as it is said."""

ABSENT = re.compile(r"(?<=\bIF\()`(\w+)` IS NULL(?=, \d+L, 0L\))")
"""Whether a column is null, as `with_breaks` asks it of the rows of the table."""


def unrolled(query: str, views: Mapping[str, DataFrame], changes: str) -> str:
    """The query with such texts replaced; *changes* is the name of the log of changes among the views."""
    provenance = _fields(views["batch"].schema, FIELD_PROVENANCE)
    sent = _fields(views[changes].schema, "carried") if changes in views else []
    fields = [name for name in views["batch"].columns if name not in STANDARD_COLUMNS]
    flags = _flags(views["batch"].schema)
    made: Mapping[str, Callable[[], str]] = {
        NAMELESS: lambda: _nameless(fields, provenance),
        HALF: lambda: _any(_half(name) for name in provenance),
        **({} if flags is None else {UNSAID: lambda: _unsaid(flags), EMPTY: lambda: _empty(flags)}),
        FIELDLESS: lambda: FIELDLESS + _and_leaf(views["batch"].schema, "data"),
        PRIORITIES: lambda: _priorities(provenance[1:]),
        NEWS: lambda: f"array({', '.join(map(_news, range(len(provenance) + 1)))})",
        UNTOLD: lambda: _untold(len(provenance) + 1),
        SAID: lambda: f"array({', '.join(map(_said, sent))})",
        VOIDS: lambda: _listed(
            {_void(name, name in fields): _named(name) for name in provenance if name != "guid"}, _ENTRY
        ),
        NULLS: lambda: _listed({_null(name): text_literal(name) for name in sent}, "string"),
    }
    for text, of in made.items():
        if text in query:
            query = query.replace(text, of())
    query = ABSENT.sub(lambda found: found[0] + _and_leaf(views["batch"].schema, found[1]), query)
    places = max(len(provenance), len(sent))
    return SOME.sub(lambda found: _any(_differs(found, place) for place in range(places)), query)


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


def _priorities(fields: Sequence[str]) -> str:
    listed = ", ".join(f"{FIELD_PROVENANCE}.{_name(each)}.p" for each in fields)
    return f"array({listed})" if fields else "CAST(array() AS array<int>)"


def _news(place: int) -> str:
    now, was = f"get(names, {place})", f"get(names_before, {place})"
    return f"IF({now} <=> {was}, NULL, {now})"


def _untold(places: int) -> str:
    """Most instants have one message: then it is compared, as no set has to be made."""
    others = _any(f"coalesce(get(names, {place}) <> get(told, 0), false)" for place in range(places))
    return f"IF(array_size(told) = 1, {others}, {UNTOLD})"


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


def _said(field: str) -> str:
    name = _name(field)
    return f"IF(carried.{name}, coalesce(field_priorities.{name}, priority), NULL)"


_ENTRY = "struct<field: string, message: string>"


def _void(field: str, is_column: bool) -> str:
    """Whether a field has provenance and no value; a table without its column has none."""
    name = _name(field)
    lacks = f" AND {name} IS NULL" if is_column else ""
    return f"({FIELD_PROVENANCE}.{name} IS NOT NULL{lacks})"


def _named(field: str) -> str:
    return f"struct({text_literal(field)} AS field, {FIELD_PROVENANCE}.{_name(field)}.m AS message)"


def _null(field: str) -> str:
    return f"(carried.{_name(field)} AND data.{_name(field)} IS NULL)"


def _listed(asked: Mapping[str, str], kind: str) -> str:
    """By condition a value: the list of those of which it is true, made only where it is true of any."""
    nothing = f"CAST(array() AS array<{kind}>)"
    # Not `array_compact`: that is a lambda, and a projection that has one is not compiled with its scan.
    values = ", ".join(f"IF({condition}, array({value}), {nothing})" for condition, value in asked.items())
    return f"IF({_any(asked)}, concat({values}), {nothing})" if asked else nothing


def _differs(found: re.Match[str], place: int) -> str:
    one, other, first, second, condition = found.groups()
    at = {first: f"get({one}, {place})", second: f"get({other}, {place})"}
    said = re.sub(r"\w+", lambda word: at.get(word[0], word[0]), condition)
    return f"({said})"
