"""
One of two processes that write to the same place at the same time.

    python write_for_a_while.py ledger folder which seconds
    python write_for_a_while.py store folder which seconds

It begins when `folder/go` is there.  Of the batches in `folder/batches`, those of `which` and those of `both`
are its own.  It prints each that it took, and whether somebody had taken it before.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

from cdckit import session
from cdckit.store import ConflictingCommit, Store
from support.killed_programs import ledger_of
from support.store_numbers import numbers

LEAST = 8
"""How many batches each takes, however long that lasts."""


def main(what: str, folder: Path, which: str, seconds: float) -> None:
    take = {"ledger": _ledger, "store": _store}[what](folder, which)
    names = sorted(
        path.name for path in (folder / "batches").iterdir() if path.name.split(" ")[1] in (which, "both")
    )
    print("ready", flush=True)
    while not (folder / "go").exists():
        time.sleep(0.02)
    until = time.monotonic() + seconds
    taken = 0
    for name in names:
        if time.monotonic() > until and taken >= LEAST:
            break
        if take(name):
            taken += 1
            print("took", name, flush=True)
        else:
            print("had been taken", name, flush=True)
    print("done", flush=True)


def _ledger(folder: Path, which: str) -> Callable[[str], bool]:
    spark = session(app_name=which, memory="1g", config={"spark.sql.shuffle.partitions": "2"})
    ledger = ledger_of(spark, folder)

    def take(name: str) -> bool:
        return not ledger.apply(spark.read.parquet(str(folder / "batches" / name)), name).repeated

    return take


def _store(folder: Path, which: str) -> Callable[[str], bool]:
    """Its number goes to a table that both append to; how many are there, to one that both replace."""
    store = Store(None, folder / "store")

    def take(name: str) -> bool:
        number = int(name.split(" ")[0])
        while True:
            with store.begin() as transaction:
                count = len(transaction.base.arrow("log")) if transaction.has("log") else 0
                transaction.append("log", numbers(number))
                transaction.append(f"of {name.split(' ')[1]}", numbers(number))
                transaction.replace("count", numbers(count + 1))
                try:
                    return not transaction.commit(batch=name, digest=number, reads=["log"]).repeated
                except ConflictingCommit:
                    continue

    return take


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], float(sys.argv[4]))
