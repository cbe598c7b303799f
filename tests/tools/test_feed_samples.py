"""The two feeds about flights that the five-feeds notebook needs: the files are what the program makes."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow.parquet as pq

from tools import feed_samples

SAMPLE = Path(__file__).parents[2] / "data" / "samples" / "five_feeds"


def test_the_files_are_what_the_program_makes(tmp_path: Path) -> None:
    feed_samples.write(tmp_path)
    names = ["archive.parquet", "tablets.parquet"]
    assert sorted(path.name for path in SAMPLE.iterdir()) == names
    for name in names:
        assert pq.read_table(SAMPLE / name).equals(pq.read_table(tmp_path / name))


def test_the_archive_tells_each_departure_as_it_was_or_five_hours_early_until_it_corrects_itself() -> None:
    """By the facts of the flights, not by the other feeds."""
    left = {
        f"{feed_samples.name(each)} {each['origin']}": each["actual_departure"]
        for each in feed_samples.flights()
    }
    told: dict[str, list[timedelta]] = {}
    for value in pq.read_table(SAMPLE / "archive.parquet").column("value").to_pylist():
        body = json.loads(value)["messageBody"]
        said = datetime.fromisoformat(body["objectDate"][0]["dateValue"])
        told.setdefault(body["objectTitle"], []).append(left[body["objectTitle"]] - said)
    mistaken = [each for each in told.values() if each != [timedelta()]]
    assert set(told) == {flight for flight, at in left.items() if at is not None}
    assert mistaken == [[timedelta(hours=5), timedelta()]] * 3
