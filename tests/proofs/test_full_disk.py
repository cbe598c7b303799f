"""A disk that fills up while something is written: the error says so, tables are as before, on it goes."""

from __future__ import annotations

import re
import resource
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from disks import Disk
from pyspark.sql import DataFrame, SparkSession

from cdckit import datahub
from cdckit.store import Store
from support.histories import assert_folds_to, plain, to_dataframe
from support.killed_programs import ENTITY, KEYS, hub_of, ledger_of
from support.ledger_programs import FIELDS, all_of, batches
from support.store_numbers import add, held, numbers

pytestmark = pytest.mark.soak

PAGE = 4096
FULL = r"No space left on device|os error 28|Errno 28"
NOW = datetime(2024, 2, 1, tzinfo=UTC)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with Disk(tmp_path / "disk", 64 * 2**20) as mounted:
        yield mounted


def test_a_store_at_every_page(disk: Disk) -> None:
    """However many pages are left: two tables have what was committed, both or neither, and no more."""
    store, kept, said = Store(None, disk.folder / "store"), [99], list[str]()
    with store.begin() as transaction:
        transaction.append("log", numbers(99))
        transaction.append("other", numbers(99))
        transaction.commit()
    for pages in range(40):
        batch = f"{pages} pages"
        disk.leave(pages * PAGE)
        try:
            _add_to_both(store, pages, batch)
            kept.append(pages)
        except Exception as error:
            said.append(str(error))
        fresh = Store(None, disk.folder / "store")
        assert (fresh.batch(batch) is None) == (pages not in kept)
        assert held(fresh, "log") == held(fresh, "other") == sorted(kept)
        disk.clear()
        if store.batch(batch) is None:
            _add_to_both(store, pages, batch)
            kept.append(pages)
        store.check()
    assert len(said) > 3
    assert [one for one in said if re.search(FULL, one) is None] == []
    assert held(store, "log") == held(store, "other") == [*range(40), 99]


def _add_to_both(store: Store, number: int, batch: str) -> None:
    with store.begin() as transaction:
        transaction.append("log", numbers(number))
        transaction.append("other", numbers(number))
        transaction.commit(batch=batch, digest=number)


def test_a_file_that_may_not_grow(tmp_path: Path) -> None:
    """The other way to run out, for which no rights are needed: a limit on the size of a file."""
    store = Store(None, tmp_path / "store")
    add(store, "log", 1)
    many = pa.table({"n": pa.array([number * 7919 % 1_000_003 for number in range(200_000)], pa.int64())})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
    try:
        with pytest.raises(OSError, match="File too large"), store.begin() as transaction:
            transaction.append("log", many)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert held(store, "log") == [1]
    assert len(list((tmp_path / "store" / "log").glob("*.parquet"))) == 1
    with store.begin() as transaction:
        transaction.append("log", many)
        transaction.commit()
    assert len(held(store, "log")) == 200_001


def test_a_ledger(spark: SparkSession, disk: Disk) -> None:
    parts = batches(5, 300, most=5)
    ledger = ledger_of(spark, disk.folder)
    ledger.apply(to_dataframe(spark, parts[0], FIELDS), 0)
    for number, part in enumerate(parts[1:], start=1):
        rows = to_dataframe(spark, part, FIELDS)
        done = all_of(parts[:number])

        def apply(rows: DataFrame = rows, number: int = number) -> None:
            ledger.apply(rows, number)

        for free in _levels(disk, number):
            _fails(disk, free, apply)
            assert ledger.store.batch(str(number)) is None
            assert_folds_to(ledger_of(spark, disk.folder).history(), done, entity=ENTITY, keys=KEYS)
        apply()
        ledger.store.check()
    assert_folds_to(ledger.history(), all_of(parts), entity=ENTITY, keys=KEYS)


def test_a_hub(spark: SparkSession, disk: Disk) -> None:
    hub, undisturbed = hub_of(spark, disk.folder), hub_of(spark, disk.folder.parent / "undisturbed")
    for number in range(3):
        at = f"2024-01-0{number + 1}T00:00:00Z"
        data = [{"number": each, "name": f"{number} {each}"} for each in range(20)]
        message = {"guid": f"m{number}", "entity": "product", "timestamp": at, "data": data}
        rows = datahub.records(spark, [message], received_at=NOW)

        def receive(rows: DataFrame = rows, number: int = number) -> None:
            hub.receive(rows, number)

        def process() -> None:
            hub.run(now=NOW)

        for step in (receive, process):
            for free in [0, 2 * PAGE]:
                _fails(disk, free, step)
                assert _content(hub) == _content(undisturbed)
                assert (hub.store.batch(str(number)) is None) == (step is receive)
            step()
            if step is receive:
                undisturbed.receive(rows, number)
        undisturbed.run(now=NOW)
    assert _content(hub) == _content(undisturbed)


def _levels(disk: Disk, number: int) -> list[int]:
    """How many bytes are left: none, and two levels of which other steps of a commit are in need."""
    return [0, (7 * number + 3) * PAGE, (11 * number + 12) * PAGE][: 3 if number == 1 else 2]


def _fails(disk: Disk, free: int, step: Callable[[], None]) -> None:
    disk.leave(free)
    with pytest.raises(Exception, match=FULL):
        step()
    disk.clear()


def _content(hub: datahub.Hub) -> list[str]:
    tables = [hub.messages().select("message_identifier", "status")]
    if hub.store.snapshot().has("history.product"):
        tables.append(hub.history("product"))
    return [
        repr(sorted(repr(plain(row)) for row in frame.select(sorted(frame.columns)).toArrow().to_pylist()))
        for frame in tables
    ]
