"""
Data and metadata in any order.

In `make test`:
tests/replicate/test_replicate_waiting.py::test_data_without_metadata_waits_and_nothing_else_does,
tests/replicate/test_replicate_waiting.py::test_rejected_ones_say_what_was_missing_and_those_in_time_still_wait.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from cdckit import merge, replicate, union_changes
from cdckit.model.records import RECORD_COLUMNS
from support.replicate_messages import NOON, Record, by_offset, life, to_dataframe
from support.replicate_readings import settled

MINUTE = timedelta(minutes=1)


# --- feeding again what waits ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """What became of some records in the end, in forms that can be compared."""

    rows: dict[int, dict[str, Any]]
    rejects: dict[int, tuple[str, str]]
    history: list[Any]


def feed(spark: SparkSession, rounds: Sequence[Sequence[Record]], saved: Path) -> Outcome:
    """What comes of *rounds* in turn, what waits of each saved and fed again with the next."""
    rows: dict[int, dict[str, Any]] = {}
    rejects: dict[int, tuple[str, str]] = {}
    told: list[DataFrame] = []
    waiting, zone = to_dataframe(spark, []), None
    for number, records in enumerate(rounds):
        fed = waiting.unionByName(to_dataframe(spark, records))
        decoded = replicate.decode(fed).localCheckpoint()
        said = replicate.metadata(decoded, zone=zone)
        zone = settled(replicate.schema_zone(said, zone=zone))
        late = replicate.waiting(decoded, zone, now=NOON + MINUTE)
        late.select(*RECORD_COLUMNS).write.parquet(str(saved / str(number)))
        waiting = spark.read.parquet(str(saved / str(number)))
        bad = decoded.where("error_code is not null")
        rejects |= {n: (row["error_code"], row["error_description"]) for n, row in by_offset(bad).items()}
        if not zone.isEmpty():
            made = replicate.data(fed, zone)
            made = spark.createDataFrame(made.collect(), made.schema)
            found = by_offset(made)
            assert not set(found) & set(rows), "a record had a row in an earlier round"
            rows |= found
            told.append(replicate.changes(made, keys=["id"]))
    assert waiting.isEmpty()
    history = merge(union_changes(*told), entity="item", keys=["id"])
    return Outcome({n: plain(row) for n, row in rows.items()}, rejects, in_order(history))


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """A row without the columns that only a later version has, which an earlier round cannot know."""
    told = {name: {k: v for k, v in (row[name] or {}).items() if v} for name in ("data", "sent", "changed")}
    return row | told | {"before": None, "absent_columns": None}


def in_order(history: DataFrame) -> list[Any]:
    """Columns by name; a column of a later version stands elsewhere when it was not known at first."""
    names = sorted(set(history.columns) - {"field_provenance"})
    fields = sorted(history.schema["field_provenance"].dataType.fieldNames())  # type: ignore[attr-defined]
    columns = [*names, *(f"field_provenance.{name}" for name in fields)]
    return sorted(history.select(*columns).collect(), key=repr)


def test_data_first_and_its_metadata_second_gives_what_the_right_order_gives(
    spark: SparkSession, tmp_path: Path
) -> None:
    records = life(0)
    at_once = feed(spark, [records], tmp_path / "at once")
    late = feed(spark, [records[2:], records[:2]], tmp_path / "late")
    assert late == at_once
    assert len(at_once.rows) + len(at_once.rejects) == 60
    assert len(at_once.history) > 10
    assert at_once.rejects


@pytest.mark.parametrize("seed", [1])
def test_any_order_of_arrival_and_any_rounds_give_what_the_right_order_gives(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    rng, records = random.Random(seed), life(seed)
    rounds: list[list[Record]] = [[], []]
    for each in rng.sample(records, len(records)):
        rng.choice(rounds).append(each)
    assert feed(spark, rounds, tmp_path / "rounds") == feed(spark, [records], tmp_path / "at once")
