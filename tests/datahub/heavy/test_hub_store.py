"""
A hub among others: versions written anew, questions while others commit, a run that fails.

In `make test`: tests/datahub/test_datahub_store.py::test_whoever_is_always_overtaken_is_told,
tests/datahub/test_datahub_store.py::test_what_cannot_be_committed_was_not_received,
tests/datahub/test_datahub_store.py::test_opening_a_hub_and_asking_it_write_and_delete_nothing.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import cdckit.datahub.runs
import cdckit.datahub.state
import cdckit.store.store
from cdckit.datahub import Hub
from support.hub_programs import rows_of
from support.hub_store import AT, HOUR, SHOP, names, product


def test_every_question_sees_what_others_have_committed(spark: SparkSession, tmp_path: Path) -> None:
    """And what was answered stays as it was answered, however much is written later."""
    one, other = Hub(spark, SHOP, tmp_path), Hub(spark, SHOP, tmp_path)
    one.receive([product("1")], received_at=AT)
    one.run(now=AT)
    taken = [other.history("product"), other.messages(), other.log(), other.changes("product")]
    first = [sorted(map(repr, rows_of(each))) for each in taken]
    assert [len(rows) for rows in first] == [1, 1, 1, 1]
    for hour in (1, 2):
        again = {**product(f"again {hour}", f"pot {hour}"), "data": {"no": "1", "name": f"pot {hour}"}}
        one.receive([again], received_at=AT + hour * HOUR)
        one.run(now=AT + hour * HOUR)
    now = [other.history("product"), other.messages(), other.log(), other.changes("product")]
    assert [each.count() for each in now] == [3, 3, 3, 3]
    assert [sorted(map(repr, rows_of(each))) for each in taken] == first


def test_a_message_has_few_versions_of_others_written_anew(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cdckit.datahub.state, "_FILE_ROWS", 100)
    # A hub of so few would be merged as a whole.
    monkeypatch.setattr(cdckit.datahub.runs, "FEW_STATEMENTS", 0)
    hub = Hub(spark, SHOP, tmp_path)
    many = {"entity": "product", "guid": "many", "data": [product(f"{one}")["data"] for one in range(2_000)]}
    hub.receive([many])
    hub.run(now=AT)
    before = {one.path: one for one in hub.store.snapshot().files("history.product")}
    hub.receive([product("1999", "pot")])
    hub.run(now=AT + HOUR)
    after = {one.path: one for one in hub.store.snapshot().files("history.product")}
    gone, came = before.keys() - after.keys(), after.keys() - before.keys()
    assert len(gone) == 1
    assert sorted(after[path].rows for path in came) == [2, sum(before[path].rows for path in gone) - 1]
    assert max(one.rows for one in after.values()) == 100
    assert ("1999", "pot") in names(hub)
    assert sum(one.rows for one in after.values()) == 2_001
    # The few new rows are put together, and no file gets more than it may have.
    hub.receive([product("2000")])
    hub.run(now=AT + 2 * HOUR)
    hub.store.compact()
    rows = sorted(one.rows for one in hub.store.snapshot().files("history.product"))
    assert rows == [3, 99, *[100] * 19]
