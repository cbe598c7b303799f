"""How pytest compares the notebooks: strictly, but for what Spark writes to standard error when it starts."""

import os

import pytest

from tools.one_jvm import OneJvm


def pytest_configure(config: pytest.Config) -> None:
    """Let all notebooks run in one JVM; how far Spark is, they may not say."""
    os.environ["CDCKIT_PROGRESS"] = "0"
    config.pluginmanager.register(OneJvm())


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Leave standard error out, as the manual of nbval says it is done; it is not in the files either."""
    if collector.nodeid.endswith(".ipynb"):
        collector.skip_compare += ("stderr",)
