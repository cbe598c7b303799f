"""Statements of the rows of a table: as changes, as records, and as rejects with what is wrong with them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.model.changes import DELETE, IS_EFFECTIVE, IS_PERIOD, TABLE, UNTIL, UPSERT, arrival_of
from cdckit.model.faults import ERROR_CODE, ERROR_DESCRIPTION, Fault
from cdckit.model.rejected_records import REJECT_SCHEMA, reject_column
from cdckit.parts.built_columns import built_once
from cdckit.parts.values import as_text
from cdckit.tables.times import Unreadable, is_missing
from cdckit.tables.truncates import IS_TRUNCATE

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
