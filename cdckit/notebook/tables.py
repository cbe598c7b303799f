"""A table as it is shown: its columns, its cells as texts, short messages and instants, and its caption."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta, tzinfo
from functools import partial
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.model.changes import CHANGE_SCHEMA, DIGITS, sortable_number
from cdckit.model.history import (
    DELETED,
    FIELD_PROVENANCE,
    HISTORY_SCHEMA,
    SOURCE_MESSAGE,
    SYSTEM_FROM,
    SYSTEM_TO,
    VALID_FROM,
    VALID_TO,
)
from cdckit.model.records import ERROR_CODE, ERROR_DESCRIPTION, REJECT
from cdckit.parts.arguments import quoted, require_struct, require_type, require_types
from cdckit.parts.instants import EPOCH, microseconds
from cdckit.parts.values import as_text
from cdckit.parts.workers import local_frame

_LONGEST = 12


class MessageLabel(NamedTuple):
    """A message as a table names it, and all that is known of it."""

    short: str
    in_full: str


def shorten_messages(messages: Iterable[str]) -> dict[str, MessageLabel]:
    """
    Messages without ids of their own by their sources, other long names by a word and an end that differs.

    >>> named = ["shop-3c5a3b1c6f2f4a0e9d8c7b6a5f4e3d2c", "ny2/operations:20130207185408001586", "m1"]
    >>> [label.short for label in shorten_messages(named).values()]
    ['m1', 'operations…1586', 'shop']
    """
    names = sorted(set(messages))
    made = {name: match[1] for name in names if (match := _MADE.fullmatch(name))}
    others = [name for name in names if name not in made]
    ends = range(4, max(map(len, others), default=0))
    several = ({name: _shorten_name(name, end) for name in others} for end in ends)
    short = next((some for some in several if len(set(some.values())) == len(others)), {})
    called = {name: name for name in names} | short | made
    return {name: MessageLabel(one_line(text), one_line(name)) for name, text in called.items()}


# What `changes_from` calls a message that its table does not name: the source, and a digest.
_MADE = re.compile(r"(.+)-[0-9a-f]{32}", re.DOTALL)
_WORD = re.compile(r"[^\W\d_]{3,}")
_DIGITS = re.compile(r"[0-9a-fA-F-]+")


def _shorten_name(name: str, end: int) -> str:
    """The last word of a long name, if there is one, and its end."""
    if len(name) <= max(_LONGEST, end + 5):
        return name
    words = [] if _DIGITS.fullmatch(name) else _WORD.findall(name[:-end])
    short = f"{words[-1][:_LONGEST] if words else name[:4]}…{name[-end:]}"
    return short if len(short) < len(name) else name


def label_messages(
    messages: Collection[str], changes: DataFrame, clock: Callable[[int], str]
) -> dict[str, MessageLabel]:
    """
    The source that sent each message; in full also when it was true, when it came, and from where.

    A message that *changes* do not hold keeps its name.  *clock* writes microseconds since 1970.
    """
    labels = shorten_messages(messages)
    if not messages:
        return labels
    at = F.col("arrival")
    # As a table: a thousand rows of a hundred fields name more messages than a plan can hold.
    named = local_frame(changes.sparkSession, [(each,) for each in messages], "message_id string")
    found = (
        changes.join(F.broadcast(named), on="message_id", how="left_semi")
        .groupBy("message_id")
        .agg(
            F.sort_array(F.collect_set("source")).alias("sources"),
            F.unix_micros(F.min("effective_timestamp")).alias("effective"),
            F.unix_micros(F.min(at["timestamp"])).alias("arrived"),
            F.min(F.concat_ws("/", at["topic"], at["partition"], at["offset"])).alias("place"),
        )
        .collect()
    )
    for row in found:
        # Sources number their messages independently: an id may be of several.
        name = one_line(" or ".join(row["sources"])) or labels[row["message_id"]].short
        facts: Mapping[str, str] = {
            "message ": labels[row["message_id"]].in_full,
            "effective ": "" if row["effective"] is None else clock(row["effective"]),
            "arrived ": "" if row["arrived"] is None else clock(row["arrived"]),
            "at ": one_line(row["place"] or ""),
        }
        in_full = ", ".join([name, *(word + fact for word, fact in facts.items() if fact)])
        labels[row["message_id"]] = MessageLabel(name, in_full)
    return labels


def require_changes(changes: DataFrame) -> None:
    """Raise `MissingColumns` or `WrongColumnType` unless *changes* say of a message who sent it, and when."""
    needed = ("message_id", "source", "effective_timestamp", "arrival")
    require_types(changes, type(CHANGE_SCHEMA)([CHANGE_SCHEMA[name] for name in needed]), function="show")


def one_line(text: str) -> str:
    """Line ends, and what would turn or hide the text around it, as their escapes."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


