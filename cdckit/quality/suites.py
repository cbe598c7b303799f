"""
Suites: what a table promises, one sentence each, and the SQL that finds the rows which break it.

A file may be put into the folder `gx/expectations` of a project of Great Expectations, and runs there: it has
the ids that are wanted of a suite that was saved, and each `description` is the sentence, which the pages
show beside a failure.  An expectation whose `meta` names the `engine` Spark is a query in Spark's SQL; the
tables beside the one that is checked are there views such as `cdckit_merged`.

Great Expectations runs on Spark a job or two for each query of rows, each with its own sort of the table.
Here a query is taken apart where it has the form that the suites of cdckit have, `SELECT * FROM … WHERE …`:
conditions on the same rows are counted together.  What it means is what Great Expectations says it means;
the tests run both on the same rows.

A suite is written for tables of any fields, so it turns rows into arrays or JSON, and goes through these
element by element.  Spark compiles what names columns; lambdas and JSON it interprets, at many times
the cost.
The texts that are replaced are those of the suites of cdckit, whole, so that nothing else is taken for them.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import types as T

from cdckit.errors import InvalidArgument
from cdckit.files import expectations
from cdckit.history import FIELD_PROVENANCE, STANDARD_COLUMNS
from cdckit.parts.arguments import nearest, quoted, text_literal

SEVERITIES = ("info", "warning", "critical")
"""How much it matters that a sentence is broken, as Great Expectations has it: the last most."""


@dataclass(frozen=True)
class Sentence:
    """One expectation of a suite: which sort, about what, in words, and why."""

    type: str
    kwargs: Mapping[str, Any]
    says: str
    source: str
    severity: str


@dataclass(frozen=True)
class Suite:
    """
    What one kind of table promises.

    Args:
        name: What it is called.
        columns: Those that its sentences read.
        tables: The other tables that they read, by the names that SQL calls them.
        order_by: By which columns the rows that break a sentence are shown.
        sentences: In their order.
        stated: The JSON that it was read from.
    """

    name: str
    columns: tuple[str, ...]
    tables: tuple[str, ...]
    order_by: tuple[str, ...]
    sentences: tuple[Sentence, ...]
    stated: Mapping[str, Any]


def suite_names() -> list[str]:
    """
    The suites that come with cdckit.

    >>> [name for name in suite_names() if name.startswith("re")]
    ['records', 'rejects']
    """
    return sorted(path.stem for path in Path(expectations()).glob("*.json"))


def suite_of(given: str | Mapping[str, Any], *, function: str) -> Suite:
    """
    A suite by its name, or of the JSON that Great Expectations writes, as Python has it.

    Raises:
        InvalidArgument: There is none of that name, or it has no expectations.
    """
    if isinstance(given, str):
        known = suite_names()
        if given not in known:
            close = nearest(given, known)
            remedy = None if close is None else f"Probably {close!r} was meant."
            raise InvalidArgument(function, "suite", f"one of {', '.join(known)}", given, remedy=remedy)
        given = json.loads(Path(expectations(f"{given}.json")).read_text())
    if not isinstance(given, Mapping) or not given.get("expectations") or "name" not in given:
        needed = "the name of a suite, or a suite of Great Expectations as a mapping, name and expectations"
        raise InvalidArgument(function, "suite", needed, given)
    meta = given.get("meta") or {}
    return Suite(
        given["name"],
        tuple(meta.get("columns", ())),
        tuple(meta.get("tables", ())),
        tuple(meta.get("order_by", ())),
        tuple(map(_sentence, given["expectations"])),
        given,
    )


def _sentence(stated: Mapping[str, Any]) -> Sentence:
    said = stated.get("description") or stated.get("notes") or _default_notes(stated)
    says = said if isinstance(said, str) else " ".join(said)
    source = (stated.get("meta") or {}).get("source", "")
    return Sentence(stated["type"], stated["kwargs"], says, source, stated.get("severity", "critical"))


def _default_notes(stated: Mapping[str, Any]) -> str:
    """Words for an expectation that has none: its sort and its arguments, so that no two are alike."""
    said = ", ".join(f"{name} {value}" for name, value in stated["kwargs"].items() if value is not None)
    return f"{stated['type'].replace('_', ' ')}: {said}" if said else stated["type"].replace("_", " ")


BATCH = "{batch}"
"""What stands for the table in a query, here as there."""

# Rows of the table with more columns, and no words that make more rows or fewer: what is asked of the
# table can be asked of them.  One such query may stand within another.
_WIDER = re.compile(r"\(SELECT \*, (.*?) FROM (?=\{batch\}|\()", re.S)
_ENDS = re.compile(r"(?: WINDOW .*)?\)", re.S)
_OTHER_ROWS = re.compile(
    r"\b(SELECT|FROM|WHERE|JOIN|UNION|LIMIT|GROUP|HAVING|QUALIFY|LATERAL|\w*explode\w*|inline\w*|stack)\b",
    re.I,
)
_SELECT = re.compile(r"SELECT\s+\*\s+FROM\s+(?=\{batch\}|\()")
_WHERE = re.compile(r"\s+WHERE\s+(.+)", re.S)
# All columns in a place where another column would be one more: not `count(*)`, nor those of a struct.
_ALL_COLUMNS = re.compile(r"(?<!\.)(?<!\bcount\()\*", re.I)
# What ends a query, hides its end, or is more than a condition.
_UNCLEAR = re.compile(r"--|/\*|;")
_MORE = re.compile(
    r"\b(SELECT|WHERE|UNION|INTERSECT|MINUS|GROUP|HAVING|WINDOW|QUALIFY|ORDER|SORT|CLUSTER|DISTRIBUTE"
    r"|LIMIT|OFFSET|LATERAL|PIVOT|UNPIVOT)\b|(?<!\* )\bEXCEPT\b",
    re.I,
)
_TEXT = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`""", re.S)


