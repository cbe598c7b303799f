"""
Batches of every shell: by another handle, in another order, by a stream; and who is forgotten by it.

In `make test`:
tests/test_doors.py::test_a_batch_that_comes_again_is_told_by_its_id,
tests/test_doors.py::test_who_was_erased_is_gone_and_does_not_come_again.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdckit.shell.shell import ReceiveResult
from cdckit.store import BatchIdReused
from support.doors import SHELLS, Door, forget_entity, records


@pytest.fixture(params=SHELLS)
def door(request: pytest.FixtureRequest) -> Door:
    return SHELLS[request.param]()


def test_a_batch_id_is_applied_once(spark: SparkSession, tmp_path: Path, door: Door) -> None:
    """Also by another handle, in another order, and by a stream; another content under it is an error."""
    shell, sent = door.open(spark, tmp_path), door.records(spark)
    count = len(door.values)
    assert shell.receive(sent, "monday") == ReceiveResult(1, count)
    again = door.open(spark, tmp_path).receive(sent.orderBy(F.desc("offset")), "monday")
    assert again == ReceiveResult(1, 0, repeated=True)
    with pytest.raises(BatchIdReused, match="monday"):
        shell.receive(sent.limit(1), "monday")
    assert shell.store.snapshot().version == 1
    take = shell.sink("landing")
    more = records(spark, [b"!"])
    assert (take(more, 0).records, take(more, 0).repeated) == (1, True)
    assert shell.sink("elsewhere")(more, 0).repeated is False


@pytest.mark.parametrize("name", SHELLS)
def test_whoever_was_erased_is_gone_and_does_not_come_again(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    forget_entity(spark, name, tmp_path).require_gone()
