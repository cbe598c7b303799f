"""Changes of several tables as one: of all fields that one of them has, in types that hold all values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument, WrongColumnType
from cdckit.model.changes import (
    AS_SENT,
    IS_EFFECTIVE,
    IS_PERIOD,
    LACKING,
    MADE_OF,
    MOVED,
    RANKED,
    TABLES,
    UNTIL,
    UNTYPED,
    empty_fields,
    field_priority,
    has_mark,
    note_empty,
    ranked_sources,
    require_changes,
    require_distinct_fields,
    typed_fields,
    untyped_fields,
    with_empty_as,
)
from cdckit.model.list_comparison import is_table_row
from cdckit.parts.argument_forms import takes
from cdckit.parts.arguments import quoted, require_columns, require_struct
from cdckit.parts.public_calls import called
from cdckit.parts.widening import as_type, common_spark_type, fill_void, has_void, is_made_text, void_as_text


@takes()
def union_changes(first: DataFrame, *more: DataFrame) -> DataFrame:
    """
    The changes of several sources that speak of one kind of entity.

    Args:
        first: One row per change.
        more: Further tables of changes.  Their `data` may have other fields.  A field in which two of them
            have numbers of different types gets one that holds both; where none does (64 bits beside floats),
            it is double, and the query fails at a number that would lose digits.  A date beside timestamps is
            its midnight in UTC.  A column that was empty in its table, or in parts, has the type of others.

    Returns:
        All rows of all tables, repeats included.  `data` has the fields of all, in the order in
        which they first appear; a field that a source does not have is null and not carried.
        `field_priorities` is there if any of them has it, null where a source has none; `guid` must
        be in all of them or in none, unless it is made of the key fields, as that of a ledger's changes.
        What a table has beside the columns of changes stays, null in the rows of those that do not have it.

    Raises:
        MissingColumns, WrongColumnType: One of the tables is not a table of changes; or two have a field
            in types that differ and are neither numbers nor times, such as a key that is 10 here and "0010"
            there; or one has it as it was sent, untyped, and another of a type; or two disagree on the type
            of a column that is none of a table of changes.
        InvalidArgument: Two fields differ in case alone; or the tables are given in a list.

    `merge` and `Ledger.apply` refuse the changes where one of the tables has none of their keys: it calls
    them otherwise.

    Of two tables that `changes_from` made, and that speak of one entity at one instant with one sequence, as
    an insert in one file and a delete in the next, the one that is given later counts; so does the one that
    is applied later in a `Ledger`.

    Two sources that speak of one entity at one instant, with equal priority, are a tie, which `merge`
    decides by `sequence`, `arrival`, `message_id` and `source`.  These are the same on every run, but of two
    sources they are no order: a sequence is a source's own.  So where one instant can have two speakers
    (dates rather than times make it likely), say whose word counts by `with_priorities`; `why` tells where a
    tie was decided.

    Cost: a projection of each, no shuffle.

    >>> prices = changes.where("operation = 'upsert'").withColumns(
    ...     {
    ...         "data": F.struct("data.number", F.lit(2.5).alias("price")),
    ...         "carried": F.struct("carried.number", F.lit(True).alias("price")),
    ...     }
    ... )
    >>> both = union_changes(changes, prices).where("data.number = 2 and message_id = 'm1'")
    >>> both.orderBy("data.price").select("data", "carried").show(truncate=False)
    +--------------+-------------------+
    |data          |carried            |
    +--------------+-------------------+
    |{2, mug, NULL}|{true, true, false}|
    |{2, NULL, 2.5}|{true, false, true}|
    +--------------+-------------------+
    <BLANKLINE>
    """
    if isinstance(first, list | tuple):
        given, remedy = f"a list of {len(first)}", "Give the tables one by one: `union_changes(*tables)`."
        raise InvalidArgument(None, "first", "a table of changes", given, remedy=remedy)
    for changes in (first, *more):
        require_changes(changes)
    numbered, count = _with_table_numbers([first, *more])
    united = unite(numbered, as_text=False)
    return united.withMetadata("arrival", {**united.schema["arrival"].metadata, TABLES: count})


def _with_table_numbers(tables: Iterable[DataFrame]) -> tuple[list[DataFrame], int]:
    """The tables, whose rows arrived table by table, and how many there are, those of unions counted."""
    numbered: list[DataFrame] = []
    count = 0
    for changes in tables:
        metadata = changes.schema["arrival"].metadata
        if count:
            later = F.col("arrival").withField("partition", F.col("arrival.partition") + F.lit(count))
            arrival = F.when(is_table_row(), later).otherwise(F.col("arrival"))
            changes = changes.withColumn("arrival", arrival).withMetadata("arrival", metadata)
        count += metadata.get(TABLES, 1)
        numbered.append(changes)
    return numbered, count


@called("union_changes")
def unite(given: Sequence[DataFrame], *, as_text: bool = True) -> DataFrame:
    """
    Unite as `union_changes`; but a field in types that differ, and are not numbers, is text where *as_text*.

    A ledger keeps such a field so: its source may change a type, and one text is one value there.
    """
    for changes in given:
        require_changes(changes)
    tables, empty = _with_settled_types(_with_equal_guids(given))
    untyped = _untyped_fields(tables)
    fields: dict[str, T.DataType] = {}
    for changes in tables:
        for column in require_struct(changes, "data"):
            type_ = fields.setdefault(column.name, column.dataType)
            common = common_spark_type(type_, column.dataType, as_double=True)
            if common is None or (not as_text and is_made_text(common, type_, column.dataType)):
                type_names = f"{type_.simpleString()} in one and {column.dataType.simpleString()} in another"
                raise WrongColumnType(None, f"data.{column.name}", _ONE_TYPE, type_names, _CAST)
            fields[column.name] = common
    require_distinct_fields(fields)
    metadata = untyped | _lacking_fields(tables, fields) | (note_empty(empty) if empty else {})
    some = {column for changes in tables for column in changes.columns}
    _require_same_types(tables)
    united, *others = (
        _with_fields(changes, fields, "field_priorities" in some, metadata) for changes in tables
    )
    for changes in others:
        united = united.unionByName(changes, allowMissingColumns=True)
    # A union has the metadata of its first table.
    for name, mark in (("arrival", IS_EFFECTIVE), (UNTIL, IS_PERIOD)):
        if any(has_mark(changes.schema, name, mark) for changes in tables):
            united = united.withMetadata(name, {mark: True})
    ranked = dict.fromkeys(source for changes in tables for source in ranked_sources(changes.schema))
    return united.withMetadata("priority", {RANKED: list(ranked)}) if ranked else united


_ONE_TYPE = "one type in all tables"
_CAST = "Cast it before its changes are made, so that one value is written in one way in all of them."


def _with_equal_guids(tables: Sequence[DataFrame]) -> list[DataFrame]:
    """
    The tables, each with a guid or none.

    A guid that is made of the key fields, as a ledger's, says nothing that these do not: beside a table
    without guids it goes.
    """
    if all("guid" in changes.columns for changes in tables):
        return list(tables)
    is_made = [has_mark(changes.schema, "guid", MADE_OF) for changes in tables]
    guids = [table.drop("guid") if made else table for table, made in zip(tables, is_made, strict=True)]
    by_guid = any("guid" in changes.columns for changes in guids)
    for changes in guids:
        require_columns(changes, ["guid"] if by_guid else [])
    return guids


def _with_settled_types(tables: Sequence[DataFrame]) -> tuple[list[DataFrame], dict[str, T.DataType]]:
    """The tables, in which what is empty has the type of what is not; and what is empty in all of them."""
    kinds: dict[str, T.DataType] = {}
    without = [empty_fields(changes.schema) for changes in tables]
    for changes, empty in zip(tables, without, strict=True):
        for column in require_struct(changes, "data"):
            kind = empty.get(column.name, column.dataType)
            kinds[column.name] = fill_void(kinds.get(column.name, kind), kind) or kinds[column.name]
    settled = [
        with_empty_as(
            changes,
            {
                name: void_as_text(kinds[name])
                for name, kind in empty.items()
                if kinds[name] != kind and fill_void(kind, kinds[name]) is not None
            },
        )
        for changes, empty in zip(tables, without, strict=True)
    ]
    return settled, {name: kind for name, kind in kinds.items() if has_void(kind)}


def _untyped_fields(tables: Iterable[DataFrame]) -> dict[str, list[str]]:
    """The metadata of the united `data`; raises where one has a field as it was sent, another of a type."""
    names = list(dict.fromkeys(name for table in tables for name in untyped_fields(table.schema)))
    for changes in tables:
        for name in typed_fields(changes.schema):
            if name in names:
                is_ = changes.select(F.col("data").getField(name)).schema[0].dataType.simpleString()
                remedy = (
                    "Give `columns=` where the others are made: for each column how the source writes it."
                )
                needed = f"{AS_SENT}, as in the others"
                raise WrongColumnType(None, f"data.{name}", needed, is_, remedy)
    is_told = any(UNTYPED in table.schema["data"].metadata for table in tables)
    return {UNTYPED: names} if is_told else {}


def _lacking_fields(tables: Iterable[DataFrame], fields: Iterable[str]) -> dict[str, Any]:
    """The metadata of the united `data`: which fields each of the tables lacks, of those that lack some."""
    lacks_of_tables: list[list[str]] = []
    for changes in tables:
        data = changes.schema["data"]
        has = set(require_struct(changes, "data").fieldNames())
        lacks = [name for name in fields if name not in has]
        before = data.metadata.get(LACKING, {}).values() or [[]]
        lacks_of_tables += [sorted({*some, *lacks}) for some in before]
    distinct = [
        lacks for n, lacks in enumerate(lacks_of_tables) if lacks and lacks not in lacks_of_tables[:n]
    ]
    return {LACKING: {str(n): lacks for n, lacks in enumerate(distinct)}} if distinct else {}


def _require_same_types(tables: Iterable[DataFrame]) -> None:
    """Raise unless columns beside those of changes are of one type under one name in all tables."""
    types: dict[str, str] = {}
    for changes in tables:
        for column in changes.schema:
            if column.name not in ("data", "carried", "field_priorities", MOVED):
                type_name = column.dataType.simpleString()
                needed = types.setdefault(column.name.lower(), type_name)
                if type_name != needed:
                    raise WrongColumnType(None, column.name, needed, type_name)


def _with_fields(
    changes: DataFrame, fields: Mapping[str, T.DataType], with_priority: bool, metadata: dict[str, Any]
) -> DataFrame:
    """Give changes a `data` and a `carried` (and priorities) of exactly these fields."""
    has = {field.name: field.dataType for field in require_struct(changes, "data")}
    data, carried = [], []
    for name, kind in fields.items():
        value, is_said = F.lit(None).cast(kind), F.lit(False)
        if name in has:
            value = as_type(F.col("data").getField(name), has[name], kind, name)
            is_said = F.col("carried").getField(name)
        data.append(value.alias(name))
        carried.append(is_said.alias(name))
    replaced = {"data": F.struct(*data), "carried": F.struct(*carried)}
    if with_priority:
        priorities = [field_priority(changes, name).alias(name) for name in fields]
        replaced["field_priorities"] = F.struct(*priorities)
    if MOVED in changes.columns:
        sides = {side: _key_in(changes, side, fields) for side in ("old_key", "new_key")}
        moved = F.struct(F.col(f"{MOVED}.id"), *(key.alias(side) for side, key in sides.items()))
        replaced[MOVED] = F.when(F.col(MOVED).isNotNull(), moved)
    # An alias's own would be lost through Spark Connect.
    return changes.withColumns(replaced).withMetadata("data", metadata)


def _key_in(changes: DataFrame, side: str, fields: Mapping[str, T.DataType]) -> Column:
    """A key of a move in the types of all tables."""
    kinds = changes.select(f"{MOVED}.{side}.*").schema
    parts = {kind: F.col(f"{MOVED}.{side}.{quoted(kind.name)}") for kind in kinds if kind.name in fields}
    return F.struct(
        *(
            as_type(part, kind.dataType, fields[kind.name], kind.name).alias(kind.name)
            for kind, part in parts.items()
        )
    )
