"""Tables of events: windows, the events that count, the rows of one source, and the changes they are."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial, reduce
from operator import or_

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.databus.event_values import DATA, Source
from cdckit.databus.event_values import DELETE as DELETED
from cdckit.databus.event_values import UPSERT as UPSERTED
from cdckit.databus.events import EVENT_FIELDS
from cdckit.databus.window_batches import EVENT_WINDOW, STREAM, WINDOW, Output, cut_batches, with_columns
from cdckit.databus.window_machine import COMPLETE
from cdckit.errors import InvalidArgument
from cdckit.model.changes import DELETE, UPSERT, sortable_number
from cdckit.model.records import ERROR_CODE, ERROR_DESCRIPTION, ERROR_FIELDS, RECORD_SCHEMA, door_reject
from cdckit.parts import avro
from cdckit.parts.arguments import (
    quoted,
    require_batch,
    require_columns,
    require_keys,
    require_struct,
    require_types,
)
from cdckit.parts.arrow_types import spark_columns, spark_type
from cdckit.parts.widening import common_type, to_common_type
from cdckit.parts.workers import WorkerPlan, map_columns

_READ = T.StructType(
    [
        *(RECORD_SCHEMA[name] for name in ("topic", "partition", "offset")),
        *(
            each
            for each in EVENT_FIELDS
            if each.name in ("kind", "scn", "physical_partition", "source_id", "event_timestamp")
        ),
        *ERROR_FIELDS,
    ]
)
_BYTES = ("key", "value", "headers")
_WINDOW = "_event_windows"
_WINDOW_FIELDS = T.StructType([*spark_columns(EVENT_WINDOW), *ERROR_FIELDS])
_INSTEAD = "hand each micro-batch over with all that its open windows began with (`foreachBatch`)"


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
          `repeated`: it, or this event of a complete one, was sent again and passed before;
          `rolled back`: a rollback came before its end;
          `damaged`: an event of it is in error, or its SCNs break the rules;
          `waiting`: a window before it was rolled back or damaged, and was not sent again so far;
          `late`: it ended behind windows of greater SCNs, and was not seen before;
        - `window_start_scn` (the lowest of its data events), `window_end_scn`: null where there is none;
        - `window_timestamp`: when a complete window became true: the time of its end, but not before any
          window of the stream that passed earlier;
        - `window_position`: the place of a data event among those of its window, from 1;
        - `error_code`, `error_description`: what `decode` found, and every break of the rules of windows,
          on the event that breaks them, with what was expected.

        A record so broken that it does not say its physical partition has no window; it may have been of any
        stream of its topic's partition, so it damages the window of each of them that it stands in.

    Raises:
        MissingColumns, WrongColumnType: *events* are not what `decode` returns.
        InvalidArgument: *events* are a stream.

    Cost: one shuffle by topic and partition, one sort, and one pass of a few numbers for each event through
    Python in Arrow batches; the rest of the event waits in the JVM.  Each partition of a topic is one task,
    since what a window is depends on all that stands before it; 5,000,000 events in one partition take about
    a quarter longer than in eight, on two cores.  The rows of a window wait for its end, above some size in
    files; what is kept for longer is 16 bytes for each window that passed.

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
    _require_events(events, function="with_windows")
    windowed = _with_window_struct(events)
    names = [name for name in events.columns if name not in EVENT_WINDOW.names]
    errors = (ERROR_CODE, ERROR_DESCRIPTION)
    found = {name: F.coalesce(name, f"{_WINDOW}.{name}").alias(name) for name in errors}
    return windowed.select(*(found.get(name, F.col(quoted(name))) for name in names), *_window_columns())


def consistent_events(events: DataFrame) -> DataFrame:
    """
    The data events of complete windows, each once: what moves a table from one consistent state to the next.

    Args:
        events: What `decode` returned, all of it.

    Returns:
        Of the rows of `with_windows` the data events whose `window_state` is `complete`, without the bytes of
        their records (`key`, `value`, `headers`) and without the columns of errors.

    Raises:
        MissingColumns, WrongColumnType: *events* are not what `decode` returns.
        InvalidArgument: *events* are a stream.

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
    _require_events(events, function="consistent_events")
    windowed = _with_window_struct(events.drop(*_BYTES))
    passes = (F.col(f"{_WINDOW}.window_state") == COMPLETE) & (F.col("kind") == DATA)
    left_out = (*EVENT_WINDOW.names, *_BYTES, ERROR_CODE, ERROR_DESCRIPTION)
    names = [name for name in events.columns if name not in left_out]
    return windowed.where(passes).select(*(F.col(quoted(name)) for name in names), *_window_columns())


