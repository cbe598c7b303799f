"""Full loads of a table that changes meanwhile: their rows say no time, and come before these changes."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import SparkSession

from cdckit import current, merge, replicate, union_changes
from support.replicate_messages import Version, numbered, record, sequence, to_dataframe

ITEMS = Version({"id": "int", "name": ["null", "string"]})


def test_what_is_no_change_sequence_is_no_place(spark: SparkSession) -> None:
    """Then times count, as they do between two tasks that are one source."""

    early, late = sequence("20240101100000", 1), sequence("20240101110000", 2)
    of_items = {
        1: [("t1", "9", "10"), ("t1", "10", "20")],
        2: [("t1", late, "10"), ("t1", early, "20")],
        3: [("t1", late, "10"), ("t2", early, "20")],
    }
    values = [
        replace(ITEMS, task=task).dt(
            "UPDATE", {"id": item, "name": at}, changeSequence=place, timestamp=f"2024-01-01T10:00:{at}"
        )
        for item, said in of_items.items()
        for task, place, at in said
    ]
    both = [record(replace(ITEMS, task=task).md(), 0) for task in ("t1", "t2")]
    sent = to_dataframe(spark, [*both, *numbered(values)])
    tables = [replicate.table_changes(sent, task=task, table="ITEMS", source="shop") for task in ("t1", "t2")]
    rows = current(merge(union_changes(*tables), entity="ITEMS", keys=["id"])).collect()
    assert {row["id"]: row["name"] for row in rows} == {1: "20", 2: "10", 3: "20"}
