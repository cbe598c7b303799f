"""RDSS, "Receiving", "Multi-Message Sequence", "Metadata Error Codes": what becomes of messages."""

from __future__ import annotations

import hmac
from bisect import insort
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from cdckit.model.faults import ERROR_CODE, ERROR_DESCRIPTION
from cdckit.parts.kept_folds import Again, KeptFold, Place, RecordOutcome
from cdckit.rdss.existence_rules import FAULTS, exists_after, is_right
from cdckit.rdss.findings import CODES, RdssFault
from cdckit.rdss.message_rows import MESSAGE, SLICED_MESSAGE, read_message
from cdckit.rdss.object_bodies import named_objects
from cdckit.rdss.reading import Rules
from cdckit.rdss.sequence_rules import (
    CONTRADICTION,
    PartOutcome,
    SequenceParts,
    WholeMessage,
    content_digest,
    join_terms,
)
from cdckit.rdss.validators import CREATE, READ, REMOVE, UPDATE

ERASED = "ERASED"
"""In place of an error's code: of messages that are no more than the places where they stood."""


class Outcome(StrEnum):
    """
    What became of a message that was taken from a queue; each taken message has exactly one outcome.

    It is *waiting* until its handler is done, and then processed, or an error.  What is not valid is
    *invalid* or an *error*, by the queue that it is routed to.  A *duplicate* is a message that waits or was
    processed already, also one of our own, and a part whose content came before in its place.

    >>> print(*Outcome)
    waiting processed invalid error duplicate
    """

    WAITING = "waiting"
    PROCESSED = "processed"
    INVALID = "invalid"
    ERROR = "error"
    DUPLICATE = "duplicate"


class Status(StrEnum):
    """
    Where a message stands, in the three words of the specification.

    >>> [str(each) for each in Status]
    ['RECEIVED', 'TO_SEND', 'SENT']
    """

    RECEIVED = "RECEIVED"
    TO_SEND = "TO_SEND"
    SENT = "SENT"


STATUSES = (Status.RECEIVED, Status.TO_SEND, Status.SENT)
"""In their order: the status of a message is the last that it had."""


class Names:
    """
    Other names, by which alone states know messages, sequences and objects.

    Whoever has the store, and guesses a name, can tell that it is among them.

    Args:
        secret: Of the hashes of which these names are made, in hexadecimal digits.

    >>> Names("00ff").of("ada")
    '742894398c8dc68a5d25530ba838e609'
    """

    def __init__(self, secret: str) -> None:
        self.secret = secret
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
        """Of an object that was erased, whether messages about it are refused; None of another one."""
        if about is None or not self.erased_objects:
            return None
        return self.erased_objects.get(self.names.of(about))

    def is_erased_sequence(self, row: Mapping[str, Any]) -> bool:
        """Whether a record is of a sequence that was erased."""
        if row["sequence_id"] is None or (row["sequence_total"] or 0) < 2:
            return False
        return bool(self.erased_sequences) and self.names.of(row["sequence_id"]) in self.erased_sequences


class Came(NamedTuple):
    """Where a record stands in the order in which all came: batch after batch, and as records say."""

    batch: int
    timestamp: int
    topic: str
    partition: int
    offset: int
    number: int

    @property
    def place(self) -> Place:
        """Of the record."""
        return self.batch, self.number


class _Row(msgspec.Struct, array_like=True, tag=True):
    """A row that is on its way from fold to fold; names are other names."""


class Message(_Row):
    """
    A message that is whole, or refused.

    Args:
        came: When it was there whole: by this the first of one identity counts.
        places: The records that brought it, in the order of their positions.
        first: When the first of these came.
        identity: What makes it the same message again.
        refused: Why a part is refused that contradicts others: a code and a sentence.
        kind: Its type, if it is a statement about an object, or a request to read it.
        published: When, in microseconds.
        about: The object.
        others: The objects of which it says that this one is a version.
    """

    came: Came
    places: list[Place]
    first: Came
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

    came: Came
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


