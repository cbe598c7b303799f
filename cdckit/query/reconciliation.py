"""Reconciliation: a table of the source held against the history, and the changes that make it right."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import reduce
from operator import and_
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument, WrongColumnType
from cdckit.merging.verdicts import Verdict
from cdckit.model.changes import (
    AFTER_ALL,
    DELETE,
    TRUNCATE,
    UNTIL,
    UPSERT,
    field_priority,
    require_changes,
    statement_columns,
)
from cdckit.model.history import DELETED, FIELD_PROVENANCE, VALID_FROM, business_fields
from cdckit.parts.arguments import (
    quoted,
    require_batch,
    require_columns,
    require_fields,
    require_instant,
    require_keys,
    require_struct,
    suggest_names,
)
from cdckit.parts.tables import AnyTable, as_spark
from cdckit.parts.values import as_text, comparable
from cdckit.parts.widening import common_spark_type
from cdckit.query.as_of import as_of
from cdckit.query.differences import (
    PRESENCE,
    differing_cells,
    is_there,
    provenance_of,
    require_reader_keys,
    same_value,
    value_of,
    version_rows,
    versions_of,
)
from cdckit.query.intervals import is_ever_in_force, key_column

MISSING, EXTRA, DIFFERENT = "missing", "extra", "different"
CORRECTED, REJECTED, WAITING = "CORRECTED", "REJECTED", "WAITING"

RECONCILIATION = "reconciliation"
"""The source of the changes that `repair` makes."""

_ANSWER = (
    *("finding", "field", "history_value", "source_value", "since_timestamp", "message", "priority"),
    *("explanation", "evidence"),
)
_TEXTS = (T.StringType, T.VarcharType, T.CharType)
_LOWEST = -(2**31) + 1
_OTHER = "other_"
_WORD, _REJECT, _WAITING = "word", "reject", "waiting"
_TOLD_OF = {
    _REJECT: ("timestamp", "error_code", "error_description"),
    _WAITING: ("waiting_since", "waiting_for"),
}
"""When records of no use came, and why they are of none, in the columns that they may have."""

_RECORD = T.StructType(
    [
        T.StructField("at", T.TimestampType()),
        T.StructField("evidence", T.StringType()),
    ]
)


def reconcile(
    history: DataFrame,
    source: AnyTable,
    *,
    valid_at: datetime,
    keys: Sequence[str],
    changes: DataFrame | None = None,
    rejects: DataFrame | None = None,
    waiting: DataFrame | None = None,
) -> DataFrame:
    """
    Where a table of the source and the history of the same instant say different things, since when, and why.

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
          - SUPERSEDED: the message had said so, before another one said what stands.

          What messages said is known where *changes* are given, and in their own words: what a row took along
          from another key, or a truncate took, explains nothing here.

        Values are compared in their own types (`cdckit.parts.values`), numbers of two types in the type that
        holds both.

    Raises:
        MissingColumns, WrongColumnType: *history*, or one of the tables, lacks a column, *source* and the
            others those of *keys* among them, or has it in a type that cannot be compared.
        InvalidArgument: *valid_at* is naive; *keys* are no fields, or are called as a column of the answer;
            *source* is no table, or has columns that are no fields of the history; a table is a stream.

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
    sides = _sides(history, source, valid_at, keys, function="reconcile")
    require_reader_keys(business_fields(sides.history), keys, _ANSWER, function="reconcile")
    proofs = [
        _past(sides),
        # So that each finding has a proof, an empty one at least, and the few can be sent to the many.
        _with_keys(_told(sides), F.col("b"), sides, _OTHER).drop("b"),
        *([] if changes is None else [_words(changes, sides)]),
        *([] if rejects is None else [_records(rejects, _REJECT, sides)]),
        *([] if waiting is None else [_records(waiting, _WAITING, sides)]),
    ]
    proof = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), proofs)
    return _answer(_weighed(_findings(sides), proof, sides), sides)


