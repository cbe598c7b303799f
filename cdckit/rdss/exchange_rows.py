"""Messages of an exchange on their way from rule to rule: what each says, and what is left of one erased."""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from cdckit.model.faults import ERROR_CODE, ERROR_DESCRIPTION
from cdckit.parts.kept_folds import Place, number_rows
from cdckit.rdss.message_rows import SLICED_MESSAGE, read_message, read_tenant
from cdckit.rdss.message_types import CREATE, FAULTS, REMOVE, UPDATE
from cdckit.rdss.object_bodies import named_objects
from cdckit.rdss.reading import Rules
from cdckit.rdss.sequence_rules import content_digest, join_terms

ERASED = "ERASED"
"""In place of an error's code: of messages that are no more than the places where they stood."""


class Names:
    """
    Other names, by which alone states know messages, sequences and objects.

    Whoever has the store, and guesses a name, can tell that it is among them.

    Args:
        secret: Of the hashes of which these names are made, in hexadecimal digits.

    >>> Names("00ff").of("ada")
    '742894398c8d68ad25530ba838e6097b'
    """

    def __init__(self, secret: str) -> None:
        self._key = bytes.fromhex(secret)

    def of(self, name: str) -> str:
        """The other name of one."""
        return hmac.digest(self._key, name.encode(), "sha256").hex()[:NAME_DIGITS]

    def of_bytes(self, value: bytes | None) -> str:
        """That of a message which is known by its bytes."""
        return self.of(sha256(value or b"").hexdigest())


NAME_DIGITS = 32


@dataclass(frozen=True)
class ExchangeRules:
    """
    What an exchange goes by.

    Args:
        names: How states call what they know.
        rules: The limits of messages.
        keeps_deleted: Whether a deleted object exists still.
        erased_objects: Those that were erased, and whether messages about them that come later are refused.
        erased_sequences: The sequences of messages about such objects.
    """

    names: Names
    rules: Rules
    keeps_deleted: bool = False
    erased_objects: Mapping[str, bool] = field(default_factory=dict)
    erased_sequences: frozenset[str] = frozenset()

    def refuses(self, about: str | None) -> bool | None:
        """Tell of an object that was erased whether messages about it are refused; None of another one."""
        if about is None or not self.erased_objects:
            return None
        return self.erased_objects.get(self.names.of(about))

    def is_erased_sequence(self, row: Mapping[str, Any]) -> bool:
        """Tell whether a record is of a sequence that was erased."""
        if row["sequence_id"] is None or (row["sequence_total"] or 0) < 2:
            return False
        return bool(self.erased_sequences) and self.names.of(row["sequence_id"]) in self.erased_sequences


class Arrival(NamedTuple):
    """Where a record stands in the order in which all came: batch after batch, and as records say."""

    batch: int
    timestamp: int
    topic: str
    partition: int
    offset: int
    number: int

    @property
    def place(self) -> Place:
        """The place of the record."""
        return self.batch, self.number


class _Row(msgspec.Struct, array_like=True, tag=True):
    """A row that is on its way from fold to fold; names are other names."""


class ArrivedMessage(_Row):
    """
    A message that is whole, or refused.

    Args:
        arrival: When it was there whole: by this the first of one identity counts.
        places: The records that brought it, in the order of their positions.
        first: When the first of these came.
        identity: What makes it the same message again.
        refused: Why a part is refused that contradicts others: a code and a sentence.
        kind: Its type, if it is a statement about an object, or a request to read it.
        published: When, in microseconds.
        about: The object.
        others: The objects of which it says that this one is a version.
    """

    arrival: Arrival
    places: list[Place]
    first: Arrival
    identity: str
    refused: tuple[str, str] | None = None
    kind: str | None = None
    published: int = 0
    about: str | None = None
    others: list[str] = []


class Part(_Row):
    """
    A part of a message, with what tells parts apart, and what makes it the same again where it is refused.

    *value* is that of its record, of the first part alone.
    """

    arrival: Arrival
    message: str
    bytes_name: str
    sequence: str
    sequence_id: str
    position: int
    terms: str
    since: int | None
    digest: str
    value: bytes | None
    body: str


class OwnMessage(_Row):
    """A message of our own, and its status."""

    identity: str
    status: str


class _Published(_Row):
    """What a message has to do with an object: known in the order in which messages were published."""

    message: ArrivedMessage

    def order(self) -> tuple[Any, ...]:
        """Order as they were published; at one instant as they came."""
        return self.message.published, *self.message.first[1:5], self.message.identity


class Statement(_Published):
    """
    What a message says of its object.

    Args:
        message: The message.
        is_accepted: The verdict; None before there is one.
        answers: Whether the objects existed of which it says that its own is a version.
    """

    is_accepted: bool | None = None
    answers: dict[str, bool] = {}


class Question(_Published):
    """Whether the object *asked* existed, when a message was published about a version of it."""

    asked: str
    existed: bool = False


class Answer(_Row):
    """Whether *asked* existed when a message was published that says that *about* is a version of it."""

    about: str
    identity: str
    asked: str
    existed: bool


class ForgetSequence(_Row):
    """A sequence of which nothing is to be known any more."""

    sequence: str


class ForgetObject(_Row):
    """An object of which no more is to be known than when it came to be and went."""

    about: str


class Left(_Row):
    """What is left of a message that is forgotten: who comes after it is judged as if it had stayed."""

    message: ArrivedMessage


class ErasedWhole(_Row):
    """Parts that turn out, now that all are there, to be about an object that was erased."""

    sequence_id: str
    places: list[Place]
    is_refused: bool


class LedgerVerdict(_Row):
    """Whether ledgers are to have a statement; if not, they had it, and its object is unknown after all."""

    places: list[Place]
    is_accepted: bool


