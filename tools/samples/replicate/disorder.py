"""What a feed does to messages on their way: some are late, some come twice, none in order."""

from collections.abc import Iterable
from typing import NamedTuple
from zlib import crc32

import numpy as np

from tools.samples.replicate.seeds import Seeds, between, mix, uniform
from tools.samples.replicate.tables import HOUR, MINUTE, SECOND, Version

LATE = MINUTE


class Message(NamedTuple):
    """An encoded message before it is sent; `at` is when its source made it, `seed` tells it apart."""

    at: int
    seed: int
    step: int
    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    version: Version | None = None
    label: str = ""


class Arrival(NamedTuple):
    """
    One delivery of a message: `at` is when the broker took it, in whole milliseconds.

    Sorted as tuples, arrivals are in the order of the broker; `seed`, `step` and `copy` settle equal times.
    """

    at: int
    seed: int
    step: int
    copy: int
    message: Message


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition of a key, by its CRC-32; Kafka's own producer uses another hash."""
    return crc32(key) % partitions


def deliver(messages: Iterable[Message]) -> list[Arrival]:
    """
    Return the deliveries of *messages*, in no order.

    Of a hundred messages, three are one to 20 minutes late, and one in 300 is one to nine hours late; one is
    delivered again, within half an hour. The others take about a second.
    """
    batch = list(messages)
    seeds = _message_seeds(batch)
    first = np.array([message.at for message in batch], dtype=np.int64) + _lags(seeds)
    again = first + between(seeds, "again", SECOND, 30 * MINUTE).astype(np.int64)
    twice = uniform(seeds, "twice") < 0.01
    arrivals = [arrival(message, at) for message, at in zip(batch, first.tolist(), strict=True)]
    copies = zip(batch, again.tolist(), twice.tolist(), strict=True)
    return arrivals + [arrival(message, at, copy=1) for message, at, sent in copies if sent]


def arrival(message: Message, at: int, *, copy: int = 0) -> Arrival:
    """Return the delivery of *message* at *at*, cut to milliseconds."""
    return Arrival(at // 1000 * 1000, message.seed, message.step, copy, message)


def _message_seeds(batch: list[Message]) -> Seeds:
    topics = np.array([crc32(message.topic.encode()) for message in batch], dtype=np.uint64)
    steps = np.array([message.step for message in batch], dtype=np.uint64)
    seeds = np.array([message.seed for message in batch], dtype=np.uint64)
    return mix(seeds ^ mix(topics * np.uint64(16) + steps))


def _lags(seeds: Seeds) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    fate = uniform(seeds, "fate")
    usual = 150_000 - 600_000 * np.log1p(-uniform(seeds, "lag"))
    late = between(seeds, "late", LATE, 20 * MINUTE)
    very_late = between(seeds, "very late", HOUR, 9 * HOUR)
    lags = np.where(fate < 1 / 300, very_late, np.where(fate < 1 / 300 + 0.03, late, usual))
    return lags.astype(np.int64)
