"""The Spark session of a notebook or a test, and what its Java part may write on stderr."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from cdckit.errors import CdcError
from cdckit.notebook import jupyter
from cdckit.parts.argument_forms import takes

_ALWAYS = b"WARNING: Using incubator modules: jdk.incubator.vector"


@contextmanager
def hide_usual_warnings() -> Iterator[None]:
    """
    Within it, a JVM that starts says nothing of its incubator modules.

    Spark asks for them, Java says so whatever it is told, and in a notebook that is a red cell.  The JVM gets
    a pipe for its stderr, of which everything else goes where stderr went.
    """
    try:
        stderr = os.dup(2)
        sys.stderr.flush()
    except (OSError, AttributeError, ValueError):  # this program has no stderr
        yield
        return
    read, write = os.pipe()
    os.dup2(write, 2)
    os.close(write)
    threading.Thread(target=_forward_lines, args=(read, os.dup(stderr)), daemon=True).start()
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)


def _forward_lines(read: int, to: int) -> None:
    with os.fdopen(read, "rb") as lines, os.fdopen(to, "wb", buffering=0) as stderr:
        for line in lines:
            if line.strip() != _ALWAYS:
                stderr.write(line)


GIBIBYTE = 1024**3

# PySpark reads these when the JVM and the workers start; there are no settings for them.
ENVIRONMENT = {"TZ": "UTC", "PYSPARK_PYTHON": sys.executable}

# For where all executors are: those of another machine would look for the driver on their own.
LOOPBACK_ENVIRONMENT = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "localhost"}
_LOOPBACK = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "localhost"}

# They print on stderr, as one line of JSON with every stack frame, what is raised as an exception anyway.
_TALKATIVE = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")


# PySpark asks the JVM at every use what these stand for, and then what their methods do: for each column, and
# for each `select`.  For a short name Java looks through all jars of Spark, in one package after another, and
# for a method through the seven hundred of `functions`.
_ASKED_AT_EVERY_USE = (
    "functions",
    "PythonUtils",
    "PythonSQLUtils",
    "org.apache.spark.sql.functions",
    "org.apache.spark.sql.classic.SparkSession",
    "org.apache.spark.sql.catalyst.trees.PySparkCurrentOrigin",
)


class NoJava(CdcError, RuntimeError):
    """Spark's Java part did not start."""

    def __str__(self) -> str:
        return (
            "session() needs Java 17 or newer, and Spark's Java part did not start (as it said above): "
            "install one, and let JAVA_HOME name it, or have `java` on the PATH and JAVA_HOME not set."
        )


