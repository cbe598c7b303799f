"""
`Feed.erase`: an entity goes from its ledger; of the records that speak of it only their places stay.

In `make test`:
tests/test_doors.py::test_who_was_erased_is_gone_and_does_not_come_again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdckit.errors import InvalidArgument
from cdckit.ledger import Ledger, MovedEntities, UnknownEntities
from cdckit.replicate import Feed, TableName, TableSettings
from cdckit.store import OtherKind
from support.remains import find_remains
from support.replicate_messages import Record, Version, record, sequence, to_dataframe

PEOPLE = Version({"id": "int", "name": ["null", "string"]}, table="PEOPLE")
LATER = Version({"code": "int", "name": ["null", "string"]}, keys=("code",), table="LATER")
ADA = 1_900_417
WHO = {"by": "dana", "reason": "asked for by letter"}


def said(version: Version, operation: str, row: dict[str, Any], number: int, **others: Any) -> Record:
    at = {
        "changeSequence": sequence(f"2024010110{number:02d}", number),
        "timestamp": f"2024-01-01T10:{number:02d}:00",
    }
    return record(version.dt(operation, row, **at, **others), number, key=str(row.get("id")).encode())


def test_an_entity_and_its_records_are_forgotten(spark: SparkSession, tmp_path: Path) -> None:
    """Made anew and sent again it does not come back; what cannot be read is named."""
    feed, subject = Feed(spark, tmp_path), {"ada": ["ada lovelace", str(ADA)]}
    first = [
        record(PEOPLE.md(), 0),
        said(PEOPLE, "INSERT", {"id": ADA, "name": "ada lovelace"}, 1),
        said(PEOPLE, "INSERT", {"id": 2, "name": "bob"}, 2),
        record(b"no envelope", 3),
        said(LATER, "INSERT", {"code": 7, "name": "whoever"}, 4),
        said(PEOPLE, "UPDATE", {"id": ADA, "name": "ada lovelace again"}, 5),
    ]
    # The producer sends it once more: of one message the log of the ledger keeps one place.
    first.append({**first[1], "offset": 6})
    feed.receive(to_dataframe(spark, first), "first")
    [name] = feed.ledgers()
    others = feed.ledgers()[name].history().where(F.col("id") == 2)
    before = others.collect()
    assert {"records", "commits"} < {path.split("/")[0] for path in find_remains(tmp_path, subject)}
    receipt = feed.erase(name, keys=[{"id": ADA}], **WHO)
    assert find_remains(tmp_path, subject) == {}
    assert feed.ledgers()[name].history().collect() == before
    [records] = [part for part in receipt.parts if part.table == "records"]
    assert (records.rows, records.erased, receipt.is_proven) == (7, 3, True)
    assert receipt.not_erased[-1].startswith("1 rejects and 1 waiting records, of which nobody can tell")
    feed.rebuild()
    again = [first[1], said(PEOPLE, "UPDATE", {"id": 2, "name": "bob again"}, 7)]
    feed.receive(to_dataframe(spark, again), "again")
    assert find_remains(tmp_path, subject) == {}
    places = feed.store.snapshot().read("records").where("error_code = 'ERASED'")
    assert sorted(row["offset"] for row in places.collect()) == [1, 1, 5, 6]
    assert feed.ledgers()[name].refused().select("offset", "error_code").collect() == [(1, "ENTITY_ERASED")]
    assert [
        row["name"] for row in feed.ledgers()[name].history().orderBy("valid_from_timestamp").collect()
    ] == [
        *("bob", "bob again"),
    ]
    # What was committed since is forgotten once more, by the same receipt.
    once_more = feed.erase(name, keys=[{"id": ADA}], **WHO)
    assert (once_more.receipt, once_more.entities, once_more.parts) == (receipt.receipt, 1, receipt.parts)
    feed.store.check(deep=True)


def test_records_of_erased_entities_of_two_tables_may_come_in_one_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    feed, subject = Feed(spark, tmp_path), {"ada": ["ada lovelace", str(ADA)]}
    metadata = [record(PEOPLE.md(), 0), record(LATER.md(), 1)]
    both = [
        said(PEOPLE, "INSERT", {"id": ADA, "name": "ada lovelace"}, 2),
        said(LATER, "INSERT", {"code": ADA, "name": "ada lovelace"}, 3),
    ]
    feed.receive(to_dataframe(spark, [*metadata, *both]))
    for name, key in (("PEOPLE", "id"), ("LATER", "code")):
        [ledger] = [each for each in feed.ledgers() if each.endswith(name)]
        feed.erase(ledger, keys=[{key: ADA}], **WHO)
    other = said(PEOPLE, "INSERT", {"id": 2, "name": "bob"}, 4)
    feed.receive(to_dataframe(spark, [*both, other]), "again")
    assert find_remains(tmp_path, subject) == {}
    records = feed.store.snapshot().read("records")
    assert records.where("error_code = 'ERASED'").count() == 4
    assert records.count() == 7


def test_what_waited_while_its_entity_was_erased_is_erased_when_a_rebuild_reads_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    name = TableName("db1", "shop_task", "SHOP", "PEOPLE")
    feed = Feed(spark, tmp_path, tables={name: TableSettings(topics=["items"])})
    ada = {"id": ADA, "name": "ada lovelace"}
    records = [record(PEOPLE.md(), 0), said(PEOPLE, "INSERT", ada, 1), said(PEOPLE, "UPDATE", ada, 2)]
    feed.receive(to_dataframe(spark, [*records[:2], {**records[2], "topic": "late"}]))
    feed.erase(str(*feed.ledgers()), keys=[{"id": ADA}], **WHO)
    wider = Feed(spark, tmp_path)
    wider.rebuild()
    rows = wider.store.snapshot().read("records").where("offset > 0").orderBy("offset").collect()
    assert [(row["error_code"], row["value"], row["key"]) for row in rows] == [("ERASED", None, None)] * 2
    assert wider.waiting().isEmpty()


def test_of_a_table_that_shares_its_schema_id_nobody_is_erased_until_its_topics_are_named(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A message that came again stands in no log: it would stay, and may be of the other table."""
    feed, ada = Feed(spark, tmp_path), said(PEOPLE, "INSERT", {"id": ADA, "name": "ada lovelace"}, 1)
    twin = PEOPLE.md(lineage={**PEOPLE.metadata()["lineage"], "task": "test"})
    of_twin = {**ada, "topic": "test", "offset": 4}
    sent = [record(PEOPLE.md(), 0), ada, {**ada, "offset": 2}]
    feed.receive(to_dataframe(spark, sent))
    feed.receive(to_dataframe(spark, [record(twin, 3), of_twin]))
    names = {task: TableName("db1", task, "SHOP", "PEOPLE") for task in ("shop_task", "test")}
    [name] = [name for name in feed.ledgers() if "shop_task" in name]
    with pytest.raises(InvalidArgument, match=r"settings that name the topics of .*shop_task"):
        feed.erase(name, keys=[{"id": ADA}], **WHO)
    topics = {"shop_task": "items", "test": "test"}
    settings = {name: TableSettings(topics=[topics[task]]) for task, name in names.items()}
    told = Feed(spark, tmp_path, tables=settings)
    told.rebuild()
    told.erase(name, keys=[{"id": ADA}], **WHO)
    rows = told.store.snapshot().read("records").where("type = 'DT'").orderBy("offset").collect()
    assert [(row["offset"], row["value"] is None) for row in rows] == [(1, True), (2, True), (4, False)]


