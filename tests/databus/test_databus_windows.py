"""Windows of a stream: cut, judged, and the same whatever the batches."""

from __future__ import annotations

from typing import Any

import pytest
from databus_streams import Interpreter, cut_rows, events_of
from hypothesis import given, settings
from hypothesis import strategies as st

from tools.tiers import examples


def states(text: str) -> str:
    """The first letter of the state of each event; a capital one if the event is in error."""
    found = ""
    for row in cut_rows(events_of(text)):
        letter = {"rolled back": "b", None: "-"}.get(row["window_state"]) or row["window_state"][0]
        found += letter.upper() if row["error_code"] else letter
    return found


def checked(events: list[dict[str, Any]], sizes: list[int]) -> None:
    """Compare what is cut with the rules, step by step."""
    unreadable = [each["offset"] for each in events if each["physical_partition"] is None]
    told = cut_rows(events, sizes=sizes)
    consistent = cut_rows(events, "consistent", sizes)
    windows = cut_rows(events, "windows", sizes)
    for physical in {each["physical_partition"] for each in events} - {None}:
        own = [each for each in events if each["physical_partition"] == physical]
        right = Interpreter().run(own, unreadable)
        rows = [row for row in told if row["physical_partition"] == physical]
        assert [row["window_state"] for row in rows] == [right.states[each["offset"]] for each in own]
        codes = [each["error_code"] or right.codes.get(each["offset"]) for each in own]
        assert [row["error_code"] for row in rows] == codes
        passed = [
            each["offset"] for each in own
            if right.states[each["offset"]] == "complete" and each["kind"] == "data"
        ]  # fmt: skip
        assert [r["offset"] for r in consistent if r["physical_partition"] == physical] == passed
        of_number = {row["window"]: row["window_state"] for row in rows if row["kind"] in ("end", "rollback")}
        cut = {r["window"]: r["state"] for r in windows if r["physical_partition"] == physical}
        assert {number: cut[number] for number in of_number} == of_number


WORDS = st.tuples(st.sampled_from("aaaabb....<!?ce"), st.integers(0, 9)).map(lambda each: f"{each[0]}{each[1]}")
STREAMS = st.lists(st.tuples(WORDS, st.integers(1, 2)), max_size=40)
SIZES = st.lists(st.integers(1, 7), max_size=12)


@settings(**examples(400, soak=20_000), deadline=None)
@given(STREAMS, SIZES)
def test_any_stream_is_cut_as_the_rules_say_step_by_step(
    words: list[tuple[str, int]], sizes: list[int]
) -> None:
    events = events_of(" ".join(word for word, _ in words))
    for each, (_, physical) in zip(events, words, strict=True):
        if each["physical_partition"] is not None:
            each["physical_partition"] = physical
    checked(events, sizes)


@settings(**examples(300, soak=20_000), deadline=None)
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
            words.append(data.draw(st.sampled_from("!?")))
        if what != "no end":
            words.append(f".{scn}")
        if what in ("replay", "spoilt"):
            scn = max(1, scn - data.draw(st.integers(1, 4)))
    checked(events_of(" ".join(words)), data.draw(SIZES))
