"""A published table is at any time what its form makes of the whole history, whatever came between."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial, wraps
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.table import TableAlterer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit import changes_from
from cdckit.errors import InvalidArgument
from cdckit.ledger.publication import delta_table, published_history
from cdckit.model.history import OPEN_END
from cdckit.outputs import scd_type_1, scd_type_2
from cdckit.parts.instants import microseconds
from cdckit.store import ForeignChange, NoSuchTable, Store
from support.publications import opened, shown, told, values
from support.remains import find_remains


def test_only_what_was_touched_is_written(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_workers: None
) -> None:
    """And twice nothing."""
    monkeypatch.setattr(delta_table, "_FILE", 1000)
    monkeypatch.setattr(delta_table, "_SMALL_FILES", 1000)
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


@pytest.mark.parametrize("is_ours", [True, False])
def test_it_is_made_anew_where_vacuum_has_deleted_what_it_shows(
    spark: SparkSession, tmp_path: Path, is_ours: bool
) -> None:
    """Ours or another program's: so an erasure can follow, too."""
    ledger, target = opened(spark, tmp_path / "ledger"), tmp_path / "target"
    for day in (1, 2, 3):
        ledger.apply(told(spark, (1, day, day)))
        if day == 1:
            ledger.publish(target)
    if is_ours:
        ledger.vacuum(timedelta(0))
    else:
        history = DeltaTable(str(tmp_path / "ledger" / "history"))
        history.vacuum(0, enforce_retention_duration=False, dry_run=False)
    ledger.publish(target)
    assert values(target) == [(1, 1, False), (1, 2, False), (1, 3, True)]


def test_it_is_made_anew_where_the_ledger_was_restored_from_a_copy(
    spark: SparkSession, tmp_path: Path
) -> None:
    """What it shows of lost commits goes, whether there are commits of their numbers again or not."""
    place, target, later = tmp_path / "ledger", tmp_path / "target", tmp_path / "later"
    ledger = opened(spark, place)
    ledger.apply(told(spark, (1, 10, 1)))
    shutil.copytree(place, tmp_path / "copy")
    ledger.apply(told(spark, (2, 20, 2)))
    ledger.publish(target)
    ledger.publish(later)
    shutil.rmtree(place)
    shutil.copytree(tmp_path / "copy", place)
    ledger = opened(spark, place)
    ledger.publish(target)
    assert values(target) == [(1, 10, True)]
    ledger.apply(told(spark, (3, 30, 3)))
    assert ledger.publish(later) == 2
    assert values(later) == [(1, 10, True), (3, 30, True)]


