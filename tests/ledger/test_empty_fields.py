"""A column in which nothing stands has no type of its own: its field has that of values, early or late."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit import Ledger, as_of, changes_from, merge, union_changes
from cdckit.parts.tables import AnyTable
from cdckit.tables import changes_from_snapshots

KINDS: dict[str, tuple[Any, str]] = {
    "number": (5, "bigint"),
    "part": (2.5, "double"),
    "price": (Decimal("1.50"), "decimal(3,2)"),
    "is": (True, "boolean"),
    "day": (date(2024, 1, 5), "date"),
    "at": (datetime(2024, 1, 5, 12, tzinfo=UTC), "timestamp"),
    "text": ("a", "string"),
    "bytes": (b"a", "binary"),
    "struct": ({"a": 1}, "struct<a:bigint>"),
    "list": ([1], "array<bigint>"),
}
FIELDS = list(KINDS)
FULL = pa.table({"id": [1], **{name: [value] for name, (value, _) in KINDS.items()}})
Maker = Callable[[SparkSession, Sequence[str]], AnyTable]


def _columns(spark: SparkSession, names: Sequence[str], kind: str) -> DataFrame:
    return spark.range(1, 2).select("id", *(F.lit(None).cast(kind).alias(name) for name in names))


EMPTY: dict[str, Maker] = {
    "pandas, None": lambda _, names: pd.DataFrame([{"id": 1, **dict.fromkeys(names)}]),
    "pandas, NaN as of an empty column of a CSV file": lambda _, names: pd.DataFrame(
        [{"id": 1, **dict.fromkeys(names, np.nan)}]
    ),
    "Arrow": lambda _, names: pa.table({"id": [1], **{name: pa.nulls(1) for name in names}}),
    "polars": lambda _, names: pl.DataFrame({"id": [1], **{name: [None] for name in names}}),
    "Spark, void": lambda spark, names: _columns(spark, names, "void"),
    "Spark, texts as of an empty column of a CSV file": lambda spark, names: _columns(spark, names, "string"),
}
LIKE_VOID = ["pandas, None", "Arrow", "polars"]
"""What makes the same changes as columns of Spark that are void."""
BY_TYPE = ["pandas, NaN as of an empty column of a CSV file", "Spark, void"]
"""What says before any row is read that nothing stands in it; of texts a ledger asks the rows."""
FIRST, SECOND = datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 2, tzinfo=UTC)


def made(frame: AnyTable, at: datetime) -> DataFrame:
    return changes_from(frame, keys=["id"], effective=at)


def told(history: DataFrame, at: datetime = SECOND) -> dict[str, tuple[Any, str]]:
    """Of each field the value that is true at an instant, and the type."""
    (row,) = as_of(history, at).select(*FIELDS).collect()
    values = {**row.asDict(recursive=True), "at": row["at"].astimezone(UTC), "bytes": bytes(row["bytes"])}
    return {name: (values[name], history.schema[name].dataType.simpleString()) for name in FIELDS}


def _without_id(changes: DataFrame) -> list[T.StructField]:
    """The fields that may be empty, with what is noted of their types."""
    kind = changes.schema["data"].dataType
    assert isinstance(kind, T.StructType)
    return [field for field in kind if field.name != "id"]


def test_libraries_say_alike_that_nothing_stands_in_a_column(spark: SparkSession) -> None:
    void = made(EMPTY["Spark, void"](spark, FIELDS), FIRST)
    shown = ["operation", "data", "carried"]
    for door in LIKE_VOID:
        changes = made(EMPTY[door](spark, FIELDS), FIRST)
        assert _without_id(changes) == _without_id(void), door
        assert changes.select(*shown).collect() == void.select(*shown).collect(), door


TEXTS = "Spark, texts as of an empty column of a CSV file"
NAN, VOID = BY_TYPE
soak = pytest.mark.soak


@pytest.mark.parametrize(
    ("door", "full_first"),
    [
        (TEXTS, True),
        (TEXTS, False),
        (NAN, True),
        (VOID, False),
        pytest.param(NAN, False, marks=soak),
        pytest.param(VOID, True, marks=soak),
    ],
)
def test_a_ledger_has_the_type_of_the_values(
    door: str, full_first: bool, spark: SparkSession, tmp_path: Path
) -> None:
    frames = [EMPTY[door](spark, FIELDS), FULL]
    ledger = Ledger(spark, tmp_path, entity="thing", keys=["id"], buckets=1)
    for frame, at in zip(frames[:: -1 if full_first else 1], (FIRST, SECOND), strict=True):
        ledger.apply(made(frame, at))
    assert told(ledger.history()) == KINDS
    before = as_of(ledger.history(), FIRST).select(*FIELDS).first()
    assert before is not None
    assert any(value is not None for value in before) is full_first


@pytest.mark.parametrize(
    ("door", "full_first"),
    [
        (NAN, False),
        (VOID, True),
        pytest.param(NAN, True, marks=soak),
        pytest.param(VOID, False, marks=soak),
    ],
)
def test_so_have_tables_that_are_united(door: str, full_first: bool, spark: SparkSession) -> None:
    frames = [EMPTY[door](spark, FIELDS), FULL][:: -1 if full_first else 1]
    changes = [made(frame, at) for frame, at in zip(frames, (FIRST, SECOND), strict=True)]
    assert told(merge(union_changes(*changes), entity="thing", keys=["id"])) == KINDS


@pytest.mark.parametrize("door", [VOID, pytest.param(NAN, marks=soak)])
def test_so_have_lists(door: str, spark: SparkSession) -> None:
    nothing = EMPTY[door](spark, FIELDS)
    lists = changes_from_snapshots({FIRST: nothing, SECOND: FULL}, keys=["id"])
    assert told(merge(lists, entity="thing", keys=["id"])) == KINDS


@pytest.mark.parametrize("full", [1, 2])
def test_so_has_a_ledger_of_lists(full: int, spark: SparkSession, tmp_path: Path) -> None:
    """The field that nobody ever fills stays one, as text."""
    nothing = FULL.slice(0, 0).to_pandas().reindex([0]).assign(id=[1], never=[None])
    ledger = Ledger(spark, tmp_path, entity="thing", keys=["id"], buckets=1)
    for night, at in enumerate((FIRST, SECOND), 1):
        rows = FULL.append_column("never", pa.nulls(1)) if night == full else nothing
        ledger.apply_list(rows, taken_at=at)
    history = ledger.history()
    assert told(history, (FIRST, SECOND)[full - 1]) == KINDS
    assert history.schema["never"].dataType.simpleString() == "string"


def test_what_was_never_filled_waits_through_all_that_makes_a_ledger_anew(
    spark: SparkSession, tmp_path: Path
) -> None:
    ledger = Ledger(spark, tmp_path / "ledger", entity="thing", keys=["id"], buckets=1)
    ledger.apply(made(EMPTY["Arrow"](spark, FIELDS), FIRST))
    ledger.publish(tmp_path / "published")
    ledger.compact()
    ledger.rebuild()
    ledger.apply(made(FULL, SECOND))
    ledger.publish(tmp_path / "published")
    assert told(ledger.history()) == KINDS
    columns = pa.schema(DeltaTable(tmp_path / "published").schema().to_arrow())
    assert columns.field("day").type == pa.date32()
    ledger.check()


PARTS: dict[str, tuple[Any, Any, str]] = {
    "tags": ([], ["a"], "array<string>"),
    "numbers": ([None], [1], "array<bigint>"),
    "pair": ({"a": 1, "b": None}, {"a": 2, "b": True}, "struct<a:bigint,b:boolean>"),
    "box": ({"a": []}, {"a": [2.5]}, "struct<a:array<double>>"),
    "items": ([{"a": None}], [{"a": {"b": "c"}}], "array<struct<a:struct<b:string>>>"),
}
"""What a batch says that leaves a part open, what another says, and the type that holds both."""
HALVES = [pd.DataFrame({"id": [1], **{name: [pair[at]] for name, pair in PARTS.items()}}) for at in (0, 1)]


def versions(history: DataFrame) -> dict[str, tuple[Any, Any, str]]:
    """Of each field the values that are true at the two instants, and the type."""
    rows = [row.asDict(recursive=True) for row in history.orderBy("valid_from_timestamp").collect()]
    types = {name: history.schema[name].dataType.simpleString() for name in PARTS}
    return {name: (rows[0][name], rows[1][name], types[name]) for name in PARTS}


@pytest.mark.parametrize("order", [1, -1], ids=["nothing first", "values first"])
def test_a_part_in_which_nothing_stands_has_no_type_either(
    order: int, spark: SparkSession, tmp_path: Path
) -> None:
    """Lists that are all empty, and parts of structs that are all null; what was said of them stays."""
    ledger = Ledger(spark, tmp_path, entity="thing", keys=["id"], buckets=1)
    for frame, at in zip(HALVES[::order], (FIRST, SECOND), strict=True):
        ledger.apply(made(frame, at))
    assert versions(ledger.history()) == {name: (*pair[:2][::order], pair[2]) for name, pair in PARTS.items()}


def united(frames: dict[datetime, pd.DataFrame]) -> DataFrame:
    return union_changes(*(made(frame, at) for at, frame in frames.items()))


def listed(frames: dict[datetime, pd.DataFrame]) -> DataFrame:
    return changes_from_snapshots(frames, keys=["id"])


@pytest.mark.parametrize(
    ("changes_of", "order"),
    [
        (united, 1),
        (listed, -1),
        pytest.param(united, -1, marks=soak),
        pytest.param(listed, 1, marks=soak),
    ],
)
def test_so_it_is_in_tables_that_are_united_and_lists(
    changes_of: Callable[[dict[datetime, pd.DataFrame]], DataFrame], order: int, spark: SparkSession
) -> None:
    frames = dict(zip((FIRST, SECOND), HALVES[::order], strict=True))
    expected = {name: (*pair[:2][::order], pair[2]) for name, pair in PARTS.items()}
    assert versions(merge(changes_of(frames), entity="thing", keys=["id"])) == expected
