"""Fewer calls of the JVM: lists arrive whole, and what Python has no use for any more does not stay."""

from __future__ import annotations

import gc
import time

import pytest
from py4j.clientserver import FinalizerWorker
from py4j.java_collections import ListConverter
from py4j.java_gateway import JavaObject
from py4j.protocol import GATEWAY_SERVER_OBJECT_ID
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tools import jvm_calls


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 20, 25])
def test_a_list_of_objects_arrives_whole_and_in_order(spark: SparkSession, count: int) -> None:
    assert ListConverter.convert.__module__ == jvm_calls.__name__
    client = SparkContext._gateway._gateway_client
    columns = [F.col(f"c{number}")._jc for number in range(count)]
    found = ListConverter().convert(columns, client)
    assert [str(each) for each in found] == [f"c{number}" for number in range(count)]
    assert list(ListConverter().convert(["a", 1, None], client)) == ["a", 1, None]


def test_objects_that_python_has_no_use_for_are_let_go_and_no_others(spark: SparkSession) -> None:
    assert FinalizerWorker.run.__module__ == jvm_calls.__name__
    client = SparkContext._gateway._gateway_client
    known = JavaObject(GATEWAY_SERVER_OBJECT_ID, client).getGateway().getBindings()
    kept = F.col("kept")
    columns = [F.col("a")._jc for _ in range(2 * jvm_calls.MANY)]
    names = {each._get_object_id() for each in columns}
    assert names <= set(known.keySet())
    columns.clear()
    gc.collect()
    end = time.monotonic() + 30
    while names & set(known.keySet()) and time.monotonic() < end:
        time.sleep(0.1)
    assert not names & set(known.keySet())
    assert known.containsKey(GATEWAY_SERVER_OBJECT_ID)
    assert str(kept._jc) == "kept"
