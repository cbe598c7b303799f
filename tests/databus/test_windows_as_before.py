"""The machine beside the rules that it replaces, for one commit."""

from __future__ import annotations

import random
from typing import Any

import pytest

from cdckit.databus import window_batches, window_rows
from support.databus_streams import batches_of, events_of


def drawn_stream(seed: int) -> str:
    """Words of a stream, with SCNs that mostly grow."""
    draw, scn, words = random.Random(seed), 3, []
    step = draw.choice([(0, 1), (0, 1, 1, 2, -1), (0, 1, 2, 3, -1, -4)])
    for _ in range(draw.randint(1, 70)):
        scn = max(0, scn + draw.choice(step))
        words.append(f"{draw.choice('aaaaabbb....<!?ce')}{scn}")
    return " ".join(words)


def told(module: Any, events: list[dict[str, Any]], output: str, sizes: list[int]) -> list[dict[str, Any]]:
    cut = module.cut_batches(batches_of(events, sizes), output=output)
    return [row for batch in cut for row in batch.to_pylist()]


@pytest.mark.parametrize("part", range(4))
def test_random_streams_are_cut_as_before(part: int) -> None:
    for seed in range(part * 1000, part * 1000 + 1000):
        events = events_of(drawn_stream(seed))
        sizes = random.Random(seed).choice([[], [3] * 30, [1, 7, 2, 20]])
        for output in ("events", "consistent", "windows", "kept"):
            before, now = (told(each, events, output, sizes) for each in (window_rows, window_batches))
            assert now == before, (seed, output)
