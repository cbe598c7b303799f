"""
What every door promises, asked of all of them: a new door adds itself to `support.doors`.

Every record becomes a change, waits, is a reject, or is one that the door names otherwise; changes have the
shape that `merge` takes; rejects are records again.  A door that remembers has the verbs and questions of a
`Shell`, too: each lives once, and all tests ask that one life.
"""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from cdckit import Ledger, datahub, merge
from cdckit.errors import InvalidArgument, WrongCall
from cdckit.model.changes import require_changes
from cdckit.model.faults import ERROR_CODE, ERROR_DESCRIPTION
from cdckit.model.records import RECORD_COLUMNS
from cdckit.model.rejected_records import usable_changes
from cdckit.shell.shell import ReceiveResult
from cdckit.store import BatchIdReused, OtherKind, Store
from support.doors import (
    AT,
    BY_HAND,
    FREE,
    SHELLS,
    Door,
    Forgotten,
    Rows,
    forget_entity,
    records,
    rows,
    settle,
)

LATE = AT + timedelta(days=1)
OF_A_DOCUMENT = {None, int(AT.timestamp()) * 1_000_000}
"""No offset, or that of the time at which it was received."""


class Settled(NamedTuple):
    """A shell that received a document, then the values of its door as records from one on, and applied."""

    name: str
    door: Door
    place: Path
    shell: Any
    first: int
    documents: list[bytes]
    sent: DataFrame
    document: ReceiveResult
    received: ReceiveResult


