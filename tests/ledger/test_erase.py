"""`Ledger.erase`: of who was erased nothing is in any file; of everybody else every answer is as it was."""

from __future__ import annotations

import hashlib
import random
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit import changes_from, changes_from_snapshots, why
from cdckit.errors import InvalidArgument, UnfitList
from cdckit.ledger import (
    Ledger,
    MovedEntities,
    UnfinishedErasure,
    UnknownEntities,
    erasure,
    ledger,
)
from cdckit.outputs import scd_type_2
from cdckit.store import ForeignChange, NoSuchTable, OtherKind, Store
from cdckit.store import erasure as store_erasure
from cdckit.store import transaction as store_transaction
from support.dying import Died, dies_at
from support.histories import INSTANTS, Row, assert_folds_to, plain, to_dataframe
from support.ledger_programs import all_of
from support.people import ENTITY, FIELDS, KEYS, person_of, personal_batches, traces
from support.remains import find_remains
from tools.tiers import seeds

WHO = {"by": "dana", "reason": "asked for by letter"}


def opened(spark: SparkSession, place: Path, **options: Any) -> Ledger:
    return Ledger(spark, place, entity=ENTITY, keys=KEYS, **{"buckets": 3, **options})


def digest(rows: DataFrame) -> str:
    texts = sorted(str(plain(row)) for row in rows.toArrow().to_pylist())
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


def answers(found: Ledger, key: Row, others: Sequence[int]) -> dict[str, str]:
    """Digests of what the ledger says of some people."""
    some = F.col("h").isin(list(others))
    told = {f"as of {at}": found.as_of(at, deletes=True) for at in INSTANTS[:2]}
    told |= {"history": found.history(), "beliefs": found.beliefs()}
    reasons = why(found.changes(), key, "a", keys=KEYS)
    return {name: digest(rows.where(some)) for name, rows in told.items()} | {"why": digest(reasons)}


def keys_of(changes: Sequence[Row]) -> list[Row]:
    keys = [{name: change["data"][name] for name in KEYS} for change in changes]
    return [dict(each) for each in dict.fromkeys(tuple(sorted(key.items(), key=str)) for key in keys)]


@seeds(1, soak=8)
def test_many_people_are_forgotten(
    spark: SparkSession, tmp_path: Path, seed: int, pytestconfig: pytest.Config
) -> None:
    """In log, history, older commits, logs, bounds, and a published table; later messages are refused."""
    many = 1_000 if pytestconfig.option.tier == "soak" else 40
    place, target = tmp_path / "ledger", tmp_path / "published"
    found, batches = opened(spark, place), personal_batches(seed, many + 50, most=3)
    for number, batch in enumerate(batches):
        found.apply(to_dataframe(spark, batch, FIELDS), f"batch {number}")
        if number == 1:
            found.publish(target)
    chance, everything = random.Random(seed), all_of(batches)
    everybody = sorted({person_of(change) for change in everything})
    gone = set(chance.sample(everybody, many))
    theirs = [change for change in everything if person_of(change) in gone]
    rest = [change for change in everything if person_of(change) not in gone]
    others, subjects = sorted({change["data"]["h"] for change in rest}), traces(gone, theirs)
    key = chance.choice(keys_of(rest))
    before = answers(found, key, others)
    assert {name for path in find_remains(place, subjects).values() for name in path} == set(subjects)
    keys = keys_of(theirs)
    receipt = found.erase(keys=keys, published={target: scd_type_2}, **WHO)
    assert find_remains(tmp_path, subjects) == {}
    assert answers(found, key, others) == before
    assert_folds_to(found.history(), rest, entity=ENTITY, keys=KEYS)
    found.check(deep=True)
    assert (receipt.entities, receipt.is_proven, found.receipts()) == (len(keys), True, [receipt])
    assert receipt.rows == sum(part.rows for part in receipt.parts) - sum(
        rest_rows(found, part.table, part.added) for part in receipt.parts
    )
    published = scd_type_2(found.history()).count()
    assert DeltaTable(str(target)).to_pyarrow_table().num_rows == published
    found.apply(to_dataframe(spark, everything, FIELDS))
    assert find_remains(tmp_path, subjects) == {}
    assert_folds_to(found.history(), rest, entity=ENTITY, keys=KEYS)
    refused = found.refused().groupBy("error_code").count().collect()
    assert [tuple(row) for row in refused] == [("ENTITY_ERASED", len(theirs))]
    assert found.erase(keys=keys[:3], **WHO) == receipt


