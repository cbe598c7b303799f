"""What every door that remembers promises, beyond `test_doors`: the verbs and questions of a `Shell`."""

from __future__ import annotations

import shutil
from datetime import timedelta
from functools import reduce
from operator import and_
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit import datahub
from cdckit.errors import InvalidArgument, WrongCall
from cdckit.ledger import Receipt
from cdckit.ledger.shell import ReceiveResult
from cdckit.model.records import ERROR_CODE, ERROR_DESCRIPTION, RECORD_COLUMNS
from cdckit.store import BatchIdReused, OtherKind, Store
from support.doors import AT, SHELLS, Door, records, settle

LATE = AT + timedelta(days=1)


@pytest.fixture(params=SHELLS)
def door(request: pytest.FixtureRequest) -> Door:
    return SHELLS[request.param]()


class Settled(NamedTuple):
    """A shell that received no records, then those of its door, as documents, and applied them."""

    name: str
    door: Door
    place: Path
    shell: Any
    nothing: ReceiveResult
    received: ReceiveResult


@pytest.fixture(scope="module", params=SHELLS)
def settled(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Settled:
    """For what changes nothing in it: to receive and to apply costs more than most questions."""
    door, place = SHELLS[request.param](), tmp_path_factory.mktemp(request.param)
    shell = door.open(spark, place)
    nothing = shell.receive(door.records(spark).limit(0), "nothing")
    received = shell.receive(list(door.values), received_at=AT, **door.documents)
    settle(shell)
    return Settled(request.param, door, place, shell, nothing, received)


Rows = list[dict[str, Any]]


def rows(table: DataFrame) -> Rows:
    return sorted(table.select(*sorted(table.columns)).toArrow().to_pylist(), key=repr)


def answers(shell: Any) -> dict[str, Rows]:
    histories = {name: rows(view.history()) for name, view in shell.ledgers().items()}
    return {"waiting": rows(shell.waiting()), "rejects": rows(shell.rejects()), **histories}


def files(place: Path) -> list[str]:
    return sorted(str(path) for path in place.rglob("*"))


def test_a_batch_that_comes_again_is_told_by_its_id(spark: SparkSession, settled: Settled) -> None:
    """In any order of its rows; another content under its id is an error."""
    shell, nothing = settled.shell, settled.door.records(spark).limit(0)
    again = shell.receive(nothing, "nothing")
    assert (again.records, again.repeated) == (0, True)
    with pytest.raises(BatchIdReused, match="nothing"):
        shell.receive(records(spark, [b"!"]), "nothing")


def test_documents_in_another_order_are_another_batch(spark: SparkSession, settled: Settled) -> None:
    """They stand in their order, whenever they are handed over: of two of one time the later one counts."""
    shell, values = settled.shell, [b"!", b"?"]
    shell.receive(values, "tuesday", **settled.door.documents)
    assert shell.receive(values, "tuesday", received_at=AT, **settled.door.documents).repeated
    with pytest.raises(BatchIdReused, match="tuesday"):
        shell.receive(values[::-1], "tuesday", **settled.door.documents)


def test_documents_are_received_as_records_of_their_time(spark: SparkSession, settled: Settled) -> None:
    door, shell = settled.door, settled.shell
    assert settled.nothing == ReceiveResult(1, 0)
    assert settled.received == ReceiveResult(2, len(door.values))
    [refused] = {bytes(row["value"]) for row in shell.rejects().where("value = X'3F'").collect()}
    assert refused == b"?"
    for naive in ({"received_at": AT.replace(tzinfo=None)}, {"received_at": "noon"}):
        with pytest.raises(InvalidArgument, match="needs received_at to be an aware datetime"):
            shell.receive([b"?"], **naive, **door.documents)
    with pytest.raises(InvalidArgument, match="received_at to be left out for a table"):
        shell.receive(door.records(spark), received_at=AT)


class Lived(NamedTuple):
    """What a copy of a settled shell answered before and after each of its verbs."""

    before: dict[str, Rows]
    wrote: bool
    columns: tuple[list[str], list[str]]
    contracts: set[str]
    expired: list[int]
    waiting: Rows
    rejects: Rows
    rebuilt: dict[str, Rows]


@pytest.fixture(scope="module")
def lived(settled: Settled, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lived:
    """It is asked, gives up what waited for two hours, and is made anew."""
    place = tmp_path_factory.mktemp(f"{settled.name}-lived")
    shutil.copytree(settled.place, place, dirs_exist_ok=True)
    shell, there = settled.door.open(spark, place), files(place)
    columns, contracts = (shell.waiting().columns, shell.rejects().columns), set(shell.contracts())
    before, wrote = answers(shell), files(place) != there
    wait = timedelta(hours=2)
    expired = [shell.expire(now, wait) for now in (AT + wait, LATE, LATE)]
    waiting, refused = rows(shell.waiting()), rows(shell.rejects())
    shell.rebuild()
    return Lived(before, wrote, columns, contracts, expired, waiting, refused, answers(shell))


def test_questions_write_nothing_and_have_one_shape_in_every_door(lived: Lived) -> None:
    waiting, refused = lived.columns
    assert waiting[:8] == refused[:8] == list(RECORD_COLUMNS)
    assert waiting[-2:] == ["waiting_since", "waiting_for"]
    assert refused[-2:] == [ERROR_CODE, ERROR_DESCRIPTION]
    assert {"rejects", "ledgers"} <= lived.contracts
    assert not lived.wrote


def test_what_waited_too_long_is_given_up_once_and_is_a_reject_then(lived: Lived) -> None:
    [waits] = lived.before["waiting"]
    assert waits["waiting_since"] == AT
    assert waits["waiting_for"]
    assert lived.expired == [0, 1, 0]
    assert lived.waiting == []
    assert len(lived.rejects) == len(lived.before["rejects"]) + 1
    assert waits["value"] in [row["value"] for row in lived.rejects]


def test_a_rebuild_lets_only_what_was_given_up_wait_again(lived: Lived, settled: Settled) -> None:
    """But in a hub, where it stays a reject until its message is read again."""
    if isinstance(settled.shell, datahub.Hub):
        assert lived.rebuilt == {**lived.before, "waiting": lived.waiting, "rejects": lived.rejects}
    else:
        assert lived.rebuilt == lived.before


def test_older_commits_are_there_and_ledgers_that_are_not_there_are_named(
    settled: Settled,
) -> None:
    shell, first = settled.shell, settled.nothing.version
    now = next(view for view in shell.ledgers().values() if not view.history().isEmpty())
    assert now.history().count() == now.as_of(LATE).count() == now.beliefs().count()
    assert {view.version for view in shell.ledgers(first).values()} <= {first}
    with pytest.raises(InvalidArgument, match=r"needs a name to be one of .*; it is 'nobody'"):
        _ = shell.ledgers()["nobody"]
    with pytest.raises(InvalidArgument, match="ledgers"):
        shell.ledgers(99)


def test_another_kind_of_store_is_refused(tmp_path: Path, spark: SparkSession, door: Door) -> None:
    with Store(spark, tmp_path / "strange").begin() as transaction:
        transaction.append("things", pa.table({"number": [1]}))
        transaction.commit()
    strange = files(tmp_path)
    with pytest.raises(OtherKind, match="it holds a store of the tables things"):
        door.open(spark, tmp_path / "strange")
    assert files(tmp_path) == strange
    others = [other for other in (SHELLS[name]() for name in SHELLS) if other.keys != door.keys]
    shell = door.open(spark, tmp_path / "own")
    assert files(tmp_path / "own") == [], "to open a shell writes nothing"
    shell.receive(door.records(spark).limit(0), "nothing")
    for other in others:
        with pytest.raises(OtherKind, match=shell.kind.split(" (")[0]):
            other.open(spark, tmp_path / "own")


# Who is forgotten -----------------------------------------------------------------------------------------

ERASED: dict[str, tuple[str, dict[str, Any]]] = {
    "debezium": ("items", {"item": "1"}),
    "replicate": ("db1/shop_task SHOP.ITEMS", {"id": 1}),
    "datahub": ("product", {"number": 1}),
    "databus": ("planes", {"tail": "N1"}),
    "rdss": ("ResearchObject", {"objectUUID": "00000384-0000-4000-8000-000000000000"}),
    "streams": ("entity", {"db": "d", "collection": "C", "zone": "z", "entity": "e"}),
}
"""By door the ledger and the key of the one entity of which its records speak."""


class Forgotten(NamedTuple):
    """A receipt, the changes of others before it, and all changes after it, and when all came again."""

    receipt: Receipt
    others: Rows
    changes: tuple[Rows, Rows]


@pytest.fixture(scope="module")
def forgotten(settled: Settled, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Forgotten:
    """A copy of a settled shell forgets its entity, and then receives all records once more."""
    ledger, keys = ERASED[settled.name]
    place = tmp_path_factory.mktemp(f"{settled.name}-forgotten")
    shutil.copytree(settled.place, place, dirs_exist_ok=True)
    shell = settled.door.open(spark, place)
    of_it = [F.col("data")[name] == value for name, value in keys.items() if name in settled.door.keys]
    others = rows(settled.door.changes(shell).where(~reduce(and_, of_it)))
    receipt = shell.erase(ledger, keys=[keys], by="dana", reason="asked for by letter")
    after = rows(settled.door.changes(shell))
    shell.receive(settled.door.records(spark).withColumn("offset", F.col("offset") + 100))
    settle(shell)
    return Forgotten(receipt, others, (after, rows(settled.door.changes(shell))))


def test_who_was_erased_is_gone_and_does_not_come_again(forgotten: Forgotten) -> None:
    assert forgotten.receipt.is_proven
    assert forgotten.receipt.entities == 1
    assert forgotten.changes == (forgotten.others, forgotten.others)


def test_a_misspelt_argument_is_told_with_the_one_that_is_meant(settled: Settled) -> None:
    """In the shell's own methods and in those of the door, before anything is read."""
    for call, meant in (
        (lambda: settled.shell.receive([], "b", recieved_at=AT), r"is no argument \(is it received_at\?\)"),
        (lambda: settled.shell.publish("a", target="t", fomr=None), r"fomr is no argument \(is it form\?\)"),
    ):
        with pytest.raises(WrongCall, match=meant):
            call()
