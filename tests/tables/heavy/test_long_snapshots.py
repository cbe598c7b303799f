"""
Lists of many nights.

In `make test`:
tests/tables/test_changes_from_snapshots.py::test_at_the_instant_of_each_list_the_history_is_the_list,
tests/tables/test_changes_from_snapshots.py::test_a_list_in_which_nothing_stands_ends_all.
"""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdckit import changes_from_snapshots
from cdckit.model.changes import require_changes
from support.snapshots import DAY, LISTS, NEW, one_table, said


def test_what_is_listed_is_there_and_what_is_not_is_gone_once(spark: SparkSession) -> None:
    """A row that says what the list before said is no new change; as a mapping, as pairs, as one table."""
    changes = changes_from_snapshots(LISTS, keys=["id"], source="shop", priority=2)
    require_changes(changes)
    assert said(changes) == NEW
    assert said(changes_from_snapshots(list(LISTS.items())[::-1], keys=["id"])) == NEW
    mixed = {at: spark.createDataFrame(frame) if at < DAY[2] else frame for at, frame in LISTS.items()}
    assert said(changes_from_snapshots(mixed, keys=["id"])) == NEW
    table = one_table(LISTS)
    for taken in ("day", F.col("day"), "date_format(day, 'yyyy-MM-dd')"):
        assert (
            said(changes_from_snapshots(table, keys=["id"], taken_at=taken, except_column_list=["day"]))
            == NEW
        )
    row = changes.where("data.id = 2 and operation = 'absent'").toArrow().to_pylist()[0]
    assert (row["source"], row["priority"], row["message_id"]) == (
        "shop",
        2,
        "shop-list-2024-01-02T00:00:00Z",
    )
    assert row["carried"] == {"id": True, "name": False}
    assert row["arrival"]["timestamp"] == DAY[1]
