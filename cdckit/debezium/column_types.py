"""The columns of a table as its events describe them: plain types, and arrays, maps and structs of them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.debezium.encodings import (
    AS_SENT,
    UNTYPED,
    Encoding,
    cast_encoding,
    digits,
    plain_encoding,
    read_marked,
    spark_type,
    with_points,
)
from cdckit.debezium.events import TEXTS, Kind, require_events
from cdckit.errors import InvalidArgument
from cdckit.model.records import ERROR_CODE
from cdckit.parts.arguments import quoted_if_needed, require_batch, require_name

VARIABLE = "io.debezium.data.VariableScaleDecimal"
"""A struct that is one value: a decimal that has its own scale."""

_WITH_PARTS = re.compile(r"\s*(array|map|struct)\s*<(.*)>\s*", re.IGNORECASE | re.DOTALL)
_NAMES_OF_JSON = {"double": "float64", "float": "float32"}


def encoding(name: str, *, function: str) -> Encoding:
    """
    The encoding that a type's name stands for.

    Beside the names of `plain_encoding`: `array<…>`, `map<…, …>` and `struct<name: …, …>` of such, and the
    schema of Kafka Connect that an event has of a column with parts, as JSON.

    Raises:
        InvalidArgument: It is none of them.

    >>> encoding("array<org.apache.kafka.connect.data.Decimal(10,2)>", function="f").type.simpleString()
    'array<decimal(10,2)>'
    """
    try:
        return _encoding(type_name(name), function)
    except _NoName:
        return _spark_encoding(spark_type(name, function=function))


def known_encoding(name: str) -> str:
    """The name itself if it is that of an encoding; `string` for a type of the database's own, an enum."""
    try:
        encoding(name, function="columns")
    except InvalidArgument:
        return "string"
    return name


def is_schema(type_text: str) -> bool:
    """Whether a type is said by its schema, and not by a name."""
    return type_text.startswith("{")


def type_name(type_text: str) -> str:
    """
    The name of a type that is said by its schema; any other as it is.

    >>> type_name('{"type": "array", "items": {"type": "bytes", "name": "io.debezium.data.Bits"}}')
    'array<io.debezium.data.Bits>'
    """
    if not is_schema(type_text):
        return type_text
    try:
        return _name_of(json.loads(type_text))
    except (ValueError, TypeError, KeyError, RecursionError):
        return type_text


def _name_of(schema: Mapping[str, Any]) -> str:
    name, kind = schema.get("name"), schema["type"]
    if name == VARIABLE:
        return VARIABLE
    if kind == "array":
        return f"array<{_name_of(schema['items'])}>"
    if kind == "map":
        return f"map<{_name_of(schema['keys'])}, {_name_of(schema['values'])}>"
    if kind == "struct":
        fields = (f"{quoted_if_needed(each['field'])}: {_name_of(each)}" for each in schema["fields"])
        return f"struct<{', '.join(fields)}>"
    if name is not None:
        parameters = schema.get("parameters") or {}
        known = [parameters[each] for each in ("connect.decimal.precision", "scale") if each in parameters]
        meaning = f"{name}({','.join(known)})" if "scale" in parameters else str(name)
        if known_encoding(meaning) == meaning:
            return meaning
    return _NAMES_OF_JSON.get(kind, str(kind))


class _NoName(ValueError):
    """Parts are not written as they are in names; Spark's own names may write them otherwise."""


def _encoding(type_text: str, function: str) -> Encoding:
    with_parts = _WITH_PARTS.fullmatch(type_text)
    if with_parts is None:
        return plain_encoding(type_text, function=function)
    kind, parts = with_parts[1].lower(), _split(with_parts[2], ",")
    if kind == "struct":
        named = [_split(each, ":") for each in parts if parts != [""]]
        if any(len(each) != 2 for each in named):
            raise _NoName
        return _struct([(_unquoted(name), _encoding(each, function)) for name, each in named])
    inner = [_encoding(each, function) for each in parts]
    if len(inner) != {"array": 1, "map": 2}[kind]:
        raise _NoName
    return _array(*inner) if kind == "array" else _map(*inner)


def _split(text: str, separator: str) -> list[str]:
    """The pieces between separators that stand within no brackets and no backticks."""
    pieces, depth, is_quoted = [""], 0, False
    for letter in text:
        is_quoted ^= letter == "`"
        depth += 0 if is_quoted else (letter in "<(") - (letter in ">)")
        if letter == separator and depth == 0 and not is_quoted:
            pieces.append("")
        else:
            pieces[-1] += letter
    return [each.strip() for each in pieces]


