"""`profile`: what stands in a table, and the call of `changes_from` that follows."""

from __future__ import annotations

from datetime import UTC, datetime

import pandas as pd
import pytest
from pyspark.sql import SparkSession

from cdckit import changes_from
from cdckit.errors import InvalidArgument
from cdckit.tables import ColumnProfile, Profile, profile
from support.profiles import count_changes

# Frames of pandas become Spark's: without a session nothing is read.
pytestmark = pytest.mark.usefixtures("spark")


def column(found: Profile, name: str) -> ColumnProfile:
    return next(each for each in found.columns if each.name == name)


def test_german_days_with_an_empty_text_and_a_row_without_a_time(spark: SparkSession) -> None:
    """What its expression does not read, "soon", is a reject of `changes_from`."""
    frame = spark.createDataFrame(
        [
            (1, "kettle", "1.2.2024", 1.5),
            (1, "", "13.1.2024", None),
            (2, "mug", "1.2.2024", 2.0),
            (2, "mug", "soon", 2.0),
            (2, "mug", "soon", 2.0),
        ],
        "`the id` int, name string, at string, price double",
    )
    found = profile(frame)
    assert (found.rows, found.repeated) == (5, 1)
    day = "try_to_timestamp(at, 'd.M.yyyy')"
    # "kettle" stands before "mug": examples are the least value that is there.
    assert found.columns == (
        ColumnProfile("the id", "int", 0, 0, 2, "1", can_be=("key",)),
        ColumnProfile("name", "string", 0, 1, 3, "kettle"),
        ColumnProfile(
            "at", "string", 0, 0, 3, "1.2.2024", (day,), can_be=(f"time: {day}, no zone said",),
        ),
        ColumnProfile("price", "double", 1, 0, 2, "1.5"),
    )  # fmt: skip
    assert found.calls == (
        f"changes_from(frame, keys=['the id'], effective=\"{day}\", except_column_list=['at'])",
    )
    assert count_changes(found, frame) == [3]
    assert found.rejects == {"TIME_UNREADABLE": 2}
    assert "<li>Rejects under the first call: 2 TIME_UNREADABLE" in found._repr_html_()


def test_between_two_readings_nothing_is_guessed() -> None:
    """03/04/2024 is a day in April or in March; letters that look like operations may be grades."""
    frame = pd.DataFrame(
        {"id": [1, 1, 2], "at": ["03/04/2024", "05/04/2024", "03/04/2024"], "op": ["I", "U", "D"]}
    )
    found = profile(frame)
    ways = ("try_to_timestamp(at, 'd/M/yyyy')", "try_to_timestamp(at, 'M/d/yyyy')")
    assert column(found, "at").readings == ways
    assert len(found.calls) == 4
    assert [way in call for way in ways for call in found.calls] == [
        True,
        True,
        False,
        False,
        False,
        False,
        True,
        True,
    ]
    assert ["apply_as_deletes" in call for call in found.calls] == [True, False, True, False]
    assert column(found, "at").can_be == (f"time: {' or '.join(ways)}, no zone said",)
    assert column(found, "op").can_be == ("marks deletes by D",)


def test_the_readings_are_those_that_read_all_that_can_be_read() -> None:
    """Numbers count as times only where nothing else does; of several times, which one is meant is open."""
    day = datetime(2024, 1, 1, tzinfo=UTC)
    frame = pd.DataFrame(
        {
            "id": [1, 1, 2],
            "told": ["03/04/2024", "13/04/2024", "03/04/2024"],
            "mixed": ["13/04/2024", "1.2.2024", "1.2.2024"],
            "iso": ["2024-01-01T09:00Z", "2024-01-02", None],
            "either": ["2024-01-01", "1.2.2024", None],
            "at": [day, day, None],
            "seconds": [2024010112, 2024010212, 2024010112],
            "op": ["insert", "update", "delete"],
        }
    )
    found = profile(frame)
    dotted, slashed = "try_to_timestamp(mixed, 'd.M.yyyy')", "try_to_timestamp(mixed, 'd/M/yyyy')"
    assert {each.name: each.readings for each in found.columns if each.readings} == {
        "told": ("try_to_timestamp(told, 'd/M/yyyy')",),
        "mixed": (f"coalesce({dotted}, {slashed})",),
        "iso": ("iso",),
        "either": ("coalesce(try_to_timestamp(either), try_to_timestamp(either, 'd.M.yyyy'))",),
        "at": ("at",),
        "seconds": ("try_to_timestamp(cast(seconds as string), 'yyyyMMddHH')", "timestamp_seconds(seconds)"),
    }
    assert column(found, "iso").can_be == ("time: iso, some say a zone",)
    assert "told, mixed, iso, either, at are times" in repr(found)
    assert "when it was entered (sequence_by" in repr(found)
    # `seconds`, which is taken for no time here, tells rows apart as well, and is not called like a key.
    assert "id, seconds can each be the key" in repr(found)
    assert len(found.calls) == 5
    assert all("keys=['id']" in call for call in found.calls)
    assert all("apply_as_deletes=\"op in ('delete')\"" in call for call in found.calls)


