"""
What a test run costs in Spark, as a plugin of pytest: jobs, and calls into the JVM.

A clock says something else on each machine, and the number of jobs the same on all.  A test of the tier
`test` may start `MOST_JOBS`; one that starts more is an error that names the tier it belongs to.  Whatever
module or session fixtures start is shared, and counts for no test, but in the sum that is printed at the end.
Each function of a column is a call or two into the JVM, so calls tell how large the plans are that a test
makes: those with more than `MANY_CALLS` are named.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import pytest
from pyspark import SparkContext

from tools import jvm_calls

MOST_JOBS = 25
MANY_CALLS = 6_000


class _Count(NamedTuple):
    """What a process has spent in Spark so far."""

    context: Any
    jobs: int
    calls: int

    @classmethod
    def now(cls) -> _Count:
        context: Any = SparkContext._active_spark_context
        jobs = 0 if context is None else int(_scheduler(context._jsc).numTotalJobs())
        return cls(context, jobs, jvm_calls.count)

    def since(self, begun: _Count) -> _Count:
        """The difference; a context that began meanwhile has counted its jobs from 0."""
        before = begun.jobs if begun.context is self.context else 0
        return _Count(self.context, self.jobs - before, self.calls - begun.calls)


@lru_cache(maxsize=1)
def _scheduler(java: Any) -> Any:
    """What runs the jobs of a context: asked for once, since each test asks it four times."""
    return java.sc().dagScheduler()


class JobBudget:
    """Counts what each test starts in Spark, and holds those of the tier `test` to the budget."""

    def __init__(self, *, limited: bool) -> None:
        self._limited = limited
        self._begun = _Count(None, 0, 0)
        self._jobs = 0
        self._many_calls: dict[str, int] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """Begin to count before the fixtures of a test, shared ones too."""
        self._begun = _Count.now()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        """Add up what a test and its fixtures started, before a last one ends Spark."""
        spent = _Count.now().since(self._begun)
        self._jobs += spent.jobs
        if spent.calls > MANY_CALLS:
            self._many_calls[item.nodeid] = spent.calls

    @pytest.fixture(autouse=True)
    def _job_budget(self, request: pytest.FixtureRequest) -> Iterator[None]:
        """
        Fail a test that starts too many jobs.

        It is made after all fixtures that are shared, and before those of the test itself.
        """
        begun = _Count.now()
        yield
        jobs = _Count.now().since(begun).jobs
        if self._limited and isinstance(request.node, pytest.Function) and jobs > MOST_JOBS:
            sentence = (
                f"{request.node.nodeid} started {jobs} Spark jobs, and a test of `make test` may start "
                f"{MOST_JOBS}: let it ask more at once, or put it into tests/<package>/heavy/ (`make full`)."
            )
            pytest.fail(sentence, pytrace=False)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Hand on what a worker of xdist counted."""
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["spark_jobs"], output["many_calls"] = self._jobs, self._many_calls

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Add what a worker of xdist counted."""
        output = getattr(node, "workeroutput", {})
        self._jobs += output.get("spark_jobs", 0)
        self._many_calls |= output.get("many_calls", {})

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print what the run cost."""
        if not self._jobs:
            return
        terminalreporter.write_sep("-", f"{self._jobs} Spark jobs")
        for name, calls in sorted(self._many_calls.items(), key=lambda pair: -pair[1]):
            terminalreporter.write_line(f"{calls} calls into the JVM, so large plans or many: {name}")
