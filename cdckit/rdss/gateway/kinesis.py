"""A stream of AWS Kinesis as a channel: all shards, positions kept after processing, resharding, resume."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from cdckit.parts.arguments import require_package
from cdckit.rdss.gateway.channel import Delivery
from cdckit.rdss.gateway.errors import ChannelUnreachable, NoChannel

ENDED = "ENDED"
"""The position of a shard that was closed, by a split or a merge, and is processed to its end."""


class Positions(Protocol):
    """Where positions are kept; a `Repository` is such a place."""

    def position(self, stream: str, shard: str) -> str | None:
        """The position kept for a shard of a stream; None before the first."""

    def keep_positions(self, stream: str, positions: Mapping[str, str]) -> None:
        """Note up to where shards of a stream are processed."""


@dataclass
class Shard:
    """
    One shard, as far as this process has read it.

    *unacknowledged* are the sequence numbers of deliveries, in order, each with whether it was acknowledged;
    the position to keep is that of the last before the first that was not.

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
    unacknowledged: deque[list[Any]] = field(default_factory=deque)

    def deliver(self, numbers: Iterable[str]) -> None:
        """Note what was read and handed on."""
        for number in numbers:
            self.read = number
            self.unacknowledged.append([number, False])

    def acknowledge(self, number: str) -> str | None:
        """Note that a delivery is processed; the position that can be kept now, if it has moved."""
        for each in self.unacknowledged:
            if each[0] == number:
                each[1] = True
                break
        moved = None
        while self.unacknowledged and self.unacknowledged[0][1]:
            moved = self.position = self.unacknowledged.popleft()[0]
        return moved

    @property
    def done(self) -> bool:
        """Whether all that it will ever have is processed."""
        return self.closed and not self.unacknowledged


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
        each
        for each in shards.values()
        if each.position != ENDED and not each.closed and all(ended(name) for name in each.parents)
    ]


_FINAL = {"ResourceNotFoundException", "AccessDeniedException", "UnrecognizedClientException"}
"""Answers after which trying again does not help."""

_MAY_PASS = {
    *("ProvisionedThroughputExceededException", "ThrottlingException", "LimitExceededException"),
    *("KMSThrottlingException", "RequestTimeout", "RequestLimitExceeded"),
}
_EMPTY_READS = 20
"""How often shards that are behind may answer with nothing before `receive` does: they skip gaps so."""


class KinesisChannel:
    """
    The stream *name*, whose positions are kept in *positions*: a `Repository`, most often the gateway's.

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

    Raises:
        MissingExtra: `boto3` is not installed.

    >>> from cdckit.rdss.gateway.sqlite import SqliteRepository
    >>> nowhere = {"region_name": "eu-west-1", "endpoint_url": "http://127.0.0.1:1"}
    >>> with SqliteRepository(":memory:") as repository:
    ...     told = {**nowhere, "aws_access_key_id": "a", "aws_secret_access_key": "b"}
    ...     KinesisChannel("input", repository, options=told).receive(1)
    Traceback (most recent call last):
    ...
    cdckit.rdss.gateway.errors.ChannelUnreachable: The channel 'input' cannot be reached: ...
    """

    def __init__(
        self,
        name: str,
        positions: Positions,
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
                asked = self._next(limit)
                found, behind = self._ask(asked, max(1, limit // max(1, len(asked))))
                ended = self._note_ends()
                if found or not (behind or ended):
                    return found
        return []

    def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        """Keep the new position of each shard."""
        moved: dict[str, str] = {}
        for each in deliveries:
            name, number = each.mark
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
        found: dict[str, Shard] = {}
        asked: dict[str, Any] = {"StreamName": self.name}
        while True:
            answer = self._client.list_shards(**asked)
            for each in answer["Shards"]:
                name = each["ShardId"]
                parents = (each.get("ParentShardId"), each.get("AdjacentParentShardId"))
                new = Shard(name, tuple(filter(None, parents)), self._positions.position(self.name, name))
                found[name] = self._shards.get(name, new)
            if not answer.get("NextToken"):
                break
            asked = {"NextToken": answer["NextToken"]}
        self._shards, self._listed = found, time.monotonic()

    def _next(self, limit: int) -> list[Shard]:
        """At most *limit* shards to ask, others first the next time."""
        asked = readable_shards(self._shards)[:limit]
        for each in asked if len(asked) == limit else ():
            self._shards[each.name] = self._shards.pop(each.name)
        return asked

    def _ask(self, shards: list[Shard], share: int) -> tuple[list[Delivery], bool]:
        """At most *share* new records of each shard, and whether any of them has more."""
        time.sleep(max(0.0, self._read + self._pause - time.monotonic()))
        self._read = time.monotonic()
        answers = list(self._threads.map(lambda shard: self._records(shard, share), shards))
        found: list[Delivery] = []
        for shard, answer in zip(shards, answers, strict=True):
            records = answer.get("Records", [])
            shard.deliver(each["SequenceNumber"] for each in records)
            found += [Delivery(each["Data"], (shard.name, each["SequenceNumber"])) for each in records]
            shard.iterator = answer.get("NextShardIterator")
            shard.closed = bool(answer) and shard.iterator is None
        return found, any(answer.get("MillisBehindLatest", 0) > 0 for answer in answers)

    def _records(self, shard: Shard, share: int) -> dict[str, Any]:
        """What the shard answers; nothing where its iterator is too old, or it was asked too often."""
        if shard.iterator is None:
            after = shard.read or shard.position
            place: dict[str, str] = {"ShardIteratorType": "TRIM_HORIZON"}
            if after is not None:
                place = {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "StartingSequenceNumber": after}
            answer = self._client.get_shard_iterator(StreamName=self.name, ShardId=shard.name, **place)
            shard.iterator = answer["ShardIterator"]
        try:
            records: dict[str, Any] = self._client.get_records(ShardIterator=shard.iterator, Limit=share)
        except self._client.exceptions.ExpiredIteratorException:
            shard.iterator = None
            return {}
        except self._client.exceptions.ProvisionedThroughputExceededException:
            return {"NextShardIterator": shard.iterator}
        return records

    def _note_ends(self) -> bool:
        """Keep that shards are processed to their end, which lets their children be read."""
        ended = [each for each in self._shards.values() if each.done and each.position != ENDED]
        for each in ended:
            each.position = ENDED
        if ended:
            self._positions.keep_positions(self.name, {each.name: ENDED for each in ended})
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
