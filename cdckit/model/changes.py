"""Changes: what one message said about one entity.  Doors make them, `merge` reads them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from types import MappingProxyType

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument, WrongColumnType
from cdckit.model.history import DELETED, VALID_FROM
from cdckit.parts.arguments import (
    nearest_name,
    quoted,
    require_columns,
    require_instant,
    require_int,
    require_name,
    require_struct,
    require_type,
    require_types,
)
from cdckit.parts.widening import as_type, common_spark_type

DIGITS = 38
"""As many as a number of Spark's can have."""

UPSERT = "upsert"
DELETE = "delete"
ABSENT = "absent"
"""A complete list did not name the entity: a delete if it is alive at that point, else nothing."""

TRUNCATE = "truncate"
"""The source ended all that it had said: an absence of each of its entities.  It names none of them."""

UNTIL = "effective_until"
"""The column that says until when a change holds: see `CHANGE_SCHEMA`."""

MOVED = "moved"
"""The column that says how a row came to another key: see `CHANGE_SCHEMA`."""

AFTER_ALL = "~"
"""The `sequence` of what somebody states by hand: behind whatever sequence a source has at its instant."""

LOG_END = "@"
"""Ends the name of a log in `sequence`, if a source has several (see `CHANGE_SCHEMA`)."""

ARRIVAL_TYPE = T.StructType(
    [
        T.StructField("timestamp", T.TimestampType()),
        T.StructField("topic", T.StringType()),
        T.StructField("partition", T.IntegerType()),
        T.StructField("offset", T.LongType()),
        T.StructField("record_number", T.IntegerType()),
    ]
)
"""The place of a change among all arrivals.  Structs compare field by field, so this one sorts."""

CHANGE_SCHEMA = T.StructType(
    [
        T.StructField("operation", T.StringType()),
        T.StructField("effective_timestamp", T.TimestampType()),
        T.StructField("sequence", T.StringType()),
        T.StructField("arrival", ARRIVAL_TYPE),
        T.StructField("message_id", T.StringType()),
        T.StructField("source", T.StringType()),
        T.StructField("priority", T.IntegerType()),
    ]
)
"""The columns that every table of changes has, whatever its entity.  Which change one is, of an entity,
`source`, `message_id` and `arrival.record_number` say together: sources number their messages
independently.  Beside them stand

- `data`, a struct of the business fields, the key fields among them;
- `carried`, a struct of booleans under the same names: whether the message sent that field.  A
  field that was not sent is not a field that is null;
- `field_priorities` (may be missing), a struct of ints: the priority of single fields, null where
  it is `priority`.  Whether a delete counts `priority` decides; the fields have these after it;
- `effective_until` (may be missing), a timestamp: until when the change holds, exclusive; null where that is
  until something else is said.  At each instant an entity is what those of its changes that hold then make
  of it: where one ends, what would stand without it stands again, with its own provenance;
- `snapshot` (may be missing), a boolean: whether a snapshot read the entity so (true), or the log of the
  source says it (false).  Where that is said, and `sequence` is not empty, `sequence` is the place in that
  log, and the changes of an entity from one source count in the order of these places, whatever their times
  say.  The times follow: what the log says is not true before what stands ahead of it; what a snapshot read
  is true from its own time on, but no later than what stands behind it.  A place may begin with the name of
  its log and `LOG_END`, for a source that had several: places of two logs are not compared, but times.
  Changes that say `snapshot` may also be truncates (`TRUNCATE`);
- `moved` (may be missing), a struct of `id`, a text, and of `old_key` and `new_key`, structs of the key
  fields: of a delete and an upsert that are one move of a row from key to key, the same in both; null in all
  others.  What the upsert did not send is under the new key what stood under the old one right before the
  delete, with its message and its priority: a `Ledger` sees to it, and `merge` after `complete_moves`.
  `id` tells the moves of a source between two keys apart;
- `guid` (may be missing), the identity of the entity where the key fields do not give it.  Such changes say
  nothing of moves.

`sequence` is text and sorts as text, in which "10" stands before "9": `with_sequence` makes it of numbers."""

