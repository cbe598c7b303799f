"""What a batch says of objects: the verdict on messages about unknown ones, and the ledgers of the others."""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdckit.ledger.shared_transaction import apply_within, withdraw_within
from cdckit.parts.threads import at_once
from cdckit.rdss.exchange_tables import (
    BUCKET,
    MESSAGES,
    NAMINGS,
    NAMINGS_SCHEMA,
    SEQUENCES,
    SEQUENCES_SCHEMA,
    TAKEN,
    UNKNOWN,
    VERDICT,
    WHOLE_SCHEMA,
    Settings,
    rows_at_once,
    wholes_of,
)
from cdckit.rdss.existence import with_unknown
from cdckit.rdss.object_changes import changes
from cdckit.rdss.object_mentions import as_decoded, namings
from cdckit.rdss.object_types import KEY, ObjectType
from cdckit.rdss.statements import CREATE, READ, UPDATE
from cdckit.rdss.version_chains import related_versions
from cdckit.rejected import ERROR_CODE
from cdckit.store import Transaction
from cdckit.store.files import are_few
from cdckit.store.store import rows_of

MANY_FILES = 16


class _Sort(NamedTuple):
    """What a verdict is about: a message of this batch or of an earlier one, and what was thought of it."""

    is_new: bool
    was_unknown: bool
    is_unknown: bool
    is_read: bool
    is_version: bool