def test_it_forgets_also_what_a_ledger_showed_that_was_restored_from_a_copy_since(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Its first version shows a commit of a higher number than the erasure's, and is older."""
    place, target = tmp_path / "ledger", tmp_path / "target"
    ledger = opened(spark, place)
    ledger.apply(told(spark, (1, 10, 1), (2, 987_654, 1)))
    shutil.copytree(place, tmp_path / "copy")
    for day in (2, 3, 4):
        ledger.apply(told(spark, (1, 10 + day, day)))
    ledger.publish(target)
    shutil.rmtree(place)
    (tmp_path / "copy").rename(place)
    ledger = opened(spark, place)
    ledger.erase(keys=[{"h": 2, "k": "x"}], by="dana", reason="letter", published={target: scd_type_2})
    assert values(target) == [(1, 10, True)]
    assert find_remains(tmp_path, {"2": [987_654]}) == {}


def test_readers_are_told_what_stands_for_an_open_end(spark: SparkSession, tmp_path: Path) -> None:
    """As long as it does: without it, `current` would find nobody whose version ends in the year 9999."""
    ledger, target = opened(spark, tmp_path / "ledger"), tmp_path / "target"
    ledger.apply(told(spark, (1, 10, 1)))
    never = datetime(9999, 12, 31, tzinfo=UTC)

    def meaning() -> list[object]:
        fields = DeltaTable(str(target)).schema().fields
        return [field.metadata[OPEN_END] for field in fields if OPEN_END in field.metadata]

    for form, expected in (
        (scd_type_2, []),
        (partial(scd_type_2, valid_to_current=never), [microseconds(never)]),
        (scd_type_2, []),
    ):
        ledger.publish(target, form)
        assert meaning() == expected


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


def test_each_column_is_published_under_its_own_name(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also one that comes later, and is called as an earlier one might be; other names are told."""
    ledger, target = opened(spark, tmp_path / "ledger"), tmp_path / "target"

    def told_of(key: int, **fields: str) -> DataFrame:
        table = spark.sql(
            f"SELECT {key} AS h, 'x' AS k, timestamp'2024-01-01' AS at, "
            + ", ".join(f"{value} AS `{name.replace('`', '``')}`" for name, value in fields.items())
        )
        return changes_from(table, keys=["h", "k"], sequence_by="at", except_column_list=["at"])

    odd = {"net price": "10", "s": "named_struct('a b', 1, 'a_b', 2)", "a.b": "3", "`": "4", "é, ö": "5"}
    ledger.apply(told_of(1, **odd))
    ledger.publish(target)
    first = DeltaTable(str(target)).to_pyarrow_table().to_pylist()[0]
    assert {name: first.get(name) for name in ("net_x0020_price", "net_price", "a.b", "`", "s")} == {
        "net_x0020_price": 10, "net_price": None, "a.b": 3, "`": 4, "s": {"a_x0020_b": 1, "a_b": 2},
    }  # fmt: skip
    assert "'net price' is net_x0020_price, 's.a b' is a_x0020_b, 'é, ö' is é_x002C__x0020_ö" in caplog.text
    ledger.apply(told_of(2, **{"net_price": "12", "net price": "13"}))
    ledger.publish(target)
    fields = {field.name: field.metadata.get("comment") for field in DeltaTable(str(target)).schema().fields}
    assert (fields["net_x0020_price"], fields["net_price"]) == ("net price", None)
    rows = DeltaTable(str(target)).to_pyarrow_table().to_pylist()
    assert sorted((row["h"], row["net_x0020_price"], row["net_price"]) for row in rows) == [
        (1, 10, None), (2, 13, 12),
    ]  # fmt: skip


DEMANDS: dict[str, tuple[Callable[[TableAlterer], None], Callable[[TableAlterer], None]]] = {
    r"the CHECK constraint small \(v < 500\)": (
        lambda table: table.add_constraint({"small": "v < 500"}),
        lambda table: table.drop_constraint("small"),
    ),
    r"delta\.appendOnly = true": (
        lambda table: table.set_table_properties({"delta.appendOnly": "true"}),
        lambda table: table.set_table_properties({"delta.appendOnly": "false"}),
    ),
}
"""What others may ask of a table: how they do, and how they take it away."""


def test_what_others_ask_of_its_writers_is_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    """And with `anew` too, which is the way out of a change of rows alone."""
    ledger, target = opened(spark, tmp_path / "ledger"), tmp_path / "target"
    ledger.apply(told(spark, (1, 10, 1)))
    ledger.publish(target)
    before = values(target)
    for day, (demand, (ask, take_away)) in enumerate(DEMANDS.items(), 2):
        ask(DeltaTable(str(target)).alter)
        # There is nothing to write.
        ledger.publish(target)
        ledger.apply(told(spark, (1, 10 * day, day)))
        for anew in (False, True):
            with pytest.raises(
                ForeignChange, match=f"no tables with {demand}: .*ALTER TABLE.*to another place"
            ):
                ledger.publish(target, anew=anew)
        assert values(target) == before
        take_away(DeltaTable(str(target)).alter)
        ledger.publish(target)
        before = values(target)
        assert before[-1] == (1, 10 * day, True)
    assert before == [(1, 10, False), (1, 20, False), (1, 30, True)]


def test_comments_and_properties_of_others_stay(spark: SparkSession, tmp_path: Path) -> None:
    """They change no row: later batches leave them, and so does another form, which writes all anew."""
    ledger, target = opened(spark, tmp_path / "ledger"), tmp_path / "target"
    ledger.apply(told(spark, (1, 10, 1)))
    ledger.publish(target)
    theirs = DeltaTable(str(target)).alter
    theirs.set_table_description("Prices of the shop.")
    theirs.set_column_metadata("v", {"comment": "in cents"})
    theirs.set_table_properties(
        {"delta.logRetentionDuration": "interval 90 days", "delta.dataSkippingNumIndexedCols": "3"}
    )
    ledger.apply(told(spark, (1, 11, 2)))
    ledger.publish(target)
    assert values(target) == [(1, 10, False), (1, 11, True)]
    ledger.publish(target, scd_type_1)
    table = DeltaTable(str(target))
    [column] = [field for field in table.schema().fields if field.name == "v"]
    properties = table.metadata().configuration
    assert (table.metadata().description, column.metadata) == ("Prices of the shop.", {"comment": "in cents"})
    assert properties["delta.logRetentionDuration"] == "interval 90 days"
    assert table.to_pyarrow_table().select(["h", "v"]).to_pylist() == [{"h": 1, "v": 11}]


def test_two_make_it_at_once(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, target = opened(spark, tmp_path / "ledger"), tmp_path / "target"
    ledger.apply(told(spark, (1, 10, 1)))
    real = delta_table.PublishedTable.put

    def late(*given: Any) -> bool:
        monkeypatch.undo()
        ledger.publish(target)
        return real(*given)

    monkeypatch.setattr(delta_table.PublishedTable, "put", late)
    assert ledger.publish(target) == 1
    assert values(target) == [(1, 10, True)]


def test_a_form_is_told_from_every_other_one(spark: SparkSession, tmp_path: Path) -> None:
    """By its name, its defaults and what `partial` tells it; what these do not tell apart is refused."""
    ledger, target = opened(spark, tmp_path / "ledger"), tmp_path / "target"
    ledger.apply(told(spark, (1, 10, 1), (1, 11, 5)))

    def from_day(day: int) -> published_history.Form:
        return lambda history: at_least(history, day=day)

    def with_default(of: int) -> published_history.Form:
        def since(history: DataFrame, day: int = of) -> DataFrame:
            return at_least(history, day=day)

        return since

    def named(day: int) -> published_history.Form:
        return wraps(at_least)(lambda history: at_least(history, day=day))

    for form in (lambda history: history, from_day(1), OfDay(1), OfDay(1).form, partial(OfDay(1)), named(1)):
        with pytest.raises(InvalidArgument, match=r"function with a name of its own.*functools\.partial"):
            ledger.publish(target, form)
    for told_it in (pd.DataFrame({"day": [1]}), spark.range(1), OfDay(1), [at_least]):
        with pytest.raises(InvalidArgument, match="tells plain values alone"):
            ledger.publish(target, partial(at_least, day=told_it))
    for one in (with_default, lambda day: partial(at_least, day=day)):
        for day, rows in ((1, 2), (5, 1), (1, 2)):
            ledger.publish(target, one(day))
            assert len(shown(target)) == rows


def test_a_form_that_goes_by_a_set_is_the_same_in_every_process() -> None:
    """Where 0 and 8 stand in a set depends on which came first, and of texts on the process."""
    numbers = {
        published_history._form_number(partial(at_least, day=({0: {*days}}, {*days})))
        for days in ((0, 8), (8, 0))
    }
    assert len(numbers) == 1


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
    for place, anew in (("theirs", False), ("theirs", True), ("others", True)):
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
