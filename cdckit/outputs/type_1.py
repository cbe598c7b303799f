"""SCD type 1: a table that is overwritten, one row per entity."""

from __future__ import annotations

from pyspark.sql import DataFrame

from cdckit.history import FIELD_PROVENANCE, SOURCE_MESSAGE
from cdckit.outputs.calls import Call, columns, in_force_at_some_time
from cdckit.query.as_of import current


def scd_type_1(history: DataFrame, *, provenance: bool = False) -> DataFrame:
    """
    One row per entity that is there now, with its values of now ("overwrite").

    Args:
        history: One row per version, as `merge` makes it or `Ledger.history()` keeps it.
        provenance: Whether `source_message`, and `field_provenance` where *history* has it, come along.

    Returns:
        `guid` and the fields of the entity.  An entity that is deleted now has no row, as AUTO CDC
        removes it; one that came back has one.  A version that begins in the future counts, see `current`:
        for an instant of your own ask `as_of(history, at)`.

    Raises:
        UnfitHistory: *history* is no history; all that is wrong is said at once.
        InvalidArgument: *provenance* is neither True nor False, or *history* is bitemporal.

    Cost: one filter, no shuffle.

    Source:
        Kimball's type 1; AUTO CDC's `stored_as_scd_type=1`.

    >>> scd_type_1(history).drop("guid").show()
    +------+------+
    |number|  name|
    +------+------+
    |     1|teapot|
    +------+------+
    <BLANKLINE>
    """
    call = Call("scd_type_1", history)
    call.standard_columns()
    with_provenance = call.flag(provenance, "provenance")
    call.require_sound()
    kept = ["guid", *call.known.fieldNames(), *(said_by(history) if with_provenance else [])]
    return current(in_force_at_some_time(call.history)).select(columns(kept))


def said_by(history: DataFrame) -> list[str]:
    """The columns that say by which message a row is so."""
    return [name for name in (SOURCE_MESSAGE, FIELD_PROVENANCE) if name in history.columns]
