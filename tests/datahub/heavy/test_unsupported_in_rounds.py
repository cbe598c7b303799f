"""
Statements that nothing supports, found in rounds of Spark.

In `make test`:
tests/datahub/test_unsupported_statements.py::test_it_is_what_is_left_when_one_after_the_other_is_taken_away.
"""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession

from cdckit.datahub import waiting
from cdckit.datahub.waiting import find_unsupported
from support.unsupported_statements import PROGRAMS, one_by_one


def test_of_many_statements_the_same_is_found_in_rounds(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All programs at once, the guids of each its own; after two rounds one task is left with long chains."""
    monkeypatch.setattr(waiting, "ROUNDS", 2)
    given = []

    def one_task(statements: DataFrame, *, by: str) -> DataFrame:
        given.append(statements.count())
        return find_unsupported(statements, by=by)

    monkeypatch.setattr(waiting, "find_unsupported", one_task)
    rows, expected = list[tuple[int, str | None, list[str]]](), set[tuple[int, str]]()
    for program, statements in enumerate(PROGRAMS):
        expected |= {(len(rows) + place, f"{program} {missing}") for place, missing in one_by_one(statements)}
        for makes, needs in statements:
            made = None if makes is None else f"{program} {makes}"
            rows.append((len(rows), made, [f"{program} {need}" for need in needs]))
    stated = spark.createDataFrame(rows, "fact_number long, makes string, needs array<string>")
    kept = waiting.find_waiting(stated)
    assert kept is not None
    found = kept.collect()
    assert {(row["fact_number"], row["missing"]) for row in found} == expected
    assert len(found) == len(expected)
    assert 0 < given[0] < len(rows) / 3
