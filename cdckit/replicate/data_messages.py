"""
The data messages of one table among records: which they are, and how they are read, in parts of bounded size.

A data message is decoded with the schema that its id stood for when it came (Replicate, "Decoding a message
by referenced schema ID").
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdckit.model.faults import Findings, error_columns
from cdckit.parts import avro
from cdckit.parts.arrays import NEVER, Bools, Ints, bools
from cdckit.parts.arrow_widening import to_common_type
from cdckit.parts.avro.schema import empty_bytes
from cdckit.replicate.envelopes import DATA, Envelopes, ReplicateFault, open_envelopes
from cdckit.replicate.json_messages import read_json
from cdckit.replicate.message_rules import Messages, make_rows, note, row_types, with_record
from cdckit.replicate.metadata_messages import HEADER_TYPES
from cdckit.replicate.table_versions import Table, TableVersion


@dataclass(frozen=True)
class Reading:
    """
    How the data messages of a table are read.

    Args:
        table: The table.
        json_topics: The topics whose messages in JSON form are of it.
        topics: The topics whose messages in Avro form may be of it; all for None.
        unreadable: Whether records that hold no envelope are among the rows, as rejects.
        keys: The key columns by which its changes are made, where these are not the metadata's.
    """

    table: Table
    json_topics: Collection[str] = ()
    topics: Collection[str] | None = None
    unreadable: bool = False
    keys: Collection[str] = ()


def read_messages(batches: Iterable[pa.RecordBatch], reading: Reading) -> Iterator[pa.RecordBatch]:
    """The rows of a table among records: their columns, with the bytes of rejects, and `row_types`."""
    table = reading.table
    for records in batches:
        opened = open_envelopes(records.column("value"))
        is_sound = np.ones(records.num_rows, dtype=bool)
        is_sound[list(opened.findings)] = False
        is_data = is_sound & bools(pc.equal(opened.type, DATA))
        in_json = is_data & bools(pc.equal(opened.form, "json")) & _is_in(records, reading.json_topics)
        in_avro = is_data & bools(pc.equal(opened.form, "avro")) & _is_in(records, reading.topics)
        instants = pc.fill_null(records.column("timestamp").cast(pa.int64()), NEVER)
        instants = instants.to_numpy(zero_copy_only=False)
        for index, version in enumerate(table.versions):
            is_of_id = in_avro & bools(pc.equal(opened.schema_id, version.schema_id))
            chosen = pa.array(is_of_id & _is_in_time(instants, version))
            if chosen.true_count:
                yield from _avro_rows(opened.message.filter(chosen), records.filter(chosen), reading, index)
        newest = _newest_versions(instants, table)
        for index in np.unique(newest[in_json]).tolist():
            chosen = pa.array(in_json & (newest == index))
            messages = read_json(opened.message.filter(chosen), table, index)
            yield make_rows(messages, records.filter(chosen), table, index, reading.keys)
        if reading.unreadable and opened.findings:
            yield _unreadable_rows(records, opened, table)


def _is_in(records: pa.RecordBatch, topics: Collection[str] | None) -> Bools:
    if topics is None:
        return np.ones(records.num_rows, dtype=bool)
    return bools(pc.is_in(records.column("topic"), pa.array(list(topics), pa.string())))


def _is_in_time(instants: Ints, version: TableVersion) -> Bools:
    """Find the records that came while the schema id meant this *version*; without a time, of the last."""
    begun: Bools = np.ones(len(instants), dtype=bool) if version.since is None else instants >= version.since
    return begun if version.until is None else begun & (instants < version.until)


def _newest_versions(instants: Ints, table: Table) -> Ints:
    """
    Find the version that was the table's newest when each record came; the first for what came before it.

    A message in JSON form names no version: it is read by what was said last of its table, as one in Avro
    form is by what was said last of its id.
    """
    begins, indexes = (np.array(column, np.int64) for column in zip(*table.newest_since, strict=True))
    newest: Ints = indexes[np.maximum(np.searchsorted(begins, instants, side="right") - 1, 0)]
    return newest


def _unreadable_rows(records: pa.RecordBatch, opened: Envelopes, table: Table) -> pa.RecordBatch:
    """The records that hold no envelope, as rows of which nothing is known but what is wrong with them."""
    codes, descriptions = error_columns(opened.findings, records.num_rows)
    nothing = {name: pa.nulls(records.num_rows, kind) for name, kind in row_types(table).items()}
    columns = {**nothing, "error_code": codes, "error_description": descriptions}
    return with_record(records, columns, codes.is_valid()).filter(codes.is_valid())


# Avro form ------------------------------------------------------------------------------------------------


def _avro_rows(
    contents: pa.Array, records: pa.RecordBatch, reading: Reading, index: int
) -> Iterator[pa.RecordBatch]:
    """The rows of messages of one table version, in parts that are bounded in bytes."""
    table = reading.table
    schema = avro.parse_schema(table.versions[index].data_schema)
    # A row has the columns of all versions: twice, and twice a flag for each.
    row_bytes = 2 * empty_bytes(table.fields) + 2 * len(table.fields)
    start = 0
    for decoded in avro.decode_parts(contents, schema, row_bytes=row_bytes):
        part = records.slice(start, len(decoded.errors))
        yield from _decoded_rows(decoded, part, reading, index)
        start += len(decoded.errors)


def _decoded_rows(
    decoded: avro.DecodedDatums, records: pa.RecordBatch, reading: Reading, index: int
) -> Iterator[pa.RecordBatch]:
    """
    The rows of what was decoded, where possible at once.

    That Arrow refuses what was decoded is not known to happen; if it does, it costs that row alone.
    """
    table, keys = reading.table, reading.keys
    try:
        yield make_rows(avro_messages(decoded, table, index), records, table, index, keys)
        return
    except pa.ArrowException as refusal:
        if records.num_rows == 1:
            nothing = pa.nulls(1, decoded.values.type)
            why = avro.DecodedDatums(nothing, pa.array([f"Arrow cannot hold it: {str(refusal)[:200]}."]))
            yield make_rows(avro_messages(why, table, index), records, table, index, keys)
            return
    half = records.num_rows // 2
    for part in (slice(0, half), slice(half, records.num_rows)):
        values, errors = decoded.values[part], decoded.errors[part]
        yield from _decoded_rows(avro.DecodedDatums(values, errors), records[part], reading, index)


def avro_messages(decoded: avro.DecodedDatums, table: Table, index: int) -> Messages:
    """Read what messages of one table version say that were decoded."""
    values, count, version = decoded.values, len(decoded.errors), table.versions[index]
    data = pc.struct_field(values, "data")
    has_before = values.type.get_field_index("beforeData") >= 0
    before = pc.struct_field(values, "beforeData") if has_before else pa.nulls(count, data.type)
    findings: Findings = {}
    for row in pc.indices_nonzero(decoded.errors.is_valid()).to_pylist():
        note(
            findings, row, ReplicateFault.MESSAGE_UNREADABLE, f"It says: {decoded.errors[row].as_py()!s:.200}"
        )
    always, never = np.ones(count, dtype=bool), np.zeros(count, dtype=bool)
    return Messages(
        {name: _header(values, name, kind) for name, kind in HEADER_TYPES.items()},
        widen_row(data, table, version),
        widen_row(before, table, version),
        {field.name: always if field.name in version.positions else never for field in table.fields},
        [None] * count,
        findings,
    )


def _header(values: pa.Array, name: str, kind: pa.DataType) -> pa.Array:
    if values.type.field("headers").type.get_field_index(name) < 0:
        return pa.nulls(len(values), kind)
    return pc.struct_field(values, ["headers", name]).cast(kind)


def widen_row(row: pa.Array, table: Table, version: TableVersion) -> pa.StructArray:
    """A row of one version in the columns of all versions."""
    if row.null_count == len(row):
        return pa.nulls(len(row), table.fields)
    values = row.flatten()
    columns = [
        to_common_type(values[version.positions[field.name]], field.type)
        if field.name in version.positions
        else pa.nulls(len(row), field.type)
        for field in table.fields
    ]
    mask = row.is_null() if row.null_count else None
    return pa.StructArray.from_arrays(columns, fields=list(table.fields), mask=mask)
