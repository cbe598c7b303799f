"""What a door is given, documents or records, as records; and its batches of a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit.errors import InvalidArgument
from cdckit.model.records import RECORD_SCHEMA, require_records
from cdckit.parts.arguments import StreamBatch, require_batch, require_instant, require_name
from cdckit.parts.instants import microseconds
from cdckit.parts.json_text import as_json
from cdckit.parts.workers import local_frame

Document = Mapping[str, Any] | str | bytes
"""A message: a dictionary, or JSON text, or its bytes."""


def make_records(
    spark: SparkSession, documents: Iterable[Document], at: datetime, *, argument: str
) -> DataFrame:
    """Make records of documents, which the called function names *argument*: see `cdckit.datahub.records`."""
    if not isinstance(documents, Sequence | Iterator) or isinstance(documents, str | bytes):
        raise InvalidArgument(None, argument, "a list of documents", documents)
    stored = require_instant(at, "received_at")
    listed = [
        (None, _as_bytes(document, f"{argument}[{place}]"), "web", 0, microseconds(at) + place)
        for place, document in enumerate(documents)
    ]
    frame = local_frame(spark, listed, "key binary, value binary, topic string, partition int, offset long")
    return frame.select("*", stored.alias("timestamp"), *without_headers())


def _as_bytes(document: Document, argument: str) -> bytes:
    if isinstance(document, bytes):
        return document
    if not isinstance(document, Mapping | str):
        raise InvalidArgument(None, argument, "a dictionary, or JSON text or bytes", document)
    try:
        return (document if isinstance(document, str) else as_json(document)).encode()
    except (TypeError, ValueError, RecursionError) as error:
        needed = f"of values that JSON knows, instants as texts ({error})"
        raise InvalidArgument(None, argument, needed, document) from None


def without_headers() -> tuple[Column, Column]:
    """The last columns of a record: its timestamp is when it was made, and it has no headers."""
    nothing = F.lit(None).cast(RECORD_SCHEMA["headers"].dataType)
    return F.lit(0).alias("timestampType"), nothing.alias("headers")


_Answer = TypeVar("_Answer")


def as_records(
    spark: SparkSession, given: DataFrame | Iterable[Document], received_at: datetime | None, *, shell: str
) -> DataFrame:
    """
    Make a table of records of what the `receive` of a *shell* is given.

    Args:
        spark: The session.
        given: Such a table, or documents, which become records.
        received_at: When these came, now without it; None for a table, whose rows say when.
        shell: What a user calls it, as in "hub.sink".
    """
    if not isinstance(given, DataFrame):
        stored = datetime.now(UTC) if received_at is None else received_at
        return make_records(spark, given, stored, argument="records")
    if received_at is not None:
        needed = "left out for a table: its rows have a timestamp"
        raise InvalidArgument(None, "received_at", needed, received_at)
    given = require_records(given)
    instead = f"let writeStream.foreachBatch({shell}.sink('a name')) hand them over"
    require_batch(given, "records", instead)
    return given


def make_sink(take: Callable[[DataFrame, str], _Answer], name: str) -> Callable[[DataFrame, int], _Answer]:
    """*take* for the batches of a stream, which Spark counts, under ids that no other stream's have."""
    require_name(name, "name")
    return lambda rows, batch: take(rows, StreamBatch(name, batch))
