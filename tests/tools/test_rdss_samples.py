"""The RDSS sample: every record deserves its code."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from cdckit.rdss import RdssFault, validate

SAMPLE = Path(__file__).parents[2] / "data" / "samples" / "rdss"


def test_each_record_has_the_code_that_was_meant() -> None:
    """By itself: what contradicts others, or is about objects that nobody has, is valid."""
    records, truth = (pq.read_table(SAMPLE / f"{name}.parquet").to_pylist() for name in ("records", "truth"))
    places = [(each["partition"], each["offset"]) for each in records]
    assert places == [(each["partition"], each["offset"]) for each in truth]
    assert len(set(places)) == len(places) > 300
    found = [validate(each["value"], now=each["timestamp"]).code for each in records]
    assert found == [each["error_code"] for each in truth]


@pytest.mark.parametrize("queue", ["invalid", "error"])
def test_every_code_that_validation_gives_is_there(queue: str) -> None:
    told = json.loads((SAMPLE / "manifest.json").read_text())
    given = {code for code in told["codes"] if code != "valid"}
    assert {code.value for code in RdssFault if code.queue == queue} & given == (
        {"GENERR006"} if queue == "error" else given - {"GENERR006"}
    )
    assert len(given) == 8
    kinds = Counter(each["message_type"] for each in pq.read_table(SAMPLE / "truth.parquet").to_pylist())
    assert set(kinds) == {
        "MetadataCreate", "MetadataRead", "MetadataUpdate", "MetadataDelete", "PreservationEvent",
    }  # fmt: skip
