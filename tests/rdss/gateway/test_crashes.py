"""A gateway that crashes at any call of its repository or its queues: each message has its outcome once."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cdckit.rdss.gateway import Channels, ChannelUnreachable, MemoryChannel, SendFailed, SqliteRepository
from support.rdss_exchange import exchange, gateway
from support.rdss_traffic import DONE, Traffic, check, handler, traffic
from tools.tiers import seeds


class Crash(BaseException):
    """The process ends here."""


class Shaky:
    """Something whose methods, now and then, crash before or after they are done, or are unreachable."""

    def __init__(self, inner: Any, chance: random.Random, rate: float) -> None:
        self.__dict__.update(inner=inner, chance=chance, rate=rate)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        return self._shaky(found) if callable(found) else found

    def _shaky(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def shaken(*told: Any, **named: Any) -> Any:
            drawn = self.chance.random() / self.rate
            if drawn < 1:
                raise Crash
            done = call(*told, **named)
            if drawn < 2:
                raise Crash
            if drawn < 4 and hasattr(self.inner, "send"):
                raise ChannelUnreachable("shaky", "no answer came")
            return done

        return shaken


def run(made: Traffic, path: Path, seed: int, rate: float) -> tuple[SqliteRepository, Channels, int]:
    """Let gateways work, one after the other has crashed, until nothing is left."""
    chance, queues, crashes = random.Random(seed), exchange(), 0
    for each in made.sent:
        queues.input.send(each, key="")
    for name in ("input", "output", "invalid", "error"):
        object.__setattr__(queues, name, Shaky(getattr(queues, name), chance, rate))
    while True:
        repository = SqliteRepository(path)
        repository.rows("PRAGMA synchronous = OFF")  # what is crashed here is not the machine
        repository.rows(DONE)
        try:
            working = gateway(Shaky(repository, chance, rate), queues)  # type: ignore[arg-type]
            with suppress(SendFailed, ChannelUnreachable):
                working.resume()
                while working.receive(chance.randrange(1, 20)):
                    working.process(handler, chance.randrange(10))
                working.process(handler)
                working.resume()
                return repository, queues, crashes
        except Crash:
            crashes += 1
        repository.close()
        queues.input.inner.close()  # type: ignore[attr-defined]


def values(channel: MemoryChannel) -> list[bytes]:
    return [each.value for each in channel.receive(10**6)]


@seeds(1, 2, soak=3)
def test_each_message_has_its_outcome_once_however_often_the_gateway_crashes(
    tmp_path: Path, seed: int
) -> None:
    made = traffic(150, seed)
    repository, queues, crashes = run(made, tmp_path / "kept.db", seed, 0.02)
    assert crashes > 5
    check(made, repository, lambda name: values(getattr(queues, name).inner))
    repository.close()


@pytest.mark.soak
def test_ten_thousand_messages_in_memory(tmp_path: Path) -> None:
    made = traffic(10_000, 7)
    repository, queues, crashes = run(made, tmp_path / "kept.db", 7, 0.002)
    assert crashes > 50
    check(made, repository, lambda name: values(getattr(queues, name).inner))
    repository.close()
