"""A published table, and what it shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from cdckit import Ledger
from support.histories import plain
from support.ledger_programs import KEYS
from support.shop_log import shop_changes


def opened(spark: SparkSession, place: Path, **options: Any) -> Ledger:
    return Ledger(spark, place, entity="e", keys=KEYS, **{"buckets": 2, **options})


def told(spark: SparkSession, *rows: tuple[int, int, int], kind: str = "int") -> DataFrame:
    """Changes of numbers: the value of each from a day of January 2024 on."""
    fields = {"h": "int", "k": "string", "v": kind}
    return shop_changes(spark, fields, (({"h": h, "k": "x", "v": v}, day) for h, v, day in rows))


def shown(target: Path) -> list[str]:
    """What any reader of Delta finds."""
    return sorted(str(plain(row)) for row in DeltaTable(str(target)).to_pyarrow_table().to_pylist())


def values(target: Path) -> list[tuple[int, int, bool]]:
    rows = DeltaTable(str(target)).to_pyarrow_table().to_pylist()
    return sorted((row["h"], row["v"], row["is_current"]) for row in rows)
