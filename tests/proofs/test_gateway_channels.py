"""The channels of a gateway against servers: a RabbitMQ broker that is killed, a Kinesis API of moto."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from kinesis_server import KinesisServer
from programs import wait_until
from rabbitmq import Rabbit

from cdckit.rdss.gateway import (
    ChannelUnreachable,
    Delivery,
    KinesisChannel,
    NoChannel,
    RabbitChannel,
    SqliteRepository,
)

pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rabbit]:
    with Rabbit(tmp_path_factory.mktemp("r") / "broker") as running:
        yield running


@pytest.fixture(scope="module")
def kinesis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KinesisServer]:
    with KinesisServer(tmp_path_factory.mktemp("kinesis")) as running:
        yield running


def values(deliveries: list[Delivery]) -> list[bytes]:
    return [each.value for each in deliveries]


def test_what_a_receiver_of_rabbitmq_does_not_acknowledge_comes_again(broker: Rabbit) -> None:
    sender, receiver = RabbitChannel("again", broker.url), RabbitChannel("again", broker.url)
    for value in (b"1", b"2", b"3", bytes(900_000)):
        sender.send(value, key="k")
    found = receiver.receive(9)
    assert [len(each.value) for each in found] == [1, 1, 1, 900_000]
    receiver.acknowledge([found[0], found[2]])
    receiver.close()
    again = receiver.receive(9)
    assert [len(each.value) for each in again] == [1, 900_000]
    # Marks of the connection before mean nothing to this one.
    receiver.acknowledge(found)
    receiver.acknowledge(again)
    receiver.close()
    assert receiver.receive(9) == []
    sender.close()
    receiver.close()


def test_a_killed_broker_is_unreachable_and_keeps_what_it_has_confirmed(broker: Rabbit) -> None:
    channel = RabbitChannel("killed", broker.url)
    channel.send(b"1", key="k")
    channel.send(b"2", key="k")
    [first] = channel.receive(1)
    broker.kill()
    with pytest.raises(ChannelUnreachable, match="'killed'"):
        channel.send(b"3", key="k")
    with pytest.raises(ChannelUnreachable):
        channel.receive(1)
    broker.start()
    channel.acknowledge([first])
    assert sorted(values(channel.receive(9))) == [b"1", b"2"]
    channel.close()


@pytest.mark.parametrize(
    "arguments",
    [
        {"x-queue-type": "quorum"},
        {"x-message-ttl": 60_000},
        {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"},
    ],
)
def test_a_queue_that_exists_is_used_with_the_arguments_it_has(
    broker: Rabbit, arguments: dict[str, Any]
) -> None:
    name = f"exists {next(iter(arguments))}"
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    connection.channel().queue_declare(name, durable=True, arguments=arguments)
    channel = RabbitChannel(name, broker.url)
    channel.send(b"1", key="k")
    [first] = channel.receive(1)
    channel.acknowledge([first])
    channel.close()
    assert (first.value, channel.receive(1)) == (b"1", [])
    # The queue is the one that was there: only the same arguments can be declared again.
    connection.channel().queue_declare(name, durable=True, arguments=arguments)
    channel.close()
    connection.close()


def test_what_is_sent_goes_through_an_exchange_that_exists(broker: Rabbit) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    admin = connection.channel()
    admin.exchange_declare("rdss", "topic", durable=True, arguments={"alternate-exchange": "amq.fanout"})
    channel = RabbitChannel("through", broker.url, exchange="rdss")
    assert channel.receive(1) == []
    admin.queue_bind("through", "rdss", routing_key="through")
    channel.send(b"1", key="k")
    assert values(channel.receive(1)) == [b"1"]
    with pytest.raises(NoChannel, match="'through' cannot be used: not found"):
        RabbitChannel("through", broker.url, exchange="nowhere").send(b"1", key="k")
    channel.close()
    connection.close()


def test_a_queue_of_another_connection_alone_is_refused_by_name(broker: Rabbit) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    connection.channel().queue_declare("passing", exclusive=True)
    with pytest.raises(NoChannel, match="'passing' cannot be used: locked"):
        RabbitChannel("passing", broker.url).receive(1)
    connection.close()


@pytest.mark.parametrize(
    ("right", "wrong", "because"),
    [
        ("guest:guest", "guest:wrong", "access refused"),
        ("%2F", "nowhere", "not allowed .*vhost nowhere not found"),
        ("", "", "not implemented .*not supported by stream queues"),
    ],
)
def test_what_waiting_does_not_mend_is_final(broker: Rabbit, right: str, wrong: str, because: str) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    connection.channel().queue_declare("log", durable=True, arguments={"x-queue-type": "stream"})
    connection.close()
    with pytest.raises(NoChannel, match=f"'log' cannot be used: {because}"):
        RabbitChannel("log", broker.url.replace(right, wrong)).receive(1)


def test_all_shards_of_a_stream_are_read_on_after_what_was_acknowledged(
    kinesis: KinesisServer, tmp_path: Path
) -> None:
    """Moto never ends a shard that was split, and writes on into it: see tests/rdss/gateway for that."""
    client = kinesis.client()
    client.create_stream(StreamName="input", ShardCount=4)

    def active() -> bool:
        told = client.describe_stream_summary(StreamName="input")
        return bool(told["StreamDescriptionSummary"]["StreamStatus"] == "ACTIVE")

    wait_until(active, 60, "the stream is active")
    with SqliteRepository(tmp_path / "kept.db") as kept:
        channel = KinesisChannel("input", kept, options=kinesis.options, pause=0)
        for number in range(40):
            channel.send(b"%02d" % number, key=f"k{number}")
        first = channel.receive(100)
        assert sorted(values(first)) == [b"%02d" % number for number in range(40)]
        assert len({each.mark[0] for each in first}) == 4
        assert channel.receive(100) == []
        channel.acknowledge(first[:15])
        channel.close()
    with SqliteRepository(tmp_path / "kept.db") as kept:
        channel = KinesisChannel("input", kept, options=kinesis.options, pause=0)
        assert sorted(values(channel.receive(100))) == sorted(values(first[15:]))
        channel.close()


def test_a_stream_that_is_not_there_is_named(kinesis: KinesisServer) -> None:
    with (
        SqliteRepository(":memory:") as kept,
        pytest.raises(NoChannel, match="'nowhere' cannot be used: Res"),
    ):
        KinesisChannel("nowhere", kept, options=kinesis.options).receive(1)
