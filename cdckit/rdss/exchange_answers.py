"""What an exchange answers: messages with their fates, what waits, rejects, objects and packages."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument
from cdckit.history import (
    DELETED,
    FIELD_PROVENANCE,
    VALID_FROM,
    business_fields,
    require_free,
    require_history,
)
from cdckit.ledger import View
from cdckit.ledger.columns import BUCKETS
from cdckit.parts.arguments import quoted, require_columns, require_flag, require_types
from cdckit.rdss.exchange_tables import (
    GIVEN_UP,
    MESSAGES_SCHEMA,
    VERDICT,
    WAITING,
    WAITING_SCHEMA,
    Fate,
    Settings,
    Status,
    own_messages,
    status_of,
    wholes_of,
    with_body,
    with_fates,
)
from cdckit.rdss.objects import (
    PRESERVATION,
    READ,
    STATEMENT_SCHEMA,
    ObjectType,
    is_statement,
    reads,
    require_object_type,
)
from cdckit.rdss.queues import queued
from cdckit.rdss.reading import RULES, Rules
from cdckit.records import ERROR_CODE, RECORD_COLUMNS, REJECT_SCHEMA
from cdckit.store import Snapshot, Store
from cdckit.store.store import require_kind, rows_of

DELETE_REQUESTED = "delete_requested_timestamp"

_EVENT = ("preservationEventType", "preservationEventValue", "preservationEventDetail")
_PACKAGE = {
    "package_uuid": "packageUUID",
    "package_type": "packageType",
    "package_container_type": "packageContainerType",
    "package_description": "packageDescription",
    "event_type": f"packagePreservationEvent.{_EVENT[0]}",
    "event_value": f"packagePreservationEvent.{_EVENT[1]}",
    "event_detail": f"packagePreservationEvent.{_EVENT[2]}",
}
"""By column, the place of its value in the body."""

_BODY = T.StructType(
    [
        *(T.StructField(place, T.StringType()) for place in _PACKAGE.values() if "." not in place),
        T.StructField(
            "packagePreservationEvent", T.StructType([T.StructField(name, T.StringType()) for name in _EVENT])
        ),
    ]
)


def preservation_events(decoded: DataFrame) -> DataFrame:
    """
    What preservation systems have done with objects.

    Args:
        decoded: What `decode` returned, its sequences assembled; all but valid preservation events is
            passed over.

    Returns:
        One row per message: `message_id`, `published_timestamp`, `generator`, `tenant_jisc_id`,
        `return_address`; the object (`object_uuid`) and its package (`package_uuid`, `package_type`: SIP,
        AIP or DIP, `package_container_type`, `package_description`); and what was done (`event_type`,
        `event_value`, `event_detail`).  What a message does not say is null.  A redelivered message
        is there as often as it came.

    Raises:
        MissingColumns, WrongColumnType: *decoded* is not what `decode` returned.

    Cost: one filter and a projection, no shuffle.

    Source:
        RDSS, "Messages" (PreservationEvent).

    >>> events = preservation_events(decoded)
    >>> events.columns[-4:], events.count()
    (['package_description', 'event_type', 'event_value', 'event_detail'], 0)
    """
    require_types(decoded, STATEMENT_SCHEMA, function="preservation_events")
    events = decoded.where(is_statement(PRESERVATION)).withColumn("package", F.from_json("body", _BODY))
    said = (
        "message_id",
        "published_timestamp",
        "generator",
        "tenant_jisc_id",
        "return_address",
        "object_uuid",
    )
    values = (F.col(f"package.{place}").alias(name) for name, place in _PACKAGE.items())
    return events.select(*said, *values)


def as_preserved(history: DataFrame) -> DataFrame:
    """
    The history of a preservation system, which keeps what is deleted and marks it.

    A repository hides or removes what is deleted: that is the history as `merge` makes it.  A preservation
    system should ignore a delete, and may note that it was asked for.  So here a deleted version shows
    what its object had before, and the mark.  Whatever comes later goes on as it does everywhere: an object
    that is created anew is no longer marked.

    Args:
        history: One row per version of an object, such as `merge` makes of `changes`; all versions.

    Returns:
        The same rows, none of them deleted, and `delete_requested_timestamp`: the instant at which the
        object was to be deleted, null in the versions that are not marked.  In a marked version the fields
        and `field_provenance` are those of the last version that was not deleted; `source_message` is
        the delete's.

    Raises:
        InvalidArgument: *history* has such a column already, or is a bitemporal table.
        MissingColumns, WrongColumnType: *history* is none.

    Cost: one shuffle by guid and one sort.

    Source:
        RDSS, "Preservation Systems".

    >>> marked = as_preserved(history).where("number = 2").orderBy("valid_from_timestamp")
    >>> marked.select("name", "deleted_indicator", "delete_requested_timestamp").show()
    +----+-----------------+--------------------------+
    |name|deleted_indicator|delete_requested_timestamp|
    +----+-----------------+--------------------------+
    | mug|            false|                      NULL|
    | mug|            false|       2024-01-01 11:00:00|
    +----+-----------------+--------------------------+
    <BLANKLINE>
    """
    history = require_history(history, "guid", VALID_FROM, DELETED, function="as_preserved")
    require_columns(history, [FIELD_PROVENANCE], function="as_preserved")
    require_free(history, DELETE_REQUESTED, function="as_preserved")
    is_deleted = F.col(DELETED)
    kept = [*business_fields(history).fieldNames(), FIELD_PROVENANCE]
    so_far = (
        Window.partitionBy("guid")
        .orderBy(VALID_FROM)
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    alive = F.when(~is_deleted, F.struct(*map(quoted, kept)))
    known = history.withColumn("alive", F.last(alive, ignorenulls=True).over(so_far))
    columns = {
        **{name: F.col("alive").getField(name) for name in kept},
        DELETED: F.lit(False),
    }
    mark = F.when(is_deleted, F.col(VALID_FROM)).alias(DELETE_REQUESTED)
    return known.select(
        *(columns.get(name, F.col(quoted(name))).alias(name) for name in history.columns), mark
    )


EXCHANGE = "RDSS exchange (form 2)"

_TOLD = (
    *("message_id", "correlation_id", "message_class", "message_type", "sequence_id", "sequence_position"),
    *("sequence_total", "published_timestamp", "generator", "tenant_jisc_id", "object_uuid"),
)


class Answers:
    """
    The questions to an exchange; none of them writes.

    Each is answered from the newest commit, and the answer stays what it was while others write.

    Attributes:
        store: The store: `commits`, `compact`, `vacuum` and `check` are its own.
    """

    def __init__(
        self,
        spark: SparkSession,
        location: str | Path,
        *,
        types: Iterable[str] | None = None,
        keeps_deleted: bool = False,
        rules: Rules = RULES,
        buckets: int | None = None,
        storage_options: dict[str, str] | None = None,
    ) -> None:
        if isinstance(types, str):
            raise InvalidArgument("Exchange", "types", "a list of object types", types)
        chosen = list(ObjectType) if types is None else types
        kinds = tuple(dict.fromkeys(require_object_type(each, function="Exchange") for each in chosen))
        require_flag(keeps_deleted, "keeps_deleted", function="Exchange")
        if not isinstance(rules, Rules):
            raise InvalidArgument("Exchange", "rules", "an rdss.Rules", rules)
        self._settings = Settings(kinds, keeps_deleted, rules, buckets or BUCKETS)
        self.location = str(location)
        self._spark, self.store = spark, Store(spark, location, storage_options)
        self._snapshot()

    def messages(self) -> DataFrame:
        """
        Every message that came, and what became of it: the local data repository of the specification.

        Returns:
            One row per message that came: the columns of its record; of its header `message_id`,
            `correlation_id`, `message_class`, `message_type`, `sequence_id`, `sequence_position`,
            `sequence_total`, `published_timestamp`, `generator`, `tenant_jisc_id`; `object_uuid`; `status`
            (RECEIVED); `fate` (`Fate`); and of what is invalid or an error `queue`, `error_code` and
            `error_description`.  The parts of a longer message have one fate each: all that of the whole,
            once it is whole.
        """
        return with_fates(self._snapshot()).select(*RECORD_COLUMNS, *_TOLD, "status", "fate", *VERDICT)

    def own_messages(self) -> DataFrame:
        """
        The messages of our own that were noted (see `Exchange.note_own`).

        Returns:
            One row per message: `message_id`, `message_class`, `message_type`, `sequence_id`,
            `sequence_position` and `status`, TO_SEND or SENT.
        """
        return own_messages(self._snapshot())

    def status(self, message_id: str) -> Status | None:
        """
        What is known of a message: RECEIVED, or of one of our own TO_SEND or SENT; None if nothing is.

        So says the gateway's repository, too (`KnownMessages`).

        Cost: no job; the files of one bucket are read by this program.
        """
        return status_of(self._snapshot(), message_id)

    def waiting(self) -> DataFrame:
        """
        The parts whose sequences are not all there.

        Returns:
            One row per part: the columns of its record, `message_id`, `sequence_id`, `sequence_position`,
            `sequence_total`, `waiting_since` (when the first part of the sequence came) and `waiting_for`
            (how many parts are missing, and the first of them).  Those that were given up are not among them.
        """
        found = rows_of(self._snapshot(), WAITING, WAITING_SCHEMA).where(F.col(GIVEN_UP).isNull())
        place = ("message_id", "sequence_id", "sequence_position", "sequence_total")
        return found.select(*RECORD_COLUMNS, *place, "waiting_since", "waiting_for")

    def rejects(self) -> DataFrame:
        """
        The messages that cannot be used.

        Returns:
            One row per message (`cdckit.records.REJECT_SCHEMA`) as it came, which can be fed again once it
            is mended.  A message about an unknown object is used all the same if the object's create comes at
            last, and was published before it; a part that was given up, if the others come.
        """
        found = self.messages().where(F.col("fate").isin(Fate.INVALID.value, Fate.ERROR.value))
        return found.select(*REJECT_SCHEMA.fieldNames())

    def queued(self) -> DataFrame:
        """
        The same as the queues take them, decorated with their errors (see `queued`).

        Cost: they are read once more, in Python.
        """
        found = with_fates(self._snapshot()).where(F.col(ERROR_CODE).isNotNull())
        return queued(with_body(found), rules=self._settings.rules)

    def objects(
        self,
        object_type: str = ObjectType.RESEARCH_OBJECT,
        *,
        version: int | None = None,
        timestamp: datetime | None = None,
    ) -> View:
        """
        The ledger of one type of object: its `history`, its `changes`, its `as_of`.

        Args:
            object_type: The type (see `ObjectType`).
            version: The commit that is meant; the newest without it.
            timestamp: An instant, instead: the last commit until then.

        Raises:
            InvalidArgument: No ledger is kept of that type, there is no such commit, or *timestamp* is naive.
        """
        kind = self._settings.kind(self._type(object_type, "objects"))
        snapshot = self.store.snapshot(version, timestamp, function="objects")
        return View(snapshot, kind.noted(snapshot))

    def history(self, object_type: str = ObjectType.RESEARCH_OBJECT) -> DataFrame:
        """
        Every version of the objects of one type: of a preservation system as `as_preserved` has them.

        Raises:
            InvalidArgument: No ledger is kept of that type.
            NoSuchTable: No message has said anything of objects yet.
        """
        found = self.objects(object_type).history()
        return as_preserved(found) if self._settings.keeps_deleted else found

    def contracts(self) -> dict[str, object]:
        """
        The tables that have a suite of sentences, with its name, the ledgers by type: for `check_all`.

        Of the messages those that are no duplicates: of what comes again nothing is said but that.
        Each table is of the newest commit when it is made; a ledger's log and history are of one.
        """
        first = with_fates(self._snapshot()).where(F.col("fate") != Fate.DUPLICATE.value)
        return {
            "messages": (first, "rdss_messages"),
            "queued": (self.queued(), "rdss_queues"),
            "rejects": (self.rejects(), "rejects"),
            "objects": {str(each): self.objects(each) for each in self._settings.types},
        }

    def reads(self) -> DataFrame:
        """The requests to read an object, each with its response (see `reads`)."""
        return reads(self._processed(READ))

    def preservation_events(self) -> DataFrame:
        """What preservation systems have done with objects, each message once (see `preservation_events`)."""
        return preservation_events(self._processed(PRESERVATION))

    def _processed(self, message_type: str) -> DataFrame:
        """The whole messages of one type that were processed, in the columns of `decode`."""
        snapshot = self._snapshot()
        rows = with_fates(snapshot).where(F.col("fate") == Fate.PROCESSED.value)
        some = rows.where(F.col("message_type") == message_type).select(*MESSAGES_SCHEMA.fieldNames())
        return wholes_of(some, snapshot, self._settings.rules)

    def _type(self, object_type: str, function: str) -> ObjectType:
        found = require_object_type(object_type, function=function)
        if found not in self._settings.types:
            needed = f"one that the exchange keeps: {', '.join(self._settings.types)}"
            raise InvalidArgument(function, "object_type", needed, object_type)
        return found

    def _snapshot(self) -> Snapshot:
        found = self.store.snapshot()
        require_kind(found, EXCHANGE)
        return found
