"""`Ledger.erase`: of who was erased nothing is in any file; of everybody else every answer is as it was."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from cdckit.errors import InvalidArgument, UnfitList
from cdckit.ledger import Ledger, UnfinishedErasure, UnknownEntities, intake, ledger
from cdckit.ledger.erasure import erasure_requests, erasure_steps, forgotten_entities
from cdckit.outputs import scd_type_2
from cdckit.parts import at_home
from cdckit.store import ForeignChange, NoSuchTable, OtherKind, Store
from cdckit.store import erasure as store_erasure
from cdckit.store import transaction as store_transaction
from support.dying import Died, dies_at
from support.erasures import WHO, apply_all, keys_of, names_in, nights, numbered, opened, told
from support.histories import Row, assert_folds_to, to_dataframe
from support.ledger_programs import all_of
from support.people import ENTITY, FIELDS, KEYS, person_of, personal_batches, traces
from support.remains import find_remains
from tools.tiers import seeds


@seeds(1, soak=8)
def test_people_known_by_their_guids_are_forgotten(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """Of whom a source says who they are by guids of its own, and carries no key."""
    found = opened(spark, tmp_path)
    parts = personal_batches(seed, 40, most=3, guids=True, keys_carried=False)
    for batch in parts:
        found.apply(to_dataframe(spark, batch, FIELDS))
    everything = all_of(parts)
    people = sorted({person_of(change) for change in everything})
    gone = set(random.Random(seed).sample(people, 20))
    theirs = [change for change in everything if person_of(change) in gone]
    rest = [change for change in everything if person_of(change) not in gone]
    subjects = traces(gone, theirs) | {change["guid"]: [change["guid"]] for change in theirs}
    guids = sorted({change["guid"] for change in theirs})
    with pytest.raises(InvalidArgument, match="keys to be a list of guids"):
        found.erase(keys=keys_of(theirs), **WHO)
    receipt = found.erase(keys=guids, **WHO)
    assert (receipt.entities, receipt.is_proven) == (len(guids), True)
    found.apply(to_dataframe(spark, everything, FIELDS))
    assert find_remains(tmp_path, subjects) == {}
    assert_folds_to(found.history(), rest, entity=ENTITY, keys=KEYS)
    assert found.refused().count() == len(theirs)
    found.check(deep=True)


@seeds(2, soak=8)
def test_some_fields_are_forgotten(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """As if nobody had ever sent them; and what is sent later is taken without them."""
    chance, fields = random.Random(seed), ["a", "c"]
    first, *more = personal_batches(seed, 40, ends=(False, False, True))
    found = opened(spark, tmp_path)
    found.apply(to_dataframe(spark, first, FIELDS))
    people = sorted({person_of(change) for change in first})
    some = set(chance.sample(people, len(people) // 2))
    keys = keys_of([change for change in first if person_of(change) in some])
    receipt = found.erase(keys=keys, fields=fields, later="erase", **WHO)
    gone = {(key["h"], key["k"]) for key in keys}

    def without(changes: Sequence[Row]) -> Iterator[Row]:
        for change in changes:
            is_theirs = (change["data"]["h"], change["data"]["k"]) in gone
            yield {
                **change,
                "data": {n: None if is_theirs and n in fields else v for n, v in change["data"].items()},
                "carried": {n: v and not (is_theirs and n in fields) for n, v in change["carried"].items()},
            }

    assert_folds_to(found.history(), list(without(first)), entity=ENTITY, keys=KEYS)
    later = all_of(more) + first[:5]
    found.apply(to_dataframe(spark, later, FIELDS))
    assert_folds_to(found.history(), list(without([*first, *later])), entity=ENTITY, keys=KEYS)
    found.check(deep=True)
    assert (receipt.fields, receipt.entities, receipt.is_proven) == (("a", "c"), len(keys), True)
    assert found.refused().isEmpty()
    assert sorted(row["field"] for row in found.erased().select("field").distinct().collect()) == fields


@pytest.fixture(scope="module")
def small(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger of 40 people in two commits; who changes it takes a copy."""
    place = tmp_path_factory.mktemp("small") / "ledger"
    found = numbered(spark, place)
    found.apply(told(spark, *((n, f"name{n:03d}.", 1) for n in range(40))))
    found.apply(told(spark, (1, "", 3), (2, "", 20), (3, "again003.", 2), (4, "again004.", 5)))
    return place


