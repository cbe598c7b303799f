"""Work for Spark's Python workers on Arrow batches, what they do between tasks, and several jobs at once."""

from __future__ import annotations

import gc
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from traceback import format_exception
from typing import Any, TypeVar, cast
from zipimport import zipimporter

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.errors import PythonException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import types as T
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.util import inheritable_thread_target

from cdckit.errors import ErrorWithFacts
from cdckit.parts import at_home
from cdckit.parts.arguments import free_name, quoted
from cdckit.parts.arrow_types import arrow_schema, make_batch, with_texts

_MOST_BYTES = (1 << 31) - 1

Function = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
Work = Callable[[Iterable[pa.RecordBatch]], Iterable[dict[str, Any]]]


@dataclass(frozen=True)
class WorkerPlan:
    """
    What workers make of the partitions of a table; nothing is computed yet.

    Args:
        source: The table.
        function: Is given the batches of one partition, and yields batches of exactly *columns*; in those the
            texts and bytes may be large ones or not, Spark takes either.
        columns: The columns, all nullable.
        large: Whether *function* is given all texts and bytes as Arrow's large ones, or none, whatever
            the session has set for `spark.sql.execution.arrow.useLargeVarTypes`.
        heavy: Whether even few rows are much to do, such as where they name files: that is left to workers.
    """

    source: DataFrame
    function: Function
    columns: T.StructType
    large: bool = False
    heavy: bool = False

    def rows(self) -> DataFrame:
        """Make the rows, as a DataFrame."""
        require_package(self.source.sparkSession)
        sent, marked = _without_null_lists(self.source)
        by = partial(_run_function, by=self.function, large=self.large, marked=marked)
        return sent.mapInArrow(by, self.columns)


class NoPackageInWorkers(ErrorWithFacts, RuntimeError):
    """The Python of a session's workers has no cdckit, or lacks what that needs."""

    python: str
    remedy: str
    sentence = (
        "The workers of this Spark session need cdckit and pyarrow, and their Python ({python}) "
        "lacks them: {remedy}."
    )


_ON_SERVER = (
    "install cdckit where the server of Spark Connect has its Python, with the packages that it needs, or "
    'send it by spark.addArtifacts("cdckit.zip", pyfile=True)'
)
_BESIDE = (
    "set os.environ['PYSPARK_PYTHON'] = sys.executable before the session begins, or begin it with "
    "cdckit.notebook.session()"
)
_FIND_PACKAGE = "import sys, pyarrow; from importlib.util import find_spec; sys.exit(not find_spec('cdckit'))"

_CHECKED_SESSIONS: set[str] = set()


def require_package(spark: Any) -> None:
    """
    Raise `NoPackageInWorkers` unless the workers of a session can import cdckit.

    Nothing is asked where they run the Python of this program, nor of a cluster.  Cost: of Spark Connect a
    job of one row, once for each session; of another Python on this machine its start, once.
    """
    is_remote = _is_remote(spark)
    asked = spark.session_id if is_remote else _other_python(spark)
    if asked is None or asked in _CHECKED_SESSIONS:
        return
    if is_remote:
        for row in spark.range(1).mapInArrow(_find_package(), "missing string").collect():
            if row["missing"] is not None:
                raise NoPackageInWorkers(row["missing"], _ON_SERVER)
    elif subprocess.run([asked, "-c", _FIND_PACKAGE], capture_output=True, check=False).returncode:
        raise NoPackageInWorkers(asked, _BESIDE)
    _CHECKED_SESSIONS.add(asked)