def windows(events: DataFrame) -> DataFrame:
    """
    One row for each window of each stream.

    Args:
        events: What `decode` returned, all of it.

    Returns:
        One row per window, in no order: `topic`, `partition`, `physical_partition`; `window`, `state`,
        `start_scn`, `end_scn`, `window_timestamp` as `with_windows` has them; `events` and `bad_events`, how
        many data events it has and how many in error; `first_offset`, `last_offset`; and what is wrong with
        its end, if anything: `error_code`, `error_description`.

    Raises:
        MissingColumns, WrongColumnType: *events* are not what `decode` returns.
        InvalidArgument: *events* are a stream.

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
    _require_events(events, function="windows")
    return _plan(events.select(*_READ.fieldNames()), "windows").rows()


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
        windows wait for one that was damaged or rolled back, and was not sent again.

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
    passed, waits = F.col("state") == "complete", F.col("state") == "waiting"
    return (
        windows(events)
        .groupBy("topic", "partition", "physical_partition")
        .agg(
            F.max(F.when(passed, F.col("end_scn"))).alias("complete_until_position"),
            F.max(F.when(passed, F.col("window_timestamp"))).alias("complete_until_timestamp"),
            F.count_if(waits).alias("waiting"),
        )
    )


def _require_events(events: DataFrame, *, function: str) -> None:
    require_types(events, _READ, function=function)
    require_batch(events, "events", _INSTEAD, function=function)


def plan_windows(events: DataFrame, output: Output, *, function: str) -> WorkerPlan:
    """What workers make of events: for who writes it, without the bytes of their records."""
    _require_events(events, function=function)
    kept = events.drop(*_BYTES, *EVENT_WINDOW.names)
    return _plan(kept, output)


def _plan(kept: DataFrame, output: Output) -> WorkerPlan:
    return WorkerPlan(_sort_streams(kept), partial(cut_batches, output=output), _columns(kept, output))


def _with_window_struct(events: DataFrame) -> DataFrame:
    """The events, without the columns of windows that they may have, and with what is told of each."""
    kept = events.drop(*EVENT_WINDOW.names)
    read = [name for name in _READ.fieldNames() if name != ERROR_DESCRIPTION]
    return _sort_streams(kept).withColumn(_WINDOW, map_columns(read, _event_windows, _WINDOW_FIELDS))


def _event_windows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Of each event its window, and the error that it makes, if it has none yet."""
    nothing = ((batch, pa.nulls(batch.num_rows, pa.string())) for batch in batches)
    found = (with_columns(batch, {ERROR_DESCRIPTION: none}) for batch, none in nothing)
    for rows in cut_batches(found, output="events"):
        yield rows.select(_WINDOW_FIELDS.fieldNames())


def _sort_streams(events: DataFrame) -> DataFrame:
    return events.repartition("topic", "partition").sortWithinPartitions(*STREAM, "offset")


def _window_columns() -> list[Column]:
    return [F.col(f"{_WINDOW}.{name}").alias(name) for name in EVENT_WINDOW.names]


def _columns(events: DataFrame, output: Output) -> T.StructType:
    if output == "windows":
        return spark_columns(WINDOW)
    own = [T.StructField(field.name, field.dataType) for field in events.schema]
    return T.StructType([*own, *spark_columns(EVENT_WINDOW)])


_EVENT_COLUMNS = T.StructType(
    [each for each in EVENT_FIELDS if each.name in ("kind", "source_id", "schema_id", "payload")]
)
_RAW_COLUMNS = ("key", "value", "headers", "payload")


