"""Rejects: records, or rows, that are of no use, with what is wrong with them (`cdckit.model.faults`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.model.faults import ERROR_CODE, ERROR_DESCRIPTION, Fault
from cdckit.model.records import RECORD_COLUMNS, RECORD_SCHEMA
from cdckit.parts.argument_forms import rows_with, takes
from cdckit.parts.arguments import require_columns, schema_columns

ERROR_FIELDS = [T.StructField(ERROR_CODE, T.StringType()), T.StructField(ERROR_DESCRIPTION, T.StringType())]


class ChangeFault(Fault):
    """
    What can be wrong with a row of whichever door that is to be a change.

    >>> ChangeFault.KEY_MISSING == "KEY_MISSING"
    True
    """

    KEY_MISSING = "KEY_MISSING", "The row does not say its key, so it is about no entity."


REJECT_SCHEMA = T.StructType([*RECORD_SCHEMA.fields, *ERROR_FIELDS])
"""One row is one record that cannot be used: the record as it came, and why."""


REJECT = "reject"
"""The column of changes that has the rejects among them: see `cdckit.model.CHANGE_SCHEMA`."""


def without_rejects(rows: DataFrame) -> DataFrame:
    """The rows without those in error, if there is a column that says so."""
    return rows.where(F.col(ERROR_CODE).isNull()) if ERROR_CODE in rows.columns else rows


def reject_column(row: Mapping[str, Column]) -> Column:
    """
    Make `REJECT` of a row: the record and its error; null where `error_code` is.

    Args:
        row: The columns of `REJECT_SCHEMA` by name, `error_code` among them; null stands for one that lacks.
    """
    # A part that were never null would be null in Arrow all the same, where the whole is.
    whole = F.struct(*schema_columns(REJECT_SCHEMA, row)).cast(REJECT_SCHEMA)
    return F.when(row[ERROR_CODE].isNotNull(), whole).alias(REJECT)


def door_reject(
    columns: Collection[str], faults: Mapping[Fault, Column] | None = None
) -> tuple[Column, Column]:
    """
    Tell of a door's rows, which have the *columns*, whether one is no change, and make its `REJECT`.

    One that has no error but is found to have one of *faults* is a reject, too.
    """
    row = {name: F.col(name) for name in REJECT_SCHEMA.names if name in columns}
    row = {ERROR_CODE: F.lit(None).cast("string"), ERROR_DESCRIPTION: F.lit(None), **row}
    for fault, is_found in (faults or {}).items():
        is_new = row[ERROR_CODE].isNull() & is_found
        row[ERROR_DESCRIPTION] = F.when(is_new, fault.sentence).otherwise(row[ERROR_DESCRIPTION])
        row[ERROR_CODE] = F.when(is_new, fault.value).otherwise(row[ERROR_CODE])
    return row[ERROR_CODE].isNotNull(), reject_column(row)


def with_reject(changes: DataFrame) -> DataFrame:
    """Changes with the column `REJECT` where their rows say errors of their own, as `table_rows` does."""
    if REJECT in changes.columns or not {*RECORD_COLUMNS, ERROR_CODE, ERROR_DESCRIPTION} <= set(
        changes.columns
    ):
        return changes
    return changes.withColumn(REJECT, reject_column({name: F.col(name) for name in REJECT_SCHEMA.names}))


def add_rejects(changes: DataFrame, rejected: DataFrame) -> DataFrame:
    """Changes and, as rows of which `REJECT` alone is known, rejects (`REJECT_SCHEMA`)."""
    columns = {name: F.col(name) for name in REJECT_SCHEMA.names}
    arrival = F.struct("timestamp", "topic", "partition", "offset", F.lit(1).alias("record_number"))
    rows = rejected.select(arrival.alias("arrival"), reject_column(columns))
    return changes.unionByName(rows, allowMissingColumns=True)


def usable_changes(changes: DataFrame) -> DataFrame:
    """Keep the changes that are no rejects."""
    changes = with_reject(changes)
    return drop_rejects(changes) if REJECT in changes.columns else changes


@takes(decoded=rows_with())
def rejects(decoded: DataFrame) -> DataFrame:
    """
    The rows of a door's table, or of changes, that could not be used, as records with a reason.

    Args:
        decoded: One row per record, as a door's functions return it: the record columns,
            `error_code` (null where all is well) and `error_description`.  Or changes with their
            rejects in the column `reject`.

    Returns:
        One row per reject, in the columns of `REJECT_SCHEMA`.  Without the two error columns it is
        a table of records again, which can be fed to the door once more.

    Raises:
        MissingColumns: *decoded* lacks a record column or an error column.

    Cost: one filter, no shuffle.

    >>> frame = session().createDataFrame(
    ...     [(b"?", "t", 7, "NOT_AN_ENVELOPE"), (b"!", "t", 8, None)],
    ...     "value binary, topic string, offset long, error_code string",
    ... )
    >>> rejects(frame)
    Traceback (most recent call last):
    ...
    cdckit.errors.MissingColumns: rejects() needs the columns key, partition, timestamp, ...
    """
    if REJECT in decoded.columns:
        return decoded.where(F.col(REJECT).isNotNull()).select(f"{REJECT}.*")
    columns = [*RECORD_COLUMNS, ERROR_CODE, ERROR_DESCRIPTION]
    require_columns(decoded, columns)
    return decoded.where(F.col(ERROR_CODE).isNotNull()).select(*columns)


@takes(decoded=rows_with())
def drop_rejects(decoded: DataFrame) -> DataFrame:
    """
    The rows of a door's table, or of changes, that could be used, without the columns of errors.

    Raises:
        MissingColumns: *decoded* has no `error_code` or no `error_description`.

    Cost: one filter, no shuffle.

    >>> frame = session().createDataFrame(
    ...     [(7, "NO_VALUE", "The record has no value."), (8, None, None)],
    ...     "offset long, error_code string, error_description string",
    ... )
    >>> drop_rejects(frame).show()
    +------+
    |offset|
    +------+
    |     8|
    +------+
    <BLANKLINE>
    """
    if REJECT in decoded.columns:
        return decoded.where(F.col(REJECT).isNull()).drop(REJECT)
    require_columns(decoded, [ERROR_CODE, ERROR_DESCRIPTION])
    return decoded.where(F.col(ERROR_CODE).isNull()).drop(ERROR_CODE, ERROR_DESCRIPTION)
