"""
The streams of the Debezium prototype of 2014: requests to change entities, and what is derived from them.

    batches = streams.decode(records, streams.ENTITY_BATCHES)     requests, each about several entities
    patches = streams.entity_patches(batches, databases=["shop"]) each entity's part of them
    answers = streams.apply_patches(patches, known=known)         what became of each patch
    known = streams.entities(answers, known)                      what is known of the entities then
    updates = streams.entity_updates(answers)                     those that changed something
    answers = streams.apply_schema_patches(patches, known=…)      the same for the schemas of databases
    partial = streams.partial_responses(answers, …)               a response to each patch
    parts = streams.response_parts(partial)                       whether all of a request are there
    whole = streams.complete_responses(parts)                     one response to each request
    late = streams.waiting(parts, now=…)                          those that wait for others
    lessons = streams.learn(streams.schema_learning(answers), known=types)      what each update taught
    types = streams.entity_types(lessons, types)                  what is known of entity types then
    told = streams.learned_types(lessons)                         a row whenever one changed
    devices = streams.user_devices(connections)                   who uses which device, and since when
    zones = streams.zone_changes(answers)                         updates by zone, and subscriptions to them
    told = streams.changes_by_device(zones, subscriptions)        what each device is to be told
    left = streams.device_notifications(told, devices, seen)      what it has not acknowledged
    changes = streams.changes(answers, "Contacts", fields)        of the entities of a collection, for `merge`
    records = streams.to_records(messages, streams.ENTITY_UPDATES)     any of them, to be written to Kafka
    left = streams.compact_records(records, stream, now=…, keep=…)  what time-based compaction leaves

All of it kept up, batch by batch, in a store:

    service = streams.Service(spark, "shop")
    service.receive(records, "monday")                            requests of any stream, once for each batch
    service.messages(streams.ENTITY_UPDATES)                      any stream that is made of them

Each stream is a value (`Stream`): its fields, its key, what it is partitioned by, what may be dropped of it.
"""

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
    STREAMS,
    ZONE_CHANGES,
    Status,
    Stream,
    StreamFault,
)
from cdckit.streams.compaction import compact_records
from cdckit.streams.decoding import decode, to_records
from cdckit.streams.entity_changes import KEYS, changes, type_fields
from cdckit.streams.requests import (
    apply_patches,
    apply_schema_patches,
    entities,
    entity_patches,
    entity_updates,
    schema_updates,
)
from cdckit.streams.responses import complete_responses, partial_responses, response_parts, waiting
from cdckit.streams.service import Service
from cdckit.streams.type_learning import entity_types, learn, learned_types, schema_learning
from cdckit.streams.zones import (
    app_versions,
    changes_by_device,
    device_notifications,
    subscription_changes,
    user_devices,
    zone_changes,
)

__all__ = [
    "CHANGES_BY_DEVICE",
    "COMPLETE_RESPONSES",
    "CONNECTIONS",
    "DEVICE_NOTIFICATIONS",
    "ENTITY_BATCHES",
    "ENTITY_PATCHES",
    "ENTITY_UPDATES",
    "KEYS",
    "PARTIAL_RESPONSES",
    "SCHEMA_LEARNING",
    "SCHEMA_PATCHES",
    "SCHEMA_UPDATES",
    "STREAMS",
    "ZONE_CHANGES",
    "Service",
    "Status",
    "Stream",
    "StreamFault",
    "app_versions",
    "apply_patches",
    "apply_schema_patches",
    "changes",
    "changes_by_device",
    "compact_records",
    "complete_responses",
    "decode",
    "device_notifications",
    "entities",
    "entity_patches",
    "entity_types",
    "entity_updates",
    "learn",
    "learned_types",
    "partial_responses",
    "response_parts",
    "schema_learning",
    "schema_updates",
    "subscription_changes",
    "to_records",
    "type_fields",
    "user_devices",
    "waiting",
    "zone_changes",
]
