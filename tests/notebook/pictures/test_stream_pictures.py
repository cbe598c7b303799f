"""Pictures of streams: windows, and the calls of listeners."""

from __future__ import annotations

import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Polygon, Rectangle
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdckit.errors import InvalidArgument
from cdckit.notebook import pictures

EVENTS = "offset long, kind string, scn long, source string, window long, window_state string"


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


def test_each_window_has_its_ground_and_what_does_not_count_is_hollow(spark: SparkSession) -> None:
    """A repeat within a window that passes is hollow; of an event in error the mark is a cross."""
    rows = [
        (0, "data", 5, "a", 1, "complete", None),
        (1, "end", 5, None, 1, "complete", None),
        (2, "data", 5, "a", 2, "repeated", None),
        (3, "data", 6, "b", 2, "complete", None),
        (4, "end", 6, None, 2, "complete", None),
        (5, "data", 7, "a", 3, "rolled back", None),
        (6, None, None, None, 3, "rolled back", "NOT_AN_EVENT"),
        (7, "rollback", 7, None, 3, "rolled back", None),
        (8, "data", 7, "a", 4, "open", None),
    ]
    told = spark.createDataFrame(rows, f"{EVENTS}, error_code string")
    figure = pictures.event_windows(told)
    axes = figure.axes[0]
    assert figure.get_suptitle() == "2 of 4 windows pass; 1 open; 1 rolled back"
    marks = {line.get_xdata()[0]: line for line in axes.lines}  # type: ignore[index]
    filled = [at for at, line in marks.items() if line.get_markerfacecolor() != "none"]
    assert filled == [0, 3]
    assert [at for at, line in marks.items() if line.get_marker() == "x"] == [6]
    assert [at for at, line in marks.items() if line.get_marker() == "<"] == [7]
    grounds = [each for each in axes.patches if isinstance(each, Rectangle | Polygon)]
    assert [bool(each.get_hatch()) for each in grounds] == [False, False, True, True]
    assert {"3 rolled back", "4 open", "1", "2"} <= set(texts(figure))
    few = pictures.event_windows(told, limit=2)
    assert few.axes[0].get_title(loc="left").startswith("the first 2 events")
    assert pictures.event_windows(told.limit(0)).get_suptitle() == "There are no events."
    two = told.withColumn("partition", F.expr("IF(offset < 5, 0, 1)"))
    with pytest.raises(InvalidArgument, match=r"events of one stream: of one partition.*\[0, 1\]"):
        pictures.event_windows(two)


def test_a_barrier_stands_where_all_listeners_have_ended_a_call() -> None:
    calls = [
        ("a", "start", 0.0, 0.1), ("b", "start", 0.0, 0.2),
        ("a", "event 1", 0.3, 0.5), ("b", "event 2", 0.3, 0.4),
        ("a", "end", 0.6, 0.7), ("b", "end", 0.6, 0.9),
    ]  # fmt: skip
    figure = pictures.callbacks(calls)
    axes = figure.axes[0]
    assert figure.get_suptitle() == "2 listeners: 2 callbacks to all, 2 to one"
    barriers = sorted(float(line.get_xdata()[0]) for line in axes.lines)  # type: ignore[index, arg-type]
    bars = [each for each in axes.patches if isinstance(each, Rectangle)]
    ends = sorted(each.get_x() + each.get_width() for each in bars)
    assert len(bars) == 6
    assert barriers == [ends[1], ends[-1]]
    assert {"start", "event 1", "event 2", "end"} <= set(texts(figure))
    assert pictures.callbacks([]).get_suptitle() == "There are no calls."
    with pytest.raises(InvalidArgument, match="400 or fewer"):
        pictures.callbacks(calls * 100)
