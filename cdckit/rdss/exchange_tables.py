"""The tables of an exchange: what is kept of each message, and what became of it."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.ledger import shell
from cdckit.ledger.columns import Kind
from cdckit.ledger.shell import GIVEN_UP, MANY_FILES, WAITING
from cdckit.model.records import ERROR_CODE
from cdckit.parts.arrow_types import spark_columns
from cdckit.parts.workers import local_frame
from cdckit.rdss.decoding import DECODED_SCHEMA
from cdckit.rdss.erased_names import ErasedNames
from cdckit.rdss.existence import NAMING_SCHEMA
from cdckit.rdss.message_rows import VERDICT
from cdckit.rdss.object_bodies import KEY
from cdckit.rdss.objects import ObjectType
from cdckit.rdss.reading import Rules
from cdckit.rdss.sequence_rules import PARTS
from cdckit.rdss.sequences import IDENTITY, PARTS_SCHEMA, assemble_messages, identity, parts
from cdckit.store import File, Snapshot, Transaction
from cdckit.store.files import Where, hold_few_rows
from cdckit.store.store import Tables, read_note, read_rows


class Status(StrEnum):
    """
    Where a message stands, in the three words of the specification.

    >>> [str(each) for each in Status]
    ['RECEIVED', 'TO_SEND', 'SENT']
    """

    RECEIVED = "RECEIVED"
    TO_SEND = "TO_SEND"
    SENT = "SENT"


class Outcome(StrEnum):
    """
    What became of a message that was taken from a queue; each taken message has exactly one outcome.

    It is *waiting* until its handler is done, and then processed, or an error.  What is not valid is
    *invalid* or an *error*, by the queue that it is routed to.  A *duplicate* is a message that waits or was
    processed already, also one of our own, and a part whose content came before in its place.

    >>> print(*Outcome)
    waiting processed invalid error duplicate
    """

    WAITING = "waiting"
    PROCESSED = "processed"
    INVALID = "invalid"
    ERROR = "error"
    DUPLICATE = "duplicate"


MESSAGES, OUTCOMES, UNKNOWN = "messages", "outcomes", "unknown"
SEQUENCES, NAMINGS, REPOSITORY = "sequences", "namings", "repository"
TABLES = (OUTCOMES, WAITING, UNKNOWN, SEQUENCES, NAMINGS)
"""What is made of the messages, beside the ledgers."""

PLACE = ("batch", "number")
"""What tells rows of `MESSAGES` apart: the commit that brought them, and a number within it."""
ORDER = ("batch", "timestamp", "topic", "partition", "offset", "number")
"""The order in which messages came: batch after batch, and in a batch as their records say."""

BUCKET, TAKEN = "bucket", "taken"
RECORDS = "records"
ERASED = "ERASED"
"""In place of an error's code: of messages that are no more than the places where they stood."""

PLACE_SCHEMA = T.StructType([T.StructField(name, T.LongType()) for name in PLACE])
_PLACE_FIELDS = PLACE_SCHEMA.fields
_VERDICT_FIELDS = [DECODED_SCHEMA[name] for name in VERDICT]
_SLICE = ("body_from", "body_length")

MESSAGES_SCHEMA = T.StructType(
    [
        *(field for field in DECODED_SCHEMA if field.name != "body"),
        T.StructField("status", T.StringType()),
        *_PLACE_FIELDS,
        T.StructField(IDENTITY, T.StringType()),
        *(T.StructField(name, T.IntegerType()) for name in _SLICE),
    ]
)
"""One row is one message as it came, its header, and the verdict on it by itself.  The body is a part of the
value: only its place there is kept."""

OUTCOMES_SCHEMA = T.StructType([*_PLACE_FIELDS, T.StructField("outcome", T.StringType()), *_VERDICT_FIELDS])
"""One row is one message whose outcome is settled, and does not follow from the verdict on it alone."""

WAITING_SCHEMA = T.StructType(
    [*PARTS_SCHEMA.fields, *_PLACE_FIELDS, T.StructField(GIVEN_UP, T.TimestampType())]
)
"""One row is one part whose sequence is not all there; given up, it has its verdict."""

