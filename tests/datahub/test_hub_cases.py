"""The hub gives what hand-written cases of one run expect: those of a file in one hub, told case by case."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from support.hub_programs import Case, CaseFile, SparkHub, case_files, run_together

WORKED_EXAMPLE = "01_worked_example"
FILES = [file for file in case_files() if file.together or file.name == WORKED_EXAMPLE]


def chosen_cases(file: CaseFile) -> list[Case]:
    """Those that one run decides, and all of the specification's own example."""
    return [case for case in file.cases if len(case.steps) == 1 or file.name == WORKED_EXAMPLE]


@pytest.fixture(scope="module")
def differences(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> dict[str, list[str]]:
    """By case what the tables of its file's hub have otherwise."""
    file: CaseFile = request.param
    cases = chosen_cases(file)
    found: dict[str, list[str]] = {}
    for shared in [cases] if file.together else [[case] for case in cases]:
        world = SparkHub(spark, file.schema, tmp_path_factory.mktemp(file.name))
        found |= run_together(world, shared)
    return found


@pytest.mark.parametrize(
    ("differences", "case"),
    [
        pytest.param(file, case.name, id=f"{file.name}: {case.name}")
        for file in FILES
        for case in chosen_cases(file)
    ],
    indirect=["differences"],
    scope="module",  # or the fixture would be made for each of the cases
)
def test_a_case_gives_its_tables(differences: dict[str, list[str]], case: str) -> None:
    assert differences[case] == []
