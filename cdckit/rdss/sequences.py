"""
Messages that came as several: which parts are there, missing or contradicted, and the whole.

An exchange reads it over a batch, a gateway over the parts that it has and the one that comes.  Both need the
columns `sequence_id`, `sequence_position`, `terms` (`sequence_terms`), `content` (`content_digest`) and
`came`, which sorts the parts as they came.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha256
from typing import Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument
from cdckit.model.records import ERROR_CODE, ERROR_DESCRIPTION, ERROR_FIELDS, RECORD_COLUMNS, RECORD_SCHEMA
from cdckit.parts.arguments import require_batch, require_instant, require_types
from cdckit.parts.arrow_types import arrow_schema
from cdckit.parts.workers import WorkerPlan
from cdckit.rdss.decoding import DECODED_SCHEMA, MESSAGE_FIELDS, Row, row_columns, verdict_row
from cdckit.rdss.findings import RdssFault, make_finding
from cdckit.rdss.reading import RULES, Rules, parse_message, whole_header
from cdckit.rdss.validation import Verdict, validate

AGREES = "terms = first_value(terms) OVER (PARTITION BY sequence_id ORDER BY came)"
"""Whether a part says the same of its sequence as the first that came."""

_SAME_PLACE = "(PARTITION BY sequence_id, sequence_position, agrees ORDER BY came)"

PART = f"""CASE
    WHEN NOT agrees THEN 'contradicting'
    WHEN row_number() OVER {_SAME_PLACE} = 1 THEN 'new'
    WHEN content = first_value(content) OVER {_SAME_PLACE} THEN 'duplicate'
    ELSE 'contradicting'
