"""The pictures, read back from what was drawn: bars, colours, labels and titles."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import to_hex
from matplotlib.dates import num2date
from matplotlib.figure import Figure
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit import bitemporal, merge, options
from cdckit.errors import InvalidArgument, MissingColumns
from cdckit.notebook import pictures
from cdckit.notebook.pictures.bars import _finding
from cdckit.outputs import scd_type_2
from cdckit.query.provenance import MESSAGE_SOURCE
from support.histories import Row, to_dataframe

FIELDS = {"number": "int", "name": "string"}
COLOUR = {name: look.colour for name, look in pictures.PALETTE.items()}
DEPOT, SHOP = COLOUR["source 1"], COLOUR["source 2"]


def at(clock: str) -> datetime:
    return datetime.fromisoformat(f"2024-03-10T{clock}Z")


def told(
    message: str, number: int, name: str | None, clock: str, *, source: str = "shop", arrived: str = ""
) -> Row:
    """A message about a product; one without a name deletes it."""
    effective = at(clock)
    arrival = at(arrived) if arrived else effective + timedelta(seconds=1)
    return {
        "operation": "delete" if name is None else "upsert",
        "effective_timestamp": effective,
        "sequence": "",
        "arrival": {
            "timestamp": arrival, "topic": "t", "partition": 0, "offset": int(message[1:]), "record_number": 0
        },
        "message_id": message,
        "source": source,
        "priority": 0,
        "data": {"number": number, "name": name},
        "carried": {"number": True, "name": name is not None},
    }  # fmt: skip


@pytest.fixture(scope="module")
def changes(spark: SparkSession) -> DataFrame:
    """A kettle of which one message comes late, and a mug that is deleted and comes back as a cup."""
    said = [
        told("m1", 1, "kettle", "09:00"),
        told("m2", 2, "mug", "09:00"),
        told("m3", 1, "teapot", "10:00"),
        told("m4", 2, None, "11:00"),
        told("m5", 1, "pot $1$", "09:30", source="depot", arrived="12:00"),
        told("m6", 2, "cup", "13:00", source="depot"),
    ]
    again = {**said[0], "arrival": {**said[0]["arrival"], "timestamp": at("14:00")}}
    return to_dataframe(spark, [*said, again], FIELDS).localCheckpoint()


@pytest.fixture(scope="module")
def history(changes: DataFrame) -> DataFrame:
    return merge(changes, entity="product", keys=["number"]).localCheckpoint()


@pytest.fixture(autouse=True)
def _nothing_is_left_open() -> Any:
    yield
    assert plt.get_fignums() == []


def clock(number: float) -> str:
    """An instant of an axis, to the second."""
    return f"{num2date(number, tz=UTC) + timedelta(milliseconds=500):%H:%M:%S}"


def bars(figure: Figure) -> list[tuple[str, str, str, str]]:
    """Of each bar in the picture its row, its interval, its colour, and whether it is hatched."""
    (axes,) = figure.axes
    labels = [label.get_text() for label in axes.get_yticklabels()]
    found = []
    for bar in axes.patches:
        place = round(bar.get_y() + bar.get_height() / 2)
        interval = f"{clock(bar.get_x())[:5]} {clock(bar.get_x() + bar.get_width())[:5]}"
        hatched = bar.get_hatch() is not None
        colour = to_hex(bar.get_edgecolor() if hatched else bar.get_facecolor())
        found.append((labels[place], interval, colour, "deleted" if hatched else ""))
    return sorted(found)


def key(figure: Figure) -> list[str]:
    """What the key below the picture explains."""
    return [text.get_text() for text in figure.legends[0].get_texts()]


def words(axes: Axes) -> list[str]:
    return sorted(text.get_text() for text in axes.texts)


def test_a_bar_lasts_as_long_as_its_version_and_has_the_colour_of_its_operation(history: DataFrame) -> None:
    figure = pictures.validity_bars(history, label="name")
    assert bars(figure) == [
        ("cup", "09:00 11:00", COLOUR["insert"], ""),
        ("cup", "11:00 13:00", COLOUR["delete"], "deleted"),
        ("cup", "13:00 13:24", COLOUR["recreate"], ""),  # open: to the edge, a tenth beyond what is known
        ("teapot", "09:00 09:30", COLOUR["insert"], ""),
        ("teapot", "09:30 10:00", COLOUR["update"], ""),
        ("teapot", "10:00 13:24", COLOUR["update"], ""),
    ]
    assert figure.get_suptitle() == "1 of 2 entities was deleted and came back"
    counted = "6 versions of 2 entities: 2 inserts, 2 updates, 1 delete, 1 recreate"
    assert figure.axes[0].get_title(loc="left") == counted
    assert key(figure) == ["insert", "update", "delete", "recreate", "no end yet"]
    assert figure.axes[0].get_xlabel() == "valid time (UTC)"


def test_what_is_deleted_keeps_the_name_that_it_had(history: DataFrame) -> None:
    figure = pictures.validity_bars(history.where("hour(valid_from_timestamp) < 13"), label="name")
    assert figure.get_suptitle() == "1 of 2 entities is deleted in the end"
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["mug", "teapot"]


def test_an_entity_is_called_by_the_last_name_that_was_set(history: DataFrame) -> None:
    """Not by a null that came after it; one that never had a name is called by its guid."""
    late = F.expr("hour(valid_from_timestamp) = 13 OR hour(valid_from_timestamp) = 10")
    without = history.withColumn("name", F.when(~late, F.col("name")))
    labels = pictures.validity_bars(without, label="name").axes[0].get_yticklabels()
    assert [label.get_text() for label in labels] == ["mug", "pot $1$"]
    nameless = history.withColumn("name", F.lit(None).cast("string")).where("number = 1")
    (guid,) = {row["guid"] for row in nameless.select("guid").collect()}
    (label,) = pictures.validity_bars(nameless, label="name").axes[0].get_yticklabels()
    assert label.get_text() == guid


@pytest.fixture(scope="module")
def open_bars(history: DataFrame) -> list[tuple[str, str, str, str]]:
    return bars(pictures.validity_bars(history, label="name"))


@pytest.mark.parametrize("year", [2999, 9999])
def test_an_end_that_stands_for_an_open_one_is_drawn_as_open(
    history: DataFrame, changes: DataFrame, open_bars: list[tuple[str, str, str, str]], year: int
) -> None:
    """Known by the metadata."""
    ended = scd_type_2(
        history, valid_to_current=datetime(year, 12, 31, tzinfo=UTC), deletes=True, provenance=True
    )
    assert bars(pictures.validity_bars(ended, label="name")) == open_bars
    figure = pictures.provenance_map(ended, changes, {"number": 1})
    assert "no end yet" in key(figure)


def test_an_end_of_the_year_9999_is_open_where_another_program_wrote_the_table_anew(
    history: DataFrame, open_bars: list[tuple[str, str, str, str]]
) -> None:
    ended = scd_type_2(history, valid_to_current=datetime(9999, 12, 31, tzinfo=UTC), deletes=True)
    anew = ended.withColumn("valid_to_timestamp", F.col("valid_to_timestamp") + F.expr("INTERVAL 0 SECOND"))
    assert bars(pictures.validity_bars(anew, label="name")) == open_bars


def test_what_the_limit_leaves_out_is_said(history: DataFrame) -> None:
    few = pictures.validity_bars(history, label=["name", "number"], limit=1)
    assert [label for label, *_ in bars(few)] == ["cup 2"] * 3
    said = "3 versions of 1 of 2 entities, those with deletes and the most versions first"
    assert few.axes[0].get_title(loc="left") == f"{said}: 1 insert, 1 delete, 1 recreate"


def test_a_cell_has_the_colour_of_the_source_of_its_value(history: DataFrame, changes: DataFrame) -> None:
    """A cell ends where another message takes over, not where another field changes."""
    figure = pictures.provenance_map(history, changes, {"number": 1})
    assert bars(figure) == [
        ("name", "09:00 09:30", SHOP, ""),
        ("name", "09:30 10:00", DEPOT, ""),
        ("name", "10:00 10:09", SHOP, ""),  # open: with room for the last value
        ("number", "09:00 10:09", SHOP, ""),
    ]
    assert {"1", "kettle", "pot $1$"} <= set(words(figure.axes[0]))
    assert figure.get_suptitle() == "1: in the end 2 values from shop"
    assert figure.axes[0].get_title(loc="left") == "each value in the colour of its source"
    assert key(figure) == ["depot", "shop", "no end yet"]


def test_the_fields_are_those_asked_for_and_what_is_deleted_is_hatched(
    history: DataFrame, changes: DataFrame
) -> None:
    figure = pictures.provenance_map(history, changes, {"number": 2}, fields=["name"], limit=2)
    assert bars(figure) == [("name", "09:00 11:00", SHOP, ""), ("name", "11:00 13:00", SHOP, "deleted")]
    assert figure.get_suptitle() == "2: deleted after 2 versions"
    assert key(figure) == ["shop", "deleted"]


def test_a_change_is_late_if_something_as_new_had_arrived_before(changes: DataFrame) -> None:
    """The message that comes a second time, five hours later, is no late change."""
    figure = pictures.arrivals(changes, keys=["number"])
    (axes,) = figure.axes
    drawn = {
        line.get_label(): [(clock(x), y) for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)]  # type: ignore[arg-type]
        for line in axes.lines
    }
    assert drawn["depot, late"] == [("09:30:00", 9_000.0)]
    assert drawn["depot"] == [("13:00:00", 1.0)]
    assert sorted(drawn["shop"]) == [(f"{hour}:00:00", 1.0) for hour in ("09", "09", "10", "11")]
    assert words(axes) == ["2 h 30 min: 1"]
    assert key(figure) == ["depot", "shop", "late"]
    assert figure.get_suptitle() == "1 of 6 changes arrived late, by up to 2 h 30 min"


def test_if_not_all_changes_are_drawn_the_latest_are(spark: SparkSession, changes: DataFrame) -> None:
    """A second word about one instant is late, too: two are late, and the later one is drawn."""
    second = to_dataframe(spark, [told("m7", 2, "bowl", "13:00", arrived="15:00")], FIELDS)
    figure = pictures.arrivals(changes.union(second), keys=["number"], limit=1)
    assert [line.get_label() for line in figure.axes[0].lines] == ["depot, late"]
    assert figure.get_suptitle() == "2 of 7 changes arrived late, by up to 2 h 30 min"
    assert figure.axes[0].get_title(loc="left").startswith("1 of 7 changes, late ones first; ")


def test_a_rectangle_of_the_plane_is_what_was_believed_of_a_time(changes: DataFrame) -> None:
    table = bitemporal(changes, entity="product", keys=["number"])
    figure = pictures.bitemporal_plane(table, {"number": 1}, "name")
    (axes,) = figure.axes
    areas = [patch.get_bbox() for patch in axes.patches]  # type: ignore[attr-defined]
    assert sorted((clock(a.y0), clock(a.y1), clock(a.x0), clock(a.x1)) for a in areas) == [
        ("09:00:01", "10:00:01", "09:00:00", "10:07:12"),
        ("10:00:01", "12:00:00", "09:00:00", "10:00:00"),
        ("10:00:01", "12:21:36", "10:00:00", "10:07:12"),
        ("12:00:00", "12:21:36", "09:00:00", "09:30:00"),
        ("12:00:00", "12:21:36", "09:30:00", "10:00:00"),
    ]
    assert len({patch.get_facecolor() for patch in axes.patches}) == 3
    # Kettle and teapot are two rectangles each, which touch: one area, and so one name.
    assert sorted(word for word in words(axes) if word in ("kettle", "pot $1$", "teapot")) == [
        *("kettle", "pot $1$", "teapot"),
    ]
    assert figure.get_suptitle() == "name of 1: “pot $1$” became known 2 h 30 min after it began"
    assert key(figure) == ["each moment as believed at that moment", "no end yet"]


def ticks(axis: Axis) -> list[str]:
    return [label.get_text() for label in axis.get_ticklabels()]


def test_a_bar_is_cut_into_the_shares_of_its_values(history: DataFrame) -> None:
    # From nine to two: half an hour a kettle, half an hour a pot, then a teapot; a mug for two hours,
    # deleted for two, and a cup for one.
    figure = pictures.duration_shares(history, "name", at("09:00"), at("14:00"), by="number")
    axes = figure.axes[0]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["1   5 h", "2   3 h"]
    drawn = sorted(
        (round(each.get_y() + each.get_height() / 2), round(each.get_width(), 6)) for each in axes.patches
    )
    assert drawn == [(0, 0.1), (0, 0.1), (0, 0.8), (1, 0.333333), (1, 0.666667)]
    assert figure.get_suptitle() == "name was “teapot” for 50% of the time"
    assert {"80%", "67%", "33%"} <= {text.get_text() for text in axes.texts}
    words = history.withColumn("name", F.expr("CASE WHEN number = 2 THEN 'no value' END"))
    alike = pictures.duration_shares(words, "name", at("09:00"), at("14:00"), by="number")
    assert {text.get_text() for text in alike.legends[0].get_texts()} == {"no value", '"no value"'}
    nobody = pictures.duration_shares(history, "name", at("01:00"), at("02:00"), by="number")
    assert nobody.get_suptitle().startswith("There was no entity from ")


def test_a_picture_has_one_clock(history: DataFrame, changes: DataFrame) -> None:
    """The zone of the call, or the one that is chosen for all: on the axes and in the cells."""
    new_york = "America/New_York"
    bars_of = pictures.validity_bars(history, label="name", zone=new_york).axes[0].xaxis
    assert bars_of.get_label_text() == "valid time (America/New_York)"
    assert ticks(bars_of)[:2] == ["05:00", "06:00"]
    assert bars_of.get_offset_text().get_text() == "2024-03-10"
    options.zone = new_york
    try:
        dated = history.where("number = 1").withColumn("name", history["valid_from_timestamp"])
        figure = pictures.provenance_map(dated, changes, {"number": 1})
        assert {"05:00", "05:30", "06:00"} <= set(words(figure.axes[0]))
        assert "times in cells are of 2024-03-10" in figure.axes[0].get_title(loc="left")
    finally:
        options.reset()


def test_both_axes_of_a_picture_have_its_clock(changes: DataFrame) -> None:
    options.zone = "America/New_York"
    try:
        late = pictures.arrivals(changes, keys=["number"]).axes[0].xaxis
        assert late.get_label_text() == "effective time (America/New_York)"
        table = bitemporal(changes, entity="product", keys=["number"])
        axes = pictures.bitemporal_plane(table, {"number": 1}, "name").axes[0]
        assert axes.get_xlabel() == "valid time: when it held (America/New_York)"
        assert axes.get_ylabel() == "system time: when it was believed (America/New_York)"
        assert ticks(axes.yaxis)[0] == "05:00"
    finally:
        options.reset()
    with pytest.raises(InvalidArgument, match="needs zone to be"):
        pictures.arrivals(changes, keys=["number"], zone="Mars/Base")


def test_of_an_unknown_entity_there_is_a_sentence(history: DataFrame, changes: DataFrame) -> None:
    figure = pictures.provenance_map(history, changes, {"number": 3})
    assert (figure.get_suptitle(), figure.axes[0].patches[:]) == ("The history has no entity 3.", [])
    table = bitemporal(changes.limit(0), entity="product", keys=["number"])
    figure = pictures.bitemporal_plane(table, {"number": 3}, "name")
    assert figure.get_suptitle() == "The table has no entity 3."
    assert pictures.validity_bars(history.limit(0), label="name").get_suptitle() == (
        "The history has no version."
    )
    assert pictures.arrivals(changes.limit(0), keys=["number"]).get_suptitle() == (
        "There is no change with both times."
    )


def test_a_notebook_shows_a_picture_without_pyplot(history: DataFrame) -> None:
    figure: Any = pictures.validity_bars(history.limit(0), label="name")
    assert figure._repr_png_().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda h, c: pictures.validity_bars(h, label="colour"), "label"),
        (lambda h, c: pictures.validity_bars(h, label="name", limit=0), "limit"),
        (lambda h, c: pictures.provenance_map(h, c, {}), "key"),
        (lambda h, c: pictures.provenance_map(h, c, {"number": 1}, fields=["colour"]), "fields"),
        (lambda h, c: pictures.arrivals(c, keys=["colour"]), "keys"),
    ],
)
def test_what_means_nothing_is_refused(
    history: DataFrame, changes: DataFrame, call: Callable[..., Figure], argument: str
) -> None:
    with pytest.raises(InvalidArgument, match=f" needs {argument} to be "):
        call(history, changes)


def test_a_naive_instant_in_a_key_is_refused(history: DataFrame, changes: DataFrame) -> None:
    dated = history.withColumn("bought", history["valid_from_timestamp"])
    with pytest.raises(InvalidArgument, match=r"needs key\['bought'\] to be an aware datetime"):
        pictures.provenance_map(dated, changes, {"bought": datetime(2024, 3, 10)})


def steps_of(figure: Figure) -> list[tuple[str, float, float]]:
    """Of each bar its name, where it begins, and how far it goes."""
    (axes,) = figure.axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    bars = axes.patches
    order = [0, *range(2, len(bars)), 1]
    return [
        (name, float(bars[place].get_x()), float(bars[place].get_width()))  # type: ignore[attr-defined]
        for name, place in zip(names, order, strict=True)
    ]


@pytest.fixture(scope="module")
def parts(spark: SparkSession) -> DataFrame:
    """What `explain` tells, in the columns that a picture reads."""
    rows = [
        ("late", "shop", "m1", Decimal("7.50"), at("23:30")),
        ("late", None, "m2", Decimal("2.50"), at("12:00")),
        ("deleted", "shop", "m3", Decimal("-30.00"), at("12:00")),
        ("reclassified", "web", "m4", Decimal("-4.00"), at("12:00")),
        ("reclassified", "web", "m4", Decimal("4.00"), at("12:00")),
    ]
    schema = (
        "kind string, source string, message_id string, amount decimal(13,2), arrival_timestamp timestamp"
    )
    return spark.createDataFrame(rows, schema)


def test_each_step_of_a_waterfall_begins_where_the_one_before_it_ends(parts: DataFrame) -> None:
    """The largest first; what adds up to nothing is a step, too."""
    figure = pictures.waterfall(parts, before=100, measure="sales")
    assert figure.get_suptitle() == "sales: 80 instead of 100; deleted -30, late +10"
    assert steps_of(figure) == [
        ("before", 0, 100),
        ("deleted", 100, -30),
        ("late", 70, 10),
        ("reclassified", 80, 0),
        ("after", 0, 80),
    ]
    assert figure.axes[0].get_title(loc="left") == "the parts of 4 messages, by kind"


def test_steps_that_are_small_beside_the_total_fill_the_picture_all_the_same(parts: DataFrame) -> None:
    """From 1,000 to 970 and back to 980; a bar of the total would leave them no room."""
    figure = pictures.waterfall(parts, before=1_000)
    low, high = figure.axes[0].get_xlim()
    assert 960 < low < 970 < 1_000 < high < 1_010
    assert "the axis does not begin at 0" in figure.axes[0].get_title(loc="left")


def test_a_waterfall_of_long_amounts_loses_no_digit(parts: DataFrame) -> None:
    """Python's own sums keep 28 digits."""
    before = Decimal("12345678901234567890123456789012345.67")
    title = pictures.waterfall(parts, before=before).get_suptitle()
    assert title.startswith("amount: 12,345,678,901,234,567,890,123,456,789,012,325.67 instead of ")


