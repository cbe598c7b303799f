"""Corrections: what somebody states against a history, for a period, as changes of a source of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.merging.arrow_changes import NO_PRIORITY
from cdckit.model.changes import DELETE, UNTIL, UPSERT, statement_columns
from cdckit.model.forms import history_with
from cdckit.model.history import DELETED, FIELD_PROVENANCE, VALID_FROM, VALID_TO, business_fields, is_deleted
from cdckit.parts.argument_forms import INT, takes
from cdckit.parts.arguments import quoted, require_fields, require_keys, require_struct, wrong_type
from cdckit.parts.arrow_types import arrow_type
from cdckit.parts.widening import as_type, common_spark_type, is_made_text
from cdckit.query.as_of import versions_within
from cdckit.query.entity_keys import literal

_GREATEST = 2**31 - 1


@takes(history=history_with(VALID_FROM, VALID_TO, DELETED), priority=INT.or_none())
def correct(
    history: DataFrame,
    values: Mapping[str, object] | None,
    start: datetime,
    end: datetime | None = None,
    *,
    keys: Sequence[str],
    by: str,
    reason: str,
    source: str = "correction",
    priority: int | None = None,
    received_at: datetime | None = None,
) -> DataFrame:
    """
    State other values for a period, as changes that `merge` and a `Ledger` take like any other.

    Where the period ends, what would stand without the correction stands again.  Only what is there is
    corrected: no entity comes to life, and what is deleted stays deleted, also by a delete that comes after
    the correction.  An entity that comes back after such a delete is as its source says.

    Values are corrected in their fields alone: of the row itself the change has the least priority there is.
    So leave *source* out of `with_priorities`, which would give it another one; and where `revoke` takes back
    the message that made the entity, let it take back the correction too.

    Args:
        history: The versions of the entities that are meant: a history, or some of its rows by `where`.
        values: The right value of each field that was wrong: a value of its type, as in the *key* of
            `timeline`, or a column over *history* (`F.col("price") * 2`).  None if the entities were not
            there at all.
        start: From when: an aware datetime in any zone.
        end: Until when, exclusive; None if the values hold until a source says something else.
        keys: The key fields, as for `merge`.
        by: Who says so.
        reason: Why.
        source: The source of the changes.
        priority: How much the values count; without *values*, how much the delete does.  Without it, what the
            sources have said of these fields in the period does not undo the correction, whenever it arrives,
            if it has no more priority than what stands there now.  A correction without an end has the
            priority of what it corrects, so the next word counts.
        received_at: When it was said: now, without it.

    Returns:
        One row per version and part of the period in which it is in force: the columns of changes, with
        `field_priorities` and `effective_until`.  `message_id` is the text "*by*, *received_at*: *reason*",
        by which `blame` and `why` show it and `revoke` takes it back.

    Raises:
        MissingColumns, WrongColumnType: *history* lacks `field_provenance`, which only *priority* makes
            superfluous; or a value is not of its field's type.
        InvalidArgument: An instant is naive, *end* is not after *start*; *values* are empty, or name a key or
            what is no field; *keys* are no fields; *by*, *reason* or *source* is no text.

    Cost: one filter, no shuffle.

    Source:
        SQL:2011, `UPDATE … FOR PORTION OF` and `DELETE … FOR PORTION OF`.

    >>> from datetime import datetime, timezone
    >>> from cdckit import merge, union_changes
    >>> nine, noon = (datetime(2024, 1, 1, hour, tzinfo=timezone.utc) for hour in (9, 12))
    >>> mugs = correct(
    ...     history.where("number = 2"), {"name": "cup"}, nine, nine.replace(minute=30), keys=["number"],
    ...     by="anna", reason="a slip of the pen", received_at=noon,
    ... )
    >>> right = merge(union_changes(changes, mugs), entity="product", keys=["number"]).where("number = 2")
    >>> shown = ("name", "valid_from_timestamp", "source_message")
    >>> right.orderBy("valid_from_timestamp").select(*shown).show(truncate=False)
    +----+--------------------+--------------------------------------------+
    |name|valid_from_timestamp|source_message                              |
    +----+--------------------+--------------------------------------------+
    |cup |2024-01-01 09:00:00 |anna, 2024-01-01 12:00:00: a slip of the pen|
    |mug |2024-01-01 09:30:00 |m1                                          |
    |NULL|2024-01-01 11:00:00 |m3                                          |
    +----+--------------------+--------------------------------------------+
    <BLANKLINE>
    """
    versions = versions_within(history, start, end).where(~is_deleted())
    fields = business_fields(history)
    key = require_keys(keys, fields.fieldNames())
    right = _right_values(history, values, [name for name in fields.fieldNames() if name not in key])
    data = F.struct(*(right.get(field.name, _of_key(field, key)).alias(field.name) for field in fields))
    carried = F.struct(*(F.lit(name in {*key, *right}).alias(name) for name in fields.names))
    stated = statement_columns(
        F.lit(DELETE if values is None else UPSERT),
        F.col(VALID_FROM),
        [F.col(VALID_FROM), F.col(VALID_TO), data, carried],
        by=by,
        reason=reason,
        source=source,
        received_at=received_at,
    )
    weights = {name: _priority(history, priority, name) for name in right or ("guid",)}
    priorities = [weights.get(name, F.lit(None).cast("int")).alias(name) for name in fields.names]
    return versions.select(
        *stated,
        (F.lit(NO_PRIORITY) if right else weights["guid"]).alias("priority"),
        data.alias("data"),
        carried.alias("carried"),
        F.struct(*priorities).alias("field_priorities"),
        F.col(VALID_TO).alias(UNTIL),
    )


def _right_values(
    history: DataFrame, values: Mapping[str, object] | None, fields: Sequence[str]
) -> dict[str, Column]:
    """The values in the types of their fields."""
    if values is None:
        return {}
    columns = {}
    for name in require_fields(values, fields, "values"):
        needed = history.schema[name].dataType
        value = values[name]
        value = value if isinstance(value, Column) else _literal(name, value, needed)
        given = history.select(value).schema[0].dataType
        common = common_spark_type(needed, given)
        is_other = common is None or common.simpleString() != needed.simpleString()
        if is_other or is_made_text(common, needed, given):
            raise wrong_type(name, needed.simpleString(), given.simpleString())
        columns[name] = as_type(value, given, needed, name)
    return columns


def _literal(name: str, value: object, needed: T.DataType) -> Column:
    """The value as a column; raises `WrongColumnType` for what is none of the field's type."""
    try:
        column = literal(value, needed)
        if not isinstance(needed, T.IntegralType):
            return column
        pa.scalar(value, arrow_type(needed))  # Raises where the field has too few bits.
        return column.cast(needed)
    except ValueError:
        raise wrong_type(name, needed.simpleString(), f"{type(value).__name__}, {value!r}") from None


def _of_key(field: T.StructField, keys: Sequence[str]) -> Column:
    return F.col(quoted(field.name)) if field.name in keys else F.lit(None).cast(field.dataType)


def _priority(history: DataFrame, priority: int | None, name: str) -> Column:
    """Take *priority*; or what stands in the field, and above that and the row where the period ends."""
    if priority is not None:
        return F.lit(priority)
    entries = require_struct(history, FIELD_PROVENANCE).fieldNames()
    row = F.col(FIELD_PROVENANCE)["guid"]["p"]
    # A field that was never set has no priority, and `greatest` passes over nulls.
    field_priority = F.col(FIELD_PROVENANCE)[name]["p"] if name in entries else F.lit(None).cast("int")
    above = F.least(F.greatest(field_priority, row), F.lit(_GREATEST - 1)) + 1
    return F.when(F.col(VALID_TO).isNull(), field_priority).otherwise(above).cast("int")
