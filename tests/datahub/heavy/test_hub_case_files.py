"""
The hub gives what all hand-written cases expect, those with several runs too, on its own tables.

In `make test`: tests/datahub/test_hub_cases.py::test_a_case_gives_its_tables.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from support.hub_programs import CaseFile, SparkHub, case_files, run_together


@pytest.mark.parametrize("file", case_files(), ids=lambda file: file.name)
def test_the_hub_gives_the_tables_of_the_cases(spark: SparkSession, tmp_path: Path, file: CaseFile) -> None:
    """The cases of a file share a hub where the file allows it: a run of a hub takes seconds."""
    for number, cases in enumerate(file.runs()):
        world = SparkHub(spark, file.schema, tmp_path / str(number))
        failed = {name: found for name, found in run_together(world, cases).items() if found}
        assert failed == {}, "\n".join(line for found in failed.values() for line in found)
