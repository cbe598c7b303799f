"""
What pytest runs by each tier, in processes of their own.

In `make test`: tests/tools/test_tiers.py::test_every_test_is_in_a_tier.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
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
from cdckit.notebook.sessions import NoJava
import pytest

def test_itself():
    with pytest.raises(NoJava):
        session()

def test_in_a_subprocess():
    assert subprocess.run([sys.executable, "-c", "from cdckit import session; session()"]).returncode
"""

SPENDS = """
from types import SimpleNamespace
import pytest
from pyspark import SparkContext

jobs = 0

@pytest.fixture(autouse=True, scope="session")
def context():
    scheduler = SimpleNamespace(numTotalJobs=lambda: jobs)
    java = SimpleNamespace(sc=lambda: SimpleNamespace(dagScheduler=lambda: scheduler))
    SparkContext._active_spark_context = SimpleNamespace(_jsc=java)
    yield
    SparkContext._active_spark_context = None

@pytest.fixture(scope="module")
def shared():
    start(1000)

@pytest.fixture
def prepared():
    start(20)

def start(count):
    global jobs
    jobs += count

def test_as_many_as_allowed(): start(25)
def test_one_more(): start(26)
def test_what_is_shared_counts_for_no_test(shared): start(25)
def test_what_it_alone_prepares_counts(prepared): start(6)
"""


RUNS = {
    "quick": ["--collect-only", "-q", "--tier", "quick"],
    "no tier": ["--collect-only", "-q"],
    "soak 7": ["--collect-only", "-q", "--tier", "soak", "--soak-seed", "7"],
    "soak 7, one test": ["--collect-only", "-q", "--tier", "soak", "--soak-seed", "7", "-k", "drawn["],
    "soak 8": ["--collect-only", "-q", "--tier", "soak", "--soak-seed", "8"],
    "soak": ["--tier", "soak"],
    "soak again": ["--tier", "soak"],
    "soak by two": ["--tier", "soak", "-n", "2"],
    "no tier after soaks": ["--collect-only", "-q"],
    "full": ["--collect-only", "-q", "--tier", "full"],
    "starts": [],
    "spends": [],
    "spends by two": ["-n", "2"],
    "spends in full": ["--tier", "full"],
}
PLUGINS = ["-p", "xdist", "-p", "_hypothesis_pytestplugin", "-p", "tools.tiers"]
# One process for all runs, since its imports take seconds: each run reads the file anew.
ONE_AFTER_THE_OTHER = """
import json, sys
import pytest
for name, options in json.load(sys.stdin):
    print("run:", name)
    for module in ("test_written", "test_heavy"):
        sys.modules.pop(module, None)
    pytest.main(options)
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """By run the lines that pytest prints, in a folder that knows nothing but the plugin."""
    runs = []
    for name, options in RUNS.items():
        folder = tmp_path_factory.mktemp("run")
        written = {"starts": STARTS, "spends": SPENDS}.get(name.split()[0], WRITTEN)
        (folder / "test_written.py").write_text(written)
        if written is WRITTEN:
            (folder / "heavy").mkdir()
            (folder / "heavy" / "test_heavy.py").write_text("def test_heavy(): pass")
        (folder / "none.ini").write_text("[pytest]\naddopts = --strict-markers\n")
        plugin = [*PLUGINS, "-c", str(folder / "none.ini")]
        runs.append((name, [*plugin, *options, str(folder)]))
    command = [sys.executable, "-c", ONE_AFTER_THE_OTHER]
    given = json.dumps(runs)
    # Each worker of xdist would import all plugins that are installed, and what they need.
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=env, input=given, capture_output=True, text=True, check=False
    )
    parts = [part.split("\n") for part in done.stdout.split("run: ")[1:]]
    return {part[0]: part[1:] for part in parts}


def chosen(printed: list[str]) -> list[str]:
    """The tests that a tier runs, in their order."""
    return [line.split("::test_")[1] for line in printed if "::" in line]


def test_quick_is_what_needs_no_jvm_and_then_what_is_smoke(printed: dict[str, list[str]]) -> None:
    assert chosen(printed["quick"]) == ["plain", "drawn[1]", "drawn[2]", "examples", "smoke"]


def test_test_is_all_but_what_is_for_a_soak_alone_or_heavy(printed: dict[str, list[str]]) -> None:
    """It is what runs where no tier is named, whatever ran in the process before."""
    plain = ["plain", "by_fixture", "by_a_fixture_of_a_fixture", "by_marker", "slow", "smoke"]
    for run in ("no tier", "no tier after soaks"):
        assert chosen(printed[run]) == [*plain, "drawn[1]", "drawn[2]", "examples"]
    assert sorted(chosen(printed["full"])) == sorted([*chosen(printed["no tier"]), "heavy"])


def test_a_test_that_starts_too_many_jobs_is_an_error_that_names_its_tier(
    printed: dict[str, list[str]],
) -> None:
    for run in ("spends", "spends by two"):
        errors = [line for line in printed[run] if "Spark jobs, and a test of" in line]
        # On a build server pytest says them once more, behind their names, in its summary.
        names = {line.split("::test_")[-1].split(" Spark")[0] for line in errors}
        assert names == {"one_more started 26", "what_it_alone_prepares_counts started 26"}
        assert all("tests/<package>/heavy/" in line for line in errors)
        assert any("1102 Spark jobs" in line for line in printed[run])
    assert any("4 passed" in line for line in printed["spends in full"])


def test_soak_is_what_takes_long_and_what_is_drawn_from_a_seed(printed: dict[str, list[str]]) -> None:
    """The same tests for the same seed, also where a test is run alone."""
    once = chosen(printed["soak 7"])
    assert [name.split("[")[0] for name in once] == ["long", "drawn", "drawn", "drawn", "examples"]
    assert chosen(printed["soak 7, one test"]) == once[1:4]
    assert not set(chosen(printed["soak 8"])) & set(once[1:4])


def test_a_soak_without_a_seed_draws_one_and_prints_it(printed: dict[str, list[str]]) -> None:
    (one,), (other,) = (
        [line for line in printed[run] if line.startswith("tier: ")] for run in ("soak", "soak again")
    )
    assert one.startswith("tier: soak, --soak-seed ")
    assert one != other


def test_two_workers_of_a_soak_draw_the_same_tests(printed: dict[str, list[str]]) -> None:
    assert any("5 passed" in line for line in printed["soak by two"]), printed["soak by two"]


def test_a_test_that_needs_no_jvm_cannot_start_one(printed: dict[str, list[str]]) -> None:
    assert any("2 passed" in line for line in printed["starts"])
