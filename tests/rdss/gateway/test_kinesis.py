"""Reading a stream: all shards, parents before children, positions after processing, and what goes wrong."""

from __future__ import annotations

from typing import Any

import pytest
from stream import Stream, error

from cdckit.rdss.gateway import ChannelUnreachable, Delivery, KinesisChannel, NoChannel, SqliteRepository


def channel(stream: Stream, kept: SqliteRepository) -> KinesisChannel:
    return KinesisChannel("in", kept, client=stream, pause=0)


def values(deliveries: list[Delivery]) -> list[bytes]:
    return [each.value for each in deliveries]


def test_all_shards_are_read_and_read_on_after_what_was_acknowledged() -> None:
    stream = Stream("a", "b", "c")
    stream.add("a", b"1", b"2")
    stream.add("c", b"3")
    with SqliteRepository(":memory:") as kept:
        reader = channel(stream, kept)
        found = reader.receive(9)
        assert sorted(values(found)) == [b"1", b"2", b"3"]
        assert reader.receive(9) == []
        reader.acknowledge(found[:1])
        reader.close()
        # The second of `a`, and all of `c`, were not acknowledged.
        assert sorted(values(channel(stream, kept).receive(9))) == [b"2", b"3"]


def test_a_position_moves_only_up_to_what_is_not_processed() -> None:
    stream = Stream("a")
    stream.add("a", b"1", b"2", b"3")
    with SqliteRepository(":memory:") as kept:
        reader = channel(stream, kept)
        found = reader.receive(9)
        reader.acknowledge(found[1:])
        assert kept.position("in", "a") is None
        reader.acknowledge(found[:1])
        assert kept.position("in", "a") == "00003"


def test_a_call_gives_no_more_than_it_is_asked_for_and_each_shard_has_its_turn() -> None:
    stream = Stream("a", "b", "c")
    for shard in "abc":
        stream.add(shard, *(shard.encode() + b"%d" % number for number in range(3)))
    with SqliteRepository(":memory:") as kept:
        reader = channel(stream, kept)
        calls = [values(reader.receive(2)) for _ in range(6)]
        assert max(map(len, calls)) == 2
        assert sorted(value for call in calls for value in call) == [
            b"a0",
            b"a1",
            b"a2",
            b"b0",
            b"b1",
            b"b2",
            b"c0",
            b"c1",
            b"c2",
        ]


def test_a_shard_is_asked_for_no_more_than_it_may_give() -> None:
    stream = Stream("a")
    stream.add("a", *(b"%d" % number for number in range(10_001)))
    with SqliteRepository(":memory:") as kept:
        reader = channel(stream, kept)
        assert [len(reader.receive(20_000)) for _ in range(2)] == [10_000, 1]


def test_children_are_read_once_their_parents_are_processed_also_after_a_crash() -> None:
    """a is split into b and c, which are merged into d."""
    stream = Stream("a")
    stream.add("a", b"1", b"2")
    stream.reshard(["a"], ["b", "c"])
    stream.add("b", b"3")
    stream.add("c", b"4")
    stream.reshard(["b", "c"], ["d"])
    stream.add("d", b"5")
    with SqliteRepository(":memory:") as kept:
        reader = channel(stream, kept)
        first = reader.receive(9)
        assert values(first) == [b"1", b"2"]
        assert reader.receive(9) == []
        reader.acknowledge(first[:1])
        reader = channel(stream, kept)
        second = reader.receive(9)
        assert values(second) == [b"2"]
        reader.acknowledge(second)
        assert kept.position("in", "a") == "ENDED"
        third = reader.receive(9)
        assert sorted(values(third)) == [b"3", b"4"]
        reader.acknowledge(third[:1])
        assert channel(stream, kept).receive(9) == third[1:]
        reader.acknowledge(third[1:])
        assert values(channel(stream, kept).receive(9)) == [b"5"]


def test_a_shard_that_is_split_while_it_is_read_is_read_to_its_end_first() -> None:
    stream = Stream("a")
    with SqliteRepository(":memory:") as kept:
        reader = channel(stream, kept)
        assert reader.receive(9) == []
        stream.add("a", b"1")
        stream.reshard(["a"], ["b"])
        stream.add("b", b"2")
        first = reader.receive(9)
        assert values(first) == [b"1"]
        reader.acknowledge(first)
        assert values(reader.receive(9)) == [b"2"]


def test_parents_that_have_expired_from_the_stream_are_not_waited_for() -> None:
    stream = Stream("b")
    stream.parents["b"] = ["gone"]
    stream.add("b", b"1")
    with SqliteRepository(":memory:") as kept:
        assert values(channel(stream, kept).receive(9)) == [b"1"]


def test_a_stream_that_was_made_anew_under_its_name_is_not_taken_for_one_that_was_read() -> None:
    """Its shards are counted from the first again, which was read to its end before it was split."""
    first = Stream("a")
    first.reshard(["a"], ["b"])
    second = Stream("a")
    second.add("a", b"1")
    with SqliteRepository(":memory:") as kept:
        assert channel(first, kept).receive(9) == []
        assert kept.position("in", "a") == "ENDED"
        with pytest.raises(NoChannel, match=r"'in' cannot .* 'a' is open, and was read to its end"):
            channel(second, kept).receive(9)


def test_an_iterator_that_is_too_old_and_a_shard_that_is_asked_too_often() -> None:
    stream = Stream("a")
    stream.add("a", b"1")
    with SqliteRepository(":memory:") as kept:
        reader = channel(stream, kept)
        reader.receive(9)
        stream.add("a", b"2")
        stream.expired, stream.throttled = {"a 1"}, 1
        assert reader.receive(9) == []
        stream.expired = set()
        assert reader.receive(9) == []
        assert values(reader.receive(9)) == [b"2"]


@pytest.mark.parametrize(
    ("answer", "raised"),
    [
        (error("ProvisionedThroughputExceededException", 400), ChannelUnreachable),
        (error("InternalFailure", 500), ChannelUnreachable),
        (error("ResourceNotFoundException", 400), NoChannel),
    ],
)
def test_what_may_pass_is_told_from_what_stays(
    answer: Exception, raised: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: Any) -> None:
        raise answer

    stream = Stream("a")
    monkeypatch.setattr(stream, "put_record", refuse)
    with SqliteRepository(":memory:") as kept, pytest.raises(raised, match="'in' cannot be"):
        channel(stream, kept).send(b"1", key="k")
