"""Texts, axes and colours of a picture: no Spark is needed."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from io import BytesIO
from zoneinfo import ZoneInfo

import pytest
from matplotlib.axes import Axes
from matplotlib.transforms import Bbox
from PIL import Image
from pyspark.sql import types as T

from cdckit.notebook import pictures
from cdckit.notebook.pictures.axes import Labels, ValueTexts, time_axis
from cdckit.notebook.pictures.style import INK, Picture, days, entity_text, in_style, source_looks

NEW_YORK = ZoneInfo("America/New_York")


@pytest.fixture
def axes() -> Axes:
    """About 9 by 4 inches of 100 pixels, in which a unit across is 9 pixels and a unit upwards 40."""
    picture = Picture("title", "subtitle")
    picture.chart.set(xlim=(0, 100), ylim=(0, 10))
    picture.settle()
    return picture.chart


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


def forms(*texts: str, zone: tzinfo = NEW_YORK) -> tuple[list[list[str]], str]:
    """How these instants are written in one picture, and what its second line says of all."""
    moments = [datetime.fromisoformat(text).replace(tzinfo=UTC) for text in texts]
    micros = [str(round(moment.timestamp() * 1_000_000)) for moment in moments]
    kind = T.TimestampType()
    writing = ValueTexts.of([(each, kind) for each in micros], zone)
    return [writing.forms(each, kind) for each in micros], writing.note


def test_instants_in_a_picture_are_as_short_as_in_a_table() -> None:
    """A day that all share stands once for all; where days differ, the year is the first that can go."""
    day = "times in cells are of 2013-02-08"
    assert forms("2013-02-08T12:00", "2013-02-08T17:06") == ([["07:00"], ["12:06"]], day)
    assert forms("2013-02-08T12:00:01", "2013-02-08T12:00:05") == ([["07:00:01"], ["07:00:05"]], day)
    assert forms("2013-02-08T04:00", "2013-02-08T12:00") == (
        [["2013-02-07 23:00", "02-07 23:00"], ["2013-02-08 07:00", "02-08 07:00"]],
        "",
    )
    # Both are 01:30 in New York.
    assert forms("2024-11-03T05:30", "2024-11-03T06:30")[0] == [["01:30-04:00"], ["01:30-05:00"]]


def test_a_value_is_on_one_line_and_a_null_is_named() -> None:
    kind = T.StringType()
    assert ValueTexts.of([], NEW_YORK).forms("x\ny", kind) == ["x y"]
    assert ValueTexts.of([], NEW_YORK).forms(None, T.TimestampType()) == ["NULL"]
    after = str(253_402_300_800_000_000)
    assert ValueTexts.of([(after, T.TimestampType())], UTC).forms(after, T.TimestampType()) == ["after 9999"]


@in_style
def ticks(low: str, high: str) -> tuple[list[str], str]:
    """What the ticks say on the clocks of New York, and what stands at the end of the axis for all."""
    picture = Picture("title")
    begin, end = (days(datetime.fromisoformat(text).replace(tzinfo=UTC)) for text in (low, high))
    axis = picture.chart.xaxis
    time_axis(axis, "valid time", begin, end, pad=0, zone=NEW_YORK)
    picture.settle()
    return [tick.get_text() for tick in axis.get_ticklabels()], axis.get_offset_text().get_text()


def test_an_axis_is_on_the_clock_of_its_zone() -> None:
    """The day stands once at its end, and at midnight."""
    assert ticks("2013-02-09T02:00", "2013-02-09T07:00") == (
        ["21:00", "22:00", "23:00", "02-09", "01:00", "02:00"],
        "2013-02-09",
    )
    seconds, _ = ticks("2024-01-01T00:00:00", "2024-01-01T00:00:02")
    assert seconds[1:4] == ["19:00:00.0", "19:00:00.5", "19:00:01.0"]
    assert ticks("2024-11-02T00:00", "2024-11-05T12:00")[0] == ["11-02", "11-03", "11-04", "11-05"]


def test_all_time_has_an_axis() -> None:
    assert ticks("0001-01-03T00:00", "9999-12-29T00:00")[0][1:] == ["2001", "4001", "6001", "8001"]


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


def test_what_stands_beside_the_bars_is_read_on_white_and_on_black() -> None:
    """At 3.9 to 1 or better, on the black of VS Code too; and so are the operations, at 3 to 1."""

    def light(colour: str) -> float:
        parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        red, green, blue = (x / 12.92 if x <= 0.04 else ((x + 0.055) / 1.055) ** 2.4 for x in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    def contrast(one: str, other: str) -> float:
        low, high = sorted((light(one), light(other)))
        return (high + 0.05) / (low + 0.05)

    for page in ("#ffffff", "#111111", "#1e1e1e"):
        assert contrast(INK, page) > 3.9
        for name in ("insert", "update", "delete", "recreate"):
            assert contrast(pictures.PALETTE[name].colour, page) > 3, name


def test_a_picture_has_no_ground_of_its_own() -> None:
    pixels = Image.open(BytesIO(in_style(Picture)("title")._repr_png_()))
    assert pixels.getpixel((2, 300))[3] == 0  # type: ignore[index]


def test_of_nine_sources_those_that_are_drawn_are_told_apart_or_it_is_said() -> None:
    sources = [f"s{number}" for number in range(9)]
    first, last = source_looks(sources, ["s0", "s8"]), source_looks(sources, sources)
    assert first["s0"] != first["s8"]
    assert source_looks(sources[:8], ["s7"])["s7"] == source_looks(sources[:8])["s7"]
    for looks, line in ((first, "subtitle"), (last, "several share a look; subtitle")):
        picture = Picture("title", "subtitle")
        picture.key(looks)
        picture.settle()
        picture.settle()
        assert picture.chart.get_title() == line