def _unquoted(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


def _spark_encoding(kind: T.DataType) -> Encoding:
    if isinstance(kind, T.ArrayType):
        return _array(_spark_encoding(kind.elementType))
    if isinstance(kind, T.MapType):
        return _map(_spark_encoding(kind.keyType), _spark_encoding(kind.valueType))
    if isinstance(kind, T.StructType):
        return _struct([(each.name, _spark_encoding(each.dataType)) for each in kind])
    return cast_encoding(kind)


def _array(items: Encoding) -> Encoding:
    def sent(text: Column) -> Column:
        return F.transform(read_marked(text, T.ArrayType(T.StringType())), _digits_for(items))

    def read(parts: Column) -> Column:
        return F.transform(parts, items.read)

    return Encoding(T.ArrayType(items.type), _read_whole(sent, read, _is_lost))


def _map(keys: Encoding, values: Encoding) -> Encoding:
    if not isinstance(keys.type, T.StringType):
        # Kafka Connect writes it as pairs, in JSON and in Avro each in its own way.
        return AS_SENT

    def sent(text: Column) -> Column:
        own = _digits_for(values)
        return F.transform_values(read_marked(text, TEXTS), lambda name, each: own(each))

    def read(parts: Column) -> Column:
        return F.transform_values(parts, lambda name, each: values.read(each))

    def is_lost(parts: Column, value: Column) -> Column:
        return _is_lost(F.map_values(parts), F.map_values(value))

    return Encoding(T.MapType(T.StringType(), values.type), _read_whole(sent, read, is_lost))


def _struct(fields: list[tuple[str, Encoding]]) -> Encoding:
    if not fields or len({name.lower() for name, _ in fields}) < len(fields):
        # Spark has no struct of nothing, and cannot tell apart names that differ in case alone.
        return AS_SENT

    def sent(text: Column) -> Column:
        # As a map: of a struct Spark makes one of nulls where the text is no object.
        return read_marked(text, TEXTS)

    def text_of(parts: Column, name: str, kind: Encoding) -> Column:
        return _digits_for(kind)(F.try_element_at(parts, F.lit(name)))

    def read(parts: Column) -> Column:
        return F.struct(*(kind.read(text_of(parts, name, kind)).alias(name) for name, kind in fields))

    def is_lost(parts: Column, value: Column) -> Column:
        return reduce(
            or_,
            (F.try_element_at(parts, F.lit(name)).isNotNull() & value[name].isNull() for name, _ in fields),
        )

    struct = T.StructType([T.StructField(name, kind.type) for name, kind in fields])
    return Encoding(struct, _read_whole(sent, read, is_lost))


def _digits_for(part: Encoding) -> Callable[[Column], Column]:
    return with_points if part.coded else digits


_Test = Callable[[Column, Column], Column]


def _is_lost(parts: Column, values: Column) -> Column:
    """Whether a part is there, and its value is not."""
    return F.exists(
        F.zip_with(parts, values, lambda part, value: part.isNotNull() & value.isNull()), lambda lost: lost
    )


def _read_whole(
    sent: Callable[[Column], Column], read: Callable[[Column], Column], is_lost: _Test
) -> Callable[[Column], Column]:
    """Read the parts of a text; null if one of them cannot be read: a list is never shorter than it was."""

    def value(text: Column) -> Column:
        # As lists of one, since a function that is given a list's elements works each out once.
        parts = F.filter(F.array(sent(text)), lambda each: each.isNotNull())
        both = F.transform(parts, lambda each: F.struct(each.alias("sent"), read(each).alias("read")))
        good = F.filter(both, lambda each: ~is_lost(each["sent"], each["read"]))
        return F.try_element_at(good, F.lit(1))["read"]

    return value


Columns = Mapping[str, str | Sequence[str]]
"""By column the name of its type, or of several where its events differ."""


def columns(decoded: DataFrame, table: str) -> dict[str, tuple[str, ...]]:
    """
    The columns of a table and the types that its events give them.

    Args:
        decoded: What `decode`, `decode_maxwell` or `decode_wal2json` returned.
        table: The name of the table (see `changes`).

    Returns:
        By column the names of its types: one, or several where the table was altered in between.  In the
        order in which the columns are first named.  A type that only that database knows, such as an
        enumeration, is `string`.  Of events that say no types, such as JSON without a schema and
        Maxwell's, every column is `untyped`: give `changes` the types that you know.
        Arrays, maps and structs are named by their parts: `array<…>`, `map<string, …>`,
        `struct<name: …, …>`; several types of such a column are the schemas that events say, as JSON.

    Raises:
        InvalidArgument: No event is about such a table, or events are about several of that name; or
            *decoded* is a stream.
        MissingColumns, WrongColumnType: *decoded* is not what `decode` returned.

    Cost: a job that reads all of *decoded*; what is collected is one row for each column and type.

    >>> from cdckit import debezium
    >>> debezium.columns(decoded, "products")
    {'id': ('int32',), 'name': ('string',), 'price': ('org.apache.kafka.connect.data.Decimal(2)',)}
    """
    require_events(decoded, function="columns")
    require_batch(decoded, "decoded", "say its columns yourself", function="columns")
    rows = decoded.where(is_event_of(table, function="columns") & (F.col("kind") == Kind.ROW)).where(
        F.col(ERROR_CODE).isNull()
    )
    name = F.concat_ws(".", "db", "schema", "table").alias("name")
    # Columns first in the order of the types; a row without types has its own names.
    types = F.when(F.size("types") > 0, F.map_entries("types"))
    untyped = F.transform(
        F.map_keys(F.coalesce("after", "before")),
        lambda key: F.struct(key.alias("key"), F.lit(UNTYPED).alias("value")),
    )
    exploded = rows.select(name, F.posexplode(F.coalesce(types, untyped)).alias("place", "column"))
    found = (
        exploded.groupBy("name", "column.key", "column.value")
        .agg(F.min("place").alias("place"))
        .orderBy("place", "key", "value")
        .collect()
    )
    _require_one(table, sorted({row["name"] for row in found}), decoded)
    types_by_name: dict[str, list[str]] = {}
    for row in found:
        # Null where wal2json was told to leave types out.
        types_by_name.setdefault(row["key"], []).append(known_encoding(row["value"] or UNTYPED))
    return {name: _distinct_types(types_of) for name, types_of in types_by_name.items()}


def _distinct_types(type_texts: Sequence[str]) -> tuple[str, ...]:
    """Each type once: by its name, but of several that have parts by what events say, to tell them apart."""
    names = tuple(dict.fromkeys(map(type_name, type_texts)))
    return names if len(names) == 1 else tuple(dict.fromkeys(type_texts))


def _require_one(table: str, found: Sequence[str], decoded: DataFrame) -> None:
    if len(found) == 1:
        return
    if found:
        needed = f"that of one table: {', '.join(found[:10])} all end so"
        raise InvalidArgument("columns", "table", needed, table)
    name = F.concat_ws(".", "db", "schema", "table").alias("name")
    others = decoded.where(F.col("table").isNotNull()).select(name).distinct().orderBy("name").limit(10)
    known = ", ".join(row["name"] for row in others.collect())
    raise InvalidArgument("columns", "table", f"the name of a table among {known or 'none at all'}", table)


def find_keys(decoded: DataFrame, table: str) -> list[str]:
    """
    The key columns of a table, as the keys of its records name them.

    Raises:
        InvalidArgument: They name none, or not all the same.
    """
    require_batch(decoded, "decoded", "say its keys yourself", function="changes")
    rows = decoded.where(is_event_of(table, function="changes") & F.col(ERROR_CODE).isNull())
    named = rows.select(F.map_keys("row_key").alias("keys")).where(F.col("keys").isNotNull()).distinct()
    found = [list(row["keys"]) for row in named.limit(2).collect()]
    if len(found) != 1 or not found[0]:
        needed = "given: the key columns, which the keys of the records do not name, or not all alike"
        raise InvalidArgument("changes", "keys", needed, found)
    return found[0]


def is_event_of(table: str, *, function: str) -> Column:
    """Whether an event is of the table: its name, with the schema and the database before it if wanted."""
    require_name(table, "table", function=function)
    full = F.concat_ws(".", "db", "schema", "table")
    # Nearly always the table's own name says so.  Not *or*: what two parts of it need, Spark works out first.
    longer = (full == table) | F.endswith(full, F.lit(f".{table}"))
    return F.when(F.col("table") == table, True).otherwise(longer)
