"""
One JVM for all notebooks that a process executes or tests, each with a session of its own in it.

A JVM that has just started is slow: it has to find its classes, and has compiled nothing.  PySpark takes one
that is there already, as under Spark's own script for programs in Python: then a kernel starts a session and
no more.  Forked kernels also share one context, and with it the process that forks Python workers.  What one
notebook leaves there is removed before the next begins.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.conf import SparkConf
from pyspark.java_gateway import launch_gateway

from cdckit.notebook.sessions import ENVIRONMENT, forked_workers, settings
from tools import forked_kernels
from tools.jvm_options import WITHOUT_GENERATED_CODE, with_ours

MEMORY = "3g"

OPTIONS = "-Xms2g -Xmn1g"
"""What planning leaves behind is thrown away most cheaply while it is young: there is room for it."""


class SharedJvm:
    """
    A JVM, begun when it is first asked for, that the kernels of this process find.

    With *one_context* it holds a context for all of them, which only forked kernels can take up.
    """

    def __init__(self, *, one_context: bool = False) -> None:
        self._one_context = one_context
        self._gateway: Any = None
        self._root: Any = None

    def make_ready(self, folder: Path, *, generated: bool = True) -> None:
        """
        Have it there for a notebook in *folder*, and nothing in it of the notebook before.

        By *generated* code goes what the notebook of a user does; what goes without takes an eighth less.
        """
        if self._gateway is None:
            self._start(folder)
        switched = dict(option.removeprefix("-D").split("=") for option in WITHOUT_GENERATED_CODE)
        if self._one_context:
            self._make_session(switched, generated=generated)
            return
        contexts = getattr(getattr(self._gateway.jvm, "org.apache.spark.SparkContext$"), "MODULE$")
        left = contexts.getActive()
        if left.isDefined():
            left.get().stop()
        # The settings of a session begin with the properties of the JVM.
        properties = self._gateway.jvm.java.lang.System
        for name, value in switched.items():
            if generated:
                properties.clearProperty(name)
            else:
                properties.setProperty(name, value)

    def _make_session(self, switched: Mapping[str, str], *, generated: bool) -> None:
        """Let the next kernel find a session that shares nothing with those before but an empty context."""
        sessions = getattr(self._gateway.jvm, "org.apache.spark.sql.classic.SparkSession")
        if self._root is None:
            self._root = sessions.builder().getOrCreate()
        else:
            self._clear()
        session = self._root.newSession()
        for name, value in switched.items():
            if generated:
                session.conf().unset(name)
            else:
                session.conf().set(name, value)
        sessions.setDefaultSession(session)

    def _clear(self) -> None:
        """Stop the streams and jobs of the notebook before; drop its caches, tables and shared views."""
        shared, context = self._root.sharedState(), self._root.sparkContext()
        for query in list(shared.activeStreamingQueries().values()):
            query.stop()
        context.cancelAllJobs()
        shared.cacheManager().clearCache()
        persisted = self._gateway.jvm.JavaSparkContext.fromSparkContext(context).getPersistentRDDs()
        for rows in list(persisted.values()):
            rows.unpersist(False)
        shared.globalTempViewManager().clear()
        catalog = shared.externalCatalog()
        for table in catalog.listTables("default").mkString("\n").split():
            catalog.dropTable("default", table, True, True)

    def _start(self, folder: Path) -> None:
        os.environ.update(ENVIRONMENT)
        given = with_ours(os.environ.get("SPARK_SUBMIT_OPTS", ""), generated=True)
        os.environ["SPARK_SUBMIT_OPTS"] = f"{given} {OPTIONS}"
        options = settings(MEMORY, small=True)
        if self._one_context:
            options |= {"spark.master": "local[1]", "spark.app.name": "cdckit", **forked_workers({})}
        conf = SparkConf(loadDefaults=False).setAll(list(options.items()))
        # Notebooks name files from the folder in which they are.
        self._gateway = launch_gateway(conf, {"cwd": folder})  # type: ignore[no-untyped-call]
        os.environ["PYSPARK_GATEWAY_PORT"] = str(self._gateway.java_parameters.port)
        os.environ["PYSPARK_GATEWAY_SECRET"] = self._gateway.java_parameters.auth_token


class OneJvm:
    """A plugin of pytest: tells the kernels of notebooks of a JVM that is there, and forks them."""

    def __init__(self) -> None:
        self._jvm: SharedJvm | None = None
        self._notebook: pytest.Collector | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Get ready for the next notebook, before its kernel starts."""
        if item.path.suffix != ".ipynb" or item.parent is self._notebook:
            return
        if self._jvm is None:
            self._jvm = SharedJvm(one_context=forked_kernels.install())
        self._notebook = item.parent
        # All outputs were made by generated code, which takes an eighth more: here two notebooks go by it.
        self._jvm.make_ready(item.path.parent, generated=item.path.name[:2] in ("00", "30"))
