"""
Every door with a few records of it: the one list of doors, which a new door adds itself to.

What a door makes of its records is told by their places 0, 1, 2 …, which are their offsets.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import reduce
from operator import and_
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit import databus, datahub, debezium, rdss, rejects, replicate, streams, tables
from cdckit.ledger import Receipt
from cdckit.model.records import RECORD_SCHEMA
from cdckit.shell.shell import Shell
from support.rdss_messages import MESSAGES, as_bytes, changed, message
from support.replicate_messages import Version, envelope

AT = datetime(2024, 3, 1, 12, tzinfo=UTC)
BAD = b"?"


class Door(NamedTuple):
    """
    A door that keeps its records.

    Args:
        open: Its shell at a place.
        values: Of its records.
        changes: Of the entities of one kind.
        keys: Of these.
        named: The records that are neither changes nor rejects nor wait, which a table of its own shows.
        waiting: The records that wait.
        topics: Of the records, where they matter.
        documents: What `receive` must be told of documents.
    """

    open: Callable[[SparkSession, Path], Shell]
    values: Sequence[bytes]
    changes: Callable[[Any], DataFrame]
    keys: list[str]
    named: Callable[[Any, DataFrame], DataFrame]
    waiting: set[int]
    topics: Sequence[str] = ()
    documents: dict[str, Any] = {}  # noqa: RUF012 a named tuple's default, which nobody changes

    def records(self, spark: SparkSession) -> DataFrame:
        """The records, as a topic would bring them."""
        return records(spark, self.values, self.topics)


class FreeDoor(NamedTuple):
    """What a door that need not remember made of records: so many of them, and which it cannot use."""

    count: int
    changes: DataFrame
    keys: list[str]
    named: set[int]
    sent: DataFrame
    refused: Callable[[DataFrame], DataFrame]


def records(spark: SparkSession, values: Sequence[bytes], topics: Sequence[str] = ()) -> DataFrame:
    """Records with these values, every other one with headers."""
    listed = topics or ["door"] * len(values)
    rows = [
        (None, value, topic, 0, offset, AT, 0, None if offset % 2 else [("trace", b"\xff"), ("trace", None)])
        for offset, (topic, value) in enumerate(zip(listed, values, strict=True))
    ]
    return spark.createDataFrame(rows, RECORD_SCHEMA).coalesce(1)


def settle(shell: Any) -> None:
    """Let a shell apply what is due, where it does not with each batch."""
    if isinstance(shell, datahub.Hub):
        shell.run(now=AT)


def _replicate() -> Door:
    items, others = Version({"id": "int"}), Version({"code": "int"}, keys=("code",), table="OTHERS")
    return Door(
        lambda spark, place: replicate.Feed(spark, place),
        [items.md(), items.dt("INSERT", {"id": 1}), BAD, others.dt("INSERT", {"code": 1})],
        lambda feed: feed.table("ITEMS").changes(),
        ["id"],
        lambda feed, sent: replicate.metadata(replicate.decode(sent)),
        {3},
    )


def _datahub() -> Door:
    product = {"reference": "product", "fields": [{"reference": "number", "type": "integer", "key": True}]}
    leads = {"linkEntity": "product", "linkKey": "number", "sourceLinkKey": "of"}
    link = {"reference": "product", "type": "link", **leads}
    order = {"reference": "order", "fields": [{"reference": "name", "key": True}, link]}
    shop = datahub.schema({"reference": "*", "mappings": {"product": [product], "order": [order]}})
    values = [
        b'{"entity": "product", "guid": "m0", "data": [{"number": 1}]}',
        b'{"entity": "order", "guid": "m1", "data": [{"name": "a", "of": 9}]}',
        BAD,
    ]
    return Door(
        lambda spark, place: datahub.Hub(spark, shop, place),
        values,
        lambda hub: hub.changes("product"),
        ["number"],
        lambda hub, sent: sent.limit(0),
        {1},
    )


def _databus() -> Door:
    tail = '{"type": "record", "name": "P", "fields": [{"name": "tail", "type": "string"}]}'
    source = databus.Source(3, "planes", [tail])
    of = {"srcId": 3, "physicalPartitionId": 1, "timestampInNanos": 0}
    value = {"schemaId": next(iter(source.texts)), "valueEnc": "JSON_PLAIN", "value": '{"tail": "N1"}'}
    event = {**of, **value, "opcode": "UPSERT", "key": 7}
    said = [{**event, "sequence": 5}, {**of, "sequence": 5, "srcId": -2}, {**event, "sequence": 6}]
    return Door(
        lambda spark, place: databus.Relay(spark, place, [source], keys={"planes": ["tail"]}),
        [*(json.dumps(each).encode() for each in said), BAD],
        lambda relay: relay.ledgers()["planes"].changes(),
        ["tail"],
        lambda relay, sent: relay.events().where("kind = 'end'"),
        {2},
    )


def _rdss() -> Door:
    unknown = message("read", changed("/messageBody/objectUUID", "00000009-0000-4000-8000-000000000000"))
    whole = [as_bytes(MESSAGES[name]) for name in ("create", "part", "preservation")]

    def preserved(exchange: Any, sent: DataFrame) -> DataFrame:
        events = exchange.preservation_events().select("message_id")
        found: DataFrame = exchange.messages().join(events, "message_id", "left_semi")
        return found

    return Door(
        lambda spark, place: rdss.Exchange(spark, place, types=["ResearchObject"]),
        [*whole, BAD, as_bytes(unknown)],
        lambda exchange: exchange.ledgers()["ResearchObject"].changes(),
        ["objectUUID"],
        preserved,
        {1},
    )


def _streams() -> Door:
    told = {"db": "d", "clientid": "c", "user": "u", "begun": 1, "part": 1}

    def request(number: int, parts: int, value: Any, path: str = "a", **where: str) -> dict[str, Any]:
        ops = [{"op": "add", "path": path, "value": value}]
        return {**told, "request": number, "parts": parts, **where, "ops": ops}

    wish = {"device": "phone", "zone": "z", "creates": True}
    subscription = {"collection": "$zoneSubscription", "zone": "own", "entity": "s"}
    said = [
        request(1, 1, 1, collection="C", zone="z", entity="e"),
        # It is applied at once: what waits is the response to its request.
        request(2, 2, 1, collection="C", zone="z", entity="f"),
        request(3, 1, wish, "/", **subscription),
        {"db": "d", "clientid": "c", "user": "u", "begun": 1, "device": "phone"},
    ]

    def named(service: Any, sent: DataFrame) -> DataFrame:
        subscribed = service.ledgers()["subscription"].changes().select("arrival.offset")
        return service.messages(streams.CONNECTIONS).select("offset").unionByName(subscribed)

    fields = T.StructType([T.StructField("a", T.LongType())])
    return Door(
        lambda spark, place: streams.Service(spark, place),
        [*(json.dumps(each).encode() for each in said), BAD],
        lambda service: service.changes("C", fields),
        ["db", "zone", "entity"],
        named,
        set(),
        [*["entity-patches"] * 3, "connections", "entity-patches"],
        {"stream": streams.ENTITY_PATCHES},
    )


def _tables(spark: SparkSession) -> FreeDoor:
    kinds = {"id": "Int64", "name": "string", "at": "string"}
    log = pd.DataFrame([(1, "kettle", "2024-01-01"), (None, "mug", "2024-01-01"), (3, "jug", "soon")])
    frame = log.set_axis(list(kinds), axis=1).astype(kinds)
    call: dict[str, Any] = {"keys": ["id"], "effective": "at"}
    # Rows have numbers from 1, and a record here from 0.
    sent = tables.table_rows(frame, **call).withColumn("offset", F.col("offset") - 1)
    place = F.col("arrival").withField("offset", F.col("arrival.offset") - 1)

    def refused(some: DataFrame) -> DataFrame:
        if "error_code" in some.columns:
            return rejects(some)
        row = F.from_json(some.value.cast("string"), "id bigint, name string, at string")
        return rejects(tables.table_rows(some.select(row.alias("row")).select("row.*"), **call))

    told = tables.changes_from(frame, **call).withColumn("arrival", place)
    return FreeDoor(3, told, ["id"], set(), sent, refused)


def _debezium() -> Door:
    event = b'{"op": "c", "ts_ms": 1, "source": {"table": "%s"}, "after": {"item": %d}}'
    return Door(
        lambda spark, place: debezium.Feed(spark, place, tables={"items": ["item"]}),
        [event % (b"items", 1), BAD, event % (b"others", 1), b'{"ts_ms": 1}'],
        lambda feed: feed.table("items").changes(),
        ["item"],
        lambda feed, sent: feed.events().where("kind = 'heartbeat'"),
        {2},
    )


class ByHand(NamedTuple):
    """The changes that a door's functions make of records, and of the rejects among them bytes and code."""

    changes: DataFrame
    keys: list[str]
    refused: set[tuple[bytes, str]]


