"""Statements of the rows of a table: as changes, as records, and as rejects with what is wrong with them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.model.changes import (
    ABSENT,
    DELETE,
    IS_EFFECTIVE,
    IS_PERIOD,
    TABLE,
    UNTIL,
    UPSERT,
    arrival_of,
    keep_key,
)
from cdckit.model.faults import ERROR_CODE, ERROR_DESCRIPTION, Fault
from cdckit.model.rejected_records import REJECT_SCHEMA, reject_column
from cdckit.parts.arguments import quoted, require_struct
from cdckit.parts.built_columns import built_once
from cdckit.parts.values import as_text, comparable
from cdckit.tables.times import Unreadable, is_missing

IS_TRUNCATE = "is_truncate"
"""The column that says whether a row of a table is a truncate."""

_RECORD_NUMBERS = 2**31 - 1


class TableFault(Fault):
    """
    The codes of the rejects among the rows of a table, in the order in which a row is looked at.

    >>> TableFault.KEY_MISSING.describe("The keys are id, part.")
    'All key columns of the row are null: it is about no entity. The keys are id, part.'
    """

    ROW_UNREADABLE = "ROW_UNREADABLE", "The row could not be read in the columns of its table."
    TIME_MISSING = "TIME_MISSING", "The row does not say when it is true."
    TIME_UNREADABLE = "TIME_UNREADABLE", "The row says when it is true in a way that is not known."
    SEQUENCE_UNREADABLE = "SEQUENCE_UNREADABLE", "The row is sequenced by a day in a form that does not sort."
    END_UNREADABLE = "END_UNREADABLE", "The row says until when it is true in a way that is not known."
    END_NOT_LATER = "END_NOT_LATER", "The row ends before it begins, or as it does: it holds at no time."
    TIME_OUT_OF_RANGE = "TIME_OUT_OF_RANGE", "A time in the row is not in the years 1 to 9999."
    KEY_MISSING = "KEY_MISSING", "All key columns of the row are null: it is about no entity."


class Words(NamedTuple):
    """What the call says of all rows alike: what stands in each of them has the same names in every call."""

    keys: tuple[str, ...]
    time: Unreadable
    places: tuple[Unreadable, ...]
    end: Unreadable | None
    priority: int
    says_arrival: bool
    """Whether the call says when a row came."""


def with_digest(statements: DataFrame) -> DataFrame:
    """Add `digest`, of what a row says, how it was read, and what it is sequenced by."""
    times = [as_text(F.col(name), T.TimestampType()) for name in ("effective_timestamp", UNTIL)]
    # Null adds nothing to the text: the digest of most rows is that of a table without ends or returns.
    deletes = F.when(F.col("deletes"), "deletes")
    identity = ("sequence", times[0], "place", "content", times[1], "returns", deletes, "reading")
    return statements.withColumn("digest", F.md5(F.concat_ws("\n", *identity)))


@built_once
def change_columns(words: Words) -> tuple[str | Column, ...]:
    """The columns of changes, and whether it is a truncate, over statements with their digests."""
    sound = error_columns(words)[ERROR_CODE].isNull()
    end = F.col(UNTIL).alias(UNTIL, metadata={IS_PERIOD: True})
    # A message may say several things of one entity: which of them it is, its content tells.
    number = F.when(F.col("message").isNull(), 1).otherwise(
        F.pmod(F.xxhash64("digest"), F.lit(_RECORD_NUMBERS)) + 1
    )
    number = F.when(F.col(IS_TRUNCATE), 0).otherwise(number)
    arrival = arrival_of(TABLE, F.col("known"), offset=F.col("row"), record_number=number)
    return (
        F.when(sound, F.when(F.col("deletes"), DELETE).otherwise(UPSERT)).alias("operation"),
        "effective_timestamp",
        *([] if words.end is None else [end]),
        "sequence",
        arrival.alias("arrival", metadata={} if words.says_arrival else {IS_EFFECTIVE: True}),
        # The source first: a table that does not know it shows who said so all the same.
        F.coalesce("message", F.concat_ws("-", "source", "digest")).alias("message_id"),
        "source",
        F.lit(words.priority).alias("priority"),
        "data",
        "carried",
        (F.col(IS_TRUNCATE) & sound).alias(IS_TRUNCATE),
    )


@built_once
def row_reject(words: Words) -> Column:
    """Tell what is wrong with a row, and give the row as a record; null where nothing is."""
    return reject_column({**_record(), **error_columns(words)})


@built_once
def record_columns(words: Words) -> tuple[Column, ...]:
    """The row as a record, and what is wrong with it."""
    columns = {**_record(), **error_columns(words)}
    return tuple(value.cast(REJECT_SCHEMA[name].dataType).alias(name) for name, value in columns.items())


def _record() -> dict[str, Column]:
    """The row as a record."""
    return {
        "key": F.lit(None),
        "value": F.coalesce("corrupt", F.encode("content", "UTF-8")),
        "topic": F.lit(TABLE),
        "partition": F.lit(0),
        "offset": F.col("row"),
        "timestamp": F.col("known"),
        "timestampType": F.lit(0),
        "headers": F.lit(None),
    }


@built_once
def error_columns(words: Words) -> dict[str, Column]:
    """Tell what is wrong with a row: the first of its faults."""
    faults = _faults(words)
    codes = (F.when(wrong, F.lit(str(fault))) for fault, (wrong, _) in faults.items())
    sentences = (
        F.when(wrong, F.concat(F.lit(f"{fault.sentence} "), finding, F.lit(".")))
        for fault, (wrong, finding) in faults.items()
    )
    return {ERROR_CODE: F.coalesce(*codes), ERROR_DESCRIPTION: F.coalesce(*sentences)}


def _faults(words: Words) -> dict[TableFault, tuple[Column, Column]]:
    """List what can be wrong with a row, where it is, and what to say of it."""
    has_no_time = F.col("effective_timestamp").isNull()
    # All columns are read whatever is asked: Spark calls a row corrupt by those that it needs.
    is_corrupt = F.col("corrupt").isNotNull() & F.col("content").isNotNull()
    finding = words.time.finding("time_said")
    lacks_key = F.col("lacks_key") & ~F.col(IS_TRUNCATE)
    return {
        TableFault.ROW_UNREADABLE: (is_corrupt, F.lit("It is kept as it came")),
        TableFault.TIME_MISSING: (has_no_time & is_missing("time_said"), finding),
        TableFault.TIME_UNREADABLE: (has_no_time, finding),
        **_place_faults(words.places),
        **({} if words.end is None else _end_faults(words.end)),
        TableFault.TIME_OUT_OF_RANGE: (F.size("outside_years") > 0, F.array_join("outside_years", ", ")),
        TableFault.KEY_MISSING: (lacks_key, F.lit(f"The keys are {', '.join(words.keys)}")),
    }


def _place_faults(places: Sequence[Unreadable]) -> dict[TableFault, tuple[Column, Column]]:
    if not places:
        return {}
    texts = {f"places_said[{number}]": place for number, place in enumerate(places)}
    wrong = {text: F.expr(text).isNotNull() for text in texts}
    findings = (F.when(wrong[text], place.finding(text)) for text, place in texts.items())
    return {TableFault.SEQUENCE_UNREADABLE: (reduce(or_, wrong.values()), F.coalesce(*findings))}


def _end_faults(end: Unreadable) -> dict[TableFault, tuple[Column, Column]]:
    not_later = F.coalesce(F.col(UNTIL) <= F.col("effective_timestamp"), F.lit(False))
    period = F.concat(F.lit("It says from "), F.concat_ws(" until ", "time_said", "end_said"))
    return {
        TableFault.END_UNREADABLE: (F.col(UNTIL).isNull() & ~is_missing("end_said"), end.finding("end_said")),
        TableFault.END_NOT_LATER: (not_later, period),
    }


# Truncates -------------------------------------------------------------------------------------------------


_PLACE = ("effective_timestamp", "sequence", "arrival")
_END = (*_PLACE, "message_id", "source", "priority")


def with_absences(changes: DataFrame, keys: Sequence[str], kinds: T.StructType) -> DataFrame:
    """
    The changes, and in place of the truncates among them what each of them ends.

    Args:
        changes: One row per row of the table, and whether it is a truncate.  At one place truncates stand
            first, which their record number, 0, says.  Rejects stay as they are.
        keys: The key fields.
        kinds: The types of the fields.

    Returns:
        An absence of each entity at the first truncate after a mention of it, unless that mention, the
        last one before the truncate, is a delete without an end.  Later truncates find nothing there.
    """
    statements = changes.where(~F.col(IS_TRUNCATE)).drop(IS_TRUNCATE)
    ends = _with_previous(changes.where(F.col(IS_TRUNCATE)))
    place = F.struct(*_PLACE)
    is_gone = F.col("operation") == DELETE
    if UNTIL in statements.columns:
        is_gone &= F.col(UNTIL).isNull()
    entity = {
        f"key {n}": comparable(F.col("data").getField(key), kinds[key].dataType) for n, key in enumerate(keys)
    }
    mentions = statements.where(F.col("operation").isNotNull()).select(
        F.col("source").alias("by"),
        is_gone.alias("is_gone"),
        "data",
        place.alias("place"),
        F.struct(place, "message_id").alias("in_order"),
        *(value.alias(name) for name, value in entity.items()),
    )
    is_first = F.col("previous").isNull() | (F.col("previous") < F.col("place"))
    first = (F.col("ends") > F.col("place")) & is_first
    met = mentions.join(F.broadcast(ends), F.col("by").eqNullSafe(F.col("source")) & first, how="inner")
    last = F.max_by(F.struct("is_gone", "data", "end"), "in_order").alias("last")
    entities = met.groupBy("by", "ends", *map(quoted, entity)).agg(last).where(~F.col("last.is_gone"))
    # What a truncate ends has no end itself.
    return statements.unionByName(_absences(entities, keys, statements), allowMissingColumns=True)


def _with_previous(truncates: DataFrame) -> DataFrame:
    """Each truncate with the one of its source before it."""
    in_order = Window.partitionBy("source").orderBy("ends")
    placed = truncates.select("source", F.struct(*_PLACE).alias("ends"), F.struct(*_END).alias("end"))
    return placed.withColumn("previous", F.lag("ends").over(in_order))


def _absences(entities: DataFrame, keys: Sequence[str], changes: DataFrame) -> DataFrame:
    data = require_struct(changes, "data")
    values, carried = keep_key(F.col("last.data"), keys, data)
    return entities.select(
        F.lit(ABSENT).alias("operation"),
        *(F.col("last.end").getField(name).alias(name) for name in _END),
        values.alias("data"),
        carried.alias("carried"),
    )
