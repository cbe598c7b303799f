"""`show`: a history as a table to look at."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit import as_of, changes_from, merge, options
from cdckit.errors import InvalidArgument, MissingColumns, WrongColumnType
from cdckit.model.changes import CHANGE_SCHEMA, sortable_number
from cdckit.model.rejected_records import REJECT_SCHEMA
from cdckit.notebook import Table, show
from cdckit.notebook.clock import short_instants
from cdckit.notebook.message_labels import shorten_messages
from cdckit.notebook.tables import Cell, Grid, html_text
from cdckit.query.as_of import timeline
from support.jobs import jobs_of

Entry = tuple[str, int] | None
SCHEMA = """
    guid string, valid_from_timestamp timestamp, valid_to_timestamp timestamp, deleted_indicator boolean,
    number int, name string, source_message string,
    field_provenance struct<guid: struct<m: string, p: int>, number: struct<m: string, p: int>,
                            name: struct<m: string, p: int>>
"""


def at(hour: int, minute: int = 0, second: int = 0, *, day: int = 10) -> datetime:
    return datetime(2024, 3, day, hour, minute, second, tzinfo=UTC)


def version(
    guid: str, begins: Any, ends: Any, name: str | None, message: str, *, deleted: bool = False
) -> tuple[Any, ...]:
    """A version whose name, and the row itself, are of one message; its number is of m1, priority 0."""
    entry: Entry = (message, 2)
    return (guid, begins, ends, deleted, len(guid), name, message, (entry, ("m1", 0), entry))


def table_of(spark: SparkSession, *versions: tuple[Any, ...]) -> DataFrame:
    return spark.createDataFrame(list(versions), SCHEMA).coalesce(1)


@pytest.fixture
def history(spark: SparkSession) -> DataFrame:
    """A cup that is renamed, and a mug that is deleted."""
    return table_of(
        spark,
        version("mug", at(9), at(11), "Mug", "m1"),
        version("mug", at(11), None, None, "m3", deleted=True),
        version("cup", at(9), at(10), "Cup", "m1"),
        version("cup", at(10), None, "Old Cup", "m2"),
    )


def lines(table: Table) -> list[str]:
    return repr(table).splitlines()


def test_intervals_come_first_then_fields_and_what_is_deleted_is_marked(history: DataFrame) -> None:
    """The provenance of `deleted` is that of the row: who deleted it."""
    assert lines(show(history, order_by="guid")) == [
        "valid_from  valid_to  number   name           state          message  guid",
        "09:00       10:00     3 ·m1/0  Cup ·m1/2                     m1       cup",
        "10:00       …         3 ·m1/0  Old Cup ·m2/2                 m2       cup",
        "09:00       11:00     3 ·m1/0  Mug ·m1/2                     m1       mug",
        "11:00       …         3 ·m1/0  NULL ·m3/2     deleted ·m3/2  m3       mug",
        "(4 rows; instants of 2024-03-10, UTC; … is an open end; "
        "after a value its message/the value's priority)",
    ]


def test_provenance_is_left_out_on_request(history: DataFrame) -> None:
    assert lines(show(history, order_by="guid", provenance=False))[1:3] == [
        "09:00       10:00     3       Cup               m1       cup",
        "10:00       …         3       Old Cup           m2       cup",
    ]


def test_a_field_that_nobody_set_has_no_provenance(spark: SparkSession) -> None:
    row = ("g", at(9), None, False, 1, None, "m1", (("m1", 0), ("m1", 0), None))
    assert lines(show(table_of(spark, row)))[1] == "09:00       …         1 ·m1/0  NULL  m1       g"


def test_nothing_runs_before_it_is_displayed_and_then_one_job_for_both_forms(
    spark: SparkSession, history: DataFrame
) -> None:
    spark.sparkContext.setJobGroup("show", "a table")
    try:
        table = show(history)
        assert len(jobs_of(spark, "show")) == 0
        text, html = repr(table), table._repr_html_()
        assert len(jobs_of(spark, "show")) == 1
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    assert "Old Cup" in text
    assert "Old Cup" in html


def test_more_rows_than_wanted_are_said_to_be_there(history: DataFrame) -> None:
    assert lines(show(history, rows=3))[-1].startswith("(first 3 rows of more; ")
    assert len(lines(show(history, rows=3))) == 5
    assert lines(show(history, rows=4))[-1].startswith("(4 rows; ")
    assert lines(show(history, rows=1))[-1].startswith("(first 1 row of more; ")


def test_an_empty_history_is_its_headings(history: DataFrame) -> None:
    assert lines(show(history.where("number = 9"))) == [
        "valid_from  valid_to  number  name  message  guid",
        "(no rows)",
    ]


def test_without_an_order_the_frames_own_stays(history: DataFrame) -> None:
    backwards = history.orderBy(F.desc("valid_from_timestamp"), F.desc("guid")).select("guid")
    assert lines(show(backwards))[1:5] == ["mug", "cup", "mug", "cup"]


def test_versions_that_tie_are_ordered_by_guid_and_beginning(history: DataFrame) -> None:
    shown = show(history.select("number", "guid", "valid_from_timestamp"), order_by=["number"])
    assert lines(shown)[1:5] == [
        "09:00       3       cup",
        "10:00       3       cup",
        "09:00       3       mug",
        "11:00       3       mug",
    ]


@pytest.mark.parametrize(
    ("instants", "expected", "caption"),
    [
        ([at(9), at(10, 30)], ["09:00", "10:30"], "instants of 2024-03-10, UTC"),
        ([at(9), at(9, 0, 5)], ["09:00:00", "09:00:05"], "instants of 2024-03-10, UTC"),
        ([at(9), at(9, day=11)], ["2024-03-10 09:00", "2024-03-11 09:00"], "instants in UTC"),
        ([at(0), at(0, day=11)], ["2024-03-10 00:00", "2024-03-11 00:00"], "instants in UTC"),
        (
            [at(9), at(9) + timedelta(milliseconds=5)],
            ["09:00:00.000", "09:00:00.005"],
            "instants of 2024-03-10, UTC",
        ),
        (
            [at(9), at(9) + timedelta(microseconds=5)],
            ["09:00:00.000000", "09:00:00.000005"],
            "instants of 2024-03-10, UTC",
        ),
        (
            [datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)],
            ["23:59:59.999999"],
            "instants of 1969-12-31, UTC",
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_instants_are_as_short_as_they_can_be_without_losing_anything(
    instants: list[datetime], expected: list[str], caption: str
) -> None:
    assert short_instants(instants, UTC) == (expected, caption)


def test_a_column_has_seconds_for_itself_but_beginnings_and_ends_alike(spark: SparkSession) -> None:
    row = version("g", at(9), at(10, 0, 5), "x", "m1")
    frame = table_of(spark, row).select(
        "valid_from_timestamp", "valid_to_timestamp", F.lit(at(8)).alias("due")
    )
    assert lines(show(frame))[:2] == ["valid_from  valid_to  due", "09:00:00    10:00:05  08:00"]


def test_another_zone_is_named_and_the_hour_that_happens_twice_is_told_apart() -> None:
    """On 3 November 2024, 01:30 in New York was 05:30 UTC and an hour later 06:30 UTC."""
    twice = [datetime(2024, 11, 3, hour, 30, tzinfo=UTC) for hour in (5, 6)]
    new_york = ZoneInfo("America/New_York")
    assert short_instants(twice, new_york) == (
        ["01:30-04:00", "01:30-05:00"],
        "instants of 2024-11-03, America/New_York",
    )
    assert short_instants(twice[:1], new_york)[0] == ["01:30-04:00"]
    assert short_instants([at(12)], new_york)[0] == ["08:00"]


def test_the_zones_of_session_and_process_do_not_matter(spark: SparkSession, history: DataFrame) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        assert "09:00       10:00" in lines(show(history, order_by="guid"))[1]
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))
    shown = lines(show(history, order_by="guid", zone=ZoneInfo("Asia/Tokyo")))
    assert "18:00       19:00" in shown[1]
    assert "instants of 2024-03-10, Asia/Tokyo" in shown[-1]


def test_an_instant_that_python_does_not_know_is_shown_all_the_same(spark: SparkSession) -> None:
    """Spark's instants go on after the year 9999."""
    frame = spark.range(1).select(
        F.timestamp_micros(F.lit(253_402_300_800_000_000)).alias("valid_to_timestamp"),
        F.timestamp_micros(F.lit(-(10**17))).alias("valid_from_timestamp"),
    )
    assert lines(show(frame))[1].split("  ")[-1].strip() == "after 9999"