class Statement(_Row):
    """
    What a message says of its object; or what it asks of another one, of which its object is a version.

    Args:
        message: The message.
        asked: The other object, where one is asked.
        is_right: The verdict; of one that is asked, whether it existed.
        answers: Whether the others existed.
    """

    message: Message
    asked: str | None = None
    is_right: bool | None = None
    answers: dict[str, bool] = {}

    @property
    def about(self) -> str | None:
        """The object of whose existence it is."""
        return self.asked or self.message.about

    def order(self) -> tuple[Any, ...]:
        """As they were published; at one instant as they came."""
        return self.message.published, *self.message.first[1:5], self.message.identity


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

    message: Message


class ErasedWhole(_Row):
    """Parts that turn out, now that all are there, to be about an object that was erased."""

    sequence_id: str
    places: list[Place]
    is_refused: bool


class Right(_Row):
    """A statement that ledgers are to have."""

    places: list[Place]


class Wrong(_Row):
    """One that they had, and that is about an unknown object after all."""

    places: list[Place]


Row = (
    Message
    | Part
    | OwnMessage
    | Statement
    | Answer
    | ForgetSequence
    | ForgetObject
    | Left
    | ErasedWhole
    | Right
    | Wrong
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
    message_id, total, code = row["message_id"], row["sequence_total"], row[ERROR_CODE]
    left = left_of(value, message_id, total, code, None, names=settings.names)
    return (*map(texts.get, SLICED_MESSAGE.names), *left)


ERASED_REASON = "The message spoke of what was erased."
_NOWHERE = Came(0, 0, "", 0, 0, 0)


def left_of(
    value: bytes | None,
    message_id: str | None,
    sequence_total: int | None,
    error_code: str | None,
    left: bytes | None,
    *,
    names: Names,
) -> tuple[bytes | None]:
    """What is left of a record that is erased: what folds have *left*, or else what it is known by."""
    if left is not None:
        return (left,)
    if error_code is not None:
        identity = names.of_bytes(value)
    elif sequence_total == 1 and message_id is not None:
        identity = names.of(message_id)
    else:
        return (None,)
    return (msgspec.msgpack.encode(Message(_NOWHERE, [], _NOWHERE, identity)),)


MAX_WHOLE_BYTES = 100_000_000
"""The most bytes of a message that is put together."""

READS = (
    *("batch", "number", "timestamp", "topic", "partition", "offset", "value", "body_from", "body_length"),
    *("message_id", "message_class", "message_type", "published_timestamp", "sequence_id"),
    *("sequence_position", "sequence_total", "generator", "tenant_jisc_id", "object_uuid", ERROR_CODE),
    "left",
)
"""The columns of a message that are looked at."""

_BEFORE_ALL = -(1 << 63)
_read_left = msgspec.msgpack.Decoder(Message).decode


def read_rows(batch: pa.RecordBatch, settings: ExchangeRules) -> Iterator[Message | Part]:
    """What each message says that the folds go by."""
    columns = [batch.column(name) for name in READS]
    numbers = [
        column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in columns
    ]
    rows = pa.RecordBatch.from_arrays(numbers, READS).to_pylist()
    return filter(None, (_read_row(row, settings.names) for row in rows))


def _read_row(row: Mapping[str, Any], names: Names) -> Message | Part | None:
    timestamp, partition, offset = (
        _BEFORE_ALL if row[name] is None else row[name] for name in ("timestamp", "partition", "offset")
    )
    came = Came(row["batch"], timestamp, row["topic"] or "", partition, offset, row["number"])
    if row[ERROR_CODE] == ERASED:
        return _left_message(row["left"], came)
    if row[ERROR_CODE] is not None:
        return Message(came, [came.place], came, names.of_bytes(row["value"]))
    if row["sequence_total"] > 1:
        return _part(row, came, names)
    statement = _statement(row, _body(row), row["published_timestamp"], names)
    return Message(came, [came.place], came, names.of(row["message_id"]), None, *statement)


def _left_message(left: bytes | None, came: Came) -> Message | None:
    """What is left of an erased message; what was never taken does not know yet where it stands."""
    message = None if left is None else _read_left(left)
    if message is None or message.places:
        return message
    return Message(came, [came.place], came, message.identity)


def _body(row: Mapping[str, Any]) -> str:
    start = row["body_from"] - 1
    text: bytes = row["value"][start : start + row["body_length"]]
    return text.decode()


def _part(row: Mapping[str, Any], came: Came, names: Names) -> Part:
    said = ("sequence_total", "message_type", "message_class", "tenant_jisc_id", "generator")
    body, position, sequence = _body(row), row["sequence_position"], row["sequence_id"]
    return Part(
        came=came,
        message=names.of(row["message_id"]),
        bytes_name=names.of_bytes(row["value"]),
        sequence=names.of(sequence),
        sequence_id=sequence,
        position=position,
        terms=join_terms(*(row[name] for name in said)),
        since=row["timestamp"],
        digest=content_digest(msgspec.json.decode(body, type=str)),
        value=row["value"] if position == 1 else None,
        body=body,
    )


def _statement(
    row: Mapping[str, Any], body: str, published: int, names: Names
) -> tuple[str | None, int, str | None, list[str]]:
    """What a sound message says of an object: its kind, when, of which, and of which others."""
    kind, about = row["message_type"], row["object_uuid"]
    if about is None or row["message_class"] == "Document" or kind not in (CREATE, *FAULTS):
        return None, published, None, []
    own, *others = map(names.of, named_objects(kind, about, body))
    return kind, published, own, others


# Folds -----------------------------------------------------------------------------------------------------


class _Identities(KeptFold):
    """What is known by one name as a message: a `Status`."""

    name = "identities"

    def __init__(self, state: bytes | None, settings: ExchangeRules) -> None:
        self.status = None if state is None else Status(state.decode())

    @staticmethod
    def order(row: Any) -> Any:
        return row.came

    def state(self) -> bytes | None:
        return None if self.status is None else self.status.encode()


class OwnParts(_Identities):
    """Parts of messages of our own, which come back: no sequence is made of them."""

    takes = (Part,)

    @staticmethod
    def spread(row: Part) -> Iterable[tuple[str, Any]]:
        return [(row.message, row)]

    def take(self, row: Part) -> Iterable[Any]:
        is_own = self.status not in (None, Status.RECEIVED)
        return [RecordOutcome(row.came.place, Outcome.DUPLICATE)] if is_own else [row]


class Sequence(KeptFold):
    """The parts of one message: what came first stands, so a wrong part spoils no other."""

    name = "sequences"
    takes = (Part, ForgetSequence)

    def __init__(self, state: bytes | None, settings: ExchangeRules) -> None:
        self._settings, self._parts, self._is_erased = settings, dict[int, Part](), False
        self._whole = None if state is None else _read_whole(state)
        known = None if self._whole is None else (self._whole.terms, self._whole.pieces)
        self._judge = SequenceParts(known)

    @staticmethod
    def spread(row: Part | ForgetSequence) -> Iterable[tuple[str, Any]]:
        return [(row.sequence, row)]

    @staticmethod
    def order(row: Part | ForgetSequence) -> Any:
        return (0,) if isinstance(row, ForgetSequence) else (1, *row.came)

    def take(self, row: Part | ForgetSequence) -> Iterator[Any]:
        if isinstance(row, ForgetSequence):
            if self._whole is not None and self._whole.claim is not None:
                yield Left(self._whole.claim)
            self._whole, self._is_erased = None, True
        elif not self._is_erased:
            yield from self._judged(row)

    def _judged(self, row: Part) -> Iterator[Any]:
        outcome = self._judge.judge(row.terms, row.position, row.digest)
        if outcome is PartOutcome.CONTRADICTING:
            fault = RdssFault.INVALID_HEADER
            refused = fault.value, fault.describe(f"{CONTRADICTION} {row.sequence_id}.")
            yield Message(row.came, [row.came.place], row.came, row.bytes_name, refused)
        elif outcome is PartOutcome.DUPLICATE:
            yield RecordOutcome(row.came.place, Outcome.DUPLICATE)
        else:
            self._parts[row.position] = row
            if self._judge.lacking() is None:
                yield from self._assemble(row.came)

    def _assemble(self, came: Came) -> Iterator[Any]:
        """The message, now that its parts are all there."""
        parts = [part for _, part in sorted(self._parts.items())]
        places, first = [part.came.place for part in parts], parts[0].came
        assembly = WholeMessage(None, replace(self._settings.rules, max_bytes=MAX_WHOLE_BYTES))
        for part in parts:
            assembly.take(part.value, part.body)
        [(_, *values)] = assembly.settle()
        row = dict(zip(MESSAGE.names, values, strict=True))
        about, claim = row["object_uuid"], None
        refuses = self._settings.refuses(about)
        if refuses is not None:
            yield ErasedWhole(parts[0].sequence_id, places, refuses and is_change(row))
            self._parts, self._is_erased = {}, True
            return
        if row[ERROR_CODE] is not None:
            code, text = row[ERROR_CODE], row[ERROR_DESCRIPTION]
            yield from (refuse(place, code, text, about=about) for place in places)
        else:
            published = (row["published_timestamp"] - _EPOCH) // _MICROSECOND
            identity = self._settings.names.of(row["message_id"])
            statement = _statement(row, row["body"], published, self._settings.names)
            message = Message(came, places, first, identity, None, *statement)
            claim = Message(came, [came.place], first, identity)
            yield from (RecordOutcome(place, Outcome.PROCESSED, about=about) for place in places)
            yield message
        terms, pieces = self._judge.state()
        self._whole = WholeSequence(terms, pieces, claim)

    def settle(self) -> Iterable[Any]:
        if self._whole is not None or not self._parts:
            return []
        since = min((part.since for part in self._parts.values() if part.since is not None), default=None)
        lacking = self._judge.lacking()
        return [
            RecordOutcome(part.came.place, Outcome.WAITING, since=since, waits_for=lacking)
            for part in self._parts.values()
        ]

    def state(self) -> bytes | None:
        return None if self._whole is None else msgspec.msgpack.encode(self._whole)

    def waiting(self) -> Iterable[Place]:
        return [] if self._whole is not None else sorted(part.came.place for part in self._parts.values())


class Identity(_Identities):
    """What came as the same message: the first that did counts."""

    takes = (Message, OwnMessage)

    @staticmethod
    def spread(row: Message | OwnMessage) -> Iterable[tuple[str, Any]]:
        return [(row.identity, row)]

    @staticmethod
    def order(row: Message | OwnMessage) -> Any:
        return (0, row.status) if isinstance(row, OwnMessage) else (1, *row.came)

    def take(self, row: Message | OwnMessage) -> Iterator[Any]:
        status = Status(row.status) if isinstance(row, OwnMessage) else Status.RECEIVED
        if isinstance(row, Message):
            if self.status is not None:
                yield from (RecordOutcome(place, Outcome.DUPLICATE) for place in row.places)
            elif row.refused is not None:
                yield refuse(row.came.place, *row.refused)
            elif row.kind is not None:
                yield Statement(row)
        self.status = max((status, self.status or status), key=STATUSES.index)


class Existence(KeptFold):
    """What is said of one object, in the order in which it was published, whenever it came."""

    name = "objects"
    takes = (Statement, Answer, ForgetObject)

    def __init__(self, state: bytes | None, settings: ExchangeRules) -> None:
        self._keeps_deleted, self._is_forgotten = settings.keeps_deleted, False
        self._statements = [] if state is None else _read_statements(state)

    @staticmethod
    def spread(row: Statement | Answer | ForgetObject) -> Iterator[tuple[str, Any]]:
        if row.about is not None:
            yield row.about, row
        if isinstance(row, Statement):
            yield from ((other, Statement(row.message, other)) for other in row.message.others)

    @staticmethod
    def order(row: Statement | Answer | ForgetObject) -> int:
        return isinstance(row, ForgetObject)

    def take(self, row: Statement | Answer | ForgetObject) -> Iterable[Any]:
        if isinstance(row, Statement):
            insort(self._statements, row, key=Statement.order)
        elif isinstance(row, Answer):
            for statement in self._statements:
                if statement.asked is None and statement.message.identity == row.identity:
                    statement.answers[row.asked] = row.existed
        else:
            self._is_forgotten = True
        return ()

    def settle(self) -> Iterator[Any]:
        """The verdicts that are not what they were; a message that asks is answered again then."""
        exists = False
        for statement in self._statements:
            message, before = statement.message, statement.is_right
            assert message.kind is not None
            if statement.asked is not None:
                statement.is_right = exists
                if exists is not (before or False):
                    assert message.about is not None
                    yield Again(Answer(message.about, message.identity, statement.asked, exists))
                continue
            right = is_right(message.kind, (exists, *statement.answers.values()))
            if right:
                exists = exists_after(message.kind, exists, keeps_deleted=self._keeps_deleted)
            statement.is_right = right
            if right is not before:
                yield from _turned(message, before, right)
        if self._is_forgotten:
            self._statements = list(self._remaining())
            yield from (Left(each.message) for each in self._statements if each.asked is None)

    def _remaining(self) -> Iterator[Statement]:
        """
        By what the object came to be or went, as if it stayed as it is now.

        A version of an object that existed is as good as a create; what is refused changes nothing.
        """
        for statement in self._statements:
            message = statement.message
            kind = CREATE if message.kind == UPDATE and message.others else message.kind
            if statement.asked is not None:
                yield statement
            elif statement.is_right and kind in (CREATE, REMOVE):
                left = msgspec.structs.replace(message, kind=kind, others=[], places=[message.came.place])
                yield Statement(left, is_right=True)

    def state(self) -> bytes | None:
        return msgspec.msgpack.encode(self._statements) if self._statements else None


def _turned(message: Message, before: bool | None, right: bool) -> Iterator[Any]:
    """What follows where a message is right now and was not, or the other way round."""
    assert message.kind is not None
    if not right:
        fault = FAULTS[message.kind]
        # The record says which object it is.
        yield from (RecordOutcome(place, fault.queue.value, fault.value) for place in message.places)
    elif before is not None:
        yield from (RecordOutcome(place, Outcome.PROCESSED) for place in message.places)
    if message.kind != READ and (right or before):
        yield Right(message.places) if right else Wrong(message.places)


def refuse(place: Place, code: str, sentence: str, about: str | None = None) -> RecordOutcome:
    """The outcome of a record that cannot be used."""
    return RecordOutcome(place, CODES[code].queue.value, code, sentence, about=about)


def is_change(row: Mapping[str, Any]) -> bool:
    """Whether a sound message says something of an object that ledgers have."""
    return row["message_class"] == "Command" and row["message_type"] in (CREATE, UPDATE, REMOVE)


_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
_read_statements = msgspec.msgpack.Decoder(list[Statement]).decode


class WholeSequence(msgspec.Struct, array_like=True):
    """A sequence that is all there: what its parts were, and what the message claims that they made."""

    terms: str
    pieces: list[dict[str, Any]]
    claim: Message | None


_read_whole = msgspec.msgpack.Decoder(WholeSequence).decode

FOLDS = (OwnParts, Sequence, Identity, Existence)
"""In their order."""
