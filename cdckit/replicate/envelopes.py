"""
The Replicate envelope: what the bytes of a record hold, or what is wrong with them.

The schema of the envelope is the same for every message (`ENVELOPE_AVRO`), so the Avro reader takes the
records of a batch at once; `require_rules` has those of the text that no schema says.  Nearly every message
of a feed is a data message without application headers: up to the message its bytes are always the same, but
for the schema id.  Those are cut where the parts must stand (`open_plain`), at a fraction of the time.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdckit.model.faults import Fault, Findings, FoundFault
from cdckit.parts import avro
from cdckit.parts.json_objects import STRICT_JSON, json_text
from cdckit.parts.json_text import members

MAGIC = b"atMSG"
METADATA, DATA = "MD", "DT"
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
"""The envelope's own Avro schema (Replicate, "The Replicate envelope")."""


class ReplicateFault(Fault):
    """
    The codes of the door's rejects; of several faults of a data message it has the one that stands first.

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
    OLD_KEY_MISSING = (
        "OLD_KEY_MISSING",
        "The update marks a column of the key as changed, and its beforeData does not say what that was: "
        "the row under the key before would stay for ever.",
    )
    METADATA_MISSING = (
        "METADATA_MISSING",
        "No metadata message for this schema id and topic came within the time allowed.",
        True,
    )


class Envelope(NamedTuple):
    """What one record holds; all is null where it cannot be read."""

    form: str | None = None
    type: str | None = None
    envelope_headers: list[tuple[str, str]] | None = None
    schema_id: str | None = None
    message_schema: str | None = None
    message: bytes | None = None


ENVELOPE_TYPES: dict[str, pa.DataType] = {
    **dict.fromkeys(Envelope._fields, pa.string()),
    "envelope_headers": pa.map_(pa.string(), pa.string()),
    "message": pa.binary(),
}


class Envelopes(NamedTuple):
    """The envelopes of a batch, column by column; `findings` by row, where something is wrong."""

    form: pa.Array
    type: pa.Array
    envelope_headers: pa.Array
    schema_id: pa.Array
    message_schema: pa.Array
    message: pa.Array
    findings: Findings


def open_envelopes(values: pa.Array) -> Envelopes:
    """Read what every one of *values* (binary) holds.  Total: what cannot be read becomes a finding."""
    plain = open_plain(values)
    others = np.flatnonzero(plain.form.is_null())
    if not len(others):
        return plain
    envelopes, findings = read_envelopes(values.take(pa.array(others)))
    place = np.arange(len(values))
    place[others] = len(values) + np.arange(len(others))
    parts = dict(zip(ENVELOPE_TYPES, zip(*envelopes, strict=True), strict=True))
    columns: dict[str, Any] = {
        name: pa.concat_arrays([getattr(plain, name), pa.array(parts[name], kind)]).take(pa.array(place))
        for name, kind in ENVELOPE_TYPES.items()
    }
    return Envelopes(**columns, findings={int(others[row]): fault for row, fault in findings.items()})


# The two scenarios ----------------------------------------------------------------------------------------


def read_envelopes(values: pa.Array) -> tuple[list[Envelope], Findings]:
    """Envelopes of every shape and form, and by row what is wrong."""
    in_avro = _read_avro(values.filter(pc.starts_with(values, MAGIC)))
    envelopes: list[Envelope] = []
    findings: Findings = {}
    for row, value in enumerate(values.to_pylist()):
        try:
            envelopes.append(_read_envelope(value, in_avro))
            require_rules(envelopes[row])
        except FoundFault as refused:
            envelopes += [Envelope()] * (row + 1 - len(envelopes))
            findings[row] = (refused.fault, refused.finding)
    return envelopes, findings


def _read_envelope(value: bytes | None, in_avro: Iterator[Envelope | FoundFault]) -> Envelope:
    """Read one envelope in its form; those *in_avro*, which begin with the magic, have been read together."""
    if value is None:
        raise FoundFault(ReplicateFault.NO_VALUE)
    if value.startswith(MAGIC):
        envelope = next(in_avro)
        if isinstance(envelope, FoundFault):
            raise envelope
        return envelope
    if value.removeprefix(codecs.BOM_UTF8).lstrip()[:1] == b"{":
        return _read_json(value)
    raise FoundFault(ReplicateFault.WRONG_MAGIC, f"It begins with {value[:5]!r}.")


def require_rules(envelope: Envelope) -> None:
    """
    Raise `FoundFault` for the first rule that an envelope breaks.

    A metadata message describes itself: the schema of its message is in it.  A data message says the id, of
    32 bytes, of a schema that a metadata message had.  In JSON form, where a message needs no schema to be
    read, neither has to be there.
    """
    is_data, schema_id = envelope.type == DATA, envelope.schema_id
    by_id, embedded = schema_id is not None, envelope.message_schema is not None
    _require_type(envelope.type)
    if by_id and embedded:
        raise FoundFault(ReplicateFault.BOTH_SCHEMA_FIELDS)
    if envelope.form == "avro" and not by_id and not embedded:
        raise FoundFault(ReplicateFault.NO_SCHEMA_FIELD)
    if by_id and not is_data:
        raise FoundFault(ReplicateFault.METADATA_BY_REFERENCE, _show(schema_id))
    if embedded and is_data:
        raise FoundFault(ReplicateFault.DATA_SELF_DESCRIBING)
    if schema_id is not None and len(schema_id.encode()) != SCHEMA_ID_BYTES:
        raise FoundFault(ReplicateFault.SCHEMA_ID_LENGTH, _show(schema_id))


def _require_type(kind: object) -> None:
    if kind not in (METADATA, DATA):
        raise FoundFault(ReplicateFault.UNKNOWN_TYPE, _show(kind))


def _show(value: object, name: str = "It") -> str:
    shown = json_letters(value) if value.__class__ is msgspec.Raw else value
    return f"{name} is {shown!r:.80}."


def _read_avro(values: pa.Array) -> Iterator[Envelope | FoundFault]:
    decoded = avro.decode(values, avro.parse_schema(ENVELOPE_AVRO))
    for fields, error in zip(decoded.values.to_pylist(), decoded.errors.to_pylist(), strict=True):
        if error is not None:
            yield FoundFault(ReplicateFault.ENVELOPE_UNREADABLE, error)
        else:
            _, *parts = fields.values()
            yield Envelope("avro", *parts)


# JSON form ------------------------------------------------------------------------------------------------


def _read_json(value: bytes) -> Envelope:
    """The envelope in JSON form: `message` is an object, schema fields may be null."""
    try:
        text = value.decode("utf-8-sig")
        parts, places = members(text, STRICT_JSON, once=True)
        # An escape can spell half a character: text that no column can hold.
        json_text(parts)
    except (ValueError, RecursionError) as error:
        raise FoundFault(ReplicateFault.ENVELOPE_UNREADABLE, f"It is not JSON: {error}.") from error
    if parts.get("magic") != MAGIC.decode():
        raise FoundFault(ReplicateFault.WRONG_MAGIC, _show(parts.get("magic"), "magic"))
    # No column could hold a type that is no text.
    _require_type(parts.get("type"))
    for name, kind, needed in _JSON_KINDS:
        if parts.get(name).__class__ not in kind:
            raise FoundFault(ReplicateFault.ENVELOPE_UNREADABLE, f"{name} is not {needed}.")
    headers = parts.get("headers")
    return Envelope(
        "json",
        parts["type"],
        None if headers is None else [(name, json_letters(value)) for name, value in headers.items()],
        parts.get("messageSchemaId"),
        parts.get("messageSchema"),
        text[places["message"]].encode(),
    )


_JSON_KINDS = (
    ("messageSchemaId", (str, type(None)), "text"),
    ("messageSchema", (str, type(None)), "text"),
    ("headers", (dict, type(None)), "a JSON object"),
    ("message", (dict,), "a JSON object"),
)


def json_letters(value: Any) -> str:
    """The letters of a text, and of any other value its JSON."""
    return value if isinstance(value, str) else json_text(value)


# Plain envelopes ------------------------------------------------------------------------------------------

# The magic; type: text of 2 bytes; headers: null; messageSchemaId: text of 32 bytes, which follows.
PLAIN_START = MAGIC + b"\x04DT\x00\x02\x40"
# After the id: messageSchema: null.
_HEAD = len(PLAIN_START) + SCHEMA_ID_BYTES + 1


def open_plain(values: pa.Array) -> Envelopes:
    """The plain envelopes among *values*; all is null of the others, which are left to a reader."""
    message = _cut_messages(values)
    has_no_schema = pc.equal(pc.binary_slice(values, _HEAD - 1, _HEAD), b"\0")
    is_plain = pc.and_(pc.and_(pc.starts_with(values, PLAIN_START), has_no_schema), message.is_valid())
    nothing = pa.scalar(None, pa.string())
    try:
        ids = pc.binary_slice(values, len(PLAIN_START), _HEAD - 1)
        schema_id = pc.if_else(is_plain, ids, pa.scalar(None, pa.binary())).cast(pa.string())
    except pa.ArrowInvalid:
        # An id is no text: a reader shall say of which record.
        is_plain, schema_id = pa.nulls(len(values), pa.bool_()), pa.nulls(len(values), pa.string())
    return Envelopes(
        pc.if_else(is_plain, "avro", nothing),
        pc.if_else(is_plain, DATA, nothing),
        pa.nulls(len(values), ENVELOPE_TYPES["envelope_headers"]),
        schema_id,
        pa.nulls(len(values), pa.string()),
        pc.if_else(is_plain, message, pa.scalar(None, pa.binary())),
        {},
    )


def _cut_messages(values: pa.Array) -> pa.Array:
    """The messages behind plain heads; null where the length in front is not that of what follows."""
    lengths = pc.fill_null(pc.binary_length(values), 0).dictionary_encode()
    prefixes = pa.array([_message_prefix(n - _HEAD) for n in lengths.dictionary.to_pylist()], pa.binary())
    stated = prefixes.take(lengths.indices)
    # Without an end Arrow's slice overflows a buffer size.
    end = pc.max(lengths.dictionary).as_py() if len(values) else 0
    message = pa.nulls(len(values), pa.binary())
    for size in pc.unique(pc.binary_length(prefixes).drop_null()).to_pylist():
        is_stated = pc.equal(pc.binary_slice(values, _HEAD, _HEAD + size), stated)
        message = pc.if_else(is_stated, pc.binary_slice(values, _HEAD + size, end), message)
    return message


def _message_prefix(remaining: int) -> bytes | None:
    """
    The length before a message that takes *remaining* bytes together with it; None if none has so many.

    >>> _message_prefix(3), _message_prefix(66), _message_prefix(65)
    (b'\\x04', b'\\x80\\x01', None)
    """
    for size in range(1, 6):
        doubled, spelled = 2 * (remaining - size), bytearray()
        while doubled > 0x7F:
            spelled.append(doubled & 0x7F | 0x80)
            doubled >>= 7
        if doubled >= 0 and len(spelled) + 1 == size:
            return bytes([*spelled, doubled])
    return None
