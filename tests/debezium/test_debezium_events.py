"""What records of Debezium, Maxwell and wal2json say: the cases in tests/cases/debezium/events.json."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from cdckit import debezium, merge, rejects, union_changes
from cdckit.debezium.envelopes import read_records
from cdckit.debezium.events import Reader
from cdckit.debezium.other_producers import read_maxwell, read_wal2json
from cdckit.errors import InvalidArgument
from cdckit.model.records import RECORD_SCHEMA
from support.database_events import batch, changes, event_table, events, rows, types

CASES = json.loads((Path(__file__).parents[1] / "cases/debezium/events.json").read_text())
READERS: dict[str, Reader] = {
    "debezium": read_records,
    "maxwell": read_maxwell,
    "wal2json": read_wal2json,
}


def records(
    spark: SparkSession,
    values: Sequence[bytes | None],
    headers: Sequence[dict[str, str]],
    key: bytes | None = None,
) -> DataFrame:
    """Records of one topic, without a time of their own; all with one key, or without any."""
    rows = [
        (key, value, "t", 0, offset, None, 0, [(name, text.encode()) for name, text in said.items()] or None)
        for offset, (value, said) in enumerate(zip(values, headers, strict=True))
    ]
    return spark.createDataFrame(rows, RECORD_SCHEMA)


def value_of(case: dict[str, Any]) -> bytes | None:
    if "text" in case:
        return str(case["text"]).encode()
    return json.dumps(case["value"]).encode() if "value" in case else None


@pytest.mark.parametrize("producer", READERS)
def test_what_a_record_says(producer: str) -> None:
    """Every case of a producer; none costs another its row."""
    cases = [case for case in CASES["decoding"] if case["producer"] == producer]
    deep = b'{"id": 1, "a": ' + b"[" * 900 + b"]" * 900 + b"}"
    hostile = [b"\xff\xfe", b'{"a":' * 5000 + b"1" + b"}" * 5000, b'{"op":' + b"[" * 100_000, deep]
    headers = [case.get("headers", {}) for case in cases] + [{}] * len(hostile)
    found = events(batch([*map(value_of, cases), *hostile], headers=headers), READERS[producer])
    for case, row in zip(cases, found, strict=False):
        at = row["event_timestamp"]
        shown = row | {"event_timestamp": at and re.sub(r"(\.\d*?)0*$", r"\1", f"{at:%F %T.%f}").rstrip(".")}
        assert {name: shown[name] for name in case["expected"]} == case["expected"], case["name"]
    refused = [row["error_code"] for row in found[len(cases) :]]
    assert refused == ["NOT_JSON"] * 3 + ["NOT_AN_EVENT"]


def test_a_record_has_its_own_time_where_its_event_says_none(spark: SparkSession) -> None:
    value = b'{"op": "c", "after": {"id": 1}, "source": {"table": "t"}}'
    at = datetime(2024, 3, 1, tzinfo=UTC)
    sent = spark.createDataFrame([(None, value, "t", 0, 0, at, 0, None)], RECORD_SCHEMA)
    row = debezium.decode(sent).collect()[0]
    assert (row["event_timestamp"], row["time_taken_from"]) == (at.replace(tzinfo=None), "record")


def test_how_a_value_is_read(spark: SparkSession) -> None:
    """Each encoding is a column of one row of its own; a value that does not convert is a reject."""
    source = {"connector": "postgresql", "table": "t", "ts_ms": 1}
    columns = {"id": "int32"} | {f"c{n}": said for n, (said, _, _) in enumerate(CASES["encodings"])}
    values = [
        json.dumps({"op": "c", "after": {"id": n, f"c{n}": value}, "source": source}).encode()
        for n, (_, value, _) in enumerate(CASES["encodings"])
    ]
    decoded = debezium.decode(records(spark, values, [{}] * len(values))).localCheckpoint()
    rows = debezium.table_rows(decoded, "t", keys=["id"], columns=columns)
    as_text = [
        F.coalesce(F.try_element_at(F.array(_text(rows, name)), F.lit(1)), F.lit(None)).alias(name)
        for name in columns
    ]
    found = rows.select("offset", "error_code", *as_text).orderBy("offset").collect()
    read = [
        (said, value, None if row["error_code"] == "VALUE_INVALID" else row[f"c{n}"])
        for n, ((said, value, _), row) in enumerate(zip(CASES["encodings"], found, strict=True))
    ]
    assert read == [tuple(case) for case in CASES["encodings"]]


def test_a_value_that_cannot_be_read_costs_its_row_or_itself(spark: SparkSession) -> None:
    """As the caller says; but a key that cannot be read, now or before, always costs the row."""
    source = {"connector": "postgresql", "table": "t", "ts_ms": 1}
    good, far = {"a": "1.50", "b": 1_000_000}, "9" * 300
    said: list[dict[str, Any]] = [
        {"op": "c", "after": {"id": 1} | good},
        {"op": "u", "after": {"id": 1, "a": "1234.50", "b": 1_000_000}},
        {"op": "u", "after": {"id": 1, "a": far, "b": "soon"}},
        {"op": "c", "after": {"id": "five"} | good},
        {"op": "u", "before": {"id": "five"}, "after": {"id": 5} | good},
        {"op": "u", "before": {"id": 5}, "after": {"id": "six"} | good},
        {"op": "d", "before": {"id": 1, "a": "?", "b": "?"}},
    ]
    sent = batch([event | {"source": source} for event in said])
    columns = {"id": "int32", "a": "decimal(5,2)", "b": "io.debezium.time.MicroTimestamp"}
    fare, at = Decimal("1.50"), datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    sound, gone = ("upsert", 1, fare, at, True, None), ("delete", 1, None, None, False, None)
    alone = ("upsert", 1, None, at, True, ["a: 1234.50"])
    both = ("upsert", 1, None, None, True, ["a: " + "9" * 200, "b: soon"])
    of_keys = {3: "id: five", 4: "id: five", 5: "id: six"}
    for is_reject, expected, refused in [
        (True, [sound, gone], {1: "a: 1234.50", 2: "a: " + "9" * 197} | of_keys),
        (False, [sound, alone, both, gone], of_keys),
    ]:
        stated = changes(sent, ["id"], columns, reject=is_reject)
        assert {row["reject"]["offset"] for row in stated if row["reject"]} == refused.keys()
        assert [
            (row["operation"], *row["data"].values(), row["carried"]["a"], row["faults"])
            for row in stated
            if row["reject"] is None
        ] == expected
        wrong = [row for row in rows(sent, ["id"], columns, reject=is_reject) if row["error_code"]]
        assert {row["offset"]: row["error_description"].partition("It says: ")[2] for row in wrong} == refused
        assert {row["error_code"] for row in wrong} == {"VALUE_INVALID"}
    with pytest.raises(InvalidArgument, match="needs unreadable to be 'reject' or 'null'"):
        debezium.changes(
            debezium.decode(records(spark, [], [])), "t", keys=["id"], columns=columns, unreadable="drop"
        )


def _text(rows: DataFrame, name: str) -> Any:
    kind = {field.name: field.dataType.simpleString() for field in rows.schema["data"].dataType}[name]
    value = F.col("data")[name]
    return F.lower(F.hex(value)) if kind == "binary" else value.cast("string")


@pytest.mark.parametrize("case", CASES["changes"], ids=[case["name"] for case in CASES["changes"]])
def test_what_events_are_as_changes(case: dict[str, Any]) -> None:
    values, headers = zip(*case["values"], strict=True)
    call = case["keys"], case["columns"], READERS[case["producer"]], case["table"]
    sent = batch(values, headers=headers)
    found = [row for row in changes(sent, *call) if row["reject"] is None]
    shown = [[row["operation"], row["data"], row["carried"], *_other_keys(row)] for row in found]
    assert shown == case["expected"]
    if "rejects" in case:
        refused = [row["error_code"] for row in rows(sent, *call)]
        assert [code for code in refused if code] == case["rejects"]


def _other_keys(row: dict[str, Any]) -> list[str | None]:
    """To which key a row went, and from which it came."""
    side = {"delete": "new_key", "upsert": "old_key"}[row["operation"]]
    other = row["moved"] and json.dumps(row["moved"][side], separators=(",", ":"))
    return [other, None] if side == "new_key" else [None, other]


def test_documents_are_rows_by_the_ids_that_their_keys_say(spark: SparkSession) -> None:
    """A delete of MongoDB has the key alone; changes of one transaction have one second and one number."""
    source = {"connector": "mongodb", "name": "m", "db": "inventory", "collection": "customers", "ord": 1}
    said: list[tuple[str, str | None, dict[str, int]]] = [
        ("c", '{"_id": {"$numberLong": "1004"}, "name": "Ann", "phone": "5"}', {"ts_ms": 1000}),
        ("u", '{"_id": {"$numberLong": "1004"}, "name": "Anna"}', {"ts_ms": 2000, "txnNumber": 5}),
        ("u", '{"_id": {"$numberLong": "1004"}, "name": "Anne"}', {"ts_ms": 2000, "txnNumber": 5}),
        ("d", None, {"ts_ms": 3000}),
    ]
    # With pre-images, each says the document before it too.
    values = [
        json.dumps({"op": op, "before": before, "after": after, "source": source | at})
        for (op, after, at), before in zip(said, [None, *(after for _, after, _ in said)], strict=False)
    ]
    sent = records(spark, [each.encode() for each in values], [{}] * 4, key=b'{"id": "1004"}')
    columns = {"_id": "int64", "name": "string", "phone": "string"}
    told = debezium.changes(debezium.decode(sent).localCheckpoint(), "customers", columns=columns)
    found = told.orderBy("sequence").collect()
    # A document is whole: what it lacks is there no more.
    assert [(row["operation"], *row["data"], *row["carried"]) for row in found] == [
        ("upsert", 1004, "Ann", "5", True, True, True),
        ("upsert", 1004, "Anna", None, True, True, True),
        ("upsert", 1004, "Anne", None, True, True, True),
        ("delete", 1004, None, None, True, False, False),
    ]
    assert len({row["message_id"] for row in found}) == 4


def history_of(
    spark: SparkSession, events: Sequence[dict[str, Any]], ids: Sequence[int] = (), **columns: str
) -> list[Row]:
    """The versions that events of a table `t` make, which arrived in their order, a second apart."""
    arrived = datetime(2024, 3, 1, tzinfo=UTC)
    rows = [
        (
            json.dumps({"id": ids[offset] if ids else 1}).encode(),
            json.dumps(event).encode(),
            "t",
            0,
            offset,
            arrived + timedelta(seconds=offset),
            0,
            None,
        )
        for offset, event in enumerate(events)
    ]
    decoded = debezium.decode(spark.createDataFrame(rows, RECORD_SCHEMA))
    told = debezium.changes(decoded, "t", keys=[next(iter(columns))], columns=columns)
    return merge(told, entity="e", keys=[next(iter(columns))]).orderBy("valid_from_timestamp").collect()


def test_a_document_that_changes_while_a_snapshot_reads_it(spark: SparkSession) -> None:
    """
    A snapshot has no place in the log of MongoDB: its rows say the number -1, and any clock.

    The connector's clock, that of Debezium 3.0, and none at all; for each three documents, which are changed,
    deleted, and changed and read once more: a second snapshot is not the first one once more.
    """
    source = {"connector": "mongodb", "name": "m", "db": "d", "collection": "t", "ord": 1}

    def event(op: str, of: dict[str, Any], number: int, value: str | None) -> dict[str, Any]:
        after = None if value is None else json.dumps({"_id": number, "v": value})
        return {"op": op, "after": after, "source": of, "ts_ms": 20_000}

    told, expected = [], {}
    for place, clock in enumerate((10_000, 0, None)):
        read = source | {"snapshot": "true", "ord": -1} | ({} if clock is None else {"ts_ms": clock})
        one, two, three = range(3 * place + 1, 3 * place + 4)
        told += [(number, event("r", read, number, "old")) for number in (one, two, three)]
        told += [(number, event("u", source | {"ts_ms": 9_000}, number, "new")) for number in (one, three)]
        told += [(two, event("d", source | {"ts_ms": 9_500}, two, None))]
        told += [(three, event("r", read, three, "newer"))]
        expected |= {one: ("new", False), two: (None, True), three: ("newer", False)}
    ids, events = zip(*told, strict=True)
    rows = history_of(spark, events, ids, _id="int32", v="string")
    last = {row["_id"]: (row["v"], row["deleted_indicator"]) for row in rows}
    assert last == expected
    assert sorted(row["_id"] for row in rows if row["valid_to_timestamp"] is None) == list(range(1, 10))


def test_tables_that_one_snapshot_read_are_two_messages(spark: SparkSession) -> None:
    """PostgreSQL reads all tables at one LSN: also two tables that say something of one entity."""
    source = {"connector": "postgresql", "name": "shop", "db": "d", "schema": "public", "lsn": 100}
    said = [("users", {"id": 1, "name": "Ann"}), ("profiles", {"id": 1, "city": "Rome"})]
    values = [
        json.dumps({"op": "r", "after": after, "source": source | {"table": table, "ts_ms": 1000}}).encode()
        for table, after in said
    ]
    decoded = debezium.decode(records(spark, values, [{}] * 2)).localCheckpoint()
    users = debezium.changes(decoded, "users", keys=["id"], columns={"id": "int32", "name": "string"})
    profiles = debezium.changes(decoded, "profiles", keys=["id"], columns={"id": "int32", "city": "string"})
    (found,) = merge(union_changes(users, profiles), entity="user", keys=["id"]).collect()
    assert (found["name"], found["city"]) == ("Ann", "Rome")


def test_changes_of_a_transaction_that_say_no_number(spark: SparkSession) -> None:
    """OpenLogReplicator says the SCN of the commit alone, of all changes of a transaction."""
    source = {"connector": "oracle", "name": "o", "schema": "s", "table": "t", "scn": "500", "ts_ms": 1000}
    load = source | {"scn": "400", "snapshot": "last"}
    loaded = [{"op": "r", "after": {"id": number, "v": "old"}, "source": load} for number in (1, 2)]
    said = [(1, "a"), (2, "a"), (1, "b"), (2, "b"), (1, "a")]
    events = [{"op": "u", "after": {"id": number, "v": v}, "source": source} for number, v in said]
    ids = [1, 2, *(number for number, _ in said)]
    found = history_of(spark, [*loaded, *events], ids, id="int32", v="string")
    assert {row["id"]: row["v"] for row in found} == {1: "a", 2: "b"}
    # A key that changes is a delete and a create that name each other, of one move.
    values = [
        json.dumps({"op": "d", "before": {"id": 1, "v": "a"}, "source": source}).encode(),
        json.dumps({"op": "c", "after": {"id": 2, "v": "a"}, "source": source}).encode(),
    ]
    values.append(json.dumps({"op": "u", "after": {"id": 2, "v": "b"}, "source": source}).encode())
    named = [{"__debezium.newkey": '{"id":2}'}, {"__debezium.oldkey": '{"id":1}'}, {}]
    decoded = debezium.decode(records(spark, values, named))
    told = debezium.changes(decoded, "t", keys=["id"], columns={"id": "int32", "v": "string"})
    gone, came, then = told.orderBy("arrival.offset").collect()
    assert gone["moved"] == came["moved"]
    assert gone["message_id"] != came["message_id"]
    assert gone["sequence"] < came["sequence"] < then["sequence"]


def test_a_changed_key_keeps_its_row_where_other_columns_are_asked_for() -> None:
    """The key of the records has the region too: a delete and a create at one position, of one number."""
    source = {"connector": "postgresql", "name": "shop", "table": "t", "sequence": '["1","2"]', "ts_ms": 1000}
    gone = {"op": "d", "before": {"id": 1, "region": "eu"}, "source": source}
    come = {"op": "c", "after": {"id": 1, "region": "us"}, "source": source}
    headers = [
        {"__debezium.newkey": '{"id":1,"region":"us"}'},
        {"__debezium.oldkey": '{"id":1,"region":"eu"}'},
    ]
    columns = {"id": "int32", "region": "string"}
    first, second = changes(batch([gone, come], headers=headers), ["id"], columns)
    assert (first["operation"], second["operation"], second["data"]["region"]) == ("delete", "upsert", "us")
    assert first["sequence"] < second["sequence"]
    assert first["message_id"] != second["message_id"]


def test_a_key_column_may_have_the_name_of_the_payload() -> None:
    source = {"connector": "postgresql", "name": "shop", "table": "t", "sequence": '["1","2"]', "ts_ms": 1000}
    gone = {"op": "d", "before": {"payload": 1}, "source": source}
    headers = [
        {"__debezium.newkey": key} for key in ('{"payload":2}', '{"schema":{},"payload":{"payload":2}}')
    ]
    told = changes(batch([gone] * 2, headers=headers), ["payload"], {"payload": "int32"})
    assert [row["moved"]["new_key"]["payload"] for row in told] == [2, 2]


def test_a_redelivered_event_is_the_same_message() -> None:
    """A delete and a read too, whose messages are not those of another change at their position."""
    source = {"connector": "postgresql", "name": "shop", "table": "t", "sequence": '["1","2"]', "ts_ms": 1000}
    said = {"r": {"after": {"id": 1}}, "u": {"after": {"id": 1}}, "d": {"before": {"id": 1}}}
    values = [{"op": op, "source": source} | image for op, image in said.items()]
    found = [row["message_id"] for row in changes(batch(values * 2), ["id"], {"id": "int32"})]
    place = "00000000000000000001/00000000000000000002"
    assert found == [f"shop:r/{place}#t", f"shop:{place}", f"shop:d/{place}"] * 2


def test_events_of_a_commit_of_sqlserver_count_as_they_were_delivered() -> None:
    """A deferred update: its insert has the lower LSN; what is delivered again is the same message."""
    said = {"connector": "sqlserver", "name": "shop", "table": "t", "ts_ms": 1000, "commit_lsn": "0:2:9"}
    values = [
        {"op": "d", "before": {"id": 1}, "source": said | {"change_lsn": "0:2:7", "event_serial_no": 1}},
        {"op": "c", "after": {"id": 1}, "source": said | {"change_lsn": "0:2:3", "event_serial_no": 1}},
    ]
    found = changes(batch(values * 2), ["id"], {"id": "int32"})
    places = [row["sequence"] for row in found]
    assert (len(set(places)), sorted(places)) == (4, places)
    assert [row["message_id"] for row in found] == [row["message_id"] for row in found[:2]] * 2
    assert found[0]["message_id"] != found[1]["message_id"]


def test_a_record_without_a_place_is_a_reject_or_a_change_all_the_same() -> None:
    """Records of a file may have no partition, and no offset."""
    source = {"connector": "other", "name": "shop", "table": "t", "ts_ms": 1000}
    sent = batch([{"op": "c", "after": {"id": 1}, "source": source}, "{"])
    nowhere = sent.set_column(4, "offset", pa.array([None, None], pa.int64()))
    refused, change = changes(nowhere, ["id"], {"id": "int32"})
    assert (refused["reject"]["error_code"], refused["message_id"]) == ("NOT_JSON", "t:t/0")
    assert (change["reject"], change["message_id"][:19]) == (None, "shop:t/0/c/1000000#")


def test_events_without_a_position_are_told_apart_by_the_times_of_their_records() -> None:
    """A topic that was made anew counts its offsets from 0 again; a queue may have none at all."""
    source = {"connector": "other", "name": "shop", "table": "t", "ts_ms": 1000}
    values = [{"op": "c", "after": {"id": 1, "v": value}, "source": source} for value in (7, 8, 8)]
    sent, types = batch(values), {"id": "int32", "v": "int32"}
    days = pa.array([0, 86_400_000_000, 86_400_000_000], pa.int64()).cast(pa.timestamp("us", "UTC"))
    first = pa.array([0, 0, 0], pa.int64())
    anew = sent.set_column(4, "offset", first).set_column(5, "timestamp", days)
    nowhere = sent.set_column(4, "offset", pa.array([None] * 3, pa.int64()))
    together = {"connector": "mongodb", "name": "shop", "table": "t", "ts_ms": 1000, "ord": 3, "txnNumber": 1}
    placed = batch([value | {"source": together} for value in values])
    within = placed.set_column(4, "offset", pa.array([None] * 3, pa.int64()))
    for records in (anew, nowhere, within):
        one, other, again = (row["message_id"] for row in changes(records, ["id"], types))
        assert one != other == again


def test_a_table_of_events_gives_the_changes_of_its_records() -> None:
    """Of any producer: its texts do not say whether `1234` was a number, or Base64."""
    column, at = {"name": "id", "value": 1234}, {"timestamp": "2024-03-01 12:00:00+00"}
    sent: dict[str, Any] = {
        "debezium": {"op": "c", "after": {"id": 1234}, "source": {"table": "t", "ts_ms": 1}},
        "maxwell": {"type": "insert", "table": "t", "ts": 1, "data": {"id": 1234}},
        "wal2json": {"action": "I", "table": "t", "columns": [column]} | at,
    }
    columns = {"id": "org.apache.kafka.connect.data.Decimal(10,0)"}
    for producer, value in sent.items():
        records, reader = batch([value, None, "{", value]), READERS[producer]
        found = changes(event_table(records, reader), ["id"], columns, None)
        assert found == changes(records, ["id"], columns, reader)
        assert [row["data"]["id"] for row in found if row["data"]] == [1234, 1234]


def test_columns_of_events_that_say_no_types_are_untyped() -> None:
    """As wal2json's, told to leave types out."""
    said = {"action": "I", "table": "t", "timestamp": "2024-03-01 12:00:00+00", "columns": [{"name": "a"}]}
    assert types(batch([said]), read_wal2json) == {"a": ("untyped",)}


