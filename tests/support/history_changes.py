"""A ledger whose history is compared between commits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from cdckit import Ledger
from support.ledger_programs import KEYS


def opened(spark: SparkSession, place: Path, **options: Any) -> Ledger:
    return Ledger(spark, place, entity="e", keys=KEYS, **{"buckets": 2, **options})
