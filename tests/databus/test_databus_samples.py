"""The sample: its windows give the day that was committed."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cdckit import databus, samples
from cdckit.databus.events import EVENT, event_columns
from cdckit.databus.window_batches import CONTENT, cut_batches, find_windows
from support.databus_streams import passed_rows
from tools.samples import databus as databus_samples

SAMPLE = Path(samples("databus"))
NAMES = [*EVENT.names, "error_code", "error_description"]
MANIFEST = json.loads((SAMPLE / "manifest.json").read_text())


@pytest.fixture(scope="module")
def events() -> pa.RecordBatch:
    """Every event of the sample, decoded."""
    listed = json.loads((SAMPLE / "sources.json").read_text())
    sources = {
        source["id"]: databus.Source(source["id"], source["name"], [source["schema"]]) for source in listed
    }
    records = pq.read_table(SAMPLE / "events.parquet").combine_chunks().to_batches()[0]
    columns = [records.column(name) for name in ("topic", "partition", "offset")]
    columns += event_columns(records.column("value"), sources)
    columns.append(records.column("value"))
    return pa.RecordBatch.from_arrays(columns, names=["topic", "partition", "offset", *NAMES, CONTENT])


def test_of_all_that_was_sent_the_changes_that_were_committed_pass_once(events: pa.RecordBatch) -> None:
    passed = passed_rows([row for batch in cut_batches([events]) for row in batch.to_pylist()])
    committed = [(scn, change.at) for window in databus_samples.windows() for scn, change in window.changes]
    passed_changes = [(row["scn"], int(row["event_timestamp"].timestamp() * 1_000_000)) for row in passed]
    assert [scn for scn, _ in passed_changes] == [scn for scn, _ in committed]
    assert len(passed_changes) == MANIFEST["changes"]
    ends = [row["window_end_scn"] for row in passed]
    assert ends == sorted(ends)


def test_every_kind_of_window_is_there(events: pa.RecordBatch) -> None:
    states: Counter[str] = Counter()
    codes: Counter[Any] = Counter()
    for batch in find_windows([events]):
        states.update(batch.column("state").to_pylist())
        codes.update(batch.column("error_code").to_pylist())
    assert states["complete"] == MANIFEST["windows"]
    assert states["rolled back"] == MANIFEST["rollbacks"]
    assert states["damaged"] == MANIFEST["of_an_unknown_source"]
    assert states["repeated"] > 10
    assert set(codes) == {None}
