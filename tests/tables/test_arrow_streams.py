"""Tables that speak Arrow's stream go in wherever a DataFrame of pandas does."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa
import pytest

from cdckit import changes_from
from cdckit.errors import InvalidArgument

WORDS = "select 1 as id, 'kettle' as name, 200::utinyint as price union all select 1, 'teapot', 210::utinyint"


def tables() -> dict[str, Any]:
    """The same two rows of three libraries, and of polars where it is installed; the second is the later."""
    columns = {"id": [1, 1], "name": ["kettle", "teapot"], "price": pa.array([200, 210], pa.uint8())}
    found = {"pyarrow": pa.table(columns), "duckdb": duckdb.sql(WORDS)}
    found["views"] = found["pyarrow"].set_column(1, "name", [pa.array(columns["name"], pa.string_view())])
    try:
        import polars
    except ImportError:
        return found
    return found | {"polars": polars.DataFrame(found["pyarrow"])}


@pytest.mark.parametrize("library", tables())
def test_rows_are_in_the_order_in_which_they_stand(library: str, spark: Any) -> None:
    """Without any other order the later row counts; what Spark has no type for is in the next one it has."""
    changes = changes_from(tables()[library], keys=["id"])
    found = (
        changes.orderBy("arrival.offset").selectExpr("arrival.offset", "data.name", "data.price").collect()
    )
    assert [tuple(row) for row in found] == [(1, "kettle", 200), (2, "teapot", 210)]
    assert changes.schema["data"].dataType.simpleString().endswith("price:smallint>")


def test_what_is_no_table_is_refused(spark: Any) -> None:
    with pytest.raises(
        InvalidArgument, match=r"what speaks Arrow's stream \(polars, DuckDB, pyarrow, ibis\)"
    ):
        changes_from(pa.chunked_array([[1, 2]]), keys=["id"])
    lazy = pytest.importorskip("polars").LazyFrame({"id": [1, 2]})
    with pytest.raises(InvalidArgument, match=r"give what `frame\.collect\(\)` returns"):
        changes_from(lazy, keys=["id"])
    twice = pa.table([[1], [2]], names=["id", "ID"])
    with pytest.raises(InvalidArgument, match="of columns that differ in more than case"):
        changes_from(twice, keys=["id"])
    with pytest.raises(InvalidArgument, match=r"at \(time64\[us\]\)"):
        changes_from(pa.table({"at": pa.array([1], pa.time64("us"))}), keys=["at"])
