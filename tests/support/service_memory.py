"""A service on states that are dictionaries: what it does with messages, but for files, ledgers and Spark."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pyarrow as pa

from cdckit.model.records import RECORD_SCHEMA
from cdckit.parts.arrow_types import arrow_schema
from cdckit.parts.kept_folds import Place, RecordOutcome, ScopeState, spread_rows, take_scopes
from cdckit.streams.service_rules import (
    FOLDS,
    Answer,
    CompleteResponse,
    LearnedType,
    Row,
    ServiceRules,
    read_patches,
    record_fault,
)
from support.stream_programs import Record

_MORE = [("stream", pa.string()), ("batch", pa.int64()), ("number", pa.int64()), ("error_code", pa.string())]
_COLUMNS = pa.schema([*arrow_schema(RECORD_SCHEMA), *_MORE])
_decode = msgspec.msgpack.Decoder(Row).decode


class ServiceInMemory:
    """What a service does with messages, but for files, ledgers and Spark."""

    def __init__(self) -> None:
        self.states: dict[tuple[str, str], ScopeState] = {}
        self.outcomes: dict[Place, RecordOutcome] = {}
        self.rows: list[Any] = []
        self.batches = 0
        self.records: list[Any] = []

    def receive(self, log: Iterable[Record]) -> None:
        self.batches += 1
        rows = list[Any]()
        for number, record in enumerate(log):
            row = dict(zip(RECORD_SCHEMA.names, record, strict=True))
            code, _ = record_fault(row["topic"], row["value"], row["key"])
            place = {"batch": self.batches, "number": number}
            rows.append({**row, **place, "stream": row["topic"], "error_code": code})
        self.records += rows
        self._fold(rows)

    def rebuild(self) -> None:
        """Make everything anew from the records of all batches."""
        self.states, self.outcomes, self.rows = {}, {}, []
        self._fold(self.records)

    def _fold(self, rows: list[Any]) -> None:
        rules = ServiceRules(None, 1_000_000, 100, self.batches)
        self.fold(list(read_patches(pa.RecordBatch.from_pylist(rows, _COLUMNS), rules)), rules)

    def fold(self, rows: list[Any], rules: ServiceRules) -> None:
        """Take rows fold by fold, each as workers would hand it on."""
        for fold in FOLDS:
            sent = [_decode(msgspec.msgpack.encode(row)) for row in rows if isinstance(row, fold.takes)]
            scopes = spread_rows(fold, sent)
            states = {scope: state for (name, scope), state in self.states.items() if name == fold.name}
            changed, results = take_scopes(fold, rules, scopes, states, list)
            self.states |= {(fold.name, state.scope): state for state in changed}
            self.outcomes |= {
                outcome.place: outcome for outcome in results if isinstance(outcome, RecordOutcome)
            }
            passing = [row for row in rows if not isinstance(row, fold.takes)]
            rows = [*passing, *(row for row in results if not isinstance(row, RecordOutcome))]
        self.rows += rows

    def columns(self, kind: type) -> list[str]:
        """The rows of a kind, whatever batch made them."""
        named = [row.columns for row in self.rows if isinstance(row, kind)]
        numbers = ("batch", "number", "taken")
        return sorted(repr({name: row[name] for name in sorted(row) if name not in numbers}) for row in named)

    def became(self) -> dict[str, Any]:
        """All that it knows and has made."""
        waits = [
            (*said[1:6], row.columns["request"], row.columns["part"])
            for row in self.rows
            if isinstance(row, Answer)
            and (said := self.outcomes.get((row.columns["batch"], row.columns["number"])))
            and said.outcome in ("waiting", "contradicting")
        ]
        kinds = {kind.__name__: self.columns(kind) for kind in (Answer, CompleteResponse, LearnedType)}
        states = {key: state.state for key, state in self.states.items() if key[0] != "requests"}
        return {**kinds, "states": states, "waits": sorted(map(repr, waits))}
