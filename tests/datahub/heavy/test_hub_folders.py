"""
What is no message, in a hub that reads a folder again and again.

In `make test`:
tests/datahub/test_datahub_messages.py::test_what_is_in_the_store_is_received_before_however_early_it_comes_again,
tests/datahub/test_datahub_store.py::test_a_batch_is_received_once.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from cdckit.datahub import Hub, files, records, schema
from support.hub_folders import AT
from support.hub_programs import receipts_of, rows_of


def test_what_is_no_message_is_received_once_from_its_place(spark: SparkSession, tmp_path: Path) -> None:
    """A folder that is read again rejects nothing anew; other bytes from one place are another matter."""
    (tmp_path / "in").mkdir()
    for name, text in {"a.json": '{"entity": "e"}', "b.json": "{", "c.json": "{"}.items():
        (tmp_path / "in" / name).write_text(text)
    e = {"reference": "e", "fields": [{"reference": "k", "key": True}]}
    hub = Hub(spark, schema({"reference": "*", "mappings": {"e": [e]}}), tmp_path / "hub")
    received = [
        sorted(row["status"] for row in receipts_of(hub, files(spark, tmp_path / "in"))) for _ in range(3)
    ]
    assert received == [[0, 22, 22], [5, 5, 5], [5, 5, 5]]
    assert len(rows_of(hub.rejects())) == 2
    statuses = [
        [row["status"] for row in receipts_of(hub, records(spark, [text], received_at=AT))]
        for text in ("{", "[", "{")
    ]
    assert statuses == [[22], [22], [5]]