_RECORDS = T.ArrayType(T.StructType(_PLACE_FIELDS))
WHOLE_SCHEMA = T.StructType([*DECODED_SCHEMA.fields, T.StructField(RECORDS, _RECORDS)])
"""One row is one whole message, and the records that brought it; so are those about unknown objects kept."""

SEQUENCES_SCHEMA = T.StructType(
    [
        T.StructField("sequence_id", T.StringType()),
        *spark_columns(PARTS.states),
        T.StructField("message_id", T.StringType()),
        T.StructField("object_uuid", T.StringType()),
        T.StructField("last", PLACE_SCHEMA),
    ]
)
"""One row is one sequence that is whole, and what its parts were (see `SequenceParts`); `message_id` is null
where it is no message that can be used.  `object_uuid` is what it is about, and `last` the part with which it
was whole."""

NAMINGS_SCHEMA = T.StructType(
    [
        *NAMING_SCHEMA.fields,
        T.StructField("buckets", T.ArrayType(T.IntegerType())),
        T.StructField(TAKEN, T.LongType()),
        T.StructField(BUCKET, T.IntegerType()),
    ]
)
"""One row is one message and an object that it names, in the bucket of that object."""


@dataclass(frozen=True)
class Settings(shell.Settings):
    """What an exchange goes by; its tables are made by these."""

    types: tuple[ObjectType, ...]
    keeps_deleted: bool
    rules: Rules
    note_key = "cdckit.exchange"

    @property
    def noted(self) -> dict[str, Any]:
        types = [str(each) for each in self.types]
        return {"types": types, "keeps_deleted": self.keeps_deleted, "rules": asdict(self.rules)}

    def kind(self, object_type: ObjectType) -> Kind:
        """What the ledger of one type is about."""
        return Kind(str(object_type), (KEY,), self.buckets, False, str(object_type))

    def bucket(self, named: Column) -> Column:
        """The bucket of an object that is named, or of a message."""
        return F.pmod(F.crc32(F.encode(named, "utf-8")), F.lit(self.buckets)).cast("int")


def bucket_count(tables: Tables) -> int:
    """How many buckets the tables have."""
    return int(read_note(tables, Settings.note_key, {})["buckets"])


def rows_at_once(
    tables: Transaction,
    name: str,
    columns: T.StructType,
    where: Where | None = None,
    files: Iterable[File] | None = None,
) -> DataFrame:
    """Rows of a table; few of them as one partition, so that nothing that follows need be shuffled."""
    if not tables.has(name):
        return local_frame(tables.spark, [], columns).coalesce(1)
    some = tables.files(name, where) if files is None else list(files)
    rows = tables.read(name, where, some)
    return rows.coalesce(1) if hold_few_rows(some) else rows


def with_places(decoded: DataFrame, batch: int) -> DataFrame:
    """What `decode` returned of a batch, each row with its place."""
    places = {"batch": F.lit(batch).cast("long"), "number": F.monotonically_increasing_id()}
    return decoded.withColumns(places)


def to_message_rows(decoded: DataFrame) -> DataFrame:
    """The rows of `MESSAGES` for what `decode` returned, with their places."""
    text = F.col("value").cast("string")
    is_sound = F.col(ERROR_CODE).isNull()
    columns = {
        "status": F.lit(Status.RECEIVED.value),
        IDENTITY: identity(),
        "body_from": F.when(is_sound, F.call_function("locate", F.col("body"), text)),
        "body_length": F.when(is_sound, F.length("body")),
    }
    return decoded.withColumns(columns).select(*MESSAGES_SCHEMA.fieldNames())


def is_erased() -> Column:
    """Whether nothing is left of a message but its place."""
    return F.col(ERROR_CODE).eqNullSafe(ERASED)


def with_buckets(named: DataFrame, settings: Settings) -> DataFrame:
    """Rows of `NAMINGS`, each in the bucket of the object that it names."""
    buckets = {"buckets": F.transform("objects", settings.bucket), BUCKET: settings.bucket(F.col("named"))}
    return named.withColumns(buckets).select(*NAMINGS_SCHEMA.fieldNames())


def with_body(messages: DataFrame) -> DataFrame:
    """Rows of `MESSAGES` in the columns of `decode`, and those of their place; no body of what is refused."""
    body = F.substring(F.col("value").cast("string"), F.col("body_from"), F.col("body_length"))
    return messages.withColumn("body", body).select(*DECODED_SCHEMA.fieldNames(), *PLACE)


