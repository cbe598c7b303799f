"""What a feed does to messages on their way: late, twice, out of order; and what no reader can use."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date
from hashlib import md5
from io import BytesIO
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from fastavro import schemaless_reader

from tools.samples.replicate.changes import load_instant
from tools.samples.replicate.messages import (
    ENVELOPE,
    METADATA,
    METADATA_SCHEMA,
    avro_bytes,
    envelope,
    json_message,
    metadata_datum,
)
from tools.samples.replicate.seeds import Integers, between, mix, text_seed, text_seeds, uniform
from tools.samples.replicate.tables import (
    AIRLINES,
    AIRLINES_JSON,
    HOUR,
    METADATA_TOPIC,
    MINUTE,
    PLANES,
    SECOND,
    Version,
)

LATE = MINUTE


class Message(NamedTuple):
    """
    An encoded message before it is sent.

    `at` is when its source made it, `seed` tells it apart, `label` names its damage.
    """

    at: int
    seed: int
    step: int
    topic: str
    partition: int
    key: bytes
    value: bytes | None
    version: Version | None = None
    label: str = ""


class Arrival(NamedTuple):
    """One delivery of a message: `at` is when the broker took it, in whole milliseconds."""

    at: int
    copy: int
    message: Message


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition of a key, by its CRC-32; Kafka's own producer uses another hash."""
    return crc32(key) % partitions


def deliver(batch: Sequence[Message]) -> list[Arrival]:
    """
    Return the deliveries of messages, in no order.

    Of a hundred messages, three are one to 20 minutes late, and one in 300 is one to nine hours late; one is
    delivered again, within half an hour. The others take about a second.
    """
    topics, steps, own = (
        np.array(values, dtype=np.uint64)
        for values in zip(*((crc32(m.topic.encode()), m.step, m.seed) for m in batch), strict=True)
    )
    seeds = mix(own ^ mix(topics * np.uint64(16) + steps))
    fate = uniform(seeds, "fate")
    usual = (150_000 - 600_000 * np.log1p(-uniform(seeds, "lag"))).astype(np.int64)
    late = between(seeds, "late", LATE, 20 * MINUTE)
    very_late = between(seeds, "very late", HOUR, 9 * HOUR)
    lag: Integers = np.where(fate < 1 / 300, very_late, np.where(fate < 1 / 300 + 0.03, late, usual))
    first = np.array([message.at for message in batch], dtype=np.int64) + lag
    again = first + between(seeds, "again", SECOND, 30 * MINUTE)
    copies = zip(batch, again.tolist(), (uniform(seeds, "twice") < 0.01).tolist(), strict=True)
    return [
        *(arrival(message, at) for message, at in zip(batch, first.tolist(), strict=True)),
        *(arrival(message, at, copy=1) for message, at, sent in copies if sent),
    ]


