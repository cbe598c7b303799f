"""Full lists of sources in a ledger: the log says what all of them say, in whatever order they came."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pytest
from pyspark.sql import SparkSession

from cdckit import Ledger, Priority, changes_from_snapshots, union_changes
from cdckit.errors import InvalidArgument, UnfitList, WrongColumnType
from cdckit.ledger.ledger import ApplyResult
from support.histories import change_schema, rows_to_dataframe
from support.lists import DAY, opened, said


class Night(NamedTuple):
    """What a ledger answered to a list, and what its log said then."""

    applied: ApplyResult
    log: list[tuple[Any, ...]]


@pytest.fixture(scope="module")
def nights(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Night]:
    """A shop's lists of three nights: the first, the fifth, which says the same, and the third, late."""
    ledger = opened(spark, tmp_path_factory.mktemp("nights"))
    both, one = {"id": [1, 2], "name": ["kettle", "mug"]}, {"id": [1], "name": ["teapot"]}

    def listed(content: dict[str, list[Any]], day: int, **options: Any) -> Night:
        some = pd.DataFrame(content)
        return Night(ledger.apply_list(some, taken_at=DAY[day - 1], source="shop", **options), said(ledger))

    return {
        "first": listed(both, 1),
        "the same": listed(both, 5),
        "late": listed(one, 3, max_deleted=0.5),
        "repeated": listed(one, 3),
        "revoked": Night(ledger.revoke_list(DAY[2], source="shop"), said(ledger)),
    }


FIRST = [(1, 1, "upsert", "kettle"), (2, 1, "upsert", "mug")]


def test_a_list_logs_its_news_alone(nights: dict[str, Night]) -> None:
    assert (nights["first"].applied.news, nights["first"].log) == (2, FIRST)
    assert (nights["the same"].applied.news, nights["the same"].log) == (0, FIRST)


def test_a_late_list_makes_the_next_one_speak(nights: dict[str, Night]) -> None:
    """On the third the mug is gone and the kettle a teapot; the fifth then says what it had not to say."""
    late = [(1, 3, "upsert", "teapot"), (2, 3, "absent", None)]
    again = [(1, 5, "upsert", "kettle"), (2, 5, "upsert", "mug")]
    assert nights["late"].applied.news == 4
    assert nights["late"].log == sorted([*FIRST, *late, *again])


def test_a_list_once_more_says_nothing(nights: dict[str, Night]) -> None:
    assert (nights["repeated"].applied.news, nights["repeated"].applied.repeated) == (0, True)
    assert nights["repeated"].log == nights["late"].log


def test_what_a_revoked_list_said_is_gone(nights: dict[str, Night]) -> None:
    """And what the list after it said against it."""
    assert nights["revoked"].log == FIRST


def test_a_list_that_cannot_be_is_refused_and_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    ledger = opened(spark, tmp_path)
    ledger.apply_list(pd.DataFrame({"id": [1, 2], "name": ["a", "b"]}), taken_at=DAY[0])
    lists: list[tuple[list[tuple[int, str]], int, str]] = [
        ([(1, "a")], 2, "lacks 1 of the 2 entities"),
        ([(1, "a"), (2, "x")], 1, r"differ.*revoke_list\(taken_at=datetime\(2024, 1, 1"),
        ([(1, "a"), (1, "b")], 2, "it needs each entity once in a list"),
    ]
    for content, day, match in lists:
        some = pd.DataFrame(content, columns=["id", "name"])
        with pytest.raises(UnfitList, match=match):
            ledger.apply_list(some, taken_at=DAY[day - 1], max_deleted=0.1)
        assert ledger.at_commit().version == 1


def test_a_list_with_a_time_of_no_year_is_refused_by_its_column(spark: SparkSession, tmp_path: Path) -> None:
    """The ledger stays as it was."""
    ledger = opened(spark, tmp_path)
    ledger.apply_list(pd.DataFrame({"id": [1], "odd": ["a"]}), taken_at=DAY[0])
    far = spark.sql("select 1 as id, date'+12024-01-01' as due, timestamp_micros(9223372036854775807) as at")
    with pytest.raises(UnfitList, match=r"years 1 to 9999, and due is \+12024-01-01"):
        ledger.apply_list(far.drop("at"), taken_at=DAY[1])
    with pytest.raises(InvalidArgument, match=r"taken_at to be an instant in the years 1 to 9999"):
        ledger.apply_list(far.drop("due"), taken_at="at")
    with pytest.raises(InvalidArgument, match=r"odd \(texts and bytes\)"):
        ledger.apply_list(pd.DataFrame({"id": [1, 2], "odd": ["a", b"a"]}), taken_at=DAY[1])
    assert ledger.at_commit().version == 1


