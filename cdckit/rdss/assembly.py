"""Parts put together: the message that was split, read and validated as a whole."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.parts.schemas import require_batch, require_types
from cdckit.parts.workers import Made
from cdckit.rdss.decoding import DECODED_SCHEMA, MESSAGE_FIELDS, message_columns
from cdckit.rdss.reading import read
from cdckit.rdss.rules import RULES, Rules
from cdckit.rdss.sequences import PARTS_SCHEMA
from cdckit.rdss.splitting import whole_header
from cdckit.rdss.validation import validate
from cdckit.records import RECORD_COLUMNS, WORKER_FIELDS, for_workers, headers_from_workers
from cdckit.rejected import ERROR_FIELDS

_MADE = T.StructType([*WORKER_FIELDS, *MESSAGE_FIELDS, *ERROR_FIELDS])
# Each part was delivered in time, by the time of its own record.
_BEFORE_ALL = datetime.min.replace(tzinfo=UTC)


def assembled(parts: DataFrame, *, rules: Rules = RULES, max_bytes: int = 100_000_000) -> DataFrame:
    """
    The messages whose parts are all there, put together.

    Args:
        parts: What `parts` returned.
        rules: The limits, but for that of the size.
        max_bytes: The most bytes of a message that was put together; a larger one goes to the error queue.

    Returns:
        One row per complete sequence, in the columns of `decode`: `value` is the whole message, with the
        header of its first part, position 1 of 1; the record's other columns are those of its first part;
        the body is validated now that it is whole, so some may be in error: `cdckit.rejects` takes them.

    Raises:
        InvalidArgument: *parts* are a stream.
        MissingColumns, WrongColumnType: *parts* are not what `parts` returned.

    Cost: the parts are grouped as they lie after `parts`, which shuffled them; one pass through Python.  A
    whole body is one value, so it must have room in a worker's memory.

    Source:
        RDSS, "Multi-Message Sequence".

    >>> from cdckit import rdss
    >>> assembled(rdss.parts(rdss.decode(records_of(b"?")))).count()
    0
    """
    require_types(parts, PARTS_SCHEMA, function="assembled")
    require_batch(parts, "parts", "hand its batches to a function", function="assembled")
    complete = parts.where(F.col("part") == "complete")
    record = F.struct(*RECORD_COLUMNS)
    pieces = F.array_sort(F.collect_list(F.struct("sequence_position", "body")))
    grouped = complete.groupBy("sequence_id").agg(
        F.first(F.when(F.col("sequence_position") == 1, record), ignorenulls=True).alias("first"),
        F.array_join(F.transform(pieces, lambda piece: _inside(piece["body"])), "").alias("whole_body"),
    )
    given = for_workers(grouped.select("first.*", "whole_body"), "whole_body")
    limits = replace(rules, max_bytes=max_bytes)
    made = Made(given, partial(_assembled, rules=limits), _MADE)
    return made.rows().withColumn("headers", headers_from_workers()).select(*DECODED_SCHEMA.fieldNames())


def _inside(body: Column) -> Column:
    """A JSON text without its quotes: pieces are kept as they came."""
    return F.substring(body, F.lit(2), F.length(body) - 2)


def _assembled(batches: Iterable[pa.RecordBatch], *, rules: Rules) -> Iterator[pa.RecordBatch]:
    names = [field.name for field in WORKER_FIELDS]
    for whole in batches:
        for row in range(whole.num_rows):
            # One at a time: each may have a hundred megabytes.
            batch = whole.slice(row, 1)
            first, escaped = (batch.column(name)[0].as_py() for name in ("value", "whole_body"))
            header = whole_header(read(first, rules).header)
            value = _message(header, escaped)
            verdict = validate(value, now=_BEFORE_ALL, rules=rules)
            if verdict.header is None:
                verdict = replace(verdict, header=header)  # the body is not JSON, or too large
            record = {name: batch.column(name) for name in names} | {"value": pa.array([value], pa.binary())}
            columns = [*record.values(), *message_columns([verdict])]
            yield pa.RecordBatch.from_arrays(columns, names=_MADE.fieldNames())


def _message(header: Mapping[str, Any], escaped: str) -> bytes:
    body = json.loads(f'"{escaped}"')
    return f'{{"messageHeader": {json.dumps(header, ensure_ascii=False)}, "messageBody": {body}}}'.encode()
