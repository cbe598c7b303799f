"""
What the parts of data messages mean, in Avro and in JSON form: rows, which columns were sent, and when.

`Messages` has the parts; `make_rows` has the rules, and finds what is wrong with a message.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdckit.model.faults import Findings, error_columns, keep_bytes
from cdckit.parts.arrays import Bools, bools
from cdckit.parts.instants import INSTANT, parse_instants
from cdckit.replicate.column_masks import read_masks
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
    sent = _sent_flags(messages, version, column_mask.bits)
    findings = _find_faults(messages, data, times, column_mask.is_stray | change_mask.is_stray)
    codes, descriptions = error_columns(findings, count)
    # What is in error has no other time than its own.
    has_time = pc.or_(codes.is_null(), pc.fill_null(pc.equal(times.taken_from, CHANGE), False))
    lacks_key = np.zeros(count, dtype=bool)
    has_old_key = bools(messages.before.is_valid()) | ~bools(pc.equal(headers["operation"], UPDATE))
    for key in (*version.keys, *keys):
        if key in version.positions:
            lacks_key |= ~sent[key]
        if key in version.ordinals:
            lacks_key |= change_mask.bits[:, version.ordinals[key] - 1] & ~has_old_key
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
        "before": messages.before,
        "sent": _flag_struct(sent),
        "changed": _changed_flags(table, version, change_mask.bits, headers["changeMask"].is_valid()),
        "error_code": codes,
        "error_description": descriptions,
    }
    return with_record(records, columns, keeps_bytes=pa.array(bools(codes.is_valid()) | lacks_key))


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


def _changed_flags(table: Table, version: TableVersion, bits: Bools, is_masked: pa.Array) -> pa.Array:
    if not is_masked.true_count:
        return pa.nulls(len(is_masked), row_types(table)["changed"])
    none = np.zeros(len(is_masked), dtype=bool)
    ordinals = version.ordinals
    changed = {
        field.name: bits[:, ordinals[field.name] - 1] if field.name in ordinals else none
        for field in table.fields
    }
    return _flag_struct(changed, mask=pc.invert(is_masked))


def _flag_struct(flags: Mapping[str, Bools], mask: pa.Array | None = None) -> pa.Array:
    columns = [pa.array(flag) for flag in flags.values()]
    return pa.StructArray.from_arrays(columns, names=list(flags), mask=mask)


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
