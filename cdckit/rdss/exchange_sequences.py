"""The parts of longer messages that a batch brings: what waits, what is whole now, what cannot be."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdckit.rdss.decoding import DECODED_SCHEMA
from cdckit.rdss.exchange_tables import (
    FATES,
    GIVEN_UP,
    PLACE,
    RECORDS,
    SEQUENCES,
    SEQUENCES_SCHEMA,
    VERDICT,
    WAITING,
    WAITING_SCHEMA,
    Settings,
    as_fates,
    put_together,
    rows_at_once,
)
from cdckit.rdss.fates import Fate
from cdckit.rdss.repeats import with_repeats
from cdckit.rdss.sequences import parts
from cdckit.rdss.settled_sequences import late_parts, settled
from cdckit.rejected import ERROR_CODE
from cdckit.store import Transaction


class Sequences:
    """What a transaction does with parts."""

    def __init__(self, transaction: Transaction, settings: Settings) -> None:
        self._transaction, self._settings = transaction, settings

    def take(self, came: DataFrame, known: DataFrame) -> DataFrame | None:
        """
        Take parts, and return the sound messages that are whole by them; None if no sequence is.

        Args:
            came: The parts of the batch: rows of `decode`, with their places.
            known: What makes messages the same again that have come, also in this batch.
        """
        judged = self._transaction.scratch(parts(self._with_waiting(self._without_late(came))))
        outcomes = {row["part"] for row in judged.select("part").distinct().collect()}
        if outcomes & {"duplicate", "contradicting"}:
            self._note_parts(judged)
        self._wait(judged, some="waiting" in outcomes)
        whole = self._whole(judged, known) if "complete" in outcomes else None
        self._settle(judged, whole)
        return whole

    def _without_late(self, came: DataFrame) -> DataFrame:
        """The parts whose sequences are not settled; the others have their fate."""
        if not self._has(SEQUENCES):
            return came
        sequences = rows_at_once(self._transaction, SEQUENCES, SEQUENCES_SCHEMA)
        late = self._transaction.scratch(late_parts(came, sequences))
        self._note_parts(late)
        return came.join(late.select(*PLACE), list(PLACE), "left_anti")

    def _with_waiting(self, came: DataFrame) -> DataFrame:
        """The same, and the parts that wait in their sequences; what was given up is so no longer."""
        if not self._has(WAITING):
            return came
        waiting = rows_at_once(self._transaction, WAITING, WAITING_SCHEMA)
        same = waiting.join(came.select("sequence_id").distinct(), "sequence_id", "left_semi")
        found = same.select(*DECODED_SCHEMA.fieldNames(), *PLACE)
        anew = {name: F.lit(None).cast("string") for name in VERDICT}
        return came.unionByName(found.withColumns(anew))

    def _wait(self, judged: DataFrame, *, some: bool) -> None:
        if not (some or self._has(WAITING)):
            return
        waited = rows_at_once(self._transaction, WAITING, WAITING_SCHEMA)
        waits = judged.where("part = 'waiting'").withColumn(GIVEN_UP, F.lit(None).cast("timestamp"))
        others = waited.join(judged.select("sequence_id").distinct(), "sequence_id", "left_anti")
        rows = waits.select(*WAITING_SCHEMA.fieldNames())
        self._transaction.replace(WAITING, rows.unionByName(others.select(*WAITING_SCHEMA.fieldNames())))

    def _whole(self, judged: DataFrame, known: DataFrame) -> DataFrame:
        """Complete sequences as the messages they are; those that cannot be used have their fate."""
        made = put_together(judged.where("part = 'complete'"), self._settings.rules)
        judged_whole = self._transaction.scratch(with_repeats(made, known=known))
        is_sound, is_repeat = F.col(ERROR_CODE).isNull(), F.col("is_repeat")
        unfit = judged_whole.where(~is_sound | is_repeat).select(F.explode(RECORDS).alias("place"), *VERDICT)
        of_parts = unfit.select("place.*", *VERDICT)
        duplicates = as_fates(of_parts.where(is_sound), Fate.DUPLICATE)
        self._transaction.append(FATES, as_fates(of_parts.where(~is_sound)).unionByName(duplicates))
        return judged_whole.where(is_sound & ~is_repeat).drop("is_repeat")

    def _settle(self, judged: DataFrame, whole: DataFrame | None) -> None:
        rows = settled(judged)
        if whole is None:
            told = rows.withColumn("message_id", F.lit(None).cast("string"))
        else:
            told = rows.join(whole.select("sequence_id", "message_id"), "sequence_id", "left")
        self._transaction.append(SEQUENCES, told.select(*SEQUENCES_SCHEMA.fieldNames()))

    def _has(self, name: str) -> bool:
        return self._transaction.has(name) and bool(self._transaction.files(name))

    def _note_parts(self, judged: DataFrame) -> None:
        duplicates = as_fates(judged.where("part = 'duplicate'"), Fate.DUPLICATE)
        refused = as_fates(judged.where("part = 'contradicting'"))
        self._transaction.append(FATES, duplicates.unionByName(refused))
