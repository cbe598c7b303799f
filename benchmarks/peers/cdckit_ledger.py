"""A ledger takes the changes of each day."""

from __future__ import annotations

import sys
from pathlib import Path

from taken import each_day

import cdckit
from cdckit.tables import changes_from


def main(days: Path, work: Path, many: int) -> None:
    """Take the days."""
    spark = cdckit.session(memory="2g")
    ledger = cdckit.Ledger(spark, work / "ledger", entity="flight", keys=["number"])

    def take(day: int) -> None:
        rows = spark.read.parquet(str(days / f"changes_{day}.parquet"))
        ledger.apply(
            changes_from(
                rows,
                keys=["number"],
                sequence_by="changed_at",
                apply_as_deletes="deleted",
                except_column_list=["deleted"],
            )
        )

    each_day(take, work, many)
    versions = ledger.history().where("NOT deleted_indicator")
    versions.selectExpr(
        "number", "gate", "status", "valid_from_timestamp AS valid_from", "valid_to_timestamp AS valid_to"
    ).toPandas().to_parquet(work / "answer.parquet")


main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
