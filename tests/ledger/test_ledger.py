"""A ledger on a store: batches in, one merge of everything out."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.errors import PythonException, SparkRuntimeException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit import (
    Lookup,
    Priority,
    as_known,
    as_of,
    as_of_join,
    changes_from,
    merge,
    union_changes,
    why,
    with_priorities,
)
from cdckit.errors import InvalidArgument, WrongCall, WrongColumnType
from cdckit.ledger import Ledger, Pending
from cdckit.model.unions import unite
from cdckit.store import BatchIdReused, DamagedTable, ForeignChange, NoSuchTable, OtherKind, Store
from support.histories import Row, assert_folds_to, to_dataframe, to_rows
from support.ledger_programs import FIELDS, KEYS, all_of, batches
from support.ledgers import opened, price, prices


def shown(history: DataFrame) -> list[tuple[int, str | None, int, int | None, bool]]:
    """Of each version the number, the value, the days of its begin and end, and whether it is deleted."""
    found = [
        (
            row["h"],
            row["a"],
            row["valid_from_timestamp"].day,
            row["valid_to_timestamp"] and row["valid_to_timestamp"].day,
            row["deleted_indicator"],
        )
        for row in to_rows(history)
    ]
    return sorted(found, key=lambda row: (row[0], row[2]))


def paths(ledger: Ledger, name: str) -> set[str]:
    return {one.path for one in ledger.store.snapshot().files(name)}


# The law ---------------------------------------------------------------------------------------------------


def test_files_do_not_grow_with_partitions(spark: SparkSession, tmp_path: Path) -> None:
    ledger = opened(spark, tmp_path / "ledger", buckets=4)
    rows = prices(spark, *(price(number, 1, "a") for number in range(200))).repartition(25)
    assert ledger.apply(rows).news == 200
    written = {name: list((tmp_path / "ledger" / name).glob("*.parquet")) for name in ("changes", "history")}
    assert {name: len(files) for name, files in written.items()} == {"changes": 4, "history": 4}


@pytest.mark.usefixtures("by_workers")
def test_any_batches_give_the_rows_of_one_merge(spark: SparkSession, tmp_path: Path) -> None:
    """Many random programs at once, each an entity or several; changes of a file are again a log."""
    ledger = opened(spark, tmp_path)
    parts = batches(11, 60, most=3)
    for number, batch in enumerate(parts):
        ledger.apply(to_dataframe(spark, batch, FIELDS), number)
    assert_folds_to(ledger.history(), all_of(parts), entity="e", keys=KEYS)
    again = merge(ledger.changes(), entity="e", keys=KEYS)
    assert_folds_to(again, all_of(parts), entity="e", keys=KEYS)
    ledger.rebuild()
    ledger.compact()
    assert_folds_to(ledger.history(), all_of(parts), entity="e", keys=KEYS)


def test_entities_known_by_their_guids(spark: SparkSession, tmp_path: Path) -> None:
    """Batches so small that this program does what workers would."""
    ledger = opened(spark, tmp_path)
    parts = batches(12, 60, most=3, guids=True, keys_carried=False)
    for batch in parts:
        ledger.apply(to_dataframe(spark, batch, FIELDS))
    assert_folds_to(ledger.history(), all_of(parts), entity="e", keys=KEYS)
    one = all_of(parts)[0]["guid"]
    assert {row["guid"] for row in to_rows_of(ledger.changes(one))} == {one}
    with pytest.raises(InvalidArgument, match="a guid; it is"):
        ledger.history({"h": 1, "k": "x"})
    with pytest.raises(InvalidArgument, match="with the column guid, as those before"):
        ledger.apply(prices(spark, price(1, 1, "a")))


def test_keys_that_a_change_did_not_carry_are_shown_by_every_question(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Its log has guids beside the keys, which are no identities of their own."""
    ledger = opened(spark, tmp_path, buckets=1)
    said = price(1, 1, "a")
    unsent = {**said, "carried": {**said["carried"], "h": False, "k": False}}
    ledger.apply(prices(spark, unsent, price(1, 2, None, operation="delete")))
    history = to_rows(ledger.history())
    assert [(row["h"], row["k"], row["a"]) for row in history] == [(1, "x", "a"), (1, "x", None)]
    log = ledger.changes()
    assert to_rows(merge(log, entity="e", keys=KEYS)) == history
    assert to_rows(merge(log.drop("guid"), entity="e", keys=KEYS)) == history
    assert {(row["h"], row["k"]) for row in ledger.beliefs().collect()} == {(1, "x")}
    told = why(log, {"h": 1, "k": "x"}, "a", keys=KEYS).collect()
    assert [row["verdict"] for row in told] == ["SUPERSEDED", "WON"]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)], ids=["text last", "text first"])
