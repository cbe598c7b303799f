"""`explain`: which messages made the difference between two reports, and what each of them added."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NamedTuple

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit import Ledger, Priority, as_known, as_of, changes_from, complete_moves, merge, with_priorities
from cdckit.errors import InvalidArgument, MissingColumns, WrongColumnType
from cdckit.query import Belief, explain, revoke
from support.drawn_reports import assert_explained, learnt
from support.histories import Row, to_dataframe
from tools.tiers import seeds

FIELDS = {"number": "int", "region": "string", "amount": "decimal(12,2)"}
NAMED = {"entity": "sale", "keys": ["number"]}


def day(number: float) -> datetime:
    """A day of January."""
    return datetime(2024, 1, int(number), int(24 * (number % 1)), tzinfo=UTC)


def said(
    number: int, message: str, true: float, arrived: float, *, until: float | None = None, p: int = 0,
    source: str = "shop", **data: Any,
) -> Row:  # fmt: skip
    """A message: an upsert of *data*, or a delete where it says nothing; times in days."""
    place = {"timestamp": day(arrived), "topic": "t", "partition": 0, "offset": 0, "record_number": 0}
    return {
        "operation": "upsert" if data else "delete",
        "effective_timestamp": day(true),
        "effective_until": None if until is None else day(until),
        "sequence": "",
        "arrival": place,
        "message_id": message,
        "source": source,
        "priority": p,
        "data": {"number": number, "region": None, "amount": None, **data},
        "carried": {"number": True, "region": "region" in data, "amount": "amount" in data},
    }


def sale(
    number: int, message: str, true: float, arrived: float, amount: int | None,
    region: str = "north", **more: Any,
) -> Row:  # fmt: skip
    value = None if amount is None else Decimal(amount)
    return said(number, message, true, arrived, region=region, amount=value, **more)


CHANGES = [
    # Sound, and known to both reports; 3 is delivered once more, which is no news.
    sale(1, "m1", 1, 1, 100),
    sale(3, "m3", 1, 1, 30),
    sale(3, "m3", 1, 12, 30),
    # Late: true on the 2nd, heard of on the 12th.  New: true on the 11th.
    sale(4, "m4", 2, 12, 40),
    sale(5, "m5", 11, 12, 50),
    # Corrected: it had been 60, and was 66 all the time.  Updated: 70 became 77 on the 11th.
    sale(6, "m6", 1, 1, 60),
    said(6, "n6", 1, 13, amount=Decimal(66)),
    sale(7, "m7", 1, 1, 70),
    said(7, "n7", 11, 11, amount=Decimal(77)),
    # Deleted, from the 3rd on.
    sale(8, "m8", 1, 1, 80),
    said(8, "d8", 3, 14),
    # Reclassified, and with another amount.
    sale(9, "m9", 1, 1, 90),
    sale(9, "n9", 1, 14, 99, "south"),
    # Known to both: valid from the 12th on, over on the 13th, over with another one behind it.
    sale(10, "m10", 12, 2, 10),
    sale(11, "m11", 1, 2, 11, until=13),
    sale(12, "m12", 1, 2, 12),
    sale(12, "n12", 2, 2, 21, until=13),
    # Outranked: it changes nothing.  So does what says again what stands.
    sale(13, "m13", 1, 1, 13, p=5),
    sale(13, "n13", 2, 12, 31),
    said(13, "o13", 2, 12, amount=Decimal(13), p=5),
    # There and gone again between the two: a part each.
    sale(14, "m14", 2, 12, 14),
    said(14, "d14", 3, 13),
    # Speaks of a later time than both reports.
    sale(15, "m15", 20, 12, 15),
    # An amount that is not known, and then is.
    sale(16, "m16", 1, 1, None),
    said(16, "n16", 1, 12, amount=Decimal(16)),
]  # fmt: skip

PARTS = [
    (4, "north", "late", 40, "m4"),
    (5, "north", "new", 50, "m5"),
    (6, "north", "corrected", 6, "n6"),
    (7, "north", "updated", 7, "n7"),
    (8, "north", "deleted", -80, "d8"),
    (9, "north", "reclassified", -90, "n9"),
    (9, "south", "corrected", 9, "n9"),
    (9, "south", "reclassified", 90, "n9"),
    (10, "north", "newly valid", 10, "m10"),
    (11, "north", "expired", -11, "m11"),
    (12, "north", "expired", -9, "n12"),
    (14, "north", "deleted", -14, "d14"),
    (14, "north", "late", 14, "m14"),
    (16, "north", "corrected", 16, "n16"),
]


class Reports(NamedTuple):
    """The changes, and the two reports of the 10th and of the 15th, each as known then."""

    changes: DataFrame
    before: Belief
    after: Belief


@pytest.fixture(scope="module")
def reports(spark: SparkSession) -> Reports:
    changes = to_dataframe(spark, CHANGES, FIELDS).localCheckpoint()
    return Reports(changes, Belief(changes, day(10), day(10)), Belief(changes, day(15), day(15)))


def rows(parts: DataFrame, *names: str) -> list[tuple[Any, ...]]:
    shown = names or ("number", "region", "kind", "amount", "message_id")
    return sorted((tuple(row.values()) for row in parts.select(*shown).toArrow().to_pylist()), key=repr)


def test_each_message_has_its_part_and_its_kind(reports: Reports) -> None:
    parts = explain(reports.before, reports.after, "sum", "amount", by="region", **NAMED)
    assert rows(parts) == sorted(((*part[:3], Decimal(part[3]), part[4]) for part in PARTS), key=repr)
    assert parts.schema["amount"].dataType.simpleString() == "decimal(13,2)"


def test_the_parts_of_a_group_add_up_to_its_difference(reports: Reports) -> None:
    """As `as_of` and SQL tell it."""

    def total(belief: Belief) -> dict[str, Decimal]:
        report = as_of(as_known(belief.changes, belief.known_at or day(31), **NAMED), belief.valid_at)
        return dict(rows(report.groupBy("region").agg(F.sum("amount")), "region", "sum(amount)"))

    before, after = total(reports.before), total(reports.after)
    assert before == {"north": Decimal(475)}
    assert after == {"north": Decimal(414), "south": Decimal(99)}
    parts = explain(reports.before, reports.after, "sum", "amount", by="region", **NAMED)
    assert rows(parts.groupBy("region").agg(F.sum("amount")), "region", "sum(amount)") == [
        ("north", after["north"] - before["north"]),
        ("south", after["south"]),
    ]


def test_a_message_is_told_with_its_source_and_its_times(reports: Reports) -> None:
    parts = explain(reports.before, reports.after, "sum", "amount", **NAMED).where("number IN (4, 10)")
    assert rows(parts, "number", "source", "arrival_timestamp", "effective_timestamp") == [
        (10, "shop", day(2), day(12)),
        (4, "shop", day(12), day(2)),
    ]
    assert parts.columns == [
        *("guid", "number", "kind", "amount", "message_id", "source"),
        *("arrival_timestamp", "effective_timestamp"),
    ]  # fmt: skip


def test_a_count_needs_no_value_and_leaves_nulls_out_of_one(reports: Reports) -> None:
    """A correction is none of a count; an amount that becomes known is one of a count of amounts."""
    of_rows = explain(reports.before, reports.after, "count", by="region", **NAMED)
    assert rows(of_rows, "number", "region", "kind", "amount") == [
        (10, "north", "newly valid", 1),
        (11, "north", "expired", -1),
        (14, "north", "deleted", -1),
        (14, "north", "late", 1),
        (4, "north", "late", 1),
        (5, "north", "new", 1),
        (8, "north", "deleted", -1),
        (9, "north", "reclassified", -1),
        (9, "south", "reclassified", 1),
    ]
    of_amounts = explain(reports.before, reports.after, "count", "amount", **NAMED).where("number = 16")
    assert rows(of_amounts, "kind", "amount") == [("corrected", 1)]


def test_a_mean_is_told_in_the_order_of_arrival(spark: SparkSession) -> None:
    """10 and 20; then comes 60, and 20 becomes 26; the group of 7 begins with it."""
    changes = to_dataframe(
        spark,
        [
            sale(1, "a", 1, 1, 10), sale(2, "b", 1, 1, 20), sale(3, "c", 1, 12, 60),
            said(2, "d", 1, 13, amount=Decimal(26)), sale(4, "e", 1, 14, 7, "south"),
        ],
        FIELDS,
    )  # fmt: skip
    before, after = Belief(changes, day(10), day(10)), Belief(changes, day(10))
    parts = explain(before, after, "mean", "amount", by="region", **NAMED)
    assert rows(parts, "message_id", "region", "amount") == [
        ("c", "north", Decimal("15.000000")),
        ("d", "north", Decimal("2.000000")),
        ("e", "south", Decimal("7.000000")),
    ]


def test_a_value_and_a_group_may_be_expressions(reports: Reports) -> None:
    """The reason of 6 is seen only where it counts; what is grouped by is called by its alias."""
    big = F.when(F.col("amount") >= 50, F.lit("big")).otherwise("small").alias("size")
    parts = explain(reports.before, reports.after, "sum", "amount * 2", by=big, **NAMED)
    assert rows(parts.where("number IN (6, 16)"), "number", "size", "kind", "amount") == [
        (16, "small", "corrected", Decimal(32)),
        (6, "big", "corrected", Decimal(12)),
    ]


def test_without_a_message_its_part_is_taken_back(reports: Reports) -> None:
    """What m13 said, o13 says again: without m13 it stands all the same."""
    now = Belief(reports.changes, day(15))
    without = Belief(revoke(reports.changes, ["n9", "m13"]), day(15))
    assert rows(explain(now, without, "sum", "amount", by="region", **NAMED)) == [
        (9, "north", "revoked", Decimal(90), "n9"),
        (9, "south", "revoked", Decimal(-99), "n9"),
    ]


def test_another_priority_is_told_of_the_messages_that_have_it(spark: SparkSession) -> None:
    """The list says 5, and the shop, which counts more then, 8; of 2 both say the same."""
    changes = to_dataframe(
        spark,
        [
            sale(1, "a", 1, 1, 8), sale(1, "b", 2, 2, 5, source="list"),
            sale(2, "c", 1, 1, 3), sale(2, "d", 2, 2, 3, source="list"),
        ],
        FIELDS,
    )  # fmt: skip
    ranked = with_priorities(changes, {"shop": Priority(1)})
    parts = explain(Belief(changes, day(10)), Belief(ranked, day(10)), "sum", "amount", **NAMED)
    assert rows(parts, "number", "kind", "amount", "message_id") == [(1, "reranked", Decimal(3), "a")]


def test_rows_of_a_table_are_one_message_on_both_sides(spark: SparkSession) -> None:
    """The shop says 8, the list 5, the shop 8 again; the list had counted more, and does no longer."""
    said_by_table = pd.DataFrame(
        [
            (1, 8, "a", "shop", day(1), day(1)),
            (1, 5, "b", "list", day(1), day(2)),
            (1, 8, "c", "shop", day(1), day(3)),
        ],
        columns=["number", "amount", "message", "who", "true", "heard"],
    )
    changes = changes_from(
        said_by_table, keys=["number"], column_list=["amount"], message="message", source=F.col("who"),
        effective="true", sequence_by="heard",
    )  # fmt: skip
    ranked = with_priorities(changes, {"list": Priority(1)})
    parts = explain(Belief(ranked, day(10)), Belief(changes, day(10)), "sum", "amount", **NAMED)
    assert rows(parts, "number", "kind", "amount", "message_id") == [(1, "reranked", 3, "b")]


def test_two_commits_of_a_ledger_are_two_reports(spark: SparkSession, tmp_path: Any) -> None:
    ledger = Ledger(spark, str(tmp_path / "sales"), **NAMED)
    first = ledger.apply(to_dataframe(spark, [sale(1, "a", 1, 1, 10), sale(2, "b", 1, 1, 20)], FIELDS), "one")
    ledger.apply(to_dataframe(spark, [sale(3, "c", 1, 2, 30)], FIELDS), "two")
    ledger.revoke("b")
    then, now = (Belief(each.changes(), day(10)) for each in (ledger.at_commit(first.version), ledger))
    parts = explain(then, now, "sum", "amount", **NAMED)
    assert rows(parts, "number", "kind", "amount") == [(2, "revoked", Decimal(-20)), (3, "late", Decimal(30))]


def test_a_truncate_is_a_message_that_takes_every_entity_of_its_source(spark: SparkSession) -> None:
    """Of two tables such changes, which say their place in a log, are refused by name."""
    sales = [sale(1, "a", 1, 1, 10), sale(2, "b", 1, 1, 20), sale(3, "c", 1, 1, 30, source="list")]
    end = {**said(0, "end", 3, 12), "operation": "truncate", "sequence": "9"}
    told = to_dataframe(spark, [*({**each, "sequence": "1"} for each in sales), end], FIELDS)
    changes = told.withColumn("snapshot", F.lit(False)).localCheckpoint()
    before, after = Belief(changes, day(10), day(10)), Belief(changes, day(10))
    parts = explain(before, after, "sum", "amount", **NAMED)
    assert rows(parts, "number", "kind", "amount", "message_id") == [
        (1, "deleted", Decimal(-10), "end"),
        (2, "deleted", Decimal(-20), "end"),
    ]
    with pytest.raises(InvalidArgument, match=r"of the same table.*they say `snapshot`"):
        explain(before, Belief(revoke(changes, "a"), day(10)), "count", **NAMED)


def test_what_a_row_took_along_to_another_key_is_a_part_of_who_said_it(spark: SparkSession) -> None:
    """Sale 1 becomes 2: the move says its region, and not its amount, which is what had been said of 1."""
    told = [sale(1, "a", 1, 1, 10), said(1, "move", 5, 12), said(2, "move", 5, 12, region="south")]
    old, new = (F.struct(F.lit(number).alias("number")) for number in (1, 2))
    moved = F.struct(F.lit("1").alias("id"), old.alias("old_key"), new.alias("new_key"))
    moved = F.when(F.col("message_id") == "move", moved)
    frame = to_dataframe(spark, told, FIELDS).withColumn("moved", moved).localCheckpoint()
    changes, without = (complete_moves(each) for each in (frame, revoke(frame, "move")))
    for before in (Belief(changes, day(10), day(10)), Belief(without, day(10))):
        parts = explain(before, Belief(changes, day(10)), "sum", "amount", by="region", **NAMED)
        assert rows(parts) == [
            (1, "north", "deleted", Decimal(-10), "move"),
            (2, "south", "corrected", Decimal(10), "a"),
        ]


# Against the naive way ----------------------------------------------------------------------------------


@seeds(1, soak=30)
def test_what_was_learnt_is_explained_as_message_by_message(spark: SparkSession, seed: int) -> None:
    """Sum, count and mean; all measures, and two tables: tests/query/heavy/test_long_explanations.py."""
    assert_explained(*learnt(spark, seed), measures=["a * h", None, "h"])


# What is refused ----------------------------------------------------------------------------------------


def test_what_cannot_be_explained_is_refused_with_what_would_do(reports: Reports) -> None:
    before, after, changes = reports.before, reports.after, reports.changes
    with pytest.raises(InvalidArgument, match=r"measure to be sum, count or mean.*'max'.*part of its own"):
        explain(before, after, "max", "amount", **NAMED)
    with pytest.raises(InvalidArgument, match=r"value to be a field.*'amuont'.*Is it amount\?"):
        explain(before, after, "sum", "amuont", **NAMED)
    with pytest.raises(InvalidArgument, match=r"by to be a field.*UNRESOLVED_COLUMN"):
        explain(before, after, "count", by=F.col("zone") + 1, **NAMED)
    with pytest.raises(InvalidArgument, match=r"expression of one row.*MISSING_GROUP_BY"):
        explain(before, after, "sum", "sum(amount)", **NAMED)
    with pytest.raises(InvalidArgument, match="only a count needs none"):
        explain(before, after, "sum", **NAMED)
    with pytest.raises(WrongColumnType, match=r"double.*cast them"):
        explain(before, after, "sum", F.col("amount").cast("double"), **NAMED)
    with pytest.raises(WrongColumnType, match=r"decimal\(38,7\)"):
        explain(before, after, "sum", F.col("amount").cast("decimal(38,7)"), **NAMED)
    with pytest.raises(InvalidArgument, match=r"of distinct names.*use alias"):
        explain(before, after, "count", by=F.col("region").alias("kind"), **NAMED)
    with pytest.raises(InvalidArgument, match=r"after.valid_at to be not before before.valid_at.*other sign"):
        explain(after, Belief(changes, day(9)), "count", **NAMED)
    with pytest.raises(InvalidArgument, match=r"after.known_at to be not before .*which is open"):
        explain(Belief(changes, day(9)), after, "count", **NAMED)
    with pytest.raises(InvalidArgument, match=r"aware datetime"):
        explain(Belief(changes, datetime(2024, 1, 1)), after, "count", **NAMED)
    with pytest.raises(InvalidArgument, match="a Belief"):
        explain(changes, after, "count", **NAMED)  # type: ignore[arg-type]
    with pytest.raises(MissingColumns, match="This is a history"):
        explain(Belief(merge(changes, **NAMED), day(9)), after, "count", **NAMED)