@pytest.mark.usefixtures("whole_plans")
def test_a_value_is_read_once_though_a_filter_asks_for_it_too(spark: SparkSession) -> None:
    """What reads JSON stands once in the plan, however often its answer is asked; rows are made of bytes."""

    def count_steps(rows: DataFrame) -> tuple[int, int]:
        plan = rows._jdf.queryExecution().optimizedPlan().toString()
        return plan.count("one_each("), plan.count("MapInArrow")

    decoded = debezium.decode(records(spark, [], []))
    assert count_steps(rejects(decoded)) == (1, 0)
    told = debezium.changes(decoded, "t", keys=["id"], columns={"id": "int32", "n": "string"})
    assert count_steps(told.where("operation = 'delete'")) == (0, 1)
    typed = {"id": "int32", "day": "io.debezium.time.Date"}
    unfit = rejects(debezium.table_rows(decoded.localCheckpoint(), "t", keys=["id"], columns=typed))
    assert count_steps(unfit) == (0, 1)


@pytest.mark.usefixtures("whole_plans")
def test_a_filter_of_records_reaches_their_files(spark: SparkSession, tmp_path: Path) -> None:
    """Of a table of all topics, what is asked of one is read alone."""
    records(spark, [b"{}"], [{}]).write.partitionBy("topic").parquet(str(tmp_path / "records"))
    kept = spark.read.schema(RECORD_SCHEMA).parquet(str(tmp_path / "records"))
    some = debezium.decode(kept).where("topic = 't' AND offset < 7")
    plan = some._jdf.queryExecution().executedPlan().toString()
    assert re.search(r"PartitionFilters: \[[^]]*\(topic#\d+ = t\)", plan)
    assert "LessThan(offset,7)" in plan.partition("PushedFilters: [")[2].partition("]")[0]