END"""
"""What a part is, beside `agrees` (`AGREES`).  What came first stands: the same content in its place is a
duplicate, whatever its messageId; another content, or other terms, contradict it and are refused."""

CONTRADICTION = "At $.messageHeader.messageSequence: the part contradicts what came before it of the sequence"
"""What is said of a part that is refused, before the name of the sequence."""


def sequence_terms(header: Mapping[str, Any]) -> str:
    """
    What all parts of one sequence must say alike: its total, and the type, class, tenant and generator.

    >>> sequence_terms({"messageSequence": {"total": 2}, "messageType": "MetadataRead",
    ... "messageClass": "Command",     "tenantJiscID": 7, "generator": "g"})
    '2\\nMetadataRead\\nCommand\\n7\\ng'
    """
    total, tenant = int(header["messageSequence"]["total"]), int(header["tenantJiscID"])
    return "\n".join(
        map(str, (total, header["messageType"], header["messageClass"], tenant, header["generator"]))
    )


def content_digest(body: str) -> str:
    """
    The digest of a piece of a body: of the text itself, however JSON has escaped it.

    >>> import json
    >>> content_digest(json.loads('"\\\\u00e9"')) == content_digest("é")
    True
    """
    return sha256(body.encode()).hexdigest()


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
    judged = with_part_outcome(with_terms(decoded.where(one_of_several)).withColumn(CAME, arrival))
    return judged.select(*decoded.columns, *_OUTCOME)


def with_terms(parts: DataFrame) -> DataFrame:
    """
    The parts with what `sequence_rule` compares: `terms` and `content`, as `sequence_terms` and
    `content_digest`.
    """
    text = F.from_json(F.concat(F.lit('{"text":'), "body", F.lit("}")), "text string")["text"]
    return parts.withColumns({"terms": F.concat_ws("\n", *_TERMS), "content": F.sha2(text, 256)})


def with_part_outcome(parts: DataFrame) -> DataFrame:
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
            **{name: F.when(contradicts, value) for name, value in _contradiction().items()},
        }
    )
    outcome = F.when(waits, "waiting").when(is_new, "complete").otherwise(F.col("part"))
    return judged.withColumn("part", outcome).drop("agrees", "_before", "_there", "_last", "_since", "_gap")


def _contradiction() -> dict[str, Column]:
    """The verdict on a part that contradicts others: its columns of `decode`."""
    fault = RdssFault.INVALID_HEADER
    description = F.concat(F.lit(fault.describe(CONTRADICTION) + " "), F.col("sequence_id"), F.lit("."))
    return {"queue": F.lit(fault.queue.value), ERROR_CODE: F.lit(fault.value), ERROR_DESCRIPTION: description}


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
    description = F.concat(
        F.lit(fault.describe("At $.messageBody: the sequence lacks") + " "),
        F.col("waiting_for"),
        F.lit(", for which it waited too long."),
    )
    refused = F.col("is_overdue") & F.lit(overdue == "reject")
    return measured.withColumns(
        {
            "queue": F.when(refused, F.lit(fault.queue.value)),
            ERROR_CODE: F.when(refused, F.lit(fault.value)),
            ERROR_DESCRIPTION: F.when(refused, description),
        }
    )


IDENTITY = "identity"
IDENTITY_SCHEMA = T.StructType([T.StructField(IDENTITY, T.StringType())])
"""One row is one message that was received: what makes it the same message again."""

_READ = T.StructType(
    [
        DECODED_SCHEMA[name]
        for name in ("value", "topic", "partition", "offset", "timestamp", "message_id", "sequence_total")
    ]
    + [DECODED_SCHEMA[ERROR_CODE]]
)


def identity() -> Column:
    """
    What makes a row of `decode` the same message again: its `messageId`; of a refused one its bytes, since
    nobody knows whether its id is one.  Null for a part of a longer message, which has a place in a sequence.
    """
    refused = F.col(ERROR_CODE).isNotNull()
    return F.when(refused, digest()).when(F.col("sequence_total") == 1, F.col("message_id"))


def digest() -> Column:
    """What makes a refused message the same again: its bytes."""
    return F.sha2(F.coalesce("value", F.lit(b"")), 256)


def with_repeats(decoded: DataFrame, *, known: DataFrame | None = None) -> DataFrame:
    """
    Say of each message, in the column `is_repeat`, whether it was received before.

    Args:
        decoded: What `decode` returned, or `assemble_messages`.
        known: The messages that were received before *decoded*: one row per message, `identity`; without
            it none.

    Returns:
        The same rows and `is_repeat`: true where the message is among *known*, or stands in *decoded*
        before, by record time, topic, partition and offset.  Such a message is to be discarded.  Parts of
        longer messages never are one here: see `parts`.

    Raises:
        InvalidArgument: *decoded* is a stream.
        MissingColumns, WrongColumnType: *decoded* is not what `decode` returned, or *known* lacks `identity`.

    Cost: a shuffle by identity of *decoded* and of *known*.

    Source:
        RDSS, "Receiving", "Local Data Repository".

    >>> with_repeats(decoded.union(decoded)).groupBy("is_repeat").count().orderBy("is_repeat").show()
    +---------+-----+
    |is_repeat|count|
    +---------+-----+
    |    false|    3|
    |     true|    3|
    +---------+-----+
    <BLANKLINE>
    """
    require_types(decoded, _READ, function="with_repeats")
    require_batch(decoded, "decoded", "decode each batch (foreachBatch)", function="with_repeats")
    arrival = F.struct("timestamp", "topic", "partition", "offset").alias(CAME)
    named = decoded.withColumns({IDENTITY: identity(), CAME: arrival})
    if known is not None:
        require_types(known, IDENTITY_SCHEMA, function="with_repeats")
    return mark_repeats(named, known).drop(IDENTITY, CAME)


def mark_repeats(named: DataFrame, known: DataFrame | None) -> DataFrame:
    """The rows with `is_repeat`: it has the `identity` of one before it, by `came`, or of one of *known*."""
    # What has no identity is none again: each such row is looked at alone, not all of them by one task.
    same = Window.partitionBy(F.coalesce(IDENTITY, F.to_json(CAME))).orderBy(CAME)
    again = (F.row_number().over(same) > 1) & F.col(IDENTITY).isNotNull()
    placed = named.withColumn("is_repeat", again)
    if known is None:
        return placed
    before = known.select(IDENTITY, F.lit(True).alias("_known")).distinct()
    found = placed.join(before, on=IDENTITY, how="left")
    return found.withColumn("is_repeat", F.col("is_repeat") | F.col("_known").isNotNull()).drop("_known")


_COLUMNS = T.StructType([*RECORD_SCHEMA.fields, *MESSAGE_FIELDS, *ERROR_FIELDS])
_RECORD_SCHEMA = arrow_schema(RECORD_SCHEMA)
_PLACE, _BYTES, _PIECE = "_place", "_bytes", "_piece"
# In a part most of what is escaped takes two bytes for one.
_BYTES_FOR_ONE = 2
_BYTES_AT_ONCE = 8_000_000
# Each part was delivered in time, by the time of its own record.
_BEFORE_ALL = datetime.min.replace(tzinfo=UTC)


def assemble_messages(parts: DataFrame, *, rules: Rules = RULES, max_bytes: int = 100_000_000) -> DataFrame:
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
    >>> assemble_messages(rdss.parts(rdss.decode(records_of(b"?")))).count()
    0
    """
    require_types(parts, PARTS_SCHEMA, function="assemble_messages")
    require_batch(parts, "parts", "hand its batches to a function", function="assemble_messages")
    limits = replace(rules, max_bytes=max_bytes)
    plan = WorkerPlan(_sort_parts(parts, max_bytes), partial(_assemble_batches, rules=limits), _COLUMNS)
    return plan.rows().select(*DECODED_SCHEMA.fieldNames())