def _replicate_by_hand(spark: SparkSession) -> ByHand:
    items = Version({"id": "int", "name": "string"})
    whole = items.dt("INSERT", {"id": 1, "name": "mug"})
    keyless = items.dt("UPDATE", {"id": 1, "name": "jug"}, columnMask=b"\x02")
    empty = envelope("DT", b"", schema_id=items.schema_id)
    sent = records(spark, [items.md(), whole, BAD, keyless, whole[:-3], empty])
    return ByHand(
        replicate.table_changes(sent, task="shop_task", table="ITEMS"),
        ["id"],
        {
            (BAD, "WRONG_MAGIC"),
            (keyless, "KEY_MISSING"),
            (whole[:-3], "ENVELOPE_UNREADABLE"),
            (empty, "MESSAGE_UNREADABLE"),
        },
    )


def _datahub_by_hand(spark: SparkSession) -> ByHand:
    number = {"reference": "number", "type": "integer", "key": True}
    product = {"reference": "product", "fields": [number]}
    shop = datahub.schema({"reference": "*", "mappings": {"product": [product]}})
    good = b'{"entity": "product", "guid": "m0", "data": [{"number": 1}]}'
    half = b'{"entity": "product", "guid": "m1", "data": [{"number": 2}, {"number": "two"}]}'
    elsewhere = b'{"entity": "parcel", "guid": "m2", "data": []}'
    sent = records(spark, [good, half, elsewhere, BAD])
    return ByHand(
        datahub.changes(datahub.decode(sent), shop, "product"),
        ["number"],
        {(half, "VALUE_INVALID"), (elsewhere, "ENTITY_NOT_FOUND"), (BAD, "MESSAGE_INVALID")},
    )


