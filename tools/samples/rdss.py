"""
A week of messages between the repositories of four invented universities, as the RDSS exchange carries them.

Objects are deposited, altered, published in new versions, preserved, read and deleted (`tools.rdss_lives`);
some messages come twice, late or in parts, and each kind of fault comes twice.  Nothing in it is real.
`records.parquet` has the columns of Spark's Kafka source; `truth.parquet` says of each record what it is, and
which code it deserves by itself; `manifest.json` counts them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cdckit.parts.arrow_types import arrow_schema
from cdckit.rdss.findings import RdssFault
from cdckit.rdss.reading import Rules, split
from cdckit.records import RECORD_SCHEMA
from tools.rdss_lives import START, Exchange

OBJECTS = 70
SHARDS = 3

TRUTH = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("message_type", pa.string()),
        ("object_uuid", pa.string()),
        ("what", pa.string()),
        ("error_code", pa.string()),
    ]
)


@dataclass
class Sent:
    """One transported message: its bytes, when it arrives, and what it is."""

    at: datetime
    value: bytes | None
    what: str
    code: RdssFault | None = None
    message_type: str | None = None
    object_uuid: str | None = None


Damage = Callable[[dict[str, Any]], bytes | None]


def _set(path: str, value: Any) -> Damage:
    def damaged(message: dict[str, Any]) -> bytes:
        *above, last = path.split("/")
        holder: Any = message
        for step in above:
            holder = holder[step]
        if value is None:
            del holder[last]
        else:
            holder[last] = value
        return as_bytes(message)

    return damaged


HEADER, BODY, TIMES = "messageHeader", "messageBody", "messageHeader/messageTimings"
DAMAGES: list[tuple[str, RdssFault, Damage]] = [
    ("no value", RdssFault.MALFORMED, lambda message: None),
    ("text that ends early", RdssFault.MALFORMED, lambda message: as_bytes(message)[:-40]),
    ("not UTF-8", RdssFault.MALFORMED, lambda message: as_bytes(message).replace(b" ", b" \xff", 9)),
    ("a name twice", RdssFault.MALFORMED, lambda message: as_bytes(message)[:-1] + b', "messageBody": {}}'),
    ("a number that is none", RdssFault.MALFORMED, lambda message: b'{"messageHeader": NaN}'),
    ("a list", RdssFault.INVALID_HEADER, lambda message: as_bytes([message])),
    ("larger than the limit", RdssFault.SYSTEM_FAILED, lambda message: as_bytes(message) + b" " * 1_000_000),
    ("no header", RdssFault.INVALID_HEADER, _set(HEADER, None)),
    ("no generator", RdssFault.INVALID_HEADER, _set(f"{HEADER}/generator", None)),
    ("an unknown field of the header", RdssFault.INVALID_HEADER, _set(f"{HEADER}/priority", 1)),
    ("a class that does not fit", RdssFault.INVALID_HEADER, _set(f"{HEADER}/messageClass", "Event")),
    ("another version", RdssFault.INVALID_HEADER, _set(f"{HEADER}/version", "3.0.1")),
    ("no zone", RdssFault.INVALID_HEADER, _set(f"{TIMES}/publishedTimestamp", "2024-03-05T12:00:00")),
    ("position 2 of 1", RdssFault.INVALID_HEADER, _set(f"{HEADER}/messageSequence/position", 2)),
    ("an unknown type", RdssFault.UNKNOWN_TYPE, _set(f"{HEADER}/messageType", "MetadataMerge")),
    ("an id that is none", RdssFault.INVALID_UUID, _set(f"{HEADER}/messageId", "message-17")),
    ("an object id that is none", RdssFault.INVALID_UUID, _set(f"{BODY}/objectUUID", "0001")),
    ("expired", RdssFault.EXPIRED, _set(f"{TIMES}/expirationTimestamp", "2024-03-01T00:00:00Z")),
    ("no title", RdssFault.INVALID_BODY, _set(f"{BODY}/objectTitle", None)),
    ("an unknown field of the body", RdssFault.INVALID_BODY, _set(f"{BODY}/objectColour", "blue")),
    ("an empty list of people", RdssFault.INVALID_BODY, _set(f"{BODY}/objectPersonRole", [])),
    ("no body", RdssFault.INVALID_BODY, _set(BODY, None)),
    ("a checksum that is none", RdssFault.INVALID_CHECKSUM, lambda message: _with_checksum(message, "abc")),
]


def _with_checksum(message: dict[str, Any], value: str) -> bytes:
    message["messageBody"]["objectFile"][0]["fileChecksum"][0]["checksumValue"] = value
    return as_bytes(message)


def as_bytes(message: Any) -> bytes:
    return json.dumps(message, ensure_ascii=False).encode()


def messages(seed: int = 2024) -> list[Sent]:
    """All that is transported, in the order of arrival."""
    exchange = Exchange(seed)
    lives = [each for _ in range(OBJECTS) for each in exchange.life()] + list(exchange.stray())
    sent = [_sent(exchange, at, message, what) for at, message, what in lives]
    again = exchange.draw.sample(sent, 20)
    sent += [Sent(exchange.later(each.at, 12), each.value, "duplicate", *_about(each)) for each in again]
    created = [
        message for _, message, what in lives if what == "create" and "objectFile" in message["messageBody"]
    ]
    for name, code, damage in DAMAGES * 2:
        message = deepcopy(exchange.draw.choice(created))
        message["messageHeader"]["messageId"] = exchange.uuid()
        sent.append(Sent(exchange.later(START, 100), damage(message), name, code, "MetadataCreate"))
    for place, each in enumerate(created[:9]):
        sent += _in_parts(exchange, each, place % 3)
    return sorted(sent, key=lambda each: each.at)


def _about(sent: Sent) -> tuple[None, str | None, str | None]:
    return None, sent.message_type, sent.object_uuid


def _sent(exchange: Exchange, at: datetime, message: dict[str, Any], what: str) -> Sent:
    # One in twelve is late by up to half a day.
    arrives = exchange.later(at, 12 if exchange.draw.random() < 1 / 12 else 0.05)
    kind, thing = message["messageHeader"]["messageType"], message["messageBody"]["objectUUID"]
    return Sent(arrives, as_bytes(message), what, None, kind, thing)


def _in_parts(exchange: Exchange, created: dict[str, Any], fate: int) -> Iterator[Sent]:
    """A large object in parts: whole, without one of them, or with one that names another total."""
    at = exchange.later(START, 90)
    body = {**deepcopy(created["messageBody"]), "objectUUID": exchange.uuid()}
    body["objectDescription"][0]["descriptionValue"] = exchange.prose(1500)
    message = exchange.message("MetadataCreate", "Command", 42, at, body)
    parts = split(as_bytes(message), rules=Rules(max_bytes=4000))
    what = ("part of a whole", "part of an incomplete sequence", "part of a contradiction")[fate]
    for place, part in enumerate(parts):
        if fate == 1 and place == 1:
            continue
        if fate == 2 and place == 1:
            part = part.replace(b'"total": %d' % len(parts), b'"total": %d' % (len(parts) + 1))
        yield Sent(exchange.later(at, 1), part, what, None, "MetadataCreate", body["objectUUID"])


def write(folder: Path) -> None:
    """The three files."""
    folder.mkdir(parents=True, exist_ok=True)
    offsets: Counter[int] = Counter()
    records, truth = [], []
    for place, each in enumerate(messages()):
        shard = int(sha256(str(place).encode()).hexdigest(), 16) % SHARDS
        offset, offsets[shard] = offsets[shard], offsets[shard] + 1
        about = {"partition": shard, "offset": offset}
        key = each.object_uuid.encode() if each.object_uuid else None
        record = {"key": key, "value": each.value, "topic": "rdss", "timestamp": each.at, "timestampType": 0}
        records.append({**record, **about, "headers": None})
        code = None if each.code is None else each.code.value
        said = {"message_type": each.message_type, "object_uuid": each.object_uuid, "what": each.what}
        truth.append({**about, **said, "error_code": code})
    pq.write_table(
        pa.Table.from_pylist(records, arrow_schema(RECORD_SCHEMA)),
        folder / "records.parquet",
        compression="zstd",
    )
    pq.write_table(pa.Table.from_pylist(truth, TRUTH), folder / "truth.parquet", compression="zstd")
    counts = Counter(each["error_code"] or "valid" for each in truth), Counter(each["what"] for each in truth)
    told = {
        "records": len(records),
        "codes": dict(sorted(counts[0].items())),
        "what": dict(sorted(counts[1].items())),
    }
    (folder / "manifest.json").write_text(json.dumps(told, indent=2) + "\n")
