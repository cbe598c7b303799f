"""The three tiers: every test is in one, each door has its smoke test, and what needs no JVM starts none."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tools import tiers

ROOT = Path(__file__).parents[2]
WRITTEN = """
from hypothesis import given, settings, strategies as st
import pytest
from tools.tiers import examples, seeds

@pytest.fixture
def spark():
    return None

@pytest.fixture
def table(spark):
    return spark

def test_plain(): pass
def test_by_fixture(spark): pass
def test_by_a_fixture_of_a_fixture(table): pass
@pytest.mark.jvm
def test_by_marker(): pass
@pytest.mark.slow
def test_slow(): pass
@pytest.mark.soak
def test_long(): pass
@pytest.mark.smoke("merge")
def test_smoke(spark): pass
@seeds(1, 2, soak=3)
def test_drawn(seed): pass
@pytest.mark.drawn
@settings(**examples(5, soak=50))
@given(st.integers())
def test_examples(number): pass
"""
STARTS = """
import subprocess, sys
from cdckit import session
from cdckit.sessions import NoJava
import pytest

def test_itself():
    with pytest.raises(NoJava):
        session()

def test_in_a_subprocess():
    assert subprocess.run([sys.executable, "-c", "from cdckit import session; session()"]).returncode
"""


def run(folder: Path, source: str, *options: str) -> list[str]:
    """The lines that pytest prints of a file of tests, in a folder that knows nothing but the plugin."""
    (folder / "test_written.py").write_text(source)
    command = [sys.executable, "-m", "pytest", "-p", "tools.tiers", "-c", str(folder / "none.ini"), *options]
    (folder / "none.ini").write_text("[pytest]\naddopts = --strict-markers\n")
    done = subprocess.run([*command, str(folder)], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.splitlines()


def chosen(folder: Path, *options: str) -> list[str]:
    """The tests that a tier runs, in their order."""
    lines = run(folder, WRITTEN, "--collect-only", "-q", *options)
    return [line.split("::test_")[1] for line in lines if "::" in line]


@pytest.mark.slow
def test_quick_is_what_needs_no_jvm_and_then_what_is_smoke(tmp_path: Path) -> None:
    assert chosen(tmp_path, "--tier", "quick") == ["plain", "drawn[1]", "drawn[2]", "examples", "smoke"]


@pytest.mark.slow
def test_test_is_all_but_what_is_for_a_soak_alone(tmp_path: Path) -> None:
    """It is what runs where no tier is named."""
    plain = ["plain", "by_fixture", "by_a_fixture_of_a_fixture", "by_marker", "slow", "smoke"]
    assert chosen(tmp_path) == [*plain, "drawn[1]", "drawn[2]", "examples"]


@pytest.mark.slow
def test_soak_is_what_takes_long_and_what_is_drawn_from_a_seed(tmp_path: Path) -> None:
    """The same tests for the same seed, also where a test is run alone."""
    once = chosen(tmp_path, "--tier", "soak", "--soak-seed", "7")
    assert [name.split("[")[0] for name in once] == ["long", "drawn", "drawn", "drawn", "examples"]
    assert chosen(tmp_path, "--tier", "soak", "--soak-seed", "7", "-k", "drawn[") == once[1:4]
    other = chosen(tmp_path, "--tier", "soak", "--soak-seed", "8")
    assert not set(other) & set(once[1:4])


@pytest.mark.slow
def test_a_soak_without_a_seed_draws_one_and_prints_it(tmp_path: Path) -> None:
    (one,), (other,) = (
        [line for line in run(tmp_path, WRITTEN, "--tier", "soak") if line.startswith("tier: ")]
        for _ in range(2)
    )
    assert one.startswith("tier: soak, --soak-seed ")
    assert one != other


@pytest.mark.slow
def test_a_test_that_needs_no_jvm_cannot_start_one(tmp_path: Path) -> None:
    assert any("2 passed" in line for line in run(tmp_path, STARTS))


def test_every_test_is_in_a_tier(request: pytest.FixtureRequest) -> None:
    """All that were collected with this one, in any tier: none is left out of all three."""
    found = request.config.stash[tiers.COLLECTED]
    assert found
    assert {name for name, its in found.items() if not its or not its <= set(tiers.TIERS)} == set()


def test_each_door_has_a_smoke_test() -> None:
    """A door is a package that others may not import (see test_house.py)."""
    marked = {
        mark.args[0].value
        for mark in ast.walk(ast.parse((ROOT / "tests" / "test_smoke.py").read_text()))
        if isinstance(mark, ast.Call)
        and ast.unparse(mark.func) == "pytest.mark.smoke"
        and isinstance(mark.args[0], ast.Constant)
    }
    house = ast.parse((ROOT / "tests" / "tools" / "test_house.py").read_text())
    doors = next(
        ast.literal_eval(each.value)
        for each in house.body
        if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "DOORS"
    )
    assert marked == doors | {"merge", "as_of"}