def test_a_bitemporal_table_shows_both_intervals(spark: SparkSession, history: DataFrame) -> None:
    told = (
        history.where("guid = 'cup'")
        .withColumn("system_from_timestamp", F.lit(at(12)))
        .withColumn("system_to_timestamp", F.lit(None).cast("timestamp"))
        .drop("field_provenance", "source_message")
    )
    assert lines(show(told, order_by="guid"))[:2] == [
        "valid_from  valid_to  system_from  system_to  number  name     guid",
        "09:00       10:00     12:00        …          3       Cup      cup",
    ]


def test_answers_about_a_history_are_shown_as_well(history: DataFrame) -> None:
    then = lines(show(as_of(history, at(10)), order_by="guid", provenance=False))
    assert then[1] == "10:00       …         3       Old Cup  m2       cup"
    told = lines(show(timeline(history, {"name": "Mug"}), provenance=False))
    assert told[:3] == [
        "valid_from  valid_to  number  name  operation  state    message  guid",
        "09:00       11:00     3       Mug   insert              m1       mug",
        "11:00       …         3       NULL  delete     deleted  m3       mug",
    ]


HOSTILE = "<script>alert(1)</script>&\"'"


def test_html_shows_every_value_as_text(spark: SparkSession) -> None:
    """Values, messages, guids, names of fields, wherever they may be hostile."""
    row = (HOSTILE, at(9), None, True, 1, HOSTILE, HOSTILE, ((HOSTILE, 0), (HOSTILE, 1), (HOSTILE, 0)))
    hostile = table_of(spark, row).withColumn("<img src=x>", F.lit("x"))
    html = show(hostile)._repr_html_()
    assert "<script" not in html
    assert "<img" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&amp;&quot;&#x27;" in html
    assert "&lt;img src=x&gt;" in html
    tags = set(re.findall(r"<(\w+)", html))
    assert tags == {"div", "table", "caption", "thead", "tbody", "tr", "th", "td", "b", "del", "sup"}


