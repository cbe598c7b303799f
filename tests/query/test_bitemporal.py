"""`as_known`, `bitemporal` and `keep_known`: what was believed, and when."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import cdckit.merging.beliefs
from cdckit import as_known, bitemporal, changes_from, keep_known, merge, union_changes, why
from cdckit.errors import InvalidArgument, MissingColumns, WrongColumnType
from cdckit.merging.arrow_changes import ARRIVED
from cdckit.merging.merge import sort_by_entity
from cdckit.parts.arrays import NEVER
from cdckit.parts.arrow_types import arrow_schema
from cdckit.query import Belief, explain
from support.fold import fold, identity
from support.histories import Row, assert_same, by_guid, random_changes, to_dataframe, to_rows

FIELDS = {"h": "int", "k": "string", "a": "int", "b": "string"}
KEYS = ["h", "k"]
START = datetime(2024, 7, 1, tzinfo=UTC)


def at(minutes: float) -> datetime:
    return START + timedelta(minutes=minutes)


def told(
    arrives: float,
    true_at: float,
    value: int | None,
    message: str = "",
    priority: int = 0,
    operation: str = "upsert",
) -> Row:
    """A change of the one entity's field `a`; times in minutes."""
    arrival = {"timestamp": at(arrives), "topic": "t", "partition": 0, "offset": 0, "record_number": 0}
    return {
        "operation": operation,
        "effective_timestamp": at(true_at),
        "sequence": "",
        "arrival": arrival,
        "message_id": message or f"m{arrives:g}",
        "source": "one",
        "priority": priority,
        "data": {"h": 1, "k": "x", "a": value, "b": None},
        "carried": {"h": True, "k": True, "a": operation == "upsert", "b": False},
    }


