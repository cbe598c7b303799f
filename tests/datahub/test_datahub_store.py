"""A hub on its store: what a run writes is seen all at once or not at all, whoever else writes or looks."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import cdckit.datahub.runs
import cdckit.datahub.state
import cdckit.store.store
from cdckit.datahub import Context, Hub, records, schema, state
from cdckit.datahub.state import MANY_FILES, RunFile
from cdckit.errors import InvalidArgument
from cdckit.model.records import RECORD_SCHEMA
from cdckit.store import BatchIdReused, ConflictingCommit, DamagedTable, NoFileSystem, OtherKind, Store
from cdckit.store.commits import Commits
from support.hub_programs import receipts_of, rows_of, statuses
from support.hub_store import AT, HOUR, SHOP, Row, names, product

# Spark's workers cannot import a module of the tests: what they are to run travels by value.
register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]


def received(receipts: list[Row]) -> list[tuple[str, int]]:
    return sorted((row["message_identifier"], row["status"]) for row in receipts)


def files(folder: Path) -> dict[str, int]:
    """Every file below the folder, with the time at which it was changed last."""
    found = folder.rglob("*")
    return {str(each.relative_to(folder)): each.stat().st_mtime_ns for each in found if each.is_file()}


# One hub, whatever its entities are called ---------------------------------------------------------------

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
    made.receive(records(spark, [*first, message("plain", "plain", 1, 2)], received_at=AT))
    made.run(now=AT)
    return made


def values(hub: Hub, name: str) -> list[tuple[str, int]]:
    current = [row for row in rows_of(hub.history(name)) if row["valid_to_timestamp"] is None]
    key, value = ("k", "v") if name == "plain" else ("no. `1`", "straße'")
    return sorted((row[key], row[value]) for row in current)


def everything(hub: Hub) -> tuple[Any, ...]:
    tables = [hub.history("plain"), hub.messages(), hub.log(), hub.rejects()]
    rows = [table.select(F.lit(place), F.to_json(F.struct("*"))) for place, table in enumerate(tables)]
    return sorted(map(str, rows_of(reduce(DataFrame.union, rows)))), hub.store.snapshot().version


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
    later = AT + HOUR
    taken = hub.history("plain")
    hub.receive(records(spark, [message("later", "plain", 1, 3)], received_at=later))
    before = everything(hub)

    (place / "bang").touch()
    with pytest.raises(Exception, match="not caught"):
        hub.run(now=later)
    assert everything(hub) == before
    (place / "bang").unlink()

    def fails(*_: Any, **__: Any) -> DataFrame:
        raise Bang("in the driver")

    with monkeypatch.context() as patched:
        patched.setattr(cdckit.datahub.state, "plan_versions", fails)
        with pytest.raises(Bang, match="in the driver"):
            hub.run(now=later)
    assert everything(hub) == before

    hub.run(now=later)
    assert values(hub, "plain") == [("k0", 1), ("k1", 3)]
    statuses = {row["message_identifier"]: row["status"] for row in rows_of(hub.messages())}
    assert statuses == {f"m{name}": 10 for name in NAMES} | {"plain": 10, "later": 10}
    # Whoever took the table before still reads what there was then.
    assert sorted(row["v"] for row in rows_of(taken)) == [1, 2]


def test_what_cannot_be_committed_was_not_received(
    spark: SparkSession, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the hub goes on living: the sender was told that it failed."""
    before = everything(hub)

    def full(*_: Any, **__: Any) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(Commits, "add", full)
        with pytest.raises(OSError, match="no space left"):
            hub.receive(records(spark, [message("lost", "plain", 9)], received_at=AT))
    assert rows_of(hub.messages().where("message_identifier = 'lost'")) == []
    assert everything(hub) == before


def test_a_hub_that_is_opened_again_goes_on_where_the_other_stopped(
    spark: SparkSession, hub: Hub, place: Path
) -> None:
    again = Hub(spark, schema(DOCUMENT), place / "tables", readers={"fragile": fragile}, files=place)
    assert [values(again, name) for name in NAMES] == [values(hub, name) for name in NAMES]
    (receipt,) = receipts_of(again, records(spark, [message("plain", "plain", 7)], received_at=AT))
    assert receipt["status"] == 5


def test_what_has_an_odd_name_is_merged_a_second_time(spark: SparkSession, hub: Hub) -> None:
    """The rows of entities that a run does not touch are kept as they are."""
    name = NAMES[1]
    hub.receive(records(spark, [message("second", f"source {name}", 5)], received_at=AT + timedelta(hours=2)))
    hub.run(now=AT + timedelta(hours=2))
    assert values(hub, name) == [("k0", 5), ("k1", 2)]


# Looking -------------------------------------------------------------------------------------------------


