"""A published table is at any time what its form makes of the whole history, whatever came between."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import date, timedelta
from functools import partial, wraps
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import cdckit.store.files
from cdckit import Ledger, changes_from
from cdckit.errors import InvalidArgument
from cdckit.ledger import publication, published
from cdckit.outputs import periodic_snapshots, scd_type_1, scd_type_2
from cdckit.store import ForeignChange, NoSuchTable, Store
from support.histories import plain, to_dataframe
from support.ledger_programs import FIELDS, KEYS, batches
from tools.tiers import seeds

SNAPSHOTS = partial(periodic_snapshots, start=date(2023, 12, 30), end=date(2024, 1, 4))


def opened(spark: SparkSession, place: Path, **options: Any) -> Ledger:
    return Ledger(spark, place, entity="e", keys=KEYS, **{"buckets": 2, **options})


def told(spark: SparkSession, *rows: tuple[int, int, int], kind: str = "int") -> DataFrame:
    """Changes of numbers: the value of each from a day of January 2024 on."""
    table = spark.createDataFrame(
        [(h, "x", v, day) for h, v, day in rows], f"h int, k string, v {kind}, day int"
    )
    at = F.make_timestamp(F.lit(2024), F.lit(1), "day", F.lit(0), F.lit(0), F.lit(0))
    return changes_from(
        table.withColumn("at", at), keys=KEYS, sequence_by="at", except_column_list=["at", "day"]
    )


def shown(target: Path) -> list[str]:
    """What any reader of Delta finds."""
    return sorted(str(plain(row)) for row in DeltaTable(str(target)).to_pyarrow_table().to_pylist())


def wanted(ledger: Ledger, form: Callable[[DataFrame], DataFrame]) -> list[str]:
    return sorted(str(plain(row)) for row in form(ledger.history()).toArrow().to_pylist())


def values(target: Path) -> list[tuple[int, int, bool]]:
    rows = DeltaTable(str(target)).to_pyarrow_table().to_pylist()
    return sorted((row["h"], row["v"], row["is_current"]) for row in rows)


@seeds(0, soak=10)
def test_it_is_what_the_form_makes_of_the_history(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """In order, late, rebuilt, compacted, adopted; now and then a batch or two are published together."""
    monkeypatch.setattr(cdckit.store.files, "_FEW_ROWS", 0)
    monkeypatch.setattr(publication, "_FILE", 2000)
    monkeypatch.setattr(publication, "_FEW", 6)
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


def test_only_what_was_touched_is_written(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And twice nothing."""
    monkeypatch.setattr(publication, "_FILE", 1000)
    monkeypatch.setattr(publication, "_FEW", 1000)
    ledger, target = opened(spark, tmp_path / "ledger"), tmp_path / "target"
    ledger.apply(told(spark, *((n, n, 1) for n in range(300))))
    assert ledger.publish(target) == 1
    before = set(DeltaTable(str(target)).file_uris())
    assert len(before) > 5
    ledger.apply(told(spark, (7, 70, 5)))
    for _ in range(2):
        assert ledger.publish(target) == 2
        after = set(DeltaTable(str(target)).file_uris())
        assert (len(before - after), DeltaTable(str(target)).version()) == (1, 1)
    assert [row for row in values(target) if row[0] == 7] == [(7, 7, False), (7, 70, True)]


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


def test_another_form_and_new_columns_make_it_anew(spark: SparkSession, tmp_path: Path) -> None:
    ledger, target = opened(spark, tmp_path / "ledger"), tmp_path / "target"
    ledger.apply(told(spark, (1, 10, 1), (1, 11, 5), (2, 20, 1)))
    for form in (scd_type_2, partial(scd_type_2, surrogate_key="key"), scd_type_1, SNAPSHOTS):
        ledger.publish(target, form)
        assert shown(target) == wanted(ledger, form)
    ledger.publish(target)
    ledger.apply(told(spark, (3, 2**40, 1), kind="long"))
    ledger.publish(target)
    assert values(target) == [(1, 10, False), (1, 11, True), (2, 20, True), (3, 2**40, True)]


def test_it_is_made_anew_where_vacuum_has_deleted_what_it_shows(spark: SparkSession, tmp_path: Path) -> None:
    ledger, target = opened(spark, tmp_path / "ledger"), tmp_path / "target"
    for day in (1, 2, 3):
        ledger.apply(told(spark, (1, day, day)))
        if day == 1:
            ledger.publish(target)
    ledger.vacuum(timedelta(0))
    ledger.publish(target)
    assert values(target) == [(1, 1, False), (1, 2, False), (1, 3, True)]


def test_what_others_change_in_it_stays_until_it_is_made_anew(spark: SparkSession, tmp_path: Path) -> None:
    ledger, target = opened(spark, tmp_path / "ledger"), tmp_path / "target"
    ledger.apply(told(spark, (1, 10, 1), (2, 20, 1)))
    ledger.publish(target)
    DeltaTable(str(target)).delete("h = 1")
    DeltaTable(str(target)).optimize.compact()
    ledger.apply(told(spark, (2, 21, 5)))
    with pytest.raises(ForeignChange, match=r"target': DELETE by delta-rs.*its version 1\..*anew=True"):
        ledger.publish(target)
    assert values(target) == [(2, 20, True)]
    ledger.publish(target, anew=True)
    assert values(target) == [(1, 10, True), (2, 20, False), (2, 21, True)]
    ledger.publish(target)