def test_a_list_of_which_a_row_could_not_be_read_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Its price would be null, as if the list said so."""
    ledger = opened(spark, tmp_path)
    read = "id int, price int, _corrupt_record string"
    ledger.apply_list(spark.createDataFrame([(1, 5, None)], read), taken_at=DAY[0])
    with pytest.raises(UnfitList, match=r"one could not be read: .*The row: 1,five"):
        ledger.apply_list(spark.createDataFrame([(1, None, "1,five")], read), taken_at=DAY[1])
    [version] = ledger.history().collect()
    assert (version.price, "_corrupt_record" in version) == (5, False)


def test_a_column_of_rows_that_could_not_be_read_is_no_field_where_all_could(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Pandas knows no type of it then; as a field it would be news of each row once it has a text."""
    ledger = opened(spark, tmp_path)
    read = pd.DataFrame({"id": [1], "price": [5], "_corrupt_record": [None]})
    ledger.apply_list(read, taken_at=DAY[0])
    assert ledger.changes().select("data.*").columns == ["id", "price"]


def test_a_list_of_nothing_is_refused_also_as_the_first(spark: SparkSession, tmp_path: Path) -> None:
    ledger, nothing = opened(spark, tmp_path), spark.createDataFrame([], "id int, name string")
    for options in ({}, {"max_deleted": 0.1}):
        with pytest.raises(
            UnfitList, match=r"it names nothing, and there is no list before it\. .*max_deleted=1"
        ):
            ledger.apply_list(nothing, taken_at=DAY[0], **options)
    assert ledger.at_commit().version is None
    assert ledger.apply_list(nothing, taken_at=DAY[0], max_deleted=1).news == 0


def test_what_tells_lists_apart_is_no_key(spark: SparkSession, tmp_path: Path) -> None:
    sales = spark.sql("select 1 as id, timestamp'2024-01-05' as day")
    with pytest.raises(InvalidArgument, match="needs taken_at to be a column that is no key"):
        Ledger(spark, tmp_path, entity="sale", keys=["id", "day"]).apply_list(sales, taken_at="day")


def test_a_late_list_gives_the_next_one_nothing_of_its_priority(spark: SparkSession, tmp_path: Path) -> None:
    """What the fifth day says anew, the absence of the jug too, counts as much as before."""
    ledger = opened(spark, tmp_path)
    nights = {1: ["kettle", "mug"], 5: ["kettle", "mug"], 3: ["teapot", "mug", "jug"]}
    for day, names in nights.items():
        some = pd.DataFrame({"id": range(len(names)), "name": names})
        ledger.apply_list(some, taken_at=DAY[day - 1], priority=9 if day == 3 else 2)
    rows = ledger.changes().orderBy("data.id", "effective_timestamp").collect()
    assert [(row["data"]["id"], row["effective_timestamp"].day, row["priority"]) for row in rows] == [
        *((0, 1, 2), (0, 3, 9), (0, 5, 2)),
        (1, 1, 2),
        *((2, 3, 9), (2, 5, 2)),
    ]


def test_a_list_again_with_another_priority_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """It would be no news, and count as before."""
    ledger, tonight = opened(spark, tmp_path), pd.DataFrame({"id": [1], "name": ["kettle"]})
    ledger.apply_list(tonight, taken_at=DAY[0], priority=Priority(2, {"name": 5}))
    refused = (
        r"with Priority\(2, {'name': 5}\), and not Priority\(9\).*keeps its priority: give it with that one; "
        r"or .*revoke_list\(taken_at=datetime\(2024, 1, 1.*, source='table'\)"
    )
    with pytest.raises(UnfitList, match=refused):
        ledger.apply_list(tonight, taken_at=DAY[0], priority=9)
    assert ledger.apply_list(tonight, taken_at=DAY[0], priority=Priority(2, {"name": 5})).repeated
    ledger.revoke_list(DAY[0])
    assert ledger.apply_list(tonight, taken_at=DAY[0], priority=9).news == 1
    assert [row["priority"] for row in ledger.changes().collect()] == [9]


def test_a_list_in_two_batches_of_a_stream_is_mended_and_passed_over(
    spark: SparkSession, tmp_path: Path
) -> None:
    ledger = opened(spark, tmp_path)
    day = pd.Series([DAY[0]], dtype="datetime64[us, UTC]")
    halves = [
        pd.DataFrame({"id": [number], "name": [name], "day": day}) for number, name in ((1, "a"), (2, "b"))
    ]
    first, second = map(spark.createDataFrame, halves)
    ledger.list_sink(taken_at="day")(first, 0)
    with pytest.raises(UnfitList, match="list_sink"):
        ledger.list_sink(taken_at="day")(second, 1)
    ledger.revoke_list(DAY[0])
    with pytest.raises(
        InvalidArgument, match=r"applied to be instants at which lists of 'table' were taken.*2024"
    ):
        ledger.list_sink(taken_at="day", applied=iter([DAY[0]]))
    with pytest.raises(InvalidArgument, match="applied to be a list of instants"):
        ledger.list_sink(taken_at="day", applied=DAY[0])
    ledger.apply_list(pd.concat(halves).drop(columns="day"), taken_at=DAY[0])
    assert ledger.list_sink(taken_at="day", applied=[DAY[0]])(second, 1).repeated
    assert [row["rows"] for row in ledger.lists().collect()] == [2]


