"""How pytest compares the notebooks: strictly, but for what Spark writes to standard error when it starts."""

import pytest


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Leave standard error out, as the manual of nbval says it is done; it is not in the files either."""
    if collector.nodeid.endswith(".ipynb"):
        collector.skip_compare += ("stderr",)
