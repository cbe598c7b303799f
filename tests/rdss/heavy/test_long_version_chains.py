"""
Chains of versions beyond what is followed.

In `make test`:
tests/rdss/test_rdss_version_chains.py::test_ancestry_has_every_pair_with_the_shortest_way.
"""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from cdckit import rdss
from cdckit.errors import InvalidArgument


def test_a_chain_that_is_too_long_is_no_shorter_one(spark: SparkSession) -> None:
    links = spark.createDataFrame([(str(n + 1), str(n)) for n in range(4)], "newer string, older string")
    assert rdss.version_ancestry(links, rounds=2).count() == 10
    with pytest.raises(InvalidArgument, match="longer than 2 links"):
        rdss.version_ancestry(links, rounds=1)
    with pytest.raises(InvalidArgument, match="above 0"):
        rdss.version_ancestry(links, rounds=0)
