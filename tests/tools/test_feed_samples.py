"""The two feeds about flights that the five-feeds notebook needs."""

from __future__ import annotations

import json
from datetime import date, datetime, timedelta
from pathlib import Path

import pyarrow.parquet as pq

SAMPLES = Path(__file__).parents[2] / "data" / "samples"
SAMPLE = SAMPLES / "five_feeds"
DAY, CARRIERS = date(2013, 2, 8), ("AS", "F9", "FL", "HA", "VX", "WN", "YV")


def test_the_archive_tells_each_departure_as_it_was_or_five_hours_early_until_it_corrects_itself() -> None:
    """By the facts of the flights, not by the other feeds."""
    facts = pq.read_table(SAMPLES / "replicate" / "truth.parquet").to_pylist()
    left = {
        f"{DAY} {each['carrier']} {each['flight']} {each['origin']}": each["actual_departure"]
        for each in facts
        if each["flight_date"] == DAY and each["carrier"] in CARRIERS
    }
    told: dict[str, list[timedelta]] = {}
    for value in pq.read_table(SAMPLE / "archive.parquet").column("value").to_pylist():
        body = json.loads(value)["messageBody"]
        said = datetime.fromisoformat(body["objectDate"][0]["dateValue"])
        told.setdefault(body["objectTitle"], []).append(left[body["objectTitle"]] - said)
    mistaken = [each for each in told.values() if each != [timedelta()]]
    assert set(told) == {flight for flight, at in left.items() if at is not None}
    assert mistaken == [[timedelta(hours=5), timedelta()]] * 3