def count_findings(found: DataFrame) -> DataFrame:
    """
    How much is wrong, of what kind, and since when at the earliest: to be read before the rows.

    Args:
        found: What `reconcile` returns, or some of its rows.

    Returns:
        One row per `finding`, `field` and `explanation`: `findings`, how many there are, and
        `since_timestamp`, the earliest.  No row where nothing is wrong.  Rows have no order.

    Raises:
        MissingColumns: *found* lacks one of these columns.

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
    kinds = ["finding", "field", "explanation"]
    require_columns(found, [*kinds, "since_timestamp"], function="count_findings")
    counted = found.groupBy(*kinds)
    return counted.agg(F.count(F.lit(1)).alias("findings"), F.min("since_timestamp").alias("since_timestamp"))


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
        SparkRuntimeException, ArithmeticException: When the result is computed: a value of the source is not
            one of its field's type in the history.

    Cost: one full outer join.

    >>> from datetime import datetime, timezone
    >>> from cdckit import merge, union_changes
    >>> noon = datetime(2024, 1, 1, 12, 0, tzinfo=timezone.utc)
    >>> shop = session().createDataFrame([(1, "kettle"), (2, "mug")], "number int, name string")
    >>> mended = repair(history, shop, valid_at=noon, keys=["number"], by="anna", received_at=noon)
    >>> right = merge(union_changes(changes, mended), entity="product", keys=["number"])
    >>> reconcile(right, shop, valid_at=noon, keys=["number"]).count()
    0
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
    require_struct(history, FIELD_PROVENANCE, function="repair")
    sides = _sides(history, source, valid_at, keys, function="repair")
    key, compared = [{each.name for each in some} for some in (sides.keys, sides.fields)]
    a, b, finding = F.col("a"), F.col("b"), F.col("finding")
    values, carried, priorities = [], [], []
    for own in business_fields(history):
        field = sides.history.schema[own.name]
        if own.name in key:
            value, is_said = F.coalesce(value_of(b, field), value_of(a, field)), F.lit(True)
        elif own.name in compared:
            is_said = (finding == MISSING) | ((finding == DIFFERENT) & ~same_value(a, b, field))
            value = F.when(is_said, value_of(b, field))
        else:
            value, is_said = F.lit(None).cast(field.dataType), F.lit(False)
        stands = F.coalesce(provenance_of(a, field).getField("p"), F.lit(_LOWEST))
        values.append(_as_type(value, field.dataType, own.dataType).alias(own.name))
        carried.append(is_said.alias(own.name))
        priorities.append(F.when(finding == DIFFERENT, stands).alias(own.name))
    data, operation = F.struct(*values), F.when(finding == EXTRA, DELETE).otherwise(UPSERT)
    stated = statement_columns(
        operation,
        sides.instant,
        F.to_json(F.struct(sides.instant.alias("at"), operation.alias("operation"), data.alias("data"))),
        by=by,
        reason=reason,
        source=RECONCILIATION,
        received_at=received_at,
        function="repair",
    )
    of_row = F.coalesce(provenance_of(a, PRESENCE).getField("p"), F.lit(_LOWEST))
    return _findings(sides).select(
        *stated,
        of_row.alias("priority"),
        data.alias("data"),
        F.struct(*carried).alias("carried"),
        F.struct(*priorities).alias("field_priorities"),
    )


class _Sides(NamedTuple):
    """
    A history and a table of its source, which can be compared: their fields have the same types.

    *keys* and *fields*, those that are compared, are fields of both.
    """

    history: DataFrame
    source: DataFrame
    instant: Column
    valid_at: datetime
    keys: list[T.StructField]
    fields: list[T.StructField]

    @property
    def cells(self) -> list[T.StructField]:
        """What can differ: that the entity is there, and each field."""
        return [PRESENCE, *self.fields]

    @property
    def places(self) -> list[str]:
        """The names of the columns of the key, in the form in which equal ones meet."""
        return [key_column(place) for place, _ in enumerate(self.keys)]


def _sides(
    history: DataFrame, source: AnyTable, valid_at: datetime, keys: Sequence[str], *, function: str
) -> _Sides:
    history = versions_of(history, function=function)
    known = business_fields(history).fieldNames()
    key = require_keys(keys, known, function=function)
    instant = require_instant(valid_at, "valid_at", function=function)
    table = as_spark(history.sparkSession, source, function=function)
    instead = "take its rows of one instant"
    for argument, frame in (("history", history), ("source", table)):
        require_batch(frame, argument, instead, function=function)
    require_columns(
        table, key, function=function, remedy="The source says by its keys which entity it means."
    )
    unknown = [name for name in table.columns if name not in known]
    if unknown:
        needed = f"of columns that are fields of the history, {', '.join(known)}"
        remedy = suggest_names(unknown, known) or f"Leave the others out: source.drop({str(unknown)[1:-1]})."
        raise InvalidArgument(function, "source", needed, unknown, remedy=remedy)
    types = {
        name: _common_type(name, history, table, function=function) for name in known if name in table.columns
    }

    def alike(frame: DataFrame) -> DataFrame:
        columns = {
            name: _as_type(F.col(quoted(name)), frame.schema[name].dataType, kind)
            for name, kind in types.items()
        }
        return frame.withColumns(columns)

    fields = {name: T.StructField(name, kind) for name, kind in types.items()}
    compared = [field for name, field in fields.items() if name not in key]
    return _Sides(alike(history), alike(table), instant, valid_at, [fields[name] for name in key], compared)


def _common_type(name: str, history: DataFrame, source: DataFrame, *, function: str) -> T.DataType:
    """The type that holds the values of both; raises where only their texts could be compared."""
    one, other = history.schema[name].dataType, source.schema[name].dataType
    common = common_spark_type(one, other)
    if common is None or (
        isinstance(common, T.StringType)
        and not (isinstance(one, _TEXTS) and isinstance(other, (*_TEXTS, T.NullType)))
    ):
        needed = f"a type that compares exactly with the history's {one.simpleString()}"
        remedy = f'Cast it: source.withColumn("{name}", F.col("{name}").cast("{one.simpleString()}")).'
        raise WrongColumnType(function, name, needed, other.simpleString(), remedy)
    return common


def _as_type(value: Column, kind: T.DataType, needed: T.DataType) -> Column:
    """Cast where it must be: Spark refuses where a type that is the same may hold nulls within."""
    return value if kind.simpleString() == needed.simpleString() else value.cast(needed)


def _findings(sides: _Sides) -> DataFrame:
    """What is wrong: the key, `guid`, `finding`, and the versions of both sides, `a` and `b`."""
    in_force = version_rows(as_of(sides.history, sides.valid_at, deletes=True))
    left = in_force.select("guid", F.col("version").alias("a"))
    right = _told(sides)
    a, b = F.col("a"), F.col("b")
    both = _with_keys(left, a, sides).join(_with_keys(right, b, sides, _OTHER), _same(sides.places), "outer")
    here, there = is_there(a), b.isNotNull()
    same = reduce(and_, (same_value(a, b, field) for field in sides.fields), F.lit(True))
    finding = F.when(there & ~here, MISSING).when(here & ~there, EXTRA).when(here & there & ~same, DIFFERENT)
    return both.select(
        *(F.coalesce(place, _OTHER + place).alias(place) for place in sides.places),
        "guid",
        finding.alias("finding"),
        "a",
        "b",
    ).where(F.col("finding").isNotNull())


def _told(sides: _Sides) -> DataFrame:
    """The rows of the source, as versions: `b`."""
    fields = [F.col(quoted(each.name)) for each in (*sides.keys, *sides.fields)]
    values = F.struct(F.lit(False).alias(DELETED), *fields)
    return sides.source.select(F.struct(values.alias("values")).alias("b"))


def _with_keys(frame: DataFrame, version: Column, sides: _Sides, prefix: str = "") -> DataFrame:
    keys = zip(sides.places, sides.keys, strict=True)
    return frame.withColumns(
        {prefix + place: comparable(value_of(version, key), key.dataType) for place, key in keys}
    )


def _same(places: Sequence[str]) -> Column:
    return reduce(and_, (F.col(place).eqNullSafe(F.col(_OTHER + place)) for place in places))


def _past(sides: _Sides) -> DataFrame:
    """Each version that had begun, as `past`; beside it the other proofs, of which it has none."""
    begun = version_rows(sides.history.where((F.col(VALID_FROM) <= sides.instant) & is_ever_in_force()))
    keyed = _with_keys(begun, F.col("version"), sides, _OTHER)
    # Without who said so: that is more than the values are, and only what stands now is asked for it.
    values = F.struct(F.col("version.values").alias("values")).alias("version")
    past = F.struct("guid", "begins", F.col("version.ends").alias("ends"), values)
    others = {_WORD: _word_type(sides), _REJECT: _RECORD, _WAITING: _RECORD}
    return keyed.select(
        *(_OTHER + place for place in sides.places),
        past.alias("past"),
        *(F.lit(None).cast(kind).alias(name) for name, kind in others.items()),
    )


def _word_type(sides: _Sides) -> T.StructType:
    flags = [T.StructField(each.name, T.BooleanType()) for each in sides.cells]
    priorities = [T.StructField(each.name, T.IntegerType()) for each in sides.cells]
    return T.StructType(
        [
            T.StructField("effective", T.TimestampType()),
            T.StructField("until", T.TimestampType()),
            T.StructField("message", T.StringType()),
            T.StructField("by_hand", T.BooleanType()),
            T.StructField("values", T.StructType([PRESENCE, *sides.keys, *sides.fields])),
            T.StructField("carried", T.StructType(flags)),
            T.StructField("priorities", T.StructType(priorities)),
        ]
    )


def _words(changes: DataFrame, sides: _Sides) -> DataFrame:
    """Each change as a `word`: of each cell what it says, whether it does, and how much that counts."""
    require_changes(changes, function="reconcile")
    data = require_struct(changes, "data", function="reconcile")
    require_fields([each.name for each in sides.keys], data.fieldNames(), "keys", function="reconcile")

    fields, known = [*sides.keys, *sides.fields], set(data.fieldNames())
    deleted = F.col("operation") != UPSERT
    values = [
        _as_type(F.col("data").getField(each.name), data[each.name].dataType, each.dataType)
        if each.name in known
        else F.lit(None).cast(each.dataType)
        for each in fields
    ]
    carried = [
        F.coalesce(F.col("carried").getField(each.name), F.lit(False)) if each.name in known else F.lit(False)
        for each in sides.fields
    ]
    counts = [F.coalesce(field_priority(changes, each.name), "priority") for each in sides.fields]
    parts = [
        F.col("effective_timestamp"),
        F.col(UNTIL) if UNTIL in changes.columns else F.lit(None).cast("timestamp"),
        F.col("message_id"),
        F.col("sequence").eqNullSafe(AFTER_ALL),
        _named([PRESENCE, *fields], [deleted, *values]),
        _named(sides.cells, [F.lit(True), *(is_said & ~deleted for is_said in carried)]),
        _named(sides.cells, [F.col("priority"), *counts]),
    ]
    of_entities = changes.where(F.col("operation") != TRUNCATE)
    words = of_entities.select(_named(_word_type(sides), parts).alias(_WORD))
    return _with_keys(words, F.col(_WORD), sides, _OTHER)


def _named(fields: Sequence[T.StructField] | T.StructType, columns: Sequence[Column]) -> Column:
    return F.struct(*(column.alias(field.name) for field, column in zip(fields, columns, strict=True)))


def _records(records: DataFrame, name: str, sides: _Sides) -> DataFrame:
    """Records that are no changes, by the key that they name, as proofs of that *name*: when, and why."""
    remedy = (
        "Add what the records speak of as columns, for instance of JSON "
        "`F.get_json_object(F.col('value').cast('string'), '$.id')`."
    )
    require_columns(records, [each.name for each in sides.keys], function="reconcile", remedy=remedy)
    when, *why = _TOLD_OF[name]
    stated = [F.col(each).cast("string") for each in why if each in records.columns]
    at = F.col(when) if when in records.columns else F.lit(None)
    keys = zip(sides.places, sides.keys, strict=True)
    return records.select(
        *(
            comparable(F.col(quoted(key.name)).try_cast(key.dataType), key.dataType).alias(_OTHER + place)
            for place, key in keys
        ),
        F.struct(
            at.cast("timestamp").alias("at"),
            F.nullif(F.concat_ws(": ", *stated), F.lit("")).alias("evidence"),
        ).alias(name),
    )


def _weighed(found: DataFrame, proof: DataFrame, sides: _Sides) -> DataFrame:
    """One row per finding; of each cell what the proofs say: since when, by what word, whether by hand."""
    # A digest of what the source says: should it name an entity twice, these are two findings.
    row = T.StructType([PRESENCE, *sides.keys, *sides.fields])
    digest = F.xxhash64(as_text(F.col("b.values"), row))
    one = [*sides.places, "guid", "finding", "digest"]
    joined = found.withColumn("digest", digest).join(proof, _same(sides.places), "inner")
    its_own = F.col("guid").isNull() | F.col("guid").eqNullSafe(F.col("past.guid"))
    before = F.lag("past.ends").over(Window.partitionBy(*one).orderBy("past.begins"))
    proven = joined.withColumn("past", F.when(its_own, F.col("past"))).withColumn(
        "goes_on", before.eqNullSafe(F.col("past.begins"))
    )
    return proven.groupBy(*one).agg(
        *(F.first(side).alias(side) for side in ("a", "b")),
        F.max("past.guid").alias("known_guid"),
        *(F.max(name).alias(name) for name in (_REJECT, _WAITING)),
        *(
            column.alias(f"{name}_{place}")
            for place, field in enumerate(sides.cells)
            for name, column in _proofs_of(field, sides).items()
        ),
    )


def _proofs_of(field: T.StructField, sides: _Sides) -> dict[str, Column]:
    a, b, past, word = (F.col(name) for name in ("a", "b", "past", _WORD))
    version, missing = past.getField("version"), F.col("finding") == MISSING
    other = past.isNotNull() & ~(is_there(version) & same_value(version, a, field))
    begins = F.when(past.isNotNull() & ~F.col("goes_on"), past.getField("begins"))
    stretch = F.greatest(F.max(F.when(other, past.getField("ends"))), F.max(begins))
    gone = F.max(F.when(is_there(version), past.getField("ends")))
    says = same_value(word, b, field)
    if field == PRESENCE:
        # What the source does not know it says by its silence: that is what a delete says.
        says = F.when(missing, says).otherwise(value_of(word, PRESENCE))
    said = word.getField("carried").getField(field.name) & says
    effective, message = word.getField("effective"), word.getField("message")
    last_word = F.struct(
        (effective <= sides.instant).alias("has_come"),
        effective.alias("effective"),
        message.alias("message"),
        word.getField("priorities").getField(field.name).alias("priority"),
        word.getField("until").alias("until"),
    )
    by_hand = word.getField("by_hand") & (message == provenance_of(a, field).getField("m"))
    return {
        "since": F.when(F.first(missing), gone).otherwise(stretch) if field == PRESENCE else stretch,
        "word": F.max(F.when(said, last_word)),
        "by_hand": F.max(by_hand),
    }


def _answer(weighed: DataFrame, sides: _Sides) -> DataFrame:
    """The findings, cell by cell."""
    a, b = F.col("a"), F.col("b")
    places = {field.name: place for place, field in enumerate(sides.cells)}

    def told(field: T.StructField) -> dict[str, Column]:
        since, word, by_hand = (
            F.col(f"{name}_{places[field.name]}") for name in ("since", "word", "by_hand")
        )
        stands = provenance_of(a, field)
        explained = _explanation(field, since, word, by_hand, sides.instant)
        return {
            "history_value": as_text(value_of(a, field), field.dataType),
            "source_value": as_text(value_of(b, field), field.dataType),
            "since_timestamp": since,
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
        differing_cells(a, b, sides.cells, told),
    ).where(F.col("field").isNotNull() & is_cell)


def _explanation(
    field: T.StructField, since: Column, word: Column, by_hand: Column, instant: Column
) -> Column:
    """The first of the explanations that is so, and its evidence: see `reconcile`."""
    stands = provenance_of(F.col("a"), field)
    said = word.getField("message")
    weaker = word.getField("priority") < stands.getField("p")
    was_deleted = (F.lit(field.name) == DELETED) & value_of(F.col("a"), PRESENCE)
    reject, waits = F.col(_REJECT), F.col(_WAITING)
    cases: list[tuple[Column, str, Column]] = [
        (by_hand, CORRECTED, stands.getField("m")),
        (~word.getField("has_come"), Verdict.NOT_YET_EFFECTIVE, said),
        (word.getField("until") <= instant, Verdict.EXPIRED, said),
        (weaker & (word.getField("effective") >= since), Verdict.OUTRANKED, said),
        (reject.isNotNull(), REJECTED, reject.getField("evidence")),
        (waits.isNotNull(), WAITING, waits.getField("evidence")),
        (was_deleted, Verdict.DELETED, stands.getField("m")),
        (word.isNotNull(), Verdict.SUPERSEDED, said),
    ]
    found = F.lit(None).cast("struct<explanation string, evidence string>")
    for holds, name, evidence in reversed(cases):
        told = F.struct(F.lit(str(name)).alias("explanation"), evidence.alias("evidence"))
        found = F.when(holds, told).otherwise(found)
    return found
