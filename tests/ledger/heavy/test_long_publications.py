"""
What is published, in every form, with other writers between.

In `make test`:
tests/ledger/test_publish.py::test_only_what_was_touched_is_written,
tests/ledger/test_publish.py::test_a_form_is_told_from_every_other_one,
tests/ledger/test_publish.py::test_two_make_it_at_once,
tests/ledger/test_publish.py::test_each_column_is_published_under_its_own_name.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit import Ledger, changes_from
from cdckit.ledger.publication import delta_table, published_history
from cdckit.outputs import periodic_snapshots, scd_type_1, scd_type_2
from cdckit.parts import at_home
from cdckit.parts.arguments import quoted
from cdckit.store import ForeignChange
from support.histories import plain, to_dataframe
from support.ledger_programs import FIELDS, batches
from support.publications import opened, shown, told, values
from tools.tiers import seeds

SNAPSHOTS = partial(periodic_snapshots, start=date(2023, 12, 30), end=date(2024, 1, 4))


def wanted(ledger: Ledger, form: Callable[[DataFrame], DataFrame]) -> list[str]:
    return sorted(str(plain(row)) for row in form(ledger.history()).toArrow().to_pylist())


@seeds(0, soak=10)
def test_it_is_what_the_form_makes_of_the_history(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """In order, late, rebuilt, compacted, adopted; now and then a batch or two are published together."""
    monkeypatch.setattr(at_home, "READ_ROWS", 0)
    monkeypatch.setattr(delta_table, "_FILE", 2000)
    monkeypatch.setattr(delta_table, "_SMALL_FILES", 6)
    chance = random.Random(seed)
    forms = {"versions": scd_type_2, "current": scd_type_1, "snapshots": SNAPSHOTS}
    targets = {tmp_path / name: form for name, form in forms.items()}
    ledger = opened(spark, tmp_path / "ledger")
    for batch in batches(seed, 10):
        ledger.apply(to_dataframe(spark, batch, FIELDS))
        step = chance.choice(["", "", "rebuild", "compact", "delete", "optimize"])
        if step in ("rebuild", "compact"):
            getattr(ledger, step)()
        elif step == "delete":
            DeltaTable(str(tmp_path / "ledger" / "changes")).delete(f"data.h = {chance.randrange(10)}")
            ledger.adopt()
        for target, form in targets.items():
            if step == "optimize" and target.exists():
                DeltaTable(str(target)).optimize.compact()
            if chance.random() < 0.7:
                assert ledger.publish(target, form) == ledger.at_commit().version
                assert shown(target) == wanted(ledger, form)
    for target, form in targets.items():
        ledger.publish(target, form)
        assert shown(target) == wanted(ledger, form)


def test_fields_may_be_called_as_they_like(spark: SparkSession, tmp_path: Path) -> None:
    ledger, target = opened(spark, tmp_path / "ledger"), tmp_path / "target"
    for day in (1, 2):
        rows = told(spark, (1, 5, day)).withColumn(
            "data", F.expr("struct(data.h, data.k, data.v AS `v.``x`)")
        )
        ledger.apply(rows.withColumn("carried", F.expr("struct(carried.h, carried.k, carried.v AS `v.``x`)")))
        ledger.apply(told(spark, (day + 1, 6, day)))
        ledger.publish(target)
    ledger.check(deep=True)
    assert len(shown(target)) == ledger.history().count()


PIECES = [
    "net",
    "price",
    "_",
    " ",
    ",",
    ";",
    "=",
    "(",
    ")",
    "{",
    "\t",
    "\n",
    ".",
    "`",
    '"',
    "é",
    "价",
    "_x0020_",
    "_2",
]
DAY = datetime(2024, 2, 29, 12, 30, 1, 123456)
TYPES: dict[str, list[Any]] = {
    "int": [-1, 2**31 - 1],
    "bigint": [2**62, 0],
    "double": [1.5, float("inf"), -0.0],
    "boolean": [True, False],
    "string": ["", "a b", "价"],
    "date": [date(1, 1, 1), date(9999, 12, 31)],
    "timestamp": [DAY.replace(tzinfo=UTC)],
    "timestamp_ntz": [DAY],
    "decimal(38,10)": [Decimal("12345678901234567890.0123456789")],
    "binary": [b"", b"\x00\xff"],
    "array<string>": [[], ["x", None]],
    "struct<`a b`:int,a_b:int>": [{"a b": 1, "a_b": 2}],
    "map<string,struct<`x,y`:bigint>>": [{"k": {"x,y": 7}}],
}


@seeds(2, soak=20)
def test_random_columns_are_published_under_their_names_with_their_types_and_values(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    """In any batches and order; deltalake and Spark read each under its name, or by its comment."""
    chance = random.Random(seed)
    ledger, target = Ledger(spark, tmp_path / "l", entity="e", keys=["id"], buckets=1), tmp_path / "target"
    kinds = {
        "".join(chance.choices(PIECES, k=chance.randint(1, 4))): chance.choice([*TYPES]) for _ in range(9)
    }
    kinds = {name.lower(): kind for name, kind in kinds.items()}
    told: dict[int, dict[str, Any]] = {}
    for batch in range(3):
        some = chance.sample([*kinds], k=chance.randint(3, len(kinds)))
        rows = [
            {name: chance.choice([None, *TYPES[kinds[name]]]) for name in some} | {"id": 10 * batch + number}
            for number in range(3)
        ]
        told |= {row["id"]: row for row in rows}
        schema = ", ".join(f"{quoted(name)} {kinds[name]}" for name in some)
        values = [tuple(row[name] for name in ["id", *some]) for row in rows]
        table = spark.createDataFrame(values, f"id int, {schema}").withColumn("told at", F.lit(DAY.date()))
        ledger.apply(
            changes_from(table, keys=["id"], sequence_by=quoted("told at"), except_column_list=["told at"])
        )
        ledger.publish(target)
        columns = {name for row in told.values() for name in row}
        fields = {field.name: field.metadata for field in DeltaTable(str(target)).schema().fields}
        names = {said.get("comment", name): name for name, said in fields.items()}
        assert columns <= names.keys()
        assert all(names[name] == name for name in columns if not re.search(r"[ ,;{}()=\t\n]", name))
        found = DeltaTable(str(target)).to_pyarrow_table().select([names[name] for name in columns])
        by_spark = spark.read.parquet(*DeltaTable(str(target)).file_uris())
        for seen in (found, by_spark.select(*(quoted(names[name]) for name in columns)).toArrow()):
            rows_there = [
                {name: true_value(value) for name, value in zip(columns, row.values(), strict=True)}
                for row in seen.to_pylist()
            ]
            wanted_rows = [{name: true_value(row.get(name)) for name in columns} for row in told.values()]
            assert sorted(map(str, rows_there)) == sorted(map(str, wanted_rows))
        for name in columns - {"id"}:
            kind = by_spark.schema[names[name]].dataType.simpleString()
            assert kind == kinds[name].replace("`a b`", "a_x0020_b").replace("`x,y`", "x_x002C_y")


def true_value(value: Any) -> Any:
    """A value as it went in: maps are lists of pairs in Arrow, and names in structs are those of Delta."""
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        value = dict(value)
    if isinstance(value, dict):
        return {
            name.replace("_x0020_", " ").replace("_x002C_", ","): true_value(part)
            for name, part in value.items()
        }
    return plain(value)


def test_another_form_and_new_columns_make_it_anew(spark: SparkSession, tmp_path: Path) -> None:
    ledger, target = opened(spark, tmp_path / "ledger"), tmp_path / "target"
    ledger.apply(told(spark, (1, 10, 1), (1, 11, 5), (2, 20, 1)))
    for form in (scd_type_2, partial(scd_type_2, surrogate_key="key"), scd_type_1, SNAPSHOTS):
        ledger.publish(target, form)
        assert shown(target) == wanted(ledger, form)
    ledger.publish(target)
    ledger.apply(told(spark, (3, 2**40, 1), kind="bigint"))
    ledger.publish(target)
    assert values(target) == [(1, 10, False), (1, 11, True), (2, 20, True), (3, 2**40, True)]


def test_a_column_of_a_type_that_not_every_reader_knows_comes_later(
    spark: SparkSession, tmp_path: Path
) -> None:
    ledger, target = opened(spark, tmp_path / "ledger"), tmp_path / "target"
    for h, value, name in ((1, "1", "n"), (2, "timestamp_ntz'2024-01-01 12:00:00'", "clock")):
        table = spark.sql(f"SELECT {h} AS h, 'x' AS k, date'2024-01-01' AS at, {value} AS {name}")
        changes = changes_from(table, keys=["h", "k"], sequence_by="at", except_column_list=["at"])
        ledger.apply(changes)
        ledger.publish(target)
    read = DeltaTable(str(target)).to_pyarrow_table().column("clock").to_pylist()
    assert sorted(map(str, read)) == ["2024-01-01 12:00:00", "None"]


@pytest.mark.parametrize("is_ours", [True, False])
def test_another_writer_comes_between(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_ours: bool
) -> None:
    """Between the look at the table and the commit: ours has done it already, another's is not overlooked."""
    ledger, target = opened(spark, tmp_path / "ledger"), tmp_path / "target"
    ledger.apply(told(spark, (1, 10, 1), (2, 20, 1)))
    ledger.publish(target)
    ledger.apply(told(spark, (1, 11, 5)))
    real = delta_table.PublishedTable.put

    def late(*given: Any) -> bool:
        monkeypatch.undo()
        if is_ours:
            ledger.publish(target)
        else:
            write_deltalake(
                str(target), DeltaTable(str(target)).to_pyarrow_table().slice(0, 1), mode="append"
            )
        return real(*given)

    monkeypatch.setattr(delta_table.PublishedTable, "put", late)
    if is_ours:
        assert ledger.publish(target) == 2
        assert values(target) == [(1, 10, False), (1, 11, True), (2, 20, True)]
    else:
        with pytest.raises(ForeignChange, match="WRITE by delta-rs"):
            ledger.publish(target)
        assert len(values(target)) == 3
    assert DeltaTable(str(target)).version() == 1


def test_a_cleaning_up_takes_no_files_of_who_has_not_committed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the files of a publisher and its commit another one deletes what is of no version."""
    ledger, target = opened(spark, tmp_path / "ledger"), tmp_path / "target"
    for day in (1, 2):
        ledger.apply(told(spark, (1, 10 * day, day)))
        ledger.publish(target)
    ledger.apply(told(spark, (2, 30, 3)))
    now = ledger.store.snapshot()
    cleaner = published_history._open_table(now, ledger.at_commit().kind, target, None)
    write = delta_table.write

    def late(*given: Any) -> Any:
        monkeypatch.undo()
        written = write(*given)
        assert cleaner.shown is not None
        assert cleaner.forget_before(cleaner.shown.made)
        return written

    monkeypatch.setattr(delta_table, "write", late)
    assert ledger.publish(target) == 3
    assert values(target) == [(1, 10, False), (1, 20, True), (2, 30, True)]
    live = set(DeltaTable(str(target)).file_uris())
    assert {str(path) for path in target.glob("*.parquet")} >= live
