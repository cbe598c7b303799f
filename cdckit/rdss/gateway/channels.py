"""Messages as an application makes and gets them, and the channels that carry them; one is in memory."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from threading import Lock
from typing import Any, Protocol
from uuid import uuid4

VERSION = "4.0.0"
"""The version of the specification that messages are made by."""


@dataclass(frozen=True)
class Message:
    """
    A header and a body, as Python values of JSON.

    >>> Message({"messageId": "m1", "messageType": "MetadataRead"}, {"objectUUID": "…"}).message_type
    'MetadataRead'
    """

    header: Mapping[str, Any]
    body: Any

    @property
    def message_id(self) -> str:
        return str(self.header["messageId"])

    @property
    def message_class(self) -> str:
        return str(self.header["messageClass"])

    @property
    def message_type(self) -> str:
        return str(self.header["messageType"])

    @property
    def correlation_id(self) -> str | None:
        """The messageId of the message that this one answers; None if it answers none."""
        return self.header.get("correlationId")

    @property
    def return_address(self) -> str | None:
        """Where a response to this message is to be sent, if it says so."""
        return self.header.get("returnAddress")

    def to_bytes(self) -> bytes:
        """
        The message as it is sent.

        >>> Message({"messageId": "m1"}, {"objectTitle": "Käse"}).to_bytes().decode()
        '{"messageHeader":{"messageId":"m1"},"messageBody":{"objectTitle":"Käse"}}'
        """
        whole = {"messageHeader": dict(self.header), "messageBody": self.body}
        text = json.dumps(whole, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        # Half a character, which a text of Python may hold, is an error here and not at the receiver.
        return text.encode()

    def with_history(self, machine: Machine, at: datetime) -> Message:
        """
        The message with one entry more in its messageHistory: it came by *machine*.

        >>> at = datetime(2024, 2, 1, 9, tzinfo=UTC)
        >>> Message({}, None).with_history(Machine("a", "a.example"), at).header["messageHistory"]
        [{'machineId': 'a', 'machineAddress': 'a.example', 'timestamp': '2024-02-01T09:00:00.000Z'}]
        """
        entry = {"machineId": machine.id, "machineAddress": machine.address, "timestamp": timestamp(at)}
        return Message(
            {**self.header, "messageHistory": [*self.header.get("messageHistory", []), entry]}, self.body
        )


@dataclass(frozen=True)
class Machine:
    """
    The machine that a gateway runs on, as it is named in a messageHistory.

    >>> Machine("gateway-1", "gateway.example").address
    'gateway.example'
    """

    id: str
    address: str


@dataclass(frozen=True)
class Producer:
    """
    The application that makes messages, and the institution for which it does.

    >>> producer = Producer("repository", 7)
    >>> message = producer.message("MetadataDelete", {"objectUUID": "5680e8e0-28a5-4b20-948e-fd0d08781e0b"})
    >>> message.message_class, message.header["generator"], message.header["messageSequence"]["total"]
    ('Command', 'repository', 1)
    """

    generator: str
    tenant_jisc_id: int

    def message(
        self,
        message_type: str,
        body: Any,
        *,
        answers: Message | None = None,
        return_address: str | None = None,
        expires: datetime | None = None,
        message_id: str | None = None,
        now: datetime | None = None,
    ) -> Message:
        """
        A new message, which is its own sequence of one.

        Args:
            message_type: `MetadataRead` and so on; a PreservationEvent is an Event, all others are Commands.
            body: As the message type needs it.
            answers: The message to which this one is the response; it is a Document then.
            return_address: Where the response is to be sent.
            expires: The instant after which it is not to be delivered.
            message_id: A UUID; one that is made of what the message is about makes it the same message again.
            now: When it was made; the present without it.
        """
        identity = message_id or str(uuid4())
        kind = (
            "Event" if message_type == "PreservationEvent" else "Command" if answers is None else "Document"
        )
        timings = {"publishedTimestamp": timestamp(now or datetime.now(UTC))}
        if expires is not None:
            timings["expirationTimestamp"] = timestamp(expires)
        header = {
            "messageId": identity,
            **({} if answers is None else {"correlationId": answers.message_id}),
            "messageClass": kind,
            "messageType": message_type,
            **({} if return_address is None else {"returnAddress": return_address}),
            "messageTimings": timings,
            "messageSequence": {"sequence": identity, "position": 1, "total": 1},
            "messageHistory": [],
            "version": VERSION,
            "generator": self.generator,
            "tenantJiscID": self.tenant_jisc_id,
        }
        return Message(header, body)


def timestamp(at: datetime, timespec: str = "milliseconds") -> str:
    """
    Write an instant as RFC 3339 has it, in UTC.

    >>> timestamp(datetime(2024, 2, 1, 9, tzinfo=UTC))
    '2024-02-01T09:00:00.000Z'
    """
    return at.astimezone(UTC).isoformat(timespec=timespec).replace("+00:00", "Z")


@dataclass(frozen=True)
class Delivery:
    """
    A message as its channel delivered it; *mark* is what the channel acknowledges it by.

    >>> Delivery(b"{}", 1).value
    b'{}'
    """

    value: bytes
    mark: Any


class Channel(Protocol):
    """
    What a gateway asks of a queue; `MemoryChannel`, `RabbitChannel` and `KinesisChannel` are such.

    A delivery comes at least once: again, after a crash, until it is acknowledged.

    Every method raises `ChannelUnreachable` where the network or the service fails in a way that may pass.

    >>> from cdckit.rdss.gateway.channels import MemoryChannel
    >>> channel: Channel = MemoryChannel("input")
    >>> channel.receive(10)
    []
    """

    name: str

    def send(self, value: bytes, *, key: str) -> None:
        """
        Return once the queue has acknowledged *value*, which it then keeps.

        Messages of one *key* stay in the order in which they were sent, where the kind of queue has orders.
        """

    def receive(self, limit: int) -> list[Delivery]:
        """Receive what is there now, at most *limit* deliveries; an empty list if there is nothing."""

    def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        """Tell the queue that these need not come again."""

    def close(self) -> None:
        """Let the connection go; what was not acknowledged comes again."""


class MemoryChannel:
    """
    A queue for tests, notebooks and applications whose parts are in one process; threads may share it.

    >>> channel = MemoryChannel("input")
    >>> channel.send(b"one", key="k")
    >>> [first] = channel.receive(10)
    >>> channel.close()
    >>> [again] = channel.receive(10)
    >>> channel.acknowledge([again])
    >>> first.value, again.value, len(channel)
    (b'one', b'one', 0)
    """

    def __init__(self, name: str = "memory") -> None:
        self.name = name
        self._lock, self._marks = Lock(), count()
        self._ready: deque[Delivery] = deque()
        self._unacknowledged: dict[object, Delivery] = {}

    def __len__(self) -> int:
        """Count the messages that it keeps: ready, or delivered and not acknowledged."""
        with self._lock:
            return len(self._ready) + len(self._unacknowledged)

    def send(self, value: bytes, *, key: str) -> None:
        """Keep *value*; all are in one order, whatever their *key*."""
        with self._lock:
            self._ready.append(Delivery(value, next(self._marks)))

    def receive(self, limit: int) -> list[Delivery]:
        """The oldest deliveries that nobody else has."""
        with self._lock:
            taken = [self._ready.popleft() for _ in range(min(limit, len(self._ready)))]
            self._unacknowledged.update((delivery.mark, delivery) for delivery in taken)
        return taken

    def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        """Forget them; one that has been returned meanwhile comes again."""
        with self._lock:
            for delivery in deliveries:
                self._unacknowledged.pop(delivery.mark, None)

    def close(self) -> None:
        """Put back, in their order, what was delivered and not acknowledged, as if its receiver had died."""
        with self._lock:
            self._ready.extendleft(reversed(self._unacknowledged.values()))
            self._unacknowledged.clear()
