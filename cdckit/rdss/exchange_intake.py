"""One batch of messages on its way into an exchange's tables, within a transaction of its store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdckit.ledger.erasure.tombstones import DESCRIPTIONS, ENTITY_ERASED
from cdckit.ledger.intake import apply_within, withdraw_within
from cdckit.model.faults import ERROR_CODE, ERROR_DESCRIPTION
from cdckit.model.records import RECORD_COLUMNS
from cdckit.parts.arrow_types import arrow_schema, spark_columns
from cdckit.parts.folded_rows import with_rule
from cdckit.parts.kept_folds import Place
from cdckit.parts.workers import WorkerPlan, compute_once, local_frame, run_together
from cdckit.rdss.decoding import decode
from cdckit.rdss.exchange_erasure import forget_sequences, is_refused, note_refused
from cdckit.rdss.exchange_rows import RECORD, ErasedWhole, LedgerVerdict, OwnMessage, read_record
from cdckit.rdss.exchange_tables import (
    MESSAGES,
    MESSAGES_SCHEMA,
    OWN,
    OWN_SCHEMA,
    Settings,
    is_erased,
    names_within,
    rows_here,
    whole_messages,
)
from cdckit.rdss.message_rows import BEFORE_ALL
from cdckit.rdss.object_bodies import KEY
from cdckit.rdss.objects import ObjectType, changes
from cdckit.rdss.outcomes import Status
from cdckit.shell.states_and_outcomes import (
    MANY_FILES,
    OUTCOMES,
    PLACE,
    PLACE_SCHEMA,
    STATES,
    WRITTEN,
    FoldedRows,
    StatesAndOutcomes,
    tuple_batch,
)
from cdckit.store import Transaction
from cdckit.store.writing import WriteResult

_VERDICTS = pa.schema([*((name, pa.int64()) for name in (*PLACE, WRITTEN)), ("is_accepted", pa.bool_())])


class Intake:
    """What a transaction does with messages: first `keep`, then `take`; or `rebuild` alone."""

    def __init__(self, transaction: Transaction, settings: Settings) -> None:
        self._tables, self._settings = transaction, settings
        self._batch = (transaction.base.version or 0) + 1
        self._folds = settings.folds(transaction)

    def keep(self, records: DataFrame) -> WriteResult:
        """Write the messages as they came, with what their headers say and the verdict on each by itself."""
        places = {"batch": F.lit(self._batch).cast("long"), "number": F.monotonically_increasing_id()}
        return self._tables.append(
            MESSAGES, self._decode(records.select(*RECORD_COLUMNS).withColumns(places))
        )

    def take(self, written: WriteResult) -> None:
        """Bring the other tables up to messages that were kept."""
        if not written.files:
            return
        tables = self._tables
        if self._folds.settings.erased_objects:
            messages = tables.read(MESSAGES, files=written.files)
            note_refused(messages.where(is_refused()), tables, self._settings)
        self._follow(self._states_and_outcomes().take(written.files))
        for grown in (MESSAGES, OUTCOMES):
            tables.compact(grown, files=MANY_FILES)

    def rebuild(self) -> None:
        """Make everything anew from the messages as they came, by the settings as they are now."""
        tables = self._tables
        before = tables.read(MESSAGES)
        kept = before.where(~is_erased()).select(*RECORD_COLUMNS, *PLACE)
        tables.replace(MESSAGES, self._decode(kept).unionByName(before.where(is_erased())))
        for name in (STATES, OUTCOMES):
            tables.drop(name)
        for object_type in ObjectType:
            self._settings.kind(object_type).forget(tables)
        folds = self._states_and_outcomes()
        sent = rows_here(tables, OWN, OWN_SCHEMA)
        folds.take_rows([OwnMessage(row["identity"], row["status"]) for row in sent])
        self._follow(folds.take(tables.files(MESSAGES)))

    def own(self, records: DataFrame, status: Status) -> int:
        """Let messages of our own be known; how many sound ones there are."""
        tables, names = self._tables, names_within(self._tables)
        # Nobody has delivered what is to be sent, so it has not expired.
        decoded = decode(records.select(*RECORD_COLUMNS), now=BEFORE_ALL, rules=self._settings.rules)
        noted = [name for name in OWN_SCHEMA.names if name not in ("identity", "status")]
        sound = decoded.where(F.col(ERROR_CODE).isNull()).select(*noted).toArrow().to_pylist()
        rows = [{"identity": names.of(row["message_id"]), **row, "status": status.value} for row in sound]
        table = pa.Table.from_pylist(rows, arrow_schema(OWN_SCHEMA))
        tables.append(OWN, table, compact_at=MANY_FILES)
        self._states_and_outcomes().take_rows([OwnMessage(row["identity"], status.value) for row in rows])
        return len(rows)

    # -----------------------------------------------------------------------------------------------------

    def _states_and_outcomes(self) -> StatesAndOutcomes:
        return StatesAndOutcomes(self._tables, self._folds)

    def _decode(self, records: DataFrame) -> DataFrame:
        """Rows of `MESSAGES` for records with their places; of what was erased the places alone."""
        rule = partial(read_record, settings=self._folds.settings)
        rows = with_rule(records, [*RECORD_COLUMNS, *PLACE], ["value", "timestamp"], rule, RECORD)
        if self._folds.settings.erased_objects or self._folds.settings.erased_sequences:
            contents = {name: F.when(~is_erased(), F.col(name)) for name in ("key", "value", "headers")}
            sentence = F.when(is_refused(), DESCRIPTIONS[ENTITY_ERASED]).otherwise(F.col(ERROR_DESCRIPTION))
            rows = rows.withColumns({**contents, ERROR_DESCRIPTION: sentence})
        return rows.select(*MESSAGES_SCHEMA.fieldNames())

    def _follow(self, folded: FoldedRows) -> None:
        """Bring the ledgers up to verdicts, and erase what turned out to be about who was erased."""
        tables, settings = self._tables, self._settings
        erased = [row for row in folded.few if isinstance(row, ErasedWhole)]
        if folded.many is not None and self._folds.settings.erased_objects:
            rows = folded.many.where(F.col("kind") == ErasedWhole.__name__).select("row").collect()
            erased = [msgspec.msgpack.decode(row["row"], type=ErasedWhole) for row in rows]
        if erased:
            forget_sequences(tables, settings, erased)
        accepted, refused = (
            self._verdicts_here(folded.few) if folded.many is None else self._verdicts(folded.many)
        )
        if refused is not None:
            withdrawn = refused.select(F.col("object_uuid").alias(KEY), "message_id")
            for object_type in settings.types:
                withdraw_within(tables, settings.kind(object_type), withdrawn)
        if accepted is not None:

            def apply(object_type: ObjectType) -> None:
                apply_within(tables, settings.kind(object_type), changes(accepted, object_type))

            run_together(tables.spark, apply, settings.types)

    def _verdicts_here(self, rows: Iterable[object]) -> tuple[DataFrame | None, DataFrame | None]:
        """The whole messages that ledgers are to have, and those that they are to have no more: of few."""
        verdicts = dict[Place, bool]()
        for row in rows:
            if isinstance(row, LedgerVerdict):
                verdicts |= dict.fromkeys(row.places, row.is_accepted)
        accepted = [place for place, is_accepted in verdicts.items() if is_accepted]
        refused = [
            place for place, is_accepted in verdicts.items() if not is_accepted and place[0] < self._batch
        ]
        return self._few_messages(accepted), self._few_messages(refused)

    def _few_messages(self, places: list[Place]) -> DataFrame | None:
        if not places:
            return None
        batches, numbers = (sorted(set(values)) for values in zip(*places, strict=True))
        rows = self._tables.read(MESSAGES, {"batch": batches, "number": numbers})
        some = rows.join(
            F.broadcast(local_frame(self._tables.spark, places, PLACE_SCHEMA)), [*PLACE], "left_semi"
        )
        return compute_once(whole_messages(some, self._tables, self._settings.rules), few=True)

    def _verdicts(self, rows: DataFrame) -> tuple[DataFrame | None, DataFrame | None]:
        """Judge many of them."""
        stated = rows.where(F.col("kind") == LedgerVerdict.__name__)
        last = WorkerPlan(stated, _read_verdicts, spark_columns(_VERDICTS)).rows().groupBy(*PLACE)
        verdicts = self._tables.scratch(last.agg(F.max_by("is_accepted", WRITTEN).alias("is_accepted")))
        is_refused = ~F.col("is_accepted") & (F.col("batch") < self._batch)
        chosen = (verdicts.where("is_accepted"), verdicts.where(is_refused))
        accepted, refused = (None if places.isEmpty() else self._many_messages(places) for places in chosen)
        return accepted, refused

    def _many_messages(self, places: DataFrame) -> DataFrame:
        rows = self._tables.read(MESSAGES).join(places, [*PLACE], "left_semi")
        return self._tables.scratch(whole_messages(rows, self._tables, self._settings.rules))


def _read_verdicts(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    read = msgspec.msgpack.Decoder(LedgerVerdict).decode
    for batch in batches:
        rows, written = (batch.column(name).to_pylist() for name in ("row", WRITTEN))
        verdicts = zip(map(read, rows), written, strict=True)
        by_place = [(*place, turn, row.is_accepted) for row, turn in verdicts for place in row.places]
        yield tuple_batch(by_place, _VERDICTS)
