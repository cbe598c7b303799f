"""kill -9 of a program, its JVM or a worker at any moment: what is kept is what an undisturbed run keeps."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit import datahub, merge, rdss, replicate, samples
from support.histories import assert_folds_to, to_dataframe
from support.killed_programs import (
    ENTITY,
    KEYS,
    NOW,
    exchange_of,
    feed_of,
    hub_of,
    ledger_of,
    people_of,
    service_of,
)
from support.killing import run_and_kill
from support.ledger_programs import FIELDS, all_of, batches
from support.people import FIELDS as PEOPLE
from support.people import person_of, personal_batches, traces
from support.remains import find_remains
from support.replicate_messages import life
from support.replicate_messages import to_dataframe as to_records
from support.stream_programs import drawn_log, told
from support.stream_programs import to_records as to_stream
from tools.tiers import seeds

BATCHES, ERASING = 40, 12
"""So many that a program still has something to do when it is killed; of one that erases, too."""


def same(one: DataFrame, other: DataFrame) -> bool:
    """Whether two histories have the same rows, in whatever order their columns are."""
    columns = sorted(other.columns)
    return (
        one.select(columns).exceptAll(other.select(columns)).isEmpty()
        and other.select(columns).exceptAll(one.select(columns)).isEmpty()
    )


@pytest.mark.soak
@seeds(1, soak=1)
def test_a_ledger_that_is_killed(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    changes = all_of(batches(seed, 400))
    for number in range(BATCHES):
        part = changes[number::BATCHES]
        rows = to_dataframe(spark, part, FIELDS)
        rows.coalesce(2).write.parquet(str(tmp_path / "batches" / str(number)))
    print("killed:", run_and_kill("ledger", tmp_path, kills=40, seed=seed))
    ledger = ledger_of(spark, tmp_path)
    ledger.store.check()
    assert_folds_to(ledger.history(), changes, entity=ENTITY, keys=KEYS)
    assert ledger.store.commits().where("batch is not null").count() == BATCHES


@pytest.mark.soak
@seeds(6, soak=1)
def test_an_erasure_that_is_killed(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """After each batch a person is erased; with the next one all that was said of them comes again."""
    everything, count = all_of(personal_batches(seed, 2 * BATCHES)), 12
    parts = [[each for each in everything if person_of(each) % count == n] for n in range(count)]
    erased = [part[0]["data"] for part in parts]
    ledger = people_of(spark, tmp_path)
    (tmp_path / "erased").mkdir()
    for number, part in enumerate(parts):
        people = {key["h"] for key in erased[:number]}
        again = [each for each in everything if each["data"]["h"] in people]
        rows = to_dataframe(spark, [*part, *again], PEOPLE)
        rows.coalesce(2).write.parquet(str(tmp_path / "batches" / str(number)))
        keys = [{name: each["data"][name] for name in KEYS} for each in part]
        theirs = [key for key in keys if key["h"] == erased[number]["h"]]
        (tmp_path / "erased" / f"{number}.json").write_text(json.dumps(theirs))
    ledger.apply(to_dataframe(spark, parts[0], PEOPLE).limit(0))
    ledger.publish(tmp_path / "published")
    print("killed:", run_and_kill("erasing", tmp_path, kills=10, seed=seed))
    gone = {key["h"] for key in erased}
    theirs = [each for each in everything if each["data"]["h"] in gone]
    for folder in ("store", "published"):
        assert find_remains(tmp_path / folder, traces(map(person_of, theirs), theirs)) == {}
    rest = [each for each in everything if each["data"]["h"] not in gone]
    assert_folds_to(ledger.history(), rest, entity="person", keys=KEYS)
    ledger.check(deep=True)


@pytest.mark.soak
@seeds(2, soak=1)
def test_a_feed_that_is_killed(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    records = life(seed)
    (tmp_path / "batches").mkdir()
    for number in range(BATCHES):
        some = records[number::BATCHES]
        to_records(spark, some).coalesce(1).write.parquet(str(tmp_path / "batches" / str(number)))
    print("killed:", run_and_kill("feed", tmp_path, kills=30, seed=seed))
    feed = feed_of(spark, tmp_path)
    feed.store.check()
    changes = replicate.table_changes(to_records(spark, records), task="shop_task", table="ITEMS")
    expected = merge(changes, entity="ITEMS", keys=["id"])
    found = feed.table("ITEMS").history()
    names = [name for name in expected.columns if name != "field_provenance"]
    assert same(
        found.select(*names, "field_provenance.price.m"), expected.select(*names, "field_provenance.price.m")
    )
    assert feed.waiting().isEmpty()


@pytest.mark.soak
@seeds(4, soak=1)
def test_an_exchange_that_is_killed(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    records = spark.read.parquet(samples("rdss/records.parquet")).repartition(1).cache()
    for number in range(BATCHES):
        some = records.where(f"pmod(xxhash64(partition, offset), {BATCHES}) = {number}")
        some.write.parquet(str(tmp_path / "batches" / str(number)))
    print("killed:", run_and_kill("exchange", tmp_path, kills=30, seed=seed))
    found = exchange_of(spark, tmp_path)
    undisturbed = rdss.Exchange(spark, tmp_path / "undisturbed", types=["ResearchObject"])
    found.store.check()
    undisturbed.receive(records)
    assert same(found.history(), undisturbed.history())
    counts = [each.messages().groupBy("outcome", "error_code").count() for each in (found, undisturbed)]
    assert same(*counts)


@pytest.mark.soak
@seeds(7, soak=1)
def test_an_exchange_that_erases_and_is_killed(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """After every other batch an object is erased; batches before and after speak of it, too."""
    records = spark.read.parquet(samples("rdss/records.parquet")).repartition(1).cache()
    number_of = F.pmod(F.xxhash64("partition", "offset"), F.lit(ERASING))
    told = rdss.decode(records).where("error_code IS NULL AND object_uuid IS NOT NULL")
    first = told.groupBy("object_uuid").agg(F.min(number_of).alias("first")).orderBy("object_uuid").collect()
    (tmp_path / "erased").mkdir()
    gone = {}
    for number in range(ERASING):
        records.where(number_of == number).write.parquet(str(tmp_path / "batches" / str(number)))
        known = [
            row["object_uuid"] for row in first if row["first"] <= number and row["object_uuid"] not in gone
        ]
        if number % 2:
            gone[known[seed % len(known)]] = number
        keys = [{"objectUUID": each} for each, at in gone.items() if at == number]
        (tmp_path / "erased" / f"{number}.json").write_text(json.dumps(keys))
    print("killed:", run_and_kill("erasing_exchange", tmp_path, kills=6, seed=seed))
    found = exchange_of(spark, tmp_path)
    undisturbed = rdss.Exchange(spark, tmp_path / "undisturbed", types=["ResearchObject"])
    taken = 0
    for each, at in [*gone.items(), (None, ERASING - 1)]:
        some = [str(tmp_path / "batches" / str(number)) for number in range(taken, at + 1)]
        taken = at + 1
        if some:
            undisturbed.receive(spark.read.parquet(*some))
        if each is not None:
            undisturbed.erase("ResearchObject", keys=[{"objectUUID": each}], by="dana", reason="asked for")
    found.store.check(deep=True)
    assert same(found.history(), undisturbed.history())
    assert found.ledgers()["ResearchObject"].erased().count() == len(gone)
    counts = [each.messages().groupBy("outcome", "error_code").count() for each in (found, undisturbed)]
    assert same(*counts)
    remains, other = (
        find_remains(tmp_path / name, {each: [each] for each in gone}) for name in ("store", "undisturbed")
    )
    assert set().union(*remains.values()) == set().union(*other.values())


@pytest.mark.soak
@seeds(5, soak=1)
def test_a_service_that_is_killed(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    log = drawn_log(seed, 3 * BATCHES)
    for number in range(BATCHES):
        some = to_stream(spark, log[3 * number : 3 * number + 3])
        some.coalesce(1).write.parquet(str(tmp_path / "batches" / str(number)))
    print("killed:", run_and_kill("service", tmp_path, kills=15, seed=seed))
    found, undisturbed = service_of(spark, tmp_path), service_of(spark, tmp_path / "undisturbed")
    found.store.check()
    undisturbed.receive(to_stream(spark, log))
    assert told(found) == told(undisturbed)
    assert found.store.commits().where("batch is not null").count() == BATCHES


@pytest.mark.soak
@seeds(3, soak=1)
def test_a_hub_that_is_killed(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    (tmp_path / "batches").mkdir()
    for number in range(BATCHES):
        (tmp_path / "batches" / str(number)).write_text(json.dumps(messages(number)))
    print("killed:", run_and_kill("hub", tmp_path, kills=30, seed=seed))
    found, undisturbed = hub_of(spark, tmp_path), hub_of(spark, tmp_path / "undisturbed")
    found.store.check()
    everything = [each for number in range(BATCHES) for each in messages(number)]
    undisturbed.receive(datahub.records(spark, everything, received_at=NOW))
    undisturbed.run(now=NOW)
    assert same(found.history("product"), undisturbed.history("product"))
    statuses = ["message_identifier", "status"]
    assert same(found.messages().select(statuses), undisturbed.messages().select(statuses))


@pytest.mark.soak
@seeds(8, soak=1)
def test_a_service_that_erases_and_is_killed(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """After every other batch everybody goes who is called as one; later batches speak of them again."""
    log = [
        (*record[:1], re.sub(rb'"entity": "e', b'"entity": "ada.e', record[1]), *record[2:])
        for record in drawn_log(seed, 3 * ERASING)
    ]
    undisturbed, gone = service_of(spark, tmp_path / "undisturbed"), set[str]()
    (tmp_path / "erased").mkdir()
    for number in range(ERASING):
        some = to_stream(spark, log[3 * number : 3 * number + 3])
        some.coalesce(1).write.parquet(str(tmp_path / "batches" / str(number)))
        undisturbed.receive(some)
        names = ("db", "collection", "zone", "entity")
        known = undisturbed.entities().where("entity LIKE 'ada.%'").select(*names).orderBy(*names).collect()
        keys = [row.asDict() for row in known if row.entity == known[0].entity] if number % 2 else []
        (tmp_path / "erased" / f"{number}.json").write_text(json.dumps(keys))
        if keys:
            gone.add(keys[0]["entity"])
            undisturbed.erase("entity", keys=keys, by="dana", reason="asked for")
    assert gone
    print("killed:", run_and_kill("erasing_service", tmp_path, kills=6, seed=seed))
    found = service_of(spark, tmp_path)
    found.store.check(deep=True)
    assert told(found) == told(undisturbed)
    assert found.erased().count() == undisturbed.erased().count()
    remains, other = (
        find_remains(tmp_path / name, {each: [each] for each in gone})
        for name in ("store", "undisturbed/store")
    )
    assert set().union(*remains.values()) == set().union(*other.values())


@pytest.mark.soak
@seeds(9, soak=1)
def test_a_hub_that_erases_and_is_killed(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """Messages of later batches speak of the erased products again."""
    (tmp_path / "batches").mkdir()
    (tmp_path / "erased").mkdir()
    undisturbed, gone = hub_of(spark, tmp_path / "undisturbed"), list[int]()
    for number in range(ERASING):
        batch = messages(number, first=71_900_400)
        (tmp_path / "batches" / str(number)).write_text(json.dumps(batch))
        undisturbed.receive(datahub.records(spark, batch, received_at=NOW))
        undisturbed.run(now=NOW)
        # The first two batches name six of the seven.
        some = [71_900_400 + (seed + number) % 6] if number % 2 else []
        keys = [{"number": each} for each in some]
        (tmp_path / "erased" / f"{number}.json").write_text(json.dumps(keys))
        if keys:
            gone += some
            undisturbed.erase("product", keys=keys, by="dana", reason="asked for")
    print("killed:", run_and_kill("erasing_hub", tmp_path, kills=6, seed=seed))
    found = hub_of(spark, tmp_path)
    found.store.check(deep=True)
    assert same(found.history("product"), undisturbed.history("product"))
    statuses = ["message_identifier", "status"]
    assert same(found.messages().select(statuses), undisturbed.messages().select(statuses))
    for name in ("store", "undisturbed/store"):
        assert find_remains(tmp_path / name, {str(each): [each] for each in gone}) == {}


def messages(number: int, first: int = 0) -> Sequence[dict[str, object]]:
    """Three messages, each about three products, which change their names."""
    products = range(number, number + 3)
    return [
        {
            "entity": "product",
            "guid": f"m{number}-{place}",
            "timestamp": f"2024-01-{number // 24 + 1:02d}T{number % 24:02d}:{place:02d}:00Z",
            "data": [{"number": first + (place + each) % 7, "name": f"{number}{place}"} for each in products],
        }
        for place in range(3)
    ]
