"""Rows of one source, typed by its schemas; and the changes that they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial, reduce
from operator import or_
from typing import NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.databus.decoding import EVENT_SCHEMA
from cdckit.databus.events import DATA, ERASED
from cdckit.databus.events import DELETE as DELETED
from cdckit.databus.sources import Source
from cdckit.databus.window_batches import STREAM
from cdckit.databus.windowed_events import has_passed, with_windows
from cdckit.errors import InvalidArgument
from cdckit.model.changes import DELETE, UPSERT, sortable_number
from cdckit.model.faults import BYTES, ERROR_CODE, ERROR_DESCRIPTION
from cdckit.model.rejected_records import ChangeFault, door_reject
from cdckit.parts import avro
from cdckit.parts.argument_forms import instance_of, rows_of, takes
from cdckit.parts.arguments import require_keys
from cdckit.parts.arrow_types import spark_type
from cdckit.parts.arrow_widening import common_type, to_common_type
from cdckit.parts.values import within_years
from cdckit.parts.workers import WorkerPlan

_SOURCE = instance_of(Source, "a Source")
_EVENTS = rows_of(
    T.StructType([EVENT_SCHEMA[name] for name in ("kind", "source_id", "schema_id", "payload")]),
    "{} are not what `decode` or `consistent_events` returns",
)


@takes(events=_EVENTS, source=_SOURCE)
def rows(events: DataFrame, source: Source) -> DataFrame:
    """
    Read the typed values of the data events of one source.

    Args:
        events: What `decode` or `consistent_events` returned; what is of other sources, or no data, or in
            error, is passed over.
        source: The source, as `decode` was given it.  An event whose schema it lacks stops the job that
            reads the rows (a PythonException that names the schema).

    Returns:
        One row per event, in no order: the columns of *events* but for the bytes (`payload`; `key`, `value`,
        `headers` of the record) and the errors, and

        - `data`: a struct of the fields of all versions of the schema, the newest version's first, each in a
          type that holds all values (text where no exact type does); null for a delete without a value;
        - `sent`: a struct of booleans: whether the schema of this event has the field.

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
    sound_events = events.where(_is_data_of(source))
    if ERROR_CODE in events.columns:
        sound_events = sound_events.where(F.col(ERROR_CODE).isNull()).drop(ERROR_CODE, ERROR_DESCRIPTION)
    return _with_values(sound_events.drop(*BYTES), source)


def is_erased() -> Column:
    """Tell whether an event was erased."""
    return F.coalesce(F.col("opcode") == ERASED, F.lit(False))


def _is_data_of(source: Source) -> Column:
    return (F.col("kind") == DATA) & (F.col("source_id") == source.id) & ~is_erased()


def _with_values(events: DataFrame, source: Source) -> DataFrame:
    """Put `data` and `sent` in the place of payloads."""
    fields = row_fields(source)
    others = [T.StructField(field.name, field.dataType) for field in events.schema if field.name != "payload"]
    data = T.StructType([T.StructField(field.name, spark_type(field.type)) for field in fields])
    sent = T.StructType([T.StructField(field.name, T.BooleanType()) for field in fields])
    columns = T.StructType([*others, T.StructField("data", data), T.StructField("sent", sent)])
    decode_batches = partial(_decode_values, schemas=source.texts, fields=fields)
    return WorkerPlan(events, decode_batches, columns).rows()


def row_fields(source: Source) -> pa.StructType:
    """List the fields of all versions, the newest version's first, each in a type that holds all."""
    fields: dict[str, pa.Field] = {}
    for text in reversed(source.texts.values()):
        for field in avro.parse_schema(text).arrow_type:
            newest = fields.setdefault(field.name.lower(), field)
            kind = common_type(newest.type, field.type)
            fields[field.name.lower()] = newest.with_type(kind)
    return pa.struct(list(fields.values()))


