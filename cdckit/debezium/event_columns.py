"""The columns of a table, as its events describe them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdckit.debezium.column_types import known_encoding, type_name
from cdckit.debezium.events import Kind, require_events
from cdckit.errors import InvalidArgument
from cdckit.parts.arguments import require_name
from cdckit.parts.schemas import require_batch
from cdckit.rejected import ERROR_CODE

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
        Maxwell's, every column is a `string`: give `changes` the types that you know.
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
    rows = decoded.where(is_of(table, function="columns") & (F.col("kind") == Kind.ROW)).where(
        F.col(ERROR_CODE).isNull()
    )
    name = F.concat_ws(".", "db", "schema", "table").alias("name")
    # Columns first in the order of the types; a row without types has its own names.
    types = F.when(F.size("types") > 0, F.map_entries("types"))
    untyped = F.transform(
        F.map_keys(F.coalesce("after", "before")),
        lambda key: F.struct(key.alias("key"), F.lit("string").alias("value")),
    )
    told = rows.select(name, F.posexplode(F.coalesce(types, untyped)).alias("place", "column"))
    found = (
        told.groupBy("name", "column.key", "column.value")
        .agg(F.min("place").alias("place"))
        .orderBy("place", "key", "value")
        .collect()
    )
    _require_one(table, sorted({row["name"] for row in found}), decoded)
    made: dict[str, list[str]] = {}
    for row in found:
        # Null where wal2json was told to leave types out.
        made.setdefault(row["key"], []).append(known_encoding(row["value"] or "string"))
    return {name: _named(said) for name, said in made.items()}


def _named(said: Sequence[str]) -> tuple[str, ...]:
    """Each type once: by its name, but of several that have parts by what events say, to tell them apart."""
    names = tuple(dict.fromkeys(map(type_name, said)))
    return names if len(names) == 1 else tuple(dict.fromkeys(said))


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


def keys_of(decoded: DataFrame, table: str) -> list[str]:
    """
    The key columns of a table, as the keys of its records name them.

    Raises:
        InvalidArgument: They name none, or not all the same.
    """
    require_batch(decoded, "decoded", "say its keys yourself", function="changes")
    rows = decoded.where(is_of(table, function="changes") & F.col(ERROR_CODE).isNull())
    named = rows.select(F.map_keys("row_key").alias("keys")).where(F.col("keys").isNotNull()).distinct()
    found = [list(row["keys"]) for row in named.limit(2).collect()]
    if len(found) != 1 or not found[0]:
        needed = "given: the key columns, which the keys of the records do not name, or not all alike"
        raise InvalidArgument("changes", "keys", needed, found)
    return found[0]


def is_of(table: str, *, function: str) -> Column:
    """Whether an event is of the table: its name, with the schema and the database before it if wanted."""
    require_name(table, "table", function=function)
    full = F.concat_ws(".", "db", "schema", "table")
    # Nearly always the table's own name says so.  Not *or*: what two parts of it need, Spark works out first.
    longer = (full == table) | F.endswith(full, F.lit(f".{table}"))
    return F.when(F.col("table") == table, True).otherwise(longer)
