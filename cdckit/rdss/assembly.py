"""Parts put together: the message that was split, read and validated as a whole."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.parts.arrow_types import arrow_schema
from cdckit.parts.schemas import require_batch, require_types
from cdckit.parts.workers import Made
from cdckit.rdss.acceptance import accepted_values
from cdckit.rdss.codes import RdssFault
from cdckit.rdss.decoding import DECODED_SCHEMA
from cdckit.rdss.findings import found
from cdckit.rdss.message_columns import MESSAGE_FIELDS, Row, columns_of, row_of
from cdckit.rdss.reading import read
from cdckit.rdss.rules import RULES, Rules
from cdckit.rdss.sequences import PARTS_SCHEMA
from cdckit.rdss.splitting import whole_header
from cdckit.rdss.validation import Verdict, validate
from cdckit.records import RECORD_COLUMNS, WORKER_FIELDS, for_workers, headers_from_workers
from cdckit.rejected import ERROR_FIELDS

_COLUMNS = T.StructType([*WORKER_FIELDS, *MESSAGE_FIELDS, *ERROR_FIELDS])
_RECORD = [each.name for each in WORKER_FIELDS]
_RECORD_SCHEMA = arrow_schema(T.StructType(WORKER_FIELDS))
_PLACE, _BYTES, _PIECE = "_place", "_bytes", "_piece"
# In a part most of what is escaped takes two bytes for one.
_BYTES_FOR_ONE = 2
_BYTES_AT_ONCE = 8_000_000
# Each part was delivered in time, by the time of its own record.
_BEFORE_ALL = datetime.min.replace(tzinfo=UTC)


def assembled(parts: DataFrame, *, rules: Rules = RULES, max_bytes: int = 100_000_000) -> DataFrame:
    """
    The messages whose parts are all there, put together.

    Args:
        parts: What `parts` returned.
        rules: The limits, but for that of the size.
        max_bytes: The most bytes of a message that was put together; a larger one goes to the error queue.
            If the bodies of its parts have more than twice as many, it is never put together: `value` is
            that of its first part, and `body` null; the parts themselves are in *parts*.

    Returns:
        One row per complete sequence, in the columns of `decode`: `value` is the whole message, with the
        header of its first part, position 1 of 1; the record's other columns are those of its first part;
        the body is validated now that it is whole, so some may be in error: `cdckit.rejects` takes them.

    Raises:
        InvalidArgument: *parts* are a stream.
        MissingColumns, WrongColumnType: *parts* are not what `parts` returned.

    Cost: the parts are read as they lie after `parts`, which shuffled and sorted them; one pass through
    Python.  A worker holds a few messages of at most *max_bytes* at a time.

    Source:
        RDSS, "Multi-Message Sequence".

    >>> from cdckit import rdss
    >>> assembled(rdss.parts(rdss.decode(records_of(b"?")))).count()
    0
    """
    require_types(parts, PARTS_SCHEMA, function="assembled")
    require_batch(parts, "parts", "hand its batches to a function", function="assembled")
    limits = replace(rules, max_bytes=max_bytes)
    made = Made(_in_order(parts, max_bytes), partial(_assembled, rules=limits), _COLUMNS)
    return made.rows().withColumn("headers", headers_from_workers()).select(*DECODED_SCHEMA.fieldNames())


def _in_order(parts: DataFrame, max_bytes: int) -> DataFrame:
    """
    The complete parts as workers read them: those of one sequence side by side, in their order.

    One row is one part: its place, the bytes of its sequence, and its piece of the body, which is null if
    these are too many; the first has the columns of its record too.  The sum of the sizes carries no
    payload, so what is too large is never put together.  Both windows are those that `parts` ended with:
    its rows lie so already.
    """
    by_place = Window.partitionBy("sequence_id").orderBy("sequence_position")
    sequence = by_place.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    complete = parts.where(F.col("part") == "complete").withColumns(
        {_PLACE: F.row_number().over(by_place), _BYTES: F.sum(F.octet_length("body")).over(sequence)}
    )
    is_first, fits = F.col(_PLACE) == 1, F.col(_BYTES) <= _BYTES_FOR_ONE * max_bytes
    first = {name: F.when(is_first, F.col(name)) for name in RECORD_COLUMNS}
    return for_workers(
        complete.withColumns(first | {_PIECE: F.when(fits, F.col("body"))}), _PLACE, _BYTES, _PIECE
    )


class _Made(NamedTuple):
    """One row: the columns of its record, and what its message says."""

    record: Mapping[str, Any]
    message: Row


@dataclass
class _Sequence:
    """The parts of one message, as they are met: its first record, all bytes there are, and the pieces."""

    first: Mapping[str, Any]
    size: int
    pieces: list[str | None] = field(default_factory=list)


def _assembled(batches: Iterable[pa.RecordBatch], *, rules: Rules) -> Iterator[pa.RecordBatch]:
    made: list[_Made] = []
    size = 0
    for sequence in _sequences(batches):
        made.append(_whole(sequence, rules))
        size += len(made[-1].record["value"])
        if size > _BYTES_AT_ONCE:
            yield _batch(made)
            made, size = [], 0
    if made:
        yield _batch(made)


def _sequences(batches: Iterable[pa.RecordBatch]) -> Iterator[_Sequence]:
    """The sequences of a partition, whose rows are sorted by sequence and place."""
    sequence = None
    for batch in batches:
        places, pieces, sizes = (batch.column(name).to_pylist() for name in (_PLACE, _PIECE, _BYTES))
        begin = batch.filter(pc.equal(batch.column(_PLACE), 1)).select(_RECORD)
        firsts = iter(begin.to_pylist())
        for place, piece, size in zip(places, pieces, sizes, strict=True):
            if place == 1:
                if sequence is not None:
                    yield sequence
                sequence = _Sequence(next(firsts), size)
            assert sequence is not None, "the rows of a partition begin with a first part"
            sequence.pieces.append(piece)
    if sequence is not None:
        yield sequence


def _whole(sequence: _Sequence, rules: Rules) -> _Made:
    """The message that was put together, and the verdict on it."""
    value = sequence.first["value"]
    anything = replace(rules, max_bytes=len(value))
    part = accepted_values(value, anything) or read(value, anything)
    header = whole_header(part.header)
    if None in sequence.pieces:
        many = f"its parts have {sequence.size:,} bytes, and a message may have {rules.max_bytes:,}."
        fault = found(RdssFault.SYSTEM_FAILED, (), many)
        verdict = Verdict(fault.code, fault.description, fault.path, header, None, None)
    else:
        value = _message(header, "".join(piece[1:-1] for piece in sequence.pieces if piece))
        verdict = validate(value, now=_BEFORE_ALL, rules=rules)
        if verdict.header is None:
            verdict = replace(verdict, header=header)  # the body is not JSON, or too large
    return _Made({**sequence.first, "value": value}, row_of(verdict))


def _batch(made: list[_Made]) -> pa.RecordBatch:
    records = pa.Table.from_pylist([each.record for each in made], _RECORD_SCHEMA).combine_chunks()
    columns = [column.chunk(0) for column in records.columns]
    messages = columns_of([each.message for each in made])
    return pa.RecordBatch.from_arrays([*columns, *messages], names=_COLUMNS.fieldNames())


def _message(header: Mapping[str, Any], escaped: str) -> bytes:
    body = json.loads(f'"{escaped}"')
    return f'{{"messageHeader": {json.dumps(header, ensure_ascii=False)}, "messageBody": {body}}}'.encode()
