"""Numbers that edges connect, directly or over others, are a family."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdckit.parts.families import SHARES_EACH, connect_numbers, share_rows


@pytest.mark.parametrize(
    ("edges", "expected"),
    [
        ([], {}),
        ([(1, 2)], {1: 1, 2: 1}),
        ([(7, 7)], {7: 7}),
        # A chain, from its end; and another family beside it.
        ([(5, 4), (3, 2), (4, 3), (9, 8)], {2: 2, 3: 2, 4: 2, 5: 2, 8: 8, 9: 8}),
        ([(-(2**63), 2**63 - 1), (0, 2**63 - 1)], dict.fromkeys([-(2**63), 0, 2**63 - 1], -(2**63))),
    ],
)
def test_a_family_has_the_least_number_in_it(edges: list[tuple[int, int]], expected: dict[int, int]) -> None:
    """In however many batches the edges come."""
    batches = [pa.record_batch({"one": [one], "other": [other]}) for one, other in edges]
    [found] = connect_numbers(batches)
    assert dict(zip(*(column.to_pylist() for column in found.columns), strict=True)) == expected


def test_what_is_to_be_everywhere_is_written_a_few_times_for_each_partition(spark: SparkSession) -> None:
    rows = spark.range(100).withColumn("is_everywhere", F.col("id") == 0)
    shared = share_rows(rows, F.col("id"), everywhere=F.col("is_everywhere"))
    placed = shared.select("id", F.spark_partition_id().alias("partition")).collect()
    partitions = int(spark.conf.get("spark.sql.shuffle.partitions") or "")
    assert len(placed) == 99 + SHARES_EACH * partitions
    everywhere = {row["partition"] for row in placed if row["id"] == 0}
    assert {row["partition"] for row in placed} == everywhere
    assert len({(row["id"], row["partition"]) for row in placed if row["id"]}) == 99
