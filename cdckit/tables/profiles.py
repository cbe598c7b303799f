"""What a table looks like before changes are made of it, and the call of `changes_from` that follows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import combinations, permutations, product
from typing import Any, NamedTuple

import pandas as pd
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.model.records import ERROR_CODE
from cdckit.notebook.tables import Cell, Grid
from cdckit.notebook.tables import Table as ShownTable
from cdckit.parts.arguments import quoted, quoted_if_needed, require_batch
from cdckit.parts.tables import AnyTable, are_made_floats
from cdckit.parts.values import as_text, is_collated
from cdckit.parts.workers import describe_step
from cdckit.tables.calls import UNFIT_KEYS, as_table
from cdckit.tables.from_rows import CORRUPT, describe_rows, table_rows
from cdckit.tables.times import TEXTS, as_instant, is_time, reading_expressions

_FUNCTION = "profile"
_WIDTH = 40
_NEARLY_ALL = 20
"""Numbers are times where no more than one in so many cannot be read: 1012024 may be 01.01.2024."""
_DELETES = ("d", "del", "delete", "deleted")
_OPERATIONS = (*_DELETES, "i", "u", "c", "r", "insert", "update", "upsert", "create", "read")
_ZONE = r"(Z|[+-]\d{2}:?\d{2}| [A-Za-z]+/[\w/+-]+|UTC|GMT)$"
_WHOLE = r"^[+-]?(\d{1,3}(\.\d{3})+|\d+)$"
_COMMA = r"^[+-]?(\d{1,3}(\.\d{3})+|\d+),\d+$"
_DECIMAL = r"^[+-]?(\d{1,3}(\.\d{3})+,\d+|\d+,(\d\d?|\d{4,}))$"
_NUMBER = "try_cast(replace(replace({}, '.', ''), ',', '.') as double)"
# An estimate is off by a hundredth; what tells 97 of 100 rows apart may well tell all.
_SKETCH, _NEARLY = 14, 0.97
# Of what could be the key, what is called so goes into the calls; a note has all.
_LIKE_A_KEY = re.compile(r"(^|_)(?i:id|key|no|nr|code)$|[a-z]I[dD]$")
_MOST_SOURCES = 20
_MOST_PARTS = 6
_MOST_CALLS = 6


class ColumnProfile(NamedTuple):
    """
    What stands in a column.

    `distinct` is an estimate, off by a hundredth or two.  `readings` are the expressions that read all of it
    as times (what cannot be read at all left out): several where it can be read in several ways.  `zones`
    says of texts that are times whether they say a zone.  `deletes` are the words in it for a delete.
    `number` is the expression that reads its texts as numbers, where some have a comma in them.

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
    zones: str = ""
    deletes: tuple[str, ...] = ()
    number: str = ""
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
        return "\n".join([repr(self._table()), *self.notes, *self.calls])

    def _repr_html_(self) -> str:
        notes = "".join(f"<li>{escape(note)}</li>" for note in self.notes)
        calls = escape("\n".join(self.calls))
        return f"{self._table()._repr_html_()}<ul>{notes}</ul><pre>{calls}</pre>"

    def _table(self) -> ShownTable:
        headings = ["column", "type", "nulls", "empty", "distinct", "example", "can be"]
        rows = [
            [
                *map(
                    Cell, (each.name, each.type, f"{each.nulls:,}", f"{each.empty:,}", f"{each.distinct:,}")
                ),
                Cell(_cut(each.example)),
                Cell("; ".join(each.can_be)),
            ]
            for each in self.columns
        ]
        numbers = [heading in ("nulls", "empty", "distinct") for heading in headings]
        caption = (
            f"{describe_rows(self.rows)}, {self.repeated:,} equal to another; distinct values are estimated"
        )
        grid = Grid([*map(Cell, headings)], numbers, rows, [False] * len(rows), caption)
        return ShownTable(lambda: grid)


