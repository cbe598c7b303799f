"""Findings of a reconciliation, cell by cell: since when it can have been so, and what explains it."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.merging.verdicts import Verdict
from cdckit.model.changes import (
    AFTER_ALL,
    CHANGE_SCHEMA,
    TRUNCATE,
    UNTIL,
    UPSERT,
    field_priority,
    require_changes,
)
from cdckit.model.faults import ERROR_CODE
from cdckit.model.history import DELETED, VALID_TO
from cdckit.model.rejected_records import ChangeFault
from cdckit.parts.arguments import quoted, require_columns, require_fields, require_struct, schema_columns
from cdckit.parts.values import as_text, comparable
from cdckit.query.differences import (
    PRESENCE,
    differing_cells,
    is_there,
    provenance_of,
    same_value,
    value_of,
    version_rows,
)
from cdckit.query.intervals import is_ever_in_force
from cdckit.query.reconciliation_sides import (
    DIFFERENT,
    MISSING,
    OTHER_SIDE,
    Sides,
    cast_where_needed,
    find_differences,
    same_keys,
    with_key_columns,
)

CORRECTED, REJECTED, WAITING, NOT_YET_SEEN = "CORRECTED", "REJECTED", "WAITING", "NOT_YET_SEEN"

_WORD, _REJECT, _WAITING = "word", "reject", "waiting"

_RECORD_COLUMNS = {
    _REJECT: ("timestamp", "error_code", "error_description"),
    _WAITING: ("waiting_since", "waiting_for"),
}
"""When records of no use came, and why they are of none, in the columns that they may have."""


def explained_findings(
    sides: Sides,
    changes: DataFrame | None,
    rejects: DataFrame | None,
    waiting: DataFrame | None,
    unseen_from: datetime | None,
) -> DataFrame:
    """
    Find what is wrong, cell by cell, with what explains it, as `reconcile` returns it.

    *unseen_from* is from when on messages of the instant may still come.
    """
    none = sides.history.where(F.lit(False)).select(*(quoted(key.name) for key in sides.keys))
    proofs = [
        _past_versions(sides),
        _change_words(_no_changes(sides) if changes is None else changes, sides),
        _records_of_no_use(none if rejects is None else rejects, _REJECT, sides),
        _records_of_no_use(none if waiting is None else waiting, _WAITING, sides),
    ]
    proof = reduce(lambda table, other: table.unionByName(other, allowMissingColumns=True), proofs)
    return _explained_cells(_weigh_proofs(find_differences(sides), proof, sides), sides, unseen_from)


def _explained_cells(weighed: DataFrame, sides: Sides, unseen_from: datetime | None) -> DataFrame:
    """The findings, cell by cell."""
    a, b = F.col("a"), F.col("b")
    places = {field.name: place for place, field in enumerate(sides.cells)}

    def describe(field: T.StructField) -> dict[str, Column]:
        proof, stands = F.col(f"proof_{places[field.name]}"), provenance_of(a, field)
        explained = _explain_cell(field, proof, sides.instant, unseen_from)
        return {
            "history_value": as_text(value_of(a, field), field.dataType),
            "source_value": as_text(value_of(b, field), field.dataType),
            "since_timestamp": proof.getField("since"),
            "message": stands.getField("m"),
            "priority": stands.getField("p"),
            "explanation": explained.getField("explanation"),
            "evidence": explained.getField("evidence"),
        }

    is_cell = (F.col("finding") == DIFFERENT) | (F.col("field") == DELETED)
    return weighed.select(
        F.coalesce("guid", "known_guid").alias("guid"),
        *(F.coalesce(value_of(b, key), value_of(a, key)).alias(key.name) for key in sides.keys),
        "finding",
        differing_cells(a, b, sides.cells, describe),
    ).where(F.col("field").isNotNull() & is_cell)


def _past_versions(sides: Sides) -> DataFrame:
    """Each version that had ended, as `past`."""
    ended = version_rows(sides.history.where((F.col(VALID_TO) <= sides.instant) & is_ever_in_force()))
    keyed = with_key_columns(ended, F.col("version"), sides, OTHER_SIDE)
    return keyed.select(
        *(OTHER_SIDE + place for place in sides.places),
        _past(F.col("begins"), F.col("version")).alias("past"),
    )


def _past(begins: Column, version: Column) -> Column:
    # Without who said so: that is more than the values are, and only what stands now is asked for it.
    values = F.struct(version.getField("values").alias("values")).alias("version")
    return F.struct("guid", begins.alias("begins"), version.getField("ends").alias("ends"), values)


def _no_changes(sides: Sides) -> DataFrame:
    """A table of changes of these fields, of which there are none."""
    names = [field.name for field in (*sides.keys, *sides.fields)]
    return sides.history.where(F.lit(False)).select(
        *schema_columns(CHANGE_SCHEMA, {}),
        F.struct(*map(quoted, names)).alias("data"),
        F.struct(*(F.lit(True).alias(name) for name in names)).alias("carried"),
    )


def _change_words(changes: DataFrame, sides: Sides) -> DataFrame:
    """Each change as a `word`: of each cell what it says, whether it does, and how much that counts."""
    require_changes(changes)
    data = require_struct(changes, "data")
    require_fields([key.name for key in sides.keys], data.fieldNames(), "keys")
    deleted = F.col("operation") != UPSERT
    values, carried = [deleted.alias(DELETED)], [F.lit(True).alias(DELETED)]
    priorities = [F.col("priority").alias(DELETED)]
    for field in (*sides.keys, *sides.fields):
        value, is_said, priority = F.lit(None).cast(field.dataType), F.lit(False), F.col("priority")
        if field.name in data.fieldNames():
            value = F.col("data").getField(field.name)
            value = cast_where_needed(value, data[field.name].dataType, field.dataType)
            is_said = F.coalesce(F.col("carried").getField(field.name), F.lit(False)) & ~deleted
            priority = F.coalesce(field_priority(changes, field.name), "priority")
        values.append(value.alias(field.name))
        carried.append(is_said.alias(field.name))
        priorities.append(priority.alias(field.name))
    until = F.col(UNTIL) if UNTIL in changes.columns else F.lit(None).cast("timestamp_ltz")
    word = F.struct(
        F.col("effective_timestamp").alias("effective"),
        until.alias("until"),
        F.col("message_id").alias("message"),
        F.col("sequence").eqNullSafe(AFTER_ALL).alias("by_hand"),
        F.struct(*values).alias("values"),
        F.struct(*carried).alias("carried"),
        F.struct(*priorities).alias("priorities"),
    )
    words = changes.where(F.col("operation") != TRUNCATE).select(word.alias(_WORD))
    return with_key_columns(words, F.col(_WORD), sides, OTHER_SIDE)


def _records_of_no_use(records: DataFrame, name: str, sides: Sides) -> DataFrame:
    """Records that are no changes, by the key that they name, as proofs of that *name*: when, and why."""
    remedy = (
        "Add what the records speak of as columns, for instance of JSON "
        "`F.get_json_object(F.col('value').cast('string'), '$.id')`."
    )
    require_columns(records, [key.name for key in sides.keys], remedy=remedy)
    when, *why = _RECORD_COLUMNS[name]
    stated = [F.col(column).cast("string") for column in why if column in records.columns]
    at = F.col(when) if when in records.columns else F.lit(None)
    columns, are_keys = list[Column](), F.lit(True)
    for place, key in zip(sides.places, sides.keys, strict=True):
        value = F.col(quoted(key.name))
        made = value.try_cast(key.dataType)
        # What is no value of the key's type names no entity: not the one whose key is null, either.
        are_keys &= _is_read(value, made, records.schema[key.name].dataType)
        columns.append(comparable(made, key.dataType).alias(OTHER_SIDE + place))
    # A record that does not say its key is about no entity, unless that is what is wrong with it.
    lacks_key = F.lit(False)
    if ERROR_CODE in records.columns:
        lacks_key = F.col(ERROR_CODE).eqNullSafe(F.lit(ChangeFault.KEY_MISSING.value))
    says_key = reduce(or_, (F.col(quoted(key.name)).isNotNull() for key in sides.keys), lacks_key)
    return records.where(are_keys & says_key).select(
        *columns,
        F.struct(
            at.cast("timestamp_ltz").alias("at"),
            F.nullif(F.concat_ws(": ", *stated), F.lit("")).alias("evidence"),
        ).alias(name),
    )


def _is_read(value: Column, made: Column, kind: T.DataType) -> Column:
    """Tell whether a value of *kind* was *made* one of another type, a number the same one, or is null."""
    if isinstance(kind, T.NumericType):
        return comparable(made.try_cast(kind), kind).eqNullSafe(comparable(value, kind))
    return made.isNotNull() | value.isNull()


def _weigh_proofs(findings: DataFrame, proof: DataFrame, sides: Sides) -> DataFrame:
    """One row per finding; of each cell what the proofs say: since when, by what word, whether by hand."""
    # A digest of what the source says: should it name an entity twice, these are two findings.
    row = T.StructType([PRESENCE, *sides.keys, *sides.fields])
    digest = F.xxhash64(as_text(F.col("b.values"), row))
    identity = [*sides.places, "guid", "finding", "digest"]
    # Read twice and found once: Spark reuses what was shuffled, if both read the same columns.
    findings = findings.withColumn("digest", digest).repartition(*sides.places)
    stands = findings.select(
        *findings.columns, F.when(F.col("a").isNotNull(), _past(F.col("a.begins"), F.col("a"))).alias("past")
    )
    # Inner, so that the few findings can be sent to the many proofs.
    joined = findings.join(proof, same_keys(sides.places), "inner").unionByName(
        stands, allowMissingColumns=True
    )
    its_own = F.col("guid").isNull() | F.col("guid").eqNullSafe(F.col("past.guid"))
    before = F.lag("past.ends").over(Window.partitionBy(*identity).orderBy("past.begins"))
    proven = joined.withColumn("past", F.when(its_own, F.col("past"))).withColumn(
        "goes_on", before.eqNullSafe(F.col("past.begins"))
    )
    return proven.groupBy(*identity).agg(
        *(F.first(side).alias(side) for side in ("a", "b")),
        F.max("past.guid").alias("known_guid"),
        *(F.max(name).alias(name) for name in (_REJECT, _WAITING)),
        *(_proof_of(field, sides).alias(f"proof_{place}") for place, field in enumerate(sides.cells)),
    )


def _proof_of(field: T.StructField, sides: Sides) -> Column:
    """What is known of a cell: since when it can be so, by what word, and whether that was by hand."""
    a, b, past, word = (F.col(name) for name in ("a", "b", "past", _WORD))
    version, missing = past.getField("version"), F.col("finding") == MISSING
    other = past.isNotNull() & ~(is_there(version) & same_value(version, a, field))
    begins = F.when(past.isNotNull() & ~F.col("goes_on"), past.getField("begins"))
    stretch = F.greatest(F.max(F.when(other, past.getField("ends"))), F.max(begins))
    last_end = F.max(F.when(is_there(version), past.getField("ends")))
    says = same_value(word, b, field)
    if field == PRESENCE:
        # What the source does not know it says by its silence: that is what a delete says.
        says = F.when(missing, says).otherwise(value_of(word, PRESENCE))
    is_same_word = word.getField("carried").getField(field.name) & says
    effective, message = word.getField("effective"), word.getField("message")
    last_word = F.struct(
        (effective <= sides.instant).alias("has_come"),
        effective.alias("effective"),
        message.alias("message"),
        word.getField("priorities").getField(field.name).alias("priority"),
        word.getField("until").alias("until"),
    )
    by_hand = word.getField("by_hand") & (message == provenance_of(a, field).getField("m"))
    since = F.when(F.first(missing), last_end).otherwise(stretch) if field == PRESENCE else stretch
    by_word = F.max(F.when(is_same_word, last_word))
    return F.struct(since.alias("since"), by_word.alias("word"), F.max(by_hand).alias("by_hand"))


def _explain_cell(
    field: T.StructField, proof: Column, instant: Column, unseen_from: datetime | None
) -> Column:
    """The first of the explanations that is so, and its evidence: see `reconcile`."""
    since, word, by_hand = (proof.getField(name) for name in ("since", "word", "by_hand"))
    stands = provenance_of(F.col("a"), field)
    message = word.getField("message")
    weaker = word.getField("priority") < stands.getField("p")
    was_deleted = (F.lit(field.name) == DELETED) & value_of(F.col("a"), PRESENCE)
    reject, waits = F.col(_REJECT), F.col(_WAITING)
    cases: list[tuple[Column, str, Column]] = [
        (by_hand, CORRECTED, stands.getField("m")),
        (~word.getField("has_come"), Verdict.NOT_YET_EFFECTIVE, message),
        (word.getField("until") <= instant, Verdict.EXPIRED, message),
        (weaker & (word.getField("effective") >= since), Verdict.OUTRANKED, message),
        (reject.isNotNull(), REJECTED, reject.getField("evidence")),
        (waits.isNotNull(), WAITING, waits.getField("evidence")),
        (was_deleted, Verdict.DELETED, stands.getField("m")),
        (word.isNotNull(), Verdict.SUPERSEDED, message),
    ]
    if unseen_from is not None:
        until = unseen_from.astimezone(UTC).replace(tzinfo=None).isoformat(" ")
        cases.append((F.lit(True), NOT_YET_SEEN, F.lit(f"complete until {until}")))
    explanation = F.lit(None).cast("struct<explanation string, evidence string>")
    for holds, name, evidence in reversed(cases):
        case = F.struct(F.lit(str(name)).alias("explanation"), evidence.alias("evidence"))
        explanation = F.when(holds, case).otherwise(explanation)
    return explanation
