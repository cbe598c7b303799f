"""The gate of a ledger: what it is shown, and what becomes of the batch that it refuses."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from cdckit.ledger import Pending
from cdckit.parts.arguments import StreamBatch
from support.gates import ROWS, changed, opened


def test_a_stream_ends_with_what_it_refuses_and_goes_on_from_there(
    spark: SparkSession, tmp_path: Path
) -> None:
    ledger = opened(spark, tmp_path / "ledger")
    spark.createDataFrame([(1, 5, 1), (2, -5, 1)], ROWS.format("int")).write.parquet(str(tmp_path / "in"))
    asked = []

    def run(least: int) -> None:
        def gate(after: Pending) -> None:
            asked.append(after.touched_history().where(f"`net.``eur` < {least}").count())
            if asked[-1]:
                raise ValueError("a price is too low")

        rows = spark.readStream.schema(ROWS.format("int")).parquet(str(tmp_path / "in"))
        writer = (
            changed(rows).writeStream.foreachBatch(ledger.sink("in", gate=gate)).trigger(availableNow=True)
        )
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()

    with pytest.raises(StreamingQueryException, match="a price is too low"):
        run(least=0)
    assert (ledger.at_commit().version, ledger.vacuum(timedelta(0))) == (None, [])
    run(least=-9)
    run(least=0)
    assert (asked, ledger.history().count()) == ([1, 0], 2)
    assert [ledger.store.batch(StreamBatch("in", number)) is None for number in (0, 1)] == [False, True]
    assert {path.partition("/")[0] for path in ledger.vacuum(timedelta(0))} >= {"changes", "history"}
