"""One batch of messages on its way into an exchange's tables, within a transaction of its store."""

from __future__ import annotations

from datetime import UTC, datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.rdss.decoding import DECODED_SCHEMA, decode, decode_beside
from cdckit.rdss.exchange_objects import Objects
from cdckit.rdss.exchange_repository import LocalRepository, as_noted
from cdckit.rdss.exchange_tables import (
    FATES,
    FATES_SCHEMA,
    GIVEN_UP,
    MESSAGES,
    MESSAGES_SCHEMA,
    ORDER,
    PLACE,
    PLACE_SCHEMA,
    RECORDS,
    SEQUENCES,
    SEQUENCES_SCHEMA,
    TABLES,
    VERDICT,
    WAITING,
    WAITING_SCHEMA,
    Settings,
    as_fates,
    as_wholes,
    kept,
    numbered,
    put_together,
    rows_at_once,
    with_body,
)
from cdckit.rdss.fates import Fate, Status
from cdckit.rdss.repeats import IDENTITY, digest, marked
from cdckit.rdss.sequences import CAME, with_outcome, with_terms
from cdckit.records import RECORD_COLUMNS
from cdckit.rejected import ERROR_CODE
from cdckit.store import Transaction
from cdckit.store.writing import Written

# Nobody has delivered what is to be sent, so it has not expired.
_BEFORE_ALL = datetime.min.replace(tzinfo=UTC)
_NOTED = ("message_class", "message_type", "sequence_id", "sequence_position")
MANY_FILES = 16
"""So many small files of a table that grows are written together: each batch adds some."""


