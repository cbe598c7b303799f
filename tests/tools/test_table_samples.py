"""The two tables for people's own data: what an empty cell means."""

from __future__ import annotations

import csv
from pathlib import Path

SAMPLE = Path(__file__).parents[2] / "data" / "samples" / "tables"


def test_no_departure_is_expected_of_a_flight_that_is_cancelled() -> None:
    """And of every other one there is: the empty cells mean something."""
    rows = list(csv.DictReader((SAMPLE / "reports.csv").read_text().splitlines()))
    assert {row["status"] for row in rows if not row["expected"]} == {"cancelled"}
    assert all(not row["expected"] for row in rows if row["status"] == "cancelled")