def test_a_stale_row_of_a_snapshot_does_not_win(spark: SparkSession) -> None:
    """The snapshot began before a change of 12:00:01, but its row says 12:00:09."""
    source = {"connector": "postgresql", "name": "shop", "table": "t"}
    read = {"sequence": '[null,"5"]', "ts_ms": 1709294409000, "snapshot": "true"}
    changed = {"sequence": '["5","6"]', "ts_ms": 1709294401000}
    values = [
        json.dumps({"op": op, "after": {"id": 1, "n": n}, "source": source | said}).encode()
        for op, n, said in (("r", "stale", read), ("u", "new", changed))
    ]
    decoded = debezium.decode(records(spark, values, [{}, {}])).localCheckpoint()
    columns = {"id": "int32", "n": "string"}
    told = debezium.changes(decoded, "t", keys=["id"], columns=columns)
    second = datetime(2024, 3, 1, 12, 0, 1)
    (row,) = merge(told, entity="t", keys=["id"]).collect()
    assert (row["n"], row["valid_from_timestamp"]) == ("new", second)
    begun = datetime(2024, 3, 1, 11, tzinfo=UTC)
    said = debezium.changes(decoded, "t", keys=["id"], columns=columns, snapshot_at=begun).orderBy("sequence")
    assert [row["effective_timestamp"] for row in said.collect()] == [begun.replace(tzinfo=None), second]


