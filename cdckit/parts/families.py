"""Families, the numbers that edges connect; and rows that are read together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.parts.arrays import ints
from cdckit.parts.arrow_types import arrow_schema, make_batch
from cdckit.parts.workers import WorkerPlan

NODE, FAMILY = "node", "family"

SHARES, SHARES_EACH = 1 << 12, 1 << 4
"""Into how many shares rows fall by a number at most, and how many a partition has: tasks have equal work."""

_FAMILIES = T.StructType().add(NODE, T.LongType()).add(FAMILY, T.LongType())


def find_families(edges: DataFrame) -> DataFrame:
    """
    Find which numbers belong together.

    Args:
        edges: Two numbers each.

    Returns:
        One row per number that was named: `node`, and `family`, the least of those that it is connected to.

    Cost: one task, which holds two numbers for each edge.
    """
    return WorkerPlan(edges.repartition(1), connect_numbers, _FAMILIES, large=True).rows()


def connect_numbers(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Find the families (`find_families`) of all edges, which are two columns of numbers."""
    pairs = [np.zeros((2, 0), np.int64)]
    pairs += [np.stack([ints(column) for column in batch.columns]) for batch in batches]
    nodes, ends = np.unique(np.concatenate(pairs, axis=1), return_inverse=True)
    first, other = ends.reshape(2, -1)
    family, before = np.arange(len(nodes)), None
    while before is None or not np.array_equal(family, before):
        before = family.copy()
        lower = np.minimum(family[first], family[other])
        for end in (first, other):
            np.minimum.at(family, family[end], lower)
        family = family[family]
    schema = arrow_schema(_FAMILIES, large=True)
    yield make_batch({NODE: pa.array(nodes), FAMILY: pa.array(nodes[family])}, schema)


def share_rows(rows: DataFrame, number: Column, *, everywhere: Column) -> DataFrame:
    """
    Put rows of one *number* into one partition, and those that are to be *everywhere* into each.

    A partition of several shares has the latter several times.
    """
    # Platforms may say "auto".
    partitions = str(rows.sparkSession.conf.get("spark.sql.shuffle.partitions"))
    shares = min(SHARES, SHARES_EACH * int(partitions)) if partitions.isdecimal() else SHARES
    share = F.pmod(number, F.lit(shares))
    all_shares = F.when(everywhere, F.sequence(F.lit(0).cast("long"), F.lit(shares - 1).cast("long")))
    shared = rows.withColumn("share", F.explode(F.coalesce(all_shares, F.array(share))))
    return shared.repartition("share").drop("share")