# What these columns are called above a table; everything that is not here is a field of the entity.
_TIMES = {
    VALID_FROM: "valid_from",
    VALID_TO: "valid_to",
    SYSTEM_FROM: "system_from",
    SYSTEM_TO: "system_to",
}
_MARKS = {DELETED: "state", SOURCE_MESSAGE: "message", "guid": "guid"}
_OF_CHANGES = {"effective_timestamp": "effective", "arrival": "arrived", "message_id": "message"}
_ENDS = (VALID_TO, SYSTEM_TO)
# Of answers about a history: in a history itself these are fields like any other.
_MESSAGES = ("message", "message_id", "by_message", "a_message", "b_message")


class TableColumn(NamedTuple):
    """
    A column of the table.

    `cell` is a struct: the value, the message `m` and the priority `p` that it has from, and whether it was
    `sent`.  `kind` is value, number, bytes, instant, begin, end, state, operation, message, guid, or quiet,
    which is a value that is left out where no row says anything.
    """

    heading: str
    kind: str
    cell: Column


def has_change_columns(frame: DataFrame) -> bool:
    """Whether *frame* has the columns of changes."""
    return {*CHANGE_SCHEMA.names, "data", "carried"} <= set(frame.columns)


def table_columns(frame: DataFrame, *, provenance: bool, width: int) -> list[TableColumn]:
    """The columns of *frame* as a reader wants them, in their order."""
    names = set(frame.columns)
    if has_change_columns(frame):
        return _change_columns(frame, provenance, width)
    if {ERROR_CODE, ERROR_DESCRIPTION, "topic", "partition", "offset", "value"} <= names:
        return _reject_columns(frame, width)
    return _version_columns(frame, provenance, width)


def select_columns(columns: Sequence[TableColumn], headings: Sequence[str]) -> list[TableColumn]:
    """The columns with these headings, in their order; and the state, which says what is deleted."""
    chosen = [each for heading in headings for each in columns if each.heading == heading]
    return chosen + [each for each in columns if each.kind == "state" and each not in chosen]


def resolve_headings(frame: DataFrame, shown: Sequence[TableColumn], names: Iterable[str]) -> list[str]:
    """What stands above the columns that are asked for: a name that is no heading is one of *frame*'s."""
    headings = _headings(frame)
    known = {each.heading for each in shown}
    return [name if name in known else headings.get(name, name) for name in names]


def resolve_names(frame: DataFrame, given: Iterable[str]) -> list[str]:
    """The names of the columns that are asked for: one that *frame* does not have may be a heading."""
    names = {heading: name for name, heading in _headings(frame).items()}
    known = set(frame.columns)
    if has_change_columns(frame):
        known |= set(require_struct(frame, "data", function="show").names)
    return [name if name in known else names.get(name, name) for name in given]


def _headings(frame: DataFrame) -> dict[str, str]:
    """What stands above the columns of *frame* that are called otherwise."""
    called = _OF_CHANGES if has_change_columns(frame) else {**_TIMES, **_MARKS}
    return {name: heading for name, heading in called.items() if name in frame.columns}


