"""
What the parts of data messages mean, in Avro and in JSON form: rows, which columns were sent, and when.

`Messages` has the parts; `make_rows` has the rules, and finds what is wrong with a message.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import reduce
from itertools import chain
from operator import and_, or_
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdckit.model.faults import Findings, error_columns, keep_bytes
from cdckit.parts.arrays import Bools, bools
from cdckit.parts.instants import INSTANT
from cdckit.replicate.envelopes import ReplicateFault
from cdckit.replicate.metadata_messages import OPERATIONS
from cdckit.replicate.table_versions import Table, TableVersion

UPDATE, DELETE, LOAD = "UPDATE", "DELETE", "REFRESH"
LOADED_AT = "loaded_at"
"""The column of records, where there is one, that says from when on the rows of their load are true."""


def row_types(table: Table) -> dict[str, pa.DataType]:
    """The columns of rows behind those of their records; `version` is which of the table's versions."""
    flags = pa.struct([(field.name, pa.bool_()) for field in table.fields])
    return {
        "version": pa.int32(),
        "operation": pa.string(),
        "change_sequence": pa.string(),
        "change_timestamp": INSTANT,
        "time_taken_from": pa.string(),
        "stream_position": pa.string(),
        "transaction_id": pa.string(),
        "transaction_event_counter": pa.int64(),
        "transaction_last_event": pa.bool_(),
        "data": table.fields,
        "before": table.fields,
        "sent": flags,
        "changed": flags,
        "error_code": pa.string(),
        "error_description": pa.string(),
    }


class Messages(NamedTuple):
    """Data messages of one version of a table, in either form, column by column."""

    headers: dict[str, pa.Array]
    """By the producer's names (`HEADER_TYPES`)."""
    data: pa.StructArray
    """The row, and the row before, in the columns of all versions."""
    before: pa.StructArray
    named: Mapping[str, Bools]
    """By column, whether the message has it, whatever its mask says."""
    named_before: Sequence[Collection[str] | None]
    """By row the columns that the row before names; None for all of the version."""
    findings: Findings


_RANK = {fault: rank for rank, fault in enumerate(ReplicateFault)}


def note(findings: Findings, row: int, fault: ReplicateFault, finding: str = "") -> None:
    """Keep, of the faults of a row, the one that is looked for first."""
    noted = findings.get(row)
    if noted is None or _RANK[fault] < _RANK[noted[0]]:  # type: ignore[index]
        findings[row] = fault, finding


def make_rows(
    messages: Messages, records: pa.RecordBatch, table: Table, index: int, keys: Collection[str] = ()
) -> pa.RecordBatch:
    """
    The rows (`row_types`) of data messages behind their records, which have their bytes if they are rejects.

    Args:
        messages: All of one version of the table.
        records: Their records, with `LOADED_AT` where the caller says it.
        table: The table.
        index: Which of its versions.
        keys: The key columns by which its changes are made, where these are not those of the version.
    """
    version, headers, count = table.versions[index], messages.headers, records.num_rows
    data = _row(messages)
    times = find_times(headers, records)
    column_mask, change_mask = (
        read_masks(headers[name], version.ordinals.values()) for name in ("columnMask", "changeMask")
    )
    sent, never = _sent_flags(messages, version, column_mask.bits), np.zeros(count, dtype=bool)
    marked = {field.name: never for field in table.fields}
    marked |= {name: change_mask.bits[:, ordinal - 1] for name, ordinal in version.ordinals.items()}
    key_sets = [key for key in (version.keys, table.keys, keys) if key]
    before = _fill_keys(messages, version, {*chain(*key_sets)} & version.positions.keys(), marked)
    findings = _find_faults(messages, data, times, column_mask.is_stray | change_mask.is_stray)
    codes, descriptions = error_columns(findings, count)
    # What is in error has no other time than its own.
    has_time = pc.or_(codes.is_null(), pc.fill_null(pc.equal(times.taken_from, CHANGE), False))
    is_update, has_before = bools(pc.equal(headers["operation"], UPDATE)), bools(before.is_valid())
    is_reject = bools(codes.is_valid())

    def key_part(name: str) -> KeyPart:
        if name not in version.positions:
            return KeyPart(~never, never, never, never, never)
        was_null, is_null = (bools(pc.struct_field(row, name).is_null()) for row in (before, data))
        return KeyPart(never, sent[name], marked[name], was_null, is_null)

    for key in key_sets:
        parts = list(map(key_part, key))
        is_reject = is_reject | lacks_key(parts) | is_update & lacks_old_key(parts, has_before)
    columns = {
        "version": pa.array(np.full(count, index, dtype=np.int32)),
        "operation": headers["operation"],
        "change_sequence": headers["changeSequence"],
        "change_timestamp": pc.if_else(has_time, times.at, pa.scalar(None, INSTANT)),
        "time_taken_from": pc.if_else(has_time, times.taken_from, pa.scalar(None, pa.string())),
        "stream_position": headers["streamPosition"],
        "transaction_id": headers["transactionId"],
        "transaction_event_counter": headers["transactionEventCounter"],
        "transaction_last_event": headers["transactionLastEvent"],
        "data": data,
        "before": before,
        "sent": _flag_struct(sent),
        "changed": _flag_struct(marked, mask=headers["changeMask"].is_null()),
        "error_code": codes,
        "error_description": descriptions,
    }
    return with_record(records, columns, keeps_bytes=pa.array(is_reject))


