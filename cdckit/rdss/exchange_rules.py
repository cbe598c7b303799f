"""RDSS, "Receiving", "Multi-Message Sequence", "Metadata Error Codes": what becomes of messages."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from cdckit.model.faults import ERROR_CODE, ERROR_DESCRIPTION
from cdckit.parts.kept_folds import Again, KeptFold, Place, RecordOutcome
from cdckit.rdss.exchange_rows import (
    Answer,
    Arrival,
    ArrivedMessage,
    ErasedWhole,
    ExchangeRules,
    ForgetObject,
    ForgetSequence,
    LedgerVerdict,
    Left,
    OwnMessage,
    Part,
    Question,
    Statement,
    is_change,
    statement_of,
)
from cdckit.rdss.findings import CODES
from cdckit.rdss.message_rows import MESSAGE
from cdckit.rdss.message_types import CREATE, FAULTS, READ, REMOVE, UPDATE, exists_after, is_accepted
from cdckit.rdss.outcomes import STATUSES, Outcome, Status
from cdckit.rdss.sequence_rules import PartOutcome, SequenceParts, WholeMessage, contradiction


class _Identities(KeptFold):
    """What is known by one name as a message: a `Status`."""

    name = "identities"

    def __init__(self, state: bytes | None, settings: ExchangeRules) -> None:
        self.status = None if state is None else Status(state.decode())

    @staticmethod
    def order(row: Any) -> Any:
        return row.arrival

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
        return [RecordOutcome(row.arrival.place, Outcome.DUPLICATE)] if is_own else [row]


class Sequence(KeptFold):
    """The parts of one message: what came first stands, so a wrong part spoils no other."""

    name = "sequences"
    takes = (Part, ForgetSequence)

    def __init__(self, state: bytes | None, settings: ExchangeRules) -> None:
        self._settings, self._parts, self._is_erased = settings, dict[int, Part](), False
        self._whole = None if state is None else _read_whole(state)
        whole = self._whole
        self._judge = SequenceParts() if whole is None else SequenceParts(whole.terms, whole.contents)

    @staticmethod
    def spread(row: Part | ForgetSequence) -> Iterable[tuple[str, Any]]:
        return [(row.sequence, row)]

    @staticmethod
    def order(row: Part | ForgetSequence) -> Any:
        return (0,) if isinstance(row, ForgetSequence) else (1, *row.arrival)

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
            finding = contradiction(row.sequence_id)
            refused = finding.code.value, finding.description
            yield ArrivedMessage(row.arrival, [row.arrival.place], row.arrival, row.bytes_name, refused)
        elif outcome is PartOutcome.DUPLICATE:
            yield RecordOutcome(row.arrival.place, Outcome.DUPLICATE)
        else:
            self._parts[row.position] = row
            if self._judge.is_complete:
                yield from self._assemble(row.arrival)

    def _assemble(self, arrival: Arrival) -> Iterator[Any]:
        """The message, now that its parts are all there."""
        parts = [part for _, part in sorted(self._parts.items())]
        places, first = [part.arrival.place for part in parts], parts[0].arrival
        assembly = WholeMessage(self._settings.rules)
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
            statement = statement_of(row, row["body"], published, self._settings.names)
            message = ArrivedMessage(arrival, places, first, identity, None, *statement)
            claim = ArrivedMessage(arrival, [arrival.place], first, identity)
            yield from (RecordOutcome(place, Outcome.PROCESSED, about=about) for place in places)
            yield message
        self._whole = WholeSequence(self._judge.terms, self._judge.contents, claim)

    def settle(self) -> Iterable[Any]:
        if self._whole is not None or not self._parts:
            return []
        since = min((part.since for part in self._parts.values() if part.since is not None), default=None)
        lacking = self._judge.lacking()
        return [
            RecordOutcome(part.arrival.place, Outcome.WAITING, since=since, waits_for=lacking)
            for part in self._parts.values()
        ]

    def state(self) -> bytes | None:
        return None if self._whole is None else msgspec.msgpack.encode(self._whole)

    def waiting(self) -> Iterable[Place]:
        return [] if self._whole is not None else sorted(part.arrival.place for part in self._parts.values())


class Identity(_Identities):
    """What came as the same message: the first that did counts."""

    takes = (ArrivedMessage, OwnMessage)

    @staticmethod
    def spread(row: ArrivedMessage | OwnMessage) -> Iterable[tuple[str, Any]]:
        return [(row.identity, row)]

    @staticmethod
    def order(row: ArrivedMessage | OwnMessage) -> Any:
        return (0, row.status) if isinstance(row, OwnMessage) else (1, *row.arrival)

    def take(self, row: ArrivedMessage | OwnMessage) -> Iterator[Any]:
        status = Status(row.status) if isinstance(row, OwnMessage) else Status.RECEIVED
        if isinstance(row, ArrivedMessage):
            if self.status is not None:
                yield from (RecordOutcome(place, Outcome.DUPLICATE) for place in row.places)
            elif row.refused is not None:
                yield refuse(row.arrival.place, *row.refused)
            elif row.kind is not None:
                yield Statement(row)
        self.status = max((status, self.status or status), key=STATUSES.index)


class Existence(KeptFold):
    """What is said of one object, in the order in which it was published, whenever it came."""

    name = "objects"
    takes = (Statement, Answer, ForgetObject)

    def __init__(self, state: bytes | None, settings: ExchangeRules) -> None:
        self._keeps_deleted, self._is_forgotten = settings.keeps_deleted, False
        self._published = [] if state is None else _read_published(state)

    @staticmethod
    def spread(row: Statement | Answer | ForgetObject) -> Iterator[tuple[str, Any]]:
        if not isinstance(row, Statement):
            yield row.about, row
            return
        if row.message.about is not None:
            yield row.message.about, row
        yield from ((other, Question(row.message, other)) for other in row.message.others)

    @staticmethod
    def order(row: Statement | Question | Answer | ForgetObject) -> int:
        return isinstance(row, ForgetObject)

    def take(self, row: Statement | Question | Answer | ForgetObject) -> Iterable[Any]:
        if isinstance(row, Statement | Question):
            insort(self._published, row, key=lambda published: published.order())
        elif isinstance(row, Answer):
            for statement in self._published:
                if isinstance(statement, Statement) and statement.message.identity == row.identity:
                    statement.answers[row.asked] = row.existed
        else:
            self._is_forgotten = True
        return ()

    def settle(self) -> Iterator[Any]:
        """The verdicts that are not what they were; a message that asks is answered again then."""
        exists = False
        for row in self._published:
            kind, about = row.message.kind, row.message.about
            assert kind is not None
            assert about is not None
            if isinstance(row, Question):
                if row.existed is not exists:
                    row.existed = exists
                    yield Again(Answer(about, row.message.identity, row.asked, exists))
                continue
            before, accepted = row.is_accepted, is_accepted(kind, (exists, *row.answers.values()))
            if accepted:
                exists = exists_after(kind, exists, keeps_deleted=self._keeps_deleted)
            if accepted is not before:
                row.is_accepted = accepted
                yield from _turned(row.message, before, accepted)
        if self._is_forgotten:
            self._published = list(self._remaining())
            yield from (Left(row.message) for row in self._published if isinstance(row, Statement))

    def _remaining(self) -> Iterator[Statement | Question]:
        """
        Find by what the object came to be or went, as if it stayed as it is now.

        A version of an object that existed is as good as a create; what is refused changes nothing.
        """
        for row in self._published:
            message = row.message
            kind = CREATE if message.kind == UPDATE and message.others else message.kind
            if isinstance(row, Question):
                yield row
            elif row.is_accepted and kind in (CREATE, REMOVE):
                left = msgspec.structs.replace(message, kind=kind, others=[], places=[message.arrival.place])
                yield Statement(left, is_accepted=True)

    def state(self) -> bytes | None:
        return msgspec.msgpack.encode(self._published) if self._published else None


def _turned(message: ArrivedMessage, before: bool | None, accepted: bool) -> Iterator[Any]:
    """Tell what follows where a message is accepted now and was not, or the other way round."""
    assert message.kind is not None
    if not accepted:
        fault = FAULTS[message.kind]
        # The record says which object it is.
        yield from (RecordOutcome(place, fault.queue.value, fault.value) for place in message.places)
    elif before is not None:
        yield from (RecordOutcome(place, Outcome.PROCESSED) for place in message.places)
    if message.kind != READ and (accepted or before):
        yield LedgerVerdict(message.places, accepted)


def refuse(place: Place, code: str, sentence: str, about: str | None = None) -> RecordOutcome:
    """The outcome of a record that cannot be used."""
    return RecordOutcome(place, CODES[code].queue.value, code, sentence, about=about)


_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
_read_published = msgspec.msgpack.Decoder(list[Statement | Question]).decode


class WholeSequence(msgspec.Struct, array_like=True):
    """A sequence that is all there: what its parts were, and what the message claims that they made."""

    terms: str | None
    contents: dict[int, str]
    claim: ArrivedMessage | None


_read_whole = msgspec.msgpack.Decoder(WholeSequence).decode

FOLDS = (OwnParts, Sequence, Identity, Existence)
"""The folds of an exchange, in their order."""
