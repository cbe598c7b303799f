"""The page that sets cdckit beside its peers has the figures that were measured."""

from __future__ import annotations

import json
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_has_the_figures_of_the_last_run() -> None:
    page = (ROOT / "docs" / "coming-from.md").read_text()
    measured = [
        each for each in json.loads((ROOT / "benchmarks" / "peers.json").read_text()) if "failed" not in each
    ]
    lacking = [each["name"] for each in measured if _row(each) not in page]
    assert (len(measured) >= 10, lacking) == (True, [])


def _row(found: dict[str, float]) -> str:
    first, later = found["first day"], found["a later day"]
    wrong = found["wrong answers, all days"], found["wrong answers, the last day"]
    flights, memory = found["flights"], found["peak memory, MB"]
    took = f"{first:.1f} s | {later:.1f} s | {memory:,} MB"
    return f"| {flights:,} | {took} | {wrong[0]:,} | {wrong[1]:,} |"
