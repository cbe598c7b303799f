"""
One rule for gateway and exchange: a naive reader, one message at a time, is what both are measured by.

In `make test`:
tests/rdss/test_exchange_cases.py::test_what_becomes_of_messages_about_objects,
tests/rdss/gateway/test_gateway.py::test_every_message_has_one_outcome_in_the_order_of_the_checks.
"""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from cdckit.model.records import RECORD_SCHEMA
from cdckit.rdss import Exchange, Status
from cdckit.rdss.gateway import Outcome, OutgoingMessage, SqliteRepository
from support.rdss_exchange import exchange as queues
from support.rdss_exchange import gateway
from support.rdss_messages import as_bytes, changed, message
from tools.tiers import seeds

NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)
WORLDS = 40


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


def frame(spark: SparkSession, values: list[bytes], first: int) -> DataFrame:
    rows = [
        (None, value, "rdss", 0, place, NOON + timedelta(seconds=place), 0, None)
        for place, value in enumerate(values, first)
    ]
    return spark.createDataFrame(rows, RECORD_SCHEMA).coalesce(1)


def found_by(exchange: Exchange) -> tuple[list[tuple[str, str | None]], set[tuple[str, str, str | None]]]:
    outcomes = exchange.messages().orderBy("offset").select("outcome", "error_code").collect()
    versions = exchange.history().select("objectUUID", "valid_from_timestamp", "objectTitle").collect()
    return [tuple(row) for row in outcomes], {
        (row[0], row[1].isoformat(timespec="milliseconds") + "Z", row[2]) for row in versions
    }


@seeds(1, soak=3)
def test_gateway_and_exchange_read_any_messages_as_one_who_reads_them_one_by_one(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    """Parts, whole messages, retries, contradictions, equal ids, messages of our own; and after a rebuild."""
    chance, clock = random.Random(seed), itertools.count()
    drawn = [World(number, chance, clock).draw() for number in range(WORLDS)]
    values = [each for every in itertools.zip_longest(*drawn) for each in every if each is not None]
    own = {uuid(world, 1): World(world, chance, clock).whole() for world in range(0, WORLDS, 3)}
    mine = [
        as_bytes({**as_text(value), "messageHeader": {**as_text(value)["messageHeader"], "messageId": name}})
        for name, value in own.items()
    ]
    naive = Naive(set(own))
    for each in values:
        naive.read(each)
    assert len({outcome for outcome, _ in naive.outcomes}) == 4
    assert {"GENERR004", "GENERR007"} <= {code for _, code in naive.outcomes}

    with SqliteRepository(":memory:") as repository:
        repository.mark_to_send(
            [OutgoingMessage(name, "Command", "MetadataCreate", name, 1, b"{}") for name in own]
        )
        channels, handled = queues(), list[Any]()
        for each in values:
            channels.input.send(each, key="")
        receiver = gateway(repository, channels, clock=lambda: NOON)
        while receiver.receive(chance.randrange(1, 50)):
            receiver.process(
                lambda turn: handled.append((turn.message.message_id, turn.message.body)), chance.randrange(9)
            )
        receiver.process(lambda turn: handled.append((turn.message.message_id, turn.message.body)))
        counted = Counter({str(outcome): number for outcome, number in repository.counts().items()})
    assert +counted == Counter(outcome for outcome, _ in naive.outcomes)
    expected = [(told["messageHeader"]["messageId"], told["messageBody"]) for _, _, told in naive.wholes]
    assert sorted(map(repr, handled)) == sorted(map(repr, expected))
    assert Outcome.PROCESSED in counted

    exchanges = {
        name: Exchange(spark, tmp_path / name, types=["ResearchObject"], buckets=1)
        for name in ("one", "many")
    }
    cuts = {
        "one": [0, len(values)],
        "many": [0, *sorted(chance.sample(range(1, len(values)), 2)), len(values)],
    }
    for name, exchange in exchanges.items():
        exchange.note_own(mine, Status.TO_SEND)
        for begin, end in itertools.pairwise(cuts[name]):
            exchange.receive(frame(spark, values[begin:end], begin))
        assert found_by(exchange) == naive.objects(), name
    exchanges["many"].rebuild()
    assert found_by(exchanges["many"]) == naive.objects()
