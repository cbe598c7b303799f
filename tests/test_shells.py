"""What every door that remembers promises, beyond `test_doors`: the verbs and questions of a `Shell`."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit import datahub
from cdckit.errors import InvalidArgument
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
    return Settled(door, place, shell, nothing, received)


def rows(table: DataFrame) -> list[str]:
    return sorted(repr(row) for row in table.select(*sorted(table.columns)).toArrow().to_pylist())


def answers(shell: Any) -> dict[str, list[str]]:
    histories = {name: rows(view.history()) for name, view in shell.ledgers().items()}
    return {"waiting": rows(shell.waiting()), "rejects": rows(shell.rejects()), **histories}


def files(place: Path) -> list[str]:
    return sorted(str(path) for path in place.rglob("*"))


def test_a_batch_id_is_applied_once(spark: SparkSession, tmp_path: Path, door: Door) -> None:
    """Also by another handle, in another order, and by a stream; another content under it is an error."""
    shell, sent = door.open(spark, tmp_path), door.records(spark)
    count = len(door.values)
    assert shell.receive(sent, "monday") == ReceiveResult(1, count)
    again = door.open(spark, tmp_path).receive(sent.orderBy(F.desc("offset")), "monday")
    assert again == ReceiveResult(1, 0, repeated=True)
    with pytest.raises(BatchIdReused, match="monday"):
        shell.receive(sent.limit(1), "monday")
    assert shell.store.snapshot().version == 1
    take = shell.sink("landing")
    more = records(spark, [b"!"])
    assert (take(more, 0).records, take(more, 0).repeated) == (1, True)
    assert shell.sink("elsewhere")(more, 0).repeated is False


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


def test_a_rebuild_changes_nothing_but_that_what_was_given_up_waits_again(
    spark: SparkSession, tmp_path: Path, settled: Settled
) -> None:
    """What waits and is given up is a reject then; in a hub it stays one, until it is read again."""
    shutil.copytree(settled.place, tmp_path, dirs_exist_ok=True)
    shell = settled.door.open(spark, tmp_path)
    place = files(tmp_path)
    waiting, refused = shell.waiting(), shell.rejects()
    assert waiting.columns[:8] == refused.columns[:8] == list(RECORD_COLUMNS)
    assert waiting.columns[-2:] == ["waiting_since", "waiting_for"]
    assert refused.columns[-2:] == [ERROR_CODE, ERROR_DESCRIPTION]
    [waits] = waiting.collect()
    assert waits["waiting_since"].replace(tzinfo=AT.tzinfo) == AT
    assert waits["waiting_for"]
    before = answers(shell)
    assert {"rejects", "ledgers"} <= set(shell.contracts())
    assert all(view.version == shell.store.snapshot().version for view in shell.ledgers().values())
    assert files(tmp_path) == place, "questions write nothing"
    shell.rebuild()
    assert answers(shell) == before

    wait = timedelta(hours=2)
    assert shell.expire(AT + wait, wait) == 0
    assert shell.expire(LATE, wait) == 1
    assert shell.expire(LATE, wait) == 0
    assert shell.waiting().isEmpty()
    assert shell.rejects().count() == len(before["rejects"]) + 1
    assert {row["value"] for row in shell.rejects().collect()} >= {waits["value"]}
    if not isinstance(shell, datahub.Hub):
        shell.rebuild()
        assert answers(shell) == before


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