def test_a_float_is_one_number_whatever_came_between(
    order: tuple[int, ...], spark: SparkSession, tmp_path: Path
) -> None:
    """As a double and then a text, or as a text at once."""
    days = [
        prices(spark, price(day, day, value)).withColumn(
            "data", F.col("data").withField("a", F.col("data.a").cast(kind))
        )
        for day, (value, kind) in enumerate((("0.1", "float"), ("0.1", "double"), ("n/a", "string")), start=1)
    ]
    ledger = opened(spark, tmp_path, buckets=1)
    for number in order:
        ledger.apply(days[number])
    numbers = [(1, "0.10000000149011612"), (2, "0.1"), (3, "n/a")]
    assert [(row["h"], row["a"]) for row in ledger.history().orderBy("h").collect()] == numbers
    assert [
        tuple(row) for row in ledger.changes().select("data.h", "data.a").orderBy("h").collect()
    ] == numbers


def test_a_number_that_would_lose_digits_leaves_the_ledger_as_it_was(
    spark: SparkSession, tmp_path: Path
) -> None:
    ledger = opened(spark, tmp_path, buckets=1)
    whole, float_ = (
        prices(spark, price(hour, hour, text)).withColumn(
            "data", F.col("data").withField("a", F.col("data.a").cast(kind))
        )
        for hour, (text, kind) in enumerate((("9007199254740993", "bigint"), ("0.5", "double")), start=1)
    )
    ledger.apply(whole)
    with pytest.raises(
        SparkRuntimeException, match=r"a has .* 9007199254740993 has more digits .* cast a to"
    ):
        ledger.apply(float_)
    [row] = ledger.history().collect()
    assert row["a"] == 9007199254740993


def test_a_new_field_and_a_wider_type_come_with_a_later_batch(spark: SparkSession, tmp_path: Path) -> None:
    ledger = opened(spark, tmp_path)
    first = prices(spark, price(1, 1, "1"), price(2, 1, "7"), price(3, 1, "0")).withColumns(
        {"data": F.struct("data.h", "data.k", F.col("data.a").cast("int").alias("a"))}
    )
    second = prices(spark, price(1, 3, "1"), price(2, 3, "7.5"), price(4, 2, "9"))
    third = prices(spark, price(2, 2, "2.5")).withColumns(
        {
            "data": F.struct("data.*", F.lit(True).alias("new")),
            "carried": F.struct("carried.*", F.lit(True).alias("new")),
        }
    )
    for batch in (first, second, third, first):
        ledger.apply(batch)
    expected = merge(unite([first, second, third]), entity="e", keys=KEYS)
    assert ledger.history().schema.simpleString() == expected.schema.simpleString()
    assert to_rows(ledger.history()) == to_rows(expected)
    texts = prices(spark, price(1, 4, "x")).withColumn("data", F.col("data").withField("h", F.lit("one")))
    with pytest.raises(WrongColumnType, match=r"data.h as a number as before \(int\); it is string"):
        ledger.apply(texts)


def test_an_entity_that_was_only_deleted_has_no_version(spark: SparkSession, tmp_path: Path) -> None:
    ledger = opened(spark, tmp_path)
    ledger.apply(prices(spark, price(1, 5, None, operation="delete"), price(2, 5, None, operation="absent")))
    assert ledger.history().count() == 0
    ledger.apply(prices(spark, price(1, 3, "late"), price(2, 6, "later")))
    assert shown(ledger.history()) == [
        (1, "late", 3, 5, False),
        (1, None, 5, None, True),
        (2, "later", 6, None, False),
    ]
    assert paths(ledger, "unborn") == set()


