"""
Damage: one small function per kind, each makes one message that no reader can use.

Damaged messages are sent in addition to the sound ones, so nothing that the sources said is missing.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from hashlib import md5
from io import BytesIO
from typing import Any, NamedTuple

from fastavro import schemaless_reader

from tools.samples.replicate.changes import load_instant
from tools.samples.replicate.disorder import Message
from tools.samples.replicate.envelope import (
    ENVELOPE,
    METADATA_SCHEMA,
    envelope,
    json_message,
    metadata_bytes,
    metadata_datum,
)
from tools.samples.replicate.seeds import text_seed, text_seeds, uniform
from tools.samples.replicate.tables import (
    AIRLINES,
    AIRLINES_JSON,
    HOUR,
    METADATA_TOPIC,
    PLANES,
    SECOND,
    Version,
)


class Sound(NamedTuple):
    """A sound data message: its whole value, the payload in it, and the id of its schema."""

    value: bytes
    payload: bytes
    schema_id: str
    schema: str


# --- damage to a data message


def wrong_magic(sound: Sound) -> bytes:
    """Begin with another constant."""
    return envelope("DT", sound.payload, schema_id=sound.schema_id, magic=b"atMSX")


def unknown_type(sound: Sound) -> bytes:
    """Say neither MD nor DT."""
    return envelope("HB", sound.payload, schema_id=sound.schema_id)


def both_schema_fields(sound: Sound) -> bytes:
    """Give the schema and its id as well."""
    return envelope("DT", sound.payload, schema_id=sound.schema_id, schema=sound.schema)


def neither_schema_field(sound: Sound) -> bytes:
    """Give no schema and no id."""
    return envelope("DT", sound.payload)


def short_schema_id(sound: Sound) -> bytes:
    """Lose the last character of the id."""
    return envelope("DT", sound.payload, schema_id=sound.schema_id[:-1])


def unknown_schema_id(sound: Sound) -> bytes:
    """Name a schema that no metadata message ever brings."""
    nowhere = md5(b"a schema that was never sent", usedforsecurity=False).hexdigest()
    return envelope("DT", sound.payload, schema_id=nowhere)


def truncated_envelope(sound: Sound) -> bytes:
    """Lose the last bytes of the envelope, so that its message is shorter than it says."""
    return sound.value[:-5]


def trailing_bytes_after_envelope(sound: Sound) -> bytes:
    """Have bytes after the end of the envelope."""
    return sound.value + b"\x00\x00\x00"


def truncated_message(sound: Sound) -> bytes:
    """Carry half of the payload in a sound envelope."""
    return envelope("DT", sound.payload[: len(sound.payload) // 2], schema_id=sound.schema_id)


def trailing_bytes_in_message(sound: Sound) -> bytes:
    """Carry bytes after the end of the payload in a sound envelope."""
    return envelope("DT", sound.payload + b"\x02\x04\x06", schema_id=sound.schema_id)


def empty_value(sound: Sound) -> bytes:
    """Have no bytes."""
    return b""


def null_value(sound: Sound) -> None:
    """Have no value: a tombstone of Kafka, which Replicate does not send."""
    return None


def not_avro(sound: Sound) -> bytes:
    """Be a line of somebody's log."""
    return b"org.apache.kafka.common.errors.TimeoutException: Expiring 1 record(s): 120001 ms has passed\n"


DATA_DAMAGE: dict[str, Callable[[Sound], bytes | None]] = {
    damage.__name__: damage
    for damage in (
        wrong_magic,
        unknown_type,
        both_schema_fields,
        neither_schema_field,
        short_schema_id,
        unknown_schema_id,
        truncated_envelope,
        trailing_bytes_after_envelope,
        truncated_message,
        trailing_bytes_in_message,
        empty_value,
        null_value,
        not_avro,
    )
}


# --- damage to a metadata message, and to JSON


def unparsable_message_schema() -> bytes:
    """Carry metadata behind a schema of its own that breaks off."""
    payload = metadata_bytes(metadata_datum(PLANES.versions[0]))
    return envelope("MD", payload, schema=METADATA_SCHEMA[: len(METADATA_SCHEMA) // 2])


def unparsable_data_schema() -> bytes:
    """Describe a table, one that sends no data, by a data schema with a type that does not exist."""
    schema = '{"type":"record","name":"DataRecord","fields":[{"name":"data","type":"gate"}]}'
    datum = metadata_datum(AIRLINES.versions[0])
    lineage = datum["lineage"] | {"table": "GATES"}
    schema_id = md5(schema.encode(), usedforsecurity=False).hexdigest()
    payload = metadata_bytes(datum | {"lineage": lineage, "schemaId": schema_id, "dataSchema": schema})
    return envelope("MD", payload, schema=METADATA_SCHEMA)


def conflicting_metadata() -> bytes:
    """Give the id of the airlines' schema to another schema, in which a column has another name."""
    datum = metadata_datum(AIRLINES.versions[0])
    columns = dict(datum["tableStructure"]["tableColumns"])
    columns["airline_name"] = columns.pop("name")
    other = json.loads(datum["dataSchema"])
    other["fields"][0]["type"]["fields"][1]["name"] = "airline_name"
    schema = json.dumps(other, separators=(",", ":"))
    payload = metadata_bytes(datum | {"tableStructure": {"tableColumns": columns}, "dataSchema": schema})
    return envelope("MD", payload, schema=METADATA_SCHEMA)


METADATA_DAMAGE = {
    damage.__name__: damage
    for damage in (unparsable_message_schema, unparsable_data_schema, conflicting_metadata)
}


def broken_json() -> bytes:
    """Break off in the middle of a JSON envelope."""
    whole = json_message(
        "DT", {"data": {"carrier": "UA", "name": "United Air Lines Inc."}, "beforeData": None}
    )
    return whole[: len(whole) * 2 // 3]


# --- which messages of a day


def damaged_messages(day: date, messages: Sequence[Message]) -> Iterator[Message]:
    """
    Give one message of each kind for *day*.

    Each damaged data message is a copy of one of the day's *messages* in Avro, which are in the order of
    their sources, and follows it after two seconds; the others come at some time in the 18 hours after the
    load.
    """
    avro = [
        message
        for message in messages
        if message.version is not None and message.version.table.form == "avro"
    ]
    choices = uniform(text_seeds(f"{day} {kind}" for kind in DATA_DAMAGE), "victim").tolist()
    for (kind, damage), choice in zip(DATA_DAMAGE.items(), choices, strict=True):
        victim = avro[int(choice * len(avro))]
        seed = text_seed(f"{day} {kind}")
        value = damage(_sound(victim))
        yield victim._replace(at=victim.at + 2 * SECOND, seed=seed, value=value, version=None, label=kind)
    for kind, make in METADATA_DAMAGE.items():
        yield _alone(day, kind, METADATA_TOPIC, b"SCHED", make())
    yield _alone(day, "broken_json", AIRLINES_JSON.topic, b"UA", broken_json())


def _alone(day: date, kind: str, topic: str, key: bytes, value: bytes) -> Message:
    seed = text_seed(f"{day} {kind}")
    at = load_instant(day) + HOUR + int(uniform(text_seeds([f"{day} {kind}"]), "when").item() * 17 * HOUR)
    return Message(at, seed, 0, topic, 0, key, value, label=kind)


def _sound(message: Message) -> Sound:
    version: Version | None = message.version
    if message.value is None or version is None:
        raise ValueError("only a sound data message can be damaged")
    whole: Any = schemaless_reader(BytesIO(message.value), ENVELOPE, None)
    return Sound(message.value, whole["message"], version.schema_id, version.data_schema)
