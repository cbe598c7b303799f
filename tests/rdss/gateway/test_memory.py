"""The queue in memory: what is delivered comes again until it is acknowledged."""

from __future__ import annotations

from cdckit.rdss.gateway import MemoryChannel


def test_what_its_receiver_did_not_acknowledge_comes_again_in_order() -> None:
    channel = MemoryChannel()
    for value in (b"1", b"2", b"3", b"4"):
        channel.send(value, key="k")
    found = channel.receive(3)
    assert [each.value for each in found] == [b"1", b"2", b"3"]
    channel.acknowledge([found[1]])
    assert len(channel) == 3
    channel.close()
    assert [each.value for each in channel.receive(9)] == [b"1", b"3", b"4"]
    assert channel.receive(9) == []