def test_no_text_becomes_mathematics() -> None:
    """Jupyter sets what stands between two dollars, or after a bracket with a backslash, as a formula."""
    cost = "from $200 to $700"
    table = Table(lambda: Grid([Cell(cost)], [False], [[Cell(cost, cost)]], [False], cost))
    html = table._repr_html_()
    assert html.count("from <span>$</span>200 to <span>$</span>700") == 4
    assert html_text(r"\(a\) C:\x") == r"<span>\</span>(a\) C:\x"


def test_html_strikes_the_values_of_a_deleted_version_and_says_so(history: DataFrame) -> None:
    html = show(history.where("deleted_indicator"))._repr_html_()
    (row,) = re.findall(r"<tbody>(.*)</tbody>", html)
    assert re.search(
        r'<del style="[^"]*">3</del><sup [^>]*title="m1; the value has priority 0">m1/0</sup>', row
    )
    assert re.search(r"<b [^>]*>deleted</b><sup [^>]*>m3/2</sup>", row)
    assert "<del" not in show(as_of(history, at(9)))._repr_html_()


def test_text_keeps_a_value_on_its_line(spark: SparkSession) -> None:
    """A line end, and a character that turns the text around, are shown as their escapes."""
    row = version("g", at(9), None, "two\nlines \u202e \u4e2d\u6587", "m1")
    assert "two\\nlines \\u202e \u4e2d\u6587 ·m1/2" in lines(show(table_of(spark, row)))[1]
    assert len(lines(show(table_of(spark, row)))) == 3


