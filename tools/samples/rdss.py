"""
A week of messages between the repositories of four invented universities, as the RDSS exchange carries them.

Objects are deposited, altered, published in new versions, preserved, read and deleted; some messages come
twice, late or in parts, and each kind of fault comes twice. Nothing in it is real: `rdss.json` has the form
of messages, objects and files, and all else is drawn from a seed.
"""

import json
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from hashlib import md5, sha256
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa

from cdckit.rdss.reading import Rules, split
from tools.samples.records import as_records, write_json, write_table

Document = dict[str, Any]

FORMS: Document = json.loads(Path(__file__).with_suffix(".json").read_text())
START = datetime(2024, 3, 4, 8, tzinfo=UTC)
OBJECTS = 70
SHARDS = 3

UNIVERSITIES = {11: "University of Aldmoor", 23: "Brackwater College", 42: "Carrow Institute", 57: "Dunholm"}
TOPICS = ("tides", "peat", "dialects", "bridges", "lichens", "gull colonies", "tin mines", "choral music")
NAMES = (("Ada", "Byrne"), ("Ímar", "O'Dowd"), ("Wen", "Zhào"), ("Sofía", "Núñez"), ("Tom", "Ashe"))
WORDS = (
    "survey", "sample", "reading", "station", "depth", "season", "record", "index", "volume", "average",
    "series", "note", "field", "shore",
)  # fmt: skip
OWN: dict[str, Document] = {
    "article": {"language": ["en"], "publicationVersion": "AM"},
    "thesisDissertation": {
        "objectDate/0/dateType": "awarded",
        "objectOrganisationRole/0/role": "awardingInstitution",
        "language": ["en"],
        "qualificationLevel": "doctoral",
        "qualificationName": "PhD",
    },
}
"""What objects of some types have that others have not."""


def fill(document: Document, values: Document) -> Document:
    """Set *values* by their paths, such as `objectDate/0/dateType`; None takes away what stands there."""
    for path, value in values.items():
        *above, last = path.split("/")
        holder: Any = document
        for step in above:
            holder = holder[int(step) if step.isdigit() else step]
        if value is None:
            del holder[last]
        else:
            holder[int(last) if last.isdigit() else last] = value
    return document


def as_bytes(message: Any) -> bytes:
    """Return a message as it is sent."""
    return json.dumps(message, ensure_ascii=False).encode()