# Batches ---------------------------------------------------------------------------------------------------


def test_a_batch_id_is_applied_once(spark: SparkSession, tmp_path: Path) -> None:
    ledger = opened(spark, tmp_path)
    batch = prices(spark, price(1, 1, "a"), price(2, 1, "b"))
    assert ledger.apply(batch, "one").news == 2
    before = ledger.at_commit().version
    again = ledger.apply(prices(spark, price(2, 1, "b"), price(1, 1, "a")), "one")
    assert (again.repeated, again.version, ledger.at_commit().version) == (True, before, before)
    with pytest.raises(BatchIdReused):
        ledger.apply(prices(spark, price(1, 1, "a"), price(2, 1, "c")), "one")
    assert ledger.at_commit().version == before


def test_a_batch_that_fails_leaves_all_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    ledger = opened(spark, tmp_path)
    ledger.apply(prices(spark, price(1, 1, "a")))
    bad = prices(spark, price(1, 2, "b"), {**price(2, 2, "b"), "message_id": None})
    with pytest.raises(PythonException, match="The merge needs message_id in every change"):
        ledger.apply(bad, "one")
    assert shown(ledger.history()) == [(1, "a", 1, None, False)]
    assert ledger.apply(prices(spark, price(1, 2, "b")), "one").news == 1


def test_two_streams_may_count_alike(spark: SparkSession, tmp_path: Path) -> None:
    ledger = opened(spark, tmp_path)
    assert ledger.sink("one")(prices(spark, price(1, 1, "a")), 0).news == 1
    assert ledger.sink("two")(prices(spark, price(1, 2, "b")), 0).news == 1
    assert ledger.sink("two")(prices(spark, price(1, 2, "b")), 0).repeated


def test_two_writers_lose_nothing_and_double_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """They begin on a new location, and then work on the same entities."""
    parts = batches(21, 40, most=4)

    def applied(part: Sequence[Row]) -> None:
        opened(spark, tmp_path).apply(to_dataframe(spark, part, FIELDS))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(applied, parts))
    assert_folds_to(opened(spark, tmp_path).history(), all_of(parts), entity="e", keys=KEYS)


# Reading ---------------------------------------------------------------------------------------------------


def test_what_it_said_before_is_what_was_known_before(spark: SparkSession, tmp_path: Path) -> None:
    """Where commits follow arrival, a commit is a moment of knowledge."""
    ledger = opened(spark, tmp_path)
    days = [
        [price(1, 1, "a"), price(2, 1, "b")],
        [{**price(1, 2, "c"), "effective_timestamp": datetime(2023, 12, 31, tzinfo=UTC)}],
        [price(2, 3, None, operation="delete"), price(3, 3, "d")],
    ]
    versions = [ledger.apply(prices(spark, *day)).version for day in days]
    for number, version in enumerate(versions):
        known = as_known(
            ledger.changes(), entity="e", keys=KEYS, known_at=datetime(2024, 1, number + 1, 12, tzinfo=UTC)
        )
        then = ledger.at_commit(version)
        assert to_rows(then.history()) == to_rows(known)
        assert then.timestamp is not None
        assert ledger.at_commit(timestamp=then.timestamp + timedelta(microseconds=1)).version == version
    assert ledger.at_commit(versions[0]).changes().count() == 2
    with pytest.raises(NoSuchTable):
        ledger.at_commit(timestamp=datetime(2000, 1, 1, tzinfo=UTC)).history()