def test_numbers_of_days_that_lost_their_zeros_are_no_times() -> None:
    """`read_csv(thousands=".")` makes 1012024 of 01.01.2024: what has eight digits is not the whole."""
    frame = pd.DataFrame({"id": range(30), "day": [20240101] * 29 + [0]})
    assert column(profile(frame), "day").readings == ("try_to_timestamp(cast(day as string), 'yyyyMMdd')",)
    lost = frame.assign(day=[12012024 + n * 1_000_000 for n in range(18)] + [1012024] * 12)
    assert column(profile(lost), "day").readings == ()


def test_numbers_since_1970_are_times_where_nothing_else_is() -> None:
    """1704067200000 are the milliseconds of 2024-01-01."""
    frame = pd.DataFrame({"id": [1, 1, 2], "ms": [1704067200000, 1704153600000, 1704067200000]})
    found = profile(frame)
    assert found.calls == (
        "changes_from(frame, keys=['id'], effective='timestamp_millis(ms)', except_column_list=['ms'])",
    )
    assert column(found, "ms").can_be == ("perhaps time: timestamp_millis(ms)",)
    made = eval(found.calls[0], {"changes_from": changes_from, "frame": frame})
    assert made.selectExpr("min(effective_timestamp)").collect()[0][0] == datetime(2024, 1, 1)


def test_keys_of_two_columns_several_and_none() -> None:
    grid = pd.DataFrame({"a": [1, 1, 2, 2], "b": [1, 2, 1, 2], "c": ["x"] * 4})
    found = profile(grid)
    assert found.calls == ("changes_from(frame, keys=['a', 'b'])",)
    assert "No column is a time" in repr(found)
    assert column(found, "c").can_be == ("source",)
    assert count_changes(found, grid) == [4]
    # Where something is called like a key, it is the key of the calls; a note has all that could be.
    several = profile(pd.DataFrame({"name": ["x", "y"], "order_id": [7, 8]}))
    assert several.calls == ("changes_from(frame, keys=['order_id'])",)
    assert "order_id, name can each be the key" in repr(several)
    unnamed = profile(pd.DataFrame({"name": ["x", "y"], "size": [7, 8]}))
    assert unnamed.calls == ("changes_from(frame, keys=['name'])", "changes_from(frame, keys=['size'])")
    assert "Ledger.apply_list" in repr(unnamed)
    none = profile(pd.DataFrame({"price": [1.5, 2.5], "ok": [True, False]}))
    assert none.calls == ()
    assert "say the keys yourself" in repr(none)


def test_numbers_with_a_decimal_comma_are_named_with_what_reads_them(spark: SparkSession) -> None:
    """A comma before three digits may part thousands: alone it says nothing."""
    rows = [("1.250,50", "1,234"), ("87,4", "1,234"), ("-7", "1,234"), ("?", "1,234")]
    frame = spark.createDataFrame(rows, "`Betrag €` string, n string")
    amount, thousands = profile(frame).columns
    assert thousands.can_be == ("source",)
    (words,) = amount.can_be
    read = words.removeprefix("number with a decimal comma: ")
    assert [row[0] for row in frame.selectExpr(read).collect()] == [1250.5, 87.4, -7.0, None]


def test_of_two_times_each_may_say_since_when_a_row_is_true() -> None:
    frame = pd.DataFrame({"id": [1, 2], "since": ["2024-01-01"] * 2, "entered": ["5.1.2024", "13.1.2024"]})
    read = "try_to_timestamp(entered, 'd.M.yyyy')"
    assert profile(frame).calls == (
        "changes_from(frame, keys=['id'], effective='since', except_column_list=['since'])",
        f"changes_from(frame, keys=['id'], effective=\"{read}\", except_column_list=['entered'])",
    )
    assert "since, entered are times: which of them says since when a row is true" in repr(profile(frame))


def test_nothing_is_what_nothing_says() -> None:
    found = profile(pd.DataFrame({"id": [], "at": pd.Series([], dtype="datetime64[ns]")}))
    assert (found.rows, found.calls, found.rejects) == (0, (), {})
    assert found.notes == ("The table has no rows, so nothing but its types is known.",)
    with pytest.raises(InvalidArgument, match=r"profile\(\) needs its table to be a DataFrame of Spark"):
        profile([1])  # type: ignore[arg-type]