def _version_columns(frame: DataFrame, provenance: bool, width: int) -> list[TableColumn]:
    """A history, or what is left of one: since when, until when, the fields, the state, message and guid."""
    types = {field.name: field.dataType for field in frame.schema.fields}
    for name in (*_TIMES, *_MARKS):
        if name in types:
            needed = T.TimestampType() if name in _TIMES else HISTORY_SCHEMA[name].dataType
            require_type(frame, name, needed, function="show")
    entries = _provenance(frame) if FIELD_PROVENANCE in types and provenance else {}
    messages = () if DELETED in types else _MESSAGES
    columns = [
        TableColumn(heading, "end" if name in _ENDS else "begin", _cell(_micros(_column(name))))
        for name, heading in _TIMES.items()
        if name in types
    ]
    columns += [
        _plain_column(name, kind, width, entries.get(name), message=name in messages)
        for name, kind in types.items()
        if name not in {*_TIMES, *_MARKS, FIELD_PROVENANCE}
    ]
    for name, heading in _MARKS.items():
        if name in types:
            entry = entries.get("guid") if name == DELETED else None
            columns.append(TableColumn(heading, heading, _cell(_column(name), entry)))
    return columns


def _change_columns(frame: DataFrame, provenance: bool, width: int) -> list[TableColumn]:
    """Who says what first, then the fields, blank where not sent, then when and in which message."""
    fields = require_struct(frame, "data", function="show").fields
    carried = set(require_struct(frame, "carried", function="show").names)
    ranks: set[str] = set()
    if provenance and "field_priorities" in frame.columns:
        ranks = set(require_struct(frame, "field_priorities", function="show").names)
    columns = [
        TableColumn("source", "value", _cell(_column("source"))),
        TableColumn("operation", "operation", _cell(_column("operation"))),
    ]
    for name, kind in ((field.name, field.dataType) for field in fields):
        sent = _column("carried").getField(name) if name in carried else F.lit(True)
        rank = _column("field_priorities").getField(name) if name in ranks else F.lit(None)
        value = _value(_column("data").getField(name), kind, width)
        columns.append(TableColumn(name, _kind(kind), _cell(value, rank=rank, sent=sent)))
    arrived = _column("arrival").getField("timestamp")
    columns += [
        TableColumn("effective", "instant", _cell(_micros(_column("effective_timestamp")))),
        TableColumn("arrived", "instant", _cell(_micros(arrived))),
        TableColumn("sequence", "quiet", _cell(_value(_sequence(), T.StringType(), width))),
        TableColumn("priority", "quiet", _cell(F.nullif(_column("priority").cast("string"), F.lit("0")))),
        TableColumn("message", "message", _cell(_column("message_id"))),
    ]
    if REJECT in frame.columns:
        code = _column(REJECT).getField(ERROR_CODE)
        columns.append(TableColumn(REJECT, "quiet", _cell(_value(code, T.StringType(), width))))
    apart = {*CHANGE_SCHEMA.names, "data", "carried", "field_priorities", REJECT}
    others = [field for field in frame.schema.fields if field.name not in apart]
    return columns + [
        TableColumn("guid", "guid", _cell(_column("guid")))
        if field.name == "guid"
        else _plain_column(field.name, field.dataType, width)
        for field in others
    ]


def _sequence() -> Column:
    """The sequence, unless it only repeats when the change is effective; of a number, the number alone."""
    sequence = _column("sequence")
    repeats = sequence.eqNullSafe(sortable_number(_micros(_column("effective_timestamp"))))
    number = F.when(sequence.rlike(f"^[0-9]{{{DIGITS}}}$"), F.regexp_replace(sequence, "^0+(?=[0-9])", ""))
    return F.when(~repeats, F.coalesce(number, sequence))


