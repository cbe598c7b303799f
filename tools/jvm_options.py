"""
What the JVM of a test run is told when it starts: Spark's submit script hands it on.

What is measured, in benchmarks/, keeps the settings that a user has.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from tools import classes

# A test ends before the second compiler's work pays: without it a run takes half the processor time.  The
# first one alone gets room for 48 MiB of code, which a thousand tests with generated classes fill; then what
# was compiled is thrown away, and compiled again.
# The collector that works with one thread costs least on a small heap, and young rows die cheapest where
# there is room for them.  Spark's classes come from the archive that tools/classes.py makes, if there is one.
# Of each plan, and of each of its stages, Spark writes a text for pages that nobody looks at, with all of
# each large expression, and with each node a second time.
# Each sort, and each table that a join hands round, takes a page of memory: by Spark's own choice 32 MiB of
# zeros, which fill the heap.  With small ones a hub's tests take four fifths of the time.
# After each batch of its rules Spark looks through the plan for faults of theirs: a tenth of the time.  What
# holds of a table by its filters and joins, which it works out for each part of a plan, takes a twentieth.
_OPTIONS = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC -XX:MetaspaceSize=256m",
    "-Xms1g -Xmn400m",
    *classes.options(),
    "-Dspark.sql.debug.maxToStringFields=1",
    "-Dspark.sql.ui.explainMode=simple",
    "-Dspark.buffer.pageSize=4m",
    "-Dspark.sql.lightweightPlanChangeValidation=false",
    "-Dspark.sql.constraintPropagation.enabled=false",
)
# To write and compile Java for each plan takes longer than a few rows do without.
WITHOUT_GENERATED_CODE = (
    "-Dspark.sql.codegen.wholeStage=false",
    "-Dspark.sql.codegen.factoryMode=NO_CODEGEN",
)


def with_ours(given: str, *, generated: bool) -> str:
    """
    The options of a test run, and after them those that were *given*, which win where both say a thing.

    What runs in `make soak` goes by *generated* code as a user's work does.  So does a part of the tests
    (`with_generated_code`), and of the notebooks, for which `tools/one_jvm.py` settles it when it has a JVM
    for them.  A run whose classes are archived keeps what it was given: its archive is not to hold that of
    another run.
    """
    ours = " ".join(_OPTIONS if generated else (*_OPTIONS, *WITHOUT_GENERATED_CODE))
    # A worker of a run was given them already.
    if given.startswith(ours) or classes.ARCHIVING in given:
        return given
    return f"{ours} {given}".rstrip()


@contextmanager
def with_generated_code(spark: SparkSession) -> Iterator[None]:
    """Within it queries go by generated code, as those of users do."""
    names = [option.removeprefix("-D").partition("=")[0] for option in WITHOUT_GENERATED_CODE]
    switched = {name: spark.conf.get(name, None) for name in names}
    for name in switched:
        spark.conf.unset(name)
    try:
        yield
    finally:
        for name, value in switched.items():
            if value is not None:
                spark.conf.set(name, value)