def _debezium_by_hand(spark: SparkSession) -> ByHand:
    event = b'{"op": "c", "ts_ms": 1, "source": {"table": "%s"}, "after": %s}'
    sent = records(spark, [event % (b"items", b'{"item": 1}'), BAD, event % (b"items", b"{}")])
    return ByHand(
        debezium.changes(debezium.decode(sent), "items", keys=["item"], columns={"item": "int64"}),
        ["item"],
        {(BAD, "NOT_JSON"), (event % (b"items", b"{}"), "KEY_MISSING")},
    )


def _rdss_by_hand(spark: SparkSession) -> ByHand:
    sent = records(spark, [as_bytes(MESSAGES["create"]), BAD])
    return ByHand(rdss.changes(rdss.decode(sent)), ["objectUUID"], {(BAD, "GENERR007")})


def _streams_by_hand(spark: SparkSession) -> ByHand:
    update = (
        b'{"db": "d", "clientid": "c", "request": 1, "user": "u", "begun": 7, "ended": 8, "part": 1, '
        b'"parts": 1, "status": 1, "collection": "C", "zone": "z", "entity": "e", "after": %s, '
        b'"ops": [{"op": "add", "path": "a", "value": 1}]}'
    )
    unfit = update % b'{"a": "one"}'
    sent = records(spark, [update % b'{"a": 1}', unfit, BAD])
    fields = T.StructType([T.StructField("a", T.LongType())])
    return ByHand(
        streams.changes(streams.decode(sent, streams.ENTITY_UPDATES), "C", fields),
        ["db", "zone", "entity"],
        {(unfit, "UNFIT_VALUE"), (BAD, "NOT_JSON")},
    )