BREAKS, ALIKE = "cdckit_breaks", "cdckit_alike"
"""The columns that a table gets here, so it cannot have them."""
_BITS = 62
"""So many sentences fit into a number; those beyond are asked of the wider rows."""


class Counted(NamedTuple):
    """A sentence as SQL: of which rows it speaks, and which of them break it."""

    rows: str
    breaks: str


def counted(sentence: Sentence) -> Counted | None:
    """A sentence as a condition; none for the sorts of expectations that Great Expectations has to run."""
    kwargs = {name: value for name, value in sentence.kwargs.items() if value is not None}
    if kwargs.get("mostly") == 1:
        del kwargs["mostly"]  # all, which is what is meant where it does not stand
    if sentence.type == "unexpected_rows_expectation":
        return _of_query(kwargs["unexpected_rows_query"])
    if sentence.type == "expect_column_values_to_be_unique" and kwargs.keys() == {"column"}:
        return _unique([kwargs["column"]])
    if sentence.type == "expect_compound_columns_to_be_unique" and kwargs.keys() == {"column_list"}:
        return _unique(kwargs["column_list"])
    made, known = _CONDITIONS.get(sentence.type, (None, frozenset[str]()))
    if made is None or kwargs.keys() - known or _says_too_little(sentence.type, kwargs):
        return None
    return Counted(BATCH, made(kwargs))


def _says_too_little(sort: str, kwargs: Mapping[str, Any]) -> bool:
    """Of a set without values, or with null, and of no bounds Great Expectations has a word of its own."""
    if sort == "expect_column_values_to_be_in_set":
        values = kwargs.get("value_set") or [None]
        return any(value is None for value in values)
    return sort == "expect_column_values_to_be_between" and not kwargs.keys() & {"min_value", "max_value"}


