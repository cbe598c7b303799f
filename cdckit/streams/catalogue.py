"""The streams as values: fields, keys, partitions, and what can be wrong with a message of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Any, Literal

import pyarrow as pa

from cdckit.model.faults import Fault


class StreamFault(Fault):
    """
    The catalogue of faults: the `error_code` of rejects, and whether what comes later can heal it.

    A patch that can be read and not applied is no reject: it gets a response that says why (`Status`).

    >>> StreamFault.MISSING_PART.heals, StreamFault.NOT_JSON.heals
    (True, False)
    """

    NO_VALUE = "NO_VALUE", "The record has no value."
    NOT_JSON = "NOT_JSON", "The value is not one JSON object."
    MISSING_FIELD = "MISSING_FIELD", "A field that the stream needs is not there."
    WRONG_TYPE = "WRONG_TYPE", "A field is not of its type."
    WRONG_PART = "WRONG_PART", "The number of the part is not within that of the parts."
    MISSING_PART = "MISSING_PART", "Parts of the response did not come in time.", True
    CONTRADICTING = "CONTRADICTING", "The parts of the response contradict each other."
    OTHER_STREAM = "OTHER_STREAM", "The record is of no stream that is taken."
    NO_DOCUMENT = "NO_DOCUMENT", "The update does not say what the entity is after it."
    UNFIT_VALUE = "UNFIT_VALUE", "A value does not fit the type that its field is to have."


class Status(IntEnum):
    """
    What became of a patch: the `status` of a response.

    Source:
        Debezium streams, "entity-updates".

    >>> Status.NO_ENTITY == 2
    True
    """

    DONE = 1
    NO_ENTITY = 2
    """The entity, or schema, does not exist, and the patch does not create it."""
    NOT_APPLIED = 3
    """The patch could not be applied; nothing of it was."""


CREATED, UPDATED, DELETED = "created", "updated", "deleted"
"""What became of an entity: the `action` of changes-by-device."""

Kind = Literal["text", "long", "instant", "int", "flag", "json", "list", "status", "action", "reasons"]
"""What a field holds: `instant` is milliseconds; `json` any value, as JSON text; `list` an array, each of its
elements as JSON text; `status` and `action` are one of a few values; `reasons` is one text, or an array of
them, as the prototype wrote several; a `flag` that is not there is false."""

TYPES: Mapping[Kind, pa.DataType] = MappingProxyType(
    {
        **dict.fromkeys(("text", "json", "action"), pa.string()),
        **dict.fromkeys(("long", "instant"), pa.int64()),
        **dict.fromkeys(("list", "reasons"), pa.list_(pa.string())),
        **dict.fromkeys(("int", "status"), pa.int32()),
        "flag": pa.bool_(),
    }
)

COLUMNS: Mapping[str, str] = MappingProxyType(
    {
        "clientid": "client_id",
        "includeBefore": "include_before",
        "includeAfter": "include_after",
        "appVersion": "app_version",
        "error": "errors",
    }
)
"""The columns whose name is not that of the field."""

KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "request": "long",
        **dict.fromkeys(("begun", "ended"), "instant"),
        **dict.fromkeys(("part", "parts", "count"), "int"),
        **dict.fromkeys(("learning", "includeBefore", "includeAfter"), "flag"),
        **dict.fromkeys(("ops", "before", "after"), "json"),
        **dict.fromkeys(("patches", "responses"), "list"),
        "status": "status",
        "action": "action",
        "error": "reasons",
    }
)
"""What the fields hold that are no texts."""

ARRIVAL = pa.schema(
    [
        ("timestamp", pa.timestamp("us", "UTC")),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
    ]
)
"""Where a message came from, and its place among all: what is left of its record."""

SUBSCRIPTIONS = ("$zoneSubscription", "$zoneSubscriptions")
"""The collection of subscriptions, as the page calls it, and as the prototype does."""

SEPARATOR = "/"
"""Stands between the parts of a key; within one, `~1` is written for it, as in a path."""


@dataclass(frozen=True)
class Stream:
    """
    One stream of the page.

    Args:
        name: Its name, which is that of its topic.
        fields: What its messages have, in the order in which they are written.
        required: Those without which a message is none.
        key: The columns that its key is made of.
        partition_by: The columns that choose the partition.
        forever: Whether it is kept forever; the others may be dropped after a time.
        latest: Whether of what is older those messages stay of which the newest state of each key is made:
            where they say what is there after them, and not a part or a difference alone.
        text: The column that has the text of a message as it is to be written, where the fields alone do not
            say it; a table without this column is written by its fields.
        other_key: The columns of the key of a message that lacks one of *key*:
            in schema-learning, that of an entity type.

    Source:
        Debezium streams; the table of each stream.

    >>> ENTITY_PATCHES.key, PARTIAL_RESPONSES.partition_by, ENTITY_BATCHES.forever
    (('db', 'collection', 'zone', 'entity'), ('client_id',), True)
    """

    name: str
    fields: tuple[str, ...]
    required: frozenset[str]
    key: tuple[str, ...]
    partition_by: tuple[str, ...]
    forever: bool = False
    latest: bool = False
    text: str | None = None
    other_key: tuple[str, ...] = ()

    @property
    def key_alone(self) -> tuple[str, ...]:
        """The columns that the key of a record says, and its message does not."""
        columns = {field_column(field) for field in self.fields}
        return tuple(column for column in self.key if column not in columns)

    def columns(self) -> pa.Schema:
        """The columns of its messages, behind those of the records."""
        keys = [(name, pa.string()) for name in self.key_alone]
        return pa.schema([*keys, *((field_column(name), TYPES[field_kind(name)]) for name in self.fields)])


def field_kind(field: str) -> Kind:
    """Tell what a field holds."""
    return KINDS.get(field, "text")


def field_column(field: str) -> str:
    """The column of a field of a message."""
    return COLUMNS.get(field, field)


ENTITY = ("db", "collection", "zone", "entity")
"""The key of an entity."""
DATABASE = ("db",)
"""The key of a schema."""
REQUEST = ("client_id", "request")
"""The key of a request."""
LOGS = ("topic", "partition")
LOG_ORDER = ("offset", "timestamp", "part", *REQUEST)
"""The columns in whose order patches count, and what is learnt from them, as a `FoldPlan` has it: in a
partition, which is an append-only log, as they stand in it, whatever the clocks of producers say."""
_CLIENT = ("client_id",)
_DEVICE = ("device",)


def _stream(
    name: str,
    fields: str,
    key: tuple[str, ...],
    partition_by: tuple[str, ...] | None = None,
    **more: Any,
) -> Stream:
    """
    A stream with these fields, in the order in which they are written; a `?` is behind those that a message
    may lack.  It is partitioned by its key, if nothing else is said.
    """
    names = fields.split()
    required = frozenset(field for field in names if not field.endswith("?"))
    listed = tuple(field.removesuffix("?") for field in names)
    return Stream(name, listed, required, key, key if partition_by is None else partition_by, **more)


ENTITY_BATCHES = _stream(
    "entity-batches",
    "db clientid request user begun learning? includeBefore? includeAfter? patches",
    REQUEST,
    forever=True,
)
ENTITY_PATCHES = _stream(
    "entity-patches",
    "db collection zone entity clientid request user begun part parts "
    "learning? includeBefore? includeAfter? ops",
    ENTITY,
)
ERASED_PATCHES = _stream(
    "erased-patches",
    "db clientid request user begun part parts learning? includeBefore? includeAfter?",
    REQUEST,
)
"""No stream of the page: what a service keeps of patches whose entity was erased."""
_UPDATE = (
    "db collection zone entity clientid request user begun ended part parts "
    "learning? includeBefore? includeAfter? ops status error? before? after?"
)
ENTITY_UPDATES = _stream("entity-updates", _UPDATE, ENTITY, latest=True)
SCHEMA_PATCHES = _stream(
    "schema-patches",
    "db clientid request user begun part parts includeBefore? includeAfter? ops",
    DATABASE,
    forever=True,
)
SCHEMA_UPDATES = _stream(
    "schema-updates",
    "db clientid request user begun ended part parts includeBefore? includeAfter? "
    "ops status error? before? after?",
    DATABASE,
    latest=True,
)
# Required is what updates of entities and of entity types both have; the page's sample lacks the parts.
SCHEMA_LEARNING = _stream(
    "schema-learning",
    "db collection? zone? entity? clientid request user begun ended? part? parts? "
    "learning? includeBefore? includeAfter? ops? status error? before? after?",
    ENTITY,
    ("db", "collection"),
    other_key=DATABASE,
)
PARTIAL_RESPONSES = _stream(
    "partial-responses",
    "db collection? zone? entity? clientid request user begun ended part parts "
    "learning? includeBefore? includeAfter? ops? status error? before? after?",
    REQUEST,
    _CLIENT,
)
# The response to a request of one part is that part's, without `responses`; the page's sample has no `ended`.
COMPLETE_RESPONSES = _stream(
    "complete-responses",
    "clientid request user parts begun ended? responses?",
    REQUEST,
    _CLIENT,
    text="message",
)
CONNECTIONS = _stream("connections", "db clientid user device appVersion begun", ("user",))
ZONE_CHANGES = _stream("zone-changes", _UPDATE, ENTITY, ("db", "subject_zone"))
CHANGES_BY_DEVICE = _stream(
    "changes-by-device", "db collection zone entity notification action ended", _DEVICE
)
# A device may be used with several databases: its newest message does not say all that is left.  One that
# nobody has connected from yet has no user.
DEVICE_NOTIFICATIONS = _stream("device-notifications", "db user? device count begun ended", _DEVICE)

BATCH_HEADER = tuple(
    name for name in ENTITY_PATCHES.columns().names if name in ENTITY_BATCHES.columns().names
)
"""The columns that a patch has of its batch."""

STREAMS: Mapping[str, Stream] = MappingProxyType(
    {
        stream.name: stream
        for stream in (
            *(ENTITY_BATCHES, ENTITY_PATCHES, ENTITY_UPDATES),
            *(SCHEMA_PATCHES, SCHEMA_UPDATES, SCHEMA_LEARNING),
            *(PARTIAL_RESPONSES, COMPLETE_RESPONSES),
            *(CONNECTIONS, ZONE_CHANGES, CHANGES_BY_DEVICE, DEVICE_NOTIFICATIONS),
        )
    }
)
"""The streams of the page by their names."""