def test_wide_characters_take_two_columns(spark: SparkSession) -> None:
    rows = [version("g", at(9), None, name, "m1") for name in ("\u4e2d\u6587", "abcd", "e\u0301bcd")]
    shown = lines(show(table_of(spark, *rows), provenance=False))[1:4]
    assert shown == [
        "09:00       …         1       \u4e2d\u6587  m1       g",
        "09:00       …         1       abcd  m1       g",
        "09:00       …         1       e\u0301bcd  m1       g",
    ]


def test_long_values_are_cut(spark: SparkSession) -> None:
    rows = [version("g" * 9, at(9), None, "x" * length, "m1") for length in (60, 61)]
    shown = lines(show(table_of(spark, *rows), provenance=False))
    assert shown[1].split()[3] == "x" * 60
    assert shown[2].split()[3] == "x" * 60 + "…"
    assert shown[1].split()[-1] == "g" * 8 + "…"
    assert lines(show(table_of(spark, *rows), provenance=False, width=61))[2].split()[3] == "x" * 61


def short(*names: str) -> list[str]:
    called = shorten_messages(names)
    return [called[name].short for name in names]


def test_long_messages_are_a_word_and_an_end_as_far_as_they_differ() -> None:
    assert short("orders-0-1234", "m1") == ["orders…1234", "m1"]
    assert short("the-orders-0-1234", "the-orders-1-1234") == ["orders…0-1234", "orders…1-1234"]
    assert short("orders-0-1234", "orders-1-1234") == ["orders-0-1234", "orders-1-1234"]
    assert short("a" + "0" * 20, "b" + "0" * 20) == ["a000…0000", "b000…0000"]
    assert short("abcd1" + "0" * 20, "abcd2" + "0" * 20) == ["abcd1" + "0" * 20, "abcd2" + "0" * 20]
    assert short("ny2/operations:20130207185408001586") == ["operations…1586"]
    # What would be no shorter stays; a digest has no words.
    assert short("reconciliations") == ["reconciliations"]
    assert short("deadbeef-0000-4000-8000-00000000feed") == ["dead…feed"]


MADE = [f"web shop-{digit * 32}" for digit in "0a"]


def test_a_message_that_nobody_named_is_called_by_its_source(spark: SparkSession) -> None:
    """Two of one source look alike, so the caption counts them; the mouse finds which is which."""
    rows = [version("g", at(9), None, "x", MADE[0]), version("h", at(9), None, "x", MADE[1])]
    frame = table_of(spark, *rows).select("guid", "source_message", F.lit("m1").alias("name"))
    table = show(frame, order_by="guid")
    assert lines(table) == [
        "name  message   guid",
        "m1    web shop  g",
        "m1    web shop  h",
        "(2 rows; web shop is 2 messages without a name)",
    ]
    assert [f'title="{name}"' in table._repr_html_() for name in MADE] == [True, True]
    assert lines(show(frame.where("guid = 'g'")))[-1] == "(1 row)"
    # Almost such a digest is a name.
    assert short("shop-" + "0" * 31, "shop-" + "0" * 31 + "g") == ["shop…0000", "shop…000g"]


def test_what_changes_from_names_is_called_by_its_source(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(1, at(9), "Cup")], "id int, since timestamp, name string")
    history = merge(
        changes_from(rows, keys=["id"], valid_from="since", source="shop"), entity="x", keys=["id"]
    )
    assert lines(show(history, columns=["name", "message"]))[:2] == [
        "name         message",
        "Cup ·shop/0  shop",
    ]


def test_fields_may_be_called_anything(spark: SparkSession) -> None:
    names = ["a.b", "c`d", "m", "value", "0", "valid_from"]
    frame = spark.createDataFrame([(1, 2, 3, 4, 5, 6, at(9))], [*names, "valid_from_timestamp"])
    assert lines(show(frame, order_by=["a.b", "c`d"]))[:2] == [
        "valid_from  a.b  c`d  m  value  0  valid_from",
        "09:00       1    2    3  4      5  6",
    ]