@pytest.mark.parametrize("streams_on", [False, True])
def test_a_second_snapshot_counts_behind_the_stream_before_it(spark: SparkSession, streams_on: bool) -> None:
    """The slot was lost, and with it that the row became 3; neither it nor what comes next knows a commit."""
    source = {"connector": "postgresql", "name": "shop", "table": "t"}
    said = [
        ("c", 1, '["100","110"]', "false", 10),
        ("u", 2, '["110","120"]', "false", 11),
        ("r", 3, '[null,"500"]', "true", 13),
        ("u", 4, '[null,"600"]', "false", 14),
        ("u", 5, '["610","590"]', "false", 15),
    ][: 5 if streams_on else 3]
    values = [
        {
            "op": op,
            "after": {"id": 1, "n": n},
            "source": source | {"sequence": at, "snapshot": read, "ts_ms": s},
        }
        for op, n, at, read, s in said
    ]
    sent = records(spark, [json.dumps(each).encode() for each in values], [{}] * len(said))
    decoded = debezium.decode(sent).localCheckpoint()
    told = debezium.changes(decoded, "t", keys=["id"], columns={"id": "int32", "n": "int32"})
    found = merge(told, entity="t", keys=["id"]).orderBy("valid_from_timestamp").collect()
    milliseconds = [(row["n"], row["valid_from_timestamp"].microsecond // 1000) for row in found]
    assert milliseconds == [(1, 10), (2, 11), (3, 13), (4, 14), (5, 15)][: len(said)]


def test_a_call_that_cannot_be_meant_is_refused(spark: SparkSession) -> None:
    decoded = debezium.decode(records(spark, [], []))
    with pytest.raises(InvalidArgument, match="the name of a type"):
        debezium.changes(decoded, "t", keys=["id"], columns={"id": "no such type"})
    with pytest.raises(InvalidArgument, match="keys"):
        debezium.changes(decoded, "t", keys=["other"], columns={"id": "int32"})
    twice = debezium.changes(decoded, "t", keys=["id"], columns={"id": "int32", "Id": "int32"})
    assert twice.schema["data"].dataType.names == ["id", "Id_2"]
    with pytest.raises(InvalidArgument, match="table"):
        debezium.changes(decoded, ["t"], keys=["id"], columns={"id": "int32"})
    with pytest.raises(InvalidArgument, match="a table among none at all"):
        debezium.changes(decoded, "t", keys=["id"])