@pytest.fixture
def copy(spark: SparkSession, small: Path, tmp_path: Path) -> Ledger:
    shutil.copytree(small, tmp_path / "ledger")
    return numbered(spark, tmp_path / "ledger")


def test_by_condition_and_by_age(copy: Ledger, tmp_path: Path) -> None:
    """Whoever has ever been called so; and who has not been there for longer than is allowed."""
    assert copy.erase(where="v LIKE 'again%'", **WHO).entities == 2
    gone = {"3": ["again003.", "name003."], "4": ["again004.", "name004."]}
    at = datetime(2024, 2, 1, tzinfo=UTC)
    assert copy.erase(keep=timedelta(days=20), at=at, **WHO).entities == 1
    gone["1"] = ["name001."]
    assert find_remains(tmp_path, gone) == {}
    assert "name002." in names_in(copy)
    # By their instants.
    assert [receipt.entities for receipt in copy.receipts()] == [1, 2]
    copy.check(deep=True)


def test_whom_a_condition_and_an_age_do_not_meet_nobody_forgets(copy: Ledger) -> None:
    nobody = copy.erase(keep=timedelta(days=3650), at=datetime(2024, 2, 1, tzinfo=UTC), **WHO)
    assert (nobody.entities, nobody.parts, str(nobody)[:17]) == (0, (), "Erased all of 0 e")
    assert copy.erase(where="v = 'nobody'", **WHO).entities == 0


@pytest.mark.parametrize("is_much", [True, False])
def test_a_ledger_with_much_to_write_is_left_to_workers(
    copy: Ledger, monkeypatch: pytest.MonkeyPatch, is_much: bool
) -> None:
    """However few the entities are."""
    plain, left_to_workers = forgotten_entities.worker_reports, []

    def counted(source: Any, work: Any, **options: Any) -> Any:
        left_to_workers.append(options["heavy"])
        return plain(source, work, **options)

    history = sum(file.size for file in copy.store.snapshot().files("history"))
    monkeypatch.setattr(forgotten_entities, "BYTES_PER_TASK", history if is_much else 1 << 30)
    monkeypatch.setattr(forgotten_entities, "worker_reports", counted)
    assert copy.erase(where="true", **WHO).entities
    assert left_to_workers == [is_much]


