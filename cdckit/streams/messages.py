"""One message read: its fields by columns, or what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from cdckit.model.faults import ERROR_CODE, ERROR_DESCRIPTION, FoundFault
from cdckit.parts.fold import Result
from cdckit.streams.catalogue import (
    CREATED,
    DELETED,
    SCHEMA_LEARNING,
    UPDATED,
    Status,
    Stream,
    StreamFault,
    field_column,
    field_kind,
)
from cdckit.streams.json_values import column_text, read_strictly, to_text
from cdckit.streams.patches import show_value

Columns = dict[str, Any]

_LONGS, _INTS = range(-(2**63), 2**63), range(-(2**31), 2**31)
# Beyond them neither Python nor, further out, Spark has a timestamp: one such message would end a job.
_INSTANTS = range(-62_135_596_800_000, 253_402_300_800_000)


def message_row(value: bytes | None, key: bytes | None, *, stream: Stream) -> Result:
    """The columns of a message (`stream.columns()`), and those of an error."""
    columns = message(value, stream, key)
    return tuple(columns.get(name) for name in (*stream.columns().names, ERROR_CODE, ERROR_DESCRIPTION))


def message(value: bytes | None, stream: Stream, key: bytes | None = None) -> Columns:
    """
    The columns of one message, those of an error among them; what is not there is left out.

    Of several faults the first counts.  *key* is that of its record: in changes-by-device it alone says the
    device.
    """
    columns: Columns = {}
    try:
        document = _read_object(value)
        faults = [*_read_fields(document, key, stream, columns), *_find_faults(document, stream, columns)]
    except FoundFault as found:
        faults = [found]
    if faults:
        description = faults[0].fault.describe(faults[0].finding)
        columns |= {ERROR_CODE: faults[0].fault.value, ERROR_DESCRIPTION: column_text(description)}
    return columns


def _read_object(value: bytes | None) -> dict[str, Any]:
    """The members of a message; raises `FoundFault` where it is no JSON object."""
    if value is None:
        raise FoundFault(StreamFault.NO_VALUE)
    try:
        document = read_strictly(value.decode())
    except ValueError as error:
        raise FoundFault(StreamFault.NOT_JSON, f"{str(error)[:1].upper()}{str(error)[1:]}.") from None
    if not isinstance(document, dict):
        raise FoundFault(StreamFault.NOT_JSON, f"It is {show_value(document)}.")
    if document.get("db") is None and "dbid" in document:
        document["db"] = document["dbid"]
    return document


def _read_fields(
    document: dict[str, Any], key: bytes | None, stream: Stream, columns: Columns
) -> Iterator[FoundFault]:
    """Fill the columns that can be read; what is wrong with the others."""
    for field in stream.fields:
        content = document.get(field)
        try:
            columns[field_column(field)] = _READ[field_kind(field)](content)
        except TypeError as error:
            yield FoundFault(StreamFault.WRONG_TYPE, f"{field} is {show_value(content)}, not {error}.")
    for field, request_flag in (("before", "include_before"), ("after", "include_after")):
        # That null is said means that there was nothing, as only what was asked for is said.
        if request_flag in columns and field in stream.fields and document.get(field, "") is None:
            columns[request_flag] = True
    for column in stream.key_alone:
        try:
            columns[column] = None if key is None else column_text(key.decode())
        except UnicodeDecodeError:
            yield FoundFault(StreamFault.WRONG_TYPE, f"{column}, the key of the record, is no UTF-8.")


def _find_faults(document: dict[str, Any], stream: Stream, columns: Columns) -> Iterator[FoundFault]:
    """What a message lacks, and whether its part is one of its parts."""
    missing = [field for field in stream.fields if field in stream.required and document.get(field) is None]
    missing += [f"{column}, the key of the record" for column in stream.key_alone if not columns.get(column)]
    if missing:
        yield FoundFault(StreamFault.MISSING_FIELD, f"Missing: {', '.join(missing)}.")
    part, parts = columns.get("part"), columns.get("parts")
    # Of a schema that has lost its last entity type, schema-learning says that it has none.
    fewest = 0 if stream.name == SCHEMA_LEARNING.name else 1
    if part is None and parts is not None and parts < fewest:
        yield FoundFault(StreamFault.WRONG_PART, f"It is of {parts} parts.")
    if part is not None and (part < 1 or (parts is not None and part > parts)):
        yield FoundFault(
            StreamFault.WRONG_PART, f"It is part {part}{'' if parts is None else f' of {parts}'}."
        )


def _text(value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise TypeError("a text")
    return column_text(value)


def _number(value: Any, *, within: range, called: str = "a whole number in range") -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value not in within):
        raise TypeError(called)
    return value


def _action(value: Any) -> str | None:
    if value not in (None, CREATED, UPDATED, DELETED):
        raise TypeError(f"{CREATED}, {UPDATED} or {DELETED}")
    return _text(value)


def _flag(value: Any) -> bool:
    if value is not None and not isinstance(value, bool):
        raise TypeError("true or false")
    return bool(value)


def _json(value: Any) -> str | None:
    return None if value is None else column_text(to_text(value))


def _list(value: Any) -> list[str | None] | None:
    if value is not None and not isinstance(value, list):
        raise TypeError("an array")
    return None if value is None else [column_text(to_text(element)) for element in value]


def _reasons(value: Any) -> list[str | None] | None:
    listed = [value] if isinstance(value, str) else value
    if listed is not None and not (
        isinstance(listed, list) and all(isinstance(reason, str) for reason in listed)
    ):
        raise TypeError("a text or an array of texts")
    return None if listed is None else [column_text(text) for text in listed]


_READ: Mapping[str, Callable[[Any], Any]] = {
    "text": _text,
    "long": partial(_number, within=_LONGS),
    "instant": partial(_number, within=_INSTANTS, called="milliseconds within the years 1 to 9999"),
    "int": partial(_number, within=_INTS),
    "status": partial(_number, within=range(min(Status), max(Status) + 1), called="1, 2 or 3"),
    "action": _action,
    "flag": _flag,
    "json": _json,
    "list": _list,
    "reasons": _reasons,
}


def message_text(columns: Mapping[str, Any], stream: Stream) -> str:
    """
    The JSON text of a message of which these columns are known.

    A field is written where it has a value; a flag where it is true; several reasons as one text; `before`
    and `after` also where they are null, if the message asked for them: null means that there was, or is,
    nothing.  Of a patch that could not be applied they are left out.

    >>> from cdckit.streams import DEVICE_NOTIFICATIONS
    >>> message_text({"db": "shop", "device": "d", "count": 2, "begun": 7, "ended": 9}, DEVICE_NOTIFICATIONS)
    '{"db":"shop","device":"d","count":2,"begun":7,"ended":9}'
    """
    members = ((field, _value_text(field, columns, field in stream.required)) for field in stream.fields)
    return "{" + ",".join(f'"{field}":{text}' for field, text in members if text is not None) + "}"


def _value_text(field: str, columns: Mapping[str, Any], is_required: bool) -> str | None:
    value, kind = columns.get(field_column(field)), field_kind(field)
    if kind == "flag":
        return "true" if value else None
    if value is None:
        is_asked = field in ("before", "after") and columns.get(f"include_{field}")
        # The entity of a failed patch may well be there: its answer does not have it.
        return "null" if is_asked and columns.get("status") != Status.NOT_APPLIED else None
    if kind == "json":
        return str(value)
    if kind == "list":
        # Workers are given an empty list for null.
        return f"[{','.join(value)}]" if value or is_required else None
    if kind == "reasons":
        return to_text("; ".join(value)) if value else None
    return to_text(value)
