"""A store in a bucket, over the S3 API: what deltalake, the workers' file system and Spark make of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyarrow.fs import FileSelector, S3FileSystem
from s3 import S3

from cdckit.store import ConflictingCommit, DamagedTable, NoFileSystem, Store
from support.store_numbers import add, held, numbers

pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with S3(tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.fixture
def bucket(server: S3) -> S3FileSystem:
    """The bucket as pyarrow's own S3 file system sees it: neither the store's nor deltalake's."""
    return S3FileSystem(
        access_key="nobody", secret_key="nothing", endpoint_override=server.endpoint, region="us-east-1"
    )


def paths(bucket: S3FileSystem, folder: str) -> list[str]:
    return [one.path for one in bucket.get_file_info(FileSelector(f"kept/{folder}", recursive=True))]


def test_a_store_in_a_bucket(server: S3, bucket: S3FileSystem) -> None:
    """Written, read, asked about earlier, vacuumed and checked over HTTP alone."""
    place = "s3://kept/one"
    store = Store(None, place, server.options)
    assert store.snapshot().names() == []
    assert not any(path.startswith("kept/one") for path in paths(bucket, ""))
    for number in range(12):
        add(store, "log", number)
    assert held(Store(None, place, server.options), "log") == list(range(12))
    assert held(store.snapshot(version=3), "log") == [0, 1, 2]
    with store.begin() as transaction:
        transaction.replace("log", numbers(7))
        transaction.commit(batch="b", digest=1)
    assert store.batch("b") == 1
    # Others read the same table.
    table = DeltaTable(store.snapshot().path("log"), storage_options=server.options)
    assert table.to_pyarrow_table().column("n").to_pylist() == [7]
    gone = store.vacuum(timedelta(0))
    assert len([path for path in gone if path.startswith("log/")]) == 12
    [file] = [path for path in paths(bucket, "one/log") if "/cdc-" in path]
    store.check()
    bucket.delete_file(file)
    with pytest.raises(DamagedTable, match="the file is not there"):
        store.check()


def test_two_writers_of_one_bucket(server: S3) -> None:
    """Rows that several writers add at once are all there, once, whatever has to be done again."""
    writers, rounds = 3, 5
    place = "s3://kept/two"
    taken: list[bool] = []

    def write(which: int) -> None:
        store = Store(None, place, server.options)
        for number in range(rounds):
            for _ in range(60):
                with store.begin() as transaction:
                    transaction.append("log", numbers(which * 100 + number))
                    transaction.append("shared", numbers(number))
                    try:
                        # What is in `shared` depends on which batches came: it is read.
                        done = transaction.commit(batch=f"{which} {number}", digest=number, reads=["shared"])
                    except ConflictingCommit:
                        continue
                taken.append(not done.repeated)
                break

    threads = [threading.Thread(target=write, args=[which]) for which in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store = Store(None, place, server.options)
    store.check()
    assert taken == [True] * (writers * rounds)
    assert held(store, "log") == [
        which * 100 + number for which in range(writers) for number in range(rounds)
    ]
    assert held(store, "shared") == sorted(list(range(rounds)) * writers)


def test_a_server_that_is_away(tmp_path: Path) -> None:
    """Without its server a store fails with an error; nothing of an unfinished commit is seen afterwards."""
    with S3(tmp_path) as server:
        store = Store(None, "s3://kept/three", server.options)
        add(store, "log", 1)
        options = {**server.options, "max_retries": "1", "retry_timeout": "2s", "timeout": "2s"}
        store = Store(None, "s3://kept/three", options)
        transaction = store.begin()
        transaction.append("log", numbers(2))
        server.__exit__()
        with pytest.raises(Exception, match=r"(?i)error|connect"):
            transaction.commit()


def test_spark_without_its_jar_is_named(spark: object) -> None:
    with pytest.raises(NoFileSystem, match="s3") as told:
        Store(spark, "s3://kept/one", {"aws_region": "us-east-1"})  # type: ignore[arg-type]
    assert "jars must be on the class path" in str(told.value)
