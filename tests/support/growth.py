"""How work grows with what it is given: by the processor time of its own thread, which others cannot take."""

from __future__ import annotations

import time
from collections.abc import Callable


def growth(run: Callable[[int], object], few: int, *, times: int = 4) -> float:
    """
    How often the time for *few* fits into that for *times* as many.

    The least of three turns each, since what disturbs only adds: about *times* where the time is in
    proportion to what is given, about its square where all is looked at again for each part.
    """
    took: dict[int, list[float]] = {few: [], few * times: []}
    for _ in range(3):
        for many, found in took.items():
            began = time.thread_time()
            run(many)
            found.append(time.thread_time() - began)
    return min(took[few * times]) / min(took[few])
