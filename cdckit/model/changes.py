"""Changes: what one message said about one entity.  Doors make them, `merge` reads them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument, WrongColumnType
from cdckit.model.history import DELETED, VALID_FROM
from cdckit.model.rejected_records import REJECT, REJECT_SCHEMA
from cdckit.parts.argument_forms import takes
from cdckit.parts.arguments import (
    flat_columns,
    quoted,
    require_columns,
    require_instant,
    require_name,
    require_struct,
    require_type,
    require_types,
)
from cdckit.parts.values import EXACT_JSON
from cdckit.parts.widening import as_filled, has_void

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

TABLE = "table"
"""The topic in `arrival` of a row of a table; its offset is its row number, and its partition
the call by which a `Ledger` took it, or before that which of the tables of `union_changes` it is of."""

ARRIVAL_TYPE = flat_columns(
    "timestamp timestamp, topic string, partition integer, offset long, record_number integer"
)
"""The place of a change among all arrivals.  Structs compare field by field, so this one sorts."""

CHANGE_SCHEMA = T.StructType(
    [
        *flat_columns("operation string, effective_timestamp timestamp, sequence string"),
        T.StructField("arrival", ARRIVAL_TYPE),
        *flat_columns("message_id string, source string, priority integer"),
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
  is true from its own time on, but no later than what stands behind it.  What the log says and its partition
  delivered behind a read, by offset, counts behind it, whatever its place; so does what it delivered behind a
  place that is a time of a clock and begins with `cdckit.model.places.CLOCK`.  (A record that is older by
  more than a minute was delivered before: the topic was made anew.)  A place may begin with the name of its
  log and `LOG_END`, for a source that had several: places of two logs are not compared, but times.  Next may
  come a number of the transaction and `LOG_END`: within a log that several servers write, it counts before
  the place, of which each server has its own.  What a snapshot read and gives no place (its `sequence` is
  empty), or none in a log with a name where there are such, stands where it arrived, by `arrival`: it is
  true from its own time on, but no later than what came after it of its entity and source, and no earlier
  than what says a place and was delivered before it by its partition.  Changes that say `snapshot` may also
  be truncates (`TRUNCATE`);
- `moved` (may be missing), a struct of `id`, a text, and of `old_key` and `new_key`, structs of the key
  fields: of a delete and an upsert that are one move of a row from key to key, the same in both; null in all
  others.  What the upsert did not send is under the new key what stood under the old one right before the
  delete, with its message and its priority: a `Ledger` sees to it, and `merge` after `complete_moves`.
  Where a row comes to a key that another one of its source leaves at the same instant, but only behind it
  in the order, the one that had the key first leaves it before the other one comes (`merging.shifts`);
  `id` tells the moves of a source between two keys apart;
- `guid` (may be missing), the identity of the entity where the key fields do not give it.  Such changes say
  nothing of moves;
- `reject` (may be missing), a struct of `REJECT_SCHEMA`: the record of a row that is no change, since it
  could not be used, and why; null in changes.  Such a row has no `operation`, and whatever else stands in it
  is what could be read.  `merge` and all questions pass over it, a `Ledger` keeps it, `rejects` shows it and
  `drop_rejects` leaves it out.

`sequence` is text and sorts as text, in which "10" stands before "9": `with_sequence` makes it of numbers."""

MADE_OF = "cdckit.made_of"
"""In the metadata of a column `guid`: the key fields that it is made of, where it is no identity itself."""

IS_EFFECTIVE = "cdckit.is_effective"
"""In the metadata of a column `arrival`: nothing said when some came, and it is when these are true."""

TABLES = "cdckit.tables"
"""In the metadata of a column `arrival`: of how many tables `union_changes` made it; one without that."""

IS_PERIOD = "cdckit.is_period"
"""In the metadata of a column `effective_until`: a table said it, whose open rows may have an end later."""

LACKING = "cdckit.lacking"
"""In the metadata of a column `data`: by number, the fields that a table which was united did not have."""

UNTYPED = "cdckit.untyped"
"""In the metadata of a column `data`: the fields that are texts as they were sent, whose types nobody said.

A door whose messages say how values are written has it, perhaps empty; without it nothing is known."""

RANKED = "cdckit.ranked"
"""In the metadata of a column `priority`: the sources that `with_priorities` was given one for."""

EMPTY = "cdckit.empty"
"""In the metadata of a column `data`: the fields in which, or in parts of which, nothing stands.

As the JSON of a struct of them; void says where in their types."""

