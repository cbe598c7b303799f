"""Readers: from the data of a message to records.  Filters: a record changed, or dropped."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from cdckit.datahub.source_systems import Schema
from cdckit.errors import InvalidArgument
from cdckit.parts.json_text import exact_values

Record = dict[str, Any]


@dataclass(frozen=True)
class Context:
    """
    What a reader or a filter may know beside what it is given.

    Args:
        message_identifier: Of the message that is read.
        system: Its source system.
        entity: Its source entity.
        config: `messageReaderConfig` of the mapping, or the `config` of the filter.
        options: The `options` of the message.
        files: The folder to which readers of files are confined; None if the hub has none.

    >>> def in_kilograms(record, context):
    ...     return record | {"weight": record["weight"] / context.config["of_one"]}
    >>> context = Context("m1", "*", "parcel", config={"of_one": 1000}, options={})
    >>> in_kilograms({"number": 1, "weight": 500}, context)
    {'number': 1, 'weight': 0.5}
    """

    message_identifier: str
    system: str
    entity: str
    config: Mapping[str, Any]
    options: Mapping[str, Any]
    files: str | None = None


class Reader(Protocol):
    """
    Reads the data of one message.

    It is given the message's `data` as JSON text (null if there is none) and returns records, in their
    order: dictionaries of texts, numbers, booleans and nulls (and lists of such for children).  What it
    raises makes the message an error, and none of its records is applied.  It runs in Spark's workers.

    >>> import json
    >>> def pairs(data, context):
    ...     for each in json.loads(data).split(";"):
    ...         number, name = each.split("=")
    ...         yield {"number": number, "name": name}
    >>> list(pairs('"1=kettle;2=mug"', Context("m1", "*", "product", config={}, options={})))
    [{'number': '1', 'name': 'kettle'}, {'number': '2', 'name': 'mug'}]

    A hub is given it by the name that its mappings call it: `Hub(…, readers={"pairs": pairs})`.
    """

    def __call__(self, data: str | None, context: Context) -> Iterable[Any]: ...


Filter = Callable[[Record, Context], Record | None]
"""Is given one record and returns it, or another in its place, or None to drop it.  What it raises makes
that record an error.  It runs in Spark's workers."""


class UnreadableData(ValueError):
    """The data of a message is not in the form that its reader reads."""


def read_json(data: str | None, context: Context) -> Iterable[Any]:
    """The records of a JSON array of objects, or of one object."""
    found = None if data is None else exact_values(data)
    if isinstance(found, dict):
        return [found]
    if not isinstance(found, list):
        raise UnreadableData("the data must be an array of objects, or an object")
    return found


def read_csv(data: str | None, context: Context) -> Iterable[Any]:
    """
    The records of CSV text (RFC 4180), each a dictionary of texts.

    Config:
        `delimiter` (default a comma), `quote` (a double quote), `header` (default true: the first line
        holds the names), `columns` (the names; needed without a header, and instead of it with one),
        `null` (the text that means null, default the empty text), `unsent` (the text that means that the
        field was not sent, and keeps its value; none by default: `"unsent": ""` makes it the empty one).
    """
    text = None if data is None else exact_values(data)
    if not isinstance(text, str):
        raise UnreadableData("the data must be a text of comma-separated values")
    return _of_csv(text, context.config)


def read_file(data: str | None, context: Context) -> Iterable[Any]:
    """
    The records of a file that the data names, relative to the folder of the hub's files.

    Config:
        `format` ("json", the default, or "csv"), `encoding` (default UTF-8), and those of the format.
        A name that leads out of the folder, by `..`, by a link or by being absolute, is refused.
    """
    name = None if data is None else exact_values(data)
    if not isinstance(name, str):
        raise UnreadableData("the data must be the name of a file")
    # Not `read_text`, which would change the ends of lines inside a value.
    text = _confined(name, context.files).read_bytes().decode(context.config.get("encoding", "utf-8-sig"))
    kind = context.config.get("format", "json")
    if kind == "csv":
        return _of_csv(text, context.config)
    if kind == "json":
        return read_json(text, context)
    raise UnreadableData(f"the format must be json or csv; it is {kind!r}")


def _confined(name: str, files: str | None) -> Path:
    if files is None:
        raise UnreadableData("the hub was given no folder of files")
    folder = Path(files).resolve()
    path = (folder / name).resolve()
    if not path.is_relative_to(folder) or not path.is_file():
        raise UnreadableData(f"there is no file {name!r} in the folder of the hub's files")
    return path


def _of_csv(text: str, config: Mapping[str, Any]) -> list[Record | list[str]]:
    csv.field_size_limit(2**31 - 1)
    lines = csv.reader(
        io.StringIO(text, newline=""),
        delimiter=config.get("delimiter", ","),
        quotechar=config.get("quote", '"'),
        strict=True,
    )
    rows = [row for row in lines if row]
    names, header = config.get("columns"), bool(config.get("header", True))
    if header and not rows:
        raise UnreadableData("the line of names is missing")
    names = names or (rows[0] if header else None)
    if not names or len(set(names)) != len(names):
        raise UnreadableData("the columns need distinct names: a line of names, or the config's columns")
    null, unsent = config.get("null", ""), config.get("unsent")
    return [_named(row, names, null, unsent) for row in rows[header:]]


def _named(row: list[str], names: list[str], null: str, unsent: str | None) -> Record | list[str]:
    """The line as a record; one of another length stays a list, which is an error of this record alone."""
    if len(row) != len(names):
        return row
    sent = ((name, value) for name, value in zip(names, row, strict=True) if value != unsent)
    return {name: None if value == null else value for name, value in sent}


READERS: Mapping[str, Reader] = {"json": read_json, "csv": read_csv, "file": read_file}
"""The readers that every hub has, by the names that mappings call them."""


@dataclass(frozen=True)
class Work:
    """By what messages are read (see `Hub`), and of which *entities* something is; of all without them."""

    schema: Schema
    readers: Mapping[str, Reader]
    filters: Mapping[str, Filter]
    files: str | None
    entities: frozenset[str] | None = None

    @classmethod
    def by(
        cls,
        schema: Schema,
        readers: Mapping[str, Reader] | None,
        filters: Mapping[str, Filter] | None,
        files: str | Path | None,
        *,
        function: str,
    ) -> Work:
        """The same with the readers that are always there; raises if the schema is none or names others."""
        if not isinstance(schema, Schema):
            needed = "what datahub.schema or datahub.read_schema returns"
            raise InvalidArgument(function, "schema", needed, type(schema).__name__)
        folder = None if files is None else str(files)
        work = cls(schema, {**READERS, **(readers or {})}, filters or {}, folder)
        for path, mapping in schema.all_mappings.items():
            named = [("readers", "messageReader", mapping.reader)]
            named += [("filters", "messageFilters", each.name) for each in mapping.filters]
            for argument, where, name in named:
                known, needed = getattr(work, argument), f"given for {path}.{where}"
                if name not in known:
                    raise InvalidArgument(function, f"{argument}[{name!r}]", needed, sorted(known))
        return work

    @property
    def targets(self) -> Collection[str]:
        """The targets of which something is read."""
        return self.schema.targets if self.entities is None else self.entities
