"""What a door is given: documents of a web service or of files, and records, as records."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit.errors import InvalidArgument
from cdckit.model.records import RECORD_SCHEMA, require_records
from cdckit.parts.arguments import StreamBatch, require_batch, require_instant, require_name
from cdckit.parts.calls import takes
from cdckit.parts.instants import microseconds
from cdckit.parts.json_text import as_json
from cdckit.parts.workers import local_frame

_LOG = logging.getLogger(__name__)

Document = Mapping[str, Any] | str | bytes
"""A message: a dictionary, or JSON text, or its bytes."""


@takes()
def records(spark: SparkSession, documents: Iterable[Document], *, received_at: datetime) -> DataFrame:
    """
    Documents as records of a topic, as the web service would have passed them on at *received_at*.

    Args:
        spark: The session.
        documents: The messages: dictionaries (numbers may be `Decimal`), or JSON texts or bytes, which
            are passed on as they are.
        received_at: When they are stored: an aware datetime.  They stand in their order.

    Returns:
        One row per document, in the columns of `cdckit.model.RECORD_SCHEMA`; the topic is "web", the
        offset is made of *received_at* and the place.  So documents without a `guid` that are passed on at
        one instant in two calls are the same messages; so are some of two lists whose instants are fewer
        microseconds apart than the first list has documents.  Where two processes pass on documents at
        once, give each a `guid`.

    Raises:
        InvalidArgument: *received_at* is naive, or *documents* is a single one, or one of them is no
            document: has a value that JSON does not know, as an instant, which must be a text.

    >>> from datetime import datetime, timezone
    >>> at = datetime(2024, 1, 1, tzinfo=timezone.utc)
    >>> records(session(), [{"entity": "product"}], received_at=at).select("value", "topic").show(truncate=21)
    +---------------------+-----+
    |                value|topic|
    +---------------------+-----+
    |[7B 22 65 6E 74 69...|  web|
    +---------------------+-----+
    <BLANKLINE>
    """
    return make_records(spark, documents, received_at, argument="documents")


def make_records(
    spark: SparkSession, documents: Iterable[Document], at: datetime, *, argument: str
) -> DataFrame:
    """Make records as `records` does, for a function that calls its *argument* otherwise."""
    if not isinstance(documents, Sequence | Iterator) or isinstance(documents, str | bytes):
        raise InvalidArgument(None, argument, "a list of documents", documents)
    stored = require_instant(at, "received_at")
    listed = [
        (None, _as_bytes(document, f"{argument}[{place}]"), "web", 0, microseconds(at) + place)
        for place, document in enumerate(documents)
    ]
    frame = local_frame(spark, listed, "key binary, value binary, topic string, partition int, offset long")
    return frame.select("*", stored.alias("timestamp"), *_without_headers())


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


@takes()
def files(spark: SparkSession, path: str | Path, pattern: str = "*.json") -> DataFrame:
    """
    The files of a folder as records, one message each.

    Args:
        spark: The session.
        path: The folder, anywhere that Spark can read.
        pattern: The names to take; of those that begin with `_` or `.` Spark takes none, whatever it says.

    Returns:
        One row per file, in the columns of `cdckit.model.RECORD_SCHEMA`: `value` is what the file
        holds, `partition` a checksum of that, `key` and topic its name, `timestamp` and offset when it was
        changed last: the same file read again, wherever it lies by then, is the same message, and one that
        holds something else is another, also under the same name.

    Cost: a file is read whole.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "monday.json").write_text('{"entity": "product"}')
    ...     files(session(), folder).select("topic", F.decode("value", "utf-8").alias("text")).show()
    +-----------------+--------------------+
    |            topic|                text|
    +-----------------+--------------------+
    |files/monday.json|{"entity": "produ...|
    +-----------------+--------------------+
    <BLANKLINE>
    """
    passed_over = [file.name for file in Path(path).glob(pattern) if file.name.startswith(("_", "."))]
    if passed_over:
        sentence = "files() passes over %s: Spark takes names that begin with _ or . for its own; rename them"
        _LOG.warning(sentence, ", ".join(sorted(passed_over)))
    contents = spark.read.format("binaryFile").option("pathGlobFilter", pattern).load(str(path))
    name = F.element_at(F.split("path", "/"), -1)
    return contents.select(
        F.encode(name, "utf-8").alias("key"),
        F.col("content").alias("value"),
        F.concat(F.lit("files/"), name).alias("topic"),
        # Two folders may have files of one name and time: unpacked archives and object stores keep seconds.
        F.crc32("content").bitwiseAND(0x7FFFFFFF).cast("int").alias("partition"),
        F.unix_micros("modificationTime").alias("offset"),
        F.col("modificationTime").alias("timestamp"),
        *_without_headers(),
    )


def _without_headers() -> tuple[Column, Column]:
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
