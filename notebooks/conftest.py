"""How pytest compares the notebooks: strictly, but for what Spark writes to standard error when it starts."""

import os

import pytest

from tools.one_jvm import OneJvm
from tools.replaced_outputs import LastStates


def pytest_configure(config: pytest.Config) -> None:
    """Let all notebooks run in one JVM; how far Spark is, they may not say."""
    os.environ["CDCKIT_PROGRESS"] = "0"
    config.pluginmanager.register(OneJvm())


def pytest_collectstart(collector: pytest.Collector) -> None:
    """
    Leave standard error out, as the manual of nbval says it is done; it is not in the files either.

    Of an output that is replaced while its cell runs, the last state is compared, which is in the files.
    """
    if collector.nodeid.endswith(".ipynb"):
        collector.skip_compare += ("stderr",)
        collector.get_kernel_message = LastStates(collector.get_kernel_message)
