"""The suites under expectations/: a table that passes, and for each sentence a row that breaks just it."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
import pytest
from suites import SUITES, suite

# Great Expectations imports modules that Python deprecates.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

KETTLE = "e5d2e9d5-3392-53e3-8df4-cbded0d4a616"
MUG = "a65abe9f-159f-5330-9be6-4efddd5ebcf5"

Row = tuple[Any, ...]

COLUMNS = {
    "history": ["guid", "valid_from_timestamp", "valid_to_timestamp", "deleted_indicator", "source_message"],
    "messages": [
        "message_identifier", "message_timestamp", "effective_timestamp", "status", "error_message",
        "attempts", "next_attempt_timestamp",
    ],
}  # fmt: skip
GOOD: dict[str, list[Row]] = {
    # One entity with two versions, the second one open.
    "history": [
        (KETTLE, "2024-01-01", "2024-01-02", False, "m1"),
        (KETTLE, "2024-01-02", None, True, "m2"),
    ],
    "messages": [
        ("m1", "2024-01-02", "2024-01-01", 10, None, 1, None),
        ("m2", "2024-01-02", "2024-01-01", 0, None, 0, None),
        ("m3", "2024-01-02", "2024-01-01", 1, "waits", 2, "2024-01-03"),
        ("m4", "2024-01-02", "2024-01-01", 25, "KEY_MISSING", 1, None),
    ],
}
# By the place of the expectation in the suite: a row that breaks it and no other.
BREAKS: dict[str, dict[int, Row]] = {
    "history": {
        0: (None, "2024-01-01", None, False, "m1"),
        1: ("7", "2024-01-01", None, False, "m1"),
        2: (MUG, None, None, False, "m1"),
        3: (KETTLE, "2024-01-02", None, False, "m3"),
        4: (MUG, "2024-01-02", "2024-01-02", False, "m1"),
        5: (MUG, "2024-01-01", None, None, "m1"),
        6: (MUG, "2024-01-01", None, False, None),
    },
    "messages": {
        0: (None, "2024-01-02", "2024-01-01", 10, None, 1, None),
        1: ("m1", "2024-01-02", "2024-01-01", 10, None, 1, None),
        2: ("m5", None, "2024-01-01", 10, None, 1, None),
        3: ("m5", "2024-01-02", None, 10, None, 1, None),
        4: ("m5", "2024-01-02", "2024-01-01", 22, "no message", 1, None),
        5: ("m5", "2024-01-02", "2024-01-01", 10, None, -1, None),
        6: ("m5", "2024-01-02", "2024-01-01", 1, "waits", 1, None),
        7: ("m5", "2024-01-02", "2024-01-01", 10, None, 1, "2024-01-03"),
        8: ("m5", "2024-01-02", "2024-01-01", 26, None, 1, None),
        9: ("m5", "2024-01-02", "2024-01-01", 0, "what?", 0, None),
    },
}
CASES = [(name, place) for name, rows in BREAKS.items() for place in rows]


def table(name: str, rows: list[Row]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=COLUMNS[name])
    for column in frame.columns:
        if column.endswith("_timestamp"):
            frame[column] = pd.to_datetime(frame[column], utc=True)
    return frame


@pytest.mark.parametrize("name", COLUMNS)
def test_a_good_table_passes(name: str) -> None:
    assert suite(name)(table(name, GOOD[name])) == []


@pytest.mark.parametrize(("name", "place"), CASES)
def test_each_expectation_can_fail_alone(name: str, place: int) -> None:
    assert suite(name)(table(name, [*GOOD[name], BREAKS[name][place]])) == [place]


def test_no_expectation_is_without_a_row_that_breaks_it() -> None:
    for path in SUITES.glob("*.json"):
        stated = json.loads(path.read_text())["expectations"]
        assert list(BREAKS[path.stem]) == list(range(len(stated)))
