"""
The Replicate envelope: what a record's bytes hold, read a batch at a time, and its faults.

Nearly every message of a feed is a data message without application headers.  Up to the message its
envelope is 44 bytes that differ in the schema id alone, then comes the message's length, then the
message to the end of the value.  A value of exactly that shape needs no reader; every other is left
to one, and so is everything that is wrong.
"""

from __future__ import annotations

import codecs
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from cdckit.model.faults import Fault, Findings, FoundFault, error_columns
from cdckit.model.records import ERROR_FIELDS, RECORD_COLUMNS, RECORD_SCHEMA, require_records
from cdckit.parts import avro
from cdckit.parts.arrays import Bools, Ints
from cdckit.parts.json_text import refuse_constant
from cdckit.parts.workers import WorkerPlan


class ReplicateFault(Fault):
    """
    The codes of the door's rejects, in the order in which a message is looked at.

    >>> ReplicateFault.SCHEMA_ID_LENGTH.describe("It is 'de99'.")
    "A schema id is 32 bytes long. It is 'de99'."
    >>> [str(fault) for fault in ReplicateFault if fault.heals]
    ['METADATA_MISSING']
    """

    NO_VALUE = "NO_VALUE", "The record has no value (a tombstone of the topic, not a Replicate message)."
    WRONG_MAGIC = "WRONG_MAGIC", "A Replicate envelope begins with the bytes atMSG, or with { in JSON form."
    ENVELOPE_UNREADABLE = (
        "ENVELOPE_UNREADABLE",
        "The envelope does not read back exactly: it is cut, overlong or damaged.",
    )
    UNKNOWN_TYPE = "UNKNOWN_TYPE", "The envelope's type must be MD (metadata) or DT (data)."
    BOTH_SCHEMA_FIELDS = (
        "BOTH_SCHEMA_FIELDS",
        "messageSchemaId and messageSchema exclude each other; both are set.",
    )
    NO_SCHEMA_FIELD = (
        "NO_SCHEMA_FIELD",
        "One of messageSchemaId and messageSchema must be set; both are null.",
    )
    METADATA_BY_REFERENCE = (
        "METADATA_BY_REFERENCE",
        "A metadata message must carry its schema; it refers to one by id.",
    )
    DATA_SELF_DESCRIBING = (
        "DATA_SELF_DESCRIBING",
        "A data message must refer to its schema by id; it carries one itself.",
    )
    SCHEMA_ID_LENGTH = "SCHEMA_ID_LENGTH", "A schema id is 32 bytes long."
    METADATA_SCHEMA_INVALID = (
        "METADATA_SCHEMA_INVALID",
        "The schema embedded in the metadata message cannot be used.",
    )
    METADATA_UNREADABLE = (
        "METADATA_UNREADABLE",
        "The metadata message does not decode with the schema that it carries.",
    )
    METADATA_INCOMPLETE = "METADATA_INCOMPLETE", "The metadata message lacks what describes a table."
    DATA_SCHEMA_INVALID = "DATA_SCHEMA_INVALID", "The data schema in the metadata message cannot be used."
    SCHEMA_CONFLICT = (
        "SCHEMA_CONFLICT",
        "An earlier message gave this schema id another layout, which stands.",
    )
    MESSAGE_UNREADABLE = "MESSAGE_UNREADABLE", "The data message does not decode with the schema of its id."
    UNKNOWN_OPERATION = "UNKNOWN_OPERATION", "The operation must be INSERT, UPDATE, DELETE or REFRESH."
    TIMESTAMP_INVALID = (
        "TIMESTAMP_INVALID",
        "The header timestamp is not an instant in ISO 8601 form, or there is none.",
    )
    COLUMN_UNKNOWN = (
        "COLUMN_UNKNOWN",
        "A row names what no known version of the table has, or a column twice.",
    )
    NO_ROW = "NO_ROW", "Neither data nor beforeData holds a row."
    MASK_INVALID = "MASK_INVALID", "A mask is not hex text, or marks a column that the table does not have."
    VALUE_INVALID = "VALUE_INVALID", "A value does not convert to the type of its column."
    METADATA_MISSING = (
        "METADATA_MISSING",
        "No metadata message with this schema id came within the time allowed.",
        True,
    )


