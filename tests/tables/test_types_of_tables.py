"""Tables of every library, of every type: a history has their values exactly, or a column is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

import duckdb
import pandas as pd
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdckit import changes_from, changes_from_snapshots
from cdckit.errors import InvalidArgument
from cdckit.tables import UnfitTable
from support.drawn_tables import AT, require_values_and_types
from tools.tiers import seeds


@seeds(1, soak=5)
@pytest.mark.parametrize("library", ["pandas, objects", "spark"])
def test_a_history_has_the_values_and_types_that_went_in(
    library: str, seed: int, spark: SparkSession
) -> None:
    """All libraries: tests/tables/heavy/test_all_libraries.py."""
    require_values_and_types(spark, library, seed)


ODD = datetime(2024, 1, 1).time()
REFUSED: dict[str, Callable[[SparkSession], Any]] = {
    "pandas": lambda _: pd.DataFrame({"id": [1, 2], "odd": [ODD, None], "more": [1, 2]}),
    "polars": lambda _: pytest.importorskip("polars").DataFrame({"id": [1, 2], "odd": [ODD, None]}),
    "duckdb": lambda _: duckdb.sql("select unnest([1, 2]) as id, unnest([1::uhugeint, null]) as odd"),
    "spark": lambda spark: spark.sql("select 1 as id, interval '1' month as odd union all select 2, null"),
}


@pytest.mark.parametrize("library", REFUSED)
def test_what_is_refused_comes_with_a_call_of_its_library_that_mends_it(
    library: str, spark: SparkSession
) -> None:
    """The call is taken as it is written, and an empty cell stays empty."""
    frame = REFUSED[library](spark)
    with pytest.raises(InvalidArgument, match=r"odd \(") as caught:
        changes_from(frame, keys=["id"], effective=AT)
    (call,) = re.findall(r"`(.*)`", str(caught.value.remedy))
    names = {"frame": frame, "F": F, "pl": pytest.importorskip("polars")}
    mended = changes_from(eval(call, names), keys=["id"], effective=AT)
    rows = mended.orderBy("data.id").select("data.odd").toArrow()["odd"].to_pylist()
    assert [type(one) for one in rows] == [str, type(None)]


def test_an_index_that_says_something_is_left_out_with_a_warning(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    frame = pd.DataFrame({"id": [1, 2], "day": ["2024-01-01", "2024-01-02"], "v": [1, 2]})
    quiet = (frame, frame[frame["id"] > 1], frame[:0])
    told = (frame.set_index("day"), frame.set_axis(["a", "b"]), frame.set_index(["day", "v"]))
    for table in (*quiet, *told):
        changes_from(table, keys=["id"], effective=AT)
    warnings = [one for one in caplog.messages if "index" in one]
    assert [re.findall(r"index of the frame(.*) is left out", one)[0] for one in warnings] == [
        " (day)", "", " (day, v)",
    ]  # fmt: skip


NAMED = pd.DataFrame([[1, "mug", "2024-01-01", None], [None, "jug", "2024-01-02", "x"]])


def test_numbers_name_columns_in_every_argument(spark: SparkSession) -> None:
    """Of a CSV without a header; a number that is none of its columns is an error of the argument."""
    how: dict[str, Any] = {"keys": [0, 1], "sequence_by": [2], "message": 3, "apply_as_deletes": "`1` = 'x'"}
    by_number = changes_from(NAMED, **how, effective=2, except_column_list=[2], ignore_null_updates=[3])
    names = {"keys": ["0", "1"], "sequence_by": ["2"], "message": "3", "apply_as_deletes": "`1` = 'x'"}
    by_name = changes_from(NAMED, **names, effective="2", except_column_list=["2"], ignore_null_updates=["3"])
    assert by_number.collect() == by_name.collect()
    lists = changes_from_snapshots(NAMED, keys=[1], taken_at=2, column_list=[3])
    assert lists.schema["data"].dataType.names == ["1", "3"]
    with pytest.raises(UnfitTable, match="sequence_by is 7, and must be a column"):
        changes_from(NAMED, keys=[0], sequence_by=7)  # type: ignore[arg-type]