Row = (
    ArrivedMessage
    | Part
    | OwnMessage
    | Statement
    | Question
    | Answer
    | ForgetSequence
    | ForgetObject
    | Left
    | ErasedWhole
    | LedgerVerdict
)
"""What is on its way."""

# Rows of messages ------------------------------------------------------------------------------------------

RECORD = pa.schema([*SLICED_MESSAGE, ("left", pa.binary())])
"""What is kept of a message beside its record: its header and verdict, where its body stands; and of one that
is erased, what is left of it."""


def read_record(value: bytes | None, arrival: datetime | None, *, settings: ExchangeRules) -> tuple[Any, ...]:
    """The values of `RECORD` of a record that comes; one about an erased object is no more than its place."""
    values = read_message(value, arrival, now=None, rules=settings.rules)
    row = dict(zip(SLICED_MESSAGE.names, values, strict=True))
    refuses = settings.refuses(row["object_uuid"])
    if refuses is None and not settings.is_erased_sequence(row):
        return (*values, None)
    is_refused = bool(refuses) and row[ERROR_CODE] is None and is_change(row)
    texts = {ERROR_CODE: ERASED, ERROR_DESCRIPTION: ERASED_REASON}
    texts |= {"generator": row["generator"]} if is_refused else {}
    return (*map(texts.get, SLICED_MESSAGE.names), None)


def is_change(row: Mapping[str, Any]) -> bool:
    """Tell whether a sound message says something of an object that ledgers have."""
    return row["message_class"] == "Command" and row["message_type"] in (CREATE, UPDATE, REMOVE)


ERASED_REASON = "The message spoke of what was erased."
_NOWHERE = Arrival(0, 0, "", 0, 0, 0)


def left_of(
    value: bytes | None,
    message_id: str | None,
    sequence_total: int | None,
    error_code: str | None,
    left: bytes | None,
    *,
    names: Names,
) -> tuple[bytes | None]:
    """Keep what is left of a record that is erased: what folds have *left*, or else what it is known by."""
    if left is not None:
        return (left,)
    if error_code is not None:
        identity = names.of_bytes(value)
    elif sequence_total == 1 and message_id is not None:
        identity = names.of(message_id)
    else:
        return (None,)
    return (msgspec.msgpack.encode(ArrivedMessage(_NOWHERE, [], _NOWHERE, identity)),)


READS = (
    *("batch", "number", "timestamp", "topic", "partition", "offset", "value", "body_from", "body_length"),
    *("message_id", "message_class", "message_type", "published_timestamp", "sequence_id"),
    *("sequence_position", "sequence_total", "generator", "tenant_jisc_id", "object_uuid", ERROR_CODE),
    "left",
)
"""The columns of a message that are looked at."""

_BEFORE_ALL = -(1 << 63)
_read_left = msgspec.msgpack.Decoder(ArrivedMessage).decode


def read_rows(batch: pa.RecordBatch, settings: ExchangeRules) -> Iterator[ArrivedMessage | Part]:
    """Read what each message says that the folds go by."""
    rows = number_rows(batch.select(READS))
    return filter(None, (_read_row(row, settings.names) for row in rows))


def _read_row(row: Mapping[str, Any], names: Names) -> ArrivedMessage | Part | None:
    timestamp, partition, offset = (
        _BEFORE_ALL if row[name] is None else row[name] for name in ("timestamp", "partition", "offset")
    )
    arrival = Arrival(row["batch"], timestamp, row["topic"] or "", partition, offset, row["number"])
    if row[ERROR_CODE] == ERASED:
        return _left_message(row["left"], arrival)
    if row[ERROR_CODE] is not None:
        return ArrivedMessage(arrival, [arrival.place], arrival, names.of_bytes(row["value"]))
    if row["sequence_total"] > 1:
        return _part(row, arrival, names)
    statement = statement_of(row, _body(row), row["published_timestamp"], names)
    return ArrivedMessage(arrival, [arrival.place], arrival, names.of(row["message_id"]), None, *statement)


def _left_message(left: bytes | None, arrival: Arrival) -> ArrivedMessage | None:
    """Keep what is left of an erased message; what was never taken does not know yet where it stands."""
    message = None if left is None else _read_left(left)
    if message is None or message.places:
        return message
    return ArrivedMessage(arrival, [arrival.place], arrival, message.identity)


def _body(row: Mapping[str, Any]) -> str:
    start = row["body_from"] - 1
    text: bytes = row["value"][start : start + row["body_length"]]
    return text.decode()


def _part(row: Mapping[str, Any], arrival: Arrival, names: Names) -> Part:
    body, position, sequence = _body(row), row["sequence_position"], row["sequence_id"]
    tenant = row["tenant_jisc_id"]
    if tenant is None:
        tenant = read_tenant(row["value"])
    return Part(
        arrival=arrival,
        message=names.of(row["message_id"]),
        bytes_name=names.of_bytes(row["value"]),
        sequence=names.of(sequence),
        sequence_id=sequence,
        position=position,
        terms=join_terms(
            row["sequence_total"], row["message_type"], row["message_class"], tenant, row["generator"]
        ),
        since=row["timestamp"],
        digest=content_digest(msgspec.json.decode(body, type=str)),
        value=row["value"] if position == 1 else None,
        body=body,
    )


def statement_of(
    row: Mapping[str, Any], body: str, published: int, names: Names
) -> tuple[str | None, int, str | None, list[str]]:
    """Read what a sound message says of an object: its kind, when, of which, and of which others."""
    kind, about = row["message_type"], row["object_uuid"]
    if about is None or row["message_class"] == "Document" or kind not in (CREATE, *FAULTS):
        return None, published, None, []
    object_name, *others = map(names.of, named_objects(kind, about, body))
    return kind, published, object_name, others
