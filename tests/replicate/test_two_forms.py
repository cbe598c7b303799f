"""The kernels against the plans that they replace, on the samples, on lives and on damaged messages."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from test_replicate_data import JSON_ROWS, JSON_WRONG, ORDERS, json_dt, orders_records
from test_replicate_metadata import BAD, told
from test_replicate_mutations import stream

from cdckit import replicate
from cdckit.parts.workers import local_table
from cdckit.replicate import decoding, envelope, envelopes, table_rows
from cdckit.replicate.data_messages import Reading as TableReading
from cdckit.replicate.data_messages import read_rows
from cdckit.replicate.table_versions import Table, collect_zone, make_table
from support.replicate_messages import RECORD_SCHEMA, Record, life, numbered, to_dataframe

SAMPLE = Path(__file__).parents[2] / "data" / "samples" / "replicate"
BYTES = ("key", "value", "headers")
PARTS = ("form", "type", "schema_id", "message_schema", "message")


def sample() -> pa.RecordBatch:
    tables = [pq.read_table(SAMPLE / f"{name}.parquet") for name in ("metadata", "schedule", "operations")]
    (batch,) = pa.concat_tables(tables).cast(RECORD_SCHEMA).combine_chunks().to_batches()
    return batch


def batch_of(records: list[Record]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(records, schema=RECORD_SCHEMA)


def damaged() -> pa.Array:
    chance = random.Random(7)
    values = []
    for value in pc.drop_null(sample().column("value")).to_pylist():
        place = chance.randrange(min(len(value), 60) + 1)
        rest = value[place + chance.randrange(3) :]
        values.append(value[:place] + chance.randbytes(chance.randrange(3)) + rest)
    return pa.array(values, pa.binary())


def value_arrays() -> Iterator[pa.Array]:
    yield sample().column("value")
    yield damaged()
    mutated = stream()
    for start in range(0, len(mutated), 1_000):
        yield batch_of(mutated[start : start + 1_000]).column("value")


def test_envelopes() -> None:
    count = 0
    for values in value_arrays():
        old, new = envelope.open_envelopes(values), envelopes.open_envelopes(values)
        assert new.findings == old.findings
        for name in PARTS:
            assert getattr(new, name).equals(getattr(old, name)), name
        assert new.envelope_headers.to_pylist() == old.headers.to_pylist()
        count += len(values)
    assert count > 70_000


def zones(frame: DataFrame, *, known: DataFrame | None = None) -> tuple[list[Any], list[Any]]:
    """The messages and the zone, by the plans and by the kernels."""
    opened = replicate.decode(frame).cache()
    found = []
    for way in (replicate, decoding):
        said = way.metadata(opened, known=known)
        zone = way.schema_zone(said, known=known)
        rows = [row.asDict() for row in said.collect()]
        for row in rows:
            if row["error_code"] == "METADATA_INCOMPLETE":
                row["error_description"] = None
        found.append((sorted(map(repr, rows)), sorted(map(repr, zone.collect()))))
    return found[0], found[1]


@pytest.mark.parametrize("of", ["told", "damaged", "sample", "grown"])
def test_zones(spark: SparkSession, of: str) -> None:
    known = None
    if of == "told":
        frame = to_dataframe(spark, told(), partitions=3)
    elif of == "damaged":
        frame = to_dataframe(spark, [record for record in stream() if record["value"][5:8] == b"\x04MD"])
    elif of == "sample":
        frame = spark.read.parquet(str(SAMPLE / "metadata.parquet"))
    else:
        first = replicate.metadata(replicate.decode(to_dataframe(spark, told()[:4])))
        frame, known = to_dataframe(spark, told()[3:]), replicate.schema_zone(first).localCheckpoint()
    old, new = zones(frame, known=known)
    assert [set(rows) - set(others) for rows, others in zip(new, old, strict=True)] == [set(), set()]
    assert new == old
    assert len(new[1]) > 5


def tables_of(spark: SparkSession, frame: DataFrame) -> list[Table]:
    zone = replicate.schema_zone(replicate.metadata(replicate.decode(frame)))
    by_name: dict[Any, list[Any]] = {}
    for row in collect_zone(zone):
        by_name.setdefault(tuple(row[name] for name in ("server", "task", "schema", "table")), []).append(row)
    return [make_table(rows, function="test") for rows in by_name.values()]


def rows_of(batches: Iterator[pa.RecordBatch], names: list[str]) -> Counter[str]:
    return Counter(
        repr({name: row[name] for name in names}) for batch in batches for row in batch.to_pylist()
    )


def test_rows(spark: SparkSession) -> None:
    mutated = stream()
    inputs = [sample(), *(batch_of(mutated[at : at + 5_000]) for at in range(0, len(mutated), 5_000))]
    inputs += [batch_of(life(seed)) for seed in range(60)]
    known = tables_of(spark, to_dataframe(spark, mutated[:200]))
    known += tables_of(spark, spark.read.parquet(str(SAMPLE / "metadata.parquet")))
    known += tables_of(spark, to_dataframe(spark, life(0)))
    rows = 0
    for table in known:
        names = [name for name in table_rows._worker_schema(table).names if name != "change_timestamp"]
        for batch in inputs:
            old = rows_of(table_rows._rows_of_batches(iter([batch]), table=table, unreadable=True), names)
            new = rows_of(read_rows([batch], TableReading(table, unreadable=True)), names)
            texts = Counter(text.replace("It says: None", "It says: nothing") for text in old.elements())
            assert new == texts
            rows += old.total()
    assert rows > 100_000


@pytest.mark.parametrize("of", ["orders", "drawn"])
def test_rows_in_json_form(spark: SparkSession, of: str) -> None:
    records = orders_records() if of == "orders" else drawn()
    frame = to_dataframe(spark, records)
    zone = (
        replicate.schema_zone(replicate.metadata(replicate.decode(frame))).where("table = 'ORDERS'").cache()
    )
    (table,) = tables_of(spark, to_dataframe(spark, numbered([ORDERS.md()])))
    old = local_table(replicate.data(frame, zone, json_topics=["orders"])).to_pylist()
    batches = list(read_rows([batch_of(records)], TableReading(table, ["orders"])))
    new = [row for batch in batches for row in batch.to_pylist()]
    names = [name for name in old[0] if name in batches[0].schema.names]
    differ = []
    by_place = {row["offset"]: row for row in new}
    assert sorted(by_place) == sorted(row["offset"] for row in old)
    for row in old:
        made = by_place[row["offset"]]
        of_interest = names if row["error_code"] is None else ["error_code", "error_description", "value"]
        differ += [
            (row["offset"], name, row[name], made[name])
            for name in of_interest
            if repr(row[name]).rstrip("' ") != repr(made[name]).rstrip("' ") and name not in BYTES
        ]
    assert differ == []


def drawn() -> list[Record]:
    """Values of columns in all the ways of writing them, one to a message."""
    texts = (
        "1| 2 |-3|+4|2147483648|1.0|1.5|1e2|1E-2|.5|5.|| |x|NaN|inf|-Infinity|Infinity|12345.67|12345.670|"
        "99999.99|100000|t|TRUE|yes|2024-01-01|2024-1-5|2024|2024-02|2024-01-01T10|2024-01-01 10:00|"
        "0000-01-01|2024-01-01T10:00:00.1234567|2024-01-01T10:00:00+02|2024-01-01T10:00:00Z|20240101|"
        "2024-01-01T24:00:00|2024-01-01T10:00:60|ff|FF0|0x|f f|1_0|2024-01-01T10:00:00+0130|"
        "9999-12-31|0001-01-01| 2024-01-01 |0x10|" + "9" * 40
    ).split("|")
    values = [ORDERS.md()]
    for name in ("id", "note", "total", "at", "day", "blob", "paid", "weight", "big"):
        values += [json_dt({"id": "7", name: text}) for text in texts]
    values += [value for value, _ in JSON_ROWS.values()] + [value for value, _, _ in JSON_WRONG.values()]
    return numbered([*values, *(value for value, _, _ in BAD.values())], topic="orders")
