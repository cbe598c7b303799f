"""Events: one row for each record of a Databus stream, checked down to its value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from cdckit.databus.event_values import (
    CHECKPOINT,
    DATA,
    DELETE,
    END,
    ERROR,
    ROLLBACK,
    SYSTEM,
    UPSERT,
    DatabusFault,
    ParsedEvents,
    Source,
    decode_base64,
    event_payloads,
    parse_events,
    sources_by_id,
)
from cdckit.model.faults import Findings, error_columns
from cdckit.model.records import ERROR_FIELDS, RECORD_COLUMNS, RECORD_SCHEMA, require_records
from cdckit.parts.arrays import Bools
from cdckit.parts.instants import INSTANT
from cdckit.parts.workers import WorkerPlan

EVENT_FIELDS = [
    T.StructField("kind", T.StringType()),
    T.StructField("opcode", T.StringType()),
    T.StructField("scn", T.LongType()),
    T.StructField("physical_partition", T.IntegerType()),
    T.StructField("logical_partition", T.IntegerType()),
    T.StructField("source_id", T.IntegerType()),
    T.StructField("source", T.StringType()),
    T.StructField("long_key", T.LongType()),
    T.StructField("string_key", T.StringType()),
    T.StructField("event_timestamp", T.TimestampType()),
    T.StructField("schema_id", T.StringType()),
    T.StructField("value_encoding", T.StringType()),
    T.StructField("payload", T.BinaryType()),
    T.StructField("is_replicated", T.BooleanType()),
]

EVENT_SCHEMA = T.StructType([*RECORD_SCHEMA.fields, *EVENT_FIELDS, *ERROR_FIELDS])
"""One row is one record, and the event that it holds; or why it holds none."""

_END_ID, _CHECKPOINT_ID, _ROLLBACK_ID = -2, -3, -51
_ERROR_IDS = range(-50, -3)


def decode(records: DataFrame, sources: Iterable[Source], *, skip_sources: Iterable[int] = ()) -> DataFrame:
    """
    Read the event of every record, and check it down to its value.

    Args:
        records: One row per transported event in JSON form (`cdckit.model.RECORD_SCHEMA`), a batch or a
            stream.
        sources: What the srcIds of data events stand for, with the schemas of their values.
        skip_sources: The srcIds of sources that nobody needs here: their data events are left out, as a
            relay leaves out what a consumer did not subscribe to.

    Returns:
        One row per record, in no order (`EVENT_SCHEMA`):

        - the record's columns;
        - `kind`: `data`, `end` (of a period), `rollback`, `checkpoint`, `error` or `system`;
        - `opcode`: UPSERT or DELETE, null on what is no data;
        - `scn` (sequence), `physical_partition`, `logical_partition`, `source_id`, `source` (its name);
        - `long_key` or `string_key`; `event_timestamp`, to the microsecond;
        - `schema_id`, `value_encoding` as they came; `payload`: the Avro datum of the value, in whichever
          form it came, null for a delete without one (`rows` makes typed columns of it);
        - `is_replicated`;
        - `error_code`, `error_description`: null where all is well.  It never fails on data: where an error
          stands, the columns hold what could be read.

    Raises:
        MissingColumns, WrongColumnType: *records* are not records.
        InvalidArgument: Two sources have one id or one name.

    Cost: one pass through Python in Arrow batches, no shuffle.  A value in plain form costs about 20 times
    one in base64, since it is read one by one.

    Source:
        Databus, "Data Change Events"; the JSON form of events that relays write and read.

    >>> text = '{"type": "record", "name": "Plane", "fields": [{"name": "tail", "type": "string"}]}'
    >>> event = (
    ...     b'{"opcode": "UPSERT", "key": 7, "sequence": 5, "physicalPartitionId": 1, '
    ...     b'"timestampInNanos": 1000, "srcId": 3, "schemaId": "S6KYUtsRb0m2xD9AWj3IzA==", '
    ...     b'"valueEnc": "JSON_PLAIN_VALUE", "value": "{\\\\"tail\\\\": \\\\"N12\\\\"}"}'
    ... )
    >>> end = b'{"sequence": 5, "physicalPartitionId": 1, "timestampInNanos": 1000, "endOfPeriod": true}'
    >>> decode(records_of(event, end, b"?"), [Source(3, "planes", [text])]).select(
    ...     "kind", "scn", "source", "payload", "error_code"
    ... ).show()
    +----+----+------+-------------+------------+
    |kind| scn|source|      payload|  error_code|
    +----+----+------+-------------+------------+
    |data|   5|planes|[06 4E 31 32]|        NULL|
    | end|   5|  NULL|         NULL|        NULL|
    |NULL|NULL|  NULL|         NULL|NOT_AN_EVENT|
    +----+----+------+-------------+------------+
    <BLANKLINE>
    """
    records = require_records(records, function="decode")
    known = sources_by_id(sources, function="decode")
    by = partial(_decode_batches, sources=known, skipped=frozenset(skip_sources))
    return WorkerPlan(records.select(*RECORD_COLUMNS), by, EVENT_SCHEMA).rows()


def _decode_batches(
    batches: Iterable[pa.RecordBatch], *, sources: dict[int, Source], skipped: frozenset[int]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        columns = event_columns(batch.column("value"), sources, skipped)
        decoded = pa.RecordBatch.from_arrays([*batch.columns, *columns], names=EVENT_SCHEMA.fieldNames())
        if skipped:
            left_out = pc.and_(
                pc.equal(decoded.column("kind"), DATA),
                pc.is_in(decoded.column("source_id"), pa.array(sorted(skipped), pa.int32())),
            )
            decoded = decoded.filter(pc.invert(pc.fill_null(left_out, False)))
        yield decoded


def event_columns(
    values: pa.Array, sources: dict[int, Source], skipped: frozenset[int] = frozenset()
) -> list[pa.Array]:
    """The columns of `EVENT_FIELDS` and the two of errors, for the texts of some events."""
    parsed = parse_events(values)
    field, findings, rows = parsed.fields, parsed.findings, len(values)
    kind = _kinds(parsed)
    is_data = flags(pc.equal(kind, DATA)) & ~flags(pc.is_in(field["srcId"], ints(skipped)))
    is_delete = flags(pc.equal(field["opcode"], DELETE))
    find_faults(parsed, kind, is_data, sources)
    payload = event_payloads(parsed, is_data, is_delete, sources)
    names = pa.array([each.name for each in sources.values()], pa.string())
    place = pc.index_in(field["srcId"], ints(sources))
    # A relay's own reader takes an event that says no opcode for an upsert.
    opcode = pc.if_else(pc.equal(kind, DATA), pc.fill_null(field["opcode"], UPSERT), _NO_TEXT)
    return [
        kind,
        opcode,
        field["sequence"],
        field["physicalPartitionId"],
        field["logicalPartitionId"],
        field["srcId"],
        names.take(place),
        field["key"],
        string_keys(field["keyBytes"], is_data, findings),
        _instants(field["timestampInNanos"]),
        field["schemaId"],
        field["valueEnc"],
        payload,
        field["isReplicated"],
        *error_columns(findings, rows),
    ]


_NO_TEXT = pa.scalar(None, pa.string())


def _instants(nanos: pa.Array) -> pa.Array:
    """To the microsecond, towards the past: an instant must not move on, before 1970 neither."""
    micros = pc.fill_null(nanos, 0).to_numpy(zero_copy_only=False) // 1000
    return pa.array(micros, pa.int64(), mask=~flags(nanos.is_valid())).cast(INSTANT)


def _kinds(parsed: ParsedEvents) -> pa.Array:
    field = parsed.fields
    number = field["srcId"]
    ends = pc.or_kleene(
        pc.fill_null(field["endOfPeriod"], False), pc.fill_null(pc.equal(number, _END_ID), False)
    )
    kind = pc.case_when(
        pc.make_struct(
            ends,
            pc.greater_equal(number, 0),
            pc.equal(number, _CHECKPOINT_ID),
            pc.equal(number, _ROLLBACK_ID),
            pc.is_in(number, ints(_ERROR_IDS)),
            pc.is_valid(number),
        ),
        pa.scalar(END), pa.scalar(DATA), pa.scalar(CHECKPOINT), pa.scalar(ROLLBACK),
        pa.scalar(ERROR), pa.scalar(SYSTEM),
    )  # fmt: skip
    return _find_missing(kind, [row for row, (fault, _) in parsed.findings.items() if fault in _NO_EVENTS])


_NO_EVENTS = (DatabusFault.NO_VALUE, DatabusFault.NOT_AN_EVENT)


def _find_missing(column: pa.Array, rows: list[int]) -> pa.Array:
    if not rows:
        return column
    gone: Bools = np.zeros(len(column), dtype=bool)
    gone[rows] = True
    return pc.if_else(pa.array(gone), pa.scalar(None, column.type), column)


def find_faults(parsed: ParsedEvents, kind: pa.Array, is_data: Bools, sources: dict[int, Source]) -> None:
    """Look for everything that the fields of an event can have wrong, but for its value."""
    field, findings = parsed.fields, parsed.findings

    def find(found: Bools, fault: DatabusFault, sentence: Callable[[int], str]) -> None:
        for row in np.flatnonzero(found).tolist():
            findings.setdefault(row, (fault, sentence(row)))

    for name in ("sequence", "physicalPartitionId", "timestampInNanos"):
        find(
            flags(field[name].is_null()), DatabusFault.FIELD_MISSING, _constant_finding(f"It has no {name}.")
        )
    no_kind = flags(kind.is_null())
    find(no_kind, DatabusFault.FIELD_MISSING, _constant_finding("It has no srcId and is no end of a period."))
    find(
        flags(pc.less(field["sequence"], 0)),
        DatabusFault.SCN_NEGATIVE,
        _value_finding("It is", field["sequence"]),
    )
    opcode = field["opcode"]
    unknown = is_data & ~flags(pc.is_in(pc.fill_null(opcode, UPSERT), pa.array([UPSERT, DELETE])))
    find(unknown, DatabusFault.OPCODE_UNKNOWN, _value_finding("It is", opcode))
    by_number, by_text = flags(field["key"].is_valid()), flags(field["keyBytes"].is_valid())
    find(is_data & ~(by_number | by_text), DatabusFault.KEY_INVALID, _constant_finding("It has none."))
    find(is_data & by_number & by_text, DatabusFault.KEY_INVALID, _constant_finding("It has both."))
    unknown = is_data & ~flags(pc.is_in(field["srcId"], ints(sources)))
    find(unknown, DatabusFault.SOURCE_UNKNOWN, _value_finding("srcId is", field["srcId"]))


def _constant_finding(sentence: str) -> Callable[[int], str]:
    return lambda _: sentence


def _value_finding(before: str, column: pa.Array) -> Callable[[int], str]:
    return lambda row: f"{before} {column[row].as_py()!r:.60}."


def string_keys(texts: pa.Array, is_data: Bools, findings: Findings) -> pa.Array:
    """The keys that came as the base64 of their UTF-8 bytes."""
    if texts.null_count == len(texts):
        return texts
    keys: list[str | None] = []
    for row, text in enumerate(texts.to_pylist()):
        key = None
        if text is not None and is_data[row]:
            found = decode_base64(text)
            with suppress(UnicodeDecodeError):
                key = None if found is None else found.decode()
            if key is None:
                finding = f"keyBytes is not the base64 of UTF-8 text: {text!r:.60}."
                findings.setdefault(row, (DatabusFault.KEY_INVALID, finding))
        keys.append(key)
    return pa.array(keys, pa.string())


def ints(numbers: Iterable[int]) -> pa.Array:
    """Numbers of sources."""
    return pa.array(list(numbers), pa.int32())


def flags(array: pa.Array) -> Bools:
    """Which are true; null is not."""
    found: Bools = pc.fill_null(array, False).to_numpy(zero_copy_only=False)
    return found
