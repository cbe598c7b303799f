"""The tables of an exchange: what is kept of each message, and what became of it."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.ledger.kind import Kind
from cdckit.model.faults import ERROR_CODE, ERROR_DESCRIPTION
from cdckit.model.records import RECORD_SCHEMA
from cdckit.parts.arrow_types import spark_columns
from cdckit.rdss.decoding import with_body
from cdckit.rdss.exchange_rows import ERASED, READS, RECORD, ExchangeRules, Names, Row, read_rows
from cdckit.rdss.exchange_rules import FOLDS, Identity
from cdckit.rdss.findings import BODY, RdssFault, json_path
from cdckit.rdss.message_assembly import PARTS_SCHEMA, assemble_messages
from cdckit.rdss.message_rows import VERDICT
from cdckit.rdss.message_types import FAULTS, UNKNOWN_CODES
from cdckit.rdss.object_bodies import KEY
from cdckit.rdss.objects import ObjectType
from cdckit.rdss.outcomes import STATUSES, Outcome, Status
from cdckit.rdss.reading import Rules
from cdckit.rdss.sequence_rules import PartOutcome
from cdckit.shell import settings
from cdckit.shell.states_and_outcomes import PLACE, PLACE_SCHEMA, DoorFolds, last_outcomes, state_of
from cdckit.store import Snapshot, Transaction
from cdckit.store.reading import read_batches
from cdckit.store.store import Tables, read_note, write_note
from cdckit.store.store import read_rows as read_table

MESSAGES, OWN, ERASED_NAMES = "messages", "own", "erased_names"

MESSAGES_SCHEMA = T.StructType([*RECORD_SCHEMA, *PLACE_SCHEMA, *spark_columns(RECORD)])
"""One row is one message as it came, its header, and the verdict on it by itself.  The body is a part of the
value: only its place there is kept."""

_NOTED = ("message_id", "message_class", "message_type", "sequence_id", "sequence_position")

_IDENTITY, _STATUS = (T.StructField(name, T.StringType()) for name in ("identity", "status"))
OWN_SCHEMA = T.StructType([_IDENTITY, *(MESSAGES_SCHEMA[name] for name in _NOTED), _STATUS])
"""One row is one message of our own, or a part of one, and a status that it had; `identity` is its other
name, which is left of one that was erased."""

ERASED_NAMES_SCHEMA = T.StructType().add("name", "string").add("of", "string").add("refuses", "boolean")
"""One row is an object or a sequence that was erased, by its other name; of an object beside it whether
messages about it that come later are refused."""

OBJECT, SEQUENCE = "object", "sequence"
NAMES_NOTE = "cdckit.exchange.names"


@dataclass(frozen=True)
class Settings(settings.Settings):
    """What an exchange goes by; its tables are made by these."""

    types: tuple[ObjectType, ...]
    keeps_deleted: bool
    rules: Rules
    note_key = "cdckit.exchange"

    @property
    def noted(self) -> dict[str, Any]:
        types = [str(object_type) for object_type in self.types]
        return {"types": types, "keeps_deleted": self.keeps_deleted, "rules": asdict(self.rules)}

    def kind(self, object_type: ObjectType) -> Kind:
        """Describe the ledger of one type."""
        return Kind(str(object_type), (KEY,), by_guid=False, name=str(object_type))

    def folds(self, tables: Transaction) -> DoorFolds:
        """Name what is folded in a transaction, by what was erased until now."""
        erased = list(rows_here(tables, ERASED_NAMES, ERASED_NAMES_SCHEMA))
        objects = {row["name"]: row["refuses"] for row in erased if row["of"] == OBJECT}
        sequences = frozenset(row["name"] for row in erased if row["of"] == SEQUENCE)
        rules = ExchangeRules(names_within(tables), self.rules, self.keeps_deleted, objects, sequences)
        # Where nothing was sent, no part can come back.
        folds = FOLDS if tables.has(OWN) else FOLDS[1:]
        return DoorFolds(MESSAGES, READS, read_rows, Row, folds, rules)


def names_within(tables: Transaction) -> Names:
    """Name what a store's states know; whoever is the first settles it."""
    secret = read_note(tables, NAMES_NOTE, None)
    if secret is None:
        secret = secrets.token_hex(32)
        write_note(tables, NAMES_NOTE, secret)
    return Names(secret)