def _row(messages: Messages) -> pa.Array:
    """The row; a delete has it in either of the two places."""
    is_delete = pc.equal(messages.headers["operation"], DELETE)
    is_only_before = pc.fill_null(pc.and_(is_delete, messages.data.is_null()), False)
    if not is_only_before.true_count:
        return messages.data
    return pc.if_else(is_only_before, messages.before, messages.data)


def _find_faults(messages: Messages, data: pa.Array, times: Times, is_stray: Bools) -> Findings:
    """Find what is wrong with messages, given what was made of them."""
    operation = messages.headers["operation"]
    faults: list[tuple[ReplicateFault, Bools, pa.Array | None]] = [
        (ReplicateFault.UNKNOWN_OPERATION, ~bools(pc.is_in(operation, pa.array(OPERATIONS))), operation),
        (ReplicateFault.TIMESTAMP_INVALID, times.is_wrong, messages.headers["timestamp"]),
        (ReplicateFault.NO_ROW, bools(data.is_null()), None),
        (ReplicateFault.MASK_INVALID, is_stray, None),
    ]
    findings = dict(messages.findings)
    for fault, is_wrong, shown in faults:
        for row in np.flatnonzero(is_wrong).tolist():
            finding = "" if shown is None else f"It says: {shown[row].as_py() or 'nothing'!s:.200}"
            note(findings, row, fault, finding)
    return findings


def _sent_flags(messages: Messages, version: TableVersion, bits: Bools) -> Mapping[str, Bools]:
    """
    Tell which columns a message held: those that its mask marks; without a mask, those that it has.

    A field that is no column of the source is the task's own addition: no mask speaks of it.
    """
    is_masked = bools(messages.headers["columnMask"].is_valid())
    if not is_masked.any():
        return messages.named
    return {
        name: np.where(is_masked, bits[:, version.ordinals[name] - 1], is_named)
        if name in version.ordinals
        else is_named
        for name, is_named in messages.named.items()
    }


def _flag_struct(flags: Mapping[str, Bools], mask: pa.Array | None = None) -> pa.Array:
    columns = [pa.array(flag) for flag in flags.values()]
    return pa.StructArray.from_arrays(columns, names=list(flags), mask=mask)


# Keys -----------------------------------------------------------------------------------------------------


class KeyPart(NamedTuple):
    """What rows say of one column of a key, in flags: arrays of NumPy, or columns of Spark."""

    is_absent: Any  # their version of the table does not have it
    is_sent: Any
    is_marked: Any  # the mask says that it changed
    was_null: Any  # in the row before, also where there is none
    is_null: Any


