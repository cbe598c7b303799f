"""Windows of a stream: cut, judged, and the same whatever the batches."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdckit.databus.window_batches import CONTENT, cut_batches
from cdckit.databus.window_machine import WindowMachine
from support.databus_streams import COLUMNS, Interpreter, cut_rows, events_of, passed_rows, windows_of
from tools.tiers import examples


def states(text: str) -> str:
    """The first letter of the state of each event; a capital one if the event is in error."""
    letters = ""
    for row in cut_rows(events_of(text)):
        letter = {"rolled back": "b", None: "-"}.get(row["window_state"]) or row["window_state"][0]
        letters += letter.upper() if row["error_code"] else letter
    return letters


def checked(events: list[dict[str, Any]], sizes: list[int]) -> None:
    """Compare what is cut with the rules, step by step."""
    unreadable = [event["offset"] for event in events if event["physical_partition"] is None]
    ends = [
        event["offset"]
        for event in events
        if event["kind"] in ("end", "rollback") and not event["error_code"]
    ]
    windowed = cut_rows(events, sizes=sizes)
    consistent, windows = passed_rows(windowed), windows_of(events, sizes)
    for physical in {event["physical_partition"] for event in events} - {None}:
        stream_events = [event for event in events if event["physical_partition"] == physical]
        first = stream_events[0]["offset"]
        # Of a window that ended before the stream began no record is missing here.
        begun_after = max((end for end in ends if end < first), default=-1)
        lost = [offset for offset in unreadable if offset > begun_after]
        right = Interpreter().run(stream_events, lost)
        rows = [row for row in windowed if row["physical_partition"] == physical]
        right_states = [right.states[event["offset"]] for event in stream_events]
        assert [row["window_state"] for row in rows] == right_states
        codes = [event["error_code"] or right.codes.get(event["offset"]) for event in stream_events]
        assert [row["error_code"] for row in rows] == codes
        passed = [
            event["offset"] for event in stream_events
            if right.states[event["offset"]] == "complete" and event["kind"] == "data"
        ]  # fmt: skip
        assert [r["offset"] for r in consistent if r["physical_partition"] == physical] == passed
        of_number = {row["window"]: row["window_state"] for row in rows if row["kind"] in ("end", "rollback")}
        cut = {r["window"]: r["state"] for r in windows if r["physical_partition"] == physical}
        assert {number: cut[number] for number in of_number} == of_number


WORDS = st.tuples(st.sampled_from("aaaabb....<!x?ce"), st.integers(0, 9)).map(
    lambda pair: f"{pair[0]}{pair[1]}"
)
STREAMS = st.lists(st.tuples(WORDS, st.integers(1, 2)), max_size=40)
SIZES = st.lists(st.integers(1, 7), max_size=12)


@pytest.mark.drawn
@settings(**examples(60, soak=20_000))
@given(STREAMS, SIZES)
def test_any_stream_is_cut_as_the_rules_say_step_by_step(
    words: list[tuple[str, int]], sizes: list[int]
) -> None:
    events = events_of(" ".join(word for word, _ in words))
    for event, (_, physical) in zip(events, words, strict=True):
        if event["physical_partition"] is not None:
            event["physical_partition"] = physical
    checked(events, sizes)


@pytest.mark.drawn
@settings(**examples(60, soak=20_000))
@given(st.data())
def test_a_sound_stream_with_replays_rollbacks_and_faults(data: st.DataObject) -> None:
    """Windows in their order; now and then one is rolled back, sent again from before, cut or spoilt."""
    words: list[str] = []
    scn = 1
    for _ in range(data.draw(st.integers(1, 14))):
        scn += 1
        window = [f"{source}{scn}" for source in data.draw(st.lists(st.sampled_from("ab"), max_size=3))]
        what = data.draw(st.sampled_from(["", "", "", "rollback", "spoilt", "replay", "no end"]))
        if what == "rollback" and window:
            words += [*window[: data.draw(st.integers(1, len(window)))], f"<{scn}"]
            scn = max(1, scn - data.draw(st.integers(1, 3)))
            continue
        words += window
        if what == "spoilt":
            words.append(data.draw(st.sampled_from(["!", "?", f"x{scn}", f"x{scn + 1}"])))
        if what != "no end":
            words.append(f".{scn}")
        if what in ("replay", "spoilt"):
            scn = max(1, scn - data.draw(st.integers(1, 4)))
    checked(events_of(" ".join(words)), data.draw(SIZES))


CASES = json.loads((Path(__file__).parents[1] / "cases/databus/windows.json").read_text())["cases"]


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_case(case: dict[str, Any]) -> None:
    events = events_of(case["stream"])
    for sizes in ([], [1] * len(events), [2, 3]):
        rows = cut_rows(events, sizes=sizes)
        assert [row["window_state"] for row in rows] == case["states"]
        errors = {str(row["offset"]): row for row in rows if row["error_code"]}
        assert errors.keys() == case["errors"].keys()
        for offset, (code, finding) in case["errors"].items():
            assert errors[offset]["error_code"] == code
            assert finding in errors[offset]["error_description"]
    checked(events, [])


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_after_each_window_of_a_case_it_is_known_what_may_come(case: dict[str, Any]) -> None:
    """A window far above, alone or behind a rollback of nothing, shows whether something is missing."""
    sent = case["stream"].split()
    for at, word in enumerate(sent):
        if word[0] in ".<":
            for behind in (["a20", ".20"], ["<20", "a20", ".20"]):
                checked(events_of(" ".join([*sent[: at + 1], *behind])), [])


def test_every_line_of_the_rules_is_in_a_case() -> None:
    """So no rule stands there that nothing needs, and no rule that no case shows."""
    rules = {
        rule.__code__
        for rule in (
            WindowMachine._add_event, WindowMachine._add_scn, WindowMachine._end_window,
            WindowMachine._roll_back, WindowMachine._judge, WindowMachine._find_low_end,
            WindowMachine._find_late_start, WindowMachine._require_start, WindowMachine._lacks_missing,
            WindowMachine._note_missing, WindowMachine._pass,
        )
    }  # fmt: skip
    seen: set[int] = set()

    def note(frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code not in rules:
            return None
        if event == "line":
            seen.add(frame.f_lineno)
        return note

    before = sys.gettrace()
    sys.settrace(note)
    try:
        for case in CASES:
            cut_rows(events_of(case["stream"]))
    finally:
        sys.settrace(before)
    lines = {line for rule in rules for *_, line in rule.co_lines() if line and line > rule.co_firstlineno}
    assert sorted(lines - seen) == []


def complete_ends(words: list[str]) -> list[int]:
    """The ends of the windows that passed."""
    rows = [row for row in windows_of(events_of(" ".join(words))) if row["state"] == "complete"]
    # A relay begins with an empty window of SCN 0, which says nothing.
    return [row["end_scn"] for row in rows if row["events"] or row["end_scn"]]


def may_be_missing(words: list[str]) -> list[int]:
    """The SCNs that came in windows which were damaged or waited, and were above all that had passed."""
    known: list[int] = []
    for row in windows_of(events_of(" ".join(words))):
        came = words[row["first_offset"] : row["last_offset"] + 1]
        scns = [int(word[1:]) for word in came if word[0] in "abx"]
        passed = max(complete_ends(words[: row["first_offset"]]), default=-1)
        if row["state"] in ("damaged", "waiting"):
            new = [scn for scn in scns if scn > passed]
            known += {min(new), max(new)} if new else {}
    return known


@pytest.mark.drawn
@settings(**examples(60, soak=5_000))
@given(st.lists(st.tuples(st.sampled_from("aaaabb....<x"), st.integers(0, 9)), max_size=25))
def test_nothing_passes_above_what_came_and_did_not_pass(drawn: list[tuple[str, int]]) -> None:
    """Of each window that failed or waited, the first and the last SCN: they passed, or all above waits."""
    words = [f"{sign}{scn}" for sign, scn in drawn]
    rows = cut_rows(events_of(" ".join(words)))
    passed_scns = {row["scn"] for row in passed_rows(rows)}
    for scn in may_be_missing(words):
        assert scn in passed_scns or scn > max(complete_ends(words), default=-1)


def test_an_event_in_error_that_is_no_data_is_not_missing() -> None:
    """Nor is one whose SCN is below 0: what is sent again may start with the first data event."""
    for kind, scn in (("end", 4), ("checkpoint", 4), ("data", -1)):
        events = events_of("x4 a5 .5 a5 .5")
        events[0] |= {"kind": kind, "scn": scn}
        rows = cut_rows(events)
        assert [row["window_state"] for row in rows] == ["damaged"] * 3 + ["complete"] * 2


@pytest.mark.parametrize("earlier", [0, 1, 2])
def test_rolled_back_at_every_position_each_event_passes_once(earlier: int) -> None:
    """The source goes on with the window that was open, or some windows earlier."""
    words = [f"{sign}{scn}" for scn in (5, 6, 7) for sign in "ab."]
    for at in range(len(words) + 1):
        done = at // 3
        again = max(0, done - earlier)
        sent = [*words[:at], f"<{5 + again}", *words[3 * again :]]
        rows = cut_rows(events_of(" ".join(sent)))
        passed = [sent[row["offset"]] for row in rows if row["window_state"] == "complete"]
        assert passed == words
        undone = [row["offset"] for row in rows if row["window_state"] == "rolled back"]
        assert undone == list(range(3 * done, at + 1))
        # Between two windows too: a window may have started of which no event had come.
        assert not [row["error_code"] for row in rows if row["error_code"]]


def test_a_record_of_no_stream_damages_no_stream_that_begins_after_the_next_end() -> None:
    """One unreadable record years ago would stop every new physical partition, for ever."""
    first_rows = cut_rows(events_of("? a5 .5"))
    assert [row["window_state"] for row in first_rows] == [None, "damaged", "damaged"]
    events = events_of("a5 ? .5 a5 .5 a6 .6 a7 .7")
    for event in events[5:]:
        event["physical_partition"] = 2
    rows = cut_rows(events, sizes=[2, 3])
    assert [row["window_state"] for row in rows] == [
        "damaged", None, "damaged", *["complete"] * 6
    ]  # fmt: skip
    checked(events, [])


def test_a_tombstone_is_no_event_and_damages_no_window() -> None:
    events = events_of("? a5 ? .5")
    for at in (0, 2):
        events[at]["error_code"] = "NO_VALUE"
    rows = cut_rows(events)
    assert [row["window_state"] for row in rows] == [None, "complete", None, "complete"]
    assert [(row["state"], row["bad_events"]) for row in windows_of(events)] == [("complete", 0)]


@pytest.mark.parametrize("size", [1, 2, 100])
def test_a_record_that_is_there_twice_counts_once(size: int) -> None:
    """Two exports that overlap: a5 a5 b5 b5 .5 .5 breaks no rule of windows."""
    events = [event for event in events_of("a5 b5 ?0 .5 a6") for _ in range(2)]
    rows = cut_rows(events, sizes=[size] * 10)
    assert [row["window_state"] for row in rows] == ["damaged", "repeated"] * 2 + [
        None, "repeated", "damaged", "repeated", "open", "repeated",
    ]  # fmt: skip
    assert [row["window"] for row in rows] == [1, None, 1, None, None, None, 1, None, 2, None]
    assert [row["window_position"] for row in rows[:4]] == [1, None, 2, None]
    counts = [(row["events"], row["bad_events"]) for row in windows_of(events, sizes=[size] * 10)]
    assert counts == [(2, 1), (1, 0)]
    whole = [event for event in events_of("a5 b5 .5") for _ in range(2)]
    assert [row["offset"] for row in passed_rows(cut_rows(whole))] == [0, 1]


def test_of_two_records_at_one_offset_one_counts_and_the_other_is_in_error() -> None:
    """Nor can a record be put in order that has no offset."""
    events = events_of("a5 b5 .5")
    other, nowhere = {**events[1], CONTENT: "other"}, {**events[1], "offset": None, "topic": "u"}
    rows = cut_rows([*events[:2], other, events[2]])
    assert [row["window_state"] for row in rows] == ["complete", "complete", None, "complete"]
    assert [row["error_code"] for row in rows] == [None, None, "PLACE_TAKEN", None]
    [row] = next(iter(cut_batches([pa.RecordBatch.from_pylist([nowhere], COLUMNS)]))).to_pylist()
    assert (row["window"], row["error_code"]) == (None, "PLACE_TAKEN")


def test_windows_are_numbered_and_say_what_they_hold() -> None:
    windows = windows_of(events_of("a5 b5 .5 <5 a6 a7 .8 .9 a10"), [3, 1, 1])
    names = ("window", "state", "start_scn", "end_scn", "events", "first_offset", "last_offset", "error_code")
    assert [tuple(row[name] for name in names) for row in windows] == [
        (1, "complete", 5, 5, 2, 0, 2, None),
        (2, "rolled back", None, None, 0, 3, 3, None),
        (3, "complete", 6, 8, 2, 4, 6, None),
        (4, "complete", None, 9, 0, 7, 7, None),
        (5, "open", 10, None, 1, 8, 8, None),
    ]


def test_events_know_their_place_in_the_window() -> None:
    """Counted on over batches, and over what is no data event."""
    rows = cut_rows(events_of("a5 c5 b5 a6 .6 a7 .7"), sizes=[1, 1, 2])
    assert [row["window_position"] for row in rows] == [1, None, 2, 3, None, 1, None]
    assert [row["window_start_scn"] for row in rows] == [5, 5, 5, 5, 5, 7, 7]
    assert [row["window_end_scn"] for row in rows] == [6, 6, 6, 6, 6, 7, 7]


def test_a_window_becomes_true_at_its_end_but_never_before_an_earlier_one() -> None:
    events = events_of("a5 .5 a6 .6")
    events[1]["event_timestamp"], events[3]["event_timestamp"] = 90_000_000, 60_000_000
    rows = cut_rows(events)
    assert [row["window_timestamp"].timestamp() for row in rows] == [90, 90, 90, 90]


def test_streams_do_not_touch_each_other() -> None:
    """The same SCNs in two topics and two physical partitions, in one batch."""
    streams = [events_of("a5 .5 a6", topic=topic, physical=part) for topic in "tu" for part in (1, 2)]
    for number, stream in enumerate(streams):
        for event in stream:
            event["offset"] += 3 * number
    windows = windows_of([event for stream in streams for event in stream])
    assert sorted((row["topic"], row["physical_partition"], row["state"]) for row in windows) == [
        (topic, part, state) for topic in "tu" for part in (1, 2) for state in ("complete", "open")
    ]


def test_a_window_larger_than_what_is_held_in_memory_comes_out_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cdckit.databus.window_batches.MAX_BYTES", 1000)
    events = events_of("a5 " * 500 + ".5 a6")
    rows = cut_rows(events, sizes=[7] * 60)
    assert [row["offset"] for row in rows] == list(range(502))
    assert {row["window_state"] for row in rows[:501]} == {"complete"}
    assert [row["window_position"] for row in rows[:500]] == list(range(1, 501))


@pytest.mark.drawn
@settings(**examples(40, soak=5_000))
@given(st.data())
def test_what_two_tables_have_in_common_holds_after_every_window(data: st.DataObject) -> None:
    """Each window moves an amount from a to b: the sum is 0 at window ends and hardly ever in between."""
    words: list[str] = []
    amounts: list[int] = []
    balance = {0: (0, 0)}
    scn = 0
    for _ in range(data.draw(st.integers(1, 12))):
        scn += 1
        balance.setdefault(scn, (balance[scn - 1][0] - 10 * scn, balance[scn - 1][1] + 10 * scn))
        window = [(f"a{scn}", balance[scn][0]), (f"b{scn}", balance[scn][1]), (f".{scn}", 0)]
        what = data.draw(st.sampled_from(["", "", "roll back", "spoil", "replay"]))
        if what == "roll back":
            window[data.draw(st.integers(1, 2)) :] = [(f"<{scn}", 0)]
        if what == "spoil":
            window[data.draw(st.integers(0, 1))] = (data.draw(st.sampled_from("!?")), 0)
        for word, amount in window:
            words.append(word)
            amounts.append(amount)
        if what:
            scn = max(0, scn - data.draw(st.integers(1, 3)))
    events = events_of(" ".join(words))
    seen: dict[int, int] = {}
    last = (0, 0)
    for row in passed_rows(cut_rows(events, data.draw(SIZES))):
        if (row["window"], row["window_end_scn"]) != last:
            assert sum(seen.values()) == 0
            assert row["window_end_scn"] > last[1]
            last = (row["window"], row["window_end_scn"])
        seen[row["source_id"]] = amounts[row["offset"]]
    assert sum(seen.values()) == 0
