"""
Run the benchmarks, print a table, and write benchmarks/results.json and the tables of docs/limits.md.

    python -m benchmarks [--only demo first decode …] [--work DIR]

The first run makes the year's stream (a few minutes) and random changes in the work directory; later
runs find them there.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks import (
    backlog,
    databus,
    debezium,
    debezium_streams,
    decode,
    first_answer,
    hub,
    joining,
    ledger,
    merging,
    outputs,
    overlaying,
    quality,
    query,
    rdss,
)
from benchmarks.measure import PeakMemory, Result
from cdckit import session
from tools.site import costs

HERE = Path(__file__).parent
MEMORY = "4g"
DEMO_SECONDS = 60
# The demo first: later the JVM of the others would count as its memory.
PARTS = [
    "demo",
    "first",
    "decode",
    "merge",
    "ledger",
    "joins",
    "questions",
    "outputs",
    "suites",
    "hub",
    "small",
    "rdss",
    "databus",
    "streams",
    "events",
    "avro",
    "backlog",
    "trickle",
]


def main(arguments: list[str]) -> int:
    """Run the program; the exit code is 1 if a bar was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.split("\n")[1])
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--work", type=Path, default=HERE / "work", help="where inputs and outputs are kept")
    given = parser.parse_args(arguments)
    given.work.mkdir(parents=True, exist_ok=True)
    runs: dict[str, Callable[[], list[Result]]] = {
        "decode": lambda: decode.results(_session(), _year(given.work), given.work),
        "merge": lambda: merging.results(_session(), given.work),
        "ledger": lambda: ledger.results(_session(), given.work),
        "joins": lambda: joining.results(_session(), given.work),
        "questions": lambda: [
            *query.results(_session(), given.work),
            *overlaying.results(_session(), given.work),
        ],
        "outputs": lambda: outputs.results(_session(), given.work),
        "suites": lambda: quality.results(_session(), given.work),
        "hub": lambda: hub.results(_session(), given.work),
        "small": lambda: hub.small_results(_session(), given.work),
        "rdss": lambda: rdss.results(_session(), given.work),
        "databus": lambda: databus.results(_session(), given.work),
        "events": lambda: debezium.results(_session(), given.work),
        "avro": lambda: debezium.avro_results(_session(), given.work),
        "backlog": lambda: backlog.results(_session(), _year(given.work), given.work),
        "trickle": lambda: backlog.trickle_results(given.work),
        "streams": lambda: debezium_streams.results(_session(), given.work),
        "demo": demo,
        "first": first_answer.results,
    }
    results = []
    for name in given.only:
        print(f"{name}:", flush=True)
        results += runs[name]()
    _print(results)
    _save(results)
    return int(any(result.verdict == "MISSED" for result in results))


def _session() -> SparkSession:
    jar = os.environ.get("SPARK_AVRO_JAR")
    return session(app_name="cdckit benchmarks", memory=MEMORY, config={"spark.jars": jar} if jar else None)


def _year(work: Path) -> Path:
    year = work / "year"
    if not (year / "manifest.json").exists():
        print("  making the year's stream ...", flush=True)
        subprocess.run([sys.executable, "-m", "tools.samples", "--year", str(year)], check=True)
    return year


def demo() -> list[Result]:
    """The README's first command after installation, as a share of a minute."""
    with PeakMemory() as peak:
        began = time.perf_counter()
        said = subprocess.run([sys.executable, "-m", "tools.demo"], check=True, capture_output=True).stdout
        took = time.perf_counter() - began
    digest = hashlib.sha256(said).hexdigest()[:16]
    ratio = round(took / DEMO_SECONDS, 2)
    return [Result("demo_over_one_minute", ratio, 1.0, "lower", round(took, 2), peak.megabytes, digest)]


def _print(results: list[Result]) -> None:
    line = "{:<34}{:>8}{:>7} {:<8}{:>9}{:>9}  {:<26}{}"
    print("\n" + line.format("name", "ratio", "bar", "better", "seconds", "peak MB", "result hash", "bar is"))
    for result in results:
        bar = "" if result.bar is None else f"{result.bar:g}"
        cells = (result.name, f"{result.ratio:.2f}", bar, result.better, f"{result.seconds:.1f}")
        print(line.format(*cells, result.peak_memory_mb, result.result_hash, result.verdict))


def _save(results: list[Result]) -> None:
    """Replace what was measured anew; a run of one part leaves the others' lines as they were."""
    path = HERE / "results.json"
    kept = {entry["name"]: entry for entry in (json.loads(path.read_text()) if path.exists() else [])}
    kept.update({result.name: result.as_dict() for result in results})
    path.write_text(json.dumps(list(kept.values()), indent=2) + "\n")
    costs.write_page()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