def _databus_by_hand(spark: SparkSession) -> ByHand:
    """A window that passes, and one with an event of another source that is in error too."""
    tail = '{"type": "record", "name": "P", "fields": [{"name": "tail", "type": ["null", "string"]}]}'
    planes, others = databus.Source(3, "planes", [tail]), databus.Source(4, "others", [tail])
    of = {"physicalPartitionId": 1, "timestampInNanos": 0, "key": 7, "valueEnc": "JSON_PLAIN"}
    of |= {"schemaId": next(iter(planes.texts))}

    def event(scn: int, source: int, value: str = '{"tail": "N1"}', **more: str) -> bytes:
        return json.dumps({**of, "sequence": scn, "srcId": source, "value": value, **more}).encode()

    keyless, unread = event(5, 3, '{"tail": null}'), event(6, 3, schemaId="AAAA")
    sent = [event(5, 3), keyless, event(5, -2), BAD, unread, event(6, 4, schemaId="AAAA"), event(6, -2)]
    return ByHand(
        databus.changes(databus.decode(records(spark, sent), [planes, others]), planes, keys=["tail"]),
        ["tail"],
        {(keyless, "KEY_MISSING"), (BAD, "NOT_AN_EVENT"), (unread, "SCHEMA_UNKNOWN")},
    )


BY_HAND: dict[str, Callable[[SparkSession], ByHand]] = {
    "replicate": _replicate_by_hand,
    "datahub": _datahub_by_hand,
    "debezium": _debezium_by_hand,
    "rdss": _rdss_by_hand,
    "streams": _streams_by_hand,
    "databus": _databus_by_hand,
}
"""But tables, whose rows are no records."""

SHELLS: dict[str, Callable[[], Door]] = {
    "debezium": _debezium,
    "replicate": _replicate,
    "datahub": _datahub,
    "databus": _databus,
    "rdss": _rdss,
    "streams": _streams,
}
FREE: dict[str, Callable[[SparkSession], FreeDoor]] = {"tables": _tables}
DOORS = frozenset({*SHELLS, *FREE})

ERASED: dict[str, tuple[str, dict[str, Any]]] = {
    "debezium": ("items", {"item": "1"}),
    "replicate": ("db1/shop_task SHOP.ITEMS", {"id": 1}),
    "datahub": ("product", {"number": 1}),
    "databus": ("planes", {"tail": "N1"}),
    "rdss": ("ResearchObject", {"objectUUID": "00000384-0000-4000-8000-000000000000"}),
    "streams": ("entity", {"db": "d", "collection": "C", "zone": "z", "entity": "e"}),
}
"""By door the ledger and the key of the one entity of which its records speak."""

Rows = list[dict[str, Any]]


def rows(table: DataFrame) -> Rows:
    """The rows of a table, in an order that depends on nothing but them."""
    return sorted(table.select(*sorted(table.columns)).toArrow().to_pylist(), key=repr)


class Forgotten(NamedTuple):
    """A receipt, the changes of others before it, and all changes after it, and when all came again."""

    receipt: Receipt
    others: Rows
    changes: tuple[Rows, Rows]

    def require_gone(self) -> None:
        """Require that nothing of who was erased is there, and that all others are."""
        assert self.receipt.is_proven
        assert self.receipt.entities == 1
        assert self.changes == (self.others, self.others)


def forget_entity(spark: SparkSession, name: str, place: Path) -> Forgotten:
    """A shell receives the records of its door, forgets their entity, and receives all records once more."""
    door, (ledger, keys) = SHELLS[name](), ERASED[name]
    shell, sent = door.open(spark, place), door.records(spark)
    shell.receive(sent)
    settle(shell)
    of_it = [F.col("data")[key] == value for key, value in keys.items() if key in door.keys]
    others = rows(door.changes(shell).where(~reduce(and_, of_it)))
    receipt = shell.erase(ledger, keys=[keys], by="dana", reason="asked for by letter")
    after = rows(door.changes(shell))
    shell.receive(sent.withColumn("offset", F.col("offset") + 100))
    settle(shell)
    return Forgotten(receipt, others, (after, rows(door.changes(shell))))
