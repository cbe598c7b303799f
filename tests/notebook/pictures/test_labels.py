"""What is written into a picture when there is little room: no Spark is needed."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

import pytest
from matplotlib.axes import Axes
from matplotlib.transforms import Bbox
from pyspark.sql import types as T

from cdckit.notebook import pictures
from cdckit.notebook.pictures.axes import CellValue, InstantFormat, Labels
from cdckit.notebook.pictures.style import entity_text, new_figure

NEW_YORK = ZoneInfo("America/New_York")


@pytest.fixture
def axes() -> Axes:
    """About 9 by 4 inches of 100 pixels, in which a unit across is 9 pixels and a unit upwards 40."""
    figure, axes = new_figure("title", "subtitle")
    axes.set_xlim(0, 100)
    axes.set_ylim(0, 10)
    figure.draw_without_rendering()
    return axes


def box(x0: float, x1: float, y: float = 5, high: float = 0.5) -> Bbox:
    return Bbox([[x0, y - high / 2], [x1, y + high / 2]])


def written(axes: Axes) -> list[tuple[str, float]]:
    """Each text and how far it is turned."""
    return [(text.get_text(), text.get_rotation()) for text in axes.texts]


def test_the_longest_form_that_has_room_is_written(axes: Axes) -> None:
    labels, forms = Labels(axes), ["a long form of it", "shorter form", "short"]
    assert labels.write_in(forms, box(0, 30, 1))
    assert labels.write_in(forms, box(0, 9, 3))
    assert labels.write_in(forms, box(0, 5, 5))
    assert not labels.write_in(forms, box(0, 2, 7))
    assert written(axes) == [("a long form of it", 0), ("shorter form", 0), ("short", 0)]


def test_in_a_narrow_and_high_box_it_is_written_upwards(axes: Axes) -> None:
    assert Labels(axes).write_in(["07:55"], box(10, 13, high=2), left=True)
    assert written(axes) == [("07:55", 90)]


def test_what_must_be_read_runs_over_its_neighbour_which_yields(axes: Axes) -> None:
    """And at the edge of the picture it begins before its box; a text that is larger elsewhere stays so."""
    labels = Labels(axes)
    assert labels.write_in(["overruled"], box(10, 12), left=True, must=True)
    assert not labels.write_in(["on time"], box(12, 19), left=True)
    assert labels.write_in(["on time"], box(30, 40), left=True)
    assert labels.write_in(["arrived"], box(99, 100), left=True, must=True)
    assert [text for text, _ in written(axes)] == ["overruled", "on time", "arrived"]
    frame = axes.get_window_extent()
    for text in axes.texts:
        place = text.get_window_extent()
        assert frame.x0 <= place.x0
        assert place.x1 <= frame.x1 + 1


def test_beside_a_point_nothing_stands_upon_a_marker_or_another_text(axes: Axes) -> None:
    labels, points = Labels(axes), [(50.0, 5.0), (51.0, 5.0), (52.0, 5.0)]
    for point in points:
        labels.keep_clear(point)
    said = [labels.write_beside("7 h 35 min", point) for point in points]
    assert said[0]
    places = [text.get_window_extent() for text in axes.texts]
    assert len(places) == sum(said)
    pixels = axes.transData.transform(points)
    for number, place in enumerate(places):
        assert not place.count_overlaps(places[:number])
        assert not any(place.contains(*pixel) for pixel in pixels)


def test_the_first_has_its_words_even_where_there_is_no_place(axes: Axes) -> None:
    labels = Labels(axes)
    for x in range(40, 61):
        for y in (4, 4.5, 5, 5.5, 6):
            labels.keep_clear((x, y))
    assert not labels.write_beside("7 h 35 min", (50.0, 5.0))
    assert labels.write_beside("7 h 35 min", (50.0, 5.0), must=True)
    assert [text for text, _ in written(axes)] == ["7 h 35 min"]


def instants(*texts: str) -> list[CellValue]:
    moments = [datetime.fromisoformat(text).replace(tzinfo=UTC) for text in texts]
    return [CellValue(str(round(each.timestamp() * 1_000_000)), T.TimestampType()) for each in moments]


def forms(column: list[CellValue], zone: tzinfo = NEW_YORK) -> tuple[list[list[str]], str]:
    writing = InstantFormat.of([column], zone)
    return [list(writing.forms(each)) for each in column], writing.note


def test_instants_are_as_short_as_they_can_be_and_the_note_says_what_is_left_out() -> None:
    assert forms(instants("2013-02-08T12:00", "2013-02-08T17:06:06.199")) == (
        [["07:00"], ["12:06"]],
        "times in cells are of 2013-02-08, cut to minutes",
    )
    assert forms(instants("2013-02-08T12:00:01", "2013-02-08T12:00:05"))[0] == [["07:00:01"], ["07:00:05"]]
    assert forms(instants("2013-02-08T04:00", "2013-02-08T12:00")) == (
        [["2013-02-07 23:00"], ["2013-02-08 07:00"]],
        "",
    )
    assert forms([CellValue(None, T.TimestampType()), CellValue("x\ny", T.StringType())]) == (
        [["NULL"], ["x y"]],
        "",
    )


def test_where_days_differ_the_day_is_said_once() -> None:
    column = instants("2013-02-08T04:00", "2013-02-08T12:00", "2013-02-08T13:00")
    writing = InstantFormat.of([column], NEW_YORK)
    days = [writing.day(each) for each in column]
    assert days == ["2013-02-07", "2013-02-08", "2013-02-08"]
    assert writing.forms(column[2], days[1]) == ["08:00"]
    assert writing.forms(column[1], days[0]) == ["2013-02-08 07:00"]


def test_instants_of_two_offsets_say_theirs() -> None:
    """05:30 and 06:30 UTC are both 01:30 in New York on 3 November 2024."""
    assert forms(instants("2024-11-03T05:30", "2024-11-03T06:30"))[0] == [["01:30-04:00"], ["01:30-05:00"]]


def test_an_instant_after_the_year_9999_has_words() -> None:
    assert forms([CellValue(str(253_402_300_800_000_000), T.TimestampType())])[0] == [["after 9999"]]


def test_an_instant_in_a_key_is_on_the_same_clock() -> None:
    key = {"carrier": "AA", "due": datetime(2013, 2, 8, 12, tzinfo=UTC)}
    assert entity_text(key, NEW_YORK) == "AA 2013-02-08 07:00"


def test_red_is_a_deletes_alone() -> None:
    """No other colour is nearer to red than to green or blue; no other marker is the cross."""
    for name, look in pictures.PALETTE.items():
        red, green, blue = (int(look.colour[place : place + 2], 16) for place in (1, 3, 5))
        is_red = red > 1.3 * max(green, blue)
        assert is_red == (name == "delete"), name
        assert (look.marker == "X") == (name == "delete"), name
