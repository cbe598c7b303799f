"""Data messages: the rows of one table, typed, across the table's versions; and when they are true."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument
from cdckit.model.faults import Findings, error_columns, keep_bytes
from cdckit.model.records import (
    ERROR_CODE,
    ERROR_DESCRIPTION,
    ERROR_FIELDS,
    RECORD_COLUMNS,
    RECORD_SCHEMA,
    require_records,
)
from cdckit.parts import avro
from cdckit.parts.arguments import require_instant
from cdckit.parts.arrays import Bools
from cdckit.parts.arrow_types import arrow_schema, make_batch
from cdckit.parts.avro.schema import empty_bytes
from cdckit.parts.instants import parse_instants
from cdckit.parts.widening import to_common_type
from cdckit.parts.workers import WorkerPlan
from cdckit.replicate.envelope import DATA, ReplicateFault, open_envelopes
from cdckit.replicate.json_form import json_rows
from cdckit.replicate.schema_messages import HEADER_FIELDS, HEADER_TYPES, OPERATIONS, WORKER_HEADER_FIELDS
from cdckit.replicate.table_versions import Table, TableVersion, read_table, row_fields


class Masks(NamedTuple):
    """Masks of a table's columns, one row per message."""

    bits: Bools
    """Column i tells of the column with ordinal i + 1."""
    stray: Bools
    """Whether the mask marks an ordinal that the table does not have."""