def lacks_key(parts: Sequence[KeyPart]) -> Any:
    """Tell whether rows left out a column of a key that their version has, or that has none of them."""
    left_out = reduce(or_, (~part.is_absent & ~part.is_sent for part in parts))
    return left_out | reduce(and_, (part.is_absent for part in parts))


def lacks_old_key(parts: Sequence[KeyPart], has_before: Any) -> Any:
    """Tell whether updates changed a column of a key, and do not say what it was."""
    return reduce(or_, (part.is_marked & part.was_null & ~(has_before & part.is_null) for part in parts))


def _fill_keys(
    messages: Messages, version: TableVersion, names: Iterable[str], marked: Mapping[str, Bools]
) -> pa.Array:
    """
    The rows before, with the columns of keys, of these *names*, that they lack and that did not change.

    What changes a key says it: by its mask, or without one by naming it in the row before.
    """
    before, has_before = messages.before, bools(messages.before.is_valid())
    if not has_before.any():
        return before
    columns = dict(zip(before.type.names, before.flatten(), strict=True))
    is_masked = bools(messages.headers["changeMask"].is_valid())
    for name in names:
        is_named = [names is None or name in names for names in messages.named_before]
        changed = np.where(is_masked & (name in version.ordinals), marked[name], is_named)
        is_lacking = pa.array(has_before & bools(columns[name].is_null()) & ~changed)
        columns[name] = pc.if_else(is_lacking, pc.struct_field(messages.data, name), columns[name])
    mask = pa.array(~has_before)
    return pa.StructArray.from_arrays(list(columns.values()), fields=list(before.type), mask=mask)


# Times ----------------------------------------------------------------------------------------------------

CHANGE, GIVEN, SEQUENCE, RECORD = "change", "given", "sequence", "record"
"""What `time_taken_from` can say."""


class Times(NamedTuple):
    """When changes are true; whence that is known; and whether what a message says of it cannot be read."""

    at: pa.Array
    taken_from: pa.Array
    is_wrong: Bools


def find_times(headers: Mapping[str, pa.Array], records: pa.RecordBatch) -> Times:
    """
    The time that a message says, or what stands in for it.

    A row of a full load is true from the time on that the caller gives (`LOADED_AT`), or without it from its
    record's `timestamp`; any other change has the time in its change sequence, or that of its record.

    Source:
        Qlik Replicate, data messages: `timestamp` and `changeSequence` are "applicable to CDC
        operations"; change sequence: YYYYMMDDHHmmSShh and 19 digits.  What stands in for a missing
        time is a decision of ours.
    """
    is_silent = pc.equal(pc.fill_null(headers["timestamp"], ""), "")
    # An empty text among them would make each of the others be looked at by itself.
    at, is_none = parse_instants(pc.if_else(is_silent, pa.scalar(None, pa.string()), headers["timestamp"]))
    taken_from = pc.if_else(at.is_valid(), CHANGE, pa.scalar(None, pa.string()))
    if not at.null_count:
        return Times(at, taken_from, is_none)
    is_load = pc.fill_null(pc.equal(headers["operation"], LOAD), False)
    needs_sequence = pc.and_(at.is_null(), pc.invert(is_load))
    sequences = pc.if_else(needs_sequence, headers["changeSequence"], pa.scalar(None, pa.string()))
    given = records.column(LOADED_AT) if LOADED_AT in records.schema.names else pa.scalar(None, INSTANT)
    for source, instants in (
        (GIVEN, pc.if_else(is_load, given, pa.scalar(None, INSTANT))),
        (SEQUENCE, pa.array(map(sequence_time, sequences.to_pylist()), INSTANT)),
        (RECORD, records.column("timestamp")),
    ):
        taken_from = pc.if_else(pc.and_(at.is_null(), instants.is_valid()), source, taken_from)
        at = pc.coalesce(at, instants)
    return Times(at, taken_from, is_none & ~bools(is_silent) | bools(at.is_null()))