def rows_here(tables: Transaction, name: str, columns: T.StructType) -> Iterable[dict[str, Any]]:
    """The rows of a small table, read by this program."""
    if tables.has(name):
        target = tables.target(name, columns)
        for file in tables.files(name):
            for batch in read_batches(target, file.path):
                yield from batch.to_pylist()


def is_erased() -> Column:
    """Tell whether nothing is left of a message but its place."""
    return F.col(ERROR_CODE).eqNullSafe(ERASED)


def whole_messages(rows: DataFrame, tables: Tables, rules: Rules) -> DataFrame:
    """Sound messages, of which all parts are among these rows of `MESSAGES`, in the columns of `decode`."""
    sound = rows.where(F.col(ERROR_CODE).isNull())
    alone = with_body(sound.where("sequence_total = 1"))
    if not (tables.has(MESSAGES) and tables.files(MESSAGES, {"sequence_total": (2, None)})):
        return alone
    complete = {
        "part": F.lit(PartOutcome.COMPLETE.value),
        "waiting_since": F.lit(None),
        "waiting_for": F.lit(None),
    }
    parts = with_body(sound.where("sequence_total > 1")).withColumns(complete)
    typed = (F.col(field.name).cast(field.dataType).alias(field.name) for field in PARTS_SCHEMA)
    return alone.unionByName(assemble_messages(parts.select(*typed), rules=rules))


def with_outcomes(tables: Tables) -> DataFrame:
    """Every row of `MESSAGES` with its `outcome`, of one that was erased too, and the verdict that holds."""
    names = (ERROR_CODE, ERROR_DESCRIPTION)
    outcomes = last_outcomes(tables).withColumnsRenamed(
        {name: f"said_{name}" for name in (*names, "outcome")}
    )
    messages = read_table(tables, MESSAGES, MESSAGES_SCHEMA).join(outcomes, list(PLACE), "left")
    is_said = F.col("said_outcome").isNotNull() & ~is_erased()
    outcome = F.coalesce("said_outcome", "queue", F.lit(Outcome.PROCESSED.value))
    is_refused = F.col("said_outcome").isin(Outcome.INVALID.value, Outcome.ERROR.value)
    is_unknown = F.col("said_error_code").isin(*UNKNOWN_CODES)
    sentence = object_fault(F.coalesce("object_uuid", "about"))[ERROR_DESCRIPTION]
    verdict = {
        "queue": F.when(is_refused, F.col("said_outcome")),
        ERROR_CODE: F.col(f"said_{ERROR_CODE}"),
        ERROR_DESCRIPTION: F.when(is_unknown, sentence).otherwise(F.col(f"said_{ERROR_DESCRIPTION}")),
    }
    return messages.withColumns(
        {
            "outcome": F.when(is_erased(), ERASED.lower()).otherwise(outcome),
            **{name: F.when(is_said, verdict[name]).otherwise(F.col(name)) for name in VERDICT},
        }
    )


def object_fault(about: Column) -> dict[str, Column]:
    """The verdict on a message *about* an unknown object: what its columns have then."""
    place = f" At {json_path((*BODY, KEY))}: no object "
    return {
        "queue": _text_by_type(lambda fault: fault.queue.value),
        ERROR_CODE: _text_by_type(lambda fault: fault.value),
        ERROR_DESCRIPTION: F.concat(
            _text_by_type(lambda fault: f"{fault.describe()}{place}"),
            about,
            F.lit(" was known when the message was published."),
        ),
    }


def _text_by_type(text: Callable[[RdssFault], str]) -> Column:
    """Say something of a message by its type."""
    return F.coalesce(*(F.when(F.col("message_type") == name, text(fault)) for name, fault in FAULTS.items()))


def own_messages(tables: Tables) -> DataFrame:
    """One row per message of our own, with the last of its statuses."""
    sent = read_table(tables, OWN, OWN_SCHEMA).where("message_id IS NOT NULL")
    order = F.array(*(F.lit(status.value) for status in STATUSES))
    last = F.max(F.array_position(order, F.col("status")).cast("int"))
    first = (F.first(name).alias(name) for name in _NOTED if name != "message_id")
    return sent.groupBy("message_id").agg(*first, F.element_at(order, last).alias("status"))


def last_status(tables: Snapshot, message_id: str) -> Status | None:
    """The last status of a message; None if it is not known."""
    secret = read_note(tables, NAMES_NOTE, None)
    if secret is None:
        return None
    state = state_of(tables, Identity, Names(secret).of(message_id))
    return None if state is None else Status(state.decode())
