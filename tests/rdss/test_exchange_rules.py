"""RDSS, "Receiving", by random messages: what becomes of them, without a JVM."""

from __future__ import annotations

import itertools

from cdckit.rdss.message_splitting import split
from cdckit.rdss.reading import Rules
from support.exchange_memory import ExchangeInMemory
from support.rdss_messages import as_bytes, changed, message
from support.rdss_worlds import Naive, draw_worlds, uuid
from tools.tiers import seeds


@seeds(3, soak=20)
def test_any_batches_are_read_as_one_message_after_the_other(seed: int) -> None:
    """Parts, whole messages, retries, contradictions, equal ids, messages of our own; and after a rebuild."""
    chance, values, own = draw_worlds(seed, WORLDS)
    naive = Naive(set(own))
    for value in values:
        naive.read(value)
    expected, _ = naive.objects()
    assert len({outcome for outcome, _ in expected}) >= 4
    processed = {
        number for _, numbers, _ in naive.wholes for number in numbers if expected[number][0] == "processed"
    }
    sent = [(value, number) for number, value in enumerate(values)]
    for batches in (1, 4, len(values)):
        cuts = [0, *sorted(chance.sample(range(1, len(values)), batches - 1)), len(values)]
        exchange = ExchangeInMemory(own)
        for batch, (begin, end) in enumerate(itertools.pairwise(cuts), 1):
            exchange.receive(batch, sent[begin:end])
        for _ in ("as it is", "made anew"):
            assert exchange.became() == expected
            assert {exchange.records[place]["offset"] for place in exchange.applied} == processed
            exchange.rebuild()


@seeds(2, soak=10)
def test_what_is_forgotten_changes_nothing_for_others(seed: int) -> None:
    """Of each world an object goes, with its sequences; nor does it come back, however often it is sent."""
    chance, values, _ = draw_worlds(seed, WORLDS)
    things = {uuid(world, 20 + world % 4) for world in range(WORLDS)}
    sent = [(value, number) for number, value in enumerate(values)]
    exchange, cut = ExchangeInMemory(), chance.randrange(1, len(values))
    exchange.receive(1, sent[:cut])
    exchange.receive(2, sent[cut:])
    before = exchange.became()
    exchange.erase(things)
    after = exchange.became()
    assert 5 < after.count(ERASED) < len(sent) // 2
    expected = [now if now == ERASED else was for was, now in zip(before, after, strict=True)]
    for _ in ("as it is", "made anew"):
        assert exchange.became() == expected
        kept = repr(exchange.records) + repr(exchange.states) + repr(exchange.outcomes)
        assert [thing for thing in things if f'"objectUUID": "{thing}' in kept] == []
        exchange.rebuild()
    exchange.receive(3, [(value, number + 10_000) for value, number in sent])
    again = exchange.became()[len(sent) :]
    for (was, _), (now, _) in zip(expected, again, strict=True):
        assert now == "erased" if was == "erased" else now in ("duplicate", "erased")


def told(name: str, number: int, hour: int, about: int, *others: int, title: str = "Tides") -> bytes:
    """The message of that number about an object, published at an hour; it may be a version of others."""
    related = [
        {"relationType": "isNewVersionOf", "identifier": {"identifierType": "UUID", "identifierValue": each}}
        for each in (uuid(0, other) for other in others)
    ]
    published = {"publishedTimestamp": f"2024-03-01T{hour:02}:00:00Z"}
    return as_bytes(
        message(
            name,
            changed("/messageHeader/messageId", uuid(0, number)),
            changed("/messageHeader/messageTimings", published),
            changed("/messageBody/objectUUID", uuid(0, about)),
            changed("/messageBody/objectTitle", title),
            changed("/messageBody/objectRelatedIdentifier", related),
        )
    )


def test_a_version_and_an_id_outlive_what_is_forgotten() -> None:
    """Of a version its object came to be; a sequence claims its id where its last part came."""
    parts = split(told("update", 4, 12, 2, title="Tides " * 300), rules=Rules(max_bytes=1200))
    values = [
        *(told("create", 1, 9, 1), told("update", 2, 10, 2, 1), told("update", 3, 11, 3, 2), *parts),
        *(told("create", 4, 9, 5), told("update", 6, 13, 2), told("update", 7, 14, 6, 2)),
    ]
    exchange = ExchangeInMemory()
    exchange.receive(1, [(value, number) for number, value in enumerate(values)])
    done, again = ("processed", None), ("duplicate", None)
    assert exchange.became() == [done] * 3 + [done] * len(parts) + [again, done, done]
    exchange.erase({uuid(0, 2)})
    for _ in ("as it is", "made anew"):
        assert exchange.became() == [done, ERASED, done, *[ERASED] * len(parts), again, ERASED, done]
        exchange.rebuild()
    # What comes later is as if it had not come: it takes no id.
    exchange.receive(2, [(told("update", 9, 15, 2), 100), (told("create", 9, 15, 8), 101)])
    for _ in ("as it is", "made anew"):
        assert exchange.became()[-2:] == [ERASED, done]
        exchange.rebuild()


def test_a_whole_message_has_the_limit_of_the_rules() -> None:
    parts = split(told("create", 1, 9, 1, title="Tides " * 300), rules=Rules(max_bytes=1200))
    sent = [(value, number) for number, value in enumerate(parts)]
    for most, outcome in ((3000, ("error", "GENERR006")), (9000, ("processed", None))):
        exchange = ExchangeInMemory(rules=Rules(max_whole_bytes=most))
        exchange.receive(1, sent)
        assert exchange.became() == [outcome] * len(parts)


def test_parts_of_two_tenants_are_told_apart_whatever_their_size() -> None:
    parts = split(told("create", 1, 9, 1, title="Tides " * 300), rules=Rules(max_bytes=1200))
    tenants = [1 << 63, 1 + (1 << 63), *[1 << 63] * len(parts[2:])]
    values = [
        part.replace(b'"tenantJiscID": 7', b'"tenantJiscID": %d' % tenant)
        for part, tenant in zip(parts, tenants, strict=True)
    ]
    exchange = ExchangeInMemory()
    exchange.receive(1, [(value, number) for number, value in enumerate(values)])
    expected = [("waiting", None)] * len(parts)
    assert exchange.became() == [expected[0], ("invalid", "GENERR004"), *expected[2:]]


ERASED, WORLDS = ("erased", None), 40
