"""Folds: what is carried from row to row of a scope, on workers as at home."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdckit.parts import fold as kernel
from cdckit.parts.arrow_types import spark_columns
from cdckit.parts.fold import IS_STATE, Fold, FoldPlan, Result, fold_batches
from cdckit.parts.folded_rows import explode_rule, fold_rows, with_rule
from support.folded_tables import fold_table

ROWS = pa.schema(
    [("who", pa.string()), ("where", pa.string()), ("at", pa.int64()), ("tags", pa.list_(pa.string()))]
)
STATE = pa.schema([("texts", pa.list_(pa.string())), ("times", pa.int64())])
MAKES = pa.schema([("text", pa.string()), ("place", pa.int64())])
COUNTED = pa.schema([("count_", pa.int64()), ("at_", pa.int64())])


def told_plan() -> FoldPlan:
    """Within, so that workers are sent the class, and need not have this module."""

    class Told(Fold):
        """What was told so far; how often is known at the end: rows without tags are held until then."""

        def __init__(self, state: Result | None) -> None:
            self.texts, self.times = state or ([], 0)
            self.held = 0

        def take(self, at: int, tags: list[str] | None) -> Result | None:
            self.times += 1
            if not tags:
                self.held += 1
                return None
            self.texts = [*self.texts, *tags]
            return ",".join(self.texts), at

        def settle(self) -> Iterable[Result]:
            return [(f"{self.times} times", None)] * self.held

        def state(self) -> Result:
            return self.texts, self.times

    return FoldPlan(("who", "where"), ("at", "tags"), MAKES, Told, STATE)


PLAN = told_plan()


def rows(*values: tuple[str | None, str | None, int, list[str] | None]) -> pa.Table:
    return pa.Table.from_arrays(
        [pa.array(column, kind.type) for column, kind in zip(zip(*values, strict=True), ROWS, strict=True)],
        schema=ROWS,
    )


CASES = rows(
    ("ann", "a", 3, ["z"]),
    ("ann", "a", 1, ["x", "y"]),
    ("ann", "a", 2, None),
    ("ben", None, 5, None),
    ("ben", "b", 4, []),
    (None, None, 6, ["n"]),
)
KNOWN = pa.table(
    {"who": ["ann", "cid"], "where": ["a", "c"], "texts": [["w"], ["c"]], "times": [7, 1]},
    pa.schema([*list(ROWS)[:2], *STATE]),
)
COLUMNS = ["who", "at", "text", "place", "is_last", "texts", "times"]
EXPECTED = [
    # who, at, text, place; whether it is the last; what is known then
    (None, 6, "n", 6, True, ["n"], 1),
    ("ann", 1, "w,x,y", 1, False, None, None),
    ("ann", 2, "10 times", None, False, None, None),
    ("ann", 3, "w,x,y,z", 3, True, ["w", "x", "y", "z"], 10),
    ("ben", 4, "1 times", None, True, [], 1),
    ("ben", 5, "1 times", None, True, [], 1),
]


def found_rows(table: pa.Table) -> list[tuple[object, ...]]:
    values = (tuple(row.values()) for row in table.select(COLUMNS).to_pylist())
    return sorted(values, key=lambda row: (row[0] or "", row[1]))


def test_rows_are_taken_in_their_order_within_their_scopes() -> None:
    assert found_rows(fold_table(CASES, PLAN, order=["at"], states=KNOWN)) == EXPECTED


def test_workers_make_what_this_program_makes(spark: SparkSession) -> None:
    given = spark.createDataFrame(CASES, spark_columns(ROWS)).orderBy(F.rand(5)).repartition(3)
    known = spark.createDataFrame(KNOWN, spark_columns(KNOWN.schema))
    folded = fold_rows(given, PLAN, keeps=["who", "at"], order=["at"], states=known)
    assert folded.columns == COLUMNS
    assert found_rows(folded.toArrow()) == EXPECTED


def test_what_is_skipped_comes_to_nothing_and_is_not_the_last(spark: SparkSession) -> None:
    """Of ann the row at 3, and all of ben's; in the order that the plan says."""
    plan = replace(PLAN, order=("at",), skip="left out")
    skipped = pa.array([True, False, False, True, True, False])
    given = CASES.append_column("left out", skipped)
    nothing = (None,) * 5
    expected = [
        (None, 6, "n", 6, True, ["n"], 1),
        ("ann", 1, "w,x,y", 1, False, None, None),
        ("ann", 2, "9 times", None, True, ["w", "x", "y"], 9),
        *(("ann", 3, *nothing), ("ben", 4, *nothing), ("ben", 5, *nothing)),
    ]
    assert found_rows(fold_table(given, plan, states=KNOWN)) == expected
    frame = spark.createDataFrame(given, spark_columns(given.schema)).orderBy(F.rand(5)).repartition(3)
    known = spark.createDataFrame(KNOWN, spark_columns(KNOWN.schema))
    assert found_rows(fold_rows(frame, plan, keeps=["who", "at"], states=known).toArrow()) == expected