_FIRST = pa.scalar(datetime.min.replace(tzinfo=UTC), INSTANT)


def parse_instants(texts: pa.Array) -> tuple[pa.Array, Bools]:
    """Instants of ISO 8601 *texts*, UTC where no zone is said; and which texts are none."""
    instants = _parse_common_form(texts)
    if instants is None:
        instants = pa.array([_instant(text) for text in texts.to_pylist()], INSTANT)
    return instants, instants.is_null().to_numpy(zero_copy_only=False)


def _parse_common_form(texts: pa.Array) -> pa.Array | None:
    """All instants at once, or nothing if one of *texts* has to be looked at by itself."""
    try:
        instants = texts.cast(pa.timestamp("us")).cast(INSTANT)
    except pa.ArrowInvalid:
        return None
    # Arrow reads a year 0, which no datetime can hold.
    return None if pc.any(pc.less(instants, _FIRST)).as_py() else instants


def _instant(text: str | None) -> datetime | None:
    try:
        instant = datetime.fromisoformat(text or "")
        return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


# Year, month, day, hour, minute, second and hundredths of a second.
_SEQUENCE_TIME = re.compile("([0-9]{4})" + "([0-9]{2})" * 6)


def sequence_time(sequence: str | None) -> datetime | None:
    """
    The time in a change sequence; None where it has none.

    >>> print(sequence_time("2024020304050607" + "0" * 19), sequence_time("0" * 35))
    2024-02-03 04:05:06.070000+00:00 None
    """
    match = _SEQUENCE_TIME.match(sequence or "")
    try:
        return match and datetime.fromisoformat("{}-{}-{}T{}:{}:{}.{}Z".format(*match.groups()))
    except ValueError:
        return None


def with_record(
    records: pa.RecordBatch, columns: Mapping[str, pa.Array], keeps_bytes: pa.Array
) -> pa.RecordBatch:
    """The columns of records, their bytes only where they are kept, and those of rows behind them."""
    record = dict(zip(records.schema.names, records.columns, strict=True))
    record.pop(LOADED_AT, None)
    whole = {**keep_bytes(record, keeps_bytes), **columns}
    return pa.RecordBatch.from_arrays(list(whole.values()), list(whole))


class Masks(NamedTuple):
    """Masks of a table's columns, one row per message."""

    bits: Bools
    """Column i tells of the column with ordinal i + 1."""
    is_stray: Bools
    """Whether the mask marks an ordinal that the table does not have."""


def read_masks(masks: pa.Array, ordinals: Collection[int]) -> Masks:
    """
    The bits of binary *masks* over a table whose columns have *ordinals*.

    A mask is little-endian: bit 0 is the lowest bit of byte 0 and stands for ordinal 1.  A mask may
    be shorter than the table, and none marks nothing.

    Source:
        Replicate, changeMask and columnMask: bit `ordinal - 1`.

    >>> read_masks(pa.array([bytes.fromhex("0B")]), [1, 2, 3, 4]).bits.tolist()
    [[True, True, False, True]]
    """
    greatest, known_bits = max(ordinals), np.array(list(ordinals)) - 1
    width = -(-greatest // 8)
    # Masks repeat: a table has few sets of columns that change together.
    encoded = masks.dictionary_encode()
    distinct = [mask or b"" for mask in encoded.dictionary.to_pylist()] + [b""]
    packed = np.frombuffer(b"".join(mask[:width].ljust(width, b"\0") for mask in distinct), dtype=np.uint8)
    bits = np.unpackbits(packed.reshape(len(distinct), width), axis=1, bitorder="little").astype(bool)
    is_longer = np.array([any(mask[width:]) for mask in distinct])
    is_stray: Bools = np.delete(bits, known_bits, axis=1).any(axis=1) | is_longer
    which: npt.NDArray[Any] = encoded.indices.fill_null(len(distinct) - 1).to_numpy(zero_copy_only=False)
    return Masks(bits[which, :greatest], is_stray[which])