def profile(frame: AnyTable) -> Profile:
    """
    Say what stands in a table, and how `changes_from` could read it.

    What the data alone cannot decide is not guessed: where a column of times, or a key, can be read in two
    ways, there are two calls, and a note says so.

    Args:
        frame: As for `changes_from`.

    Returns:
        For each column its type, nulls, empty texts, distinct values and an example, and what it can be: a
        key, a source, a time (and by which expression), a column that marks deletes.  Then notes, and the
        calls that follow.

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
    at: no zone said; without one UTC is meant, else use to_utc_timestamp.
    name has empty texts (1): empty_texts says what they mean.
    Rejects under the first call: 1 TIME_UNREADABLE; `rejects(table_rows(frame, …))` shows them.
    changes_from(frame, keys=['id'], effective="try_to_timestamp(at, 'd.M.yyyy')", except_column_list=['at'])
    """
    table, words = as_table(frame, function=_FUNCTION), "frame"
    pandas = table.pandas
    floats = [] if pandas is None else [str(each) for each in pandas.columns if _is_made_float(pandas[each])]
    if pandas is not None:  # an index is told once
        frame = pandas = pandas.reset_index(drop=True)
    table = as_table(frame, function=_FUNCTION, keys=floats).typed()
    require_batch(table.frame, "frame", "profile a batch of it", function=_FUNCTION)
    names = [name for name in table.columns if name != CORRUPT]
    kinds = {name: table.frame.schema[name].dataType for name in names}
    with describe_step(table.frame.sparkSession, "profile"):
        rows, columns = _columns(table.frame, kinds)
        times = [each for each in columns if each.readings]
        # Numbers may be anything: they count as times only where nothing else does.
        times = [each for each in times if not _is_number(kinds[each.name])] or times
        parts = [each.name for each in columns if _can_be_part(each, kinds[each.name], times, rows)]
        repeated, keys = _keys(table.frame, kinds, parts, [each.name for each in times], rows)
        arguments, notes = _arguments(columns, kinds, times, keys, rows)
        floats = [each.name for each in times if each.name in floats]
        if floats:
            assert pandas is not None
            frame, words = pandas.convert_dtypes(), "frame.convert_dtypes()"
            listed = ", ".join(floats)
            notes.insert(0, f"{listed}: whole numbers of which empty cells make floats; {words} mends it.")
        notes = [*_number_notes(columns, is_pandas=pandas is not None), *notes]
        refused = _count_rejects(frame, arguments[0]) if arguments else {}
    if refused:
        counts = ", ".join(f"{many:,} {code}" for code, many in refused.items())
        notes.append(f"Rejects under the first call: {counts}; `rejects(table_rows(frame, …))` shows them.")
    if len(arguments) > _MOST_CALLS:
        notes.append(f"The first {_MOST_CALLS} of {len(arguments)} calls that would do:")
    calls = tuple(_call(words, each) for each in arguments[:_MOST_CALLS])
    shown = tuple(each._replace(can_be=_can_be(each, kinds[each.name], keys, rows)) for each in columns)
    return Profile(rows, repeated, shown, tuple(notes), calls, refused)


def _is_made_float(values: pd.Series) -> bool:
    return bool(values.isna().any()) and are_made_floats(values)


def _columns(frame: DataFrame, kinds: Mapping[str, T.DataType]) -> tuple[int, list[ColumnProfile]]:
    """How many rows there are, and what stands in each column: one pass."""
    cells = F.struct(
        *(_cell(name, kind).alias(str(place)) for place, (name, kind) in enumerate(kinds.items()))
    )
    # What is exploded is worked out once for each row, and not wherever a count reads it.
    once = frame.select(F.explode(F.array(cells)).alias("cells"))
    facts = (F.struct(*_facts(f"cells.{n}", kind)).alias(str(n)) for n, kind in enumerate(kinds.values()))
    (found,) = once.agg(F.count("*").alias("rows"), *facts).collect()
    return found["rows"], [
        _column(name, kind, found["rows"], found[str(place)].asDict())
        for place, (name, kind) in enumerate(kinds.items())
    ]


def _count_distinct(values: Column) -> Column:
    """
    How many distinct values there are, to a hundredth.

    By a sketch: `approx_count_distinct` has 1,600 numbers in its state, and Spark writes code for each.
    """
    # A sketch passes over empty texts.
    hashes = F.when(values.isNotNull(), F.xxhash64(values))
    return F.coalesce(F.hll_sketch_estimate(F.hll_sketch_agg(hashes, F.lit(_SKETCH))), F.lit(0))


