"""Databus streams for tests: short texts for events, and the rules of windows step by step."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pyarrow as pa

from cdckit import databus
from cdckit.databus.window_batches import CONTENT, cut_batches, find_windows

COLUMNS = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("kind", pa.string()),
        ("scn", pa.int64()),
        ("physical_partition", pa.int32()),
        ("source_id", pa.int32()),
        ("event_timestamp", pa.timestamp("us", "UTC")),
        ("error_code", pa.string()),
        ("error_description", pa.string()),
        (CONTENT, pa.string()),
    ]
)


def events_of(text: str, *, physical: int | None = 1, topic: str = "t") -> list[dict[str, Any]]:
    """
    Events in short: `a5` is a data event of source a with SCN 5, `.5` an end of period, `<5` a rollback.

    `!` is an event in error that says its physical partition, `x5` one that says its SCN too, `?` one that
    says neither; `c5` a checkpoint, `e5` an error event.
    """
    found = []
    for offset, word in enumerate(text.split()):
        sign, scn = word[0], int(word[1:] or 0)
        kind = {".": "end", "<": "rollback", "c": "checkpoint", "e": "error"}.get(sign, "data")
        found.append(
            {
                "topic": topic,
                "partition": 0,
                "offset": offset,
                "kind": None if sign == "?" else kind,
                "scn": None if sign in "?!" else scn,
                "physical_partition": None if sign == "?" else physical,
                "source_id": ord(sign) if kind == "data" and sign != "x" else None,
                "event_timestamp": None if sign == "?" else scn * 1_000_000 + offset,
                "error_code": "WRONG" if sign in "?!x" else None,
                "error_description": "It is." if sign in "?!x" else None,
                CONTENT: word,
            }
        )
    return found


def batches_of(events: list[dict[str, Any]], sizes: Iterable[int]) -> Iterator[pa.RecordBatch]:
    """The events, sorted as the workers get them, in batches of these sizes and the rest."""
    in_order = sorted(events, key=lambda event: (event["topic"], event["partition"], event["offset"]))
    start = 0
    for size in [*sizes, len(events)]:
        if start < len(events):
            yield pa.RecordBatch.from_pylist(in_order[start : start + size], schema=COLUMNS)
        start += size


def cut_rows(events: list[dict[str, Any]], sizes: Iterable[int] = ()) -> list[dict[str, Any]]:
    """What the workers make of the events, as rows in the order of offsets."""
    rows = [row for batch in cut_batches(batches_of(events, sizes)) for row in batch.to_pylist()]
    assert rows == sorted(rows, key=lambda row: (row["topic"], row["offset"]))
    return rows


def windows_of(events: list[dict[str, Any]], sizes: Iterable[int] = ()) -> list[dict[str, Any]]:
    """The windows of the events."""
    return [row for batch in find_windows(batches_of(events, sizes)) for row in batch.to_pylist()]


def passed_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The data events that count."""
    return [row for row in rows if (row["window_state"], row["kind"]) == ("complete", "data")]


