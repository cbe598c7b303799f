"""Readers: from the data of a message to records, filtered, and the records inside them."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from cdckit.datahub.conversions import ConvertedColumn, convert_values
from cdckit.datahub.erased_records import Inside, count_inside, is_masked
from cdckit.datahub.json_values import RepeatedNames, exact_values, plain_object
from cdckit.datahub.mappings import LINK, EntityMapping, FieldMapping, FieldType, Place
from cdckit.datahub.messages import HubFault
from cdckit.datahub.source_systems import Schema
from cdckit.errors import InvalidArgument

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
    raises makes the message an error, and none of its records is applied.  It runs in Spark's workers.  Where
    its records stand in the data nobody can tell, so `Hub.erase` refuses those whose messages it reads.

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
    """
    The records of a JSON array of objects, or of one object.

    One in which a name comes twice that its mapping reads, or any name at all if the mapping has filters, is
    in error (RECORD_INVALID): of the two values one would be lost.
    """
    values = None if data is None else exact_values(data)
    if isinstance(values, dict):
        return [values]
    if not isinstance(values, list):
        raise UnreadableData("the data must be an array of objects, or an object")
    return values


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
    return _parse_csv(text, context.config)


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
    text = _confine_path(name, context.files).read_bytes().decode(context.config.get("encoding", "utf-8-sig"))
    kind = context.config.get("format", "json")
    if kind == "csv":
        return _parse_csv(text, context.config)
    if kind == "json":
        return read_json(text, context)
    raise UnreadableData(f"the format must be json or csv; it is {kind!r}")


def _confine_path(name: str, files: str | None) -> Path:
    if files is None:
        raise UnreadableData("the hub was given no folder of files")
    folder = Path(files).resolve()
    path = (folder / name).resolve()
    if not path.is_relative_to(folder) or not path.is_file():
        raise UnreadableData(f"there is no file {name!r} in the folder of the hub's files")
    return path


def _parse_csv(text: str, config: Mapping[str, Any]) -> list[Record | list[str]]:
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
    return [_name_values(row, names, null, unsent) for row in rows[header:]]


def _name_values(row: list[str], names: list[str], null: str, unsent: str | None) -> Record | list[str]:
    """The line as a record; one of another length stays a list, which is an error of this record alone."""
    if len(row) != len(names):
        return row
    sent = ((name, value) for name, value in zip(names, row, strict=True) if value != unsent)
    return {name: None if value == null else value for name, value in sent}


READERS: Mapping[str, Reader] = {"json": read_json, "csv": read_csv, "file": read_file}
"""The readers that every hub has, by the names that mappings call them."""


@dataclass(frozen=True)
class ReaderSettings:
    """By what messages are read (see `Hub`), and of which *entities* something is; of all without them."""

    schema: Schema
    readers: Mapping[str, Reader]
    filters: Mapping[str, Filter]
    files: str | None
    entities: frozenset[str] | None = None

    @classmethod
    def create(
        cls,
        schema: Schema,
        readers: Mapping[str, Reader] | None,
        filters: Mapping[str, Filter] | None,
        files: str | Path | None,
    ) -> ReaderSettings:
        """Make it with the readers that are always there; raises if the schema is none or names others."""
        if not isinstance(schema, Schema):
            needed = "what datahub.schema or datahub.read_schema returns"
            raise InvalidArgument(None, "schema", needed, type(schema).__name__)
        folder = None if files is None else str(files)
        work = cls(schema, {**READERS, **(readers or {})}, filters or {}, folder)
        for path, mapping in schema.all_mappings.items():
            named = [("readers", "messageReader", mapping.reader)]
            named += [("filters", "messageFilters", filter_.name) for filter_ in mapping.filters]
            for argument, where, name in named:
                given, needed = getattr(work, argument), f"given for {path}.{where}"
                if name not in given:
                    raise InvalidArgument(None, f"{argument}[{name!r}]", needed, sorted(given))
        return work

    @property
    def targets(self) -> Collection[str]:
        """The targets of which something is read."""
        return self.schema.targets if self.entities is None else self.entities


class Message(NamedTuple):
    """What reading needs to know of a message."""

    row: int
    """Its row in the batch."""
    identifier: str
    system: str
    entity: str
    options: str | None
    data: str | None
    refresh: bool | None = False


MESSAGE_VALUES = ("message_identifier", "source_system", "source_entity", "options", "data", "refresh")
"""The columns of the message store that a `Message` has behind its row."""


class ReadFault(NamedTuple):
    """Why a record, or the data of a message, is not applied."""

    problem: HubFault
    text: str


class Listing(NamedTuple):
    """One list of children in one record: what is not in it is to be deleted."""

    child: Place
    parent_field: str
    parent: int
    end: int
    """The number of the last record inside."""


@dataclass
class Nodes:
    """
    The records that one mapping is given, column by column; what they hold is *below*.

    A record stands after the record that holds it, and before that one's next sibling: so they are
    numbered, and so they count.
    """

    place: Place
    parent_field: str | None = None
    """The field that leads to the record that holds it, in the mapping's target."""
    records: list[Record] = field(default_factory=list)
    message: list[int] = field(default_factory=list)
    """The row of its message in the batch."""
    number: list[int] = field(default_factory=list)
    path: list[str] = field(default_factory=list)
    """Where it stands in its message: "2", "2/order_lines/1"."""
    parent: list[int] = field(default_factory=list)
    """Its parent among the parent's nodes; -1 for what is embedded in nothing."""
    listed: list[int] = field(default_factory=list)
    """The number at which the list ends in which it stands."""
    faults: dict[int, ReadFault] = field(default_factory=dict)
    children_faults: dict[int, ReadFault] = field(default_factory=dict)
    """What is wrong with the lists in a record: told only of one whose own fields are sound."""
    originals: dict[int, Any] = field(default_factory=dict)
    """What stands in the place of a record, and is none, or no sound one."""
    dropped: set[int] = field(default_factory=set)
    lists: list[Listing] = field(default_factory=list)
    inside: dict[int, int] = field(default_factory=dict)
    """How many records were counted inside one, whatever became of them; nothing for none."""
    below: dict[tuple[str, Place], Nodes] = field(default_factory=dict)
    """By the field of children, and their mapping."""

    def __len__(self) -> int:
        return len(self.message)

    @property
    def paths(self) -> pa.Array:
        """`path` as Arrow has it."""
        return pa.array(self.path, pa.string())

    def column(self, source: str, kind: FieldType) -> tuple[ConvertedColumn, pa.Array | None]:
        """The values of a property as a field of that type, and which records have it (None for all)."""
        records = self.records
        try:
            return convert_values([record[source] for record in records], kind), None
        except KeyError:
            values = [record.get(source) for record in records]
            return convert_values(values, kind), pa.array([source in record for record in records])

    def has_property(self, source: str) -> bool:
        """Tell whether any record has the property."""
        return any(source in record for record in self.records)

    def add(self, record: Record, message: int, number: int, path: str, parent: int = -1) -> int:
        """Another record; its position."""
        self.records.append(record)
        self.message.append(message)
        self.number.append(number)
        self.path.append(path)
        self.parent.append(parent)
        self.listed.append(number)
        return len(self.records) - 1


