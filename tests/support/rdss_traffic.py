"""
Traffic for a gateway, drawn at random: of every outcome, 15 % of it twice, and what must come of it.

A message is known by its number wherever it turns up: in the body of what is refused, in the rows that the
handler writes, in the responses.
"""

from __future__ import annotations

import json
import random
from base64 import b64decode
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cdckit.rdss.findings import RdssFault
from cdckit.rdss.gateway import Message, MessageContext, Outcome, Rejection, SqliteRepository
from support.rdss_exchange import OBJECT, expired, message, uuid

DONE = "CREATE TABLE IF NOT EXISTS done (message TEXT, time INTEGER PRIMARY KEY)"
"""The handler's own table, in the repository's file: a row for each message that it was done with."""


@dataclass
class Traffic:
    """What is sent, and what must come of it, by messageId; of malformed messages, by their bytes."""

    sent: list[bytes] = field(default_factory=list)
    processed: set[str] = field(default_factory=set)
    asked: set[str] = field(default_factory=set)
    expired: set[str] = field(default_factory=set)
    malformed: set[bytes] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)

    @property
    def distinct(self) -> int:
        return len(self.processed | self.expired | self.failed | self.unknown) + len(self.malformed)


def traffic(size: int, seed: int) -> Traffic:
    """*size* distinct messages, mostly valid, and 15 % of them a second time, mixed up."""
    chance, made = random.Random(seed), Traffic()
    for number in range(1, size + 1):
        kind = chance.choices(
            ["plain", "read", "expired", "malformed", "failing", "unknown"], [60, 15, 5, 8, 6, 6]
        )[0]
        name = uuid(number)
        if kind == "malformed":
            made.malformed.add(b'{"number": %d' % number)
            made.sent.append(b'{"number": %d' % number)
            continue
        one = (
            expired(number)
            if kind == "expired"
            else message(number, "MetadataRead" if kind == "read" else "MetadataDelete")
        )
        if kind in ("failing", "unknown"):
            one = Message({**one.header, "generator": kind}, one.body)
        {"expired": made.expired, "failing": made.failed, "unknown": made.unknown}.get(
            kind, made.processed
        ).add(name)
        if kind == "read":
            made.asked.add(name)
        made.sent.append(one.to_bytes())
    again = chance.sample(made.sent, size * 15 // 100)
    for each in again:
        made.sent.insert(chance.randrange(len(made.sent) + 1), each)
    return made


def handler(turn: MessageContext) -> None:
    """Writes a row, responds to reads, and fails where the message says so."""
    generator = turn.message.header["generator"]
    turn.write("INSERT INTO done (message) VALUES (?)", turn.message.message_id)
    if generator == "failing":
        raise OSError("the shelf is locked")
    if generator == "unknown":
        raise Rejection(RdssFault.DELETE_OF_UNKNOWN)
    if turn.message.message_type == "MetadataRead":
        turn.reply(OBJECT)


def check(made: Traffic, repository: SqliteRepository, values: Callable[[str], list[bytes]]) -> None:
    """
    Every message has the outcome that it must have, once; the queues have what follows, at least once.

    *values* are the messages of a queue.
    """
    done = [row[0] for row in repository.rows("SELECT message FROM done")]
    assert sorted(done) == sorted(made.processed)
    counts = repository.counts()
    assert counts[Outcome.WAITING] == 0
    assert counts[Outcome.PROCESSED] == len(made.processed)
    # What was refused when it was handled has not been processed: its second copy is handled, too.
    again = counts[Outcome.INVALID] - len(made.expired | made.unknown) - len(made.malformed)
    more = counts[Outcome.ERROR] - len(made.failed)
    assert min(again, more) >= 0
    assert counts[Outcome.DUPLICATE] + again + more >= len(made.sent) - made.distinct

    def read(name: str) -> list[dict[str, Any]]:
        return [json.loads(each) for each in values(name)]

    invalid = read("invalid")
    named = {each["messageHeader"].get("messageId") for each in invalid} - {None}
    assert named == made.expired | made.unknown
    nameless = [each["messageBody"] for each in invalid if "messageId" not in each["messageHeader"]]
    assert {b64decode(each["base64"]) for each in nameless} == made.malformed
    assert {each["messageHeader"]["messageId"] for each in read("error")} == made.failed
    assert {each["messageHeader"]["correlationId"] for each in read("output")} == made.asked
