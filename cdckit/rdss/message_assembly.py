"""Messages that came as several: which parts are there, missing or contradicted, and the whole."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.model.faults import ERROR_CODE, ERROR_DESCRIPTION
from cdckit.model.records import RECORD_COLUMNS
from cdckit.parts.argument_forms import DURATION, FOR_EACH_BATCH, INSTANT, no_stream, one_of, rows_of, takes
from cdckit.parts.arrow_types import spark_columns
from cdckit.parts.folded_rows import fold_rows
from cdckit.rdss.decoding import DECODED, DECODED_SCHEMA
from cdckit.rdss.findings import RdssFault
from cdckit.rdss.message_rows import VERDICT
from cdckit.rdss.reading import RULES, Rules
from cdckit.rdss.sequence_rules import PARTS, TENANT_VALUE, PartOutcome, assembly_plan
from cdckit.shell.waiting import with_waited

Policy = Literal["keep", "reject"]

_OUTCOME = [field for field in spark_columns(PARTS.makes) if field.name not in VERDICT]

PARTS_SCHEMA = T.StructType([*DECODED_SCHEMA.fields, *_OUTCOME])
"""One row is one record that holds a part of a longer message, and what became of it."""

_PARTS = rows_of(PARTS_SCHEMA, "{} are not what `parts` returned")

_ARRIVAL = ("timestamp", "topic", "partition", "offset", "message_id")


@takes(decoded=[DECODED, FOR_EACH_BATCH])
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

    Cost: one shuffle of the parts by sequence, and a sort; their headers and bodies pass through Python once.
        Messages that are whole are left out before.

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
    one_of_several = F.col(ERROR_CODE).isNull() & (F.col("sequence_total") > 1)
    odd_tenant = F.when(F.col("tenant_jisc_id").isNull(), F.col("value"))
    of_several = decoded.where(one_of_several).withColumn(TENANT_VALUE, odd_tenant)
    kept = [name for name in decoded.columns if name not in PARTS.columns.names]
    outcomes = fold_rows(of_several, PARTS, keeps=kept, order=_ARRIVAL)
    return outcomes.select(*dict.fromkeys([*decoded.columns, *PARTS_SCHEMA.names]))


@takes(parts=_PARTS, now=INSTANT, wait=DURATION, overdue=one_of("keep", "reject"))
def waiting(
    parts: DataFrame, *, now: datetime, wait: timedelta = timedelta(hours=1), overdue: Policy = "keep"
) -> DataFrame:
    """
    The parts that wait for others, and how long they have.

    Save their record columns, and decode them again together with what has come since.

    Args:
        parts: What `parts` returned.
        now: The instant at which waiting is measured, aware: time comes from the caller, not from a clock.
        wait: How long a sequence may be incomplete, from the record time of its first part on.  Of one
            without a time nobody can tell, so it is overdue.
        overdue: `keep` those waiting that have waited longer, or `reject` them: with the code GENERR001,
            since their body is not whole.

    Returns:
        One row per waiting part, in the columns of *parts* and two more: `waited` (interval) and
        `is_overdue`; the error columns and `queue` are null but for the rejected.

    Cost: one filter, no shuffle.

    Source:
        RDSS, "Multi-Message Sequence": the consumer MUST wait for all constituent messages.

    >>> from datetime import UTC
    >>> from cdckit import rdss
    >>> came = rdss.parts(rdss.decode(records_of(b"?")))
    >>> rdss.waiting(came, now=datetime(2024, 1, 1, tzinfo=UTC)).count()
    0
    """
    late = parts.where(F.col("part") == PartOutcome.WAITING.value)
    measured = with_waited(late, F.col("waiting_since"), now, wait)
    refused = F.col("is_overdue") & F.lit(overdue == "reject")
    return measured.withColumns({name: F.when(refused, text) for name, text in overdue_verdict().items()})


def overdue_verdict() -> dict[str, Column]:
    """The verdict on a part that waited too long: what its columns have then."""
    fault = RdssFault.INVALID_BODY
    lacking = F.lit(fault.describe("At $.messageBody: the sequence lacks") + " ")
    description = F.concat(lacking, F.col("waiting_for"), F.lit(", for which it waited too long."))
    return {"queue": F.lit(fault.queue.value), ERROR_CODE: F.lit(fault.value), ERROR_DESCRIPTION: description}


@takes(parts=[_PARTS, no_stream("hand its batches to a function")])
def assemble_messages(parts: DataFrame, *, rules: Rules = RULES) -> DataFrame:
    """
    The messages whose parts are all there, put together.

    Args:
        parts: What `parts` returned.
        rules: The limits.  A message that was put together has at most `max_whole_bytes`; a larger one goes
            to the error queue.  If the bodies of its parts have more than twice as many, it is never put
            together: `value` is that of its first part, and `body` null; the parts themselves are in *parts*.

    Returns:
        One row per complete sequence, in the columns of `decode`: `value` is the whole message, with the
        header of its first part, position 1 of 1; the record's other columns are those of its first part;
        the body is validated now that it is whole, so some may be in error: `cdckit.rejects` takes them.

    Cost: one shuffle of the complete parts by sequence, and a sort; their bodies pass through Python once.
        A worker holds a few messages of at most `max_whole_bytes` at a time.

    Source:
        RDSS, "Multi-Message Sequence".

    >>> from cdckit import rdss
    >>> assemble_messages(rdss.parts(rdss.decode(records_of(b"?")))).count()
    0
    """
    first = F.when(F.col("sequence_position") == 1, F.col("value"))
    complete = parts.where(F.col("part") == PartOutcome.COMPLETE.value).withColumn("first_value", first)
    kept = [name for name in RECORD_COLUMNS if name != "value"]
    assembled = fold_rows(complete, assembly_plan(rules), keeps=kept, order=["sequence_position"])
    return assembled.where(F.col("value").isNotNull()).select(*DECODED_SCHEMA.fieldNames())
