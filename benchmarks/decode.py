"""Decoding data messages: our road, a library call per record, and no decoding at all."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from benchmarks.measure import Result, content_hash, side_by_side
from cdckit import replicate
from cdckit.parts import avro
from cdckit.parts.arrow_types import spark_columns
from cdckit.replicate.envelopes import ENVELOPE_AVRO, open_envelopes

MESSAGES = 800_000


def results(spark: SparkSession, year: Path, work: Path) -> list[Result]:
    """800,000 messages of 29 fields, out of the year's stream of the operations."""
    zone, records = _input(spark, year, work)
    schema = zone.collect()[0]["data_schema"]
    door = replicate.data(records, zone)
    runs: dict[str, Callable[[], object]] = {
        "decode": lambda: _drain(framed(records, schema)),
        "decode, fastavro per record": lambda: _drain(per_record(records, schema)),
        "decode, bytes handed through": lambda: _drain(handed_through(records)),
        "decode, the whole door": lambda: _drain(door),
    }
    if has_from_avro(spark):
        runs["decode, from_avro"] = lambda: _drain(by_from_avro(records, schema))
    else:
        print("  (no from_avro: its jar is not on the class path; set SPARK_AVRO_JAR to show it)")
    took = side_by_side(runs)
    ours, loop, door_took = (
        took["decode"],
        took["decode, fastavro per record"],
        took["decode, the whole door"],
    )
    digest = _agreed(framed(records, schema), per_record(records, schema))
    of_door = content_hash(door.select("operation", "change_sequence", "data.*"))
    through = took["decode, bytes handed through"].seconds
    made = [
        Result.of(
            "decode_speedup_over_fastavro", loop.seconds / ours.seconds, 5.0, ours, digest, better="higher"
        ),
        Result.of("decode_over_handed_through", ours.seconds / through, None, ours, digest),
        Result.of(
            "door_speedup_over_fastavro",
            loop.seconds / door_took.seconds,
            None,
            door_took,
            of_door,
            better="higher",
        ),
    ]
    if "decode, from_avro" in took:
        ratio = ours.seconds / took["decode, from_avro"].seconds
        made.append(Result.of("decode_over_from_avro", ratio, None, ours, digest))
    return made


def _agreed(ours: DataFrame, theirs: DataFrame) -> str:
    """The hash of what both roads decoded; what is fast and wrong is not faster."""
    digest = content_hash(ours)
    if content_hash(theirs) != digest:
        raise RuntimeError("the framed road and fastavro decoded the same messages differently")
    return digest


def _input(spark: SparkSession, year: Path, work: Path) -> tuple[DataFrame, DataFrame]:
    """
    The schema of the newest version of OPS.FLIGHTS, and the first sound messages that use it.

    One in a thousand of the year's messages is damaged; what those cost is the tests' business.
    """
    said = replicate.metadata(replicate.decode(spark.read.parquet(str(year / "metadata.parquet"))))
    zone = replicate.schema_zone(said).where("task = 'operations' and table_version = 2")
    chosen = work / f"decode_{MESSAGES}_sound.parquet"
    if not (chosen / "_SUCCESS").exists():
        stream = spark.read.parquet(str(year / "operations.parquet"))
        sound = replicate.data(stream, zone).where("error_code is null")
        places = sound.select("topic", "partition", "offset")
        of_version = stream.join(places, on=["topic", "partition", "offset"], how="left_semi")
        of_version.select(*stream.columns).limit(MESSAGES).repartition(8).write.mode("overwrite").parquet(
            str(chosen)
        )
    records = spark.read.parquet(str(chosen))
    count = records.count()
    if count != MESSAGES:
        raise RuntimeError(f"the year's stream should hold {MESSAGES:,} such messages; it holds {count:,}")
    return zone, records


def _drain(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def handed_through(records: DataFrame) -> DataFrame:
    """The limit of every road through Python: the same bytes, there and back."""
    values = records.select("value")
    return values.mapInArrow(_same, values.schema)


def _same(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return iter(batches)


def framed(records: DataFrame, schema: str) -> DataFrame:
    """Our road for the same columns: envelopes opened by position, messages framed and read natively."""
    columns = pa.schema(list(avro.parse_schema(schema).arrow_type))

    def decoded(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parsed = avro.parse_schema(schema)
        for batch in batches:
            rows = avro.decode(open_envelopes(batch.column(0)).message, parsed).values
            yield pa.RecordBatch.from_arrays(rows.flatten(), schema=columns)

    return records.select("value").mapInArrow(decoded, spark_columns(columns))


def per_record(records: DataFrame, schema: str) -> DataFrame:
    """What one writes first: fastavro for the envelope and for the message, record by record."""
    row = avro.parse_schema(schema).arrow_type
    columns = pa.schema(list(row))

    def decoded(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        envelope, message = _parsed(ENVELOPE_AVRO), _parsed(schema)
        for batch in batches:
            rows = []
            for value in batch.column(0):
                opened: Any = fastavro.schemaless_reader(io.BytesIO(value.as_py()), envelope, None)
                rows.append(fastavro.schemaless_reader(io.BytesIO(opened["message"]), message, None))
            yield pa.RecordBatch.from_pylist(rows, schema=columns)

    return records.select("value").mapInArrow(decoded, spark_columns(columns))


@cache
def _parsed(schema: str) -> Any:
    return fastavro.parse_schema(json.loads(schema))


def has_from_avro(spark: SparkSession) -> bool:
    """Whether Spark's own Avro functions are on the class path; their jar is not in the PyPI package."""
    loader = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()  # type: ignore[union-attr]
    return loader.getResource("org/apache/spark/sql/avro/AvroDataToCatalyst.class") is not None


def by_from_avro(records: DataFrame, schema: str) -> DataFrame:
    """Spark's own decoder: no reasons for failures, and a hostile datum can end the session."""
    from pyspark.sql.avro.functions import from_avro

    permissive = {"mode": "PERMISSIVE"}
    opened = records.select(from_avro("value", ENVELOPE_AVRO, permissive).alias("envelope"))
    return opened.select(from_avro("envelope.message", schema, permissive).alias("row")).select("row.*")
