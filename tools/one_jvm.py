"""
One JVM for all notebooks that a process tests, each with a session of its own in it.

A JVM that has just started is slow: it has to find its classes, and has compiled nothing.  PySpark takes one
that is there already, as under Spark's own script for programs in Python: then a kernel starts a session and
no more.  What one notebook leaves there is stopped before the next begins.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.conf import SparkConf
from pyspark.java_gateway import launch_gateway

from cdckit.sessions import ENVIRONMENT, settings

MEMORY = "3g"


class OneJvm:
    """A plugin of pytest: tells the kernels of notebooks of a JVM that is there."""

    def __init__(self) -> None:
        self._gateway: Any = None
        self._notebook: pytest.Collector | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Get ready for the next notebook, before its kernel starts."""
        if item.path.suffix != ".ipynb" or item.parent is self._notebook:
            return
        self._notebook = item.parent
        if self._gateway is None:
            self._start(item.path.parent)
        contexts = getattr(getattr(self._gateway.jvm, "org.apache.spark.SparkContext$"), "MODULE$")
        left = contexts.getActive()
        if left.isDefined():
            left.get().stop()

    def _start(self, folder: Path) -> None:
        os.environ.update(ENVIRONMENT)
        conf = SparkConf(loadDefaults=False).setAll(list(settings(MEMORY).items()))
        # Notebooks name files from the folder in which they are.
        self._gateway = launch_gateway(conf, {"cwd": folder})  # type: ignore[no-untyped-call]
        os.environ["PYSPARK_GATEWAY_PORT"] = str(self._gateway.java_parameters.port)
        os.environ["PYSPARK_GATEWAY_SECRET"] = self._gateway.java_parameters.auth_token
