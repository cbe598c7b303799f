"""The task that goes through weak keys gives every record the entity that the interpreter gives it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdckit import datahub
from cdckit.datahub.message_statements import read_statements
from cdckit.datahub.messages import MESSAGE_SCHEMA
from cdckit.datahub.readers import READERS as OWN_READERS
from cdckit.datahub.readers import ReaderSettings
from cdckit.datahub.source_systems import Schema
from cdckit.datahub.statements import MESSAGE_COLUMNS, statement_schema
from cdckit.datahub.weak_keys import LOOKS, WeakKeys, connecting_fields, find_key_holders
from cdckit.datahub.weak_keys import walk_records as walked_rows
from cdckit.parts.arrow_types import arrow_schema
from support.hub_comparison import interpreted
from support.hub_interpreter import Message, read_message
from support.hub_programs import FILTERS, READERS, Program, draw_program, to_json
from tools.tiers import seeds

Row = dict[str, Any]
Found = dict[tuple[str, str], tuple[str | None, bool]]
"""By message and record the guid of whom it means, and whether its keys lead to several."""


def statements_of(messages: list[Message], schema: Schema, entity: str) -> list[Row]:
    """What the messages say of the target, as rows."""
    kinds = {each.name: each.type for each in arrow_schema(MESSAGE_SCHEMA)}
    rows = [
        (each.identifier, each.system, each.entity, each.effective_timestamp, each.refresh, None,
         to_json(each.data), *each.arrival)
        for each in messages
    ]  # fmt: skip
    columns = zip(*rows, strict=True)
    batch = pa.RecordBatch.from_arrays(
        [pa.array(values, kinds[name]) for name, values in zip(MESSAGE_COLUMNS, columns, strict=True)],
        list(MESSAGE_COLUMNS),
    )
    work = ReaderSettings(schema, {**OWN_READERS, **READERS}, FILTERS, None, frozenset([entity]))
    return [row for _, made in read_statements(iter([batch]), work) for row in made.to_pylist()]


def walked(program: Program, entity: str) -> Found:
    """As the task finds it that Spark would hand the rows to, in their order."""
    schema = datahub.schema(*program.schema)
    target, numbers = schema.targets[entity], schema.numbers
    priorities = {numbers[place]: mapping.priority for place, mapping in target.mappings.items()}
    messages = {each.identifier: each for each in map(read_message, program.messages) if each is not None}
    rows = [
        row
        for row in statements_of(list(messages.values()), schema, entity)
        if row["operation"] == "refresh"
        or (row["operation"] in ("upsert", "delete") and row["claims"] is not None)
    ]
    rows.sort(
        key=lambda row: (row["effective_timestamp"], *row["arrival"].values(), -priorities[row["place"]])
    )
    work = WeakKeys.from_schema(schema, target)
    types = {each.name: each.type for each in arrow_schema(statement_schema(target)).field("data").type}

    def column(values: list[Any], kind: pa.DataType) -> pa.Array:
        return pa.array(values, kind)

    batch = pa.RecordBatch.from_arrays(
        [
            column([row["effective_timestamp"] for row in rows], pa.timestamp("us", "UTC")).cast(pa.int64()),
            column([row["message_id"] for row in rows], pa.string()),
            column([row["arrival"]["record_number"] for row in rows], pa.int32()),
            column([row["place"] for row in rows], pa.int32()),
            column([row["record"] for row in rows], pa.string()),
            column([LOOKS if row["error_code"] else row["operation"] for row in rows], pa.string()),
            column([priorities[row["place"]] for row in rows], pa.int32()),
            *(column([(row["data"] or {}).get(name) for row in rows], types[name]) for name in work.fields),
            *(column([(row["carried"] or {}).get(name) for row in rows], pa.bool_()) for name in work.fields),
        ],
        [str(place) for place in range(7 + 2 * len(work.fields))],
    )
    records = {(row["message_id"], row["arrival"]["record_number"]): row["record"] for row in rows}
    half = batch.num_rows // 2
    made = [row for each in walked_rows(iter([batch[:half], batch[half:]]), work) for row in each.to_pylist()]
    return {
        (row["message_id"], records[row["message_id"], row["number"]]): (row["guid"], row["several"])
        for row in made
        if row["message_id"] is not None
    }


def expected(program: Program, entity: str) -> Found:
    """As the interpreter finds it; of a record in error it keeps the error that was there first."""
    units = [unit for message in interpreted(program).stored.values() for unit in message.units]
    return {
        (unit.message.identifier, unit.path): (unit.guid, unit.error == "KEY_AMBIGUOUS")
        for unit in units
        if unit.mapping.target == entity and not unit.dropped
    }


@seeds(*range(200, 206), soak=30)
def test_every_record_means_whom_the_interpreter_says(seed: int) -> None:
    """300 messages each, with corrections, priorities, deletes, refreshes and keys of two fields."""
    program = draw_program(seed, messages=300).without_repeats()
    found, wanted = walked(program, "person"), expected(program, "person")
    assert {key: guid for key, (guid, _) in found.items()} == {key: wanted[key][0] for key in found}
    assert not {key for key, (guid, _) in wanted.items() if guid is not None} - found.keys()
    assert {key for key, (_, several) in wanted.items() if several} <= {
        key for key, (_, several) in found.items() if several
    }
    assert sum(several for _, several in found.values()) >= 3
    assert len({guid for guid, _ in found.values()}) >= 5


def persons(*keys: dict[str, str], link_key: str | None = None) -> Schema:
    """Persons whose fields belong to these keys, in one system each; and desks that may link to them."""
    links = [{"reference": "sitter", "type": "link", "linkEntity": "person", "linkKey": link_key}]
    desk = [{"reference": "desk", "key": True}, *(links if link_key else [])]
    systems = []
    for number, named in enumerate(keys):
        fields = [{"reference": name, "key": key} for name, key in named.items()]
        mappings = {"person": [{"reference": "person", "fields": fields}]}
        mappings["desk"] = [{"reference": "desk", "fields": desk}]
        systems.append({"reference": f"s{number}", "mappings": mappings})
    return datahub.schema(*systems)


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (persons({"emp": "a", "nino": "b"}), ["emp", "nino"]),
        # Of a key of several fields one is enough: the last, or one that is there already.
        (persons({"emp": "a", "country": "b", "number": "b"}), ["emp", "number"]),
        (persons({"country": "b", "number": "b"}, {"country": "c"}), ["country"]),
        # A link may look up any part of a key.
        (persons({"emp": "a", "country": "b", "number": "b"}, link_key="country"), ["emp", "country"]),
        (persons({"emp": "a", "nino": "b"}, link_key="emp"), ["emp", "nino"]),
    ],
)
def test_a_key_has_a_field_by_which_its_records_are_connected(schema: Schema, expected: list[str]) -> None:
    target = schema.targets["person"]
    assert connecting_fields(target, schema.lookup_keys.get("person", set())) == expected


COALESCE = "spark.sql.adaptive.coalescePartitions.enabled"


@pytest.fixture
def many_tasks(spark: SparkSession) -> Iterator[SparkSession]:
    """A session that puts no small partitions together."""
    spark.conf.set(COALESCE, "false")
    yield spark
    spark.conf.unset(COALESCE)


def test_kins_apart_give_what_all_records_in_their_order_give(many_tasks: SparkSession) -> None:
    """Parts of a program, the keys of each its own: their persons share no keys, and a refresh means all."""
    rows, spark = list[Row](), many_tasks
    program = draw_program(300, messages=720).without_repeats()
    schema = datahub.schema(*program.schema)
    for part, piece in enumerate(program.pieces(12), start=1):
        messages = [each for each in map(read_message, piece) if each is not None]
        for row in statements_of(messages, schema, "person"):
            for name in ("emp", "nino", "family"):
                if row["data"] and row["data"][name] is not None:
                    row["data"][name] += 10 * part if name == "emp" else str(part)
            rows.append(row)
    target, columns = schema.targets["person"], statement_schema(schema.targets["person"])
    table: Any = pa.Table.from_pylist(rows, arrow_schema(columns))
    statements = spark.createDataFrame(table, columns)
    together, apart = (
        find_key_holders(statements, schema, target, few=few)
        .withColumn("task", F.spark_partition_id())
        .toArrow()
        .to_pylist()
        for few in (True, False)
    )
    assert [len({row.pop("task") for row in found}) for found in (together, apart)] == [1, 2]
    assert sorted(apart, key=repr) == sorted(together, key=repr)
    records = [row for row in apart if row["message_id"] is not None]
    assert len(records) > 100
    assert len({row["guid"] for row in records}) > 40
    assert sum(row["several"] for row in records) > 3
    assert len({row["text"] for row in apart}) > 40
