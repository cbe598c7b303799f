"""Full lists of a source as changes: what each list says against the one before it, and by which message."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.window import WindowSpec

from cdckit.model.changes import ABSENT, CHANGE_SCHEMA, TABLE, UPSERT, arrival_of, keep_key
from cdckit.parts.arguments import quoted, quoted_if_needed, require_struct
from cdckit.parts.public_calls import called_function
from cdckit.parts.values import as_text, comparable, has_times, is_outside_years, utc_clock

_MARK = "list"

CORRUPT = "_corrupt_record"
"""Where Spark's readers of text keep a row that they cannot read, and others its bytes."""

NAMED_LISTS = "cdckit.lists"
"""Under what name the column `message_id` tells, in its metadata, which lists changes were made of: of each
source the instants, in microseconds.  A list that says nothing new is in none of the rows."""


def list_message_id(source: Column, taken_at: Column) -> Column:
    """The message that the list is which a source gave at an instant: the same whenever it is read."""
    # As a list is named in a call: of UTC, which it says, whatever the zone of the session is.
    clock = F.replace(utc_clock(taken_at).cast("string"), F.lit(" "), F.lit("T"))
    return F.concat(F.concat_ws("-", source, F.lit(_MARK), clock), F.lit("Z"))


def is_list_change() -> Column:
    """Tell whether a change is what a list says, which its message tells; never null."""
    has_mark = F.col("message_id").contains(f"{_MARK}-")
    message = list_message_id(F.col("source"), F.col("effective_timestamp"))
    # Most messages are none: of those the name is not made.
    return F.coalesce(F.when(has_mark, F.col("message_id") == message), F.lit(False))


def is_table_row() -> Column:
    """Tell whether a change is a row of a table that is no list: its row number orders it there."""
    return (F.col("arrival.topic") == TABLE) & ~is_list_change()


def list_arrival(taken_at: Column) -> Column:
    """Place a list among all arrivals: it is known when it is taken."""
    return arrival_of(TABLE, taken_at)


def listed_fields(frame: DataFrame, names: Iterable[str]) -> Column:
    """
    The fields of a row of a list; a row that could not be read ends the job.

    So does a time that is not in the years 1 to 9999.
    """
    fields = F.struct(*(_listed_field(frame, name) for name in names))
    if not has_corrupt_rows(frame):
        return fields
    needed = (
        f"{called_function()}() needs every row of a list, since a list ends what it does not name, and "
        "one could not be read: mend it where it comes from or, if it is about nothing, leave such rows out, "
        f'`frame.where("{CORRUPT} is null")`.  The row: '
    )
    error = F.raise_error(F.concat(F.lit(needed), F.col(CORRUPT).cast("string")))
    return F.when(F.col(CORRUPT).isNotNull(), error).otherwise(fields)


def has_corrupt_rows(frame: DataFrame) -> bool:
    """Tell whether a table has the column of unreadable rows; its type is void if every row could be read."""
    return CORRUPT in frame.columns and isinstance(
        frame.schema[CORRUPT].dataType, T.StringType | T.BinaryType | T.NullType
    )


def _listed_field(frame: DataFrame, name: str) -> Column:
    value, kind = F.col(quoted(name)), frame.schema[name].dataType
    if not has_times(kind):
        return value.alias(name)
    needed = f"{called_function()}() needs every time of a list in the years 1 to 9999, and {name} is "
    remedy = ": make it null first, if it stands for a time that nobody knows"
    sentence = F.concat(F.lit(needed), as_text(value, kind), F.lit(remedy))
    return F.when(is_outside_years(value, kind), F.raise_error(sentence)).otherwise(value).alias(name)