class Objects:
    """What a transaction does with whole messages."""

    def __init__(self, transaction: Transaction, settings: Settings, batch: int) -> None:
        self._transaction, self._settings, self._batch = transaction, settings, batch

    def forget(self) -> None:
        """Let there be no ledgers: they are begun anew."""
        for each in ObjectType:
            kind = self._settings.kind(each)
            for name in (kind.changes, kind.history, kind.unborn):
                self._transaction.drop(name)
            kind.forget(self._transaction)

    def take(self, wholes: DataFrame) -> None:
        """
        Bring ledgers, and what is unknown, up to these messages (`WHOLE_SCHEMA`).

        A message that came before has another verdict now where one of these changes whether its object
        existed: one that comes late, and was published earlier.
        """
        named = self._named(wholes)
        if named is None:
            return
        verdicts, sorts = self._verdicts(named)
        refused = self._refused(wholes, verdicts, sorts)
        right = self._right(wholes, verdicts, sorts)
        taken_back = self._taken_back(verdicts, sorts)
        if taken_back is not None:
            refused = [*refused, taken_back]
            for each in self._settings.types:
                withdraw_within(self._transaction, self._settings.kind(each), _keys(taken_back))
        self._keep_unknown(verdicts, sorts, refused)
        if right is not None:
            self._apply(right)

    # -----------------------------------------------------------------------------------------------------

    def _named(self, wholes: DataFrame) -> DataFrame | None:
        """The objects that are named in *wholes*, which is kept; None if there are none."""
        bucket = self._settings.bucket
        named = namings(wholes).withColumns(
            {
                "buckets": F.transform("objects", bucket),
                TAKEN: F.lit(self._batch).cast("long"),
                BUCKET: bucket(F.col("named")),
            }
        )
        rows = named.select(*NAMINGS_SCHEMA.fieldNames()).repartition(BUCKET)
        tables = self._transaction
        written = tables.append(NAMINGS, rows, partition_by=[BUCKET], compact_at=MANY_FILES)
        touched = sorted({one.partition[BUCKET] for one in written.files})
        if not touched:
            return None
        near = rows_at_once(tables, NAMINGS, NAMINGS_SCHEMA, {BUCKET: touched})
        return near.where(F.col(TAKEN) == self._batch).select("named", BUCKET).distinct()

    def _verdicts(self, named: DataFrame) -> tuple[DataFrame, set[_Sort]]:
        """
        One row per message that names one of these objects: its verdict, its `_Sort`; and all of these.

        An update that is right now, and was not, or the other way round, changes whether the version that it
        brought exists: so messages about that are looked at, too, until no more are found.
        """
        tables = self._transaction
        number = None
        while True:
            verdicts = self._verdicts_about(named)
            sorts = {_Sort(*row) for row in verdicts.select(*_Sort._fields).distinct().collect()}
            if not any(
                each.is_version and not each.is_new and each.was_unknown != each.is_unknown for each in sorts
            ):
                return verdicts, sorts
            changed = verdicts.where("is_version AND NOT is_new AND was_unknown != is_unknown")
            own = F.col("object_uuid")
            more = changed.select(own.alias("named"), self._settings.bucket(own).alias(BUCKET))
            number = named.count() if number is None else number
            named = tables.scratch(named.unionByName(more).distinct())
            before, number = number, named.count()
            if number == before:
                return verdicts, sorts

    def _verdicts_about(self, named: DataFrame) -> DataFrame:
        tables = self._transaction
        touched = [row[0] for row in named.select(BUCKET).distinct().collect()]
        near = rows_at_once(tables, NAMINGS, NAMINGS_SCHEMA, {BUCKET: touched})
        asked = near.join(named.select("named"), "named", "left_semi")
        unknown = rows_at_once(tables, UNKNOWN, WHOLE_SCHEMA)
        before = unknown.select("message_id", F.lit(True).alias("_unknown"))
        meant = asked.groupBy("message_id").agg(
            (F.max(TAKEN) == self._batch).alias("is_new"),
            (F.max(F.size("objects")) > 1).alias("is_version"),
        )
        around = as_decoded(self._around(asked)).join(meant, "message_id", "left")
        around = around.join(before, "message_id", "left")
        # Of updates that nobody asks about the verdict is known: what was right made its object exist.
        is_settled = F.col("is_version").isNull() & (F.col("message_type") == UPDATE)
        kept = around.where(~(is_settled & F.col("_unknown").isNotNull()))
        is_version = is_settled & (F.size(related_versions(F.col("body"), F.col("object_uuid"))) > 0)
        said = kept.withColumn("message_type", F.when(is_version, CREATE).otherwise(F.col("message_type")))
        judged = with_unknown(said, keeps_deleted=self._settings.keeps_deleted)
        found = judged.where(F.col("is_version").isNotNull())
        return tables.scratch(
            found.select(
                "message_id",
                "object_uuid",
                *VERDICT,
                "is_new",
                F.col("_unknown").isNotNull().alias("was_unknown"),
                F.col(ERROR_CODE).isNotNull().alias("is_unknown"),
                (F.col("message_type") == READ).alias("is_read"),
                "is_version",
            )
        )

    def _around(self, asked: DataFrame) -> DataFrame:
        """All that is said of the existence of each object that these rows name."""
        tables = self._transaction
        if are_few(tables.files(NAMINGS)):
            # To look for what is needed of so few would take longer.
            return rows_at_once(tables, NAMINGS, NAMINGS_SCHEMA)
        needed = [row[0] for row in asked.select(F.explode("buckets")).distinct().collect()]
        about = asked.select(F.explode("objects").alias("named")).distinct()
        return tables.read(NAMINGS, {BUCKET: needed}).join(about, "named", "left_semi")

    def _refused(self, wholes: DataFrame, verdicts: DataFrame, sorts: set[_Sort]) -> list[DataFrame]:
        """The new messages about unknown objects."""
        if not any(each.is_new and each.is_unknown for each in sorts):
            return []
        return [_judged(wholes, verdicts.where("is_new AND is_unknown"))]

    def _right(self, wholes: DataFrame, verdicts: DataFrame, sorts: set[_Sort]) -> DataFrame | None:
        """The messages that say something of objects, and are right now: new ones, and healed ones."""
        found = []
        told = verdicts.where("NOT is_unknown AND NOT is_read").select("message_id", "is_new")
        right = [each for each in sorts if not each.is_unknown and not each.is_read]
        if any(each.is_new for each in right):
            found.append(wholes.join(told.where("is_new"), "message_id", "left_semi"))
        if any(each.was_unknown for each in right):
            unknown = rows_at_once(self._transaction, UNKNOWN, WHOLE_SCHEMA)
            kept = unknown.join(told.where("NOT is_new"), "message_id", "left_semi")
            nothing = {name: F.lit(None).cast("string") for name in VERDICT}
            found.append(kept.withColumns(nothing))
        if not found:
            return None
        return found[0] if len(found) == 1 else found[0].unionByName(found[1])

    def _taken_back(self, verdicts: DataFrame, sorts: set[_Sort]) -> DataFrame | None:
        """The messages that were right before, and are about an unknown object now."""
        if not any(each.is_unknown and not each.is_new and not each.was_unknown for each in sorts):
            return None
        told = verdicts.where("is_unknown AND NOT is_new AND NOT was_unknown")
        tables = self._transaction
        messages, ids = tables.read(MESSAGES), told.select("message_id")
        sequences = rows_of(tables, SEQUENCES, SEQUENCES_SCHEMA).join(ids, "message_id", "left_semi")
        alone = messages.where("sequence_total = 1").join(ids, "message_id", "left_semi")
        several = messages.where("sequence_total > 1").join(
            sequences.select("sequence_id"), "sequence_id", "left_semi"
        )
        rows = alone.unionByName(several.select(*alone.columns))
        found = wholes_of(rows.select(*messages.columns), tables, self._settings.rules)
        return tables.scratch(_judged(found, told))

    def _keep_unknown(self, verdicts: DataFrame, sorts: set[_Sort], refused: list[DataFrame]) -> None:
        heals = any(each.was_unknown and not each.is_unknown for each in sorts)
        if not heals and not refused:
            return
        before = rows_at_once(self._transaction, UNKNOWN, WHOLE_SCHEMA)
        healed = verdicts.where("was_unknown AND NOT is_unknown").select("message_id")
        rows = before.join(healed, "message_id", "left_anti").select(*WHOLE_SCHEMA.fieldNames())
        for each in refused:
            rows = rows.unionByName(each)
        self._transaction.replace(UNKNOWN, rows)

    def _apply(self, right: DataFrame) -> None:
        tables, settings = self._transaction, self._settings

        def apply(each: ObjectType) -> None:
            apply_within(tables, settings.kind(each), changes(right, each))

        at_once(tables.spark, apply, settings.types)


def _judged(wholes: DataFrame, verdicts: DataFrame) -> DataFrame:
    told = verdicts.select("message_id", *VERDICT)
    found = wholes.drop(*VERDICT).join(told, "message_id", "inner")
    return found.select(*WHOLE_SCHEMA.fieldNames())


def _keys(messages: DataFrame) -> DataFrame:
    return messages.select(F.col("object_uuid").alias(KEY), "message_id")