MADE_OF = "cdckit.made_of"
"""In the metadata of a column `guid`: the key fields that it is made of, where it is no identity itself."""

ORDER = ("effective_timestamp", "sequence", "arrival", "message_id", "source")
"""The order in which the changes of one entity count: total, and part of what the message says."""


@dataclass(frozen=True)
class Priority:
    """
    How much one source's word counts: a higher number wins, negative ones are allowed.

    Args:
        entity: For the row itself, deletes, and every field that is not named.
        fields: For single fields.  Whether a delete counts, `entity` decides; it clears every field, and
            each has the priority named here from there on.

    Raises:
        InvalidArgument: A priority is no whole number that an int can hold, or *fields* is no mapping of
            names to such numbers.

    Source:
        Data hub, "Higher priorities take precedence, and priorities can be negative".

    >>> Priority(5, {"price": 10}).fields["price"]
    10
    """

    entity: int = 0
    fields: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        require_int(self.entity, "entity", function="Priority", example='Priority(1, {"name": 9})')
        if not isinstance(self.fields, Mapping):
            example = f'Priority({self.entity}, {{"name": 9}})'
            raise InvalidArgument(
                "Priority", "fields", "a mapping of field to priority", self.fields, example
            )
        for name, priority in self.fields.items():
            example = f"Priority({self.entity}, {{{name!r}: 9}})"
            require_int(priority, f"fields[{name!r}]", function="Priority", example=example)

    def __repr__(self) -> str:
        return f"Priority({self.entity}{f', {dict(self.fields)!r}' if self.fields else ''})"


_HOW_TO_MAKE = (
    "`changes_from(frame, keys=[…], sequence_by=…)` makes changes of any table, of Spark or of pandas."
)
_NOT_A_HISTORY = (
    "This is a history, which `merge` has made: give the changes that it was merged from, such as "
    "`ledger.changes()`.  Who said what stands in the history itself, `blame(history, key)` tells."
)


def require_changes(changes: DataFrame, *, function: str) -> None:
    """
    Raise unless *changes* has the columns of a table of changes (see `CHANGE_SCHEMA`).

    Raises:
        MissingColumns: A column is not there.
        WrongColumnType: A column has another type, or `carried` has not the fields of `data`, in order.
        InvalidArgument: Two fields of `data` differ in case alone: Spark could not tell them apart.
    """
    is_history = isinstance(changes, DataFrame) and {VALID_FROM, DELETED} <= set(changes.columns)
    remedy = _NOT_A_HISTORY if is_history else _HOW_TO_MAKE
    require_types(changes, CHANGE_SCHEMA, function=function, remedy=remedy)
    data = require_struct(changes, "data", function=function)
    _require_distinct(data.fieldNames(), function=function)
    carried = require_struct(changes, "carried", function=function)
    needed = T.StructType([T.StructField(name, T.BooleanType()) for name in data.fieldNames()])
    if carried.simpleString() != needed.simpleString():
        raise WrongColumnType(function, "carried", needed.simpleString(), carried.simpleString())
    if UNTIL in changes.columns:
        require_type(changes, UNTIL, T.TimestampType(), function=function)


def require_moves(changes: DataFrame, keys: Sequence[str], *, function: str) -> None:
    """Raise `WrongColumnType` unless `moved` says an id and both keys, all of *keys* in them."""
    kind = require_struct(changes, MOVED, function=function)
    parts = {each.name: each.dataType for each in kind}
    sides = [parts.get(name) for name in ("old_key", "new_key")]
    complete = all(isinstance(side, T.StructType) and set(keys) <= set(side.fieldNames()) for side in sides)
    if not isinstance(parts.get("id"), T.StringType) or not complete:
        named = ", ".join(keys)
        needed = f"a struct of id (string), old_key and new_key (structs with {named})"
        remedy = (
            "`with_fields` makes both keys of fields that are made of the key alone; "
            f"`changes.drop({MOVED!r})` takes moves for deletes and new rows, which take nothing along."
        )
        raise WrongColumnType(function, MOVED, needed, kind.simpleString(), remedy)