def as_outcomes(messages: DataFrame, outcome: Outcome | None = None) -> DataFrame:
    """Rows of `OUTCOMES`: messages, by their places, with an outcome, or with that of the queue of each."""
    stated = F.col("queue") if outcome is None else F.lit(outcome.value)
    verdict = (F.col(name) if outcome is None else F.lit(None).cast("string").alias(name) for name in VERDICT)
    return messages.select(*PLACE, stated.alias("outcome"), *verdict)


def to_whole_rows(messages: DataFrame) -> DataFrame:
    """Messages that came in one piece (`with_body`) as `WHOLE_SCHEMA`."""
    own = F.array(F.struct(*PLACE)).alias(RECORDS)
    return messages.select(*DECODED_SCHEMA.fieldNames(), own)


def assemble_wholes(complete: DataFrame, rules: Rules) -> DataFrame:
    """Messages whose parts are all there (rows of `parts`, with their places) as `WHOLE_SCHEMA`."""
    some = complete.where(F.col("part") == "complete")
    brought = some.groupBy("sequence_id").agg(F.collect_list(F.struct(*PLACE)).alias(RECORDS))
    assembled = assemble_messages(some.select(*PARTS_SCHEMA.fieldNames()), rules=rules)
    return assembled.join(brought, on="sequence_id", how="inner").select(*WHOLE_SCHEMA.fieldNames())


def find_wholes(messages: DataFrame, tables: Tables, rules: Rules) -> DataFrame:
    """The sound whole messages among rows of `MESSAGES`, of which all parts must be among them."""
    apart = read_rows(tables, OUTCOMES, OUTCOMES_SCHEMA).select(*PLACE)
    sound = with_body(messages.where(F.col(ERROR_CODE).isNull())).join(apart, list(PLACE), "left_anti")
    alone = to_whole_rows(sound.where("sequence_total = 1"))
    whole = assemble_wholes(parts(sound), rules).where(F.col(ERROR_CODE).isNull())
    return alone.unionByName(whole)


def with_outcomes(tables: Tables) -> DataFrame:
    """Every row of `MESSAGES` with its `outcome`, of one that was erased too, and the verdict that holds."""
    own = {name: F.col(name) for name in VERDICT}
    overdue = F.col(GIVEN_UP).isNotNull()
    waits = read_rows(tables, WAITING, WAITING_SCHEMA).select(
        *PLACE,
        F.when(overdue, F.col("queue")).otherwise(F.lit(Outcome.WAITING.value)).alias("outcome"),
        *VERDICT,
    )
    unknown = read_rows(tables, UNKNOWN, WHOLE_SCHEMA).select(F.explode(RECORDS).alias("place"), *VERDICT)
    refused = unknown.select("place.*", F.col("queue").alias("outcome"), *VERDICT)
    settled = read_rows(tables, OUTCOMES, OUTCOMES_SCHEMA).unionByName(waits).unionByName(refused)
    named = settled.select(*PLACE, "outcome", *(F.col(name).alias(f"settled_{name}") for name in VERDICT))
    found = read_rows(tables, MESSAGES, MESSAGES_SCHEMA).join(named, list(PLACE), "left")
    is_duplicate = F.col("outcome").eqNullSafe(Outcome.DUPLICATE.value)
    verdict = {
        name: F.when(~is_duplicate, F.coalesce(f"settled_{name}", column)) for name, column in own.items()
    }
    judged = F.coalesce("outcome", "queue", F.lit(Outcome.PROCESSED.value))
    outcome = F.when(is_erased(), _ERASED_OUTCOME).otherwise(judged)
    return found.withColumns({"outcome": outcome, **verdict}).drop(*(f"settled_{name}" for name in VERDICT))


_ERASED_OUTCOME = "erased"
_TOLD = ("message_class", "message_type", "sequence_id", "sequence_position")

REPOSITORY_SCHEMA = T.StructType(
    [
        T.StructField(IDENTITY, T.StringType()),
        *(DECODED_SCHEMA[name] for name in _TOLD),
        T.StructField("status", T.StringType()),
        T.StructField(BUCKET, T.IntegerType()),
    ]
)
"""One row is one message and a status that it had, in the bucket of what makes it the same message again.
Rows are only ever added: the status of a message is the last of its statuses, in the order of `STATUSES`."""

