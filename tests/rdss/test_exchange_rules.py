"""RDSS, "Receiving", by random messages: what becomes of them, without a JVM."""

from __future__ import annotations

import itertools

from support.exchange_memory import ExchangeInMemory
from support.rdss_worlds import Naive, draw_worlds, uuid
from tools.tiers import seeds


@seeds(3, soak=20)
def test_any_batches_are_read_as_one_message_after_the_other(seed: int) -> None:
    """Parts, whole messages, retries, contradictions, equal ids, messages of our own; and after a rebuild."""
    chance, values, own = draw_worlds(seed, 12)
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
    chance, values, _ = draw_worlds(seed, 12)
    things = {uuid(world, 20 + world % 4) for world in range(12)}
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


ERASED = ("erased", None)
