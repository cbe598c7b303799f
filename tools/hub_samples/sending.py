"""A message as its sender makes it, and the instants in it as text."""

import csv
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from io import StringIO
from typing import Any

from tools.samples.replicate.disorder import Message, partition_of
from tools.samples.replicate.seeds import text_seed
from tools.samples.replicate.tables import EPOCH, HOUR

Record = dict[str, Any]

# Topics and their partitions: a flight keeps to one partition of a topic.
PARTITIONS = {
    "hub.airline": 2,
    "hub.airport": 2,
    "hub.reference": 1,
    "hub.registry": 1,
    "hub.sales": 1,
    "hub.schedule": 1,
    "hub.weather": 1,
}


@dataclass(frozen=True)
class Sent:
    """
    One message before it is on its way.

    `name` tells it apart and seeds what happens to it; most senders use it as the `guid` of their documents.
    `at` is when it is sent. `lost` names a record in it that waits for something that never comes.
    """

    name: str
    at: int
    topic: str
    key: str
    value: bytes | None
    lost: str = ""


def message(
    name: str,
    at: int,
    topic: str,
    document: dict[str, Any],
    *,
    key: str = "",
    lost: str = "",
) -> Sent:
    """Return the message with this JSON document."""
    value = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
    return Sent(name, at, topic, key or topic, value, lost)


def on_its_way(sent: Sent) -> Message:
    """Return the message as `tools.samples` delivers messages: some late, some twice."""
    key = sent.key.encode()
    partition = partition_of(key, PARTITIONS[sent.topic])
    return Message(sent.at, text_seed(sent.name), 0, sent.topic, partition, key, sent.value, label=sent.name)


def csv_text(lines: Iterable[Sequence[Any]]) -> str:
    """
    Return lines as CSV; None is an empty cell.

    >>> csv_text([("a", "b"), (1, None)])
    'a,b\\n1,\\n'
    """
    out = StringIO()
    csv.writer(out, lineterminator="\n").writerows(lines)
    return out.getvalue()


def plain(at: int) -> str:
    """
    Return an instant without a zone, to the second.

    >>> plain(1_360_332_305_000_000)
    '2013-02-08T14:05:05'
    """
    return (EPOCH + timedelta(microseconds=at)).replace(tzinfo=None).isoformat(timespec="seconds")


def utc(at: int) -> str:
    """
    Return an instant in UTC, to the second.

    >>> utc(1_360_332_305_000_000)
    '2013-02-08T14:05:05Z'
    """
    return plain(at) + "Z"


def new_york(at: int) -> str:
    """
    Return an instant of the winter as a clock in New York shows it, to the second.

    >>> new_york(1_360_332_305_000_000)
    '2013-02-08 09:05:05-05:00'
    """
    return plain(at - 5 * HOUR).replace("T", " ") + "-05:00"
