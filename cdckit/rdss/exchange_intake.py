"""One batch of messages on its way into an exchange's tables, within a transaction of its store."""

from __future__ import annotations

from datetime import UTC, datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdckit.rdss.decoding import decode
from cdckit.rdss.exchange_objects import Objects
from cdckit.rdss.exchange_repository import LocalRepository, as_noted
from cdckit.rdss.exchange_sequences import Sequences
from cdckit.rdss.exchange_tables import (
    FATES,
    FATES_SCHEMA,
    MESSAGES,
    MESSAGES_SCHEMA,
    PLACE,
    SEQUENCES,
    TABLES,
    Settings,
    as_fates,
    as_wholes,
    kept,
    rows_at_once,
    with_body,
)
from cdckit.rdss.fates import Fate, Status
from cdckit.rdss.repeats import IDENTITY, with_repeats
from cdckit.records import RECORD_COLUMNS
from cdckit.rejected import ERROR_CODE
from cdckit.store import Transaction
from cdckit.store.writing import Written

# Nobody has delivered what is to be sent, so it has not expired.
_BEFORE_ALL = datetime.min.replace(tzinfo=UTC)
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
        return self._transaction.append(MESSAGES, kept(decoded, self._batch))

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
        before = tables.read(MESSAGES).select(*RECORD_COLUMNS)
        decoded = decode(before, rules=self._settings.rules)
        tables.replace(MESSAGES, kept(decoded, self._batch))
        for name in TABLES:
            tables.drop(name)
        self._objects.forget()
        own = self._repository.forget()
        self._take(rows_at_once(tables, MESSAGES, MESSAGES_SCHEMA), own)

    # -----------------------------------------------------------------------------------------------------

    def _take(self, came: DataFrame, known: DataFrame | None) -> None:
        tables = self._transaction
        is_sound, is_part = F.col(ERROR_CODE).isNull(), F.col("sequence_total") > 1
        sorts = {tuple(row) for row in came.select(is_sound, is_part).distinct().collect()}
        repeated = with_repeats(came, known=known).where("is_repeat")
        noted = tables.append(FATES, as_fates(repeated, Fate.DUPLICATE))
        sound = came.where(is_sound)
        if noted.rows:
            again = rows_at_once(tables, FATES, FATES_SCHEMA, files=noted.files).select(*PLACE)
            sound = sound.join(again, list(PLACE), "left_anti")
        wholes = as_wholes(with_body(sound.where(~is_part)))
        if (True, True) in sorts:
            others = came.where(F.col(IDENTITY).isNotNull()).select(IDENTITY)
            ids = others if known is None else others.unionByName(known)
            whole = Sequences(tables, self._settings).take(with_body(sound.where(is_part)), ids)
            if whole is not None:
                wholes = wholes.unionByName(whole)
                self._repository.note(as_noted(whole), Status.RECEIVED)
        self._repository.note(came, Status.RECEIVED)
        if any(is_sound for is_sound, _ in sorts):
            self._objects.take(wholes)

    def own(self, records: DataFrame, status: Status) -> int:
        """Let messages of our own be known; how many sound ones there are."""
        decoded = decode(records.select(*RECORD_COLUMNS), now=_BEFORE_ALL, rules=self._settings.rules)
        return self._repository.note(as_noted(decoded.where(F.col(ERROR_CODE).isNull())), status)