def test_an_instant_or_an_entity_opens_few_files(spark: SparkSession, tmp_path: Path) -> None:
    """8 buckets after three batches: 8 files of open versions, and twice 8 of closed ones."""
    ledger = opened(spark, tmp_path, buckets=8)
    for day in (1, 10, 20):
        ledger.apply(prices(spark, *(price(number, day, f"{day}") for number in range(100))).coalesce(1))
    view = ledger.at_commit()
    assert len(view._files(None, None)) == 24
    in_force = {day: len(view._files(datetime(2024, 1, day, 12, tzinfo=UTC), None)) for day in (1, 10, 20)}
    assert in_force == {1: 8, 10: 8, 20: 8}
    assert view._files(datetime(2023, 1, 1, tzinfo=UTC), None) == []
    assert len(view._files(None, {"h": 5, "k": "x"})) == 3
    assert len(view._files(datetime(2024, 1, 1, 12, tzinfo=UTC), {"h": 5, "k": "x"})) == 1
    noon = datetime(2024, 1, 10, 12, tzinfo=UTC)
    assert to_rows(view.as_of(noon)) == to_rows(as_of(view.history(), noon))
    assert shown(view.as_of(noon, {"h": 5, "k": "x"})) == [(5, "10", 10, 20, False)]
    assert shown(view.history({"h": 5, "k": "x"}))[0] == (5, "1", 1, 10, False)
    assert sorted(row["message_id"] for row in to_rows_of(view.changes({"h": 5, "k": "x"}))) == [
        "day 1",
        "day 10",
        "day 20",
    ]


def to_rows_of(frame: DataFrame) -> list[Row]:
    rows: list[Row] = frame.toArrow().to_pylist()
    return rows


def test_opening_and_asking_write_nothing(spark: SparkSession, tmp_path: Path) -> None:
    place = tmp_path / "ledger"
    ledger = opened(spark, place)
    assert not place.exists()
    with pytest.raises(NoSuchTable):
        ledger.history()
    with pytest.raises(NoSuchTable):
        ledger.rebuild()
    assert not place.exists()


# Bad input -------------------------------------------------------------------------------------------------


def test_a_location_of_something_else_is_refused_with_what_it_is(spark: SparkSession, tmp_path: Path) -> None:
    opened(spark, tmp_path / "ledger").apply(prices(spark, price(1, 1, "a")))
    with pytest.raises(OtherKind, match=r"holds the ledger of 'e' by h, k\. .* open it as what it is"):
        Ledger(spark, tmp_path / "ledger", entity="f", keys=KEYS)
    with pytest.raises(OtherKind, match="or hold the ledger of 'e' by k; it holds"):
        Ledger(spark, tmp_path / "ledger", entity="e", keys=["k"])
    with pytest.raises(OtherKind, match="in 4 buckets; it holds one in 3"):
        opened(spark, tmp_path / "ledger", buckets=4)
    with Store(None, tmp_path / "store").begin() as transaction:
        transaction.append("stock", pa.table({"n": [1]}))
        transaction.commit()
    with pytest.raises(OtherKind, match="it holds the tables stock, no ledger's"):
        opened(spark, tmp_path / "store")
    named = opened(spark, tmp_path / "store", name="prices")
    named.apply(prices(spark, price(1, 1, "a")), 1)
    assert named.store.snapshot().names() == ["prices.changes", "prices.history", "prices.unborn", "stock"]


def test_arguments_are_checked(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="entity to be a name"):
        Ledger(spark, tmp_path, entity="", keys=["h"])
    with pytest.raises(InvalidArgument, match="keys to be a list of distinct fields"):
        Ledger(spark, tmp_path, entity="e", keys="h")
    with pytest.raises(InvalidArgument, match="buckets to be a positive whole number"):
        opened(spark, tmp_path, buckets=0)
    ledger = opened(spark, tmp_path)
    changes = prices(spark, price(1, 1, "a"))
    with pytest.raises(InvalidArgument, match="batch to be a text or a number"):
        ledger.apply(changes, 1.5)  # type: ignore[arg-type]
    for suite in ("history", {"name": "mine"}):
        with pytest.raises(
            InvalidArgument, match=r"sink\(\) needs gate to be a function .* lambda after: check"
        ):
            ledger.sink("s", gate=suite)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match=r"apply\(\) needs gate to be a function"):
            ledger.apply(changes, gate=suite)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="free of the names of a history's own columns"):
        ledger.apply(
            changes.withColumn("data", F.col("data").withField("ledger_open", F.lit(1))).withColumn(
                "carried", F.col("carried").withField("ledger_open", F.lit(True))
            )
        )
    ledger.apply(changes)
    with pytest.raises(InvalidArgument, match=r"key to be a guid, or values of h, k; it is \{'h': 1\}"):
        ledger.history({"h": 1})
    with pytest.raises(InvalidArgument, match="key to be a guid, or values of h, k; it is 'x'"):
        ledger.as_of(datetime(2024, 1, 1, tzinfo=UTC), "x")
    with pytest.raises(InvalidArgument, match=r"values of h \(int\), k \(string\)"):
        ledger.history({"h": "one", "k": "x"})
    with pytest.raises(InvalidArgument, match="an aware datetime"):
        ledger.as_of(datetime(2024, 1, 1))