def rows(events: DataFrame, source: Source, *, as_double: Collection[str] = ()) -> DataFrame:
    """
    The data events of one source, with typed values.

    Args:
        events: What `decode` or `consistent_events` returned; what is of other sources, or no data, or in
            error, is passed over.
        source: The source, as `decode` was given it.
        as_double: Fields that are to be doubles, which may cost digits, where two versions of the schema have
            numbers that no exact type holds.  They are text otherwise.

    Returns:
        One row per event, in no order: the columns of *events* but for the bytes (`payload`; `key`, `value`,
        `headers` of the record) and the errors, and

        - `data`: a struct of the fields of all versions of the schema, the newest version's first; null for
          a delete without a value;
        - `sent`: a struct of booleans: whether the schema of this event has the field.

    Raises:
        MissingColumns, WrongColumnType: *events* are not what `decode` or `consistent_events` returns.
        InvalidArgument: *source* is no `Source`.

    Cost: one pass through Python in Arrow batches, no shuffle.  `decode` has read the values before, to tell
    which are wrong; here they are read again, those of one source alone.

    >>> rows(events, planes).where("scn = 5").select("opcode", "scn", "data").distinct().show()
    +------+---+---------+
    |opcode|scn|     data|
    +------+---+---------+
    |UPSERT|  5|{N12, 55}|
    +------+---+---------+
    <BLANKLINE>
    """
    require_types(events, _EVENT_COLUMNS, function="rows")
    if not isinstance(source, Source):
        raise InvalidArgument("rows", "source", "a Source", source)
    is_said = F.col("opcode").isin(UPSERTED, DELETED)
    good = events.where((F.col("kind") == DATA) & (F.col("source_id") == source.id) & is_said)
    if "error_code" in events.columns:
        good = good.where(F.col("error_code").isNull()).drop("error_code", "error_description")
    kept = good.select(
        "schema_id", "payload", *(n for n in good.columns if n not in ("schema_id", *_RAW_COLUMNS))
    )
    fields = row_fields(source, as_double)
    columns = T.StructType([field for field in kept.schema.fields if field.name != "payload"])
    nullable = [T.StructField(field.name, field.dataType) for field in columns]
    row = T.StructType([T.StructField(field.name, spark_type(field.type)) for field in fields])
    flags = T.StructType([T.StructField(field.name, T.BooleanType()) for field in fields])
    columns_added = T.StructType([*nullable, T.StructField("data", row), T.StructField("sent", flags)])
    return WorkerPlan(
        kept, partial(_decode_values, schemas=source.texts, fields=fields), columns_added
    ).rows()


def row_fields(source: Source, as_double: Collection[str] = ()) -> pa.StructType:
    """The fields of all versions of a source, the newest version's first, each in a type that holds all."""
    found: dict[str, pa.Field] = {}
    for text in reversed(source.texts.values()):
        for field in avro.parse_schema(text).arrow_type:
            known = found.setdefault(field.name.lower(), field)
            kind = common_type(known.type, field.type, as_double=known.name in as_double)
            found[field.name.lower()] = known.with_type(kind)
    return pa.struct(list(found.values()))