def _require_distinct(names: Iterable[str], *, function: str) -> None:
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(name.lower(), name)
        if other != name:
            needed = "of fields that differ in more than case"
            remedy = (
                f"Call both {other}, before they become changes: "
                f"`frame.rename(columns={{{name!r}: {other!r}}})` in pandas, "
                f"`frame.withColumnRenamed({name!r}, {other!r})` in Spark."
            )
            raise InvalidArgument(function, "data", needed, [other, name], remedy=remedy)


def with_priorities(changes: DataFrame, priorities: Mapping[str, Priority]) -> DataFrame:
    """
    Set `priority` and `field_priorities` by the source of each change.

    Args:
        changes: One row per change.
        priorities: By `source`.  A source that is not named keeps what its changes say already.  A name
            that no change has, such as a misspelt one, has no effect: only the data can tell, and
            `require_sources` asks it.

    Returns:
        The same rows; the two columns replaced (`field_priorities` added where it was missing).

    Raises:
        InvalidArgument: *priorities* is no mapping of texts to `Priority`, or one of them names a field
            that `data` does not have.
        MissingColumns, WrongColumnType: *changes* is not a table of changes.

    Cost: a projection, no shuffle.

    >>> ranked = with_priorities(changes, {"shop": Priority(1, {"name": 9})})
    >>> ranked.select("source", "priority", "field_priorities").distinct().show()
    +------+--------+----------------+
    |source|priority|field_priorities|
    +------+--------+----------------+
    |  shop|       1|       {NULL, 9}|
    +------+--------+----------------+
    <BLANKLINE>
    """
    require_changes(changes, function="with_priorities")
    fields = field_names(changes)
    _require_priorities(priorities, function="with_priorities")
    for source, priority in priorities.items():
        unknown = sorted(set(priority.fields) - set(fields))
        if unknown:
            argument = f"priorities[{source!r}].fields"
            needed = f"of fields among {', '.join(fields)}"
            example = _call_with_fields(priorities, fields)
            raise InvalidArgument("with_priorities", argument, needed, unknown, example)
    entity = _value_by_source({source: p.entity for source, p in priorities.items()}, F.col("priority"))
    single = [
        _value_by_source(
            {source: p.fields.get(name) for source, p in priorities.items()}, field_priority(changes, name)
        )
        for name in fields
    ]
    named = F.struct(*(column.alias(name) for name, column in zip(fields, single, strict=True)))
    return changes.withColumns({"priority": entity, "field_priorities": named})


def _call_with_fields(priorities: Mapping[str, Priority], fields: Sequence[str]) -> str | None:
    """
    The call with the field that is near in the place of each misspelt one; None where one is near none.

    What was said of the field itself stands.
    """
    right: dict[str, Priority] = {}
    for source, priority in priorities.items():
        near = {name: name if name in fields else nearest_name(name, fields) for name in priority.fields}
        if None in near.values():
            return None
        meant = {
            str(close): priority.fields[name]
            for name, close in near.items()
            if close == name or close not in priority.fields
        }
        right[source] = Priority(priority.entity, meant)
    return f"with_priorities(changes, {right!r})"


