"""What a table looks like before changes are made of it, and the call of `changes_from` that follows."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from html import escape
from itertools import combinations, product
from typing import Any, NamedTuple

import pandas as pd
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.model.faults import ERROR_CODE
from cdckit.model.list_comparison import CORRUPT
from cdckit.notebook.tables import Cell, Grid, Table, html_text
from cdckit.parts.argument_forms import takes
from cdckit.parts.arguments import quoted, quoted_if_needed, require_batch, with_number
from cdckit.parts.job_descriptions import describe_step
from cdckit.parts.tables import AnyTable, are_made_floats
from cdckit.parts.values import as_text, is_collated
from cdckit.tables.from_rows import table_rows
from cdckit.tables.table_arguments import UNFIT_KEYS, as_table
from cdckit.tables.times import TEXTS, as_instant, is_time, reading_expressions

_WIDTH = 40
_ITSELF = "\0"
"""Stands for a column in the expressions that read it."""
_DELETES = ("d", "del", "delete", "deleted")
_OPERATIONS = (*_DELETES, "i", "u", "c", "r", "insert", "update", "upsert", "create", "read")
_ZONE = r"(Z|[+-]\d{2}:?\d{2}| [A-Za-z]+/[\w/+-]+|UTC|GMT)$"
_NUMBER = r"^[+-]?(\d{1,3}(\.\d{3})+|\d+)(,\d+)?$"
# A comma before three digits alone may part thousands.
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
    columns = list(frame.items()) if isinstance(frame, pd.DataFrame) else []
    floats = [str(name) for name, values in columns if values.isna().any() and are_made_floats(values)]
    table = as_table(frame, keys=floats).typed()
    require_batch(table.frame, "frame", "profile a batch of it")
    with describe_step(table.frame.sparkSession, "profile"):
        survey = _Survey(table.frame.select(*map(quoted, table.columns)))
    words = "frame.convert_dtypes()" if any(name in floats for name in survey.times) else "frame"
    written = [", ".join(f"{name}={value!r}" for name, value in call.items()) for call in survey.calls]
    calls = tuple(f"changes_from({words}, {arguments})" for arguments in written[:_MOST_CALLS])
    shown, notes = map(survey.with_uses, survey.columns), survey.notes(floats)
    return Profile(survey.rows, survey.repeated, tuple(shown), tuple(notes), calls, survey.rejects)


class _Survey:
    """A table, what three passes over it tell, and what follows from that."""

    def __init__(self, frame: DataFrame) -> None:
        self.frame = frame
        self.kinds = {field.name: field.dataType for field in frame.schema if field.name != CORRUPT}
        self.texts = {name: as_text(F.col(quoted(name)), kind) for name, kind in self.kinds.items()}
        facts = self._facts()
        self.rows = facts[0]["rows"] if facts else 0
        self.columns = [self._column(name, facts.get(place)) for place, name in enumerate(self.kinds, 1)]
        times = {column.name: column.readings for column in self.columns if column.readings}
        # Numbers may be anything: they count as times only where nothing else does.
        self.times = {name: times[name] for name in times if not self._is_number(name)} or times
        self.repeated, self.keys = self._repeated_and_keys()
        self.calls = self._calls() if self.rows else []
        self.rejects = self._rejects() if self.calls else {}

    def _facts(self) -> dict[int, Row]:
        """What stands in the cells of each column, by its place from 1 on; at 0 is the row itself."""
        texts = enumerate([F.lit(""), *self.texts.values()])
        cells = F.array(*(F.struct(F.lit(n).alias("column"), text.alias("text")) for n, text in texts))
        text, trimmed, ways = map(F.col, ("text", "trimmed", "ways"))
        none = F.array().cast("array<string>")
        # A long text is no time, and need not be tried.
        forms = F.when(F.length(trimmed) <= _WIDTH, reading_expressions(trimmed, _ITSELF)).otherwise(none)
        instant = as_instant(trimmed, T.StringType())
        assert instant is not None
        read = F.when(instant.isNotNull(), F.array(F.lit(_ITSELF))).otherwise(forms)
        rows = self.frame.select(F.explode(cells).alias("cell")).select(
            "cell.*", F.trim("cell.text").alias("trimmed")
        )
        counts = rows.withColumn("ways", F.when(trimmed != "", read)).groupBy("column").agg(
            F.count("*").alias("rows"),
            F.count_if(text.isNull()).alias("nulls"),
            F.count_if(trimmed == "").alias("empty"),
            _count_distinct(text).alias("distinct"),
            F.min(F.when(trimmed != "", F.substring(text, 1, _WIDTH + 1))).alias("example"),
            F.collect_set(F.when(F.size(ways) > 0, ways)).alias("ways"),
            F.count_if(F.size(ways) == 0).alias("no_times"),
            F.count_if(trimmed.rlike(_ZONE)).alias("zoned"),
            F.count_if(trimmed.rlike(_NUMBER)).alias("numbers"),
            F.count_if(trimmed.rlike(_DECIMAL)).alias("decimals"),
            F.collect_set(F.when(F.lower(trimmed).isin(*_DELETES), text)).alias("deletes"),
            F.count_if(F.lower(trimmed).isin(*_OPERATIONS)).alias("operations"),
        )  # fmt: skip
        return {row["column"]: row for row in counts.collect()}

    def _column(self, name: str, facts: Row | None) -> ColumnProfile:
        """A column, with what it can be but for a key and a source; without facts there are no rows."""
        kind, words = self.kinds[name].simpleString(), quoted_if_needed(name)
        if facts is None:
            return ColumnProfile(name, kind, 0, 0, 0, None)
        filled = self.rows - facts["nulls"] - facts["empty"]
        readings = self._readings(name, facts, filled)
        deletes: tuple[str, ...] = ()
        can_be: list[str] = []
        if readings:
            doubt = "perhaps " if self._is_number(name) else ""
            notes = {0: ", no zone said", filled - facts["no_times"]: ", zones said"}
            zones = notes.get(facts["zoned"], ", some say a zone") if self._is_text(name) else ""
            can_be.append(f"{doubt}time: {' or '.join(readings)}{zones}")
        if facts["decimals"] and facts["numbers"] * 2 >= filled:
            number = f"try_cast(replace(replace({words}, '.', ''), ',', '.') as double)"
            can_be.append(f"number with a decimal comma: {number}")
        if facts["deletes"] and facts["operations"] == filled:
            deletes = tuple(sorted(facts["deletes"]))
            can_be.append(f"marks deletes by {', '.join(deletes)}")
        counts = facts["nulls"], facts["empty"], min(facts["distinct"], self.rows)
        return ColumnProfile(name, kind, *counts, facts["example"], readings, deletes, tuple(can_be))

    def _readings(self, name: str, facts: Row, filled: int) -> tuple[str, ...]:
        """The expressions of which each reads all that can be read; none where their order is not sure."""
        words = quoted_if_needed(name)
        if is_time(self.kinds[name]):
            return (words,) if filled else ()
        # What is not even half of times holds something else; so do numbers that are not nearly all of them:
        # 1012024 may be 01.01.2024.
        share = 2 if self._is_text(name) else 20 if self._is_number(name) else None
        if share is None or not facts["ways"] or facts["no_times"] * share > filled:
            return ()
        forms = [ways for ways in facts["ways"] if ways != [_ITSELF]]
        if not forms:
            return (words,)
        common = [[way] for way in forms[0] if all(way in ways for ways in forms)]
        if not common and all(len(ways) == 1 for ways in forms):
            # Each text has one reading alone, so no order of them reads one wrongly.
            common = [sorted({way for ways in forms for way in ways})]
        if len(forms) < len(facts["ways"]):
            common = [[f"try_to_timestamp({_ITSELF})", *ways] for ways in common]
        read = [ways[0] if len(ways) == 1 else f"coalesce({', '.join(ways)})" for ways in common]
        if self._is_number(name):
            read = [way.replace(f"try_cast({_ITSELF} as bigint)", words) for way in read]
            words = f"cast({words} as string)"
        return tuple(way.replace(_ITSELF, words) for way in read)

    def _is_text(self, name: str) -> bool:
        return isinstance(self.kinds[name], TEXTS)

    def _is_number(self, name: str) -> bool:
        return isinstance(self.kinds[name], T.IntegralType)

    def _repeated_and_keys(self) -> tuple[int, list[tuple[str, ...]]]:
        """How many rows repeat another one, and which columns, with the times, tell rows apart."""

        def digest(names: Iterable[str]) -> Column:
            # JSON leaves out nulls, and keeps the names of all others.
            return F.xxhash64(F.to_json(F.struct(*(self.texts[name].alias(name) for name in names))))

        parts = [column.name for column in self.columns if self._may_be_part(column)]
        sets = [*combinations(parts, 1), *combinations(parts[:_MOST_PARTS], 2)]
        counts = [_count_distinct(digest([*key, *self.times])) for key in sets]
        (row,) = self.frame.agg(F.count_distinct(digest(self.kinds)), *counts).collect()
        whole, *several = row
        unique = [key for key, many in zip(sets, several, strict=True) if many >= whole * _NEARLY]
        alone = {key[0] for key in unique if len(key) == 1}
        keys = [key for key in unique if len(key) == 1 or alone.isdisjoint(key)]
        return self.rows - whole, sorted(keys, key=lambda key: not _is_called_key(key))

    def _may_be_part(self, column: ColumnProfile) -> bool:
        """Tell whether a column may belong to a key: its type has an exact text, and it is filled."""
        kind = self.kinds[column.name]
        is_exact = not isinstance(kind, (*UNFIT_KEYS, T.BooleanType)) and not is_collated(kind)
        is_filled = self.rows > 0 and (column.nulls + column.empty) * 10 <= self.rows
        is_free = column.name not in self.times and (not column.can_be or bool(column.readings))
        return is_exact and is_filled and is_free

    def _calls(self) -> list[dict[str, Any]]:
        """The arguments of each call that would do: what says the time or the operation is no field."""
        keys = [key for key in self.keys if _is_called_key(key)] or self.keys
        ways: list[Any] = [(name, way) for name, ways in self.times.items() for way in ways]
        marks: list[Any] = [column for column in self.columns if column.deletes]
        marks = marks if len(marks) == 1 else [None]
        if marks[0] is not None and max(map(len, marks[0].deletes)) == 1:
            marks.append(None)  # a letter may be a grade as well as an operation
        calls = []
        for key, way, mark in product(keys, ways or [None], marks):
            call: dict[str, Any] = {"keys": [*key]}
            if way is not None:
                call["effective"] = way[1]
            if mark is not None:
                deletes = ", ".join(f"'{word}'" for word in mark.deletes)
                call["apply_as_deletes"] = f"{quoted_if_needed(mark.name)} in ({deletes})"
            if way is not None or mark is not None:
                call["except_column_list"] = [part[0] for part in (way, mark) if part is not None]
            calls.append(call)
        return calls

    def _rejects(self) -> dict[str, int]:
        """Count by code how many rows the first call would refuse."""
        refused = table_rows(self.frame, **self.calls[0]).where(F.col(ERROR_CODE).isNotNull())
        return dict(sorted(map(tuple, refused.groupBy(ERROR_CODE).count().collect())))

    def notes(self, floats: Collection[str]) -> Iterator[str]:
        """Say what the table does not say, and only its owner can know."""
        times, keys = list(self.times), self.keys
        if not self.rows:
            yield "The table has no rows, so nothing but its types is known."
            return
        if lost := ", ".join(name for name in times if name in floats):
            yield f"{lost}: whole numbers of which empty cells make floats; frame.convert_dtypes() mends it."
        if len(times) > 1:
            yield (
                f"{', '.join(times)} are times: which of them says since when a row is true (effective), "
                "and whether another says when it was entered (sequence_by, beside effective) or until when "
                "it is true (valid_to, beside valid_from), only you know."
            )
        if not times:
            yield (
                "No column is a time: rows are true since 1970, which stands for a time that nobody said.  "
                "`changes_from_snapshots` and `Ledger.apply_list` are told when a full list was taken."
            )
        if len(keys) > 1:
            listed = ", ".join("+".join(key) for key in keys)
            yield f"{listed} can each be the key: which columns say what a row is about, only you know."
        if not keys:
            yield "No column, and no two, tell the rows apart: say the keys yourself."
        many = [column.name for column in self.columns if column.distinct >= self.rows * _NEARLY]
        if times and any((name,) in keys and _is_called_key([name]) for name in many):
            yield "Each row has its own key: if this is a full list, `Ledger.apply_list` takes it."
        if self.rejects:
            counts = ", ".join(f"{number:,} {code}" for code, number in self.rejects.items())
            yield f"Rejects under the first call: {counts}; `rejects(table_rows(frame, …))` shows them."
        if len(self.calls) > _MOST_CALLS:
            yield f"The first {_MOST_CALLS} of {len(self.calls)} calls that would do:"

    def with_uses(self, column: ColumnProfile) -> ColumnProfile:
        """The column, with whether it can be a key, or name sources."""
        is_part = any(len(key) > 1 and column.name in key for key in self.keys)
        is_few = 0 < column.distinct <= _MOST_SOURCES and column.distinct * 3 <= self.rows
        uses = ["key"] * ((column.name,) in self.keys) + ["part of a key"] * is_part
        is_source = self._is_text(column.name) and is_few and not column.can_be
        return column._replace(can_be=(*uses, *column.can_be, *["source"] * is_source))


def _is_called_key(key: Iterable[str]) -> bool:
    return all(map(_LIKE_A_KEY.search, key))


def _count_distinct(values: Column) -> Column:
    """
    Count the distinct values, to a hundredth.

    By a sketch: `approx_count_distinct` has 1,600 numbers in its state, and Spark writes code for each.
    """
    # A sketch passes over empty texts.
    hashes = F.when(values.isNotNull(), F.xxhash64(values))
    return F.coalesce(F.hll_sketch_estimate(F.hll_sketch_agg(hashes, F.lit(_SKETCH))), F.lit(0))


def _cut(text: str | None) -> str:
    return "NULL" if text is None else text if len(text) <= _WIDTH else text[:_WIDTH] + "…"