def text_of(at: datetime) -> str:
    """Return an instant as messages have it."""
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Exchange:
    """Makes messages; all chance is drawn from one seed."""

    def __init__(self, seed: int) -> None:
        self.draw = Random(seed)

    def uuid(self) -> str:
        """Return an id that is drawn as all else is."""
        return str(uuid.UUID(int=self.draw.getrandbits(128), version=4))

    def prose(self, words: int) -> str:
        """Return so many words."""
        return " ".join(self.draw.choices(WORDS, k=words))

    def later(self, at: datetime, hours: float) -> datetime:
        """Return an instant up to so many hours later."""
        return at + timedelta(seconds=round(self.draw.uniform(0.02, hours) * 3600, 3))

    def message(
        self, kind: str, tenant: int, at: datetime, body: Document, group: str = "Command", **more: Any
    ) -> Document:
        """Return a valid message, published at *at*."""
        header = {
            "messageId": self.uuid(),
            "messageClass": group,
            "messageType": kind,
            "returnAddress": f"tenant-{tenant}",
            "messageTimings/publishedTimestamp": text_of(at),
            "messageTimings/expirationTimestamp": text_of(at + timedelta(days=7)),
            "messageSequence/sequence": self.uuid(),
            "messageHistory/0/machineId": f"adaptor-{tenant}",
            "messageHistory/0/machineAddress": f"m{tenant}.example.org",
            "messageHistory/0/timestamp": text_of(at),
            "version": self.draw.choice(["4.0.0", "4.0.0", "4.0.1"]),
            "generator": f"repository of {UNIVERSITIES[tenant]}",
            "tenantJiscID": tenant,
            **more,
        }
        form = deepcopy(FORMS["message"])
        return {"messageHeader": fill(form["messageHeader"], header), "messageBody": body}

    def object(self, tenant: int, at: datetime) -> Document:
        """Return the metadata of a new object; one in six has no files."""
        draw, person = self.draw, "objectPersonRole/0/person"
        (given, family), topic = draw.choice(NAMES), draw.choice(TOPICS)
        kind = draw.choice(["dataset", "dataset", "article", "thesisDissertation", "software"])
        values = {
            "objectUUID": self.uuid(),
            "objectTitle": f"{draw.choice(['On', 'A survey of', 'Notes on', 'More about'])} {topic}",
            f"{person}/personUUID": self.uuid(),
            f"{person}/personGivenNames": given,
            f"{person}/personFamilyNames": family,
            f"{person}/personMail": f"person{draw.randrange(90)}@{tenant}.example.org",
            "objectDescription/0/descriptionValue": self.prose(20),
            "objectRights/access/0/accessType": draw.choice(["open", "open", "restricted"]),
            "objectDate/0/dateValue": text_of(at),
            "objectKeyword/0": topic,
            "objectResourceType": kind,
            "objectIdentifier/0/identifierValue": f"10.5555/{self.uuid()[:8]}",
            "objectOrganisationRole/0/organisation/organisationJiscId": tenant,
            "objectOrganisationRole/0/organisation/organisationName": UNIVERSITIES[tenant],
            **OWN.get(kind, {}),
        }
        files = [] if draw.random() < 1 / 6 else [self.file(at) for _ in range(draw.randint(1, 3))]
        return fill(deepcopy(FORMS["object"]), {**values, **({"objectFile": files} if files else {})})

    def file(self, at: datetime) -> Document:
        """Return one file of an object."""
        name = f"{self.draw.choice(WORDS)}{self.draw.randrange(100)}.csv"
        kind, digest = self.draw.choice([("md5", md5), ("sha256", sha256)])
        values = {
            "fileUUID": self.uuid(),
            "fileIdentifier": name,
            "fileName": name,
            "fileSize": self.draw.randrange(1, 10**7),
            "fileChecksum/0/checksumUUID": self.uuid(),
            "fileChecksum/0/checksumType": kind,
            "fileChecksum/0/checksumValue": digest(name.encode()).hexdigest(),
            "fileDateModified/0": text_of(at),
            "fileStorageLocation": f"https://files.example.org/{name}",
            "fileStoragePlatform/storagePlatformUUID": self.uuid(),
        }
        return fill(deepcopy(FORMS["file"]), values)

    def life(self) -> Iterator[tuple[datetime, Document, str]]:
        """Give the messages about one object, and about the new versions of it."""
        tenant, at = self.draw.choice(list(UNIVERSITIES)), self.later(START, 60)
        made = self.object(tenant, at)

        def said(kind: str, what: str, body: Document, **more: Any) -> tuple[datetime, Document, str]:
            return at, self.message(kind, tenant, at, deepcopy(body), **more), what

        yield said("MetadataCreate", "create", made)
        for _ in range(self.draw.choice([0, 0, 1, 1, 2])):
            at = self.later(at, 20)
            made["objectDescription"][0]["descriptionValue"] = self.prose(20)
            yield said("MetadataUpdate", "update", made)
        if self.draw.random() < 0.5:
            at = self.later(at, 3)
            event = {"preservationEventType": "ingestion", "preservationEventValue": "done"}
            package = {"objectUUID": made["objectUUID"], "packageUUID": self.uuid(), "packageType": "AIP"}
            package |= {"packageContainerType": "zip", "packagePreservationEvent": event}
            yield said("PreservationEvent", "preservation event", package, group="Event")
        if self.draw.random() < 0.3:
            at = self.later(at, 5)
            asked = said("MetadataRead", "read", {"objectUUID": made["objectUUID"]})
            yield asked
            at = self.later(at, 0.1)
            correlation = asked[1]["messageHeader"]["messageId"]
            yield said("MetadataRead", "response", made, group="Document", correlationId=correlation)
        if self.draw.random() < 0.25:
            at, old = self.later(at, 20), made["objectUUID"]
            made = {**deepcopy(made), "objectUUID": self.uuid()}
            identifier = {"identifierType": "UUID", "identifierValue": old}
            made["objectRelatedIdentifier"] = [{"identifier": identifier, "relationType": "isNewVersionOf"}]
            yield said("MetadataUpdate", "new version", made)
        if self.draw.random() < 0.2:
            at = self.later(at, 20)
            yield said("MetadataDelete", "delete", {"objectUUID": made["objectUUID"]})

    def stray(self) -> Iterator[tuple[datetime, Document, str]]:
        """Give messages about objects that nobody has created: by themselves they are valid."""
        at = self.later(START, 100)
        thing, asked = self.object(23, at), {"objectUUID": self.uuid()}
        for verb, body in (("Update", thing), ("Delete", asked), ("Read", asked)):
            yield at, self.message(f"Metadata{verb}", 23, at, body), f"{verb.lower()} of an unknown object"