def test_columns_that_are_kept_are_what_they_were_even_if_they_are_read(spark: SparkSession) -> None:
    given = spark.createDataFrame(CASES, spark_columns(ROWS))
    read = with_rule(given, ["who", "tags"], ["at", "tags"], lambda at, tags: (len(tags), at), COUNTED)
    assert sorted((str(row.tags), row.count_, row.at_) for row in read.collect()) == [
        *(("None", 0, 2), ("None", 0, 5), ("['n']", 1, 6), ("['x', 'y']", 2, 1), ("['z']", 1, 3)),
        ("[]", 0, 4),
    ]


def test_a_row_may_come_to_any_number_of_rows(spark: SparkSession) -> None:
    def rule(at: int, tags: list[str] | None) -> list[Result]:
        return [(tag, at) for tag in tags or ()]

    given = spark.createDataFrame(CASES, spark_columns(ROWS))
    exploded = explode_rule(given, ["who"], ["at", "tags"], rule, MAKES).collect()
    assert sorted(map(repr, map(tuple, exploded))) == [
        *("('ann', 'x', 1)", "('ann', 'y', 1)", "('ann', 'z', 3)"),
        "(None, 'n', 6)",
    ]


def test_nothing_comes_to_nothing() -> None:
    for states in (None, KNOWN):
        found = fold_table(CASES.slice(0, 0), PLAN, order=["at"], states=states)
        assert found.num_rows == 0
        assert found.schema.names[-5:] == COLUMNS[-5:]


@pytest.mark.parametrize(("at_once", "characters"), [(1, 1 << 26), (3, 1 << 26), (1 << 14, 1), (7, 9)])
def test_scopes_may_lie_in_any_batches(
    at_once: int, characters: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what is made is handed on in pieces that a column of texts can hold."""
    chance = random.Random(at_once)
    tags = (None, [], ["x"], ["y", "z"])
    many = rows(*((chance.choice("abc"), chance.choice("de"), at, chance.choice(tags)) for at in range(100)))
    expected = found_rows(fold_table(many, PLAN, order=["at"]))
    monkeypatch.setattr(kernel, "_ROWS_AT_ONCE", at_once)
    monkeypatch.setattr(kernel, "_CHARACTERS_AT_ONCE", characters)
    found = fold_table(many, PLAN, order=["at"])
    assert found_rows(found) == expected
    assert at_once < 100 or found.column("text").num_chunks > 6


def test_what_stands_before_the_first_row_that_is_held_is_handed_on() -> None:
    """So a scope that goes on in the next batch keeps back no other."""
    lines = [("ann", ["x"]), ("ann", None), ("ben", ["y"]), ("ben", None), ("ben", []), ("cid", ["z"])]
    table = rows(*((who, "a", at, tags) for at, (who, tags) in enumerate(lines)))
    nothing = {name: pa.nulls(len(lines), PLAN.states.field(name).type) for name in PLAN.states.names}
    sent = {**{name: table.column(name) for name in ROWS.names}, **nothing, IS_STATE: [False] * len(lines)}
    batches = pa.table({name: sent[name] for name in PLAN.sent}).to_batches(max_chunksize=2)
    assert [batch.num_rows for batch in fold_batches(batches, PLAN)] == [2, 1, 3]