AS_SENT = "text as it was sent, whose type nobody said"

ORDER = ("effective_timestamp", "sequence", "arrival", "message_id", "source")
"""The order in which the changes of one entity count: total, and part of what the message says."""


def has_mark(columns: T.StructType, name: str, mark: str) -> bool:
    """Tell whether the metadata of a column has a mark; without the column it has none."""
    return name in columns.fieldNames() and mark in columns[name].metadata


def ranked_sources(columns: T.StructType) -> list[str]:
    """The sources that `RANKED` names in changes of these columns."""
    return list(columns["priority"].metadata.get(RANKED, ()))


def empty_fields(columns: T.StructType) -> dict[str, T.DataType]:
    """The fields of changes in these columns in which, or in parts of which, nothing stands: see `EMPTY`."""
    data = columns["data"]
    assert isinstance(data.dataType, T.StructType)
    noted = json.loads(data.metadata.get(EMPTY, "null"))
    fields = [*data.dataType, *(T.StructType.fromJson(noted) if noted else ())]
    return {field.name: field.dataType for field in fields if has_void(field.dataType)}


def note_empty(fields: Mapping[str, T.DataType]) -> dict[str, str]:
    """Note such fields in the metadata of `data`: see `EMPTY`."""
    return {EMPTY: T.StructType([T.StructField(name, kind) for name, kind in fields.items()]).json()}


def with_empty_as(changes: DataFrame, kinds: Mapping[str, T.DataType]) -> DataFrame:
    """Changes whose fields by these names are of these types, which are others where nothing stands."""
    if not kinds:
        return changes
    typed, data = F.col("data"), changes.schema["data"].dataType
    assert isinstance(data, T.StructType)
    for name, kind in kinds.items():
        typed = typed.withField(quoted(name), as_filled(typed.getField(name), data[name].dataType, kind))
    return changes.withColumn("data", typed).withMetadata("data", changes.schema["data"].metadata)


def untyped_fields(columns: T.StructType) -> list[str]:
    """The fields of changes in these columns that `UNTYPED` names."""
    return list(columns["data"].metadata.get(UNTYPED, ()))


def typed_fields(columns: T.StructType) -> list[str]:
    """The fields of changes in these columns that are of a type; texts only where `UNTYPED` is there."""
    data, untyped = columns["data"].dataType, untyped_fields(columns)
    assert isinstance(data, T.StructType)
    others = () if UNTYPED in columns["data"].metadata else (T.StringType, T.NullType)
    return [
        field.name for field in data if field.name not in untyped and not isinstance(field.dataType, others)
    ]


_HOW_TO_MAKE = (
    "`changes_from(frame, keys=[…], sequence_by=…)` makes changes of any table, of Spark or of pandas."
)
_NOT_A_HISTORY = (
    "This is a history, which `merge` has made: give the changes that it was merged from, such as "
    "`ledger.changes()`.  Who said what stands in the history itself, `blame(history, key)` tells."
)


def require_changes(changes: DataFrame) -> DataFrame:
    """
    The changes themselves; raises unless they have the columns of such a table (see `CHANGE_SCHEMA`).

    Raises:
        MissingColumns: A column is not there.
        WrongColumnType: A column has another type, or `carried` has not the fields of `data`, in order.
        InvalidArgument: Two fields of `data` differ in case alone: Spark could not tell them apart.
    """
    is_history = isinstance(changes, DataFrame) and {VALID_FROM, DELETED} <= set(changes.columns)
    remedy = _NOT_A_HISTORY if is_history else _HOW_TO_MAKE
    require_types(changes, CHANGE_SCHEMA, remedy=remedy)
    data = require_struct(changes, "data")
    require_distinct_fields(data.fieldNames())
    carried = require_struct(changes, "carried")
    needed = T.StructType([T.StructField(name, T.BooleanType()) for name in data.fieldNames()])
    if carried.simpleString() != needed.simpleString():
        raise WrongColumnType(None, "carried", needed.simpleString(), carried.simpleString())
    for name, kind in ((UNTIL, T.TimestampType()), (REJECT, REJECT_SCHEMA)):
        if name in changes.columns:
            require_type(changes, name, kind)
    return changes


