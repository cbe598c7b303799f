"""RDSS, "Multi-Message Sequence", by tables: what becomes of each part, in the order in which they came."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from cdckit.parts.fold import IS_STATE, fold_batches
from cdckit.rdss.message_rows import MESSAGE
from cdckit.rdss.reading import Rules
from cdckit.rdss.sequence_rules import PARTS, TENANT_VALUE, SequenceParts, WholeMessage, assembly_plan
from support.folded_tables import fold_table
from support.rdss_messages import MESSAGES, as_bytes

NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)
SEQUENCE = "00000001-0000-4000-8000-00000000abcd"
A, B, C = "a", "b", "c"


@dataclass(frozen=True)
class Part:
    """A part: its place, its content, and what it says of the sequence."""

    position: int
    content: str
    total: int = 3
    generator: str = "g"
    kind: str = "MetadataDelete"
    tenant: int = 1
    sequence: str = SEQUENCE


@dataclass(frozen=True)
class Case:
    """What comes, and what becomes of it."""

    name: str
    parts: list[Part]
    outcomes: list[str]
    waits_for: str | None = None


WAITING, COMPLETE, DUPLICATE, CONTRADICTING = "waiting", "complete", "duplicate", "contradicting"

CASES = [
    Case("all parts, the last first", [Part(3, C), Part(1, A), Part(2, B)], [COMPLETE] * 3),
    Case("one part", [Part(2, B)], [WAITING], "2 of 3 parts, the first of them part 1"),
    Case("a gap", [Part(1, A), Part(3, C)], [WAITING] * 2, "1 of 3 parts, the first of them part 2"),
    Case(
        "a part twice",
        [Part(1, A), Part(1, A)],
        [WAITING, DUPLICATE],
        "2 of 3 parts, the first of them part 2",
    ),
    Case(
        "another content: what came first stands",
        [Part(1, A), Part(1, "x"), Part(2, B), Part(3, C), Part(1, A)],
        [COMPLETE, CONTRADICTING, COMPLETE, COMPLETE, DUPLICATE],
    ),
    Case(
        "other terms than those of the first part",
        [
            *(Part(1, A), Part(2, B, total=2), Part(2, B, generator="h"), Part(2, B, kind="MetadataRead")),
            *(Part(2, B, tenant=2), Part(2, B, tenant=1 << 63), Part(2, B), Part(3, C)),
        ],
        [COMPLETE, *[CONTRADICTING] * 5, COMPLETE, COMPLETE],
    ),
    Case(
        "tenants for which the column has no room",
        [Part(1, A, tenant=1 << 63), Part(2, B, tenant=1 + (1 << 63)), Part(3, C, tenant=1 << 63)],
        [WAITING, CONTRADICTING, WAITING],
        "1 of 3 parts, the first of them part 2",
    ),
    Case(
        "a wrong part does not hold its place",
        [Part(2, B, generator="h"), Part(1, A), Part(2, B, generator="h")],
        [WAITING, CONTRADICTING, DUPLICATE],
        "2 of 3 parts, the first of them part 1",
    ),
    Case("an empty piece", [Part(1, ""), Part(2, B), Part(3, C)], [COMPLETE] * 3),
]


def to_rows(parts: list[Part]) -> pa.Table:
    columns = {
        "sequence_id": [part.sequence for part in parts],
        "sequence_position": [part.position for part in parts],
        "sequence_total": [part.total for part in parts],
        "message_type": [part.kind for part in parts],
        "message_class": ["Command"] * len(parts),
        "tenant_jisc_id": pa.array(
            [None if part.tenant >> 63 else part.tenant for part in parts], pa.int64()
        ),
        TENANT_VALUE: [
            as_bytes({"messageHeader": {"tenantJiscID": part.tenant}, "messageBody": ""})
            if part.tenant >> 63
            else None
            for part in parts
        ],
        "generator": [part.generator for part in parts],
        "body": [json.dumps(part.content) for part in parts],
        "timestamp": pa.array(
            [NOON + timedelta(seconds=number) for number in range(len(parts))], pa.timestamp("us", "UTC")
        ),
    }
    return pa.table(columns)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_becomes_of_parts(case: Case) -> None:
    rows = fold_table(to_rows(case.parts), PARTS, order=["timestamp"]).to_pylist()
    assert [row["part"] for row in rows] == case.outcomes
    assert {row["waiting_for"] for row in rows if row["part"] == WAITING} == {case.waits_for} - {None}
    assert {row["waiting_since"] for row in rows if row["part"] == WAITING} <= {NOON}
    for row in rows:
        is_wrong = row["part"] == CONTRADICTING
        assert (row["queue"], row["error_code"]) == (("invalid", "GENERR004") if is_wrong else (None, None))


def test_sequences_do_not_look_at_each_other() -> None:
    other = SEQUENCE.replace("1", "2", 1)
    rows = fold_table(to_rows([Part(1, A), Part(1, "x", sequence=other)]), PARTS, order=["timestamp"])
    assert rows["part"].to_pylist() == [WAITING] * 2


def test_what_is_known_of_a_sequence_is_enough_to_go_on() -> None:
    """Each part is judged by the terms and the contents that those before it have left."""
    sequence, outcomes = SequenceParts(), []
    for terms, place, text in (("t", 1, A), ("t", 1, A), ("t", 1, B), ("t", 2, B), ("u", 3, C), ("t", 2, B)):
        sequence = SequenceParts(sequence.terms, sequence.contents)
        outcomes.append(sequence.judge(terms, place, text))
    assert outcomes == [None, DUPLICATE, CONTRADICTING, None, CONTRADICTING, DUPLICATE]


def assembled(body: str, sizes: int, max_whole_bytes: int = 10_000) -> dict[str, object]:
    """The message that is put together of pieces of this text, read in batches of two parts."""
    step = len(body) // sizes + 1
    texts = (body[start : start + step] for start in range(0, len(body), step))
    pieces = [json.dumps(text, ensure_ascii=False) for text in texts]
    header = {
        **MESSAGES["delete"]["messageHeader"],
        "messageSequence": {"sequence": SEQUENCE, "position": 1, "total": len(pieces)},
    }
    first = as_bytes({"messageHeader": header, "messageBody": json.loads(pieces[0])})
    rows = pa.table(
        {
            "sequence_id": [SEQUENCE] * len(pieces),
            "first_value": [first, *[None] * (len(pieces) - 1)],
            "body": pieces,
            IS_STATE: [False] * len(pieces),
        }
    )
    plan = assembly_plan(Rules(max_whole_bytes=max_whole_bytes))
    batches = fold_batches(rows.to_batches(max_chunksize=2), plan)
    [whole] = [row for row in pa.Table.from_batches(batches).to_pylist() if row["value"] is not None]
    return whole


BODY = json.dumps(MESSAGES["delete"]["messageBody"])


@pytest.mark.parametrize("sizes", [2, 3, 7])
def test_pieces_of_a_body_are_the_body(sizes: int) -> None:
    whole = assembled(BODY, sizes)
    assert (whole["body"], whole["error_code"], whole["sequence_total"]) == (BODY, None, 1)
    assert json.loads(whole["value"])["messageBody"] == MESSAGES["delete"]["messageBody"]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("body", "max_whole_bytes", "code"),
    [
        pytest.param('{"objectUUID": "é\\"}', 10_000, "GENERR007", id="no JSON"),
        pytest.param('{"objectUUID": "é"}', 10_000, "GENERR010", id="no UUID"),
        pytest.param(BODY, len(BODY) - 10, "GENERR006", id="too large"),
        pytest.param(BODY, 20, "GENERR006", id="far too large"),
    ],
)
def test_a_body_is_judged_when_it_is_whole(body: str, max_whole_bytes: int, code: str) -> None:
    whole = assembled(body, 3, max_whole_bytes)
    assert (whole["error_code"], whole["message_id"]) == (
        code,
        MESSAGES["delete"]["messageHeader"]["messageId"],
    )


def test_of_a_message_that_is_far_too_large_nothing_is_held() -> None:
    whole = WholeMessage(Rules(max_whole_bytes=20))
    first = as_bytes({**MESSAGES["delete"], "messageBody": "é" * 15})
    whole.take(first, json.dumps("é" * 15, ensure_ascii=False))
    assert len(whole._pieces) == 1
    for _ in range(3):
        whole.take(None, json.dumps("x" * 38))
        assert whole._pieces == []
    [(value, *message)] = whole.settle()
    described = dict(zip(MESSAGE.names, message, strict=True))
    assert (value, described["body"], described["error_code"]) == (first, None, "GENERR006")
    assert "its parts have 152 bytes, and a message may have 20" in described["error_description"]
