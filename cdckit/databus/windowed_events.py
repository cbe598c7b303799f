"""Events with their windows, those that count, and the windows themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.databus.decoding import EVENT_SCHEMA
from cdckit.databus.events import DATA, EVENT, DatabusFault
from cdckit.databus.window_batches import (
    CONTENT,
    EVENT_WINDOW,
    PARTITION,
    STREAM,
    WINDOW,
    cut_batches,
    find_windows,
    with_columns,
)
from cdckit.databus.window_machine import COMPLETE, WAITING
from cdckit.model.faults import BYTES, ERROR_CODE, ERROR_DESCRIPTION
from cdckit.model.rejected_records import ERROR_FIELDS
from cdckit.parts.argument_forms import no_stream, rows_of, takes
from cdckit.parts.arguments import quoted
from cdckit.parts.arrow_types import spark_columns
from cdckit.parts.workers import WorkerPlan, map_columns

_READ = (
    *PARTITION, "offset", "kind", "scn", "physical_partition", "source_id", "event_timestamp", ERROR_CODE,
)  # fmt: skip
_WINDOW = "_event_windows"
_WINDOW_FIELDS = T.StructType([*spark_columns(EVENT_WINDOW), *ERROR_FIELDS])
_EVENTS = (
    rows_of(
        T.StructType([EVENT_SCHEMA[name] for name in (*_READ, ERROR_DESCRIPTION)]),
        "{} are not what `decode` returns",
    ),
    no_stream("hand each micro-batch over with all that its open windows began with (`foreachBatch`)"),
)


@takes(events=_EVENTS)
def with_windows(events: DataFrame) -> DataFrame:
    """
    Tell every event which window it is in, and what became of that window.

    A stream is a physical partition within a partition of a topic, in the order of its offsets.  Its windows
    end with an end of period; a rollback takes the events of the window that it meets with it.  It may come
    at any time, since the start of a window is no record.  Windows without events may follow; the first one
    with events must start where the one did that was rolled back, or before.

    Args:
        events: What `decode` returned, all of it: an event in error is known to be missing from its window,
            one that was left out is not.

    Returns:
        The same rows and columns, in no order, and

        - `window`: the number of the window in its stream, from 1, attempts that failed included;
        - `window_state`: what became of it, and so of its events:
          `complete`: it passes, and so does every data event in this state;
          `open`: its end is not there yet;
          `repeated`: it, or this event of a complete one, was sent again and passed before; or, without a
          window, the record is among *events* once more;
          `rolled back`: a rollback came before its end;
          `damaged`: an event of it is in error, or its SCNs break the rules;
          `waiting`: what came before it, in a window that was rolled back, damaged or waiting, was not sent
          again so far; this window will not pass either, until it is sent again itself;
          `late`: it ended behind windows of greater SCNs, and was not seen before;
        - `window_start_scn` (the lowest of its data events), `window_end_scn`: null where there is none;
        - `window_timestamp`: when a complete window became true: the time of its end, but not before one of
          its events, nor before any window of the stream that passed earlier;
        - `window_position`: the place of a data event among those of its window, from 1;
        - `error_code`, `error_description`: what `decode` found, and every break of the rules of windows,
          on the event that breaks them, with what was expected.

        An event in error that says its SCN is missing until a window with this SCN passes.  A record so
        broken that it does not say its physical partition has no window; it may have been of any stream of
        its topic's partition, so it damages the window of each of them that it stands in, and the first one
        of a stream that begins before a window has ended.  A tombstone is no event, and damages none.  A
        record without an offset, or with that of another one, cannot be put in order (PLACE_TAKEN).

    Cost: one shuffle by topic and partition, one sort, and one pass of a few numbers for each event through
    Python in Arrow batches; the rest of the event waits in the JVM.  Each partition of a topic is one task,
    since what a window is depends on all that stands before it; 5,000,000 events in one partition take about
    a quarter longer than in eight, on two cores.  The rows of a window, and what came behind them in their
    partition, wait for its end, above some size in files; what is kept for longer is 16 bytes for each window
    that passed, and some 80 for each that must be sent again.

    Source:
        Databus, "Databus Event Types": "if one started from a consistent state of the data and applied all
        events, they will finish in a consistent state"; "The new window may start the same or earlier SCN".

    >>> windowed = with_windows(events).where("kind = 'data'").orderBy("offset")
    >>> windowed.select("offset", "scn", "window", "window_state", "window_end_scn").show()
    +------+---+------+------------+--------------+
    |offset|scn|window|window_state|window_end_scn|
    +------+---+------+------------+--------------+
    |     0|  5|     1|    complete|             5|
    |     1|  5|     1|    complete|             5|
    |     3|  6|     2| rolled back|          NULL|
    |     5|  5|     3|    repeated|             5|
    |     6|  5|     3|    repeated|             5|
    |     8|  6|     4|    complete|             6|
    |    10|  7|     5|        open|          NULL|
    +------+---+------+------------+--------------+
    <BLANKLINE>
    """
    given_events = events.drop(*EVENT_WINDOW.names)
    sorted_events = _sort_events(given_events.withColumn(CONTENT, _content(events)))
    read = (*_READ, CONTENT)
    windowed = sorted_events.withColumn(_WINDOW, map_columns(read, _event_windows, _WINDOW_FIELDS))
    errors = {name: F.coalesce(name, f"{_WINDOW}.{name}") for name in (ERROR_CODE, ERROR_DESCRIPTION)}
    columns = (errors.get(name, F.col(quoted(name))).alias(name) for name in given_events.columns)
    return windowed.select(*columns, *(f"{_WINDOW}.{name}" for name in EVENT_WINDOW.names))


@takes(events=_EVENTS)
def consistent_events(events: DataFrame) -> DataFrame:
    """
    Keep the data events of complete windows, each once: what moves a table between consistent states.

    Args:
        events: What `decode` returned, all of it.

    Returns:
        Of the rows of `with_windows` the data events whose `window_state` is `complete`, without the bytes of
        their records (`key`, `value`, `headers`) and without the columns of errors.

    Cost: as `with_windows`, without the bytes of records in the shuffle.

    >>> found = consistent_events(events).orderBy("scn", "window_position")
    >>> found.select("scn", "source", "window_position").show()
    +---+-------+---------------+
    |scn| source|window_position|
    +---+-------+---------------+
    |  5| planes|              1|
    |  5|flights|              2|
    |  6|flights|              1|
    +---+-------+---------------+
    <BLANKLINE>
    """
    windowed = with_windows(events.drop(*BYTES))
    return windowed.where(has_passed()).drop(ERROR_CODE, ERROR_DESCRIPTION)


def has_passed() -> Column:
    """Tell whether an event is a data event of a complete window."""
    return (F.col("window_state") == COMPLETE) & (F.col("kind") == DATA)


@takes(events=_EVENTS)
def windows(events: DataFrame) -> DataFrame:
    """
    List the windows of each stream.

    Args:
        events: What `decode` returned, all of it.

    Returns:
        One row per window, in no order: `topic`, `partition`, `physical_partition`; `window`, `state`,
        `start_scn`, `end_scn`, `window_timestamp` as `with_windows` has them; `events` and `bad_events`, how
        many data events it has and how many in error; `first_offset`, `last_offset`; and what is wrong with
        its end, if anything: `error_code`, `error_description`.

    Cost: one shuffle and one sort of a few numbers for each event.

    >>> windows(events).orderBy("window").select("window", "state", "start_scn", "end_scn", "events").show()
    +------+-----------+---------+-------+------+
    |window|      state|start_scn|end_scn|events|
    +------+-----------+---------+-------+------+
    |     1|   complete|        5|      5|     2|
    |     2|rolled back|        6|   NULL|     1|
    |     3|   repeated|        5|      5|     2|
    |     4|   complete|        6|      6|     1|
    |     5|       open|        7|   NULL|     1|
    +------+-----------+---------+-------+------+
    <BLANKLINE>
    """
    read = events.select(*_READ, _content(events).alias(CONTENT))
    return WorkerPlan(_sort_events(read), find_windows, spark_columns(WINDOW)).rows()


@takes()
def find_frontiers(events: DataFrame) -> DataFrame:
    """
    Find until where each stream has passed whole windows, with nothing missing before them.

    SCNs grow by any step: a window that is lost with its end leaves no trace here.  Its offsets are
    missing (`cdckit.model.find_frontiers`).

    Args:
        events: What `decode` returned, all of it.

    Returns:
        One row per stream, in no order: `topic`, `partition`, `physical_partition`;
        `complete_until_position`, the SCN in which its last complete window ends, and
        `complete_until_timestamp`, when that became true, null where none is complete; `waiting`, how many
        windows above that wait for one that was damaged or rolled back, and was not sent again.

    Raises:
        MissingColumns, WrongColumnType, InvalidArgument: As `windows`.

    Cost: as `windows`, and one small shuffle.

    >>> found = find_frontiers(events)
    >>> found.select("physical_partition", "complete_until_position", "waiting").show()
    +------------------+-----------------------+-------+
    |physical_partition|complete_until_position|waiting|
    +------------------+-----------------------+-------+
    |                 1|                      6|      0|
    +------------------+-----------------------+-------+
    <BLANKLINE>
    """
    is_complete, end = F.col("state") == COMPLETE, F.col("end_scn")
    stream = Window.partitionBy(*STREAM).rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    last_end = F.coalesce(F.max(F.when(is_complete, end)).over(stream), F.lit(-1))
    # The state of a window never changes: below that end, one that waited was sent again, and passed.
    still_waits = (F.col("state") == WAITING) & (end > last_end)
    return (
        windows(events)
        .withColumn("waiting_end", F.when(still_waits, end))
        .groupBy(*STREAM)
        .agg(
            F.max(F.when(is_complete, end)).alias("complete_until_position"),
            F.max(F.when(is_complete, F.col("window_timestamp"))).alias("complete_until_timestamp"),
            F.count_distinct("waiting_end").alias("waiting"),
        )
    )


def _sort_events(events: DataFrame) -> DataFrame:
    # Of several records in one place, which one counts is told by what they say, not by how they came here.
    place = ("offset", F.col(ERROR_CODE).eqNullSafe(DatabusFault.PLACE_TAKEN.value), STREAM[2], CONTENT)
    return events.repartition(*PARTITION).sortWithinPartitions(*PARTITION, *place)


def _content(events: DataFrame) -> Column:
    return F.xxhash64(*(name for name in (*EVENT.names, ERROR_CODE) if name in events.columns))


def _event_windows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Tell each event its window, and the error that it makes, if it has none yet."""
    described = (
        with_columns(batch, {ERROR_DESCRIPTION: pa.nulls(batch.num_rows, pa.string())}) for batch in batches
    )
    for rows in cut_batches(described):
        yield rows.select(_WINDOW_FIELDS.fieldNames())