def _reject_columns(frame: DataFrame, width: int) -> list[TableColumn]:
    """What is wrong first, then where the record lies, and how it begins."""
    first = (ERROR_CODE, ERROR_DESCRIPTION, "topic", "partition", "offset", "timestamp", "key", "value")
    types = {field.name: field.dataType for field in frame.schema.fields}
    ordered = [*(name for name in first if name in types), *(name for name in types if name not in first)]
    # Spark's type of a timestamp is a number that says nothing to a reader.
    return [
        TableColumn(name, "quiet", _cell(_value(_column(name), types[name], width)))
        if name == "headers"
        else _plain_column(name, types[name], width)
        for name in ordered
        if name != "timestampType"
    ]


def _plain_column(
    name: str, kind: T.DataType, width: int, entry: Column | None = None, *, message: bool = False
) -> TableColumn:
    if message and isinstance(kind, T.StringType):
        return TableColumn(name, "message", _cell(_column(name), entry))
    return TableColumn(name, _kind(kind), _cell(_value(_column(name), kind, width), entry))


def _kind(kind: T.DataType) -> str:
    kinds: Iterable[tuple[type[T.DataType], str]] = (
        (T.TimestampType, "instant"),
        (T.BinaryType, "bytes"),
        (T.NumericType, "number"),
    )
    return next((word for of, word in kinds if isinstance(kind, of)), "value")


def _value(column: Column, kind: T.DataType, width: int) -> Column:
    """What is enough of a value to show it; instants as microseconds: Python knows no year after 9999."""
    as_shown: dict[str, Callable[[], Column]] = {
        "instant": lambda: _micros(column),
        "bytes": lambda: F.struct(F.substring(column, 1, width).alias("first"), F.length(column).alias("of")),
    }
    found = as_shown.get(_kind(kind), lambda: F.substring(as_text(column, kind), 1, width + 1))()
    return F.when(column.isNotNull(), found) if _kind(kind) == "bytes" else found


def _cell(
    value: Column, entry: Column | None = None, *, rank: Column | None = None, sent: Column | None = None
) -> Column:
    message = F.lit(None) if entry is None else entry.getField("m")
    priority = rank if entry is None else entry.getField("p")
    return F.struct(
        value.alias("value"),
        message.cast("string").alias("m"),
        (F.lit(None) if priority is None else priority).cast("string").alias("p"),
        (F.lit(True) if sent is None else F.coalesce(sent, F.lit(True))).alias("sent"),
    )


def _provenance(history: DataFrame) -> dict[str, Column]:
    """Where each field has its value from; what is no entry of a message and a priority says nothing."""
    fields = require_struct(history, FIELD_PROVENANCE, function="show").fields
    return {
        field.name: F.col(FIELD_PROVENANCE).getField(field.name)
        for field in fields
        if isinstance(field.dataType, T.StructType) and {"m", "p"} <= set(field.dataType.names)
    }


def _column(name: str) -> Column:
    return F.col(quoted(name))


def _micros(instant: Column) -> Column:
    return F.unix_micros(instant)


_TIMESPECS = (
    (60_000_000, "minutes"),
    (1_000_000, "seconds"),
    (1_000, "milliseconds"),
    (1, "microseconds"),
)


class Clock(NamedTuple):
    """What the instants of one table share, and so need not say: they are microseconds since 1970."""

    zone: tzinfo
    offsets: bool
    day: date | None

    @classmethod
    def of(cls, micros: Iterable[int], zone: tzinfo) -> Clock:
        """The clock of these instants."""
        moments = [moment for moment in (_moment(each, zone) for each in micros) if moment is not None]
        days = {moment.date() for moment in moments}
        # An hour that happens twice, or a summer among winters: then each instant needs its offset.
        offsets = len({moment.utcoffset() for moment in moments}) > 1 or any(map(_happens_twice, moments))
        return cls(zone, offsets, min(days) if len(days) == 1 else None)

    @property
    def caption(self) -> str:
        """What the instants share, in words."""
        return f"instants of {self.day}, {self.zone}" if self.day else f"instants in {self.zone}"

    def text(self, micros: int, spec: str) -> str:
        """An instant without what all share; *spec* is what `isoformat` calls so."""
        moment = _moment(micros, self.zone)
        if moment is None:
            return "after 9999" if micros > 0 else "before 0001"
        written = (moment if self.offsets else moment.replace(tzinfo=None)).isoformat(" ", spec)
        return written[11:] if self.day else written

    def in_full(self, micros: int) -> str:
        """An instant by itself, with its day."""
        moment = _moment(micros, self.zone)
        if moment is None:
            return self.text(micros, "")
        return moment.replace(tzinfo=None).isoformat(" ", timespec([micros]))


