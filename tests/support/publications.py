"""A published table, and what it shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit import Ledger, changes_from
from support.histories import plain
from support.ledger_programs import KEYS


def opened(spark: SparkSession, place: Path, **options: Any) -> Ledger:
    return Ledger(spark, place, entity="e", keys=KEYS, **{"buckets": 2, **options})


def told(spark: SparkSession, *rows: tuple[int, int, int], kind: str = "int") -> DataFrame:
    """Changes of numbers: the value of each from a day of January 2024 on."""
    table = spark.createDataFrame(
        [(h, "x", v, day) for h, v, day in rows], f"h int, k string, v {kind}, day int"
    )
    at = F.make_timestamp(F.lit(2024), F.lit(1), "day", F.lit(0), F.lit(0), F.lit(0))
    return changes_from(
        table.withColumn("at", at), keys=KEYS, sequence_by="at", except_column_list=["at", "day"]
    )


def shown(target: Path) -> list[str]:
    """What any reader of Delta finds."""
    return sorted(str(plain(row)) for row in DeltaTable(str(target)).to_pyarrow_table().to_pylist())


def values(target: Path) -> list[tuple[int, int, bool]]:
    rows = DeltaTable(str(target)).to_pyarrow_table().to_pylist()
    return sorted((row["h"], row["v"], row["is_current"]) for row in rows)