def test_it_is_told_that_nothing_says_when_changes_came(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    """Then what is known of the past is all too much; a sequence that is no time says nothing of it."""
    row = (1, datetime(2024, 1, 1, tzinfo=UTC), 7, datetime(2024, 1, 3, tzinfo=UTC))
    rows = spark.createDataFrame([row], "id int, since timestamp, number int, loaded timestamp")
    how: dict[str, Any] = {"entity": "e", "keys": ["id"]}
    for sequence_by in ("loaded", ["loaded", "number"]):
        bitemporal(changes_from(rows, keys=["id"], effective="since", sequence_by=sequence_by), **how)
    assert not caplog.messages
    known = changes_from(rows, keys=["id"], effective="since", sequence_by="loaded")
    unknown: list[dict[str, Any]] = [{}, {"sequence_by": "number"}, {"sequence_by": ["since", "loaded"]}]
    unsaid = [changes_from(rows, keys=["id"], effective="since", **more) for more in unknown]
    for changes in (*unsaid, union_changes(known, unsaid[0])):
        bitemporal(changes, **how)
        as_known(changes, row[1], **how)
    why(unsaid[0], {"id": 1}, "number", known_at=row[1], keys=["id"])
    known_then, now = Belief(unsaid[0], row[3], known_at=row[1]), Belief(unsaid[0], row[3])
    explain(known_then, now, "count", **how)
    told = ["bitemporal(): nothing says when", "as_known(): nothing says when"] * 4
    told += ["why(): nothing says when", "explain(): nothing says when"]
    assert [each[: len(start)] for each, start in zip(caplog.messages, told, strict=True)] == told


def beliefs(spark: SparkSession, changes: Sequence[Row]) -> list[tuple[Any, ...]]:
    """(value, valid from, valid to, system from, system to), times in minutes."""

    def minutes(instant: datetime | None) -> float | None:
        return None if instant is None else (instant - START) / timedelta(minutes=1)

    times = [f"{kind}_{end}_timestamp" for kind in ("valid", "system") for end in ("from", "to")]
    rows = bitemporal(to_dataframe(spark, changes, FIELDS), entity="thing", keys=KEYS).toArrow().to_pylist()
    found = [(row["a"], *(minutes(row[time]) for time in times)) for row in rows]
    return sorted(found, key=lambda row: (row[3], row[1]))


def test_a_correction_of_the_past_splits_what_is_believed_from_its_arrival_on(spark: SparkSession) -> None:
    """Told at 10 that it was 1 since 10, and at 20 that it was 2 since 20; at 30 that it was 9 since 15."""
    assert beliefs(spark, [told(10, 10, 1), told(20, 20, 2), told(30, 15, 9)]) == [
        (1, 10, None, 10, 20),
        (1, 10, 20, 20, 30),
        (2, 20, None, 20, None),
        (1, 10, 15, 30, None),
        (9, 15, 20, 30, None),
    ]


def test_what_ends_was_known_to_end_from_its_arrival_on(spark: SparkSession) -> None:
    """Told at 10 that it is 1 from 10 to 30, and at 20 that it is 2 from 40 on: nothing was open."""
    first = {**told(10, 10, 1), "effective_until": at(30)}
    second = {**told(20, 40, 2), "effective_until": None}
    assert beliefs(spark, [first, second]) == [(1, 10, 30, 10, None), (2, 40, None, 20, None)]


def test_what_arrives_in_order_only_closes_what_was_open(spark: SparkSession) -> None:
    assert beliefs(spark, [told(10, 1, 1), told(20, 2, 2), told(30, 3, 3)]) == [
        (1, 1, None, 10, 20),
        (1, 1, 2, 20, None),
        (2, 2, None, 20, 30),
        (2, 2, 3, 30, None),
        (3, 3, None, 30, None),
    ]


def test_what_arrives_together_is_known_together(spark: SparkSession) -> None:
    """Two messages of one moment: the first of them was never believed to be open."""
    assert beliefs(spark, [told(10, 1, 1, "m1"), told(10, 2, 2, "m2")]) == [
        (1, 1, 2, 10, None),
        (2, 2, None, 10, None),
    ]


def test_a_second_word_about_one_instant_replaces_the_first(spark: SparkSession) -> None:
    assert beliefs(spark, [told(10, 1, 1), told(20, 1, 2)]) == [(1, 1, None, 10, 20), (2, 1, None, 20, None)]


def test_a_late_message_that_changes_nothing_leaves_no_trace(spark: SparkSession) -> None:
    """A weaker source corrects the past, and is outranked; a delete comes late, and is outranked too."""
    changes = [
        told(10, 10, 1, priority=5),
        told(20, 20, 2, priority=5),
        told(30, 15, 9),
        told(40, 20, None, operation="delete"),
    ]
    assert beliefs(spark, changes) == [(1, 10, None, 10, 20), (1, 10, 20, 20, None), (2, 20, None, 20, None)]


def test_a_redelivery_was_known_before(spark: SparkSession) -> None:
    first = told(10, 10, 1, "m")
    assert beliefs(spark, [first, {**first, "arrival": {**first["arrival"], "timestamp": at(20)}}]) == [
        (1, 10, None, 10, None)
    ]


def test_a_delete_that_is_known_before_anything_else_counts_once_the_entity_is(spark: SparkSession) -> None:
    """Nothing is believed until the entity is heard of; then it was deleted already."""
    assert beliefs(spark, [told(10, 20, None, operation="delete"), told(30, 5, 1)]) == [
        (1, 5, 20, 30, None),
        (None, 20, None, 30, None),
    ]


# The law -------------------------------------------------------------------------------------------------


def with_arrivals(changes: Sequence[Row], seed: int, moments: int = 6) -> list[Row]:
    """The same changes, each heard of at one of a few moments."""
    rng = random.Random(seed)
    return [
        {**change, "arrival": {**change["arrival"], "timestamp": at(rng.randrange(moments))}}
        for change in changes
    ]


def known(changes: Sequence[Row], moment: datetime) -> list[Row]:
    return [change for change in changes if change["arrival"]["timestamp"] <= moment]


def assert_believed(table: DataFrame, changes: Sequence[Row], moments: int) -> None:
    """At every moment what is believed is what the fold makes of what has arrived: asked in one query."""
    asked = [at(-1), *map(at, range(moments)), at(0.5)]
    questions = table.sparkSession.createDataFrame([(moment,) for moment in asked], "moment timestamp")
    found: dict[datetime, list[Row]] = {moment: [] for moment in asked}
    for row in to_rows(keep_known(table.crossJoin(questions), F.col("moment"))):
        found[row.pop("moment")].append(row)
    for moment, rows in found.items():
        some = known(changes, moment)
        expected = fold(some, entity="thing", keys=KEYS, fields=list(FIELDS))
        assert_same(rows, expected, some, lambda c: identity(c, "thing", KEYS))


@pytest.mark.parametrize(
    "options", [{}, {"guids": True, "priorities": (0,)}, {"longest": 40, "ends": (False, False, True)}]
)
def test_at_every_moment_it_is_the_fold_of_what_was_known(
    spark: SparkSession, options: dict[str, Any]
) -> None:
    changes = with_arrivals(random_changes(21, 80, FIELDS, **options), 22)
    table = bitemporal(to_dataframe(spark, changes, FIELDS), entity="thing", keys=KEYS)
    assert_believed(table, changes, 6)


def test_it_does_not_matter_how_many_epochs_are_merged_together(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here, without Spark's workers, in portions of a few changes: the rows are those of one portion."""
    changes = to_dataframe(spark, with_arrivals(random_changes(23, 60, FIELDS, longest=40), 24, 12), FIELDS)
    arrivals = {ARRIVED: F.col("arrival.timestamp")}
    ordered = sort_by_entity(changes, entity="thing", keys=KEYS, more=arrivals)
    schema = arrow_schema(bitemporal(changes, entity="thing", keys=KEYS).schema)
    batches = ordered.changes.toArrow().to_batches()

    def rows() -> list[str]:
        made = cdckit.merging.beliefs.beliefs(iter(batches), ordered.layout, schema)
        return sorted(repr(row) for batch in made for row in batch.to_pylist())

    together = rows()
    monkeypatch.setattr(cdckit.merging.beliefs, "EPOCH_ROWS_AT_ONCE", 7)
    assert len(together) > 500
    assert rows() == together


def test_neighbours_that_believe_the_same_are_one_row(spark: SparkSession) -> None:
    """No two rows of an entity say the same in intervals that touch (of messages that came once)."""
    once = {change["message_id"]: change for change in with_arrivals(random_changes(25, 200, FIELDS), 26)}
    table = bitemporal(to_dataframe(spark, list(once.values()), FIELDS), entity="thing", keys=KEYS)
    content = [name for name in table.columns if not name.startswith("system_")]
    twice = (
        table.alias("a")
        .join(table.alias("b"), F.col("a.system_to_timestamp") == F.col("b.system_from_timestamp"))
        .where(" and ".join(f"a.{name} <=> b.{name}" for name in content))
    )
    assert table.count() > 400
    assert twice.count() == 0


def test_as_known_is_the_fold_of_what_was_known(spark: SparkSession) -> None:
    changes = with_arrivals(random_changes(27, 120, FIELDS), 28)
    history = as_known(to_dataframe(spark, changes, FIELDS), at(3), entity="thing", keys=KEYS)
    expected = fold(known(changes, at(3)), entity="thing", keys=KEYS, fields=list(FIELDS))
    assert by_guid(to_rows(history)) == by_guid(expected)


def test_what_is_still_believed_is_the_merge_of_everything(spark: SparkSession) -> None:
    changes = to_dataframe(spark, with_arrivals(random_changes(29, 120, FIELDS), 30), FIELDS)
    table = bitemporal(changes, entity="thing", keys=KEYS)
    believed = table.where("system_to_timestamp is null").drop("system_from_timestamp", "system_to_timestamp")
    history = merge(changes, entity="thing", keys=KEYS)
    assert believed.columns == history.columns
    assert by_guid(to_rows(believed)) == by_guid(to_rows(history))


def test_no_changes_are_no_beliefs(spark: SparkSession) -> None:
    changes = to_dataframe(spark, [told(1, 1, 1)], FIELDS).where("false")
    assert bitemporal(changes, entity="thing", keys=KEYS).count() == 0


# Bad input -----------------------------------------------------------------------------------------------


def test_a_change_without_a_time_of_arrival_is_refused(spark: SparkSession) -> None:
    change = told(1, 1, 1, "m")
    change["arrival"]["timestamp"] = None
    table = bitemporal(to_dataframe(spark, [change], FIELDS), entity="thing", keys=KEYS)
    with pytest.raises(Exception, match=r"arrival\.timestamp"):
        table.collect()


def test_an_instant_needs_its_zone(spark: SparkSession) -> None:
    changes = to_dataframe(spark, [told(1, 1, 1)], FIELDS)
    table = bitemporal(changes, entity="thing", keys=KEYS)
    with pytest.raises(InvalidArgument, match="aware"):
        as_known(changes, datetime(2024, 7, 1), entity="thing", keys=KEYS)
    with pytest.raises(InvalidArgument, match="aware"):
        keep_known(table, datetime(2024, 7, 1))
    with pytest.raises(WrongColumnType, match="timestamp"):
        keep_known(table, F.lit("2024-07-01"))
    with pytest.raises(MissingColumns, match="system_from_timestamp"):
        keep_known(merge(changes, entity="thing", keys=KEYS), at(1))


def test_errors_name_the_function_that_was_called(spark: SparkSession) -> None:
    changes = to_dataframe(spark, [told(1, 1, 1)], FIELDS)
    with pytest.raises(InvalidArgument, match=r"bitemporal\(\) needs keys"):
        bitemporal(changes, entity="thing", keys=["none"])
    with pytest.raises(InvalidArgument, match=r"as_known\(\) needs keys"):
        as_known(changes, at(1), entity="thing", keys=["none"])


def test_a_field_must_not_have_the_name_of_a_system_column(spark: SparkSession) -> None:
    fields = {"h": "int", "System_From_timestamp": "int"}
    change = told(1, 1, 1)
    change.update(data=dict.fromkeys(fields, 1), carried=dict.fromkeys(fields, True))
    with pytest.raises(InvalidArgument, match="free of the names"):
        bitemporal(to_dataframe(spark, [change], fields), entity="thing", keys=["h"])


def test_never_is_later_than_any_instant() -> None:
    assert datetime(9999, 12, 31, tzinfo=UTC).timestamp() * 1_000_000 < NEVER
