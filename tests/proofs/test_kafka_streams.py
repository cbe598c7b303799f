"""Each stream of 2014 through a Kafka broker, with its key and partition; a service that lives on one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jars import kafka_connector
from kafka import Broker
from programs import run

from cdckit import streams

pytestmark = [pytest.mark.soak, pytest.mark.jvm]


def test_every_stream_is_read_back_as_it_was_sent(tmp_path: Path) -> None:
    connector = ",".join(map(str, kafka_connector()))
    with Broker(tmp_path / "kafka") as broker:
        said = run("send_streams_to_kafka.py", broker.address, connector, tmp_path, seconds=600)
    *told, live = (json.loads(line) for line in said.splitlines() if line.startswith("{"))
    assert [each["stream"] for each in told] == list(streams.STREAMS)
    assert all(each["messages"] > 0 for each in told)
    assert [each for each in told if each["otherwise"] or each["unreadable"]] == []
    # The kinds of keys are many enough for every partition, but those of one database or of few devices.
    assert {each["stream"] for each in told if each["partitions"] < 3} <= {
        "schema-patches",
        "schema-updates",
        "schema-learning",
        "zone-changes",
        "connections",
        "partial-responses",
        "complete-responses",
        "changes-by-device",
        "device-notifications",
    }
    assert live["entities"] > 20
    assert live["otherwise"] == 0
    assert live["batches"] >= 3
