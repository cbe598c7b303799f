"""What a service answers: its streams as its tables have them, what waits, and rejects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.ledger import View
from cdckit.ledger.columns import BUCKETS
from cdckit.merging import merge
from cdckit.parts.arguments import require_int
from cdckit.records import ERROR_CODE, ERROR_FIELDS, RECORD_COLUMNS, REJECT_SCHEMA
from cdckit.store import Snapshot, Store
from cdckit.store.store import require_kind, rows_of
from cdckit.streams.answers import ENTITY, SCHEMA_SCHEMA, entity_updates, require_limits, schema_updates
from cdckit.streams.batches import PATCH_SCHEMA, require_databases
from cdckit.streams.catalogue import (
    CHANGES_BY_DEVICE,
    COMPLETE_RESPONSES,
    CONNECTIONS,
    DEVICE_NOTIFICATIONS,
    ENTITY_BATCHES,
    ENTITY_PATCHES,
    ENTITY_UPDATES,
    PARTIAL_RESPONSES,
    SCHEMA_LEARNING,
    SCHEMA_PATCHES,
    SCHEMA_UPDATES,
    ZONE_CHANGES,
    Stream,
    require_stream,
)
from cdckit.streams.decoding import decode, record_columns
from cdckit.streams.entity_changes import Nested, changes
from cdckit.streams.responses import REQUEST_SCHEMA, partial_responses
from cdckit.streams.service_intake import (
    ANSWERS,
    CAME,
    CAME_SCHEMA,
    ENTITIES,
    ENTITIES_SCHEMA,
    LEARNED,
    LEARNED_TYPES_SCHEMA,
    PARTS,
    PARTS_SCHEMA,
    RECORDS,
    RECORDS_SCHEMA,
    REJECTS,
    REJECTS_SCHEMA,
    RESPONSES,
    RESPONSES_SCHEMA,
    SCHEMA_ANSWERS,
    SCHEMAS,
    SEEN,
    SEEN_SCHEMA,
    STREAM,
    TAKEN,
    TYPES,
    Settings,
    answers_of,
    subscriptions_kind,
    taken,
)
from cdckit.streams.type_learning import LEARNED_SCHEMA, TYPE_SCHEMA, schema_learning
from cdckit.streams.zones import (
    changes_by_device,
    device_notifications,
    subscription_changes,
    user_devices,
    zone_changes,
)

Told = Callable[[Snapshot, int | None], DataFrame]
"""A stream: of the tables as a commit has them, what has come after another commit, or all."""


def since(rows: DataFrame, after: int | None) -> DataFrame:
    """The rows that a commit after that one has brought; all without it."""
    return rows if after is None else rows.where(F.col(TAKEN) > after)


def entity_answers(tables: Snapshot, after: int | None = None) -> DataFrame:
    """The answers to patches of entities."""
    return since(answers_of(tables, ANSWERS), after)


def schema_answers(tables: Snapshot, after: int | None = None) -> DataFrame:
    """The answers to patches of schemas."""
    return since(answers_of(tables, SCHEMA_ANSWERS), after)


def subscriptions(tables: Snapshot) -> DataFrame:
    """The history of subscriptions, of which there may be none."""
    kind = subscriptions_kind()
    if tables.has(kind.history):
        return View(tables, kind.noted(tables)).history()
    nothing = subscription_changes(zone_changes(entity_answers(tables).where(F.lit(False))))
    return merge(nothing, entity=kind.entity, keys=list(kind.keys))


def connections(tables: Snapshot, after: int | None = None) -> DataFrame:
    """The connections that came."""
    return since(rows_of(tables, CAME, CAME_SCHEMA), after).drop(TAKEN)


def _batches(tables: Snapshot, after: int | None) -> DataFrame:
    came = since(rows_of(tables, RECORDS, RECORDS_SCHEMA), after)
    some = came.where(F.col(STREAM) == ENTITY_BATCHES.name).select(*RECORD_COLUMNS)
    return decode(some, ENTITY_BATCHES).where(F.col(ERROR_CODE).isNull())


def _patches(tables: Snapshot, after: int | None) -> DataFrame:
    # One that names no entity has a response, and no place in a stream whose key is the entity.
    named = reduce(Column.__and__, (F.col(name).isNotNull() for name in (*ENTITY, "ops")))
    return entity_answers(tables, after).where(named).select(*PATCH_SCHEMA.fieldNames())


def _schema_patches(tables: Snapshot, after: int | None) -> DataFrame:
    of_entities = {"learning", *ENTITY} - {"db"}
    names = (name for name in PATCH_SCHEMA.fieldNames() if name not in of_entities)
    return schema_answers(tables, after).select(*names)


def _updates(tables: Snapshot, after: int | None) -> DataFrame:
    return entity_updates(entity_answers(tables, after))


def _schema_updates(tables: Snapshot, after: int | None) -> DataFrame:
    return schema_updates(schema_answers(tables, after))


def _learning(tables: Snapshot, after: int | None) -> DataFrame:
    return schema_learning(entity_answers(tables, after), schema_answers(tables, after))


def _partial(tables: Snapshot, after: int | None) -> DataFrame:
    return partial_responses(entity_answers(tables, after), schema_answers(tables, after))


def _complete(tables: Snapshot, after: int | None) -> DataFrame:
    return since(rows_of(tables, RESPONSES, RESPONSES_SCHEMA), after).drop(TAKEN)


def _by_zone(tables: Snapshot, after: int | None) -> DataFrame:
    return zone_changes(entity_answers(tables, after))


def _by_device(tables: Snapshot, after: int | None) -> DataFrame:
    return changes_by_device(_by_zone(tables, after), subscriptions(tables))


def _notifications(tables: Snapshot, after: int | None) -> DataFrame:
    seen = rows_of(tables, SEEN, SEEN_SCHEMA)
    return device_notifications(_by_device(tables, None), user_devices(connections(tables)), seen)


TOLD: Mapping[str, Told] = {
    ENTITY_BATCHES.name: _batches,
    ENTITY_PATCHES.name: _patches,
    ENTITY_UPDATES.name: _updates,
    SCHEMA_PATCHES.name: _schema_patches,
    SCHEMA_UPDATES.name: _schema_updates,
    SCHEMA_LEARNING.name: _learning,
    PARTIAL_RESPONSES.name: _partial,
    COMPLETE_RESPONSES.name: _complete,
    CONNECTIONS.name: connections,
    ZONE_CHANGES.name: _by_zone,
    CHANGES_BY_DEVICE.name: _by_device,
    DEVICE_NOTIFICATIONS.name: _notifications,
}
"""By the name of a stream, how it is made."""


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
            One row per record (`cdckit.records.REJECT_SCHEMA`) as it came, which can be fed again once it is
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