@takes()
def session(
    *,
    app_name: str = "cdckit",
    memory: str | None = None,
    small: bool = False,
    ui: bool = False,
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """
    The running Spark session if there is one, of whichever thread, else a local one for interactive work.

    Where the environment variable SPARK_REMOTE names a server of Spark Connect, it is a session of that one,
    which has settings of its own: of the arguments *app_name* and *config* alone count.

    The local session is quiet, keeps to the loopback interface, reads and shows every instant in
    UTC, and its Python workers run the interpreter of the driver.  Nothing else in cdckit looks a
    session up, except that tables of pandas become Spark's in this one.

    In a Jupyter notebook a DataFrame that ends a cell is then shown as `show` shows it, a line below a cell
    says what Spark is doing, and `options.progress = False` turns that line off.

    Args:
        app_name: What the session is called in Spark's own listings.
        memory:
            Heap of the local session, as Spark writes it (`"4g"`).  Without it: a third of the
            machine's memory, or of its container's, at least 1 and at most 8 GiB; 2 GiB where the system
            does not tell it.
        small: For samples, and whatever is of some thousand rows: the JVM compiles in half the time what then
            runs at half the speed, shuffles make two partitions, plans are not adapted while they run, and
            sorts and joins take memory by 4 MiB, and Spark infers no filters from joins.
        ui: Serve Spark's own pages, on this machine alone: `session().sparkContext.uiWebUrl` is where.  They
            name each job by what cdckit does.
        config: Further Spark settings; they win over the ones chosen here.  With
            `{"spark.python.sql.dataFrameDebugging.enabled": "true"}` Spark's errors name the line in which a
            column was made, and what describes large questions takes three times as long.

    Returns:
        A session.  A session that is running already is returned as it is: the arguments are for
        the one that is made here.

    Raises:
        NoJava: There is no Java that Spark could run on.

    Note:
        Sets `TZ=UTC` for this process when it makes a session: Spark's Python side reads a naive
        datetime in the zone of the process, and two zones in one answer are one too many.  Windows
        takes it up in the workers alone: there, set TZ before Python starts.

    >>> session().conf.get("spark.sql.session.timeZone")
    'UTC'
    """
    running = _running_session()
    if running is not None:
        jupyter.attach()
        return running
    config = dict(config or {})
    os.environ.update(ENVIRONMENT)
    chosen = {"spark.sql.session.timeZone": "UTC"}
    if "SPARK_REMOTE" not in os.environ:
        master = config.get("spark.master", "local[*]")
        chosen = {"spark.master": master, **settings(memory or _default_memory(), small)}
        if master.startswith("local"):
            os.environ.update(LOOPBACK_ENVIRONMENT)
            chosen |= _LOOPBACK
        chosen |= forked_workers(config) | ({"spark.ui.enabled": "true"} if ui else {})
    if hasattr(time, "tzset"):
        time.tzset()
    builder = SparkSession.Builder().appName(app_name)
    for name, value in {**chosen, **config}.items():
        builder = builder.config(name, value)
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        with hide_usual_warnings():
            spark = builder.getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() == "JAVA_GATEWAY_EXITED":
            raise NoJava() from error
        raise
    _cache_java_names()
    jupyter.attach()
    return spark


def _running_session() -> SparkSession | None:
    try:
        active = SparkSession.active()
        active.range(0)  # One whose context was stopped is found as well, and can do nothing.
    except (PySparkRuntimeError, AttributeError):
        return None
    return active


def _cache_java_names() -> None:
    """
    Let PySpark's view of its JVM keep what names of classes and methods stand for: always the same.

    A client of Spark Connect has no JVM, and may have no Py4J.
    """
    if is_remote():
        return
    from py4j.java_gateway import JavaClass, JavaMember
    from pyspark import SparkContext

    class CachedClass(JavaClass):  # type: ignore[misc]  # py4j has no types
        """A class of the JVM that looks up each of its methods once."""

        def __getattr__(self, name: str) -> Any:
            member = super().__getattr__(name)
            if isinstance(member, JavaMember):
                self.__dict__[name] = member
            return member

    jvm: Any = SparkContext._jvm
    for name in _ASKED_AT_EVERY_USE if jvm is not None else ():
        java_class = getattr(jvm, name)
        if isinstance(java_class, JavaClass):
            vars(jvm)[name] = CachedClass(java_class._fqn, java_class._gateway_client)


def settings(memory: str, small: bool = False) -> dict[str, str]:
    """Choose what a session with so large a heap is told, for *small* data or any."""
    partitions = 2 if small else 8 * (os.cpu_count() or 1)
    log = Path(__file__).with_name("log4j2.properties")
    java = f"-Duser.timezone=UTC -Dlog4j2.configurationFile={log.as_uri()}"
    # Each sort, and each small table that a join hands round, takes a page at once and fills it with zeros.
    # Spark chooses 32 or 64 MiB on such a heap: of a hundred joins gigabytes, for kilobytes of rows.
    # And what holds of a table by its filters and joins is worked out for each part of a plan, to leave out
    # rows that few tables have.
    of_few_rows = {"spark.buffer.pageSize": "4m", "spark.sql.constraintPropagation.enabled": "false"}
    return (of_few_rows if small else {}) | {
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": f"{java} {_ONE_COMPILER}" if small else java,
        # PySpark sends the place in the program of each function of a column to the JVM, in five calls: with
        # it, to describe a question of several hundred columns takes three seconds, without it one.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Spark writes a text of every plan that it runs, for the UI that is off: the short one.
        "spark.sql.ui.explainMode": "simple",
        "spark.sql.session.timeZone": "UTC",
        # For data of any size an upper bound only: adaptive execution joins partitions that turn out small.
        "spark.sql.shuffle.partitions": str(partitions),
        # After each shuffle it plans anew, and writes a text of the whole plan, with the plans of all that is
        # cached in it: of few rows both take longer than what is gained.
        "spark.sql.adaptive.enabled": str(not small).lower(),
        # Each batch that goes through Python costs a millisecond or two, whatever it holds; with
        # Spark's 10,000 rows that is a fifth of the time of decoding.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "40000",
        # Rows of kilobytes go in fewer, so that what copies them again and again finds them in the cache:
        # a fifth of the JVM's time for messages of 2 KB.
        "spark.sql.execution.arrow.maxBytesPerBatch": str(4 << 20),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Python workers are forked from one process for each environment that they are given.  By these two
        # those of rows from Python and those of a DataFrame's functions, of any session, are given the same.
        "spark.sql.artifact.isolation.enabled": "false",
        "spark.executorEnv.SPARK_SIMPLIFIED_TRACEBACK": "1",
    }


def forked_workers(config: Mapping[str, str]) -> dict[str, str]:
    """
    Choose workers forked from a process that knows cdckit (`parts.worker_daemon`), where that works.

    Workers on other machines may have another Python or none of cdckit, and so may an interpreter of one's
    own; macOS does not let a process fork after it has used some of its libraries.
    """
    here = config.get("spark.master", "local").partition("[")[0] == "local"  # and not local-cluster[…]
    if sys.platform != "linux" or not here or "spark.pyspark.python" in config or not _package_is_found():
        return {}
    return {"spark.python.daemon.module": "cdckit.parts.worker_daemon"}


def _package_is_found() -> bool:
    """Tell whether a Python that is started here finds this very package: `sys.path` may say anything."""
    code = "import importlib.util as u; print(u.find_spec('cdckit').origin)"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return process.stdout.strip() == str(Path(__file__).parents[1] / "__init__.py")


# Java's second compiler makes a program of seconds slower: it takes as long as all else together.  The first
# one alone has room for 48 MiB of code, which a minute's notebook fills; then all is interpreted for ever.
_ONE_COMPILER = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"


MEMORY_LIMITS = [Path("/sys/fs/cgroup", name) for name in ("memory.max", "memory/memory.limit_in_bytes")]
"""Where a container on Linux finds how much memory it may have, by the newer way and the older."""


def _default_memory() -> str:
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # Windows has no sysconf, other systems not these two
        return "2g"
    for file in MEMORY_LIMITS:
        with suppress(OSError, ValueError):  # there is none; "max" is no limit
            total = min(total, int(file.read_text()))
    return f"{min(8, max(1, total // (3 * GIBIBYTE)))}g"
