"""
Two tables of the kind that people have: flights of Delta to Atlanta on 8 February 2013, told by two systems.

    python -m tools.table_samples --out data/samples/tables

They tell the same lives of the same flights as the sample of Replicate (its `truth.parquet` is read), in the
form of a CSV export: a row for each time that a system said something.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

TRUTH = Path(__file__).parents[1] / "data" / "samples" / "replicate" / "truth.parquet"
DAY, CARRIER, DESTINATION = date(2013, 2, 8), "DL", "ATL"
TIMETABLE = ("flight", "origin", "scheduled", "plane", "withdrawn", "changed_at")
REPORTS = ("flight", "origin", "status", "expected", "reported_at")


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(prog="python -m tools.table_samples", description=__doc__.split("\n")[1])
    parser.add_argument("--out", type=Path, required=True)
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    flights = pq.read_table(TRUTH).to_pylist()
    chosen = [
        each
        for each in flights
        if (each["flight_date"], each["carrier"], each["dest"]) == (DAY, CARRIER, DESTINATION)
    ]
    write(folder / "timetable.csv", TIMETABLE, timetable(chosen))
    write(folder / "reports.csv", REPORTS, reports(chosen))


def timetable(flights: list[dict[str, Any]]) -> Iterator[tuple[Any, ...]]:
    """A row for each time that the timetable changed a flight, or withdrew it."""
    for flight in flights:
        for update in flight["updates"]:
            if update["source"] == "schedule":
                withdrawn = update["operation"] == "DELETE"
                said = (_text(flight["scheduled_departure"]), update["tailnum"])
                yield (
                    *(flight["flight"], flight["origin"]),
                    *((None, None) if withdrawn else said),
                    *("yes" if withdrawn else "no", _text(update["at"])),
                )


def reports(flights: list[dict[str, Any]]) -> Iterator[tuple[Any, ...]]:
    """A row for each report of the operations; of a cancelled flight no departure is expected."""
    for flight in flights:
        for update in flight["updates"]:
            if update["source"] == "operations" and update["operation"] != "DELETE":
                expected = _text(update["expected_departure"])
                yield flight["flight"], flight["origin"], update["status"], expected, _text(update["at"])


def _text(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def write(path: Path, header: tuple[str, ...], rows: Iterator[tuple[Any, ...]]) -> None:
    """The rows in the order in which they were said, which is that of an export."""
    ordered: list[tuple[Any, ...]] = sorted(rows, key=lambda row: (row[-1], row[0], row[1]))
    with path.open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(header)
        lines.writerows(ordered)


if __name__ == "__main__":
    main()
