"""Ten thousand messages over real queues: both sides are killed again and again, and so is the broker."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kinesis_server import KinesisServer
from programs import HERE, environment, wait_until
from rabbitmq import Rabbit

from cdckit.rdss.gateway import Channel, KinesisChannel, RabbitChannel, SqliteRepository
from support.rdss_traffic import Traffic, check, traffic
from tools.tiers import seeds

pytestmark = pytest.mark.soak
SIZE = 10_000
LONGEST = 1500
"""Seconds; two cores with nothing else to do need a third of it for the slower kind of queue."""

KILLS = 15


def settings(kind: str, options: dict[str, str]) -> dict[str, Any]:
    """The output of one side is the input of the other."""
    told = {"kind": kind, "options": options}
    refused = {"invalid": "invalid", "error": "error"}
    return {
        "send": {**told, "addresses": {"input": "back", "output": "there", **refused}},
        "receive": {**told, "addresses": {"input": "there", "output": "back", **refused}},
    }


class Side:
    """One side of the exchange, which is begun again whenever it was killed, at work."""

    def __init__(self, what: str, folder: Path) -> None:
        self._command = [sys.executable, str(HERE / "gateway_program.py"), what, str(folder)]
        self._log = (folder / f"{what}.log").open("ab")
        self.path, self.kills, self._began = folder / f"{what}.log", 0, 0
        self._process: subprocess.Popen[bytes] | None = None

    def go_on(self) -> bool:
        """Begin it, if it does not run; False once it has ended well."""
        if self._process is None:
            self._began = self.path.stat().st_size
            self._process = subprocess.Popen(
                self._command, env=environment(), stdout=self._log, stderr=self._log
            )
        code = self._process.poll()
        assert code in (None, 0), self.path.read_text()[-3000:]
        return code is None

    @property
    def works(self) -> bool:
        """Whether it has done something since it was begun."""
        return self.path.stat().st_size > self._began

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
            self._process, self.kills = None, self.kills + 1

    def __enter__(self) -> Side:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._log.close()


def lines(made: Traffic) -> Iterator[str]:
    """As the program reads them: a second time, and what is refused, goes past the gateway."""
    seen = set(made.malformed)
    for value in made.sent:
        header = {} if value in seen else json.loads(value)["messageHeader"]
        own = "" if header.get("messageId") in made.expired else header.get("messageId", "")
        seen.add(value)
        yield f"{own} {value.decode()}"


def soak(folder: Path, seed: int, told: dict[str, Any], disturb: Callable[[float], None]) -> tuple[int, int]:
    """Let both sides work to the end, killing each every few seconds; how often each was killed."""
    chance, began = random.Random(seed), time.monotonic()
    (folder / "settings.json").write_text(json.dumps(told))
    (folder / "traffic.txt").write_text("\n".join(lines(traffic(SIZE, seed))))
    with Side("send", folder) as sender, Side("receive", folder) as receiver:
        while True:
            sending, receiving = sender.go_on(), receiver.go_on()
            if not sending:
                (folder / "all-sent").touch()
            if not receiving:
                assert (folder / "all-sent").exists()
                return sender.kills, receiver.kills
            assert time.monotonic() - began < LONGEST, receiver.path.read_text()[-2000:]
            time.sleep(chance.uniform(1, 4))
            victim = chance.choice([sender, receiver])
            if victim.works and victim.kills < KILLS:
                victim.kill()
            disturb(time.monotonic() - began)


def settle(folder: Path, seed: int, channel: Callable[[str, SqliteRepository], Channel]) -> None:
    with SqliteRepository(folder / "receive.db") as repository:

        def values(name: str) -> list[bytes]:
            with SqliteRepository(":memory:") as places:
                queue, found = channel({"output": "back"}.get(name, name), places), list[bytes]()
                while got := queue.receive(10_000):
                    found += [each.value for each in got]
                    queue.acknowledge(got)
                queue.close()
            return found

        check(traffic(SIZE, seed), repository, values)


@seeds(11, soak=1)
def test_ten_thousand_messages_over_rabbitmq(tmp_path: Path, seed: int) -> None:
    with Rabbit(tmp_path / "broker") as broker:
        killed = list[float]()

        def disturb(seconds: float) -> None:
            if len(killed) < 3 and seconds > 12 * (len(killed) + 1):
                broker.kill()
                broker.start()
                killed.append(seconds)

        sender, receiver = soak(tmp_path, seed, settings("rabbitmq", {"url": broker.url}), disturb)
        assert killed
        assert sender
        assert receiver
        settle(tmp_path, seed, lambda name, places: RabbitChannel(name, broker.url))


@seeds(12, soak=1)
def test_ten_thousand_messages_over_kinesis(tmp_path: Path, seed: int) -> None:
    with KinesisServer(tmp_path) as server:
        client = server.client()
        for name in ("there", "back", "invalid", "error"):
            client.create_stream(StreamName=name, ShardCount=2)

        def active() -> bool:
            told = [client.describe_stream_summary(StreamName=name) for name in ("there", "error")]
            return all(each["StreamDescriptionSummary"]["StreamStatus"] == "ACTIVE" for each in told)

        wait_until(active, 60, "the streams are active")
        sender, receiver = soak(tmp_path, seed, settings("kinesis", server.options), lambda seconds: None)
        assert sender
        assert receiver
        settle(
            tmp_path, seed, lambda name, places: KinesisChannel(name, places, options=server.options, pause=0)
        )