@pytest.mark.parametrize("is_ours", [True, False])
def test_another_writer_comes_between(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_ours: bool
) -> None:
    """Between the look at the table and the commit: ours has done it already, another's is not overlooked."""
    ledger, target = opened(spark, tmp_path / "ledger"), tmp_path / "target"
    ledger.apply(told(spark, (1, 10, 1), (2, 20, 1)))
    ledger.publish(target)
    ledger.apply(told(spark, (1, 11, 5)))
    real = published.PublishedTable.put

    def late(*given: Any) -> bool:
        monkeypatch.undo()
        if is_ours:
            ledger.publish(target)
        else:
            write_deltalake(
                str(target), DeltaTable(str(target)).to_pyarrow_table().slice(0, 1), mode="append"
            )
        return real(*given)

    monkeypatch.setattr(published.PublishedTable, "put", late)
    if is_ours:
        assert ledger.publish(target) == 2
        assert values(target) == [(1, 10, False), (1, 11, True), (2, 20, True)]
    else:
        with pytest.raises(ForeignChange, match="WRITE by delta-rs"):
            ledger.publish(target)
        assert len(values(target)) == 3
    assert DeltaTable(str(target)).version() == 1


def test_two_make_it_at_once(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, target = opened(spark, tmp_path / "ledger"), tmp_path / "target"
    ledger.apply(told(spark, (1, 10, 1)))
    real = published.PublishedTable.put

    def late(*given: Any) -> bool:
        monkeypatch.undo()
        ledger.publish(target)
        return real(*given)

    monkeypatch.setattr(published.PublishedTable, "put", late)
    assert ledger.publish(target) == 1
    assert values(target) == [(1, 10, True)]


def test_a_form_is_told_from_every_other_one(spark: SparkSession, tmp_path: Path) -> None:
    """By its name, its defaults and what `partial` tells it; what these do not tell apart is refused."""
    ledger, target = opened(spark, tmp_path / "ledger"), tmp_path / "target"
    ledger.apply(told(spark, (1, 10, 1), (1, 11, 5)))

    def from_day(day: int) -> publication.Form:
        return lambda history: at_least(history, day=day)

    def with_default(of: int) -> publication.Form:
        def since(history: DataFrame, day: int = of) -> DataFrame:
            return at_least(history, day=day)

        return since

    def named(day: int) -> publication.Form:
        return wraps(at_least)(lambda history: at_least(history, day=day))

    for form in (lambda history: history, from_day(1), OfDay(1), OfDay(1).form, partial(OfDay(1)), named(1)):
        with pytest.raises(InvalidArgument, match=r"function with a name of its own.*functools\.partial"):
            ledger.publish(target, form)
    for one in (with_default, lambda day: partial(at_least, day=day)):
        for day, rows in ((1, 2), (5, 1), (1, 2)):
            ledger.publish(target, one(day))
            assert len(shown(target)) == rows


def at_least(history: DataFrame, *, day: int) -> DataFrame:
    return scd_type_2(history).where(F.dayofmonth("valid_from_timestamp") >= day)


class OfDay:
    def __init__(self, day: int) -> None:
        self.day = day

    def form(self, history: DataFrame) -> DataFrame:
        return at_least(history, day=self.day)

    __call__ = form


def without_guid(history: DataFrame) -> DataFrame:
    return history.select("h")


def nothing(_: DataFrame) -> None:
    return None


def test_other_places_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    ledger, target = opened(spark, tmp_path / "ledger"), tmp_path / "target"
    with pytest.raises(NoSuchTable):
        ledger.publish(target)
    ledger.apply(told(spark, (1, 10, 1)))
    for place in ("ledger", "ledger/history", "ledger/new"):
        with pytest.raises(InvalidArgument, match="target to be a place outside of every store"):
            ledger.publish(tmp_path / place)
    write_deltalake(str(tmp_path / "theirs"), ledger.history().toArrow())
    other = opened(spark, tmp_path / "other")
    other.apply(told(spark, (1, 10, 1)))
    other.publish(tmp_path / "others")
    for place in ("theirs", "others"):
        for anew in (False, True):
            with pytest.raises(InvalidArgument, match="an empty place, or a table that this ledger has"):
                ledger.publish(tmp_path / place, anew=anew)
    for form in ("scd_type_2", without_guid, nothing):
        with pytest.raises(InvalidArgument, match="form to be a function"):
            ledger.publish(target, form)  # type: ignore[arg-type]
    for name in ("dim", "main.sales.dim"):
        with pytest.raises(
            InvalidArgument, match=r"a location, since this session has no Delta connector.*Start"
        ):
            ledger.publish(name)
    assert not target.exists()
    assert Store(spark, tmp_path / "ledger").snapshot().version == 1