def _sort_parts(parts: DataFrame, max_bytes: int) -> DataFrame:
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
    pieces = complete.withColumns(first | {_PIECE: F.when(fits, F.col("body"))})
    return pieces.select(*RECORD_COLUMNS, _PLACE, _BYTES, _PIECE)


class _AssembledRow(NamedTuple):
    """One row: the columns of its record, and what its message says."""

    record: Mapping[str, Any]
    message: Row


@dataclass
class _Sequence:
    """The parts of one message, as they are met: its first record, all bytes there are, and the pieces."""

    first: Mapping[str, Any]
    size: int
    pieces: list[str | None] = field(default_factory=list)


def _assemble_batches(batches: Iterable[pa.RecordBatch], *, rules: Rules) -> Iterator[pa.RecordBatch]:
    assembled: list[_AssembledRow] = []
    size = 0
    for sequence in _sequences(batches):
        assembled.append(_assemble_whole(sequence, rules))
        size += len(assembled[-1].record["value"])
        if size > _BYTES_AT_ONCE:
            yield _batch(assembled)
            assembled, size = [], 0
    if assembled:
        yield _batch(assembled)


def _sequences(batches: Iterable[pa.RecordBatch]) -> Iterator[_Sequence]:
    """The sequences of a partition, whose rows are sorted by sequence and place."""
    sequence = None
    for batch in batches:
        places, pieces, sizes = (batch.column(name).to_pylist() for name in (_PLACE, _PIECE, _BYTES))
        begin = batch.filter(pc.equal(batch.column(_PLACE), 1)).select(RECORD_COLUMNS)
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


def _assemble_whole(sequence: _Sequence, rules: Rules) -> _AssembledRow:
    """The message that was put together, and the verdict on it."""
    value = sequence.first["value"]
    anything = replace(rules, max_bytes=len(value))
    part = parse_message(value, anything)
    header = whole_header(part.header)
    if None in sequence.pieces:
        many = f"its parts have {sequence.size:,} bytes, and a message may have {rules.max_bytes:,}."
        fault = make_finding(RdssFault.SYSTEM_FAILED, (), many)
        verdict = Verdict(fault.code, fault.description, fault.path, header, None, None)
    else:
        value = _message(header, "".join(piece[1:-1] for piece in sequence.pieces if piece))
        verdict = validate(value, now=_BEFORE_ALL, rules=rules)
        if verdict.header is None:
            verdict = replace(verdict, header=header)  # the body is not JSON, or too large
    return _AssembledRow({**sequence.first, "value": value}, verdict_row(verdict))


def _batch(assembled: list[_AssembledRow]) -> pa.RecordBatch:
    records = pa.Table.from_pylist([each.record for each in assembled], _RECORD_SCHEMA).combine_chunks()
    columns = [column.chunk(0) for column in records.columns]
    messages = row_columns([each.message for each in assembled])
    return pa.RecordBatch.from_arrays([*columns, *messages], names=_COLUMNS.fieldNames())


def _message(header: Mapping[str, Any], escaped: str) -> bytes:
    body = json.loads(f'"{escaped}"')
    return f'{{"messageHeader": {json.dumps(header, ensure_ascii=False)}, "messageBody": {body}}}'.encode()
