"""The rules of a service on states that are dictionaries, without a JVM: any batches give what one gives."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from itertools import pairwise
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
    ForgetEntity,
    ForgetResponses,
    LearnedType,
    Row,
    ServiceRules,
    read_rows,
    read_state,
    record_fault,
)
from support.stream_programs import Record, drawn_log
from tools.tiers import seeds

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

    def receive(self, log: Iterable[Record]) -> None:
        self.batches += 1
        rows = []
        for number, record in enumerate(log):
            row = dict(zip(RECORD_SCHEMA.names, record, strict=True))
            code, _ = record_fault(row["topic"], row["value"], row["key"])
            place = {"batch": self.batches, "number": number}
            rows.append({**row, **place, "stream": row["topic"], "error_code": code})
        rules = ServiceRules(None, 1_000_000, 100, self.batches)
        self.fold(list(read_rows(pa.RecordBatch.from_pylist(rows, _COLUMNS), rules)), rules)

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


@seeds(1, 2, 3, soak=50)
def test_any_batches_give_what_one_gives(seed: int) -> None:
    chance, log = random.Random(seed), drawn_log(seed, 150)
    whole = ServiceInMemory()
    whole.receive(log)
    expected = whole.became()
    assert all(expected.values())
    # The requests of an entity come in their order; what is read of one type by several entities does, too.
    for batches in (4, len(log)):
        cuts = [0, *sorted(chance.sample(range(1, len(log)), batches - 1)), len(log)]
        service = ServiceInMemory()
        for start, stop in pairwise(cuts):
            service.receive(log[start:stop])
        assert service.became() == expected


def test_an_entity_is_forgotten_in_what_waits_too() -> None:
    """Its request waits as before, and is complete once the other part is there."""
    header = {"db": "d", "clientid": "c", "user": "u", "begun": 1, "request": 1, "parts": 2}
    ada = {"collection": "People", "zone": "z", "entity": "ada", "part": 1}
    ops = [{"op": "add", "path": "secret", "value": "secret of ada"}]
    record = (None, json.dumps({**header, **ada, "ops": ops}).encode(), "entity-patches", 0, 0, None, 0, None)
    service = ServiceInMemory()
    service.receive([record])
    assert [said.waits_for for said in service.outcomes.values()] == [
        "1 of 2 parts, the first of them part 2"
    ]
    key = ("d", "People", "z", "ada")
    service.fold([ForgetEntity(key), ForgetResponses(("c", 1), key)], ServiceRules(None, 1000, 100, 0))
    # Its scope is left by name alone, which files that are written anew do not have.
    kept = {scope: state for scope, state in service.states.items() if state.state is not None}
    assert "ada" not in repr(kept)
    bob = {**ada, "entity": "bob", "part": 2}
    service.receive([(None, json.dumps({**header, **bob, "ops": ops}).encode(), *record[2:])])
    [complete] = [row.columns for row in service.rows if isinstance(row, CompleteResponse)]
    hers, his = map(json.loads, complete["responses"])
    assert (hers["part"], hers["status"], hers.get("entity")) == (1, 3, None)
    assert (his["part"], his["status"], his["entity"]) == (2, 1, "bob")
    entities = [read_state(scope, state.state)[:4] for (_, scope), state in kept.items() if "[" in scope]
    assert ("d", "People", "z", "ada") not in entities


def test_what_is_learnt_counts_all_entities_and_parts_that_contradict_each_other_are_kept() -> None:
    def patch(entity: str, value: Any, **more: Any) -> Record:
        where = {"db": "d", "collection": "Mugs", "zone": "z", "entity": entity, "learning": True}
        header = {"clientid": "c", "user": "u", "begun": 1, "request": 1, "part": 1, "parts": 1, **more}
        text = json.dumps({**where, **header, "ops": [{"op": "add", "path": "cl", "value": value}]})
        return (None, text.encode(), "entity-patches", 0, 0, None, 0, None)

    service = ServiceInMemory()
    service.receive([patch("m1", 25)])
    service.receive([patch("m2", "large", request=2, parts=2)])
    learned = [row.columns for row in service.rows if isinstance(row, LearnedType)]
    types = [json.loads(row["entity_type"])["Mugs"]["fields"]["cl"]["type"] for row in learned]
    assert list(zip(types, (row["entities"] for row in learned), strict=True)) == [
        ("INTEGER", 1),
        ("STRING", 2),
    ]
    service.receive([patch("m3", 1, request=2, part=2, parts=3)])
    service.receive([patch("m4", 1, request=2, part=2, parts=2)])
    assert [said.code for said in service.outcomes.values()] == ["CONTRADICTING"] * 3
