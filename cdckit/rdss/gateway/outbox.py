"""Sending what the repository notes as TO_SEND, until its queue has acknowledged it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TypeVar

from cdckit.rdss.gateway.audit import Audited
from cdckit.rdss.gateway.backoff import Backoff
from cdckit.rdss.gateway.channel import Channel
from cdckit.rdss.gateway.channels import Channels
from cdckit.rdss.gateway.errors import ChannelUnreachable, SendFailed
from cdckit.rdss.gateway.repository import Repository

logger = logging.getLogger("cdckit.rdss.gateway")
_AT_ONCE = 100
"""How many messages are read of the repository at once."""

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Outbox:
    """
    What a gateway sends by: TO_SEND becomes SENT on acknowledgement, and on nothing else.

    A message that was acknowledged just before a crash is sent again: its receivers know its messageId.
    """

    repository: Repository
    channels: Channels
    backoff: Backoff
    sleep: Callable[[float], None]
    clock: Callable[[], datetime]
    audit: Callable[[Iterable[Audited]], None]

    def send_all(self, destination: str) -> None:
        """Send what is TO_SEND to one destination, the oldest first."""
        channel = self.channels.destinations()[destination]
        while waiting := self.repository.unsent(_AT_ONCE, destination):
            for each in waiting:
                self._send(channel, each.value, each.key, each.message_id)
                self.audit([Audited(self.clock(), "sent", channel.name, each.value)])
                self.repository.sent(each.message_id)

    def route(self) -> None:
        """Send what was refused, and is not yet acknowledged, to its queue."""
        destinations = self.channels.destinations()
        while waiting := self.repository.unrouted(_AT_ONCE):
            for number, each in waiting:
                channel = destinations[each.channel]
                self._send(channel, each.decorated, each.message_id or each.error_code, each.message_id)
                self.audit([Audited(self.clock(), "routed", channel.name, each.decorated, each.channel)])
                self.repository.routed(number)

    def retried(self, call: Callable[[], _Result]) -> _Result:
        """What *call* returns, tried again while its channel is unreachable."""
        return self.backoff.retry(call, on=ChannelUnreachable, sleep=self.sleep)

    def _send(self, channel: Channel, value: bytes, key: str, message_id: str | None) -> None:
        try:
            self.retried(partial(channel.send, value, key=key))
        except ChannelUnreachable as error:
            failed = SendFailed(channel.name, message_id, self.backoff.retries)
            logger.error("%s", failed)
            raise failed from error