def rest_rows(found: Ledger, table: str, paths: Sequence[str]) -> int:
    return sum(one.rows for one in found.store.snapshot().files(table) if one.path in paths)


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


def told(spark: SparkSession, *rows: tuple[int, str, int | None]) -> DataFrame:
    """What a shop says: the number, the name and from which day of January on; without a name a deletion."""
    table = spark.createDataFrame(
        [(number, name, day) for number, name, day in rows], "h int, v string, day int"
    )
    at = F.make_timestamp(F.lit(2024), F.lit(1), "day", F.lit(0), F.lit(0), F.lit(0))
    return changes_from(
        table.withColumn("at", at),
        keys=["h"],
        sequence_by="at",
        except_column_list=["at", "day"],
        apply_as_deletes="v = ''",
    )


@pytest.fixture(scope="module")
def small(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger of 40 people in two commits; who changes it takes a copy."""
    place = tmp_path_factory.mktemp("small") / "ledger"
    found = numbered(spark, place)
    found.apply(told(spark, *((n, f"name{n:03d}.", 1) for n in range(40))))
    found.apply(told(spark, (1, "", 3), (2, "", 20), (3, "again003.", 2), (4, "again004.", 5)))
    return place


def numbered(spark: SparkSession, place: Path) -> Ledger:
    return Ledger(spark, place, entity="e", keys=["h"], buckets=2)


@pytest.fixture
def copy(spark: SparkSession, small: Path, tmp_path: Path) -> Ledger:
    shutil.copytree(small, tmp_path / "ledger")
    return numbered(spark, tmp_path / "ledger")


def names_in(found: Ledger) -> list[str]:
    return sorted({row["v"] for row in found.history().collect() if row["v"]})


def test_by_condition_and_by_age(copy: Ledger, tmp_path: Path) -> None:
    """Whoever has ever been called so; and who has not been there for longer than is allowed."""
    assert copy.erase(where="v LIKE 'again%'", **WHO).entities == 2
    gone = {"3": ["again003.", "name003."], "4": ["again004.", "name004."]}
    at = datetime(2024, 2, 1, tzinfo=UTC)
    assert copy.erase(keep=timedelta(days=20), at=at, **WHO).entities == 1
    gone["1"] = ["name001."]
    assert find_remains(tmp_path, gone) == {}
    assert "name002." in names_in(copy)
    nobody = copy.erase(keep=timedelta(days=20), at=at, **WHO)
    assert (nobody.entities, nobody.parts, str(nobody)[:17]) == (0, (), "Erased all of 0 e")
    # By their instants.
    assert [receipt.entities for receipt in copy.receipts()] == [1, 2]
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
    path, version = snapshot.path("history"), snapshot.delta_version("history")
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
    pytest.param(erasure, "_append_tombstones", 0, False, marks=soak),
    pytest.param(store_transaction.Commits, "add", 0, False, marks=soak),
    (store_transaction.log, "carry_out", 1, True),
    pytest.param(ledger, "forget_past", 0, True, marks=soak),
    (store_erasure, "forget_versions", 1, True),
    pytest.param(store_erasure.Location, "delete", 3, True, marks=soak),
    pytest.param(ledger, "finish", 0, True, marks=soak),
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
    again = erasure.Request(None, "h = 7", None, None, **WHO, later="refuse", at=datetime.now(UTC))
    kind = copy._stored_kind(copy.store.snapshot())
    assert again.is_answered_by(receipt, kind)
    assert not replace(again, by="eve").is_answered_by(receipt, kind)
    assert copy.erase(keys=[{"h": 7}], **WHO) == receipt


def moved(spark: SparkSession, *moves: tuple[int, int]) -> DataFrame:
    """Changes of rows, each of which gets another number on 5 January, and does not send its name with it."""
    rows = [
        row
        for old, new in moves
        for row in (
            (old, 1, "upsert", True, None, None),
            (old, 5, "delete", False, old, new),
            (new, 5, "upsert", False, old, new),
        )
    ]
    table = spark.createDataFrame(
        [(*row, number) for number, row in enumerate(rows)],
        "h int, day int, operation string, carried_v boolean, old int, new int, number int",
    )
    name = F.format_string("name%03d.", "h")
    key = {side: F.struct(F.col(side).alias("h")) for side in ("old", "new")}
    move = F.struct(F.lit("1").alias("id"), key["old"].alias("old_key"), key["new"].alias("new_key"))
    at = F.make_timestamp(F.lit(2024), F.lit(1), "day", F.lit(0), F.lit(0), F.lit(0))
    place = (at.alias("timestamp"), F.lit("t").alias("topic"), F.lit(0).alias("partition"))
    rest = (F.col("number").cast("long").alias("offset"), F.lit(0).alias("record_number"))
    return table.select(
        "operation",
        at.alias("effective_timestamp"),
        F.format_string("%05d", "number").alias("sequence"),
        F.struct(*place, *rest).alias("arrival"),
        F.format_string("m%d", "number").alias("message_id"),
        F.lit("shop").alias("source"),
        F.lit(0).alias("priority"),
        F.struct("h", F.when(F.col("carried_v"), name).alias("v")).alias("data"),
        F.struct(F.lit(True).alias("h"), F.col("carried_v").alias("v")).alias("carried"),
        F.when(F.col("old").isNotNull(), move).alias("moved"),
    )


def test_a_row_that_had_several_keys_goes_with_all_of_them(spark: SparkSession, tmp_path: Path) -> None:
    """What it took along to another key stands there too."""
    found = numbered(spark, tmp_path)
    found.apply(moved(spark, (1001, 1002), (2001, 2002)))
    assert {row["v"] for row in found.as_of(datetime(2024, 1, 9, tzinfo=UTC)).collect()} == {
        "name1001.",
        "name2001.",
    }
    for key in (1001, 1002):
        with pytest.raises(MovedEntities, match="2 moves lead"):
            found.erase(keys=[{"h": key}], **WHO)
    found.erase(keys=spark.createDataFrame([(1001,), (1002,)], "h long"), **WHO)
    assert find_remains(tmp_path, {"1": ["name1001.", '"h":1001']}) == {}
    found.erase(keys=spark.createDataFrame([(2001,), (2002,)], "h long"), fields=["v"], **WHO)
    assert find_remains(tmp_path, {"2": ["name2001."]}) == {}
    assert names_in(found) == []
    found.check(deep=True)


def test_a_list_that_names_them_is_taken_without_them(spark: SparkSession, tmp_path: Path) -> None:
    found = numbered(spark, tmp_path)
    nights = [
        spark.createDataFrame([(n, f"name{n:03d}.", n) for n in some], "h int, v string, w int")
        for some in ([1, 2, 3], [1, 2, 3, 4])
    ]
    found.apply_list(nights[0], taken_at=datetime(2024, 1, 1, tzinfo=UTC))
    found.erase(keys=[{"h": 1}], **WHO)
    found.erase(keys=[{"h": 2}], fields=["v"], **WHO)
    found.apply_list(nights[1], taken_at=datetime(2024, 1, 2, tzinfo=UTC), max_deleted=0.5)
    assert find_remains(tmp_path, {"1": ["name001."], "2": ["name002."]}) == {}
    versions = found.history().where("NOT deleted_indicator").orderBy("h").collect()
    assert [(row["h"], row["v"], row["w"]) for row in versions] == [
        (2, None, 2),
        (3, "name003.", 3),
        (4, "name004.", 4),
    ]
    assert found.refused().isEmpty()
    # Of the four that the last list named three are left: an empty one would delete them all.
    empty = nights[0].limit(0)
    with pytest.raises(UnfitList, match="names nothing, and the list before it named 3"):
        found.apply_list(empty, taken_at=datetime(2024, 1, 3, tzinfo=UTC))


NIGHTS = {
    datetime(2024, 1, 1, tzinfo=UTC): {1: ("ann1.", 1), 2: ("bob1.", 1)},
    datetime(2024, 1, 2, tzinfo=UTC): {1: ("ann2.", 2), 2: ("bob2.", 2)},
    datetime(2024, 1, 3, tzinfo=UTC): {1: ("ann3.", 2), 2: ("bob3.", 2), 3: ("cyd3.", 3)},
    datetime(2024, 1, 4, tzinfo=UTC): {2: ("bob3.", 4), 3: ("cyd3.", 3)},
}
"""Full lists: name and number of some people."""


def nights(spark: SparkSession, count: int) -> dict[datetime, DataFrame]:
    return {
        at: spark.createDataFrame([(h, *said) for h, said in some.items()], "h int, v string, w int")
        for at, some in list(NIGHTS.items())[:count]
    }


def apply_all(found: Ledger, lists: dict[datetime, DataFrame], by_list: bool) -> None:
    """As changes of all lists in one call, or list for list."""
    if by_list:
        for at, rows in lists.items():
            found.apply_list(rows, taken_at=at)
    else:
        found.apply(changes_from_snapshots(lists, keys=["h"]))


def lists_of(found: Ledger) -> list[tuple[Any, ...]]:
    versions = found.history().orderBy("h", "valid_from_timestamp").collect()
    return [
        (row["h"], row["valid_from_timestamp"].day, row["v"], row["w"], row["deleted_indicator"])
        for row in versions
    ]


@pytest.mark.parametrize("later", ["refuse", "erase"])
def test_all_lists_once_more_are_taken_without_who_was_erased(
    spark: SparkSession, tmp_path: Path, later: str
) -> None:
    """As `apply_list` takes each of them: nothing of a list is refused."""
    found = numbered(spark, tmp_path)
    apply_all(found, nights(spark, 2), by_list=False)
    found.erase(keys=[{"h": 1}], later=later, **WHO)
    apply_all(found, nights(spark, 4), by_list=False)
    assert lists_of(found) == [
        *((2, 1, "bob1.", 1, False), (2, 2, "bob2.", 2, False), (2, 3, "bob3.", 2, False)),
        *((2, 4, "bob3.", 4, False), (3, 3, "cyd3.", 3, False)),
    ]
    assert found.refused().isEmpty()
    assert find_remains(tmp_path, {"1": ["ann1.", "ann2.", "ann3.", '"h":1']}) == {}
    apply_all(found, nights(spark, 4), by_list=True)
    assert found.lists().count() == 4
    found.check(deep=True)


@pytest.mark.parametrize("by_list", [False, True])
@pytest.mark.parametrize("later", ["refuse", "erase"])
def test_so_are_they_without_fields_that_were_erased(
    spark: SparkSession, tmp_path: Path, later: str, by_list: bool
) -> None:
    """Also where one says nothing but the field anew, of which `apply_list` takes nothing."""
    found = numbered(spark, tmp_path)
    apply_all(found, nights(spark, 2), by_list)
    found.erase(keys=[{"h": 2}], fields=["v"], later=later, **WHO)
    apply_all(found, nights(spark, 3), by_list)
    apply_all(found, nights(spark, 4), by_list=False)
    assert lists_of(found) == [
        *((1, 1, "ann1.", 1, False), (1, 2, "ann2.", 2, False), (1, 3, "ann3.", 2, False)),
        *((1, 4, None, None, True), (2, 1, None, 1, False), (2, 2, None, 2, False), (2, 4, None, 4, False)),
        (3, 3, "cyd3.", 3, False),
    ]
    assert found.refused().isEmpty()
    assert find_remains(tmp_path, {"2": ["bob1.", "bob2.", "bob3."]}) == {}
    found.check(deep=True)


def test_lists_that_say_other_things_of_the_rest_are_refused_after_an_erasure_too(
    spark: SparkSession, tmp_path: Path
) -> None:
    found = numbered(spark, tmp_path)
    apply_all(found, nights(spark, 2), by_list=False)
    found.erase(keys=[{"h": 1}], **WHO)
    other = nights(spark, 3)
    first = next(iter(other))
    other[first] = other[first].where("h = 1")
    with pytest.raises(UnfitList, match="what those say is not in it"):
        apply_all(found, other, by_list=False)


def test_a_writer_who_came_between_is_not_lost_and_brings_nobody_back(
    spark: SparkSession, copy: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each begins again on what the other has left."""
    more = told(spark, (7, "late007.", 9), (8, "late008.", 9))
    real, calls = ledger.erase_from_ledger, list[int]()

    def overtaken(*given: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            real_commit = given[0].commit
            monkeypatch.setattr(
                given[0], "commit", lambda **named: (copy.apply(more), real_commit(**named))[1]
            )
        return real(*given)

    monkeypatch.setattr(ledger, "erase_from_ledger", overtaken)
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
    real, calls = ledger.Upkeep.take, list[int]()

    def overtaken(self: Any, rows: DataFrame) -> Any:
        calls.append(1)
        if len(calls) == 1:
            copy.erase(keys=[{"h": 7}], **WHO)
        return real(self, rows)

    monkeypatch.setattr(ledger.Upkeep, "take", overtaken)
    assert copy.apply(more).news == 1
    assert len(calls) == 2
    copy.vacuum(timedelta(0))
    assert find_remains(tmp_path, {"7": ["late007.", "name007."]}) == {}
    assert copy.refused().count() == 1
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
