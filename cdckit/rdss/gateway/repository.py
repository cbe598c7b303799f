"""What a gateway must remember of each message: the local data repository of the specification."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from cdckit.rdss.exchange_tables import Fate, KnownMessages


@dataclass(frozen=True)
class OutgoingMessage:
    """
    A message that is to be sent: one row of the repository with the status TO_SEND, or SENT later.

    *destination* is the name of the channel.  *key* keeps messages that belong together in one order,
    where the queue has several shards.

    >>> OutgoingMessage("6d1c…", "Command", "MetadataCreate", "41aa…", 1, b"{}").destination
    'output'
    """

    message_id: str
    message_class: str
    message_type: str
    sequence: str
    position: int
    value: bytes
    destination: str = "output"

    @property
    def key(self) -> str:
        return self.sequence or self.message_id


@dataclass(frozen=True)
class IncomingMessage:
    """
    A valid message that was taken from a queue; *total* is the number of messages in its sequence.

    Of a part, *terms* and *content* are what tells it from others (see `cdckit.rdss.sequences`).

    >>> IncomingMessage("6d1c…", "Command", "MetadataRead", "41aa…", 1, 1, None, b"{}").total
    1
    """

    message_id: str
    message_class: str
    message_type: str
    sequence: str
    position: int
    total: int
    correlation_id: str | None
    value: bytes
    terms: str = ""
    content: str = ""


@dataclass(frozen=True)
class RefusedMessage:
    """
    A message that cannot be processed, with its code and the channel that it is routed to.

    *original* are its bytes as they came, *decorated* those that are sent to the channel,
    `invalid` or `error`.

    >>> RefusedMessage(b"{", b"...", "invalid", "GENERR007", "Malformed JSON", None).channel
    'invalid'
    """

    original: bytes
    decorated: bytes
    channel: str
    error_code: str
    error_description: str
    message_id: str | None


Judge = Callable[[Sequence[IncomingMessage]], list[RefusedMessage]]
"""What is wrong with the message of all these parts: each of them as refused; nothing if it is valid."""


@dataclass(frozen=True)
class Statement:
    """
    A row of the application's own, written to its tables in the same commit as a message's fate.

    >>> Statement("INSERT INTO objects VALUES (?)", ("5680e8e0",)).parameters
    ('5680e8e0',)
    """

    sql: str
    parameters: tuple[object, ...] = ()


class Repository(KnownMessages, Protocol):
    """
    The small interface that a gateway needs; `SqliteRepository` is the one that comes with it.

    Every method is one transaction: when it returns, what it was told survives the end of the process.

    >>> from cdckit.rdss.gateway.sqlite import SqliteRepository
    >>> repository: Repository = SqliteRepository(":memory:")
    >>> print(repository.status("6d1c…"))
    None
    """

    def mark_to_send(self, messages: Sequence[OutgoingMessage]) -> None:
        """Note messages as TO_SEND, unless they are so or SENT; `KnownMessage` if one was received."""

    def mark_sent(self, message_id: str) -> None:
        """Note that a message was acknowledged: TO_SEND becomes SENT."""

    def unsent_messages(self, limit: int, destination: str | None = None) -> list[OutgoingMessage]:
        """The messages that are TO_SEND, to one destination or to all, the oldest first."""

    def take(
        self,
        messages: Sequence[IncomingMessage | RefusedMessage],
        refuse: Callable[[IncomingMessage, str], RefusedMessage],
        judge: Judge,
    ) -> list[Fate]:
        """
        Note messages of a queue as RECEIVED, or as refused and to be routed; the fate of each so far.

        A message is a duplicate if one with its messageId waits, was processed, or is our own.  One that was
        handed over, and refused then, has not been processed: the same message is taken again.

        Of parts, what came first stands (see `cdckit.rdss.sequences`); one that contradicts it becomes
        what *refuse* makes of it and the reason.  A sequence has the messageId of its first part from when it
        is whole, and *judge* finds nothing wrong with it.
        """

    def next_waiting(self) -> list[IncomingMessage]:
        """All parts, by position, of the message that has waited longest and is whole; nothing if none is."""

    def count_attempt(self, parts: Sequence[IncomingMessage]) -> int:
        """Note that a message is handed over; how often it was, this time included."""

    def settle(
        self,
        messages: Sequence[IncomingMessage],
        fate: Fate,
        *,
        send: Sequence[OutgoingMessage] = (),
        write: Sequence[Statement] = (),
        refused: Sequence[RefusedMessage] = (),
        keep: bool = False,
    ) -> bool:
        """
        Note the fate of messages and all that follows; False, and nothing noted, if one waits no more.

        Their bytes go, unless *keep* says that they stay until they are forgotten.
        """

    def incomplete_parts(self, before: datetime) -> list[IncomingMessage]:
        """The parts of sequences that are not whole, and of which no part came since *before*."""

    def unrouted_messages(self, limit: int) -> list[tuple[int, RefusedMessage]]:
        """What is refused and not yet acknowledged by its channel, by number, the oldest first."""

    def refused_bytes(self, message_id: str) -> list[bytes]:
        """The bytes of what was refused of a message and of its sequence; first what had been handed over."""

    def mark_routed(self, number: int) -> None:
        """Note that the channel has acknowledged what was refused."""

    def response_to(self, message_id: str) -> list[IncomingMessage]:
        """All parts of the response to *message_id*, if it is whole and its bytes are kept."""

    def counts(self) -> Mapping[Fate, int]:
        """How many taken messages have which fate, each of the five."""

    def forget(self, before: datetime) -> int:
        """Remove what was noted before then and is done; how many messages.  `counts` stays as it is."""

    def position(self, stream: str, shard: str) -> str | None:
        """The position kept for a shard of a stream; None before the first."""

    def keep_positions(self, stream: str, positions: Mapping[str, str]) -> None:
        """Note up to where shards of a stream are processed."""
