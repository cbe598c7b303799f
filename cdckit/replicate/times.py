"""When a change is true: what its message says, and what counts where it says nothing."""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdckit.errors import InvalidArgument
from cdckit.parts.arguments import require_instant
from cdckit.rejected import ERROR_CODE

LOAD = "REFRESH"

CHANGE, SEQUENCE, RECORD, GIVEN = "change", "sequence", "record", "given"
"""What `time_taken_from` can say."""

# Year, month, day, hour, minute, second and hundredths of a second.
_SEQUENCE_TIME = "^(?!0000)" + "([0-9]{4})" + "([0-9]{2})" * 6 + ".*$"


def with_times(rows: DataFrame, loaded_at: datetime | Column | None) -> DataFrame:
    """
    Fill in `change_timestamp` where the message has none, and say in `time_taken_from` whence it is.

    A row of a full load is true from *loaded_at* on, or without it from its record's `timestamp`; any
    other change has the time in its change sequence, or that of its record.  Rows in error get none.

    Source:
        Qlik Replicate, data messages: `timestamp` and `changeSequence` are "applicable to CDC
        operations"; change sequence: YYYYMMDDHHmmSShh and 19 digits.  What stands in for a missing
        time is a decision of ours.
    """
    said, good = F.col("change_timestamp"), F.col(ERROR_CODE).isNull()
    is_load = F.col("operation") == LOAD
    given = (
        require_instant(loaded_at, "loaded_at", function="data")
        if isinstance(loaded_at, datetime)
        else F.lit(loaded_at).cast("timestamp")
    )
    in_sequence = _time_of_sequence(F.col("change_sequence"))
    choice = (
        F.when(said.isNotNull(), CHANGE)
        .when(is_load & given.isNotNull(), GIVEN)
        .when(~is_load & in_sequence.isNotNull(), SEQUENCE)
        .otherwise(RECORD)
    )
    taken = (
        F.when(said.isNotNull(), said)
        .when(is_load, F.coalesce(given, F.col("timestamp")))
        .otherwise(F.coalesce(in_sequence, F.col("timestamp")))
    )
    is_told = good | said.isNotNull()
    return rows.withColumns(
        {"change_timestamp": F.when(is_told, taken), "time_taken_from": F.when(is_told, choice)}
    )


def is_load_without_time() -> Column:
    """Whether a row is of a full load and says no time: its change sequence, if any, means nothing then."""
    return (F.col("operation") == LOAD) & (F.col("time_taken_from") != CHANGE)


def require_load_time(loaded_at: object, *, function: str) -> None:
    """Raise unless *loaded_at* is an aware datetime, a column, or nothing."""
    is_instant = isinstance(loaded_at, datetime) and loaded_at.utcoffset() is not None
    if not (loaded_at is None or isinstance(loaded_at, Column) or is_instant):
        raise InvalidArgument(
            function, "loaded_at", "an aware datetime, or a column of the records", loaded_at
        )


def _time_of_sequence(sequence: Column) -> Column:
    text = F.regexp_replace(sequence, _SEQUENCE_TIME, "$1-$2-$3T$4:$5:$6.$7Z")
    return F.when(sequence.rlike(_SEQUENCE_TIME), text.try_cast("timestamp"))
