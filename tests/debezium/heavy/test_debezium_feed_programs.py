"""
A random captured database through a `Feed`, in any batches: a naive reader is the judge.

In `make test`:
tests/debezium/test_debezium_feed.py::test_each_record_is_in_a_ledger_waits_or_is_a_reject,
tests/test_doors.py::test_every_record_is_a_change_or_waits_or_is_a_reject_or_is_named.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from cdckit import debezium
from cdckit.model.records import RECORD_SCHEMA
from support.captured_databases import TABLES, Database, Record, read_naively
from tools.tiers import seeds


@seeds(1, 2, 3, soak=6)
def test_every_record_is_in_a_ledger_waits_or_is_a_reject(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    """Nothing is lost and nothing is wrong, in whatever batches the records come, and after `rebuild`."""
    records = Database(seed).run(24)
    expected = read_naively(records)
    feed = debezium.Feed(spark, tmp_path)
    chance = random.Random(seed)
    cuts = sorted({0, *chance.sample(range(1, len(records)), 3), len(records)})
    batches = [range(start, end) for start, end in itertools.pairwise(cuts)]
    if seed % 2:
        chance.shuffle(batches)
    for batch in batches:
        feed.receive(as_records(spark, records, batch))

    def require_all_is_right() -> None:
        waiting = offsets(feed.waiting())
        of_log = {at for at, record in enumerate(records) if record.topic.endswith(TABLES[-1])}
        rejects = offsets(feed.rejects())
        assert waiting == {at for at in of_log if records[at].fault != "cut"}
        assert rejects == expected.rejects
        ledgers = feed.ledgers()
        there = {table: ledgers[f"d.s.{table}"] for table in TABLES[:-1]}
        assert {table: rows(view.history()) for table, view in there.items()} == expected.rows
        kept = {at for view in there.values() for at in offsets(view.changes().select("arrival.offset"))}
        again = {at for at, record in enumerate(records) if record in records[:at]}
        outcomes = kept | again | rejects | waiting | expected.tombstones
        assert outcomes >= set(range(len(records)))
        assert not kept & (rejects | waiting | expected.tombstones)

    require_all_is_right()
    if seed == 1:
        feed.rebuild()
        require_all_is_right()


def as_records(spark: SparkSession, records: Sequence[Record], some: Sequence[int]) -> DataFrame:
    return spark.createDataFrame([records[at].row(at) for at in some], RECORD_SCHEMA).coalesce(1)


def offsets(rows_with_offset: DataFrame) -> set[int]:
    return {row["offset"] for row in rows_with_offset.select("offset").collect()}


def rows(history: DataFrame) -> dict[int, dict[str, Any]]:
    there = history.where("valid_to_timestamp is null and not deleted_indicator")
    named = there.select("id", "name", "number", "extra").collect()
    return {row["id"]: row.asDict() for row in named}
