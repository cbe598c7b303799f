"""The road of every place that is no local folder: deltalake's own file system, here over local files."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdckit.store import DamagedTable, Store, store
from cdckit.store.erasure import forget_past
from cdckit.store.locations import Location
from support.remains import find_remains
from support.store_numbers import add, held, numbers


@pytest.fixture
def remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to which every store goes by URI, as it would to a bucket."""
    place = tmp_path / "bucket"
    place.mkdir()
    monkeypatch.setattr(store, "locate", lambda *_: Location(f"file://{place}", False))
    return place


def test_a_store_without_folders(remote: Path) -> None:
    kept = Store(None, "any")
    assert kept.snapshot().names() == []
    for number in range(20):
        add(kept, "log", number)
    assert held(Store(None, "any"), "log") == list(range(20))
    assert held(kept.snapshot(version=3), "log") == [0, 1, 2]
    with kept.begin() as transaction:
        transaction.replace("log", numbers(7))
        transaction.commit(batch="b", digest=1)
    for path in remote.rglob("*"):
        os.utime(path, (time.time() - 9, time.time() - 9))
    gone = kept.vacuum(timedelta(0))
    assert len([path for path in gone if path.startswith("log/")]) == 20
    assert held(kept, "log") == [7]
    kept.check()
    [file] = (remote / "log").glob("*.parquet")
    file.unlink()
    with pytest.raises(DamagedTable, match="the file is not there"):
        kept.check()
    with pytest.raises(DamagedTable, match="the file is not there"):
        held(kept, "log")


def test_its_past_is_forgotten_there_too(remote: Path) -> None:
    kept = Store(None, "any")
    for number in range(23):
        with kept.begin() as transaction:
            transaction.replace("log", numbers(1_000_000_000_000 + number))
            transaction.commit()
    before = len(find_remains(remote, {"old": [1_000_000_000_007]}))
    forget_past(kept.snapshot().location)
    assert (before, find_remains(remote, {"old": [1_000_000_000_007]})) == (4, {})
    assert held(kept, "log") == [1_000_000_000_022]
    kept.check(deep=True)


def test_workers_write_there_too(spark: SparkSession, remote: Path) -> None:
    kept = Store(spark, "any")
    with kept.begin() as transaction:
        transaction.append(
            "log", spark.sql("select id as n, id % 2 as part from range(10)"), partition_by=["part"]
        )
        transaction.commit()
    kept.compact()
    assert held(kept, "log") == list(range(10))
    assert sorted(row["n"] for row in kept.snapshot().read("log").collect()) == list(range(10))
    assert all(one.size == (remote / "log" / one.path).stat().st_size for one in kept.snapshot().files("log"))
