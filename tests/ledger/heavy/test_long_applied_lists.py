"""
Full lists of sources, whole scenarios and a random program.

In `make test`:
tests/ledger/test_applied_lists.py::test_a_list_logs_its_news_alone,
tests/ledger/test_applied_lists.py::test_a_late_list_makes_the_next_one_speak,
tests/ledger/test_applied_lists.py::test_what_a_revoked_list_said_is_gone,
tests/ledger/test_applied_lists.py::test_a_list_that_cannot_be_is_refused_and_changes_nothing,
tests/ledger/test_applied_lists.py::test_lists_as_changes_are_refused.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit.errors import InvalidArgument, MissingColumns, UnfitList, WrongColumnType
from cdckit.ledger import Pending
from cdckit.model.sources import Priority
from cdckit.quality import check_all
from cdckit.query import diff
from support.histories import Row, assert_folds_to, change_schema, rows_to_dataframe
from support.lists import DAY, opened, said
from tools.tiers import seeds

HOUR = timedelta(hours=1)
COLUMNS = "id int, name string"
Content = Mapping[int, str | None]
"""What a list says: the name of each id."""


def night(spark: SparkSession, some: Content, columns: str = COLUMNS) -> DataFrame:
    return spark.createDataFrame(list(some.items()), columns)


def nights(spark: SparkSession, lists: Mapping[datetime, Content]) -> DataFrame:
    rows = [(id_, name, at) for at, some in lists.items() for id_, name in some.items()]
    return spark.createDataFrame(rows, f"{COLUMNS}, day timestamp")


# What a list is compared with ------------------------------------------------------------------------------


def test_what_the_next_night_does_not_name_is_gone(spark: SparkSession, tmp_path: Path) -> None:
    """Only news is logged; a late list makes the next one speak; repeats say nothing."""
    ledger = opened(spark, tmp_path)
    one = {1: "kettle", 2: "mug"}
    assert ledger.apply_list(night(spark, one), taken_at=DAY[0], source="shop").news == 2
    pandas = pd.DataFrame({"id": [2, 1], "name": ["mug", "kettle"]})
    assert ledger.apply_list(pandas, taken_at=DAY[4], source="shop").news == 0
    assert ledger.apply_list(night(spark, {1: "teapot"}), taken_at=DAY[2], source="shop").news == 4
    again = [(1, 5, "upsert", "kettle"), (2, 5, "upsert", "mug")]
    first = [(1, 1, "upsert", "kettle"), (2, 1, "upsert", "mug")]
    late = [(1, 3, "upsert", "teapot"), (2, 3, "absent", None)]
    assert said(ledger) == sorted([*first, *late, *again])
    # What the fifth day said against the third it need no longer say against the fourth.
    seen: list[int] = []
    done = ledger.apply_list(
        night(spark, one),
        taken_at=DAY[3],
        source="shop",
        gate=lambda after: seen.append(after.touched_history().select("guid").distinct().count()),
    )
    assert (done.news, done.repeated, seen) == (2, False, [2])
    assert said(ledger) == sorted([*first, *late, *((id_, 4, *rest) for id_, _, *rest in again)])
    before = ledger.at_commit().version
    repeated = ledger.apply_list(night(spark, one), taken_at=DAY[3], source="shop")
    assert (repeated.news, repeated.repeated, repeated.version) == (0, True, before)
    with pytest.raises(UnfitList, match=r"names nothing, and the list before it named 2 .* max_deleted=1"):
        ledger.apply_list(night(spark, {}), taken_at=DAY[9], source="shop")
    assert ledger.apply_list(night(spark, {}), taken_at=DAY[9], source="shop", max_deleted=1).news == 2
    assert said(ledger)[-1] == (2, 10, "absent", None)
    counted = ledger.lists().orderBy("taken").collect()
    assert [(row["taken"].day, row["rows"]) for row in counted] == [(1, 2), (3, 1), (4, 2), (5, 2), (10, 0)]


def test_lists_that_cannot_be_are_refused_before_anything_is_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    ledger = opened(spark, tmp_path)
    assert ledger.lists().count() == 0
    ledger.apply_list(night(spark, {1: "a", 2: "b", 3: "c", 4: "d"}), taken_at=DAY[0], source="shop")
    half = night(spark, {1: "a", 2: "b"})
    with pytest.raises(UnfitList, match="lacks 2 of the 4 entities") as lost:
        ledger.apply_list(half, taken_at=DAY[1], source="shop", max_deleted=0.49)
    assert (lost.value.source, lost.value.taken_at) == ("shop", DAY[1])
    for other in (half, night(spark, {1: "a", 2: "b", 3: "c", 4: "x"})):
        with pytest.raises(UnfitList, match=r"differ.*revoke_list\(taken_at=datetime\(2024, 1, 1"):
            ledger.apply_list(other, taken_at=DAY[0], source="shop")
    assert ledger.at_commit().version == 1
    done = ledger.apply_list(half, taken_at=DAY[1], source="shop", max_deleted=0.5)
    assert (done.news, done.deleted) == (2, 2)
    twice = spark.createDataFrame([(1, "a"), (1, "b")], COLUMNS)
    with pytest.raises(UnfitList, match="it needs each entity once in a list"):
        ledger.apply_list(twice, taken_at=DAY[2], source="shop")
    with pytest.raises(MissingColumns, match="names its entities by the columns id"):
        ledger.apply_list(half.drop("id"), taken_at=DAY[2])
    with pytest.raises(WrongColumnType, match="name as timestamp"):
        ledger.apply_list(half, taken_at="name")
    with pytest.raises(InvalidArgument, match="an instant in every row"):
        ledger.apply_list(half.withColumn("day", F.lit(None).cast("timestamp")), taken_at="day")
    with pytest.raises(InvalidArgument, match="aware datetime"):
        ledger.apply_list(half, taken_at=datetime(2024, 1, 1))
    with pytest.raises(InvalidArgument, match="a share from 0 to 1"):
        ledger.list_sink(taken_at="day", max_deleted=20)
    with pytest.raises(InvalidArgument, match=r"lists\(\) shows them"):
        ledger.revoke_list(DAY[7], source="shop")
    with pytest.raises(InvalidArgument, match="list_sink"):
        ledger.apply_list(spark.readStream.format("rate").load().selectExpr("1 AS id"), taken_at=DAY[1])


def test_a_list_that_came_while_another_was_compared_is_seen(spark: SparkSession, tmp_path: Path) -> None:
    """The one that comes second is compared with the one that was faster."""
    ledger, other = opened(spark, tmp_path), opened(spark, tmp_path)
    ledger.apply_list(night(spark, {1: "a", 2: "b"}), taken_at=DAY[0])
    asked: list[int | None] = []

    def meanwhile(_: Pending) -> None:
        if not asked:
            other.apply_list(night(spark, {2: "b", 3: "c"}), taken_at=DAY[1])
        asked.append(other.at_commit().version)

    ledger.apply_list(night(spark, {2: "b"}), taken_at=DAY[2], gate=meanwhile)
    assert asked == [2, 2]
    assert said(ledger) == [
        *((1, 1, "upsert", "a"), (1, 2, "absent", None)),
        *((2, 1, "upsert", "b"), (3, 2, "upsert", "c"), (3, 3, "absent", None)),
    ]


# Lists that go ---------------------------------------------------------------------------------------------


def test_a_month_with_half_a_night_revoked_is_the_month_without_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    """What the night after it confirmed is that night's word, also where nothing in it was new."""
    chance = random.Random(8)
    names = {id_: chance.choice("ab") for id_ in range(30)}
    month: dict[datetime, Content] = {}
    for at in DAY[:20]:
        names = {id_: chance.choice("ab") if chance.random() < 0.1 else name for id_, name in names.items()}
        month[at] = {id_: name for id_, name in names.items() if chance.random() < 0.9}
    month[DAY[11]] = month[DAY[10]]
    half = {id_: "changed" if id_ % 3 else name for id_, name in month[DAY[10]].items() if id_ < 15}
    with_it, without = opened(spark, tmp_path / "with"), opened(spark, tmp_path / "without")
    without.apply_list(nights(spark, month), taken_at="day", source="shop")
    broken = datetime(2024, 1, 11, 12, tzinfo=UTC)
    with_it.apply_list(nights(spark, {**month, broken: half}), taken_at="day", source="shop")
    assert diff(with_it.history(), without.history(), keys=["id"]).count() > 0
    assert with_it.revoke_list(broken, source="shop").news == 0
    assert said(with_it) == said(without)
    assert with_it.history().exceptAll(without.history()).count() == 0
    assert with_it.history().count() == without.history().count()


