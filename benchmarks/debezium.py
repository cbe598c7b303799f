"""Change events of a database to changes, beside Spark's own reader of the same JSON text; and in Avro."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.measure import Result, content_hash, side_by_side
from cdckit import debezium
from cdckit.model.records import RECORD_SCHEMA

EVENTS = 1_000_000
AVRO_EVENTS = 200_000
ROWS = 100_000
FIRST = 1_709_294_400_000

_ROW = (
    "id bigint, carrier string, flight int, origin string, dest string, tailnum string, departs bigint,"
    " delay double, fare string, cancelled boolean"
)
_SOURCE = (
    "version string, connector string, name string, ts_ms bigint, snapshot string, db string,"
    " sequence string, ts_us bigint, ts_ns bigint, schema string, `table` string, txId bigint, lsn bigint,"
    " xmin bigint"
)
_EVENT = (
    f"before struct<{_ROW}>, after struct<{_ROW}>, source struct<{_SOURCE}>, transaction string, op string,"
    " ts_ms bigint, ts_us bigint, ts_ns bigint"
)
COLUMNS = {
    "id": "int64",
    "carrier": "string",
    "flight": "int32",
    "origin": "string",
    "dest": "string",
    "tailnum": "string",
    "departs": "io.debezium.time.MicroTimestamp",
    "delay": "double",
    "fare": "org.apache.kafka.connect.data.Decimal(10,2)",
    "cancelled": "boolean",
}


def results(spark: SparkSession, work: Path, events: int = EVENTS) -> list[Result]:
    """1,000,000 events of 100,000 rows of ten columns, without a schema beside the payload and with one."""
    records = event_records(spark, work / f"events_{events}", events)
    whole = F.concat(F.lit(f'{{"schema":{_SCHEMA},"payload":'), F.col("value").cast("string"), F.lit("}"))
    beside = records.withColumn("value", whole.cast("binary"))
    forms = {"": (records, _EVENT), "_beside_schema": (beside, f"payload struct<{_EVENT}>")}
    runs: dict[str, Callable[[], None]] = {}
    told = {name: _changes(rows) for name, (rows, _) in forms.items()}
    for name, (rows, kind) in forms.items():
        read = rows.select(F.from_json(F.col("value").cast("string"), kind).alias("event"))
        runs[f"events{name} to changes"] = partial(_drain, told[name])
        runs[f"events{name}, from_json"] = partial(_drain, read)
    took, found = side_by_side(runs), []
    for name, changes in told.items():
        if changes.count() != events:
            raise RuntimeError("every one of the events should have been a change")
        ours, theirs = took[f"events{name} to changes"], took[f"events{name}, from_json"]
        ratio, seconds = round(ours.seconds / theirs.seconds, 2), round(ours.seconds, 2)
        digest = content_hash(changes.select("operation", "sequence", "data"))
        line = f"event_changes{name}_over_from_json"
        found.append(Result(line, ratio, 2.0, "lower", seconds, ours.peak_memory_mb, digest))
    return found


def _changes(records: DataFrame) -> DataFrame:
    return debezium.changes(debezium.decode(records), "flights", keys=["id"], columns=COLUMNS)


def avro_results(spark: SparkSession, work: Path, events: int = AVRO_EVENTS) -> list[Result]:
    """The same events in Avro to changes, over their JSON to changes: printed for honesty alone."""
    texts = event_records(spark, work / f"events_{events}", events)
    binary = _avro_records(texts, work / f"events_avro_{events}")
    decoded = {
        "events in JSON to changes": debezium.decode(texts),
        "events in Avro to changes": debezium.decode_avro(binary, {1: json.dumps(_ENVELOPE)}),
    }
    told = {name: _changes(each) for name, each in decoded.items()}
    theirs, ours = side_by_side({name: partial(_drain, each) for name, each in told.items()}).values()
    same = [content_hash(each.select("operation", "sequence", "data")) for each in told.values()]
    if same[0] != same[1]:
        raise RuntimeError("the same events should have given the same changes")
    ratio, seconds = round(ours.seconds / theirs.seconds, 2), round(ours.seconds, 2)
    return [Result("avro_changes_over_json", ratio, None, "lower", seconds, ours.peak_memory_mb, same[1])]


def _connect_field(name: str, kind: str) -> dict[str, Any]:
    """A column in a schema of Kafka Connect, as it stands beside each payload."""
    plain, _, digits = kind.partition("(")
    if "." not in kind:
        return {"type": kind, "optional": True, "field": name}
    more = {"name": plain, "version": 1, "field": name}
    if not digits:
        return {"type": "int64", "optional": True, **more}
    precision, scale = digits.rstrip(")").split(",")
    parameters = {"scale": scale, "connect.decimal.precision": precision}
    return {"type": "bytes", "optional": True, **more, "parameters": parameters}


_IMAGE = {"type": "struct", "optional": True, "fields": [_connect_field(*each) for each in COLUMNS.items()]}
_SCHEMA = json.dumps(
    {"type": "struct", "fields": [{**_IMAGE, "field": each} for each in ("before", "after")]}
)


def _drain(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _optional(*kinds: tuple[str, Any]) -> list[dict[str, Any]]:
    return [{"name": name, "type": ["null", kind], "default": None} for name, kind in kinds]


_AVRO = {"bigint": "long", "int": "int", "string": "string", "double": "double", "boolean": "boolean"}


def _avro_columns(ddl: str) -> list[dict[str, Any]]:
    named = (each.replace("`", "").split() for each in ddl.split(","))
    return _optional(*((name, "bytes" if name == "fare" else _AVRO[kind]) for name, kind in named))


_ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        *_optional(("before", {"type": "record", "name": "Value", "fields": _avro_columns(_ROW)})),
        *_optional(("after", "Value")),
        *_optional(("source", {"type": "record", "name": "Source", "fields": _avro_columns(_SOURCE)})),
        *_optional(("op", "string"), ("ts_ms", "long"), ("ts_us", "long"), ("ts_ns", "long")),
    ],
}


def _avro_records(texts: DataFrame, folder: Path) -> DataFrame:
    """The same records with their values in Avro, made once and then kept."""
    if not (folder / "_SUCCESS").exists():
        made = texts.drop("headers").mapInArrow(_in_avro, texts.drop("headers").schema)
        none = F.lit(None).cast(RECORD_SCHEMA["headers"].dataType)
        made.withColumn("headers", none).write.mode("overwrite").parquet(str(folder))
    return texts.sparkSession.read.parquet(str(folder))


def _in_avro(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    schema = fastavro.parse_schema(_ENVELOPE)
    for batch in batches:
        values = []
        for text in batch.column("value").to_pylist():
            event = json.loads(text)
            event["after"]["fare"] = base64.b64decode(event["after"]["fare"])
            stream = io.BytesIO()
            fastavro.schemaless_writer(stream, schema, event)
            values.append(b"\0\0\0\0\1" + stream.getvalue())
        place = batch.schema.get_field_index("value")
        yield batch.set_column(place, "value", pa.array(values, batch.schema.field(place).type))


def event_records(spark: SparkSession, folder: Path, events: int) -> DataFrame:
    """Events as Debezium's PostgreSQL connector writes them, made once and then kept."""
    if not (folder / "_SUCCESS").exists():
        row = (
            f"named_struct('id', id % {ROWS}, 'carrier', concat('C', id % 17), 'flight', int(id % 997),"
            " 'origin', 'JFK', 'dest', 'ATL', 'tailnum', concat('N', id), 'departs', at * 1000,"
            " 'delay', double(id % 60), 'fare', base64(unhex(lpad(hex(id % 30000), 8, '0'))),"
            " 'cancelled', id % 5 = 0)"
        )
        source = (
            "named_struct('version', '2.7.0.Final', 'connector', 'postgresql', 'name', 'shop', 'ts_ms', at,"
            " 'snapshot', 'false', 'db', 'shop', 'sequence', concat('[\"', id, '\",\"', id + 1, '\"]'),"
            " 'ts_us', at * 1000, 'ts_ns', at * 1000000, 'schema', 'public', 'table', 'flights', 'txId', id,"
            " 'lsn', id + 1, 'xmin', bigint(null))"
        )
        event = (
            f"to_json(named_struct('before', string(null), 'after', {row}, 'source', {source}, 'transaction',"
            f" string(null), 'op', if(id < {ROWS}, 'c', 'u'), 'ts_ms', at, 'ts_us', at * 1000, 'ts_ns',"
            " at * 1000000), map('ignoreNullFields', 'false'))"
        )
        columns = {
            "key": F.expr(f"concat('{{\"id\":', id % {ROWS}, '}}')"),
            "value": F.expr(event),
            "topic": F.lit("shop.public.flights"),
            "partition": F.lit(0),
            "offset": F.col("id"),
            "timestamp": F.timestamp_millis("at"),
            "timestampType": F.lit(0),
            "headers": F.lit(None),
        }
        numbered = spark.range(events).withColumn("at", F.lit(FIRST) + F.col("id"))
        made = numbered.select(
            *(columns[each.name].cast(each.dataType).alias(each.name) for each in RECORD_SCHEMA)
        )
        made.write.mode("overwrite").parquet(str(folder))
    return spark.read.parquet(str(folder))