def short_instants(instants: Sequence[datetime], zone: tzinfo) -> tuple[list[str], str]:
    """Instants as short as they can be together, and the words for what they share."""
    micros = [microseconds(instant) for instant in instants]
    clock = Clock.of(micros, zone)
    return [clock.text(each, timespec(micros)) for each in micros], clock.caption


def timespec(micros: Iterable[int]) -> str:
    """How fine these instants are, as `isoformat` calls it: seconds only where one has some."""
    listed = list(micros)
    return next(word for unit, word in _TIMESPECS if all(each % unit == 0 for each in listed))


def _happens_twice(moment: datetime) -> bool:
    """Whether clocks were put back then, and show this once more."""
    return moment.replace(fold=0).utcoffset() != moment.replace(fold=1).utcoffset()


def _moment(micros: int, zone: tzinfo) -> datetime | None:
    try:
        return (EPOCH + timedelta(microseconds=micros)).astimezone(zone)
    except OverflowError:
        return None


OPEN = "…"
NULL = "NULL"
_INSTANTS = ("instant", "begin", "end")


class Cell(NamedTuple):
    """Text, its message and all that is known of it, and its look: see `cdckit.notebook.display`."""

    text: str
    message: str = ""
    in_full: str = ""
    look: str = ""


class Grid(NamedTuple):
    """What a `Table` shows: rows of texts; which columns are numbers, and which rows are struck through."""

    headings: list[str]
    numbers: list[bool]
    rows: list[list[Cell]]
    deleted: list[bool]
    caption: str


class Look(NamedTuple):
    """What a table is to look like: its columns, how many rows, how wide a value may be, and whose clock."""

    headings: Sequence[str]
    kinds: Sequence[str]
    rows: int
    width: int
    zone: tzinfo


class TableRows(NamedTuple):
    """What was read for a table: perhaps one row more than it shows."""

    found: Sequence[tuple[Any, ...]]
    look: Look

    @property
    def visible_rows(self) -> Sequence[tuple[Any, ...]]:
        """The rows that the table has."""
        return self.found[: self.look.rows]

    @property
    def kinds(self) -> dict[int, str]:
        """The columns that say something of some row, by their places."""
        return {
            place: kind
            for place, kind in enumerate(self.look.kinds)
            if kind not in ("state", "quiet") or any(row[place].value for row in self.visible_rows)
        }

    @property
    def messages(self) -> set[str]:
        """The messages that are named in it."""
        cells = [(kind, row[place]) for place, kind in self.kinds.items() for row in self.visible_rows]
        named = {cell.value for kind, cell in cells if kind == "message" and cell.value is not None}
        return named | {cell.m for _, cell in cells if cell.m is not None}

    @property
    def times(self) -> dict[int, list[int]]:
        """The instants of each column that has some."""
        return {
            place: [
                row[place].value
                for row in self.visible_rows
                if row[place].value is not None and row[place].sent
            ]
            for place, kind in self.kinds.items()
            if kind in _INSTANTS
        }

    @property
    def clock(self) -> Clock:
        """The clock that all instants of the table share."""
        return Clock.of([each for column in self.times.values() for each in column], self.look.zone)


