"""Random messages about objects; and a naive reader, one message at a time, by which others are measured."""

from __future__ import annotations

import itertools
import json
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from support.rdss_messages import as_bytes, changed, message

NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)


def uuid(world: int, number: int) -> str:
    return f"{world:04x}{number:04x}-0000-4000-8000-00000000abcd"


def as_text(value: bytes) -> Any:
    return json.loads(value)


@dataclass
class World:
    """Messages about three objects, under three ids and in two sequences; names of others stand in none."""

    number: int
    chance: random.Random
    clock: itertools.count[int]
    sent: list[bytes] = field(default_factory=list)

    def header(self, name: int) -> list[dict[str, Any]]:
        at = (
            NOON
            - timedelta(days=1)
            + timedelta(seconds=self.chance.randrange(80_000), milliseconds=next(self.clock))
        )
        published = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return [
            changed("/messageHeader/messageId", uuid(self.number, name)),
            changed("/messageHeader/messageTimings", {"publishedTimestamp": published}),
            changed(
                "/messageHeader/messageSequence/sequence", uuid(self.number, 500 + next(self.clock) % 60_000)
            ),
        ]

    def whole(self) -> bytes:
        kind = self.chance.choice(["create", "update", "update", "delete"])
        thing = self.chance.randrange(20, 24)
        changes = [
            *self.header(self.chance.randrange(1, 6)),
            changed("/messageBody/objectUUID", uuid(self.number, thing)),
        ]
        if kind != "delete":
            changes.append(changed("/messageBody/objectTitle", f"title {next(self.clock)}"))
        if kind == "update":
            other = {
                "identifierType": "UUID",
                "identifierValue": uuid(self.number, self.chance.randrange(20, 24)),
            }
            relation = {"relationType": "isNewVersionOf", "identifier": other}
            changes.append(changed("/messageBody/objectRelatedIdentifier", [relation]))
        return as_bytes(message(kind, *changes))

    def sequence(self, name: int) -> list[bytes]:
        """The parts of one, and others in their places; under one id, or each under its own."""
        sent = as_text(as_bytes(message("delete", *self.header(self.chance.randrange(1, 6)))))
        sent["messageBody"]["objectUUID"] = uuid(self.number, self.chance.randrange(20, 24))
        text, total = json.dumps(sent["messageBody"]), self.chance.choice([2, 3])
        ids = [sent["messageHeader"]["messageId"], *(uuid(self.number, name * 10 + n) for n in (1, 2))]
        made, step, shared = [], len(text) // total + 1, self.chance.random() < 0.5
        for place in range(total):
            piece = text[place * step : place * step + step]
            for body, generator, many in (
                (piece, "g", total),
                ("\x01" + piece, "g", total),
                (piece, "h", total),
                (piece, "g", 4),
            ):
                for own in (ids[0] if shared else ids[place], uuid(self.number, name * 10 + 5 + place)):
                    header = {**sent["messageHeader"], "messageId": own, "generator": generator}
                    header["messageSequence"] = {
                        "sequence": uuid(self.number, name),
                        "position": place + 1,
                        "total": many,
                    }
                    made.append(as_bytes({"messageHeader": header, "messageBody": body}))
        return made

    def draw(self) -> list[bytes]:
        sequences = [self.sequence(name) for name in (40, 41)]
        for _ in range(self.chance.randrange(8, 18)):
            what = self.chance.random()
            if what < 0.35:
                self.sent.append(self.whole())
            elif what < 0.8:
                # Right parts mostly: each begins a group of eight.
                parts = self.chance.choice(sequences)
                right = parts[::8] if self.chance.random() < 0.7 else parts
                self.sent.append(self.chance.choice(right))
            elif what < 0.85:
                self.sent.append(b'{"world": %d, "number": %d' % (self.number, self.chance.randrange(2)))
            elif self.sent:
                again = self.chance.choice(self.sent)
                if self.chance.random() < 0.5 and not again.startswith(b'{"world"'):
                    decorated = as_text(again)
                    decorated["messageHeader"] |= {"errorCode": "GENERR006", "errorDescription": "It failed."}
                    again = json.dumps(decorated).encode()
                self.sent.append(again)
        return self.sent


