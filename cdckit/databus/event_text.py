"""The JSON form of events: from texts to columns, by Arrow where nothing is unusual, else one by one."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from cdckit.databus.faults import DatabusFault, Findings

FIELDS = pa.schema(
    [
        ("opcode", pa.string()),
        ("key", pa.int64()),
        ("keyBytes", pa.string()),
        ("sequence", pa.int64()),
        ("logicalPartitionId", pa.int32()),
        ("physicalPartitionId", pa.int32()),
        ("timestampInNanos", pa.int64()),
        ("srcId", pa.int32()),
        ("schemaId", pa.string()),
        ("valueEnc", pa.string()),
        ("isReplicated", pa.bool_()),
        ("endOfPeriod", pa.bool_()),
        ("traceEnabled", pa.bool_()),
        ("value", pa.string()),
    ]
)
"""The fields of an event, in the order in which a relay writes them; others are passed over."""

_LIMITS = {pa.int32(): 1 << 31, pa.int64(): 1 << 63}


class Parsed(NamedTuple):
    """The fields of some events, column by column, null where one is not there; and what is wrong."""

    fields: dict[str, pa.Array]
    findings: Findings


def parse_events(values: pa.Array) -> Parsed:
    """
    What the JSON of every one of *values* says.  Total: what cannot be read becomes a finding.

    >>> parsed = parse_events(pa.array([b'{"sequence": 5}', b"?", b'{"sequence": "5"}']))
    >>> parsed.fields["sequence"].to_pylist(), [str(fault) for fault, _ in parsed.findings.values()]
    ([5, None, None], ['NOT_AN_EVENT', 'FIELD_TYPE'])
    """
    at_once = _parsed_at_once(values)
    return Parsed(at_once, {}) if at_once is not None else _parsed_singly(values)


def _parsed_at_once(values: pa.Array) -> dict[str, pa.Array] | None:
    """The fields as Arrow reads them; nothing where one of the texts must be looked at by itself."""
    if values.null_count or not len(values):
        return None
    try:
        # What is white space to JSON: Arrow would trim other signs too.
        texts = pc.utf8_trim(values.cast(pa.string()), " \t\r\n")
    except pa.ArrowInvalid:
        return None
    # Wrapped, a text that holds more than one object is no JSON any more.
    if pc.any(pc.match_substring(texts, "\n")).as_py():
        return None
    lines = pc.binary_join_element_wise('{"of":', texts, "}\n", "")
    buffers = lines.buffers()[2]
    start, stop = lines.offset, lines.offset + len(lines)
    offsets = pa.Array.from_buffers(pa.int32(), stop + 1, [None, lines.buffers()[1]])
    block = buffers.slice(offsets[start].as_py(), offsets[stop].as_py() - offsets[start].as_py())
    try:
        found = pyarrow.json.read_json(
            pa.BufferReader(block),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=block.size + 1),
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=pa.schema([("of", pa.struct(list(FIELDS)))]),
                unexpected_field_behavior="error",
            ),
        )
    except pa.ArrowException:
        return None
    if found.num_rows != len(values):
        return None
    events = found.column("of").combine_chunks()
    if events.null_count:
        return None
    return {field.name: events.field(field.name) for field in FIELDS}


def _parsed_singly(values: pa.Array) -> Parsed:
    findings: Findings = {}
    columns: dict[str, list[Any]] = {name: [None] * len(values) for name in FIELDS.names}
    for row, value in enumerate(values.to_pylist()):
        try:
            event = _event(value)
            for field in FIELDS:
                said = event.get(field.name)
                if said is not None:
                    try:
                        columns[field.name][row] = _of_type(field, said)
                    except _Wrong as wrong:
                        findings.setdefault(row, (wrong.fault, wrong.finding))
        except _Wrong as wrong:
            findings[row] = (wrong.fault, wrong.finding)
    return Parsed({field.name: pa.array(columns[field.name], field.type) for field in FIELDS}, findings)


class _Wrong(Exception):
    def __init__(self, fault: DatabusFault, finding: str = "") -> None:
        self.fault, self.finding = fault, finding
        super().__init__(fault, finding)


def _event(value: bytes | None) -> dict[str, Any]:
    if value is None:
        raise _Wrong(DatabusFault.NO_VALUE)
    try:
        event = json.loads(value.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise _Wrong(DatabusFault.NOT_AN_EVENT, f"It is not JSON: {error!s:.120}.") from error
    if not isinstance(event, dict):
        raise _Wrong(DatabusFault.NOT_AN_EVENT, f"It is JSON, but no object: {value[:40]!r}.")
    return event


def _of_type(field: pa.Field, said: Any) -> Any:
    if pa.types.is_boolean(field.type):
        # A relay's own reader takes the text "true" too.
        if isinstance(said, str) and said.lower() in ("true", "false"):
            return said.lower() == "true"
        if isinstance(said, bool):
            return said
    elif pa.types.is_string(field.type):
        if isinstance(said, str) and _is_whole(said):
            return said
    elif isinstance(said, int) and not isinstance(said, bool):
        if -_LIMITS[field.type] <= said < _LIMITS[field.type]:
            return said
        raise _Wrong(DatabusFault.FIELD_TYPE, f"{field.name} has more than {field.type.bit_width} bits.")
    raise _Wrong(DatabusFault.FIELD_TYPE, f"{field.name} must be {_KINDS[field.type]}; it is {said!r:.60}.")


def _is_whole(text: str) -> bool:
    """Whether a column can hold the text: an escape can spell half a character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


_KINDS = {pa.bool_(): "true or false", pa.string(): "text", pa.int32(): "a number", pa.int64(): "a number"}
