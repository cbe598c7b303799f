"""
`Exchange.erase`: what messages said of an object goes; all other objects stay what they were.

In `make test`:
tests/test_doors.py::test_who_was_erased_is_gone_and_does_not_come_again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdckit import rdss
from cdckit.ledger import UnfinishedErasure, UnknownEntities
from cdckit.rdss import Exchange, Rules, exchange_erasure
from cdckit.shell import shell
from cdckit.store import erasure as store_erasure
from support.dying import Died, dies_at
from support.rdss_messages import Sent, as_bytes, changed, frame, titled, told, uuid
from support.remains import find_remains
from tools.tiers import seeds

WHO = {"by": "dana", "reason": "asked for by letter"}
SHORT = Rules(max_bytes=1200)


def version(number: int, at: str, thing: int, of: int, title: str) -> Sent:
    other = {"identifierType": "URN", "identifierValue": uuid(of)}
    relation = changed(
        "/messageBody/objectRelatedIdentifier", [{"relationType": "isNewVersionOf", "identifier": other}]
    )
    return told("update", number, at, thing, relation, changed("/messageBody/objectTitle", title))


def in_parts(sent: Sent, start: int) -> list[Sent]:
    return [(value, start + place) for place, value in enumerate(rdss.split(sent[0], rules=SHORT))]


def of_others(exchange: Exchange, places: Iterable[int], gone: Sequence[str]) -> dict[str, list[str]]:
    """What the exchange says of everybody else: of messages at other places, and of other objects."""
    others = {
        "messages": exchange.messages().where(~F.col("offset").isin(*places)),
        "waiting": exchange.waiting(),
        "rejects": exchange.rejects().where(~F.col("offset").isin(*places)),
        "reads": exchange.read_requests().where(~F.col("object_uuid").isin(*gone)),
        "events": exchange.preservation_events().where(~F.col("object_uuid").isin(*gone)),
    }
    for name, view in exchange.ledgers().items():
        others[name] = view.history().where(~F.col("objectUUID").isin(*gone))
    return {name: sorted(map(repr, rows.collect())) for name, rows in others.items()}


def outcomes(exchange: Exchange) -> dict[int, str]:
    rows = exchange.messages().select("offset", "outcome").collect()
    return {row["offset"]: row["outcome"] for row in rows}


ADA, BOB, EVE, UNKNOWN = 0xADA, 0xB0B, 0xE7E, 0x0BAD
LONG = titled("update", 0x20, "12:00", ADA, "ada lovelace " * 300)
PARTS = in_parts(LONG, 0x20)
OTHER = json.loads(PARTS[1][0])
OTHER["messageBody"] = "ada, others say"
OURS = in_parts(titled("update", 0x30, "12:30", ADA, "ada, we say " * 300), 0x30)
ALONE = in_parts(titled("update", 0x40, "12:40", BOB, "bob " * 400), 0x40)[0]
ABOUT_ADA = [
    titled("create", 1, "09:00", ADA, "ada lovelace"),
    titled("update", 2, "10:00", ADA, "ada lovelace again"),
    titled("update", 3, "10:00", ADA, "ada lovelace again", again=1),
    told("read", 4, "10:30", ADA),
    told("preservation", 5, "10:40", ADA),
    *PARTS,
    (PARTS[1][0], 0x2A),
    (as_bytes(OTHER), 0x2B),
    *OURS,
]
ABOUT_OTHERS = [
    titled("create", 8, "08:00", BOB, "bob"),
    version(9, "11:00", EVE, ADA, "eve, once ada"),
    titled("update", 10, "13:00", BOB, "bob of the id of ada", again=1),
    told("read", 11, "13:30", EVE),
    (b"?", 12),
    ALONE,
]
SUBJECT: dict[str, list[str | int | float]] = {
    "ada": ["ada lovelace", "ada, ", *map(uuid, (2, 4, 5, 0x20, 0x30, 0x1020, 0x1030))]
}


def test_an_object_and_its_messages_are_forgotten(spark: SparkSession, tmp_path: Path) -> None:
    """Its parts, repeats and reads too; made anew and sent again it does not come back, in any ledger."""
    exchange = Exchange(spark, tmp_path, types=["ResearchObject", "Dataset"])
    exchange.note_own(frame(spark, OURS))
    exchange.receive(frame(spark, [*ABOUT_ADA[:7], *ABOUT_OTHERS[1:]]))
    exchange.receive(frame(spark, [*ABOUT_ADA[7:], ABOUT_OTHERS[0]]))
    places, gone = [offset for _, offset in ABOUT_ADA], [uuid(ADA)]
    known = outcomes(exchange)
    assert {known[offset] for offset in (3, 10, *(at for _, at in OURS), 0x2A)} == {"duplicate"}
    assert (known[9], known[11], known[0x40]) == ("processed", "processed", "waiting")
    before = of_others(exchange, places, gone)
    remains = find_remains(tmp_path, SUBJECT)
    tables = {"messages", "own", "outcomes", "Dataset.history"}
    assert tables <= {path.split("/")[0] for path in remains}
    receipt = exchange.erase("Dataset", keys=[{"objectUUID": uuid(ADA)}], **WHO)
    assert find_remains(tmp_path, SUBJECT) == {}
    assert of_others(exchange, places, gone) == before
    assert receipt.is_proven
    erased = {part.table: part.erased for part in receipt.parts if part.bucket is None}
    assert erased["messages"] == len(ABOUT_ADA)
    assert receipt.not_erased[-1].startswith("1 rejects and 1 waiting records, of which nobody can tell")
    assert exchange.status(uuid(1)) == "RECEIVED"
    exchange.rebuild()
    # What comes again, or anew, is refused; what others say of her object is judged as before.
    more = [
        *((value, 100 + at) for value, at in ABOUT_ADA),
        titled("update", 0x90, "14:00", ADA, "ada lovelace after all"),
        version(0x91, "14:00", 0xE8E, ADA, "another one, once ada"),
        titled("create", 0x92, "14:00", BOB, "bob of the id of ada", again=1),
    ]
    exchange.receive(frame(spark, more))
    assert find_remains(tmp_path, SUBJECT) == {}
    later = [at for _, at in more]
    assert of_others(exchange, [*places, *later], [*gone, uuid(0xE8E)]) == before
    now = outcomes(exchange)
    assert [now[offset] for offset in (0x90, 0x91, 0x92)] == ["erased", "processed", "duplicate"]
    assert {now[100 + at] for _, at in ABOUT_ADA} == {"erased"} == {now[at] for _, at in ABOUT_ADA}
    refused = exchange.ledgers()["ResearchObject"].refused().select("offset", "error_code").collect()
    assert sorted(refused) == [(at, "ENTITY_ERASED") for at in (101, 102, 103, 0x90)]
    exchange.store.check(deep=True)


def test_rejects_that_no_ledger_has_go_too_and_parts_that_wait_once_they_are_whole(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Nobody can tell of whom a part speaks before; one that comes again is known then."""
    exchange = Exchange(spark, tmp_path, types=["ResearchObject"])
    sent = [
        titled("create", 1, "09:00", BOB, "bob"),
        titled("update", 2, "10:00", UNKNOWN, "ada lovelace"),
        version(3, "11:00", EVE, UNKNOWN, "eve"),
        titled("create", 5, "09:00", ADA, "ada"),
        *PARTS[:2],
    ]
    exchange.receive(frame(spark, sent))
    assert [row["offset"] for row in exchange.rejects().orderBy("offset").collect()] == [2, 3]
    with pytest.raises(UnknownEntities):
        exchange.erase("ResearchObject", keys=[{"objectUUID": uuid(77)}], **WHO)
    receipt = exchange.erase("ResearchObject", keys=[{"objectUUID": uuid(UNKNOWN)}], later="erase", **WHO)
    assert (receipt.entities, receipt.not_erased[-1][:39]) == (1, "0 rejects and 2 waiting records, of whi")
    assert find_remains(tmp_path, {"ada": [uuid(2)]}) == {}
    exchange.erase("ResearchObject", keys=[{"objectUUID": uuid(ADA)}], **WHO)
    assert find_remains(tmp_path, SUBJECT) != {}
    assert outcomes(exchange) == {
        **{1: "processed", 2: "erased", 3: "invalid", 5: "erased"},
        **dict.fromkeys((at for _, at in PARTS[:2]), "waiting"),
    }
    # The create comes late: it is left out in silence, and heals nobody.
    late = titled("create", 4, "08:00", UNKNOWN, "ada lovelace")
    exchange.receive(frame(spark, [late, *PARTS[2:], (as_bytes(OTHER), 0x2B)]))
    exchange.store.vacuum(timedelta(0))
    exchange.receive(frame(spark, [(PARTS[0][0], 0x50), titled("create", 6, "09:00", 0xC1D, "cid")]))
    expected = dict.fromkeys((2, 4, 5, 0x2B, 0x50, *(at for _, at in PARTS)), "erased")
    now = outcomes(exchange)
    assert (now.pop(1), now.pop(3), now.pop(6), now) == (
        "processed",
        "invalid",
        "processed",
        expected,
    )
    assert exchange.waiting().isEmpty()
    newest = exchange.store.snapshot()
    for name in newest.names():
        texts = str(newest.read(name).toArrow().to_pylist())
        assert not [each for each in ("ada lovelace", "ada, ", uuid(0x1020), uuid(0x20)) if each in texts]
    assert exchange.ledgers()["ResearchObject"].refused().count() == 1