def test_old_commits_can_be_deleted(spark: SparkSession, tmp_path: Path) -> None:
    ledger = opened(spark, tmp_path)
    for day in (1, 2):
        ledger.apply(prices(spark, price(1, day, f"{day}")))
    before, first = to_rows(ledger.history()), ledger.store.snapshot(1).timestamp
    assert ledger.vacuum(timedelta(0))
    assert to_rows(ledger.history()) == before
    with pytest.raises(
        InvalidArgument, match=r"^at_commit\(\) needs version to be .*, because of vacuum; it is 1"
    ):
        ledger.at_commit(1)
    with pytest.raises(
        InvalidArgument, match=r"^at_commit\(\) needs timestamp to be .*, because of vacuum; it is"
    ):
        ledger.at_commit(timestamp=first)
    with pytest.raises(InvalidArgument, match=r"^at_commit\(\) needs timestamp to be an aware datetime"):
        ledger.at_commit(timestamp=datetime(2024, 1, 1))


def test_a_ledger_tells_what_was_believed_at_a_moment(spark: SparkSession, tmp_path: Path) -> None:
    """What was true on day 2 arrives on day 6, in a later batch: before, day 3 was thought to be as day 1."""
    ledger = opened(spark, tmp_path)
    ledger.apply(prices(spark, price(1, 1, "a"), price(1, 4, "c")))
    late = price(1, 2, "b")
    late["arrival"]["timestamp"] = datetime(2024, 1, 6, tzinfo=UTC)
    ledger.apply(prices(spark, late))
    asked = [
        (known, datetime(2024, 1, 3, tzinfo=UTC), datetime(2024, 1, known, tzinfo=UTC)) for known in (5, 6)
    ]
    facts = spark.createDataFrame(asked, "id int, at timestamp, known timestamp").selectExpr("*", "1 AS h")
    joined = as_of_join(facts, Lookup(ledger.beliefs(), on="h", into="found"), time="at", known="known")
    assert joined.orderBy("id").select("found.a").collect() == [("a",), ("b",)]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [("history/_delta_log/*", "log cannot be read"), ("history/cdc-*", "the file is not there")],
)
def test_a_derived_table_that_is_damaged_is_made_anew(
    spark: SparkSession, tmp_path: Path, pattern: str, found: str
) -> None:
    ledger = opened(spark, tmp_path)
    for day, value in ((1, "a"), (2, "b")):
        ledger.apply(prices(spark, price(1, day, value)))
    whole = shown(ledger.history())
    for path in tmp_path.glob(pattern):
        path.unlink()
    with pytest.raises(DamagedTable, match=found):
        ledger.check(deep=True)
    ledger.rebuild()
    ledger.check(deep=True)
    ledger.vacuum(timedelta(0))
    assert shown(ledger.history()) == whole
    assert ledger.apply(prices(spark, price(1, 3, "c"))).news == 1
    ledger.check(deep=True)


def test_a_wider_type_does_not_undo_what_others_erased(spark: SparkSession, tmp_path: Path) -> None:
    """Then the history is made anew, as by `rebuild`; but nobody has asked for that."""
    ledger = opened(spark, tmp_path)
    numbers = prices(spark, price(1, 1, "1"), price(2, 1, "7"))
    ledger.apply(numbers.withColumn("data", F.col("data").withField("a", F.col("data.a").cast("int"))))
    DeltaTable(str(tmp_path / "history")).delete("a = 7")
    with pytest.raises(ForeignChange, match="'history': DELETE"):
        ledger.apply(prices(spark, price(1, 2, "c")))


