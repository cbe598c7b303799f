"""What workers do for a relay, without Spark: any batches give what one batch gives."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdckit.databus.event_stream import EVENTS
from cdckit.databus.relay_intake import RANK, adopt_files, make_task, write_events
from cdckit.databus.relay_tables import read_states
from cdckit.databus.window_batches import PartitionState
from cdckit.shell.waiting import WAITING
from cdckit.store import Store
from support.databus_streams import COLUMNS, cut_rows, events_of
from tools.tiers import examples

ROW = pa.schema([*COLUMNS, ("value", pa.binary()), (RANK, pa.int32())])
WINDOWED = [
    *COLUMNS.names[:-1],
    "window",
    "window_state",
    "window_start_scn",
    "window_end_scn",
    "window_position",
]

Rows = list[dict[str, Any]]


def receive(store: Store, records: Rows) -> int:
    """One batch, as `Intake` has it done; how many records were new."""
    with store.begin() as tables:
        rows = sorted(({RANK: 0, **row} for row in records), key=place_of)
        batches = [pa.RecordBatch.from_pylist(rows[at : at + 5], ROW) for at in range(0, len(rows), 5)]
        task = make_task(tables, (tables.base.version or 0) + 1)
        reports = [json.loads(json.dumps(report)) for report in write_events(batches, task=task)]
        adopt_files(tables, task, reports)
        tables.commit()
    return sum(int(report["rows"]) for report in reports)


def place_of(row: dict[str, Any]) -> tuple[Any, ...]:
    physical = row["physical_partition"]
    offset = -1 if row["offset"] is None else row["offset"]
    return row["topic"], row["partition"], offset, row[RANK], -1 if physical is None else physical


def read_windowed(store: Store) -> Rows:
    rows = store.snapshot().arrow(EVENTS).to_pylist()
    states = {
        place: msgspec.json.decode(text, type=PartitionState)
        for place, text in read_states(store.begin()).items()
    }
    starts = {
        (*place, number): stream.window.start_scn
        for place, state in states.items()
        for number, stream in state.streams.items()
    }
    for row in store.snapshot().arrow(WAITING).to_pylist():
        start = starts.get((row["topic"], row["partition"], row["physical_partition"]))
        rows.append({**row, "window_start_scn": start})
    windowed_rows = [{name: row[name] for name in WINDOWED} for row in rows]
    return sorted(windowed_rows, key=lambda row: (row["topic"], row["offset"] or 0))


def stream(text: str) -> Rows:
    return [{**row, "value": word.encode()} for row, word in zip(events_of(text), text.split(), strict=True)]


SIGNS = st.sampled_from("aaaabb....<!x?")
WORDS = st.tuples(SIGNS, st.integers(0, 9)).map(lambda pair: f"{pair[0]}{pair[1]}")


@pytest.mark.drawn
@settings(**examples(10, soak=2_000), deadline=None)
@given(
    st.lists(st.tuples(WORDS, st.integers(1, 2)), min_size=1, max_size=30),
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4)), min_size=1, max_size=5),
)
def test_any_batches_with_repeats_give_what_one_batch_gives(
    words: list[tuple[str, int]], sizes: list[tuple[int, int]]
) -> None:
    """Two streams of one partition; each batch brings some records before it once more."""
    rows = stream(" ".join(word for word, _ in words))
    for row, (_, physical) in zip(rows, words, strict=True):
        row["physical_partition"] = physical if row["physical_partition"] is not None else None
    with TemporaryDirectory() as folder:
        store, start = Store(None, folder), 0
        for size, again in [*sizes, (len(rows), 0)]:
            stop = min(start + size, len(rows))
            assert receive(store, rows[max(0, start - again) : stop]) == stop - start
            start = stop
        expected = [{name: row[name] for name in WINDOWED} for row in cut_rows(rows)]
        assert read_windowed(store) == expected


def codes(store: Store) -> list[tuple[int, str]]:
    return [(row["offset"], row["error_code"]) for row in read_windowed(store) if row["error_code"]]


def test_a_record_in_the_place_of_another_has_none(tmp_path: Path) -> None:
    store = Store(None, tmp_path)
    sent = stream("a1 b1 .1 a2 b2 .2")
    other = {**sent[1], "value": b"other"}
    assert receive(store, [sent[0], sent[1], other, sent[2]]) == 4
    assert codes(store) == [(1, "PLACE_TAKEN")]
    assert receive(store, [*sent[:2], other, {**sent[2], "value": b"x"}, *sent[4:]]) == 3
    assert receive(store, [sent[3]]) == 1
    assert codes(store) == [(1, "PLACE_TAKEN"), (2, "PLACE_TAKEN"), (3, "PLACE_TAKEN")]


def test_a_record_without_an_offset_is_refused_and_stops_none(tmp_path: Path) -> None:
    """Alone in a batch, before others, and behind a batch of which a file has no offset at all."""
    store, nowhere = Store(None, tmp_path), {**stream("?")[0], "offset": None}
    sent = stream("a1 .1 a2 .2")
    assert receive(store, [nowhere]) == 1
    assert receive(store, [nowhere, *sent[:2]]) == 3
    assert receive(store, sent[1:]) == 2
    assert codes(store) == [(None, "PLACE_TAKEN")] * 2
    assert sum(row["window_state"] == "complete" for row in read_windowed(store)) == 4


def test_one_place_holds_one_record_whatever_its_physical_partition(tmp_path: Path) -> None:
    """In one batch, of several streams, that of the lowest; in several batches the one that came first."""
    first, other = stream("a1 .1 a2 .2"), stream("a3 a3 .3 .3")
    for row, offset in zip(other, (1, 4, 2, 5), strict=True):
        row.update(physical_partition=2, offset=offset)
    ways = [[*other, *first]], [first, other], [first[:1], [*first[1:], *other]]
    for number, batches in enumerate(ways):
        store = Store(None, tmp_path / str(number))
        assert sum(receive(store, sent) for sent in batches) == 8
        assert codes(store) == [(1, "PLACE_TAKEN"), (2, "PLACE_TAKEN")]
        states = [
            (row["offset"], row["window_state"]) for row in read_windowed(store) if not row["error_code"]
        ]
        assert states == [(at, "complete") for at in range(6)]


def test_a_record_that_is_known_to_have_no_place_takes_none(tmp_path: Path) -> None:
    store = Store(None, tmp_path)
    aside = {**stream("?")[0], "offset": 1, RANK: 1}
    assert receive(store, [*stream("a1 b1 .1"), aside]) == 4
    assert codes(store) == [(1, "PLACE_TAKEN")]
    assert [row["window_state"] for row in read_windowed(store) if not row["error_code"]] == ["complete"] * 3


def test_a_window_over_many_batches_is_written_once_and_passes_when_it_ends(tmp_path: Path) -> None:
    """Of its rows each batch writes those that came."""
    store = Store(None, tmp_path)
    for at in range(20):
        receive(store, [{**stream("a5")[0], "offset": at}])
    assert [file.rows for file in store.snapshot().files(WAITING)] == [1] * 20
    assert not store.snapshot().files(EVENTS)
    receive(store, [{**stream(".6")[0], "offset": 20}])
    assert not store.snapshot().files(WAITING)
    rows = store.snapshot().arrow(EVENTS).to_pylist()
    assert [row["offset"] for row in rows] == list(range(21))
    assert [row["window_position"] for row in rows] == [*range(1, 21), None]
    assert {(row["window_state"], row["window_start_scn"], row["window_end_scn"]) for row in rows} == {
        ("complete", 5, 6)
    }
