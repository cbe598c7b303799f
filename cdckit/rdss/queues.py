"""Refused messages as the error queues take them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.parts.schemas import require_types
from cdckit.parts.workers import Made
from cdckit.rdss.codes import CODES
from cdckit.rdss.decoding import DECODED_SCHEMA
from cdckit.rdss.decorating import decorated_value
from cdckit.rdss.reading import Unreadable, read
from cdckit.rdss.rules import RULES, Rules
from cdckit.rdss.validation import Verdict
from cdckit.records import RECORD_SCHEMA, WORKER_FIELDS, for_workers, headers_from_workers
from cdckit.rejected import ERROR_CODE, ERROR_FIELDS

_QUEUE = T.StructField("queue", T.StringType())

QUEUED_SCHEMA = T.StructType([*RECORD_SCHEMA.fields, _QUEUE])
"""One row is one refused message as a record, its value decorated, and the queue that it goes to."""


def queued(decoded: DataFrame, *, rules: Rules = RULES) -> DataFrame:
    """
    The refused messages of a table, decorated with their error for the queue that each goes to.

    Args:
        decoded: What `decode` returned.
        rules: The limits: what is made is no larger.

    Returns:
        One row per refused message (`QUEUED_SCHEMA`): its record, whose `value` has `errorCode` and
        `errorDescription` in its header, and `queue`.  A value that is no message becomes one that
        tells of it (see `decorated_value`).  The original is in `cdckit.rejects(decoded)`.

    Raises:
        MissingColumns, WrongColumnType: *decoded* is not what `decode` returned.

    Cost: the refused messages are read once more, in Python; no shuffle.

    Source:
        RDSS, "Error Queues".

    >>> from cdckit import rdss
    >>> row = queued(rdss.decode(records_of(b"?"))).first()
    >>> row["queue"], bytes(row["value"])[:45]
    ('invalid', b'{"messageHeader": {"errorCode": "GENERR007", ')
    """
    require_types(decoded, DECODED_SCHEMA, function="queued")
    refused = decoded.where(F.col(ERROR_CODE).isNotNull())
    told = ["queue", *(field.name for field in ERROR_FIELDS)]
    given = for_workers(refused, *told)
    made = Made(given, partial(_queued, rules=rules), T.StructType([*WORKER_FIELDS, _QUEUE]))
    return made.rows().withColumn("headers", headers_from_workers())


def _queued(batches: Iterable[pa.RecordBatch], *, rules: Rules) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        names = [*(field.name for field in WORKER_FIELDS), "queue"]
        said = zip(
            *(batch.column(name).to_pylist() for name in ("value", "error_code", "error_description")),
            strict=True,
        )
        values = [_decorated(*each, rules=rules) for each in said]
        columns = [pa.array(values, pa.binary()) if name == "value" else batch.column(name) for name in names]
        yield pa.RecordBatch.from_arrays(columns, names=names)


def _decorated(value: bytes | None, code: str, description: str, *, rules: Rules) -> bytes:
    try:
        message = read(value, rules)
    except Unreadable as refused:
        header = refused.header if isinstance(refused.header, dict) else None
        verdict = Verdict(CODES[code], description, None, header, None, None)
    else:
        header = message.header if isinstance(message.header, dict) else None
        verdict = Verdict(CODES[code], description, None, header, message.body, message.body_text)
    return decorated_value(value or b"", verdict, rules)