def read_masks(masks: pa.Array, ordinals: Iterable[int]) -> Masks:
    """
    The bits of binary *masks* over a table whose columns have *ordinals*.

    A mask is little-endian: bit 0 is the lowest bit of byte 0 and stands for ordinal 1.  A mask may
    be shorter than the table, and none marks nothing.

    Source:
        Replicate, changeMask and columnMask: bit `ordinal - 1`.

    >>> read_masks(pa.array([bytes.fromhex("0B")]), [1, 2, 3, 4]).bits.tolist()
    [[True, True, False, True]]
    """
    known = sorted(ordinals)
    width = -(-known[-1] // 8)
    # Masks repeat: a table has few sets of columns that change together.
    encoded = masks.dictionary_encode()
    distinct = [mask or b"" for mask in encoded.dictionary.to_pylist()] + [b""]
    packed = np.frombuffer(b"".join(mask[:width].ljust(width, b"\0") for mask in distinct), dtype=np.uint8)
    bits = np.unpackbits(packed.reshape(len(distinct), width), axis=1, bitorder="little").astype(bool)
    unknown = np.setdiff1d(np.arange(8 * width), np.array(known) - 1)
    stray = bits[:, unknown].any(axis=1) | np.array([any(mask[width:]) for mask in distinct])
    which: npt.NDArray[Any] = encoded.indices.fill_null(len(distinct) - 1).to_numpy(zero_copy_only=False)
    return Masks(bits[which, : known[-1]], stray[which])


LOAD = "REFRESH"

CHANGE, SEQUENCE, RECORD, GIVEN = "change", "sequence", "record", "given"
"""What `time_taken_from` can say."""

# Year, month, day, hour, minute, second and hundredths of a second.
_SEQUENCE_TIME = "^(?!0000)" + "([0-9]{4})" + "([0-9]{2})" * 6 + ".*$"


def with_times(rows: DataFrame, loaded_at: datetime | Column | None) -> DataFrame:
    """
    Fill in `change_timestamp` where the message has none, and say in `time_taken_from` whence it is.

    A row of a full load is true from *loaded_at* on, or without it from its record's `timestamp`; any
    other change has the time in its change sequence, or that of its record.  Rows in error get none.

    Source:
        Qlik Replicate, data messages: `timestamp` and `changeSequence` are "applicable to CDC
        operations"; change sequence: YYYYMMDDHHmmSShh and 19 digits.  What stands in for a missing
        time is a decision of ours.
    """
    timestamp, good = F.col("change_timestamp"), F.col(ERROR_CODE).isNull()
    is_load = F.col("operation") == LOAD
    given = (
        require_instant(loaded_at, "loaded_at", function="data")
        if isinstance(loaded_at, datetime)
        else F.lit(loaded_at).cast("timestamp_ltz")
    )
    in_sequence = _time_of_sequence(F.col("change_sequence"))
    choice = (
        F.when(timestamp.isNotNull(), CHANGE)
        .when(is_load & given.isNotNull(), GIVEN)
        .when(~is_load & in_sequence.isNotNull(), SEQUENCE)
        .otherwise(RECORD)
    )
    taken = (
        F.when(timestamp.isNotNull(), timestamp)
        .when(is_load, F.coalesce(given, F.col("timestamp")))
        .otherwise(F.coalesce(in_sequence, F.col("timestamp")))
    )
    is_told = good | timestamp.isNotNull()
    return rows.withColumns(
        {"change_timestamp": F.when(is_told, taken), "time_taken_from": F.when(is_told, choice)}
    )


def is_load_without_time() -> Column:
    """Whether a row is of a full load and says no time: its change sequence, if any, means nothing then."""
    return (F.col("operation") == LOAD) & (F.col("time_taken_from") != CHANGE)


def require_load_time(loaded_at: object, *, function: str) -> None:
    """Raise unless *loaded_at* is an aware datetime, a column, or nothing."""
    is_instant = isinstance(loaded_at, datetime) and loaded_at.utcoffset() is not None
    if not (loaded_at is None or isinstance(loaded_at, Column) or is_instant):
        raise InvalidArgument(
            function, "loaded_at", "an aware datetime, or a column of the records", loaded_at
        )


def _time_of_sequence(sequence: Column) -> Column:
    text = F.regexp_replace(sequence, _SEQUENCE_TIME, "$1-$2-$3T$4:$5:$6.$7Z")
    return F.when(sequence.rlike(_SEQUENCE_TIME), text.try_cast("timestamp_ltz"))


def data(
    records: DataFrame,
    zone: DataFrame,
    *,
    json_topics: Collection[str] = (),
    topics: Collection[str] | None = None,
    loaded_at: datetime | Column | None = None,
    as_double: Collection[str] = (),
) -> DataFrame:
    """
    The data messages of one table, as typed rows.

    Args:
        records: One row per transported message (`cdckit.model.RECORD_SCHEMA`), of any topics.
        zone: The part of the schema zone that is about one table:
            `zone.where("server = 'ny1' and task = 'orders' and table = 'ITEMS'")`.
        json_topics:
            The topics whose messages in JSON form are of this table: unlike those in Avro form,
            they do not say so themselves.  Columns may go by the source's names or the data schema's, in
            letters of any case where that leaves one column; a message that names what no version of the
            table has is a reject.
        topics:
            The topics whose messages in Avro form are looked at; all without it.  Needed where a schema
            id of the table is that of another table too, such as the same table on another server.
        loaded_at:
            From when on the rows of a full load are true if their messages do not say so, as those of
            real producers do not: an instant, or for several loads a column made of the records'
            `topic`, `partition`, `offset` and `timestamp`.  Without it, their records' `timestamp`: then
            a copy of such a row that the broker took later says it again for that later time.  A change of
            the row that comes after it in the topic and happened earlier counts after it all the same.
        as_double:
            Columns that are to be doubles, which may cost digits, where two versions have numbers that
            no exact type holds (such as long and double).  They are text otherwise.

    Returns:
        One row per message of type DT that is of this table: in Avro form, by its schema id; in
        JSON form, by its topic.  Every other record has its row elsewhere (`decode`, `metadata`,
        `waiting`, another table).

        - the columns of the record; `key`, `value` and `headers` only where there is an error, or where
          a column of the version's key was not sent;
        - `schema_id`, `server`, `task`, `schema`, `table`, `table_version`;
        - `key_columns`: the key of that version; `absent_columns`: the columns of `data` that it does
          not have, which are null and not sent;
        - `operation` (INSERT, UPDATE, DELETE, REFRESH), `change_sequence`, `change_timestamp`,
          `time_taken_from` (where that time is from: `change`, the message itself; `sequence`, its
          change sequence; `record`; or `given`, *loaded_at*), `stream_position`, `transaction_id`,
          `transaction_event_counter`, `transaction_last_event`;
        - `data`: a struct of the columns of all versions, the newest version's first, under the names
          that the data schema has for them.  On a DELETE it is the deleted row, whichever of the two
          places it was sent in.  A key column that was renamed is there under both names;
        - `before`: the row as it was, null where it was not sent;
        - `sent`: a struct of booleans: whether the message held that column (from columnMask;
          without a mask, in Avro form every column of the message's version, in JSON form those that
          the object names).  `data` says nothing of the rest;
        - `changed`: likewise, whether the value changed (from changeMask; null without one);
        - `error_code`, `error_description`: null where all is well.

    Raises:
        MissingColumns, WrongColumnType: *records* are not records, or *zone* is not a zone.
        InvalidArgument: *zone* is empty or about several tables; or a schema id of the table is that of
            another one too and no *topics* are given; or an argument is not of its form.

    Cost: one pass through Python in Arrow batches, no shuffle; with *json_topics* a second pass over
    the records of those topics.  Collects *zone* when called: one that was neither saved nor cached
    is computed from its records each time, here and in `keys`.

    Source:
        Replicate, "Decoding a message by referenced schema ID".

    >>> rows = data(records, zone).orderBy("offset")
    >>> rows.select("offset", "operation", "data.*").show(truncate=False)
    +------+---------+-------+----------------------------+
    |offset|operation|carrier|name                        |
    +------+---------+-------+----------------------------+
    |3     |REFRESH  |MQ     |American Eagle Airlines Inc.|
    |4     |REFRESH  |AA     |American Airlines Inc.      |
    |17    |UPDATE   |MQ     |Envoy Air                   |
    +------+---------+-------+----------------------------+
    <BLANKLINE>
    """
    records = require_records(records, function="data")
    for name, given in (("json_topics", json_topics), ("topics", topics), ("as_double", as_double)):
        if isinstance(given, str):
            raise InvalidArgument("data", name, "a collection of names", given)
    require_load_time(loaded_at, function="data")
    table = read_table(zone, function="data", as_double=as_double)
    return rows_of_table(
        records, table, json_topics=json_topics, topics=topics, loaded_at=loaded_at, function="data"
    )


def rows_of_table(
    records: DataFrame,
    table: Table,
    *,
    json_topics: Collection[str] = (),
    topics: Collection[str] | None = None,
    loaded_at: datetime | Column | None = None,
    unreadable: bool = False,
    function: str,
) -> DataFrame:
    """
    What `data` returns, of a table whose zone has been read; *function* is who asks, for errors.

    With *unreadable* also the records that hold no envelope, so that nobody knows of which table they are.
    """
    if topics is None and table.shared:
        shared, others = next(iter(table.shared.items()))
        needed = f"those of {table.name}: its schema id {shared} is also that of {', '.join(others[:10])}"
        raise InvalidArgument(function, "topics", needed, topics)
    chosen = records if topics is None else records.where(F.col("topic").isin(list(topics)))
    mine = chosen.where(_may_be_of(table)).select(*RECORD_COLUMNS)
    read = partial(_rows_of_batches, table=table, unreadable=unreadable)
    plan = WorkerPlan(mine, read, _worker_schema(table))
    rows = with_table_columns(plan.rows(), table, loaded_at)
    if json_topics:
        in_json = json_rows(records, table, json_topics)
        rows = rows.unionByName(with_table_columns(in_json, table, loaded_at))
    return rows


def data_schema(table: Table) -> T.StructType:
    """The columns of `data` for *table*."""
    return T.StructType(
        [
            *RECORD_SCHEMA.fields,
            T.StructField("schema_id", T.StringType()),
            T.StructField("server", T.StringType()),
            T.StructField("task", T.StringType()),
            T.StructField("schema", T.StringType()),
            T.StructField("table", T.StringType()),
            T.StructField("table_version", T.IntegerType()),
            T.StructField("key_columns", T.ArrayType(T.StringType())),
            T.StructField("absent_columns", T.ArrayType(T.StringType())),
            *HEADER_FIELDS,
            *row_fields(table),
            *ERROR_FIELDS,
        ]
    )


def with_table_columns(rows: DataFrame, table: Table, loaded_at: datetime | Column | None) -> DataFrame:
    """Replace `version`, the place of a version in *table*, by what that version is called; fill in times."""

    def of_version(values: Iterable[Column]) -> Column:
        return F.element_at(F.array(*values), F.col("version") + 1)

    def texts(names: Iterable[str]) -> Column:
        return F.array(*map(F.lit, names)).cast("array<string>")

    named = with_times(rows, loaded_at).withColumns(
        {
            "schema_id": of_version(F.lit(version.schema_id) for version in table.versions),
            "table_version": of_version(F.lit(version.number) for version in table.versions),
            "key_columns": of_version(texts(version.keys) for version in table.versions),
            "absent_columns": of_version(texts(table.absent(version)) for version in table.versions),
            "server": F.lit(table.server),
            "task": F.lit(table.task),
            "schema": F.lit(table.schema),
            "table": F.lit(table.name),
        }
    )
    return named.select(*data_schema(table).fieldNames())


def _may_be_of(table: Table) -> Column:
    """
    False for the values that are surely of another table: it saves them the way through Python.

    A data message without application headers begins with the magic, its type, no headers, and a
    schema id of 32 bytes; what begins otherwise is left for the real reader to judge.
    """
    plain = F.substring("value", 1, 11) == F.lit(b"atMSG\x04DT\x00\x02\x40")
    other = ~F.substring("value", 12, 32).isin([version.schema_id.encode() for version in table.versions])
    return F.coalesce(~(plain & other), F.lit(True))


def _worker_schema(table: Table) -> T.StructType:
    version = T.StructField("version", T.IntegerType())
    return T.StructType(
        [*RECORD_SCHEMA.fields, version, *WORKER_HEADER_FIELDS, *row_fields(table), *ERROR_FIELDS]
    )


def _rows_of_batches(
    batches: Iterator[pa.RecordBatch], *, table: Table, unreadable: bool = False
) -> Iterator[pa.RecordBatch]:
    columns_read = arrow_schema(_worker_schema(table))
    names = columns_read.names
    for batch in batches:
        opened = open_envelopes(batch.column("value"))
        usable = np.ones(batch.num_rows, dtype=bool)
        usable[list(opened.findings)] = False
        is_data = _flags(pc.equal(opened.type, DATA)) & _flags(pc.equal(opened.form, "avro")) & usable
        for place, version in enumerate(table.versions):
            chosen = is_data & _flags(pc.equal(opened.schema_id, version.schema_id))
            chosen &= _find_in_time(batch.column("timestamp"), version)
            if chosen.any():
                which = pa.array(chosen)
                for columns in _rows_of_version(
                    table, place, batch.filter(which), opened.message.filter(which)
                ):
                    yield pa.RecordBatch.from_arrays(columns, names=names)
        if unreadable and opened.findings:
            yield _unreadable_rows(batch, opened.findings, columns_read)


def _unreadable_rows(batch: pa.RecordBatch, findings: Findings, schema: pa.Schema) -> pa.RecordBatch:
    """The records that hold no envelope, as rows of which nothing is known but what is wrong with them."""
    codes, descriptions = error_columns(findings, batch.num_rows)
    whole = {**dict(zip(batch.schema.names, batch.columns, strict=True)), ERROR_CODE: codes}
    whole[ERROR_DESCRIPTION] = descriptions
    nothing = {one.name: pa.nulls(batch.num_rows, one.type) for one in schema if one.name not in whole}
    return make_batch({**nothing, **whole}, schema).filter(codes.is_valid())


def _rows_of_version(
    table: Table, place: int, records: pa.RecordBatch, messages: pa.Array
) -> Iterator[list[pa.Array]]:
    """The columns of the rows of one table version, in parts that are bounded in bytes."""
    schema = avro.parse_schema(table.versions[place].data_schema)
    # A row has the columns of all versions: twice, and twice a flag for each.
    row_bytes = 2 * empty_bytes(table.fields) + 2 * len(table.fields)
    start = 0
    for decoded in avro.decode_parts(messages, schema, row_bytes=row_bytes):
        part = records.slice(start, len(decoded.errors))
        yield from _columns(table, place, decoded, part)
        start += len(decoded.errors)


def _columns(
    table: Table, place: int, decoded: avro.DecodedDatums, records: pa.RecordBatch
) -> Iterator[list[pa.Array]]:
    """
    The columns of some rows, where possible at once.

    That Arrow refuses what was decoded is not known to happen; if it does, it costs that row alone.
    """
    try:
        yield _Rows(table, place, decoded).columns(records)
        return
    except pa.ArrowException as refusal:
        if records.num_rows == 1:
            nothing = pa.nulls(1, decoded.values.type)
            why = pa.array([f"Arrow cannot hold it: {str(refusal)[:200]}."])
            yield _Rows(table, place, avro.DecodedDatums(nothing, why)).columns(records)
            return
    half = records.num_rows // 2
    for part in (slice(0, half), slice(half, records.num_rows)):
        values, errors = decoded.values[part], decoded.errors[part]
        yield from _columns(table, place, avro.DecodedDatums(values, errors), records[part])


def _find_in_time(timestamps: pa.Array, version: TableVersion) -> Bools:
    """Which records came while the schema id meant this *version*; one without a time is of the last."""
    micros = pc.fill_null(timestamps.cast(pa.int64()), np.iinfo(np.int64).max).to_numpy(zero_copy_only=False)
    begun: Bools = np.ones(len(micros), dtype=bool) if version.since is None else micros >= version.since
    return begun if version.until is None else begun & (micros < version.until)


class _Rows:
    """Decoded messages of one table version."""

    def __init__(self, table: Table, place: int, decoded: avro.DecodedDatums) -> None:
        self.table, self.place, self.version = table, place, table.versions[place]
        self.decoded = decoded
        self.count = len(decoded.errors)
        self.headers = {name: self._header(name, kind) for name, kind in HEADER_TYPES.items()}
        self.findings: Findings = {}

    def columns(self, batch: pa.RecordBatch) -> list[pa.Array]:
        says_no_time = self._says_no_time()
        # An empty text among them would make each of the others be looked at by itself.
        time_texts = pc.if_else(
            pa.array(says_no_time), pa.scalar(None, pa.string()), self.headers["timestamp"]
        )
        instants, bad_instants = parse_instants(time_texts)
        row, before, no_row = self._images()
        sent = read_masks(self.headers["columnMask"], self.version.ordinals.values())
        changed = read_masks(self.headers["changeMask"], self.version.ordinals.values())
        is_sent = self._sent_flags(sent.bits)
        self._find(
            _flags(self.decoded.errors.is_valid()), ReplicateFault.MESSAGE_UNREADABLE, self.decoded.errors
        )
        known = pc.is_in(self.headers["operation"], pa.array(OPERATIONS))
        self._find(~_flags(known), ReplicateFault.UNKNOWN_OPERATION, self.headers["operation"])
        timeless = says_no_time & _flags(batch.column("timestamp").is_null())
        bad_instants = bad_instants & ~says_no_time | timeless
        self._find(bad_instants, ReplicateFault.TIMESTAMP_INVALID, self.headers["timestamp"])
        self._find(no_row, ReplicateFault.NO_ROW)
        self._find(sent.stray | changed.stray, ReplicateFault.MASK_INVALID)
        codes, descriptions = error_columns(self.findings, self.count)
        record = {name: batch.column(name) for name in RECORD_COLUMNS}
        return [
            *keep_bytes(record, pc.or_(codes.is_valid(), self._lacks_key(is_sent))).values(),
            pa.array(np.full(self.count, self.place, dtype=np.int32)),
            self.headers["operation"],
            self.headers["changeSequence"],
            instants,
            self.headers["streamPosition"],
            self.headers["transactionId"],
            self.headers["transactionEventCounter"],
            self.headers["transactionLastEvent"],
            row,
            before,
            self._flag_struct(is_sent),
            self._changed_flags(changed.bits),
            codes,
            descriptions,
        ]

    def _says_no_time(self) -> Bools:
        """Full loads, and some other messages, have no time of their own: see `with_times`."""
        return _flags(pc.equal(pc.fill_null(self.headers["timestamp"], ""), ""))

    def _header(self, name: str, kind: pa.DataType) -> pa.Array:
        headers = self.decoded.values.type.field("headers").type
        if headers.get_field_index(name) < 0:
            return pa.nulls(self.count, kind)
        return pc.struct_field(self.decoded.values, ["headers", name]).cast(kind)

    def _images(self) -> tuple[pa.Array, pa.Array, Bools]:
        """The row, the row as it was, and whether there is neither."""
        values = self.decoded.values
        row = pc.struct_field(values, "data")
        before = pa.nulls(self.count, row.type)
        if values.type.get_field_index("beforeData") >= 0:
            before = pc.struct_field(values, "beforeData")
        if row.null_count and before.null_count < self.count:
            is_delete = pc.equal(self.headers["operation"], "DELETE")
            only_before = pc.fill_null(pc.and_(is_delete, row.is_null()), False)
            row = pc.if_else(only_before, before, row)
        return self._widen_row(row), self._widen_row(before), _flags(row.is_null())

    def _widen_row(self, row: pa.Array) -> pa.Array:
        """A row of this version in the columns of all versions."""
        if row.null_count == len(row):
            return pa.nulls(len(row), self.table.fields)
        columns, sent = [], row.flatten()
        for field in self.table.fields:
            if field.name in self.version.places:
                values = sent[self.version.places[field.name]]
                columns.append(to_common_type(values, field.type))
            else:
                columns.append(pa.nulls(len(row), field.type))
        mask = row.is_null() if row.null_count else None
        return pa.StructArray.from_arrays(columns, fields=list(self.table.fields), mask=mask)

    def _sent_flags(self, bits: Bools) -> dict[str, Bools]:
        masked = _flags(self.headers["columnMask"].is_valid())
        sent = {}
        for field in self.table.fields:
            if field.name not in self.version.places:
                sent[field.name] = np.zeros(self.count, dtype=bool)
            elif field.name in self.version.ordinals:
                sent[field.name] = ~masked | bits[:, self.version.ordinals[field.name] - 1]
            else:
                # Not a column of the source, so no mask speaks of it: the task's own addition.
                sent[field.name] = np.ones(self.count, dtype=bool)
        return sent

    def _changed_flags(self, bits: Bools) -> pa.Array:
        masked = self.headers["changeMask"].is_valid()
        if not pc.any(masked).as_py():
            return pa.nulls(self.count, pa.struct([(field.name, pa.bool_()) for field in self.table.fields]))
        none = np.zeros(self.count, dtype=bool)
        ordinals = self.version.ordinals
        changed = {
            field.name: bits[:, ordinals[field.name] - 1] if field.name in ordinals else none
            for field in self.table.fields
        }
        return self._flag_struct(changed, mask=pc.invert(masked))

    def _lacks_key(self, is_sent: dict[str, Bools]) -> pa.Array:
        keys = [is_sent[key] for key in self.version.keys if key in is_sent]
        return pa.array(~np.all(keys, axis=0) if keys else np.zeros(self.count, dtype=bool))

    def _flag_struct(self, flags: dict[str, Bools], mask: pa.Array | None = None) -> pa.Array:
        return pa.StructArray.from_arrays(
            [pa.array(flag) for flag in flags.values()], names=list(flags), mask=mask
        )

    def _find(self, found: Bools, fault: ReplicateFault, shown: pa.Array | str = "") -> None:
        for row in np.flatnonzero(found).tolist():
            finding = shown if isinstance(shown, str) else f"It says: {shown[row].as_py()!s:.200}"
            self.findings.setdefault(row, (fault, finding))


def _flags(array: pa.Array) -> Bools:
    flags: Bools = pc.fill_null(array, False).to_numpy(zero_copy_only=False)
    return flags