def test_values_of_every_type_are_text(spark: SparkSession) -> None:
    frame = spark.sql(
        "SELECT X'00ff' AS bin, 1.50 AS dec, double('NaN') AS nan, array(1, null) AS arr, true AS yes, "
        "map('k', 1) AS map, DATE'2024-03-10' AS day, TIMESTAMP_NTZ'2024-03-10 09:00:00' AS wall, '' AS none"
    )
    assert lines(show(frame)) == [
        "bin          dec   nan  arr       yes   map      day         wall                 none",
        'b\'\\x00\\xff\'  1.50  NaN  [1,null]  true  {"k":1}  2024-03-10  2024-03-10 09:00:00  ""',
        "(1 row)",
    ]


def test_the_messages_of_an_answer_are_shortened_and_those_of_a_history_are_fields(
    spark: SparkSession, history: DataFrame
) -> None:
    """Their full names stand in the HTML, where the mouse finds them."""
    long = "orders-0-1234<"
    answer = spark.range(1).select(F.lit(long).alias("message"), F.lit(long).alias("value"))
    assert lines(show(answer))[1].split() == ["orders…234<", long]
    assert 'title="orders-0-1234&lt;">orders…234&lt;</td>' in show(answer)._repr_html_()
    told = history.select("deleted_indicator", F.lit(long).alias("message"))
    assert lines(show(told))[1].split() == [long]


@pytest.mark.parametrize("wrong", [0, -1, 1001, 2.5, "3", True])
def test_a_table_has_from_one_to_a_thousand_rows(history: DataFrame, wrong: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"show\(\) needs rows to be a number from 1 to 1000"):
        show(history, rows=wrong)
    with pytest.raises(InvalidArgument, match=r"show\(\) needs width to be a number from 1 to 1000"):
        show(history, width=wrong)


def test_an_unknown_column_to_order_by_is_refused(history: DataFrame) -> None:
    with pytest.raises(InvalidArgument, match=r"show\(\) needs order_by to be one or more fields among guid"):
        show(history, order_by=["prize"])


def test_a_standard_column_of_another_type_is_refused(history: DataFrame) -> None:
    for name, other in (
        ("valid_to_timestamp", F.lit("never")),
        ("deleted_indicator", F.lit("no")),
        ("field_provenance", F.lit("m1")),
    ):
        with pytest.raises(WrongColumnType, match=rf"show\(\) needs the column {name}"):
            show(history.withColumn(name, other))


def struct_of(number: T.DataType, name: T.DataType) -> T.StructType:
    return T.StructType([T.StructField("number", number), T.StructField("name", name)])


SAID = T.StructType(
    [
        *CHANGE_SCHEMA,
        T.StructField("data", struct_of(T.IntegerType(), T.StringType())),
        T.StructField("carried", struct_of(T.BooleanType(), T.BooleanType())),
        T.StructField("field_priorities", struct_of(T.IntegerType(), T.IntegerType())),
    ]
)


def said(
    hour: int, message: str, name: str | None, *, sent: bool = True, operation: str = "upsert", rank: int = 0
) -> tuple[Any, ...]:
    """What the shop said at an hour, which came a minute later, about product 1."""
    arrival = (at(hour, 1), "shop", 0, hour, 1)
    own = 7 if rank else None
    return (operation, at(hour), "", arrival, message, "shop", rank, (1, name), (True, sent), (None, own))


def test_changes_are_blank_where_nothing_was_sent(spark: SparkSession) -> None:
    """A null that was sent is another thing.  What no change has, a sequence here, has no column."""
    rows = [
        said(9, "m1", "Cup"), said(10, "m2", None), said(11, "m3", None, sent=False),
        said(12, "m4", None, sent=False, operation="delete"),
    ]  # fmt: skip
    changes = spark.createDataFrame(rows, SAID)
    table = show(changes, order_by="number")
    assert lines(show(changes, order_by=["number", "message_id"])) == [
        "source  operation  number  name  effective  arrived  message",
        "shop    upsert     1       Cup   09:00      09:01    m1",
        "shop    upsert     1       NULL  10:00      10:01    m2",
        "shop    upsert     1             11:00      11:01    m3",
        "shop    delete     1             12:00      12:01    m4",
        "(4 rows; instants of 2024-03-10, UTC; blank was not sent)",
    ]
    assert table._repr_html_().count('<b style="color:#d94050">delete</b>') == 1


