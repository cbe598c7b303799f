"""The sample of the Debezium streams: the committed files are what the program makes."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from tools import stream_samples

SAMPLE = Path(__file__).parents[2] / "data" / "samples" / "debezium_streams"


def test_the_files_are_what_the_program_makes(tmp_path: Path) -> None:
    stream_samples.write(tmp_path)
    names = sorted(each.name for each in SAMPLE.iterdir())
    assert names == [
        "connections.parquet",
        "entity-batches.parquet",
        "manifest.json",
        "schema-patches.parquet",
    ]
    for name in names[:2] + names[3:]:
        assert pq.read_table(SAMPLE / name).equals(pq.read_table(tmp_path / name))
    assert (SAMPLE / "manifest.json").read_text() == (tmp_path / "manifest.json").read_text()