def arrival(message: Message, at: int, *, copy: int = 0) -> Arrival:
    """Return the delivery of *message* at *at*, cut to milliseconds."""
    return Arrival(at // 1000 * 1000, copy, message)


# Damage -------------------------------------------------------------------------------------------------


class Sound(NamedTuple):
    """A sound data message: its whole value, the payload in it, the id of its schema, and the schema."""

    value: bytes
    payload: bytes
    id: str
    schema: str


NOWHERE = md5(b"a schema that was never sent", usedforsecurity=False).hexdigest()
LOG_LINE = b"org.apache.kafka.common.errors.TimeoutException: Expiring 1 record(s): 120001 ms has passed\n"

DATA_DAMAGE: dict[str, Callable[[Sound], bytes | None]] = {
    "wrong_magic": lambda it: envelope("DT", it.payload, schema_id=it.id, magic=b"atMSX"),
    "unknown_type": lambda it: envelope("HB", it.payload, schema_id=it.id),
    "both_schema_fields": lambda it: envelope("DT", it.payload, schema_id=it.id, schema=it.schema),
    "neither_schema_field": lambda it: envelope("DT", it.payload),
    "short_schema_id": lambda it: envelope("DT", it.payload, schema_id=it.id[:-1]),
    "unknown_schema_id": lambda it: envelope("DT", it.payload, schema_id=NOWHERE),
    "truncated_envelope": lambda it: it.value[:-5],
    "trailing_bytes_after_envelope": lambda it: it.value + b"\x00\x00\x00",
    "truncated_message": lambda it: envelope("DT", it.payload[: len(it.payload) // 2], schema_id=it.id),
    "trailing_bytes_in_message": lambda it: envelope("DT", it.payload + b"\x02\x04\x06", schema_id=it.id),
    "empty_value": lambda it: b"",
    # A tombstone of Kafka, which Replicate does not send.
    "null_value": lambda it: None,
    "not_avro": lambda it: LOG_LINE,
}
"""By kind, what becomes of a sound message; damaged ones are sent in addition, so nothing is missing."""


def unparsable_message_schema() -> bytes:
    """Carry metadata behind a schema of its own that breaks off."""
    payload = avro_bytes(METADATA, metadata_datum(PLANES.versions[0]))
    return envelope("MD", payload, schema=METADATA_SCHEMA[: len(METADATA_SCHEMA) // 2])


def unparsable_data_schema() -> bytes:
    """Describe a table, one that sends no data, by a data schema with a type that does not exist."""
    schema = '{"type":"record","name":"DataRecord","fields":[{"name":"data","type":"gate"}]}'
    schema_id = md5(schema.encode(), usedforsecurity=False).hexdigest()
    lineage = metadata_datum(AIRLINES.versions[0])["lineage"] | {"table": "GATES"}
    return _airlines(lineage=lineage, schemaId=schema_id, dataSchema=schema)


def conflicting_metadata() -> bytes:
    """Give the id of the airlines' schema to another schema, in which a column has another name."""
    datum = metadata_datum(AIRLINES.versions[0])
    columns = dict(datum["tableStructure"]["tableColumns"])
    columns["airline_name"] = columns.pop("name")
    other = json.loads(datum["dataSchema"])
    other["fields"][0]["type"]["fields"][1]["name"] = "airline_name"
    schema = json.dumps(other, separators=(",", ":"))
    return _airlines(tableStructure={"tableColumns": columns}, dataSchema=schema)


def _airlines(**changed: Any) -> bytes:
    datum = metadata_datum(AIRLINES.versions[0]) | changed
    return envelope("MD", avro_bytes(METADATA, datum), schema=METADATA_SCHEMA)


def broken_json() -> bytes:
    """Break off in the middle of a JSON envelope."""
    row = {"carrier": "UA", "name": "United Air Lines Inc."}
    whole = json_message("DT", {"data": row, "beforeData": None})
    return whole[: len(whole) * 2 // 3]


OTHER_DAMAGE: dict[Callable[[], bytes], tuple[str, bytes]] = {
    unparsable_message_schema: (METADATA_TOPIC, b"SCHED"),
    unparsable_data_schema: (METADATA_TOPIC, b"SCHED"),
    conflicting_metadata: (METADATA_TOPIC, b"SCHED"),
    broken_json: (AIRLINES_JSON.topic, b"UA"),
}
"""What makes a damaged message by itself, and its topic and key."""

KINDS = (*DATA_DAMAGE, *(make.__name__ for make in OTHER_DAMAGE))


def damaged_messages(day: date, messages: Iterable[Message]) -> Iterator[Message]:
    """
    Give one message of each kind for *day*.

    Each damaged data message is a copy of one of the day's *messages* in Avro, which are in the order of
    their sources, and follows it after two seconds; the others come in the 18 hours after the load.
    """
    avro = [(m, m.version) for m in messages if m.version is not None and m.version.table.form == "avro"]
    for kind, damage in DATA_DAMAGE.items():
        seed, choice = _drawn(f"{day} {kind}", "victim")
        victim, version = avro[int(choice * len(avro))]
        payload: Any = schemaless_reader(BytesIO(victim.value or b""), ENVELOPE, None)
        sound = Sound(victim.value or b"", payload["message"], version.schema_id, version.data_schema)
        at = victim.at + 2 * SECOND
        yield victim._replace(at=at, seed=seed, value=damage(sound), version=None, label=kind)
    for make, (topic, key) in OTHER_DAMAGE.items():
        seed, choice = _drawn(f"{day} {make.__name__}", "when")
        at = load_instant(day) + HOUR + int(choice * 17 * HOUR)
        yield Message(at, seed, 0, topic, 0, key, make(), label=make.__name__)


def _drawn(name: str, draw: str) -> tuple[int, float]:
    return text_seed(name), uniform(text_seeds([name]), draw).item()