def find_unused_priorities(changes: DataFrame, priorities: Mapping[str, Priority]) -> DataFrame:
    """
    The sources that priorities are given for, and that no change comes from: misspelt ones among them.

    Args:
        changes: One row per change.
        priorities: By `source`, as for `with_priorities`.

    Returns:
        One row per such name: `source`, and `sources`, those that the changes do come from, in their
        order.  None if every name is in use.  Rows have no order.

    Raises:
        InvalidArgument: *priorities* is no mapping of texts to `Priority`.
        MissingColumns, WrongColumnType: *changes* have no `source`, or not as text.

    Cost: reads the sources of all changes once; no shuffle but that of the distinct ones.

    >>> find_unused_priorities(changes, {"shop": Priority(1), "shpo": Priority(2)}).show()
    +------+-------+
    |source|sources|
    +------+-------+
    |  shpo| [shop]|
    +------+-------+
    <BLANKLINE>
    """
    require_types(changes, T.StructType([CHANGE_SCHEMA["source"]]), function="find_unused_priorities")
    _require_priorities(priorities, function="find_unused_priorities")
    known = changes.agg(F.array_sort(F.collect_set("source")).alias("sources"))
    named = F.array(*map(F.lit, priorities)).cast("array<string>")
    return known.select(F.explode(F.array_except(named, "sources")).alias("source"), "sources")


def _require_priorities(priorities: Mapping[str, Priority], *, function: str) -> None:
    if not isinstance(priorities, Mapping):
        example = f'{function}(changes, {{"shop": Priority(1)}})'
        raise InvalidArgument(function, "priorities", "a mapping of source to Priority", priorities, example)
    right = {str(source): _as_priority(priority) for source, priority in priorities.items()}
    example = f"{function}(changes, {right!r})"
    for source, priority in priorities.items():
        if not isinstance(source, str):
            raise InvalidArgument(function, "priorities", "of sources that are texts", source, example)
        if not isinstance(priority, Priority):
            raise InvalidArgument(function, f"priorities[{source!r}]", "a Priority", priority, example)


def _as_priority(value: object) -> Priority:
    """What may have been meant: a number for the entity, a mapping for single fields."""
    with suppress(InvalidArgument):
        if isinstance(value, Priority):
            return value
        return Priority(0, value) if isinstance(value, Mapping) else Priority(value)  # type: ignore[arg-type]
    return Priority(1)


def with_sequence(frame: DataFrame, number: str) -> DataFrame:
    """
    Add `sequence`, as changes have it, from a number: texts that sort as the numbers do.

    As text "10" stands before "9".  So the number is written with 38 digits, as many as any number of
    Spark's has; a negative one stands before all others.

    Args:
        frame: Any table: what is to become changes, or changes whose sequence is to be another.
        number: A column of whole numbers: of an integral type, or a decimal without decimals.

    Returns:
        The same rows, `sequence` added or replaced; null where the number is.

    Raises:
        MissingColumns: *frame* has no column *number*.
        WrongColumnType: It is no column of whole numbers.  (Of texts, cast it: `col.cast("bigint")`.)

    Cost: a projection, no shuffle.

    >>> log = session().createDataFrame([(10,), (9,), (-1,)], "lsn long")
    >>> with_sequence(log, "lsn").orderBy("sequence").show(truncate=False)
    +---+---------------------------------------+
    |lsn|sequence                               |
    +---+---------------------------------------+
    |-1 |-99999999999999999999999999999999999998|
    |9  |00000000000000000000000000000000000009 |
    |10 |00000000000000000000000000000000000010 |
    +---+---------------------------------------+
    <BLANKLINE>
    """
    require_columns(frame, [number], function="with_sequence")
    kind = frame.schema[number].dataType
    if not (isinstance(kind, T.IntegralType) or (isinstance(kind, T.DecimalType) and kind.scale == 0)):
        raise WrongColumnType("with_sequence", number, "a whole number", kind.simpleString())
    return frame.withColumn("sequence", sortable_number(F.col(quoted(number))))


def sortable_number(number: Column) -> Column:
    """A whole number as text of 38 digits that sorts as the number does; null for null."""
    whole = number.cast("decimal(38,0)")
    # Of two negative numbers the one with more to it comes first: so what it lacks to all nines is written.
    written = F.when(whole < 0, whole + F.lit(Decimal("9" * DIGITS))).otherwise(whole).cast("string")
    digits = F.lpad(written, DIGITS, "0")
    return F.concat(F.when(whole < 0, "-").otherwise(""), digits)


