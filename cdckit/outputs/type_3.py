"""SCD type 3: one row per entity, with what single fields were before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.history import VALID_FROM
from cdckit.outputs.calls import Call, columns, free, in_force_at_some_time
from cdckit.outputs.type_1 import said_by
from cdckit.parts.schemas import quoted
from cdckit.parts.values import comparable
from cdckit.query.as_of import current, without_deleted


def scd_type_3(history: DataFrame, fields: Iterable[str], *, provenance: bool = False) -> DataFrame:
    """
    One row per entity that is there now, with its values of now and the previous ones of some fields.

    Args:
        history: One row per version, as `merge` makes it or `Ledger.history()` keeps it; the versions of an
            entity do not overlap, which is not checked here (see `find_overlaps`).
        fields: The fields whose previous value is wanted.
        provenance: Whether `source_message`, and `field_provenance` where *history* has it, come along.

    Returns:
        The rows and columns of `scd_type_1`, and for each of *fields*

        - `previous_<field>`: the last value that was another one, null being a value like any other;
        - `<field>_changed_at_timestamp`: since when the present value stands in its place; null if the field
          never had another value (so that a previous null and none are two things).

        What an entity had before it was deleted and came back counts; that it was deleted is no value.

    Raises:
        UnfitHistory: *history* is no history, has the name of a new column already, or *fields* is empty
            or names what is no field; all that is wrong is said at once, with a call that would do.
        InvalidArgument: *provenance* is neither True nor False, or *history* is bitemporal.

    Cost: one shuffle by guid and one sort.

    Source:
        Kimball's type 3, "add new attribute", with the effective date of the change.

    >>> scd_type_3(history, ["name"]).drop("guid").show()
    +------+------+-------------+-------------------------+
    |number|  name|previous_name|name_changed_at_timestamp|
    +------+------+-------------+-------------------------+
    |     1|teapot|       kettle|      2024-01-01 10:00:00|
    +------+------+-------------+-------------------------+
    <BLANKLINE>
    """
    call = Call("scd_type_3", history)
    call.standard_columns()
    chosen = call.fields(fields, "fields")
    with_provenance = call.flag(provenance, "provenance")
    call.new_columns(name for field in chosen for name in _names(field))
    call.require_sound()
    alive = without_deleted(in_force_at_some_time(call.history), False, function="scd_type_3")
    told = current(_with_previous(alive, chosen))
    kept = ["guid", *call.known.fieldNames(), *(name for field in chosen for name in _names(field))]
    return told.select(columns([*kept, *(said_by(history) if with_provenance else [])]))


def _with_previous(alive: DataFrame, fields: Sequence[T.StructField]) -> DataFrame:
    """The versions, each with the value that stood before the present one, and when that one came."""
    before = free(alive.columns, "before")
    in_time = Window.partitionBy("guid").orderBy(VALID_FROM)
    until_here = in_time.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    values = F.struct(*(_value(field).alias(f"value_{place}") for place, field in enumerate(fields)))
    told = alive.withColumn(before, F.lag(values).over(in_time))
    found: dict[str, Column] = {}
    for place, field in enumerate(fields):
        was = F.col(before).getField(f"value_{place}")
        same = comparable(was, field.dataType).eqNullSafe(comparable(_value(field), field.dataType))
        change = F.struct(was.alias("value"), F.col(VALID_FROM).alias("at"))
        last = F.last(F.when(F.col(before).isNotNull() & ~same, change), ignorenulls=True).over(until_here)
        previous, at = _names(field)
        found |= {previous: last.getField("value"), at: last.getField("at")}
    return told.withColumns(found)


def _value(field: T.StructField) -> Column:
    return F.col(quoted(field.name))


def _names(field: T.StructField) -> tuple[str, str]:
    return f"previous_{field.name}", f"{field.name}_changed_at_timestamp"