def test_opening_a_hub_and_asking_it_write_and_delete_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """Not in a place where nothing is, and not what another program is just writing."""
    place = tmp_path / "hub"
    nothing = Hub(spark, SHOP, place)
    assert (rows_of(nothing.messages()), rows_of(nothing.history("product"))) == ([], [])
    nothing.run(now=AT)
    assert not place.exists()
    nothing.receive([product("1"), {"entity": "nobody"}], received_at=AT)
    nothing.run(now=AT)
    under_way = place / "history.product" / f"cdc-{'0' * 32}.parquet"
    under_way.write_bytes(b"half a file")
    before = files(place)
    hub = Hub(spark, SHOP, place)
    answers = [hub.messages(), hub.log(), hub.rejects(), hub.history("product"), hub.changes("product")]
    assert all(rows_of(each) for each in answers)
    assert rows_of(hub.query({"entity": "product", "where": {"no": "1"}}, now=AT))
    assert files(place) == before


# Two hubs on one place -----------------------------------------------------------------------------------


def between(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, *happens: Callable[[], object]
) -> list[str]:
    """Let something happen each time before a function is called, the first times; how often it was."""
    called: list[str] = []
    function, left = getattr(module, name), list(happens)

    def patched(*args: Any, **kwargs: Any) -> Any:
        called.append(name)
        if left:
            left.pop(0)()
        return function(*args, **kwargs)

    monkeypatch.setattr(module, name, patched)
    return called


def test_what_two_receive_at_once_both_lands_and_one_message_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that commits later compares with what the other one brought."""
    one, other = Hub(spark, SHOP, tmp_path), Hub(spark, SHOP, tmp_path)
    faster = [product("same", "other"), product("2")]
    called = between(monkeypatch, state, "with_statuses", lambda: other.receive(faster, received_at=AT))
    assert received(receipts_of(one, [product("same", "one"), product("1")], received_at=AT)) == [
        ("1", 0),
        ("same", 5),
    ]
    assert len(called) == 3
    one.run(now=AT)
    assert names(one) == names(other) == [("1", "kettle"), ("2", "kettle"), ("same", "other")]


def test_whoever_receives_a_batch_that_another_one_receives_meanwhile_gets_its_receipts(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one receives something else first, so that its receipt has another number."""
    one, other = Hub(spark, SHOP, tmp_path), Hub(spark, SHOP, tmp_path)
    batch = records(spark, [product("1"), product("2")], received_at=AT)

    def faster() -> None:
        other.receive([product("3")], received_at=AT)
        other.receive(batch, "a")

    between(monkeypatch, state, "with_statuses", faster)
    assert one.receive(batch, "a").repeated
    assert received(rows_of(one.receipts(batch="a"))) == [("1", 0), ("2", 0)]
    assert statuses(one) == {"1": 0, "2": 0, "3": 0}


