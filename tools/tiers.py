"""
The tests in four tiers, as a plugin of pytest: `make quick`, `make test`, `make full` and `make soak`.

    pytest --tier quick                     what needs no JVM, and one smoke test for each door
    pytest                                  every rule once: all but long notebooks and folders `heavy`
    pytest --tier full                      that, too
    pytest --tier soak --soak-seed 1234     what is drawn at random, from that seed, and what takes long

The folder of a test decides, not its author's taste: a test that starts more Spark jobs than the tier `test`
allows (`tools/spark_jobs.py`) is an error outside of `tests/<package>/heavy/`.
A test that asks for the `spark` fixture, itself or through another fixture, needs a JVM, and an
example in a docstring may.  No other test may start one, not even in a subprocess: Java is hidden
from it.  One that has a reason says so with the marker `jvm`.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from pyspark import SparkContext

from tools import spark_jobs

TIERS = ("quick", "test", "full", "soak")
HEAVY = "heavy"
"""The name of the folders whose tests run in `make full`."""

MARKERS = (
    "soak: runs in `make soak` only, since it takes long or needs a broker, a connector or a kill",
    "drawn: draws its input: few fixed seeds in `make full`, many fresh ones in `make soak`",
    "smoke(what): runs in `make quick` although it needs a JVM: the smoke test of a door or of a function",
    "jvm: starts a JVM without the `spark` fixture, or needs Java",
    "slow: needs no JVM, and takes longer than `make quick` can wait",
)
NO_JAVA = os.path.join(os.sep, "hidden", "by", "tools", "tiers.py")

AS_MANY_CELLS = {
    "50": 46, "11": 45, "10": 36, "40": 34, "31": 32, "41": 32, "12": 31, "32": 31, "13": 30,
    "15": 24, "16": 17,
}  # fmt: skip
"""Of notebooks that take longer than their cells say, by their numbers: how many cells of 1.1 s that is."""

LONG_NOTEBOOKS = ("15", "16", "52", "53", "61")
"""The numbers of notebooks that `make full` runs alone: they take long, and tests have all that they show."""

COLLECTED = pytest.StashKey[dict[str, set[str]]]()
"""By the name of each test that was collected, the tiers that it is in."""

_Test = TypeVar("_Test", bound=Callable[..., Any])
_soak_seed: int | None = None
"""What the seeds of a soak are drawn from; none in the other tiers."""


def seeds(*fixed: int, soak: int) -> Callable[[_Test], _Test]:
    """Give a test the parameter `seed`: each of *fixed*, or *soak* fresh ones in that tier."""

    def drawn(test: _Test) -> _Test:
        chosen: tuple[int, ...] = fixed
        if _soak_seed is not None:
            # By the name of the test, so that it draws the same when it is run again alone.
            chance = random.Random(f"{_soak_seed} {test.__module__} {test.__qualname__}")
            chosen = tuple(chance.sample(range(2**31), soak))
        marked: _Test = pytest.mark.drawn(pytest.mark.parametrize("seed", chosen)(test))
        return marked

    return drawn


def examples(few: int, *, soak: int) -> dict[str, Any]:
    """What hypothesis is told: *few* examples, always the same ones, or *soak* others in that tier."""
    return {"max_examples": few, "derandomize": True} if _soak_seed is None else {"max_examples": soak}


def tiers(item: pytest.Item) -> set[str]:
    """The tiers in which a test runs."""
    if item.get_closest_marker("soak"):
        return {"soak"}
    drawn = {"soak"} if item.get_closest_marker("drawn") else set()
    is_long = item.path.suffix == ".ipynb" and item.path.name.startswith(LONG_NOTEBOOKS)
    if is_long or HEAVY in item.path.parts:
        return {"full"} | drawn
    quick = item.get_closest_marker("smoke") or not (needs_jvm(item) or item.get_closest_marker("slow"))
    return {"test", "full"} | ({"quick"} if quick else set()) | drawn


def needs_jvm(item: pytest.Item) -> bool:
    """Whether a test may use Spark: by its fixtures or its marker; examples and notebooks always."""
    if not isinstance(item, pytest.Function):
        return True
    return "spark" in item.fixturenames or item.get_closest_marker("jvm") is not None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tier", choices=TIERS, default="test", help="which tests run (see tools/tiers.py)")
    parser.addoption("--soak-seed", type=int, help="the seed of a soak; a fresh one without it")


@pytest.hookimpl(tryfirst=True)  # before hypothesis looks for its seed
def pytest_configure(config: pytest.Config) -> None:
    global _soak_seed
    budget = spark_jobs.JobBudget(limited=config.option.tier == "test")
    config.pluginmanager.register(budget, "spark_jobs")
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    # How long an example takes depends on what else the machine does: no clock judges it.
    settings.register_profile("cdckit", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("cdckit")
    _soak_seed = None
    if config.option.tier == "soak":
        # A worker of xdist has the options of the command line, and the seed by `pytest_configure_node`.
        drawn = getattr(config, "workerinput", {}).get("soak_seed")
        if config.option.soak_seed is None:
            config.option.soak_seed = random.SystemRandom().randrange(2**31) if drawn is None else drawn
        config.option.hypothesis_seed = str(config.option.soak_seed)
        _soak_seed = config.option.soak_seed


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """All workers draw from one seed: they must collect the same tests."""
    node.workerinput["soak_seed"] = node.config.option.soak_seed


def pytest_report_header(config: pytest.Config) -> str:
    """Which tier, and how a soak is repeated."""
    seed = f", --soak-seed {config.option.soak_seed}" if config.option.tier == "soak" else ""
    return f"tier: {config.option.tier}{seed}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of the tier, those that take longest first; in `quick`, what needs a JVM last."""
    tier = config.option.tier
    found = config.stash[COLLECTED] = {item.nodeid: tiers(item) for item in items}
    config.hook.pytest_deselected(items=[item for item in items if tier not in found[item.nodeid]])
    items[:] = [item for item in items if tier in found[item.nodeid]]
    if tier == "quick":
        items.sort(key=needs_jvm)
    else:
        items[:] = longest_first(items)


def longest_first(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """
    The same tests, files that take minutes first: else one of two workers is left with one in the end.

    A run of a hub takes seconds, and a notebook about as long as it has cells; some take longer.
    """
    cells = Counter(item.path for item in items if item.path.suffix == ".ipynb")
    cells |= Counter({path: AS_MANY_CELLS.get(path.name[:2], 0) for path in cells})
    return sorted(items, key=lambda item: ("hub" not in item.path.name, -cells[item.path]))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Hide Java from a test that needs no JVM, so that it fails where it starts one."""
    if needs_jvm(item):
        return (yield)
    was_there, home = SparkContext._gateway is not None, os.environ.get("JAVA_HOME")
    os.environ["JAVA_HOME"] = NO_JAVA
    try:
        return (yield)
    finally:
        os.environ.pop("JAVA_HOME")
        if home is not None:
            os.environ["JAVA_HOME"] = home
        assert was_there or SparkContext._gateway is None, f"{item.nodeid} started a JVM"
