"""How long each day took a peer."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path


def each_day(take: Callable[[int], object], work: Path, many: int) -> None:
    """Let it take one day after the other, and write the seconds."""
    seconds = []
    for day in range(many + 1):
        began = time.perf_counter()
        take(day)
        seconds.append(time.perf_counter() - began)
    (work / "seconds.json").write_text(json.dumps(seconds))
