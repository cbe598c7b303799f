"""The two tables for people's own data: that the committed files are what the program makes."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from tools import table_samples

SAMPLE = Path(__file__).parents[2] / "data" / "samples" / "tables"


def test_the_files_are_what_the_program_makes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["table_samples", "--out", str(tmp_path)])
    table_samples.main()
    names = ["reports.csv", "timetable.csv"]
    assert sorted(path.name for path in SAMPLE.iterdir()) == names
    for name in names:
        assert (SAMPLE / name).read_bytes() == (tmp_path / name).read_bytes()


def test_no_departure_is_expected_of_a_flight_that_is_cancelled() -> None:
    """And of every other one there is: the empty cells mean something."""
    rows = list(csv.DictReader((SAMPLE / "reports.csv").read_text().splitlines()))
    assert {row["status"] for row in rows if not row["expected"]} == {"cancelled"}
    assert all(not row["expected"] for row in rows if row["status"] == "cancelled")
