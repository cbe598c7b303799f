"""One batch of messages on its way into a service's tables: what is kept of it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdckit.ledger.intake import apply_within
from cdckit.model.records import RECORD_COLUMNS
from cdckit.parts.folded_rows import with_rule
from cdckit.parts.workers import run_together
from cdckit.shell.shell import MANY_FILES
from cdckit.shell.states_and_outcomes import OUTCOMES, STATES, FoldedRows, StatesAndOutcomes
from cdckit.store import File, Transaction
from cdckit.store.writing import WriteResult
from cdckit.streams.catalogue import STREAMS, SUBSCRIPTIONS
from cdckit.streams.service_erasure import drop_erased_patches
from cdckit.streams.service_rules import FAULT, TableRow, record_fault
from cdckit.streams.service_tables import (
    ANSWERS,
    BATCH,
    LEARNED,
    MADE,
    RECORDS,
    RECORDS_SCHEMA,
    RESPONSES,
    STREAM,
    SUBSCRIPTIONS_KIND,
    TAKEN,
    Settings,
    count_batches,
    note_batch_count,
    read_answers,
    table_rows,
)
from cdckit.streams.zones import subscription_changes, zone_changes


class Intake:
    """
    What a transaction does with messages: first `keep`, then `take`; or `rebuild` alone.

    All that it makes has the `number` of the batch.
    """

    def __init__(self, transaction: Transaction, settings: Settings) -> None:
        self._tables, self._settings = transaction, settings
        self.number = count_batches(transaction) + 1

    def keep(self, records: DataFrame, stream: str | None) -> WriteResult:
        """
        Write the records as they came, with what is wrong with each, and the stream that they are of: by
        their topics without one; but of patches of entities that were erased, what `drop_erased_patches`
        leaves of them.

        Cost: of earlier records those are read that have times and offsets such as these have.
        """
        named = F.when(F.col("topic").isin(*STREAMS), F.col("topic")) if stream is None else F.lit(stream)
        named_records = records.select(*RECORD_COLUMNS).withColumn(STREAM, named)
        received = drop_erased_patches(named_records, self._tables)
        checked = with_rule(received, received.columns, (STREAM, "value", "key"), record_fault, FAULT)
        places = {BATCH: F.lit(self.number).cast("long"), "number": F.monotonically_increasing_id()}
        note_batch_count(self._tables, self.number)
        kept = checked.withColumns(places).select(*RECORDS_SCHEMA.fieldNames())
        return self._drop_repeats(self._tables.append(RECORDS, kept))

    def _drop_repeats(self, written: WriteResult) -> WriteResult:
        """Take out records that an earlier batch has brought, as where a stream begins anew."""
        bounds = {
            name: (min(file.low[name] for file in bounded), max(file.high[name] for file in bounded))
            for name in ("timestamp", "offset")
            if (bounded := [file for file in written.files if name in file.low])
        }
        earlier = [file for file in self._tables.files(RECORDS, bounds) if file not in written.files]
        if not written.files or not earlier:
            return written
        news = self._tables.read(RECORDS, files=written.files)
        before = self._tables.read(RECORDS, bounds, earlier)
        # What was of no stream, or says something else, comes for the first time.
        compared = ("topic", "partition", "offset", "timestamp", "key", "value", STREAM)
        is_same = [news[name].eqNullSafe(before[name]) for name in compared]
        if news.join(before, is_same, "left_semi").isEmpty():
            return written
        kept = self._tables.swap(RECORDS, written.files, news.join(before, is_same, "left_anti"))
        self._tables.discard(RECORDS, written.files)
        return kept

    def take(self, files: Sequence[File]) -> None:
        """Bring the other tables up to records that were kept."""
        if not files:
            return
        folds = StatesAndOutcomes(self._tables, self._settings.folds(self.number))
        run_together(self._tables.spark, partial(self._write, folds.take(files)), MADE)
        self._subscribe()
        for grown in (RECORDS, OUTCOMES):
            self._tables.compact(grown, files=MANY_FILES)

    def rebuild(self) -> None:
        """Make everything anew from the records as they came, by the settings as they are now."""
        for name in (STATES, OUTCOMES, ANSWERS, LEARNED, RESPONSES):
            self._tables.drop(name)
        SUBSCRIPTIONS_KIND.forget(self._tables)
        note_batch_count(self._tables, self.number)
        self.take(self._tables.files(RECORDS))

    def _write(self, folded: FoldedRows, kind: type[TableRow]) -> None:
        self._tables.append(MADE[kind][0], table_rows(folded, kind), compact_at=MANY_FILES)

    def _subscribe(self) -> None:
        """Bring the ledger of subscriptions up to the answers."""
        where = {"collection": SUBSCRIPTIONS, TAKEN: [self.number]}
        if self._tables.files(ANSWERS, where):
            answers = read_answers(self._tables, where)
            if not answers.isEmpty():
                changes = subscription_changes(zone_changes(answers))
                apply_within(self._tables, SUBSCRIPTIONS_KIND, changes)
