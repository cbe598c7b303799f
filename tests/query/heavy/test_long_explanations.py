"""
All measures of what was learnt, and of two tables, explained as message by message.

In `make test`:
tests/query/test_explain.py::test_what_was_learnt_is_explained_as_message_by_message,
tests/query/test_explain.py::test_without_a_message_its_part_is_taken_back.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from cdckit.query import Belief
from support.drawn_reports import DRAWN, assert_explained, drawn, learnt
from support.explaining import Report
from support.histories import INSTANTS, to_dataframe, two_tables
from tools.tiers import seeds


@seeds(2, soak=20)
def test_all_measures_of_what_was_learnt(spark: SparkSession, seed: int) -> None:
    assert_explained(*learnt(spark, seed))


@seeds(2, soak=20)
def test_two_tables_are_explained_as_message_by_message(spark: SparkSession, seed: int) -> None:
    chance, changes = drawn(seed, 40)
    instants = sorted(chance.choice((INSTANTS[0], INSTANTS[1], INSTANTS[3])) for _ in range(2))
    mine, theirs = two_tables(chance, changes)
    both = [
        (Belief(to_dataframe(spark, some, DRAWN).localCheckpoint(), valid), Report(some, valid))
        for some, valid in zip((mine, theirs), instants, strict=True)
    ]
    # What a value is an expression of does not depend on where the messages come from.
    assert_explained(*both, measures=["a"])