def _may_be_time(kind: T.DataType) -> bool:
    return isinstance(kind, (*TEXTS, T.IntegralType))


def _cell(name: str, kind: T.DataType) -> Column:
    """What a cell is: its text, whether it is filled, and how it can be read as a time."""
    column, is_text = F.col(quoted(name)), isinstance(kind, TEXTS)
    text = as_text(column, kind)
    trimmed = F.trim(text) if is_text else text
    filled = F.coalesce(trimmed != "", F.lit(False)) if is_text else column.isNotNull()
    cell = [
        text.alias("text"),
        trimmed.alias("trimmed"),
        filled.alias("filled"),
        column.isNull().alias("null"),
    ]
    if _may_be_time(kind):
        words = quoted_if_needed(name)
        ways = reading_expressions(trimmed, words if is_text else f"cast({words} as string)")
        instant = as_instant(column, kind) if is_text else None
        is_iso = F.lit(False) if instant is None else instant.isNotNull()
        # A long text is no time, and need not be tried.
        short = F.when(F.length(trimmed) <= _WIDTH, ways).otherwise(F.array().cast("array<string>"))
        cell += [is_iso.alias("iso"), short.alias("ways")]
    return F.struct(*cell)


def _facts(cell: str, kind: T.DataType) -> list[Column]:
    part = F.col(cell).getField
    text, filled = part("text"), part("filled")
    facts = {
        "nulls": F.count_if(part("null")),
        "empty": F.count_if(~part("null") & ~filled),
        "distinct": _count_distinct(text),
        "example": F.min(F.when(filled, F.substring(text, 1, _WIDTH + 1))),
    }
    if _may_be_time(kind):
        ways, unknown, word = part("ways"), filled & ~part("iso"), F.lower(part("trimmed"))
        facts |= {
            "iso": F.count_if(filled & part("iso")),
            "ways": F.collect_set(F.when(unknown & (F.size(ways) > 0), ways)),
            "other": F.count_if(unknown & (F.size(ways) == 0)),
            "zoned": F.count_if(filled & part("trimmed").rlike(_ZONE)),
            "commas": F.count_if(word.rlike(_COMMA)),
            "decimals": F.count_if(word.rlike(_DECIMAL)),
            "wholes": F.count_if(word.rlike(_WHOLE)),
            "deletes": F.collect_set(F.when(word.isin(*_DELETES), text)),
            "operations": F.count_if(word.isin(*_OPERATIONS)),
        }
    return [fact.alias(fact_name) for fact_name, fact in facts.items()]


def _column(name: str, kind: T.DataType, rows: int, found: Mapping[str, Any]) -> ColumnProfile:
    filled = rows - found["nulls"] - found["empty"]
    known = ColumnProfile(
        name,
        kind.simpleString(),
        found["nulls"],
        found["empty"],
        min(found["distinct"], rows),
        found["example"],
    )
    if is_time(kind):
        return known._replace(readings=(quoted_if_needed(name),) if filled else ())
    # What is not even half of times holds something else; so do numbers that are not nearly all of them.
    share = 2 if isinstance(kind, TEXTS) else _NEARLY_ALL
    if "ways" not in found or found["other"] * share > filled or not filled:
        readings: tuple[str, ...] = ()
    else:
        readings = _readings(name, found["iso"], [[*ways] for ways in found["ways"]])
    zones = ""
    if readings and isinstance(kind, TEXTS):
        zones = {0: "no zone said", filled - found["other"]: "zones said"}.get(
            found["zoned"], "some say a zone"
        )
    number = ""
    # A comma before three digits alone may part thousands.
    if found.get("decimals") and (found["commas"] + found["wholes"]) * 2 >= filled:
        number = _NUMBER.format(quoted_if_needed(name))
    is_operation = filled and found.get("operations") == filled and found["deletes"]
    deletes = tuple(sorted(found["deletes"])) if is_operation else ()
    return known._replace(readings=readings, zones=zones, deletes=deletes, number=number)


