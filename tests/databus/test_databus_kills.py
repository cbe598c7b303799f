"""Consumers of a relay's windows that are killed, and go on from the checkpoint in a store."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from cdckit import databus
from cdckit.databus.event_stream import EVENTS, RelayStream
from cdckit.databus.window_batches import STREAM
from cdckit.store import Store
from tools.tiers import seeds

SCHEMA = '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}'
A, B = databus.Source(97, "a", [SCHEMA]), databus.Source(98, "b", [SCHEMA])
BOTH = [B, A]
WINDOWS, PER_WINDOW = 60, 5


def keep_windows(place: Path, first: int, last: int) -> Store:
    """Windows of five events, of a and b in turn, as a relay keeps them."""
    store = Store(None, place)
    number = np.repeat(np.arange(first, last + 1), PER_WINDOW)
    count = len(number)
    source = np.where(np.arange(count) % 2, 98, 97).astype(np.int32)
    columns = {
        "topic": pa.array(["t"] * count), "partition": np.zeros(count, np.int32),
        "physical_partition": np.ones(count, np.int32), "window": number,
        "window_state": pa.array(["complete"] * count), "window_start_scn": number, "window_end_scn": number,
        "window_timestamp": pa.array(number * 1_000_000, pa.timestamp("us", "UTC")),
        "kind": pa.array(["data"] * count), "source_id": source, "scn": number,
        "opcode": pa.array(["UPSERT"] * count), "long_key": np.arange(count),
        "string_key": pa.nulls(count, pa.string()), "schema_id": pa.nulls(count, pa.string()),
        "event_timestamp": pa.array(number * 1_000_000, pa.timestamp("us", "UTC")),
        "payload": pa.nulls(count, pa.binary()), "error_code": pa.nulls(count, pa.string()),
    }  # fmt: skip
    with store.begin() as transaction:
        transaction.append(EVENTS, pa.table(columns), partition_by=STREAM)
        transaction.commit()
    return store


class Noting(databus.Consumer):
    """Writes down each event, and is killed after some callbacks."""

    def __init__(self, path: Path, left: int) -> None:
        self.path, self.left = path, left

    def _note(self, text: str = "") -> databus.Result:
        self.left -= 1
        if self.left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        if text:
            with self.path.open("a") as file:
                file.write(f"{text}\n")
        return databus.Result.SUCCESS

    def on_start_data_event_sequence(self, start_scn: int) -> databus.Result:
        return self._note()

    def on_end_data_event_sequence(self, end_scn: int) -> databus.Result:
        return self._note()

    def on_start_source(self, source: databus.Source) -> databus.Result:
        return self._note()

    def on_data_event(self, event: databus.Event) -> databus.Result:
        return self._note(f"{event.scn} {event.source.name} {event.key}")

    def on_checkpoint(self, scn: int) -> databus.Result:
        return self._note()


def live(place: Path, left: int) -> None:
    """One life of the consumer."""
    store = Store(None, place)
    kept = databus.StoredCheckpoints(store, "noting")
    consumer = Noting(place / "seen", left)
    outcome = databus.dispatch(RelayStream(store, BOTH, {}), consumer, checkpoints=kept)
    raise SystemExit(0 if outcome.state == "finished" else 1)


@pytest.mark.soak
@seeds(1, soak=1)
def test_a_consumer_killed_at_100_random_callbacks_misses_nothing(tmp_path: Path, seed: int) -> None:
    """Each life is a program that is killed; what it repeats is the window that was open, at most."""
    keep_windows(tmp_path, 1, WINDOWS * 4)
    draw, kills, began = random.Random(seed), 0, [0]
    seen = tmp_path / "seen"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}  # this file imports from tools
    while True:
        left = draw.randint(3, 25) if kills < 100 else 10**6
        life = [sys.executable, __file__, str(tmp_path), str(left)]
        done = subprocess.run(life, env=environment, check=False)
        began.append(len(seen.read_text().splitlines()) if seen.exists() else 0)
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL
        kills += 1
    assert kills == 100
    lines = [line.split() for line in seen.read_text().splitlines()]
    _nothing_missed(lines, began, WINDOWS * 4)


def _nothing_missed(lines: list[list[str]], began: list[int], windows: int) -> None:
    right = {(window, key) for window in range(1, windows + 1) for key in _keys(window)}
    assert {(int(scn), int(key)) for scn, _, key in lines} == right
    for start in began:
        if 0 < start < len(lines):
            assert int(lines[start][0]) - int(lines[start - 1][0]) in (0, 1)


def _keys(window: int) -> range:
    return range((window - 1) * PER_WINDOW, window * PER_WINDOW)


def test_a_consumer_sees_its_order_and_goes_on_behind_the_checkpoint(tmp_path: Path) -> None:
    """Windows that are in one file and in the next, of two sources that came in turn."""
    place = tmp_path / "store"
    store = keep_windows(place, 1, 3)
    kept = databus.StoredCheckpoints(store, "noting")
    stream = RelayStream(store, BOTH, {})
    first = Noting(tmp_path / "first", 10**6)
    assert databus.dispatch(stream, first, checkpoints=kept).checkpoint == 3
    keep_windows(place, 4, 5)
    second = Noting(tmp_path / "second", 10**6)
    outcome = databus.dispatch(stream, second, checkpoints=kept, checkpoint_every=60.0)
    assert (outcome.windows, kept.load()) == (2, 5)
    order = [line.split()[:2] for line in (tmp_path / "second").read_text().splitlines()]
    assert order == [
        *([["4", "b"]] * 2), *([["4", "a"]] * 3), *([["5", "b"]] * 3), *([["5", "a"]] * 2),
    ]  # fmt: skip


def test_a_window_of_many_batches_comes_source_by_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Held in files, and given back once."""
    monkeypatch.setattr("cdckit.databus.event_stream._ROWS_AT_ONCE", 7)
    monkeypatch.setattr("cdckit.databus.window_batches.MAX_BYTES", 100)
    monkeypatch.setattr(sys.modules[__name__], "PER_WINDOW", 50)
    store = keep_windows(tmp_path, 1, 2)
    for sources, expected in ((BOTH, [98] * 25 + [97] * 25), ([B], [98] * 25)):
        windows = RelayStream(store, sources, {}).windows()
        seen_windows = [
            (window.end_scn, window.table().column("source_id").to_pylist()) for window in windows
        ]
        assert seen_windows == [(1, expected), (2, expected)]


if __name__ == "__main__":
    live(Path(sys.argv[1]), int(sys.argv[2]))