@pytest.fixture(scope="module", params=SHELLS)
def settled(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Settled:
    """For what changes nothing in it: to receive and to apply costs more than most questions."""
    door, place = SHELLS[request.param](), tmp_path_factory.mktemp(request.param)
    # Of Databus a document is in no window with records, whose places tell their windows.
    first, documents = (0, [b"!"]) if request.param == "databus" else (1, list(door.values[:1]))
    shell, sent = door.open(spark, place), door.records(spark).where(f"offset >= {first}")
    document = shell.receive(documents, "first", received_at=AT, **door.documents)
    received = shell.receive(sent)
    settle(shell)
    return Settled(request.param, door, place, shell, first, documents, sent, document, received)


class Run(NamedTuple):
    """What a door made of its records, from which one on they came with offsets, and how many they are."""

    first: int
    count: int
    changes: DataFrame
    outcomes: list[set[int]]
    """The records that are rejects, that wait, and that are named otherwise."""


def run_of_shell(settled: Settled) -> Run:
    door, shell, sent = settled.door, settled.shell, settled.sent
    came = headers(sent)
    kept = headers(shell.rejects()) | headers(shell.waiting())
    assert kept.items() <= came.items()
    assert any(kept.values()), "none of them came with headers"
    outcomes = [offsets(each) for each in (shell.rejects(), shell.waiting(), door.named(shell, sent))]
    assert outcomes[1] == door.waiting
    return Run(settled.first, len(door.values), door.changes(shell), outcomes)


def headers(rows: DataFrame) -> dict[int, Any]:
    return {row["offset"]: row["headers"] for row in rows.collect() if row["offset"] not in OF_A_DOCUMENT}


def offsets(rows: DataFrame) -> set[int]:
    return {row[0] for row in rows.select("offset").collect()} - OF_A_DOCUMENT


def require_one_outcome_each(run: Run) -> None:
    require_changes(run.changes)
    changed = {row[0] for row in usable_changes(run.changes).select("arrival.offset").collect()}
    assert changed
    assert run.outcomes[0]
    found = [offset for each in [changed - OF_A_DOCUMENT, *run.outcomes] for offset in each]
    assert sorted(found) == list(range(run.first, run.count))


def test_every_record_is_a_change_or_waits_or_is_a_reject_or_is_named(settled: Settled) -> None:
    require_one_outcome_each(run_of_shell(settled))


def as_set(refused: DataFrame) -> set[tuple[bytes, str]]:
    return {(bytes(row["value"]), row["error_code"]) for row in refused.collect()}


@pytest.mark.parametrize("name", FREE)
def test_so_it_is_where_nothing_is_kept(spark: SparkSession, name: str) -> None:
    """And rejects are rejects again."""
    door = FREE[name](spark)
    once = door.refused(door.sent)
    require_one_outcome_each(Run(0, door.count, door.changes, [offsets(once), door.named]))
    assert merge(door.changes, entity="thing", keys=door.keys).count() > 0
    assert as_set(door.refused(once.select(*RECORD_COLUMNS))) == as_set(once)


@pytest.mark.parametrize("name", BY_HAND)
def test_what_cannot_be_used_is_counted_and_kept_by_a_ledger(
    name: str, spark: SparkSession, tmp_path: Path
) -> None:
    door = BY_HAND[name](spark)
    ledger = Ledger(spark, tmp_path, entity="thing", keys=door.keys, buckets=1)
    assert ledger.apply(door.changes).rejects == len(door.refused)
    assert as_set(ledger.rejects()) == door.refused
    assert ledger.history().count() >= 1


def test_a_batch_that_comes_again_is_told_by_its_id(spark: SparkSession, settled: Settled) -> None:
    """Another content under its id is an error."""
    shell, door = settled.shell, settled.door
    again = shell.receive(settled.documents, "first", received_at=AT, **door.documents)
    assert (again.records, again.repeated) == (0, True)
    with pytest.raises(BatchIdReused, match="first"):
        shell.receive(records(spark, [b"#"]), "first")


def test_documents_in_another_order_are_another_batch(spark: SparkSession, tmp_path: Path) -> None:
    """They stand in their order, whenever they are handed over: of two of one time the later one counts."""
    shell, values = SHELLS["rdss"]().open(spark, tmp_path), [b"!", b"?"]
    shell.receive(values, "tuesday", received_at=AT)
    assert shell.receive(values, "tuesday", received_at=AT).repeated
    with pytest.raises(BatchIdReused, match="tuesday"):
        shell.receive(values[::-1], "tuesday", received_at=AT)


def test_documents_are_received_as_records_of_their_time(settled: Settled) -> None:
    door, shell = settled.door, settled.shell
    assert settled.document == ReceiveResult(1, 1)
    assert settled.received == ReceiveResult(2, len(door.values) - settled.first)
    for naive in ({"received_at": AT.replace(tzinfo=None)}, {"received_at": "noon"}):
        with pytest.raises(InvalidArgument, match="needs received_at to be an aware datetime"):
            shell.receive([b"?"], **naive, **door.documents)
    with pytest.raises(InvalidArgument, match="received_at to be left out for a table"):
        shell.receive(settled.sent, received_at=AT)


def answers(shell: Any) -> dict[str, Rows]:
    histories = {name: rows(view.history()) for name, view in shell.ledgers().items()}
    return {"waiting": rows(shell.waiting()), "rejects": rows(shell.rejects()), **histories}


def files(place: Path) -> list[str]:
    return sorted(str(path) for path in place.rglob("*"))


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
    shell, first = settled.shell, settled.document.version
    now = next(view for view in shell.ledgers().values() if not view.history().isEmpty())
    assert now.history().count() == now.as_of(LATE).count() == now.beliefs().count()
    assert {view.version for view in shell.ledgers(first).values()} <= {first}
    with pytest.raises(InvalidArgument, match=r"needs a name to be one of .*; it is 'nobody'"):
        _ = shell.ledgers()["nobody"]
    with pytest.raises(InvalidArgument, match="ledgers"):
        shell.ledgers(99)


def test_another_kind_of_store_is_refused(tmp_path: Path, spark: SparkSession, settled: Settled) -> None:
    door = settled.door
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
    assert shell.receive(door.records(spark).limit(0), "nothing") == ReceiveResult(1, 0)
    for other in others:
        with pytest.raises(OtherKind, match=shell.kind.split(" (")[0]):
            other.open(spark, tmp_path / "own")


def test_a_misspelt_argument_is_told_with_the_one_that_is_meant(settled: Settled) -> None:
    """In the shell's own methods and in those of the door, before anything is read."""
    for call, meant in (
        (lambda: settled.shell.receive([], "b", recieved_at=AT), r"is no argument \(is it received_at\?\)"),
        (lambda: settled.shell.publish("a", target="t", fomr=None), r"fomr is no argument \(is it form\?\)"),
    ):
        with pytest.raises(WrongCall, match=meant):
            call()


@pytest.fixture(scope="module", params=["debezium", "rdss"])
def forgotten(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Forgotten:
    """One whose ledgers are of tables, and one whose are not; all: tests/heavy/test_long_shells.py."""
    return forget_entity(spark, request.param, tmp_path_factory.mktemp(f"{request.param}-forgotten"))


def test_who_was_erased_is_gone_and_does_not_come_again(forgotten: Forgotten) -> None:
    forgotten.require_gone()


def test_rejects_are_records_that_can_be_fed_again(settled: Settled) -> None:
    """As they are they are rejects again, and nothing else becomes of them; the last test of a shell."""
    once = as_set(settled.shell.rejects())
    settled.shell.receive(settled.shell.rejects().select(*RECORD_COLUMNS))
    settle(settled.shell)
    assert as_set(settled.shell.rejects()) == once