def stated(source: str, priority: int, lists: Mapping[datetime, Content]) -> list[Row]:
    """The naive way: list by list, what it says that the one before it did not."""
    found: list[Row] = []
    before: Content = {}
    for at in sorted(lists):
        now = lists[at]
        for id_ in sorted({*before, *now}):
            if id_ not in now:
                found.append(change(source, priority, at, id_, None, "absent"))
            elif id_ not in before or before[id_] != now[id_]:
                found.append(change(source, priority, at, id_, now[id_], "upsert"))
        before = now
    return found


def change(source: str, priority: int, at: datetime, id_: int, name: str | None, operation: str) -> Row:
    """A change as a list makes it: of the source *two* the name is a remark."""
    field = "remark" if source == "two" else "name"
    carried = operation == "upsert"
    return {
        "operation": operation,
        "effective_timestamp": at,
        "sequence": "",
        "arrival": {"timestamp": at, "topic": "table", "partition": 0, "offset": 0, "record_number": 1},
        "message_id": f"{source}-list-{at:%Y-%m-%dT%H:%M:%SZ}",
        "source": source,
        "priority": priority,
        "data": {"id": id_, "name": None, "remark": None, field: name},
        "carried": {"id": True, "name": False, "remark": False, field: carried},
    }


@seeds(2, soak=12)
def test_any_program_gives_what_the_lists_that_are_left_say(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    """Two sources with lists in any order, repeated and revoked ones; other changes between."""
    chance = random.Random(seed)
    ledger = opened(spark, tmp_path)
    weight = {"one": chance.choice((0, 1)), "two": 0}
    left: dict[str, dict[datetime, Content]] = {"one": {}, "two": {}}
    others: list[Row] = []

    def drawn(source: str) -> Content:
        """Often like one that there is; sometimes nothing."""
        like = chance.choice([*left[source].values(), {}])
        if chance.random() < 0.15:
            return dict(like)
        there = [id_ for id_ in range(25) if chance.random() < (0.9 if id_ in like else 0.5)]
        return {
            id_: like[id_] if id_ in like and chance.random() < 0.8 else chance.choice(("p", "q", None))
            for id_ in (there if chance.random() < 0.9 else [])
        }

    def take(source: str, lists: Mapping[datetime, Content], how: str) -> None:
        columns = COLUMNS.replace("name", "remark") if source == "two" else COLUMNS
        options: dict[str, Any] = {"source": source, "priority": weight[source]}
        if how == "one by one":
            for at, some in lists.items():
                ledger.apply_list(night(spark, some, columns), taken_at=at, max_deleted=1, **options)
        else:
            rows = nights(spark, lists).withColumnRenamed("name", columns.split()[2])
            ledger.apply_list(rows, taken_at="day", max_deleted=1, **options)
        left[source].update(lists)

    for step in ("several", "other", "single", "revoke", "single", "several", "again", "revoke", "other"):
        source = chance.choice(("one", "one", "two"))
        free = [at for at in DAY[:14] if at not in left[source]]
        if step == "several":
            lists = {at: drawn(source) for at in chance.sample(free, 3)}
            take(source, {at: some for at, some in lists.items() if some}, "at once")
        elif step == "single":
            take(source, {chance.choice(free): drawn(source)}, "one by one")
        elif step == "again" and left[source]:
            some = chance.sample(sorted(left[source]), 1)
            take(source, {at: left[source][at] for at in some}, "one by one")
        elif step == "revoke" and left[source]:
            at = chance.choice(sorted(left[source]))
            ledger.revoke_list(at, source=source)
            del left[source][at]
        elif step == "other":
            speaker = chance.choice(("one", "third"))
            more = [
                change(
                    speaker, chance.choice((0, 0, 1)), chance.choice(DAY[:14]), chance.randrange(25),
                    chance.choice(("p", "r")), chance.choice(("upsert", "upsert", "delete")),
                )
                | {"message_id": f"m{len(others) + number}"}
                for number in range(25)
            ]  # fmt: skip
            for row in more:  # of a topic: to rows of tables the ledger gives the number of its call
                row["arrival"]["topic"] = "said"
            others += more
            fields = {"id": "int", "name": "string", "remark": "string"}
            ledger.apply(rows_to_dataframe(spark, more, change_schema(fields, field_priorities=False)))
    lists_said = [row for source, lists in left.items() for row in stated(source, weight[source], lists)]
    assert ledger.lists().count() == sum(map(len, left.values()))
    log = ledger.changes().where("message_id LIKE '%-list-%'").toArrow().to_pylist()
    told = {(row["message_id"], row["data"]["id"], row["operation"]) for row in log}
    assert told == {(row["message_id"], row["data"]["id"], row["operation"]) for row in lists_said}
    assert len(log) == len(lists_said)
    assert_folds_to(ledger.history(), [*lists_said, *others], entity="product", keys=["id"])
    assert check_all(ledger)["ledger"].ok


# Streams, priorities, types --------------------------------------------------------------------------------


def test_a_stream_hands_over_lists(spark: SparkSession, tmp_path: Path) -> None:
    """Each file a list, several in a batch; a batch again is no news, a list in two parts is refused."""
    ledger = opened(spark, tmp_path / "ledger")
    lists = {DAY[0]: {1: "a", 2: "b", 3: "c"}, DAY[1]: {1: "a"}, DAY[2]: {1: "a", 2: "b"}}
    nights(spark, lists).repartition("day").write.parquet(str(tmp_path / "incoming"))
    rows = spark.readStream.schema(f"{COLUMNS}, day timestamp").parquet(str(tmp_path / "incoming"))
    sink = ledger.list_sink(taken_at="day", source="shop")
    writing = rows.writeStream.foreachBatch(sink).trigger(availableNow=True)
    writing.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
    assert said(ledger) == [
        (1, 1, "upsert", "a"),
        *((2, 1, "upsert", "b"), (2, 2, "absent", None), (2, 3, "upsert", "b")),
        *((3, 1, "upsert", "c"), (3, 2, "absent", None)),
    ]
    assert sink(nights(spark, lists), 0).repeated
    with pytest.raises(UnfitList, match="2 rows of the two differ"):
        sink(nights(spark, {DAY[0]: {1: "a"}}), 1)
    assert sink(nights(spark, {}), 2).repeated


def test_lists_have_priorities_of_fields_and_columns_of_their_own(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A column that tonight's list lacks was not sent; a wider number is no news by itself."""
    ledger = opened(spark, tmp_path)
    priority = Priority(1, {"stock": 5})
    first = spark.createDataFrame([(1, "a", 7), (2, "b", 8)], f"{COLUMNS}, stock int")
    ledger.apply_list(first, taken_at=DAY[0], priority=priority)
    wider = first.withColumn("stock", F.col("stock").cast("bigint"))
    assert ledger.apply_list(wider, taken_at=DAY[1], priority=priority).news == 0
    assert ledger.apply_list(first.drop("stock"), taken_at=DAY[2], priority=priority).news == 2
    row = ledger.history({"id": 1}).where("valid_to_timestamp IS NULL").collect()[0]
    assert (row["stock"], row["field_provenance"]["stock"]["p"], row["field_provenance"]["name"]["p"]) == (
        7,
        5,
        1,
    )
    ledger.revoke_list(DAY[0])
    assert [each[:3] for each in said(ledger)] == [(id_, day, "upsert") for id_ in (1, 2) for day in (2, 3)]
    assert ledger.history().where("field_provenance.stock.p = 5").count() > 0


def test_a_list_of_pandas_without_rows_has_no_types(spark: SparkSession, tmp_path: Path) -> None:
    """A file with a header alone may end all; its types are those that the ledger knows, or it has none."""
    ledger = opened(spark, tmp_path)
    header = pd.DataFrame(columns=["id", "stock"])
    with pytest.raises(WrongColumnType, match="does not know it yet"):
        ledger.apply_list(header, taken_at=DAY[0])
    ledger.apply_list(pd.DataFrame({"id": [1, 2], "stock": [7, 8]}), taken_at=DAY[0])
    assert ledger.apply_list(header, taken_at=DAY[1], max_deleted=1).news == 2
    empty_column = pd.DataFrame({"id": [1], "stock": [None]})
    assert ledger.apply_list(empty_column, taken_at=DAY[2]).news == 1
    floats = pd.DataFrame({"id": [1, 1.5], "stock": [7, 8]})
    with pytest.raises(WrongColumnType, match=r"`frame.convert_dtypes\(\)` makes them whole"):
        ledger.apply_list(floats, taken_at=DAY[3])
    keyless = pd.DataFrame({"id": [1, None], "stock": [7, 8]})
    with pytest.raises(UnfitList, match=r"taken at 2024-01-04.*: it needs a key for every row, .*dropna"):
        ledger.apply_list(keyless, taken_at=DAY[3])
    twice = pd.DataFrame({"id": [1, 1], "stock": [7, 8]})
    with pytest.raises(UnfitList, match=r'it needs each entity once.*"stock":7.*give it again'):
        ledger.apply_list(twice, taken_at=DAY[3])
    found = ledger.changes().orderBy("data.id", "effective_timestamp")
    assert found.select("data.*").dtypes == [("id", "bigint"), ("stock", "bigint")]
    assert [(row["operation"], *row["data"]) for row in found.collect()] == [
        *(("upsert", 1, 7), ("absent", 1, None), ("upsert", 1, None)),
        *(("upsert", 2, 8), ("absent", 2, None)),
    ]


def test_a_column_that_is_called_otherwise_is_told(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its old name keeps what it said, for the new list does not send it."""
    ledger = opened(spark, tmp_path)
    ledger.apply_list(pd.DataFrame({"id": [1], "price": [7]}), taken_at=DAY[0])
    ledger.apply_list(pd.DataFrame({"id": [1], "name": ["x"]}), taken_at=DAY[0], source="other")
    assert caplog.messages == [
        "apply_list(): the first list of source='other', which ends nothing; there are lists of 'table'"
    ]
    caplog.clear()
    ledger.apply_list(pd.DataFrame({"id": [1], "unit_price": [8]}), taken_at=DAY[1])
    assert caplog.messages == [
        "apply_list(): the list of 2024-01-02T00:00:00+00:00 has no price, so what the list before says of "
        "it stands; new in it: unit_price.  A column that was renamed needs its old name: revoke_list(), and "
        "again"
    ]
    ledger.apply_list(pd.DataFrame({"id": [1], "unit_price": [9]}), taken_at=DAY[2])
    assert len(caplog.messages) == 1


def test_texts_where_numbers_were_are_told(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """To read a column as text one night, so that its zeros stay, makes each row news, and again the next."""
    ledger = opened(spark, tmp_path)
    for number, phone in enumerate([70, "070", 70]):
        ledger.apply_list(pd.DataFrame({"id": [1], "phone": [phone]}), taken_at=DAY[number])
    told = [each.partition(", which")[0] for each in caplog.messages]
    assert told == [
        "apply_list(): phone is string in this list and bigint in the ledger",
        "apply_list(): phone is bigint in this list and string in the ledger",
    ]


def test_a_list_that_lacks_many_is_told(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """More than a tenth, and ten or more; a share that was given settles it."""
    ledger = opened(spark, tmp_path)
    many = pd.DataFrame({"id": range(200)})
    ledger.apply_list(many, taken_at=DAY[0])
    ledger.apply_list(many[:180], taken_at=DAY[1])
    assert not caplog.messages
    ledger.apply_list(many[:161], taken_at=DAY[2])
    (told,) = caplog.messages
    assert told.startswith("apply_list(): the list of 2024-01-03T00:00:00+00:00 lacks 19 of the 180 entities")
    ledger.apply_list(many[:100], taken_at=DAY[3], max_deleted=0.5)
    assert len(caplog.messages) == 1
