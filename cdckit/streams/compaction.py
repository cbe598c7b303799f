"""What a stream may lose after a time, so that what can be known of it stays."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from cdckit.errors import InvalidArgument
from cdckit.model.forms import RECORDS
from cdckit.parts.argument_forms import DURATION, INSTANT, takes
from cdckit.parts.arguments import require_instant
from cdckit.parts.folded_rows import with_rule
from cdckit.parts.values import time_between
from cdckit.streams.catalogue import Stream
from cdckit.streams.decoding import STREAM
from cdckit.streams.update_fields import statement_extent

_EXTENT = pa.schema([("_ended", pa.int64()), ("_says_all", pa.bool_())])


@takes(stream=STREAM, records=RECORDS, now=INSTANT, keep=DURATION.or_none())
def compact_records(
    records: DataFrame, stream: Stream, *, now: datetime, keep: timedelta | None = None
) -> DataFrame:
    """
    Keep what is left of a stream after its time-based compaction.

    What is younger than *keep* is left whole.  Of what is older, only updates of entities and schemas stay
    (`stream.latest`), and of each key those of which its newest state is made: the last that says all, which
    makes the whole document or removes it, and those behind it, which say a part.  So `changes` of what is
    left gives the same newest version of each entity.  A record without a key stays; one that cannot be read
    stays as the last of its key.
    Of the other streams, such as patches, which are differences, responses, whose parts share a key, or
    notifications, of which a device may get some from each of several databases, nothing older stays.

    Args:
        records: The records of the stream (`cdckit.model.RECORD_SCHEMA`), a batch.
        stream: Which one it is.
        now: The instant at which their age is measured, aware.
        keep: How long records are left whole; None is forever, for the streams that the page would keep so.

    Returns:
        The records that are left.  A record without a timestamp has no age, and stays.

    Raises:
        InvalidArgument: *keep* is None for a stream that is not kept forever.

    Cost: a filter; for streams with `latest` one pass through Python and one shuffle by key.

    Source:
        Debezium streams: "Durability" of each stream.

    >>> from datetime import UTC
    >>> from cdckit import streams
    >>> now = datetime(2024, 1, 1, tzinfo=UTC)
    >>> compact_records(records_of(b"1", b"2"), streams.ENTITY_BATCHES, now=now).count()
    2
    """
    if keep is None:
        if not stream.forever:
            raise InvalidArgument(None, "keep", f"a length of time: {stream.name} is not kept forever", keep)
        return records
    age = time_between(F.col("timestamp"), require_instant(now, "now"))
    young = F.coalesce(age <= F.lit(keep), F.lit(True))
    if not stream.latest:
        return records.where(young)
    extent = partial(statement_extent, stream=stream)
    stated = with_rule(records, records.columns, ["value", "key"], extent, _EXTENT)
    stays = young | F.col("key").isNull() | _is_last() | _is_needed()
    # A filter cannot hold a window.
    return stated.withColumn("_stays", stays).where("_stays").select(*records.columns)


def _behind() -> WindowSpec:
    """The records of one key that the log has after a record."""
    log = Window.partitionBy("topic", "partition", "key").orderBy("offset")
    return log.rowsBetween(1, Window.unboundedFollowing)


def _is_last() -> Column:
    return F.count(F.lit(1)).over(_behind()) == 0


def _is_needed() -> Column:
    """Tell whether a message says something, and none behind it, as late or later, says all."""
    at = F.struct("_ended", "timestamp")
    covered = F.max(F.when(F.col("_says_all"), at)).over(_behind()) >= at
    return F.col("_ended").isNotNull() & ~F.coalesce(covered, F.lit(False))
