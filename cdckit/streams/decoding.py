"""Records of the streams: one row for each, with the fields of its message in columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from cdckit.parts.arrow_types import arrow_schema
from cdckit.parts.workers import Made
from cdckit.records import RECORD_SCHEMA, WORKER_FIELDS, for_workers, headers_from_workers, require_records
from cdckit.rejected import ERROR_FIELDS
from cdckit.streams.catalogue import Stream, column_of, kind_of, require_stream
from cdckit.streams.codes import StreamFault
from cdckit.streams.json_values import NoSuchText, column_text, read_all, written, written_all
from cdckit.streams.paths import shown

# A message may have a megabyte, and a column of texts two gigabytes.
_ROWS_AT_ONCE = 1000
_LONGS, _INTS = range(-(2**63), 2**63), range(-(2**31), 2**31)
# Beyond them neither Python nor, further out, Spark has a timestamp: one such message would end a job.
_INSTANTS = range(-62_135_596_800_000, 253_402_300_800_000)


def decode(records: DataFrame, stream: Stream) -> DataFrame:
    """
    Read the messages of one stream.

    Args:
        records: One row per transported message (`cdckit.records.RECORD_SCHEMA`), a batch or a stream.
        stream: Which one it is: `ENTITY_BATCHES`, `ENTITY_PATCHES` and so on.

    Returns:
        One row per record, in no order: the record's columns; those of the stream's fields
        (`stream.columns()`): `clientid` is `client_id`, `error` is `errors`, an array, and what holds
        documents is JSON text with every digit; `error_code` and `error_description`, null where all is
        well.  It never fails on data: of a record in error the fields that could be read are there.
        Where `before` or `after` is null and not left out, `include_before` or `include_after` is true.
        A number beyond what decimals hold, or of more than 4,300 digits, may stand in `ops`, `patches` and
        `responses`: that patch gets status 3 then.
        The database is read from `db` or `dbid`: the page's tables say the one, its samples the other.

    Raises:
        InvalidArgument: *stream* is no `Stream`.
        MissingColumns, WrongColumnType: *records* are not records.

    Cost: one pass through Python in Arrow batches, no shuffle.

    >>> from cdckit import streams
    >>> said = b'{"db": "shop", "clientid": "c", "user": "ann", "device": "d", "appVersion": "1", "begun": 7}'
    >>> decoded = streams.decode(records_of(said, b"{}", b"?"), streams.CONNECTIONS)
    >>> decoded.select("offset", "user", "device", "begun", "error_code").orderBy("offset").show()
    +------+----+------+-----+-------------+
    |offset|user|device|begun|   error_code|
    +------+----+------+-----+-------------+
    |     0| ann|     d|    7|         NULL|
    |     1|NULL|  NULL| NULL|MISSING_FIELD|
    |     2|NULL|  NULL| NULL|     NOT_JSON|
    +------+----+------+-----+-------------+
    <BLANKLINE>
    """
    require_stream(stream, function="decode")
    require_records(records, function="decode")
    columns = T.StructType([*WORKER_FIELDS, *stream.columns().fields, *ERROR_FIELDS])
    made = Made(for_workers(records), partial(_decoded, stream=stream), columns)
    return made.rows().withColumn("headers", headers_from_workers())


def decoded_schema(stream: Stream) -> T.StructType:
    """The columns that `decode` returns for a stream."""
    return T.StructType([*RECORD_SCHEMA.fields, *stream.columns().fields, *ERROR_FIELDS])


def _decoded(batches: Iterable[pa.RecordBatch], *, stream: Stream) -> Iterator[pa.RecordBatch]:
    made = T.StructType([*stream.columns().fields, *ERROR_FIELDS])
    types = arrow_schema(made)
    names = [*(field.name for field in WORKER_FIELDS), *made.fieldNames()]
    for whole in batches:
        for start in range(0, whole.num_rows, _ROWS_AT_ONCE):
            batch = whole.slice(start, _ROWS_AT_ONCE)
            rows = [message(value, stream) for value in batch.column("value").to_pylist()]
            columns = [pa.array([row.get(each.name) for row in rows], each.type) for each in types]
            yield pa.RecordBatch.from_arrays([*batch.columns, *columns], names=names)


def message(value: bytes | None, stream: Stream) -> dict[str, Any]:
    """The columns of one message, those of an error among them; what is not there is left out."""
    found: dict[str, Any] = {}
    if value is None:
        return _with_fault(found, StreamFault.NO_VALUE)
    try:
        said = read_all(value.decode())
    except ValueError as error:
        return _with_fault(found, StreamFault.NOT_JSON, f"{str(error)[:1].upper()}{str(error)[1:]}.")
    if not isinstance(said, dict):
        return _with_fault(found, StreamFault.NOT_JSON, f"It is {shown(said)}.")
    if said.get("db") is None and "dbid" in said:
        said["db"] = said["dbid"]
    for field in stream.fields:
        given = said.get(field)
        try:
            found[column_of(field)] = _READ[kind_of(field)](given)
        except (TypeError, NoSuchText) as error:
            _with_fault(found, StreamFault.WRONG_TYPE, f"{field} is {shown(given)}, not {error}.")
    for field, asked in (("before", "include_before"), ("after", "include_after")):
        # That null is said means that there was nothing, as only what was asked for is said.
        if asked in found and field in stream.fields and said.get(field, "") is None:
            found[asked] = True
    missing = [field for field in stream.fields if field in stream.required and said.get(field) is None]
    if missing:
        _with_fault(found, StreamFault.MISSING_FIELD, f"Missing: {', '.join(missing)}.")
    part, parts = found.get("part"), found.get("parts")
    if (part is not None and parts is not None and not 1 <= part <= parts) or (parts or 1) < 1:
        _with_fault(found, StreamFault.WRONG_PART, f"It is part {part} of {parts}.")
    return found


def _with_fault(found: dict[str, Any], fault: StreamFault, finding: str = "") -> dict[str, Any]:
    """The first fault counts."""
    if "error_code" not in found:
        found.update(error_code=fault.value, error_description=column_text(fault.describe(finding)))
    return found


def _text(value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise TypeError("a text")
    return column_text(value)


def _number(value: Any, *, within: range, called: str = "a whole number in range") -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value not in within):
        raise TypeError(called)
    return value


def _flag(value: Any) -> bool:
    if value is not None and not isinstance(value, bool):
        raise TypeError("true or false")
    return bool(value)


def _json(value: Any) -> str | None:
    try:
        return None if value is None else column_text(written(value))
    except NoSuchText:
        raise TypeError("a value whose numbers are in range") from None


def _ops(value: Any) -> str | None:
    # A number that nothing can be done with is a failure of its patch, not of the message.
    return None if value is None else column_text(written_all(value))


def _list(value: Any) -> list[str | None] | None:
    if value is not None and not isinstance(value, list):
        raise TypeError("an array")
    return None if value is None else [column_text(written_all(each)) for each in value]


def _reasons(value: Any) -> list[str | None] | None:
    listed = [value] if isinstance(value, str) else value
    if listed is not None and not (
        isinstance(listed, list) and all(isinstance(each, str) for each in listed)
    ):
        raise TypeError("a text or an array of texts")
    return None if listed is None else [column_text(each) for each in listed]


_READ: Mapping[str, Callable[[Any], Any]] = {
    "text": _text,
    "long": partial(_number, within=_LONGS),
    "instant": partial(_number, within=_INSTANTS, called="milliseconds within the years 1 to 9999"),
    "int": partial(_number, within=_INTS),
    "flag": _flag,
    "json": _json,
    "ops": _ops,
    "list": _list,
    "reasons": _reasons,
}
