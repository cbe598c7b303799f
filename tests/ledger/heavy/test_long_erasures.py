"""
What an erasure keeps its word on: lists and streams once more, many people, fields, several keys, kills.

In `make test`:
tests/ledger/test_erase.py::test_some_fields_are_forgotten,
tests/ledger/test_erase.py::test_by_condition_and_by_age,
tests/ledger/test_erase.py::test_lists_that_say_other_things_of_the_rest_are_refused_after_an_erasure_too.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit import why
from cdckit.errors import UnfitList
from cdckit.ledger import Ledger, MovedEntities
from cdckit.outputs import scd_type_2
from cdckit.store.locations import Location
from support.dying import Died
from support.erasures import WHO, apply_all, keys_of, names_in, nights, numbered, opened, told
from support.histories import INSTANTS, Row, assert_folds_to, plain, to_dataframe
from support.ledger_programs import all_of
from support.people import ENTITY, FIELDS, KEYS, person_of, personal_batches, traces
from support.remains import find_remains
from tools.tiers import seeds


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
    # What was committed since is forgotten once more, by the same receipt.
    again = found.erase(keys=keys[:3], **WHO)
    assert (again.receipt, again.entities, again.parts) == (receipt.receipt, len(keys), receipt.parts)


def rest_rows(found: Ledger, table: str, paths: Sequence[str]) -> int:
    return sum(one.rows for one in found.store.snapshot().files(table) if one.path in paths)


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


def test_a_list_that_names_only_who_was_erased_is_no_empty_one(spark: SparkSession, tmp_path: Path) -> None:
    found = numbered(spark, tmp_path)
    apply_all(found, nights(spark, 1), by_list=True)
    found.erase(keys=[{"h": 1}], **WHO)
    ((at, night),) = nights(spark, 1).items()
    found.apply_list(night.where("h = 1"), taken_at=at, source="another")
    assert names_in(found) == ["bob1."]
    with pytest.raises(UnfitList, match="it names nothing, and there is no list before it"):
        found.apply_list(night.where("h = 9"), taken_at=at, source="a third")


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


@pytest.mark.parametrize("part", ["cdc-", "_delta_log/"])
def test_a_published_table_forgets_though_it_was_stopped(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """When it is published next, at its first file, or entry; what lies below, a table of its own, stays."""
    target, real = tmp_path / "published", Location.delete
    found = numbered(spark, tmp_path / "ledger")
    found.apply(told(spark, *((n, f"name{n:03d}.", 1) for n in range(9))))
    found.publish(target)
    write_deltalake(str(target / "notes"), pa.table({"note": ["mine"]}))

    found.erase(keys=[{"h": 7}], **WHO)

    def dies(location: Location, path: str) -> None:
        if path.startswith(f"published/{part}"):
            raise Died
        real(location, path)

    with monkeypatch.context() as stopped:
        stopped.setattr(Location, "delete", dies)
        with pytest.raises(Died):
            found.publish(target)
    found.publish(target)
    assert find_remains(tmp_path, {"7": ["name007."]}) == {}
    assert DeltaTable(str(target / "notes")).to_pyarrow_table().to_pylist() == [{"note": "mine"}]
