"""Queues of RabbitMQ and streams of AWS Kinesis as channels; and a gateway's queues by its configuration."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from cdckit.errors import InvalidArgument
from cdckit.parts.installation import require_package
from cdckit.rdss.gateway.channels import Channel, Delivery, MemoryChannel
from cdckit.rdss.gateway.errors import ChannelUnreachable, NoChannel
from cdckit.rdss.gateway.repository import SqliteRepository

_MISSING = 404
_FINAL_REPLIES = {
    **{403: "access refused", _MISSING: "not found", 405: "locked", 406: "precondition failed"},
    **{530: "not allowed", 540: "not implemented"},
}
"""Replies after which trying again does not help: 530 names a virtual host, 540 is said of a stream queue."""
_REPLY_WITHIN = re.compile(r"ConnectionClosedByBroker: \((\d+)\) ['\"](.*)['\"]", flags=re.DOTALL)
"""A reply in the text of an error: of a connection that is refused pika has no other."""


_MOST_BLOCKED = 30
"""Seconds for which a broker may say that it takes nothing more, unless its address says otherwise."""


class RabbitChannel:
    """
    The queue *name* of the broker at *url*; one that is not there is declared, durable.

    A queue that is there is used as it is, whatever its arguments: a quorum queue, a time to live, a
    dead-letter exchange.  So what becomes of its messages when the broker ends is for its owner to say.

    Args:
        name: The queue, and the routing key of what is sent.
        url: Where the broker is, as `pika.URLParameters` takes it.
        exchange: What is sent to, by its name: it must be there.  Without it the queue itself.

    A message is sent once the broker has confirmed it, which it does when the message is on its disk.
    Connects with the first call, and again after the connection was lost; what was delivered by the
    connection before comes again.  If a broker takes nothing more, for lack of memory or disk, calls raise
    `ChannelUnreachable` after 30 s, or the `blocked_connection_timeout` of *url*.  It belongs to one
    thread.  A wrong password or virtual host, and a stream queue, which has another protocol, are final: each
    call raises `NoChannel`.

    Raises:
        MissingExtra: `pika` is not installed.

    >>> RabbitChannel("input", "amqp://guest:guest@127.0.0.1:1/?connection_attempts=1").receive(1)
    Traceback (most recent call last):
    ...
    cdckit.rdss.gateway.errors.ChannelUnreachable: The channel 'input' cannot be reached: ...
    """

    def __init__(self, name: str, url: str, *, exchange: str = "") -> None:
        require_package("pika", extra="gateway", part="RabbitChannel")
        self.name, self._url, self._exchange = name, url, exchange
        self._connection: Any = None
        self._channel: Any = None

    def send(self, value: bytes, *, key: str) -> None:
        """Publish persistently and wait for the confirmation; all are in one order, whatever their *key*."""
        import pika

        kept = pika.BasicProperties(delivery_mode=2, content_type="application/json")
        with self._translate_errors() as channel:
            channel.basic_publish(self._exchange, self.name, value, kept, mandatory=True)

    def receive(self, limit: int) -> list[Delivery]:
        """The oldest deliveries that no other receiver has."""
        received: list[Delivery] = []
        with self._translate_errors() as channel:
            while len(received) < limit:
                method, _, body = channel.basic_get(self.name)
                if method is None:
                    break
                received.append(Delivery(body, (channel, method.delivery_tag)))
        return received

    def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        """Tell the broker; what another connection has delivered is left out, since it comes again."""
        with self._translate_errors() as channel:
            for delivery in deliveries:
                delivered_by, tag = delivery.mark
                if delivered_by is channel:
                    channel.basic_ack(tag)
            # What was written stays in a buffer until the connection is asked for something.
            self._connection.process_data_events(0)

    def close(self) -> None:
        """Close the connection, if there is one."""
        connection, self._connection, self._channel = self._connection, None, None
        if connection is not None:
            with suppress(Exception):  # it may be lost already, in more ways than pika has a class for
                connection.close()

    @contextmanager
    def _translate_errors(self) -> Iterator[Any]:
        from pika.exceptions import AMQPError, ConnectionBlockedTimeout, UnroutableError

        try:
            yield self._open()
        except UnroutableError as error:
            # Somebody has removed the queue: the next call declares it again.
            self.close()
            raise ChannelUnreachable(self.name, "the queue is gone") from error
        except ConnectionBlockedTimeout as error:
            self.close()
            because = "the broker takes nothing while an alarm of its memory or its disk is on"
            raise ChannelUnreachable(self.name, because) from error
        except (AMQPError, OSError) as error:
            self.close()
            code, text = _broker_reply(error)
            # That a user or a virtual host has as many connections as it may passes.
            if code in _FINAL_REPLIES and "limit" not in text:
                raise NoChannel(self.name, f"{_FINAL_REPLIES[code]} ({text})") from error
            raise ChannelUnreachable(self.name, text) from error

    def _open(self) -> Any:
        import pika

        if self._channel is None or not self._channel.is_open:
            self.close()
            parameters = pika.URLParameters(self._url)
            if parameters.blocked_connection_timeout is None:  # pika would wait for ever
                parameters.blocked_connection_timeout = _MOST_BLOCKED
            self._connection = pika.BlockingConnection(parameters)
            self._channel = self._declare_queue()
            if self._exchange:
                self._channel.exchange_declare(self._exchange, passive=True)
            self._channel.confirm_delivery()
        return self._channel

    def _declare_queue(self) -> Any:
        """A channel of the connection, with the queue there: RabbitMQ takes no second declaration of it."""
        from pika.exceptions import ChannelClosedByBroker

        channel = self._connection.channel()
        try:
            channel.queue_declare(self.name, passive=True)
        except ChannelClosedByBroker as error:
            if error.reply_code != _MISSING:
                raise
            channel = self._connection.channel()
            channel.queue_declare(self.name, durable=True)
        return channel


def _broker_reply(error: Exception) -> tuple[int, str]:
    """The code and the text with which the broker closed a channel or a connection; 0 where it did not."""
    if within := _REPLY_WITHIN.search(str(next(iter(error.args), ""))):
        return int(within[1]), within[2]
    return getattr(error, "reply_code", 0), getattr(error, "reply_text", repr(error))


ENDED = "ENDED"
"""The position of a shard that was closed, by a split or a merge, and is processed to its end."""


@dataclass
class Shard:
    """
    One shard, as far as this process has read it.

    *deliveries* are those that were read, by sequence number, each with whether it was acknowledged; the
    position to keep is that of the last before the first that was not.

    >>> shard = Shard("shard-0", ())
    >>> shard.deliver(["1", "2", "3"])
    >>> shard.acknowledge("2"), shard.acknowledge("1"), shard.acknowledge("3")
    (None, '2', '3')
    """

    name: str
    parents: tuple[str, ...]
    position: str | None = None
    iterator: str | None = None
    read: str | None = None
    closed: bool = False
    deliveries: dict[str, bool] = field(default_factory=dict)

    def deliver(self, numbers: Iterable[str]) -> None:
        """Note what was read and handed on."""
        for number in numbers:
            self.read, self.deliveries[number] = number, False

    def acknowledge(self, number: str) -> str | None:
        """Note that a delivery is processed; the position that can be kept now, if it has moved."""
        if number in self.deliveries:
            self.deliveries[number] = True
        processed = list(takewhile(self.deliveries.__getitem__, self.deliveries))
        for number in processed:
            self.position = number
            del self.deliveries[number]
        return self.position if processed else None

    @property
    def done(self) -> bool:
        """Whether all that it will ever have is processed."""
        return self.closed and not self.deliveries


def readable_shards(shards: Mapping[str, Shard]) -> list[Shard]:
    """
    The shards that may be read: not at their end, and their parents processed to the end, or expired.

    So what was sent before a split or a merge is processed before what was sent after it.

    >>> old, new = Shard("old", ()), Shard("new", ("old", "expired long ago"))
    >>> [each.name for each in readable_shards({"old": old, "new": new})]
    ['old']
    >>> old.position = ENDED
    >>> [each.name for each in readable_shards({"old": old, "new": new})]
    ['new']
    """

    def ended(name: str) -> bool:
        return name not in shards or shards[name].position == ENDED

    return [
        shard
        for shard in shards.values()
        if shard.position != ENDED and not shard.closed and all(ended(name) for name in shard.parents)
    ]


_FINAL = {"ResourceNotFoundException", "AccessDeniedException", "UnrecognizedClientException"}
"""Answers after which trying again does not help."""

_MAY_PASS = {
    *("ProvisionedThroughputExceededException", "ThrottlingException", "LimitExceededException"),
    *("KMSThrottlingException", "RequestTimeout", "RequestLimitExceeded"),
}
_MOST_RECORDS = 10_000
"""The most records that one call may ask a shard for."""

_EMPTY_READS = 20
"""How often shards that are behind may answer with nothing before `receive` does: they skip gaps so."""


class KinesisChannel:
    """
    The stream *name*, whose positions are kept in *positions*, most often the gateway's repository.

    Every call asks all shards that may be read, each in a thread of its own; a child of a split or a merge
    is read once its parents are processed to their end.  A new reader begins with the oldest record.  It
    belongs to one thread; of two readers with one place for positions each gets everything.

    Args:
        name: The name of the stream.
        positions: Where the position of each shard is kept, when its deliveries are acknowledged.
        client: A client of `boto3` for Kinesis; made from *options* where there is none.
        options: What `boto3.client` is told: `region_name`, `endpoint_url`, credentials.
        refresh: Seconds after which the list of shards is read again.
        pause: Seconds between two reads of the same shards; Kinesis allows five in a second.

    A stream that was deleted and made anew under its name needs another place for positions: `receive`
    raises `NoChannel` where a shard is open that was read to its end.

    Raises:
        MissingExtra: `boto3` is not installed.

    >>> from cdckit.rdss.gateway.repository import SqliteRepository
    >>> nowhere = {"region_name": "eu-west-1", "endpoint_url": "http://127.0.0.1:1"}
    >>> with SqliteRepository(":memory:") as repository:
    ...     options = {**nowhere, "aws_access_key_id": "a", "aws_secret_access_key": "b"}
    ...     KinesisChannel("input", repository, options=options).receive(1)
    Traceback (most recent call last):
    ...
    cdckit.rdss.gateway.errors.ChannelUnreachable: The channel 'input' cannot be reached: ...
    """

    def __init__(
        self,
        name: str,
        positions: SqliteRepository,
        *,
        client: Any = None,
        options: dict[str, Any] | None = None,
        refresh: float = 60,
        pause: float = 0.2,
    ) -> None:
        require_package("boto3", extra="gateway", part="KinesisChannel")
        self.name = name
        self._positions, self._refresh, self._pause = positions, refresh, pause
        self._client = client or _client(options or {})
        self._threads = ThreadPoolExecutor(max_workers=8, thread_name_prefix=f"kinesis-{name}")
        self._shards: dict[str, Shard] = {}
        self._listed = self._read = float("-inf")

    def send(self, value: bytes, *, key: str) -> None:
        """Put one record, and wait until the stream says that it has it; one *key* goes to one shard."""
        with self._translate_errors():
            self._client.put_record(StreamName=self.name, Data=value, PartitionKey=key[:256] or "-")

    def receive(self, limit: int) -> list[Delivery]:
        """New records of every shard that may be read, in the order of each shard."""
        with self._translate_errors():
            for _ in range(_EMPTY_READS):
                if time.monotonic() - self._listed > self._refresh:
                    self._list()
                shards = self._next(limit)
                received, behind = self._ask(shards, max(1, limit // max(1, len(shards))))
                ended = self._note_ends()
                if received or not (behind or ended):
                    return received
        return []

    def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        """Keep the new position of each shard."""
        moved: dict[str, str] = {}
        for delivery in deliveries:
            name, number = delivery.mark
            if name in self._shards and (position := self._shards[name].acknowledge(number)):
                moved[name] = position
        if moved:
            self._positions.keep_positions(self.name, moved)
        self._note_ends()

    def close(self) -> None:
        """End the threads, and read from the positions that are kept when it is asked again."""
        self._shards, self._listed = {}, float("-inf")
        self._threads.shutdown()
        self._threads = ThreadPoolExecutor(max_workers=8, thread_name_prefix=f"kinesis-{self.name}")

    def _list(self) -> None:
        """Read the list of shards; what is known of those that are there already stays."""
        shards: dict[str, Shard] = {}
        request: dict[str, Any] = {"StreamName": self.name}
        while True:
            answer = self._client.list_shards(**request)
            for listed in answer["Shards"]:
                name = listed["ShardId"]
                parents = (listed.get("ParentShardId"), listed.get("AdjacentParentShardId"))
                position = self._positions.position(self.name, name)
                is_open = "EndingSequenceNumber" not in listed["SequenceNumberRange"]
                if position == ENDED and is_open and name not in self._shards:
                    anew = "the stream was made anew, and needs another repository for its positions"
                    raise NoChannel(self.name, f"the shard {name!r} is open, and was read to its end: {anew}")
                new = Shard(name, tuple(filter(None, parents)), position)
                shards[name] = self._shards.get(name, new)
            if not answer.get("NextToken"):
                break
            request = {"NextToken": answer["NextToken"]}
        self._shards, self._listed = shards, time.monotonic()

    def _next(self, limit: int) -> list[Shard]:
        """At most *limit* shards to ask, others first the next time."""
        shards = readable_shards(self._shards)[:limit]
        for shard in shards if len(shards) == limit else ():
            self._shards[shard.name] = self._shards.pop(shard.name)
        return shards

    def _ask(self, shards: list[Shard], share: int) -> tuple[list[Delivery], bool]:
        """At most *share* new records of each shard, and whether any of them has more."""
        time.sleep(max(0.0, self._read + self._pause - time.monotonic()))
        self._read = time.monotonic()
        answers = list(self._threads.map(lambda shard: self._records(shard, share), shards))
        received: list[Delivery] = []
        for shard, answer in zip(shards, answers, strict=True):
            records = answer.get("Records", [])
            shard.deliver(record["SequenceNumber"] for record in records)
            received += [
                Delivery(record["Data"], (shard.name, record["SequenceNumber"])) for record in records
            ]
            shard.iterator = answer.get("NextShardIterator")
            shard.closed = bool(answer) and shard.iterator is None
        return received, any(answer.get("MillisBehindLatest", 0) > 0 for answer in answers)

    def _records(self, shard: Shard, share: int) -> dict[str, Any]:
        """Read what the shard answers; nothing where its iterator is too old, or it was asked too often."""
        if shard.iterator is None:
            after = shard.read or shard.position
            place: dict[str, str] = {"ShardIteratorType": "TRIM_HORIZON"}
            if after is not None:
                place = {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "StartingSequenceNumber": after}
            answer = self._client.get_shard_iterator(StreamName=self.name, ShardId=shard.name, **place)
            shard.iterator = answer["ShardIterator"]
        try:
            most = min(share, _MOST_RECORDS)
            records: dict[str, Any] = self._client.get_records(ShardIterator=shard.iterator, Limit=most)
        except self._client.exceptions.ExpiredIteratorException:
            shard.iterator = None
            return {}
        except self._client.exceptions.ProvisionedThroughputExceededException:
            return {"NextShardIterator": shard.iterator}
        return records

    def _note_ends(self) -> bool:
        """Keep that shards are processed to their end, which lets their children be read."""
        ended = [shard for shard in self._shards.values() if shard.done and shard.position != ENDED]
        for shard in ended:
            shard.position = ENDED
        if ended:
            self._positions.keep_positions(self.name, {shard.name: ENDED for shard in ended})
            self._listed = float("-inf")
        return bool(ended)

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        from botocore.exceptions import ClientError, ConnectionError, HTTPClientError, NoCredentialsError

        try:
            yield
        except ClientError as error:
            code, status = (
                error.response["Error"]["Code"],
                error.response["ResponseMetadata"]["HTTPStatusCode"],
            )
            if code in _MAY_PASS or status >= 500:
                raise ChannelUnreachable(self.name, code) from error
            if code in _FINAL:
                raise NoChannel(self.name, code) from error
            raise
        except NoCredentialsError as error:
            raise NoChannel(self.name, "no credentials were found") from error
        except (HTTPClientError, ConnectionError) as error:
            raise ChannelUnreachable(self.name, str(error).rstrip(".")) from error


def _client(options: dict[str, Any]) -> Any:
    import boto3
    from botocore.config import Config

    # How often to try again, and when, is the gateway's business.
    once = Config(retries={"total_max_attempts": 1}, connect_timeout=5, read_timeout=20)
    return boto3.client("kinesis", **{"config": once, **options})


@dataclass(frozen=True)
class Channels:
    """
    The queues of a gateway; *returns* are those that a returnAddress may name, besides the output.

    >>> from cdckit.rdss.gateway.channels import MemoryChannel
    >>> queues = {name: MemoryChannel(name) for name in ("input", "output", "invalid", "error")}
    >>> Channels(**queues).destinations()["invalid"].name
    'invalid'
    """

    input: Channel
    output: Channel
    invalid: Channel
    error: Channel
    returns: Mapping[str, Channel] = field(default_factory=dict)

    def destinations(self) -> dict[str, Channel]:
        """Find by name the channels that are sent to."""
        named = {"output": self.output, "invalid": self.invalid, "error": self.error}
        return {**{f"return {address}": channel for address, channel in self.returns.items()}, **named}

    def return_to(self, address: str | None) -> str:
        """The name of the channel for responses to *address*: the output where the address is not known."""
        return f"return {address}" if address in self.returns else "output"

    def close(self) -> None:
        """Close them all."""
        for channel in (self.input, *self.destinations().values()):
            channel.close()


_NAMES = ("input", "output", "invalid", "error")
_KEYS = {"kind", "options", "addresses", "returns"}


def open_channels(settings: Mapping[str, Any], positions: SqliteRepository) -> Channels:
    """
    The queues that *settings*, such as a file of JSON has them, name; none is connected to yet.

    Args:
        settings:
            `kind`: `memory` (without it), `rabbitmq` or `kinesis`.
            `addresses`: the names of the queues for `input`, `output`, `invalid` and `error`; those words
            themselves without it.
            `returns`: the addresses, besides these, that a returnAddress may name.
            `options`: what the kind needs to connect: `{"url": "amqp://…"}`, or what `boto3.client` takes.
        positions: Where a stream's positions are kept: the gateway's repository.

    Raises:
        InvalidArgument: A kind, a key or an address that there is not.
        MissingExtra: The package for the kind is not installed.

    >>> from cdckit.rdss.gateway.repository import SqliteRepository
    >>> settings = {"kind": "rabbitmq", "options": {"url": "amqp://broker"}, "addresses": {"input": "in"}}
    >>> with SqliteRepository(":memory:") as repository:
    ...     channels = open_channels(settings, repository)
    ...     channels.input.name, channels.error.name
    ('in', 'error')
    """
    unknown = set(settings) - _KEYS
    addresses = settings.get("addresses", {})
    if unknown or not set(addresses) <= set(_NAMES):
        wrong = sorted(unknown) or sorted(set(addresses) - set(_NAMES))
        needed = f"of {', '.join(sorted(_KEYS))}, with addresses for {', '.join(_NAMES)}"
        raise InvalidArgument("open_channels", "settings", needed, wrong)
    kind, options = settings.get("kind", "memory"), dict(settings.get("options", {}))
    openers: dict[str, Callable[[str], Channel]] = {
        "memory": MemoryChannel,
        "rabbitmq": lambda name: RabbitChannel(name, **options),
        "kinesis": lambda name: KinesisChannel(name, positions, options=options),
    }
    if kind not in openers:
        raise InvalidArgument("open_channels", "settings['kind']", "memory, rabbitmq or kinesis", kind)
    named = {name: openers[kind](addresses.get(name, name)) for name in _NAMES}
    returns = {address: openers[kind](address) for address in settings.get("returns", ())}
    return Channels(**named, returns=returns)
