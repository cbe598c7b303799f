"""The tables of a hub: what a run writes is seen all at once, or not at all."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from hub_programs import rows_of
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import DataFrame, SparkSession

import cdckit.datahub.runs
from cdckit.datahub import Context, Hub, records, schema
from cdckit.datahub.tables import Tables

# Spark's workers cannot import a module of the tests: what they are to run travels by value.
register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]

Row = dict[str, Any]
AT = datetime(2024, 1, 1, 9, tzinfo=UTC)


def numbers(spark: SparkSession, *values: int) -> DataFrame:
    return spark.createDataFrame([(each,) for each in values], "n int")


def held(table: DataFrame | None) -> list[int] | None:
    return None if table is None else sorted(row["n"] for row in table.collect())


def parts(folder: Path) -> list[str]:
    return sorted(str(each.relative_to(folder)) for each in folder.glob("parts/*/*") if each.is_dir())


# Tables --------------------------------------------------------------------------------------------------


def test_tables_grow_by_parts_and_are_replaced(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables(spark, tmp_path / "deep" / "er")
    assert tables.read("a") is None
    assert held(tables.append("a", numbers(spark, 1))) == [1]
    assert held(tables.append("a", numbers(spark, 2, 3))) == [2, 3]
    assert held(tables.read("a")) == [1, 2, 3]
    # What replaces a table may be made of it.
    before = tables.read("a")
    assert before is not None
    assert held(tables.replace("a", before.where("n > 1"))) == [2, 3]
    assert held(tables.read("a")) == [2, 3]


def test_a_run_that_has_ended_is_under_way_no_more_where_its_file_cannot_be_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows deletes no file that somebody has open, such as whoever asks for the statuses just then."""
    tables = Tables(cast(SparkSession, None), tmp_path)

    def refused(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(path)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", refused)
        with tables.marked({"messages": "due", "now": 0}):
            assert tables.under_way() == {"messages": "due", "now": 0}
    monkeypatch.setattr("cdckit.datahub.tables._is_locked", lambda file: True)
    assert tables.under_way() is None


def test_what_is_not_committed_is_forgotten_by_a_rollback(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables(spark, tmp_path)
    tables.append("a", numbers(spark, 1))
    tables.note("names", ["x"])
    tables.commit()
    committed = parts(tmp_path)
    tables.append("a", numbers(spark, 2))
    tables.replace("b", numbers(spark, 3))
    tables.note("names", ["x", "y"])
    tables.scratch("s", numbers(spark, 4))
    tables.rollback()
    assert (held(tables.read("a")), tables.read("b"), tables.noted("names")) == ([1], None, ["x"])
    assert parts(tmp_path) == committed
    tables.drop("a")
    tables.rollback()
    assert held(tables.read("a")) == [1]


def test_what_was_committed_is_there_when_the_folder_is_opened_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    tables = Tables(spark, tmp_path)
    tables.append("a", numbers(spark, 1))
    tables.note("names", ["é"])
    tables.commit()
    committed = parts(tmp_path)
    tables.append("a", numbers(spark, 2))
    # The writer stops here, between two commits and in the middle of one.
    (tmp_path / "current.new").write_text("{")
    again = Tables(spark, tmp_path)
    assert (held(again.read("a")), again.noted("names"), again.noted("others")) == ([1], ["é"], [])
    assert parts(tmp_path) == committed
    again.append("a", numbers(spark, 5))
    again.commit()
    assert held(Tables(spark, tmp_path).read("a")) == [1, 5]


def test_a_table_may_be_read_until_the_next_commit_but_one(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables(spark, tmp_path)
    tables.replace("a", numbers(spark, 1))
    tables.commit()
    before = tables.read("a")
    tables.replace("a", numbers(spark, 2))
    tables.commit()
    assert held(before) == [1]
    assert held(tables.read("a")) == [2]
    # And folders do not grow: two commits keep two parts, however many there were.
    for number in range(3, 6):
        tables.replace("a", numbers(spark, number))
        tables.commit()
    assert len(parts(tmp_path)) == 2


def test_scratch_is_gone_after_the_commit(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables(spark, tmp_path)
    assert held(tables.scratch("s", numbers(spark, 1))) == [1]
    assert tables.read("s") is None
    tables.commit()
    assert parts(tmp_path) == []


def test_a_table_moves_behind_another(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables(spark, tmp_path)
    tables.move("a", "b")
    assert tables.read("b") is None
    for number in (1, 2):
        tables.append("a", numbers(spark, number))
        tables.move("a", "b")
        tables.commit()
    assert tables.read("a") is None
    assert held(tables.read("b")) == [1, 2]


@pytest.mark.parametrize(
    "name", ["a b", "é", "a%20b", "a+b", "a=b", "a#b", "a,b", "a:b", "[a]", "{a,b}", "a*", "a?", "_a", ".a"]
)
def test_the_folder_may_have_any_name(spark: SparkSession, tmp_path: Path, name: str) -> None:
    (tmp_path / "b").mkdir()
    tables = Tables(spark, tmp_path / name)
    tables.append("t", numbers(spark, 1))
    tables.append("t", numbers(spark, 2))
    tables.commit()
    assert held(Tables(spark, tmp_path / name).read("t")) == [1, 2]


# A hub ---------------------------------------------------------------------------------------------------

SYSTEM = 'o\'neil \\ "${system:user.name}" \n é'
NAMES = ["Größe / m²", "a.b c", "..", "it's `%2F` \\ {x} *"]
KEY: Row = {"reference": "no. `1`", "sourceReference": "k", "key": True}
PLAIN: list[Row] = [{"reference": "k", "key": True}, {"reference": "v", "type": "integer"}]
DOCUMENT: Row = {
    "reference": SYSTEM,
    "mappings": {
        f"source {name}": [
            {
                "reference": name,
                "messageReader": "fragile",
                "fields": [KEY, {"reference": "straße'", "sourceReference": "v", "type": "integer"}],
            }
        ]
        for name in NAMES
    }
    | {"plain": [{"reference": "plain", "messageReader": "fragile", "fields": PLAIN}]},
}


class Bang(BaseException):
    """Nobody catches it by catching exceptions."""


def fragile(data: str | None, context: Context) -> Iterable[Any]:
    """Reads as ever, unless there is a file that makes the worker fail."""
    if (Path(context.files or "") / "bang").exists():
        raise Bang("not caught")
    found: list[Any] = json.loads(data or "[]")
    return found


def message(guid: str, entity: str, *values: int) -> Row:
    data = [{"k": f"k{place}", "v": value} for place, value in enumerate(values)]
    return {"guid": guid, "system": SYSTEM, "entity": entity, "data": data}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hub")


@pytest.fixture(scope="module")
def hub(spark: SparkSession, place: Path) -> Hub:
    """A hub of oddly named entities that has processed a message of each."""
    made = Hub(spark, schema(DOCUMENT), place / "tables", readers={"fragile": fragile}, files=place)
    first = [message(f"m{name}", f"source {name}", 1, 2) for name in NAMES]
    made.receive(records(spark, [*first, message("plain", "plain", 1, 2)], at=AT))
    made.process(now=AT)
    return made


def values(hub: Hub, name: str) -> list[tuple[str, int]]:
    current = [row for row in rows_of(hub.history(name)) if row["valid_to_timestamp"] is None]
    key, value = ("k", "v") if name == "plain" else ("no. `1`", "straße'")
    return sorted((row[key], row[value]) for row in current)


def everything(hub: Hub, place: Path) -> tuple[Any, ...]:
    tables = [hub.history("plain"), hub.messages(), hub.log(), hub.rejects()]
    return (
        [sorted(map(repr, rows_of(each))) for each in tables],
        (place / "tables" / "current.json").read_text(),
        parts(place / "tables"),
    )


@pytest.mark.parametrize("name", NAMES)
def test_entities_and_fields_may_have_any_name(hub: Hub, name: str) -> None:
    assert values(hub, name) == [("k0", 1), ("k1", 2)]
    question = {"entity": name, "where": {"straße'": 2}, "fields": ["no. `1`", "straße'"]}
    assert [tuple(row) for row in hub.query(question, now=AT).collect()] == [("k1", 2)]


def test_a_system_may_have_any_name(hub: Hub) -> None:
    """What looks like a variable of Spark's is none."""
    assert {row["source"] for row in rows_of(hub.changes("plain").select("source"))} == {SYSTEM}


def test_a_run_that_fails_leaves_everything_as_it_was(
    spark: SparkSession, hub: Hub, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a worker, in the driver, and at the very end; and the next run does what it should have done."""
    later = AT + timedelta(hours=1)
    taken = hub.history("plain")
    hub.receive(records(spark, [message("later", "plain", 1, 3)], at=later))
    before = everything(hub, place)

    (place / "bang").touch()
    with pytest.raises(Exception, match="not caught"):
        hub.process(now=later)
    assert everything(hub, place) == before
    (place / "bang").unlink()

    def fails(*_: Any, **__: Any) -> DataFrame:
        raise Bang("in the driver")

    with monkeypatch.context() as patched:
        patched.setattr(cdckit.datahub.runs, "versions_by_guid", fails)
        with pytest.raises(Bang, match="in the driver"):
            hub.process(now=later)
    assert everything(hub, place) == before

    hub.process(now=later)
    assert values(hub, "plain") == [("k0", 1), ("k1", 3)]
    statuses = {row["message_identifier"]: row["status"] for row in rows_of(hub.messages())}
    assert statuses == {f"m{name}": 10 for name in NAMES} | {"plain": 10, "later": 10}
    # Whoever took the table before still reads what there was then.
    assert sorted(row["v"] for row in rows_of(taken)) == [1, 2]


def test_what_cannot_be_committed_was_not_received(
    spark: SparkSession, hub: Hub, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the hub goes on living: the sender was told that it failed."""
    before = everything(hub, place)

    def full(*_: Any, **__: Any) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", full)
        with pytest.raises(OSError, match="no space left"):
            hub.receive(records(spark, [message("lost", "plain", 9)], at=AT))
    assert rows_of(hub.messages().where("message_identifier = 'lost'")) == []
    assert everything(hub, place) == before


def test_a_hub_that_is_opened_again_goes_on_where_the_other_stopped(
    spark: SparkSession, hub: Hub, place: Path
) -> None:
    again = Hub(spark, schema(DOCUMENT), place / "tables", readers={"fragile": fragile}, files=place)
    assert [values(again, name) for name in NAMES] == [values(hub, name) for name in NAMES]
    (receipt,) = rows_of(again.receive(records(spark, [message("plain", "plain", 7)], at=AT)))
    assert receipt["status"] == 5


def test_what_has_an_odd_name_is_merged_a_second_time(spark: SparkSession, hub: Hub) -> None:
    """The rows of entities that a run does not touch are kept as they are."""
    name = NAMES[1]
    hub.receive(records(spark, [message("second", f"source {name}", 5)], at=AT + timedelta(hours=2)))
    hub.process(now=AT + timedelta(hours=2))
    assert values(hub, name) == [("k0", 5), ("k1", 2)]
