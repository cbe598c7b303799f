"""The suites under expectations/: a table that passes, and for each sentence a row that breaks just it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

# Great Expectations imports modules that Python deprecates.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

SUITE = Path(__file__).parents[1] / "expectations" / "history.json"
KETTLE = "e5d2e9d5-3392-53e3-8df4-cbded0d4a616"
MUG = "a65abe9f-159f-5330-9be6-4efddd5ebcf5"

# One entity with two versions, the second one open.
GOOD = [
    (KETTLE, "2024-01-01", "2024-01-02", False, "m1"),
    (KETTLE, "2024-01-02", None, True, "m2"),
]
# By the place of the expectation in the suite: a row that breaks it and no other.
BREAKS = {
    0: (None, "2024-01-01", None, False, "m1"),
    1: ("7", "2024-01-01", None, False, "m1"),
    2: (MUG, None, None, False, "m1"),
    3: (KETTLE, "2024-01-02", None, False, "m3"),
    4: (MUG, "2024-01-02", "2024-01-02", False, "m1"),
    5: (MUG, "2024-01-01", None, None, "m1"),
    6: (MUG, "2024-01-01", None, False, None),
}


def table(rows: list[tuple[Any, ...]]) -> pd.DataFrame:
    names = ["guid", "valid_from_timestamp", "valid_to_timestamp", "deleted_indicator", "source_message"]
    frame = pd.DataFrame(rows, columns=names)
    for name in names[1:3]:
        frame[name] = pd.to_datetime(frame[name], utc=True)
    return frame


@pytest.fixture(scope="module")
def broken() -> Callable[[pd.DataFrame], list[int]]:
    """Which of the suite's expectations a table breaks, by their places."""
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setenv("GX_ANALYTICS_ENABLED", "false")
    import great_expectations as gx

    context = gx.get_context(mode="ephemeral")
    suite = context.suites.add(gx.ExpectationSuite(**json.loads(SUITE.read_text())))
    asset = context.data_sources.add_pandas("memory").add_dataframe_asset("history")
    batch = asset.add_batch_definition_whole_dataframe("all")
    order = [(each.expectation_type, each.configuration.kwargs.get("column")) for each in suite.expectations]

    def validate(frame: pd.DataFrame) -> list[int]:
        done = batch.get_batch({"dataframe": frame}).validate(suite)
        failed = [each.expectation_config for each in done.results if not each.success]
        return [order.index((each.type, each.kwargs.get("column"))) for each in failed]

    monkeypatch.undo()
    return validate


def test_a_good_history_passes(broken: Callable[[pd.DataFrame], list[int]]) -> None:
    assert broken(table(GOOD)) == []


@pytest.mark.parametrize("place", BREAKS)
def test_each_expectation_can_fail_alone(broken: Callable[[pd.DataFrame], list[int]], place: int) -> None:
    assert broken(table([*GOOD, BREAKS[place]])) == [place]


def test_no_expectation_is_without_a_row_that_breaks_it() -> None:
    assert list(BREAKS) == list(range(len(json.loads(SUITE.read_text())["expectations"])))
