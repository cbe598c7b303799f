"""One batch of messages on its way into an exchange's tables, within a transaction of its store."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.ledger.shell import GIVEN_UP, MANY_FILES, WAITING
from cdckit.ledger.upkeep import apply_within, withdraw_within
from cdckit.model.records import ERROR_CODE, RECORD_COLUMNS
from cdckit.parts.workers import run_together
from cdckit.rdss.decoding import DECODED_SCHEMA, decode, decode_with_columns
from cdckit.rdss.erased_names import ErasedNames
from cdckit.rdss.exchange_erasure import (
    drop_erased_messages,
    drop_erased_wholes,
    existence,
    is_refused,
    note_refused,
    rename_objects,
    with_identity,
)
from cdckit.rdss.exchange_tables import (
    BUCKET,
    MESSAGES,
    MESSAGES_SCHEMA,
    NAMINGS,
    NAMINGS_SCHEMA,
    ORDER,
    OUTCOMES,
    OUTCOMES_SCHEMA,
    PLACE,
    PLACE_SCHEMA,
    RECORDS,
    SEQUENCES,
    SEQUENCES_SCHEMA,
    TABLES,
    TAKEN,
    UNKNOWN,
    WAITING_SCHEMA,
    WHOLE_SCHEMA,
    LocalRepository,
    Outcome,
    Settings,
    Status,
    as_outcomes,
    assemble_wholes,
    find_wholes,
    is_erased,
    rows_at_once,
    to_message_rows,
    to_note_rows,
    to_whole_rows,
    with_body,
    with_buckets,
    with_places,
)
from cdckit.rdss.existence import NAMING_SCHEMA, namings, unknown_statements, with_object_faults
from cdckit.rdss.message_rows import VERDICT
from cdckit.rdss.object_bodies import KEY
from cdckit.rdss.objects import ObjectType, changes
from cdckit.rdss.sequences import CAME, IDENTITY, digest, mark_repeats, with_part_outcome
from cdckit.rdss.validators import CREATE, READ, UPDATE
from cdckit.store import Transaction
from cdckit.store.files import hold_few_rows
from cdckit.store.store import read_rows
from cdckit.store.writing import WriteResult


class _VerdictKind(NamedTuple):
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
            self._settings.kind(each).forget(self._transaction)

    def take(self, wholes: DataFrame, left: DataFrame | None = None) -> None:
        """
        Bring ledgers, and what is unknown, up to these messages (`WHOLE_SCHEMA`).

        *left* is what is left of those that were erased (`existence`), where all is made anew.

        A message that came before has another verdict now where one of these changes whether its object
        existed: one that comes late, and was published earlier.
        """
        named = self._name_objects(wholes, left)
        if named is None:
            return
        verdicts, sorts = self._verdicts(named)
        refused = self._refused_messages(wholes, verdicts, sorts)
        right = self._right_messages(wholes, verdicts, sorts)
        taken_back = self._find_withdrawn(verdicts, sorts)
        if taken_back is not None:
            refused = [*refused, taken_back]
            for each in self._settings.types:
                withdraw_within(self._transaction, self._settings.kind(each), _keys(taken_back))
        self._keep_unknown(verdicts, sorts, refused)
        if right is not None:
            self._apply(right)

    # -----------------------------------------------------------------------------------------------------

    def _name_objects(self, wholes: DataFrame, left: DataFrame | None) -> DataFrame | None:
        """The objects that are named in messages, which is kept; None if there are none."""
        tables, named = self._transaction, rename_objects(namings(wholes), self._transaction)
        if left is not None:
            named = named.unionByName(namings(left))
        taken = named.withColumn(TAKEN, F.lit(self._batch).cast("long"))
        rows = with_buckets(taken, self._settings).repartition(BUCKET)
        written = tables.append(NAMINGS, rows, partition_by=[BUCKET], compact_at=MANY_FILES)
        touched = sorted({one.partition[BUCKET] for one in written.files})
        if not touched:
            return None
        near = rows_at_once(tables, NAMINGS, NAMINGS_SCHEMA, {BUCKET: touched})
        return near.where(F.col(TAKEN) == self._batch).select("named", BUCKET).distinct()

    def _verdicts(self, named: DataFrame) -> tuple[DataFrame, set[_VerdictKind]]:
        """
        One row per message that names one of these objects: its verdict, its `_VerdictKind`; and all of
            these.

        An update that is right now, and was not, or the other way round, changes whether the version that it
        brought exists: so messages about that are looked at, too, until no more are found.
        """
        tables = self._transaction
        number = None
        while True:
            verdicts = self._verdicts_about(named)
            sorts = {
                _VerdictKind(*row) for row in verdicts.select(*_VerdictKind._fields).distinct().collect()
            }
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
        named_rows = near.join(named.select("named"), "named", "left_semi")
        unknown = rows_at_once(tables, UNKNOWN, WHOLE_SCHEMA)
        before = unknown.select("message_id", F.lit(True).alias("_unknown"))
        asked = named_rows.groupBy("message_id").agg(
            *(F.first(name).alias(name) for name in ("object_uuid", "message_type")),
            (F.max(TAKEN) == self._batch).alias("is_new"),
            (F.max(F.size("objects")) > 1).alias("is_version"),
        )
        is_asked = asked.select("message_id", F.lit(True).alias("_asked"))
        around = self._statements_around(named_rows).join(is_asked, "message_id", "left")
        around = around.join(before, "message_id", "left")
        # Of updates that nobody asks about the verdict is known: what was right made its object exist.
        is_settled = F.col("_asked").isNull() & (F.col("message_type") == UPDATE)
        kept = around.where(~(is_settled & F.col("_unknown").isNotNull()))
        kind = F.when(is_settled & (F.size("objects") > 1), CREATE).otherwise(F.col("message_type"))
        statements = kept.withColumn("message_type", kind).select(*NAMING_SCHEMA.fieldNames())
        wrong = unknown_statements(statements, keeps_deleted=self._settings.keeps_deleted)
        is_unknown = wrong.select("message_id", F.lit(True).alias("is_unknown")).distinct()
        judged = asked.join(before, "message_id", "left").join(is_unknown, "message_id", "left")
        found = judged.withColumn("is_unknown", F.col("is_unknown").isNotNull())
        return tables.scratch(
            with_object_faults(found, F.col("is_unknown")).select(
                "message_id",
                "object_uuid",
                *VERDICT,
                "is_new",
                F.col("_unknown").isNotNull().alias("was_unknown"),
                "is_unknown",
                (F.col("message_type") == READ).alias("is_read"),
                "is_version",
            )
        )

    def _statements_around(self, rows: DataFrame) -> DataFrame:
        """All that is said of the existence of each object that these rows name."""
        tables = self._transaction
        if hold_few_rows(tables.files(NAMINGS)):
            # To look for what is needed of so few would take longer.
            return rows_at_once(tables, NAMINGS, NAMINGS_SCHEMA)
        needed = [row[0] for row in rows.select(F.explode("buckets")).distinct().collect()]
        about = rows.select(F.explode("objects").alias("named")).distinct()
        return tables.read(NAMINGS, {BUCKET: needed}).join(about, "named", "left_semi")

    def _refused_messages(
        self, wholes: DataFrame, verdicts: DataFrame, sorts: set[_VerdictKind]
    ) -> list[DataFrame]:
        """The new messages about unknown objects."""
        if not any(each.is_new and each.is_unknown for each in sorts):
            return []
        return [_with_verdicts(wholes, verdicts.where("is_new AND is_unknown"))]

    def _right_messages(
        self, wholes: DataFrame, verdicts: DataFrame, sorts: set[_VerdictKind]
    ) -> DataFrame | None:
        """The messages that say something of objects, and are right now: new ones, and healed ones."""
        found = []
        unread = verdicts.where("NOT is_unknown AND NOT is_read").select("message_id", "is_new")
        right = [each for each in sorts if not each.is_unknown and not each.is_read]
        if any(each.is_new for each in right):
            found.append(wholes.join(unread.where("is_new"), "message_id", "left_semi"))
        if any(each.was_unknown for each in right):
            unknown = rows_at_once(self._transaction, UNKNOWN, WHOLE_SCHEMA)
            kept = unknown.join(unread.where("NOT is_new"), "message_id", "left_semi")
            nothing = {name: F.lit(None).cast("string") for name in VERDICT}
            found.append(kept.withColumns(nothing))
        if not found:
            return None
        return found[0] if len(found) == 1 else found[0].unionByName(found[1])

    def _find_withdrawn(self, verdicts: DataFrame, sorts: set[_VerdictKind]) -> DataFrame | None:
        """The messages that were right before, and are about an unknown object now."""
        if not any(each.is_unknown and not each.is_new and not each.was_unknown for each in sorts):
            return None
        withdrawn = verdicts.where("is_unknown AND NOT is_new AND NOT was_unknown")
        tables = self._transaction
        messages, ids = tables.read(MESSAGES), withdrawn.select("message_id")
        sequences = read_rows(tables, SEQUENCES, SEQUENCES_SCHEMA).join(ids, "message_id", "left_semi")
        alone = messages.where("sequence_total = 1").join(ids, "message_id", "left_semi")
        several = messages.where("sequence_total > 1").join(
            sequences.select("sequence_id"), "sequence_id", "left_semi"
        )
        rows = alone.unionByName(several.select(*alone.columns))
        found = find_wholes(rows.select(*messages.columns), tables, self._settings.rules)
        return tables.scratch(_with_verdicts(found, withdrawn))

    def _keep_unknown(self, verdicts: DataFrame, sorts: set[_VerdictKind], refused: list[DataFrame]) -> None:
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

        run_together(tables.spark, apply, settings.types)


def _with_verdicts(wholes: DataFrame, verdicts: DataFrame) -> DataFrame:
    judged = verdicts.select("message_id", *VERDICT)
    found = wholes.drop(*VERDICT).join(judged, "message_id", "inner")
    return found.select(*WHOLE_SCHEMA.fieldNames())


def _keys(messages: DataFrame) -> DataFrame:
    return messages.select(F.col("object_uuid").alias(KEY), "message_id")


# Nobody has delivered what is to be sent, so it has not expired.
_BEFORE_ALL = datetime.min.replace(tzinfo=UTC)
_NOTED = ("message_class", "message_type", "sequence_id", "sequence_position")


class Intake:
    """What a transaction does with messages: first `keep`, then `take`; or `rebuild` alone."""

    def __init__(self, transaction: Transaction, settings: Settings) -> None:
        self._transaction, self._settings = transaction, settings
        self._batch = (transaction.base.version or 0) + 1
        self._objects = Objects(transaction, settings, self._batch)
        self._repository = LocalRepository(transaction, settings)

    def keep(self, records: DataFrame) -> WriteResult:
        """Write the messages as they came, with what their headers say and the verdict on each by itself."""
        decoded = decode(records.select(*RECORD_COLUMNS), rules=self._settings.rules)
        rows = to_message_rows(with_places(decoded, self._batch))
        return self._transaction.append(MESSAGES, drop_erased_messages(rows, self._transaction))

    def take(self, written: WriteResult) -> None:
        """Bring the other tables up to messages that were kept."""
        if not written.files:
            return
        came = rows_at_once(self._transaction, MESSAGES, MESSAGES_SCHEMA, files=written.files)
        if ErasedNames.of(self._transaction) is not None:
            note_refused(came.where(is_refused()), self._transaction, self._settings)
        self._take(came, self._repository.known_messages(came))
        for grown in (MESSAGES, OUTCOMES, SEQUENCES):
            if self._transaction.has(grown):
                self._transaction.compact(grown, files=MANY_FILES)

    def rebuild(self) -> None:
        """Make everything anew from the messages as they came, by the settings as they are now."""
        tables = self._transaction
        before = tables.read(MESSAGES)
        records = before.where(~is_erased()).select(*RECORD_COLUMNS, *PLACE)
        decoded = decode_with_columns(records, PLACE_SCHEMA, rules=self._settings.rules)
        rows = drop_erased_messages(to_message_rows(decoded), tables)
        tables.replace(MESSAGES, rows.unionByName(before.where(is_erased())))
        for name in TABLES:
            tables.drop(name)
        self._objects.forget()
        own = self._repository.forget()
        messages = rows_at_once(tables, MESSAGES, MESSAGES_SCHEMA)
        self._take(messages, own, None if ErasedNames.of(tables) is None else existence(messages))

    def own(self, records: DataFrame, status: Status) -> int:
        """Let messages of our own be known; how many sound ones there are."""
        decoded = decode(records.select(*RECORD_COLUMNS), now=_BEFORE_ALL, rules=self._settings.rules)
        return self._repository.note(to_note_rows(decoded.where(F.col(ERROR_CODE).isNull())), status)

    # -----------------------------------------------------------------------------------------------------

    def _take(self, came: DataFrame, known: DataFrame | None, left: DataFrame | None = None) -> None:
        """
        Give messages their outcomes, in the order in which they came.

        Each that has an identity claims it at its place in that order: a whole message, a refused one, a part
        that contradicts others, and a sequence where its last part came.  The first claim stands.
        """
        tables = self._transaction
        is_sound, is_part = F.col(ERROR_CODE).isNull(), F.col("sequence_total") > 1
        sorts = {tuple(row) for row in came.select(is_sound, is_part).distinct().collect()}
        ordered = came.withColumn(CAME, F.struct(*ORDER))
        claims = _claims(ordered.where(F.col(IDENTITY).isNotNull()), F.col(IDENTITY))
        wholes = to_whole_rows(with_body(came.where(is_sound & ~is_part)))
        if (True, True) not in sorts:
            repeats = mark_repeats(claims, known).where("is_repeat")
            wholes = self._without_duplicates(
                wholes, tables.append(OUTCOMES, _outcomes(repeats, Outcome.DUPLICATE))
            )
        else:
            judged = self._judge_parts(came.where(is_sound & is_part), known)
            found = tables.scratch(self._assemble_wholes(judged))
            assembled, gone = drop_erased_wholes(found, tables, self._settings)
            others = judged if gone is None else judged.join(gone, "sequence_id", "left_anti")
            late = _claims(others.where("part = 'contradicting'"), digest(), is_late=True)
            named = with_identity(assembled.where(is_sound), tables)
            of_sequences = _claims(named, F.col(IDENTITY), records=F.col(RECORDS))
            claims = tables.scratch(mark_repeats(claims.unionByName(late).unionByName(of_sequences), known))
            outcomes = (
                as_outcomes(others.where("part = 'duplicate'"), Outcome.DUPLICATE)
                .unionByName(_outcomes(assembled.where(~is_sound)))
                .unionByName(_outcomes(claims.where("is_repeat"), Outcome.DUPLICATE))
                .unionByName(_outcomes(claims.where("is_late AND NOT is_repeat")))
            )
            sound = wholes.unionByName(assembled.where(is_sound).drop(CAME))
            wholes = tables.scratch(self._without_duplicates(sound, tables.append(OUTCOMES, outcomes)))
            self._keep_parts(judged, assembled, wholes)
        self._repository.note(claims, Status.RECEIVED)
        if left is not None or any(is_sound for is_sound, _ in sorts):
            self._objects.take(wholes, left)

    def _without_duplicates(self, wholes: DataFrame, noted: WriteResult) -> DataFrame:
        """The messages that are not among the duplicates noted here."""
        if not noted.rows:
            return wholes
        outcomes = rows_at_once(self._transaction, OUTCOMES, OUTCOMES_SCHEMA, files=noted.files)
        repeats = outcomes.where(F.col("outcome") == Outcome.DUPLICATE.value).select(*PLACE)
        first = {name: F.col(RECORDS)[0][name] for name in PLACE}
        return wholes.withColumns(first).join(repeats, list(PLACE), "left_anti").drop(*PLACE)

    def _judge_parts(self, came: DataFrame, known: DataFrame | None) -> DataFrame:
        """
        The parts of the batch, and those that waited for them, with their outcomes.

        Those of whole sequences, of which only the terms and contents are kept, are judged beside them.
        """
        parts = with_body(came).withColumn("is_own", F.lit(False))
        if known is not None:
            own = known.where("is_own").select(F.col(IDENTITY).alias("message_id")).distinct()
            is_own = own.withColumn("is_own", F.lit(True))
            parts = parts.drop("is_own").join(is_own, "message_id", "left")
        touched = came.select("sequence_id").distinct()
        others = parts.where("is_own IS NOT TRUE").select(*DECODED_SCHEMA.fieldNames(), *PLACE)
        waited = self._rows(WAITING, WAITING_SCHEMA)
        if waited is not None:
            same = waited.join(touched, "sequence_id", "left_semi")
            # What was given up is so no longer.
            anew = {name: F.lit(None).cast("string") for name in VERDICT}
            others = others.unionByName(same.select(*others.columns).withColumns(anew))
        whole = self._rows(SEQUENCES, SEQUENCES_SCHEMA)
        known_sequences = None if whole is None else whole.join(touched, "sequence_id", "left_semi")
        judged = with_part_outcome(others, ORDER, known_sequences).withColumn(CAME, F.struct(*ORDER))
        if known is None:
            return self._transaction.scratch(judged)
        mine = parts.where("is_own").drop("is_own").withColumn("part", F.lit("duplicate"))
        return self._transaction.scratch(judged.unionByName(mine, allowMissingColumns=True))

    def _assemble_wholes(self, judged: DataFrame) -> DataFrame:
        """Sequences that are whole now, as the messages they are, and when the last part came."""
        complete = judged.where(F.col("part") == "complete")
        last = complete.groupBy("sequence_id").agg(F.max(CAME).alias(CAME))
        return assemble_wholes(complete, self._settings.rules).join(last, "sequence_id", "inner")

    def _keep_parts(self, judged: DataFrame, assembled: DataFrame, wholes: DataFrame) -> None:
        """Keep the parts that wait, and of sequences that were put together what their parts were."""
        tables = self._transaction
        waits = judged.where("part = 'waiting'").withColumn(GIVEN_UP, F.lit(None).cast("timestamp_ltz"))
        rows = waits.select(*WAITING_SCHEMA.fieldNames())
        waited = self._rows(WAITING, WAITING_SCHEMA)
        if waited is not None:
            others = waited.join(judged.select("sequence_id").distinct(), "sequence_id", "left_anti")
            rows = rows.unionByName(others.select(*rows.columns))
        tables.replace(WAITING, rows)
        whole = judged.groupBy("sequence_id").agg(
            *(F.first(name, ignorenulls=True).alias(name) for name in ("terms", "pieces")),
            F.max_by(F.struct(*PLACE), F.when(F.expr("part = 'complete'"), F.col(CAME))).alias("last"),
        )
        ids = wholes.where(F.size(RECORDS) > 1).select("sequence_id", "message_id")
        about = assembled.select("sequence_id", "object_uuid")
        settled = whole.join(about, "sequence_id", "inner").join(ids, "sequence_id", "left")
        tables.append(SEQUENCES, settled.select(*SEQUENCES_SCHEMA.fieldNames()))

    def _rows(self, name: str, columns: T.StructType) -> DataFrame | None:
        tables = self._transaction
        if not (tables.has(name) and tables.files(name)):
            return None
        return rows_at_once(tables, name, columns)


def _claims(
    rows: DataFrame, named: Column, *, is_late: bool = False, records: Column | None = None
) -> DataFrame:
    """What each row claims: an identity, from its place in the order on, for the records that brought it."""
    brought = F.array(F.struct(*PLACE)) if records is None else records
    return rows.select(
        named.alias(IDENTITY),
        CAME,
        brought.alias(RECORDS),
        F.lit(is_late).alias("is_late"),
        *_NOTED,
        *VERDICT,
    )


def _outcomes(claims: DataFrame, outcome: Outcome | None = None) -> DataFrame:
    """Rows of `OUTCOMES` for all records of each row."""
    return as_outcomes(
        claims.select(F.explode(RECORDS).alias("place"), *VERDICT).select("place.*", *VERDICT), outcome
    )
