"""The streams of the page as a service's tables have them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdckit.ledger import View
from cdckit.merging import merge
from cdckit.records import ERROR_CODE, RECORD_COLUMNS
from cdckit.store import Snapshot
from cdckit.store.store import read_rows
from cdckit.streams.answers import ENTITY, entity_updates, schema_updates
from cdckit.streams.batches import PATCH_SCHEMA
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
)
from cdckit.streams.decoding import decode
from cdckit.streams.responses import partial_responses
from cdckit.streams.service_intake import (
    ANSWERS,
    CAME,
    CAME_SCHEMA,
    RECORDS,
    RECORDS_SCHEMA,
    RESPONSES,
    RESPONSES_SCHEMA,
    SCHEMA_ANSWERS,
    SEEN,
    SEEN_SCHEMA,
    STREAM,
    TAKEN,
    read_answers,
    subscriptions_kind,
)
from cdckit.streams.type_learning import schema_learning
from cdckit.streams.zones import (
    changes_by_device,
    device_notifications,
    subscription_changes,
    user_devices,
    zone_changes,
)

StreamReader = Callable[[Snapshot, int | None], DataFrame]
"""A stream: of the tables as a commit has them, what has come after another commit, or all."""


def rows_since(rows: DataFrame, after: int | None) -> DataFrame:
    """The rows that a commit after that one has brought; all without it."""
    return rows if after is None else rows.where(F.col(TAKEN) > after)


def entity_answers(tables: Snapshot, after: int | None = None) -> DataFrame:
    """The answers to patches of entities."""
    return rows_since(read_answers(tables, ANSWERS), after)


def schema_answers(tables: Snapshot, after: int | None = None) -> DataFrame:
    """The answers to patches of schemas."""
    return rows_since(read_answers(tables, SCHEMA_ANSWERS), after)


def subscriptions(tables: Snapshot) -> DataFrame:
    """The history of subscriptions, of which there may be none."""
    kind = subscriptions_kind()
    if tables.has(kind.history):
        return View(tables, kind.stored_kind(tables)).history()
    nothing = subscription_changes(zone_changes(entity_answers(tables).where(F.lit(False))))
    return merge(nothing, entity=kind.entity, keys=list(kind.keys))


def connections(tables: Snapshot, after: int | None = None) -> DataFrame:
    """The connections that came."""
    return rows_since(read_rows(tables, CAME, CAME_SCHEMA), after).drop(TAKEN)


def _batches(tables: Snapshot, after: int | None) -> DataFrame:
    came = rows_since(read_rows(tables, RECORDS, RECORDS_SCHEMA), after)
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
    return rows_since(read_rows(tables, RESPONSES, RESPONSES_SCHEMA), after).drop(TAKEN)


def _by_zone(tables: Snapshot, after: int | None) -> DataFrame:
    return zone_changes(entity_answers(tables, after))


def _by_device(tables: Snapshot, after: int | None) -> DataFrame:
    return changes_by_device(_by_zone(tables, after), subscriptions(tables))


def _notifications(tables: Snapshot, after: int | None) -> DataFrame:
    seen = read_rows(tables, SEEN, SEEN_SCHEMA)
    return device_notifications(_by_device(tables, None), user_devices(connections(tables)), seen)


STREAM_READERS: Mapping[str, StreamReader] = {
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