class Naive:
    """Reads one message after the other; `outcomes` says of each, by its number, its outcome and code."""

    def __init__(self, own: set[str]) -> None:
        self.own, self.known, self.refused = own, set(own), set[bytes]()
        self.sequences: dict[str, dict[str, Any]] = {}
        self.outcomes: list[tuple[str, str | None]] = []
        self.wholes: list[tuple[int, list[int], dict[str, Any]]] = []
        """Of each message that counts: where its first part came, all of its records, and what it is."""

    def read(self, value: bytes) -> None:
        number = len(self.outcomes)
        self.outcomes.append(("", None))
        try:
            told = json.loads(value)
        except ValueError:
            self.outcomes[number] = self.refuse(value, "GENERR007")
            return
        header = told["messageHeader"]
        if header["messageSequence"]["total"] > 1:
            self.part(number, value, header, told["messageBody"])
        elif header["messageId"] in self.known:
            self.outcomes[number] = ("duplicate", None)
        else:
            self.count(number, [number], told)

    def refuse(self, value: bytes, code: str) -> tuple[str, str | None]:
        if value in self.refused:
            return ("duplicate", None)
        self.refused.add(value)
        return ("invalid", code)

    def count(self, first: int, numbers: list[int], told: dict[str, Any]) -> None:
        self.known.add(told["messageHeader"]["messageId"])
        self.wholes.append((first, numbers, told))
        for each in numbers:
            self.outcomes[each] = ("processed", None)

    def part(self, number: int, value: bytes, header: dict[str, Any], body: str) -> None:
        place, total = header["messageSequence"]["position"], header["messageSequence"]["total"]
        terms = (
            total,
            header["messageType"],
            header["messageClass"],
            header["tenantJiscID"],
            header["generator"],
        )
        if header["messageId"] in self.own:
            self.outcomes[number] = ("duplicate", None)
            return
        found = self.sequences.setdefault(
            header["messageSequence"]["sequence"], {"terms": terms, "there": {}, "header": {}}
        )
        there = found["there"]
        if terms != found["terms"] or (place in there and there[place][1] != body):
            self.outcomes[number] = self.refuse(value, "GENERR004")
        elif place in there:
            self.outcomes[number] = ("duplicate", None)
        else:
            there[place] = (number, body)
            self.outcomes[number] = ("waiting", None)
            if place == 1:
                found["header"] = header
            if len(there) == total:
                self.whole(found)

    def whole(self, found: dict[str, Any]) -> None:
        numbers = [number for _, (number, _) in sorted(found["there"].items())]
        text = "".join(body for _, (_, body) in sorted(found["there"].items()))
        try:
            body = json.loads(text)
        except ValueError:
            outcome: tuple[str, str | None] = ("invalid", "GENERR007")
        else:
            if found["header"]["messageId"] not in self.known:
                self.count(numbers[0], numbers, {"messageHeader": found["header"], "messageBody": body})
                return
            outcome = ("duplicate", None)
        for each in numbers:
            self.outcomes[each] = outcome

    def objects(self) -> tuple[list[tuple[str, str | None]], set[tuple[str, str, str | None]]]:
        """Outcomes with those of messages about unknown objects, and versions: object, time, title."""
        outcomes, exist, versions = list(self.outcomes), dict[str, bool](), set[tuple[str, str, str | None]]()
        published = [
            (each[2]["messageHeader"]["messageTimings"]["publishedTimestamp"], *each) for each in self.wholes
        ]
        for at, _, numbers, told in sorted(published, key=lambda each: each[:2]):
            body, kind = told["messageBody"], told["messageHeader"]["messageType"]
            thing = body["objectUUID"]
            others = [
                each["identifier"]["identifierValue"] for each in body.get("objectRelatedIdentifier", [])
            ]
            if kind != "MetadataCreate" and not any(exist.get(each) for each in (thing, *others)):
                code = "APPERRMET001" if kind == "MetadataUpdate" else "APPERRMET002"
                for each in numbers:
                    outcomes[each] = ("invalid", code)
                continue
            exist[thing] = kind != "MetadataDelete"
            versions.add((thing, at, body.get("objectTitle")))
        return outcomes, versions


def draw_worlds(seed: int, worlds: int) -> tuple[random.Random, list[bytes], dict[str, bytes]]:
    """Messages of so many worlds, which take turns; and messages of our own, by their ids."""
    chance, clock = random.Random(seed), itertools.count()
    drawn = [World(number, chance, clock).draw() for number in range(worlds)]
    values = [value for turn in itertools.zip_longest(*drawn) for value in turn if value is not None]
    own = {uuid(world, 1): World(world, chance, clock).whole() for world in range(0, worlds, 3)}
    return chance, values, own