class Intake:
    """What a transaction does with messages: first `keep`, then `take`; or `rebuild` alone."""

    def __init__(self, transaction: Transaction, settings: Settings) -> None:
        self._transaction, self._settings = transaction, settings
        self._batch = (transaction.base.version or 0) + 1
        self._objects = Objects(transaction, settings, self._batch)
        self._repository = LocalRepository(transaction, settings)

    def keep(self, records: DataFrame) -> Written:
        """Write the messages as they came, with what their headers say and the verdict on each by itself."""
        decoded = decode(records.select(*RECORD_COLUMNS), rules=self._settings.rules)
        return self._transaction.append(MESSAGES, kept(numbered(decoded, self._batch)))

    def take(self, written: Written) -> None:
        """Bring the other tables up to messages that were kept."""
        if not written.files:
            return
        came = rows_at_once(self._transaction, MESSAGES, MESSAGES_SCHEMA, files=written.files)
        self._take(came, self._repository.known(came))
        for grown in (MESSAGES, FATES, SEQUENCES):
            if self._transaction.has(grown):
                self._transaction.compact(grown, files=MANY_FILES)

    def rebuild(self) -> None:
        """Make everything anew from the messages as they came, by the settings as they are now."""
        tables = self._transaction
        before = tables.read(MESSAGES).select(*RECORD_COLUMNS, *PLACE)
        tables.replace(MESSAGES, kept(decode_beside(before, PLACE_SCHEMA, rules=self._settings.rules)))
        for name in TABLES:
            tables.drop(name)
        self._objects.forget()
        own = self._repository.forget()
        self._take(rows_at_once(tables, MESSAGES, MESSAGES_SCHEMA), own)

    def own(self, records: DataFrame, status: Status) -> int:
        """Let messages of our own be known; how many sound ones there are."""
        decoded = decode(records.select(*RECORD_COLUMNS), now=_BEFORE_ALL, rules=self._settings.rules)
        return self._repository.note(as_noted(decoded.where(F.col(ERROR_CODE).isNull())), status)

    # -----------------------------------------------------------------------------------------------------

    def _take(self, came: DataFrame, known: DataFrame | None) -> None:
        """
        Give messages their fates, in the order in which they came.

        Each that has an identity claims it at its place in that order: a whole message, a refused one, a part
        that contradicts others, and a sequence where its last part came.  The first claim stands.
        """
        tables = self._transaction
        is_sound, is_part = F.col(ERROR_CODE).isNull(), F.col("sequence_total") > 1
        sorts = {tuple(row) for row in came.select(is_sound, is_part).distinct().collect()}
        ordered = came.withColumn(CAME, F.struct(*ORDER))
        claims = _claims(ordered.where(F.col(IDENTITY).isNotNull()), F.col(IDENTITY))
        wholes = as_wholes(with_body(came.where(is_sound & ~is_part)))
        if (True, True) not in sorts:
            repeats = marked(claims, known).where("is_repeat")
            wholes = self._without(wholes, tables.append(FATES, _fates(repeats, Fate.DUPLICATE)))
        else:
            judged = self._judged(came.where(is_sound & is_part), known)
            made = tables.scratch(self._made(judged))
            late = _claims(judged.where("part = 'contradicting'"), digest(), is_late=True)
            of_sequences = _claims(made.where(is_sound), F.col("message_id"), records=F.col(RECORDS))
            claims = tables.scratch(marked(claims.unionByName(late).unionByName(of_sequences), known))
            fates = (
                as_fates(judged.where("part = 'duplicate'"), Fate.DUPLICATE)
                .unionByName(_fates(made.where(~is_sound)))
                .unionByName(_fates(claims.where("is_repeat"), Fate.DUPLICATE))
                .unionByName(_fates(claims.where("is_late AND NOT is_repeat")))
            )
            sound = wholes.unionByName(made.where(is_sound).drop(CAME))
            wholes = tables.scratch(self._without(sound, tables.append(FATES, fates)))
            self._keep_parts(judged, wholes)
        self._repository.note(claims, Status.RECEIVED)
        if any(is_sound for is_sound, _ in sorts):
            self._objects.take(wholes)

    def _without(self, wholes: DataFrame, noted: Written) -> DataFrame:
        """The messages that are not among the duplicates noted here."""
        if not noted.rows:
            return wholes
        fates = rows_at_once(self._transaction, FATES, FATES_SCHEMA, files=noted.files)
        repeats = fates.where(F.col("fate") == Fate.DUPLICATE.value).select(*PLACE)
        first = {name: F.col(RECORDS)[0][name] for name in PLACE}
        return wholes.withColumns(first).join(repeats, list(PLACE), "left_anti").drop(*PLACE)

    def _judged(self, came: DataFrame, known: DataFrame | None) -> DataFrame:
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
        said = with_terms(others).withColumn(CAME, F.struct(*ORDER))
        whole = self._rows(SEQUENCES, SEQUENCES_SCHEMA)
        if whole is not None:
            same = whole.join(touched, "sequence_id", "left_semi")
            pieces = same.select(
                "sequence_id", "terms", F.size("pieces").alias("sequence_total"), F.inline("pieces")
            )
            # They have no place in the order, and stand before all others.
            said = said.unionByName(pieces, allowMissingColumns=True)
        judged = with_outcome(said).where("batch IS NOT NULL")
        if known is None:
            return self._transaction.scratch(judged)
        mine = parts.where("is_own").drop("is_own").withColumn("part", F.lit("duplicate"))
        return self._transaction.scratch(judged.unionByName(mine, allowMissingColumns=True))

    def _made(self, judged: DataFrame) -> DataFrame:
        """Sequences that are whole now, as the messages they are, and when the last part came."""
        complete = judged.where(F.col("part") == "complete")
        last = complete.groupBy("sequence_id").agg(F.first("whole_at").alias(CAME))
        return put_together(complete, self._settings.rules).join(last, "sequence_id", "inner")

    def _keep_parts(self, judged: DataFrame, wholes: DataFrame) -> None:
        """Keep the parts that wait, and of sequences that are whole what their parts were."""
        tables = self._transaction
        waits = judged.where("part = 'waiting'").withColumn(GIVEN_UP, F.lit(None).cast("timestamp"))
        rows = waits.select(*WAITING_SCHEMA.fieldNames())
        waited = self._rows(WAITING, WAITING_SCHEMA)
        if waited is not None:
            others = waited.join(judged.select("sequence_id").distinct(), "sequence_id", "left_anti")
            rows = rows.unionByName(others.select(*rows.columns))
        tables.replace(WAITING, rows)
        complete = judged.where("part = 'complete'").groupBy("sequence_id", "terms")
        whole = complete.agg(F.collect_list(F.struct("sequence_position", "content")).alias("pieces"))
        ids = wholes.where(F.size(RECORDS) > 1).select("sequence_id", "message_id")
        settled = whole.join(ids, "sequence_id", "left")
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


def _fates(claims: DataFrame, fate: Fate | None = None) -> DataFrame:
    """Rows of `FATES` for all records of each row."""
    return as_fates(
        claims.select(F.explode(RECORDS).alias("place"), *VERDICT).select("place.*", *VERDICT), fate
    )