def test_a_text_is_taken_neither_for_what_was_not_sent_nor_for_null(spark: SparkSession) -> None:
    rows = [said(9, "m1", ""), said(10, "m2", "NULL"), (*said(11, "m3", None)[:-2], None, None)]
    *shown, _ = lines(show(spark.createDataFrame(rows, SAID), order_by="message_id"))
    # Of a reject nothing was sent: there is no name before the time.
    assert [line.split()[3] for line in shown] == ["name", '""', '"NULL"', "11:00"]


def test_a_sequence_is_shown_where_it_says_more_than_the_time(spark: SparkSession) -> None:
    """A number as such, not as the text of 38 digits that sorts as it does; a text as it is."""
    changes = spark.createDataFrame([said(9, "m1", "Cup"), said(10, "m2", "Mug")], SAID)
    by_time = changes.withColumn("sequence", sortable_number(F.unix_micros("effective_timestamp")))
    assert lines(show(by_time)) == lines(show(changes))
    both = F.when(F.col("message_id") == "m1", sortable_number(F.lit(70))).otherwise("007")
    shown = lines(show(changes.withColumn("sequence", both), columns=["sequence", "message"]))
    assert shown[:3] == ["sequence  message", "70        m1", "007       m2"]


def test_priorities_of_changes_are_shown_where_there_are_some(spark: SparkSession) -> None:
    changes = spark.createDataFrame([said(9, "m1", "Cup", rank=5)], SAID)
    assert lines(show(changes)) == [
        "source  operation  number  name    effective  arrived  priority  message",
        "shop    upsert     1       Cup ·7  09:00      09:01    5         m1",
        "(1 row; instants of 2024-03-10, UTC; after a value the priority that it has of its own)",
    ]
    assert "·" not in repr(show(changes, provenance=False))


def test_with_its_changes_a_history_calls_each_message_by_its_source(
    spark: SparkSession, history: DataFrame
) -> None:
    """One that is the same down a column stands above it; the mouse finds when it came, and from where."""
    changes = spark.createDataFrame([said(9, "m1", "Cup"), said(10, "m2", "Old Cup")], SAID)
    table = show(history, order_by="guid", changes=changes, zone="Europe/Berlin")
    assert (
        lines(table)[0] == "valid_from  valid_to  number ·shop/0  name             state ·m3/2  message  guid"
    )
    assert (
        lines(table)[2] == "11:00       …         3               Old Cup ·shop/2               shop     cup"
    )
    assert (
        lines(table)[4] == "12:00       …         3               NULL ·m3/2       deleted      m3       mug"
    )
    in_full = "shop, message m1, effective 2024-03-10 10:00, arrived 2024-03-10 10:01, at shop/0/9"
    assert f'title="{in_full}; the value has priority 0">3</td>' in table._repr_html_()
    assert "number<div " in table._repr_html_()
    one = show(history.where("name = 'Cup'"), changes=changes)
    assert "3 ·shop/0" in lines(one)[1]


def test_the_priority_after_a_key_is_said_to_be_the_values(spark: SparkSession) -> None:
    """m1 stated the key first, with priority 0; m2 repeats it with priority 5: keys keep their message."""
    changes = spark.createDataFrame([said(9, "m1", "Cup"), said(10, "m2", "Mug", rank=5)], SAID)
    table = show(
        merge(changes, entity="cup", keys=["number"]), columns=["number", "name"], order_by="valid_from"
    )
    assert lines(table) == [
        "number   name",
        "1 ·m1/0  Cup ·m1/0",
        "1 ·m1/5  Mug ·m2/7",
        "(2 rows; after a value its message/the value's priority)",
    ]
    assert 'title="m1; the value has priority 5"' in table._repr_html_()


