"""Instants among values that are texts, on the clock of a zone: no Spark is needed."""

from __future__ import annotations

from datetime import UTC, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import pytest
from pyspark.sql import types as T

from cdckit.notebook.tables import Cell, Grid, Table
from cdckit.notebook.widgets.panel import in_zone, on_clock

NEW_YORK = ZoneInfo("America/New_York")


@pytest.mark.parametrize(
    ("text", "zone", "shown"),
    [
        ("2013-02-08 12:00:00", UTC, "2013-02-08 12:00"),
        ("2013-02-08 12:00:00", NEW_YORK, "2013-02-08 07:00"),
        ("2013-07-08 12:00:05.25", NEW_YORK, "2013-07-08 08:00:05.250"),
        ("2013-07-08 12:00:00", timezone(timedelta(hours=5, minutes=30)), "2013-07-08 17:30"),
        # It happens twice, since clocks are put back.
        ("2024-11-03 05:30:00", NEW_YORK, "2024-11-03 01:30-04:00"),
        ("2024-11-03 06:30:00", NEW_YORK, "2024-11-03 01:30-05:00"),
        ("2024-11-03 07:00:00", NEW_YORK, "2024-11-03 02:00"),
        ("NULL", NEW_YORK, "NULL"),
        ("+20013-02-08 12:00:00", NEW_YORK, "+20013-02-08 12:00:00"),
    ],
)
def test_an_instant_is_on_the_clock_of_the_zone(text: str, zone: tzinfo, shown: str) -> None:
    assert on_clock(text, zone) == shown


def test_of_a_table_by_fields_only_the_instants_are_changed() -> None:
    fields = T.StructType().add("due", T.TimestampType()).add("name", T.StringType())
    texts = [("due", "2013-02-08 12:00:00"), ("name", "2013-02-08 12:00:00")]
    rows = [[Cell(text) for text in row] for row in texts]
    table = Table(lambda: Grid([Cell("field"), Cell("a")], [False, False], rows, [False, False], "2 rows"))
    changed = in_zone(table, fields, NEW_YORK, "a").grid.rows
    assert [[cell.text for cell in row] for row in changed] == [
        ["due", "2013-02-08 07:00"],
        ["name", "2013-02-08 12:00:00"],
    ]
