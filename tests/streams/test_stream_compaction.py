"""After a stream was compacted its entities are what they were."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from cdckit import current, merge, streams
from cdckit.model.records import RECORD_SCHEMA
from support.devices import add

AT = datetime(2014, 11, 11, tzinfo=UTC)
FIELDS = T.StructType([T.StructField(name, T.StringType()) for name in ("name", "colour")])


def update(number: int, entity: str, op: dict[str, Any], **after: Any) -> bytes:
    """The update of this number; `after=` what the entity is then, if it is said."""
    who = {"db": "shop", "collection": "Mugs", "zone": "z", "entity": entity, "user": "ann", "clientid": "c"}
    return json.dumps(
        {**who, "request": number, "part": 1, "parts": 1, "begun": number, "ended": number, "status": 1}
        | {"ops": [op], **after}
    ).encode()


MUG = {"name": "mug", "colour": "red"}
WHOLE = add("/", MUG)
BLUE = add("colour", "blue")
IS_BLUE = {**MUG, "colour": "blue"}

# By key: what its records say, and which of them are left; all are older than what is kept whole.
CASES: dict[str, tuple[list[tuple[dict[str, Any], dict[str, Any]]], list[int]]] = {
    "made whole twice": ([(WHOLE, {"after": MUG}), (add("/", IS_BLUE), {"after": IS_BLUE})], [1]),
    "a part follows": ([(WHOLE, {"after": MUG}), (BLUE, {"after": IS_BLUE})], [0, 1]),
    "a part follows of which nobody wants the rest": ([(WHOLE, {"after": MUG}), (BLUE, {})], [0, 1]),
    "removed and made again": (
        [(WHOLE, {"after": MUG}), ({"op": "remove", "path": "/"}, {}), (WHOLE, {"after": MUG})],
        [2],
    ),
    "removed": ([(WHOLE, {"after": MUG}), (BLUE, {}), ({"op": "remove", "path": "/"}, {"after": None})], [2]),
}


def written(spark: SparkSession, rows: list[tuple[bytes | None, bytes | None, int, datetime]]) -> DataFrame:
    return spark.createDataFrame(
        [(key, value, "t", 0, offset, at, 0, None) for key, value, offset, at in rows], RECORD_SCHEMA
    )


def compacted(records: DataFrame) -> DataFrame:
    return streams.compact_records(
        records, streams.ENTITY_UPDATES, now=AT + timedelta(days=1), keep=timedelta(0)
    )


def mugs(records: DataFrame) -> list[Any]:
    changes = streams.changes(streams.decode(records, streams.ENTITY_UPDATES), "Mugs", FIELDS)
    newest = current(merge(changes, entity="mug", keys=streams.KEYS))
    return newest.select("entity", "name", "colour").orderBy("entity").collect()


def test_what_is_left_of_each_key_gives_the_same_entities(spark: SparkSession) -> None:
    rows, left = [], []
    for key, (updates, kept) in CASES.items():
        for place, (op, after) in enumerate(updates):
            offset = len(rows)
            rows.append((key.encode(), update(offset, key, op, **after), offset, AT))
            left += [offset] if place in kept else []
    records = written(spark, rows)
    kept_records = compacted(records)
    assert kept_records.columns == records.columns
    assert sorted(row.offset for row in kept_records.collect()) == left
    entities = [tuple(row) for row in mugs(kept_records)]
    assert entities == [tuple(row) for row in mugs(records)]
    # Of a part without the rest nobody can tell what the field is then.
    assert entities == [
        ("a part follows", "mug", "blue"),
        ("a part follows of which nobody wants the rest", "mug", "red"),
        ("made whole twice", "mug", "blue"),
        ("removed and made again", "mug", "red"),
    ]


def test_a_log_is_in_the_order_of_its_offsets_and_records_without_a_key_are_many(spark: SparkSession) -> None:
    hours = [AT + timedelta(hours=hour) for hour in range(3)]
    rows = [
        (b"late", update(0, "late", WHOLE, after=MUG), 0, hours[2]),
        (b"late", update(1, "late", add("/", IS_BLUE), after=IS_BLUE), 1, hours[1]),
        (None, update(2, "a", WHOLE, after=MUG), 2, hours[0]),
        (None, update(3, "b", WHOLE, after=MUG), 3, hours[0]),
        # What nobody can read says nothing, and stays as the last of its key alone.
        (b"unread", b"?", 4, hours[0]),
        (b"unread", b"{}", 5, hours[0]),
        # Two clocks that disagree: by its time the first comes after the second.
        (b"clocks", update(9, "clocks", BLUE, after=IS_BLUE), 6, hours[0]),
        (b"clocks", update(7, "clocks", WHOLE, after=MUG), 7, hours[0]),
    ]
    records = written(spark, rows)
    left = compacted(records)
    assert sorted(row.offset for row in left.collect()) == [1, 2, 3, 5, 6, 7]
    assert [tuple(row) for row in mugs(left)] == [
        ("a", "mug", "red"),
        ("b", "mug", "red"),
        ("clocks", "mug", "blue"),
        ("late", "mug", "blue"),
    ]
