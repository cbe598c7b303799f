"""
Tables of every library that is known, of every type.

In `make test`: tests/tables/test_types_of_tables.py::test_a_history_has_the_values_and_types_that_went_in.
"""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from support.drawn_tables import LIBRARIES, require_values_and_types
from tools.tiers import seeds


@seeds(1, soak=5)
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_history_has_what_went_in_whatever_the_library(
    library: str, seed: int, spark: SparkSession
) -> None:
    require_values_and_types(spark, library, seed)