def by_rows(sentences: Sequence[Counted]) -> list[tuple[str, list[int]]]:
    """
    Of which rows the sentences speak, each with the places of those that do, so that few passes do.

    The sentences about the rows of the table are asked of wider ones, unless something there speaks of all
    columns: the column of `with_breaks` would be one of them.
    """
    found: dict[str, list[int]] = {}
    for place, each in enumerate(sentences):
        found.setdefault(each.rows, []).append(place)
    asked = {rows: [sentences[place].breaks for place in places] for rows, places in found.items()}
    wider = next((rows for rows in found if rows != BATCH and _takes_a_column(rows, asked[rows])), None)
    if wider is not None and BATCH in found:
        found[wider] += found.pop(BATCH)
    return list(found.items())


def with_breaks(rows: str, sentences: Mapping[int, Counted]) -> tuple[str, list[str]]:
    """
    The rows with a column more, which has the answers of the sentences about the rows of the table itself.

    It is made of the table before rows are compared with others, so that the columns which only these
    sentences read are not carried through a shuffle.  Returns these rows, and the condition of each sentence.
    """
    own = [place for place, each in sentences.items() if each.rows == BATCH][:_BITS]
    bits = {place: 1 << number for number, place in enumerate(own)}  # one number for all: a row stays narrow
    made = " | ".join(f"IF({sentences[place].breaks}, {bit}L, 0L)" for place, bit in bits.items())
    wider = rows.replace(BATCH, f"(SELECT *, {made} AS {BREAKS} FROM {BATCH})") if bits else rows
    asked = {place: f"{BREAKS} & {bit}L <> 0" for place, bit in bits.items()}
    return wider, [asked.get(place, each.breaks) for place, each in sentences.items()]


def _takes_a_column(rows: str, conditions: Sequence[str]) -> bool:
    """Whether these are wider rows of the table, and mean the same if it has one column more."""
    said = " ".join([rows.replace("(SELECT *,", "("), *conditions])
    return are_the_tables(rows) and not _ALL_COLUMNS.search(said)


def are_the_tables(rows: str) -> bool:
    """Whether these are the rows of the table itself, perhaps with more columns."""
    if rows == BATCH:
        return True
    begun = _WIDER.match(rows)
    if begun is None:
        return False
    end = _end_of_rows(rows, begun.end())
    only_wider = _ENDS.fullmatch(rows, end) and not _OTHER_ROWS.search(begun[1] + rows[end:])
    return bool(only_wider) and are_the_tables(rows[begun.end() : end])


def _of_query(query: str) -> Counted:
    """Taken apart only where that is sure to say the same; else all rows of its answer break the sentence."""
    text = query.strip()
    begun = None if _UNCLEAR.search(text) else _SELECT.match(text)
    if begun is not None:
        end = _end_of_rows(text, begun.end())
        found = _WHERE.fullmatch(text, end)
        if found is not None and not _MORE.search(found[1]):
            return Counted(text[begun.end() : end], found[1])
    whole = text.rstrip("; \n")
    return Counted(f"(\n{whole}\n)", "true")  # a comment at its end ends with the line


def _end_of_rows(text: str, begin: int) -> int:
    """Where the table ends that begins there, or the query in parentheses."""
    if text.startswith(BATCH, begin):
        return begin + len(BATCH)
    depth = 0
    plain = _TEXT.sub(lambda found: "x" * len(found[0]), text)
    for place in range(begin, len(plain)):
        depth += (plain[place] == "(") - (plain[place] == ")")
        if depth == 0:
            return place + 1
    return len(text)


def _column(kwargs: Mapping[str, Any], name: str = "column") -> str:
    return _in_a_format("`" + str(kwargs[name]).replace("`", "``") + "`")


def _in_a_format(sql: str) -> str:
    """The text of a query is a format, so its braces are doubled."""
    return sql.replace("{", "{{").replace("}", "}}")


