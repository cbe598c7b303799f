"""
Sentences as conditions of SQL, so that the rows that break many of them are counted in one pass.

Great Expectations runs on Spark a job or two for each query of rows, each with its own sort of the table.
Here a query is taken apart where it has the form that the suites of cdckit have, `SELECT * FROM … WHERE …`:
conditions on the same rows are counted together.  What it means is what Great Expectations says it means;
the tests run both on the same rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from cdckit.parts.schemas import text_literal
from cdckit.quality.suites import Sentence

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
