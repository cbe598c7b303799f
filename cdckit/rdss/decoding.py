"""Records of the RDSS door, each with its header and verdict; refused ones as the error queues take them."""

from __future__ import annotations

from datetime import datetime
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.model.faults import ERROR_CODE, ERROR_DESCRIPTION
from cdckit.model.forms import RECORDS
from cdckit.model.records import RECORD_COLUMNS, RECORD_SCHEMA
from cdckit.parts.argument_forms import INSTANT, rows_of, takes
from cdckit.parts.arrow_types import spark_columns
from cdckit.parts.folded_rows import with_rule
from cdckit.rdss.decoration import decorate_refused
from cdckit.rdss.message_rows import MESSAGE, SLICED_MESSAGE, read_message
from cdckit.rdss.reading import RULES, Rules

DECODED_SCHEMA = T.StructType([*RECORD_SCHEMA.fields, *spark_columns(MESSAGE).fields])
"""One row is one record, and the message that it holds; or why it holds none."""

DECODED = rows_of(DECODED_SCHEMA, "{} is not what `decode` returned")


@takes(records=RECORDS, now=INSTANT.or_none())
def decode(records: DataFrame, *, now: datetime | None = None, rules: Rules = RULES) -> DataFrame:
    """
    Read and validate the message of every record.

    Args:
        records: One row per transported message (`cdckit.model.RECORD_SCHEMA`), a batch or a stream.
        now: The instant of delivery, at which a message may have expired; by default the record's own
            `timestamp`, so that the same records always give the same rows.
        rules: The limits.

    Returns:
        One row per record, in no order (`DECODED_SCHEMA`): the record's columns; the header, one column for
        each field; `object_uuid`, the object that the body is about; `body`, its JSON text as it came; and
        the verdict: `queue` (`invalid` or `error`), `error_code` and `error_description`, all null for a
        valid message.  It never fails on data: where an error stands, the columns hold what could be read;
        `tenant_jisc_id` is null where it has more than 64 bits.  A message that is one part of several holds
        a piece of a body: see `assemble_messages`.

    Cost: one pass through Python in Arrow batches, no shuffle; about 0.07 milliseconds for a valid message
        of 2 KB, and twice that for another.

    Source:
        RDSS, "Message Header", "Message Body", "Error Codes".

    >>> decode(records_of(b"?", b'{"messageHeader": {"messageId": "m1"}, "messageBody": {}}')).select(
    ...     "message_id", "queue", "error_code"
    ... ).show()
    +----------+-------+----------+
    |message_id|  queue|error_code|
    +----------+-------+----------+
    |      NULL|invalid| GENERR007|
    |        m1|invalid| GENERR010|
    +----------+-------+----------+
    <BLANKLINE>
    """
    rule = partial(read_message, now=now, rules=rules)
    return with_body(with_rule(records, RECORD_COLUMNS, ["value", "timestamp"], rule, SLICED_MESSAGE))


def with_body(sliced: DataFrame) -> DataFrame:
    """Rows that know where in the value the body stands, as `DECODED_SCHEMA`."""
    # The body is a piece of the value, which need not come back from the workers.
    body = F.substring("value", F.col("body_from"), F.col("body_length")).cast("string")
    return sliced.withColumn("body", body).select(*DECODED_SCHEMA.fieldNames())


QUEUED_SCHEMA = T.StructType([*RECORD_SCHEMA.fields, T.StructField("queue", T.StringType())])
"""One row is one refused message as a record, its value decorated, and the queue that it goes to."""


@takes(decoded=DECODED)
def queue_records(decoded: DataFrame, *, rules: Rules = RULES) -> DataFrame:
    """
    The refused messages of a table, decorated with their error for the queue that each goes to.

    Args:
        decoded: What `decode` returned.
        rules: The limits: what is made is no larger.

    Returns:
        One row per refused message (`QUEUED_SCHEMA`): its record, whose `value` has `errorCode` and
        `errorDescription` in its header, and `queue`.  A value that is no message becomes one that
        tells of it (see `decorate_bytes`).  The original is in `cdckit.rejects(decoded)`.

    Cost: the refused messages are read once more, in Python; no shuffle.

    Source:
        RDSS, "Error Queues".

    >>> from cdckit import rdss
    >>> row = queue_records(rdss.decode(records_of(b"?"))).first()
    >>> row["queue"], bytes(row["value"])[:45]
    ('invalid', b'{"messageHeader": {"errorCode": "GENERR007", ')
    """
    refused = decoded.where(F.col(ERROR_CODE).isNotNull())
    kept = [*(name for name in RECORD_COLUMNS if name != "value"), "queue"]
    reads = ["value", ERROR_CODE, ERROR_DESCRIPTION]
    decorated = with_rule(refused, kept, reads, partial(decorate_refused, rules=rules), _DECORATED)
    return decorated.select(*QUEUED_SCHEMA.fieldNames())


_DECORATED = pa.schema([("value", pa.binary())])
