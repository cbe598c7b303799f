"""
Make the sample of the Debezium streams of 2014: two days of an address book that is kept on several devices.

    python -m tools.stream_samples --out data/samples/debezium_streams

Four invented users keep contacts in three zones, and have their devices told what changes.  All names and
numbers are invented, and all chance is drawn from a seed.  The manifest lists what goes wrong in it.
"""

from __future__ import annotations

import argparse
import json
import random
import uuid
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cdckit.parts.arrow_types import arrow_schema
from cdckit.records import RECORD_SCHEMA

START = datetime(2014, 11, 10, 8, tzinfo=UTC)
REQUESTS = 220
DATABASE = "my-db"
ZONES = ("default", "sales", "support")
USERS = ("jsmith", "akhan", "mrossi", "lchen")
FIRST = ("Sally", "William", "Veronica", "Charlie", "Ines", "Tomas", "Yuki", "Amara", "Piet", "Noor")
LAST = ("Anderson", "Johnson", "Mars", "Robertson", "Silva", "Novak", "Tanaka", "Diallo", "Visser", "Haddad")
TITLES = ("CEO", "CFO", "Sales Manager", "Engineer")
SUBSCRIPTIONS = "$zoneSubscription"

Operation = dict[str, Any]


class Book:
    """The address book, and all chance."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.contacts: list[tuple[str, str]] = []
        self.clients = {user: self.identifier() for user in USERS}
        self.devices = {user: [self.identifier() for _ in range(1 + (user < "k"))] for user in USERS}
        self.requests = Counter[str]()

    def identifier(self) -> str:
        """A UUID that is drawn as all else is."""
        return str(uuid.UUID(int=self.chance.getrandbits(128), version=4))

    def phone(self) -> str:
        """A number that nobody has."""
        return f"1-222-555-{self.chance.randrange(10_000):04d}"

    def request(self, user: str, at: datetime, patches: list[Any], **more: Any) -> dict[str, Any]:
        """A batch, numbered by its client."""
        self.requests[user] += 1
        header = {
            "db": DATABASE,
            "clientid": self.clients[user],
            "request": self.requests[user],
            "user": user,
        }
        asked = {"includeBefore": self.chance.random() < 0.5, "includeAfter": True, "learning": True}
        return {**header, "begun": millis(at), **asked, **more, "patches": patches}

    def patches(self) -> list[dict[str, Any]]:
        """What one request asks for: mostly one patch, now and then several."""
        return [self.patch() for _ in range(self.chance.choice([1, 1, 1, 1, 2, 3]))]

    def patch(self) -> dict[str, Any]:
        """A new contact, or something done to one that there is, or was."""
        if len(self.contacts) < 12 or self.chance.random() < 0.2:
            contact = (self.identifier(), self.chance.choice(ZONES))
            self.contacts.append(contact)
            return patch(contact, *self.created())
        contact = self.chance.choice(self.contacts)
        return patch(contact, *self.chance.choice(_ALTERED)(self))

    def created(self) -> list[Operation]:
        """A contact, as fields one by one, or as one document."""
        name = {"firstName": self.chance.choice(FIRST), "lastName": self.chance.choice(LAST)}
        if self.chance.random() < 0.3:
            return [add("/", {**name, "phone": {"home": self.phone()}, "calls": 0})]
        fields = [add(field, value) for field, value in name.items()]
        return [*fields, add("phone/home", self.phone()), add("calls", 0)]

    def renamed(self) -> list[Operation]:
        return [{"op": "replace", "path": "lastName", "value": self.chance.choice(LAST)}]

    def called(self) -> list[Operation]:
        return [{"op": "inc", "path": "calls", "value": self.chance.choice([1, 1, 2, 0.5])}]

    def moved(self) -> list[Operation]:
        return [{"op": "move", "fromPath": "phone/home", "toPath": "phone/mobile"}]

    def copied(self) -> list[Operation]:
        return [{"op": "copy", "fromPath": "lastName", "toPath": "sortName"}]

    def titled(self) -> list[Operation]:
        return [
            add("title", self.chance.choice(TITLES)),
            add("tags/-", self.chance.choice(["vip", "new", "old"])),
        ]

    def untitled(self) -> list[Operation]:
        return [{"op": "remove", "path": "title"}]

    def checked(self) -> list[Operation]:
        """Only while nobody changed the title: often somebody did, and all is undone."""
        old, new = self.chance.choice(TITLES), self.chance.choice(TITLES)
        return [add("checked", True), {"op": "test", "path": "title", "value": old}, add("title", new)]

    def aged(self) -> list[Operation]:
        return [add("age", self.chance.choice([32, 47, 51, "unknown"]))]

    def met(self) -> list[Operation]:
        return [add("met", f"2014-11-{self.chance.randint(1, 9):02d}T10:00:00Z")]

    def read(self) -> list[Operation]:
        return []

    def deleted(self) -> list[Operation]:
        return [{"op": "remove", "path": "/"}]

    def strange(self) -> list[Operation]:
        """What cannot be done: the kinds of fault that a patch can have."""
        return [
            self.chance.choice(
                [
                    {"op": "twist", "path": "title"},
                    {"op": "add", "path": "lastName/first", "value": 1},
                    {"op": "inc", "path": "lastName", "value": 1},
                    {"op": "add", "path": "phone//home", "value": "1"},
                    {"op": "add", "path": "tags/99", "value": "far"},
                ]
            )
        ]


_ALTERED = (
    *(Book.renamed, Book.called, Book.called, Book.moved, Book.copied, Book.titled, Book.titled),
    *(Book.untitled, Book.checked, Book.aged, Book.met, Book.read, Book.deleted, Book.strange),
)


def add(path: str, value: Any) -> Operation:
    """The commonest operation."""
    return {"op": "add", "path": path, "value": value}


def patch(contact: tuple[str, str], *ops: Operation) -> dict[str, Any]:
    """A patch of one contact."""
    return {"collection": "Contacts", "zone": contact[1], "entity": contact[0], "ops": list(ops)}


def millis(at: datetime) -> int:
    """Milliseconds, as messages have instants."""
    return round(at.timestamp() * 1000)


def batches(book: Book) -> list[tuple[datetime, Any]]:
    """The requests, when each reached the topic."""
    sent: list[tuple[datetime, Any]] = []
    at = START
    wants = subscriptions(book)
    for place in range(REQUESTS):
        at += timedelta(seconds=book.chance.expovariate(1 / 600))
        user = book.chance.choice(USERS)
        if place in wants:
            user, said = wants[place]
            request = book.request(user, at, [said], learning=False)
        else:
            request = book.request(user, at, book.patches())
        sent.append((at + timedelta(milliseconds=book.chance.randint(1, 900)), request))
        if place % 20 == 13:  # a client that got no answer sends it again
            sent.append((at + timedelta(minutes=3), request))
    for hours, value in wrong(book):
        sent.append((START + timedelta(hours=hours), value))
    return sorted(sent, key=lambda each: each[0])


def subscriptions(book: Book) -> dict[int, tuple[str, dict[str, Any]]]:
    """By the place among the requests: subscriptions that are made, altered, and given up."""
    found = {}
    for place, (user, zone) in enumerate(zip(USERS, (*ZONES, "default"), strict=True)):
        for turn, device in enumerate(book.devices[user]):
            wish = {"device": device, "zone": zone, "creates": True, "deletes": True, "updates": turn == 0}
            found[5 + 3 * place + turn] = (user, subscription(f"{user}-{turn}", add("/", wish)))
    found[90] = ("jsmith", subscription("jsmith-0", add("zone", "support")))
    found[130] = ("mrossi", subscription("mrossi-0", {"op": "remove", "path": "/"}))
    found[150] = ("akhan", subscription("akhan-1", {"op": "replace", "path": "updates", "value": True}))
    return found


def subscription(name: str, *ops: Operation) -> dict[str, Any]:
    """A patch of one subscription."""
    return {"collection": SUBSCRIPTIONS, "zone": "subscriptions", "entity": name, "ops": list(ops)}


def wrong(book: Book) -> list[tuple[float, Any]]:
    """What is no request, or none of this database: hours after the start, and the value."""
    other = book.request(
        "lchen", START, [patch(("c1", "default"), add("firstName", "Foreign"))], db="other-db"
    )
    numbered = {**book.request("lchen", START, []), "request": "two"}
    return [(3.1, other), (7.5, b'{"db": "my-db", "patches": ['), (11.2, numbered), (20.4, None)]


def connections(book: Book) -> list[tuple[datetime, Any]]:
    """Which user came with which device, with versions of the app that are upgraded meanwhile."""
    found = []
    for _ in range(60):
        at = START + timedelta(seconds=book.chance.randrange(130_000))
        user = book.chance.choice(USERS)
        device = book.chance.choice(book.devices[user])
        version = "1.2" if at > START + timedelta(hours=20) and user != "mrossi" else "1.1"
        said = {"db": DATABASE, "clientid": book.clients[user], "user": user, "device": device}
        found.append((at, {**said, "appVersion": version, "begun": millis(at)}))
    return sorted(found, key=lambda each: each[0])


def schema_patches(book: Book) -> list[tuple[datetime, Any]]:
    """What an administrator declares: a type at first, a field later."""
    text = {"type": "STRING", "optional": False}
    declared = [
        (0.0, [add("Contacts/fields/lastName", text)]),
        (
            25.0,
            [
                add("Contacts/fields/title", {"type": "STRING", "optional": True}),
                add("Groups", {"fields": {}}),
            ],
        ),
    ]
    client = book.identifier()
    header = {
        "db": DATABASE,
        "clientid": client,
        "user": "admin",
        "part": 1,
        "parts": 1,
        "includeAfter": True,
    }
    return [
        (at, {**header, "request": place, "begun": millis(at), "ops": ops})
        for place, (hours, ops) in enumerate(declared, 1)
        for at in [START + timedelta(hours=hours)]
    ]


def records(topic: str, sent: list[tuple[datetime, Any]]) -> list[dict[str, Any]]:
    """Messages as records of one partition of a topic."""
    return [
        {
            "value": json.dumps(said).encode() if isinstance(said, dict) else said,
            **{"topic": topic, "partition": 0, "offset": offset, "timestamp": at, "timestampType": 1},
        }
        for offset, (at, said) in enumerate(sent)
    ]


def write(folder: Path) -> None:
    """Write the sample."""
    book = Book(2014)
    streams = {"entity-batches": batches, "schema-patches": schema_patches, "connections": connections}
    counts = {}
    folder.mkdir(parents=True, exist_ok=True)
    for name, made in streams.items():
        rows = records(name, made(book))
        counts[name] = len(rows)
        table = pa.Table.from_pylist(rows, arrow_schema(RECORD_SCHEMA))
        pq.write_table(table, folder / f"{name}.parquet", compression="zstd")
    told = {
        "records": counts,
        "wrong": {"another database": 1, "no JSON": 1, "a number as text": 1, "no value": 1},
    }
    (folder / "manifest.json").write_text(json.dumps(told, indent=2) + "\n")


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.stream_samples", description=__doc__.split("\n")[1]
    )
    parser.add_argument("--out", type=Path, required=True)
    write(parser.parse_args().out)


if __name__ == "__main__":
    main()