# The magic; type: text of 2 bytes; headers: null; messageSchemaId: text of 32 bytes, which follows.
_START = b"atMSG\x04DT\x00\x02\x40"
_ID = slice(len(_START), len(_START) + 32)
# After the id: messageSchema: null.
_HEAD = len(_START) + 32 + 1
# A length below 2^34 takes at most five bytes; an Arrow batch holds no longer value.
_MOST_LENGTH_BYTES = 5

Bytes = npt.NDArray[np.uint8]


class PlainEnvelopes(NamedTuple):
    """Which values are plain, and the schema id and message of those (null in the other rows)."""

    rows: Bools
    schema_id: pa.Array
    message: pa.Array


def open_plain(values: pa.Array) -> PlainEnvelopes:
    """The plain envelopes among *values* (binary, may be null)."""
    heads, long_enough = _heads(values)
    plain = long_enough & (heads[:, : len(_START)] == np.frombuffer(_START, np.uint8)).all(axis=1)
    ids = heads[:, _ID]
    # A schema id that is not ASCII may not be text at all: a reader shall say so.
    plain &= (heads[:, _HEAD - 1] == 0) & (ids < 0x80).all(axis=1)
    stated, taken = _lengths(heads[:, _HEAD:])
    lengths = pc.fill_null(pc.binary_length(values), 0).to_numpy(zero_copy_only=False)
    plain &= (taken > 0) & (_HEAD + taken + stated == lengths)
    return PlainEnvelopes(plain, _texts(ids, plain), _messages(values, taken, plain))


def _heads(values: pa.Array) -> tuple[Bytes, Bools]:
    """The first bytes of every value, one row each, filled up with zeros; and which reach to the message."""
    width = _HEAD + _MOST_LENGTH_BYTES
    lengths = pc.fill_null(pc.binary_length(values), 0).to_numpy(zero_copy_only=False)
    padded = pc.binary_join_element_wise(
        pc.fill_null(pc.binary_slice(values, 0, width), b""), pa.scalar(bytes(width)), pa.scalar(b"")
    )
    fixed = pc.binary_slice(padded, 0, width)
    # All rows are of one width now, so the Arrow buffer is the matrix.
    start = np.frombuffer(fixed.buffers()[1], np.int32)[fixed.offset]
    data = np.frombuffer(fixed.buffers()[2] or b"", np.uint8)[start : start + width * len(fixed)]
    return data.reshape(len(fixed), width), lengths > _HEAD


def _lengths(encoded: Bytes) -> tuple[Ints, Ints]:
    """Avro's long at the start of each row, and how many bytes it takes: 0 if it can be no length."""
    value = np.zeros(len(encoded), np.int64)
    taken = np.zeros(len(encoded), np.int64)
    going = np.ones(len(encoded), dtype=bool)
    for place in range(encoded.shape[1]):
        byte = encoded[:, place].astype(np.int64)
        value = np.where(going, value | ((byte & 0x7F) << (7 * place)), value)
        ends = going & (byte < 0x80)
        # A last byte of zero is a longer spelling of a shorter number: a reader shall judge it.
        taken = np.where(ends & ((byte != 0) | (place == 0)), place + 1, taken)
        going &= ~ends
    return value >> 1, np.where(value & 1, 0, taken)


