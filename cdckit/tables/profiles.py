"""What a table looks like before changes are made of it, and the call of `changes_from` that follows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import combinations, product
from typing import Any, NamedTuple

import pandas as pd
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.model.lists import CORRUPT
from cdckit.model.records import ERROR_CODE
from cdckit.notebook.tables import Cell, Grid, Table, html_text
from cdckit.parts.arguments import quoted, quoted_if_needed, require_batch, with_number
from cdckit.parts.calls import takes
from cdckit.parts.tables import AnyTable, are_made_floats
from cdckit.parts.values import as_text, is_collated
from cdckit.parts.workers import describe_step
from cdckit.tables.calls import UNFIT_KEYS, as_table
from cdckit.tables.from_rows import table_rows
from cdckit.tables.times import TEXTS, as_instant, is_time, reading_expressions

_WIDTH = 40
_NEARLY_ALL = 20
"""Numbers are times where no more than one in so many cannot be read: 1012024 may be 01.01.2024."""
_DELETES = ("d", "del", "delete", "deleted")
_OPERATIONS = (*_DELETES, "i", "u", "c", "r", "insert", "update", "upsert", "create", "read")
_ZONE = r"(Z|[+-]\d{2}:?\d{2}| [A-Za-z]+/[\w/+-]+|UTC|GMT)$"
_NUMBER = r"^[+-]?(\d{1,3}(\.\d{3})+|\d+)(,\d+)?$"
_DECIMAL = r"^[+-]?(\d{1,3}(\.\d{3})+,\d+|\d+,(\d\d?|\d{4,}))$"
# An estimate is off by a hundredth; what tells 97 of 100 rows apart may well tell all.
_SKETCH, _NEARLY = 14, 0.97
# Of what could be the key, what is called so goes into the calls; a note has all.
_LIKE_A_KEY = re.compile(r"(^|_)(?i:id|key|no|nr|code)$|[a-z]I[dD]$")
_MOST_SOURCES, _MOST_PARTS, _MOST_CALLS = 20, 6, 6


class ColumnProfile(NamedTuple):
    """
    What stands in a column.

    `distinct` is an estimate, off by a hundredth or two.  `readings` are the expressions that read all of it
    as times (what cannot be read at all left out): several where it can be read in several ways.  `deletes`
    are the words in it for a delete, `can_be` says in words what the column can be.

    >>> at = ColumnProfile("at", "string", 0, 0, 3, "1.2.2024", ("try_to_timestamp(at, 'd.M.yyyy')",))
    >>> at.nulls, at.readings
    (0, ("try_to_timestamp(at, 'd.M.yyyy')",))
    """

    name: str
    type: str
    nulls: int
    empty: int
    distinct: int
    example: str | None
    readings: tuple[str, ...] = ()
    deletes: tuple[str, ...] = ()
    can_be: tuple[str, ...] = ()


class Profile(NamedTuple):
    """
    What stands in a table, and what follows for `changes_from`; shown as a table with what it means below.

    `calls` can be pasted: several where the table does not say which is meant, none where it has no rows or
    no key.  `rejects` says by code how many rows the first call would refuse, and `repeated` how many rows
    are equal to another one.

    >>> Profile(1, 0, (ColumnProfile("id", "int", 0, 0, 1, "7", can_be=("key",)),), ("A note.",), (), {})
    column  type  nulls  empty  distinct  example  can be
    id      int   0      0      1         7        key
    (1 row, 0 equal to another; distinct values are estimated)
    A note.
    """

    rows: int
    repeated: int
    columns: tuple[ColumnProfile, ...]
    notes: tuple[str, ...]
    calls: tuple[str, ...]
    rejects: Mapping[str, int]

    def __repr__(self) -> str:
        return "\n".join([repr(self._table), *self.notes, *self.calls])

    def _repr_html_(self) -> str:
        notes = "".join(f"<li>{html_text(note)}</li>" for note in self.notes)
        calls = escape("\n".join(self.calls))
        return f"{self._table._repr_html_()}<ul>{notes}</ul><pre>{calls}</pre>"

    @property
    def _table(self) -> Table:
        headings = ("column", "type", "nulls", "empty", "distinct", "example", "can be")
        numbers = [heading in ("nulls", "empty", "distinct") for heading in headings]
        rows = []
        for column in self.columns:
            counts = (f"{number:,}" for number in (column.nulls, column.empty, column.distinct))
            texts = column.name, column.type, *counts, _cut(column.example), "; ".join(column.can_be)
            rows.append([*map(Cell, texts)])
        counted = f"{with_number(self.rows, 'row')}, {self.repeated:,} equal to another"
        caption = f"{counted}; distinct values are estimated"
        return Table(lambda: Grid([*map(Cell, headings)], numbers, rows, [False] * len(rows), caption))


@takes()
def profile(frame: AnyTable) -> Profile:
    """
    Say what stands in a table, and how `changes_from` could read it.

    What the data alone cannot decide is not guessed: where a time, or a key, can be one of two, there are two
    calls, and a note says so.

    Args:
        frame: As for `changes_from`.

    Returns:
        For each column its type, nulls, empty texts (*empty_texts* says what they mean), distinct values, an
        example, and what it can be: a key, a source, a time (and by which expression; without a zone UTC is
        meant, else use `to_utc_timestamp`), a number with a decimal comma, a mark of deletes.  Then notes,
        and the calls that follow.

    Raises:
        InvalidArgument: *frame* is no table, or a stream.

    Cost: three passes over the table, whatever the number of its columns; nothing but counts is collected.

    >>> from cdckit.tables import profile
    >>> log = session().createDataFrame(
    ...     [(1, "kettle", "31.1.2024"), (1, "teapot", "1.2.2024"), (2, "mug", "31.1.2024"), (2, "", "x")],
    ...     "id int, name string, at string",
    ... )
    >>> profile(log)
    column  type    nulls  empty  distinct  example   can be
    id      int     0      0      2         1         key
    name    string  0      1      4         kettle
    at      string  0      0      3         1.2.2024  time: try_to_timestamp(at, 'd.M.yyyy'), no zone said
    (4 rows, 0 equal to another; distinct values are estimated)
    Rejects under the first call: 1 TIME_UNREADABLE; `rejects(table_rows(frame, …))` shows them.
    changes_from(frame, keys=['id'], effective="try_to_timestamp(at, 'd.M.yyyy')", except_column_list=['at'])
    """
    pandas = frame if isinstance(frame, pd.DataFrame) else None
    made = [] if pandas is None else [str(name) for name, values in pandas.items() if _is_made_float(values)]
    table = as_table(frame, keys=made).typed()
    require_batch(table.frame, "frame", "profile a batch of it")
    kinds = {name: table.frame.schema[name].dataType for name in table.columns if name != CORRUPT}
    with describe_step(table.frame.sparkSession, "profile"):
        rows, columns = _columns(table.frame, kinds)
        times = [column for column in columns if column.readings]
        # Numbers may be anything: they count as times only where nothing else does.
        times = [column for column in times if not _is_number(kinds[column.name])] or times
        parts = [column.name for column in columns if _can_be_part(column, kinds[column.name], times, rows)]
        repeated, keys = _keys(table.frame, kinds, parts, [column.name for column in times], rows)
        flags = [column for column in columns if column.deletes]
        notes = _notes(columns, times, keys, rows)
        arguments = _arguments(keys, times, flags) if rows else []
        words, lost = "frame", [column.name for column in times if column.name in made]
        if pandas is not None:
            frame = pandas = pandas.reset_index(drop=True)  # of an index it is told once
        if pandas is not None and lost:
            frame, words = pandas.convert_dtypes(), "frame.convert_dtypes()"
            note = "whole numbers of which empty cells make floats"
            notes.insert(0, f"{', '.join(lost)}: {note}; {words} mends it.")
        refused = _count_rejects(frame, arguments[0]) if arguments else {}
    if refused:
        counts = ", ".join(f"{many:,} {code}" for code, many in refused.items())
        notes.append(f"Rejects under the first call: {counts}; `rejects(table_rows(frame, …))` shows them.")
    if len(arguments) > _MOST_CALLS:
        notes.append(f"The first {_MOST_CALLS} of {len(arguments)} calls that would do:")
    calls = tuple(_call(words, options) for options in arguments[:_MOST_CALLS])
    shown = tuple(_with_uses(column, kinds[column.name], keys, rows) for column in columns)
    return Profile(rows, repeated, shown, tuple(notes), calls, refused)


def _is_made_float(values: pd.Series) -> bool:
    return bool(values.isna().any()) and are_made_floats(values)


def _is_number(kind: T.DataType) -> bool:
    return isinstance(kind, T.IntegralType)


def _columns(frame: DataFrame, kinds: Mapping[str, T.DataType]) -> tuple[int, list[ColumnProfile]]:
    """Count the rows, and what stands in each column: one pass."""
    cells = F.struct(
        *(_cell(name, kind).alias(str(place)) for place, (name, kind) in enumerate(kinds.items()))
    )
    # What is exploded is worked out once for each row, and not wherever a count reads it.
    once = frame.select(F.explode(F.array(cells)).alias("cells"))
    facts = (_facts(f"cells.{place}", kind).alias(str(place)) for place, kind in enumerate(kinds.values()))
    (row,) = once.agg(F.count("*").alias("rows"), *facts).collect()
    rows = row["rows"]
    return rows, [
        _column(name, kind, rows, row[str(place)].asDict())
        for place, (name, kind) in enumerate(kinds.items())
    ]


def _count_distinct(values: Column) -> Column:
    """
    Count the distinct values, to a hundredth.

    By a sketch: `approx_count_distinct` has 1,600 numbers in its state, and Spark writes code for each.
    """
    # A sketch passes over empty texts.
    hashes = F.when(values.isNotNull(), F.xxhash64(values))
    return F.coalesce(F.hll_sketch_estimate(F.hll_sketch_agg(hashes, F.lit(_SKETCH))), F.lit(0))


def _cell(name: str, kind: T.DataType) -> Column:
    """Describe a cell: its text, whether it is filled, and how it can be read as a time."""
    column, words, is_text = F.col(quoted(name)), quoted_if_needed(name), isinstance(kind, TEXTS)
    text = as_text(column, kind)
    trimmed = F.trim(text) if is_text else text
    instant, none = as_instant(column, kind) if is_text else None, F.array().cast("array<string>")
    ways = none
    if is_text or _is_number(kind):
        readings = reading_expressions(trimmed, words if is_text else f"cast({words} as string)")
        # A long text is no time, and need not be tried.
        ways = F.when(F.length(trimmed) <= _WIDTH, readings).otherwise(none)
    return F.struct(
        text.alias("text"),
        trimmed.alias("trimmed"),
        F.coalesce(trimmed != "", F.lit(False)).alias("filled"),
        column.isNull().alias("null"),
        (F.lit(False) if instant is None else instant.isNotNull()).alias("iso"),
        ways.alias("ways"),
    )


def _facts(cell: str, kind: T.DataType) -> Column:
    part = F.col(cell).getField
    text, filled, ways, word = part("text"), part("filled"), part("ways"), F.lower(part("trimmed"))
    unknown = filled & ~part("iso")
    facts = {
        "nulls": F.count_if(part("null")),
        "empty": F.count_if(~part("null") & ~filled),
        "distinct": _count_distinct(text),
        "example": F.min(F.when(filled, F.substring(text, 1, _WIDTH + 1))),
    }
    if isinstance(kind, TEXTS) or _is_number(kind):
        facts |= {
            "iso": F.count_if(filled & part("iso")),
            "ways": F.collect_set(F.when(unknown & (F.size(ways) > 0), ways)),
            "other": F.count_if(unknown & (F.size(ways) == 0)),
            "zoned": F.count_if(filled & part("trimmed").rlike(_ZONE)),
            "numbers": F.count_if(word.rlike(_NUMBER)),
            "decimals": F.count_if(word.rlike(_DECIMAL)),
            "deletes": F.collect_set(F.when(word.isin(*_DELETES), text)),
            "operations": F.count_if(word.isin(*_OPERATIONS)),
        }
    return F.struct(*(fact.alias(name) for name, fact in facts.items()))


def _column(name: str, kind: T.DataType, rows: int, facts: Mapping[str, Any]) -> ColumnProfile:
    """A column by its facts, with what it can be but for a key and a source."""
    filled, words = rows - facts["nulls"] - facts["empty"], quoted_if_needed(name)
    readings: tuple[str, ...] = (words,) if is_time(kind) and filled else ()
    deletes: tuple[str, ...] = ()
    can_be = [f"time: {words}"] if readings else []
    # What is not even half of times holds something else; so do numbers that are not nearly all of them.
    share = 2 if isinstance(kind, TEXTS) else _NEARLY_ALL
    if "ways" in facts and filled:
        if facts["other"] * share <= filled:
            readings = _readings(name, facts["iso"], [[*ways] for ways in facts["ways"]])
        if readings:
            zone_notes = {0: ", no zone said", filled - facts["other"]: ", zones said"}
            zones = zone_notes.get(facts["zoned"], ", some say a zone") if isinstance(kind, TEXTS) else ""
            doubt = "perhaps " if _is_number(kind) else ""
            can_be.append(f"{doubt}time: {' or '.join(readings)}{zones}")
        # A comma before three digits alone may part thousands.
        if facts["decimals"] and facts["numbers"] * 2 >= filled:
            number = f"try_cast(replace(replace({words}, '.', ''), ',', '.') as double)"
            can_be.append(f"number with a decimal comma: {number}")
        if facts["operations"] == filled and facts["deletes"]:
            deletes = tuple(sorted(facts["deletes"]))
            can_be.append(f"marks deletes by {', '.join(deletes)}")
    counts = facts["nulls"], facts["empty"], min(facts["distinct"], rows)
    return ColumnProfile(
        name, kind.simpleString(), *counts, facts["example"], readings, deletes, tuple(can_be)
    )


def _readings(name: str, iso: int, ways_of_texts: list[list[str]]) -> tuple[str, ...]:
    """The expressions of which each reads all that can be read; none where no order of readings is sure."""
    words = quoted_if_needed(name)
    plain = [
        [way.replace(f"try_cast(cast({words} as string) as bigint)", words) for way in ways]
        for ways in ways_of_texts
    ]
    if not plain:
        return (words,) if iso else ()
    common = [[way] for way in plain[0] if all(way in ways for ways in plain)]
    if not common and all(len(ways) == 1 for ways in plain):
        # Each text has one reading alone, so no order of them reads one wrongly.
        common = [sorted({way for ways in plain for way in ways})]
    if iso:
        common = [[f"try_to_timestamp({words})", *ways] for ways in common]
    return tuple(ways[0] if len(ways) == 1 else f"coalesce({', '.join(ways)})" for ways in common)


def _can_be_part(column: ColumnProfile, kind: T.DataType, times: Sequence[ColumnProfile], rows: int) -> bool:
    """Tell whether a column may belong to a key: of a type with an exact text, filled, and nothing else."""
    exact = not isinstance(kind, (*UNFIT_KEYS, T.BooleanType)) and not is_collated(kind)
    is_free = column not in times and (not column.can_be or bool(column.readings))
    return exact and rows > 0 and (column.nulls + column.empty) * 10 <= rows and is_free


def _keys(
    frame: DataFrame, kinds: Mapping[str, T.DataType], parts: Sequence[str], times: Sequence[str], rows: int
) -> tuple[int, list[tuple[str, ...]]]:
    """Find how many rows repeat another one, and which columns, with the times, tell rows apart: one pass."""
    text = {name: as_text(F.col(quoted(name)), kind) for name, kind in kinds.items()}

    def places(names: Iterable[str]) -> Column:
        # JSON leaves out nulls, and keeps the names of all others.
        return F.xxhash64(F.to_json(F.struct(*(text[name].alias(str(n)) for n, name in enumerate(names)))))

    sets = [(name,) for name in parts] + [*combinations(parts[:_MOST_PARTS], 2)]
    counts = [_count_distinct(places([*key, *times])) for key in sets]
    (row,) = frame.agg(F.count_distinct(places(kinds)), *counts).collect()
    whole, *several = row
    unique = [key for key, many in zip(sets, several, strict=True) if many >= whole * _NEARLY]
    alone = {key for key in unique if len(key) == 1}
    keys = [key for key in unique if len(key) == 1 or not any((part,) in alone for part in key)]
    return rows - whole, sorted(keys, key=lambda key: not _is_called_key(key))


def _is_called_key(key: Sequence[str]) -> bool:
    return all(map(_LIKE_A_KEY.search, key))


def _notes(
    columns: Sequence[ColumnProfile],
    times: Sequence[ColumnProfile],
    keys: Sequence[tuple[str, ...]],
    rows: int,
) -> list[str]:
    """Say what the table does not say, and only its owner can know."""
    if not rows:
        return ["The table has no rows, so nothing but its types is known."]
    notes = []
    if len(times) > 1:
        notes.append(
            f"{', '.join(column.name for column in times)} are times: which of them says since when a row is "
            "true (effective), and whether another says when it was entered (sequence_by, beside effective) "
            "or until when it is true (valid_to, beside valid_from), only you know."
        )
    elif not times:
        notes.append(
            "No column is a time: rows are true since 1970, which stands for a time that nobody said.  "
            "`changes_from_snapshots` and `Ledger.apply_list` are told when a full list was taken."
        )
    if len(keys) > 1:
        listed = ", ".join("+".join(key) for key in keys)
        notes.append(f"{listed} can each be the key: which columns say what a row is about, only you know.")
    elif not keys:
        notes.append("No column, and no two, tell the rows apart: say the keys yourself.")
    alone = [key[0] for key in keys if len(key) == 1 and _is_called_key(key)]
    if times and any(column.name in alone and column.distinct >= rows * _NEARLY for column in columns):
        notes.append("Each row has its own key: if this is a full list, `Ledger.apply_list` takes it.")
    return notes


def _may_be_grades(column: ColumnProfile) -> bool:
    """A letter may be a grade as well as an operation."""
    return max(map(len, column.deletes)) == 1


def _arguments(
    keys: Sequence[tuple[str, ...]], times: Sequence[ColumnProfile], flags: Sequence[ColumnProfile]
) -> list[dict[str, Any]]:
    """The arguments of each call that would do: what says the time or the operation is no field."""
    keys = [key for key in keys if _is_called_key(key)] or keys
    ways: list[tuple[str, str] | None] = [(time.name, way) for time in times for way in time.readings]
    marks: list[ColumnProfile | None] = [flags[0]] if len(flags) == 1 else [None]
    marks += [None] if marks[0] is not None and _may_be_grades(marks[0]) else []
    calls = []
    for key, time, mark in product(keys, ways or [None], marks):
        arguments: dict[str, Any] = {"keys": [*key]}
        if time is not None:
            arguments["effective"] = time[1]
        if mark is not None:
            words = ", ".join(f"'{word}'" for word in mark.deletes)
            arguments["apply_as_deletes"] = f"{quoted_if_needed(mark.name)} in ({words})"
        apart = [*(time[:1] if time else ()), *([mark.name] if mark else [])]
        calls.append(arguments | ({"except_column_list": apart} if apart else {}))
    return calls


def _call(frame: str, arguments: Mapping[str, Any]) -> str:
    return f"changes_from({frame}, {', '.join(f'{name}={value!r}' for name, value in arguments.items())})"


def _count_rejects(frame: AnyTable, arguments: Mapping[str, Any]) -> dict[str, int]:
    """Count by code how many rows the call would refuse: one pass."""
    refused = table_rows(frame, **arguments).where(F.col(ERROR_CODE).isNotNull())
    return dict(sorted(map(tuple, refused.groupBy(ERROR_CODE).count().collect())))


def _with_uses(
    column: ColumnProfile, kind: T.DataType, keys: Sequence[tuple[str, ...]], rows: int
) -> ColumnProfile:
    """The column, with whether it can be a key, or name sources."""
    few = isinstance(kind, TEXTS) and 0 < column.distinct <= _MOST_SOURCES and column.distinct * 3 <= rows
    is_part = any(len(key) > 1 and column.name in key for key in keys)
    key = ["key"] * ((column.name,) in keys) + ["part of a key"] * is_part
    source = ["source"] * (few and not column.can_be)
    return column._replace(can_be=(*key, *column.can_be, *source))


def _cut(text: str | None) -> str:
    return "NULL" if text is None else text if len(text) <= _WIDTH else text[:_WIDTH] + "…"
