"""`whole_entities`: batches that never split an entity, however the rows were cut before."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdckit.parts import arrays
from cdckit.parts.arrays import whole_entities
from tools.tiers import examples

# Entities in order, each with its number of rows; a null part of the key is a value like any other.
ENTITIES = st.lists(st.integers(1, 6), min_size=1, max_size=12)
CUTS = st.lists(st.integers(0, 40), max_size=12)


def rows(sizes: list[int]) -> pa.RecordBatch:
    keys = [
        (number // 2 or None, number % 2 or None) for number, size in enumerate(sizes) for _ in range(size)
    ]
    return pa.RecordBatch.from_pydict(
        {
            "a": pa.array([a for a, _ in keys], pa.int64()),
            "b": pa.array([b for _, b in keys], pa.int64()),
            "position": pa.array(range(len(keys)), pa.int64()),
        }
    )


def cut(batch: pa.RecordBatch, places: list[int]) -> list[pa.RecordBatch]:
    bounds = [0, *sorted(place for place in places if place < batch.num_rows), batch.num_rows]
    return [batch.slice(start, end - start) for start, end in pairwise(bounds)]


@pytest.mark.drawn
@settings(**examples(100, soak=5_000), database=None)
@given(sizes=ENTITIES, places=CUTS, at_once=st.integers(1, 12))
def test_all_rows_come_out_in_order_and_no_entity_comes_out_in_two_parts(
    sizes: list[int], places: list[int], at_once: int
) -> None:
    batch = rows(sizes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrays, "ROWS_AT_ONCE", at_once)
        whole = [part.to_pylist() for part in whole_entities(iter(cut(batch, places)), ["a", "b"])]
    assert [row for part in whole for row in part] == batch.to_pylist()
    keys = [{(row["a"], row["b"]) for row in part} for part in whole]
    assert sum(map(len, keys)) == len(sizes)


def test_rows_are_handed_on_as_soon_as_there_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of entities with 3 rows each, in batches of 2 and with 4 rows at once, never more than 6 are held."""
    monkeypatch.setattr(arrays, "ROWS_AT_ONCE", 4)
    batches = cut(rows([3] * 20), list(range(0, 60, 2)))
    sizes = [part.num_rows for part in whole_entities(iter(batches), ["a", "b"])]
    assert sum(sizes) == 60
    assert max(sizes) <= 6


def test_no_batches_give_no_batches() -> None:
    assert list(whole_entities(iter([]), ["a"])) == []
    assert list(whole_entities(iter([rows([])]), ["a", "b"])) == []