def _decode_values(
    batches: Iterable[pa.RecordBatch], *, schemas: dict[str, str], fields: pa.StructType
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        ids = batch.column("schema_id")
        for number in pc.unique(ids):
            schema_rows = batch.filter(pc.equal(ids, number) if number.is_valid else ids.is_null())
            payloads, known_text = schema_rows.column("payload"), schemas.get(number.as_py())
            if known_text is None and payloads.null_count < len(payloads):
                _refuse_schema(number.as_py(), schemas)
            # A delete without a value may say any schema, or none.
            text = known_text or next(reversed(schemas.values()))
            start = 0
            for decoded in avro.decode_parts(payloads, avro.parse_schema(text)):
                part_payloads = payloads.slice(start, len(decoded.errors))
                if pc.and_(decoded.errors.is_valid(), part_payloads.is_valid()).true_count:
                    _refuse_schema(number.as_py(), schemas)
                part = schema_rows.slice(start, len(decoded.errors)).drop_columns(["payload"])
                start += len(decoded.errors)
                columns = [*part.columns, *_row(decoded.values, fields)]
                yield pa.RecordBatch.from_arrays(columns, names=[*part.schema.names, "data", "sent"])


def _refuse_schema(number: str | None, schemas: Iterable[str]) -> NoReturn:
    needed = f"given with the schemas by which `decode` read its events, also {number!r}"
    raise InvalidArgument("rows", "source", needed, list(schemas))


def _row(values: pa.Array, fields: pa.StructType) -> tuple[pa.Array, pa.Array]:
    """Bring values of one schema into the fields of all, and tell which fields that schema has."""
    count = len(values)
    by_name = {field.name.lower(): part for field, part in zip(values.type, values.flatten(), strict=True)}
    parts = [by_name.get(field.name.lower()) for field in fields]
    columns = [
        pa.nulls(count, field.type) if part is None else to_common_type(part, field.type)
        for part, field in zip(parts, fields, strict=True)
    ]
    flags = [pa.array(np.full(count, part is not None)) for part in parts]
    data = pa.StructArray.from_arrays(columns, fields=list(fields), mask=values.is_null())
    return data, pa.StructArray.from_arrays(flags, names=[field.name for field in fields])


@takes(events=_EVENTS, databus_source=_SOURCE)
def changes(
    events: DataFrame, databus_source: Source, *, keys: Sequence[str], source: str | None = None
) -> DataFrame:
    """
    Say what each event of a complete window changes, and which events cannot be used.

    All changes of a window become true at one instant, that of the window's end, so at no instant does a
    history of them show half a window; and `as_of` over the histories of several sources shows them at the
    end of the same window.

    Args:
        events: What `decode` returned, all of it; or `with_windows` of that, which several sources can share.
        databus_source: The source of the events that are meant, as `decode` was given it.
        keys: The fields of its schema that are the key.  Where there is one alone, a delete that does not
            say it in its value has it from the key of its event: for an Avro date a number counts days, and
            for a timestamp a number is no key (KEY_MISSING), since nothing says its unit.
        source: The name of the source in the changes; without it, the name of the Databus source.

    Returns:
        One row per change (`cdckit.model.CHANGE_SCHEMA`).  UPSERT is an upsert, DELETE a delete.
        `sequence` is the SCN, and the place in the window; `effective_timestamp` is `window_timestamp`;
        `message_id` is the topic, its partition, the physical partition, the SCN of the window's end and the
        place in it, so that a window that is sent again says the same messages; `carried` are the fields that
        the schema of the event has; `priority` is 0.

        Events in error are rejects (`reject`), with the bytes of their records: those of this source, and
        those of which nobody can tell of which source they are; so are events of complete windows that do not
        say their key (KEY_MISSING).  An event in error keeps its whole window from passing until it is sent
        again: `windows` shows what waits for it, and a `Relay` keeps both.

    Raises:
        InvalidArgument: *keys* is empty or names no field of the source; *events* are a stream.

    Cost: as `with_windows`, unless *events* have their windows, and as `rows`, with the bytes of the records.

    >>> from cdckit import databus
    >>> changes = databus.changes(events, planes, keys=["tail"])
    >>> changes.select("operation", "effective_timestamp", "message_id", "data").show(truncate=False)
    +---------+-------------------+-------------+---------+
    |operation|effective_timestamp|message_id   |data     |
    +---------+-------------------+-------------+---------+
    |upsert   |2024-01-01 09:00:05|topic/0/1:5/1|{N12, 55}|
    +---------+-------------------+-------------+---------+
    <BLANKLINE>
    """
    require_keys(keys, [field.name for field in row_fields(databus_source)])
    windowed = events if "window_state" in events.columns else with_windows(events)
    is_bad = F.col(ERROR_CODE).isNotNull()
    may_be_of_it = F.col("source").isNull() | (F.col("source_id") == databus_source.id)
    usable_events = windowed.where(
        F.when(is_bad, may_be_of_it).otherwise(_is_data_of(databus_source) & has_passed())
    )
    # What is in error is not read any further.
    readable = usable_events.withColumn("payload", F.when(~is_bad, F.col("payload")))
    return row_changes(_with_values(readable, databus_source), keys=keys, source=source)


def event_changes(events: DataFrame, source: Source, *, keys: Sequence[str]) -> DataFrame:
    """Read the changes, and rejects, of the sound events of a source, whatever became of their windows."""
    sound_events = events.where(_is_data_of(source) & F.col(ERROR_CODE).isNull())
    return row_changes(_with_values(sound_events, source), keys=keys)


def row_changes(rows: DataFrame, *, keys: Sequence[str], source: str | None = None) -> DataFrame:
    """Make changes of rows that have their windows; rejects where they are in error or lack the key."""
    lacks_key = reduce(or_, (F.col("data").getField(key).isNull() for key in keys))
    is_reject, reject = door_reject(rows.columns, {ChangeFault.KEY_MISSING: lacks_key})
    operation = F.when(F.col("opcode") == DELETED, DELETE).otherwise(UPSERT)
    stream = F.concat_ws("/", *STREAM)
    arrival = F.struct("timestamp", "topic", "partition", "offset", F.lit(1).alias("record_number"))
    return rows.withColumn("data", _data_with_key(rows, keys)).select(
        F.when(~is_reject, operation).alias("operation"),
        F.col("window_timestamp").alias("effective_timestamp"),
        F.concat_ws("/", sortable_number(F.col("scn")), F.lpad("window_position", 10, "0")).alias("sequence"),
        arrival.alias("arrival"),
        F.concat(stream, F.lit(":"), F.concat_ws("/", "window_end_scn", "window_position")).alias(
            "message_id"
        ),
        (F.col("source") if source is None else F.lit(source)).alias("source"),
        F.lit(0).alias("priority"),
        "data",
        F.col("sent").alias("carried"),
        reject,
    )


def _data_with_key(rows: DataFrame, keys: Sequence[str]) -> Column:
    """Give a delete that does not say its key that of its event, where the key is one field."""
    data, row = F.col("data"), rows.schema["data"].dataType
    if len(keys) > 1:
        return data
    assert isinstance(row, T.StructType)
    kind, number = row[keys[0]].dataType, F.col("long_key")
    if isinstance(kind, T.DateType):
        number_key = within_years(F.date_from_unix_date(number.try_cast("int")), kind)
    elif isinstance(kind, T.TimestampType | T.TimestampNTZType):
        # Nothing says whether it counts milliseconds or microseconds.
        number_key = F.lit(None).cast(kind)
    else:
        number_key = number.cast("string").try_cast(kind)
    key = F.coalesce(F.col("string_key").try_cast(kind), number_key)
    values = {field.name: data.getField(field.name) for field in row}
    values[keys[0]] = F.coalesce(values[keys[0]], key)
    keyed = F.struct(*(value.alias(name) for name, value in values.items()))
    return F.when(F.col("opcode") == DELETED, keyed).otherwise(data).cast(row)
