"""Widgets: driven by their values, as a browser would, and without ipywidgets."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pyspark.errors import SparkRuntimeException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit import merge
from cdckit.errors import InvalidArgument, MissingColumns
from cdckit.ledger import Ledger
from cdckit.model.rejected_records import REJECT_SCHEMA, add_rejects
from cdckit.notebook import widgets
from cdckit.notebook.widgets import panel as panel_of
from cdckit.notebook.widgets.what_if import _typed_value
from cdckit.store import NoSuchTable
from support.histories import at
from support.jobs import jobs_of
from support.panels import KEYS, all_of, shown

VIEW = "application/vnd.jupyter.widget-view+json"


@pytest.fixture(scope="module")
def history(changes: DataFrame) -> Iterator[DataFrame]:
    made = merge(changes, entity="thing", keys=KEYS).coalesce(1).localCheckpoint()
    yield made
    made.unpersist()


# The slider ---------------------------------------------------------------------------------------------


def test_the_table_follows_the_slider(history: DataFrame) -> None:
    panel = widgets.as_of_slider(history, [at(8), at(9), at(10)], fields=["h", "a"])
    (slider,) = all_of(panel.widget, "SelectionSlider")
    assert [label for label, _ in slider.options] == ["08:00", "09:00", "10:00"]
    assert "no rows" in shown(panel.widget)
    slider.value = at(9)
    assert "as of 2024-03-10 09:00 UTC; since 2024-03-10 08:00 UTC: 2 new" in shown(panel.widget)
    assert "what changed|h|a|\nnew|1|10|" in shown(panel.widget)
    assert "since" not in repr(panel)


def test_a_move_marks_what_it_changed_and_strikes_out_what_is_gone(history: DataFrame) -> None:
    """Between nine and noon one is changed and the other ends; back again, the latter is new."""
    named = history.where("h = 1 OR NOT deleted_indicator")
    panel = widgets.as_of_slider(named, [at(9), at(12), at(12, 30)], fields=["h", "a"])
    (slider,) = all_of(panel.widget, "SelectionSlider")
    slider.value = at(12)
    told = shown(panel.widget)
    assert "since 2024-03-10 09:00 UTC: 1 changed, 1 gone" in told
    assert "\na was 10|1|11|\n" in told
    assert "\ngone|2|20|" in told
    html = all_of(panel.widget, "HTML")[-1].value
    assert re.findall(r"<del[^>]*>([^<]*)</del>", html) == ["gone", "2", "20"]
    slider.value = at(12, 30)
    told = shown(panel.widget)
    assert "since 2024-03-10 12:00 UTC: nothing changed" in told
    assert "gone" not in told
    slider.value = at(9)
    assert "\nnew|2|20|" in shown(panel.widget)


def test_while_a_move_is_read_the_table_of_before_is_grey_under_what_is_asked(history: DataFrame) -> None:
    panel = widgets.as_of_slider(history, [at(9), at(10)], fields=["h", "a"])
    (slider,), (_, content) = all_of(panel.widget, "SelectionSlider"), all_of(panel.widget, "HTML")
    before, seen = content.value, []
    content.observe(lambda change: seen.append(change["new"]), names="value")
    slider.value = at(10)
    meanwhile, after = seen
    assert meanwhile.startswith('<p role="status"><i>reading as of 2024-03-10 10:00 UTC …</i></p>')
    assert meanwhile.endswith(f'<div style="opacity:0.3">{before}</div>')
    assert "opacity:0.3" not in after
    assert "reading" not in after


def test_rows_without_a_guid_are_not_compared(history: DataFrame) -> None:
    panel = widgets.as_of_slider(history.drop("guid"), [at(9), at(10)], fields=["h", "a"])
    (slider,) = all_of(panel.widget, "SelectionSlider")
    slider.value = at(10)
    assert "rowsh|a|\n1|11|" in shown(panel.widget)
    assert "since" not in shown(panel.widget)


def test_instants_may_be_a_start_an_end_and_a_step(history: DataFrame) -> None:
    """The end is one of them where the steps meet it, and no longer where they do not."""
    hour = timedelta(hours=1)
    for end, last in ((at(11), "11:00"), (at(11, 30), "11:00")):
        (slider,) = all_of(widgets.as_of_slider(history, (at(9), end, hour)).widget, "SelectionSlider")
        assert [label for label, _ in slider.options] == ["09:00", "10:00", last]


def test_steps_are_hours_that_passed_when_clocks_are_put_forward(history: DataFrame) -> None:
    new_york = ZoneInfo("America/New_York")
    ends = [datetime(2024, 3, 10, hour, tzinfo=new_york) for hour in (1, 4)]
    panel = widgets.as_of_slider(history, (*ends, timedelta(hours=1)), zone=new_york)
    (slider,) = all_of(panel.widget, "SelectionSlider")
    assert [label for label, _ in slider.options] == ["01:00-05:00", "03:00-04:00", "04:00-04:00"]


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        [datetime(2024, 3, 10)],
        [at(9), "2024-03-10"],
        (at(9), at(10), timedelta(0)),
        (at(10), at(9), timedelta(hours=1)),
        (at(9), at(10), timedelta(microseconds=1)),
        (datetime(2024, 3, 10), at(10), timedelta(hours=1)),
    ],
    ids=str,
)
def test_what_is_no_row_of_instants_is_refused_at_the_call(history: DataFrame, wrong: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"as_of_slider\(\) needs instants to be"):
        widgets.as_of_slider(history, wrong)


def test_unknown_fields_and_missing_columns_are_refused_at_the_call(history: DataFrame) -> None:
    with pytest.raises(InvalidArgument, match=r"as_of_slider\(\) needs fields to be one or more fields"):
        widgets.as_of_slider(history, [at(9)], fields=["prize"])
    with pytest.raises(MissingColumns, match=r"as_of\(\) needs the columns valid_to_timestamp"):
        widgets.as_of_slider(history.drop("valid_to_timestamp"), [at(9)])


def test_an_error_in_a_move_is_one_sentence_in_the_place_of_the_table(history: DataFrame) -> None:
    raising = F.when(F.col("a") == 11, F.raise_error(F.lit("a <b>bad</b> value\nsecond line"))).otherwise("c")
    broken = history.withColumn("k", raising.cast("string"))
    panel = widgets.as_of_slider(broken, [at(9), at(10)], fields=["h", "k"])
    (slider,) = all_of(panel.widget, "SelectionSlider")
    assert "\n1|c|" in shown(panel.widget)
    slider.value = at(10)
    (_, content) = [each.value for each in all_of(panel.widget, "HTML")]
    assert content.startswith('<p role="alert"')
    assert "#d94050" not in content  # red says deleted
    assert "a &lt;b&gt;bad&lt;/b&gt; value" in content
    assert "Exception: " in content
    assert "<b>" not in content
    assert "table" not in content
    slider.value = at(9)
    assert "Exception" in shown(panel.widget)  # what is compared with is read as well


# The board ----------------------------------------------------------------------------------------------


def test_a_priority_that_is_changed_changes_the_table_and_says_what_else(changes: DataFrame) -> None:
    """But not of `b`, which all say with a priority of its own, 7: there the first word stands."""
    panel = widgets.priority_board(changes, entity="thing", keys=KEYS, valid_at=at(12))
    shop, till = all_of(panel.widget, "BoundedIntText")
    assert [(each.description, each.value) for each in (shop, till)] == [("shop", 1), ("till", 0)]
    own = "fields with a priority of their own keep it"
    assert f"with the priorities shop 1, till 0; {own}" in shown(panel.widget)
    assert "\n10:00|…|1|x|11|" in shown(panel.widget)
    till.value = 2
    told = shown(panel.widget)
    assert f"as of 2024-03-10 12:00 UTC, with the priorities shop 1, till 2; {own}" in told
    assert "\na was 11|11:00|…|1|x|12|" in told
    assert "\nnew|09:00|…|2|x|20|" in told
    assert "Values that this changed: till was 0" in told
    assert told.split("Values that this changed")[1].split("\n", 1)[1].strip().splitlines()[1:5] == [
        "1|x|a|11|12|m2|m3|",
        "2|x|a|NULL|20|m5|m4|",
        "2|x|b|NULL|&lt;b&gt;|m5|m4|",
        "2|x|deleted_indicator|true|false|m5|m4|",
    ]
    shop.value = 2
    told = shown(panel.widget)
    assert "with the priorities shop 2, till 2" in told
    assert "\n|11:00|…|1|x|12|" in told
    assert "\ngone|09:00|…|2|x|20|" in told
    assert "2|x|deleted_indicator|false|true|m4|m5|" in told
    assert "\n1|x|" not in told.split("Values that this changed")[1]
    html = all_of(panel.widget, "HTML")[0].value
    assert "m1/7" in html
    assert "m3/2" in html


def test_without_an_instant_the_board_shows_what_is_current(changes: DataFrame) -> None:
    """A reject among the changes has no source, and is none."""
    reject = changes.sparkSession.createDataFrame([{"error_code": "DAMAGED"}], REJECT_SCHEMA)
    panel = widgets.priority_board(add_rejects(changes, reject), entity="thing", keys=KEYS)
    assert "current, with the priorities shop 1, till 0" in repr(panel)


def test_a_source_of_several_priorities_begins_with_the_highest(changes: DataFrame) -> None:
    varied = changes.withColumn("priority", F.when(F.col("message_id") == "m1", 5).otherwise(1).cast("int"))
    named = varied.withColumn("source", F.when(F.col("source") == "till", F.col("source")))
    panel = widgets.priority_board(named, entity="thing", keys=KEYS)
    assert "(no source) 1 to 5, till 1" in repr(panel)
    assert [(each.description, each.value) for each in all_of(panel.widget, "BoundedIntText")] == [
        ("(no source) (1 to 5)", 5),
        ("till", 1),
    ]
    all_of(panel.widget, "BoundedIntText")[0].value = 0
    assert "|12|" in shown(panel.widget)


def test_too_many_sources_are_refused_when_they_are_counted(changes: DataFrame) -> None:
    many = changes.crossJoin(F.broadcast(changes.sparkSession.range(51))).withColumn(
        "source", F.col("id").cast("string")
    )
    panel = widgets.priority_board(many.drop("id"), entity="thing", keys=KEYS)
    with pytest.raises(
        InvalidArgument, match=r"priority_board\(\) needs changes to be of at most 50 sources"
    ):
        repr(panel)


def test_what_cannot_be_merged_is_refused_at_the_call(changes: DataFrame) -> None:
    with pytest.raises(InvalidArgument, match=r"merge\(\) needs keys"):
        widgets.priority_board(changes, entity="thing", keys=["z"])
    with pytest.raises(InvalidArgument, match=r"priority_board\(\) needs valid_at to be an aware datetime"):
        widgets.priority_board(changes, entity="thing", keys=KEYS, valid_at=datetime(2024, 3, 10))


# The explorer -------------------------------------------------------------------------------------------


def test_the_explorer_follows_entity_instant_and_field(history: DataFrame, changes: DataFrame) -> None:
    panel = widgets.entity_explorer(history, changes, keys=KEYS)
    entity, instant, field = all_of(panel.widget, "Dropdown")
    assert [label for label, _ in entity.options] == ["1 x", "2 x"]
    assert list(field.options) == ["a", "b", "h", "k"]
    told = shown(panel.widget)
    assert "1 x: its versions" in told
    assert "\na|11|m2|1|" in told
    assert "why a is what it is, at the end of time" in told
    assert "|OUTRANKED|" in told

    instant.value = at(9)
    told = shown(panel.widget)
    assert "\na|10|m1|1|" in told
    assert "why a is what it is, at 2024-03-10 09:00 UTC" in told
    assert told.count("|NOT_YET_EFFECTIVE|") == 2

    field.value = "h"
    assert "why h is what it is, at 2024-03-10 09:00 UTC" in shown(panel.widget)

    entity.value = entity.options[1][1]
    told = shown(panel.widget)
    assert instant.value is None
    assert [label for label, _ in instant.options] == [
        "the end of time",
        "2024-03-10 12:00",
        "2024-03-10 09:00",
    ]
    assert instant.description == "at (UTC)"
    assert "2 x: its versions" in told
    assert "\ndeleted_indicator|true|m5|1|" in told
    assert "1 x" not in told


def test_another_entity_makes_all_tables_grey_at_once(history: DataFrame, changes: DataFrame) -> None:
    """Of two entities none is shown beside the other; another field reads no more than its reasons."""
    panel = widgets.entity_explorer(history, changes, keys=KEYS)
    (entity, _, field), seen = all_of(panel.widget, "Dropdown"), []
    (area,) = all_of(panel.widget, "HTML")
    area.observe(lambda change: seen.append(change["new"]), names="value")
    entity.value = entity.options[1][1]
    meanwhile, after = seen
    assert "reading 2 x, at the end of time, and why a is what it is" in meanwhile
    assert meanwhile.index("opacity:0.3") < meanwhile.index("1 x: its versions")
    assert "1 x" not in after
    context = history.sparkSession.sparkContext
    context.setJobGroup("field", "another field")
    try:
        field.value = "h"
        assert len(jobs_of(history.sparkSession, "field")) <= 2
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    assert "why h is what it is" in shown(panel.widget)


def test_the_explorer_lists_the_entities_whose_key_contains_a_text(
    history: DataFrame, changes: DataFrame
) -> None:
    """Or says that there is none."""
    panel = widgets.entity_explorer(history, changes, keys=KEYS)
    (containing,) = all_of(panel.widget, "Text")
    entity = all_of(panel.widget, "Dropdown")[0]
    containing.value = "2 X"
    assert [label for label, _ in entity.options] == ["2 x"]
    assert "2 x: its versions" in shown(panel.widget)
    containing.value = "nobody"
    assert entity.options == ()
    assert "There is no such entity" in shown(panel.widget)
    assert "its versions" not in shown(panel.widget)
    assert [label for label, _ in all_of(panel.widget, "Dropdown")[1].options] == ["the end of time"]
    containing.value = ""
    assert "1 x: its versions" in shown(panel.widget)


def test_entities_that_are_named_by_their_guid_are_explored_by_it(changes: DataFrame) -> None:
    named = changes.withColumn("guid", F.concat(F.lit("g"), F.col("data.h").cast("string")))
    panel = widgets.entity_explorer(merge(named, entity="thing", keys=KEYS), named, keys=KEYS)
    assert "1 x: its versions" in repr(panel)
    assert "OUTRANKED" in repr(panel)


def test_an_empty_history_has_nobody_to_explore(history: DataFrame, changes: DataFrame) -> None:
    panel = widgets.entity_explorer(history.where("h = 9"), changes, keys=KEYS)
    assert repr(panel) == "There is no such entity"
    assert "There is no such entity" in shown(panel.widget)


def test_keys_that_are_not_there_are_refused_at_the_call(history: DataFrame, changes: DataFrame) -> None:
    with pytest.raises(InvalidArgument, match=r"entity_explorer\(\) needs keys to be one or more fields"):
        widgets.entity_explorer(history, changes, keys=["z"])


def test_what_is_no_correction_is_told_and_cannot_be_applied(ledger: Ledger) -> None:
    panel = widgets.correction_form(ledger)
    show, apply = all_of(panel.widget, "Button")
    value, start, end, by, reason = all_of(panel.widget, "Text")[1:]
    by.value, reason.value, value.value, start.value = "ann", "misread", "15", "at nine"
    for text, words, error in (
        (end, "2024-03-10 09:00", "ValueError: Invalid isoformat string"),
        (start, "2024-03-10 09:30", "InvalidArgument: "),
        (value, "many", "InvalidArgument: "),
    ):
        text.value = words
        show.click()
        assert error in shown(panel.widget)
        assert apply.disabled
    end.value = ""
    show.click()
    assert "correction_form() needs value to be of int; it is" in shown(panel.widget)
    assert apply.disabled
    value.value, start.value, end.value = "15", "2024-03-10 07:00", "2024-03-10 08:00"
    show.click()
    assert "What it would change" in shown(panel.widget)
    assert apply.disabled  # nothing is there in that hour
    all_of(panel.widget, "Text")[0].value = "nobody"
    assert "There is no such entity" in shown(panel.widget)
    assert show.disabled


def test_a_value_is_taken_as_it_is_written(spark: SparkSession) -> None:
    """An instant without an offset is on the clocks of the form; a number keeps all its decimal places."""
    berlin = ZoneInfo("Europe/Berlin")
    given = [
        ("2024-06-01 09:00", "timestamp", "2024-06-01 07:00:00"),
        ("2024-06-01 09:00Z", "timestamp", "2024-06-01 09:00:00"),
        ("12.3400", "decimal(10,2)", "12.34"),
        (" ann ", "string", " ann "),
        ("", "timestamp", None),
    ]
    kinds = spark.createDataFrame(
        [], ", ".join(f"f{n} {kind}" for n, (_, kind, _) in enumerate(given))
    ).schema
    values = [
        _typed_value(text, kind.dataType, berlin) for (text, _, _), kind in zip(given, kinds, strict=True)
    ]
    row = spark.range(1).select(*(value.cast("string") for value in values)).collect()[0]
    assert tuple(row) == tuple(expected for _, _, expected in given)
    with pytest.raises(InvalidArgument, match="value to be a number of at most 2 decimal places"):
        _typed_value("12.345", T.DecimalType(10, 2), berlin)
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        for text, kind in (("12O", T.LongType()), ("12.7", T.IntegerType()), ("2024-13-01", T.DateType())):
            with pytest.raises(SparkRuntimeException, match=f"of {kind.simpleString()}; it is '{text}'"):
                spark.range(1).select(_typed_value(text, kind, berlin)).collect()
    finally:
        spark.conf.set("spark.sql.ansi.enabled", "true")


def test_a_form_says_that_there_are_more_entities(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cdckit.notebook.widgets.what_if.MOST_CHOICES", 1)
    panel = widgets.correction_form(ledger)
    assert [label for label, _ in all_of(panel.widget, "Dropdown")[0].options] == ["1 x"]
    assert "entities of more; say a part of the key" in shown(panel.widget)


def test_a_ledger_in_which_nothing_is_has_no_form(spark: SparkSession, tmp_path: Path) -> None:
    panel = widgets.correction_form(Ledger(spark, tmp_path / "ledger", entity="thing", keys=KEYS))
    with pytest.raises(NoSuchTable):
        repr(panel)


# Where they do not run ----------------------------------------------------------------------------------


def panels(history: DataFrame, changes: DataFrame) -> list[widgets.Panel]:
    return [
        widgets.as_of_slider(history, [at(9)], fields=["h", "a"]),
        widgets.priority_board(changes, entity="thing", keys=KEYS),
        widgets.entity_explorer(history, changes, keys=KEYS),
    ]


def test_nothing_is_computed_before_a_panel_is_displayed(
    spark: SparkSession, history: DataFrame, changes: DataFrame
) -> None:
    spark.sparkContext.setJobGroup("panels", "three panels")
    try:
        panels(history, changes)
        assert jobs_of(spark, "panels") == []
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]


def test_without_ipywidgets_the_first_state_is_a_table_and_a_sentence_how_to_get_more(
    history: DataFrame, changes: DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An entry of None is how Python itself notes that a module cannot be imported.
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    for panel in panels(history, changes):
        bundle = panel._repr_mimebundle_()
        assert set(bundle) == {"text/plain", "text/html"}
        assert panel.widget is None
        for form in bundle.values():
            assert "pip install" in form
            assert "cdckit[notebooks]" in form
        assert "<table " in bundle["text/html"]
        assert "10" in bundle["text/plain"]


def test_without_a_kernel_the_first_state_is_a_table(history: DataFrame, changes: DataFrame) -> None:
    for panel in panels(history, changes):
        assert set(panel._repr_mimebundle_()) == {"text/plain", "text/html"}
        assert "pip install" not in repr(panel)


def test_in_a_kernel_the_widget_comes_with_its_first_state_as_a_table(
    history: DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table is what a saved notebook keeps: it stays the first state, wherever the slider is."""
    monkeypatch.setattr(panel_of, "kernel_shell", object)
    panel = widgets.as_of_slider(history, [at(9), at(10)], fields=["h", "a"])
    bundle = panel._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html", VIEW}
    assert bundle[VIEW]["model_id"] == panel.widget.model_id
    assert json.dumps(bundle)
    all_of(panel.widget, "SelectionSlider")[0].value = at(10)
    again = panel._repr_mimebundle_()
    assert again == bundle
    assert again["text/plain"].splitlines()[2] == "1  10"


def test_an_error_in_the_first_state_is_raised(history: DataFrame) -> None:
    broken = history.withColumn("a", F.raise_error(F.lit("bad")).cast("int"))
    with pytest.raises(Exception, match="bad"):
        repr(widgets.as_of_slider(broken, [at(9)]))


def test_the_library_itself_does_without_ipywidgets_and_does_not_import_widgets() -> None:
    code = "import cdckit, sys; sys.exit(bool({'cdckit.notebook.widgets', 'ipywidgets'} & {*sys.modules}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