# What goes wrong ----------------------------------------------------------------------------------------

HEADER, BODY, TIMES = "messageHeader", "messageBody", "messageHeader/messageTimings"
CHECKSUM = f"{BODY}/objectFile/0/fileChecksum/0/checksumValue"

UNREADABLE: dict[str, tuple[str, Callable[[bytes], bytes | None]]] = {
    "no value": ("GENERR007", lambda text: None),
    "text that ends early": ("GENERR007", lambda text: text[:-40]),
    "not UTF-8": ("GENERR007", lambda text: text.replace(b" ", b" \xff", 9)),
    "a name twice": ("GENERR007", lambda text: text[:-1] + b', "messageBody": {}}'),
    "a number that is none": ("GENERR007", lambda text: b'{"messageHeader": NaN}'),
    "a list": ("GENERR004", lambda text: b"[%b]" % text),
    "larger than the limit": ("GENERR006", lambda text: text + b" " * 1_000_000),
}
"""By fault, the code that a message deserves, and what becomes of its text."""

WRONG: dict[str, tuple[str, str, Any]] = {
    "no header": ("GENERR004", HEADER, None),
    "no generator": ("GENERR004", f"{HEADER}/generator", None),
    "an unknown field of the header": ("GENERR004", f"{HEADER}/priority", 1),
    "a class that does not fit": ("GENERR004", f"{HEADER}/messageClass", "Event"),
    "another version": ("GENERR004", f"{HEADER}/version", "3.0.1"),
    "no zone": ("GENERR004", f"{TIMES}/publishedTimestamp", "2024-03-05T12:00:00"),
    "position 2 of 1": ("GENERR004", f"{HEADER}/messageSequence/position", 2),
    "an unknown type": ("GENERR002", f"{HEADER}/messageType", "MetadataMerge"),
    "an id that is none": ("GENERR010", f"{HEADER}/messageId", "message-17"),
    "an object id that is none": ("GENERR010", f"{BODY}/objectUUID", "0001"),
    "expired": ("GENERR003", f"{TIMES}/expirationTimestamp", "2024-03-01T00:00:00Z"),
    "no title": ("GENERR001", f"{BODY}/objectTitle", None),
    "an unknown field of the body": ("GENERR001", f"{BODY}/objectColour", "blue"),
    "an empty list of people": ("GENERR001", f"{BODY}/objectPersonRole", []),
    "no body": ("GENERR001", BODY, None),
    "a checksum that is none": ("APPERRMET004", CHECKSUM, "abc"),
}
"""By fault, the code that a message deserves, and what stands where in it; None is nothing."""


