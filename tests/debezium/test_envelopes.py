"""What is refused, and what is read, of envelopes that are not the usual one; without a JVM."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from cdckit.debezium.avro_events import Registry, read_avro
from cdckit.debezium.envelopes import read_records
from cdckit.debezium.event_tables import of_records, report_types
from cdckit.debezium.events import Event, Record, is_of_table, records_of, table_name
from support.database_events import batch


def read(value: dict[str, Any], key: dict[str, Any] | None = None) -> Event:
    text = json.dumps(value).encode()
    record = Record(None if key is None else json.dumps(key).encode(), text, 7, 5, None, None)
    (event,) = read_records(pa.array([text]), [record])
    return event


def of_connector(connector: str, op: str, after: Any, **said: Any) -> dict[str, Any]:
    return {"op": op, "ts_ms": 1, "after": after, "source": {"connector": connector, "table": "t", **said}}


def cell(value: Any, **more: Any) -> dict[str, Any]:
    return {"value": value, "set": True} | more


def test_cells_of_yugabytedb_are_read() -> None:
    """A column without a cell did not change; one whose cell has null became null."""
    created = read(of_connector("yugabytedb", "c", {"id": cell(1), "a": cell("x"), "b": cell(None)}))
    updated = read(of_connector("yugabytedb", "u", {"id": cell(1), "a": None, "b": cell(3)}, lsn="4:2::0:0"))
    assert created.after == {"id": 1, "a": "x", "b": None}
    assert (updated.after, updated.position, updated.error_code) == ({"id": 1, "b": 3}, None, None)


def test_cells_of_yugabytedb_are_read_where_its_connector_calls_itself_postgresql() -> None:
    """As that of logical replication does, which has a place in a log, and cells in keys too."""
    said = {"name": "shop", "sequence": '["100","200"]', "lsn": 200}
    key = {"id": cell(1)}
    updated = read(of_connector("postgresql", "u", {"id": cell(1), "a": None, "b": cell(None)}, **said), key)
    deleted = {**of_connector("postgresql", "d", None, **said), "before": {"id": cell(1), "a": None}}
    removed = read(deleted, key)
    assert (updated.after, updated.row_key, updated.error_code) == ({"id": 1, "b": None}, {"id": 1}, None)
    assert updated.position == "00000000000000000100/00000000000000000200"
    assert (removed.before, removed.after, removed.row_key) == ({"id": 1}, None, {"id": 1})


def test_a_row_of_postgresql_without_cells_is_left() -> None:
    plain = {"id": 1, "a": None, "b": {"value": "1", "set": "x"}}
    assert read(of_connector("postgresql", "u", plain, lsn=200)).after == plain
    empty = {"a": None}
    assert read(of_connector("postgresql", "c", empty, lsn=200)).after == empty


@pytest.mark.parametrize("capture", [None, "OLD_AND_NEW_VALUES", "NEW_ROW_AND_OLD_VALUES"])
def test_a_column_of_spanner_that_is_null_before_and_after_was_not_sent(capture: str | None) -> None:
    """So it writes columns that an update did not modify; one that became null was another value before."""
    after = {"id": 1, "same": None, "gone": None, "new": "x"}
    said = of_connector("spanner", "u", after, value_capture_type=capture)
    event = read({**said, "before": {"id": 1, "same": None, "gone": "y", "new": None}}, {"id": 1})
    assert (event.after, event.error_code) == ({"id": 1, "gone": None, "new": "x"}, None)
    created = read(of_connector("spanner", "c", after, value_capture_type=capture), {"id": 1})
    assert created.after == after


def test_a_null_of_spanner_that_may_not_have_been_sent_is_refused() -> None:
    """Where a change stream captures new values alone; a whole new row has all of its values."""
    for capture, after, refused in (
        ("NEW_VALUES", {"id": 1, "a": None}, "OTHER_ENVELOPE"),
        ("NEW_VALUES", {"id": 1, "a": "x"}, None),
        ("NEW_ROW", {"id": 1, "a": None}, None),
    ):
        event = read(of_connector("spanner", "u", after, value_capture_type=capture), {"id": 1})
        assert (event.error_code, event.after) == (refused, after)


def test_types_of_cells_are_those_of_their_values() -> None:
    parts = [{"type": "int32", "field": "value"}, {"type": "boolean", "field": "set"}]
    image = {"field": "after", "fields": [{"type": "struct", "field": "id", "fields": parts}]}
    said = of_connector("yugabytedb", "c", {"id": cell(1)})
    event = read({"schema": {"fields": [image]}, "payload": said})
    assert (event.types, event.after) == ({"id": "int32"}, {"id": 1})


def test_cells_of_any_other_connector_are_refused_by_its_name() -> None:
    event = read(of_connector("cassandra", "i", {"id": cell(1, deletion_ts=None)}))
    assert event.error_code == "UNKNOWN_OPERATION"
    event = read(of_connector("cassandra", "u", {"id": cell(1, deletion_ts=None), "a": None}))
    assert event.error_code == "OTHER_ENVELOPE"
    assert event.error_description is not None
    assert event.error_description.endswith("It says: cassandra")


def test_a_table_of_vitess_is_named_by_its_keyspace() -> None:
    """Its connector writes an empty `db` beside it."""
    event = read(of_connector("vitess", "c", {"id": 1}, db="", keyspace="commerce", shard="-80"))
    assert (table_name(event), is_of_table(event, "commerce.t")) == ("commerce.t", True)


def test_an_update_of_mongodb_without_a_document_names_the_option() -> None:
    event = read(of_connector("mongodb", "u", None, ts_ms=1, ord=1, collection="t"), {"id": '"a"'})
    assert event.error_code == "NO_ROW"
    assert "`capture.mode`" in (event.error_description or "")


def test_a_row_that_was_taken_out_of_its_envelope_is_told_how_it_is_read() -> None:
    row = {"id": 7, "price": 1.5, "__deleted": "false", "__source_ts_ms": 1709294400000}
    event = read(row, {"id": 7})
    assert event.error_code == "UNWRAPPED"
    assert (event.error_description or "").endswith(
        "A call that would do: rows = records.selectExpr(\"from_json(cast(value AS string), '`id` string, "
        '`price` string, `__deleted` string, `__source_ts_ms` bigint\') AS row", "timestamp", '
        '"offset").select("row.*", "timestamp", "offset"); changes_from(rows, keys=[\'id\'], '
        "effective='timestamp_millis(__source_ts_ms)', sequence_by='offset', "
        "apply_as_deletes=\"__deleted = 'true'\", "
        "except_column_list=['timestamp', 'offset', '__deleted', '__source_ts_ms'])"
    )
    assert read({"id": 7, "status": "NEW"}).error_code == "NOT_AN_EVENT"


def test_a_change_of_the_schema_names_no_key_of_its_table() -> None:
    """As SQL Server's: its source names the table, its key the database."""
    source = {"connector": "sqlserver", "name": "shop", "ts_ms": 1, "table": "t"}
    ddl = {"source": source, "ts_ms": 1, "databaseName": "shop", "schemaName": "dbo", "ddl": None}
    row = {"op": "c", "after": {"id": 1}, "source": source, "ts_ms": 1}
    sent = batch([ddl, row], keys=[{"databaseName": "shop"}, {"id": 1}])
    assert read(ddl).kind == "schema_change"
    (report,) = report_types([sent], of_records(read_records), "t")
    assert (report["keys"], [name for _, name, _ in report["types"]]) == ([("id",)], ["id"])