def test_a_record_that_speaks_of_two_goes_with_both(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(spark, tmp_path)
    moved = PEOPLE.dt("UPDATE", {"id": 3, "name": "ada lovelace"}, {"id": ADA, "name": "ada lovelace"})
    rows = [record(PEOPLE.md(), 0), said(PEOPLE, "INSERT", {"id": ADA, "name": "ada lovelace"}, 1)]
    feed.receive(to_dataframe(spark, [*rows, record(moved, 2)]))
    [name] = feed.ledgers()
    with pytest.raises(InvalidArgument, match=f"ledger to be one of {name}"):
        feed.erase("OTHERS", keys=[{"id": ADA}], **WHO)
    with pytest.raises(UnknownEntities):
        feed.erase(name, keys=[{"id": 5}], **WHO)
    with pytest.raises(OtherKind, match=r"it holds a Replicate feed .*, which erases by itself"):
        Ledger(spark, tmp_path, entity="PEOPLE", keys=["id"], name=name).erase(keys=[{"id": ADA}], **WHO)
    with pytest.raises(MovedEntities, match="needs all keys that a row ever had"):
        feed.erase(name, keys=[{"id": ADA}], **WHO)
    feed.erase(name, keys=[{"id": ADA}, {"id": 3}], **WHO)
    assert find_remains(tmp_path, {"ada": ["ada lovelace"]}) == {}
