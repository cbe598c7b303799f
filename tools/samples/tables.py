"""
Flights of Delta to Atlanta on 8 February 2013, as two systems would export them to CSV.

They tell what `replicate/truth.parquet` says, in the order in which it was said.
"""

import csv
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tools.samples.records import SAMPLES

DAY, CARRIER, DESTINATION = date(2013, 2, 8), "DL", "ATL"
FILES = {
    "timetable.csv": ("flight", "origin", "scheduled", "plane", "withdrawn", "changed_at"),
    "reports.csv": ("flight", "origin", "status", "expected", "reported_at"),
}


def write(folder: Path) -> None:
    """Write both tables; an export has the rows in the order in which they were said."""
    rows = sorted(_rows(), key=lambda row: (row["changed_at"], row["flight"], row["origin"]))
    for (name, header), source in zip(FILES.items(), ("schedule", "operations"), strict=True):
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / name).open("w", newline="", encoding="utf-8") as file:
            lines = csv.DictWriter(file, header, extrasaction="ignore", lineterminator="\n")
            lines.writeheader()
            lines.writerows(row for row in rows if row["source"] == source)


def _rows() -> Iterator[dict[str, Any]]:
    """Give a row for each time that a system said something; empty where it struck a flight out."""
    for flight in pq.read_table(SAMPLES / "replicate" / "truth.parquet").to_pylist():
        if (flight["flight_date"], flight["carrier"], flight["dest"]) != (DAY, CARRIER, DESTINATION):
            continue
        for update in flight["updates"]:
            withdrawn, at = update["operation"] == "DELETE", _text(update["at"])
            if withdrawn and update["source"] == "operations":
                continue
            said = {"scheduled": _text(flight["scheduled_departure"]), "plane": update["tailnum"]}
            yield {
                **({} if withdrawn else said),
                **{name: update[name] for name in ("source", "status")},
                **{name: flight[name] for name in ("flight", "origin")},
                "withdrawn": "yes" if withdrawn else "no",
                "expected": _text(update["expected_departure"]),
                "changed_at": at,
                "reported_at": at,
            }


def _text(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
