"""
Dispatch of windows that a relay keeps, in a program of its own, so that its memory is its own.

    python -m benchmarks.databus_dispatch FOLDER EVENTS

It prints a line of JSON: seconds, seconds of processor time, and the most memory that the program took.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdckit import databus
from cdckit.databus.event_stream import EVENTS, RelayStream
from cdckit.databus.window_batches import STREAM
from cdckit.store import Store

PER_WINDOW, AT_ONCE = 10, 100_000
SCHEMA = '{"type": "record", "name": "P", "fields": [{"name": "tail", "type": "string"}]}'
PLANES = databus.Source(3, "planes", [SCHEMA])


class Nothing(databus.Consumer):
    """Is called for each event, and does nothing."""

    def on_data_event(self, event: databus.Event) -> bool:
        return True


def measured(folder: Path, events: int) -> dict[str, Any]:
    """What the program prints, run on so many events; they are made if they are not there."""
    place = folder / f"databus_kept_{events}"
    if not Store(None, place).snapshot().has(EVENTS):
        keep(place, events)
    command = [sys.executable, "-m", "benchmarks.databus_dispatch", str(place), str(events)]
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return found


def keep(place: Path, events: int) -> None:
    """Windows of ten events of one source, as a relay keeps them."""
    with Store(None, place).begin() as transaction:
        for start in range(0, events, AT_ONCE):
            rows = _rows(np.arange(start, min(start + AT_ONCE, events)))
            transaction.append(EVENTS, rows, partition_by=STREAM)
        transaction.commit()


def _rows(number: Any) -> pa.Table:
    count, window = len(number), number // PER_WINDOW + 1
    at = pa.array(window * 1_000_000, pa.timestamp("us", "UTC"))
    tails = pc.utf8_lpad(pa.array(number).cast(pa.string()), 8, "N").cast(pa.binary())
    return pa.table(
        {
            "topic": ["t"] * count,
            "partition": np.zeros(count, np.int32),
            "physical_partition": np.ones(count, np.int32),
            "window": window,
            "window_state": ["complete"] * count,
            "window_start_scn": window,
            "window_end_scn": window,
            "window_timestamp": at,
            "kind": ["data"] * count,
            "source_id": np.full(count, PLANES.id, np.int32),
            "scn": window,
            "opcode": ["UPSERT"] * count,
            "long_key": number,
            "string_key": pa.nulls(count, pa.string()),
            "event_timestamp": at,
            "schema_id": [next(iter(PLANES.texts))] * count,
            "payload": pc.binary_join_element_wise(pa.array([b"\x10"] * count), tails, b""),
            "error_code": pa.nulls(count, pa.string()),
        }
    )


def main(place: Path, events: int) -> None:
    """Dispatch all windows, and print what that took."""
    stream = RelayStream(Store(None, place), [PLANES], {})
    began, cpu = time.perf_counter(), time.process_time()
    outcome = databus.dispatch(stream, Nothing())
    told = {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - cpu}
    if (outcome.state, outcome.windows) != ("finished", -(-events // PER_WINDOW)):
        raise RuntimeError(f"all windows should have been delivered, not {outcome}")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({**told, "peak_memory_mb": memory >> 10, "windows": outcome.windows}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