def require_moves(changes: DataFrame, keys: Sequence[str]) -> None:
    """Raise `WrongColumnType` unless `moved` says an id and both keys, all of *keys* in them."""
    kind = require_struct(changes, MOVED)
    parts = {field.name: field.dataType for field in kind}
    sides = [parts.get(name) for name in ("old_key", "new_key")]
    complete = all(isinstance(side, T.StructType) and set(keys) <= set(side.fieldNames()) for side in sides)
    if not isinstance(parts.get("id"), T.StringType) or not complete:
        named = ", ".join(keys)
        needed = f"a struct of id (string), old_key and new_key (structs with {named})"
        remedy = (
            "`with_fields` makes both keys of fields that are made of the key alone; "
            f"`changes.drop({MOVED!r})` takes moves for deletes and new rows, which take nothing along."
        )
        raise WrongColumnType(None, MOVED, needed, kind.simpleString(), remedy)


def require_distinct_fields(names: Iterable[str]) -> None:
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
            raise InvalidArgument(None, "data", needed, [other, name], remedy=remedy)


@takes()
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
    require_columns(frame, [number])
    kind = frame.schema[number].dataType
    if not (isinstance(kind, T.IntegralType) or (isinstance(kind, T.DecimalType) and kind.scale == 0)):
        raise WrongColumnType(None, number, "a whole number", kind.simpleString())
    return frame.withColumn("sequence", sortable_number(F.col(quoted(number))))


def sortable_number(number: Column) -> Column:
    """A whole number as text of 38 digits that sorts as the number does; null for null."""
    whole = number.cast("decimal(38,0)")
    # Of two negative numbers the one with more to it comes first: so what it lacks to all nines is written.
    written = F.when(whole < 0, whole + F.lit(Decimal("9" * DIGITS))).otherwise(whole).cast("string")
    digits = F.lpad(written, DIGITS, "0")
    return F.concat(F.when(whole < 0, "-").otherwise(""), digits)


def field_names(changes: DataFrame) -> list[str]:
    """The business fields of a table of changes, in their order."""
    return require_struct(changes, "data").fieldNames()


def statement_columns(
    operation: Column,
    start: Column,
    content: Sequence[Column],
    *,
    by: str,
    reason: str,
    source: str,
    received_at: datetime | None,
) -> list[Column]:
    """
    Make columns of changes, before `priority`, of what somebody states by hand about rows of a history.

    By *content*, as by the operation, what one call or two at one instant say of an entity is told apart: all
    values, and which of them are said.
    """
    for argument, text in (("by", by), ("reason", reason), ("source", source)):
        require_name(text, argument)
    stated_at = datetime.now(UTC) if received_at is None else received_at
    instant = require_instant(stated_at, "received_at")
    clock = stated_at.astimezone(UTC).replace(tzinfo=None).isoformat(" ")
    message = F.lit(f"{by}, {clock}: {reason}")
    # From 2**30 on are the numbers of words that a move took along (`merging.arrow_changes`).
    # A hash of values passes over nulls: two statements that differ by a null alone would be one.
    said = F.to_json(F.struct(operation, *content), {**EXACT_JSON, "ignoreNullFields": "false"})
    number = F.pmod(F.xxhash64(message, said), F.lit(2**30 - 1)) + 1
    return [
        operation.alias("operation"),
        start.alias("effective_timestamp"),
        F.lit(AFTER_ALL).alias("sequence"),
        arrival_of(source, instant, record_number=number),
        message.alias("message_id"),
        F.lit(source).alias("source"),
    ]


def arrival_of(
    topic: str, timestamp: Column, *, offset: Column | int = 0, record_number: Column | int = 1
) -> Column:
    """Make the `arrival` of a change that no partition of a topic brought."""
    places = F.lit(0), F.lit(offset).cast("bigint"), F.lit(record_number).cast("int")
    parts = zip(ARRIVAL_TYPE.names, (timestamp, F.lit(topic), *places), strict=True)
    return F.struct(*(part.alias(name) for name, part in parts)).alias("arrival")


def field_priority(changes: DataFrame, name: str) -> Column:
    """The priority that a field was given of its own; null where `field_priorities` does not name it."""
    if "field_priorities" in changes.columns:
        stated = require_struct(changes, "field_priorities")
        if name in stated.fieldNames():
            return F.col("field_priorities").getField(name)
    return F.lit(None).cast("int")


def keep_key(data: Column, keys: Sequence[str], kinds: T.StructType) -> tuple[Column, Column]:
    """`data` with nothing but its key, and the `carried` that goes with it."""
    values = [
        (data.getField(kind.name) if kind.name in keys else F.lit(None).cast(kind.dataType)).alias(kind.name)
        for kind in kinds
    ]
    carried = [F.lit(kind.name in keys).alias(kind.name) for kind in kinds]
    return F.struct(*values), F.struct(*carried)