def test_of_a_bucket_one_worker_forgets_however_many_they_are(
    copy: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than are held here: of two workers each would write the file anew, with whom the other erased."""
    for bound in ("HELD_ROWS", "WORK_ROWS"):
        monkeypatch.setattr(at_home, bound, 3)
    receipt = copy.erase(where="h >= 20", **WHO)
    assert (receipt.entities, receipt.is_proven) == (20, True)
    assert find_remains(tmp_path, {str(n): [f"name{n:03d}."] for n in range(20, 40)}) == {}
    assert names_in(copy) == ["again003.", "again004.", *(f"name{n:03d}." for n in range(20))]
    assert copy.changes().count() == 24
    copy.check(deep=True)


def test_only_files_that_hold_them_are_written(copy: Ledger) -> None:
    snapshot = copy.store.snapshot()
    before = {name: {one.path for one in snapshot.files(name)} for name in ("changes", "history", "unborn")}
    holding = {
        name: {
            path
            for path in paths
            if 7 in snapshot.arrow(name, files=[file_of(snapshot, name, path)])["h"].to_pylist()
        }
        for name, paths in before.items()
        if name == "history"
    }
    receipt = copy.erase(keys=[{"h": 7}], **WHO)
    removed = {
        name: {path for part in receipt.parts if part.table == name for path in part.removed}
        for name in before
    }
    assert removed["history"] == holding["history"]
    assert [len(removed[name]) for name in before] == [1, 1, 0]
    assert receipt.untouched is not None
    kept = {name: len(before[name]) - len(removed[name]) for name in before}
    assert {name: count for name, (count, _) in receipt.untouched.items()} == kept


def file_of(snapshot: Any, name: str, path: str) -> Any:
    return next(one for one in snapshot.files(name) if one.path == path)


@pytest.mark.parametrize("reader", ["duckdb", "polars"])
def test_others_read_what_is_left(copy: Ledger, reader: str) -> None:
    """
    Other engines find the rows of everybody else, and no older version of the table.

    DuckDB's own extension for Delta is fetched from its server, which `tests/proofs` does where it can be
    had; here deltalake says which files there are, and DuckDB reads them.
    """
    engine = pytest.importorskip(reader, reason=f"{reader} comes with the extras dev and soak")
    copy.erase(keys=[{"h": 7}], **WHO)
    snapshot = copy.store.snapshot()
    path, version = snapshot.path("history"), snapshot.table("history").version
    if reader == "duckdb":
        connection = engine.connect()
        connection.register("kept", DeltaTable(path).to_pyarrow_dataset())
        seen = connection.sql("SELECT h, v FROM kept").fetchall()
    else:
        seen = engine.scan_delta(path).select("h", "v").collect().rows()
    assert sorted(seen, key=str) == sorted(
        (tuple(row) for row in copy.history().select("h", "v").collect()), key=str
    )
    assert 7 not in {number for number, _ in seen}
    with pytest.raises(Exception, match="No files in log segment"):
        DeltaTable(path, version=version - 1)


soak = pytest.mark.soak
STEPS = [
    pytest.param(erasure_steps, "_append_tombstones", 0, False, marks=soak),
    pytest.param(store_transaction.Commits, "add", 0, False, marks=soak),
    (store_transaction.table_plans, "carry_out", 1, True),
    pytest.param(ledger, "forget_past", 0, True, marks=soak),
    (store_erasure, "forget_versions", 1, True),
    pytest.param(store_erasure.Location, "delete", 3, True, marks=soak),
    pytest.param(erasure_steps, "finish", 0, True, marks=soak),
]


@pytest.mark.parametrize(("where", "what", "after", "has_begun"), STEPS)
def test_it_is_stopped_and_called_again(
    copy: Ledger,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    where: Any,
    what: str,
    after: int,
    has_begun: bool,
) -> None:
    """It is not done, or is done by the next call; meanwhile `check` says so."""
    subject, before = {"7": ["name007."]}, names_in(copy)
    dies_at(monkeypatch, where, what, after)
    with pytest.raises((Died, Exception)):
        copy.erase(keys=[{"h": 7}], **WHO)
    monkeypatch.undo()
    if has_begun:
        with pytest.raises(UnfinishedErasure, match="Call `erase` again"):
            copy.check()
    else:
        copy.check()
    assert names_in(copy) == [name for name in before if not (has_begun and name == "name007.")]
    receipt = copy.erase(keys=[{"h": 7}], **WHO)
    assert find_remains(tmp_path, subject) == {}
    assert (receipt.entities, copy.receipts()) == (1, [receipt])
    copy.check(deep=True)


def test_what_was_stopped_is_no_answer_to_others(copy: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is finished all the same; whoever asked for it as generally is told of it."""
    dies_at(monkeypatch, ledger, "forget_past", 0)
    with pytest.raises(Died):
        copy.erase(where="h = 7", **WHO)
    monkeypatch.undo()
    assert copy.erase(where="h = 7", by="eve", reason="by age").entities == 0
    [receipt] = copy.receipts()
    assert receipt.commit is not None
    again = erasure_requests.Request(None, "h = 7", None, None, **WHO, later="refuse", at=datetime.now(UTC))
    kind = copy._stored_kind(copy.store.snapshot())
    assert again.is_answered_by(receipt, kind)
    assert not replace(again, by="eve").is_answered_by(receipt, kind)
    assert copy.erase(keys=[{"h": 7}], **WHO) == receipt


def test_lists_that_say_other_things_of_the_rest_are_refused_after_an_erasure_too(
    spark: SparkSession, tmp_path: Path
) -> None:
    found = numbered(spark, tmp_path)
    apply_all(found, nights(spark, 2), by_list=False)
    found.erase(keys=[{"h": 1}], **WHO)
    other = nights(spark, 3)
    first = next(iter(other))
    other[first] = other[first].where("h = 1")
    with pytest.raises(UnfitList, match="1 rows of the two differ"):
        apply_all(found, other, by_list=False)


def test_a_writer_who_came_between_is_not_lost_and_brings_nobody_back(
    spark: SparkSession, copy: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each begins again on what the other has left."""
    more = told(spark, (7, "late007.", 9), (8, "late008.", 9))
    real, calls = erasure_steps.erase_from_ledger, list[int]()

    def overtaken(*given: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            real_commit = given[0].commit
            monkeypatch.setattr(
                given[0], "commit", lambda **named: (copy.apply(more), real_commit(**named))[1]
            )
        return real(*given)

    monkeypatch.setattr(erasure_steps, "erase_from_ledger", overtaken)
    receipt = copy.erase(keys=[{"h": 7}], **WHO)
    assert (len(calls), receipt.entities) == (2, 1)
    assert find_remains(tmp_path, {"7": ["late007.", "name007."]}) == {}
    assert "late008." in names_in(copy)
    copy.check(deep=True)


def test_two_erasures_at_once(copy: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One is done, and the other one says so; or does it after the first has ended."""
    real, refused = ledger.forget_past, list[int]()

    def beside(*given: Any) -> Any:
        monkeypatch.undo()
        with monkeypatch.context() as stopped:
            # Another one that looks before the first is finished.
            stopped.setattr(Ledger, "_finish_erasure", lambda *_: None)
            with pytest.raises(UnfinishedErasure):
                copy.erase(keys=[{"h": 8}], **WHO)
        refused.append(1)
        return real(*given)

    monkeypatch.setattr(ledger, "forget_past", beside)
    copy.erase(keys=[{"h": 7}], **WHO)
    copy.erase(keys=[{"h": 8}], **WHO)
    assert refused == [1]
    assert find_remains(tmp_path, {"7": ["name007."], "8": ["name008."]}) == {}
    copy.check(deep=True)


def test_a_batch_that_an_erasure_overtakes_is_taken_without_them(
    copy: Ledger, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it had read is gone: it begins again, and finds the tombstone."""
    more = told(spark, (7, "late007.", 9), (8, "late008.", 9))
    real, calls = intake.write_batch, list[int]()

    def overtaken(*given: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            copy.erase(keys=[{"h": 7}], **WHO)
        return real(*given)

    monkeypatch.setattr(intake, "write_batch", overtaken)
    assert copy.apply(more).news == 1
    assert len(calls) == 2
    copy.vacuum(timedelta(0))
    assert find_remains(tmp_path, {"7": ["late007.", "name007."]}) == {}
    assert copy.refused().count() == 1
    copy.check(deep=True)


def test_files_that_were_written_before_a_cleaning_up_are_written_again(
    copy: Ledger, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where an erasure that has begun deletes what no commit names, just before one names them."""
    real, calls = store_transaction.Transaction.commit, list[int]()

    def overtaken(tables: Any, **given: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            store_erasure.forget_past(copy.store.snapshot().location)
        return real(tables, **given)

    monkeypatch.setattr(store_transaction.Transaction, "commit", overtaken)
    assert copy.apply(told(spark, (7, "late", 9))).news == 1
    assert len(calls) == 2
    copy.check(deep=True)


def test_calls_that_cannot_be_meant(spark: SparkSession, copy: Ledger, tmp_path: Path) -> None:
    before = copy.at_commit().version
    with pytest.raises(UnknownEntities, match="of 2 of the 3 that were named it has no change"):
        copy.erase(keys=[{"h": 7}, {"h": 70}, {"h": 71}], **WHO)
    calls: list[tuple[dict[str, Any], str]] = [
        ({}, "keys to be a list or a table of keys"),
        ({"keys": []}, "keys to be .* at least one"),
        ({"keys": "7"}, "keys to be a list of keys"),
        ({"keys": [{"k": 7}]}, "keys to be a list of guids, or mappings of h"),
        ({"keys": [{"h": "seven"}]}, r"keys to be values of h \(int\)"),
        ({"keys": pd.DataFrame({"h": [7.5]})}, "a table whose column h has values of the type int"),
        ({"keys": [{"h": 7}], "where": "true"}, "keys to be None where"),
        ({"keys": [{"h": 7}], "fields": ["w"]}, "fields"),
        ({"keys": [{"h": 7}], "fields": ["h"]}, "fields to be none that is a key"),
        ({"keys": [{"h": 7}], "later": "accept"}, "later to be 'refuse' or 'erase'"),
        ({"keys": [{"h": 7}], "published": {tmp_path / "x": scd_type_2}}, "published"),
        ({"keep": timedelta(days=-1)}, "keep"),
    ]
    for call, needed in calls:
        with pytest.raises(InvalidArgument, match=needed):
            copy.erase(**call, **WHO)
    with pytest.raises(OtherKind):
        Ledger(spark, tmp_path / "ledger", entity="other", keys=["h"])
    with pytest.raises(NoSuchTable):
        numbered(spark, tmp_path / "new").erase(keys=[{"h": 7}], **WHO)
    DeltaTable(str(tmp_path / "ledger" / "history")).delete("h = 5")
    with pytest.raises(ForeignChange, match="'history': DELETE"):
        copy.erase(keys=[{"h": 7}], **WHO)
    assert copy.at_commit().version == before
    assert Store(spark, tmp_path / "ledger").snapshot().names() == ["changes", "history", "unborn"]