def test_of_several_headers_of_a_name_the_last_counts() -> None:
    name = "__debezium.newkey"
    (record,) = records_of(batch([None], headers=[[(name, "1"), ("other", "2"), (name, "3")]]))
    assert (record.new_key, record.old_key) == ("3", None)


def test_cells_in_avro_are_read() -> None:
    """An update of YugabyteDB: `id` is 1, `name` did not change."""
    cells = [
        {"type": "record", "name": name, "fields": [{"name": "value", "type": kind}, _SET]}
        for name, kind in (("Id", "int"), ("Name", ["null", "string"]))
    ]
    row = [{"name": name, "type": ["null", kind]} for name, kind in zip(("id", "name"), cells, strict=True)]
    texts = [{"name": name, "type": "string"} for name in ("connector", "table")]
    source = {"type": "record", "name": "Source", "fields": [*texts, {"name": "lsn", "type": "long"}]}
    fields = [
        {"name": "op", "type": "string"},
        {"name": "after", "type": ["null", {"type": "record", "name": "Row", "fields": row}]},
        {"name": "source", "type": source},
        {"name": "ts_ms", "type": "long"},
    ]
    schema = json.dumps({"type": "record", "name": "Envelope", "fields": fields})
    value = b"\0\0\0\0\7" + b"\2u" + b"\2\2\2\1\0" + b"\x14postgresql" + b"\2t" + b"\x90\3" + b"\2"
    record = Record(None, value, 7, 5, None, None)
    (event,) = read_avro(pa.array([value]), [record], Registry({7: schema}, 4))
    assert (event.after, event.error_code) == ({"id": "1"}, None)
    assert event.types == {"id": "int32", "name": "string"}


_SET = {"name": "set", "type": "boolean"}
