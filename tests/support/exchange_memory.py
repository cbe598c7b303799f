"""An exchange in memory, without a JVM: its rules on states and outcomes that are dictionaries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pyarrow as pa

from cdckit.parts.kept_folds import Again, Place, RecordOutcome, ScopeState, spread_rows, take_scopes
from cdckit.rdss.exchange_rows import (
    ERASED,
    READS,
    RECORD,
    ArrivedMessage,
    ErasedWhole,
    ExchangeRules,
    ForgetObject,
    ForgetSequence,
    LedgerVerdict,
    Left,
    Names,
    OwnMessage,
    Row,
    left_of,
    read_record,
    read_rows,
)
from cdckit.rdss.exchange_rules import FOLDS
from cdckit.rdss.outcomes import Status
from cdckit.rdss.reading import RULES, Rules

NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)
_COLUMNS = pa.schema(
    [
        *[("batch", pa.int64()), ("number", pa.int64()), ("timestamp", pa.timestamp("us", "UTC"))],
        *[("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("value", pa.binary())],
        *[(field.name, field.type) for field in RECORD],
    ]
)


class ExchangeInMemory:
    """What an exchange does with messages, but for files, ledgers and Spark."""

    def __init__(self, own: Iterable[str] = (), rules: Rules = RULES, **options: Any) -> None:
        self.settings = ExchangeRules(Names("00ff"), rules, **options)
        self.states: dict[tuple[str, str], ScopeState] = {}
        self.outcomes: dict[Place, RecordOutcome] = {}
        self.records: dict[Place, dict[str, Any]] = {}
        self.applied: set[Place] = set()
        self.own = [OwnMessage(self.settings.names.of(name), Status.TO_SEND) for name in own]
        self.fold(self.own)

    def receive(self, batch: int, sent: Sequence[tuple[bytes | None, int]]) -> None:
        """Take values, each with its offset, which says also in which second it was delivered."""
        for number, (value, offset) in enumerate(sent):
            at = NOON + timedelta(seconds=offset)
            row = dict(zip(RECORD.names, read_record(value, at, settings=self.settings), strict=True))
            place = {"batch": batch, "number": number, "timestamp": at, "topic": "t", "partition": 0}
            self.records[batch, number] = {**place, "offset": offset, "value": value, **row}
            if row["error_code"] == ERASED:
                self.records[batch, number]["value"] = None
        self.fold(self.read([place for place in self.records if place[0] == batch]))

    def read(self, places: Iterable[Place]) -> list[Any]:
        rows = [self.records[place] for place in places]
        batch = pa.RecordBatch.from_pylist(rows, _COLUMNS).select(READS)
        return list(read_rows(batch, self.settings))

    def fold(self, rows: Iterable[Any]) -> list[Any]:
        """Take rows fold by fold; what the last hands on."""
        waiting = list(rows)
        for fold in FOLDS:
            passing = [row for row in waiting if not isinstance(row, fold.takes)]
            taken = [row for row in waiting if isinstance(row, fold.takes)]
            while taken:
                scopes = spread_rows(fold, [_sent(row) for row in taken])
                known = {
                    scope: self.states[fold.name, scope]
                    for scope in scopes
                    if (fold.name, scope) in self.states
                }
                changed, results = take_scopes(fold, self.settings, scopes, known, self.read)
                self.states |= {(fold.name, state.scope): state for state in changed}
                for said in results:
                    if isinstance(said, RecordOutcome):
                        self.outcomes[said.place] = said.after(self.outcomes.get(said.place))
                passing += [each for each in results if not isinstance(each, RecordOutcome | Again)]
                taken = [each.row for each in results if isinstance(each, Again)]
            waiting = passing
        for row in waiting:
            if isinstance(row, ErasedWhole):
                self.blank({row.sequence_id}, set(), {})
            elif isinstance(row, LedgerVerdict) and row.is_accepted:
                self.applied |= set(row.places)
            elif isinstance(row, LedgerVerdict):
                self.applied -= set(row.places)
        return waiting

    def erase(self, things: set[str]) -> None:
        """Forget objects, and the sequences of messages about them."""
        about = {said.place for said in self.outcomes.values() if said.about in things}
        sequences = {self.records[place]["sequence_id"] for place in about}
        names = self.settings.names
        rows: list[ForgetObject | ForgetSequence] = [
            ForgetObject(names.of(thing)) for thing in sorted(things)
        ]
        rows += [ForgetSequence(names.of(sequence)) for sequence in sorted(sequences)]
        left = {row.message.arrival.place: row.message for row in self.fold(rows) if isinstance(row, Left)}
        self.settings = replace(self.settings, erased_objects=dict.fromkeys(map(names.of, things), True))
        self.blank(sequences, things, left)

    def blank(self, sequences: set[str], things: set[str], left: dict[Place, ArrivedMessage]) -> None:
        names = self.settings.names
        erased = self.settings.erased_sequences | {names.of(sequence) for sequence in sequences}
        self.settings = replace(self.settings, erased_sequences=erased)
        for place, row in self.records.items():
            of_several = (row["sequence_total"] or 0) > 1 and row["sequence_id"] in sequences
            if row["error_code"] != ERASED and (of_several or row["object_uuid"] in things):
                remains = msgspec.msgpack.encode(left[place]) if place in left else None
                said = (row[name] for name in ("value", "message_id", "sequence_total", "error_code"))
                [rest] = left_of(*said, remains, names=names)
                self.records[place] |= dict.fromkeys([*RECORD.names, "value"])
                self.records[place] |= {"error_code": ERASED, "left": rest}
                self.outcomes.pop(place, None)

    def in_order(self) -> list[dict[str, Any]]:
        """The records in the order in which they came."""
        return sorted(self.records.values(), key=lambda row: row["offset"])

    def became(self) -> list[tuple[str, str | None]]:
        """The outcome and the code of every message, in the order in which they came."""
        found = list[tuple[str, str | None]]()
        for row in self.in_order():
            said = self.outcomes.get((row["batch"], row["number"]))
            if row["error_code"] == ERASED:
                found.append(("erased", None))
            elif said is not None:
                found.append((str(said.outcome), said.code))
            else:
                found.append((row["queue"] or "processed", row["error_code"]))
        return found

    def rebuild(self) -> None:
        """Fold everything anew."""
        self.states, self.outcomes, self.applied = {}, {}, set()
        self.fold(self.own)
        self.fold(self.read(sorted(self.records)))


def _sent(row: Any) -> Any:
    """A row as the next worker has it."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(row), type=Row)
