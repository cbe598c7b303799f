"""
The same days of changes through cdckit and its peers, each in an environment of its own.

    python -m benchmarks.peers [--work DIR] [--flights N…] [NAME…]

A feed of ten days about so many flights: a tenth of them changes each day, a tenth of the changes is late by
one to three days, and some flights are deleted.  A peer takes a day at a time, its changes or the whole table
as a replica has it, and ends with a table of versions.  Held against it is what a plain loop over all changes
says: at the end of each day, which gate and status had each flight?  The memory is what all processes of a
peer held at most.  Written to `benchmarks/peers.json`; what cannot be had is named.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import subprocess
import venv
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measure import MEGABYTE, PeakMemory

HERE = Path(__file__).parent
SIZES, DAYS = (100_000, 1_000_000), 10
START = datetime(2024, 3, 1, tzinfo=UTC)


class Peer(NamedTuple):
    """A program that takes the days, and what it needs beside pyarrow."""

    name: str
    script: str
    needs: tuple[str, ...]


PEERS = [
    Peer("cdckit, a ledger", "cdckit_ledger", (str(HERE.parents[1]),)),
    Peer("pandas, all changes folded again", "pandas_fold", ("pandas>=2.2,<3",)),
    Peer("Delta, MERGE by hand", "delta_merge", ("pyspark==4.1.4", "pandas<3")),
    Peer("dlt, scd2, on DuckDB", "dlt_scd2", ("dlt[duckdb]==1.31.0", "pandas")),
    Peer("dbt, a snapshot, on DuckDB", "dbt_snapshot", ("dbt-core<1.11", "dbt-duckdb<1.11")),
    Peer("Spark's AUTO CDC, type 1, on Delta", "auto_cdc", ("pyspark[pipelines]==4.2.1", "pandas<3")),
]


class Change(NamedTuple):
    """One row of the feed; a deleted flight has no gate and no status."""

    number: int
    gate: str | None
    status: str | None
    changed_at: datetime
    deleted: bool


def feed(flights: int) -> list[list[Change]]:
    """The changes by the day of their arrival; the first day brings every flight."""
    chance = random.Random(1)
    days: list[list[Change]] = [[] for _ in range(DAYS + 1)]
    days[0] = [_change(chance, number, START) for number in range(flights)]
    for day in range(1, DAYS + 1):
        begin = START + timedelta(days=day)
        for number in chance.sample(range(flights), flights // DAYS):
            at = begin + timedelta(seconds=chance.randrange(1, 86_000))
            late = chance.randrange(1, 4) if chance.random() < 0.1 else 0
            days[min(day + late, DAYS)].append(_change(chance, number, at, chance.random() < 0.02))
    return days


def _change(chance: random.Random, number: int, at: datetime, deleted: bool = False) -> Change:
    gate, status = f"{chance.choice('ABCDE')}{chance.randrange(40)}", chance.choice(["due", "late", "left"])
    return Change(number, None if deleted else gate, None if deleted else status, at, deleted)


def ends() -> list[datetime]:
    """The last instant of each day."""
    return [START + timedelta(days=day + 1) for day in range(DAYS + 1)]


State = dict[int, tuple[str | None, str | None]]


def truth(days: list[list[Change]]) -> list[State]:
    """The flights that there were at the end of each day, and where."""
    by_time = sorted((one for day in days for one in day), key=lambda one: one.changed_at)
    found, state, place = [], State(), 0
    for end in ends():
        while place < len(by_time) and by_time[place].changed_at < end:
            one, place = by_time[place], place + 1
            if one.deleted:
                state.pop(one.number, None)
            else:
                state[one.number] = one.gate, one.status
        found.append(dict(state))
    return found


def write_days(days: list[list[Change]], folder: Path) -> None:
    """What arrived on each day, and the table as a replica by the latest change has it then."""
    newest: dict[int, Change] = {}
    for day, changes in enumerate(days):
        for one in changes:
            if one.number not in newest or newest[one.number].changed_at < one.changed_at:
                newest[one.number] = one
        _write(changes, folder / f"changes_{day}.parquet")
        _write([one for one in newest.values() if not one.deleted], folder / f"table_{day}.parquet")


def _write(rows: list[Change], path: Path) -> None:
    kind = pa.timestamp("us", "UTC")
    schema = pa.schema(
        [
            ("number", pa.int64()),
            ("gate", pa.string()),
            ("status", pa.string()),
            ("changed_at", kind),
            ("deleted", pa.bool_()),
        ]
    )
    pq.write_table(pa.Table.from_pylist([one._asdict() for one in rows], schema), path)


def run(peer: Peer, folder: Path, days: Path, expected: list[State]) -> dict[str, Any]:
    """What a peer took for each day, and how much of its answer is right."""
    home = folder / peer.script
    python = home / "environment" / "bin" / "python"
    work = home / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    venv.create(home / "environment", with_pip=True)
    install = [str(python), "-m", "pip", "install", "--quiet", "pyarrow>=19", *peer.needs]
    take = [str(python), str(HERE / f"{peer.script}.py"), str(days), str(work), str(DAYS)]
    for command in (install, take):
        own = psutil.Process().memory_info().rss // MEGABYTE
        with PeakMemory() as peak:
            done = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)
        if done.returncode:
            said = [line for line in (done.stdout + done.stderr).splitlines() if "rror" in line]
            return {"name": peer.name, "failed": said[0] if said else "no word"}
    seconds: list[float] = json.loads((work / "seconds.json").read_text())
    table = pq.read_table(work / "answer.parquet")
    utc = {name: table[name].cast(pa.timestamp("us", "UTC")) for name in ("valid_from", "valid_to")}
    answer = pa.table({**{name: table[name] for name in ("number", "gate", "status")}, **utc}).to_pylist()
    return {
        "name": peer.name,
        "first day": round(seconds[0], 1),
        "a later day": round(statistics.median(seconds[1:]), 2),
        "peak memory, MB": peak.megabytes - own,
        **_score(answer, expected),
    }


def _score(answer: list[dict[str, Any]], expected: list[State]) -> dict[str, Any]:
    """Of all flights at the ends of all days, how many are as they should be; and at the last end alone."""
    by_number = defaultdict(list)
    for row in answer:
        by_number[row["number"]].append(row)
    wrong = []
    for end, state in zip(ends(), expected, strict=True):
        found = {
            number: (row["gate"], row["status"])
            for number, rows in by_number.items()
            for row in rows
            if row["valid_from"] < end and (row["valid_to"] is None or row["valid_to"] >= end)
        }
        wrong.append(sum(found.get(each) != state.get(each) for each in {*found, *state}))
    return {"wrong answers, all days": sum(wrong), "wrong answers, the last day": wrong[-1]}


def main() -> None:
    """Run those that are named, or all."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", help=f"of {', '.join(each.script for each in PEERS)}")
    parser.add_argument("--work", type=Path, default=HERE.parent / "work" / "peers")
    parser.add_argument("--flights", type=int, nargs="+", default=SIZES)
    given = parser.parse_args()
    results = []
    for flights in given.flights:
        days = given.work.resolve() / f"days_{flights}"
        days.mkdir(parents=True, exist_ok=True)
        changes = feed(flights)
        write_days(changes, days)
        expected = truth(changes)
        for peer in PEERS:
            if not given.names or peer.script in given.names:
                results.append({"flights": flights, **run(peer, given.work.resolve(), days, expected)})
                print(json.dumps(results[-1]), flush=True)
    if not given.names:
        (HERE.parent / "peers.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
