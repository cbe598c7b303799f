"""What every shell does with what it is given: documents become records, batches of a stream get an id."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import TypeVar

from pyspark.sql import DataFrame, SparkSession

from cdckit.errors import InvalidArgument
from cdckit.parts.arguments import StreamBatch, require_name
from cdckit.parts.documents import Document, records_of
from cdckit.parts.schemas import require_batch
from cdckit.records import require_records

_Answer = TypeVar("_Answer")


def as_records(
    spark: SparkSession, given: DataFrame | Iterable[Document], at: datetime | None, *, shell: str
) -> DataFrame:
    """
    What the `receive` of a *shell* is given, as a table of records.

    Args:
        spark: The session.
        given: Such a table, or documents, which become records that are stored *at* that time, or now.
        at: None for a table, whose rows say when they were stored.
        shell: What a user calls it, as in "hub.sink".
    """
    if not isinstance(given, DataFrame):
        stored = datetime.now(UTC) if at is None else at
        return records_of(spark, given, stored, argument="records", function="receive")
    if at is not None:
        raise InvalidArgument("receive", "at", "left out for a table: its rows have a timestamp", at)
    require_records(given, function="receive")
    instead = f"let writeStream.foreachBatch({shell}.sink('a name')) hand them over"
    require_batch(given, "records", instead, function="receive")
    return given


def sink_of(take: Callable[[DataFrame, str], _Answer], name: str) -> Callable[[DataFrame, int], _Answer]:
    """*take* for the batches of a stream, which Spark counts, under ids that no other stream's have."""
    require_name(name, "name", function="sink")
    return lambda rows, batch: take(rows, StreamBatch(name, batch))