def test_other_programs_write_to_its_tables(spark: SparkSession, tmp_path: Path) -> None:
    """Files that they put together are taken over; a change of rows is refused until somebody decides."""
    ledger = opened(spark, tmp_path)
    days = [prices(spark, price(1, day, value)) for day, value in ((1, "a"), (2, "b"), (3, "c"))]
    for day in days[:2]:
        ledger.apply(day)
    for name in ("changes", "history", "unborn"):
        DeltaTable(str(tmp_path / name)).optimize.compact()
        DeltaTable(str(tmp_path / name)).vacuum(0, enforce_retention_duration=False, dry_run=False)
    ledger.apply(days[2])
    whole = [(1, "a", 1, 2, False), (1, "b", 2, 3, False), (1, "c", 3, None, False)]
    assert shown(ledger.history()) == whole
    # The history derives from the log, and is made anew from it.
    DeltaTable(str(tmp_path / "history")).delete("a = 'b'")
    with pytest.raises(
        ForeignChange, match=r"'history': DELETE by delta-rs.*cannot keep it: call `rebuild\(\)`"
    ):
        ledger.apply(prices(spark, price(1, 4, "d")))
    ledger.rebuild()
    ledger.store.check(deep=True)
    assert shown(ledger.history()) == whole
    # The log is the truth: nothing goes on before somebody has said that what was done there is right.
    DeltaTable(str(tmp_path / "changes")).delete("message_id = 'day 2'")
    for call in (lambda: ledger.apply(days[1]), ledger.rebuild):
        with pytest.raises(
            ForeignChange, match=r"'changes': DELETE by delta-rs.*change of a log, call `adopt\(\)`"
        ):
            call()
    ledger.adopt()
    assert shown(ledger.history()) == [(1, "a", 1, 3, False), (1, "c", 3, None, False)]
    assert ledger.apply(days[1]).news == 1
    assert shown(ledger.history()) == whole


