"""What a service answers: the streams that it makes, what is known of entities, what waits, and rejects."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.ledger.kinds import BUCKETS
from cdckit.parts.arguments import require_int
from cdckit.rejected import ERROR_CODE, ERROR_FIELDS, REJECT_SCHEMA
from cdckit.store import Snapshot, Store
from cdckit.store.store import require_kind, rows_of
from cdckit.streams.answering import require_limits
from cdckit.streams.answers import ENTITY, SCHEMA_SCHEMA
from cdckit.streams.batches import require_databases
from cdckit.streams.catalogue import ENTITY_UPDATES, PARTIAL_RESPONSES, Stream, require_stream
from cdckit.streams.connections import user_devices
from cdckit.streams.entity_changes import Nested, changes
from cdckit.streams.messages import record_columns
from cdckit.streams.responses import REQUEST_SCHEMA
from cdckit.streams.service_streams import TOLD, connections, entity_answers, since, subscriptions
from cdckit.streams.service_tables import (
    ENTITIES,
    ENTITIES_SCHEMA,
    LEARNED,
    LEARNED_TYPES_SCHEMA,
    PARTS,
    PARTS_SCHEMA,
    REJECTS,
    REJECTS_SCHEMA,
    SCHEMAS,
    TYPES,
    Settings,
    taken,
)
from cdckit.streams.type_learning import LEARNED_SCHEMA, TYPE_SCHEMA

SERVICE = "Debezium streams (form 1)"


class Answers:
    """
    The questions to a service; none of them writes.

    Each is answered from the newest commit, and the answer stays what it was while others write.

    Attributes:
        store: The store: `commits`, `compact`, `vacuum` and `check` are its own.
    """

    def __init__(
        self,
        spark: SparkSession,
        location: str | Path,
        *,
        databases: Iterable[str] | None = None,
        most_characters: int = 1_000_000,
        remember: int = 100,
        buckets: int = BUCKETS,
        storage_options: dict[str, str] | None = None,
    ) -> None:
        chosen = require_databases(databases, function="Service")
        require_limits(most_characters, remember, function="Service")
        named = None if chosen is None else tuple(sorted(chosen))
        self._settings = Settings(named, most_characters, remember, buckets)
        self.location = str(location)
        self._spark, self.store = spark, Store(spark, location, storage_options)
        self._snapshot()

    def messages(self, stream: Stream, *, after: int | None = None) -> DataFrame:
        """
        The messages of one stream: of those that came, or of those that are made of them.

        Args:
            stream: Any stream of the page.
            after: The number of a batch, as `Received` has it, or `taken()`: only what was taken since is
                told, so that each batch can be sent on.  Of changes-by-device that is what follows from
                updates that were taken since; device-notifications are always as they are now.

        Returns:
            One row per message, in the columns that the function of that stream returns (`entity_updates`,
            `partial_responses` and so on): `to_records` makes records of them.

        Raises:
            InvalidArgument: *stream* is none.

        Cost: a filter of the answers, no shuffle; of changes-by-device and device-notifications, which are
        made anew each time since a subscription may come late, what the functions say.
        """
        require_stream(stream, function="messages")
        number = None if after is None else require_int(after, "after", function="messages")
        return TOLD[stream.name](self._snapshot(), number)

    def taken(self) -> int:
        """The number of the newest batch, counted from 1; `rebuild` counts as one, since all is made anew."""
        return taken(self._snapshot())

    def entities(self) -> DataFrame:
        """One row per entity that exists: its identity, `document` (JSON text), `revision`, `changed`."""
        found = rows_of(self._snapshot(), ENTITIES, ENTITIES_SCHEMA).where(F.col("document").isNotNull())
        return found.select(*ENTITY, "document", "revision", "changed")

    def schemas(self) -> DataFrame:
        """One row per database that has a schema: `db`, `document` (JSON text), `revision`, `changed`."""
        found = rows_of(self._snapshot(), SCHEMAS, SCHEMA_SCHEMA).where(F.col("document").isNotNull())
        return found.select("db", "document", "revision", "changed")

    def entity_types(self) -> DataFrame:
        """One row per entity type: `db`, `collection`, `entity_type` (JSON text), as it is known now."""
        found = rows_of(self._snapshot(), TYPES, TYPE_SCHEMA)
        return found.select("db", "collection", "entity_type")

    def learned_types(self, *, after: int | None = None) -> DataFrame:
        """The entity types as they were learnt, a row for each change (see `learned_types`)."""
        found = since(rows_of(self._snapshot(), LEARNED, LEARNED_TYPES_SCHEMA), after)
        return found.select(*LEARNED_SCHEMA.fieldNames())

    def changes(self, collection: str, fields: T.StructType, *, nested: Nested = "dotted") -> DataFrame:
        """The changes of the entities of one collection, for `merge` or a ledger (see `changes`)."""
        return changes(entity_answers(self._snapshot()), collection, fields, nested=nested)

    def subscriptions(self) -> DataFrame:
        """The history of subscriptions to zones, kept in a ledger: one row per version."""
        return subscriptions(self._snapshot())

    def contracts(self) -> dict[str, object]:
        """
        The tables that have a suite of sentences, with its name: for `check_all`.

        Each is of the newest commit when it is made; no suite compares one with another.
        """
        return {
            "updates": (self.messages(ENTITY_UPDATES), "debezium_updates"),
            "subscriptions": (self.subscriptions(), "history"),
            "rejects": (self.rejects(), "rejects"),
        }

    def devices(self) -> DataFrame:
        """The devices of each user (see `user_devices`)."""
        return user_devices(connections(self._snapshot()))

    def waiting(self) -> DataFrame:
        """
        The partial responses whose requests are not complete.

        Returns:
            One row per response (`REQUEST_SCHEMA`), with `waiting_since` and `waiting_for`.  Those that were
            given up are not among them.
        """
        found = rows_of(self._snapshot(), PARTS, PARTS_SCHEMA).where(F.col(ERROR_CODE).isNull())
        return found.select(*REQUEST_SCHEMA.fieldNames())

    def rejects(self) -> DataFrame:
        """
        The messages that cannot be used.

        Returns:
            One row per record (`cdckit.rejected.REJECT_SCHEMA`) as it came, which can be fed again once it is
            mended; and per partial response whose others contradict it, or did not come in time: as the
            record that it would be, without an offset.
        """
        snapshot = self._snapshot()
        came = rows_of(snapshot, REJECTS, REJECTS_SCHEMA).select(*REJECT_SCHEMA.fieldNames())
        parts = rows_of(snapshot, PARTS, PARTS_SCHEMA).where(F.col(ERROR_CODE).isNotNull())
        return came.unionByName(_as_rejects(parts))

    def _snapshot(self) -> Snapshot:
        found = self.store.snapshot()
        require_kind(found, SERVICE)
        return found


def _as_rejects(parts: DataFrame) -> DataFrame:
    """Responses that cannot be used, as the records that they would be."""
    known = record_columns(parts, PARTIAL_RESPONSES)
    own = {"timestamp", *(field.name for field in ERROR_FIELDS)}
    columns = (
        known.get(field.name, F.col(field.name) if field.name in own else F.lit(None))
        .cast(field.dataType)
        .alias(field.name)
        for field in REJECT_SCHEMA
    )
    return parts.select(*columns)
