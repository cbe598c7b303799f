"""Reconciliation: a table of the source held against the history, and the changes that make it right."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdckit.model.changes import DELETE, UPSERT, statement_columns
from cdckit.model.history import FIELD_PROVENANCE, business_fields
from cdckit.parts.argument_forms import INSTANT, no_stream, rows_with, takes
from cdckit.parts.arguments import require_struct
from cdckit.parts.tables import AnyTable
from cdckit.query.differences import (
    COMPARABLE,
    PRESENCE,
    provenance_of,
    require_reader_keys,
    same_value,
    value_of,
)
from cdckit.query.reconciliation_findings import explained_findings
from cdckit.query.reconciliation_sides import (
    DIFFERENT,
    EXTRA,
    MISSING,
    ONE_INSTANT,
    cast_whole,
    find_differences,
    read_sides,
)

RECONCILIATION = "reconciliation"
"""The source of the changes that `repair` makes."""

_ANSWER = (
    *("finding", "field", "history_value", "source_value", "since_timestamp", "message", "priority"),
    *("explanation", "evidence"),
)
_LOWEST = -(2**31) + 1


@takes(history=[COMPARABLE, no_stream(ONE_INSTANT)], valid_at=INSTANT, complete_until=INSTANT.or_none())
def reconcile(
    history: DataFrame,
    source: AnyTable,
    *,
    valid_at: datetime,
    keys: Sequence[str],
    changes: DataFrame | None = None,
    rejects: DataFrame | None = None,
    waiting: DataFrame | None = None,
    complete_until: datetime | None = None,
) -> DataFrame:
    """
    Find where a table of the source and the history say different things, since when, and why.

    Args:
        history: One row per version; the versions of an entity do not overlap, which is not checked.
        source: The rows of the source as they stood at *valid_at*, of Spark or pandas, one for each entity
            (which is not checked): the key fields, and those of the history's fields that are to be compared.
        valid_at: That instant: an aware datetime in any zone.
        keys: The key fields, by which an entity is known.  (Where changes bring guids, and a key can pass
            from a deleted entity to another, leave the deleted versions out of *history*.)
        changes: The changes that the history was merged from: they explain what was said and did not count.
        rejects: Records that could not be used, with the key fields of what they speak of as columns; of
            `error_code`, `error_description` and `timestamp` what is there.
        waiting: Records that wait, with the key fields; of `waiting_for` and `waiting_since` what is there.
        complete_until: Until when all messages of the source have been seen: an aware datetime, as
            `cdckit.model.find_frontiers` finds it.  From then on an answer may still change.

    Returns:
        Nothing where the copy is right.  Else one row per entity or cell that is wrong, in no order (for
        numbers first, `count_findings`):

        - `guid` (null where the history has never had the entity), and the key fields;
        - `finding`: "missing" (only the source has the entity), "extra" (only the history has it), or
          "different";
        - `field`: the field that differs; `deleted_indicator` for what is missing or extra;
        - `history_value`, `source_value`: text, as in `diff`; of `deleted_indicator` null means that the
          entity is not known there;
        - `since_timestamp`: since when it can have been so, the beginning of the stretch in which the
          history has said this without a break; null where it has never had the entity;
        - `message`, `priority`: the message that the value is from, or which deleted the entity, or which
          brought it; null where none did;
        - `explanation`, `evidence`: what would explain it, null where nothing does, which is what a message
          looks like that never came.  The first of these that is so:

          - CORRECTED: what stands was stated by hand (`correct`, `repair`), in the message `evidence`;
          - NOT_YET_EFFECTIVE: the message `evidence` says what the source says, of a later time;
          - EXPIRED: the message said so, until a time that has come;
          - OUTRANKED: it said so, with less priority than what stands;
          - REJECTED, WAITING: there is such a record of this key; `evidence` tells why, or for what it waits;
          - DELETED: the message `evidence` deleted the entity;
          - SUPERSEDED: the message had said so, before another one said what stands;
          - NOT_YET_SEEN: *valid_at* is not before *complete_until*, which is the `evidence`: the message may
            still come.

          What messages said is known where *changes* are given, and in their own words: what a row took along
          from another key, or a truncate took, explains nothing here.

        Values are compared in their own types (`cdckit.parts.values`), numbers of two types in the type that
        holds both.

    Raises:
        MissingColumns, WrongColumnType: One of the tables lacks a column, those of *keys* among them, or has
            it in a type that cannot be compared.
        InvalidArgument: *keys* are no fields, or are called as a column of the answer; *source* is no table,
            a stream, or has columns that are no fields of the history.

    Cost: one full outer join of what was in force with *source*; what is wrong meets the past of the history,
    and the tables that are given, in one more join.

    >>> from datetime import datetime, timezone
    >>> noon = datetime(2024, 1, 1, 12, 0, tzinfo=timezone.utc)
    >>> shop = session().createDataFrame([(1, "kettle"), (2, "mug")], "number int, name string")
    >>> found = reconcile(history, shop, valid_at=noon, keys=["number"], changes=changes)
    >>> shown = ("number", "finding", "field", "history_value", "source_value", "message", "explanation")
    >>> found.orderBy("number").select(*shown).show()
    +------+---------+-----------------+-------------+------------+-------+-----------+
    |number|  finding|            field|history_value|source_value|message|explanation|
    +------+---------+-----------------+-------------+------------+-------+-----------+
    |     1|different|             name|       teapot|      kettle|     m2| SUPERSEDED|
    |     2|  missing|deleted_indicator|         true|       false|     m3|    DELETED|
    +------+---------+-----------------+-------------+------------+-------+-----------+
    <BLANKLINE>
    """
    sides = read_sides(history, source, valid_at, keys)
    require_reader_keys(business_fields(sides.history), keys, _ANSWER)
    # In UTC: Python compares two instants of one zone by their wall clocks.
    is_unseen = complete_until is not None and complete_until.astimezone(UTC) <= valid_at.astimezone(UTC)
    unseen = complete_until if is_unseen else None
    return explained_findings(sides, changes, rejects, waiting, unseen)


@takes(findings=rows_with("finding", "field", "explanation", "since_timestamp"))
def count_findings(findings: DataFrame) -> DataFrame:
    """
    Count how much is wrong, of what kind, and since when at the earliest: to be read before the rows.

    Args:
        findings: What `reconcile` returns, or some of its rows.

    Returns:
        One row per `finding`, `field` and `explanation`: `findings`, how many there are, and
        `since_timestamp`, the earliest.  No row where nothing is wrong.  Rows have no order.

    Cost: one small shuffle.

    >>> from datetime import datetime, timezone
    >>> noon = datetime(2024, 1, 1, 12, 0, tzinfo=timezone.utc)
    >>> shop = session().createDataFrame([(2, "mug"), (3, "cup")], "number int, name string")
    >>> counted = count_findings(reconcile(history, shop, valid_at=noon, keys=["number"]))
    >>> counted.orderBy("finding", "explanation").show()
    +-------+-----------------+-----------+--------+-------------------+
    |finding|            field|explanation|findings|    since_timestamp|
    +-------+-----------------+-----------+--------+-------------------+
    |  extra|deleted_indicator|       NULL|       1|2024-01-01 09:00:00|
    |missing|deleted_indicator|       NULL|       1|               NULL|
    |missing|deleted_indicator|    DELETED|       1|2024-01-01 11:00:00|
    +-------+-----------------+-----------+--------+-------------------+
    <BLANKLINE>
    """
    counted = findings.groupBy("finding", "field", "explanation")
    return counted.agg(F.count(F.lit(1)).alias("findings"), F.min("since_timestamp").alias("since_timestamp"))


@takes(history=[COMPARABLE, no_stream(ONE_INSTANT)], valid_at=INSTANT)
def repair(
    history: DataFrame,
    source: AnyTable,
    *,
    valid_at: datetime,
    keys: Sequence[str],
    by: str,
    reason: str = "as the source has it",
    received_at: datetime | None = None,
) -> DataFrame:
    """
    The changes that make the history say what the source says, from one instant on.

    What `reconcile` finds is what they mend, and nothing else.  They hold until a source speaks again:
    each has the priority of what stands there.  They are changes like any others: to be looked at, filtered,
    merged with the others or applied to a `Ledger`, and revoked by their message.

    Args:
        history: As for `reconcile`, with `field_provenance`.
        source: As for `reconcile`.  Fields that it does not have are left as they are.
        valid_at: From when.  Of the time before, the source says nothing.
        keys: As for `reconcile`.
        by: Who says so.
        reason: Why.
        received_at: When it was said: now, without it.

    Returns:
        One row per entity that is wrong, in the columns of changes, of the source "reconciliation": an upsert
        of all that the source says of what is missing, a delete of what is extra, an upsert of the cells that
        differ.  `message_id` is "*by*, *received_at*: *reason*", as with `correct`.  Where nothing stands, of
        an entity or a field, the priority is so low that everybody's next word counts.

    Raises:
        MissingColumns, WrongColumnType, InvalidArgument: As `reconcile`; or *history* has no
            `field_provenance`; *by* or *reason* is no text; *received_at* is naive.
        SparkRuntimeException: When the result is computed (Spark's; its text holds `repair()`): a value of
            the source is not one of its field's type in the history, such as 1.25 where it has tenths.

    Cost: one full outer join.

    >>> from datetime import datetime, timezone
    >>> from cdckit import merge, union_changes
    >>> noon = datetime(2024, 1, 1, 12, 0, tzinfo=timezone.utc)
    >>> shop = session().createDataFrame([(1, "kettle"), (2, "mug")], "number int, name string")
    >>> mended = repair(history, shop, valid_at=noon, keys=["number"], by="anna", received_at=noon)
    >>> right = merge(union_changes(changes, mended), entity="product", keys=["number"])
    >>> right.where("valid_to_timestamp IS NULL").orderBy("number").select(
    ...     "number", "name", "source_message"
    ... ).show(truncate=False)
    +------+------+-----------------------------------------------+
    |number|name  |source_message                                 |
    +------+------+-----------------------------------------------+
    |1     |kettle|anna, 2024-01-01 12:00:00: as the source has it|
    |2     |mug   |anna, 2024-01-01 12:00:00: as the source has it|
    +------+------+-----------------------------------------------+
    <BLANKLINE>
    """
    require_struct(history, FIELD_PROVENANCE)
    sides = read_sides(history, source, valid_at, keys)
    key, compared = [{field.name for field in some} for some in (sides.keys, sides.fields)]
    a, b, finding = F.col("a"), F.col("b"), F.col("finding")
    values, carried, priorities = [], [], []
    for column in business_fields(history):
        field = sides.history.schema[column.name]
        if column.name in key:
            value, is_said = F.coalesce(value_of(b, field), value_of(a, field)), F.lit(True)
        elif column.name in compared:
            is_said = (finding == MISSING) | ((finding == DIFFERENT) & ~same_value(a, b, field))
            value = F.when(is_said, value_of(b, field))
        else:
            value, is_said = F.lit(None).cast(field.dataType), F.lit(False)
        stands = F.coalesce(provenance_of(a, field).getField("p"), F.lit(_LOWEST))
        values.append(cast_whole(value, field.dataType, column).alias(column.name))
        carried.append(is_said.alias(column.name))
        priorities.append(F.when(finding == DIFFERENT, stands).alias(column.name))
    data, says = F.struct(*values), F.struct(*carried)
    operation = F.when(finding == EXTRA, DELETE).otherwise(UPSERT)
    stated = statement_columns(
        operation,
        sides.instant,
        [sides.instant, data, says],
        by=by,
        reason=reason,
        source=RECONCILIATION,
        received_at=received_at,
    )
    of_row = F.coalesce(provenance_of(a, PRESENCE).getField("p"), F.lit(_LOWEST))
    return find_differences(sides).select(
        *stated,
        of_row.alias("priority"),
        data.alias("data"),
        says.alias("carried"),
        F.struct(*priorities).alias("field_priorities"),
    )