def make_grid(rows: TableRows, messages: Mapping[str, MessageLabel], *, named: bool) -> Grid:
    """The table of what was read, its messages called as *messages* say: *named* by their sources, or not."""
    look, kinds, clock, times = rows.look, rows.kinds, rows.clock, rows.times
    # Beginnings and ends are read together, so they are written alike; a field is written for itself.
    bounds = [each for place, column in times.items() if kinds[place] != "instant" for each in column]
    specs = {
        place: timespec(column if kinds[place] == "instant" else bounds) for place, column in times.items()
    }
    table = [
        [
            _show_cell(row[place], kind, partial(clock.text, spec=specs.get(place, "")), messages, look.width)
            for place, kind in kinds.items()
        ]
        for row in rows.visible_rows
    ]
    deleted = [
        any(kind == "state" and bool(row[place].value) for place, kind in kinds.items())
        for row in rows.visible_rows
    ]
    headings = [one_line(look.headings[place]) for place in kinds]
    numbers = [kind == "number" for kind in kinds.values()]
    cells = [(kind, row[place]) for place, kind in kinds.items() for row in rows.visible_rows]
    notes = {
        _count(len(rows.found), look.rows): True,
        clock.caption: any(times.values()),
        f"{OPEN} is an open end": any(kind == "end" and cell.value is None for kind, cell in cells),
        "blank was not sent": any(not cell.sent for _, cell in cells),
        f"after a value its {'source' if named else 'message'}/the value's priority": any(
            cell.m is not None for _, cell in cells
        ),
        "after a value the priority that it has of its own": any(
            cell.m is None and cell.p for _, cell in cells
        ),
        _several(messages, rows.messages): not named,
    }
    caption = "; ".join(note for note, holds in notes.items() if note and holds)
    return Grid(headings, numbers, table, deleted, caption)


def _several(messages: Mapping[str, MessageLabel], shown: Iterable[str]) -> str:
    """Which names stand for messages that are not the same, in words."""
    of = Counter(messages[message].short for message in shown)
    alike = [f"{name} is {many} messages" for name, many in sorted(of.items()) if many > 1]
    return f"{', '.join(alike)} without a name" if alike else ""


def _count(found: int, rows: int) -> str:
    if found > rows:
        return f"first {rows} row{'s' if rows != 1 else ''} of more"
    return f"{found} row{'s' if found != 1 else ''}" if found else "no rows"


def _show_cell(
    cell: Any, kind: str, instant: Callable[[int], str], messages: Mapping[str, MessageLabel], width: int
) -> Cell:
    if not cell.sent:
        return Cell("")
    label, in_full = _message_label(cell, messages)
    if kind == "state":
        return Cell("deleted", label, in_full, "mark") if cell.value else Cell("")
    if kind == "quiet":
        return Cell(_shorten(cell.value or "", width))
    if cell.value is None:
        return Cell(OPEN if kind == "end" else NULL, label, in_full, "" if kind == "end" else "nothing")
    if kind == "message":
        return Cell(messages[cell.value].short, "", messages[cell.value].in_full)
    if kind in _INSTANTS:
        return Cell(instant(cell.value), label, in_full, "value" if kind == "instant" else "")
    if kind == "guid":
        return Cell(_shorten(cell.value, 8))
    if kind == "operation":
        return Cell(one_line(cell.value), look="mark" if cell.value == "delete" else "")
    if kind == "bytes":
        return Cell(_bytes(cell.value), label, in_full, "value")
    return Cell(_shorten(cell.value, width), label, in_full, "value")


def _message_label(cell: Any, messages: Mapping[str, MessageLabel]) -> tuple[str, str]:
    if cell.m is None:
        return (cell.p, f"priority {cell.p}") if cell.p else ("", "")
    message = messages[cell.m]
    # Not the message's: that of a key rises with later messages, and its message stays the first.
    return f"{message.short}/{cell.p}", f"{message.in_full}; the value has priority {cell.p}"


def _bytes(value: Any) -> str:
    text = repr(bytes(value.first))
    return text if len(value.first) == value.of else f"{text[:-1]}…' ({value.of:,} bytes)"


def _shorten(text: str, longest: int) -> str:
    return one_line(text if len(text) <= longest else text[:longest] + "…")