class RecordWalk:
    """
    All that the messages of a batch hold for the mapping at *place*, and what is embedded in it.

    Attributes:
        nodes: The records of that mapping.
        unreadable: By the row of the message.
    """

    def __init__(self, work: ReaderSettings, place: Place) -> None:
        self.schema, self.place, self._work = work.schema, place, work
        self.nodes, self.unreadable = Nodes(place), dict[int, ReadFault]()
        self._is_masked = False
        self._options: Mapping[str, Any] = {}
        beside = work.schema.systems[place.system].mappings[place.entity]
        # What two mappings of a record hold, or make, may be of one target: their numbers must not meet.
        self._step, self._offset = len(beside), place.index
        self._mapping = own_mapping = beside[place.index]
        self._is_timed = any(mapping.time_source for mapping in beside)
        # A message that one of its mappings cannot read is not applied in half: the others try it too.
        self._read_otherwise = [
            mapping
            for mapping in beside
            if (mapping.reader, mapping.reader_config) != (own_mapping.reader, own_mapping.reader_config)
        ]

    def read(self, message: Message) -> None:
        """Add the records of one message."""
        try:
            self._options = plain_object(message.options)
            if message.refresh and self._is_timed:
                raise UnreadableData(
                    "a refresh is true at one instant: its records cannot say times of their own"
                )
            records = self._read(message, self._mapping)
            self._is_masked = is_masked(message.data)
            for mapping in self._read_otherwise:
                self._read(message, mapping)
        except Exception as error:  # readers may be anybody's, and data may be anything
            self.unreadable[message.row] = ReadFault(
                HubFault.DATA_INVALID, f"{type(error).__name__}: {error}"
            )
            return
        count = 0
        for sequence, record in enumerate(records, 1):
            count += 1
            if (erased := self._count_erased(record, self.place)) is not None:
                count += erased
                continue
            at = self.nodes.add(record, message.row, self.number_of(count), str(sequence))
            given = {self._mapping.unique_sequence: sequence}
            count = self._add_inner(self.nodes, at, message, count, given)

    def _read(self, message: Message, mapping: EntityMapping) -> list[Any]:
        context = self._context(message, mapping.reader_config)
        return list(self._work.readers[mapping.reader](message.data, context))

    def _count_erased(self, record: Any, place: Place) -> int | None:
        """Count the records that were inside one that was erased; None for others, as all of a file are."""
        return count_inside(record, _name_mapping(place)) if self._is_masked else None

    def number_of(self, count: Any) -> Any:
        """The number of the record that comes first, second, ... in its message; or those of several."""
        return count * self._step + self._offset

    def _context(self, message: Message, config: Mapping[str, Any]) -> Context:
        sent = (message.identifier, message.system, message.entity)
        return Context(*sent, config, self._options, self._work.files)

    def _accept_record(self, nodes: Nodes, at: int, message: Message) -> bool:
        """Tell whether the record is one, after its filters; if not, it says why."""
        record: Any = nodes.records[at]
        if not isinstance(record, dict):
            nodes.records[at], nodes.originals[at] = {}, record
            nodes.faults[at] = ReadFault(HubFault.RECORD_INVALID, f"it is {_json_kind(record)}")
            return False
        if (name := self._repeated_name(nodes.place, record)) is not None:
            nodes.faults[at] = ReadFault(HubFault.RECORD_INVALID, f"the name {name!r:.80} comes twice")
            if isinstance(record, RepeatedNames):
                nodes.records[at], nodes.originals[at] = record.unrepeated(), record
            return False
        for filter_ in self.schema.mapping(nodes.place).filters:
            try:
                record = self._work.filters[filter_.name](record, self._context(message, filter_.config))
            except Exception as error:  # filters may be anybody's
                text = f"{filter_.name}: {type(error).__name__}: {error}"
                nodes.faults[at] = ReadFault(HubFault.FILTER_FAILED, text)
                return False
            if record is None:
                nodes.dropped.add(at)
                return False
        if isinstance(record, dict):
            nodes.records[at] = record
        else:
            nodes.faults[at] = ReadFault(HubFault.FILTER_FAILED, "a filter must return a dictionary, or None")
        return isinstance(record, dict)

    def _repeated_name(self, place: Place, record: Record) -> str | None:
        """Find a name that comes twice and is read: a mapping reads its fields, a filter perhaps all."""
        mapping = self.schema.mapping(place)
        if mapping.filters:
            return _find_repeated_name(record)
        if not isinstance(record, RepeatedNames):
            return None
        names = {mapping.time_source, *(list_field.source for list_field in mapping.children)}
        names |= {name for name, _ in read_properties(self.schema, place)}
        return next((name for name in record.repeated if name in names), None)

    def _add_inner(
        self, nodes: Nodes, at: int, message: Message, count: int, given: dict[str | None, int]
    ) -> int:
        """Add the records inside one record, which is *given* these numbers; how many there are so far."""
        if not self._accept_record(nodes, at, message):
            return count
        record, mapping = nodes.records[at], self.schema.mapping(nodes.place)
        named = {mapping.unique_identifier: message.identifier, **given}
        record.update((name, value) for name, value in named.items() if name is not None)
        for list_field in mapping.children:
            children = record.get(list_field.source, [])
            if not isinstance(children, list):
                text = f"{list_field.source} is {_json_kind(children)}"
                if children is None:
                    text += "; [] says that there are none, and to leave it out says nothing of them"
                nodes.children_faults[at] = ReadFault(HubFault.CHILDREN_INVALID, text)
                return count
        own_count = count
        for field_, child in self.schema.children(nodes.place):
            if field_.source in record:
                count = self._add_children(nodes, at, field_, child, message, count)
        if count > own_count:
            nodes.inside[at] = count - own_count
        return count

    def _add_children(
        self, above: Nodes, at: int, field: FieldMapping, child: Place, message: Message, count: int
    ) -> int:
        """Add the children in one field of a record; how many records there are so far."""
        assert field.parent_identifier is not None
        nodes = above.below.setdefault((field.reference, child), Nodes(child, field.parent_identifier))
        start, unique = len(nodes), self.schema.mapping(child).unique_sequence
        for sequence, child_record in enumerate(above.records[at][field.source], 1):
            count += 1
            if (erased := self._count_erased(child_record, child)) is not None:
                count += erased
                continue
            # A record may have several mappings, and each is to have a record of its own.
            own_record = child_record.copy() if isinstance(child_record, dict) else child_record
            path = f"{above.path[at]}/{field.source}/{sequence}"
            node = nodes.add(own_record, message.row, self.number_of(count), path, at)
            given = {unique: count, field.source_child_sequence: sequence}
            count = self._add_inner(nodes, node, message, count, given)
        end = self.number_of(count)
        nodes.listed[start:] = [end] * (len(nodes) - start)
        above.lists.append(Listing(child, field.parent_identifier, at, end))
        return count


