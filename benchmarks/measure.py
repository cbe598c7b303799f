"""Measuring: what is compared runs side by side, in turns, and the median counts."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import psutil
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

MEGABYTE = 1 << 20


@dataclass(frozen=True)
class Result:
    """One line of `results.json`; `bar` is null where a ratio is printed for honesty alone."""

    name: str
    ratio: float
    bar: float | None
    better: str
    seconds: float
    peak_memory_mb: int
    result_hash: str

    @classmethod
    def of(
        cls, name: str, ratio: float, bar: float | None, took: Timing, digest: str, *, better: str = "lower"
    ) -> Result:
        """A result of what was timed, rounded."""
        seconds, memory = round(took.seconds, 2), took.peak_memory_mb
        return cls(name, round(ratio, 2), bar, better, seconds, memory, digest)

    @property
    def verdict(self) -> str:
        if self.bar is None:
            return "-"
        met = self.ratio >= self.bar if self.better == "higher" else self.ratio <= self.bar
        return "met" if met else "MISSED"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Timing:
    """The median of several runs of one thing, and the most memory that any of them took."""

    seconds: float
    peak_memory_mb: int


def side_by_side(
    runs: Mapping[str, Callable[[], object]], *, rounds: int = 3, warm_up: bool = True
) -> dict[str, Timing]:
    """Run all *runs* in turn, *rounds* times after one turn that does not count, and take medians."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    memory: dict[str, int] = dict.fromkeys(runs, 0)
    for turn in range(0 if warm_up else 1, rounds + 1):
        for name, run in runs.items():
            with PeakMemory() as peak:
                began = time.perf_counter()
                run()
                took = time.perf_counter() - began
            print(f"  {name:<36}{took:8.1f} s{'   (warm-up)' if turn == 0 else ''}", flush=True)
            if turn:
                seconds[name].append(took)
                memory[name] = max(memory[name], peak.megabytes)
    return {name: Timing(statistics.median(seconds[name]), memory[name]) for name in runs}


class PeakMemory:
    """
    The most resident memory that this process and its children (the JVM, its workers) held together.

    Pages that forked workers share are counted for each of them: an upper bound.
    """

    def __init__(self, every: float = 0.2) -> None:
        self.megabytes = 0
        self._every = every
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        here = psutil.Process()
        while not self._done.wait(self._every):
            self.megabytes = max(self.megabytes, _resident(here) // MEGABYTE)


def _resident(process: psutil.Process) -> int:
    total = 0
    for each in [process, *process.children(recursive=True)]:
        try:
            total += each.memory_info().rss
        except psutil.NoSuchProcess:
            continue  # a worker that ended between the listing and the look
    return total


def content_hash(frame: DataFrame) -> str:
    """A hash of the rows of *frame* as a set with multiplicity: order and partitions do not matter."""
    # Spelled out: by default the text of a timestamp without a zone ends at its milliseconds.
    exact = {f"timestamp{zone}Format": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS" for zone in ("", "NTZ")}
    columns = [F.to_json(F.struct(*frame.columns), exact)]
    hashed = frame.select(F.xxhash64(*columns).cast("decimal(20,0)").alias("hash"))
    total, rows = hashed.agg(F.sum("hash"), F.count("*")).collect()[0]
    return f"{(int(total or 0) % 2**64):016x}-{rows}"