STATUSES = (Status.RECEIVED, Status.TO_SEND, Status.SENT)


class LocalRepository:
    """What a transaction does with the repository."""

    def __init__(self, transaction: Transaction, settings: Settings) -> None:
        self._transaction, self._settings = transaction, settings

    def buckets(self, came: DataFrame) -> list[int]:
        """The buckets of the messages that a batch can make whole, or bring again."""
        ids = came.select(F.coalesce(IDENTITY, "message_id").alias("id"))
        waiting = read_rows(self._transaction, WAITING, WAITING_SCHEMA)
        first = waiting.join(came.select("sequence_id").distinct(), "sequence_id", "left_semi")
        sought = ids.unionByName(first.select(F.col("message_id").alias("id")))
        names = ErasedNames.of(self._transaction)
        if names is not None:
            sought = sought.unionByName(sought.select(names.other_name(F.col("id")).alias("id")))
        found = sought.where("id is not null").select(self._settings.bucket(F.col("id"))).distinct()
        return sorted(row[0] for row in found.collect())

    def known_messages(self, came: DataFrame) -> DataFrame | None:
        """What makes messages the same again that were known before, in the buckets of these; and whose."""
        before = self._transaction.base
        if not before.has(REPOSITORY):
            return None
        return _repeat_keys(before.read(REPOSITORY, {BUCKET: self.buckets(came)}))

    def forget(self) -> DataFrame | None:
        """Keep our own messages alone, and return what makes them the same again; None if there are none."""
        tables = self._transaction
        if not tables.has(REPOSITORY):
            return None
        processed = tables.read(REPOSITORY).where(F.col("status") != Status.RECEIVED.value)
        own = tables.scratch(processed.withColumn(BUCKET, self._settings.bucket(F.col(IDENTITY))))
        tables.replace(REPOSITORY, own.repartition(BUCKET), partition_by=[BUCKET])
        return _repeat_keys(own)

    def note(self, messages: DataFrame, status: Status) -> int:
        """Let messages be known that have an `identity`; how many that are."""
        noted = messages.where(F.col(IDENTITY).isNotNull()).select(
            IDENTITY,
            *_TOLD,
            F.lit(status.value).alias("status"),
            self._settings.bucket(F.col(IDENTITY)).alias(BUCKET),
        )
        rows = noted.repartition(BUCKET)
        done = self._transaction.append(REPOSITORY, rows, partition_by=[BUCKET], compact_at=MANY_FILES)
        return done.rows


def _repeat_keys(rows: DataFrame) -> DataFrame:
    return rows.select(IDENTITY, (F.col("status") != Status.RECEIVED.value).alias("is_own"))


def to_note_rows(messages: DataFrame) -> DataFrame:
    """Whole messages, or parts of our own, by their ids: what `note` takes."""
    return messages.select(F.col("message_id").alias(IDENTITY), *_TOLD)


def own_messages(tables: Tables) -> DataFrame:
    """One row per message of our own, with the last of its statuses."""
    rows = read_rows(tables, REPOSITORY, REPOSITORY_SCHEMA)
    own = rows.where(F.col("status") != Status.RECEIVED.value)
    return own.groupBy(F.col(IDENTITY).alias("message_id")).agg(
        *(F.first(name).alias(name) for name in _TOLD), _last_status()
    )


def last_status(tables: Snapshot, message_id: str) -> Status | None:
    """The last status of a message; None if it is not known."""
    if not tables.has(REPOSITORY):
        return None
    ids = [message_id, *ErasedNames.other_names(tables, message_id)]
    buckets = {zlib.crc32(each.encode()) % bucket_count(tables) for each in ids}
    rows = tables.arrow(REPOSITORY, {BUCKET: sorted(buckets), IDENTITY: ids})
    found = pc.unique(rows["status"]).to_pylist()
    return max(map(Status, found), key=STATUSES.index, default=None)


def _last_status() -> Column:
    order = F.array(*(F.lit(each.value) for each in STATUSES))
    last = F.max(F.array_position(order, F.col("status")).cast("int"))
    return F.when(last.isNotNull(), F.element_at(order, last)).alias("status")
