"""
Suites: what a table promises, one sentence each, and the SQL that finds the rows which break it.

A file may be put into the folder `gx/expectations` of a project of Great Expectations, and runs there: it has
the ids that are wanted of a suite that was saved, and each `description` is the sentence, which the pages
show beside a failure.  An expectation whose `meta` names the `engine` Spark is a query in Spark's SQL; the
tables beside the one that is checked are there views such as `cdckit_merged`.

Great Expectations runs on Spark a job or two for each query of rows, each with its own sort of the table.
Here conditions on the same rows are counted together: a query of the suites of cdckit is
`SELECT * FROM rows WHERE condition`, and its `meta` has the condition once more, as `breaks`.  Another one
is asked as it stands.  What it means is what Great Expectations says it means; the tests run both on the
same rows.

A suite is written for tables of any fields, so it turns rows into arrays or JSON, and goes through these
element by element.  Spark compiles what names columns; lambdas and JSON it interprets, at many times
the cost.
The texts that are replaced are those of the suites of cdckit, whole, so that nothing else is taken for them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument
from cdckit.files import expectations
from cdckit.history import FIELD_PROVENANCE, STANDARD_COLUMNS
from cdckit.parts.arguments import nearest_name, quoted, text_literal

SEVERITIES = ("info", "warning", "critical")
"""How much it matters that a sentence is broken, as Great Expectations has it: the last most."""


@dataclass(frozen=True)
class Sentence:
    """
    One expectation of a suite: which sort, about what, in words, and why.

    *breaks* is what a query asks of the rows that it looks at, which are what stands before it.
    """

    type: str
    kwargs: Mapping[str, Any]
    says: str
    source: str
    severity: str
    breaks: str = ""
    unless: str = ""
    """What the metadata of a column may say, so that the table does not promise it."""


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


def read_suite(given: str | Mapping[str, Any], *, function: str) -> Suite:
    """
    A suite by its name, or of the JSON that Great Expectations writes, as Python has it.

    Raises:
        InvalidArgument: There is none of that name, or it has no expectations.
    """
    if isinstance(given, str):
        known = suite_names()
        if given not in known:
            close = nearest_name(given, known)
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


def keep_promised(suite: Suite, frame: DataFrame) -> Suite:
    """The suite without what this table does not promise, such as no gaps where changes may end."""
    marks = {mark for column in frame.schema for mark, is_so in column.metadata.items() if is_so}
    kept = [place for place, each in enumerate(suite.sentences) if each.unless not in marks]
    stated = {**suite.stated, "expectations": [suite.stated["expectations"][place] for place in kept]}
    return replace(suite, sentences=tuple(suite.sentences[place] for place in kept), stated=stated)


def _sentence(stated: Mapping[str, Any]) -> Sentence:
    said = stated.get("description") or stated.get("notes") or _default_notes(stated)
    says = said if isinstance(said, str) else " ".join(said)
    meta, severity = stated.get("meta") or {}, stated.get("severity", "critical")
    source, breaks, unless = (meta.get(name, "") for name in ("source", "breaks", "unless"))
    return Sentence(stated["type"], stated["kwargs"], says, source, severity, breaks, unless)


def _default_notes(stated: Mapping[str, Any]) -> str:
    """Words for an expectation that has none: its sort and its arguments, so that no two are alike."""
    said = ", ".join(f"{name} {value}" for name, value in stated["kwargs"].items() if value is not None)
    return f"{stated['type'].replace('_', ' ')}: {said}" if said else stated["type"].replace("_", " ")


BATCH = "{batch}"
"""What stands for the table in a query, here as there."""

_WIDER = "(SELECT *, "

BREAKS, ALIKE = "cdckit_breaks", "cdckit_alike"
"""The columns that a table gets here, so it cannot have them."""
_BITS = 62
"""So many sentences fit into a number; those beyond are asked of the wider rows."""


class SqlSentence(NamedTuple):
    """A sentence as SQL: of which rows it speaks, and which of them break it."""

    rows: str
    breaks: str


def to_sql(sentence: Sentence) -> SqlSentence | None:
    """A sentence as a condition; none for the sorts of expectations that Great Expectations has to run."""
    kwargs = {name: value for name, value in sentence.kwargs.items() if value is not None}
    if kwargs.get("mostly") == 1:
        del kwargs["mostly"]  # all, which is what is meant where it does not stand
    if sentence.type == "unexpected_rows_expectation":
        return _parse_query(kwargs["unexpected_rows_query"], sentence.breaks)
    if sentence.type == "expect_column_values_to_be_unique" and kwargs.keys() == {"column"}:
        return _unique([kwargs["column"]])
    if sentence.type == "expect_compound_columns_to_be_unique" and kwargs.keys() == {"column_list"}:
        return _unique(kwargs["column_list"])
    if kwargs.keys() - _KNOWN.get(sentence.type, set()):
        return None
    breaks = _condition(sentence.type, kwargs)
    return None if breaks is None else SqlSentence(BATCH, breaks)


_KNOWN = {
    "expect_column_values_to_not_be_null": {"column"},
    "expect_column_values_to_be_null": {"column"},
    "expect_column_values_to_be_in_set": {"column", "value_set"},
    "expect_column_values_to_match_regex": {"column", "regex"},
    "expect_column_values_to_be_between": {"column", "min_value", "max_value", "strict_min", "strict_max"},
    "expect_column_pair_values_a_to_be_greater_than_b": {"column_A", "column_B", "or_equal", "ignore_row_if"},
}
"""By the sort of an expectation, the arguments that are known here."""


def _condition(sort: str, of: Mapping[str, Any]) -> str | None:
    """
    What breaks an expectation, for which null is no break.

    None for what Great Expectations has a word of its own: a set with null or without values, no bounds.
    """
    column, one, other = (_name(str(of.get(argument))) for argument in ("column", "column_A", "column_B"))
    match sort.removeprefix("expect_column_"):
        case "values_to_not_be_null":
            return f"{column} IS NULL"
        case "values_to_be_null":
            return f"{column} IS NOT NULL"
        case "values_to_match_regex":
            return f"NOT {column} RLIKE {_literal(of['regex'])}"
        case "pair_values_a_to_be_greater_than_b":
            return f"{one} {'<' if of.get('or_equal') else '<='} {other}"
        case "values_to_be_in_set":
            values = of.get("value_set") or [None]
            return None if None in values else f"{column} NOT IN ({', '.join(map(_literal, values))})"
        case "values_to_be_between":
            bounds = (("min_value", "<", "strict_min"), ("max_value", ">", "strict_max"))
            outside = [
                f"{column} {sign}{'=' if of.get(strict) else ''} {_literal(of[bound])}"
                for bound, sign, strict in bounds
                if bound in of
            ]
            return " OR ".join(outside) or None
    return None


def group_by_rows(sentences: Sequence[SqlSentence]) -> list[tuple[str, list[int]]]:
    """
    Of which rows the sentences speak, each with the places of those that do, so that few passes do.

    The sentences about the rows of the table are asked of wider ones, where there are such.
    """
    found: dict[str, list[int]] = {}
    for place, each in enumerate(sentences):
        found.setdefault(each.rows, []).append(place)
    wider = next((rows for rows in found if rows != BATCH and are_table_rows(rows)), None)
    if wider is not None and BATCH in found:
        found[wider] += found.pop(BATCH)
    return list(found.items())


def with_breaks(rows: str, sentences: Mapping[int, SqlSentence]) -> tuple[str, list[str]]:
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


def are_table_rows(rows: str) -> bool:
    """Whether these are the rows of the table itself, perhaps with more columns, as suites write them."""
    return rows == BATCH or rows.startswith(_WIDER)


def _parse_query(query: str, breaks: str) -> SqlSentence:
    """In parts where the suite says what *breaks* it; else all rows of its answer break the sentence."""
    begin, end = "SELECT * FROM ", f" WHERE {breaks}"
    if breaks and query.startswith(begin) and query.endswith(end):
        return SqlSentence(query.removeprefix(begin).removesuffix(end), breaks)
    whole = query.strip().rstrip("; \n")
    return SqlSentence(f"(\n{whole}\n)", "true")  # a comment at its end ends with the line


def _escape_braces(sql: str) -> str:
    """The text of a query is a format, so its braces are doubled."""
    return sql.replace("{", "{{").replace("}", "}}")


def _literal(value: object) -> str:
    if isinstance(value, str):
        return _escape_braces(text_literal(value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _unique(columns: Sequence[str]) -> SqlSentence:
    """As Great Expectations counts: all rows that are alike, but for those in which every column is null."""
    names = list(map(_name, columns))
    alike = f"{_WIDER}count(*) OVER (PARTITION BY {', '.join(names)}) AS {ALIKE} FROM {BATCH})"
    some = " OR ".join(f"{name} IS NOT NULL" for name in names)
    return SqlSentence(alike, f"{ALIKE} > 1 AND ({some})")


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

_SOME = "exists(zip_with(cdckit_priorities, cdckit_priorities_before, (now, was) -> {}), some -> some)"
SOME = {_SOME.format(differs): differs for differs in ("now < was", "was IS NOT NULL AND now IS NULL")}
"""Whether two arrays of priorities, one for each field, differ somewhere, and how."""


def expand_query(query: str, schema: T.StructType) -> str:
    """The query with such texts replaced, of a table of these columns."""
    kinds = {field.name: field.dataType for field in schema}
    said = kinds.get(FIELD_PROVENANCE)
    provenance = list(map(_name, said.names)) if isinstance(said, T.StructType) else []
    fields = [_name(name) for name in schema.names if name not in STANDARD_COLUMNS]
    made = {
        NAMELESS: _any(
            f"({f'{FIELD_PROVENANCE}.{name} IS NULL AND ' if name in provenance else ''}{name} IS NOT NULL)"
            for name in fields
        ),
        HALF: _any(
            f"({FIELD_PROVENANCE}.{name}.m IS NULL) <> ({FIELD_PROVENANCE}.{name}.p IS NULL)"
            for name in provenance
        ),
        FIELDLESS: FIELDLESS + _and_leaf("data", kinds.get("data")),
    }
    carried = kinds.get("carried")
    # Where a flag is no boolean, or has no name in SQL, the text stands.
    if (
        isinstance(carried, T.StructType)
        and {each.dataType for each in carried} <= {T.BooleanType()}
        and len(_distinct_fields(carried)) == len(carried)
    ):
        flags = [f"carried.{_name(name)}" for name in carried.names]
        made[UNSAID] = _any(f"{flag} IS NULL" for flag in flags)
        made[EMPTY] = f"NOT {_any(f'coalesce({flag}, true)' for flag in flags)}"
    for text, differs in SOME.items():
        made[text] = _any(
            f"({differs})".replace("now", f"get(cdckit_priorities, {place})").replace(
                "was", f"get(cdckit_priorities_before, {place})"
            )
            for place in range(len(provenance))
        )
    for name, kind in kinds.items():
        absent = f"IF({_name(name)} IS NULL"  # as `with_breaks` asks it of the rows of the table
        made[f"{absent}, "] = f"{absent}{_and_leaf(name, kind)}, "
    for text, replaced in made.items():
        query = query.replace(text, replaced)
    return query


def _name(field: str) -> str:
    return _escape_braces(quoted(field))


def _any(conditions: Iterable[str]) -> str:
    return f"({' OR '.join(conditions) or 'false'})"


def _distinct_fields(kind: T.StructType) -> Sequence[T.StructField]:
    """The fields whose names do not differ in case alone: of others SQL cannot tell which is meant."""
    count = Counter(name.lower() for name in kind.fieldNames())
    return [field for field in kind if count[field.name.lower()] == 1]


def _and_leaf(column: str, kind: T.DataType | None) -> str:
    """That a small field of it is null, too: for a struct alone Spark would read all of its fields."""
    if not isinstance(kind, T.StructType):
        return ""
    leaves = [each for each in _distinct_fields(kind) if type(each.dataType) in _SIZES]
    small = min(leaves, key=lambda each: _SIZES[type(each.dataType)], default=None)
    return f" AND {_name(column)}.{_name(small.name)} IS NULL" if small is not None else ""


_SIZES: Mapping[type[T.DataType], int] = {
    T.BooleanType: 1, T.IntegerType: 4, T.LongType: 8, T.DoubleType: 9, T.StringType: 16, T.TimestampType: 17,
}  # fmt: skip