def _texts(ids: Bytes, plain: Bools) -> pa.Array:
    width = ids.shape[1]
    offsets = np.arange(len(ids) + 1, dtype=np.int32) * width
    data = np.where(plain[:, None], ids, np.uint8(0x20)).tobytes()
    texts = pa.Array.from_buffers(pa.string(), len(ids), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    return pc.if_else(pa.array(plain), texts, pa.scalar(None, pa.string()))


def _messages(values: pa.Array, taken: Ints, plain: Bools) -> pa.Array:
    messages = pa.nulls(len(values), pa.binary())
    # Without an end Arrow's slice overflows a buffer size, so the longest value names it.
    end = pc.max(pc.binary_length(values)).as_py()
    for size in np.unique(taken[plain]).tolist():
        of_size = pa.array(plain & (taken == size))
        messages = pc.if_else(of_size, pc.binary_slice(values, _HEAD + size, end), messages)
    return messages


MAGIC = b"atMSG"
METADATA = "MD"
DATA = "DT"
SCHEMA_ID_BYTES = 32

ENVELOPE_AVRO = json.dumps(
    {
        "type": "record",
        "name": "MessageEnvelope",
        "fields": [
            {"name": "magic", "type": {"type": "fixed", "name": "Magic", "size": len(MAGIC)}},
            {"name": "type", "type": "string"},
            {"name": "headers", "type": ["null", {"type": "map", "values": "string"}]},
            {"name": "messageSchemaId", "type": ["null", "string"]},
            {"name": "messageSchema", "type": ["null", "string"]},
            {"name": "message", "type": "bytes"},
        ],
    }
)
"""The envelope's own Avro schema, the same for every message (Replicate, "The Replicate envelope")."""

_ENVELOPE_FIELDS = [
    T.StructField("form", T.StringType()),
    T.StructField("type", T.StringType()),
    T.StructField("envelope_headers", T.MapType(T.StringType(), T.StringType())),
    T.StructField("schema_id", T.StringType()),
    T.StructField("message_schema", T.StringType()),
    T.StructField("message", T.BinaryType()),
]

ENVELOPE_SCHEMA = T.StructType([*RECORD_SCHEMA.fields, *_ENVELOPE_FIELDS, *ERROR_FIELDS])
"""One row is one record, and what its envelope says; or why it says nothing."""

_TEXT_MAP = pa.map_(pa.string(), pa.string())


def decode(records: DataFrame, *, skip_metadata: bool = False, skip_data: bool = False) -> DataFrame:
    """
    Open the envelope of every record.

    Args:
        records: One row per transported message (`cdckit.model.RECORD_SCHEMA`).
        skip_metadata: Leave out the messages of type MD.
        skip_data: Leave out the messages of type DT.

    Returns:
        One row per record, in no order: the record's columns, then `form` (`avro` or `json`),
        `type` (`MD` or `DT`), `envelope_headers`, `schema_id` (messageSchemaId), `message_schema`,
        `message` (Avro bytes, or the UTF-8 text of the JSON object), `error_code` and
        `error_description` (null where all is well).  It never fails on data: where an error stands,
        the envelope's columns hold what could be read.

    Raises:
        MissingColumns, WrongColumnType: *records* are not records.

    Cost: one pass through Python in Arrow batches, no shuffle.

    Source:
        Replicate, "The Replicate envelope" and the two decoding scenarios.

    >>> value = b"atMSG" + bytes([4]) + b"DT" + bytes([0, 2, 64]) + b"f" * 32 + bytes([0, 4]) + b"hi"
    >>> decode(records_of(value, b"at", None)).select("type", "schema_id", "message", "error_code").show()
    +----+--------------------+-------+-----------+
    |type|           schema_id|message| error_code|
    +----+--------------------+-------+-----------+
    |  DT|ffffffffffffffff...|[68 69]|       NULL|
    |NULL|                NULL|   NULL|WRONG_MAGIC|
    |NULL|                NULL|   NULL|   NO_VALUE|
    +----+--------------------+-------+-----------+
    <BLANKLINE>
    """
    records = require_records(records, function="decode")
    skipped = frozenset([METADATA] * skip_metadata + [DATA] * skip_data)
    by = partial(_decode_batches, skipped=skipped)
    return WorkerPlan(records.select(*RECORD_COLUMNS), by, ENVELOPE_SCHEMA).rows()


def _decode_batches(
    batches: Iterator[pa.RecordBatch], *, skipped: frozenset[str]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        opened = open_envelopes(batch.column("value"))
        decoded = pa.RecordBatch.from_arrays(
            [*batch.columns, *opened.columns()], names=ENVELOPE_SCHEMA.fieldNames()
        )
        if skipped:
            decoded = decoded.filter(
                pc.fill_null(pc.invert(pc.is_in(opened.type, pa.array(sorted(skipped)))), True)
            )
        yield decoded


@dataclass
class Envelopes:
    """The envelopes of a batch, column by column; `findings` by row, where something is wrong."""

    form: pa.Array
    type: pa.Array
    headers: pa.Array
    schema_id: pa.Array
    message_schema: pa.Array
    message: pa.Array
    findings: Findings

    def columns(self) -> list[pa.Array]:
        """The columns of `ENVELOPE_SCHEMA` behind those of the record."""
        codes, descriptions = error_columns(self.findings, len(self.type))
        return [
            self.form,
            self.type,
            self.headers,
            self.schema_id,
            self.message_schema,
            self.message,
            codes,
            descriptions,
        ]


def open_envelopes(values: pa.Array) -> Envelopes:
    """What every one of *values* holds.  Total: what cannot be read becomes a finding."""
    plain = open_plain(values)
    nothing = pa.scalar(None, pa.string())
    opened = Envelopes(
        form=pc.if_else(pa.array(plain.rows), pa.scalar("avro"), nothing),
        type=pc.if_else(pa.array(plain.rows), pa.scalar(DATA), nothing),
        headers=pa.nulls(len(values), _TEXT_MAP),
        schema_id=plain.schema_id,
        message_schema=pa.nulls(len(values), pa.string()),
        message=plain.message,
        findings={},
    )
    if plain.rows.all():
        return opened
    return _with_rows(opened, np.flatnonzero(~plain.rows), _open_any(values.filter(pa.array(~plain.rows))))


def _with_rows(opened: Envelopes, rows: Ints, others: Envelopes) -> Envelopes:
    """The same envelopes with those of *others* put into *rows*."""
    source = np.arange(len(opened.type))
    source[rows] = len(opened.type) + np.arange(len(rows))
    columns = {
        name: pa.concat_arrays([getattr(opened, name), getattr(others, name)]).take(pa.array(source))
        for name in ("form", "type", "headers", "schema_id", "message_schema", "message")
    }
    return Envelopes(**columns, findings={int(rows[row]): found for row, found in others.findings.items()})


def _open_any(values: pa.Array) -> Envelopes:
    """Envelopes of every shape, by a reader."""
    starts = pc.binary_slice(values, 0, len(MAGIC))
    is_avro = pc.fill_null(pc.equal(starts, pa.scalar(MAGIC, values.type)), False)
    opened = _open_avro(pc.if_else(is_avro, values, pa.scalar(None, values.type)))
    if pc.all(is_avro).as_py():
        return opened
    others = np.flatnonzero(~is_avro.to_numpy(zero_copy_only=False))
    return _open_others(opened, values, others)


def _open_avro(values: pa.Array) -> Envelopes:
    decoded = avro.decode(values, avro.parse_schema(ENVELOPE_AVRO))
    field = {name: pc.struct_field(decoded.values, name) for name in decoded.values.type.names}
    findings: Findings = {
        row: (ReplicateFault.ENVELOPE_UNREADABLE, decoded.errors[row].as_py())
        for row in _rows(pc.is_valid(decoded.errors))
    }
    opened = Envelopes(
        form=pc.if_else(decoded.values.is_valid(), pa.scalar("avro"), pa.scalar(None, pa.string())),
        type=field["type"],
        headers=field["headers"],
        schema_id=field["messageSchemaId"],
        message_schema=field["messageSchema"],
        message=field["message"],
        findings=findings,
    )
    _find_faults(opened)
    return opened


def _find_faults(opened: Envelopes) -> None:
    """Look for everything that an envelope which reads back can still have wrong, in either form."""
    known = pc.is_in(opened.type, pa.array([METADATA, DATA]))
    by_id, embedded = opened.schema_id.is_valid(), opened.message_schema.is_valid()
    is_data, is_avro = pc.equal(opened.type, DATA), pc.equal(opened.form, "avro")
    neither = pc.invert(pc.or_(by_id, embedded))
    short = pc.not_equal(pc.binary_length(opened.schema_id), SCHEMA_ID_BYTES)
    suspects = [
        (ReplicateFault.UNKNOWN_TYPE, pc.and_(opened.type.is_valid(), pc.invert(known)), opened.type),
        (ReplicateFault.BOTH_SCHEMA_FIELDS, pc.and_(by_id, embedded), None),
        (ReplicateFault.NO_SCHEMA_FIELD, pc.and_(is_avro, pc.and_(known, neither)), None),
        (
            ReplicateFault.METADATA_BY_REFERENCE,
            pc.and_(by_id, pc.and_(known, pc.invert(is_data))),
            opened.schema_id,
        ),
        (ReplicateFault.DATA_SELF_DESCRIBING, pc.and_(embedded, is_data), None),
        (ReplicateFault.SCHEMA_ID_LENGTH, short, opened.schema_id),
    ]
    for fault, found, shown in suspects:
        for row in _rows(found):
            finding = f"It is {shown[row].as_py()!r:.80}." if shown is not None else ""
            opened.findings.setdefault(row, (fault, finding))


def _open_others(opened: Envelopes, values: pa.Array, rows: np.ndarray[Any, Any]) -> Envelopes:
    """Fill in the rows that do not begin with the magic: JSON form, or a fault."""
    columns = {
        name: getattr(opened, name).to_pylist()
        for name in ("form", "type", "schema_id", "message_schema", "message")
    }
    headers = opened.headers.to_pylist()
    for row in rows.tolist():
        value = values[row].as_py()
        try:
            envelope = _json_envelope(value)
        except FoundFault as refused:
            opened.findings[row] = (refused.fault, refused.finding)
            continue
        opened.findings.pop(row, None)
        headers[row] = envelope.pop("headers")
        for name, found in envelope.items():
            columns[name][row] = found
    filled = Envelopes(
        form=pa.array(columns["form"], pa.string()),
        type=pa.array(columns["type"], pa.string()),
        headers=pa.array(headers, _TEXT_MAP),
        schema_id=pa.array(columns["schema_id"], pa.string()),
        message_schema=pa.array(columns["message_schema"], pa.string()),
        message=pa.array(columns["message"], pa.binary()),
        findings=opened.findings,
    )
    _find_faults(filled)
    return filled


class _Fraction(str):
    """A number with a fraction as the text that it is: as a float it could lose digits."""


def _each_name_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        ((twice, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise FoundFault(ReplicateFault.ENVELOPE_UNREADABLE, f"The name {twice!r:.80} comes twice in it.")
    return found


# Python's own reader takes the last of two values, and NaN.
_JSON = json.JSONDecoder(
    parse_float=_Fraction, parse_constant=refuse_constant, object_pairs_hook=_each_name_once
)


def _json_envelope(value: bytes | None) -> dict[str, Any]:
    """The envelope in JSON form: `message` is an object, schema fields may be null."""
    if value is None:
        raise FoundFault(ReplicateFault.NO_VALUE)
    if value.removeprefix(codecs.BOM_UTF8).lstrip()[:1] != b"{":
        raise FoundFault(ReplicateFault.WRONG_MAGIC, f"It begins with {value[:5]!r}.")
    try:
        text = value.decode("utf-8-sig")
        envelope = _JSON.decode(text)
        # An escape can spell half a character: text that no column can hold.
        json.dumps(envelope, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise FoundFault(ReplicateFault.ENVELOPE_UNREADABLE, f"It is not JSON: {error}.") from error
    if envelope.get("magic") != MAGIC.decode():
        raise FoundFault(ReplicateFault.WRONG_MAGIC, f"magic is {envelope.get('magic')!r:.80}.")
    if envelope.get("type") not in (METADATA, DATA):
        raise FoundFault(ReplicateFault.UNKNOWN_TYPE, f"It is {envelope.get('type')!r:.80}.")
    schema_id, message_schema = envelope.get("messageSchemaId"), envelope.get("messageSchema")
    for name, stated in (("messageSchemaId", schema_id), ("messageSchema", message_schema)):
        if stated is not None and type(stated) is not str:
            raise FoundFault(ReplicateFault.ENVELOPE_UNREADABLE, f"{name} is not text.")
    if not isinstance(envelope.get("headers"), dict | None):
        raise FoundFault(ReplicateFault.ENVELOPE_UNREADABLE, "headers is not a JSON object.")
    if not isinstance(envelope.get("message"), dict):
        raise FoundFault(ReplicateFault.ENVELOPE_UNREADABLE, "message is not a JSON object.")
    if envelope["type"] == METADATA:
        # There a number is a number: who reads it must see that an id is none, and an ordinal no fraction.
        envelope["message"] = json.loads(text)["message"]
    return {
        "form": "json",
        "type": envelope["type"],
        "headers": _text_map(envelope.get("headers")),
        "schema_id": schema_id,
        "message_schema": message_schema,
        "message": json.dumps(envelope["message"], ensure_ascii=False).encode(),
    }


def _text_map(headers: dict[str, Any] | None) -> list[tuple[str, str]] | None:
    if headers is None:
        return None
    return [(name, value if isinstance(value, str) else json.dumps(value)) for name, value in headers.items()]


def _rows(flags: pa.Array) -> list[int]:
    found: list[int] = np.flatnonzero(pc.fill_null(flags, False).to_numpy(zero_copy_only=False)).tolist()
    return found
