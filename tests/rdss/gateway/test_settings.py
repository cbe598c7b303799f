"""Which queues a gateway uses is configuration: of each kind, and what is wrong with it is named."""

from __future__ import annotations

from typing import Any

import pytest

from cdckit.errors import InvalidArgument
from cdckit.rdss.gateway import KinesisChannel, MemoryChannel, RabbitChannel, SqliteRepository, open_channels

AWS = {"region_name": "eu-west-1", "aws_access_key_id": "a", "aws_secret_access_key": "b"}


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ({}, MemoryChannel),
        ({"kind": "rabbitmq", "options": {"url": "amqp://broker.example"}}, RabbitChannel),
        ({"kind": "kinesis", "options": AWS}, KinesisChannel),
    ],
)
def test_the_kind_of_all_queues_is_one_word(settings: dict[str, Any], kind: type) -> None:
    told = {**settings, "addresses": {"input": "to-us", "output": "from-us"}, "returns": ["desk"]}
    with SqliteRepository(":memory:") as repository:
        channels = open_channels(told, repository)
    opened = [channels.input, channels.output, channels.invalid, channels.error, channels.returns["desk"]]
    assert [each.name for each in opened] == ["to-us", "from-us", "invalid", "error", "desk"]
    assert {type(each) for each in opened} == {kind}
    assert channels.return_to("desk") == "return desk"
    assert channels.return_to("elsewhere") == channels.return_to(None) == "output"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"kind": "kafka"}, "memory, rabbitmq or kinesis; it is 'kafka'"),
        ({"adresses": {}}, "it is \\['adresses'\\]"),
        ({"addresses": {"inputs": "in"}}, "it is \\['inputs'\\]"),
    ],
)
def test_what_is_wrong_with_the_settings_is_named(settings: dict[str, Any], said: str) -> None:
    with SqliteRepository(":memory:") as repository, pytest.raises(InvalidArgument, match=said):
        open_channels(settings, repository)
