"""Messages that came as several: which parts are there, are missing, or contradict what came before."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument
from cdckit.parts.arguments import require_instant
from cdckit.parts.schemas import require_batch, require_types
from cdckit.rdss.codes import RdssFault
from cdckit.rdss.decoding import DECODED_SCHEMA
from cdckit.rdss.sequence_rule import AGREES, CONTRADICTION, PART
from cdckit.rejected import ERROR_CODE, ERROR_DESCRIPTION

Policy = Literal["keep", "reject"]

PARTS_SCHEMA = T.StructType(
    [
        *DECODED_SCHEMA.fields,
        T.StructField("part", T.StringType()),
        T.StructField("waiting_since", T.TimestampType()),
        T.StructField("waiting_for", T.StringType()),
    ]
)
"""One row is one record that holds a part of a longer message, and what became of it."""

_OUTCOME = ("part", "waiting_since", "waiting_for")
_TERMS = ("sequence_total", "message_type", "message_class", "tenant_jisc_id", "generator")
CAME = "came"


def parts(decoded: DataFrame) -> DataFrame:
    """
    The parts of longer messages, and what became of each.

    What came first stands, by record time, topic, partition and offset, so a wrong part spoils no other.
    What tells parts apart is their sequence and their position; their messageIds may be one or many.

    Args:
        decoded: What `decode` returned, of all parts there are: also of those that waited before.

    Returns:
        One row per valid message whose `sequence_total` is above 1, in the columns of *decoded* and these:

        - `part`: `complete`, all parts of the sequence are there; `waiting`, some are missing; `duplicate`,
          the same content came before in this place, whatever its messageId; or `contradicting`: a part
          before it has another content in this place, or its total, type, class, tenant or generator is
          not that of the first part.  Such a part has the error code GENERR004, so `cdckit.rejects`
          takes it; the others go on without it.
        - `waiting_since` (timestamp): when the first part of the sequence came; null unless it waits.
        - `waiting_for`: how many parts are missing, and the first of them; null unless it waits.

    Raises:
        InvalidArgument: *decoded* is a stream: parts are put together per batch, in `foreachBatch`.
        MissingColumns, WrongColumnType: *decoded* is not what `decode` returned.

    Cost: one shuffle of the parts by sequence, and two sorts; messages that are whole are left out before.

    Source:
        RDSS, "Multi-Message Sequence".

    Of three parts one comes twice and one is missing:

    >>> import json
    >>> from cdckit import rdss
    >>> header = {
    ...     "messageId": "00000001-0000-4000-8000-000000000000", "messageClass": "Command",
    ...     "messageType": "MetadataDelete", "version": "4.0.0", "generator": "g", "tenantJiscID": 1,
    ...     "messageTimings": {"publishedTimestamp": "2024-01-01T00:00:00Z"},
    ... }
    >>> sequence = {"sequence": "00000002-0000-4000-8000-000000000000", "total": 3}
    >>> sent = [
    ...     {"messageHeader": {**header, "messageSequence": {**sequence, "position": n}}, "messageBody": "a"}
    ...     for n in (3, 1, 3)
    ... ]
    >>> came = rdss.parts(rdss.decode(records_of(*(json.dumps(each).encode() for each in sent))))
    >>> shown = came.select("offset", "sequence_position", "part", "waiting_for").orderBy("offset")
    >>> shown.show(truncate=False)
    +------+-----------------+---------+--------------------------------------+
    |offset|sequence_position|part     |waiting_for                           |
    +------+-----------------+---------+--------------------------------------+
    |0     |3                |waiting  |1 of 3 parts, the first of them part 2|
    |1     |1                |waiting  |1 of 3 parts, the first of them part 2|
    |2     |3                |duplicate|NULL                                  |
    +------+-----------------+---------+--------------------------------------+
    <BLANKLINE>
    """
    require_types(decoded, DECODED_SCHEMA, function="parts")
    instead = "hand its batches to a function: writeStream.foreachBatch(…)"
    require_batch(decoded, "decoded", instead, function="parts")
    one_of_several = F.col(ERROR_CODE).isNull() & (F.col("sequence_total") > 1)
    arrival = F.struct("timestamp", "topic", "partition", "offset", "message_id").alias(CAME)
    judged = with_outcome(with_terms(decoded.where(one_of_several)).withColumn(CAME, arrival))
    return judged.select(*decoded.columns, *_OUTCOME)


def with_terms(parts: DataFrame) -> DataFrame:
    """The parts with what `sequence_rule` compares: `terms` and `content`, as `terms_of` and `content_of`."""
    text = F.from_json(F.concat(F.lit('{"text":'), "body", F.lit("}")), "text string")["text"]
    return parts.withColumns({"terms": F.concat_ws("\n", *_TERMS), "content": F.sha2(text, 256)})


def with_outcome(parts: DataFrame) -> DataFrame:
    """
    The parts (`with_terms`, and `came`) with their outcome, as `parts` says it.

    Beside it stands `whole_at`: where the part stands in the order of `came` by which the sequence was whole.
    """
    known = parts.withColumn("agrees", F.expr(AGREES)).withColumn("part", F.expr(PART))
    is_new, place = F.col("part") == "new", F.col("sequence_position")
    sequence = Window.partitionBy("sequence_id")
    before = sequence.orderBy("sequence_position").rowsBetween(Window.unboundedPreceding, -1)
    placed = known.withColumns(
        {
            "_before": F.coalesce(F.max(F.when(is_new, place)).over(before), F.lit(0)),
            "_there": F.count(F.when(is_new, 1)).over(sequence),
            "_last": F.max(F.when(is_new, place)).over(sequence),
            "_since": F.min(F.when(is_new, F.col("timestamp"))).over(sequence),
            "whole_at": F.max(F.when(is_new, F.col(CAME))).over(sequence),
        }
    )
    is_gap = is_new & (place > F.col("_before") + 1)
    gap = F.min(F.when(is_gap, F.col("_before") + 1)).over(sequence)
    missing = F.col("sequence_total") - F.col("_there")
    waits = is_new & (missing > 0)
    lacking = F.format_string(
        "%d of %d parts, the first of them part %d", missing, F.col("sequence_total"), F.col("_gap")
    )
    contradicts = F.col("part") == "contradicting"
    judged = placed.withColumn("_gap", F.coalesce(gap, F.col("_last") + 1)).withColumns(
        {
            "waiting_since": F.when(waits, F.col("_since")),
            "waiting_for": F.when(waits, lacking),
            **{name: F.when(contradicts, said) for name, said in _contradiction().items()},
        }
    )
    outcome = F.when(waits, "waiting").when(is_new, "complete").otherwise(F.col("part"))
    return judged.withColumn("part", outcome).drop("agrees", "_before", "_there", "_last", "_since", "_gap")


def _contradiction() -> dict[str, Column]:
    """The verdict on a part that contradicts others: its columns of `decode`."""
    fault = RdssFault.INVALID_HEADER
    said = F.concat(F.lit(fault.describe(CONTRADICTION) + " "), F.col("sequence_id"), F.lit("."))
    return {"queue": F.lit(fault.queue.value), ERROR_CODE: F.lit(fault.value), ERROR_DESCRIPTION: said}


def waiting(
    parts: DataFrame, *, now: datetime, wait: timedelta = timedelta(hours=1), overdue: Policy = "keep"
) -> DataFrame:
    """
    The parts that wait for others, and how long they have.

    Save their record columns, and decode them again together with what has come since.

    Args:
        parts: What `parts` returned.
        now: The instant at which waiting is measured, aware: time comes from the caller, not from a clock.
        wait: How long a sequence may be incomplete, from the record time of its first part on.
        overdue: `keep` those waiting that have waited longer, or `reject` them: with the code GENERR001,
            since their body is not whole.

    Returns:
        One row per waiting part, in the columns of *parts* and two more: `waited` (interval) and
        `is_overdue`; the error columns and `queue` are null but for the rejected.

    Raises:
        InvalidArgument: *now* has no zone, or *overdue* is no policy.
        MissingColumns, WrongColumnType: *parts* are not what `parts` returned.

    Cost: one filter, no shuffle.

    Source:
        RDSS, "Multi-Message Sequence": the consumer MUST wait for all constituent messages.

    >>> from datetime import UTC
    >>> from cdckit import rdss
    >>> came = rdss.parts(rdss.decode(records_of(b"?")))
    >>> rdss.waiting(came, now=datetime(2024, 1, 1, tzinfo=UTC)).count()
    0
    """
    require_types(parts, PARTS_SCHEMA, function="waiting")
    at = require_instant(now, "now", function="waiting")
    if overdue not in ("keep", "reject"):
        raise InvalidArgument("waiting", "overdue", "'keep' or 'reject'", overdue)
    late = parts.where(F.col("part") == "waiting").withColumn("waited", at - F.col("waiting_since"))
    measured = late.withColumn("is_overdue", F.coalesce(F.col("waited") > F.lit(wait), F.lit(False)))
    fault = RdssFault.INVALID_BODY
    said = F.concat(
        F.lit(fault.describe("At $.messageBody: the sequence lacks") + " "),
        F.col("waiting_for"),
        F.lit(", for which it waited too long."),
    )
    refused = F.col("is_overdue") & F.lit(overdue == "reject")
    return measured.withColumns(
        {
            "queue": F.when(refused, F.lit(fault.queue.value)),
            ERROR_CODE: F.when(refused, F.lit(fault.value)),
            ERROR_DESCRIPTION: F.when(refused, said),
        }
    )