def test_columns_can_be_chosen(spark: SparkSession, history: DataFrame) -> None:
    """By their headings; that a version is deleted is said anyhow."""
    assert lines(show(history, columns=["valid_from", "name"], order_by="guid")) == [
        "valid_from  name           state",
        "09:00       Cup ·m1/2",
        "10:00       Old Cup ·m2/2",
        "09:00       Mug ·m1/2",
        "11:00       NULL ·m3/2     deleted ·m3/2",
        "(4 rows; instants of 2024-03-10, UTC; after a value its message/the value's priority)",
    ]
    changes = spark.createDataFrame([said(9, "m1", "Cup")], SAID)
    assert lines(show(changes, columns=["name", "source"]))[:2] == ["name  source", "Cup   shop"]
    with pytest.raises(InvalidArgument, match="one or more fields among source, operation, number, name"):
        show(changes, columns=["valid_from"])
    with pytest.raises(InvalidArgument, match="Is it name for nmae and source for sorce"):
        show(changes, columns=["nmae", "sorce", "operation"])


def test_a_column_has_two_names_its_own_and_what_stands_above_it(
    spark: SparkSession, history: DataFrame
) -> None:
    """To choose it, and to order by it; a field of that name comes first."""
    newest = show(history, columns=["valid_from_timestamp", "name"], order_by="valid_from", provenance=False)
    assert lines(newest)[:2] == ["valid_from  name     state", "09:00       Cup"]
    assert repr(newest) == repr(
        show(history, columns=["valid_from", "name"], order_by="valid_from_timestamp", provenance=False)
    )
    changes = spark.createDataFrame([said(9, "m2", "Cup"), said(10, "m1", "Mug")], SAID)
    assert lines(show(changes, columns="message_id", order_by="message"))[:3] == ["message", "m1", "m2"]
    named = history.withColumn("state", F.lit("new"))
    assert show(named, order_by="state")


def test_a_table_of_pandas_is_refused_with_what_makes_one_of_spark(history: DataFrame) -> None:
    """The error does not hold its rows."""
    frame = pd.DataFrame({"id": [1], "secret": ["x1x"]})
    with pytest.raises(
        InvalidArgument, match=r"a DataFrame of pandas with the columns id, secret.*changes_from"
    ) as caught:
        show(frame)  # type: ignore[arg-type]
    assert "x1x" not in str(caught.value)
    with pytest.raises(InvalidArgument, match=r"merge\(\) needs .* `changes_from\(frame, keys="):
        merge(frame, entity="cup", keys=["id"])  # type: ignore[arg-type]
    with pytest.raises(MissingColumns, match=r"the DataFrame has guid, .*This is a history, .*changes"):
        merge(history, entity="cup", keys=["number"])


def test_rejects_say_first_what_is_wrong(spark: SparkSession) -> None:
    row = (None, b"?" * 5, "shop", 0, 7, at(9), 1, None, "NO_VALUE", "There is none.")
    frame = spark.createDataFrame([row], REJECT_SCHEMA)
    assert lines(show(frame, width=3)) == [
        "error_code  error_description  topic  partition  offset  timestamp  key   value",
        "NO_…        The…               sho…   0          7       09:00      NULL  b'???…' (5 bytes)",
        "(1 row; instants of 2024-03-10, UTC)",
    ]


def test_the_zone_is_chosen_once(history: DataFrame) -> None:
    """For all tables that do not name one."""
    options.zone = "America/New_York"
    try:
        assert "instants of 2024-03-10, America/New_York" in repr(show(history))
        assert "instants of 2024-03-10, UTC" in repr(show(history, zone=UTC))
    finally:
        options.reset()


def test_a_stream_has_no_rows_to_show(spark: SparkSession) -> None:
    stream = spark.readStream.format("rate").load()
    with pytest.raises(InvalidArgument, match="a batch of rows; of a stream, show what a query"):
        show(stream)
