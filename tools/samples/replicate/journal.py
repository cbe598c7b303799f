"""A source's own order: changes as one task reads them from the log of its database."""

from collections.abc import Iterable, Iterator
from datetime import timedelta
from itertools import groupby
from typing import NamedTuple

from tools.samples.replicate.changes import Change
from tools.samples.replicate.tables import EPOCH


class Committed(NamedTuple):
    """
    A change with its place in the log of its task.

    `event` counts from 1 within the transaction and `last_event` marks its end; both are None, and
    `transaction` is empty, for a row of a load, which no transaction made.
    """

    change: Change
    sequence: str
    position: str
    transaction: str
    event: int | None
    last_event: bool | None


class Journal:
    """The log of one task; it goes on from one batch of changes to the next."""

    def __init__(self) -> None:
        self._events = 0
        self._transactions = 0x60000

    def commit(self, changes: Iterable[Change]) -> Iterator[Committed]:
        """Give *changes*, none of them older than an earlier batch, in the order of the log."""
        ordered = sorted(changes, key=_place)
        for _, group in groupby(ordered, key=_transaction_key):
            yield from self._transaction(list(group))

    def _transaction(self, changes: list[Change]) -> Iterator[Committed]:
        loaded = changes[0].operation == "REFRESH"
        self._transactions += not loaded
        for event, change in enumerate(changes, start=1):
            self._events += 1
            sequence = sequence_text(change.at, self._events)
            position = f"{self._events >> 16:08x}:{self._events & 0xFFFF:08x}:{event:04x}"
            if loaded:
                yield Committed(change, sequence, position, "", None, None)
            else:
                transaction = f"{self._transactions:032X}"
                yield Committed(change, sequence, position, transaction, event, event == len(changes))


def _place(change: Change) -> tuple[int, str, str, int, int]:
    return change.at, change.transaction, change.table.topic, change.seed, change.step


def _transaction_key(change: Change) -> tuple[int, str] | tuple[int, int, str, int]:
    if change.transaction:
        return change.at, change.transaction
    return change.at, change.seed, change.table.topic, change.step


def sequence_text(at: int, events: int) -> str:
    """
    Return a change sequence: 16 digits of time, down to hundredths of a second, and 19 of the count of
    events.

    >>> sequence_text(1_360_332_305_123_456, 42)
    '20130208140505120000000000000000042'
    """
    moment = EPOCH + timedelta(microseconds=at)
    return f"{moment:%Y%m%d%H%M%S}{moment.microsecond // 10_000:02d}{events:019d}"


def instant_text(at: int) -> str:
    """
    Return an instant as the headers of a message carry it.

    >>> instant_text(1_360_332_305_000_000)
    '2013-02-08T14:05:05.000000'
    """
    return (EPOCH + timedelta(microseconds=at)).replace(tzinfo=None).isoformat(timespec="microseconds")
