"""What goes to workers flat comes out of `nest_structs` as it was."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import types as T

from cdckit.ledger.logged_batch import flatten_structs, nest_structs

MANY = [f"flag {number}" for number in range(40)]


def test_nulls_at_every_level_and_more_flags_than_a_number_holds(spark: SparkSession) -> None:
    """A null struct is not a struct of nulls, and a flag that is null is not one that is false."""
    inner = T.StructType().add("on", "boolean").add("name", "string")
    flags = T.StructType([T.StructField(name, T.BooleanType()) for name in MANY])
    columns = (
        T.StructType().add("id", "integer").add("data", T.StructType().add("in", inner)).add("sent", flags)
    )
    every = [True, False, None, True] * 10
    rows = [
        (1, ((True, "a"),), tuple(every)),
        (2, ((None, None),), tuple([False] * 40)),
        (3, (None,), None),
        (4, None, tuple([None] * 40)),
    ]
    flat = flatten_structs(spark.createDataFrame(rows, columns)).coalesce(1).toArrow().combine_chunks()
    assert flat.schema.names == ["flags", "flags 1", "id", "data 1"]
    found = sorted(nest_structs(flat.to_batches()[0], columns).to_pylist(), key=lambda row: row["id"])
    assert found == [
        {"id": 1, "data": {"in": {"on": True, "name": "a"}}, "sent": dict(zip(MANY, every, strict=True))},
        {"id": 2, "data": {"in": {"on": None, "name": None}}, "sent": dict.fromkeys(MANY, False)},
        {"id": 3, "data": {"in": None}, "sent": None},
        {"id": 4, "data": None, "sent": dict.fromkeys(MANY)},
    ]
