"""
What does not spread over a cluster, found in Spark's plans, is what the documentation says.

Each call is made with some rows and with ten times as many, in sessions where few is next to nothing: what
grows is in the table of `docs/on-a-platform.md`, and what is in the table grows.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit import (
    Ledger,
    Lookup,
    Priority,
    as_known,
    as_of,
    as_of_join,
    between,
    bitemporal,
    blame,
    changes_between,
    changes_from,
    changes_from_snapshots,
    check,
    complete_moves,
    databus,
    datahub,
    debezium,
    keep_known,
    merge,
    query,
    tables,
    union_changes,
    why,
    with_priorities,
)
from cdckit.datahub import runs
from cdckit.ledger.publication import delta_table
from cdckit.model import find_missing_positions, find_unused_priorities
from cdckit.outputs import periodic_snapshots, scd_type_2
from cdckit.parts import at_home
from cdckit.quality import check_all
from support.doors import AT, BAD, SHELLS, records
from support.placement import rows_by_place
from support.rdss_messages import as_bytes, changed, message
from support.replicate_messages import Version
from support.stream_programs import drawn_log, to_records

pytestmark = pytest.mark.soak

PAGE = Path(__file__).parents[2] / "docs/on-a-platform.md"
HEADING = "## What does not spread"
FEW, TIMES = 40, 10
KEYS: dict[str, Any] = {"entity": "item", "keys": ["id"]}
BEGIN, THEN, END = (datetime(2023, 11, day, tzinfo=UTC) for day in (14, 15, 30))
"""Around the time of the changes."""
LATER = datetime(2030, 1, 1, tzinfo=UTC)


class World:
    """All that the calls are made about, *many* of each, in a folder of its own."""

    def __init__(self, spark: SparkSession, folder: Path, many: int) -> None:
        self.spark, self.folder, self.many = spark, folder, many

    def numbers(self, times: int = 1) -> DataFrame:
        return self.spark.range(self.many * times)

    def changes(self, begin: float = 1.7e9, source: str = "one") -> DataFrame:
        """Three changes of each item, one a minute."""
        rows = self.numbers(3).select(
            (F.col("id") % self.many).alias("id"),
            F.concat(F.lit("v"), F.col("id") % 7).alias("name"),
            F.timestamp_seconds(F.lit(begin) + F.col("id") * 60).alias("at"),
        )
        return changes_from(rows, keys=["id"], sequence_by="at", source=source)

    @cached_property
    def history(self) -> DataFrame:
        return merge(self.changes(), **KEYS).localCheckpoint()

    @cached_property
    def beliefs(self) -> DataFrame:
        return bitemporal(self.changes(), **KEYS).localCheckpoint()

    @cached_property
    def source(self) -> DataFrame:
        return self.numbers().select("id", F.lit("q").alias("name"))

    @cached_property
    def facts(self) -> DataFrame:
        at = F.timestamp_seconds(F.lit(1.7e9) + F.col("id") * 70)
        return self.numbers().select("id", at.alias("happened"))

    def ledger(self, name: str) -> Ledger:
        found = Ledger(self.spark, self.folder / name, buckets=2, **KEYS)
        found.apply(self.changes())
        return found

    @cached_property
    def kept(self) -> Ledger:
        found = self.ledger("kept")
        found.apply(self.changes(1.70001e9, "two"))
        return found

    def shell(self, door: str) -> Any:
        place = self.folder / door
        place.mkdir(exist_ok=True)
        return SHELLS[door]().open(self.spark, place)

    def records(self, values: list[bytes]) -> DataFrame:
        return records(self.spark, values).repartition(4)

    def events(self, event: Callable[[int], dict[str, Any]]) -> DataFrame:
        """Events of Debezium, one of each item, each of a transaction of its own."""
        about = {"connector": "postgresql", "name": "shop", "db": "shop", "schema": "s", "table": "items"}
        said = (
            {**event(n), "ts_ms": 1_700_000_000_000 + n, "source": {**about, "lsn": n, "txId": n}}
            for n in range(self.many)
        )
        return debezium.decode(self.records([json.dumps(each).encode() for each in said]))

    def hub(self, name: str, *mappings: dict[str, Any]) -> datahub.Hub:
        by_entity = {each["reference"]: [each] for each in mappings}
        schema = datahub.schema({"reference": "*", "mappings": by_entity})
        return datahub.Hub(self.spark, schema, self.folder / name)


def force(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


def created(number: int) -> dict[str, Any]:
    return {"op": "c", "after": {"id": number, "name": "x"}}


def moved(number: int) -> dict[str, Any]:
    return {"op": "u", "before": {"id": number}, "after": {"id": number + 1_000_000, "name": "x"}}


def items(world: World, event: Callable[[int], dict[str, Any]]) -> DataFrame:
    types = {"id": "int64", "name": "string"}
    return debezium.changes(world.events(event), "items", keys=["id"], columns=types)


def hub_messages(world: World, name: str, data: Callable[[int], dict[str, Any]], first: int = 0) -> DataFrame:
    numbers = range(first, first + world.many)
    said = ({"entity": name, "guid": f"{name}{n}", "data": [data(n)]} for n in numbers)
    return world.records([json.dumps(each).encode() for each in said])


def run_hub(world: World) -> None:
    """A hub without links; each record has one key."""
    product = {"reference": "product", "fields": [{"reference": "number", "type": "integer", "key": True}]}
    hub = world.hub("hub", product)
    for first in (0, world.many):
        hub.receive(hub_messages(world, "product", lambda n: {"number": n}, first))
        hub.run(now=AT)
    hub.rebuild(now=AT)


def run_waiting_hub(world: World) -> None:
    """Each order waits for the one before it, and the first one for none that comes."""
    before = {"reference": "before", "type": "link", "linkEntity": "order", "linkKey": "name"}
    order = {
        "reference": "order",
        "fields": [{"reference": "name", "key": True}, {**before, "sourceLinkKey": "of"}],
    }
    hub = world.hub("waiting", order)
    hub.receive(hub_messages(world, "order", lambda n: {"name": f"a{n}", "of": f"a{n - 1}"}))
    hub.run(now=AT)


def changes_with_links(world: World) -> DataFrame:
    """Each order but the first has a customer, of which it is certain that it is there: it links to none."""
    customer = {"reference": "customer", "fields": [{"reference": "name", "key": True}]}
    link = {"reference": "of", "type": "link", "linkEntity": "customer", "linkKey": "name", "key": True}
    mappings = {"customer": [customer], "order": [{"reference": "order", "fields": [link]}]}
    customers = hub_messages(world, "customer", lambda n: {"name": f"c{n}"})
    orders = hub_messages(world, "order", lambda n: {"name": f"c{n - 1}"})
    messages = datahub.decode(customers.union(orders))
    return datahub.changes(messages, datahub.schema({"reference": "*", "mappings": mappings}), "order")


def run_weak_hub(world: World) -> None:
    """Records are found by either of two keys."""
    fields = [{"reference": "number", "key": "a"}, {"reference": "code", "key": "b"}]
    hub = world.hub("weak", {"reference": "person", "fields": fields})
    hub.receive(hub_messages(world, "person", lambda n: {"number": f"{n}", "code": f"c{n}"}))
    hub.run(now=AT)


def receive_feed(world: World) -> None:
    table = Version({"id": "int"})
    values = [table.md(), *(table.dt("INSERT", {"id": n}) for n in range(world.many)), BAD]
    feed = world.shell("replicate")
    feed.receive(world.records(values))
    feed.rebuild()


def receive_relay(world: World) -> None:
    tail = '{"type": "record", "name": "P", "fields": [{"name": "tail", "type": "string"}]}'
    relay = world.shell("databus")
    place = {"srcId": 3, "physicalPartitionId": 1, "timestampInNanos": 0}
    known = next(iter(databus.Source(3, "planes", [tail]).texts))
    said = []
    for n in range(world.many):
        value = {"schemaId": known, "valueEnc": "JSON_PLAIN", "value": json.dumps({"tail": f"N{n}"})}
        said.append({**place, **value, "opcode": "UPSERT", "key": n, "sequence": n + 5})
        said.append({**place, "srcId": -2, "sequence": n + 5})
    relay.receive(world.records([json.dumps(each).encode() for each in said]))
    relay.rebuild()


def receive_exchange(world: World) -> None:
    def created_object(n: int) -> bytes:
        own = f"{n:08d}-0000-4000-8000-00000000000"
        named = changed("/messageBody/objectUUID", own + "0"), changed("/messageHeader/messageId", own + "a")
        return as_bytes(message("create", *named))

    exchange = world.shell("rdss")
    exchange.receive(world.records([*map(created_object, range(world.many)), BAD]))
    exchange.rebuild()


def receive_service(world: World) -> None:
    service = world.shell("streams")
    service.receive(to_records(world.spark, drawn_log(3, world.many)).repartition(4))
    service.rebuild()


def erase_half(world: World) -> None:
    some = world.source.where("id % 2 = 0").select("id")
    world.ledger("erased").erase(keys=some, by="me", reason="a wish")


def belief(world: World, *, later: bool) -> query.Belief:
    changes = world.changes()
    return query.Belief(union_changes(changes, world.changes(1.70001e9, "two")) if later else changes, END)


CALLS: dict[str, Callable[[World], Any]] = {
    "merge": lambda w: force(merge(w.changes(), **KEYS)),
    "bitemporal": lambda w: force(bitemporal(w.changes(), **KEYS)),
    "as_known": lambda w: force(as_known(w.changes(), END, **KEYS)),
    "keep_known": lambda w: force(keep_known(w.beliefs, END)),
    "merge(complete_moves(…))": lambda w: force(merge(complete_moves(items(w, moved)), **KEYS)),
    "with_priorities": lambda w: force(with_priorities(w.changes(), {"one": Priority(1)})),
    "find_unused_priorities": lambda w: force(find_unused_priorities(w.changes(), {"one": Priority(1)})),
    "as_of": lambda w: force(as_of(w.history, THEN)),
    "between": lambda w: force(between(w.history, BEGIN, END)),
    "timeline": lambda w: force(query.timeline(w.history, {"id": 1})),
    "changes_between": lambda w: force(changes_between(w.history, BEGIN, END)),
    "diff": lambda w: force(query.diff(w.history, merge(w.changes(1.70001e9), **KEYS))),
    "as_of_join": lambda w: force(
        as_of_join(w.facts, Lookup(w.history, on="id", into="item"), time="happened")
    ),
    "overlay": lambda w: force(
        query.overlay(query.Layer(w.history, "a", on="id"), query.Layer(w.history, "b", on="id"))
    ),
    "join_periods": lambda w: force(query.join_periods(w.history, w.history, on="guid")),
    "beliefs_about": lambda w: force(query.beliefs_about(w.beliefs, THEN)),
    "diff_beliefs": lambda w: force(query.diff_beliefs(w.beliefs, THEN, END)),
    "error_durations": lambda w: force(query.error_durations(w.beliefs, "name", until=END)),
    "durations": lambda w: force(query.durations(w.history, "name", BEGIN, END)),
    "weighted_means": lambda w: force(query.weighted_means(w.history, "id", BEGIN, END)),
    "counts_over_time": lambda w: force(query.counts_over_time(w.history, BEGIN, END)),
    "counts_over_time, by": lambda w: force(query.counts_over_time(w.history, BEGIN, END, by="name")),
    "episodes": lambda w: force(query.episodes(w.history, F.col("name") != "v1")),
    "transitions": lambda w: force(query.transitions(w.history, "name", BEGIN, END)),
    "reconcile": lambda w: force(query.reconcile(w.history, w.source, valid_at=THEN, keys=["id"])),
    "repair": lambda w: force(query.repair(w.history, w.source, valid_at=THEN, keys=["id"], by="me")),
    "range_checksums": lambda w: force(query.range_checksums(w.source, "id", {"name": "string"})),
    "explain": lambda w: force(query.explain(belief(w, later=False), belief(w, later=True), "count", **KEYS)),
    "correct": lambda w: force(
        query.correct(w.history, {"name": "w"}, THEN, keys=["id"], by="me", reason="wrong")
    ),
    "blame": lambda w: force(blame(w.history, {"id": 1})),
    "count_sources": lambda w: force(query.count_sources(w.history, w.changes())),
    "why": lambda w: force(why(w.changes(), {"id": 1}, "name", keys=["id"])),
    "scd_type_2": lambda w: force(scd_type_2(w.history, surrogate_key="number")),
    "periodic_snapshots": lambda w: force(
        periodic_snapshots(w.history, start=date(2023, 11, 14), end=date(2023, 11, 20))
    ),
    "check": lambda w: check(w.history, "history"),
    "check_ledger": lambda w: check_all({"kept": w.kept}),
    "profile": lambda w: tables.profile(w.source),
    "changes_from_snapshots": lambda w: force(
        changes_from_snapshots(w.source.withColumn("day", F.lit(THEN)), keys=["id"], taken_at="day")
    ),
    "find_missing_positions": lambda w: force(
        find_missing_positions(
            w.source.selectExpr("'s' AS stream", "id * 2 AS at"), stream=["stream"], position="at"
        )
    ),
    "debezium.changes": lambda w: force(items(w, created)),
    "debezium.find_missing_events": lambda w: force(debezium.find_missing_events(w.events(created))),
    "Ledger.apply, new": lambda w: w.ledger("new"),
    "Ledger.apply, late": lambda w: w.ledger("late").apply(w.changes(1.69999e9, "two")),
    "Ledger.apply, moves": lambda w: Ledger(w.spark, w.folder / "moves", buckets=2, **KEYS).apply(
        items(w, moved)
    ),
    "Ledger.apply_list": lambda w: w.ledger("lists").apply_list(w.source, taken_at=LATER, source="list"),
    "Ledger.revoke": lambda w: w.ledger("revoked").revoke(
        w.changes().where("arrival.offset % 3 = 0").select("message_id"), source="one"
    ),
    "Ledger.publish": lambda w: w.kept.publish(w.folder / "published", scd_type_2),
    "Ledger.history_changes": lambda w: force(w.kept.history_changes(1)),
    "Ledger.rebuild": lambda w: w.kept.rebuild(),
    "Ledger.check": lambda w: w.kept.check(deep=True),
    "Ledger.compact": lambda w: w.kept.compact(),
    "Ledger.erase": erase_half,
    "Ledger.vacuum": lambda w: w.kept.vacuum(timedelta(0)),
    "datahub.changes": lambda w: force(changes_with_links(w)),
    "Hub.run": run_hub,
    "Hub.run, what waits": run_waiting_hub,
    "Hub.run, weak keys": run_weak_hub,
    "Feed.receive": receive_feed,
    "Relay.receive": receive_relay,
    "Exchange.receive": receive_exchange,
    "Service.receive": receive_service,
}


def told() -> dict[str, set[str]]:
    """By call, the places that the page names."""
    text = PAGE.read_text().split(HEADING)[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| `")]
    return {row[0].strip().replace("`", ""): {each.strip() for each in row[1].split(",")} for row in rows}


@pytest.fixture(scope="module")
def worlds(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[int, World]:
    return {many: World(spark, tmp_path_factory.mktemp("world"), many) for many in (FEW, FEW * TIMES)}


@pytest.fixture
def nothing_is_few(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What is bounded by a number of the code, or of Spark, is so by a number below that of the test."""
    monkeypatch.setattr(at_home, "HELD_ROWS", 10)
    monkeypatch.setattr(at_home, "WORK_BYTES", 10)
    monkeypatch.setattr(runs, "FEW_STATEMENTS", 10)
    monkeypatch.setattr(at_home, "READ_ROWS", 10)
    monkeypatch.setattr(delta_table, "_FILE", 5_000)
    names = [
        f"spark.sql.{name}" for name in ("autoBroadcastJoinThreshold", "adaptive.autoBroadcastJoinThreshold")
    ]
    before = {name: spark.conf.get(name, None) for name in names}
    for name in names:
        spark.conf.set(name, "-1")
    yield
    for name, value in before.items():
        spark.conf.unset(name) if value is None else spark.conf.set(name, value)


@pytest.mark.parametrize("call", CALLS)
def test_what_grows_in_one_place_is_told(
    spark: SparkSession, worlds: dict[int, World], nothing_is_few: None, call: str
) -> None:
    found = []
    for many in (FEW, FEW * TIMES):
        with rows_by_place(spark) as rows:
            CALLS[call](worlds[many])
        found.append(rows)
    few, more = found
    # What has a bound of its own grows a little: twice as many of ten times as much does not.
    grown = {place: (few[place], more[place]) for place in more if more[place] > 2 * few[place] + FEW}
    assert set(grown) == told().get(call, set()), grown


def test_the_page_tells_of_calls_that_are_looked_at() -> None:
    assert set(told()) <= set(CALLS)
    assert told()
