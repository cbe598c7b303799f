"""SCD type 6: versions that also know the values of now."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from cdckit.history import DELETED, VALID_FROM
from cdckit.outputs.calls import Call
from cdckit.outputs.types_2_and_4 import Shape
from cdckit.parts.schemas import quoted


def scd_type_6(
    history: DataFrame,
    fields: Iterable[str],
    *,
    track_history_column_list: Iterable[str] | None = None,
    track_history_except_column_list: Iterable[str] | None = None,
    valid_to_current: datetime | None = None,
    surrogate_key: str | None = None,
    deletes: bool = False,
    provenance: bool = False,
) -> DataFrame:
    """
    One row per version, with the values of then and, of some fields, the values of now (1 + 2 + 3 = 6).

    Args:
        history: As for `scd_type_2`.
        fields: The fields whose current value is wanted in each row.
        track_history_column_list: As for `scd_type_2`.
        track_history_except_column_list: As for `scd_type_2`.
        valid_to_current: As for `scd_type_2`.
        surrogate_key: As for `scd_type_2`.
        deletes: As for `scd_type_2`.
        provenance: As for `scd_type_2`.

    Returns:
        The rows and columns of `scd_type_2`, and behind the fields `current_<field>` for each of *fields*:
        its value in the last version of the entity that is not deleted.  So what was sold to a customer who
        left is still counted for the region that the customer had last; `is_current` says who left.

    Raises:
        UnfitHistory, InvalidArgument: As `scd_type_2`; *fields* is empty or names what is no field.

    Cost: as `scd_type_2`, and one more sort; no second shuffle.

    Source:
        Kimball's type 6: a type 1 attribute in a dimension of type 2, beside it as in type 3.

    >>> table = scd_type_6(history, ["name"]).orderBy("number", "valid_from_timestamp")
    >>> table.select("number", "name", "current_name", "is_current").show()
    +------+------+------------+----------+
    |number|  name|current_name|is_current|
    +------+------+------------+----------+
    |     1|kettle|      teapot|     false|
    |     1|teapot|      teapot|      true|
    |     2|   mug|         mug|     false|
    +------+------+------------+----------+
    <BLANKLINE>
    """
    call = Call("scd_type_6", history)
    chosen = call.fields(fields, "fields")
    shape = Shape(
        call,
        track_history_column_list=track_history_column_list,
        track_history_except_column_list=track_history_except_column_list,
        valid_to_current=valid_to_current,
        surrogate_key=surrogate_key,
        deletes=deletes,
        provenance=provenance,
        more=[_current(field.name) for field in chosen],
    )
    call.require_sound()
    life = (
        Window.partitionBy("guid")
        .orderBy(VALID_FROM)
        .rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    )
    # In a struct: a value that is null is the last one like any other.
    held = F.struct(*(F.col(quoted(field.name)).alias(field.name) for field in chosen))
    last = F.last(F.when(~F.col(DELETED), held), ignorenulls=True).over(life)
    of_now = {_current(field.name): last.getField(field.name) for field in chosen}
    return shape.finished(shape.rows(call.history).withColumns(of_now))


def _current(field: str) -> str:
    return f"current_{field}"