def _readings(name: str, iso: int, ways_of_texts: list[list[str]]) -> tuple[str, ...]:
    """The expressions of which each reads all that can be read; none where no order of readings is sure."""
    words = quoted_if_needed(name)
    plain = [
        [way.replace(f"try_cast(cast({words} as string) as bigint)", words) for way in each]
        for each in ways_of_texts
    ]
    if not plain:
        return (words,) if iso else ()
    common = [[way] for way in plain[0] if all(way in each for each in plain)]
    if not common and all(len(each) == 1 for each in plain):
        # Each text has one reading alone, so no order of them reads one wrongly.
        common = [sorted({way for each in plain for way in each})]
    if iso:
        common = [[f"try_to_timestamp({words})", *ways] for ways in common]
    return tuple(ways[0] if len(ways) == 1 else f"coalesce({', '.join(ways)})" for ways in common)


def _is_number(kind: T.DataType) -> bool:
    return isinstance(kind, T.IntegralType)


def _can_be_part(column: ColumnProfile, kind: T.DataType, times: Sequence[ColumnProfile], rows: int) -> bool:
    """Whether a column may belong to a key: of a type with an exact text, filled, no time."""
    exact = not isinstance(kind, (*UNFIT_KEYS, T.BooleanType)) and not is_collated(kind)
    filled = (column.nulls + column.empty) * 10 <= rows and rows > 0
    return exact and filled and column not in times and not column.deletes and not column.number


def _keys(
    frame: DataFrame, kinds: Mapping[str, T.DataType], parts: Sequence[str], times: Sequence[str], rows: int
) -> tuple[int, list[tuple[str, ...]]]:
    """How many rows repeat another one, and which columns, with the times, tell rows apart: one pass."""
    text = {name: as_text(F.col(quoted(name)), kind) for name, kind in kinds.items()}

    def places(names: Iterable[str]) -> Column:
        # JSON leaves out nulls, and keeps the names of all others.
        return F.xxhash64(F.to_json(F.struct(*(text[name].alias(str(n)) for n, name in enumerate(names)))))

    sets = [(name,) for name in parts] + [*combinations(parts[:_MOST_PARTS], 2)]
    counts = [_count_distinct(places([*key, *times])) for key in sets]
    (found,) = frame.agg(F.count_distinct(places(kinds)), *counts).collect()
    whole, *several = found
    unique = [key for key, many in zip(sets, several, strict=True) if many >= whole * _NEARLY]
    alone = {key for key in unique if len(key) == 1}
    keys = [key for key in unique if len(key) == 1 or not any((part,) in alone for part in key)]
    return rows - whole, sorted(keys, key=lambda key: not _is_called_key(key))


def _is_called_key(key: Sequence[str]) -> bool:
    return all(map(_LIKE_A_KEY.search, key))


def _arguments(
    columns: Sequence[ColumnProfile],
    kinds: Mapping[str, T.DataType],
    times: Sequence[ColumnProfile],
    keys: list[tuple[str, ...]],
    rows: int,
) -> tuple[list[dict[str, Any]], list[str]]:
    """The arguments of each call that would do, and what the table does not say."""
    if not rows:
        return [], ["The table has no rows, so nothing but its types is known."]
    notes = []
    for each in times:
        if len(each.readings) > 1:
            notes.append(
                f"{each.name} can be read by {' or by '.join(each.readings)}: the table does not say which."
            )
        if _is_number(kinds[each.name]):
            notes.append(f"{each.name} holds numbers that look like times; whether they are, only you know.")
        if each.zones in ("no zone said", "some say a zone"):
            notes.append(f"{each.name}: {each.zones}; without one UTC is meant, else use to_utc_timestamp.")
    if len(times) > 1:
        listed = ", ".join(each.name for each in times)
        notes.append(
            f"{listed} are times: which of them says since when a row is true (effective), and whether "
            "another says when it was entered (sequence_by, beside effective) or until when it is true "
            "(valid_to, beside valid_from), only you know."
        )
    alone = [key[0] for key in keys if len(key) == 1 and _is_called_key(key)]
    if times and any(each.name in alone and each.distinct >= rows * _NEARLY for each in columns):
        notes.append("Each row has its own key: if this is a full list, `Ledger.apply_list` takes it.")
    if not times:
        notes.append(
            "No column is a time: rows are true since 1970, which stands for a time that nobody said.  "
            "`changes_from_snapshots` and `Ledger.apply_list` are told when a full list was taken."
        )
    if not keys:
        notes.append("No column, and no two, tell the rows apart: say the keys yourself.")
    if len(keys) > 1:
        listed = ", ".join("+".join(key) for key in keys)
        notes.append(f"{listed} can each be the key: which columns say what a row is about, only you know.")
    keys = [key for key in keys if _is_called_key(key)] or keys
    notes += [
        f"{each.name} has empty texts ({each.empty:,}): empty_texts says what they mean."
        for each in columns
        if each.empty
    ]
    flags = [each for each in columns if each.deletes]
    if len(flags) > 1:
        notes.append(
            f"{', '.join(each.name for each in flags)} all name deletes: say which in apply_as_deletes."
        )
    likely = flags[:1] if len(flags) == 1 else []
    marks: list[ColumnProfile | None] = [*likely]
    if not likely or max(map(len, likely[0].deletes)) == 1:
        # A letter may be a grade as well.
        marks.append(None)
        notes += [
            f"{each.name} looks like operations: whether {', '.join(each.deletes)} deletes, only you know."
            for each in likely
        ]
    ways = [(each.name, way) for each in times for way in each.readings]
    readings = [[each] for each in ways] or [[]]
    if len(times) == 2:
        readings = [[*both] for both in permutations(ways, 2) if both[0][0] != both[1][0]] + readings
    return [_one_call(*each) for each in product(keys, readings, marks)], notes


