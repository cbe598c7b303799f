"""All changes so far are sorted and folded again each day, in the memory of one program."""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
from taken import each_day


def main(days: Path, work: Path, many: int) -> None:
    """Take the days."""
    known: list[pd.DataFrame] = []

    def take(day: int) -> None:
        known.append(pd.read_parquet(days / f"changes_{day}.parquet"))
        rows = pd.concat(known).sort_values(["number", "changed_at"], kind="stable")
        rows["valid_to"] = rows.groupby("number")["changed_at"].shift(-1)
        versions = rows[~rows["deleted"]].rename(columns={"changed_at": "valid_from"})
        versions[["number", "gate", "status", "valid_from", "valid_to"]].to_parquet(work / "answer.parquet")

    each_day(take, work, many)


main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
