"""
NaN, wherever it lies.

In `make test`:
tests/query/test_equality.py::test_merge,
tests/query/test_equality.py::test_questions_ask_so.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from cdckit import blame, changes_from, merge
from cdckit.query import timeline

NAN = float("nan")


def test_nan_is_found_wherever_the_rows_lie(spark: SparkSession, tmp_path: Path) -> None:
    """What Parquet files and cached tables know of a column, its least and greatest value, leaves NaN out."""
    log = spark.createDataFrame(
        [(1, NAN, NAN, 1.0), (2, 1.0, 1.0, NAN), (3, 0.0, -0.0, 2.0)], "id int, a double, b float, c double"
    )
    history = merge(changes_from(log, keys=["id"]), entity="thing", keys=["id"])
    history.write.parquet(str(tmp_path / "history"))
    for table in (spark.read.parquet(str(tmp_path / "history")), history.cache()):
        asked = [({"a": NAN}, [1]), ({"b": NAN}, [1]), ({"c": NAN}, [2]), ({"a": NAN, "b": NAN}, [1])]
        asked += [({"a": -0.0}, [3]), ({"b": 0.0}, [3]), ({"a": 1.0}, [2])]
        for key, ids in asked:
            assert [row["id"] for row in timeline(table, key).collect()] == ids, key
        assert blame(table, {"c": NAN}).where("field = 'id'").first()["value"] == "2"