def _number_notes(columns: Sequence[ColumnProfile], *, is_pandas: bool) -> list[str]:
    """How texts become the numbers that they write with a decimal comma."""
    return [
        f"{each.name} holds numbers with a decimal comma, as text: "
        + (
            f'frame[{each.name!r}].str.replace(".", "").str.replace(",", ".").astype(float) '
            "makes numbers of it."
            if is_pandas
            else f'frame.withColumn({each.name!r}, F.expr("{each.number}")) makes numbers of it.'
        )
        for each in columns
        if each.number
    ]


def _one_call(
    key: Sequence[str], times: Sequence[tuple[str, str]], flag: ColumnProfile | None
) -> dict[str, Any]:
    """The arguments of a call: what says the times or the operation is no field."""
    read = zip(("effective", "sequence_by"), (way for _, way in times), strict=False)
    arguments: dict[str, Any] = {"keys": [*key], **dict(read)}
    apart = [name for name, _ in times]
    if flag is not None:
        words = ", ".join(f"'{word}'" for word in flag.deletes)
        arguments["apply_as_deletes"] = f"{quoted_if_needed(flag.name)} in ({words})"
        apart.append(flag.name)
    return arguments | ({"except_column_list": apart} if apart else {})


def _call(frame: str, arguments: Mapping[str, Any]) -> str:
    return f"changes_from({frame}, {', '.join(f'{name}={value!r}' for name, value in arguments.items())})"


def _count_rejects(frame: AnyTable, arguments: Mapping[str, Any]) -> dict[str, int]:
    """By code how many rows the call would refuse: one pass."""
    refused = table_rows(frame, **arguments).where(F.col(ERROR_CODE).isNotNull())
    return dict(sorted(map(tuple, refused.groupBy(ERROR_CODE).count().collect())))


def _can_be(
    column: ColumnProfile, kind: T.DataType, keys: Sequence[tuple[str, ...]], rows: int
) -> tuple[str, ...]:
    """What a column can be, in words."""
    few = isinstance(kind, TEXTS) and 0 < column.distinct <= _MOST_SOURCES and column.distinct * 3 <= rows
    found = {
        "key": (column.name,) in keys,
        "part of a key": any(len(key) > 1 and column.name in key for key in keys),
        f"time: {' or '.join(column.readings)}{column.zones and ', '}{column.zones}": bool(column.readings),
        "number with a decimal comma": bool(column.number),
        f"marks deletes by {', '.join(column.deletes)}": bool(column.deletes),
        "source": few and not column.readings and not column.deletes and not column.number,
    }
    return tuple(words for words, holds in found.items() if holds)


def _cut(text: str | None) -> str:
    return "NULL" if text is None else text if len(text) <= _WIDTH else text[:_WIDTH] + "…"