def test_of_two_files_that_speak_of_one_second_the_later_one_counts(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Row numbers order one table: as in one table of both, the row of the second file is the last."""
    second = "2024-01-01 10:00:00"
    insert = pd.DataFrame({"op": ["U", "I"], "id": [2, 1], "v": ["b", "a"], "at": [second, second]})
    delete = pd.DataFrame({"op": ["D"], "id": [1], "v": ["a"], "at": [second]})
    ledger = Ledger(spark, tmp_path, entity="e", keys=["id"], buckets=1)
    for table in (insert, delete):
        ledger.apply(
            changes_from(table, keys=["id"], sequence_by="at", apply_as_deletes="op = 'D'", column_list=["v"])
        )
    for history in (ledger.history(), merge(ledger.changes(), entity="e", keys=["id"])):
        assert sorted(map(tuple, history.select("id", "v", "deleted_indicator").collect())) == [
            (1, None, True),
            (2, "b", False),
        ]


def test_rows_that_nothing_orders_are_told(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """In a table of Spark's rows have no order: an insert and a delete of one second are a tie."""
    rows = spark.sql("SELECT stack(3, 1, 'a', 1, 'b', 2, 'c') AS (id, v), timestamp'2024-01-01' AS at")
    ledger = Ledger(spark, tmp_path, entity="e", keys=["id"], buckets=1)
    ledger.apply(changes_from(rows, keys=["id"], sequence_by="at", source="shop"))
    (warning,) = [one for one in caplog.messages if "nothing says which one counts" in one]
    assert warning.count("shop-") == 2


def test_a_source_that_nobody_speaks_for_is_told_at_the_first_batch(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Two calls, and a union with changes that have no priorities: all that were named are asked for."""
    shop = changes_from(pd.DataFrame({"id": [1], "name": ["mug"]}), keys=["id"], source="shop")
    named = {"mill": Priority(1), "mlil": Priority(2)}
    mill = with_priorities(shop.withColumn("source", F.lit("mill")), named)
    ranked = with_priorities(union_changes(shop, mill), {"shpo": Priority(3)})
    ledger = Ledger(spark, tmp_path, entity="product", keys=["id"], buckets=1)
    for _ in range(2):
        ledger.apply(ranked)
    (told,) = [one for one in caplog.messages if "would do nothing" in one]
    assert told.endswith(
        "for 'mlil' (is it mill?), 'shpo' (is it shop?): the changes come from 'mill', 'shop'."
    )
    assert ledger.changes().schema["priority"].metadata == {}


def test_a_call_that_was_overtaken_counts_as_the_later_one(spark: SparkSession, tmp_path: Path) -> None:
    """Another writer's file came between, whose row has the greater number: it is the earlier file."""
    at = "2024-01-01 10:00:00"

    def file(*rows: tuple[str, int, str]) -> DataFrame:
        table = pd.DataFrame(rows, columns=["op", "id", "v"]).assign(at=at)
        return changes_from(
            table, keys=["id"], sequence_by="at", apply_as_deletes="op = 'D'", column_list=["v"]
        )

    ledger, other = (Ledger(spark, tmp_path, entity="e", keys=["id"], buckets=1) for _ in range(2))
    ledger.apply(file(("I", 1, "a")))
    others = [file(("U", 2, "b"), ("U", 3, "c"), ("U", 1, "d"))]

    def gate(_: Pending) -> None:
        if others:
            other.apply(others.pop())

    assert ledger.apply(file(("D", 1, "a")), gate=gate).version == 3
    assert ledger.history({"id": 1}).select("deleted_indicator").collect() == [(True,)]
    copy, *more = (Ledger(spark, tmp_path / f"copy {n}", entity="e", keys=["id"], buckets=1) for n in (1, 2))
    copy.apply(ledger.changes())
    assert copy.history({"id": 1}).select("deleted_indicator").collect() == [(True,)]
    copy.apply(file(("U", 1, "y")))
    copy.apply(file(("D", 1, "y")))
    more[0].apply(copy.changes())
    assert more[0].history({"id": 1}).select("deleted_indicator").collect() == [(True,)]
    again = union_changes(copy.changes(), file(("U", 1, "z")))
    one = merge(again, entity="e", keys=["id"]).where("id = 1")
    assert one.where("valid_to_timestamp IS NULL").select("v").collect() == [("z",)]


def test_a_copy_of_a_log_takes_other_changes(spark: SparkSession, tmp_path: Path) -> None:
    """The guids of a log are made of the keys: what comes without them is about the same entities."""
    first, copy = (opened(spark, tmp_path / name, buckets=1) for name in ("first", "copy"))
    first.apply(prices(spark, price(1, 1, "a")))
    copy.apply(first.changes())
    copy.apply(prices(spark, price(1, 2, "b")))
    assert shown(copy.history()) == [(1, "a", 1, 2, False), (1, "b", 2, None, False)]


def test_a_call_with_a_misspelt_argument_says_which_is_meant(spark: SparkSession, tmp_path: Path) -> None:
    """As the functions do; a mistake within a call of a ledger is shown in that call."""
    with pytest.raises(WrongCall, match=r"^Ledger\(\) cannot .*key is no argument \(is it keys\?\)"):
        Ledger(spark, tmp_path, entity="e", key=["h"])  # type: ignore[call-arg]
    ledger = opened(spark, tmp_path)
    changes = prices(spark, price(1, 1, "a"))
    with pytest.raises(WrongCall, match=r"^apply\(\) cannot .* \(is it gate\?\)"):
        ledger.apply(changes, gat=None)  # type: ignore[call-arg]
    ledger.apply(changes)
    with pytest.raises(WrongCall, match=r"called as ledger.as_of\(valid_at, key=None, \*, deletes=False\)"):
        ledger.as_of(datetime(2024, 1, 1, tzinfo=UTC), delets=True)  # type: ignore[call-arg]
    with pytest.raises(InvalidArgument, match=r"do: ledger.as_of\(datetime\(2024, 1, 1, tzinfo=UTC\)\)"):
        ledger.as_of(datetime(2024, 1, 1))
