"""The Spark session of a notebook or a test."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

GIBIBYTE = 1024**3

# They print on stderr, as one line of JSON with every stack frame, what is raised as an exception anyway.
_TALKATIVE = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")


def session(
    *, app_name: str = "cdckit", memory: str | None = None, config: Mapping[str, str] | None = None
) -> SparkSession:
    """
    The running Spark session if there is one, else a local one made for interactive work.

    The local session is quiet, keeps to the loopback interface, reads and shows every instant in
    UTC, and its Python workers run the interpreter of the driver.  Nothing else in cdckit looks a
    session up.

    Args:
        app_name: What the session is called in Spark's own listings.
        memory:
            Heap of the local session, as Spark writes it (`"4g"`).  Without it: a third of the
            machine's memory, at least 1 and at most 8 GiB.
        config: Further Spark settings; they win over the ones chosen here.

    Returns:
        A session.  A session that is running already is returned as it is: the arguments are for
        the one that is made here.

    Note:
        Sets `TZ=UTC` for this process when it makes a session: Spark's Python side reads a naive
        datetime in the zone of the process, and two zones in one answer are one too many.

    >>> session().conf.get("spark.sql.session.timeZone")
    'UTC'
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    os.environ["TZ"] = "UTC"
    time.tzset()
    # PySpark reads these when the JVM and the workers start; there are no settings for them.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["SPARK_LOCAL_HOSTNAME"] = "localhost"
    builder = SparkSession.Builder().appName(app_name).master("local[*]")
    for name, value in {**_settings(memory or _default_memory()), **(config or {})}.items():
        builder = builder.config(name, value)
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return builder.getOrCreate()


def _settings(memory: str) -> dict[str, str]:
    cores = os.cpu_count() or 1
    log = Path(__file__).with_name("log4j2.properties")
    return {
        "spark.driver.memory": memory,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "localhost",
        "spark.driver.extraJavaOptions": f"-Duser.timezone=UTC -Dlog4j2.configurationFile={log.as_uri()}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        # Upper bound only: adaptive execution joins partitions that turn out small.
        "spark.sql.shuffle.partitions": str(8 * cores),
        # Each batch that goes through Python costs a millisecond or two, whatever it holds; with
        # Spark's 10,000 rows that is a fifth of the time of decoding.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "40000",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
    }


def _default_memory() -> str:
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return f"{min(8, max(1, total // (3 * GIBIBYTE)))}g"