class Drawn(NamedTuple):
    """A message, or a part of one: of which number, about which object, and its bytes."""

    number: int
    thing: int
    value: bytes


def drawn_messages(draw: Random, numbers: range, hours: range, subject: int) -> list[Drawn]:
    """
    Messages about six objects, in any order: versions of each other, parts of which some lack, ids that were
    there before, and a tenth of all that again.

    Of the *subject* all parts come, for of what waits nobody can tell of whom it speaks.
    """
    found: list[Drawn] = []
    for number in numbers:
        thing, at = draw.randrange(1, 7), f"{draw.choice(hours):02d}:{draw.randrange(60):02d}"
        title = f"thing{thing}. " * (300 if draw.random() < 0.2 else 1)
        kind = draw.choice(
            ["create", "create", "update", "update", "version", "delete", "read", "preservation"]
        )
        again = draw.randrange(1, number) if number > 1 and draw.random() < 0.1 else 0
        if kind == "version":
            sent = version(number, at, thing, draw.randrange(1, 7), title)
        elif kind in ("create", "update"):
            sent = titled(kind, number, at, thing, title, again=again)
        else:
            sent = told(kind, number, at, thing, again=again)
        pieces = in_parts(sent, 0) if len(title) > 100 else [sent]
        if len(pieces) > 1 and thing != subject and draw.random() < 0.3:
            pieces.pop(draw.randrange(len(pieces)))
        found += [Drawn(number, thing, value) for value, _ in pieces]
    return draw.sample([*found, *draw.sample(found, len(found) // 10)], len(found) + len(found) // 10)


def placed(messages: Sequence[Drawn], start: int) -> list[Sent]:
    return [(each.value, start + at) for at, each in enumerate(messages)]


STEPS: list[tuple[Any, str]] = [
    (exchange_erasure, "_forget_own"),
    (shell, "erase_within"),
    (shell, "forget_past"),
    (store_erasure, "forget_versions"),
    (store_erasure.Location, "delete"),
    (shell, "finish"),
]


@pytest.mark.soak
@seeds(1, soak=3)
def test_an_object_of_random_messages_is_forgotten_wherever_it_is_stopped(
    spark: SparkSession, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then more comes, also of it: what others become is what it is where it was never erased."""
    draw = Random(seed)
    subject, keeps_deleted = draw.randrange(1, 7), draw.random() < 0.3
    options: dict[str, Any] = {"types": ["ResearchObject", "Dataset"], "keeps_deleted": keeps_deleted}
    found, plain = (Exchange(spark, tmp_path / name, **options) for name in ("found", "plain"))
    first = drawn_messages(draw, range(1, 41), range(6, 12), subject)
    later = drawn_messages(draw, range(41, 71), range(13, 20), subject)
    later += draw.sample(first, 10)
    sent, more = placed(first, 0), placed(later, 1000)
    cut = draw.randrange(len(sent))
    for some in (sent[:cut], sent[cut:]):
        for each in (found, plain):
            each.receive(frame(spark, some))
    theirs = [
        at for each, (_, at) in zip([*first, *later], [*sent, *more], strict=True) if each.thing == subject
    ]
    own, others = (
        {each.number for each in first if (each.thing == subject) is is_own} for is_own in (True, False)
    )
    bytes_of_others = b"".join(each.value for each in [*first, *later] if each.thing != subject)
    ids = [uuid(each) for each in own - others if uuid(each).encode() not in bytes_of_others]
    remains = {"subject": [f"thing{subject}.", *ids]}
    before = of_others(found, theirs, [uuid(subject)])
    call = {"keys": [{"objectUUID": uuid(subject)}], **WHO}
    for where, what in STEPS:
        dies_at(monkeypatch, where, what, 0)
        with pytest.raises((Died, UnfinishedErasure)):
            found.erase("Dataset", **call)
        monkeypatch.undo()
        assert of_others(found, theirs, [uuid(subject)]) == before
    found.erase("Dataset", **call)
    assert find_remains(tmp_path / "found", remains) == {}
    for _ in ("as it is", "made anew"):
        assert of_others(found, theirs, [uuid(subject)]) == before
        found.rebuild()
    found.receive(frame(spark, more))
    plain.receive(frame(spark, [one for one in more if one[1] not in theirs]))
    after = of_others(plain, theirs, [uuid(subject)])
    for _ in ("as it is", "made anew"):
        assert of_others(found, theirs, [uuid(subject)]) == after
        found.rebuild()
    assert find_remains(tmp_path / "found", remains) == {}
    found.store.check(deep=True)