@dataclass
class Interpreter:
    """The rules of windows for one stream, one event after the other: slow, and written for nothing else."""

    passed: int = -1
    needed: int | None = None
    missing: set[int] = field(default_factory=set)
    after_rollback: bool = False
    covered: list[tuple[int, int]] = field(default_factory=list)
    window: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    states: dict[int, str] = field(default_factory=dict)
    codes: dict[int, str] = field(default_factory=dict)

    def run(self, events: list[dict[str, Any]], unreadable: Iterable[int] = ()) -> Interpreter:
        lost = sorted(unreadable)
        for event in events:
            at = event["offset"]
            while lost and lost[0] < at:
                self.window.append((lost.pop(0), {"error_code": "LOST", "kind": None}))
            self.window.append((at, event))
            if event["error_code"] is None and event["kind"] in ("end", "rollback"):
                self._end(event)
                self.window = []
        for at, _ in self.window:
            self.states[at] = "open"
        self._falls()
        return self

    def _data(self) -> list[tuple[int, dict[str, Any]]]:
        return [
            (at, each) for at, each in self.window if each["error_code"] is None and each["kind"] == "data"
        ]

    def _falls(self) -> bool:
        last: dict[int, int] = {}
        greatest: dict[int, int] = {}
        fell = False
        for at, event in self._data():
            source, scn = event["source_id"], event["scn"]
            if scn < last.get(source, -1):
                self.codes[at] = "SCN_FELL"
                fell = True
            last[source] = scn
            greatest[source] = max(scn, greatest.get(source, -1))
        return fell

    def _new_scns(self) -> list[int]:
        """Those above all that passed, of events in error too."""
        scns = (each.get("scn") for _, each in self.window if each["kind"] in ("data", None))
        return [scn for scn in scns if scn is not None and scn > self.passed]

    def _keep_missing(self) -> None:
        scns = self._new_scns()
        if scns:
            self.missing |= {min(scns), max(scns)}

    def _is_covered(self, scn: int) -> bool:
        return any(low <= scn <= high for low, high in self.covered)

    def _miss(self, scn: int) -> None:
        self.needed = scn if self.needed is None else min(scn, self.needed)

    def _set(self, state: str) -> None:
        for at, _ in self.window:
            self.states[at] = state

    def _late(self) -> list[int]:
        scns = ((at, each.get("scn")) for at, each in self.window if each["kind"] in ("data", None))
        return [
            at for at, scn in scns if scn is not None and scn <= self.passed and not self._is_covered(scn)
        ]

    def _end(self, end: dict[str, Any]) -> None:
        data = self._data()
        scns = [each["scn"] for _, each in data]
        bad = any(each["error_code"] is not None for _, each in self.window)
        fell = self._falls()
        if end["kind"] == "rollback":
            self._set("rolled back")
            if not data and not bad:
                return
            start = min([*scns, *self._new_scns()], default=end["scn"])
            if end["scn"] > start:
                self.codes[end["offset"]] = "ROLLBACK_TOO_LATE"
            self._miss(start)
            self.after_rollback = True
            return
        too_low = bool(data) and end["scn"] < max(scns)
        if bad or fell or too_low:
            self.after_rollback = False
            if too_low:
                self.codes[end["offset"]] = "END_TOO_LOW"
            late = self._late()
            self.codes |= {at: "EVENT_LATE" for at in late if at not in self.codes}
            new = self._new_scns()
            if end["scn"] <= self.passed and not new:
                self._set("late" if late else "repeated")
            else:
                self._set("damaged")
                self._miss(min([*scns, *new], default=end["scn"]))
                self._keep_missing()
            return
        if self.needed is not None and not data:
            self._set("waiting")
            return
        if self.needed is not None:
            was_rolled_back, self.after_rollback = self.after_rollback, False
            if min(scns) > self.needed:
                if was_rolled_back:
                    self.codes[end["offset"]] = "START_TOO_LATE"
                self._set("waiting")
                self._keep_missing()
                return
            self.needed = None
        late = self._late()
        if end["scn"] <= self.passed:
            self._set("late" if late else "repeated")
            self.codes |= dict.fromkeys(late, "EVENT_LATE")
            return
        if late:
            self._set("damaged")
            self.codes |= dict.fromkeys(late, "EVENT_LATE")
            self._miss(min(scns))
            self._keep_missing()
            return
        if not {scn for scn in self.missing if scn <= end["scn"]} <= set(scns):
            self._set("waiting")
            self._keep_missing()
            return
        self._set("complete")
        self.missing = {scn for scn in self.missing if scn > end["scn"]}
        for at, each in data:
            if each["scn"] <= self.passed:
                self.states[at] = "repeated"
        if data:
            self.covered.append((max(min(scns), self.passed + 1), max(scns)))
        if data or end["scn"] > 0:
            self.passed = end["scn"]


def record_of(word: str, at: int, sources: dict[str, databus.Source], physical: int = 1) -> bytes:
    """
    An event in short as JSON: `a12:1=-15` is an upsert in source a with SCN 12: of the key 1 the amount -15.

    Without an amount it is a delete; `?` is no event, `!` one without a schema.
    """
    if word == "?":
        return b"?"
    scn, _, said = word[1:].partition(":")
    event: dict[str, Any] = {"sequence": int(scn), "physicalPartitionId": physical}
    event["timestampInNanos"] = (1_704_099_600 + 10 * int(scn)) * 10**9 + at
    if word[0] in ".<":
        return json.dumps(event | {"srcId": -2 if word[0] == "." else -51}).encode()
    source = sources["a" if word[0] == "!" else word[0]]
    key, _, amount = said.partition("=")
    event |= {"opcode": "UPSERT" if amount else "DELETE", "key": int(key), "srcId": source.id}
    if amount:
        row = json.dumps({"id": int(key), "amount": int(amount)})
        (schema,) = source.texts
        event |= {"schemaId": schema if word[0] != "!" else "x", "valueEnc": "JSON_PLAIN_VALUE", "value": row}
    return json.dumps(event).encode()


def drawn_words(draw: Random, windows: int, *, first_key: int = 0) -> list[str]:
    """
    Windows that move an amount from a to b, so that their sum is 0 at each end; with what goes wrong.

    Now and then one is rolled back, sent again from before, damaged, or not ended.  Three keys are moved.
    """
    words: list[str] = []
    balance = {0: 0}
    scn = 0
    while scn < windows:
        scn += 1
        balance.setdefault(scn, draw.randint(-99, 99))
        key = first_key + scn % 3
        told = [f"{source}{scn}:{key}={sign * balance[scn]}" for source, sign in (("a", 1), ("b", -1))]
        if scn % 7 == 0:
            other = first_key + (scn - 1) % 3
            told += [f"a{scn}:{other}", f"b{scn}:{other}"]
        what = draw.choice(["", "", "", "", "rollback", "spoilt", "again", "no end", "empty"])
        if what == "rollback":
            words += [*told[: draw.randint(1, len(told))], f"<{scn}"]
        elif what == "spoilt":
            words += [*told, draw.choice(["?", f"!{scn}:0=1"]), f".{scn}"]
        elif what == "no end":
            words += told
        else:
            words += [*told, f".{scn}", *([f".{scn}"] if what == "empty" else [])]
        if what in ("rollback", "spoilt", "again"):
            scn = max(0, scn - draw.randint(1, 4))
    return words
