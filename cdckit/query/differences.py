"""Differences: what changed in a history during a period, and where two histories disagree."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.model.history import (
    DELETED,
    FIELD_PROVENANCE,
    VALID_FROM,
    VALID_TO,
    business_fields,
    is_deleted,
    provenance_type,
    require_history,
    version_operation,
)
from cdckit.parts.argument_forms import Form, takes
from cdckit.parts.arguments import quoted, require_fields, require_period, require_struct, wrong_argument
from cdckit.parts.values import as_text, comparable
from cdckit.query.intervals import UNSOUND, fold_periods, is_ever_in_force, is_period, split_periods

PRESENCE = T.StructField(DELETED, T.BooleanType())
_CHANGED = ("changed_at_timestamp", "operation", "field", "from_value", "to_value", "message", "priority")
_SAID = ("a_value", "b_value", "a_message", "b_message")
DIFFERING = ("field", VALID_FROM, VALID_TO, *_SAID)
"""The columns of `diff`, behind the guid and the keys."""


def _check_comparable(history: Any, argument: str) -> DataFrame:
    versions = require_history(history, "guid", VALID_FROM, VALID_TO, DELETED)
    if FIELD_PROVENANCE in versions.columns:
        require_struct(versions, FIELD_PROVENANCE)
    return versions


COMPARABLE = Form(
    _check_comparable,
    "MissingColumns, WrongColumnType: {} lacks a column of an interval, or has it in another type, or its "
    "`field_provenance` is no struct",
)
"""A history whose values can be compared; `field_provenance` may be missing."""


@takes(history=COMPARABLE)
def changes_between(
    history: DataFrame, start: datetime, end: datetime | None, *, keys: Sequence[str] = ()
) -> DataFrame:
    """
    Find what changed in a period: from what, to what, and by which message.

    The period is half-open: a version that begins at *start* is a change in it, one that begins at
    *end* is not.

    Args:
        history: One row per version; intervals of one entity must not overlap, which is not checked
            here (see `find_overlaps`).  A version that ends as it begins changes nothing.  Without
            `field_provenance` nobody is named.
        start: Where the period begins: an aware datetime in any zone.
        end: Where it ends, later than *start*; None for a period without an end.
        keys: Fields that say which entity it is, for a reader: columns of the answer behind `guid`, with
            their values in the version that began.

    Returns:
        One row per entity, instant and field that then got another value:

        - `guid`, and `changed_at_timestamp`, when the new value begins;
        - `operation`: "insert", "update", "delete" or "recreate", as in `with_operation`;
        - `field`: a business field, or `deleted_indicator` for the entity itself, which goes from null
          to false (insert), from false to true (delete), from true to false (recreate);
        - `from_value`, `to_value`: text, null for null; nested values as JSON, binary as hex digits.
          Values are compared in their own types: `cdckit.parts.values` says what is equal;
        - `message`, `priority`: which message set the new value, and with which priority; null where
          no message did.

        A value that stays the same while its provenance changes is no row.  After a gap in the
        history (see `find_gaps`) the entity is inserted anew; that it went is no row.

    Raises:
        InvalidArgument: *start* or *end* is a naive datetime, or *end* is not after *start*; *keys* are no
            fields, or are called as a column of the answer.

    Cost: one filter, then one shuffle by guid and one sort of the versions that were in force in the
    period or ended at *start*.

    >>> from datetime import datetime, timezone
    >>> start = datetime(2024, 1, 1, 10, 0, tzinfo=timezone.utc)
    >>> found = changes_between(history, start, None, keys=["number"])
    >>> found.orderBy("changed_at_timestamp", "field").drop("guid").show()
    +------+--------------------+---------+-----------------+----------+--------+-------+--------+
    |number|changed_at_timestamp|operation|            field|from_value|to_value|message|priority|
    +------+--------------------+---------+-----------------+----------+--------+-------+--------+
    |     1| 2024-01-01 10:00:00|   update|             name|    kettle|  teapot|     m2|       0|
    |     2| 2024-01-01 11:00:00|   delete|deleted_indicator|     false|    true|     m3|       0|
    |     2| 2024-01-01 11:00:00|   delete|             name|       mug|    NULL|     m3|       0|
    +------+--------------------+---------+-----------------+----------+--------+-------+--------+
    <BLANKLINE>
    """
    named = require_reader_keys(business_fields(history), keys, _CHANGED)
    steps = version_steps(history, start, end)
    was, is_ = F.col("before"), F.col("version")
    operation = version_operation(value_of(was, PRESENCE), value_of(is_, PRESENCE))
    return steps.select(
        F.col("guid"),
        *(value_of(is_, field).alias(field.name) for field in named),
        F.col("begins").alias("changed_at_timestamp"),
        operation.alias("operation"),
        differing_cells(was, is_, [PRESENCE, *business_fields(history)], partial(_step, was, is_)),
    ).where(F.col("field").isNotNull())


@takes(a=COMPARABLE, b=COMPARABLE)
def diff(a: DataFrame, b: DataFrame, *, keys: Sequence[str] = ()) -> DataFrame:
    """
    Find where two histories of one kind of entity say different things.

    For instance of the same changes under other priorities, or with and without some messages.

    Args:
        a: One row per version; intervals of one entity must not overlap.  One that ends as it begins says
            nothing.  Without `field_provenance` nobody is named.
        b: Another one, of the same business fields in any order.
        keys: Fields that say which entity it is, for a reader: columns of the answer behind `guid`, with
            their values in *a* then or, where *a* knows nothing of the entity, or has it deleted and *b* has
            not, in *b*.

    Returns:
        One row per entity, field and interval in which the histories differ:

        - `guid`, and `field`: a business field, or `deleted_indicator` for the entity itself;
        - `valid_from_timestamp`, `valid_to_timestamp` (exclusive, null while they differ still);
        - `a_value`, `b_value`: text, null for null; nested values as JSON, binary as hex digits.  For
          `deleted_indicator` null means that the history knows nothing of the entity then: it is
          before its first version, or after the end of one that none follows;
        - `a_message`, `b_message`: which message set the value; null where none did.

        Values are compared in their own types (`cdckit.parts.values`).  The same value from
        another message is no difference.  Neighbouring intervals with the same values and messages
        are one row.

    Raises:
        InvalidArgument: Their business fields have not the same names and types; *keys* are no fields, or
            are called as a column of the answer.
        SparkRuntimeException: When the result is computed (Spark's): two versions of one entity overlap in
            one of them.

    Cost: one shuffle of both by guid and one sort; one more sort of the differences.

    >>> other = history.withColumn("name", F.regexp_replace("name", "pot", "cup"))
    >>> diff(history, other, keys=["number"]).drop("guid", "valid_to_timestamp").show()
    +------+-----+--------------------+-------+-------+---------+---------+
    |number|field|valid_from_timestamp|a_value|b_value|a_message|b_message|
    +------+-----+--------------------+-------+-------+---------+---------+
    |     1| name| 2024-01-01 10:00:00| teapot| teacup|       m2|       m2|
    +------+-----+--------------------+-------+-------+---------+---------+
    <BLANKLINE>
    """
    fields = business_fields(a).fields
    _require_same_fields(a, b)
    named = require_reader_keys(business_fields(a), keys, DIFFERING)
    left, right = F.col("a"), F.col("b")
    # All of one version: mixed, they might name an entity that there is not.
    told_by_a = is_there(left) | (left.isNotNull() & ~is_there(right))
    differing = _side_by_side(a, b).select(
        "guid",
        *(
            F.when(told_by_a, value_of(left, field)).otherwise(value_of(right, field)).alias(field.name)
            for field in named
        ),
        VALID_FROM,
        VALID_TO,
        differing_cells(left, right, [PRESENCE, *fields], partial(_two_words, left, right)),
    )
    periods = fold_periods(differing.where(F.col("field").isNotNull()), ["guid", "field"], F.struct(*_SAID))
    return periods.select("guid", *(quoted(field.name) for field in named), *DIFFERING)


def _step(was: Column, is_: Column, field: T.StructField) -> dict[str, Column]:
    """Tell of a field that got another value, for `changes_between`."""
    return {
        "from_value": as_text(value_of(was, field), field.dataType),
        "to_value": as_text(value_of(is_, field), field.dataType),
        "message": provenance_of(is_, field).getField("m"),
        "priority": provenance_of(is_, field).getField("p"),
    }


def _two_words(left: Column, right: Column, field: T.StructField) -> dict[str, Column]:
    """Tell of a field of which two histories say different things, for `diff`."""
    return {
        "a_value": as_text(value_of(left, field), field.dataType),
        "b_value": as_text(value_of(right, field), field.dataType),
        "a_message": provenance_of(left, field).getField("m"),
        "b_message": provenance_of(right, field).getField("m"),
    }


def require_reader_keys(
    fields: T.StructType, keys: Sequence[str], taken: Sequence[str]
) -> list[T.StructField]:
    """The fields that *keys* name; raises if one is called as a column of the answer is, in any case."""
    names = require_fields(keys, fields.fieldNames(), "keys") if keys else []
    if {name.lower() for name in names} & {"guid", *taken}:
        raise wrong_argument("keys", f"called otherwise than {', '.join(taken)}", names)
    return [fields[name] for name in names]


def _require_same_fields(a: DataFrame, b: DataFrame) -> None:
    fields_of_a = {field.name: field.dataType.simpleString() for field in business_fields(a)}
    fields_of_b = {field.name: field.dataType.simpleString() for field in business_fields(b)}
    differing = {
        name: fields_of_b.get(name)
        for name in [*fields_of_a, *fields_of_b]
        if fields_of_a.get(name) != fields_of_b.get(name)
    }
    if differing:
        needed = [
            f"{name} {fields_of_a[name]}" if name in fields_of_a else f"no {name}" for name in differing
        ]
        raise wrong_argument("b", f"of the fields of a, with {', '.join(needed)}", differing)


def version_rows(history: DataFrame) -> DataFrame:
    """`guid`, `begins`, and the `version` in one struct: no field's name can be taken for another's."""
    fields = business_fields(history).fieldNames()
    has_entries = FIELD_PROVENANCE in history.columns
    entries = require_struct(history, FIELD_PROVENANCE).fieldNames() if has_entries else []
    said_by = [
        (F.col(FIELD_PROVENANCE).getField(name) if name in entries else F.lit(None))
        .cast(provenance_type())
        .alias(name)
        for name in ("guid", *fields)
    ]
    values = [is_deleted().alias(DELETED), *(F.col(quoted(name)) for name in fields)]
    return history.select(
        F.col("guid"),
        F.col(VALID_FROM).alias("begins"),
        F.struct(
            F.col(VALID_TO).alias("ends"),
            F.struct(*values).alias("values"),
            F.struct(*said_by).alias("said_by"),
        ).alias("version"),
    )


def version_steps(history: DataFrame, start: datetime, end: datetime | None) -> DataFrame:
    """The versions that begin in a period, as `version_rows`; `before`, the one that lasted until then."""
    first, last = require_period(start, end)
    begins, ends = F.col(VALID_FROM), F.col(VALID_TO)
    begun = F.lit(True) if end is None else begins < last
    # What ends at start is what the changes at start begin from.
    needed = begun & (ends.isNull() | (ends >= first)) & is_period(begins, ends)
    before = F.lag("version").over(Window.partitionBy("guid").orderBy("begins"))
    steps = version_rows(history.where(needed)).withColumn("before", before).where(F.col("begins") >= first)
    return steps.withColumn("before", F.when(F.col("before.ends") == F.col("begins"), F.col("before")))


def value_of(version: Column, field: T.StructField) -> Column:
    """The value of the field in a version, as `version_rows` makes them."""
    return version.getField("values").getField(field.name)


def is_there(version: Column) -> Column:
    """Tell whether the entity is there: in a version, and not deleted."""
    return ~F.coalesce(value_of(version, PRESENCE), F.lit(True))


def provenance_of(version: Column, field: T.StructField) -> Column:
    """The provenance of the field; of the row itself, if the field is whether the entity is deleted."""
    return version.getField("said_by").getField("guid" if field == PRESENCE else field.name)


def same_value(version: Column, other: Column, field: T.StructField) -> Column:
    """Tell whether two versions have equal values of the field (`cdckit.parts.values`); never null."""
    return comparable(value_of(version, field), field.dataType).eqNullSafe(
        comparable(value_of(other, field), field.dataType)
    )


def differing_cells(
    version: Column,
    other: Column,
    fields: Iterable[T.StructField],
    describe: Callable[[T.StructField], Mapping[str, Column]],
) -> Column:
    """
    A row of each field whose values differ in the two versions: `field`, and how it is *described*.

    Of the fields that are the same the rows are null.
    """
    cells = []
    for field in fields:
        described = (column.alias(name) for name, column in describe(field).items())
        cell = F.struct(F.lit(field.name).alias("field"), *described)
        cells.append(F.when(~same_value(version, other, field), cell))
    return F.inline(F.array(*cells))


def _side_by_side(a: DataFrame, b: DataFrame) -> DataFrame:
    """Find for each period in which neither history changes `a` and `b`: the version in force, if any."""
    line, other = (
        version_rows(history.where(is_ever_in_force())).select(
            "guid", "begins", F.struct(F.col("version.ends").alias("ends"), "version").alias(side)
        )
        for side, history in (("a", a), ("b", b))
    )
    whole = line.unionByName(other, allowMissingColumns=True)
    return split_periods(whole, ["guid"], {"a": "a", "b": "b"}, why=UNSOUND)
