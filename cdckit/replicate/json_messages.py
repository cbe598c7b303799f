"""
Data messages in JSON form: texts under the names of columns, read as the types of the table's columns.

JSON can hold any name, so a column may go by the source's name for it or by the data schema's, in letters of
any case where that leaves one column: `id` for `ID`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from cdckit.model.faults import Findings
from cdckit.parts.json_objects import STRICT_JSON, json_text
from cdckit.parts.text_values import Unreadable, boolean, exact_decimal, floating, whole
from cdckit.replicate.envelopes import ReplicateFault, json_letters
from cdckit.replicate.message_rules import Messages, note
from cdckit.replicate.metadata_messages import HEADER_TYPES
from cdckit.replicate.table_versions import Table, TableVersion

Note = Callable[[ReplicateFault, str], None]
"""Takes a fault of the message that is read, and what was found there."""


def read_json(contents: pa.Array, table: Table, index: int) -> Messages:
    """Read what data messages of a table say whose *contents* are JSON objects, by its version *index*."""
    reader = _Reader(table, table.versions[index])
    findings: Findings = {}
    headers, rows, befores = [], [], []
    for row_number, content in enumerate(contents.to_pylist()):
        message, note_fault = STRICT_JSON.decode(content.decode()), partial(note, findings, row_number)
        headers.append(_headers(message.get("headers"), note_fault))
        rows.append(reader.row(message.get("data"), note_fault))
        befores.append(reader.row(message.get("beforeData"), note_fault))
    named = [before if row is None else row for row, before in zip(rows, befores, strict=True)]
    return Messages(
        {
            name: pa.array([header.get(name) for header in headers], kind)
            for name, kind in HEADER_TYPES.items()
        },
        pa.array(rows, table.fields),
        pa.array(befores, table.fields),
        {field.name: np.array([field.name in (row or ()) for row in named], bool) for field in table.fields},
        [before or () for before in befores],
        findings,
    )


def _headers(headers: Any, note_fault: Note) -> dict[str, Any]:
    """The headers that are read, typed; what is not of its type is left out."""
    if not isinstance(headers, dict):
        note_fault(ReplicateFault.MESSAGE_UNREADABLE, "The message has no headers.")
        return {}
    values = {}
    for name, kind in HEADER_TYPES.items():
        text = None if headers.get(name) is None else json_letters(headers[name])
        try:
            values[name] = None if text is None else _HEADER_READERS[kind](text)
        except Unreadable:
            if kind == pa.binary():
                note_fault(ReplicateFault.MASK_INVALID, "")
            else:
                note_fault(ReplicateFault.VALUE_INVALID, f"{name}: It says: {text:.200}")
    return values


class _Reader:
    """Reads rows of a version of a table: which column a name stands for, and how its values are read."""

    def __init__(self, table: Table, version: TableVersion) -> None:
        self.values = {field.name: value_reader(field.type) for field in table.fields}
        self.times = {field.name for field in table.fields if pa.types.is_temporal(field.type)}
        self.columns = column_names(table, version)
        self.renamed = version.renamed
        by_letters: dict[str, set[str]] = {}
        for name, column in self.columns.items():
            by_letters.setdefault(name.lower(), set()).add(column)
        self.in_any_case = {name: min(names) for name, names in by_letters.items() if len(names) == 1}

    def row(self, row: Any, note_fault: Note) -> dict[str, Any] | None:
        """The values of a row by column; None if it is none."""
        if not isinstance(row, dict):
            return None
        columns = [self._column(name) for name in row]
        strangers = [column for column in columns if column not in self.values]
        doubles = sorted(column for column, count in Counter(columns).items() if count > 1)
        if strangers or doubles:
            shown = ", ".join(dict.fromkeys([*strangers, *doubles]))
            note_fault(ReplicateFault.COLUMN_UNKNOWN, f"It says: {shown:.200}")
        values = dict.fromkeys(columns)
        for column, value in zip(columns, row.values(), strict=True):
            try:
                values[column] = self._value(column, value)
            except Unreadable:
                note_fault(ReplicateFault.VALUE_INVALID, f"{column}: It says: {json_letters(value):.200}")
        return {**{new: values[old] for new, old in self.renamed.items() if old in values}, **values}

    def _column(self, name: str) -> str:
        return self.columns.get(name) or self.in_any_case.get(name.lower(), name)

    def _value(self, column: str, value: Any) -> Any:
        if value is None or column not in self.values:
            return None
        # A number says not what it counts: of 8035 days since 1970 the text is a year.
        if column in self.times and not isinstance(value, str):
            raise Unreadable
        return self.values[column](json_letters(value))


def column_names(table: Table, version: TableVersion) -> dict[str, str]:
    """
    The column that each name stands for: what the source calls it, and what the data schema does.

    Where a name is in both for different columns it is the source's, since JSON can hold any name; and
    *version*, which the message is of, goes before the others, and newer ones before older ones.
    """
    columns: dict[str, str] = {}
    for other_version in (version, *reversed(table.versions)):
        for column, name in other_version.source_names.items():
            columns.setdefault(name, column)
        for column in other_version.positions:
            columns.setdefault(column, column)
    return columns


# Values ---------------------------------------------------------------------------------------------------


def value_reader(kind: pa.DataType) -> Callable[[str], Any]:
    """Make what reads values of an Arrow type out of texts; it raises `Unreadable` for what is none."""
    if pa.types.is_decimal(kind):
        return exact_decimal(kind.precision, kind.scale)
    if pa.types.is_nested(kind):
        return lambda text: _part(_parse(text), kind)
    if pa.types.is_timestamp(kind):
        return _instant if kind.tz else _clock
    return _READERS.get(kind, _refuse)


def _refuse(text: str) -> Any:
    raise Unreadable


def _parse(text: str) -> Any:
    try:
        value = STRICT_JSON.decode(text)
        # An escape can spell half a character, which no column can hold.
        json_text(value)
    except (ValueError, RecursionError):
        raise Unreadable from None
    return value


def _part(value: Any, kind: pa.DataType) -> Any:
    """A value of JSON as one of a list, a map, a struct or a plain type."""
    if value is None:
        return None
    if pa.types.is_list(kind) and isinstance(value, list):
        return [_part(part, kind.value_type) for part in value]
    if pa.types.is_map(kind) and isinstance(value, dict):
        return [(name, _part(part, kind.item_type)) for name, part in value.items()]
    if pa.types.is_struct(kind) and isinstance(value, dict):
        return {field.name: _part(value.get(field.name), field.type) for field in kind}
    return _refuse("") if pa.types.is_nested(kind) else value_reader(kind)(json_letters(value))


_ISO_8601 = re.compile(
    r"(\d{4}-\d{2}-\d{2})(?:([T ]\d{2}:\d{2})(:\d{2}(?:\.\d+)?)?(Z|[+-]\d{2}(?::?\d{2})?)?)?", re.ASCII
)


def _instant(text: str) -> datetime:
    """An instant in ISO 8601 form, UTC where no zone is said; all but the date may be missing."""
    match = _ISO_8601.fullmatch(text)
    day, minute, second, zone = match.groups() if match else _refuse(text)
    try:
        at = datetime.fromisoformat(f"{day}{minute or 'T00:00'}{second or ':00'}{zone or 'Z'}")
        return at.astimezone(UTC)
    except (ValueError, OverflowError):
        raise Unreadable from None


def _clock(text: str) -> datetime:
    """The same, as the clock shows it, whatever its zone."""
    match = _ISO_8601.fullmatch(text)
    return _instant(text.removesuffix(match[4] or "") if match else text).replace(tzinfo=None)


# A month or a day that is missing is the first.
_DAY = re.compile(r"\s*(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:[T ].*)?)?)?\s*", re.ASCII)


def _day(text: str) -> date:
    match = _DAY.fullmatch(text)
    try:
        return date(*(int(part or 1) for part in (match.groups() if match else _refuse(text))))
    except ValueError:
        raise Unreadable from None


_HEX = re.compile(r"[0-9A-Fa-f]*")


def _bytes(text: str) -> bytes:
    """Bytes in hex text; of half a byte the first digit is missing."""
    return bytes.fromhex(text.zfill(len(text) + len(text) % 2)) if _HEX.fullmatch(text) else _refuse(text)


def _mask(text: str) -> bytes:
    return _bytes(text) if len(text) % 2 == 0 else _refuse(text)


_READERS: Mapping[pa.DataType, Callable[[str], Any]] = {
    pa.string(): str,
    pa.int32(): whole(32),
    pa.int64(): whole(64),
    pa.float32(): floating(32),
    pa.float64(): floating(64),
    pa.bool_(): boolean,
    pa.binary(): _bytes,
    pa.date32(): _day,
}
_HEADER_READERS = {**_READERS, pa.binary(): _mask}