def compare_lists(
    rows: DataFrame,
    keys: Sequence[str],
    no_time: Column,
    *,
    compared: bool = True,
) -> DataFrame:
    """
    Compare lists: who is there, who is gone with the next list, both, or nothing new.

    Args:
        rows: One row per row of a list: `source`, `taken`, `next_taken` (when the next list of the source was
            taken; null where none is known), `data`, `carried`, `priority` and perhaps `field_priorities`.
        keys: The key fields.
        no_time: The sentence that ends the job where `taken` is null.
        compared: Whether a row that says what the list before said is no new change.

    Returns:
        Changes, and beside them `begins`: whether an upsert is about an entity that the list before did
        not name.
    """
    once, in_order = _drop_repeats(rows, keys)
    data = require_struct(rows, "data")
    follows = F.lag("next_taken").over(in_order).eqNullSafe(F.col("taken"))
    unchanged = follows & F.lag("content").over(in_order).eqNullSafe(F.col("content"))
    goes_on = F.lead("taken").over(in_order).eqNullSafe(F.col("next_taken"))
    weighed = [F.col(name) for name in ("priority", "field_priorities") if name in rows.columns]

    def statement(operation: Column, at: str, data: Column, carried: Column, begins: Column) -> Column:
        when = operation.alias("operation"), F.col(at).alias("effective_timestamp")
        what = data.alias("data"), carried.alias("carried"), begins.alias("begins")
        return F.struct(*when, *weighed, *what)

    operation, begins = _operation(keys, no_time), ~F.col("follows")
    stated = statement(operation, "taken", F.col("data"), F.col("carried"), begins)
    key = keep_key(F.col("data"), keys, data)
    withdrawn = statement(F.lit(ABSENT), "next_taken", *key, F.lit(False))
    is_new = ~unchanged if compared else F.lit(True)
    ends = F.col("next_taken").isNotNull() & ~goes_on
    says = once.withColumns({"follows": follows, "is_new": is_new, "ends": ends})
    outcomes = F.array(F.when(F.col("is_new"), stated), F.when(F.col("ends"), withdrawn))
    statements = says.select(
        "source", F.explode(F.filter(outcomes, lambda column: column.isNotNull())).alias("said")
    )
    return _as_changes(statements.select("source", "said.*"))


def _drop_repeats(rows: DataFrame, keys: Sequence[str]) -> tuple[DataFrame, WindowSpec]:
    """The rows, each once; `again` where a list then says another thing of its entity; and their order."""
    data = require_struct(rows, "data")
    of_key = {
        f"key {n}": comparable(F.col("data").getField(name), data[name].dataType)
        for n, name in enumerate(keys)
    }
    by_key = Window.partitionBy("source", *(F.col(f"`{name}`") for name in of_key))
    in_order = by_key.orderBy("taken", "content")
    before, said_before = F.lag("taken").over(in_order), F.lag("content").over(in_order)
    again = said_before.isNotNull() & before.eqNullSafe(F.col("taken"))
    named = rows.withColumns(of_key).withColumn("content", content_digest(rows))
    marked = named.withColumns({"again": again, "same": said_before.eqNullSafe(F.col("content"))})
    return marked.where(~(F.col("again") & F.col("same"))), in_order


def content_digest(rows: DataFrame) -> Column:
    """A digest of what a row of a list says: what it tells apart, `merge` tells apart."""
    data, carried = require_struct(rows, "data"), require_struct(rows, "carried")
    # Equal values have one text.
    return F.md5(F.concat(as_text(F.col("data"), data), as_text(F.col("carried"), carried)))


def _operation(keys: Sequence[str], no_time: Column) -> Column:
    """Upsert; ends the job for a row that no list can hold."""
    function, of_key = called_function(), [F.col("data").getField(name) for name in keys]
    row = F.to_json(F.col("data"))
    with_key = " or ".join(f"{quoted_if_needed(name)} is not null" for name in keys)
    no_key = (
        f"{function}() needs a key for every row, since a list ends what it does not name, and "
        f"{', '.join(keys)} {'is' if len(keys) == 1 else 'are'} null: give the row its key or, if it is "
        "about nothing, leave such rows out, "
        f'`frame.where("{with_key}")`, in pandas `frame.dropna(subset={list(keys)}, how="all")`.  The row: '
    )
    twice = f"{function}() needs each entity once in a list, and one names it again, not the same: "
    lacks_key = reduce(and_, (column.isNull() for column in of_key))
    return (
        F.when(F.col("taken").isNull(), F.raise_error(no_time))
        .when(lacks_key, F.raise_error(F.concat(F.lit(no_key), row)))
        .when(F.col("again"), F.raise_error(F.concat(F.lit(twice), row)))
        .otherwise(UPSERT)
    )


def _as_changes(statements: DataFrame) -> DataFrame:
    at = F.col("effective_timestamp")
    message = list_message_id(F.col("source"), at)
    columns = {"sequence": F.lit(""), "arrival": list_arrival(at), "message_id": message}
    more = [name for name in ("field_priorities",) if name in statements.columns]
    names = [*CHANGE_SCHEMA.names, "data", "carried", *more, "begins"]
    return statements.select(*(columns[name].alias(name) if name in columns else name for name in names))