def _find_package() -> Function:
    # Within a function, so that it is sent as it is, and not by a name that the server may not know.
    def find_package(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import sys
        from importlib.util import find_spec

        import pyarrow

        for _ in batches:
            missing = sys.executable if find_spec("cdckit") is None else None
            yield pyarrow.record_batch({"missing": pyarrow.array([missing], pyarrow.string())})

    return find_package


def _other_python(spark: SparkSession) -> str | None:
    """Find the Python of a local session's workers, where it is not this program's; None where it is."""
    context = spark.sparkContext
    # What a session was given by `addPyFile` is in no environment.
    if not str(context.master).startswith("local") or context._python_includes:
        return None
    python = shutil.which(context.pythonExec)
    return None if python is None or Path(python).parent == Path(sys.executable).parent else python


def _is_remote(spark: Any) -> bool:
    """Tell whether a session is one of Spark Connect: only such a one has an id of its own."""
    return getattr(spark, "session_id", None) is not None


_REPORT = T.StructType().add("report", T.StringType())


def worker_reports(
    source: DataFrame | WorkerPlan,
    work: Work,
    *,
    large: bool = False,
    by: Sequence[str] = (),
    order: Sequence[str | Column] = (),
    heavy: bool = False,
) -> list[dict[str, Any]]:
    """
    Let workers do something, or this program in their place if the rows are few; returns what they report.

    Args:
        source: A table, or what workers make of one.
        work: Is given the batches of one partition, and yields what it did with them, as JSON can say it.
        large: As for a `WorkerPlan`, of a table.
        by: The columns whose equal values are in one partition, of a table.
        order: How a partition is sorted then.
        heavy: As for a `WorkerPlan`, of a table.

    Raises:
        PythonException: *work* raised something, here or there; its text is in the message.

    Cost: one job; all that is said comes to this program.
    """
    if not isinstance(source, WorkerPlan):
        source = WorkerPlan(source, iter, source.schema, large, heavy)
    plan = source
    report = partial(_report, make=plan.function, work=work)
    few = None if plan.heavy else _few_rows(plan.source, order)
    if few is not None:
        batches = _with_texts(few.to_batches(), large=plan.large)
        return reports_at_home(lambda: work(plan.function(batches)))
    spread = plan.source.repartition(*by) if by else plan.source
    spread = spread.sortWithinPartitions(*order) if order else spread
    rows = replace(plan, source=spread, function=report, columns=_REPORT).rows().collect()
    return [json.loads(row["report"]) for row in rows]


_UNKNOWN_BYTES = 2**62
"""Spark takes what it knows nothing of for so many bytes and more."""


def _few_rows(rows: DataFrame, order: Sequence[str | Column]) -> pa.Table | None:
    """The rows in the memory of this program, if they are few; None if they are not, or nobody can tell."""
    sorted_rows = rows.coalesce(1).sortWithinPartitions(*order) if order else rows.coalesce(1)
    some = sorted_rows.limit(at_home.WORK_ROWS + 1)
    bytes_read = plan_bytes(some)
    if bytes_read is None or bytes_read > at_home.WORK_BYTES:
        return None
    # Nobody knows how many rows come of one.
    few_rows = some.toArrow()
    return few_rows if few_rows.num_rows <= at_home.WORK_ROWS else None


def plan_bytes(rows: DataFrame) -> int | None:
    """Estimate how much a plan reads, as Spark does; None where nobody can tell, as in Spark Connect."""
    if _is_remote(rows.sparkSession):
        return None
    read = sum(int(leaf.stats().sizeInBytes()) for leaf in _leaves(rows))
    return read if read < _UNKNOWN_BYTES else None


def are_few_rows(rows: DataFrame) -> bool:
    """
    Look whether these are few rows, if they are made of lists: of those nobody can tell how much they are.

    Cost: a job that counts rows, few more than are few; for a plan that reads anything else, none.
    """
    if _is_remote(rows.sparkSession) or any(leaf.nodeName() != "LogicalRDD" for leaf in _leaves(rows)):
        return False
    # No row comes to this program: nobody knows how large one is.
    return rows.limit(at_home.WORK_ROWS + 1).count() <= at_home.WORK_ROWS


_SOURCES = {"LogicalRelation", "DataSourceV2ScanRelation", "HiveTableRelation", "LocalRelation", "Range"}


def reads_sources_alone(rows: DataFrame) -> bool:
    """
    Tell whether all that a plan reads are sources of rows, of which Spark knows how large they are.

    Of the results of other plans, as in a batch of a stream, a cache or a checkpoint, it knows what it
    estimated of those.
    """
    return all(leaf.nodeName() in _SOURCES for leaf in _leaves(rows))


def _leaves(rows: DataFrame) -> Iterator[Any]:
    """What a plan reads."""
    leaves = rows._jdf.queryExecution().optimizedPlan().collectLeaves()
    return (leaves.apply(number) for number in range(leaves.size()))


def reports_at_home(work: Callable[[], Iterable[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Do work in this program in the place of workers; it raises what they would have raised."""
    try:
        return [json.loads(json.dumps(report)) for report in work()]
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise PythonException("".join(format_exception(error))) from error


def _report(batches: Iterable[pa.RecordBatch], make: Function, work: Work) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"report": pa.array(map(json.dumps, work(make(batches))), pa.string())})


def map_columns(
    names: Sequence[str],
    function: Function,
    columns: T.StructType,
    *,
    large: bool = False,
    pure: bool = False,
) -> Column:
    """
    Let workers make a struct of some columns of the rows beside it: one for each row, in their order.

    Only these columns go to the workers, and only what is made comes back; all others wait in the JVM, above
    some size in a file.  Where rows are wide, that is a fraction of what `WorkerPlan` costs.

    Args:
        names: The columns that *function* is given, two or more.
        function: Is given the batches of one partition, and yields, in batches of any size, a row of
            *columns* for each of their rows, in the same order; it may be behind by as many as it likes.
        columns: The fields of the struct.
        large: Whether *function* is given all texts and bytes as Arrow's large ones, or none.
        pure: Whether Spark may move filters past the column, and make it wherever one reads it.  Without it
            none is moved, nor a sort or a limit: sort within partitions before.
    """

    def one_each(columns_of_batches: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        batches = (pa.RecordBatch.from_arrays(list(columns), list(names)) for columns in columns_of_batches)
        for result in _run_function(batches, function, large=large):
            yield pa.StructArray.from_arrays(result.columns, result.schema.names)

    # PySpark's stubs know no structs here.
    made: Any = arrow_udf(one_each, columns)  # type: ignore[call-overload]
    # What is not determined by the values of a row is made where it stands.
    beside: Column = (made if pure else made.asNondeterministic())(*names)
    return beside


def _run_function(
    batches: Iterable[pa.RecordBatch], by: Function, large: bool, marked: Sequence[int] = ()
) -> Iterator[pa.RecordBatch]:
    if TaskContext.get() is not None:
        begin_task()
    return by(_with_texts(map(partial(_with_nulls, marked=marked), batches), large=large))


def _without_null_lists(rows: DataFrame) -> tuple[DataFrame, list[int]]:
    """
    The rows with an empty list or map for each that is null, and the places of columns that may have such.

    Behind all columns stands of each of these where it was null; within structs lists stay as they are.  For
    each row Spark asks how many bytes the batch has, and for that goes back to the last list that was not
    null: forty thousand records without headers took three seconds.
    """
    empty = {T.ArrayType: "array()", T.MapType: "map()"}
    places = [
        place for place, field in enumerate(rows.schema) if field.nullable and type(field.dataType) in empty
    ]
    if not places:
        return rows, places
    sent = [quoted(name) for name in rows.columns]
    marks = [f"{sent[at]} IS NULL AS {quoted(free_name(f'{at} is null', rows.columns))}" for at in places]
    for at in places:
        sent[at] = f"coalesce({sent[at]}, {empty[type(rows.schema[at].dataType)]}) AS {sent[at]}"
    return rows.selectExpr(*sent, *marks), places


def _with_nulls(batch: pa.RecordBatch, marked: Sequence[int]) -> pa.RecordBatch:
    """The batch without its last columns, which say of each column that is *marked* where it is null."""
    if not marked:
        return batch
    count = batch.num_columns - len(marked)
    columns, fields = batch.columns[:count], list(batch.schema)[:count]
    for place, mark in zip(marked, batch.columns[count:], strict=True):
        if mark.true_count:
            columns[place] = pc.if_else(mark, pa.scalar(None, columns[place].type), columns[place])
        fields[place] = fields[place].with_nullable(True)
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _with_texts(batches: Iterable[pa.RecordBatch], *, large: bool) -> Iterator[pa.RecordBatch]:
    """Make all texts and bytes of the rows large, or none; those are in batches that fit."""
    for batch in batches:
        schema = pa.schema([field.with_type(with_texts(field.type, large=large)) for field in batch.schema])
        if schema == batch.schema:
            yield batch
        else:
            for piece in [batch] if large else _pieces(batch):
                yield make_batch(dict(zip(schema.names, piece.columns, strict=True)), schema)


def _pieces(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    """The batch in copies of parts, none with more bytes than offsets of 32 bits can tell."""
    if batch.nbytes <= _MOST_BYTES or batch.num_rows < 2:
        return [batch]
    half = batch.num_rows // 2
    halves = (batch.take(pa.array(range(*bounds))) for bounds in ((0, half), (half, batch.num_rows)))
    return [piece for some in halves for piece in _pieces(some)]


def compute_once(rows: DataFrame, *, few: bool = False) -> DataFrame | None:
    """
    Rows computed once and looked at again; None if there are none.

    They are held as `compute_rows` says; those that this program holds are rows of Spark's plans in one
    partition, so that nothing that follows need be shuffled.

    Args:
        rows, few: As for `compute_rows`.

    Cost: as of `compute_rows`.
    """
    computed = compute_rows(rows, few=few)
    if isinstance(computed, pa.Table):
        return table_frame(rows.sparkSession, computed, rows.schema)
    return computed


def compute_rows(rows: DataFrame, *, few: bool = False) -> DataFrame | pa.Table:
    """
    Rows computed once, and held without files: if they are few, or made of little, by this program; else by
    the executors, and there are some then.

    An executor that dies takes its part along: then the run fails, and can be run again.

    Args:
        rows: The rows.
        few: Whether they are known to be few.

    Cost: a job; where the plan reads much, another one, which looks whether there are more than a few.
    """
    some = local_table(rows) if few else few_table(rows)
    if some is None:
        kept = rows.localCheckpoint()
        some = local_table(kept.limit(at_home.HELD_ROWS + 1))
        if some.num_rows > at_home.HELD_ROWS:
            return kept
    return some


def few_table(rows: DataFrame) -> pa.Table | None:
    """Few rows, made of little, in the memory of this program: a job; else None, after one or none."""
    some = _few_rows(rows, ())
    return None if some is None else some.cast(arrow_schema(rows.schema))


def table_frame(spark: SparkSession, table: pa.Table, columns: T.StructType) -> DataFrame | None:
    """Rows of this program as a part of Spark's plans, in one partition; None if there are none."""
    some: Any = table
    return spark.createDataFrame(some, columns).coalesce(1) if table.num_rows else None


def local_table(rows: DataFrame) -> pa.Table:
    """Few rows in the memory of this program, instants in UTC; a job."""
    return rows.toArrow().cast(arrow_schema(rows.schema))


def local_frame(
    spark: SparkSession, rows: Sequence[tuple[Any, ...]], columns: T.StructType | str
) -> DataFrame:
    """
    A few rows of this program, or none, as a part of Spark's plans; no value is a struct or a map.

    Of a list Spark would make tasks that read it, though it were empty; a part of the plan of which it knows
    that it is, it leaves out.
    """
    kind = columns if isinstance(columns, T.StructType) else cast(T.StructType, T.StructType.fromDDL(columns))
    schema = arrow_schema(kind)
    named = [dict(zip(schema.names, row, strict=True)) for row in rows]
    table: Any = pa.Table.from_pylist(named, schema)
    return spark.createDataFrame(table, kind)


_THREADS = 4
"""Spark has only so many cores, whoever asks; more threads would only hold more plans in memory."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def run_together(spark: SparkSession, work: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """
    Call *work* for each item, several at once; returns the results in the items' order.

    The jobs belong to the groups and have the tags of the caller's.  After an error nothing more is
    begun; it is raised when what had begun has ended.
    """
    with ThreadPoolExecutor(_THREADS) as pool:
        # Each with a copy of the caller's properties: Spark notes there what a thread is running.
        # And of its context, by which errors name the function that was called.
        begun = [
            pool.submit(inheritable_thread_target(spark)(partial(copy_context().run, work, item)))
            for item in items
        ]
        try:
            return [task.result() for task in begun]
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


_STATE = "_cdckit_state"
_frozen_modules = 0


def begin_task() -> None:
    """
    Let this worker do less between this task and the next ones; to be called within a task, or before the
    worker is forked.

    Seen with PySpark 4.1 on Python 3.11: 0.24 s of processor time per task without it, 0.002 s with it.
    """
    global _frozen_modules
    _read_archives_once()
    if len(sys.modules) != _frozen_modules:
        # After each task Spark's worker collects garbage, and looks at every object of every module for it.
        # What is frozen is not looked at.  Garbage that is there already must not be frozen with it.
        gc.collect()
        gc.freeze()
        _frozen_modules = len(sys.modules)


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Let no garbage be looked for meanwhile: for work that makes many objects, and no cycles of them."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _read_archives_once() -> None:
    """
    Let the directory of a zip archive be read again only when the archive has changed.

    Before each task Spark's worker calls `importlib.invalidate_caches()`.  Up to Python 3.11 that reads the
    directories of all archives anew, once for each package that was imported from one; Spark's own
    `pyspark.zip` is one.  Later Pythons read a directory when something is looked for in it:
    https://github.com/python/cpython/issues/103200
    """
    before: Any = zipimporter.invalidate_caches
    if hasattr(zipimporter, "_get_files") or before is _read_if_changed:
        return
    vars(_read_if_changed)["before"] = before
    for finder in sys.path_importer_cache.values():
        if isinstance(finder, zipimporter):
            setattr(finder, _STATE, _state(finder))
    zipimporter.invalidate_caches = _read_if_changed  # type: ignore[method-assign,assignment]


def _read_if_changed(finder: zipimporter) -> None:
    now = _state(finder)
    if now is None or getattr(finder, _STATE, None) != now:
        vars(_read_if_changed)["before"](finder)
        setattr(finder, _STATE, now)


def _state(finder: zipimporter) -> tuple[int, int] | None:
    """Read what tells a changed archive from what it was; None if it is not there any more."""
    try:
        status = os.stat(finder.archive)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