def test_a_list_between_two_that_lack_a_column_tells_it(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of the first day and the third, in one call, the third leaves standing what the second said."""
    ledger = opened(spark, tmp_path)
    ledger.apply_list(pd.DataFrame({"id": [1], "city": ["Ulm"]}), taken_at=DAY[1])
    others = pd.DataFrame({"id": [1, 1], "day": [DAY[0], DAY[2]]}).astype({"day": "datetime64[us, UTC]"})
    ledger.apply_list(others, taken_at="day")
    (told,) = caplog.messages
    assert told.startswith("apply_list(): the list of 2024-01-03T00:00:00+00:00 has no city")


def test_lists_as_changes_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    """
    Of a list alone nobody can tell what is gone, and an empty one says nothing at all.

    The error names the call that can; also where a union has left nothing of the lists but their rows.
    """
    ledger = opened(spark, tmp_path)
    other = rows_to_dataframe(spark, [], change_schema({"id": "int", "name": "string"}))
    for rows, by_name in (([(1, "a"), (2, "b")], True), ([], True), ([(1, "a")], False)):
        table = spark.createDataFrame(rows, "id int, name string")
        changes = changes_from_snapshots({DAY[2]: table}, keys=["id"], source="shop")
        if not by_name:
            changes = changes.withMetadata("message_id", {})
        for some in (changes, union_changes(other, changes)) if rows else (changes,):
            with pytest.raises(UnfitList, match=r"apply_list\(rows, taken_at=datetime\(2024, 1, 3") as error:
                ledger.apply(some)
            assert (error.value.source, error.value.taken_at) == ("shop", DAY[2])
    assert ledger.at_commit().version is None


def test_a_column_of_times_stays_one(spark: SparkSession, tmp_path: Path) -> None:
    """A day read once by `parse_dates=` and once as a text would be a change of every row."""
    ledger = opened(spark, tmp_path)
    as_texts = pd.DataFrame({"id": [1, 2], "since": ["2024-03-18", "2024-03-19"]})
    as_times = as_texts.assign(since=pd.to_datetime(as_texts["since"]))
    ledger.apply_list(as_times, taken_at=DAY[0])
    for rows in (as_texts, as_texts.assign(since=[20240318, 20240319])):
        with pytest.raises(WrongColumnType, match=r"data.since as timestamp, as before.*to_datetime"):
            ledger.apply_list(rows, taken_at=DAY[1])
    assert ledger.apply_list(as_times, taken_at=DAY[1]).news == 0


def test_whole_numbers_beside_floats_are_no_texts(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A gap makes floats of whole numbers in pandas: 30 is 30.0, and no warning speaks of texts."""
    ledger = opened(spark, tmp_path)
    ledger.apply_list(pd.DataFrame({"id": [1, 2], "price": [30, 5]}), taken_at=DAY[0])
    result = ledger.apply_list(pd.DataFrame({"id": [1, 2], "price": [30.0, 5.5]}), taken_at=DAY[1])
    assert (result.news, caplog.messages) == (1, [])
    assert dict(ledger.history().dtypes)["price"] == "double"


def test_a_key_that_becomes_a_number_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Read as numbers, "007" and "7" would be one."""
    ledger = opened(spark, tmp_path)
    ledger.apply_list(pd.DataFrame({"id": ["007", "7"]}), taken_at=DAY[0])
    with pytest.raises(WrongColumnType, match=r"apply_list\(\) needs the column data.id as string"):
        ledger.apply_list(pd.DataFrame({"id": [7, 7]}), taken_at=DAY[1])
    assert ledger.lists().count() == 1


@pytest.mark.parametrize("empty_first", [False, True], ids=["values first", "nothing first"])
def test_an_empty_column_of_texts_has_the_type_of_the_values(
    empty_first: bool, spark: SparkSession, tmp_path: Path
) -> None:
    """Spark reads a column of a CSV file as texts where it has no values that night."""
    ledger = opened(spark, tmp_path)
    full = spark.sql("select 1 as id, 5L as stock, timestamp'2024-01-05 12:00:00' as since")
    empty = spark.sql("select 1 as id, cast(null as string) as stock, cast(null as string) as since")
    for at, rows in zip(DAY, [empty, full] if empty_first else [full, empty], strict=False):
        ledger.apply_list(rows, taken_at=at)
    history = ledger.history().select("stock", "since").orderBy("valid_from_timestamp")
    assert history.schema.simpleString() == "struct<stock:bigint,since:timestamp>"
    stocks = [row["stock"] for row in history.collect()]
    assert stocks == ([None, 5] if empty_first else [5, None])