def _decode_values(
    batches: Iterable[pa.RecordBatch], *, schemas: dict[str, str], fields: pa.StructType
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        ids = batch.column("schema_id")
        for number in pc.unique(ids):
            chosen = batch.filter(pc.equal(ids, number) if number.is_valid else ids.is_null())
            text = schemas.get(number.as_py()) if number.is_valid else None
            # A delete without a value may say any schema, or none.
            schema = avro.parse_schema(text or next(reversed(schemas.values())))
            yield from _decode_schema_rows(chosen, schema, fields)


def _decode_schema_rows(
    batch: pa.RecordBatch, schema: avro.AvroSchema, fields: pa.StructType
) -> Iterator[pa.RecordBatch]:
    start = 0
    for decoded in avro.decode_parts(batch.column("payload"), schema):
        count = len(decoded.errors)
        part = batch.slice(start, count)
        start += count
        data, sent = _row(decoded.values, fields)
        names = [name for name in part.schema.names if name != "payload"]
        columns = [*(part.column(name) for name in names), data, sent]
        yield pa.RecordBatch.from_arrays(columns, names=[*names, "data", "sent"])


def _row(values: pa.Array, fields: pa.StructType) -> tuple[pa.Array, pa.Array]:
    """Values of one schema in the fields of all, and which fields that schema has."""
    places = {field.name.lower(): place for place, field in enumerate(values.type)}
    own, count = values.flatten(), len(values)
    columns, sent = [], []
    for field in fields:
        place = places.get(field.name.lower())
        known = place is not None
        columns.append(
            to_common_type(own[place], field.type) if place is not None else pa.nulls(count, field.type)
        )
        sent.append(pa.array(np.full(count, known)))
    mask = values.is_null() if values.null_count else None
    flags = pa.StructArray.from_arrays(sent, names=[field.name for field in fields])
    return pa.StructArray.from_arrays(columns, fields=list(fields), mask=mask), flags


_KEYED = ("opcode", "long_key", "string_key", "data")
_PLACED = (
    "topic", "partition", "offset", "timestamp", "physical_partition", "scn", "source",
    "window_end_scn", "window_timestamp", "window_position", "sent",
)  # fmt: skip


def changes(rows: DataFrame, *, keys: Sequence[str], source: str | None = None) -> DataFrame:
    """
    What each event of a complete window says about its entity.

    All changes of a window become true at one instant, that of the window's end, so at no instant does a
    history of them show half a window; and `as_of` over the histories of several sources shows them at the
    end of the same window.

    Args:
        rows: `rows` of what `consistent_events` returned.
        keys: The fields of `data` that are the key.  Where there is one alone, a delete without a value has
            it from the key of its event.
        source: The name of the source in the changes; without it, the name of the Databus source.

    Returns:
        One row per change (`cdckit.model.CHANGE_SCHEMA`).  UPSERT is an upsert, DELETE a delete.
        `sequence` is the SCN, and the place in the window; `effective_timestamp` is `window_timestamp`;
        `message_id` is the topic, the physical partition, the SCN of the window's end and the place in it, so
        that a window that is sent again says the same messages; `carried` are the fields that the schema of
        the event has; `priority` is 0.  Events that do not say their key are rejects (`reject`,
        KEY_MISSING) with their place, and without bytes (`find_without_key` gives all of them).  No
        event in error is among them: its window does not pass until it was sent again whole.
        `cdckit.rejects` of what `decode` returned shows it, `windows` what waits for it; a `Relay` keeps
        both.

    Raises:
        MissingColumns: *rows* are not `rows` of what `consistent_events` returns.
        InvalidArgument: *keys* is empty or names no field of `data`.

    Cost: a projection, no shuffle.

    >>> from cdckit import databus
    >>> whole = databus.consistent_events(events)
    >>> changes = databus.changes(databus.rows(whole, planes), keys=["tail"])
    >>> changes.select("operation", "effective_timestamp", "message_id", "data").show(truncate=False)
    +---------+-------------------+-----------+---------+
    |operation|effective_timestamp|message_id |data     |
    +---------+-------------------+-----------+---------+
    |upsert   |2024-01-01 09:00:05|topic/1:5/1|{N12, 55}|
    +---------+-------------------+-----------+---------+
    <BLANKLINE>
    """
    require_columns(rows, _PLACED, function="changes")
    data = _with_key(rows, keys, function="changes")
    statements = rows.withColumn("data", data)
    is_reject, reject = door_reject(rows.columns, _lacks_key(keys))
    is_delete = F.col("opcode") == DELETED
    return statements.select(
        F.when(~is_reject, F.when(is_delete, DELETE).otherwise(UPSERT)).alias("operation"),
        F.col("window_timestamp").alias("effective_timestamp"),
        F.concat_ws("/", sortable_number(F.col("scn")), F.lpad("window_position", 10, "0")).alias("sequence"),
        F.struct("timestamp", "topic", "partition", "offset", F.lit(1).alias("record_number")).alias(
            "arrival"
        ),
        _message_id().alias("message_id"),
        (F.col("source") if source is None else F.lit(source)).alias("source"),
        F.lit(0).alias("priority"),
        "data",
        F.col("sent").alias("carried"),
        reject,
    )


def find_without_key(rows: DataFrame, *, keys: Sequence[str]) -> DataFrame:
    """
    The rows that do not say which entity they are about, so that `changes` has them as rejects.

    Args:
        rows: What `rows` returned.
        keys: As for `changes`.

    Returns:
        The same columns: the rows in which a field of the key is null.

    Raises:
        MissingColumns: *rows* are not what `rows` returns.
        InvalidArgument: *keys* is empty or names no field of `data`.

    Cost: one filter, no shuffle.

    >>> from cdckit import databus
    >>> find_without_key(databus.rows(events, planes), keys=["tail"]).count()
    0
    """
    data = _with_key(rows, keys, function="find_without_key")
    found = rows.withColumn("found", data)
    return found.where(reduce(or_, (F.col("found").getField(key).isNull() for key in keys))).drop("found")


def _lacks_key(keys: Sequence[str]) -> Column:
    return reduce(or_, (F.col("data").getField(key).isNull() for key in keys))


def _with_key(rows: DataFrame, keys: Sequence[str], *, function: str) -> Column:
    """The data; of a delete without a value with the key of its event, where the key is one field."""
    require_columns(rows, _KEYED, function=function)
    row = require_struct(rows, "data", function=function)
    require_keys(keys, row.fieldNames(), function=function)
    if len(keys) > 1:
        return F.col("data")
    kind = row[keys[0]].dataType
    key = F.coalesce(F.col("string_key"), F.col("long_key").cast("string"))
    fields = [
        (key.try_cast(kind) if field.name == keys[0] else F.lit(None).cast(field.dataType)).alias(field.name)
        for field in row
    ]
    return F.coalesce(
        F.col("data"), F.when(F.col("opcode") == DELETED, F.struct(*fields)).cast(_all_nullable(row))
    )


def _all_nullable(row: T.StructType) -> T.StructType:
    return T.StructType([T.StructField(field.name, field.dataType) for field in row])


def _message_id() -> Column:
    place = F.concat_ws("/", "topic", "physical_partition")
    return F.concat(place, F.lit(":"), F.concat_ws("/", "window_end_scn", "window_position"))