def union_changes(first: DataFrame, *more: DataFrame, as_double: Collection[str] = ()) -> DataFrame:
    """
    The changes of several sources that speak of one kind of entity.

    Args:
        first: One row per change.
        more: Further tables of changes.  Their `data` may have other fields.  A field that two of them
            have in different types gets one that holds both: numbers stay numbers where that loses
            nothing, anything else becomes text (`cdckit.parts.widening`, as in the Replicate door).
        as_double: Fields that are to be doubles, which may cost digits, where no exact type holds the
            numbers of all tables.

    Returns:
        All rows of all tables, repeats included.  `data` has the fields of all, in the order in
        which they first appear; a field that a source does not have is null and not carried.
        `field_priorities` is there if any of them has it, null where a source has none; `guid` must
        be in all of them or in none, unless it is made of the key fields, as that of a ledger's changes.
        What a table has beside the columns of changes stays, null in the rows of those that do not have it.

    Raises:
        MissingColumns, WrongColumnType: One of the tables is not a table of changes; or a field is
            nested in two of them and not of one type; or two disagree on the type of a column that is
            none of a table of changes.
        InvalidArgument: Two fields differ in case alone.

    Two sources that speak of one entity at one instant, with equal priority, are a tie, which `merge`
    decides by `sequence`, `arrival`, `message_id` and `source`.  These are the same on every run, but of two
    sources they are no order: a sequence is a source's own, and the arrivals of two tables are their row
    numbers.  So where one instant can have two speakers (dates rather than times make it likely), say
    whose word counts by `with_priorities`; `why` tells where a tie was decided.

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
    for changes in (first, *more):
        require_changes(changes, function="union_changes")
    tables = _with_equal_guids([first, *more])
    fields: dict[str, T.DataType] = {}
    for changes in tables:
        for found in require_struct(changes, "data", function="union_changes"):
            known = fields.setdefault(found.name, found.dataType)
            common = common_spark_type(known, found.dataType, as_double=found.name in as_double)
            if common is None:
                needed, is_ = known.simpleString(), found.dataType.simpleString()
                raise WrongColumnType("union_changes", f"data.{found.name}", needed, is_)
            fields[found.name] = common
    _require_distinct(fields, function="union_changes")
    some = {column for changes in tables for column in changes.columns}
    _require_same_types(tables)
    united, *others = (_with_fields(changes, fields, "field_priorities" in some) for changes in tables)
    for changes in others:
        united = united.unionByName(changes, allowMissingColumns=True)
    return united


def _with_equal_guids(tables: list[DataFrame]) -> list[DataFrame]:
    """
    The tables, each with a guid or none.

    A guid that is made of the key fields, as a ledger's, says nothing that these do not: beside a table
    without guids it goes.
    """
    if all("guid" in changes.columns for changes in tables):
        return tables
    made = [
        changes.drop("guid")
        if "guid" in changes.columns and MADE_OF in changes.schema["guid"].metadata
        else changes
        for changes in tables
    ]
    by_guid = any("guid" in changes.columns for changes in made)
    for changes in made:
        require_columns(changes, ["guid"] if by_guid else [], function="union_changes")
    return made


def _require_same_types(tables: Iterable[DataFrame]) -> None:
    """What the tables have beside the columns of changes: under one name, one type."""
    known: dict[str, str] = {}
    for changes in tables:
        for column in changes.schema:
            if column.name not in ("data", "carried", "field_priorities", MOVED):
                found = column.dataType.simpleString()
                needed = known.setdefault(column.name.lower(), found)
                if found != needed:
                    raise WrongColumnType("union_changes", column.name, needed, found)


def _with_fields(changes: DataFrame, fields: Mapping[str, T.DataType], with_priority: bool) -> DataFrame:
    """The same changes with a `data` and a `carried` (and priorities) of exactly these fields."""
    has = {field.name: field.dataType for field in require_struct(changes, "data", function="union_changes")}
    data = [
        as_type(F.col("data").getField(name), has[name], kind) if name in has else F.lit(None).cast(kind)
        for name, kind in fields.items()
    ]
    carried = [F.col("carried").getField(name) if name in has else F.lit(False) for name in fields]
    replaced = {
        "data": F.struct(*(column.alias(name) for column, name in zip(data, fields, strict=True))),
        "carried": F.struct(*(column.alias(name) for column, name in zip(carried, fields, strict=True))),
    }
    if with_priority:
        own = [field_priority(changes, name).alias(name) for name in fields]
        replaced["field_priorities"] = F.struct(*own)
    if MOVED in changes.columns:
        sides = {side: _key_in(changes, side, fields) for side in ("old_key", "new_key")}
        moved = F.struct(F.col(f"{MOVED}.id"), *(key.alias(side) for side, key in sides.items()))
        replaced[MOVED] = F.when(F.col(MOVED).isNotNull(), moved)
    return changes.withColumns(replaced)


def _key_in(changes: DataFrame, side: str, fields: Mapping[str, T.DataType]) -> Column:
    """A key of a move in the types of all tables."""
    kinds = changes.select(f"{MOVED}.{side}.*").schema
    return F.struct(
        *(
            as_type(F.col(f"{MOVED}.{side}.{quoted(each.name)}"), each.dataType, fields[each.name]).alias(
                each.name
            )
            for each in kinds
            if each.name in fields
        )
    )


def field_names(changes: DataFrame) -> list[str]:
    """The business fields of a table of changes, in their order."""
    return require_struct(changes, "data", function="field_names").fieldNames()


def _value_by_source(values: Mapping[str, int | None], otherwise: Column) -> Column:
    chosen = otherwise
    for source, value in values.items():
        chosen = F.when(F.col("source") == source, F.lit(value).cast("int")).otherwise(chosen)
    return chosen


def statement_columns(
    operation: Column,
    start: Column,
    content: Column,
    *,
    by: str,
    reason: str,
    source: str,
    received_at: datetime | None,
    function: str,
) -> list[Column]:
    """
    What somebody states by hand about rows of a history, as the columns of changes before `priority`.

    *content* tells apart what one call, or two at one instant, say of an entity.
    """
    for argument, text in (("by", by), ("reason", reason), ("source", source)):
        require_name(text, argument, function=function)
    said_at = datetime.now(UTC) if received_at is None else received_at
    instant = require_instant(said_at, "received_at", function=function)
    clock = said_at.astimezone(UTC).replace(tzinfo=None).isoformat(" ")
    return [
        operation.alias("operation"),
        start.alias("effective_timestamp"),
        F.lit(AFTER_ALL).alias("sequence"),
        F.struct(
            instant.alias("timestamp"),
            F.lit(source).alias("topic"),
            F.lit(0).alias("partition"),
            F.lit(0).cast("bigint").alias("offset"),
            (F.pmod(F.xxhash64(content), F.lit(2**31 - 1)) + 1).cast("int").alias("record_number"),
        ).alias("arrival"),
        F.lit(f"{by}, {clock}: {reason}").alias("message_id"),
        F.lit(source).alias("source"),
    ]


def field_priority(changes: DataFrame, name: str) -> Column:
    """The priority that a field was given of its own; null where `field_priorities` does not name it."""
    if "field_priorities" in changes.columns:
        stated = require_struct(changes, "field_priorities", function="with_priorities")
        if name in stated.fieldNames():
            return F.col("field_priorities").getField(name)
    return F.lit(None).cast("int")


def keep_key(data: Column, keys: Sequence[str], kinds: T.StructType) -> tuple[Column, Column]:
    """`data` with nothing but its key, and the `carried` that goes with it."""
    values = [
        (data.getField(each.name) if each.name in keys else F.lit(None).cast(each.dataType)).alias(each.name)
        for each in kinds
    ]
    carried = [F.lit(each.name in keys).alias(each.name) for each in kinds]
    return F.struct(*values), F.struct(*carried)
