"""The streams as values: fields, keys, partitions, and what can be wrong with a message of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Any, Literal

import pyarrow as pa

from cdckit.errors import InvalidArgument
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


Kind = Literal["text", "long", "instant", "int", "flag", "json", "list", "reasons"]
"""What a field holds: `instant` is milliseconds; `json` any value, as JSON text; `list` an array, each of its
elements as JSON text; `reasons` is one text or an array of them; a `flag` that is not there is false."""

TYPES: Mapping[Kind, pa.DataType] = MappingProxyType(
    {
        **dict.fromkeys(("text", "json"), pa.string()),
        **dict.fromkeys(("long", "instant"), pa.int64()),
        **dict.fromkeys(("list", "reasons"), pa.list_(pa.string())),
        "int": pa.int32(),
        "flag": pa.bool_(),
    }
)

COLUMNS: Mapping[str, str] = MappingProxyType(
    {
        "clientid": "client_id",
        "request": "request",
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
        **dict.fromkeys(("part", "parts", "status", "count"), "int"),
        **dict.fromkeys(("learning", "includeBefore", "includeAfter"), "flag"),
        **dict.fromkeys(("ops", "before", "after"), "json"),
        **dict.fromkeys(("patches", "responses"), "list"),
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
_DEVICE = ("device",)
_WHO = ("clientid", "request", "user", "begun")
_SHOWN = ("learning", "includeBefore", "includeAfter")
_OUTCOME = ("status", "error", "before", "after")
_UPDATE = (*ENTITY, *_WHO, "ended", "part", "parts", *_SHOWN, "ops", *_OUTCOME)
_RESPONSE = frozenset(("db", "clientid", "request", "user", "begun", "ended", "parts", "status"))


def _stream(
    name: str,
    fields: tuple[str, ...],
    key: tuple[str, ...],
    optional: tuple[str, ...] = (),
    partition_by: tuple[str, ...] | None = None,
    **more: Any,
) -> Stream:
    """A stream that is partitioned by its key, if nothing else is said."""
    required = frozenset(fields) - frozenset(optional)
    return Stream(name, fields, required, key, key if partition_by is None else partition_by, **more)


ENTITY_BATCHES = _stream("entity-batches", ("db", *_WHO, *_SHOWN, "patches"), REQUEST, _SHOWN, forever=True)
_PATCH = ("db", *_WHO, "part", "parts", *_SHOWN)
ENTITY_PATCHES = _stream("entity-patches", (*ENTITY, *_WHO, "part", "parts", *_SHOWN, "ops"), ENTITY, _SHOWN)
ERASED_PATCHES = _stream("erased-patches", _PATCH, REQUEST, _SHOWN)
"""No stream of the page: what a service keeps of patches whose entity was erased."""
# The page's samples of updates, and of what is derived from them, come without the part, too.
_OPTIONAL = ("part", *_SHOWN, *_OUTCOME[1:])
ENTITY_UPDATES = _stream("entity-updates", _UPDATE, ENTITY, _OPTIONAL, latest=True)
SCHEMA_PATCHES = _stream("schema-patches", (*_PATCH, "ops"), DATABASE, _SHOWN, forever=True)
SCHEMA_UPDATES = _stream(
    "schema-updates",
    ("db", *_WHO, "ended", "part", "parts", *_SHOWN, "ops", *_OUTCOME),
    DATABASE,
    _OPTIONAL,
    latest=True,
)
SCHEMA_LEARNING = Stream(
    "schema-learning",
    _UPDATE,
    frozenset(("db", "clientid", "request", "user", "begun", "status")),
    key=ENTITY,
    partition_by=("db", "collection"),
    other_key=DATABASE,
)
PARTIAL_RESPONSES = Stream("partial-responses", _UPDATE, _RESPONSE | {"part"}, REQUEST, ("client_id",))
COMPLETE_RESPONSES = _stream(
    "complete-responses",
    ("clientid", "request", "user", "parts", "begun", "ended", "responses"),
    REQUEST,
    ("ended", "responses"),
    partition_by=("client_id",),
    text="message",
)
CONNECTIONS = _stream("connections", ("db", "clientid", "user", "device", "appVersion", "begun"), ("user",))
ZONE_CHANGES = _stream("zone-changes", _UPDATE, ENTITY, _OPTIONAL, partition_by=("db", "subject_zone"))
CHANGES_BY_DEVICE = _stream("changes-by-device", (*ENTITY, "notification", "action", "ended"), _DEVICE)
# A device may be used with several databases: its newest message does not say all that is left.  One that
# nobody has connected from yet has no user.
DEVICE_NOTIFICATIONS = _stream(
    "device-notifications", ("db", "user", "device", "count", "begun", "ended"), _DEVICE, ("user",)
)

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


def require_stream(stream: Stream, *, function: str) -> Stream:
    """The stream itself; raises `InvalidArgument` for anything else."""
    if not isinstance(stream, Stream):
        raise InvalidArgument(function, "stream", f"a Stream, of {', '.join(STREAMS)}", stream)
    return stream