def _literal(value: object) -> str:
    if isinstance(value, str):
        return _in_a_format(text_literal(value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _in_set(kwargs: Mapping[str, Any]) -> str:
    return f"{_column(kwargs)} NOT IN ({', '.join(map(_literal, kwargs['value_set']))})"


def _regex(kwargs: Mapping[str, Any]) -> str:
    return f"NOT {_column(kwargs)} RLIKE {_literal(kwargs['regex'])}"


def _between(kwargs: Mapping[str, Any]) -> str:
    bounds = (("min_value", "<", "strict_min"), ("max_value", ">", "strict_max"))
    outside = [
        f"{_column(kwargs)} {sign}{'=' if kwargs.get(strict) else ''} {_literal(kwargs[bound])}"
        for bound, sign, strict in bounds
        if bound in kwargs
    ]
    return " OR ".join(outside)


def _unique(columns: Sequence[str]) -> Counted:
    """As Great Expectations counts: all rows that are alike, but for those in which every column is null."""
    names = [_column({"column": name}) for name in columns]
    alike = f"(SELECT *, count(*) OVER (PARTITION BY {', '.join(names)}) AS {ALIKE} FROM {BATCH})"
    some = " OR ".join(f"{name} IS NOT NULL" for name in names)
    return Counted(alike, f"{ALIKE} > 1 AND ({some})")


def _greater(kwargs: Mapping[str, Any]) -> str:
    sign = "<" if kwargs.get("or_equal") else "<="
    return f"{_column(kwargs, 'column_A')} {sign} {_column(kwargs, 'column_B')}"


_Condition = Callable[[Mapping[str, Any]], str]
_CONDITIONS: Mapping[str, tuple[_Condition, frozenset[str]]] = {
    "expect_column_values_to_not_be_null": (lambda of: f"{_column(of)} IS NULL", frozenset({"column"})),
    "expect_column_values_to_be_null": (lambda of: f"{_column(of)} IS NOT NULL", frozenset({"column"})),
    "expect_column_values_to_be_in_set": (_in_set, frozenset({"column", "value_set"})),
    "expect_column_values_to_match_regex": (_regex, frozenset({"column", "regex"})),
    "expect_column_values_to_be_between": (
        _between,
        frozenset({"column", "min_value", "max_value", "strict_min", "strict_max"}),
    ),
    "expect_column_pair_values_a_to_be_greater_than_b": (
        _greater,
        frozenset({"column_A", "column_B", "or_equal", "ignore_row_if"}),
    ),
}
"""By the sort of an expectation: its condition, for which null is no break, and the arguments it knows."""


NAMELESS = (
    f"array_size(array_except(json_object_keys(to_json(struct(* EXCEPT ({', '.join(STANDARD_COLUMNS)})))), "
    f"coalesce(json_object_keys(to_json({FIELD_PROVENANCE})), array()))) > 0"
)
"""Whether a field has a value and no provenance."""

HALF = f"exists(array({FIELD_PROVENANCE}.*), each -> (each.m IS NULL) <> (each.p IS NULL))"
"""Whether provenance names a message and no priority, or the other way round."""

UNSAID = "array_size(array_remove(array_remove(array(carried.*), true), false)) > 0"
"""Whether a change does not say of each field if its message sent it."""

EMPTY = "array_size(array_remove(array(carried.*), false)) = 0"
"""Whether a change carries no field."""

FIELDLESS = "operation <> 'delete' AND data IS NULL"
"""Whether a change lacks the fields that it should have."""

SOME = re.compile(
    r"exists\(zip_with\((cdckit_[\w.]*priorities\w*), (cdckit_[\w.]*priorities\w*), \((\w+), (\w+)\) -> "
    r"([\w\s<]+)\), some -> some\)"
)
"""Whether two arrays of priorities, one for each field, differ somewhere as it is said."""

ABSENT = re.compile(r"(?<=\bIF\()`(\w+)` IS NULL(?=, \d+L, 0L\))")
"""Whether a column is null, as `with_breaks` asks it of the rows of the table."""


def unrolled(query: str, schema: T.StructType) -> str:
    """The query with such texts replaced, of a table of these columns."""
    provenance = _fields(schema, FIELD_PROVENANCE)
    fields = [name for name in schema.names if name not in STANDARD_COLUMNS]
    flags = _flags(schema)
    made: Mapping[str, Callable[[], str]] = {
        NAMELESS: lambda: _nameless(fields, provenance),
        HALF: lambda: _any(_half(name) for name in provenance),
        **({} if flags is None else {UNSAID: lambda: _unsaid(flags), EMPTY: lambda: _empty(flags)}),
        FIELDLESS: lambda: FIELDLESS + _and_leaf(schema, "data"),
    }
    for text, of in made.items():
        if text in query:
            query = query.replace(text, of())
    query = ABSENT.sub(lambda found: found[0] + _and_leaf(schema, found[1]), query)
    return SOME.sub(lambda found: _any(_differs(found, place) for place in range(len(provenance))), query)


def _fields(schema: T.StructType, column: str) -> Sequence[str]:
    kind = schema[column].dataType if column in schema.names else None
    return kind.fieldNames() if isinstance(kind, T.StructType) else []


def _name(field: str) -> str:
    """A name in SQL that is a format, so that braces are doubled."""
    return quoted(field).replace("{", "{{").replace("}", "}}")


def _any(conditions: Iterable[str]) -> str:
    return f"({' OR '.join(conditions) or 'false'})"


def _nameless(fields: Sequence[str], provenance: Sequence[str]) -> str:
    lacking = []
    for name in map(_name, fields):
        known = f"{FIELD_PROVENANCE}.{name} IS NULL AND " if name in map(_name, provenance) else ""
        lacking.append(f"({known}{name} IS NOT NULL)")
    return _any(lacking)


def _flags(schema: T.StructType) -> Sequence[str] | None:
    """The fields of `carried`; none if one is no boolean, or has no name in SQL: then the text stands."""
    kind = schema["carried"].dataType if "carried" in schema.names else None
    if not isinstance(kind, T.StructType) or any(each.dataType != T.BooleanType() for each in kind):
        return None
    return kind.fieldNames() if len(_told_apart(kind)) == len(kind) else None


def _told_apart(kind: T.StructType) -> Sequence[T.StructField]:
    """The fields whose names do not differ in case alone: of others SQL cannot tell which is meant."""
    count = Counter(name.lower() for name in kind.fieldNames())
    return [field for field in kind if count[field.name.lower()] == 1]


def _unsaid(flags: Sequence[str]) -> str:
    return _any(f"carried.{_name(each)} IS NULL" for each in flags)


def _empty(flags: Sequence[str]) -> str:
    return f"NOT {_any(f'coalesce(carried.{_name(each)}, true)' for each in flags)}"


def _and_leaf(schema: T.StructType, column: str) -> str:
    """That a small field of it is null, too: for a struct alone Spark would read all of its fields."""
    kind = schema[column].dataType if column in schema.names else None
    if not isinstance(kind, T.StructType):
        return ""
    leaves = [each for each in _told_apart(kind) if type(each.dataType) in _SIZES]
    small = min(leaves, key=lambda each: _SIZES[type(each.dataType)], default=None)
    return f" AND {_name(column)}.{_name(small.name)} IS NULL" if small is not None else ""


_SIZES: Mapping[type[T.DataType], int] = {
    T.BooleanType: 1, T.IntegerType: 4, T.LongType: 8, T.DoubleType: 9, T.StringType: 16, T.TimestampType: 17,
}  # fmt: skip


def _half(field: str) -> str:
    entry = f"{FIELD_PROVENANCE}.{_name(field)}"
    return f"({entry}.m IS NULL) <> ({entry}.p IS NULL)"


def _differs(found: re.Match[str], place: int) -> str:
    one, other, first, second, condition = found.groups()
    at = {first: f"get({one}, {place})", second: f"get({other}, {place})"}
    said = re.sub(r"\w+", lambda word: at.get(word[0], word[0]), condition)
    return f"({said})"
