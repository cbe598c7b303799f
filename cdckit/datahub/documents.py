"""Documents of a web service, and files of a folder, as records of a topic."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit.model.documents import Document, make_records, without_headers
from cdckit.parts.argument_forms import takes

_LOG = logging.getLogger(__name__)


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
        *without_headers(),
    )