def read_properties(schema: Schema, place: Place) -> Iterator[tuple[str, FieldType]]:
    """The properties of a record that a mapping reads as values, with the types of their fields."""
    mapping = schema.mapping(place)
    yield mapping.deleted_source, FieldType("boolean")
    for column in mapping.columns:
        if column.type.name == LINK:
            yield from schema.key_plan(place, column).sources
        else:
            yield column.source, column.type


def _find_repeated_name(value: Any) -> str | None:
    """Find a name that comes twice in an object of a value, at any depth."""
    # A value may be nested deeper than Python calls, and what a reader of one's own returns may hold itself.
    parts, seen = [value], set[int]()
    while parts:
        part = parts.pop()
        if isinstance(part, RepeatedNames):
            return part.repeated[0]
        if isinstance(part, dict | list) and id(part) not in seen:
            seen.add(id(part))
            parts += part.values() if isinstance(part, dict) else part
    return None


def _name_mapping(place: Place) -> str:
    """Name a mapping among those that read one message."""
    return f"{place.entity}[{place.index}]"


def counts_inside(work: ReaderSettings, message: Message, paths: Collection[str]) -> dict[str, Inside]:
    """
    Count what is inside the records at some *paths* of a message, as its mappings count.

    Raises:
        UnreadableData: It is not said of each where it stands in the data: by a reader that is not
            `read_json`, or below a filter, which may drop or sort the records inside the one that it returns.
    """
    mappings = work.schema.systems[message.system].mappings[message.entity]
    if any(work.readers[mapping.reader] is not read_json for mapping in mappings):
        raise UnreadableData("a reader says which records there are, and not where they stand")
    counts: dict[str, dict[str, int]] = {path: {} for path in paths}

    def count(nodes: Nodes, *, is_filtered: bool) -> None:
        for at, path in enumerate(nodes.path):
            if path in counts:
                if is_filtered:
                    raise UnreadableData(f"a filter says what stands at {path}")
                counts[path][_name_mapping(nodes.place)] = nodes.inside.get(at, 0)
        has_filter = is_filtered or bool(work.schema.mapping(nodes.place).filters)
        for below in nodes.below.values():
            count(below, is_filtered=has_filter)

    for index, _ in enumerate(mappings):
        walk = RecordWalk(work, Place(message.system, message.entity, index))
        walk.read(message)
        count(walk.nodes, is_filtered=False)
    if missing := [path for path, by_mapping in counts.items() if not by_mapping]:
        raise UnreadableData(f"there is no record at {missing[0]}")
    return {path: _alike(by_mapping) for path, by_mapping in counts.items()}


def _alike(counts: dict[str, int]) -> Inside:
    """One number for all, where they do not differ."""
    return counts if len(set(counts.values())) > 1 else max(counts.values())


def _json_kind(value: Any) -> str:
    """Name a value that is not what it should be, in the words of JSON."""
    kinds = {type(None): "null", bool: "a boolean", str: "a text", list: "an array", dict: "an object"}
    numbers = dict.fromkeys((int, float, Decimal), "a number")
    return (kinds | numbers).get(type(value), "no value of JSON")
