"""Files that workers wrote to several tables from one task count once a transaction is told of them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument
from cdckit.store import File, NotStorable, Store
from cdckit.store.files import Target
from cdckit.store.reading import read_batches
from cdckit.store.writing import OpenFiles, parse_report
from support.store_numbers import add, held

COLUMNS = T.StructType().add("n", T.LongType()).add("odd", T.BooleanType())


def written(target: Target, *values: int) -> list[File]:
    """Files with these numbers, and whether they are odd."""
    files = OpenFiles(target)
    files.take(pa.record_batch({"n": pa.array(values), "odd": pa.array([each % 2 == 1 for each in values])}))
    files.take(pa.record_batch({"n": pa.array([], pa.int64())}))
    return parse_report(files.close(), target)


def test_files_count_once_they_are_adopted(store: Store, place: Path) -> None:
    with store.begin() as transaction:
        target = transaction.target("log", COLUMNS, ["odd"])
        files = written(target, 1, 2, 3)
        assert sorted((one.partition["odd"], one.rows) for one in files) == [(False, 1), (True, 2)]
        transaction.adopt("log", files)
        assert len(transaction.files("log")) == 2
        transaction.commit()
    assert held(Store(None, place), "log") == [1, 2, 3]


def test_files_are_adopted_in_the_place_of_others(store: Store) -> None:
    add(store, "log", 1, 2)
    before = store.snapshot()
    with store.begin() as transaction:
        target = transaction.target("log", COLUMNS)
        transaction.adopt("log", written(target, 7), [one.path for one in before.files("log")])
        transaction.commit()
    assert held(store, "log") == [7]
    assert held(before, "log") == [1, 2]
    assert store.snapshot().schema("log").fieldNames() == ["n", "odd"]


def test_only_files_of_the_table_are_taken_away(store: Store) -> None:
    add(store, "log", 1)
    wrong = r"files of the table 'log'; it is 'no\.parquet'"
    with store.begin() as transaction, pytest.raises(InvalidArgument, match=wrong):
        transaction.adopt("log", [], ["no.parquet"])


def test_columns_that_no_table_has_are_refused(store: Store) -> None:
    with store.begin() as transaction:
        with pytest.raises(NotStorable):
            transaction.target("log", T.StructType().add("n", T.VariantType()))
        with pytest.raises(InvalidArgument, match="whose writes have all succeeded"):
            transaction.commit()


def test_a_worker_reads_the_columns_that_it_wants(store: Store) -> None:
    """A file from before a column was there has nulls in it."""
    add(store, "log", 1, 2)
    with store.begin() as transaction:
        target = transaction.target("log", COLUMNS)
        (path,) = (one.path for one in transaction.files("log"))
    assert [batch.to_pydict() for batch in read_batches(target, path, ["n"])] == [{"n": [1, 2]}]
    assert [batch.num_rows for batch in read_batches(target, path, ["odd", "n"], rows=1)] == [1, 1]
    (whole,) = read_batches(target, path)
    assert whole.to_pydict() == {"n": [1, 2], "odd": [None, None]}