def damaged(fault: str, message: Document) -> tuple[bytes | None, str]:
    """Return a message with a fault, and its code."""
    if fault in UNREADABLE:
        code, change = UNREADABLE[fault]
        return change(as_bytes(message)), code
    code, path, value = WRONG[fault]
    return as_bytes(fill(message, {path: value})), code


class Sent(NamedTuple):
    """One transported message: its bytes, when it arrives, and what it is."""

    at: datetime
    value: bytes | None
    what: str
    message_type: str
    object_uuid: str | None = None
    error_code: str | None = None


def messages() -> list[Sent]:
    """Return all that is transported, in the order of arrival."""
    exchange = Exchange(2024)
    lives = [each for _ in range(OBJECTS) for each in exchange.life()] + list(exchange.stray())
    sent = []
    for at, message, what in lives:
        # One in twelve is late by up to half a day.
        arrives = exchange.later(at, 12 if exchange.draw.random() < 1 / 12 else 0.05)
        kind, thing = message[HEADER]["messageType"], message[BODY]["objectUUID"]
        sent.append(Sent(arrives, as_bytes(message), what, kind, thing))
    again = exchange.draw.sample(sent, 20)
    sent += [each._replace(at=exchange.later(each.at, 12), what="duplicate") for each in again]
    created = [message for _, message, what in lives if what == "create" and "objectFile" in message[BODY]]
    for fault in [*UNREADABLE, *WRONG] * 2:
        message = deepcopy(exchange.draw.choice(created))
        message[HEADER]["messageId"] = exchange.uuid()
        at = exchange.later(START, 100)
        value, code = damaged(fault, message)
        sent.append(Sent(at, value, fault, "MetadataCreate", error_code=code))
    for place, each in enumerate(created[:9]):
        sent += _in_parts(exchange, each, place % 3)
    return sorted(sent, key=lambda each: each.at)


def _in_parts(exchange: Exchange, created: Document, fate: int) -> Iterator[Sent]:
    """Give a large object in parts: whole, without one of them, or with one that names another total."""
    at = exchange.later(START, 90)
    body = {**deepcopy(created[BODY]), "objectUUID": exchange.uuid()}
    body["objectDescription"][0]["descriptionValue"] = exchange.prose(1500)
    parts = split(as_bytes(exchange.message("MetadataCreate", 42, at, body)), rules=Rules(max_bytes=4000))
    what = ("part of a whole", "part of an incomplete sequence", "part of a contradiction")[fate]
    for place, part in enumerate(parts):
        if fate == 1 and place == 1:
            continue
        if fate == 2 and place == 1:
            part = part.replace(b'"total": %d' % len(parts), b'"total": %d' % (len(parts) + 1))
        yield Sent(exchange.later(at, 1), part, what, "MetadataCreate", body["objectUUID"])


TRUTH = pa.schema(
    {
        "partition": pa.int32(),
        "offset": pa.int64(),
        **dict.fromkeys(("message_type", "object_uuid", "what", "error_code"), pa.string()),
    }
)


def write(folder: Path) -> None:
    """Write the records, what each of them is and which code it deserves by itself, and how many of each."""
    offsets: Counter[int] = Counter()
    rows: list[Document] = []
    for place, each in enumerate(messages()):
        shard = int(sha256(str(place).encode()).hexdigest(), 16) % SHARDS
        key = each.object_uuid.encode() if each.object_uuid else None
        at = {"topic": "rdss", "partition": shard, "offset": offsets[shard], "timestamp": each.at}
        rows.append({**each._asdict(), **at, "timestampType": 0, "key": key})
        offsets[shard] += 1
    write_table(folder / "records.parquet", as_records(rows))
    write_table(folder / "truth.parquet", pa.Table.from_pylist(rows, TRUTH))
    codes, whats = (Counter(row[name] or "valid" for row in rows) for name in ("error_code", "what"))
    told = {"codes": dict(sorted(codes.items())), "what": dict(sorted(whats.items()))}
    write_json(folder / "manifest.json", {"records": len(rows), **told})