def test_whoever_is_always_overtaken_is_told(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = Hub(spark, SHOP, tmp_path), Hub(spark, SHOP, tmp_path)
    monkeypatch.setattr(cdckit.store.store, "_TRIES", 2)
    faster = [lambda n=n: other.receive([product(f"f{n}")], received_at=AT) for n in range(3)]
    # The other one is called in the same way, so that every second call is its own.
    between(monkeypatch, state, "with_statuses", faster[0], lambda: None, faster[1])
    with pytest.raises(ConflictingCommit, match="messages"):
        one.receive([product("slow")], received_at=AT)
    assert statuses(one) == {"f0": 0, "f1": 0}


def test_what_is_received_during_a_run_is_for_the_next_one(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lands at once, and the run is not done again."""
    one, other = Hub(spark, SHOP, tmp_path), Hub(spark, SHOP, tmp_path)
    one.receive([product("1")], received_at=AT)
    seen: list[dict[str, int]] = []

    def meanwhile() -> None:
        other.receive([product("2")], received_at=AT)
        seen.append(statuses(other))

    called = between(monkeypatch, cdckit.datahub.runs, "facts", meanwhile)
    one.run(now=AT)
    assert (len(called), seen) == (1, [{"1": 4, "2": 0}])
    assert statuses(other) == {"1": 10, "2": 0}
    other.run(now=AT)
    assert statuses(one) == {"1": 10, "2": 10}
    assert names(one) == [("1", "kettle"), ("2", "kettle")]


def test_of_two_runs_at_once_the_later_one_finds_nothing_left_to_do(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where there is no lock for which one could wait, as in an object store."""
    one, other = Hub(spark, SHOP, tmp_path), Hub(spark, SHOP, tmp_path)
    one._under_way = other._under_way = RunFile(None)
    one.receive([product("1")], received_at=AT)
    between(monkeypatch, cdckit.datahub.runs, "facts", lambda: other.run(now=AT))
    one.run(now=AT)
    assert names(one) == [("1", "kettle")]
    assert [row["attempts"] for row in rows_of(one.messages())] == [1]
    assert one.log().count() == one.changes("product").count() == 1


# Batches -------------------------------------------------------------------------------------------------


def test_a_batch_is_received_once(spark: SparkSession, tmp_path: Path) -> None:
    """A second time, its receipts are those of the first; its id is not for anything else."""
    hub = Hub(spark, SHOP, tmp_path)
    batch = records(spark, [product("1"), {"data": []}], received_at=AT)
    hub.receive([product("0")], received_at=AT)
    assert hub.receive(batch, 7).records == 2
    first = hub.receipts(batch=7)
    assert sorted(row["status"] for row in rows_of(first)) == [0, 22]
    version = hub.store.snapshot().version
    again = Hub(spark, SHOP, tmp_path).receive(batch.repartition(3), batch="7")
    assert (again.repeated, again.records) == (True, 0)
    assert sorted(map(repr, rows_of(hub.receipts(batch="7")))) == sorted(map(repr, rows_of(first)))
    assert hub.store.snapshot().version == version
    # Equal records at other places are not those that were received.
    for other in ([product("2")], batch.withColumn("offset", F.col("offset") + 2)):
        with pytest.raises(BatchIdReused, match="'7'"):
            hub.receive(other, batch=7)
    assert statuses(hub) == {"0": 0, "1": 0}
    # The place of a document is when it was handed over: a list that is handed over again is the same batch.
    hub.receive([product("3")], "list", received_at=AT)
    assert hub.receive([product("3")], "list").repeated
    # A batch that repeats messages of another one is not the same batch.
    assert sorted(row["status"] for row in receipts_of(hub, batch, 8)) == [5, 5]


@pytest.mark.parametrize("batch", ["", True, 1.5])
def test_a_batch_id_is_a_text_or_a_number(spark: SparkSession, tmp_path: Path, batch: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"receive\(\) needs batch to be a text or a number"):
        Hub(spark, SHOP, tmp_path).receive([product("1")], batch)


def test_a_stream_is_no_batch(spark: SparkSession, tmp_path: Path) -> None:
    hub = Hub(spark, SHOP, tmp_path / "hub")
    (tmp_path / "topic").mkdir()
    stream = spark.readStream.schema(RECORD_SCHEMA).parquet(str(tmp_path / "topic"))
    with pytest.raises(InvalidArgument, match=r"needs records to be a batch .*foreachBatch\(hub\.sink"):
        hub.receive(stream)
    with pytest.raises(InvalidArgument, match=r"sink\(\) needs name"):
        hub.sink("")


def test_a_stream_is_received_once_though_it_forgets_how_far_it_was(
    spark: SparkSession, tmp_path: Path
) -> None:
    hub = Hub(spark, SHOP, tmp_path / "hub")
    came = records(spark, [product("1"), product("2")], received_at=AT)
    came.write.parquet(str(tmp_path / "topic"))
    for checkpoint in ("first", "second"):
        stream = spark.readStream.schema(RECORD_SCHEMA).parquet(str(tmp_path / "topic"))
        writer = stream.writeStream.foreachBatch(hub.sink("a stream")).trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / checkpoint)).start().awaitTermination()
    assert hub.store.snapshot().read("messages").count() == 2
    assert statuses(hub) == {"1": 0, "2": 0}


# Other places, and damage --------------------------------------------------------------------------------


def test_a_folder_with_foreign_files_keeps_them(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("notes.txt", "parts/000001/mine.parquet", "history.product/mine.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("mine")
    hub = Hub(spark, SHOP, tmp_path)
    hub.receive([product("1")], received_at=AT)
    hub.run(now=AT)
    hub.store.vacuum(timedelta(0))
    assert names(hub) == [("1", "kettle")]
    for name in ("notes.txt", "parts/000001/mine.parquet", "history.product/mine.txt"):
        assert (tmp_path / name).read_text() == "mine"


def test_the_hub_of_an_earlier_version_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "current.json").write_text("{}")
    with pytest.raises(OtherKind, match="a hub of an earlier form"):
        Hub(spark, SHOP, tmp_path)


def test_a_place_without_a_file_system_is_no_local_folder(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NoFileSystem, match="ftp"):
        Hub(spark, SHOP, "ftp://bucket/hub")
    assert files(tmp_path) == {}


def test_messages_that_are_not_there_are_missed(spark: SparkSession, tmp_path: Path) -> None:
    """A file that was deleted, and the table without which nobody knows which files count."""
    hub = Hub(spark, SHOP, tmp_path)
    hub.receive([product("1")], received_at=AT)
    for each in (tmp_path / "messages").glob("*.parquet"):
        each.unlink()
    with pytest.raises(DamagedTable, match="messages"):
        hub.messages()
    with pytest.raises(DamagedTable, match="messages"):
        hub.run(now=AT)
    (tmp_path / "commits").rename(tmp_path / "elsewhere")
    with pytest.raises(DamagedTable, match="commits"):
        Hub(spark, SHOP, tmp_path)
    assert (tmp_path / "messages" / "_delta_log").is_dir()


def test_a_table_that_grows_has_a_bounded_number_of_files(spark: SparkSession, tmp_path: Path) -> None:
    store = Store(spark, tmp_path)
    for number in range(18):
        with store.begin() as tables:
            tables.append("log", pa.table({"n": [number]}), compact_at=MANY_FILES)
            tables.commit()
    assert len(store.snapshot().files("log")) == 3  # sixteen as one, and the two since
    assert sorted(row["n"] for row in rows_of(store.snapshot().read("log"))) == list(range(18))