def test_a_waterfall_is_of_days_sources_and_what_has_no_room(parts: DataFrame) -> None:
    days = pictures.waterfall(parts, by="arrival_timestamp", zone="Europe/Zurich")
    assert [name for name, *_ in steps_of(days)] == ["before", "2024-03-10", "2024-03-11", "after"]
    few = pictures.waterfall(parts, before=100, by="source", limit=1)
    assert [(name, wide) for name, _, wide in steps_of(few)][1:3] == [("shop", -22.5), ("all others", 2.5)]
    assert "no value" in [name for name, *_ in steps_of(pictures.waterfall(parts, by="source"))]


def test_a_waterfall_without_a_step_says_so(parts: DataFrame) -> None:
    assert pictures.waterfall(parts.limit(0), before=5).get_suptitle() == "amount: 5, in both reports"
    with pytest.raises(InvalidArgument, match="before to be an int or a Decimal"):
        pictures.waterfall(parts, before=1.5)  # type: ignore[arg-type]
    with pytest.raises(MissingColumns, match=r"waterfall\(\) needs the columns colour"):
        pictures.waterfall(parts, by="colour")


def test_more_sources_than_a_title_has_room_for_are_counted() -> None:
    """Two are named, with how much comes from each; of three only how many they are."""

    def title(*sources: str) -> str:
        shared = {"valid_from_timestamp": 1, "deleted_indicator": False, "value": "x"}
        rows: list[Any] = [{**shared, MESSAGE_SOURCE: source} for source in sources]
        return _finding(rows, "in the end")

    assert title("depot", "shop", "shop") == "in the end 1 value from depot and 2 values from shop"
    assert title("depot", "shop", "shop", "web") == "in the end 4 values from 3 sources"
